"""Execute the notebooks on a golden model, and arrange the tables of the run as they are kept."""

import contextlib
import io
import os
from pathlib import Path
from unittest import mock

import jaxtyping
import pandas as pd
from golden.models import save_model
from notebook_tools import UNSOLVED, count_exercises, executed

from beyond.claims.clark2019 import CLAIMS
from beyond.claims.engine import check_claims
from beyond.papers.claims import LATER_CLAIMS

FOLDER = Path(__file__).parent
CORPORA = FOLDER / "corpora"
PARAMETERS = {
    "text": str(CORPORA / "articles"),
    "treebank": f"{CORPORA / 'en_tales-train.conllu'},{CORPORA / 'en_tales-dev.conllu'}",
    "coref": str(CORPORA / "tales.v4_gold_conll"),
    "vectors": str(CORPORA / "vectors.txt"),
    "segments": 20,  # the controls see a part of them
    "sentences": 40,
    "gradient_segments": 8,
    "minimum_count": 8,
    "max_tokens": 64,
    "seeds": 1,
    "quick": True,
    "device": "cpu",
}
QUICK = ("00", "01", "02", "03", "04", "06")
# On fewer segments.  A second or third model would take too long.
SMALL = {"name": "small", "segments": 12, "gradient_segments": 4}
PROBES = {"encoder": ("05",), "decoder": ("05",), "window": ()}
LATER = {"encoder": ("07", "08", "10", "11"), "decoder": (), "window": ()}

# Columns that say which head, offset, word or place was chosen, or that are prose.
CHOICES = {
    "direction", "offset", "baseline_offset", "nearest_class", "nearest_side", "x", "y", "kind",
    "name", "number", "behaviour", "chosen", "matched_head", "most_attended_word", "dimension",
    "section", "claim", "reason", "how_measured", "unit", "threshold_source", "shuffled_control",
}  # fmt: skip
FEWEST_WORDS = 20  # of a point in accuracy_by_distance


def run_notebooks(numbers, parameters):
    """Execute notebooks with figures that are not drawn, which would be half of the time.

    Types are not checked at each call: other tests do that, and it would be a third of the time.
    """
    engine = "matplotlib.layout_engine.ConstrainedLayoutEngine.execute"
    for number in numbers:
        with (
            mock.patch(engine, lambda *_: None),
            mock.patch("matplotlib.figure.Figure.draw_without_rendering", lambda *_: None),
            mock.patch.object(jaxtyping.config, "jaxtyping_disable", True),
            contextlib.redirect_stdout(io.StringIO()) as output,
            contextlib.redirect_stderr(io.StringIO()),
        ):
            executed(number, **parameters)
        assert output.getvalue().count(UNSOLVED) == count_exercises(number), number


def run_model(name, folder):
    """Write a model, execute its notebooks, and return the golden tables by name.

    Caches and results are in the folder, too.
    """
    environment = {
        f"ATTENTION_{part.upper()}": str(folder / part) for part in ("cache", "build", "figures")
    }
    with mock.patch.dict(os.environ, environment):
        save_model(name, folder / name)
        parameters = PARAMETERS | {"model": str(folder / name)}
        run_notebooks(PROBES[name], parameters | SMALL)
        run_notebooks(QUICK, parameters | {"name": "quick"})
        run_notebooks(LATER[name], parameters | SMALL)
    return golden_tables(folder / "build")


def golden_tables(build):
    """Read the tables of the runs in a folder and arrange them as they are kept."""
    parts = {}
    for path in sorted(build.glob("*/tables/*.csv")):
        if path.stat().st_size >= 4:
            table = pd.read_csv(path, keep_default_na=False, na_values=[""])
            if "model" not in table:
                table.insert(0, "model", "trained")
            parts.setdefault(path.stem, []).append(table)
    stacked = {name: pd.concat(tables, ignore_index=True) for name, tables in parts.items()}
    claims = check_claims(stacked, [*CLAIMS, *LATER_CLAIMS])  # as the page does
    stacked["claims"] = claims.assign(model="trained").replace("", None)
    return {measure: arrange(measure, table) for measure, table in stacked.items()}


def arrange(measure, table):
    """Leave out choices and prose, and what a later version no longer has."""
    if measure == "claims":
        table = table[table["verdict"] != "not measured"]
    if measure == "accuracy_by_distance":
        table = table[table["count"] >= FEWEST_WORDS]
    if measure == "head_distances":
        return table
    chosen = CHOICES & set(table.columns)
    if "layer" not in table:
        chosen |= {"head"} & set(table.columns)
    table = table.drop(columns=list(chosen))
    if table["model"].nunique() == 1:
        table = table.drop(columns="model")
    return table.dropna(axis="columns", how="all")
