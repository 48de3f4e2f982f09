"""Edges of one head cut, against passes of plain transformers code with a changed softmax."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine
from softmax_reference import changed_softmax
from tolerances import float32_error
from toy_corpora import SENTENCES, corpus_of, sentence_of
from toy_decoders import FORM_IDS, SUBJECT_IDS, planted_decoder, random_decoder

from beyond.papers.common import head_edges
from beyond.papers.common.edge_cuts import DROPPED, MOST_ATTENDED
from beyond.papers.common.head_edges import (
    EdgeCase,
    EdgePass,
    HeadCut,
    relation_edges,
    tokens_of_word,
)
from helpers.errors import ModelError
from helpers.metrics.heads import DIRECTIONS
from helpers.model.sites import sites
from helpers.store.extract import extract

PREFIX = (10, 20, 30, 40, 50, 60)
KEYS = [1, 2]
FORMS = ((7, 8, 9), (11,))
HEADS = [(2, 0), (1, 2), (0, 3)]


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def decoder(request, tiny_encoder):
    return random_decoder(tiny_encoder, request.param)


def case_of(*queries):
    return EdgeCase(PREFIX, queries, tuple(KEYS), ((5,),), "article", 5, continuations=FORMS)


@torch.no_grad()
def log_odds_by_hand(model):
    """Compute the log-odds by one full pass for each form."""
    totals = []
    for form in FORMS:
        logits = model(torch.tensor([[*PREFIX, *form[:-1]]])).logits[0].double()
        rows = logits[len(PREFIX) - 1 :].log_softmax(dim=-1)
        totals.append(sum(row[token].item() for row, token in zip(rows, form, strict=True)))
    return totals[0] - totals[1]


def test_log_probabilities_are_those_of_full_passes(decoder):
    (value,) = head_edges.log_probabilities(decoder, [case_of(5)])
    assert value == pytest.approx(log_odds_by_hand(decoder.model), abs=1e-4)


def test_first_order_effects_are_finite_differences_and_attention_is_a_mean(decoder):
    queries = [3, 4, 5]
    attention, effects = head_edges.attention_and_effects(decoder, [case_of(*queries)])[:, 0]
    with torch.no_grad():
        maps = decoder.model(torch.tensor([PREFIX]), output_attentions=True).attentions
    expected = [layer[0, :, 3:6, 1:3].sum(dim=-1).mean(dim=-1).numpy() for layer in maps]
    np.testing.assert_allclose(attention, expected, atol=1e-5)
    edge_attention = head_edges.edge_attention(decoder, [case_of(*queries)])[0]
    np.testing.assert_allclose(edge_attention, expected, atol=1e-5)
    double = decoder.model.double()
    step = 1e-2  # the softmax of Llama is in single precision
    for layer, head in HEADS:
        values = []
        for factor in (1 + step, 1 - step):

            def scale(current, _, weights, layer=layer, head=head, factor=factor):
                if current == layer:
                    weights[:, head, 3:6, KEYS] *= factor
                return weights

            with changed_softmax(scale):
                values.append(log_odds_by_hand(double))
        by_differences = (values[0] - values[1]) / (2 * step)
        assert effects[layer, head] == pytest.approx(by_differences, rel=1e-2, abs=1e-4)
    decoder.model.float()


def most_attended_by_hand(row):
    """Take as much attention from the most attended other tokens as the keys have."""
    mass = row[KEYS].sum().item()
    for token in sorted({0, 3, 4, 5}, key=lambda token: -row[token].item()):
        removed = min(mass, row[token].item())
        row[token] -= removed
        mass -= removed


@pytest.mark.parametrize(("dose", "mode"), [(0.0, DROPPED), (1.5, DROPPED), (0.0, MOST_ATTENDED)])
def test_cut_effects_are_those_of_a_changed_softmax(decoder, dose, mode):
    effects = head_edges.cut_effects(
        decoder, [case_of(5)], [HeadCut(*head, dose, mode) for head in HEADS]
    )[0]
    before = log_odds_by_hand(decoder.model)
    for (layer, head), (lost, _) in zip(HEADS, effects, strict=True):

        def change(current, _, weights, layer=layer, head=head):
            if current == layer and mode == DROPPED:
                weights[:, head, 5, KEYS] *= dose
            elif current == layer:
                for maps in weights[:, head]:
                    most_attended_by_hand(maps[5, :6])
            return weights

        with changed_softmax(change):
            after = log_odds_by_hand(decoder.model)
        assert lost == pytest.approx(before - after, rel=1e-3, abs=2e-4)
    assert np.abs(effects[:, 0]).max() > 1e-3


def test_most_attended_words_are_no_special_tokens(decoder):
    """The first token of a text takes much attention that no word has."""
    with_special = replace(decoder, special_ids=[PREFIX[0]])
    edge_pass = EdgePass(with_special, with_special.model, case_of(5))
    assert edge_pass.is_word[0].tolist() == [False, *[True] * 7]


def test_planted_edges_matter_in_the_head_that_copies_the_number(tiny_encoder):
    """Two heads have the same attention on the edge, and only one of them does anything."""
    planted = planted_decoder(tiny_encoder)
    cases = []
    for subject, forms in zip(SUBJECT_IDS, (FORM_IDS, FORM_IDS[::-1]), strict=True):
        agreeing_first = tuple((form,) for form in forms)
        cases.append(EdgeCase((5, subject, 6, 7), (3,), (1,), ((3,),), "toy", 3, agreeing_first))
    attention, first_order = head_edges.attention_and_effects(planted, cases)[:, :, 0]
    assert (attention > 0.95).all()
    lost = head_edges.cut_effects(planted, cases, [HeadCut(0, 0), HeadCut(0, 1)])
    before = head_edges.log_probabilities(planted, cases)
    for by_head in (first_order, lost[..., 0]):
        assert (by_head[:, 0] > 0.1).all()
        np.testing.assert_allclose(by_head[:, 1], 0, atol=float32_error(before))
    np.testing.assert_allclose(lost[:, 0, 0], before, rtol=1e-4)  # nothing is left of the number


@pytest.fixture(scope="module")
def record(tiny_encoder):
    sentences = [sentence_of(words, "dev") for words in SENTENCES]
    store = extract(tiny_encoder("bert"), corpus_of(sentences), level="word", max_tokens=60)
    return store.record(0)


def test_angles_of_an_encoder_are_those_of_a_changed_softmax(encoder, record):
    word_ids = encoder.encode_words(record["words"]).word_ids
    words = tuple(tokens_of_word(record, word) for word in (2, 1))
    assert words[0] == tuple(i for i, word in enumerate(word_ids) if word == 2)
    case = EdgeCase(tuple(record["inputs"]["input_ids"]), *words, words, "toy")
    site = sites(encoder.model)[1]
    rows = slice(0, site.values.weight.shape[0] // site.heads)  # of head 2-1, which is planted
    with torch.no_grad():
        before_planting = [
            parameter[rows].clone() for parameter in (site.values.weight, site.values.bias)
        ]
        site.values.weight[rows] = site.values.bias[rows] = 0  # nothing comes through its edges
    effects = head_edges.cut_effects(encoder, [case], [HeadCut(1, 0), HeadCut(1, 2)])[0]

    def drop(layer, _, weights):
        if layer == 1:
            weights[:, 2, torch.tensor(words[0])[:, None], torch.tensor(words[1])] = 0
        return weights

    def run():
        with torch.no_grad():
            states = encoder.model.base_model(torch.tensor([case.token_ids])).last_hidden_state
        return [states[0, list(tokens)].double().mean(dim=0).numpy() for tokens in words]

    before = run()
    with changed_softmax(drop):
        pairs = zip(before, run(), strict=True)
    angles = [np.degrees(np.arccos(1 - cosine(*pair))) for pair in pairs]
    with torch.no_grad():
        site.values.weight[rows], site.values.bias[rows] = before_planting
    assert effects[:, 1] == pytest.approx([0, np.mean(angles)], rel=1e-3, abs=1e-4)
    assert effects[1, 1] > 0.05 and np.isnan(effects[:, 0]).all()  # nothing is predicted
    edge_pass = EdgePass(encoder, encoder.model, case)
    with pytest.raises(ModelError, match="no softmax"), edge_pass.cut([HeadCut(1, 2)]):
        pass  # nothing is computed


def test_relation_edges_of_a_possessor_are_those_of_its_mark():
    record = {
        "words": ["Ann", "'s", "red", "hat"],
        "heads": [4, 1, 4, 0],
        "relations": ["poss", "case", "amod", "root"],
    }
    assert relation_edges(record, "poss", DIRECTIONS[0]) == [(0, 3, 1, 3)]
    assert relation_edges(record, "poss", DIRECTIONS[1]) == [(0, 3, 3, 1)]
    assert relation_edges(record, "amod", DIRECTIONS[0]) == [(2, 3, 2, 3)]
