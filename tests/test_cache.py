"""Cached results: the inputs and the code that their keys depend on."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import helpers.cache
from beyond.papers.common.tasks import Pair, Task
from helpers.cache import cached, code_digest

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
edited = {edited!r} and __import__("pathlib").Path({edited!r})
if edited:
    edited.write_text(edited.read_text() + "# edited after the import")
print(json.dumps({{name: code_digest(layer.CODE) for name, layer in layers.items()}}))
"""
PAPERS = {"sinks", "sixteen"}
FROM_METRICS = {"metrics", "probes", "common", *PAPERS}


def digests(folder, edited=""):
    """Compute the digest of each layer of a copy; a file is edited after the import."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", DIGESTS.format(edited=edited)]
    return json.loads(subprocess.check_output(command, cwd=folder, env=environment))


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of both packages, and the digests of its layers."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("helpers", "beyond"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    return folder, digests(folder)


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("helpers/plots/style.py", set()),
        ("helpers/data/README.md", set()),
        ("beyond/papers/sixteen_heads/pruning.py", {"sixteen"}),
        ("beyond/papers/common/tasks.py", {*PAPERS, "common"}),
        ("helpers/probes/modules.py", {"probes", "common", *PAPERS}),
        ("helpers/progress.py", {*FROM_METRICS, "store"}),
        ("helpers/data/penn_tags.csv", {*FROM_METRICS, "store", "data"}),
    ],
)
def test_code_of_a_layer_has_its_files_and_those_below(copy, file, changed):
    """As they were when it was imported, which is the code that a process runs."""
    folder, before = copy
    path = folder / file
    text = path.read_text()
    edited = file if file == "helpers/data/penn_tags.csv" else ""
    if edited:
        assert digests(folder, edited) == before
    path.write_text(text + "# even a comment")
    after = digests(folder)
    path.write_text(text)
    assert {name for name in after if after[name] != before[name]} == changed


def test_every_cached_result_has_the_code_that_computes_it():
    """The layer that a module names is its own, or one below: those import no other code."""
    callers = 0
    for path in [*(ROOT / "helpers").rglob("*.py"), *(ROOT / "beyond").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        if re.search(r"\bcode=CODE\b|code_digest\(CODE\)", text):
            callers += 1
            package = ".".join(path.parent.relative_to(ROOT).parts)
            assert f"from {package} import CODE" in text, path
    assert callers > 10


def test_code_digest_notices_the_minor_version_of_a_library(monkeypatch):
    def digest_with(library_version):
        monkeypatch.setattr(helpers.cache, "version", lambda name: library_version)
        return code_digest(CODE)

    assert digest_with("2.13.1+cpu") == digest_with("2.13.0")
    assert len({digest_with(version) for version in ("2.13.0", "2.14.0", "3.13.0")}) == 3


TABLE = pd.DataFrame({"x": [1 / 3, None], "name": ["nan", "a"]})
ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    "result",
    [TABLE, {"t": TABLE}, {"first": TABLE, "second": TABLE[:1]}, {"x": ARRAY}, [1, "x"], {"a": 1}],
)
def test_cached_keeps_a_result_as_it_is_and_computes_it_once(result):
    results = iter([result])
    for _ in range(2):  # computed, then read
        result_read = cached("t", lambda: next(results), inputs={"store": "a"}, code=CODE)
        assert type(result_read) is type(result)
        pairs = [(result_read, result)]
        if isinstance(result, dict):
            assert result_read.keys() == result.keys()
            pairs = [(result_read[name], result[name]) for name in result]
        for value, expected in pairs:
            if isinstance(expected, pd.DataFrame):
                pd.testing.assert_frame_equal(value, expected, check_exact=True)
            else:
                np.testing.assert_array_equal(
                    value, expected, strict=isinstance(expected, np.ndarray)
                )


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
        (str, "a", "b"),
        (numbers_except, 2500, 2501),
        (lambda position: pd.DataFrame({"x": numbers_except(position)}), 2500, 2501),
        (task_with_dev_text, "b", "c"),
    ],
    ids=["text", "array", "table", "dataclass"],
)
def test_cached_compares_inputs_in_full_and_the_code(make_input, first, second):
    def load(value, argument, code="0"):
        code = {"metrics/a.py": code}
        return cached("t", lambda: value, inputs={"input": make_input(argument)}, code=code)

    assert [load(1, first), load(2, first), load(3, second)] == [1, 1, 3]
    assert load(4, first, code="1") == 4
    with pytest.raises(TypeError, match="object"):
        cached("t", dict, inputs={"x": object()}, code=CODE)


USER_SCRIPT = """
from functools import partial
from helpers.cache import cached

def compute(number):
    return number + {value}

print(cached("own", partial(compute, 1), inputs={{}}))
"""


def test_cached_runs_an_edited_function_of_a_script_again(tmp_path):
    script = tmp_path / "script.py"
    for value in ("1", "2"):
        script.write_text(USER_SCRIPT.format(value=value))
        done = subprocess.check_output([sys.executable, str(script)], text=True, cwd=tmp_path)
        assert done == f"{int(value) + 1}\n"
