"""Random weights are torch's to within rounding, and the same on every processor."""

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


def filled(method, shape, *arguments):
    """Return a tensor that a method filled in place, and the state of the generator after it."""
    torch.manual_seed(7)
    tensor = torch.empty(shape)
    getattr(tensor, method)(*arguments)
    return tensor, torch.get_rng_state()


@pytest.mark.parametrize("shape", [(3,), (16,), (31,), (70_001,), (40, 50)])
@pytest.mark.parametrize(
    ("method", "arguments"),
    [("normal_", (0, 0.02)), ("normal_", (0.5, 1)), ("uniform_", ()), ("uniform_", (-0.3, 0.5))],
)
def test_portable_numbers_are_those_of_torch_to_rounding(method, arguments, shape):
    expected, state = filled(method, shape, *arguments)
    with PortableRandom():
        found, portable_state = filled(method, shape, *arguments)
    scale = max([1e-30, *map(abs, arguments)]) if arguments else 1
    # float32 has a precision of 6e-8; the largest normal deviate here is 4.4 standard deviations,
    # and torch's plain kernel differs from its vectorised one by 2.4e-6 of a standard deviation.
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-6 * scale)
    assert torch.equal(state, portable_state)


def test_normal_deviates_have_their_distribution():
    with PortableRandom():
        deviates, _ = filled("normal_", (400_000,), 3.0, 2.0)
    standard = (deviates.double() - 3) / 2
    standard_error = len(standard) ** -0.5
    assert abs(standard.mean()) < 4 * standard_error
    assert abs(standard.std() - 1) < 4 * standard_error / 2**0.5
    within_one = (standard.abs() < 1).double().mean()
    assert within_one == pytest.approx(0.6827, abs=4 * standard_error / 2)


def test_deviates_have_the_committed_bits():
    with PortableRandom():
        normal, _ = filled("normal_", (100_003,), 0.0, 0.02)
        uniform, _ = filled("uniform_", (100_003,), -0.3, 0.5)
    digests = [hashlib.sha256(part.numpy().tobytes()).hexdigest() for part in (normal, uniform)]
    assert [digest[:16] for digest in digests] == ["b88163990b9d018a", "d6d4fd98b8236209"]


def test_non_contiguous_and_float64_tensors_are_left_to_torch():
    for tensor in (torch.empty(20, 30).T, torch.empty(50, dtype=torch.float64)):
        torch.manual_seed(1)
        expected = tensor.clone().normal_()
        torch.manual_seed(1)
        with PortableRandom():
            found = tensor.clone().normal_()
        assert torch.equal(found, expected)


def test_parameters_of_a_seed_do_not_depend_on_vector_instructions(tmp_path):
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
