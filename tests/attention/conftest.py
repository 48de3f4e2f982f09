"""What the tests of stores share."""

import pytest
from store_tools import EXAMPLES_PER_SHARD

from helpers.attention import extract as extraction


@pytest.fixture
def small_shards(monkeypatch):
    """Make shards so small that a few examples fill several."""
    monkeypatch.setitem(extraction.EXAMPLES_PER_SHARD, "token", EXAMPLES_PER_SHARD)


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder("bert")
