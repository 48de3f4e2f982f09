"""Each claim on tables made up so that it holds, then so that it does not."""

import pandas as pd
import pytest

from helpers.analysis.claims import check_claims, judge
from helpers.studies.attention_moves.claims import movement_claims


def special(ratios, value):
    layers = [str(layer) for layer in range(1, len(ratios))] + ["all"]
    table = {"layer": layers}
    for name, values in (("ratio", ratios), ("value_ratio", [value] * len(ratios))):
        table |= {
            name: values,
            f"{name}_low": [x - 0.05 for x in values],
            f"{name}_high": [x + 0.05 for x in values],
        }
    return pd.DataFrame(table)


def estimate(value, *names):
    return dict(zip(names, (value, value - 1, value + 1), strict=True))


def made(ratios, value, gain, lead, rollout):
    means = [
        {"kind": "zero", "probe": probe, "against": against} | estimate(own, "lead", "low", "high")
        for probe in ("structural", "Attn")
        for against, own in (("layer", lead), ("matched", lead), ("relations", 50))
    ]
    attributions = [
        {"method": "rollout", "effect": effect} | estimate(own, "lead", "lead_low", "lead_high")
        for effect, own in (("vector", rollout), ("similarity", 50))
    ]
    relations = [
        {"relation": name} | estimate(own, "gain", "gain_low", "gain_high")
        for name, own in (("All", -50), ("mean", gain))
    ]
    return {
        "special_tokens": special(ratios, value),
        "lens_relations": pd.DataFrame(relations),
        "relation_heads_mean": pd.DataFrame(means),
        "attributions": pd.DataFrame(attributions),
    }


GOOD = made([0.9, 0.2, 0.3], 0.4, 1, 2, 2)
BAD = made([1.2, 0.8, 0.9], 1.1, -7, -2, -2)
UNSURE = made([0.98, 0.5, 0.5], 1.0, -5, 0.5, 0.5)


@pytest.mark.parametrize("claim", movement_claims(), ids=lambda claim: claim.statement)
def test_a_claim_holds_does_not_hold_or_cannot_be_told(claim):
    assert judge(claim, GOOD).verdict == "yes"
    assert judge(claim, BAD).verdict == "no"
    assert judge(claim, UNSURE).verdict == "cannot be told"
    assert judge(claim, {}).verdict == "not measured"


def test_what_random_weights_do_too_is_no_evidence():
    tables = GOOD | {"control_special_tokens": GOOD["special_tokens"]}
    table = check_claims(tables, movement_claims()).set_index("claim")
    verdicts = table["holds"].value_counts()
    assert verdicts["no evidence"] == 3 and verdicts["yes"] == len(table) - 3


def test_a_model_without_special_tokens_has_no_number_for_them():
    nothing = {"special_tokens": GOOD["special_tokens"].assign(ratio=float("nan"))}
    table = check_claims(GOOD | nothing, movement_claims())
    assert (table["holds"] == "not measured").sum() == 2


def test_statements_are_told_apart():
    statements = [claim.statement for claim in movement_claims()]
    assert len(set(statements)) == len(statements)
