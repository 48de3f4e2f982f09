"""Each module of these tests has a cache of its own, which its tests share."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTENTION_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("ATTENTION_HEADLESS", "1")
        yield
