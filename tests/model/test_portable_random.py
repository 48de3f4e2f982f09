"""Random weights are those of torch up to rounding, whatever the processor."""

from __future__ import annotations

import hashlib
import inspect
import os
import subprocess
import sys

import pytest
import tiny_models
import torch
import transformers as hf

from helpers.model.portable_random import PortableRandom
from helpers.model.weights import reinitialised


def parameters_sha256(model):
    """Compute the SHA-256 of a model's parameters, in the order of their names."""
    digest = hashlib.sha256()
    for _, parameter in sorted(model.named_parameters()):
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


DIGEST_SCRIPT = f"""
import hashlib, sys
from transformers import AutoModel
from helpers.model.weights import reinitialised

{inspect.getsource(parameters_sha256)}

print(parameters_sha256(reinitialised(AutoModel.from_pretrained(sys.argv[1]), seed=5)))
"""


def fill_tensor(method, shape, *arguments):
    """Fill a tensor in place; return it and the state of the generator afterwards."""
    torch.manual_seed(7)
    tensor = torch.empty(shape)
    getattr(tensor, method)(*arguments)
    return tensor, torch.get_rng_state()


@pytest.mark.parametrize("shape", [(3,), (16,), (31,), (70_001,), (40, 50)])
@pytest.mark.parametrize(
    ("method", "arguments"),
    [("normal_", (0, 0.02)), ("normal_", (0.5, 1)), ("uniform_", ()), ("uniform_", (-0.3, 0.5))],
)
def test_portable_random_gives_torchs_numbers_up_to_rounding(method, arguments, shape):
    expected, state = fill_tensor(method, shape, *arguments)
    with PortableRandom():
        portable, portable_state = fill_tensor(method, shape, *arguments)
    scale = max(map(abs, arguments), default=1)
    # float32 has a precision of 6e-8; the largest normal deviate here is 4.4 standard deviations,
    # and torch's plain kernel differs from its vectorised one by 2.4e-6 of a standard deviation.
    torch.testing.assert_close(portable, expected, rtol=0, atol=5e-6 * scale)
    assert torch.equal(state, portable_state)


def test_portable_random_normal_deviates_have_their_distribution():
    with PortableRandom():
        deviates, _ = fill_tensor("normal_", (400_000,), 3.0, 2.0)
    standardised = (deviates.double() - 3) / 2
    standard_error = len(standardised) ** -0.5
    assert abs(standardised.mean()) < 4 * standard_error
    assert abs(standardised.std() - 1) < 4 * standard_error / 2**0.5
    share_within_one = (standardised.abs() < 1).double().mean()
    assert share_within_one == pytest.approx(0.6827, abs=4 * standard_error / 2)


def test_portable_random_gives_the_committed_uniform_deviates():
    with PortableRandom():
        deviates, _ = fill_tensor("uniform_", (100_003,), -0.3, 0.5)
    digest = hashlib.sha256(deviates.numpy().tobytes()).hexdigest()
    assert digest.startswith("d6d4fd98b8236209")


def test_portable_random_gives_the_committed_normal_deviates():
    with PortableRandom():
        deviates, _ = fill_tensor("normal_", (100_003,), 0.0, 0.02)
    rounding = 2 * torch.finfo(torch.float32).eps  # two units in the last place, or less
    expected = torch.tensor(
        [-0.01640268974, 0.007912622765, 0.01853086054, 0.007817104459, 0.01403207704]
    )
    torch.testing.assert_close(deviates[[0, 1, 8, 50_000, -1]], expected, rtol=rounding, atol=0)


def test_portable_random_leaves_non_contiguous_and_float64_tensors_to_torch():
    for tensor in (torch.empty(20, 30).T, torch.empty(50, dtype=torch.float64)):
        torch.manual_seed(1)
        expected = tensor.clone().normal_()
        torch.manual_seed(1)
        with PortableRandom():
            portable = tensor.clone().normal_()
        assert torch.equal(portable, expected)


def test_reinitialised_does_not_depend_on_vector_instructions(tmp_path):
    model, _ = tiny_models.bert(hf.BertModel)
    model.save_pretrained(tmp_path)
    vectorised = parameters_sha256(reinitialised(model, seed=5))
    environment = {
        **os.environ,
        "ATEN_CPU_CAPABILITY": "default",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    finished = subprocess.run(
        [sys.executable, "-c", DIGEST_SCRIPT, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stdout.split()[-1] == vectorised
