"""The settings of a run, apart from what they lead to: the command line needs no more."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from helpers.errors import InputError
from helpers.paths import readable

# No setting is above these: of a run for a class, and of the profile of notebooks as tests.
PRESETS = {
    "quick": {
        "segments": 40, "sentences": 240, "gradient_segments": 16, "seeds": 1, "minimum_count": 20,
    },
    "small": {
        "segments": 12, "sentences": 80, "gradient_segments": 4, "max_tokens": 64, "seeds": 1,
        "task_examples": 12, "minimum_count": 10,
    },
}  # fmt: skip

# Settings that name a corpus or a file.
PLACES = ("text", "treebank", "coref", "vectors", "task", "framenet", "arct")
SIZES = [setting for setting in PRESETS["small"] if setting != "max_tokens"]
# Settings of how a run is done, not of its numbers.
MANNER = ("quick", "device", "stream", "workers", "scheduler", "name", "figures", "latex")
CHOICES = {"lens": ("attention", "norm"), "dtype": ("float32", "float16", "bfloat16")}
NO_LIMIT = "all"  # how the command line and papermill write a size of None
MAX_SEED = 10**9  # NumPy takes seeds below 2**32, and a run adds up to three of its own
LONGEST_NAME = 100  # bytes of what differs in the name of a run; file systems allow 255
# A folder of its own, and columns of the tables that compare runs.
NO_NAMES = ("compare", "section", "claim", "paper", "relation")


def _flag(
    default: Any,
    meaning: str,
    *,
    least: int | None = None,
    most: int | None = None,
    unlimited: bool = False,
) -> Any:
    """Declare a setting: its default, its help, its bounds, and whether None means "no limit"."""
    bounds = {"least": least, "most": most, "unlimited": unlimited}
    return field(default=default, metadata={"help": meaning, **bounds})


@dataclass(frozen=True)
class Settings:
    """What a run is of and how it is done; the command line has a flag for each.

    A size of None has no limit; the text "all" is read as None, because papermill passes text on.
    InputError for a value of the wrong type or out of bounds; the message names the flag.
    """

    model: str = _flag(
        "minilm", "minilm (embedded), mpnet (an extra), a local folder, or a hub name"
    )
    revision: str | None = _flag(None, "hub revision: a branch, tag or commit")
    random_init: int | None = _flag(
        None,
        "a seed: keep the embeddings, re-initialise all other weights (a control)",
        least=0,
        most=MAX_SEED,
    )
    focused: bool = _flag(
        False, "with random_init: each head as focused as the trained one, by a temperature"
    )
    text: str = _flag(
        "", "Wikipedia dump, text file, or folder of .txt and .md (default: embedded sample)"
    )
    treebank: str = _flag(
        "", "corpus name, file, folder or TRAIN,DEV (default: silver parses of the text)"
    )
    coref: str = _flag("", "corpus name, file or folder of coreference (default: embedded sample)")
    vectors: str = _flag("", "GloVe text file (default: glove.6B.50d)")
    segments: int | None = _flag(
        1000, "segments of two paragraphs to sample ('all': no limit)", least=2, unlimited=True
    )
    sentences: int | None = _flag(
        2000, "treebank sentences to sample ('all': no limit)", least=2, unlimited=True
    )
    gradient_segments: int | None = _flag(
        128, "segments for the gradients of section 3.2 ('all': no limit)", least=2, unlimited=True
    )
    max_tokens: int = _flag(128, "longest example in tokens", least=8)
    minimum_count: int = _flag(100, "words that a relation needs to be in Table 1", least=1)
    seeds: int = _flag(3, "training runs of each probe, or of the encoder (09)", least=1)
    seed: int = _flag(0, "random seed of every sample and training run", least=0, most=MAX_SEED)
    quick: bool = _flag(False, "for a class: at most 40 segments, 240 sentences, one seed")
    device: str = _flag("auto", "cpu, cuda, mps or auto")
    dtype: str = _flag("float32", "float32, float16 or bfloat16 for the forward pass")
    lens: str = _flag(
        "attention", "attention, or norm: the size of what each weight moves (Kobayashi 2020)"
    )
    stream: bool = _flag(False, "sections 3 and 6 straight from the model, storing no maps")
    workers: int = _flag(0, "local Dask processes to extract with (0: this process only)", least=0)
    scheduler: str = _flag("", "address of a Dask cluster that shares the cache folder (tcp://...)")
    name: str = _flag("", "folder name of the results (default: the model's and what differs)")
    figures: str = _flag("", "pdf: figures as PDF for papers, too (no title, fonts embedded)")
    latex: bool = _flag(False, "tables as LaTeX for papers, too (booktabs)")
    task: str = _flag(
        "", "TRAIN.tsv,TEST.tsv to fine-tune on (default: three tasks made of the text)"
    )
    task_examples: int | None = _flag(
        2000,
        "examples of a task to train on, and to test on, at most ('all': no limit)",
        least=2,
        unlimited=True,
    )
    framenet: str = _flag("", "FrameNet full-text folder (default: the treebank's arguments)")
    arct: str = _flag("", "corpus name or folder of arguments (default: the embedded ones)")

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.metadata["unlimited"] and value == NO_LIMIT:
                object.__setattr__(self, setting.name, None)
            else:
                _check_type(setting, value)
                _check_bounds(setting, value)
        for name, cap in PRESETS.get(self.preset, {}).items():
            object.__setattr__(self, name, capped(getattr(self, name), cap))
        if self.focused and self.random_init is None:
            raise InputError("--focused: of a control; say which, with --random-init SEED")
        for setting, known in CHOICES.items():
            if (value := getattr(self, setting)) not in known:
                raise InputError(f"{flag(setting)} {value}: expected {' or '.join(known)}")
        if self.figures not in ("", "pdf"):
            raise InputError(f"--figures {self.figures}: pdf is what there is beside PNG and SVG")
        named = re.fullmatch(r"[^\W_][\w.+-]*", self.name) and self.name not in NO_NAMES
        if self.name and not (named and folder_name(self.name) == self.name):
            raise InputError(
                f"--name {self.name}: expected the name of one folder: letters, digits, . _ + -, "
                f"at most {LONGEST_NAME} bytes, and none of {', '.join(NO_NAMES)}"
            )

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """Return the settings that a notebook declares: ``Study.of(globals())``."""
        known = {setting.name for setting in fields(cls)}
        own = {name: value for name, value in parameters.items() if name in known}
        settings = cls(**own)
        vars(settings)["declared"] = tuple(own)
        return settings

    @cached_property
    def declared(self) -> tuple[str, ...]:
        """The settings that were given: all, or those of a notebook that is run by itself."""
        return tuple(setting.name for setting in fields(self))

    @property
    def is_default(self) -> bool:
        """Whether the numbers are those of the default run, which the notebooks discuss."""
        own = (self.model, self.random_init) == (Settings.model, None)
        return own and not self.differing and not self.preset

    @property
    def differing(self) -> dict[str, Any]:
        """The settings that change numbers, the model apart, and are not at their defaults."""
        defaults = Settings(quick=self.quick)  # in a preset they are smaller, too
        own = {name: getattr(self, name) for name in MATERIAL if name not in IDENTITY}
        return {name: value for name, value in own.items() if value != getattr(defaults, name)}

    @property
    def difference(self) -> str:
        """What differs from the defaults, model and lens apart, as a part of a folder's name."""
        parts = [_short(*item) for item in self.differing.items() if item[0] != "lens"]
        return "--".join(filter(None, [*parts, self.preset]))

    @property
    def preset(self) -> str:
        """The name in `PRESETS` of the sizes that none is above, if any."""
        return "small" if self.small else "quick" if self.quick else ""

    @property
    def small(self) -> bool:
        """Whether this is the small profile (``ATTENTION_PROFILE=small``)."""
        return small_profile()

    @property
    def control_segments(self) -> int:
        """How many segments the controls of sections 3 and 6 see."""
        return 12 if self.preset else 100  # 40 + 2 x 12: the kernel of distances need not compile

    @property
    def initialisations(self) -> int:
        """How many models with random weights the control of section 5 has."""
        return 2 if self.preset else 3


