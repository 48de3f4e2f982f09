"""The causal test of Table 1: its edges, its yardsticks, and its tables on tiny models."""

import numpy as np
import pandas as pd
import pytest
from plot_checks import LONG_NAME, check_figure, check_long_name
from tolerances import float32_error
from toy_corpora import SENTENCES, corpus_of
from toy_decoders import random_decoder

from beyond.papers.accuracy_and_function import causal, plots
from beyond.papers.accuracy_and_function.causal import (
    AT_EQUAL_ATTENTION,
    GIVEN_ATTENTION,
    MARGIN,
    MATCHED_HEADS,
    NEXT,
    OTHER_WORDS,
    SPREAD,
    TURNS,
    WEIGHT,
    RelationCases,
    Sizes,
)
from beyond.papers.common.head_edges import (
    ANGLE,
    EFFECTS,
    HeadCut,
    attention_and_effects,
    cut_effects,
    edge_attention,
    turns_by_weight,
)
from helpers.data.records import Sentence
from helpers.metrics import by_model
from helpers.metrics.head_counts import count_heads
from helpers.metrics.heads import DIRECTIONS, by_head
from helpers.plots.style import title_of
from helpers.store.extract import extract

SIZES = Sizes(edges=16, minimum=3, relations=None, templates=4)
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
    weighted = turns_by_weight(encoder_run.encoder, cases, WEIGHT)[1].mean(axis=0)
    np.testing.assert_allclose(by_head(rows, "effect_at_equal_attention"), weighted, rtol=1e-4)
    assert by_head(rows, "effect")[2, 3] == pytest.approx(angle.mean(), rel=1e-4)
    attention = edge_attention(encoder_run.encoder, cases).mean(axis=0)
    np.testing.assert_allclose(by_head(rows, "attention"), attention, atol=float32_error(1.0))


def test_effects_of_a_decoder_are_of_first_order(decoder_run):
    table = decoder_run.tables["head_edge_effects"]
    assert set(table["measure"]) == {NEXT}
    sample = decoder_run.sample(NEXT)
    cases = [case for case, owner in zip(sample.cases, sample.owner, strict=True) if owner == 0]
    _, brings, per_unit = attention_and_effects(decoder_run.encoder, cases)
    rows = table[table["relation"] == sample.relations[0]]
    error = log_probability_error(decoder_run.encoder)
    np.testing.assert_allclose(by_head(rows, "effect"), brings.mean(axis=0), atol=error)
    equal = WEIGHT * per_unit.mean(axis=0)
    np.testing.assert_allclose(by_head(rows, "effect_at_equal_attention"), equal, atol=error)


def made_up_sample(margins):
    """Make a sample of four edges in each relation, each in an article of its own."""
    n_relations = len(margins)
    case = causal.EdgeCase((1, 2), (0,), (1,), ((0,),), "")
    cases = [case._replace(article=str(number % 4)) for number in range(4 * n_relations)]
    owner = np.arange(len(cases)) // 4
    relations = [f"relation {number}" for number in range(n_relations)]
    directions = [DIRECTIONS[0]] * n_relations
    return RelationCases(relations, directions, np.array(margins), cases, owner, 2)


def ratios_of(monkeypatch, margins, attention, effects, equal):
    """Tabulate the ratios of made-up heads; edges of a relation are all alike."""
    sample = made_up_sample(margins)
    monkeypatch.setattr(
        causal, "yardstick_effects", lambda *_: np.full((len(sample.cases), 2), 3.0)
    )
    values = [np.array(by_relation)[sample.owner] for by_relation in (attention, effects, equal)]
    return causal.ratio_rows(None, sample, TURNS, *values).set_index("ratio")


def test_ratios_compare_heads_of_equal_attention(monkeypatch):
    """The first head of each relation is the most accurate; one relation has no match."""
    margins = [[9.0, 1, 1, 1], [9.0, 1, 1, 1], [9.0, 1, 1, 1]]
    attention = [[0.4, 0.4, 0.35, 0.1], [0.2, 0.21, 0.9, 0.9], [0.5, 0.1, 0.1, 0.1]]
    effects = [[4.0, 1, 4, 99], [4.0, 1, 99, 99], [9.0, 1, 1, 1]]
    equal = np.full((3, 4), 2.0)
    table = ratios_of(monkeypatch, margins, attention, effects, equal)
    assert table.loc[MATCHED_HEADS, "relations"] == 2
    assert table.loc[MATCHED_HEADS, "value"] == pytest.approx(np.sqrt(1.6 * 4))  # 4/2.5, 4/1
    assert table.loc[MATCHED_HEADS, "value_low"] < 2  # relations are resampled
    assert table.loc[SPREAD, "value"] == pytest.approx(1)  # a planted null
    assert table.loc[OTHER_WORDS, "value"] == pytest.approx(1)


def test_a_planted_spread_of_heads_is_found(monkeypatch):
    equal = np.tile(np.geomspace(1, 16, 11), (3, 1))  # of eleven heads
    ones = np.ones_like(equal)
    table = ratios_of(monkeypatch, np.eye(3, 11), ones, ones, equal)
    assert table.loc[SPREAD, "value"] == pytest.approx(16**0.8)
    assert table.loc[MATCHED_HEADS, "value"] == pytest.approx(1)


def test_fig16_draws_effects_as_they_are_and_at_equal_attention(encoder_run):
    effects, correlations = [
        by_model({"trained": encoder_run.tables[f"head_edge_{name}"]})
        for name in ("effects", "correlations")
    ]
    figure = plots.fig16_causal(effects, correlations, model=LONG_NAME)
    *panels, of_correlations, _ = figure.axes
    measured = correlations.set_index("predictor")["correlation"]
    for axes, predictor in zip(panels, (MARGIN, AT_EQUAL_ATTENTION), strict=True):
        points = np.asarray(axes.collections[0].get_offsets())
        assert len(points) == 2 * 12
        assert np.corrcoef(points.T)[0, 1] == pytest.approx(measured[predictor], abs=0.01)
    drawn = of_correlations.lines[0].get_xdata()
    np.testing.assert_allclose(drawn, measured[[MARGIN, GIVEN_ATTENTION, AT_EQUAL_ATTENTION]])
    check_long_name(figure)
    check_figure(figure)


def test_fig19_draws_every_head_and_names_the_costliest_edge():
    heads = pd.DataFrame({"layer": [1, 1, 2], "head": [1, 2, 1], "accuracy": [10.0, 50, 90]})
    heads = heads.assign(attention=[0.1, 0.2, 0.3], first_order=[0.0, -0.1, 0.4])
    heads = heads.assign(dropped=[np.nan, 0.1, 0.5])
    heads = heads.assign(dropped_low=0.0, dropped_high=0.9, dropped_df=9.0)
    row = {"subject": "all", "attractor": "all", "right": 75.0, "log_odds": 2.5}
    figure = plots.fig19_agreement(heads, pd.DataFrame([row]), model=LONG_NAME)
    points, bars, _ = figure.axes
    drawn = np.asarray(points.collections[0].get_offsets())
    np.testing.assert_allclose(drawn, heads[["attention", "first_order"]])
    assert bars.lines[0].get_xdata().tolist() == [0.1, 0.5]
    assert "head 2-1 takes 0.5 of 2.5 nats" in title_of(figure)
    check_long_name(figure)
    check_figure(figure)
