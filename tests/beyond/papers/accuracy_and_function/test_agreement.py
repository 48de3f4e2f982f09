"""Minimal pairs from sentences, and their log-odds by hand in tiny language models."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from tolerances import float32_error
from toy_corpora import corpus_of
from toy_decoders import random_decoder

from beyond.papers.accuracy_and_function import agreement
from beyond.papers.common.edge_cuts import MOST_ATTENDED
from beyond.papers.common.head_edges import HeadCut, attention_and_effects, cut_effects
from helpers.data.records import Sentence
from helpers.errors import InputError, ModelError
from helpers.metrics.head_counts import count_heads
from helpers.metrics.heads import by_head
from helpers.store.extract import extract

# The tiny vocabulary has no verb in two forms.  Here "cat" and "dog" are the forms of one.
FORMS = {"cat": "dog", "dog": "cat"}
RELATIONS = ("nsubj", "prep", "det", "pobj", "root", "prep", "pobj")
HEADS = (5, 1, 4, 2, 0, 5, 6)
KNOWN = {"see", "sees", "run", "runs"}


def sentence(subject, verb, split="dev", relations=RELATIONS, heads=HEADS, article="a"):
    words = (subject, "of", "the", "lan", verb, "for", "Paris")
    return Sentence(words, heads, relations, split, f"{article}, paragraph 1, sentence 1")


def store_of(encoder, sentences):
    return extract(encoder, corpus_of(sentences), level="word", max_tokens=60)


@pytest.fixture
def verbs(monkeypatch):
    monkeypatch.setattr(agreement, "NUMBERS", FORMS)


@pytest.mark.parametrize(
    ("verb", "subject", "expected"),
    [
        ("are", "keys", "is"),
        ("has", "key", "have"),
        ("sees", "dog", "see"),
        ("see", "dogs", "sees"),
        ("see", "they", "sees"),
        ("run", "dog", None),  # maybe in the past
        ("took", "dogs", None),  # "tooks" is no word
        ("pass", "they", None),  # its other form is "passes"
        ("'s", "dog", None),
    ],
)
def test_other_number(verb, subject, expected):
    assert agreement.other_number(verb, subject, {*KNOWN, "'"}) == expected


def pair_of(encoder, *args, known_words=(), **options):
    record = store_of(encoder, [sentence(*args, **options)]).record(0)
    return record, agreement.minimal_pair(encoder, record, "a", known_words)


@pytest.mark.usefixtures("verbs")
def test_minimal_pair_of_a_decoder_is_the_prefix_and_both_forms(tiny_encoder):
    encoder = random_decoder(tiny_encoder, "gpt2")
    _, pair = pair_of(encoder, "doe", "cat")
    assert pair.between == 3
    prefix = encoder.tokenizer.decode(pair.case.token_ids)
    assert prefix == encoder.tokenizer.bos_token + " doe of the lan"
    forms = [encoder.tokenizer.decode(form) for form in pair.case.continuations]
    assert forms == [" cat", " dog"]
    assert len(pair.case.continuations[0]) > 1  # the tiny vocabulary has no such words
    last = len(pair.case.token_ids) - 1
    assert (pair.case.queries, pair.case.position) == ((last,), last)
    keys = encoder.tokenizer.decode([pair.case.token_ids[token] for token in pair.case.keys])
    assert keys == " doe"


@pytest.mark.usefixtures("verbs")
def test_minimal_pair_of_an_encoder_masks_the_verb(tiny_encoder):
    encoder = tiny_encoder("bert")
    record, pair = pair_of(encoder, "doe", "cat")
    tokens = encoder.tokenizer.convert_ids_to_tokens(pair.case.token_ids)
    position = pair.case.position
    assert tokens[position] == "[MASK]"
    before = encoder.tokenizer.convert_ids_to_tokens(record["inputs"]["input_ids"])
    assert before[position] == "cat"
    assert [*tokens[:position], "cat", *tokens[position + 1 :]] == before
    forms = encoder.tokenizer.convert_ids_to_tokens([form[0] for form in pair.case.continuations])
    assert forms == ["cat", "dog"]


@pytest.mark.usefixtures("verbs")
@pytest.mark.parametrize(
    ("heads", "relations"),
    [
        (HEADS, ("obj", *RELATIONS[1:])),  # there is no subject
        ((5, 1, 4, 5, 0, 5, 6), ("dep", "prep", "det", "nsubj", *RELATIONS[4:])),  # adjacent
        ((6, 1, 4, 2, 6, 0, 6), ("nsubj", *RELATIONS[1:4], "advmod", "root", "pobj")),  # "for"
    ],
)
def test_minimal_pair_needs_a_subject_apart_from_a_verb_of_two_forms(
    tiny_encoder, heads, relations
):
    _, pair = pair_of(tiny_encoder("bert"), "doe", "cat", relations=relations, heads=heads)
    assert pair is None


@pytest.mark.usefixtures("verbs")
def test_the_auxiliary_of_a_verb_agrees_in_its_place(tiny_encoder):
    encoder = random_decoder(tiny_encoder, "gpt2")
    heads = (6, 1, 4, 2, 6, 0, 6)
    relations = ("nsubj", "prep", "det", "pobj", "aux", "root", "pobj")
    _, pair = pair_of(encoder, "doe", "cat", heads=heads, relations=relations)
    assert encoder.tokenizer.decode(pair.case.continuations[0]) == " cat"
    # A modal verb has one form, whatever the subject is.
    assert pair_of(encoder, "does", "can", heads=heads, relations=relations)[1] is None


@pytest.mark.parametrize("family", ["gpt2", "bert"])
@pytest.mark.usefixtures("verbs")
def test_agreement_tables_are_those_of_plain_passes(tiny_encoder, family):
    encoder = random_decoder(tiny_encoder, "gpt2") if family == "gpt2" else tiny_encoder("bert")
    sentences = []
    for number, (subject, verb) in enumerate(
        [("doe", "cat"), ("mat", "dog"), ("dog", "cat"), ("lan", "dog")] * 2
    ):
        split = "train" if number < 4 else "dev"
        sentences.append(sentence(subject, verb, split, article=f"article {number}"))
    store = store_of(encoder, sentences)
    counts = count_heads(store)
    tables = agreement.agreement_tables(encoder, store, counts, pairs=6)
    pairs = list(agreement.minimal_pairs(encoder, store))
    assert len(pairs) == 8
    cases = [pairs[index].case for index in (0, 1, 2, 4, 5, 7)]  # evenly spaced
    log_odds = [log_odds_by_hand(encoder, case) for case in cases]
    row = tables["agreement"].set_index("words_between").loc["all"]
    assert row["pairs"] == 6
    assert row["log_odds"] == pytest.approx(np.mean(log_odds), abs=1e-4)
    assert row["right"] == pytest.approx(100 * np.mean(np.array(log_odds) > 0))
    assert tables["agreement"].set_index("words_between").loc["1", "pairs"] == 0

    heads = tables["agreement_heads"]
    first_order = attention_and_effects(encoder, cases)[1].mean(axis=0)
    error = float32_error(np.log(encoder.model.config.vocab_size))
    np.testing.assert_allclose(by_head(heads, "first_order"), first_order, atol=error)
    expected = counts.of_split("train").accuracy("nsubj")[1]
    np.testing.assert_allclose(by_head(heads, "accuracy"), expected)
    assert heads["dropped"].notna().all()  # the tiny model has fewer than twenty heads
    cuts = [HeadCut(1, 2), HeadCut(1, 2, mode=MOST_ATTENDED)]
    dropped, most_attended = cut_effects(encoder, cases, cuts)[..., 0].mean(axis=0)
    row = heads.set_index(["layer", "head"]).loc[2, 3]
    assert row["dropped"] == pytest.approx(dropped, abs=error)
    assert row["most_attended"] == pytest.approx(most_attended, abs=error)
    assert row["difference"] == pytest.approx(dropped - most_attended, abs=error)
    assert row["dropped_df"] == 5  # six articles
    correlations = tables["agreement_correlations"].set_index("predictor")["correlation"]
    expected = spearmanr(heads["attention"], heads["first_order"]).statistic
    assert correlations["attention"] == pytest.approx(expected)


def log_odds_by_hand(encoder, case):
    """Compute the log-odds of a minimal pair by one full pass for each form."""
    totals = []
    with torch.no_grad():
        for form in case.continuations:
            ids = torch.tensor([[*case.token_ids, *form[:-1]]])
            log_probabilities = encoder.model(ids).logits[0].double().log_softmax(dim=-1)
            total = 0.0
            for number, token in enumerate(form):
                total += log_probabilities[case.position + number, token].item()
            totals.append(total)
    return totals[0] - totals[1]


def test_agreement_tables_refuse_what_has_no_pairs(tiny_encoder):
    encoder = tiny_encoder("bert")
    store = store_of(encoder, [sentence("doe", "cat", split) for split in ("train", "dev")])
    with pytest.raises(InputError, match="stands apart"):
        agreement.agreement_tables(encoder, store, count_heads(store), pairs=4)
    with pytest.raises(ModelError, match="no head that predicts words"):
        agreement.agreement_tables(tiny_encoder("t5"), store, count_heads(store), pairs=4)
