"""The notebooks of a run, executed without anybody watching."""

import itertools
import json
import os
import random
import re
import signal
import threading
import time
from unittest import mock

import nbformat
import pandas as pd
import pytest
import tiny_models
from faults import SLOW_KILLS
from notebook_tools import executed
from toy_corpora import conllu, write

from helpers.errors import InputError
from helpers.progress import NOTEBOOK_VARIABLE, progress
from helpers.results import Results
from helpers.run import notebooks
from helpers.run.notebooks import NotebookFailed, execute, two_at_a_time
from helpers.settings import Settings
from helpers.viewer import view


def write_notebook(path, *sources):
    """Write a notebook of code cells; the first is that of parameters."""
    cells = [nbformat.v4.new_code_cell("a = 1", metadata={"tags": ["parameters"]})]
    cells += [nbformat.v4.new_code_cell(source) for source in sources]
    metadata = {"language_info": {"name": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), path)
    return path


def last_output(path):
    """Return the text that the last cell of a notebook has printed."""
    return "".join(output.text for output in nbformat.read(path, as_version=4).cells[-1].outputs)


def test_execute_tells_kernels_the_name_of_their_notebook(tmp_path, capfd):
    code = f"import os; print(os.environ[{NOTEBOOK_VARIABLE!r}], a)"
    path = write_notebook(tmp_path / "00_toy.ipynb", code)
    (tmp_path / "out").mkdir()
    execute(path, tmp_path / "out", {"a": 2, "unknown": 3})
    assert last_output(tmp_path / "out" / path.name) == "00_toy 2\n"
    assert NOTEBOOK_VARIABLE not in os.environ
    assert not capfd.readouterr().err  # no kernel says anything of its own


def test_execute_leaves_the_memory_and_threads_of_kernels_to_a_user_who_sets_them(
    tmp_path, monkeypatch
):
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "7")
    code = "import os; print(os.environ['GOMP_SPINCOUNT'], os.environ['MALLOC_ARENA_MAX'])"
    path = write_notebook(tmp_path / "00_toy.ipynb", code)
    (tmp_path / "out").mkdir()
    execute(path, tmp_path / "out", {})
    assert last_output(tmp_path / "out" / path.name) == "10000 7\n"


def test_the_html_copy_has_warnings_and_no_lines_of_progress(tmp_path, monkeypatch, capsys):
    """Both are on the stream of errors, in one output or in several."""
    monkeypatch.setenv(NOTEBOOK_VARIABLE, "00_toy")
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


def test_a_solution_is_folded_in_the_html_copy(tmp_path):
    prose = nbformat.v4.new_markdown_cell(
        "<details><summary>Solution</summary>\n\n```python\nanswer = 42\n```\n\n</details>"
    )
    nbformat.write(nbformat.v4.new_notebook(cells=[prose]), tmp_path / "one.ipynb")
    notebooks.write_html(tmp_path / "one.ipynb")
    page = (tmp_path / "one.html").read_text()
    folded = page[page.index("<details>") : page.index("</details>")]
    assert "answer" in folded


def test_a_picture_has_the_title_of_its_figure_for_readers_who_do_not_see_it(tmp_path):
    metadata = {"image/png": {"alt": "Heads look left", "width": 864}}
    output = nbformat.v4.new_output("display_data", {"image/png": "aGk="}, metadata=metadata)
    cell = nbformat.v4.new_code_cell("figure", outputs=[output])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "one.ipynb")
    notebooks.write_html(tmp_path / "one.ipynb")
    assert 'alt="Heads look left"' in (tmp_path / "one.html").read_text()


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
    (tmp_path / "out").mkdir()
    for kill in range(SLOW_KILLS):
        code = KILLED.format(path=str(tmp_path / f"once-{kill}"), seconds=rng.uniform(0, 0.2))
        path = write_notebook(tmp_path / f"0{kill % 7}_toy.ipynb", code)
        with pytest.raises(NotebookFailed) as stopped:
            execute(path, tmp_path / "out", {})
        message = str(stopped.value)
        assert re.match(
            rf"{path.name}: its process was killed or did not start, .* and run again$", message
        )
        execute(path, tmp_path / "out", {})
        assert last_output(tmp_path / "out" / path.name) == "done\n"
        kills_in_one_line += 1
    assert "Kernel died" not in capfd.readouterr().err
    record_property(
        "found", f"kernels: {kills_in_one_line} of {SLOW_KILLS} kills ended in one line"
    )


