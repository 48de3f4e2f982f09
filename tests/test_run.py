"""A run: inputs are read before it, notebooks have a process each, and nothing is left behind."""

import os
import re
import signal
import threading
import time
from pathlib import Path

import nbformat
import pytest
from faults import SLOW_KILLS

from helpers import run
from helpers.errors import InputError
from helpers.progress import NOTEBOOK_VARIABLE
from helpers.results import Results, run_record
from helpers.run import Job, NotebookFailed, check_inputs, execute_all, write_html
from helpers.settings import Settings
from helpers.study import Study


def write_job(folder, name, *sources, **parameters):
    """Write a notebook of code cells, of which the first is that of parameters."""
    cells = [nbformat.v4.new_code_cell("a = 1", metadata={"tags": ["parameters"]})]
    cells += [nbformat.v4.new_code_cell(source) for source in sources]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, folder / f"{name}.ipynb")
    (folder / "out").mkdir(exist_ok=True)
    output = folder / "out" / f"{name}.ipynb"
    return Job(folder / f"{name}.ipynb", output, output.with_suffix(".html"), parameters)


def read_output(job):
    """Return the text that the last cell of a notebook has printed."""
    cells = nbformat.read(job.output, as_version=4).cells
    return "".join(output.text for output in cells[-1].outputs)


def test_execute_all_gives_kernels_their_parameters_and_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    code = f"import os; print(a, *map(os.environ.get, ['{NOTEBOOK_VARIABLE}', 'OMP_NUM_THREADS']))"
    jobs = [write_job(tmp_path, name, code, a=2) for name in ("00_toy", "01_toy")]
    execute_all([jobs])
    threads = max(1, os.cpu_count() // 2)
    assert read_output(jobs[0]) == f"2 00_toy {threads}\n"
    assert jobs[1].html.is_file()


KILLED = """
import os, signal
from pathlib import Path
if not Path({path!r}).exists():
    Path({path!r}).touch()
    os.kill(os.getpid(), signal.SIGKILL)
print("done")
"""


def test_a_killed_kernel_is_one_line_and_the_next_run_is_complete(tmp_path, record_property):
    for kill in range(SLOW_KILLS):
        code = KILLED.format(path=str(tmp_path / f"once-{kill}"))
        job = write_job(tmp_path, "00_toy", code)
        with pytest.raises(NotebookFailed, match=r"^00_toy\.ipynb: its process was killed.*$"):
            execute_all([[job]])
        execute_all([[job]])
        assert read_output(job) == "done\n"
    record_property("found", f"kernels: {SLOW_KILLS} kills ended in one line each")


def test_an_error_names_its_notebook_and_cell_and_that_of_a_user_is_one_line(tmp_path):
    with pytest.raises(NotebookFailed, match=r"^00_toy\.ipynb, cell 3: ZeroDivisionError: "):
        execute_all([[write_job(tmp_path, "00_toy", "b = 0", "a / b")]])
    code = "from helpers.errors import CorpusError\nraise CorpusError('x.txt', 'no text', 3)"
    with pytest.raises(InputError, match=r"^00_toy: x\.txt:3: no text$"):
        execute_all([[write_job(tmp_path, "00_toy", code)]])


NOTE_PROCESS = """
import os, time
from pathlib import Path
Path({path!r}).write_text(str(os.getpid()))
"""


def wait_for(*paths):
    while not all(path.exists() and path.read_text() for path in paths):
        time.sleep(0.05)


def interrupt_when_noted(*paths):
    """Interrupt this process as Ctrl-C does, as soon as all kernels have noted their numbers."""
    wait_for(*paths)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("error", [NotebookFailed, KeyboardInterrupt])
def test_execute_all_leaves_no_kernel_behind(tmp_path, error):
    """A third notebook is not started if one of the first two fails, or at Ctrl-C."""
    noted = [tmp_path / f"process-{number}" for number in range(3)]
    first = f"Path({str(noted[0])!r})"
    ends = ["time.sleep(99)"] * 3
    if error is NotebookFailed:
        waits = f"while not ({first}.exists() and {first}.read_text()): time.sleep(0.05)"
        ends[1] = f"{waits}\nraise ValueError"
    else:
        threading.Thread(target=interrupt_when_noted, args=noted[:2]).start()
    jobs = []
    for number, (path, end) in enumerate(zip(noted, ends, strict=True)):
        code = NOTE_PROCESS.format(path=str(path)) + end
        jobs.append(write_job(tmp_path, f"0{number}_toy", code))
    with pytest.raises(error):
        execute_all([jobs])
    assert not noted[2].exists()
    wait_for_ends(*noted[:2])


def wait_for_ends(*noted):
    """Wait until the kernels have ended that have noted their numbers."""
    deadline = time.monotonic() + 30
    for path in noted:
        while Path(f"/proc/{path.read_text()}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_kernels_end_if_the_command_is_killed(tmp_path):
    noted = tmp_path / "process"
    job = write_job(tmp_path, "00_toy", NOTE_PROCESS.format(path=str(noted)) + "time.sleep(99)")
    command = os.fork()
    if not command:
        try:
            execute_all([[job]])
        finally:
            os._exit(0)
    wait_for(noted)
    os.kill(command, signal.SIGKILL)
    os.waitpid(command, 0)
    wait_for_ends(noted)


COMPUTE_ONCE = """
import time
from pathlib import Path
from helpers.cache import cached
def compute():
    with Path({path!r}).open("a") as file:
        file.write("x")
    time.sleep(1)
    return 7
print(cached("slow", compute, inputs={{}}, code={{}}))
"""


def test_two_notebooks_beside_each_other_compute_a_cached_result_once(tmp_path, own_cache):
    calls = tmp_path / "calls"
    code = COMPUTE_ONCE.format(path=str(calls))
    jobs = [write_job(tmp_path, name, code) for name in ("00_toy", "01_toy")]
    execute_all([jobs])
    assert calls.read_text() == "x"
    assert [read_output(job).splitlines()[-1] for job in jobs] == ["7", "7"]


def test_run_executes_05_first_and_06_last_and_then_the_pages(figures, monkeypatch):
    batches = []

    def execute(stages, finished):
        for jobs in stages:
            batches.append([job.notebook.stem[:6] for job in jobs])
            for job in jobs:
                finished(job, 1.5)

    monkeypatch.setattr(run, "execute_all", execute)
    settings = Settings(name="mine")
    results = Results(settings)
    run.run(run.list_notebooks(extended=False), settings, results, {})
    order = ["05_hea", "00_ext", "04_ind", "02_sep", "01_rel", "03_foc"]
    assert batches == [order, ["06_clu"], ["claims"], ["report"]]
    assert len(run_record(results.build)["seconds"]) == 7


PROGRESS = """
import itertools, warnings
import tqdm.std
from helpers.progress import progress
tqdm.std.time = itertools.count(0, 6).__next__
for _ in progress(range(5), "maps read", unit="map"):
    pass
for _ in progress(iter("abc"), "no end in sight"):
    pass
warnings.warn("mind the gap")
print("printed")
"""


def test_progress_of_a_kernel_reaches_the_terminal_and_not_the_page(tmp_path, capfd, monkeypatch):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    job = write_job(tmp_path, "00_toy", PROGRESS)
    execute_all([[job]])
    terminal = capfd.readouterr().err
    assert re.search(r"maps read: +\d+%.*/5 \[.*(map/s|s/map)\]", terminal)
    assert "no end in sight" in terminal
    page = job.html.read_text()
    assert "mind the gap" in page and "printed" in page
    assert page.count("maps read") == page.count("no end in sight") == 1  # in the code


def test_write_html_shows_bidirectional_control_characters(tmp_path):
    cell = nbformat.v4.new_code_cell("print(text)")
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text="left \u202etfel\u202c\n")]
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "one.ipynb")
    write_html(tmp_path / "one.ipynb", tmp_path / "one.html")
    assert "left [U+202E]tfel[U+202C]" in (tmp_path / "one.html").read_text()


