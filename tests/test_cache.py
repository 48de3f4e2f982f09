"""Cached results: the inputs and the code that their keys depend on, and damaged files."""

import json
import os
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
from beyond.papers.common.tasks import Pair, Task
from helpers.cache import cached, code_digest, read_table

ROOT = Path(helpers.cache.__file__).parent.parent
CODE = {"data/a.py": "0"}
pytestmark = pytest.mark.usefixtures("own_cache")

DIGESTS = """
import json
from beyond.papers import common, sinks, sixteen_heads as sixteen
from helpers import data, metrics, probes, store
from helpers.cache import code_digest
layers = dict(data=data, store=store, metrics=metrics, probes=probes, common=common, sinks=sinks,
              sixteen=sixteen)
for edited, code in {edits!r}:
    path = __import__("pathlib").Path(edited)
    path.write_text(path.read_text() + code)
print(json.dumps({{name: code_digest(layer.CODE) for name, layer in layers.items()}}))
"""
PAPERS = {"sinks", "sixteen"}
FROM_METRICS = {"metrics", "probes", "common", *PAPERS}


def digests(folder, edits=()):
    """Compute the digest of each layer of a copy; edits come after the import."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", DIGESTS.format(edits=edits)]
    options = {"cwd": folder, "env": environment, "capture_output": True, "check": True}
    return json.loads(subprocess.run(command, **options).stdout)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of both packages, and the digests of its layers."""
    folder = tmp_path_factory.mktemp("copy")
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("helpers", "beyond"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    return folder, digests(folder)


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("helpers/plots/style.py", set()),
        ("helpers/data/README.md", set()),
        ("beyond/papers/sinks/claims.toml", set()),
        ("beyond/papers/sixteen_heads/pruning.py", {"sixteen"}),
        ("beyond/papers/common/tasks.py", {*PAPERS, "common"}),
        ("helpers/probes/linear.py", {"probes", "common", *PAPERS}),
        ("helpers/metrics/surface.py", FROM_METRICS),
        ("helpers/torch_utils.py", {*FROM_METRICS, "store"}),
        ("helpers/data/penn_tags.csv", {*FROM_METRICS, "store", "data"}),
    ],
)
def test_code_of_a_layer_has_its_files_and_those_below(copy, file, changed):
    folder, before = copy
    path = folder / file
    text = path.read_text()
    path.write_text(text + "# even a comment")
    after = digests(folder)
    path.write_text(text)
    assert {name for name in after if after[name] != before[name]} == changed


def test_code_of_a_layer_is_that_at_its_import(copy):
    folder, before = copy
    path = folder / "helpers/data/records.py"
    text = path.read_text()
    assert digests(folder, [("helpers/data/records.py", "# edited while a kernel runs")]) == before
    path.write_text(text)


def test_every_cached_result_has_the_code_that_computes_it():
    """The layer that a module names is its own, or one below: those import no other code."""
    callers = 0
    for path in [*(ROOT / "helpers").rglob("*.py"), *(ROOT / "beyond").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        if re.search(r"\bcode=CODE\b|code_digest\(CODE\)", text):
            callers += 1
            package = ".".join(path.parent.relative_to(ROOT).parts)
            assert f"from {package} import CODE" in text, path
    assert callers > 15


@pytest.mark.parametrize("library", helpers.cache.LIBRARIES)
def test_code_digest_notices_minor_version_of_library(monkeypatch, library):
    installed_version = helpers.cache.version

    def digest_with(library_version):
        def version(name):
            return library_version if name == library else installed_version(name)

        monkeypatch.setattr(helpers.cache, "version", version)
        return code_digest(CODE)

    digest = digest_with("2.13.0")
    assert digest_with("2.13.1+cpu") == digest
    assert len({digest, digest_with("2.14.0"), digest_with("3.13.0")}) == 3


def test_cached_computes_a_table_once():
    tables = iter([pd.DataFrame({"x": [1 / 3, None], "name": ["nan", "a"]})])

    def load():
        return cached("t", lambda: next(tables), inputs={"store": "a"}, code=CODE)

    first = load()
    second = load()
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    assert first["x"][0] == 1 / 3
    assert first["name"].tolist() == ["nan", "a"]


def test_cached_keeps_arrays():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    for _ in range(2):  # computed, then read
        arrays = cached("a", lambda: {"x": array}, inputs={}, code=CODE)
        assert arrays["x"].dtype == array.dtype
        assert (arrays["x"] == array).all()


def test_cached_keeps_tables():
    tables = {"first": pd.DataFrame({"x": [1, 2]}), "second": pd.DataFrame({"x": [3, 4]})}
    for _ in range(2):  # computed, then read
        cached_tables = cached("b", lambda: tables, inputs={}, code=CODE)
        assert cached_tables.keys() == tables.keys()
        for name, table in cached_tables.items():
            pd.testing.assert_frame_equal(table, tables[name])


def test_cached_keeps_a_mapping_of_one_table_with_its_name():
    for _ in range(2):  # computed, then read
        tables = cached("d", lambda: {"d": pd.DataFrame({"x": [1]})}, inputs={}, code=CODE)
        assert tables["d"]["x"].tolist() == [1]


def double(number):
    return 2 * number


def test_cached_takes_a_partial_function():
    assert cached("e", partial(double, 4), inputs={"number": 4}) == 8


def test_cached_keeps_plain_values():
    for _ in range(2):  # computed, then read
        assert cached("c", lambda: [1, "x"], inputs={}, code=CODE) == [1, "x"]


def test_cached_depends_on_inputs_and_code():
    def load(value, store, code):
        return cached("t", lambda: value, inputs={"store": store}, code=code)

    assert load(1, "a", {"metrics/a.py": "0"}) == 1
    assert load(2, "b", {"metrics/a.py": "0"}) == 2
    assert load(3, "a", {"metrics/a.py": "0"}) == 1
    assert load(4, "a", {"metrics/a.py": "1"}) == 4


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
        return cached("t", lambda: value, inputs={"input": long_input}, code=CODE)

    assert load(1, make_input(first)) == 1
    assert load(2, make_input(first)) == 1
    assert load(3, make_input(second)) == 3


def test_cached_refuses_inputs_that_cannot_be_compared():
    with pytest.raises(TypeError, match="object"):
        cached("t", dict, inputs={"x": object()}, code=CODE)


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


def test_cached_keeps_an_error_of_its_function(own_cache):
    def fail():
        raise FileNotFoundError("corpus.txt")

    with pytest.raises(FileNotFoundError):  # not one of the disk
        cached("t", fail, inputs={}, code=CODE)


def test_read_table_keeps_titles_of_articles_as_they_are(tmp_path):
    table = pd.DataFrame({"article": ["01", "1984", "NA"], "layer": [1, 2, 3], "x": [0.5, None, 1]})
    table.to_csv(tmp_path / "averages.csv", index=False)
    pd.testing.assert_frame_equal(read_table(tmp_path / "averages.csv"), table)
