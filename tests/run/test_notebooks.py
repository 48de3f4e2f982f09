"""The notebooks of a run, executed without anybody watching."""

import itertools
import random
import re
import warnings
from contextlib import closing

import nbformat
import pandas as pd
import pytest
import tiny_models
from faults import SLOW_KILLS
from nbclient.util import run_sync
from toy_corpora import conllu, write

from helpers.progress import BATCH_VARIABLE, OUTPUT_LIST_VARIABLE, progress
from helpers.run import notebooks
from helpers.run.notebooks import NotebookFailed


def execute(output, *paths):
    """Execute notebooks one after the other; what the last one shows is left in ``output``."""
    with closing(notebooks._kernels(paths, output.parent)) as kernels:
        for path, kernel in kernels:
            notebooks._execute(path, output, {}, kernel)


def test_kernels_are_told_that_nobody_watches_and_where_to_note_what_they_write(tmp_path):
    path = tmp_path / "00_toy.ipynb"
    printed = f"os.environ[{BATCH_VARIABLE!r}], os.environ.get({OUTPUT_LIST_VARIABLE!r})"
    code = f"import os; print({printed})"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)]), path)
    execute(tmp_path / "out.ipynb", path)
    outputs = nbformat.read(tmp_path / "out.ipynb", as_version=4).cells[0].outputs
    assert [output.text for output in outputs] == [f"1 {tmp_path / '00_toy.written'}\n"]


def test_the_html_copy_has_warnings_and_no_lines_of_progress(tmp_path, monkeypatch, capsys):
    """Both are on the stream of errors, in one output or in several."""
    monkeypatch.setenv(BATCH_VARIABLE, "1")
    monkeypatch.setattr("tqdm.std.time", itertools.count(0, 6).__next__)
    assert list(progress(range(5), "maps read", unit="map")) == list(range(5))
    assert list(progress(iter("abc"), "no end in sight")) == list("abc")
    bars = capsys.readouterr().err
    assert bars.count("maps read") > 1 and "no end in sight" in bars
    texts = [bars, f"{bars}UserWarning: mind the gap\n", "printed\n"]
    cell = nbformat.v4.new_code_cell("compute()")
    cell.outputs = [
        nbformat.v4.new_output("stream", name=name, text=text)
        for name, text in zip(("stderr", "stderr", "stdout"), texts, strict=True)
    ]
    prose = nbformat.v4.new_markdown_cell("What the cell below does")
    nbformat.write(nbformat.v4.new_notebook(cells=[prose, cell]), tmp_path / "one.ipynb")
    notebooks.write_html(tmp_path / "one.ipynb")
    page = (tmp_path / "one.html").read_text()
    assert "mind the gap" in page and "printed" in page
    assert "maps read" not in page and "no end in sight" not in page
    assert "maps read" in (tmp_path / "one.ipynb").read_text()  # the notebook is as it was


def test_write_html_shows_bidirectional_control_characters(tmp_path):
    cell = nbformat.v4.new_code_cell("print(text)")
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text="left \u202etfel\u202c\n")]
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "one.ipynb")
    notebooks.write_html(tmp_path / "one.ipynb")
    assert "left [U+202E]tfel[U+202C]" in (tmp_path / "one.html").read_text()


KILLED = """
import os, signal, time
from pathlib import Path
if {path!r} and not Path({path!r}).exists():
    Path({path!r}).touch()
    time.sleep({seconds})
    os.kill(os.getpid(), signal.SIGKILL)
print("done")
"""


def test_a_killed_kernel_is_one_line_and_the_next_run_is_whole(tmp_path, record_property, capfd):
    rng = random.Random(0)
    kills_in_one_line = 0
    for kill in range(SLOW_KILLS):
        marker = tmp_path / f"once-{kill}"
        path = tmp_path / f"0{kill % 7}_toy.ipynb"
        code = KILLED.format(path=str(marker), seconds=rng.uniform(0, 0.2))
        tagged = nbformat.v4.new_code_cell("a = 1", metadata={"tags": ["parameters"]})
        cells = [tagged, nbformat.v4.new_code_cell(code)]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
        with pytest.raises(NotebookFailed) as stopped:
            execute(tmp_path / "out.ipynb", path)
        message = str(stopped.value)
        assert re.match(rf"{path.name}: its process was killed, .* and run again$", message)
        execute(tmp_path / "out.ipynb", path)
        outputs = nbformat.read(tmp_path / "out.ipynb", as_version=4).cells[-1].outputs
        assert [output.text for output in outputs] == ["done\n"]
        kills_in_one_line += 1
    assert "Kernel died" not in capfd.readouterr().err
    record_property(
        "found", f"kernels: {kills_in_one_line} of {SLOW_KILLS} kills ended in one line"
    )


