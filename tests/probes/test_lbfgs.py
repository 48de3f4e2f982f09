"""L-BFGS against scipy's, and several searches at a time."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from helpers.probes import lbfgs

SIZE = 12


def problem(seed=0):
    """Make a convex function of a softmax with a penalty; it returns its value and gradient."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(40, SIZE, generator=generator, dtype=torch.float64)

    def function(position):
        position = position.clone().requires_grad_()
        value = (rows @ position).logsumexp(0) + 0.05 * position.square().sum()
        (gradient,) = torch.autograd.grad(value, position)
        return value.item(), gradient

    return function


def search(tolerance):
    def evaluate(position):
        value, gradient = yield position
        return lbfgs.Point(position, value, gradient)

    return lbfgs.minimise(evaluate, torch.zeros(SIZE, dtype=torch.float64), tolerance)


def run(function, tolerance):
    """Answer what a search asks for, and count its questions."""
    steps = search(tolerance)
    position = next(steps)
    asked = 1
    while True:
        try:
            position = steps.send(function(position))
        except StopIteration as end:
            return end.value, asked
        asked += 1


@pytest.mark.parametrize("seed", range(3))
def test_optimum_and_evaluations_are_those_of_scipy(seed):
    function = problem(seed)

    def with_arrays(position):
        value, gradient = function(torch.from_numpy(position))
        return value, gradient.numpy()

    options = {"ftol": 1e-12, "gtol": 0, "maxcor": lbfgs.MEMORY}
    reference = minimize(with_arrays, np.zeros(SIZE), jac=True, method="L-BFGS-B", options=options)
    optimum, asked = run(function, 1e-12)
    assert optimum.value == pytest.approx(reference.fun, abs=1e-9)
    np.testing.assert_allclose(optimum.position.numpy(), reference.x, atol=1e-4)
    assert optimum.gradient.abs().max() < 1e-4
    assert asked <= reference.nfev + 5


def test_search_ends_at_the_optimum_where_no_step_gains():
    function = problem()
    optimum, _ = run(function, 0.0)
    assert optimum.gradient.abs().max() < 1e-6


def test_long_step_is_shortened():
    """The gradient is a thousand times too long as a first step."""

    def steep(position):
        return 1000 * position.square().sum().item(), 2000 * (position - 0.0)

    def shifted(position):
        value, gradient = steep(position - 1)
        return value, gradient

    optimum, asked = run(shifted, 1e-9)
    np.testing.assert_allclose(optimum.position.numpy(), np.ones(SIZE), atol=1e-5)
    assert asked < 20
