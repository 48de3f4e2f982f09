"""The causal test of Table 1: its edges, its yardsticks, and its tables on tiny models."""

import numpy as np
import pandas as pd
import pytest
from plot_checks import LONG_NAME, check_figure, check_long_name
from tolerances import float32_error
from toy_corpora import SENTENCES, corpus_of
from toy_decoders import random_decoder

from beyond.claims.engine import check_claims
from beyond.papers.accuracy_and_function import causal, plots
from beyond.papers.accuracy_and_function.causal import (
    DOSES,
    LARGEST,
    LATER,
    MATCHED_HEAD,
    MOST_ACCURATE,
    NEXT,
    SIZE_OF,
    TURNS,
    AblatedHead,
    Ablations,
    Sizes,
)
from beyond.papers.accuracy_and_function.centred_ranks import centred_correlation
from beyond.papers.accuracy_and_function.claims import CLAIMS
from beyond.papers.common.edge_cuts import MOST_ATTENDED
from beyond.papers.common.head_edges import (
    ANGLE,
    EFFECTS,
    LOG_PROBABILITY,
    HeadCut,
    attention_and_effects,
    cut_effects,
    edge_attention,
)
from helpers.data.records import Sentence
from helpers.errors import InputError
from helpers.metrics import by_model
from helpers.metrics.head_counts import count_heads
from helpers.metrics.heads import DIRECTIONS, by_head
from helpers.plots.style import title_of
from helpers.store.extract import extract

SIZES = Sizes(edges=4, heads=2, minimum=3, relations=None, pairs=4)
LONG = [words for words in SENTENCES if len(words) > 2]


def sentences_of(relations=("odd", "even")):
    """Make sentences in which each word depends on the one before it, by turns in two relations."""
    sentences = []
    for split in ("train", "dev"):
        for number, words in enumerate(LONG * 2):
            names = ["root", *[relations[word % 2] for word in range(len(words) - 1)]]
            source = f"{split} {number}, paragraph 1, sentence 1"
            sentences.append(
                Sentence(tuple(words), tuple(range(len(words))), tuple(names), split, source)
            )
    return sentences


class CausalRun:
    """The tables of a tiny model, and what they are made of."""

    def __init__(self, encoder):
        self.encoder = encoder
        corpus = corpus_of(sentences_of())
        self.store = extract(encoder, corpus, level="word", max_tokens=60)
        self.counts = count_heads(self.store)
        self.tables = causal.causal_tables(encoder, self.store, self.counts, SIZES, seed=0)

    def sample(self, outcome):
        return causal.relation_cases(self.encoder, self.store, self.counts, outcome, SIZES)


@pytest.fixture(scope="module")
def encoder_run(tiny_encoder):
    return CausalRun(tiny_encoder("bert"))


@pytest.fixture(scope="module")
def decoder_run(tiny_encoder):
    return CausalRun(random_decoder(tiny_encoder, "gpt2"))


def test_relation_cases_have_the_words_of_an_edge(encoder_run):
    sample = encoder_run.sample(TURNS)
    assert set(sample.relations) == {"odd", "even"}
    assert np.bincount(sample.owner).tolist() == [4, 4]
    decode = encoder_run.encoder.tokenizer.decode
    case = sample.cases[0]
    direction = sample.directions[0]
    query, key = [decode([case.token_ids[token] for token in tokens]) for tokens in
                  (case.queries, case.keys)]  # fmt: skip
    dependent, parent = (query, key) if direction == DIRECTIONS[0] else (key, query)
    text = decode(case.token_ids)
    assert text.index(parent) < text.index(dependent)
    margins = causal.head_margins(encoder_run.counts, sample.relations[0])
    number = DIRECTIONS.index(direction)
    assert margins[number].max() == margins.max()
    np.testing.assert_array_equal(sample.margins[0], margins[number].ravel())


