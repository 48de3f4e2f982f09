"""A run in build/ is copied to figures/ if it is a committed one, with all of its notebooks."""

import pandas as pd
import pytest

from helpers.results import Results, read_tables
from helpers.settings import Settings
from scripts.publish import publish


def save_run(number, *notebooks, name="mpnet"):
    results = Results(Settings(name=name))
    results.save_table(pd.DataFrame({"layer": [1], "entropy": [number]}), "entropy")
    with results.edited_record() as record:
        record["seconds"] = dict.fromkeys(notebooks, 1.0)
    (results.build / "fig2.png").touch()
    (results.build / "fig2.svg").touch()
    return results


def test_publish_replaces_a_run_by_png_tables_and_record(figures):
    results = save_run(3.0, "03_focused_vs_broad")
    (figures / "mpnet").mkdir(parents=True)
    (figures / "mpnet" / "old.png").touch()
    publish("mpnet")
    names = {path.name for path in results.published.rglob("*")}
    assert names == {"tables", "entropy.csv", "run.json", "fig2.png"}


def test_publish_refuses_a_part_of_a_run_and_other_runs(figures):
    results = save_run(3.0, "01_relative_position", "03_focused_vs_broad")
    publish("mpnet")
    save_run(2.0, "03_focused_vs_broad")
    with pytest.raises(SystemExit, match="lacks 01_relative_position"):
        publish("mpnet")
    assert read_tables(results.published)["entropy"]["entropy"][0] == 3.0
    save_run(2.0, "03_focused_vs_broad", name="mine")
    with pytest.raises(SystemExit, match="none of the committed"):
        publish("mine")
