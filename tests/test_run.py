"""A run: inputs are read before it, notebooks have a process each, and nothing is left behind."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from faults import SLOW_KILLS

from helpers import run
from helpers.errors import InputError
from helpers.progress import NOTEBOOK_VARIABLE
from helpers.results import Results, run_record
from helpers.run import (
    Job,
    NotebookFailed,
    check_inputs,
    execute_all,
    unknown_share,
    write_html,
)
from helpers.settings import Settings
from helpers.study import Study


def write_job(folder, name, *sources, **parameters):
    """Write a notebook of code cells, of which the first is that of parameters."""
    cells = [nbformat.v4.new_code_cell("a: int = 1\nb = 2", metadata={"tags": ["parameters"]})]
    cells += [nbformat.v4.new_code_cell(source) for source in sources]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, folder / f"{name}.ipynb")
    (folder / "out").mkdir(exist_ok=True)
    return Job(folder / f"{name}.ipynb", folder / "out" / f"{name}.ipynb", parameters)


def read_output(job):
    """Return the text that the last cell of a notebook has printed."""
    cells = nbformat.read(job.output, as_version=4).cells
    return "".join(output.text for output in cells[-1].outputs if output.name == "stdout")


@pytest.fixture
def execute(monkeypatch):
    """Execute a notebook in this process, which sets the name of the notebook."""
    monkeypatch.setenv(NOTEBOOK_VARIABLE, "")
    return run._execute


KERNEL = f"""
import itertools, os, time
import tqdm.std
from pathlib import Path
from helpers.cache import cached
from helpers.progress import progress
def compute():
    with Path({{path!r}}).open("a") as file:
        file.write("x")
    time.sleep(1)
    return 7
cached("slow", compute, inputs={{{{}}}}, code={{{{}}}})
tqdm.std.time = itertools.count(0, 6).__next__
for _ in progress(range(5), "maps read", unit="map"):
    pass
print(a, *map(os.environ.get, ["{NOTEBOOK_VARIABLE}", "OMP_NUM_THREADS"]))
"""


def test_kernels_have_parameters_and_threads_and_compute_a_cached_result_once(
    tmp_path, own_cache, monkeypatch, capfd
):
    """Their progress reaches the terminal, and not the page."""
    for name in ("OMP_NUM_THREADS", "TQDM_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    code = KERNEL.format(path=str(tmp_path / "calls"))
    jobs = [write_job(tmp_path, name, code, a=2) for name in ("00_toy", "01_toy")]
    execute_all([jobs])
    threads = max(1, os.cpu_count() // 2)
    for job in jobs:
        assert read_output(job).splitlines()[-1] == f"2 {job.notebook.stem} {threads}"
        assert job.output.with_suffix(".html").read_text().count("maps read") == 1  # in the code
    assert (tmp_path / "calls").read_text() == "x"
    assert "maps read: " in capfd.readouterr().err


KILLED = """
import os, signal
from pathlib import Path
if not Path({path!r}).exists():
    Path({path!r}).touch()
    os.kill(os.getpid(), signal.SIGKILL)
print("done")
"""


def test_a_killed_kernel_is_one_line_and_the_next_run_is_complete(
    tmp_path, execute, record_property
):
    for kill in range(SLOW_KILLS):
        job = write_job(tmp_path, "00_toy", KILLED.format(path=str(tmp_path / f"once-{kill}")))
        with pytest.raises(NotebookFailed, match=r"^00_toy\.ipynb: [^\n]*$"):
            execute(job)
        execute(job)
        assert read_output(job) == "done\n"
    record_property("found", f"kernels: {SLOW_KILLS} kills ended in one line each")


STARTS_LATER = """
import os, sys
from pathlib import Path
marker = Path(sys.argv[1])
if marker.exists():
    os.execv(sys.executable, [sys.executable, "-m", "ipykernel_launcher", *sys.argv[2:]])