def test_no_kernel_outlives_a_run_that_stops(tmp_path):
    paths = [tmp_path / f"0{number}_toy.ipynb" for number in range(3)]
    for path in paths:
        nbformat.write(nbformat.v4.new_notebook(), path)
    with pytest.raises(ZeroDivisionError), closing(notebooks._kernels(paths, tmp_path)) as kernels:
        _, kernel = next(kernels)
        started = kernels.gi_frame.f_locals["kernels"].copy()
        raise ZeroDivisionError
    assert len(started) == 2 and kernel is started[0]  # the second is there before it is needed
    assert not any(run_sync(each_kernel.is_alive)() for each_kernel in started)


def executed(number, **parameters):
    """Execute a notebook of the series in this process: a warning ends it as an error does."""
    (path,) = notebooks.notebooks(number)
    names = {}
    column_width = pd.option_context("display.max_colwidth", 50)  # which a notebook sets
    with warnings.catch_warnings(action="error", category=UserWarning), column_width:
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                exec(compile(cell.source, path.name, "exec"), names)
            if "parameters" in cell.metadata.get("tags", []):
                names |= parameters


# Surface-syntactic Universal Dependencies: function words are heads, objects are comp:obj.
SUD = (
    "They/2/subj saw/0/root {}/2/comp:obj with/2/udep {}/4/comp:obj ./2/punct",
    "{}/2/subj has/0/root liked/2/comp:aux {}/3/comp:obj today/3/mod ./2/punct",
)


def test_a_treebank_without_the_relations_of_figure_5(
    tmp_path, tiny_folder, figures, monkeypatch, capsys
):
    """04 to its end on SUD's names: tables of them, and a viewer of coreference alone."""
    monkeypatch.setenv("ATTENTION_PROFILE", "small")  # ten words of a relation are enough
    towns = itertools.permutations(["Rome", "Paris", "Lyon", "Bath", "York"], 2)
    sentences = []
    for names in towns:
        for pattern in SUD:
            words = enumerate(pattern.format(*names).split(), 1)
            sentences.append([(number, *word.rsplit("/", 2)) for number, word in words])
    treebank = write(tmp_path, "en_sud.conllu", conllu(*sentences, times=1))
    executed(
        "04", model=str(tiny_folder("bert")), treebank=str(treebank), max_tokens=48, device="cpu",
        name="sud",
    )  # fmt: skip
    assert capsys.readouterr().out.count("Viewer(") == 1
    relations = pd.read_csv(figures / "sud" / "tables" / "dependency_heads.csv")["relation"]
    assert {"All", "subj", "comp:obj"} <= set(relations)
    examples = pd.read_csv(figures / "sud" / "tables" / "fig5_examples.csv")
    assert set(examples["relation"]) == {"coreference"}


def test_a_model_of_one_head_has_what_it_can_have(tmp_path, figures, monkeypatch):
    """Nothing within layers, nothing between them: 03 and 06 to their end, without a warning."""
    monkeypatch.setenv("ATTENTION_PROFILE", "small")
    for name in ("num_hidden_layers", "num_attention_heads"):
        monkeypatch.setitem(tiny_models.SIZES, name, 1)
    model = tiny_models.save(tmp_path / "one", *tiny_models.bert())
    text = tmp_path / "cats.txt"
    text.write_text("\n\n".join("A cat sat here.\nA dog sat there." for _ in range(12)))
    for number in ("03", "06"):
        executed(number, model=str(model), text=str(text), max_tokens=32, device="cpu", name="one")
    tables = figures / "one" / "tables"
    assert pd.read_csv(tables / "averages_by_article.csv")["between_layers"].isna().all()
    assert pd.read_csv(tables / "head_cohesion.csv")["within"].isna().all()
