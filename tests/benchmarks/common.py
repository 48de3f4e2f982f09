"""Parts that the benchmarks share: machine, interleaved medians, random models and text."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
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


def machine() -> dict[str, Any]:
    """Describe the machine: date, processor, threads, load and versions of libraries."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def seconds(run: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the time of one call: of the wall clock, or of another one."""
    started = clock()
    run()
    return clock() - started


def interleaved(
    variants: Mapping[str, Callable[[], object]],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return each variant's median seconds over rounds that run all of them in turn.

    A first round is not counted.
    """
    times: dict[str, list[float]] = {name: [] for name in variants}
    for repeat in range(repeats + 1):
        for name, run in variants.items():
            took = seconds(run, clock)
            if repeat:
                times[name].append(took)
    return {name: statistics.median(values) for name, values in times.items()}


def options(doc: str, *, repeats: int) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--repeats", type=int, default=repeats)
    return parser


def report(results: dict[str, Any], path: Path | None) -> None:
    """Write the results and the machine's description to a file, if there is a path."""
    if path:
        path.write_text(json.dumps({"machine": machine(), **results}, indent=1) + "\n")


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
