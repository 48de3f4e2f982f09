"""Effects of edge ablation against the difference between two full passes, and planted sinks."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
import transformers as hf
from planted_sinks import load_planted
from scipy.spatial.distance import cosine
from store_tools import many_segments
from toy_corpora import corpus_of

from beyond.papers.common.edge_cuts import (
    CONSTANT,
    DROPPED,
    MODES,
    REDISTRIBUTED,
    Cut,
    cut_edges,
    key_token_ids,
)
from beyond.papers.sinks import edges
from helpers.data.records import Segment
from helpers.model.forward import model_inputs, padded
from helpers.store.extract import extract

GROUP = (1, 2)
ABLATIONS = list(product([Cut(GROUP, "cls"), Cut((0, 1, 2), "sep")], MODES))


def source_of(encoder, count=9):
    return extract(encoder, many_segments(count), max_tokens=60, stream=True)


@torch.no_grad()
def last_states(encoder, record):
    batch = padded(encoder, [model_inputs(encoder, record)])
    return encoder.model.base_model(**batch).last_hidden_state[0].double().numpy()


def test_outcome_of_an_encoder_is_the_angle_between_two_passes(tiny_encoder):
    encoder = tiny_encoder("bert")
    records = list(source_of(encoder, 7).records())
    values = edges.measure_ablations(encoder, ABLATIONS, records)
    measured = values.xs(edges.OUTCOME, axis=1, level="measure").to_numpy()
    before = last_states(encoder, records[3])
    for number, (cut, mode) in enumerate(ABLATIONS):
        with cut_edges(encoder.model.base_model, cut, key_token_ids(encoder), mode):
            after = last_states(encoder, records[3])
        angle = np.degrees(np.arccos(1 - cosine(before.mean(axis=0), after.mean(axis=0))))
        assert measured[3, number] == pytest.approx(angle, rel=1e-3)


@pytest.mark.parametrize(
    ("family", "head"), [("gpt2", hf.GPT2LMHeadModel), ("llama", hf.LlamaForCausalLM)]
)
def test_outcome_of_a_decoder_is_its_next_token_loss(tiny_encoder, family, head):
    encoder = tiny_encoder(family)
    model = head.from_pretrained(encoder.name, attn_implementation="eager").eval()
    encoder = replace(encoder, objective="next-token", model=model.requires_grad_(False))
    records = list(source_of(encoder, 3).records())
    ablations = list(product([Cut((1,), "first")], MODES))
    values = edges.measure_ablations(encoder, ablations, records)
    increases = values.xs(edges.OUTCOME, axis=1, level="measure").to_numpy()
    for record, measured in zip(records, increases, strict=True):
        ids = torch.tensor([encoder.tokenizer.convert_tokens_to_ids(record["tokens"])])
        with torch.no_grad():
            intact = encoder.model(ids, labels=ids).loss.double()
            for (cut, mode), value in zip(ablations, measured, strict=True):
                with cut_edges(encoder.model, cut, key_token_ids(encoder), mode):
                    ablated = encoder.model(ids, labels=ids).loss.double()
                assert value == pytest.approx(float(ablated - intact), abs=2e-5)
    assert np.abs(increases).max() > 1e-2


def outcomes(encoder):
    """Measure every mode in the first layer of a planted model: its mean outcome."""
    ablations = [(Cut((0,), "cls"), mode) for mode in MODES]
    values = edges.measure_ablations(encoder, ablations, list(source_of(encoder, 4).records()))
    table = edges.edge_table(encoder, values).set_index("change")
    return table["value"]


def test_a_planted_constant_is_told_from_a_no_op(tmp_path):
    """All queries give [CLS] the same weight: dropping it costs much, and a constant nothing."""
    values = outcomes(load_planted(tmp_path, brings=1.0))
    assert values[DROPPED] > 2
    assert values[CONSTANT] < 0.01


def test_a_planted_no_op_loses_nothing_by_dropping(tmp_path):
    """The value vector of [CLS] is zero."""
    values = outcomes(load_planted(tmp_path, brings=0.0))
    assert values[DROPPED] < 0.01
    assert values[REDISTRIBUTED] > 2


def test_a_sink_of_some_queries_only_is_no_constant(tmp_path):
    values = outcomes(load_planted(tmp_path, brings=1.0, every_query=False))
    assert values[CONSTANT] > 1


def test_the_next_sink_is_the_token_that_gets_most_without_the_first(tmp_path):
    """The vector of "cat" has a quarter of the mark; "on" has two tokens."""
    encoder = load_planted(tmp_path, next_sink="cat")
    texts = ["on cat and dog on mat and dog sat", "on and cat dog on mat and dog sat"]
    segments = [Segment(text, "mat", title=text) for text in (*texts, texts[0])]
    records = extract(encoder, corpus_of(segments), max_tokens=60, stream=True).records()
    table = edges.next_sink_table(encoder, list(records)).set_index("tokens")
    assert table.loc["0", "intact"] > 0.7
    assert table.loc["0", "redistributed"] == pytest.approx(0, abs=1e-6)
    expected = {"0": 0, "1": 0, "2": 0, "3": 2 / 3, "sep": 0, "other": 1 / 3, edges.MOST: 1}
    assert table["largest"].to_dict() == pytest.approx(expected)
    assert table.loc["3", "common"] == "cat"
    assert table.loc[edges.MOST, "redistributed"] > 3 * table.loc["3", "intact"]
