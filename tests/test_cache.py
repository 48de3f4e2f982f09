import ast
import inspect
import re
from functools import partial

import pandas as pd
import pytest

from helpers import cache as closure
from helpers.cache import cached, code_digest

CODE = "cache.read_exact"
pytestmark = pytest.mark.usefixtures("own_cache")


def by_source(asked):
    """Return a function of a module that keeps its answers until that module is edited."""
    found = {}

    def function(module, *rest):
        key = module, *rest, closure.SOURCES.get(module)
        if key not in found:
            found[key] = inspect.unwrap(asked)(module, *rest)
        return found[key]

    return function


@pytest.fixture
def edited(monkeypatch):
    """Return a function that changes a module's source, as an edit before the import would."""
    for name in ("_tree", "_definitions", "_imports", "_text"):
        monkeypatch.setattr(closure, name, by_source(getattr(closure, name)))

    def edit(module, old, new):
        source = closure.SOURCES[module].decode()
        assert old in source
        monkeypatch.setitem(closure.SOURCES, module, source.replace(old, new).encode())
        code_digest.cache_clear()

    yield edit
    code_digest.cache_clear()


def test_a_table_is_computed_once():
    tables = iter([pd.DataFrame({"x": [1 / 3, None], "name": ["nan", "a"]})])
    first, second = (
        cached("t", tables.__next__, depends_on={"store": "a"}, code=CODE) for _ in range(2)
    )
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    assert first["x"][0] == 1 / 3
    assert first["name"].tolist() == ["nan", "a"]


def test_a_change_of_store_or_code_is_another_table(edited):
    def kept(value, store):
        table = pd.DataFrame({"x": [value]})
        return cached("t", lambda: table, depends_on={"store": store}, code=CODE)["x"][0]

    assert kept(1, "a") == 1
    assert kept(2, "b") == 2
    assert kept(3, "a") == 1
    edited("helpers.cache", "keep_default_na=False", "keep_default_na=True")
    assert kept(4, "a") == 4


def kept_tables():
    """The functions that kept tables come from: what ``code=`` says, or who else keeps one."""
    found = set()
    for module, source in closure.SOURCES.items():
        found |= set(re.findall(r'\bcode(?:, facts)? ?= ?"([\w.]+)"', source.decode()))
        for function in ast.parse(source).body if module != "helpers.cache" else []:
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
            if any(
                ast.unparse(call.func) in ("cached", "each_run")
                and not any(keyword.arg == "code" for keyword in call.keywords)
                for call in calls
            ):
                found.add(f"{module.removeprefix('helpers.')}.{function.name}")
    return sorted(found)


def test_the_code_of_a_table_is_the_function_that_computes_it_is_written_in():
    def inner():
        return lambda: None

    name = "test_the_code_of_a_table_is_the_function_that_computes_it_is_written_in"
    for function in (inner, inner(), partial(inner, 1)):
        assert closure.code_of(function) == f"{__name__}.{name}"
    assert closure.code_of(kept_tables) == f"{__name__}.kept_tables"


def far_away(code):
    """The function that the most imports lie between it and what a table comes from."""
    module, name = f"helpers.{code}".rsplit(".", 1)
    distance, waiting = {(module, name): 0}, [(module, name)]
    for part in waiting:
        for other in closure._uses(*part):
            if other not in distance:
                distance[other] = distance[part] + (other[0] != part[0])
                waiting.append(other)
    functions = (
        part
        for part in waiting
        if part[1] and isinstance(closure._definitions(part[0])[part[1]][0], ast.FunctionDef)
    )
    return ".".join(max(functions, key=distance.get)).removeprefix("helpers.")


def with_another_line(module, name):
    """A module's source with a statement more in a function."""
    tree = ast.parse(closure.SOURCES[module])
    (function,) = (own for own in tree.body if getattr(own, "name", "") == name)
    function.body.insert(len(function.body) - 1, ast.parse("X = 1").body[0])
    return ast.unparse(tree)


def test_a_change_two_imports_away_is_another_key_for_every_kept_table(edited):
    codes = kept_tables()
    assert len(codes) >= 17
    for code, changed in zip(codes, map(far_away, codes), strict=True):
        module, name = f"helpers.{changed}".rsplit(".", 1)
        before, source = code_digest(code), closure.SOURCES[module].decode()
        edit = with_another_line(module, name)
        edited(module, source, edit)
        assert code_digest(code) != before, (code, changed)
        edited(module, edit, source)


@pytest.mark.parametrize(
    "edit",
    [
        ("helpers.model.gradients", "def ", "X = 1\n\n\ndef "),
        ("helpers.data.records", '"""Return', '"""Give back'),
        ("helpers.store.store", "an attention row", "a row"),
    ],
    ids=["what the function never reaches", "a docstring", "a message"],
)
def test_what_does_not_count(edited, edit):
    before = code_digest("analysis.surface.sweep")
    edited(*edit)
    assert code_digest("analysis.surface.sweep") == before


def test_a_data_file_counts(monkeypatch, tmp_path):
    before = code_digest("analysis.paper.values_of")
    copy = tmp_path / "helpers"
    (copy / "analysis").mkdir(parents=True)
    (copy / "analysis" / "paper.csv").write_text("changed")
    monkeypatch.setattr(closure, "PACKAGE", copy)
    code_digest.cache_clear()
    assert code_digest("analysis.paper.values_of") != before
    code_digest.cache_clear()


@pytest.mark.parametrize("damage", ["", "x\n7\n", None], ids=["cut", "changed", "removed"])
def test_a_damaged_table_is_computed_again(own_cache, damage):
    values = iter([1, 2])

    def kept():
        compute = lambda: pd.DataFrame({"x": [next(values)]})  # noqa: E731
        return cached("t", compute, depends_on={}, code=CODE)["x"].tolist()

    assert kept() == [1]
    (file,) = (own_cache / "derived").glob("*/t.csv")
    file.unlink() if damage is None else file.write_text(damage)
    assert kept() == [2]
    assert kept() == [2]