marker.touch()
sys.exit(1)
"""


def test_a_kernel_that_dies_before_the_first_cell_is_started_again(tmp_path, execute, monkeypatch):
    """As one does whose port another kernel has taken in the meantime."""
    kernel = tmp_path / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "start.py").write_text(STARTS_LATER)
    argv = [sys.executable, str(kernel / "start.py"), str(tmp_path / "died"), "-f"]
    spec = {"argv": [*argv, "{connection_file}"], "display_name": "python3", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    job = write_job(tmp_path, "00_toy", "print(7)")
    execute(job)
    assert read_output(job) == "7\n"
    assert (tmp_path / "died").exists()


def test_an_error_names_its_notebook_and_cell_and_that_of_a_user_is_one_line(tmp_path, execute):
    with pytest.raises(NotebookFailed, match=r"^00_toy\.ipynb, cell 3: ZeroDivisionError: "):
        execute(write_job(tmp_path, "00_toy", "b = 0", "a / b"))
    code = "from helpers.errors import CorpusError\nraise CorpusError('x.txt', 'no text', 3)"
    with pytest.raises(InputError, match=r"^00_toy: x\.txt:3: no text$"):
        execute(write_job(tmp_path, "00_toy", code))


NOTE_PROCESS = """
import os, time
from pathlib import Path
Path({path!r}).write_text(str(os.getpid()))
"""


def wait_for(*paths):
    while not all(path.exists() and path.read_text() for path in paths):
        time.sleep(0.05)


def wait_for_ends(*noted):
    """Wait until the kernels have ended that have noted their numbers."""
    deadline = time.monotonic() + 30
    for path in noted:
        while Path(f"/proc/{path.read_text()}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.parametrize("error", [NotebookFailed, KeyboardInterrupt])
def test_execute_all_leaves_no_kernel_behind(tmp_path, error):
    """A third notebook is not started if one of the first two fails, or at Ctrl-C."""
    noted = [tmp_path / f"process-{number}" for number in range(3)]
    first = f"Path({str(noted[0])!r})"
    fails = (
        f"while not ({first}.exists() and {first}.read_text()): time.sleep(0.05)\nraise ValueError"
    )
    jobs = []
    for number, path in enumerate(noted):
        end = fails if number == 1 and error is NotebookFailed else "time.sleep(99)"
        code = NOTE_PROCESS.format(path=str(path)) + end
        jobs.append(write_job(tmp_path, f"0{number}_toy", code))

    def interrupt():  # as Ctrl-C does
        wait_for(*noted[:2])
        os.kill(os.getpid(), signal.SIGINT)

    if error is KeyboardInterrupt:
        threading.Thread(target=interrupt).start()
    with pytest.raises(error):
        execute_all([jobs])
    assert not noted[2].exists()
    wait_for_ends(*noted[:2])


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


def test_run_executes_06_after_the_others_and_then_the_pages(figures, monkeypatch):
    stages = []

    def execute(jobs_of_stages, finished):
        for jobs in jobs_of_stages:
            stages.append([job.notebook.stem[:2] for job in jobs])
            for job in jobs:
                finished(job, 1.5)

    monkeypatch.setattr(run, "execute_all", execute)
    results = Results(Settings(name="mine"))
    run.run(run.list_notebooks(extended=False), results, {})
    assert stages == [["05", "00", "04", "02", "01", "03"], ["06"], ["cl"], ["re"]]
    seconds = run_record(results.build)["seconds"]
    assert set(seconds.values()) == {1.5} and {"00_extract", "06_clustering", "index"} <= set(
        seconds
    )


def test_the_html_copy_shows_control_characters_and_folds_solutions(tmp_path):
    """A picture has the title of its figure for readers who do not see it."""
    prose = "<details><summary>Solution</summary>\n\n```python\nanswer = 42\n```\n\n</details>"
    picture = {"image/png": {"alt": "Heads look left", "width": 864}}
    outputs = [
        nbformat.v4.new_output("stream", name="stdout", text="left \u202etfel\u202c\n"),
        nbformat.v4.new_output("display_data", {"image/png": "aGk="}, metadata=picture),
    ]
    cells = [nbformat.v4.new_markdown_cell(prose), nbformat.v4.new_code_cell("a", outputs=outputs)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "one.ipynb")
    write_html(tmp_path / "one.ipynb")
    page = (tmp_path / "one.html").read_text()
    assert "left [U+202E]tfel[U+202C]" in page and 'alt="Heads look left"' in page
    assert "answer" in page[page.index("<details>") : page.index("</details>")]


ROW = "{}\t{}\t_\tX\t_\t_\t{}\tdep\t_\t_\n"
TREES = 50 * (ROW.format(1, "Go", 0) + ROW.format(2, "on", 1) + "\n") + "1\tGo\n"


def test_check_reads_what_the_user_gives(tiny_folder, tmp_path):
    path = tmp_path / "given.conllu"
    path.write_text(TREES)
    study = Study(model=str(tiny_folder("bert")), max_tokens=48, treebank=str(path))
    with pytest.raises(InputError, match=rf"^{path}:151: [^\n]*$"):
        list(check_inputs(study, {"sentences"}))
    with pytest.raises(InputError, match=r"^[^\n]*no-device[^\n]*$"):
        list(check_inputs(Study(device="no-device"), {"segments"}))


def test_unknown_share_counts_neither_special_tokens_nor_the_first_one():
    tokenizer = SimpleNamespace(unk_token_id=1, all_special_ids=[1, 2])
    sentence = {"inputs": {"input_ids": [1, 1, 5, 6, 2]}}
    assert unknown_share([sentence], tokenizer) == 1 / 3
    assert unknown_share([], tokenizer) == 0
