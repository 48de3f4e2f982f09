"""Edges of one head removed, against attention that is written out by hand."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine
from toy_corpora import SENTENCES, corpus_of, sentence_of

from helpers.errors import ModelError
from helpers.metrics.heads import DIRECTIONS
from helpers.model.forward import model_inputs, padded
from helpers.model.sites import patch_head_outputs, sites
from helpers.store.extract import extract
from helpers.studies.common.edge_cuts import DROPPED, MASS_MATCHED, MODES
from helpers.studies.common.head_edges import (
    MEASURES,
    RESAMPLED,
    HeadCut,
    RelationEdge,
    cut_head_edges,
    edge_effects,
    mark_edges,
    relation_edges,
    sum_over_words,
    turned_angles,
)

LAYER = 1
HEAD = 2
RELATION = "dep"  # of each word to the one before it


@pytest.fixture(scope="module")
def store(tiny_encoder):
    sentences = [sentence_of(words, "dev") for words in (*SENTENCES, *SENTENCES)]
    return extract(tiny_encoder("bert"), corpus_of(sentences), level="word", max_tokens=60)


class Passes:
    """Passes of a model over two sentences of the same length, and the edges of one head."""

    def __init__(self, encoder, store, direction=DIRECTIONS[0]):
        self.model = encoder.model.base_model
        self.cut = HeadCut(LAYER, HEAD, direction, DROPPED)
        inputs = [model_inputs(encoder, store.record(0)) for _ in range(2)]
        n_tokens = len(inputs[0]["input_ids"])
        inputs[1] = {**inputs[1], "input_ids": inputs[0]["input_ids"][::-1]}
        self.batch = padded(encoder, inputs)
        edges = mark_edges(store.record(0), RELATION, direction)
        self.edges = torch.stack([edges, edges])[:, None]
        self.is_word = torch.ones(2, 1, 1, n_tokens, dtype=torch.bool)
        self.is_word[..., [0, -1]] = False

    @torch.no_grad()
    def run(self):
        return self.model(**self.batch, output_attentions=True, output_hidden_states=True)

    def run_cut(self, mode=DROPPED, edges=None):
        cut = self.cut._replace(mode=mode)
        edges = self.edges if edges is None else edges
        with cut_head_edges(self.model, cut, edges, self.is_word):
            return self.run()

    def head_outputs(self, mode):
        """Record the outputs of the heads of the layer under an ablation: [row, token, head]."""
        outputs = []

        def keep(layer, head_outputs):
            if layer == LAYER:
                outputs.append(head_outputs)
            return head_outputs

        with patch_head_outputs(sites(self.model), keep):
            self.run_cut(mode)
        return outputs[0].double().numpy()

    def values(self):
        """Record the value vectors of the layer: [row, token, head, width]."""
        site = sites(self.model)[LAYER]
        projected = []
        hook = site.values.register_forward_hook(lambda *args: projected.append(args[-1]))
        self.run()
        hook.remove()
        return site.value_vectors(projected[0]).detach().double().numpy()


def ablated_row(row, is_edge, is_word, mode):
    """Remove edges from a row, or as much from its other words."""
    changed = row.copy()
    if mode == DROPPED:
        changed[is_edge] = 0
    else:
        from_words = is_word & ~is_edge
        remaining = max(0, row[from_words].sum() - row[is_edge].sum())
        changed[from_words] *= remaining / row[from_words].sum()
    return changed


@pytest.mark.parametrize("mode", [DROPPED, MASS_MATCHED, RESAMPLED])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_cut_head_edges_gives_the_head_output_that_is_computed_by_hand(
    tiny_encoder, store, mode, direction
):
    passes = Passes(tiny_encoder("bert"), store, direction)
    maps = passes.run().attentions[LAYER].double().numpy()
    values = passes.values()
    expected = np.einsum("bhqk,bkhw->bqhw", maps, values)
    is_word = passes.is_word[0, 0, 0].numpy()
    for row, query in np.argwhere(passes.edges[:, 0].any(dim=-1).numpy()):
        if mode == RESAMPLED:
            weights = maps[1 - row, HEAD, query]
        else:
            is_edge = passes.edges[row, 0, query].numpy()
            weights = ablated_row(maps[row, HEAD, query], is_edge, is_word, mode)
        expected[row, query, HEAD] = weights @ values[row, :, HEAD]
    np.testing.assert_allclose(passes.head_outputs(mode), expected, atol=1e-5)


@pytest.mark.parametrize("mode", [*MODES, RESAMPLED])
def test_cutting_no_edge_changes_nothing(tiny_encoder, store, mode):
    passes = Passes(tiny_encoder("bert"), store)
    intact = passes.run().last_hidden_state
    changed = passes.run_cut(mode, torch.zeros_like(passes.edges)).last_hidden_state
    assert torch.equal(changed, intact)
    assert (turned_angles(intact[0], changed[0]) == 0).all()


def test_cut_head_edges_refuses_a_pass_without_a_softmax(tiny_encoder, store):
    passes = Passes(tiny_encoder("bert"), store)
    ablation = cut_head_edges(passes.model, passes.cut, passes.edges, passes.is_word)
    with pytest.raises(ModelError, match="in layers 2"), ablation:
        pass  # nothing is computed


def test_turned_angles_are_those_of_the_cosine():
    vectors = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 5, 24)))
    expected = [np.degrees(np.arccos(1 - cosine(*pair))) for pair in zip(*vectors, strict=True)]
    np.testing.assert_allclose(turned_angles(*vectors), expected)


def test_relation_edges_of_a_possessor_are_those_of_its_mark():
    record = {
        "words": ["Ann", "'s", "red", "hat"],
        "heads": [4, 1, 4, 0],
        "relations": ["poss", "case", "amod", "root"],
    }
    assert relation_edges(record, "poss", DIRECTIONS[0]) == [(0, 3, 1, 3)]
    assert relation_edges(record, "poss", DIRECTIONS[1]) == [(0, 3, 3, 1)]
    assert relation_edges(record, "amod", DIRECTIONS[0]) == [(2, 3, 2, 3)]


def test_sum_over_words_leaves_out_edges_that_cannot_be_matched():
    attention = np.array([[0.1, 0.6, 0.2, 0.0], [0.1] * 4, [0.1, 0.2, 0.1, 0.3], [0.25] * 4])
    turned = np.array([1.0, 2.0, 4.0, 8.0])
    lost = np.array([0.1, 0.2, 0.4, 0.8])
    edges = [
        RelationEdge(dependent=0, parent=1, query=0, key=1),  # it has over half of its row
        RelationEdge(dependent=2, parent=1, query=2, key=1),
    ]
    sums, counts = sum_over_words(edges, turned, lost, attention)
    expected = {
        "turns": 1.5 + 3, "turns, matched": 3, "loses, matched": 0.4, "turns, other words": 8,
        "loses, other words": 0.8, "attention": 0.8, "unmatched": 1,
    }  # fmt: skip
    assert dict(zip(MEASURES, sums, strict=True)) == pytest.approx(expected)
    assert counts.tolist() == [2, 1, 1, 1, 1, 2, 2]


def test_edge_effects_are_those_between_two_passes(tiny_encoder, store):
    encoder = tiny_encoder("bert")
    cuts = [HeadCut(LAYER, HEAD, DIRECTIONS[0], mode) for mode in (DROPPED, MASS_MATCHED)]

    def probe(sentence, vectors):
        return vectors.sum(dim=-1).numpy() + sentence

    values, totals = edge_effects(encoder, store, [[2, 5], [0, 3]], RELATION, cuts, probe)
    assert values.shape == totals.shape == (4, 2, len(MEASURES))
    record = store.record(0)
    inputs = model_inputs(encoder, record)
    edges = mark_edges(record, RELATION, cuts[0].direction)[None, None]
    groups = np.array(inputs["groups"])
    is_word = torch.from_numpy((groups > 0) & (groups < groups[-1]))[None, None, None]
    batch = padded(encoder, [inputs])
    for number, cut in enumerate(cuts):
        words = []
        with torch.no_grad():
            before = encoder.model.base_model(**batch).last_hidden_state[0].double().numpy()
            with cut_head_edges(encoder.model.base_model, cut, edges, is_word):
                after = encoder.model.base_model(**batch).last_hidden_state[0].double().numpy()
        for vectors in (before, after):
            n_words = len(record["words"])
            words.append([vectors[groups == word + 1].mean(axis=0) for word in range(n_words)])
        angles = [np.degrees(np.arccos(1 - cosine(*pair))) for pair in zip(*words, strict=True)]
        of_edges = (np.array(angles[1:]) + angles[:-1]) / 2  # each word depends on the one before
        assert values[2, number, 0] == pytest.approx(of_edges.sum(), rel=1e-3)
        assert totals[2, number, 0] == n_words - 1
        lost = (np.array(words[0]) - words[1]).sum(axis=-1)[1:]
        is_matched = totals[2, number, MEASURES.index("loses, matched")] == n_words - 1
        if is_matched:
            expected = pytest.approx(lost.sum(), rel=1e-3, abs=1e-5)
            assert values[2, number, MEASURES.index("loses, matched")] == expected


def test_a_head_that_reads_nothing_from_words_has_no_effect(tiny_encoder, store):
    """An accurate head may do nothing: its value vectors are planted to be zero."""
    encoder = tiny_encoder("bert")
    cuts = [HeadCut(LAYER, HEAD, DIRECTIONS[0], DROPPED)]
    site = sites(encoder.model)[LAYER]
    width = site.values.weight.shape[0] // site.heads
    rows = slice(HEAD * width, (HEAD + 1) * width)
    weight = site.values.weight[rows].detach().clone()
    bias = site.values.bias[rows].detach().clone()
    (with_values, _) = edge_effects(encoder, store, [[0, 3]], RELATION, cuts, None)
    with torch.no_grad():
        site.values.weight[rows] = 0
        site.values.bias[rows] = 0
        try:
            (without_values, _) = edge_effects(encoder, store, [[0, 3]], RELATION, cuts, None)
        finally:
            site.values.weight[rows] = weight
            site.values.bias[rows] = bias
    assert (with_values[:, 0, 0] > 0.1).all()
    assert (without_values[:, 0, 0] == 0).all()
