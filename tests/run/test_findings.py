"""Sentences about a run are made of its tables, and of nothing that it does not have."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
from made_up_runs import run_like_the_paper

from helpers.run.findings import findings, found, verdicts

SPECIAL = {"cls": "<s>", "sep": "</s>"}


def written():
    tables = run_like_the_paper()
    table = tables["dependency_heads"]
    table["head"], table["ci_high"] = "3-1", table["accuracy"] + 2
    return tables


def test_the_numbers_are_those_of_the_tables():
    found = findings(written(), SPECIAL)
    assert found["01"][0].startswith("Head 2-1 gives 60% of its attention to the previous token")
    assert "</s> gets the most attention in layer 4, 70% on average" in found["02"][0]
    assert "<s> gets the most attention in layer 1, 30%" in found["02"][1]
    assert "Layer 1 is the broadest with 4.60 nats" in found["03"][0]
    assert "In the last layer <s> has 3.90 nats." in found["03"]
    assert "gets 34.5% (32.5 to 36.5) of the words right" in found["04"][0]
    assert "dobj: 3-1, 86.8% (84.8 to 88.8) (offset 40)" in found["04"][1]
    assert "dobj (3-1) 50% and 10%; det (3-1) 50% and 10%; " in found["04"][3]
    assert "compound" not in found["04"][3]


def test_tokens_and_relations_are_text_in_a_notebook_too():
    tables = written()
    tables["dependency_heads"]["relation"] = tables["dependency_heads"]["relation"].replace(
        "dobj", "<img src=x onerror=alert(1)>"
    )
    study = SimpleNamespace(
        tables=lambda: tables,
        encoder=SimpleNamespace(special_tokens=SPECIAL),
        claims=lambda _: pd.DataFrame(columns=["holds", "claim"]),
    )
    assert "&lt;img src=x onerror=alert(1)&gt;: 3-1, 86.8%" in found(study, "04").data
    assert "&lt;/s&gt; gets the most attention in layer 4" in found(study, "02").data


def test_a_decoder_is_not_said_to_look_ahead():
    table = run_like_the_paper()["relative_position"].assign(next=0.0)
    said = " ".join(findings({"relative_position": table}, SPECIAL)["01"])
    assert "Head 2-1 gives 60% of its attention to the previous token, the most of" in said
    assert "next" not in said


def test_selectivity_is_not_attachment():
    tables = {
        "probes": pd.DataFrame(
            [
                ("Attn", "UAS", 51.0, 50.0, 52.0),
                ("Attn", "UAS without punctuation", 53.3, 52.1, 54.4),
                ("Attn", "control task", 41.6, 40.6, 42.6),
                ("Attn", "selectivity", 11.7, 10.1, 13.1),
                ("Attn + GloVe", "UAS without punctuation", np.nan, np.nan, np.nan),
            ],
            columns=["probe", "metric", "value", "ci_low", "ci_high"],
        )
    }
    assert findings(tables, SPECIAL)["05"] == [
        "Attachment without punctuation, in percent: Attn 53.3 (52.1 to 54.4).",
        "Attachment above that of random heads (selectivity), in points: Attn 11.7 (10.1 to 13.1).",
    ]
    del tables["probes"]
    assert findings(tables, SPECIAL) == {}


def test_what_a_run_does_not_have_is_not_spoken_of():
    assert findings({}, SPECIAL) == {}
    tables = {name: written()[name] for name in ("token_types", "entropy")}
    tables["token_types"]["cls"] = np.nan
    tables["entropy"]["entropy_from_cls"] = np.nan
    found = findings(tables, {"cls": None, "sep": "</s>"})
    assert list(found) == ["02", "03"]
    assert not any(
        "<s>" in sentence or "nan" in sentence for own in found.values() for sentence in own
    )


def test_claims_by_their_verdict():
    claims = pd.DataFrame(
        {
            "claim": ["A is.", "B is", "C is", "D is"],
            "holds": ["yes", "cannot be told", "yes", "not measured"],
        }
    )
    assert verdicts(claims) == [
        "Of the paper's claims here, 3 could be measured.",
        "*Holds here (2):* A is; C is.",
        "*Cannot be told (1):* B is.",
    ]
    assert verdicts(claims.tail(1)) == []


def test_section_6_says_of_any_model_how_close_heads_of_a_layer_and_of_an_index_are():
    positions = pd.DataFrame({"behaviour": ["next", "broad"]})
    found = findings(written() | {"head_positions": positions}, SPECIAL)["06"]
    assert found[0].startswith("Heads of one layer are 75% as far from each other as heads of")
    assert found[1].startswith("Heads of one index are 100% as far") and "p = 0.5" in found[1]
