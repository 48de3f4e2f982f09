from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_models
import torch
import transformers
from toy_corpora import PARAGRAPHS, SENTENCES, corpus_of, sentence_of

from helpers.data.records import Corpus, Segment
from helpers.model.encoder import Encoder, load
from helpers.store import extract as extraction

transformers.logging.disable_progress_bar()

# A shell starts what it puts in the background with SIGINT ignored, which processes hand on to
# those that they start: tests that interrupt one would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a tiny random model of a family (a function of ``tiny_models``)."""
    root, folders = tmp_path_factory.mktemp("models"), {}

    def folder(family: str) -> Path:
        if family not in folders:
            torch.manual_seed(0)
            model, tokenizer = getattr(tiny_models, family)()
            folders[family] = tiny_models.save(root / family, tiny_models.spread(model), tokenizer)
        return folders[family]

    return folder


@pytest.fixture(scope="session")
def tiny_encoder(tiny_folder: Callable[[str], Path]) -> Callable[[str], Encoder]:
    """Return a tiny encoder of a family on the CPU; it is shared, so do not change it."""
    encoders: dict[str, Encoder] = {}

    def encoder(family: str) -> Encoder:
        if family not in encoders:
            encoders[family] = load(str(tiny_folder(family)), device="cpu")
        return encoders[family]

    return encoder


@pytest.fixture(autouse=True)
def one_thread():
    """Run tiny models in one thread: they are several times slower in more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def segments() -> Corpus:
    return corpus_of([Segment(*pair, title=f"article {i}") for i, pair in enumerate(PARAGRAPHS)])


@pytest.fixture(scope="session")
def sentences() -> Corpus:
    return corpus_of([sentence_of(words) for words in SENTENCES], "toy-sentences")


@pytest.fixture
def encoder(tiny_encoder: Callable[[str], Encoder]) -> Encoder:
    return tiny_encoder("bert")


@pytest.fixture
def written(monkeypatch):
    """The numbers of the shards that are written."""
    numbers, original = [], extraction.write_shard

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
    for place in ("figures", "build", "cache"):
        monkeypatch.setenv(f"ATTENTION_{place.upper()}", str(tmp_path / place))
    return tmp_path / "figures"
