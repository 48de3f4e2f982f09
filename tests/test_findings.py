"""The numbers in the notebooks' findings are those of the committed tables."""

import re
from types import SimpleNamespace

import nbformat
import numpy as np
import pandas as pd
import pytest
from committed import committed_figures

from helpers.claims.tables import with_bounds
from helpers.metrics.reference import BROAD
from helpers.results import read_tables
from helpers.run.notebooks import notebooks
from helpers.studies.kovaleva2019.patterns import ANY_COLUMN, SPECIAL_COLUMN, TEXT


def tagged(path, tag):
    """List the sources of the cells of a notebook that have a tag."""
    cells = nbformat.read(path, as_version=4).cells
    return [cell.source for cell in cells if tag in cell.metadata.get("tags", [])]


# The committed run that a finding is about, by the number of its notebook.
RUNS = dict.fromkeys((*"12345678", "10"), "minilm") | {"9": "minilm-arct"}


def numbers_of_cell(source, run):
    """Execute a cell of numbers on the tables of a committed run."""
    tables = read_tables(committed_figures() / run)
    study = SimpleNamespace(tables=lambda: tables)
    names = {"np": np, "pd": pd, "study": study, "BROAD": BROAD}
    names |= {"ANY_COLUMN": ANY_COLUMN, "SPECIAL_COLUMN": SPECIAL_COLUMN, "TEXT": TEXT}
    exec(compile(source, "numbers", "exec"), names)
    return names["numbers"]


def missing_numbers(numbers, finding):
    """Select the numbers that do not stand in a finding."""
    missing = {}
    for name, text in numbers.items():
        for number in text.removesuffix("%").split(", "):
            if not re.search(rf"(?<![\d.]){re.escape(number)}(?![\d]|\.\d)", finding):
                missing[name] = text
    return missing


@pytest.mark.parametrize("path", notebooks(",".join(RUNS)), ids=lambda path: path.stem)
def test_each_number_of_a_finding_is_that_of_the_committed_tables(path):
    (finding,) = tagged(path, "finding")
    (source,) = tagged(path, "finding-numbers")
    run = RUNS[path.stem[:2].removeprefix("0")]
    assert not missing_numbers(numbers_of_cell(source, run), finding)


# The outcomes of the causal test, over the edges that can be matched.
TURNS = "turns, matched"
LOSES = "loses, matched"


def interval(low, high, digits=2):
    """Write two bounds as a finding has them."""
    return f"{low:.{digits}f} to {high:.{digits}f}"


def extent(values, digits):
    """Write the smallest and the largest of some numbers as a finding has them."""
    return interval(values.min(), values.max(), digits)


def repeated_numbers(tables):
    """Compute the numbers of 01's finding on repeated random tokens."""
    shares = tables["repeated_tokens"]
    shares = shares.set_index(shares["layer"].astype(str) + "-" + shares["head"].astype(str))
    same = shares["same"].nlargest(2)
    return {
        "head with most on the previous token": shares["previous"].idxmax(),
        "its share": f"{shares['previous'].max():.0%}",
        "heads with most on the same token": ", ".join(same.index),
        "share of the first": f"{same.iloc[0]:.0%}",
        "share of the second": f"{same.iloc[1]:.0%}",
        "uniform attention": f"{1 / (2 * 20 + 2):.1%}",  # twenty tokens twice, [CLS] and [SEP]
        "largest share of the token after it": f"largest mean: {shares['after_same'].max():.1%}",
    }


def correlation_numbers(correlations, model):
    """Write the rank correlations with the angle that a table of 10's causal test has."""
    bounds = with_bounds("correlation")
    rows = correlations.set_index(["effect", "predictor", "within"])[bounds]
    numbers = {}
    for predictor in ("margin", "attention"):
        value, low, high = rows.loc[TURNS, predictor, "all"]
        numbers[f"{model}: {predictor}"] = f"{value:.2f}"
        numbers[f"{model}: {predictor}, interval"] = interval(low, high)
    return numbers


