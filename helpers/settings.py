"""The settings of a run, apart from what they lead to: the command line needs no more."""

from __future__ import annotations

import os
from dataclasses import dataclass

from helpers.errors import InputError

SMALL = {
    "segments": 24, "sentences": 160, "gradient_segments": 4, "seeds": 1, "task_examples": 40,
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """What a run is of and how it is done; the command line has a flag for each.

    Attributes:
        model: ``minilm``, a local folder, or a hub name (at ``revision``).
        random_init: seed of the control with random weights; None for the trained model.
        text: a Wikipedia dump or a text file; empty for the embedded sample.
        treebank: a corpus name, a file, a folder or ``TRAIN,DEV``; empty for silver parses of
            ``text``.
        coref: a corpus name, a file or a folder; empty for the embedded sample.
        vectors: a GloVe text file; empty for glove.6B.50d.
        segments, sentences: how many examples to sample (0: all).
        gradient_segments: how many segments section 3.2 back-propagates through.
        max_tokens: the longest example, in tokens.
        seeds: how many training runs of each probe.
        stream: compute sections 3 and 6 straight from the model, storing no maps.
        workers: local Dask processes to extract with (0: this process alone).
        scheduler: address of a Dask cluster that shares the cache folder.
        name: the folder name of the results; empty for the model's name.
        task: ``TRAIN.tsv,TEST.tsv`` to fine-tune on in notebooks 07 and 08; empty for the three
            tasks that label themselves from ``text``.
        task_examples: training examples of a task; a quarter as many test it.
        framenet: a FrameNet full-text folder for notebook 07; empty for the treebank's
            predicates and arguments.
        arct: a corpus name or folder of arguments for notebook 09; empty for the embedded ones.
    """

    model: str = "minilm"
    revision: str | None = None
    random_init: int | None = None
    text: str = ""
    treebank: str = ""
    coref: str = ""
    vectors: str = ""
    segments: int = 1000
    sentences: int = 2000
    gradient_segments: int = 128
    max_tokens: int = 128
    seeds: int = 3
    seed: int = 0
    device: str = "auto"
    dtype: str = "float32"
    stream: bool = False
    workers: int = 0
    scheduler: str = ""
    name: str = ""
    task: str = ""
    task_examples: int = 2000
    framenet: str = ""
    arct: str = ""

    def __post_init__(self) -> None:
        if os.environ.get("ATTENTION_PROFILE") == "small":
            for setting, limit in SMALL.items():
                object.__setattr__(self, setting, min(getattr(self, setting) or limit, limit))
        counts = ("segments", "sentences", "gradient_segments", "seeds", "workers", "task_examples")
        for setting in counts:
            if getattr(self, setting) < 0:
                raise InputError(f"--{setting.replace('_', '-')} cannot be negative")
