"""Effects of edge ablation against the difference between two full passes."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine
from store_tools import many_segments
from toy_corpora import SENTENCES, corpus_of, sentence_of

from helpers.model.encoder import load
from helpers.model.forward import model_inputs, padded
from helpers.model.gradients import training_losses
from helpers.probes.data import prepare
from helpers.probes.structural import fit_layers
from helpers.store.extract import extract, stream
from helpers.studies.common.edge_cuts import (
    DROPPED,
    MASS_MATCHED,
    MODES,
    MOST_ATTENDED,
    REDISTRIBUTED,
    Cut,
    cut_edges,
    key_token_ids,
    list_ablations,
    plan_cuts,
)
from helpers.studies.kobayashi2020 import edges, plots
from helpers.studies.kobayashi2020.lenses import evenly_spaced_records

LAYERS = 3
GROUP = (1, 2)
ROLES = ("cls", "sep")
DROPPED_OVER_MATCHED = "dropped / mass-matched"


def records_of(encoder, count):
    return list(stream(encoder, many_segments(count), max_tokens=60).records())


@torch.no_grad()
def hidden_states(encoder, record):
    batch = padded(encoder, [model_inputs(encoder, record)])
    output = encoder.model.base_model(**batch, output_hidden_states=True)
    return [layer[0].double().numpy() for layer in output.hidden_states]


def expected_shifts(before, after, last_cut_layer):
    """Compute the three shifts between the hidden states of two passes."""
    layer_before = before[last_cut_layer + 1]  # hidden state 0 is the embeddings
    layer_after = after[last_cut_layer + 1]
    change = np.linalg.norm(layer_after - layer_before, axis=1)
    relative = change / np.linalg.norm(layer_before, axis=1)
    tokens = [cosine(*pair) for pair in zip(before[-1], after[-1], strict=True)]
    sentence = cosine(before[-1].mean(0), after[-1].mean(0))
    angle = np.degrees(np.arccos(1 - sentence))
    return relative.mean(), angle, sentence, np.mean(tokens)


@pytest.mark.parametrize(
    ("layers", "keys", "mode"),
    [
        ((1,), "cls", DROPPED),
        ((1, 2), "special", MASS_MATCHED),
        ((1, 2), "special", REDISTRIBUTED),
        ((2,), "sep", MOST_ATTENDED),
    ],
)
def test_representation_shifts_are_those_between_two_passes(tiny_encoder, layers, keys, mode):
    encoder = tiny_encoder("bert")
    records = records_of(encoder, 7)
    cuts, main_cuts = plan_cuts(LAYERS, GROUP, ROLES)
    values = edges.representation_shifts(encoder, cuts + main_cuts, records)["values"]
    assert values.shape == (7, 11, len(MODES), len(edges.SHIFTS))
    cut = Cut(layers, keys)
    before = hidden_states(encoder, records[3])
    with cut_edges(encoder.model.base_model, cut, key_token_ids(encoder), mode):
        after = hidden_states(encoder, records[3])
    shifts = values[3, cuts.index(cut), MODES.index(mode)]
    expected = expected_shifts(before, after, layers[-1])
    np.testing.assert_allclose(shifts, expected, rtol=1e-3, atol=1e-7)


def test_representation_shifts_of_the_first_query_are_those_between_two_passes(tiny_encoder):
    encoder = tiny_encoder("bert")
    records = records_of(encoder, 7)
    cut = Cut(GROUP, queries="first token")
    values = edges.representation_shifts(encoder, [cut], records)["values"]
    before = hidden_states(encoder, records[3])
    with cut_edges(encoder.model.base_model, cut, key_token_ids(encoder), REDISTRIBUTED):
        after = hidden_states(encoder, records[3])
    shifts = values[3, 0, MODES.index(REDISTRIBUTED)]
    np.testing.assert_allclose(shifts, expected_shifts(before, after, 2), rtol=1e-3, atol=1e-7)


class EdgeRun:
    """Edge tables of a tiny model and one control on 9 of 12 segments, and its measurements."""

    def __init__(self, encoder):
        source = stream(encoder, many_segments(12), max_tokens=60)
        sentences = []
        for split in ("train", "dev"):
            sentences += [sentence_of(words, split) for words in SENTENCES if len(words) > 2]
        self.treebank = extract(
            encoder, corpus_of(sentences), level="word", max_tokens=60, hidden=True
        )
        control = load(encoder.name, random_init=0, device="cpu")
        encoders = {edges.MAIN: encoder, "random": control}
        self.tables = edges.edge_tables(encoders, source, self.treebank, GROUP, count=9, seed=0)
        cuts, main_cuts = plan_cuts(LAYERS, GROUP, ROLES)
        self.group_index = cuts.index(Cut(GROUP))
        records = evenly_spaced_records(source, 9)
        shifts = edges.representation_shifts(encoder, cuts + main_cuts, records)
        self.angles = self.angles_in(shifts)
        control_shifts = edges.representation_shifts(
            control, cuts, records[:: edges.CONTROL_STRIDE]
        )
        self.control_angles = self.angles_in(control_shifts)

    def angles_in(self, shifts):
        """Select the measure "sentence angle" of the group: [mode, segment]."""
        return shifts["values"][:, self.group_index, :, edges.SHIFTS.index("sentence angle")].T

    def ratio_row(self, prefix):
        key = ["layers", "keys", "queries", "ways", "measure"]
        table = self.tables[f"{prefix}edge_ratios"].set_index(key)
        return table.loc[("2-3", "special", "all", DROPPED_OVER_MATCHED, "sentence angle")]


@pytest.fixture(scope="module")
def edge_run(tiny_encoder):
    return EdgeRun(tiny_encoder("bert"))


def test_edge_tables_have_means_with_intervals(edge_run):
    key = ["model", "layers", "keys", "queries", "change", "measure"]
    table = edge_run.tables["edges"].set_index(key)
    row = table.loc[("trained", "2-3", "special", "all", MASS_MATCHED, "sentence angle")]
    angles = edge_run.angles[MODES.index(MASS_MATCHED)]
    assert row["value"] == pytest.approx(angles.mean())
    assert row["value_low"] < row["value"] < row["value_high"]
    assert 0 < row["share"] < 1


def test_the_structural_probe_loses_nothing_by_cuts_above_its_layer(edge_run):
    best_layer = int(fit_layers(prepare(edge_run.treebank))[1]["chosen"].argmax())
    table = edge_run.tables["edges"].query("measure == 'structural probe'")
    in_last_layer = table.loc[table["layers"] == "3", "value"]
    assert (in_last_layer == 0).all() == (best_layer < 3)


def ratio_of(angles):
    """Divide the mean angle under `DROPPED` by that under `MASS_MATCHED`."""
    return angles[MODES.index(DROPPED)].mean() / angles[MODES.index(MASS_MATCHED)].mean()


def test_edge_ratios_are_of_the_angles_of_each_model(edge_run):
    assert edge_run.ratio_row("")["ratio"] == pytest.approx(ratio_of(edge_run.angles), rel=1e-3)
    # These segments are in other batches here, and float32 rounds differently.
    expected = ratio_of(edge_run.control_angles)
    assert edge_run.ratio_row("random_")["ratio"] == pytest.approx(expected, rel=1e-3)


def test_fig15_draws_each_model_and_each_outcome_by_layer_and_in_the_group(edge_run):
    ratios = {
        "trained": edge_run.tables["edge_ratios"],
        "random": edge_run.tables["random_edge_ratios"],
    }
    special_tokens = {"cls": "[CLS]", "sep": "[SEP]"}
    figure = plots.fig15_edges(edge_run.tables["edges"], ratios, special_tokens)
    panels = {axes.get_title("left"): axes for axes in figure.axes}
    lines = {title: len(axes.containers) for title, axes in panels.items()}
    assert lines == {
        "[CLS] dropped / mass-matched": 2,
        "[SEP] dropped / mass-matched": 2,
        "redistributed / dropped": 2,
        "objective": 4,
        "structural probe": 4,
        "Attn probe": 4,
    }
    rows = edge_run.tables["edge_ratios"].query(
        f"keys == 'sep' and ways == '{DROPPED_OVER_MATCHED}' and measure == 'sentence angle'"
    )
    first, _ = panels["[SEP] dropped / mass-matched"].containers
    line = first.lines[0]
    np.testing.assert_allclose(line.get_ydata(orig=False), rows["ratio"])
    assert list(rows["layers"]) == ["1", "2", "3", "2-3"]


@pytest.mark.parametrize("family", ["bert", "t5"])  # masked words; paragraphs that belong together
def test_loss_increases_are_those_of_full_passes(tiny_encoder, family):
    encoder = tiny_encoder(family)
    records = records_of(encoder, 19)
    cuts = [Cut((1,))]
    increases = edges.loss_increases(encoder, cuts, records, 3)["values"]
    ablation = list_ablations(encoder, cuts)[MODES.index(MASS_MATCHED)]
    expected = []
    for batch in (records[:16], records[16:]):
        before, _, _ = training_losses(encoder, batch, np.random.default_rng(3))
        with ablation.context(encoder.model):
            after, _, _ = training_losses(encoder, batch, np.random.default_rng(3))
        expected.append(after - before)
    expected = torch.cat(expected).detach().numpy()
    mass_matched = increases[:, 0, MODES.index(MASS_MATCHED), 0]
    np.testing.assert_allclose(mass_matched, expected, rtol=1e-3, atol=1e-5)
    assert np.abs(expected).max() > 1e-3
