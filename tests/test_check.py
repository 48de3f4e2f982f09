"""The check of an exercise, and the exercises of all notebooks with it."""

import ast
import re
from copy import deepcopy
from itertools import pairwise
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from beyond import solutions
from helpers.check import check
from helpers.metrics.head_distance import head_distances
from helpers.model.forward import to_words

NOTEBOOKS = sorted(Path(__file__).parent.with_name("notebooks").glob("*.ipynb"))
EXERCISE = re.compile(r"^check\(\w+, .*$", re.MULTILINE)
SOLUTION = re.compile(r"<summary>Solution</summary>\n\n```python\n(.*?)\n```", re.DOTALL)
CONSTANT = 12345.678


def double(x):
    return 2 * x


def square(x):
    return x**2


CASES = [2.0, np.array([0.0, 1.0])]
HINTS = {square: "This is the square."}


def printed(capsys, *arguments):
    check(*arguments)
    return capsys.readouterr().out


def test_check_of_a_right_function_counts_the_cases(capsys):
    assert "2 cases" in printed(capsys, double, double, CASES, HINTS)


def test_check_shows_the_first_difference_and_the_hint(capsys):
    text = printed(capsys, square, double, CASES, HINTS)  # 2 squared is 4, too
    assert "Case 2" in text and "[0., 1.]" in text
    assert re.search(r"\[1\] 2 .* 1\.", text)
    assert text.endswith("This is the square.\n")
    assert "square." not in printed(capsys, np.negative, double, CASES, HINTS)


def test_check_of_other_kinds_of_answers(capsys):
    assert "(3,)" in printed(capsys, lambda x: np.zeros(3), double, CASES)
    assert "'four'" in printed(capsys, lambda x: "four", double, CASES)


def test_check_of_a_stub_is_no_error(capsys):
    def stub(x): ...

    def with_error(x):
        raise NotImplementedError

    for function in (stub, with_error, lambda x: ...):
        assert printed(capsys, function, double, CASES).startswith("Not written yet")


def test_check_shows_an_error_in_one_line(capsys):
    def fail(x):
        raise ValueError("two\nlines")

    text = printed(capsys, fail, double, CASES)
    assert text.endswith("ValueError: two lines\n") and text.count("\n") == 1


def test_check_gives_copies(capsys):
    def spoil(x):
        x = np.atleast_1d(x)
        x[:] = 7
        return x[0]

    cases = [np.zeros(2)]
    printed(capsys, spoil, double, cases)
    assert not cases[0].any()


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
        call = EXERCISE.search(cell.source) if cell.cell_type == "code" else None
        if call:
            exec(cell.source[: call.end()], names)
            exec(SOLUTION.search(following.source)[1], solved)
            stub, arguments = calls[-1]
            yield stub, solved[stub.__name__], arguments


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_exercises_take_their_solution_and_no_stub_constant_or_known_mistake(path, capsys):
    for stub, solution, arguments in exercises(path):
        reference, cases, hints = arguments
        assert printed(capsys, solution, *arguments).startswith("Right"), stub.__name__
        assert printed(capsys, stub, *arguments).startswith("Not written yet")
        assert printed(capsys, lambda *_: CONSTANT, *arguments).startswith("Not yet")
        first_case = cases[0] if isinstance(cases[0], tuple) else (cases[0],)
        answer = reference(*deepcopy(first_case))  # which is wrong in another case
        assert printed(capsys, lambda *_, answer=answer: answer, *arguments).startswith("Not yet")
        for wrong_function, hint in (hints or {}).items():
            assert printed(capsys, wrong_function, *arguments).endswith(f"{hint}\n")


def test_each_notebook_has_three_exercises_and_each_hint_belongs_to_one():
    names = []
    for path in NOTEBOOKS:
        cells = nbformat.read(path, as_version=4).cells
        calls = [call for cell in cells for call in EXERCISE.findall(cell.source)]
        assert len(calls) == 3, path.stem
        names += [re.match(r"check\((\w+)", call)[1] for call in calls]
    assert solutions.HINTS.keys() <= set(names)


def test_solutions_agree_with_the_package_and_with_libraries():
    maps = np.random.default_rng(3).dirichlet(np.ones(6), size=(2, 3, 6))
    distances = head_distances(maps.astype(np.float32))
    by_hand = solutions.head_distance(maps[0, 0], maps[1, 2])
    assert distances[0, 5] == pytest.approx(by_hand, rel=0.02)  # which is not smoothed
    p, q = maps[0, 0, 0], maps[1, 1, 1]
    assert solutions.js_divergence(p, q) == pytest.approx(jensenshannon(p, q) ** 2)
    word_of_token = np.array([0, 0, 1, 2, 2, 3])
    words = to_words(torch.tensor(maps[:1, :1]), word_of_token.tolist())[0, 0].numpy()
    np.testing.assert_allclose(solutions.words_from_tokens(maps[0, 0], word_of_token), words)
    scores = torch.tensor(maps[0, 0])
    losses = torch.nn.functional.cross_entropy(scores, torch.arange(6), reduction="none")
    np.testing.assert_allclose(solutions.word_losses(maps[0, 0], np.arange(6)), losses.numpy())