# The settings that change numbers; of these, what says which model it is.
MATERIAL = tuple(own.name for own in fields(Settings) if own.name not in MANNER)
IDENTITY = ("model", "random_init", "focused")


def capped(size: int | None, cap: int) -> int:
    """Compute the smaller of a size and a cap; a size of None has no limit."""
    return cap if size is None else min(size, cap)


def small_profile() -> bool:
    """Return whether this is the small profile, for what no setting says."""
    return os.environ.get("ATTENTION_PROFILE") == "small"


def folder_name(text: str, longest: int = LONGEST_NAME) -> str:
    """Return a text as the name of a folder: cut where it is long, with a digest of the whole."""
    data = text.encode(errors="replace")
    if len(data) <= longest:
        return text
    return f"{data[:longest].decode(errors='ignore')}-{hashlib.sha256(data).hexdigest()[:8]}"


def flag(setting: str) -> str:
    """Return the flag of the command line for a setting."""
    return f"--{setting.replace('_', '-')}"


def flag_value(value: object) -> str:
    """Write the value of a setting as the command line takes it."""
    return NO_LIMIT if value is None else str(value)


def _check_type(setting: Field, value: object) -> None:
    """Raise InputError unless a value has the type that its setting declares."""
    type_name = setting.type.removesuffix(" | None")
    if value is None and type_name != setting.type:
        return
    if type(value).__name__ != type_name:
        expected = {"int": "a whole number", "str": "text", "bool": "True or False"}[type_name]
        if setting.metadata["unlimited"]:
            expected += f", or {NO_LIMIT}"
        raise InputError(f"{flag(setting.name)} {value}: expected {expected}")


def _check_bounds(setting: Field, value: object) -> None:
    """Raise InputError where a number is too small or too large for any run."""
    least = setting.metadata["least"]
    most = setting.metadata["most"]
    if value is None or least is None:
        return
    if value < least:
        expected = f"expected {least:,} or more"
        if setting.metadata["unlimited"]:
            expected += f", or {NO_LIMIT} for no limit"
        raise InputError(f"{flag(setting.name)} {value}: {expected}")
    if most is not None and value > most:
        raise InputError(f"{flag(setting.name)} {value}: expected {least} to {most:,}")


def _short(setting: str, value: object) -> str:
    """Return a setting as a part of a folder's name: a file's own name, or setting and value."""
    if setting in PLACES:
        return readable(Path(str(value).split(",")[0]).name.partition(".")[0] or "folder")
    return readable(f"{setting.replace('_', '-')}-{flag_value(value)}")
