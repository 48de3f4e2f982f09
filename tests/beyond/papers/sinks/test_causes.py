"""The causes of a sink: planted sinks, and passes whose vectors are changed by hand."""

import numpy as np
import pytest
import torch
from planted_sinks import DIMENSION, load_planted
from store_tools import many_segments, token_records

from beyond.claims.engine import check_claims
from beyond.papers.sinks import causes
from beyond.papers.sinks.causes import (
    ABLATED,
    ALL,
    BOTH,
    COPIED,
    INTACT,
    KEYS,
    LARGEST,
    MOVED,
    NONE,
    NORM_ALONE,
    NORM_KEPT,
    OPPOSITE,
    OTHER,
    RANDOM,
    SECOND,
    SINK,
    VECTORS,
    Target,
)
from beyond.papers.sinks.claims import CLAIMS
from helpers.model.forward import model_inputs, padded
from helpers.store.extract import extract

SEGMENTS = 4
SINK_CLAIMS = ["sink-necessary", "sink-sufficient", "sink-keys-necessary", "sink-keys-sufficient"]


def table_of(encoder):
    source = extract(encoder, many_segments(SEGMENTS), max_tokens=60, stream=True)
    return causes.cause_table(encoder, source, SEGMENTS, seed=0)


def shares_of(table):
    """Select the shares, by site, dimensions, change and token."""
    return table.set_index(["site", "dimensions", "change", "token"])["share"]


def verdicts(table):
    checked = check_claims({"sink_causes": table}, CLAIMS).set_index("id")
    return checked.reindex(SINK_CLAIMS)["verdict"].tolist()


@pytest.fixture(scope="module")
def planted_table(tmp_path_factory):
    return table_of(load_planted(tmp_path_factory.mktemp("planted")))


def test_a_planted_dimension_is_found_and_moves_the_sink(planted_table):
    assert set(planted_table["sink"]) == {"first"}
    assert planted_table["numbers"].str.startswith(f"{DIMENSION} ").all()
    assert set(planted_table["layer"]) == {1}  # the embeddings write it
    shares = shares_of(planted_table)
    assert shares[NONE, NONE, INTACT, SINK] > 0.9
    for site in (VECTORS, KEYS):
        assert shares[site, LARGEST, ABLATED, SINK] < 0.1
        assert shares[site, LARGEST, MOVED, OTHER] > 0.8
        assert 0.2 < shares[site, LARGEST, COPIED, OTHER] < 0.6  # both share it
        assert shares[site, SECOND, ABLATED, SINK] > 0.9
        assert shares[site, SECOND, MOVED, OTHER] < 0.1
        assert shares[site, LARGEST, OPPOSITE, OTHER] < 0.1
        assert shares[site, LARGEST, RANDOM, OTHER] < 0.1
        assert shares[site, LARGEST, NORM_ALONE, OTHER] < 0.1
        assert shares[site, LARGEST, NORM_KEPT, OTHER] > 0.5
    assert verdicts(planted_table) == ["supported"] * 4


def test_a_sink_of_many_dimensions_is_not_moved_by_one(tmp_path):
    table = table_of(load_planted(tmp_path, dimension=None))
    shares = shares_of(table)
    assert shares[NONE, NONE, INTACT, SINK] > 0.5
    assert shares[VECTORS, LARGEST, MOVED, OTHER] < 0.1
    assert shares[VECTORS, ALL, MOVED, OTHER] > 0.5  # the content makes it, not the position
    assert "supported" not in verdicts(table)


def changed_maps(encoder, record, layer, edit, *, site):
    """Run a model whose vectors or keys are edited by hand: the maps of all layers."""
    model = encoder.model.base_model
    modules = causes.layer_modules(model)[layer : layer + 1]
    if site == KEYS:
        modules = causes.key_projections(model)[layer:]
    originals = [module.forward for module in modules]

    def forward_of(original):
        def forward(states, *args, **options):
            states = states.clone()
            edit(states[0])
            return original(states, *args, **options)

        return forward

    for module, original in zip(modules, originals, strict=True):
        module.forward = forward_of(original)
    try:
        batch = padded(encoder, [model_inputs(encoder, record)])
        with torch.no_grad():
            output = model(**batch, output_attentions=True)
    finally:
        for module in modules:
            del module.forward
    return [weights[0].double().numpy() for weights in output.attentions]


@pytest.mark.parametrize(
    ("family", "site"),
    [("bert", VECTORS), ("llama", KEYS), ("mpnet", KEYS), ("gpt2", VECTORS)],
)
def test_shares_are_those_of_passes_that_are_changed_by_hand(tiny_encoder, family, site):
    encoder = tiny_encoder(family)
    table = table_of(encoder)
    first_row = table.iloc[0]
    dimensions = list(map(int, first_row["numbers"].split()))
    layer = first_row["layer"] - 1
    expected = []
    for record in token_records(encoder, many_segments(SEGMENTS)):
        is_sink = torch.from_numpy(causes.sink_masks(encoder, record)[first_row["sink"]])
        by_position = []
        for target in causes.list_targets(encoder, record, first_row["sink"]):

            def move(states, is_sink=is_sink, position=target.position):
                for dimension in dimensions:
                    value = states[is_sink, dimension].mean()
                    states[is_sink, dimension] = states[~is_sink, dimension].mean()
                    states[position, dimension] = value

            maps = changed_maps(encoder, record, layer, move, site=site)[layer:]
            rows = [weights[:, target.queries.numpy()] for weights in maps]
            to_sink = np.mean([row[..., is_sink.numpy()].sum(axis=-1).mean() for row in rows])
            by_position.append([to_sink, np.mean([row[..., target.position] for row in rows])])
        if by_position:
            expected.append(np.mean(by_position, axis=0))
    assert len(expected) >= 2
    shares = shares_of(table)
    measured = [shares[site, BOTH, MOVED, token] for token in (SINK, OTHER)]
    np.testing.assert_allclose(measured, np.mean(expected, axis=0), rtol=1e-3, atol=1e-5)


def test_changes_of_three_tokens():
    """The sink is the first token, and the other token is the third; the change is of column 1."""
    states = torch.tensor([[0.0, 9.0], [1.0, 1.0], [3.0, 4.0]])
    target = Target(torch.arange(3) == 0, position=2, queries=torch.zeros(3, dtype=torch.bool))
    expected = {
        ABLATED: [[0, 2.5], [1, 1], [3, 4]],
        COPIED: [[0, 9], [1, 1], [3, 9]],
        MOVED: [[0, 2.5], [1, 1], [3, 9]],
        OPPOSITE: [[0, 2.5], [1, 1], [3, -4]],
        NORM_KEPT: [[0, 2.5], [1, 1], [2.5**0.5, 22.5**0.5]],  # of length 5
        NORM_ALONE: [[0, 2.5], [1, 1], [5.4, 7.2]],  # as long as the sink was
        RANDOM: [[-6.5 * 0.6, 9 - 6.5 * 0.8], [1, 1], [3 + 5 * 0.6, 4 + 5 * 0.8]],
    }
    for change, rows in expected.items():
        changed = causes.change_states(states, target, [1], change, torch.tensor([0.6, 0.8]))
        torch.testing.assert_close(changed, torch.tensor(rows, dtype=torch.float))
