"""Cached results: the inputs and the code that their keys depend on, and damaged files."""

import gc
import importlib.util
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import helpers.cache
from helpers.cache import cached, code_digest, code_of, import_closure, package_digest
from helpers.errors import InputError
from helpers.studies.common.tasks import Pair, Task

PACKAGE = Path(helpers.cache.__file__).parent
MODULE = "helpers.data.records"
TABLE3 = "helpers.probes.table3"
pytestmark = pytest.mark.usefixtures("own_cache")

# Edits at the end of data/glove.py, which table3 imports: the code before and after each.
EDITS = {
    "f-string assigned to a subscript": (
        'def f(words):\n    words[0] = f"{words[0]}"\n',
        'def f(words):\n    words[0] = f"{words[0]}x"\n',
    ),
    "f-string assigned to an attribute": (
        'def f(task):\n    task.name = f"{task.name}"\n',
        'def f(task):\n    task.name = f"{task.name}x"\n',
    ),
    "f-string that nothing in the module reads": (
        'def f(seed):\n    prefix = f"{seed}"\n    return locals()\n',
        'def f(seed):\n    prefix = f"{seed} "\n    return locals()\n',
    ),
    "constant inside a module-level if": (
        "if True:\n    FACTOR = 1\n",
        "if True:\n    FACTOR = 2\n",
    ),
    "item of a dictionary at module level": (
        "FACTORS = {}\nFACTORS['a'] = 1\n",
        "FACTORS = {}\nFACTORS['a'] = 2\n",
    ),
    "function defined inside try": (
        "try:\n    def f():\n        return 1\nexcept ImportError:\n    pass\n",
        "try:\n    def f():\n        return 2\nexcept ImportError:\n    pass\n",
    ),
    "method replaced at import": (
        "",
        "ProbeData.articles = lambda self, sentences: None\n",
    ),
    "message of an error": (
        'def f():\n    raise ValueError("too long")\n',
        'def f():\n    raise ValueError("too short")\n',
    ),
    "order of two statements": (
        "a = 1\na = 2\n",
        "a = 2\na = 1\n",
    ),
}
IGNORED_EDITS = {
    "comment": ("X = 1\n", "# one\nX = 1  # more\n"),
    "layout": ("X = f(1, 2)\n", "X = f(\n    1,\n    2,\n)\n"),
    "docstring of a function": (
        'def f():\n    """Give one."""\n    return 1\n',
        'def f():\n    """Give 1."""\n    return 1\n',
    ),
    "docstring of a class": (
        'class A:\n    """Before."""\n\n    x = 1\n',
        "class A:\n    x = 1\n",
    ),
}


@pytest.fixture
def package(tmp_path):
    """A copy of the package in a temporary folder."""
    ignored = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(PACKAGE, tmp_path / "copy" / "helpers", ignore=ignored))


def cache_module(package):
    """Import ``cache.py`` of a copy of the package, which reads the files of that copy."""
    spec = importlib.util.spec_from_file_location("copied_cache", package / "cache.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.parsed = helpers.cache.parsed  # a file that was not edited need not be parsed again
    return module


def digest(package, *modules):
    """Compute the code digest of modules in a copy of the package."""
    return cache_module(package).code_digest(*modules)


def append(path, code):
    """Add code at the end of a file."""
    path.write_text(path.read_text() + "\n\n" + code)


def digests_around(package, before, after):
    """Compute the digest of table3's code before and after an edit of a module that it imports."""
    path = package / "probes" / "data.py"
    source = path.read_text()
    append(path, before)
    first = digest(package, TABLE3)
    path.write_text(source)
    append(path, after)
    return first, digest(package, TABLE3)


@pytest.mark.parametrize("name", EDITS)
def test_code_digest_notices_edit(package, name):
    first, second = digests_around(package, *EDITS[name])
    assert first != second


@pytest.mark.parametrize("name", IGNORED_EDITS)
def test_code_digest_ignores_comments_and_docstrings(package, name):
    first, second = digests_around(package, *IGNORED_EDITS[name])
    assert first == second


def test_code_digest_notices_modules_that_an_init_imports(package):
    # Python runs the __init__ of a subpackage before each of its modules.
    append(package / "metrics" / "__init__.py", "import helpers.plots.style\n")
    before = digest(package, TABLE3)
    append(package / "plots" / "style.py", "X = 1\n")
    assert digest(package, TABLE3) != before


class SlowGarbage:
    """A cycle whose collection lets another thread run."""

    def __init__(self):
        self.cycle = self

    def __del__(self):
        time.sleep(1e-4)


def test_parsed_works_in_several_threads_while_garbage_is_collected():
    def parse(source):
        for _ in range(5):
            SlowGarbage()
        return helpers.cache.parsed(source)

    helpers.cache.parsed.cache_clear()
    thresholds = gc.get_threshold()
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(parse, helpers.cache.SOURCES.values()))
    finally:
        gc.set_threshold(*thresholds)
    assert len(results) == len(helpers.cache.SOURCES)


