"""The claims of Niven and Kao, measured on made-up tables."""

import numpy as np
import pandas as pd
import pytest

from beyond.claims.engine import check_claims
from beyond.papers.argument_cues import cues
from beyond.papers.argument_cues.claims import CLAIMS, CLASSIFIERS
from helpers.metrics import by_model


def tables_of_means(*means, seeds=5, spread=1.0):
    """Make both tables of (classifier, inputs, train, test, mean), with half-widths of 0.5."""
    key = ["classifier", "inputs", "train", "test"]
    table = pd.DataFrame(means, columns=[*key, "mean"]).assign(corpus="arct", arguments=444)
    table["mean_low"] = table["mean"] - 0.5
    table["mean_high"] = table["mean"] + 0.5
    shifts = spread * (np.arange(seeds) - (seeds - 1) / 2)
    by_seed = []
    for seed, shift in enumerate(shifts):
        by_seed.append(table[key].assign(seed=seed, accuracy=table["mean"] + shift))
    return {"partial_inputs": table, "partial_input_seeds": pd.concat(by_seed)}


def run_like_the_paper():
    cues = [
        ("all", "not", "unigram", 61, 7.0),
        ("all", "can not", "bigram", 75, 8.0),
        ("all", "is", "unigram", 52, 0.3),
        ("test", "not", "unigram", 54, 1.0),
        ("test", "are", "unigram", 52, 0.3),
    ]
    columns = ["split", "cue", "kind", "productivity", "gain"]
    table = pd.DataFrame(cues, columns=columns).assign(corpus="arct", half="original")
    table["productivity_low"] = table["productivity"] - 1
    table["productivity_high"] = table["productivity"] + 1
    means = [(classifier, "warrants", "original", "original", 57) for classifier in CLASSIFIERS[:2]]
    means += [
        ("encoder", "warrants", "original", "original", 65.6),
        ("encoder", "all", "original", "original", 67.1),
        ("encoder", "all", "original", "both", 50.4),
        ("encoder", "all", "negated", "both", 60),
        *((classifier, "all", "original", "adversarial", 40) for classifier in CLASSIFIERS),
    ]
    return {"cues": table, **tables_of_means(*means, spread=0.5)}


def check_argument_claims(tables):
    return check_claims(tables, CLAIMS).set_index("id")


ENCODER_OVER_BAG = "niven-encoder-over-bag"
AT_CHANCE = "niven-both-at-chance"
BAG_57 = ("bag of vectors", "warrants", "original", "original", 57)


def test_all_claims_are_supported_by_a_run_like_the_paper():
    claims = check_argument_claims(run_like_the_paper())
    assert set(claims["verdict"]) == {"supported"}
    with_paper = [claim for claim in CLAIMS if not np.isnan(claim.paper)]
    for claim in with_paper:
        measured = claims.loc[claim.id, "value"]
        assert measured == pytest.approx(claim.paper, rel=0.1, abs=1e-9), claim.id


def test_values_of_the_paper_in_claims_are_those_of_its_tables():
    published = cues.published_values()
    with_warrants = published["encoder, warrants, original, mean"]
    with_everything = published["encoder, all, original, mean"]
    paper = {claim.id: claim.paper for claim in CLAIMS}
    assert np.isnan(paper["niven-not-strongest"])
    assert paper["niven-not-right-in-test"] == published["productivity of not, test"]
    assert paper["niven-not-right"] == published["productivity of not, all"]
    assert paper["niven-warrants-most"] == pytest.approx(with_warrants - with_everything / 2)


def test_a_difference_of_means_combines_the_spreads_of_both():
    """Student's t of five seeds at distances of one: 2.776 * sqrt(2.5 / 5)."""
    encoder = ("encoder", "warrants", "original", "original", 60)
    claim = check_argument_claims(tables_of_means(encoder, BAG_57)).loc[ENCODER_OVER_BAG]
    half_width = np.sqrt(2 * (0.25 + 2.77645**2 * 0.5))
    expected = [3, 3 - half_width, 3 + half_width]
    assert claim[["value", "value_low", "value_high"]].tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("accuracy", [44, 56])
def test_chance_is_left_in_both_directions(accuracy):
    encoder = ("encoder", "all", "original", "both", accuracy)
    claim = check_argument_claims(tables_of_means(encoder, BAG_57, spread=0.1)).loc[AT_CHANCE]
    assert (claim["value"], claim["verdict"]) == (6, "not supported")


@pytest.mark.parametrize(("spread", "verdict"), [(1.5, "inconclusive"), (0.1, "supported")])
def test_a_difference_of_means_is_supported_if_seeds_agree(spread, verdict):
    encoder = ("encoder", "warrants", "original", "original", 60)
    claims = check_argument_claims(tables_of_means(encoder, BAG_57, spread=spread))
    assert claims.loc[ENCODER_OVER_BAG, "verdict"] == verdict


@pytest.mark.parametrize(("random", "expected"), [(65, "inconclusive"), (70, "no"), (58, "yes")])
def test_a_cue_is_larger_than_in_controls_if_random_weights_follow_it_less(random, expected):
    key = ("encoder", "warrants", "original", "original")
    trained = tables_of_means((*key, 75), BAG_57, spread=0.1)
    control = tables_of_means((*key, random + 10), BAG_57, spread=0.1)
    tables = {
        name: by_model({"trained": trained[name], "random": control[name]}) for name in trained
    }
    claim = check_argument_claims(tables).loc[ENCODER_OVER_BAG]
    assert (claim["verdict"], claim["larger_than_in_controls"]) == ("supported", expected)
    assert claim["control"] == pytest.approx(random + 10 - 57)


@pytest.mark.parametrize(
    ("mean", "verdict"), [(49.6, "supported"), (51.5, "inconclusive"), (45, "not supported")]
)
def test_at_chance_needs_the_interval_within_two_points(mean, verdict):
    tables = tables_of_means(("encoder", "all", "original", "both", mean), spread=0.1)
    assert check_argument_claims(tables).loc[AT_CHANCE, "verdict"] == verdict


def test_claims_are_not_measured_on_a_planted_cue():
    """The bundled sample would pass most claims, because its cue was put there to be learned."""
    tables = run_like_the_paper()
    planted = {name: table.assign(corpus="arguments-sample") for name, table in tables.items()}
    assert check_argument_claims(planted).empty
