"""Agreement of verbs: balanced templates, and their log-odds by hand in tiny language models."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch
from tolerances import float32_error
from toy_corpora import corpus_of
from toy_decoders import random_decoder

from beyond.papers.accuracy_and_function import agreement
from beyond.papers.accuracy_and_function.agreement import ALL, NUMBERS, OTHER, POSITIVE, SAME
from beyond.papers.common.head_edges import HeadCut, attention_and_effects, cut_effects
from helpers.data.records import Sentence
from helpers.metrics.head_counts import count_heads
from helpers.metrics.heads import by_head
from helpers.store.extract import extract

WORDS = ("doe", "of", "the", "lan", "cat", "for", "Paris")
RELATIONS = ("nsubj", "prep", "det", "pobj", "root", "prep", "pobj")
TEMPLATES = 8


def store_of(encoder):
    sentences = [
        Sentence(WORDS, (5, 1, 4, 2, 0, 5, 6), RELATIONS, split, "a, paragraph 1, sentence 1")
        for split in ("train", "dev")
    ]
    return extract(encoder, corpus_of(sentences), level="word", max_tokens=60)


def test_templates_are_balanced():
    templates = agreement.list_templates(100)
    combinations = Counter((template.number, template.attractor) for template in templates)
    assert set(combinations.values()) == {25}
    assert set(Counter(template.noun for template in templates).values()) == {4}
    for template in templates:
        subject, attractor = template.words[1], template.words[-1]
        is_plural = subject.endswith("s")
        assert is_plural == (template.number == NUMBERS[1])
        assert (attractor.endswith("s") == is_plural) == (template.attractor == SAME)
        pair = template.forms[::-1] if is_plural else template.forms
        assert pair in agreement.VERBS


def test_case_of_a_decoder_is_the_prefix_and_both_forms(tiny_encoder):
    encoder = random_decoder(tiny_encoder, "gpt2")
    template = agreement.Template(
        ("The", "keys", "to", "the", "town"), ("are", "is"), "key", "", ""
    )
    case = agreement.template_case(encoder, template)
    decode = encoder.tokenizer.decode
    assert decode(case.token_ids) == encoder.tokenizer.bos_token + " The keys to the town"
    assert [decode(form) for form in case.continuations] == [" are", " is"]
    last = len(case.token_ids) - 1
    assert (case.queries, case.position) == ((last,), last)
    assert decode([case.token_ids[token] for token in case.keys]) == " keys"


def test_case_of_an_encoder_masks_the_verb(tiny_encoder):
    encoder = tiny_encoder("bert")
    template = agreement.Template(("The", "dog", "of", "the", "mat"), ("cat", "dog"), "dog", "", "")
    case = agreement.template_case(encoder, template)
    tokens = encoder.tokenizer.convert_ids_to_tokens(case.token_ids)
    assert tokens[case.position] == "[MASK]"
    assert tokens[case.position - 1] == "##at"  # of "mat"
    assert encoder.tokenizer.convert_ids_to_tokens([form[0] for form in case.continuations]) == [
        "cat", "dog",
    ]  # fmt: skip
    several = template._replace(forms=("watched", "dog"))
    assert agreement.template_case(encoder, several) is None


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


def test_agreement_tables_are_those_of_plain_passes(tiny_encoder):
    encoder = random_decoder(tiny_encoder, "gpt2")
    store = store_of(encoder)
    counts = count_heads(store)
    tables = agreement.agreement_tables(encoder, store, counts, TEMPLATES)
    templates = agreement.list_templates(TEMPLATES)
    cases = [agreement.template_case(encoder, template) for template in templates]
    log_odds = np.array([log_odds_by_hand(encoder, case) for case in cases])
    rows = tables["agreement"].set_index(["subject", "attractor"])
    assert rows.loc[(ALL, ALL), "templates"] == TEMPLATES
    assert rows.loc[(ALL, ALL), "log_odds"] == pytest.approx(log_odds.mean(), abs=1e-4)
    is_other = np.array([template.attractor == OTHER for template in templates])
    right = 100 * np.mean(log_odds[is_other] > 0)
    assert rows.loc[(ALL, OTHER), "right"] == pytest.approx(right)

    heads = tables["agreement_heads"]
    first_order = attention_and_effects(encoder, cases)[1]
    error = float32_error(np.log(encoder.model.config.vocab_size))
    np.testing.assert_allclose(by_head(heads, "first_order"), first_order.mean(0), atol=error)
    expected = counts.of_split("train").accuracy("nsubj")[1]
    np.testing.assert_allclose(by_head(heads, "accuracy"), expected)
    nouns = sorted({case.article for case in cases})
    is_first = np.array([case.article == nouns[0] for case in cases])
    sizes = np.abs(first_order[is_first].mean(axis=0)).ravel()
    chosen = np.sort(np.argsort(-sizes, kind="stable")[: agreement.ABLATED_HEADS])
    dropped = heads.dropna(subset="dropped")
    assert dropped.index.tolist() == chosen.tolist()  # chosen on one subject
    layer, head = dropped.iloc[0][["layer", "head"]].astype(int) - 1
    rest = [case for case, is_in in zip(cases, is_first, strict=True) if not is_in]
    lost = cut_effects(encoder, rest, [[HeadCut(layer, head)]] * len(rest)).mean()
    assert dropped.iloc[0]["dropped"] == pytest.approx(lost, abs=error)  # measured on the other


def test_correlations_of_heads_with_a_positive_effect_leave_the_noise_out():
    rng = np.random.default_rng(0)
    attention = np.linspace(0.01, 0.5, 60)
    effect = np.where(np.arange(60) < 45, 0.01 * rng.standard_normal(60), attention)
    heads = pd.DataFrame({"attention": attention, "first_order": effect})
    heads = heads.assign(accuracy=rng.random(60), first_order_low=effect - 0.05)
    table = agreement.agreement_correlations(heads)
    rows = table.set_index(["heads", "predictor"])
    assert rows.loc[(POSITIVE, "attention"), "number"] == 15
    assert rows.loc[(POSITIVE, "attention"), "correlation"] == pytest.approx(1)
    assert rows.loc[(ALL, "attention"), "correlation"] < 0.8
    assert rows.loc[(ALL, agreement.GIVEN_ATTENTION), "correlation_low"] < 0