def causal_numbers(tables):
    """Compute the numbers of 10's causal test."""
    effects = tables["head_edges"].set_index(["relation", "change", "measure"])
    means = effects.groupby(["change", "measure"])["value"].mean()
    correlations = tables["head_edge_correlations"]
    rows = correlations.set_index(["effect", "predictor", "within"])
    _, low, high = rows.loc[(LOSES, "margin", "all"), with_bounds("correlation")]
    claims = tables["claims"].set_index("claim")
    beyond_matched = "Dropping the edges of a relation's best head {} than taking as much attention"
    numbers = {
        "pairs of a relation and a head": f"{len(tables['head_edge_effects'])} pairs",
        "margin, within layers": f"{rows.loc[(TURNS, 'margin', 'layers'), 'correlation']:.2f}",
        "margin, within relations": (
            f"{rows.loc[(TURNS, 'margin', 'relations'), 'correlation']:.2f}"
        ),
        "turns, dropped": f"{means['dropped', TURNS]:.2f}",
        "turns, mass-matched": f"{means['mass-matched', TURNS]:.2f}",
        "turns, in a matched head": f"{means['dropped in a matched head', TURNS]:.2f}",
        "turns, other words": f"{means['dropped', 'turns, other words']:.2f}",
        "turns, resampled": f"{means['resampled', TURNS]:.2f}",
        "loses, dropped": f"{means['dropped', LOSES]:.3f}",
        "loses, margin": f"{rows.loc[(LOSES, 'margin', 'all'), 'correlation']:.2f}",
        "loses, margin, interval": interval(low, high),
    }
    for outcome, digits in (
        ("turns dependent and parent further", 2),
        ("costs a probe more of the parent's log-probability", 3),
    ):
        is_claim = claims.index.str.startswith(beyond_matched.format(outcome))
        ((value, low, high),) = claims.loc[is_claim, with_bounds("value")].to_numpy()
        numbers[f"{outcome} than mass-matched"] = f"{value:.{digits}f}"
        numbers[f"{outcome} than mass-matched, interval"] = interval(low, high, digits)
    numbers |= correlation_numbers(correlations, "trained")
    entropy_matched = tables["entropy_matched_head_edge_correlations"]
    return numbers | correlation_numbers(entropy_matched, "entropy-matched")


def sink_numbers(tables):
    """Compute the numbers of 10's search for what makes the first token a sink."""
    causes = tables["sink_causes"].set_index("layer")
    from_2_to_5 = causes.loc[2:5]
    value_lengths = causes.loc[3:]
    (dimension,) = causes["dimension"].unique()
    return {
        "dimension": f"dimension {dimension:.0f}",
        "over the median component": extent(causes["over_median"], 0),
        "share of [CLS]": extent(100 * from_2_to_5["cls"], 0),
        "without the dimension": f"at most {from_2_to_5['cls_without_largest'].max():.0%}",
        "value vectors": extent(value_lengths["cls_value"], 2),
        "value vectors without the dimension": extent(
            value_lengths["cls_value_without_largest"], 2
        ),
        "without the second": extent(100 * from_2_to_5["cls_without_second"], 0).replace(
            "to", "and"
        ),
        "lead": extent(from_2_to_5["constant"], 1),
        "lead by position": extent(from_2_to_5["position"], 1),
        "lead by text": extent(from_2_to_5["content"], 1),
        "layer 1": f"{causes.loc[1, 'position']:.1f} of {causes.loc[1, 'constant']:.1f}",
    }


# The findings of single experiments, by the identifiers of their cells, all on the run minilm.
EXPERIMENTS = {
    "01-repeated-found": repeated_numbers,
    "10-causal-found": causal_numbers,
    "10-sink-found": sink_numbers,
}


@pytest.mark.parametrize("cell_id", EXPERIMENTS)
def test_each_number_of_an_experiment_is_that_of_the_committed_tables(cell_id):
    (path,) = notebooks(cell_id[:2])
    cells = nbformat.read(path, as_version=4).cells
    (finding,) = [cell.source for cell in cells if cell.id == cell_id]
    tables = read_tables(committed_figures() / "minilm")
    assert not missing_numbers(EXPERIMENTS[cell_id](tables), finding)


def test_relations_of_the_causal_test_are_those_of_its_finding():
    """Eleven relations; in one, the best head is in the last layer and changes no other word."""
    effects = read_tables(committed_figures() / "minilm")["head_edges"]
    assert effects["relation"].nunique() == 11
    of_other_words = effects[effects["measure"] == "turns, other words"].groupby("relation")[
        "value"
    ]
    largest = of_other_words.max()
    assert list(largest.index[largest == 0]) == ["advcl"]
