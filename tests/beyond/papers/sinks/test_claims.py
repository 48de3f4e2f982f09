"""The claims of notebook 10 on made-up tables, and for a model without special tokens."""

import pandas as pd
import pytest

from beyond.claims.engine import check_claims
from beyond.papers.common.edge_cuts import DROPPED, MASS_MATCHED, MODES
from beyond.papers.sinks.claims import (
    ANY_DIRECTION_COUNTS,
    CLAIMS,
    largest_ratio,
    loss_in_group,
)
from beyond.papers.sinks.edges import OBJECTIVE, PROBE, YARDSTICKS
from helpers.metrics import by_model

GROUP = "2-3"


def special_tokens(ratios):
    """Make special_tokens.csv from the ratios of each set of tokens; intervals are 0.1 wide."""
    frames = []
    for token, by_layer in ratios.items():
        layers = [str(layer) for layer in range(1, len(by_layer))]
        frame = pd.DataFrame({"token": token, "layer": [*layers, "all"]})
        for name in ("ratio", "value_ratio"):
            frame[name] = by_layer
            frame[f"{name}_low"] = frame[name] - 0.05
            frame[f"{name}_high"] = frame[name] + 0.05
            frame[f"{name}_df"] = 90
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def edge_ratios(ratios):
    """Make edge_ratios.csv from the ratio of each token by layers, the same for all modes."""
    rows = []
    for keys, by_layers in ratios.items():
        for layers, ratio in by_layers.items():
            for mode in YARDSTICKS:
                ways = f"{DROPPED} / {mode}"
                key = (layers, keys, ways, "sentence angle")
                rows.append((*key, ratio, 0.9 * ratio, 1.1 * ratio))
    columns = ["layers", "keys", "ways", "measure", "ratio", "ratio_low", "ratio_high"]
    table = pd.DataFrame(rows, columns=columns).assign(ratio_df=90, queries="all")
    from_first = table.assign(queries="first token", ratio=99)
    return pd.concat([from_first, table], ignore_index=True)


def edges(losses):
    """Make edges.csv from the loss of each token, by mode; the same for every measure."""
    rows = []
    for keys, by_mode in losses.items():
        for mode, loss in zip(MODES, by_mode, strict=True):
            for measure in (OBJECTIVE, PROBE):
                key = ("trained", GROUP, keys, mode, measure)
                rows.append((*key, loss, loss - 1, loss + 1))
    columns = ["model", "layers", "keys", "change", "measure"]
    table = pd.DataFrame(rows, columns=[*columns, "value", "value_low", "value_high"])
    table = table.assign(value_df=90, queries="all")
    from_first = table.assign(queries="first token", value=-99)
    return pd.concat([from_first, table], ignore_index=True)


def transplants(gains):
    """Make sink_transplant.csv from the gain of each change and token; intervals are 0.1 wide."""
    rows = []
    for (change, token), gain in gains.items():
        rows.append((change, token, "3", -9, -9, -9))  # a single layer
        rows.append((change, token, "all", gain, gain - 0.05, gain + 0.05))
    columns = ["change", "token", "layer", "gain", "gain_low", "gain_high"]
    return pd.DataFrame(rows, columns=columns).assign(gain_df=30)


TABLES = {
    "special_tokens": special_tokens({"cls": [0.2, 0.3, 0.1], "sep": [0.3, 1.5, 0.6]}),
    "edge_ratios": edge_ratios(
        {
            "special": {GROUP: 0.5},
            "cls": {"1": 0.5, "2": 0.2, "3": 0.3, GROUP: 0.2},
            "sep": {"1": 0.5, "2": 8.0, "3": 9.0, GROUP: 7.0},
        }
    ),
    "edges": edges({"special": [0] * 4, "cls": [0, 0, 50, 0], "sep": [50, 0, 0, 0]}),
    "sink_transplant": transplants(
        {
            ("ablated", "sink"): -0.9,
            ("ablated: random direction", "sink"): -0.1,
            ("moved", "token 20"): 0.1,
            ("copied", "token 20"): 0.4,
        }
    ),
}


def check(tables):
    """Check the claims on tables; the rows have the ids of the claims."""
    return check_claims(tables, CLAIMS).set_index("id")


def test_largest_ratio_is_that_of_a_single_layer_with_its_interval():
    ratio = largest_ratio(TABLES, "special_tokens", "layer", token="cls")
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.3, 0.25, 0.35))
    ways = f"{DROPPED} / {MASS_MATCHED}"
    assert (
        largest_ratio(TABLES, "edge_ratios", "layers", keys="sep", ways=ways, queries="all").value
        == 9
    )


def test_loss_in_group_is_the_mass_matched_loss_minus_the_dropped_one():
    assert loss_in_group(TABLES, "cls", "objective", MASS_MATCHED).value == 50
    assert loss_in_group(TABLES, "sep", "objective", MASS_MATCHED).value == -50


def test_claims_are_decided_for_each_token():
    verdicts = check(TABLES)["verdict"]
    names_cls = verdicts.index.str.contains("cls")
    names_sep = verdicts.index.str.contains("sep")
    assert names_cls.sum() == names_sep.sum() == 8
    assert set(verdicts[names_cls]) == {"supported"}
    of_sep = verdicts[names_sep]
    assert list(of_sep.index[of_sep == "supported"]) == ["kobayashi-values-sep"]


def test_claims_about_sinks_are_decided_by_gains_over_all_layers():
    verdicts = check(TABLES)["verdict"]
    of_sinks = verdicts[verdicts.index.str.startswith("sink-")]
    assert of_sinks.to_dict() == {
        "sink-necessary": "supported",
        "sink-sufficient": "not supported",
        "sink-shared": "supported",
    }


def test_claims_about_sinks_are_not_measured_if_random_directions_cost_attention_too():
    table = TABLES["sink_transplant"].copy()
    table.loc[table["change"] == "ablated: random direction", "gain"] = -0.16
    of_sinks = check({"sink_transplant": table}).filter(like="sink-", axis="index")
    assert set(of_sinks["verdict"]) == {"not measured"}
    assert set(of_sinks["reason"]) == {ANY_DIRECTION_COUNTS}


def test_claims_about_sinks_are_larger_than_in_controls_only_if_random_weights_fail_them():
    table = TABLES["sink_transplant"]
    random = table.assign(gain=0, gain_low=-0.05, gain_high=0.05)
    for control, expected in ((random, "yes"), (table, "inconclusive")):
        checked = check({"sink_transplant": by_model({"trained": table, "random": control})})
        assert checked.loc["sink-necessary", "larger_than_in_controls"] == expected


def test_claims_about_a_first_token_are_decided_on_its_own_rows():
    tables = dict(TABLES)
    of_first = {"special": {GROUP: 3.0}, "first": {"2": 3.0, GROUP: 3.0}}
    tables["edge_ratios"] = edge_ratios(of_first)
    tables["edges"] = edges({"special": [0] * 4, "first": [50, 0, 0, 90]})
    verdicts = check(tables)["verdict"]
    of_first = verdicts[verdicts.index.str.startswith("moves-first")]
    assert of_first.to_dict() == {
        "moves-first-words": "not supported",
        "moves-first-most-attended": "not supported",
        "moves-first-objective": "not supported",
        "moves-first-objective-most-attended": "supported",
    }


def test_each_claim_names_the_token_that_its_measure_is_about():
    for claim in CLAIMS:
        for token in ("cls", "sep"):
            is_about_token = f"-{token}" in claim.id
            assert (f"[{token.upper()}]" in claim.statement) == is_about_token