def test_a_solution_is_folded_in_the_html_copy(tmp_path):
    prose = nbformat.v4.new_markdown_cell(
        "<details><summary>Solution</summary>\n\n```python\nanswer = 42\n```\n\n</details>"
    )
    nbformat.write(nbformat.v4.new_notebook(cells=[prose]), tmp_path / "one.ipynb")
    write_html(tmp_path / "one.ipynb", tmp_path / "one.html")
    page = (tmp_path / "one.html").read_text()
    folded = page[page.index("<details>") : page.index("</details>")]
    assert "answer" in folded


def test_a_picture_has_the_title_of_its_figure_for_readers_who_do_not_see_it(tmp_path):
    metadata = {"image/png": {"alt": "Heads look left", "width": 864}}
    output = nbformat.v4.new_output("display_data", {"image/png": "aGk="}, metadata=metadata)
    cell = nbformat.v4.new_code_cell("figure", outputs=[output])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "one.ipynb")
    write_html(tmp_path / "one.ipynb", tmp_path / "one.html")
    assert 'alt="Heads look left"' in (tmp_path / "one.html").read_text()


def refused(tiny_folder, **settings):
    usual = {"model": str(tiny_folder("bert")), "device": "cpu", "max_tokens": 48}
    with pytest.raises(InputError) as error:
        list(check_inputs(Study(**{**usual, **settings}), []))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_models(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)  # which has a limit for --max-tokens
    assert "no-such-model" in refused(tiny_folder, model="./no-such-model")
    (tmp_path / "empty").mkdir()
    assert "empty" in refused(tiny_folder, model=str(tmp_path / "empty"))
    assert "--device cpu" in refused(tiny_folder, device="tpu")


ROW = "{}\t{}\t_\tX\t_\t_\t{}\tdep\t_\t_\n"
TREE = ROW.format(1, "Go", 0) + ROW.format(2, "on", 1) + "\n"
COMMENTS = 50 * "## A comment.\n"
BRACKETS = "# a story\n[Ann]1 lost [her]1 ring.\n"


@pytest.mark.parametrize(
    ("setting", "name", "content", "fault"),
    [
        ("text", "empty.txt", "", "paragraphs"),
        ("treebank", "empty.conllu", "", "no sentence; expected"),
        ("treebank", "columns.conllu", 50 * TREE + "1\tGo\n", "151: expected 10 columns, found 2"),
        ("treebank", "order.conllu", 50 * TREE + ROW.format(2, "on", 0), "151: expected word 1"),
        ("treebank", "roots.conllu", TREE + TREE.replace("\t1\tdep", "\t0\tdep"), "5: a second"),
        ("coref", "open.txt", COMMENTS + BRACKETS.replace("]1 ring", " ring"), "52: '['"),
        ("coref", "none.txt", "# a story\nIt rained.\n", "coreference annotation"),
    ],
)  # fmt: skip
def test_check_reads_files_of_the_user(setting, name, content, fault, tiny_folder, tmp_path):
    path = tmp_path / name
    path.write_text(content)
    study = Study(model=str(tiny_folder("bert")), max_tokens=48, **{setting: str(path)})
    declared = {"text": "segments", "treebank": "sentences", "coref": "coref"}[setting]
    with pytest.raises(InputError) as error:
        list(check_inputs(study, [declared]))
    assert str(error.value).startswith(f"{path}:") and fault in str(error.value)
    assert "\n" not in str(error.value)