def test_code_digest_ignores_modules_that_are_not_imported(package):
    before = digest(package, TABLE3)
    for name in (
        "plots/style.py",
        "viewer/page.py",
        "data/coreference.py",
        "studies/common/tasks.py",
    ):
        append(package / name, "X = 1\n")
    assert digest(package, TABLE3) == before


def test_code_digest_ignores_listed_modules(package):
    modules = (TABLE3, "helpers.store.extract")
    before = [digest(package, module) for module in modules]
    for name in helpers.cache.WITHOUT_NUMBERS + helpers.cache.ORCHESTRATION:
        path = package.parent.joinpath(*name.split("."))
        files = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
        for file in files:
            append(file, "X = 1\n")
    assert [digest(package, module) for module in modules] == before


def test_modules_that_code_digest_ignores_exist():
    for name in helpers.cache.WITHOUT_NUMBERS + helpers.cache.ORCHESTRATION:
        assert name in helpers.cache.SOURCES


def test_modules_without_numbers_import_no_module_with_numbers():
    # Otherwise such a module could replace a function of a module that computes.
    for module in ("helpers.cache", "helpers.errors", "helpers.files", "helpers.progress"):
        _, imports = helpers.cache.parsed(helpers.cache.SOURCES[module])
        assert not import_closure(imports) - {"helpers"}, module


def test_code_digest_notices_data_file(package):
    before = digest(package, TABLE3)
    append(package / "metrics" / "paper_table3.csv", "changed")
    assert digest(package, TABLE3) != before


def test_data_files_are_named_by_a_module_in_their_folder():
    # Except the sample of arguments, which is read as a user's folder: its arguments are inputs.
    for path in set(PACKAGE.rglob("*")) - set(PACKAGE.glob("studies/niven2019/*/*")):
        if path.suffix in helpers.cache.DATA_SUFFIXES:
            sources = [module.read_text() for module in path.parent.glob("*.py")]
            assert any(path.name in source for source in sources), path


@pytest.mark.parametrize("library", helpers.cache.LIBRARIES)
def test_code_digest_notices_minor_version_of_library(monkeypatch, library):
    installed_version = helpers.cache.version

    def digests_with(library_version):
        def version(name):
            return library_version if name == library else installed_version(name)

        code_digest.cache_clear()
        package_digest.cache_clear()
        monkeypatch.setattr(helpers.cache, "version", version)
        digests = (code_digest(MODULE), package_digest())
        code_digest.cache_clear()
        package_digest.cache_clear()
        return digests

    digests = digests_with("2.13.0")
    assert digests_with("2.13.1+cpu") == digests
    digests_of_minor = digests_with("2.14.0")
    digests_of_major = digests_with("3.13.0")
    for digests_of_function in zip(digests, digests_of_minor, digests_of_major, strict=True):
        assert len(set(digests_of_function)) == 3


def test_package_digest_notices_orchestration_and_data(package):
    before = cache_module(package).package_digest()
    edits = {
        "study.py": "X = 1\n",
        "plots/style.py": "X = 1\n",
        "studies/kovaleva2019/pattern_labels.csv": "changed",
    }
    digests = [before]
    for name, code in edits.items():
        append(package / name, code)
        digests.append(cache_module(package).package_digest())
    assert len(set(digests)) == len(digests)


def test_package_digest_ignores_progress_bars_and_comments(package):
    before = cache_module(package).package_digest()
    append(package / "progress.py", "X = 1\n")
    append(package / "run" / "report.py", "X = 1\n")
    append(package / "probes" / "table3.py", "# nothing\n")
    assert cache_module(package).package_digest() == before


def test_store_code_does_not_depend_on_metrics_or_plots():
    closure = import_closure(["helpers.store.extract", "helpers.data.treebank"])
    assert {"helpers.store.examples", "helpers.model.forward", "helpers.data.columns"} <= closure
    upper = re.compile(
        r"helpers\.(metrics|probes|claims|plots|viewer|studies|run|study|sources|store\.cluster)"
    )
    assert not list(filter(upper.match, closure))


def computing_modules():
    """List the modules of the package that compute cached results."""
    pattern = re.compile(r'\bmodule="(helpers\.[\w.]+)"')
    modules = set()
    for module, source in helpers.cache.SOURCES.items():
        if module != "helpers.cache":
            modules |= set(pattern.findall(source))
            if re.search(r"\b(cached|each_run)\(", source) and import_closure([module]):
                modules.add(module)
    return sorted(modules)


def test_every_cached_result_names_a_module_that_computes():
    modules = computing_modules()
    assert len(modules) >= 15
    digests = [code_digest(module) for module in modules]
    assert len(set(digests)) == len(digests)


