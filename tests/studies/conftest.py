"""These tests are of the full profile; those of a module share a cache of its own."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTENTION_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("ATTENTION_HEADLESS", "1")
        patch.delenv("ATTENTION_PROFILE", raising=False)
        yield
