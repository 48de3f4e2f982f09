"""Cached results: the inputs and the code that their keys depend on."""

import re
import runpy
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import helpers.cache
from beyond.papers import common, sinks, sixteen_heads
from beyond.papers.common.tasks import Pair, Task
from helpers import data, metrics, probes, store
from helpers.cache import cached, code_digest
from helpers.files import sha256

ROOT = Path(helpers.cache.__file__).parent.parent
CODE = {"data/a.py": "0"}
pytestmark = pytest.mark.usefixtures("own_cache")

PAPERS = {"sinks", "sixteen_heads"}
FROM_METRICS = {"metrics", "probes", "common", *PAPERS}
LAYERS = (data, store, metrics, probes, common, sinks, sixteen_heads)


@pytest.mark.parametrize(
    ("file", "layers"),
    [
        ("helpers/plots/style.py", set()),
        ("helpers/data/README.md", set()),
        ("beyond/papers/sixteen_heads/pruning.py", {"sixteen_heads"}),
        ("beyond/papers/common/tasks.py", {*PAPERS, "common"}),
        ("helpers/probes/modules.py", {"probes", "common", *PAPERS}),
        ("helpers/progress.py", {*FROM_METRICS, "store"}),
        ("helpers/data/penn_tags.csv", {*FROM_METRICS, "store", "data"}),
    ],
)
def test_code_of_a_layer_has_its_files_and_those_below(file, layers):
    digest = sha256(ROOT / file)
    listed = {layer.__name__.split(".")[-1] for layer in LAYERS if layer.CODE.get(file) == digest}
    assert listed == layers


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


TABLE = pd.DataFrame({"x": [1 / 3, None, 2], "name": ["NA", "null", None]})
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


def test_cached_runs_an_edited_function_of_a_script_again(tmp_path):
    script = tmp_path / "script.py"
    for value in (1, 10):
        script.write_text(f"def compute(number):\n    return number + {value}\n")
        compute = partial(runpy.run_path(str(script))["compute"], 1)
        assert cached("own", compute, inputs={}) == value + 1
