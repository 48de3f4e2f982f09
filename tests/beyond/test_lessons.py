"""Functions of lessons, and the diagram that grows."""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from beyond import solutions
from beyond.lessons import draw_arcs, head_outputs, loss_with_change, softmax_scores
from beyond.papers.common.fine_tune import FineTuningRun, Recipe
from beyond.papers.common.head_removal import mean_head_outputs
from beyond.papers.common.tasks import Pair, Task
from helpers.data.links import read_links
from helpers.model.forward import forward, model_inputs
from helpers.model.gradients import training_losses
from helpers.model.loading import load_model
from helpers.plots.style import INK, WRONG

RECORD = {"words": ["cats", "sleep", "well"], "heads": [2, 0, 2], "relations": ["s", "root", "a"]}


def test_each_exercise_has_two_or_three_known_wrong_answers():
    """tests/test_check.py shows that each is caught with its hint."""
    assert {len(hints) for hints in solutions.HINTS.values()} == {2, 3}


def test_draw_arcs_draws_errors_in_orange():
    links = read_links(RECORD)
    draw_arcs(RECORD["words"], links, np.array([2, -1, 1]))
    (axes,) = plt.gcf().axes
    colors = [line.get_color() for line in axes.lines]
    assert (colors.count(INK), colors.count(WRONG)) == (3, 1)  # two above; the root has none
    assert [text.get_text() for text in axes.texts].count("ROOT") == 2
    draw_arcs(RECORD["words"], links)
    assert "root" in [text.get_text() for text in plt.gcf().axes[0].texts]
    plt.close("all")


def test_draw_arcs_draws_long_words_and_labels_side_by_side():
    words = ["an", "alternative", "treatments", "a", "b"] * 3
    relations = ["compound"] * len(words)
    links = read_links({"words": words, "heads": [0, *range(1, 15)], "relations": relations})
    for picks in (None, np.zeros(15, int)):
        draw_arcs(words, links, picks)
        figure = plt.gcf()
        figure.draw_without_rendering()
        by_height = {}
        for text in figure.axes[0].texts:
            by_height.setdefault(text.get_position()[1], []).append(text.get_window_extent())
        for boxes in by_height.values():
            boxes.sort(key=lambda box: box.x0)
            assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    plt.close("all")


@pytest.fixture
def encoder(tiny_folder):
    return load_model(str(tiny_folder("bert")), device="cpu")


def test_softmax_scores_give_the_maps(encoder):
    inputs = model_inputs(encoder, {"tokens": ["[CLS]", "cat", "sat", "[SEP]"], "second": 4})
    maps, _ = forward(encoder, [inputs])
    for scores, weights in zip(softmax_scores(encoder, inputs), maps, strict=True):
        torch.testing.assert_close(torch.tensor(scores).softmax(dim=-1), weights[0])


def test_loss_with_change_has_the_slope_of_the_gradient(encoder):
    records = [{"tokens": ["[CLS]", "cat", "sat", "[SEP]", "cat", "[SEP]"], "second": 4}] * 2
    losses, _, maps = training_losses(encoder, records, np.random.default_rng(1))
    (gradient,) = torch.autograd.grad(losses.sum(), maps[1])
    compute_loss = loss_with_change(encoder, records, 1, (1, 0, 2, 1))
    assert compute_loss(0.0) == pytest.approx(losses.sum().item())
    slope = (compute_loss(0.05) - compute_loss(-0.05)) / 0.1
    assert slope == pytest.approx(gradient[0, 0, 2, 1].item(), rel=0.05, abs=1e-3)


def test_head_outputs_have_the_mean_that_the_ablation_uses(encoder, monkeypatch):
    pairs = tuple(Pair((text,), 0) for text in ("the cat sat on the mat", "a dog", "the cat"))
    run = FineTuningRun(encoder, Task("pets", ("no", "yes"), pairs, pairs), Recipe(max_tokens=16))
    monkeypatch.setattr(FineTuningRun, "classifier", run.start().eval())
    outputs = head_outputs(run, pairs, layer=1, head=0)
    assert len(outputs) == 3 and len(outputs[0]) > len(outputs[1])
    mean = mean_head_outputs(run, seed=0)[1, 0]
    np.testing.assert_allclose(np.concatenate(outputs).mean(axis=0), mean, atol=1e-5)
