"""The settings of a run, apart from what they lead to: the command line needs no more."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from helpers.errors import InputError

# The small profile, under which notebooks are tests: no setting is above these.
SMALL = {
    "segments": 24, "sentences": 160, "gradient_segments": 4, "seeds": 1, "task_examples": 40,
}  # fmt: skip


def _setting(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True)
class Settings:
    """What a run is of and how it is done; the command line has a flag for each.

    Raises:
        InputError: a value of the wrong type, or a negative count; the message names the flag.
    """

    model: str = _setting("minilm", "'minilm' (embedded), a local folder, or a hub name")
    revision: str | None = _setting(None, "hub revision: a branch, tag or commit")
    random_init: int | None = _setting(
        None, "seed: keep the embeddings, draw all other weights anew (a control)"
    )
    text: str = _setting(
        "", "Wikipedia dump (.xml.bz2) or text file: blank line between documents, a paragraph "
        "a line (default: the embedded sample)",
    )  # fmt: skip
    treebank: str = _setting(
        "", "corpus name, file, folder or TRAIN,DEV (CoNLL-U, CoNLL-X, plain; default: silver "
        "parses of the text)",
    )  # fmt: skip
    coref: str = _setting(
        "", "corpus name, file or folder (CoNLL-2012, OntoGUM, bracket notation; default: the "
        "embedded sample)",
    )  # fmt: skip
    vectors: str = _setting("", "GloVe text file (default: glove.6B.50d)")
    segments: int = _setting(1000, "segments of two paragraphs to sample (0: all)")
    sentences: int = _setting(2000, "treebank sentences to sample (0: all)")
    gradient_segments: int = _setting(128, "segments for the gradients of section 3.2")
    max_tokens: int = _setting(128, "longest example in tokens")
    seeds: int = _setting(3, "training runs of each probe")
    seed: int = _setting(0, "random seed of every sample and training run")
    device: str = _setting("auto", "cpu, cuda, mps or auto")
    dtype: str = _setting("float32", "float32, float16 or bfloat16 for the forward pass")
    stream: bool = _setting(False, "sections 3 and 6 straight from the model, storing no maps")
    workers: int = _setting(0, "local Dask processes to extract with (0: this process alone)")
    scheduler: str = _setting(
        "", "address of a Dask cluster that shares the cache folder (tcp://...)"
    )
    name: str = _setting("", "folder name of the results (default: the model's name)")
    task: str = _setting(
        "", "TRAIN.tsv,TEST.tsv to fine-tune on (07, 08; default: three tasks made of the text)"
    )
    task_examples: int = _setting(2000, "training examples of a task (07, 08); a quarter test it")
    framenet: str = _setting(
        "", "FrameNet full-text folder (07; default: the treebank's arguments)"
    )
    arct: str = _setting("", "corpus name or folder of arguments (09; default: the embedded ones)")

    def __post_init__(self) -> None:
        for setting in fields(self):
            _check_type(setting.name, getattr(self, setting.name), str(setting.type))
        if self.small:
            for setting, limit in SMALL.items():
                object.__setattr__(self, setting, min(getattr(self, setting) or limit, limit))
        counts = ("segments", "sentences", "gradient_segments", "seeds", "workers", "task_examples")
        for setting in counts:
            if getattr(self, setting) < 0:
                raise InputError(f"{flag(setting)} cannot be negative")

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """Return the settings that a notebook declares: ``Study.of(globals())``."""
        known = {setting.name for setting in fields(cls)}
        return cls(**{name: value for name, value in parameters.items() if name in known})

    @property
    def small(self) -> bool:
        """Whether this is the small profile (``ATTENTION_PROFILE=small``)."""
        return os.environ.get("ATTENTION_PROFILE") == "small"

    @property
    def minimum_count(self) -> int:
        """How many words a relation needs to be in Table 1."""
        return 10 if self.small else 100


def flag(setting: str) -> str:
    """Return the flag of the command line for a setting."""
    return f"--{setting.replace('_', '-')}"


def _check_type(setting: str, value: object, expected: str) -> None:
    """Raise InputError unless a value is of the type that its setting is declared with."""
    kinds = {"int": "a whole number", "str": "text", "bool": "True or False"}
    kind = expected.removesuffix(" | None")
    if not (type(value).__name__ == kind or (value is None and expected != kind)):
        raise InputError(f"{flag(setting)} {value}: expected {kinds[kind]}")