NOTE_PROCESS = """
import os, time
from pathlib import Path
Path({path!r}).write_text(str(os.getpid()))
"""


def interrupt_when_noted(*paths):
    """Interrupt this process as Ctrl-C does, as soon as all kernels have noted their numbers."""
    while not all(path.exists() and path.read_text() for path in paths):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("end", "error"), [("raise ValueError", NotebookFailed), ("time.sleep(99)", KeyboardInterrupt)]
)
def test_execute_leaves_no_kernel_behind(tmp_path, end, error):
    noted = tmp_path / "process"
    path = write_notebook(tmp_path / "00_toy.ipynb", NOTE_PROCESS.format(path=str(noted)) + end)
    (tmp_path / "out").mkdir()
    if error is KeyboardInterrupt:
        threading.Thread(target=interrupt_when_noted, args=(noted,)).start()
    with pytest.raises(error):
        execute(path, tmp_path / "out", {})
    with pytest.raises(ProcessLookupError):
        os.kill(int(noted.read_text()), 0)


def test_a_finished_run_is_repeated_two_at_a_time_the_longest_first(tmp_path, figures, monkeypatch):
    started = []
    running = []
    most = []

    def execute_slowly(path, folder, values, environment):
        started.append(path)
        running.append(path)
        time.sleep(0.2 * (paths.index(path) + 1))
        most.append(len(running))
        running.remove(path)

    monkeypatch.setattr(notebooks, "execute", execute_slowly)
    monkeypatch.setattr(notebooks, "write_html", lambda path: None)
    settings = Settings(name="mine")
    paths = [write_notebook(tmp_path / f"0{number}_toy.ipynb", "1") for number in range(4)]
    notebooks.run(paths, settings, Results(settings))
    assert most == [1, 1, 1, 1]
    assert started == paths
    notebooks.run(paths, settings, Results(settings))
    assert max(most) == 2
    assert set(started[4:6]) == set(paths[2:])


@pytest.mark.parametrize(
    ("end", "error"), [("raise ValueError", NotebookFailed), ("time.sleep(99)", KeyboardInterrupt)]
)
def test_two_at_a_time_leaves_no_kernel_behind(tmp_path, end, error):
    """A third notebook is not started if one of the first two fails, or at Ctrl-C."""
    noted = [tmp_path / f"process-{number}" for number in range(3)]
    first = f"Path({str(noted[0])!r})"
    waits = f"while not ({first}.exists() and {first}.read_text()): time.sleep(0.05)\n"
    ends = ["time.sleep(99)", waits + end, "time.sleep(99)"]
    paths = [
        write_notebook(tmp_path / f"0{number}_toy.ipynb", NOTE_PROCESS.format(path=str(path)) + end)
        for number, (path, end) in enumerate(zip(noted, ends, strict=True))
    ]
    (tmp_path / "out").mkdir()
    if error is KeyboardInterrupt:
        threading.Thread(target=interrupt_when_noted, args=noted[:2]).start()
    with pytest.raises(error):
        two_at_a_time(lambda path: execute(path, tmp_path / "out", {}), paths)
    assert not noted[2].exists()
    for path in noted[:2]:
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.read_text()), 0)


