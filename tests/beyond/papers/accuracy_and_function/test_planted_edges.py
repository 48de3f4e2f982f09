"""The causal test of Table 1 finds planted effects, and finds none where none is planted."""

from typing import NamedTuple

import pandas as pd
import planted_edges
import pytest
from toy_corpora import corpus_of

from beyond.claims.engine import check_claims
from beyond.papers.accuracy_and_function import centred_ranks
from beyond.papers.accuracy_and_function.causal import (
    ATTENTION as BY_ATTENTION,
)
from beyond.papers.accuracy_and_function.causal import (
    LATER,
    MATCHED_HEADS,
    NEXT,
    SIZE_OF,
    TURNS,
    Sizes,
    causal_tables,
)
from beyond.papers.accuracy_and_function.claims import CLAIMS
from helpers.metrics.head_counts import count_heads
from helpers.store.extract import extract

SIZES = Sizes(edges=64, minimum=8, relations=None, templates=4)
ATTENTION = planted_edges.shuffled_rows(0)
ACCURACY = planted_edges.shuffled_rows(1, lowest=-1)  # half of the heads never pick the parent


class TwoModels(NamedTuple):
    """The tables of a model whose effects follow accuracy, and of one where they do not.

    In the second one, the effects follow attention.  Both have the same maps.
    """

    by_accuracy: dict[str, pd.DataFrame]
    by_attention: dict[str, pd.DataFrame]


@pytest.fixture(scope="module", params=[False, True], ids=["encoder", "decoder"])
def models(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    corpus = corpus_of(planted_edges.sentences())
    runs = []
    for name, effect in (("accuracy", ACCURACY), ("attention", ATTENTION)):
        planted = planted_edges.Planted(ATTENTION, ACCURACY, effect)
        encoder = planted_edges.planted_encoder(folder / name, planted, is_decoder=request.param)
        store = extract(encoder, corpus, level="word", max_tokens=60)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(centred_ranks, "PERMUTATIONS", 200)
            runs.append(causal_tables(encoder, store, count_heads(store), SIZES, seed=0))
    return TwoModels(*runs)


def measures(tables):
    """List the measures of effects that a model has."""
    named = tables["head_edge_correlations"]["measure"].unique().tolist()
    assert named in ([TURNS], [NEXT, SIZE_OF[NEXT], LATER, SIZE_OF[LATER]])
    return named


def verdicts(tables, ending=""):
    """Check the claims about margins, or about another head with the same attention."""
    checked = check_claims(tables, CLAIMS).set_index("id")
    ids = [name for name in checked.index if name.startswith("causal-") and name.endswith(ending)]
    measured = checked.loc[ids]
    return measured[measured["verdict"] != "not measured"]


def number_of_margin_claims(tables):
    """Count one given attention for each measure, and one at equal attention if it has no sign."""
    return len(measures(tables)) + len({TURNS, *SIZE_OF.values()}.intersection(measures(tables)))


def margins_of(checked):
    return checked[checked.index.str.startswith("causal-margin")]


def test_margins_and_attention_are_those_that_were_planted(models):
    table = models.by_accuracy["head_edge_effects"]
    for number, relation in enumerate(planted_edges.RELATIONS):
        rows = table[table["relation"] == relation]
        measured = rows.iloc[: planted_edges.HEADS]
        planted = pd.Series(ACCURACY[number], index=measured.index)
        assert measured["margin"].corr(planted, method="spearman") > 0.95
        attention = pd.Series(ATTENTION[number], index=measured.index)
        assert measured["attention"].corr(attention, method="spearman") > 0.6
    same = models.by_attention["head_edge_effects"]
    pd.testing.assert_series_equal(table["margin"], same["margin"])
    pd.testing.assert_series_equal(table["attention"], same["attention"])


def test_planted_effects_of_accuracy_are_found(models):
    checked = margins_of(verdicts(models.by_accuracy))
    assert len(checked) == number_of_margin_claims(models.by_accuracy)
    assert set(checked["verdict"]) == {"supported"}
    assert checked["value"].min() > 0.7


def test_effects_of_accuracy_are_not_found_in_a_model_without_them(models):
    checked = margins_of(verdicts(models.by_attention))
    assert len(checked) == number_of_margin_claims(models.by_attention)
    assert "supported" not in set(checked["verdict"])
    assert checked["value"].max() < 0.4
    correlations = models.by_attention["head_edge_correlations"].set_index("predictor")
    by_attention = correlations.loc[BY_ATTENTION]
    has_factor = correlations.index.isin(["margin", BY_ATTENTION])
    assert (correlations.loc[has_factor, "ceiling"] > 0.9).all()
    assert (pd.DataFrame(by_attention).filter(like="correlation_low") > 0).all(axis=None)


def test_accurate_heads_do_more_than_heads_with_the_same_attention_only_if_planted(models):
    planted = verdicts(models.by_accuracy, ending="over-matched-head")
    assert len(planted)
    assert set(planted["verdict"]) == {"supported"}
    not_planted = verdicts(models.by_attention, ending="over-matched-head")
    assert len(not_planted) == len(planted)
    assert "supported" not in set(not_planted["verdict"])
    ratios = models.by_accuracy["head_edge_ratios"].set_index("ratio")["value"]
    assert (ratios[MATCHED_HEADS] > 2).all()
