"""Cached results: the inputs and the code that their keys depend on, and damaged files."""

import importlib.util
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import helpers.cache
from helpers.cache import LAYERS, cached, code_digest, read_table
from helpers.errors import InputError
from helpers.studies.common.tasks import Pair, Task

PACKAGE = Path(helpers.cache.__file__).parent
STUDIES = {name for name in LAYERS if name.startswith("studies/")} - {"studies/common"}
pytestmark = pytest.mark.usefixtures("own_cache")


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
    return module


def append(path, code):
    """Add code at the end of a file."""
    path.write_text(path.read_text() + "\n\n" + code)


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("plots/style.py", {"run"}),
        ("run/report.py", set()),
        ("data/README.md", set()),
        ("studies/michel2019/pruning.py", {"studies/michel2019", "run"}),
        ("studies/common/tasks.py", {*STUDIES, "studies/common", "run"}),
        ("probes/linear.py", {"probes", *STUDIES, "studies/common", "run"}),
        ("metrics/surface.py", {*LAYERS} - {"data", "store"}),
        ("model/forward.py", {*LAYERS} - {"data"}),
        ("torch_utils.py", {*LAYERS} - {"data"}),
        ("data/records.py", {*LAYERS}),
        ("data/penn_tags.csv", {*LAYERS}),
    ],
)
def test_code_digest_notices_edits_of_its_layer_and_those_below(package, file, changed):
    before = cache_module(package)
    append(package / file, "# even a comment")
    after = cache_module(package)
    is_changed = {name for name in LAYERS if before.code_digest(name) != after.code_digest(name)}
    assert is_changed == changed


def test_every_cached_result_has_the_code_that_computes_it():
    callers = 0
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).as_posix()
        for layer in re.findall(r'\blayer="([\w/]+)"', path.read_text(encoding="utf-8")):
            callers += 1
            # A study decides what is computed, and the layers compute.
            is_covered = module.startswith(LAYERS[layer]) or module == "study.py"
            assert is_covered or module == "cache.py", (module, layer)
    assert callers > 15


def test_code_digest_is_that_of_the_code_at_import(package):
    module, unedited = cache_module(package), cache_module(package)
    expected = unedited.code_digest("data")
    append(package / "data" / "records.py", "# edited while a kernel runs")
    assert module.code_digest("data") == expected


@pytest.mark.parametrize("library", helpers.cache.LIBRARIES)
def test_code_digest_notices_minor_version_of_library(monkeypatch, library):
    installed_version = helpers.cache.version

    def digest_with(library_version):
        def version(name):
            return library_version if name == library else installed_version(name)

        code_digest.cache_clear()
        monkeypatch.setattr(helpers.cache, "version", version)
        digest = code_digest("data")
        code_digest.cache_clear()
        return digest

    digest = digest_with("2.13.0")
    assert digest_with("2.13.1+cpu") == digest
    assert len({digest, digest_with("2.14.0"), digest_with("3.13.0")}) == 3


def test_cached_computes_a_table_once():
    tables = iter([pd.DataFrame({"x": [1 / 3, None], "name": ["nan", "a"]})])

    def load():
        return cached("t", lambda: next(tables), inputs={"store": "a"}, layer="data")

    first = load()
    second = load()
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    assert first["x"][0] == 1 / 3
    assert first["name"].tolist() == ["nan", "a"]


def test_cached_keeps_arrays():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    for _ in range(2):  # computed, then read
        arrays = cached("a", lambda: {"x": array}, inputs={}, layer="data")
        assert arrays["x"].dtype == array.dtype
        assert (arrays["x"] == array).all()


def test_cached_keeps_tables():
    tables = {"first": pd.DataFrame({"x": [1, 2]}), "second": pd.DataFrame({"x": [3, 4]})}
    for _ in range(2):  # computed, then read
        cached_tables = cached("b", lambda: tables, inputs={}, layer="data")
        assert cached_tables.keys() == tables.keys()
        for name, table in cached_tables.items():
            pd.testing.assert_frame_equal(table, tables[name])


def test_cached_keeps_a_mapping_of_one_table_with_its_name():
    for _ in range(2):  # computed, then read
        tables = cached("d", lambda: {"d": pd.DataFrame({"x": [1]})}, inputs={}, layer="data")
        assert tables["d"]["x"].tolist() == [1]


def double(number):
    return 2 * number


def test_cached_takes_a_partial_function_and_refuses_what_has_no_source():
    assert cached("e", partial(double, 4), inputs={"number": 4}) == 8
    with pytest.raises(InputError, match="source"):
        cached("e", dict, inputs={})


def test_cached_keeps_plain_values():
    for _ in range(2):  # computed, then read
        assert cached("c", lambda: [1, "x"], inputs={}, layer="data") == [1, "x"]


def test_cached_depends_on_inputs_and_layer():
    def load(value, store, layer):
        return cached("t", lambda: value, inputs={"store": store}, layer=layer)

    assert load(1, "a", "metrics") == 1
    assert load(2, "b", "metrics") == 2
    assert load(3, "a", "metrics") == 1
    assert load(4, "a", "probes") == 4


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
        return cached("t", lambda: value, inputs={"input": long_input}, layer="data")

    assert load(1, make_input(first)) == 1
    assert load(2, make_input(first)) == 1
    assert load(3, make_input(second)) == 3


def test_cached_refuses_inputs_that_cannot_be_compared():
    with pytest.raises(InputError, match="object"):
        cached("t", dict, inputs={"x": object()}, layer="data")


def test_cached_refuses_a_layer_that_is_none():
    with pytest.raises(InputError, match="'plots'"):
        cached("t", dict, inputs={}, layer="plots")


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


@pytest.mark.parametrize("damage", ["", "x\n7\n", None], ids=["cut", "changed", "removed"])
def test_cached_computes_a_damaged_table_again(own_cache, damage):
    values = iter([1, 2])

    def load():
        table = cached("t", lambda: pd.DataFrame({"x": [next(values)]}), inputs={}, layer="data")
        return table["x"].tolist()

    assert load() == [1]
    (file,) = (own_cache / "derived").glob("*/t.csv")
    if damage is None:
        file.unlink()
    else:
        file.write_text(damage)
    assert load() == [2]
    assert load() == [2]


def test_read_table_keeps_titles_of_articles_as_they_are(tmp_path):
    table = pd.DataFrame({"article": ["01", "1984", "NA"], "layer": [1, 2, 3], "x": [0.5, None, 1]})
    table.to_csv(tmp_path / "averages.csv", index=False)
    pd.testing.assert_frame_equal(read_table(tmp_path / "averages.csv"), table)
