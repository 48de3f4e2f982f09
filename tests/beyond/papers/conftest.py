"""Tests of studies run in the full profile, with one cache per test module."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def module_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTENTION_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("ATTENTION_PROFILE", raising=False)
        yield
