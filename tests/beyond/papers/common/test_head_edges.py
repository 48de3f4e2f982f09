"""Edges of one head cut, against passes of plain transformers code with a patched softmax."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine
from softmax_reference import changed_softmax
from toy_corpora import SENTENCES, corpus_of, sentence_of
from toy_decoders import random_decoder

from beyond.papers.common import head_edges
from beyond.papers.common.edge_cuts import DROPPED, MOST_ATTENDED
from beyond.papers.common.head_edges import (
    EdgeCase,
    HeadCut,
    relation_edges,
    tokens_of_word,
)
from helpers.metrics.heads import DIRECTIONS
from helpers.store.extract import extract

LAYER = 1
HEAD = 2
PREFIX = (10, 20, 30, 40, 50, 60)
SUBJECT_TOKENS = (1, 2)
FORMS = ((7, 8, 9), (11,))


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def decoder(request, tiny_encoder):
    return random_decoder(tiny_encoder, request.param)


def case_of(queries=(5,), forms=FORMS):
    return EdgeCase(PREFIX, queries, SUBJECT_TOKENS, (), "article", position=5, continuations=forms)


def log_odds_by_hand(model, forms=FORMS):
    """Compute the log-odds by one full pass for each form."""
    totals = []
    with torch.no_grad():
        for form in forms:
            ids = torch.tensor([[*PREFIX, *form[:-1]]])
            logits = model(ids).logits[0].double()
            total = 0.0
            for number, token in enumerate(form):
                total += logits[len(PREFIX) - 1 + number].log_softmax(dim=-1)[token].item()
            totals.append(total)
    return totals[0] - totals[1]


@pytest.mark.parametrize("queries", [(5,), (3, 4, 5)])
def test_first_order_effects_are_finite_differences(decoder, queries):
    effects = head_edges.attention_and_effects(decoder, [case_of(queries)])[1][0]
    assert effects.shape == (3, 4)
    double = decoder.model.double()
    step = 1e-2  # the softmax of Llama is in single precision
    for layer, head in ((0, 1), (1, 2), (2, 3)):
        values = []
        for factor in (1 + step, 1 - step):

            def scale(current, _scores, weights, layer=layer, head=head, factor=factor):
                if current == layer:
                    for query in queries:
                        weights[:, head, query, list(SUBJECT_TOKENS)] *= factor
                return weights

            with changed_softmax(scale):
                values.append(log_odds_by_hand(double))
        by_differences = (values[0] - values[1]) / (2 * step)
        assert effects[layer, head] == pytest.approx(by_differences, rel=1e-2, abs=1e-4)
    decoder.model.float()


def test_cases_that_are_computed_at_once_have_the_effects_of_each_by_itself(decoder):
    """The cases have other lengths, queries and forms."""
    other = EdgeCase((*PREFIX, 70, 80), (6, 7), (3,), (), "article", 7, ((12,),))
    cases = [other, case_of(), case_of((4, 5), ((9,),))]
    cuts = [[HeadCut(1, 2), HeadCut(0, head, 0.3)] for head in range(3)]
    together = head_edges.cut_effects(decoder, cases, cuts)
    first_order = head_edges.attention_and_effects(decoder, cases)
    for number, case in enumerate(cases):
        alone = head_edges.cut_effects(decoder, [case], [cuts[number]])[0]
        np.testing.assert_allclose(together[number], alone, rtol=1e-3, atol=2e-4)
        alone = head_edges.attention_and_effects(decoder, [case])[:, 0]
        np.testing.assert_allclose(first_order[:, number], alone, rtol=1e-3, atol=2e-4)


def most_attended_by_hand(row, keys):
    """Take as much attention from the most attended other tokens as the keys have."""
    changed = row.clone()
    mass = row[list(keys)].sum().item()
    other_tokens = [token for token in range(len(row)) if token not in keys]
    for token in sorted(other_tokens, key=lambda token: -row[token].item()):
        removed = min(mass, changed[token].item())
        changed[token] -= removed
        mass -= removed
    return changed


@pytest.mark.parametrize(("weight", "mode"), [(0.0, DROPPED), (0.3, DROPPED), (0.0, MOST_ATTENDED)])
def test_cut_effects_are_those_of_a_patched_softmax(decoder, weight, mode):
    heads = [(2, 0), (LAYER, HEAD), (0, 3)]
    cuts = [HeadCut(*head, weight, mode) for head in heads]
    effects = head_edges.cut_effects(decoder, [case_of()], [cuts])[0]
    before = log_odds_by_hand(decoder.model)
    for (layer, head), lost in zip(heads, effects, strict=True):

        def change(current, _scores, weights, layer=layer, head=head):
            if current == layer:
                if mode == DROPPED:
                    weights[:, head, 5, list(SUBJECT_TOKENS)] = weight / 2  # of each token
                else:
                    for row in weights[:, head]:
                        row[5, :6] = most_attended_by_hand(row[5, :6], SUBJECT_TOKENS)
            return weights

        with changed_softmax(change):
            after = log_odds_by_hand(decoder.model)
        assert lost == pytest.approx(before - after, rel=1e-3, abs=2e-4)
    assert np.abs(effects).max() > 1e-3


def test_edge_attention_is_the_mean_over_the_words_tokens(decoder):
    with torch.no_grad():
        maps = decoder.model(torch.tensor([PREFIX]), output_attentions=True).attentions
    expected = [layer[0, :, 3:6, 1:3].sum(dim=-1).mean(dim=-1).numpy() for layer in maps]
    attention = head_edges.edge_attention(decoder, [case_of((3, 4, 5))])[0]
    np.testing.assert_allclose(attention, expected, atol=1e-5)


@pytest.fixture(scope="module")
def store(tiny_encoder):
    sentences = [sentence_of(words, "dev") for words in SENTENCES]
    return extract(tiny_encoder("bert"), corpus_of(sentences), level="word", max_tokens=60)


def sentence_case(store, index=0, dependent=2):
    record = store.record(index)
    words = (tokens_of_word(record, dependent), tokens_of_word(record, dependent - 1))
    return EdgeCase(tuple(record["inputs"]["input_ids"]), *words, words, "toy")


def test_tokens_of_word_are_those_of_the_tokenizer(tiny_encoder, store):
    encoder = tiny_encoder("bert")
    record = store.record(0)
    encoding = encoder.encode_words(record["words"])
    for word in range(len(record["words"])):
        expected = [token for token, number in enumerate(encoding.word_ids) if number == word]
        assert list(tokens_of_word(record, word)) == expected


def test_angles_of_an_encoder_are_those_of_a_patched_softmax(tiny_encoder, store):
    encoder = tiny_encoder("bert")
    case = sentence_case(store)
    heads = [(layer, head) for layer in range(3) for head in range(4)]
    cuts = [HeadCut(*head) for head in heads]
    effects = head_edges.cut_effects(encoder, [case], [cuts])[0]
    ids = torch.tensor([case.token_ids])

    def words_of(states):
        return [states[0, list(tokens)].double().mean(dim=0).numpy() for tokens in case.words]

    def run():
        with torch.no_grad():
            return words_of(encoder.model.base_model(ids).last_hidden_state)

    before = run()
    for (layer, head), angle in zip(heads, effects, strict=True):

        def change(current, _scores, weights, layer=layer, head=head):
            if current == layer:
                rows = torch.tensor(case.queries)[:, None]
                weights[:, head, rows, torch.tensor(case.keys)] = 0
            return weights

        with changed_softmax(change):
            after = run()
        angles = [
            np.degrees(np.arccos(1 - cosine(*pair))) for pair in zip(before, after, strict=True)
        ]
        assert angle == pytest.approx(np.mean(angles), rel=1e-3, abs=1e-4)


def test_relation_edges_of_a_possessor_are_those_of_its_mark():
    record = {
        "words": ["Ann", "'s", "red", "hat"],
        "heads": [4, 1, 4, 0],
        "relations": ["poss", "case", "amod", "root"],
    }
    assert relation_edges(record, "poss", DIRECTIONS[0]) == [(0, 3, 1, 3)]
    assert relation_edges(record, "poss", DIRECTIONS[1]) == [(0, 3, 3, 1)]
    assert relation_edges(record, "amod", DIRECTIONS[0]) == [(2, 3, 2, 3)]
