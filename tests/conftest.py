# Torch takes seconds to import, and is imported in the functions that use it: the process that
# hands out the tests reads this file, too, before it starts those that run them.

import signal
from functools import cache
from pathlib import Path

import pytest
from toy_corpora import PARAGRAPHS, SENTENCES, corpus_of, sentence_of

from helpers.data.records import Segment

# A shell starts what it puts in the background with SIGINT ignored, which processes hand on to
# those that they start: tests that interrupt one would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="module")
def browser():
    """Start Chromium for the tests of a file."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
    if not CHROMIUM.exists():
        pytest.skip(f"there is no {CHROMIUM}")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """Make tiny random models: a function from a family (in ``tiny_models``) to a folder."""
    import tiny_models
    import torch

    root = tmp_path_factory.mktemp("models")

    @cache
    def folder(family):
        torch.manual_seed(0)
        model, tokenizer = getattr(tiny_models, family)()
        return tiny_models.save(root / family, tiny_models.spread(model), tokenizer)

    return folder


@pytest.fixture(scope="session")
def tiny_encoder(tiny_folder):
    """Load tiny encoders on the CPU, by family; they are shared, so do not change them."""
    from helpers.model.loading import load_model

    return cache(lambda family: load_model(str(tiny_folder(family)), device="cpu"))


@pytest.fixture(autouse=True)
def same_threads():
    """Set the number of threads back, which some tests change."""
    import torch

    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def segments():
    return corpus_of([Segment(*pair, title=f"article {i}") for i, pair in enumerate(PARAGRAPHS)])


@pytest.fixture(scope="session")
def sentences():
    return corpus_of([sentence_of(words) for words in SENTENCES], "toy-sentences")


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder("bert")


@pytest.fixture
def written(monkeypatch):
    """List the numbers of the shards that are written."""
    from helpers.store import extract as extraction

    numbers = []
    original = extraction.write_shard

    def spy(folder, number, *rest):
        numbers.append(number)
        return original(folder, number, *rest)

    monkeypatch.setattr(extraction, "write_shard", spy)
    return numbers


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def figures(tmp_path, monkeypatch):
    for folder in ("figures", "build", "cache"):
        monkeypatch.setenv(f"ATTENTION_{folder.upper()}", str(tmp_path / folder))
    return tmp_path / "figures"
