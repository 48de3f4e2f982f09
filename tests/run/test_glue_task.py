"""A task in GLUE's files, from the parameter ``task`` to the table of fine-tuning of 07."""

import nbformat
import pandas as pd

from helpers.metrics import rows_of_model
from helpers.run import list_notebooks

ADJECTIVES = {"1": ("fine", "warm", "funny"), "0": ("dull", "cold", "empty")}
NOUNS = ("film", "story", "comedy", "drama")


def write_sst2(path, rows):
    """Write a file with the header and the columns of SST-2."""
    path.parent.mkdir(exist_ok=True)
    lines = ["sentence\tlabel"]
    for row in range(rows):
        label = str(row % 2)
        adjective = ADJECTIVES[label][row % 3]
        lines.append(f"it 's a {adjective} {NOUNS[row % 4]} , number {row} .\t{label}")
    path.write_text("\n".join(lines) + "\n")
    return path


def execute_until_written(path, table, parameters):
    """Execute the cells of a notebook until a table is written, and return their names."""
    names = {}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, path.name, "exec"), names)
        if "parameters" in cell.metadata.get("tags", []):
            for name, value in parameters.items():  # as a batch run passes them
                (names if name in names else names["settings"])[name] = value
        if table.exists():
            return names
    raise AssertionError(f"{path.name} has not written {table.name}")


def test_a_task_in_the_layout_of_sst2_reaches_the_table_of_fine_tuning(
    tmp_path, tiny_folder, figures, monkeypatch
):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    train = write_sst2(tmp_path / "SST-2" / "train.tsv", rows=36)
    test = write_sst2(tmp_path / "SST-2" / "dev.tsv", rows=24)
    (notebook,) = list_notebooks("07")
    table = figures.parent / "build" / "glue-later" / "tables" / "fine_tuning.csv"
    parameters = {
        "model": str(tiny_folder("bert")), "task": f"{train},{test}", "task_examples": 30,
        "max_tokens": 32, "device": "cpu", "name": "glue",
    }  # fmt: skip
    names = execute_until_written(notebook, table, parameters)
    (task,) = names["tasks"]
    assert len(task.train) == 30
    for pair in (*task.train, *task.test):
        (text,) = pair.texts
        adjective = text.split()[3]
        assert adjective in ADJECTIVES[task.labels[pair.label]]
    rows = rows_of_model(pd.read_csv(table))
    assert set(rows["task"]) == {"SST-2"}
    assert {"pretrained", "random", "most frequent label", "bag of words"} < set(rows["start"])
    assert set(rows["test"]) == {24}
    assert rows.set_index("start").loc["bag of words", "accuracy"] > 90
    assert (rows["accuracy_low"] <= rows["accuracy"]).all()
    assert (rows["accuracy"] <= rows["accuracy_high"]).all()
