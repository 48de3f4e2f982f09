"""Exercises are checked by plain loops; here these are compared with the package, and broken."""

import re
from itertools import pairwise

import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from beyond.lessons import check, figures, print_findings, show_committed_figure
from beyond.lessons.check import Exercise
from beyond.lessons.findings import FINDINGS
from helpers.metrics import surface
from helpers.metrics.head_distance import head_distances
from helpers.model.forward import to_words
from helpers.results import read_tables
from helpers.run import list_notebooks
from tests.committed import committed_figures

STUB = re.compile(r"^check\.(\w+)\((\w+)\)$", re.MULTILINE)
SOLUTION = re.compile(r"<summary>Solution</summary>\n\n```python\n(.*?)\n```", re.DOTALL)
EXERCISES = {name: value for name, value in vars(check).items() if isinstance(value, Exercise)}


@pytest.mark.parametrize("name", EXERCISES)
def test_exercise_takes_its_own_solution_and_no_constant(name, capsys):
    exercise = EXERCISES[name]
    exercise(exercise.solve)
    assert capsys.readouterr().out == f"Right in all {len(exercise.cases)} cases.\n"
    assert exercise.compare(lambda *_: 12345.678).startswith("Not yet")
    # A constant that is right in the first case is wrong in another.
    answer = exercise.solve(*exercise.cases[0])
    assert exercise.compare(lambda *_: answer).startswith("Not yet")


def test_exercise_says_that_a_stub_is_not_written():
    def stub(attention): ...

    def with_error(attention):
        raise NotImplementedError

    assert check.relative_position.compare(stub).startswith("Not written yet")
    assert check.relative_position.compare(with_error).startswith("Not written yet")


def test_exercise_shows_the_error_of_a_function_and_the_case():
    text = check.relative_position.compare(lambda attention: attention[7])
    assert "IndexError" in text
    assert "0.8" in text  # the map of the case


def test_exercise_is_not_changed_by_a_function_that_writes_to_its_input():
    def spoil(attention):
        attention[:] = 0
        return attention[0]

    check.relative_position.compare(spoil)
    assert check.relative_position.compare(check.relative_position.solve).startswith("Right")


def test_references_agree_with_the_package():
    maps = np.random.default_rng(3).dirichlet(np.ones(6), size=(2, 3, 6))
    shares = surface.relative_position(maps)
    np.testing.assert_allclose(check.relative_position.solve(maps), shares["previous"])
    distances = head_distances(maps.astype(np.float32))
    by_hand = check.head_distance.solve(maps[0, 0], maps[1, 2])
    assert distances[0, 5] == pytest.approx(by_hand, rel=0.02)  # which is not smoothed
    p, q = maps[0, 0, 0], maps[1, 1, 1]
    assert check.js_divergence.solve(p, q) == pytest.approx(jensenshannon(p, q) ** 2)
    word_of_token = np.array([0, 0, 1, 2, 2, 3])
    tokens = torch.tensor(maps[:1, :1])
    words = to_words(tokens, word_of_token.tolist())[0, 0].numpy()
    np.testing.assert_allclose(check.words_from_tokens.solve(maps[0, 0], word_of_token), words)
    scores = torch.tensor(maps[0, 0])
    losses = torch.nn.functional.cross_entropy(scores, torch.arange(6), reduction="none")
    np.testing.assert_allclose(check.word_losses.solve(maps[0, 0], np.arange(6)), losses.numpy())


@pytest.mark.parametrize("notebook", FINDINGS)
def test_findings_have_the_numbers_of_a_committed_run(notebook):
    name = "minilm-later" if notebook >= "07" else "minilm"
    numbers = FINDINGS[notebook](read_tables(committed_figures() / name))
    assert len(numbers) >= 5
    assert "nan" not in " ".join(numbers.values())


def test_print_findings_says_what_a_run_lacks(capsys):
    class Run:
        def tables(self):
            return {"token_types": pd.DataFrame({"layer": [1]})}

    assert print_findings(Run(), "02") is None
    assert "gradients" in capsys.readouterr().out


@pytest.mark.parametrize("path", list_notebooks(), ids=lambda path: path.stem)
def test_solutions_of_a_notebook_solve_its_exercises(path):
    names = {"np": np, "pd": pd}
    cells = nbformat.read(path, as_version=4).cells
    for cell, following in pairwise(cells):
        stub = STUB.search(cell.source) if cell.cell_type == "code" else None
        if stub:
            exercise, function = stub.groups()
            exec(SOLUTION.search(following.source)[1], names)
            assert EXERCISES[exercise].compare(names[function]).startswith("Right"), exercise


def test_committed_figure_of_another_run_is_shown_or_said_to_be_missing(monkeypatch, capsys):
    shown = []
    monkeypatch.setattr(figures, "display", shown.append)
    show_committed_figure("fig13_lenses", run="minilm-later")
    assert shown[0].data.startswith(b"\x89PNG")
    show_committed_figure("fig13_lenses", run="no-such-run")
    assert len(shown) == 1
    text = capsys.readouterr().out
    assert "figures/no-such-run" in text and text.count("\n") == 1