def test_cases_of_a_decoder_are_prefixes(decoder_run):
    """The later word, here the dependent, attends to the earlier one."""
    decode = decoder_run.encoder.tokenizer.decode
    record = decoder_run.store.record(4)
    edge = causal.relation_edges(record, "even", DIRECTIONS[0])[0]
    next_case = causal.next_token_case(decoder_run.encoder, record, edge, "a")
    later_case = causal.later_word_case(decoder_run.encoder, record, edge, "a")
    words = [" " + word for word in record["words"]]
    bos = decoder_run.encoder.tokenizer.bos_token
    assert decode(next_case.token_ids) == bos + "".join(words[: edge.query + 1])
    following = decode(next_case.continuations[0])
    assert words[edge.query + 1].startswith(following)
    assert decode(later_case.token_ids) == bos + "".join(words[: edge.query])
    assert decode(later_case.continuations[0]) == words[edge.query]
    assert later_case.queries == (len(later_case.token_ids) - 1,)
    keys = [next_case.token_ids[token] for token in next_case.keys]
    assert decode(keys) == words[edge.key]


def test_cases_of_a_decoder_have_no_edge_to_a_later_word(decoder_run):
    for outcome in (NEXT, LATER):
        for case in decoder_run.sample(outcome).cases:
            assert max(case.keys) <= min(case.queries)


def log_probability_error(encoder):
    return float32_error(np.log(encoder.model.config.vocab_size))


def test_effects_of_an_encoder_are_angles_of_all_heads(encoder_run):
    table = encoder_run.tables["head_edge_effects"]
    sample = encoder_run.sample(TURNS)
    assert len(table) == 2 * 12
    assert set(table["measure"]) == {TURNS}
    cases = [case for case, owner in zip(sample.cases, sample.owner, strict=True) if owner == 1]
    angle = cut_effects(encoder_run.encoder, cases, [HeadCut(2, 3)])[..., EFFECTS.index(ANGLE)]
    rows = table[table["relation"] == sample.relations[1]]
    assert by_head(rows, "effect")[2, 3] == pytest.approx(angle.mean(), rel=1e-4)
    attention = edge_attention(encoder_run.encoder, cases).mean(axis=0)
    np.testing.assert_allclose(by_head(rows, "attention"), attention, atol=float32_error(1.0))


def test_effects_of_a_decoder_are_of_first_order(decoder_run):
    table = decoder_run.tables["head_edge_effects"]
    assert set(table["measure"]) == {NEXT}
    sample = decoder_run.sample(NEXT)
    cases = [case for case, owner in zip(sample.cases, sample.owner, strict=True) if owner == 0]
    brings = attention_and_effects(decoder_run.encoder, cases)[1]
    rows = table[table["relation"] == sample.relations[0]]
    error = log_probability_error(decoder_run.encoder)
    np.testing.assert_allclose(by_head(rows, "effect"), brings.mean(axis=0), atol=error)


def test_ablations_are_measured_on_the_edges_that_heads_were_not_chosen_on(decoder_run):
    table = decoder_run.tables["head_edge_ablations"]
    assert list(table["measure"].unique()) == [NEXT, SIZE_OF[NEXT], TURNS, LATER, SIZE_OF[LATER]]
    sample = decoder_run.sample(NEXT)
    assert sample.is_for_choice.tolist() == [True, False] * 4
    is_chosen = (table["measure"] == NEXT) & (table["relation"] == sample.relations[0])
    rows = table[is_chosen & (table["role"] == LARGEST)]
    brings = attention_and_effects(decoder_run.encoder, sample.cases)[1][:4]
    chosen_on = brings[[0, 2]].mean(axis=0).ravel()
    order = np.argsort(-np.abs(chosen_on), kind="stable")[:2]
    heads = (4 * (rows["layer"] - 1) + rows["head"] - 1).tolist()
    assert heads == order.tolist()
    cuts = [HeadCut(*divmod(heads[0], 4), dose) for dose in DOSES]
    cuts.append(HeadCut(*divmod(heads[0], 4), mode=MOST_ATTENDED))
    cases = [sample.cases[1], sample.cases[3]]
    effects = cut_effects(decoder_run.encoder, cases, cuts)
    lost = effects[..., EFFECTS.index(LOG_PROBABILITY)].mean(axis=0) * np.sign(chosen_on[heads[0]])
    columns = [f"dose_{dose:g}" for dose in DOSES]
    error = log_probability_error(decoder_run.encoder)
    np.testing.assert_allclose(rows.iloc[0][columns].astype(float), lost[:-1], atol=error)
    assert rows.iloc[0]["most_attended"] == pytest.approx(lost[-1], abs=error)
    assert rows.iloc[0]["dose_1"] == 0
    sizes = np.abs(effects[:, 0, 0]).mean()
    is_size = (table["measure"] == SIZE_OF[NEXT]) & (table["relation"] == sample.relations[0])
    of_head = table[is_size & (table["role"] == LARGEST)].iloc[0]
    assert of_head["dose_0"] == pytest.approx(sizes, abs=error)