def test_cached_computes_a_table_once():
    tables = iter([pd.DataFrame({"x": [1 / 3, None], "name": ["nan", "a"]})])

    def load():
        return cached("t", lambda: next(tables), inputs={"store": "a"}, module=MODULE)

    first = load()
    second = load()
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    assert first["x"][0] == 1 / 3
    assert first["name"].tolist() == ["nan", "a"]


def test_cached_keeps_arrays():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    for _ in range(2):  # computed, then read
        arrays = cached("a", lambda: {"x": array}, inputs={}, module=MODULE)
        assert arrays["x"].dtype == array.dtype
        assert (arrays["x"] == array).all()


def test_cached_keeps_tables():
    tables = {"first": pd.DataFrame({"x": [1, 2]}), "second": pd.DataFrame({"x": [3, 4]})}
    for _ in range(2):  # computed, then read
        cached_tables = cached("b", lambda: tables, inputs={}, module=MODULE)
        assert cached_tables.keys() == tables.keys()
        for name, table in cached_tables.items():
            pd.testing.assert_frame_equal(table, tables[name])


def test_cached_keeps_plain_values():
    for _ in range(2):  # computed, then read
        assert cached("c", lambda: [1, "x"], inputs={}, module=MODULE) == [1, "x"]


def test_cached_depends_on_inputs_and_module():
    def load(value, store, module):
        return cached("t", lambda: value, inputs={"store": store}, module=module)

    assert load(1, "a", MODULE) == 1
    assert load(2, "b", MODULE) == 2
    assert load(3, "a", MODULE) == 1
    assert load(4, "a", TABLE3) == 4


def numbers_except(position):
    """Make a long array that has -1 at one position."""
    numbers = np.arange(5000)
    numbers[position] = -1
    return numbers


def task_with_dev_text(text):
    """Make a long task that ends with a text."""
    return Task("t", ("no", "yes"), (Pair(("a",), 0),) * 100, (Pair((text,), 1),))


@pytest.mark.parametrize(
    ("make_input", "first", "second"),
    [
        (numbers_except, 2500, 2501),
        (lambda position: pd.DataFrame({"x": numbers_except(position)}), 2500, 2501),
        (task_with_dev_text, "b", "c"),
    ],
    ids=["array", "table", "dataclass"],
)
def test_cached_compares_inputs_in_full(make_input, first, second):
    def load(value, long_input):
        return cached("t", lambda: value, inputs={"input": long_input}, module=MODULE)

    assert load(1, make_input(first)) == 1
    assert load(2, make_input(first)) == 1
    assert load(3, make_input(second)) == 3


def test_cached_refuses_inputs_that_cannot_be_compared():
    with pytest.raises(InputError, match="object"):
        cached("t", dict, inputs={"x": object()}, module=MODULE)


@pytest.mark.parametrize("module", ["helpers.study", "helpers.cache", "helpers.nothing", "numpy"])
def test_cached_refuses_modules_that_do_not_compute(module):
    with pytest.raises(InputError, match=re.escape(module)):
        cached("t", dict, inputs={}, module=module)


def test_digest_of_package_function_is_that_of_its_module():
    function = partial(partial(helpers.data.records.roles, []), {})
    assert code_of(function) == code_digest(MODULE)


USER_SCRIPT = """
from helpers.cache import cached

def compute():
    return {value}

print(cached("own", compute, inputs={{}}))
"""


def run_user_script(folder, value):
    """Run a script that caches the value of a function; return its output."""
    script = folder / "script.py"
    script.write_text(USER_SCRIPT.format(value=value))
    return subprocess.check_output([sys.executable, str(script)], text=True, cwd=folder)


def test_cached_runs_an_edited_function_of_a_script_again(tmp_path):
    assert run_user_script(tmp_path, "1") == "1\n"
    assert run_user_script(tmp_path, "2") == "2\n"


def test_code_of_a_notebook_function_is_its_own(tmp_path):
    import nbformat
    from nbclient import NotebookClient

    cells = [
        "from helpers.cache import code_of\ndef f():\n    return 1",
        "first = code_of(f)",
        "def f():\n    return 1",
        "assert code_of(f) == first",
        "def f():\n    return 2",
        "assert code_of(f) != first",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    executed = NotebookClient(notebook, timeout=120).execute(cwd=str(tmp_path))
    assert all(cell["execution_count"] for cell in executed.cells)


@pytest.mark.parametrize("damage", ["", "x\n7\n", None], ids=["cut", "changed", "removed"])
def test_cached_computes_a_damaged_table_again(own_cache, damage):
    values = iter([1, 2])

    def load():
        table = cached("t", lambda: pd.DataFrame({"x": [next(values)]}), inputs={}, module=MODULE)
        return table["x"].tolist()

    assert load() == [1]
    (file,) = (own_cache / "derived").glob("*/t.csv")
    if damage is None:
        file.unlink()
    else:
        file.write_text(damage)
    assert load() == [2]
    assert load() == [2]
