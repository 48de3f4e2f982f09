"""The check of an exercise, and the exercises of all notebooks with it."""

import ast
import re
from copy import deepcopy
from itertools import pairwise
from pathlib import Path

import nbformat
import numpy as np
import pytest

from helpers.check import check

NOTEBOOKS = sorted(Path(__file__).parent.with_name("notebooks").glob("*.ipynb"))
SOLUTION = re.compile(r"<summary>Solution</summary>\n\n```python\n(.*?)\n```", re.DOTALL)
CONSTANT = 12345.678


def double(x):
    return 2 * x


def square(x):
    return x**2


def printed(capsys, *arguments):
    check(*arguments)
    return capsys.readouterr().out


def spoil(x):
    x = np.atleast_1d(x)
    x[:] = 7


def raise_error(error):
    raise error


@pytest.mark.parametrize(
    ("student_function", "pattern"),
    [
        (double, r"Right in all 2 cases"),
        (square, r"Case 2.*\[0\., 1\.\].*\[1\] 2 .* 1\.\nHint: This is the square\.$"),
        (np.negative, r"Not yet. Case 1.* 4 .* -2\.$"),
        (lambda x: np.zeros(3), r"\(3,\)"),
        (lambda x: "four", r"'four'"),
        (spoil, "^Not written yet"),
        (lambda x: ..., "^Not written yet"),
        (lambda x: raise_error(NotImplementedError), "^Not written yet"),
        (lambda x: raise_error(ValueError("two\nlines")), r"ValueError: two lines$"),
    ],
)
def test_check_says_in_what_a_function_differs(student_function, pattern, capsys):
    cases = [2.0, np.array([0.0, 1.0])]  # 2 squared is 4, too
    text = printed(capsys, student_function, double, cases, {square: "This is the square."})
    assert re.search(pattern, text.strip()) and text.count("\n") == 1 + text.count("Hint")
    assert cases[1].tolist() == [0, 1]  # functions get copies


def exercises(path):
    """Execute the exercises of a notebook: stub, folded solution, and the arguments of `check`."""
    cells = nbformat.read(path, as_version=4).cells
    calls = []
    names = {}
    for cell in cells:
        if cell.cell_type == "code":
            nodes = ast.parse(cell.source).body
            imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
            exec(compile(ast.Module(imports, []), path.name, "exec"), names)
    solved = dict(names)
    names["check"] = lambda stub, reference, cases, hints=None: calls.append(
        (stub, (reference, cases, hints))
    )
    for cell, following in pairwise(cells):
        if cell.cell_type == "code" and "\ncheck(" in cell.source:
            nodes = ast.parse(cell.source).body
            is_call = [ast.unparse(node).startswith("check(") for node in nodes]
            statements = nodes[: is_call.index(True) + 1]
            exec(compile(ast.Module(statements, []), path.name, "exec"), names)
            exec(SOLUTION.search(following.source)[1], solved)
            stub, arguments = calls[-1]
            yield stub, solved[stub.__name__], arguments


EXERCISES = [
    pytest.param(*exercise, id=f"{path.stem}-{exercise[0].__name__}")
    for path in NOTEBOOKS
    for exercise in exercises(path)
]


@pytest.mark.parametrize(("stub", "solution", "arguments"), EXERCISES)
def test_an_exercise_takes_its_solution_and_no_stub_and_no_constant(
    stub, solution, arguments, capsys
):
    reference, cases, hints = arguments
    assert printed(capsys, solution, *arguments).startswith("Right")
    assert printed(capsys, stub, *arguments).startswith("Not written yet")
    assert printed(capsys, lambda *_: CONSTANT, *arguments).startswith("Not yet")
    first_case = cases[0] if isinstance(cases[0], tuple) else (cases[0],)
    answer = reference(*deepcopy(first_case))  # which is wrong in another case
    assert printed(capsys, lambda *_: answer, *arguments).startswith("Not yet")
    for wrong_function, hint in (hints or {}).items():
        assert f"Hint: {hint}\n" in printed(capsys, wrong_function, *arguments)