def test_matched_head_has_the_attention_but_not_the_accuracy():
    margins = np.array([20.0, 5.0, -1.0, -2.0, -3.0])
    attention = np.array([0.40, 0.40, 0.35, 0.48, 0.01])
    assert causal.matched_head(0, margins, attention) == 2
    assert causal.matched_head(4, margins, attention) is None


ROLES_OF_HEADS = [MOST_ACCURATE, MOST_ACCURATE, LARGEST]


def planted_ablations(dropped, most_attended, matched):
    """Make ablations in ten articles; each value is of one ablated head."""
    generator = np.random.default_rng(0)
    changes = [*(np.multiply(dropped, 1 - dose) for dose in DOSES), most_attended, matched]
    values = np.stack(changes, axis=-1)
    sums = values + 0.01 * generator.standard_normal((10, *values.shape))
    heads = [
        AblatedHead(relation, role, relation, 1, None if np.isnan(value) else 0, 0.0)
        for relation, (role, value) in enumerate(zip(ROLES_OF_HEADS, matched, strict=True))
    ]
    return Ablations(heads, np.nan_to_num(sums), np.ones((10, len(heads))))


def test_yardstick_table_subtracts_what_the_yardsticks_take():
    ablations = planted_ablations([3, 5, 1], [1, 1, 1], [2, np.nan, 1])
    table = causal.yardstick_table(TURNS, ablations).set_index(["role", "yardstick"])
    row = table.loc[MOST_ACCURATE, MOST_ATTENDED]
    assert row["difference"] == pytest.approx(3, abs=0.02)  # of 2 and 4
    assert row["difference_low"] < 2.1  # heads are resampled, too
    assert row["difference_high"] > 3.9
    assert (row["heads"], row["different_heads"], row["difference_df"]) == (2, 2, 1)
    matched = table.loc[MOST_ACCURATE, MATCHED_HEAD]
    assert (matched["heads"], matched["dropped"]) == (1, pytest.approx(3, abs=0.02))
    assert table.loc[LARGEST, MOST_ATTENDED]["difference"] == pytest.approx(0, abs=0.02)


def test_causal_tables_refuse_a_treebank_with_too_few_edges(encoder_run):
    sizes = SIZES._replace(minimum=1000)
    with pytest.raises(InputError, match="1000 edges"):
        causal.causal_tables(
            encoder_run.encoder, encoder_run.store, encoder_run.counts, sizes, seed=0
        )


@pytest.mark.parametrize(
    ("ceiling", "reason"), [(0.8, ""), (0.15, "could not have been seen here")]
)
def test_a_correlation_that_a_perfect_predictor_would_not_reach_is_not_tested(ceiling, reason):
    row = {
        "measure": TURNS, "predictor": "margin given attention", "correlation": 0.5,
        "correlation_low": 0.3, "correlation_high": 0.7, "correlation_df": 10, "least": 0.2,
        "ceiling": ceiling,
    }  # fmt: skip
    table = check_claims({"head_edge_correlations": pd.DataFrame([row])}, CLAIMS)
    assert table[["id", "reason"]].to_numpy().tolist() == [
        ["causal-margin-turns-given-attention", reason]
    ]


