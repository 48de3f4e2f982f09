"""Tests of studies run in the full profile, with one cache per test module."""

import numpy as np
import pytest


@pytest.fixture(scope="module", autouse=True)
def module_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTENTION_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("ATTENTION_PROFILE", raising=False)
        yield


@pytest.fixture(scope="module")
def run(tiny_encoder):
    """Fine-tune on texts with and without pets; 30 examples are for testing."""
    from beyond.papers.common.fine_tune import FineTuningRun, Recipe, fine_tune
    from beyond.papers.common.tasks import Pair, Task

    generator = np.random.default_rng(1)
    words = ["the", "cat", "sat", "on", "mat", "dog", "watched", "coffee", "rainy", "winters"]
    texts = [generator.choice(words, 6).tolist() for _ in range(78)]
    pairs = [Pair((" ".join(text),), int("cat" in text or "dog" in text)) for text in texts]
    task = Task("pets", ("no", "yes"), train=tuple(pairs[:48]), test=tuple(pairs[48:]))
    recipe = Recipe(max_tokens=16, epochs=1)
    return fine_tune([FineTuningRun(tiny_encoder("bert"), task, recipe)])[0]
