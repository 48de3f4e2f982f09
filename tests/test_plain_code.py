"""Names and docstrings have to be plain enough for a newcomer (CONTRIBUTING.md, style)."""

import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Words that are right for any value and therefore name none.
VAGUE_NAMES = set(
    re.findall(
        r"\w+",
        "own found facts said there here given asked told known kind kinds place places "
        "one other others whole both some many most made shown wanted left look looks "
        "thing things way ways mine everything anew beside alike like what how each every "
        "less more taken kept ",
    )
)
# Summaries that begin with a question word instead of the quantity.
HEADLESS_SUMMARY = re.compile(
    r"^(Return|Yield|Say|Tell|Give) (what|which|how|where|who|whose|of|that of|those)\b"
    r"|^(Of|What(?! Does BERT)|Where|Whose|Who|That|To)\b"
)
MAX_VAGUE_SHARE = {"helpers": 0.005, "tests": 0.01, "notebooks": 0.0}
DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def notebook_code(path):
    """Return the code of a notebook as one module, without its settings and magics."""
    lines = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        is_settings = "parameters" in cell["metadata"].get("tags", [])
        if cell["cell_type"] == "code" and not is_settings:
            lines += "".join(cell["source"]).splitlines()
    return "\n".join(line for line in lines if not line.startswith(("%", "!")))


def syntax_trees(folder):
    """Yield each source file of a folder with its syntax tree."""
    if folder == "notebooks":
        for path in sorted((ROOT / folder).glob("*.ipynb")):
            yield path, ast.parse(notebook_code(path))
    else:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def second_operands(tree):
    """Return the arguments of binary operators, which Python itself calls `other`."""
    operands = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("__"):
            continue
        if len(node.args.args) == 2:
            operands.add(node.args.args[1])
    return operands


def bound_names(tree):
    """Yield the line and the name of every variable and argument that a module binds."""
    exempt = second_operands(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg) and node not in exempt:
            yield node.lineno, node.arg


@pytest.mark.parametrize("folder", MAX_VAGUE_SHARE)
def test_bound_names_say_something(folder):
    n_names = 0
    vague = []
    for path, tree in syntax_trees(folder):
        for line, name in bound_names(tree):
            if name in ("self", "cls", "_"):
                continue
            n_names += 1
            if name in VAGUE_NAMES:
                vague.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert n_names > 100
    assert len(vague) <= MAX_VAGUE_SHARE[folder] * n_names, "\n".join(vague)


@pytest.mark.parametrize("folder", ["helpers", "tests"])
def test_docstrings_begin_with_the_quantity(folder):
    headless = []
    for path, tree in syntax_trees(folder):
        for node in ast.walk(tree):
            summary = ast.get_docstring(node) if isinstance(node, DEFINITIONS) else None
            if summary and HEADLESS_SUMMARY.match(summary):
                line = getattr(node, "lineno", 1)
                headless.append(f"{path.relative_to(ROOT)}:{line}: {summary.splitlines()[0]}")
    assert not headless, "\n".join(headless)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("own = 1", {"own"}),
        ("def f(found): return [one for one in found]", {"found", "one"}),
        ("class A:\n    def __sub__(self, other): return other", {"self"}),
        ("for index, word in pairs: pass", {"index", "word"}),
    ],
)
def test_bound_names_by_hand(source, names):
    assert {name for _, name in bound_names(ast.parse(source))} == names


@pytest.mark.parametrize(
    ("summary", "headless"),
    [
        ("Return what a head finds.", True),
        ("Of several, the nearest.", True),
        ("What Does BERT Look At?", False),
        ("Compute the share of attention that goes to the previous token.", False),
    ],
)
def test_headless_summary_by_hand(summary, headless):
    assert bool(HEADLESS_SUMMARY.match(summary)) == headless