def test_claims_of_a_run_have_rows_only_for_what_the_model_predicts(encoder_run):
    ids = check_claims(encoder_run.tables, CLAIMS)["id"]
    assert len(ids)
    assert not ids.str.contains("next-token|later-word").any()


@pytest.mark.parametrize(("panel", "predictor"), [(0, "margin"), (1, "margin given attention")])
def test_points_of_fig16_have_the_correlations_of_the_table(panel, predictor):
    """The second panel is the partial plot: attention predicts nothing of it."""
    rng = np.random.default_rng(0)
    attention, margin, effect = rng.random((3, 5, 8))  # [relation, head]
    scores = {"margin": margin + attention, "attention": attention}
    scores["effect"] = effect + attention
    rows = pd.DataFrame({name: values.ravel() for name, values in scores.items()})
    relation, head = np.divmod(np.arange(len(rows)), 8)
    rows = rows.assign(measure=TURNS, relation=relation, layer=1 + head // 2, head=1 + head % 2)
    held_constant = [[], [attention]]
    correlations = [
        centred_correlation(scores["margin"], scores["effect"], others) for others in held_constant
    ]
    table = pd.DataFrame({"predictor": ["margin", "margin given attention"], "measure": TURNS})
    table = table.assign(correlation=correlations, correlation_low=-1, correlation_high=1)
    tables = [by_model({"trained": values}) for values in (rows, table)]
    figure = plots.fig16_causal(*tables, model=LONG_NAME)
    points = np.asarray(figure.axes[panel].collections[0].get_offsets())
    expected = table.set_index("predictor").loc[predictor, "correlation"]
    assert np.corrcoef(points.T)[0, 1] == pytest.approx(expected)
    check_long_name(figure)


def test_fig16_draws_the_values_of_its_tables(decoder_run):
    effects, correlations = [
        by_model({"trained": decoder_run.tables[f"head_edge_{name}"]})
        for name in ("effects", "correlations")
    ]
    figure = plots.fig16_causal(effects, correlations, model="tiny")
    *panels, of_correlations, _ = figure.axes
    assert len(panels) == 2
    for axes in panels:
        points = axes.collections[0].get_offsets()
        assert len(points) == 2 * 12
        np.testing.assert_allclose(np.mean(points, axis=0), 0, atol=1e-9)
    measured = correlations.pivot(index="predictor", columns="measure")["correlation"]
    drawn = [line.get_xdata() for line in of_correlations.lines[:2]]
    measures = list(correlations["measure"].unique())
    assert len(measures) == 4
    for values, predictor in zip(drawn, ("margin", "margin given attention"), strict=True):
        np.testing.assert_allclose(values, measured.loc[predictor, measures])
    check_figure(figure)


def test_fig19_draws_every_head_and_names_the_costliest_edge():
    heads = pd.DataFrame({"layer": [1, 1, 2], "head": [1, 2, 1], "accuracy": [10.0, 50, 90]})
    heads = heads.assign(attention=[0.1, 0.2, 0.3], first_order=[0.0, -0.1, 0.4])
    heads = heads.assign(dropped=[np.nan, 0.1, 0.5], most_attended=[np.nan, 0.0, 0.2])
    heads = heads.assign(dropped_low=0.0, dropped_high=0.9, dropped_df=9.0)
    row = {"words_between": "all", "pairs": 40, "right": 75.0, "log_odds": 2.5}
    figure = plots.fig19_agreement(heads, pd.DataFrame([row]), model=LONG_NAME)
    points, bars, _ = figure.axes
    drawn = np.asarray(points.collections[0].get_offsets())
    np.testing.assert_allclose(drawn, heads[["attention", "first_order"]])
    assert bars.lines[0].get_xdata().tolist() == [0.1, 0.5]
    assert "head 2-1 takes 0.5 of 2.5 nats" in title_of(figure)
    check_long_name(figure)
    check_figure(figure)
