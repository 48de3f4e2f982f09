"""The causal test of Table 1 on planted effects, and to its end on a tiny model."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata, spearmanr
from toy_corpora import SENTENCES, corpus_of, sentence_of

from helpers.claims.engine import check_claims
from helpers.claims.tables import NotMeasurable
from helpers.errors import InputError
from helpers.metrics.head_counts import count_heads
from helpers.store.extract import extract
from helpers.studies.common.edge_cuts import DROPPED, MASS_MATCHED
from helpers.studies.common.head_edges import MEASURES, RESAMPLED, HeadCut, edge_effects
from helpers.studies.kobayashi2020 import causal, causal_plots
from helpers.studies.kobayashi2020.causal import (
    BEST_CHANGES,
    LOSES,
    MATCHED_HEAD,
    TURNS,
    rank_correlation,
)
from helpers.studies.kobayashi2020.causal_claims import CLAIMS, mean_difference
from helpers.studies.kobayashi2020.lenses import FEW_HEAD_SIZES

SIZES = FEW_HEAD_SIZES._replace(batches=2, heads=3)
ARTICLES = 15
RELATIONS = 6
LAYERS = 4
HEADS = 3


def planted_sums(effect, noise=0.1):
    """Make the sums of `measure_cuts` with an effect of each head: [relation, layer, head]."""
    rng = np.random.default_rng(0)
    shape = (ARTICLES, RELATIONS, LAYERS * HEADS, 2, len(MEASURES))
    values = noise * rng.standard_normal(shape)
    values[:, :, :, 0] += effect.reshape(RELATIONS, -1, 1)
    flat = (ARTICLES, RELATIONS, LAYERS * HEADS * 2, len(MEASURES))
    return values.reshape(flat), np.ones(flat)


def planted_heads(margins):
    relation, layer, head = np.indices(margins.shape).reshape(3, -1)
    columns = {"relation": relation.astype(str), "layer": layer + 1, "head": head + 1}
    return pd.DataFrame({**columns, "margin": margins.ravel()})


def planted_correlations(effect_of_margins):
    rng = np.random.default_rng(1)
    margins = rng.standard_normal((RELATIONS, LAYERS, HEADS))
    sums = planted_sums(effect_of_margins(margins, rng))
    table = causal.correlation_table(planted_heads(margins), sums, seed=0)
    return table.set_index(["predictor", "effect", "within"]).loc["margin"]


def test_correlation_table_finds_a_planted_agreement_in_layers_and_relations():
    table = planted_correlations(lambda margins, _: margins)
    for effect in (TURNS, LOSES):
        assert (table.loc[effect, "correlation_low"] > 0.8).all()
    assert (table["correlation_df"] == RELATIONS - 1).all()


def test_correlation_table_finds_nothing_in_planted_effects_without_margins():
    table = planted_correlations(lambda margins, rng: rng.permuted(margins.ravel()))
    assert (table.loc[TURNS, "correlation_low"] < 0).all()
    assert (table.loc[TURNS, "correlation_high"] > 0).all()


@pytest.mark.parametrize("is_attention_planted", [True, False])
def test_correlation_table_given_attention_finds_what_attention_leaves(is_attention_planted):
    rng = np.random.default_rng(1)
    margins = rng.standard_normal((RELATIONS, LAYERS, HEADS))
    values, totals = planted_sums(margins)
    if not is_attention_planted:
        values[..., MEASURES.index("attention")] = rng.standard_normal(values.shape[:-1])
    table = causal.correlation_table(planted_heads(margins), (values, totals), seed=0)
    rows = table.query("predictor == 'margin given attention' and effect == @TURNS")
    assert (rows["correlation_low"] > 0.8).all() != is_attention_planted


def test_rank_correlation_is_spearmans():
    rng = np.random.default_rng(0)
    predictor, effect = rng.standard_normal((2, 5, RELATIONS, LAYERS, HEADS))
    effect += predictor
    expected = [
        spearmanr(a.ravel(), b.ravel()).statistic for a, b in zip(predictor, effect, strict=True)
    ]
    np.testing.assert_allclose(rank_correlation(effect, "all", predictor), expected)


@pytest.mark.parametrize("within", ["all", "layers", "relations"])
def test_rank_correlation_leaves_out_heads_without_an_effect(within):
    rng = np.random.default_rng(0)
    predictor, effect = rng.standard_normal((2, RELATIONS, LAYERS, HEADS))
    expected = rank_correlation(effect[:, :, :2], within, predictor[:, :, :2])
    effect[:, :, 2] = np.nan
    assert rank_correlation(effect, within, predictor) == pytest.approx(expected)


def test_rank_correlation_within_layers_leaves_out_what_layers_have_in_common():
    rng = np.random.default_rng(0)
    by_layer = 10 * np.arange(LAYERS)[:, None]
    predictor, noise = rng.standard_normal((2, 40, LAYERS, HEADS))
    assert rank_correlation(noise + by_layer, "all", predictor + by_layer) > 0.8
    assert abs(rank_correlation(noise + by_layer, "layers", predictor + by_layer)) < 0.2
    opposite = rank_correlation(by_layer - predictor, "layers", predictor + by_layer)
    assert opposite == pytest.approx(-1)
    expected = spearmanr(predictor[:, :1].ravel(), noise[:, :1].ravel()).statistic
    of_one_layer = rank_correlation(noise[:, :1], "layers", predictor[:, :1])
    assert of_one_layer == pytest.approx(expected)


def partial_by_residuals(predictor, effect, constant):
    """Correlate what is left of two rankings after a regression on a third."""
    predictor, effect, constant = [rankdata(values) for values in (predictor, effect, constant)]
    residuals = []
    for ranks in (predictor, effect):
        slope, intercept = np.polyfit(constant, ranks, 1)
        residuals.append(ranks - slope * constant - intercept)
    return np.corrcoef(residuals)[0, 1]


def test_rank_correlation_given_a_value_is_that_of_residuals():
    predictor, effect, constant = np.random.default_rng(0).standard_normal((3, 5, 4, 3))
    effect += constant
    predictor += constant
    expected = partial_by_residuals(predictor.ravel(), effect.ravel(), constant.ravel())
    assert rank_correlation(effect, "all", predictor, constant) == pytest.approx(expected)
    first_layer = [values[:, :1] for values in (effect, predictor, constant)]
    expected = partial_by_residuals(*[first_layer[index].ravel() for index in (1, 0, 2)])
    of_layer = rank_correlation(first_layer[0], "layers", *first_layer[1:])
    assert of_layer == pytest.approx(expected)


def test_rank_correlation_of_four_heads_given_a_third_ranking_by_hand():
    # Correlations: 0.8 of predictor and effect, 0.6 of effect and constant, 0 of the other pair.
    effect = np.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 1, 4)
    predictor = np.array([1.0, 3.0, 2.0, 4.0]).reshape(1, 1, 4)
    constant = np.array([2.0, 1.0, 4.0, 3.0]).reshape(1, 1, 4)
    by_formula = (0.8 - 0.6 * 0) / np.sqrt((1 - 0.6**2) * (1 - 0**2))
    assert rank_correlation(effect, "all", predictor, constant) == pytest.approx(by_formula)


class CausalRun:
    """The tables of a tiny model on sentences in which each word depends on the one before it."""

    def __init__(self, encoder):
        sentences = []
        for split in ("train", "dev"):
            sentences += [sentence_of(words, split) for words in SENTENCES * 2 if len(words) > 2]
        self.encoder = encoder
        self.store = extract(
            encoder, corpus_of(sentences), level="word", max_tokens=60, hidden=True
        )
        self.counts = count_heads(self.store)
        self.tables = causal.causal_tables(encoder, self.store, self.counts, ["dep"], SIZES, seed=0)


@pytest.fixture(scope="module")
def causal_run(tiny_encoder):
    return CausalRun(tiny_encoder("bert"))


def test_sample_heads_begins_each_layer_with_the_largest_margin(causal_run):
    margins = causal.head_margins(causal_run.counts, "dep").max(axis=0)
    table = causal.sample_heads(causal_run.counts, ["dep"], 3)
    assert table.groupby("layer")["margin"].first().to_list() == margins.max(axis=1).tolist()
    assert table.groupby("layer")["margin"].last().to_list() == margins.min(axis=1).tolist()
    assert len(table) == 3 * 3
    best = table.iloc[0]
    assert best["margin"] == margins[best["layer"] - 1, best["head"] - 1]


def test_choose_sentences_has_dev_sentences_of_the_same_length(causal_run):
    chosen = causal.choose_sentences(causal_run.store, ["dep", "none"], 9)
    assert list(chosen) == ["dep"]
    for batch in chosen["dep"]:
        records = [causal_run.store.record(index) for index in batch]
        assert len(batch) == 2
        assert {record["split"] for record in records} == {"dev"}
        assert len({len(record["inputs"]["input_ids"]) for record in records}) == 1


def test_causal_tables_have_the_effects_of_each_head_and_change(causal_run):
    effects = causal_run.tables["head_edge_effects"]
    assert len(effects) == 9
    sentences = causal.choose_sentences(causal_run.store, ["dep"], 2)["dep"]
    row = effects.iloc[4]
    head = (int(row["layer"]) - 1, int(row["head"]) - 1, row["direction"])
    cuts = [HeadCut(*head, mode) for mode in (DROPPED, MASS_MATCHED)]
    values, totals = edge_effects(
        causal_run.encoder, causal_run.store, sentences, "dep", cuts, None
    )
    sums = values.sum(axis=0)
    numbers = totals.sum(axis=0)
    dropped, matched = sums[:, 1] / numbers[:, 1]
    assert row[TURNS] == pytest.approx(dropped - matched, rel=1e-4, abs=1e-6)
    assert row["turns"] == pytest.approx(sums[0, 0] / numbers[0, 0], rel=1e-4)
    of_changes = causal_run.tables["head_edges"]
    assert list(of_changes["change"].unique()) == list(BEST_CHANGES)
    assert (of_changes["head"] != of_changes["matched_head"]).all()
    turns = of_changes.query("measure == 'turns'").set_index("change")["value"]
    assert turns[RESAMPLED] == 0  # the two sentences of a batch are the same
    assert (turns.drop(RESAMPLED) > 0).all()
    lost = of_changes.query(f"measure == '{LOSES}'")["value"]
    assert (lost != 0).any()


def test_the_probe_gives_log_probabilities_of_the_parents(causal_run):
    example = causal_run.store[0]
    probe = causal.fit_probe(causal_run.store)
    vectors = np.asarray(example.hidden[-1][example.word_positions], np.float64)
    log_probabilities = probe(0, causal.torch.from_numpy(vectors))
    assert log_probabilities.shape == (len(example.record["words"]),)
    assert (log_probabilities < 0).all()


def test_causal_tables_refuse_a_treebank_without_such_a_relation(causal_run):
    with pytest.raises(InputError, match="no head beats its offset"):
        causal.causal_tables(
            causal_run.encoder, causal_run.store, causal_run.counts, [], SIZES, seed=0
        )


def made_up_edges(effects):
    """Make head_edges.csv from the effect of each change in each relation."""
    rows = []
    for relation, by_change in enumerate(effects):
        for change, value in zip(BEST_CHANGES, by_change, strict=True):
            for measure in MEASURES:
                rows.append((str(relation), f"1-{relation}", change, measure, value))
    return pd.DataFrame(rows, columns=["relation", "head", "change", "measure", "value"])


def test_mean_difference_is_over_relations_in_clusters_of_heads():
    tables = {"head_edges": made_up_edges([[3, 1, 0, 2], [5, 2, 0, 2], [4, 3, 0, np.nan]])}
    assert mean_difference(tables, TURNS, MASS_MATCHED).value == pytest.approx(2)
    estimate = mean_difference(tables, TURNS, MATCHED_HEAD)
    assert (estimate.value, estimate.df) == (2, 1)
    tables["head_edges"]["head"] = tables["head_edges"]["head"].replace("1-2", "1-1")
    by_head = mean_difference(tables, TURNS, MASS_MATCHED)
    assert (by_head.value, by_head.df) == pytest.approx((2, 9 / 5 - 1), abs=1e-6)
    with pytest.raises(NotMeasurable):
        mean_difference({"head_edges": made_up_edges([[3, 1, 0, 2]])}, TURNS, MASS_MATCHED)


MARGIN_CLAIMS = [
    "causal-margin-turns", "causal-margin-turns-within-layers",
    "causal-margin-loses", "causal-margin-loses-within-layers",
]  # fmt: skip


def test_claims_are_decided_and_have_the_least_effect():
    heads = planted_heads(np.random.default_rng(0).standard_normal((RELATIONS, LAYERS, HEADS)))
    margins = heads["margin"].to_numpy().reshape(RELATIONS, LAYERS, HEADS)
    correlations = causal.correlation_table(heads, planted_sums(margins), seed=0)
    controls = causal.correlation_table(heads, planted_sums(0 * margins), seed=0)
    effects = [[3, 1, 0, 2], [5, 2, 0, 4.5], [4, 3, 0, 3], [4, 2, 0, 3], [4, 2, 0, 4]]
    tables = {
        "head_edge_correlations": correlations,
        "entropy_matched_head_edge_correlations": controls,
        "head_edges": made_up_edges(effects),
    }
    table = check_claims(tables, CLAIMS).set_index("id")
    # In the planted sums, attention is the effect, so nothing is left for the margin.
    assert table.loc["causal-margin-turns-given-attention", "verdict"] == "inconclusive"
    by_margin = table.loc[MARGIN_CLAIMS]
    assert set(by_margin["verdict"]) == {"supported"}
    assert list(by_margin["due_to_training"]) == [""] * 4  # the sample of heads decides them
    assert (by_margin["least_effect"] < 0.9).all()


def test_fig16_draws_a_point_for_each_head():
    margins = np.random.default_rng(0).standard_normal((RELATIONS, LAYERS, HEADS))
    heads = planted_heads(margins)
    correlations = causal.correlation_table(heads, planted_sums(margins), seed=0)
    effects = heads.assign(**{TURNS: 2 * heads["margin"]})
    figure = causal_plots.fig16_causal(
        {"m": effects, "c": effects}, dict.fromkeys("mc", correlations), model="tiny"
    )
    for axes in figure.axes:
        (points,) = axes.collections
        np.testing.assert_allclose(points.get_offsets(), effects[["margin", TURNS]])
