"""A table that is not finite, or empty where the model has something, is not saved in silence."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers.analysis.tables import check_table
from helpers.errors import InputError
from helpers.study import Study

FIGURES = Path(__file__).resolve().parents[2] / "figures"
BOTH = {"cls": "[CLS]", "sep": "[SEP]"}


def check(name, special_tokens=BOTH, **columns):
    check_table(pd.DataFrame(columns), name, special_tokens=lambda: special_tokens)


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        (
            "gradients",
            {"layer": [1, 2], "sep": [np.nan] * 2},
            "gradients.csv: column sep has no number",
        ),
        ("entropy", {"entropy": [1.0, np.nan]}, "column entropy has 1 of 2 numbers missing"),
        ("head_distances", {"1-1": [0.0, np.inf]}, "column 1-1 has infinite numbers"),
        ("probes", {"probe": ["a"], "value": [np.nan]}, "probes.csv: column value has no number"),
        ("anything", {"accuracy": [np.nan, np.nan]}, "column accuracy has no number"),
    ],
)
def test_what_is_missing_is_named_with_a_likely_cause(name, columns, message):
    with pytest.raises(InputError, match=message) as error:
        check(name, **columns)
    assert "--dtype float32" in str(error.value) and "\n" not in str(error.value)


def test_what_a_model_cannot_have_stays_empty():
    without = {"cls": None, "sep": "</s>"}
    check("token_types", without, cls=[np.nan], sep=[0.5])
    check("entropy", without, entropy=[1.0], entropy_from_cls=[np.nan])
    with pytest.raises(InputError, match="column sep has no number"):
        check("token_types", without, cls=[np.nan], sep=[np.nan])
    check("dependency_heads", accuracy=[1.0, np.nan], paper_head=[None, None])
    check("entropy", entropy=[])  # no rows at all: its reader says why


def test_a_study_asks_its_own_model(figures, tiny_folder):
    """GPT-2 has neither [CLS] nor [SEP]."""
    rows = pd.DataFrame({"layer": [1], "head": [1], "cls": [np.nan], "punctuation": [0.5]})
    Study(model=str(tiny_folder("gpt2")), device="cpu").save_table(rows, "token_types")
    bert = Study(model=str(tiny_folder("bert")), device="cpu")
    with pytest.raises(InputError, match=r"token_types\.csv: column cls has no number"):
        bert.save_table(rows, "token_types")
    assert not (bert.results / "tables" / "token_types.csv").exists()


@pytest.mark.parametrize(
    "path", sorted(FIGURES.glob("*/tables/*.csv")), ids=lambda p: f"{p.parts[-3]}-{p.stem}"
)
def test_every_committed_table_passes(path):
    table = pd.read_csv(path)
    check_table(table, path.stem, special_tokens=lambda: BOTH)
