"""Parts that the benchmarks share: medians in turns, processes, random models and text."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertModel

from helpers.data.records import Corpus, Segment, Sentence
from helpers.model.loading import Model, load_model
from helpers.store.extract import extract
from helpers.store.store import Store

GEOMETRIES = {"minilm": (6, 12, 384), "bert-base": (12, 12, 768)}  # layers, heads, width
WORDS = ("the", "of", "and", "in", "to", "was", "is", "for", "on", "as", "by", "with")


def extract_into(root: Path, encoder: Model, corpus: Corpus, **options: Any) -> Store:
    """Extract a store into a folder other than the cache."""
    os.environ["ATTENTION_CACHE"] = str(root)
    return extract(encoder, corpus, **options)


def interleaved(variants: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return each variant's median seconds over rounds that run all of them in turn.

    A first round is not counted.
    """
    times: dict[str, list[float]] = {name: [] for name in variants}
    for repeat in range(repeats + 1):
        for name, run in variants.items():
            started = time.perf_counter()
            run()
            if repeat:
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()}


def in_a_process(*arguments: object) -> list[float]:
    """Run this benchmark with arguments in a process of its own; return the numbers it prints."""
    command = [sys.executable, sys.argv[0], *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [float(number) for number in done.stdout.splitlines()[-1].split()]


def peak_mebibytes() -> int:
    """Return the peak resident memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def random_encoder(name: str, *, width: int | None = None) -> Model:
    """Return an encoder of a geometry: random weights, the default's tokenizer."""
    layers, heads, default_width = GEOMETRIES[name]
    width = width or default_width
    default = load_model(device="cpu")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(default.tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        attn_implementation="eager",
    )
    key = {"name": name, "dtype": "float32", "random_init": None}
    layer_numbers = list(range(1, layers + 1))
    model = BertModel(config).eval().requires_grad_(False)
    return replace(
        default, model=model, name=name, key=key, layer_numbers=layer_numbers, heads=heads
    )


def random_segments(count: int, *, longest: int = 60) -> Corpus[Segment]:
    """Return segments of common words; at 60, many are too long for 128 tokens."""
    rng = np.random.default_rng(0)

    def text() -> str:
        return " ".join(rng.choice(WORDS, size=rng.integers(longest // 3, 2 * longest)))

    segments = [Segment(text(), text(), title=str(index)) for index in range(count)]
    return _corpus("random", {"count": count, "longest": longest}, segments)


def random_sentences(count: int, *, words: int = 20) -> Corpus[Sentence]:
    """Return sentences of common words with random trees, one in five of them dev."""
    rng = np.random.default_rng(0)
    sentences = []
    for index in range(count):
        forms = rng.choice(WORDS, size=words).tolist()
        heads = [int(rng.integers(1, word + 1)) for word in range(1, words)]
        relations = rng.choice(("det", "nsubj", "dobj"), size=words - 1).tolist()
        split = "dev" if index % 5 == 0 else "train"
        sentence = Sentence(
            words=tuple(forms),
            heads=(0, *heads),
            relations=("root", *relations),
            split=split,
            source=str(index),
        )
        sentences.append(sentence)
    return _corpus("random-trees", {"count": count, "words": words}, sentences)


def _corpus(name: str, spec: dict[str, int], records: list) -> Corpus:
    def read(_counts: Counter[str]) -> Iterator:
        yield from records

    return Corpus(name, spec, read)