def test_execute_ends_at_the_next_cell_if_an_interrupt_was_lost(tmp_path, monkeypatch):
    waits = f"import time\nwhile not Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.05)"
    noted = tmp_path / "process"
    code = NOTE_PROCESS.format(path=str(noted)) + waits
    path = write_notebook(
        tmp_path / "00_toy.ipynb", code, f"Path({str(tmp_path / 'next')!r}).touch()"
    )
    (tmp_path / "out").mkdir()
    received = threading.Event()
    monkeypatch.setattr("helpers.run.interrupts._RECEIVED", received)

    def lose_interrupt():
        while not noted.exists():
            time.sleep(0.05)
        received.set()
        (tmp_path / "go").touch()

    threading.Thread(target=lose_interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        execute(path, tmp_path / "out", {})
    assert not (tmp_path / "next").exists()


# Surface-syntactic Universal Dependencies: function words are heads, objects are comp:obj.
SUD = (
    "They/2/subj saw/0/root {}/2/comp:obj with/2/udep {}/4/comp:obj ./2/punct",
    "{}/2/subj has/0/root liked/2/comp:aux {}/3/comp:obj today/3/mod ./2/punct",
)


def test_a_treebank_without_the_relations_of_figure_5(tmp_path, tiny_folder, figures, monkeypatch):
    """04 to its end on SUD's names: tables of them, and a viewer of the first sentence."""
    view_spy = mock.Mock(wraps=view.view)
    monkeypatch.setattr(view, "view", view_spy)
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
    (call,) = view_spy.call_args_list
    (store,) = call.args
    assert "relations" in store.record(0)
    assert not call.kwargs
    tables = figures.parent / "build" / "sud" / "tables"
    relations = pd.read_csv(tables / "dependency_heads.csv")["relation"]
    assert {"All", "subj", "comp:obj"} <= set(relations)
    examples = pd.read_csv(tables / "fig5_examples.csv")
    assert set(examples["relation"]) == {"coreference"}


def test_pairs_of_any_relation_run_and_need_no_trees(tmp_path, tiny_folder, figures, monkeypatch):
    """00 and 04 to their end on pairs without tags; the notebooks that need trees refuse them."""
    monkeypatch.setenv("ATTENTION_PROFILE", "small")
    lines = []
    for number in range(40):
        words = ["Ann", "saw", "Bob", "and", "Bob", "saw", f"number{number}"]
        pairs = [[4, 2, "repeat"], [5, 1, "repeat"], [2, 4, "later"], [2, 6, "later"]]
        lines.append(json.dumps({"words": words, "pairs": pairs, "document": f"d{number // 4}"}))
    pairs_path = write(tmp_path, "pairs.jsonl", "\n".join(lines))
    text = write(tmp_path, "cats.txt", "\n".join(["A cat sat here.", "A dog sat there."] * 12))
    for number in ("00", "04"):
        executed(
            number, model=str(tiny_folder("bert")), pairs=str(pairs_path), text=str(text),
            max_tokens=48, device="cpu", name="pairs",
        )  # fmt: skip
    tables = figures.parent / "build" / "pairs" / "tables"
    held_out = pd.read_csv(tables / "dependency_heads_held_out.csv")
    assert set(held_out["relation"]) == {"All", "repeat", "later"}
    assert held_out["nearest_accuracy"].isna().all()
    settings = Settings(pairs=str(pairs_path))
    notebooks.check_settings(notebooks.notebooks("00,01,04"), settings)
    for number in ("05", "07", "10", "11"):
        with pytest.raises(InputError, match=f"notebook {number}: it needs trees, and --pairs"):
            notebooks.check_settings(notebooks.notebooks(number), settings)


def test_a_model_of_one_head_has_what_it_can_have(tmp_path, figures, monkeypatch):
    """Nothing within layers, nothing between them: 03 and 06 to their end, without a warning."""
    monkeypatch.setenv("ATTENTION_PROFILE", "small")
    for name in ("num_hidden_layers", "num_attention_heads"):
        monkeypatch.setitem(tiny_models.SIZES, name, 1)
    model = tiny_models.save(tmp_path / "one", *tiny_models.bert())
    text = tmp_path / "cats.txt"
    text.write_text("\n".join("A cat sat here.\nA dog sat there." for _ in range(12)))
    for number in ("03", "06"):
        executed(number, model=str(model), text=str(text), max_tokens=32, device="cpu", name="one")
    tables = figures.parent / "build" / "one" / "tables"
    assert pd.read_csv(tables / "layer_cohesion.csv")["between"].isna().all()
    assert pd.read_csv(tables / "head_cohesion.csv")["within"].isna().all()
