"""Run settings.  There are no heavy imports, so that the command line starts fast."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import Field, dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any

from helpers.errors import InputError

# The declarations of the settings that only studies of later papers use, by name.
LATER_SETTINGS: dict[str, dict[str, Any]] = {}
for _path in sorted(Path(__file__).parent.glob("studies/*/settings.toml")):
    LATER_SETTINGS |= tomllib.loads(_path.read_text(encoding="utf-8"))

NO_LIMIT = "all"  # how the command line and papermill write a size of None
MAX_NUMBER = 10**9  # NumPy takes seeds below 2**32, and a run adds up to three of its own
RUN_NAME = re.compile(r"|[^\W_][\w.+-]{0,59}")  # empty: it is made from the settings
# A run cannot have the name of the folder of comparisons, or of a column of their tables.
RESERVED_NAMES = ("compare", "section", "claim", "paper", "relation")


def _flag(default: Any, help_text: str, **limits: Any) -> Any:
    """Declare a setting: its default, its help and its limits.

    A number has a ``minimum``; None means "no limit" for one that is ``unlimited``.  ``quick`` and
    ``small`` are its upper limits in these presets, for teaching and for the tests of notebooks.
    A text may have ``choices``; one that ``is_path`` holds a path, or several with commas between
    them, or the name of a corpus.  ``execution`` says that the setting changes no result.
    """
    return field(default=default, metadata={"help": help_text, **limits})


@dataclass(frozen=True)
class _PaperSettings:
    """Settings of a run: its model, corpora, sizes, and how it is executed.

    The command line has a flag for each, and `_flag` has its meaning.  A size of None has no
    limit; the text "all" is read as None, because papermill passes on text.

    Raises
    ------
    InputError
        For a value of the wrong type or out of bounds; the message names the flag.
    """

    model: str = _flag(
        "minilm", "minilm (bundled), mpnet (an extra), a local folder, or a hub name"
    )
    revision: str | None = _flag(None, "hub revision: a branch, tag or commit")
    random_init: int | None = _flag(
        None,
        "a seed: keep the embeddings, re-initialise all other weights (a control)",
        minimum=0,
    )
    entropy_matched: bool = _flag(
        False, "with random_init: give each head the trained one's mean entropy"
    )
    text: str = _flag(
        "",
        "Wikipedia dump, text file, or folder of .txt and .md (default: bundled sample)",
        is_path=True,
    )
    treebank: str = _flag(
        "",
        "corpus name, file, folder or TRAIN,DEV (default: automatic parses of the text)",
        is_path=True,
    )
    parser: str = _flag(
        "", "installed spaCy pipeline for automatic parses (default: an English one, bundled)"
    )
    coref: str = _flag(
        "", "corpus name, file or folder of coreference (default: bundled sample)", is_path=True
    )
    vectors: str = _flag("", "GloVe text file (default: glove.6B.50d)", is_path=True)
    segments: int | None = _flag(
        1000,
        "segments of two paragraphs to sample ('all': no limit)",
        minimum=2,
        unlimited=True,
        quick=40,
        small=12,
    )
    sentences: int | None = _flag(
        2000,
        "treebank sentences to sample ('all': no limit)",
        minimum=2,
        unlimited=True,
        quick=240,
        small=80,
    )
    gradient_segments: int | None = _flag(
        128,
        "segments for the gradients of section 3.2 ('all': no limit)",
        minimum=2,
        unlimited=True,
        quick=16,
        small=4,
    )
    max_tokens: int = _flag(128, "largest number of tokens of an example", minimum=8, small=64)
    minimum_count: int = _flag(
        100, "smallest number of words of a relation in Table 1", minimum=1, quick=20, small=10
    )
    seeds: int = _flag(
        3,
        "number of training runs of each probe, or of the encoder (09)",
        minimum=1,
        quick=1,
        small=1,
    )
    seed: int = _flag(0, "random seed of every sample and training run", minimum=0)
    quick: bool = _flag(
        False, "for a class: at most 40 segments, 240 sentences, one seed", execution=True
    )
    device: str = _flag("auto", "cpu, cuda, mps or auto", execution=True)
    dtype: str = _flag(
        "float32",
        "float32, float16 or bfloat16 for the forward pass",
        choices=("float32", "float16", "bfloat16"),
    )
    lens: str = _flag(
        "attention",
        "attention (the weights), or norm (weights times value vectors, Kobayashi 2020)",
        choices=("attention", "norm"),
    )
    task: str = _flag(
        "",
        "TRAIN.tsv,TEST.tsv for fine-tuning (default: from the text), and in 02 for a classifier",
        is_path=True,
    )
    stream: bool = _flag(
        False, "compute the maps of sections 3 and 6 when they are read; store none", execution=True
    )
    workers: int = _flag(
        0, "number of local Dask processes for extraction (0: none)", minimum=0, execution=True
    )
    scheduler: str = _flag(
        "", "address of a Dask cluster with the same cache folder (tcp://...)", execution=True
    )
    name: str = _flag(
        "", "name of the results folder (default: the model and what differs)", execution=True
    )
    figures: str = _flag(
        "",
        "pdf: also write figures as PDF for papers (no title, fonts embedded)",
        choices=("pdf", ""),
        execution=True,
    )
    latex: bool = _flag(False, "also write tables as LaTeX for papers (booktabs)", execution=True)

    def __post_init__(self) -> None:
        preset = self.preset
        for setting in fields(self):
            value = getattr(self, setting.name)
            if "unlimited" in setting.metadata and value == NO_LIMIT:
                value = None
            _check(setting, value)
            if preset in setting.metadata:
                value = capped(value, setting.metadata[preset])
            # The one change of a frozen object: it is still being made.
            object.__setattr__(self, setting.name, value)
        if self.entropy_matched and self.random_init is None:
            raise InputError("--entropy-matched needs --random-init SEED; give a seed")
        if self.name in RESERVED_NAMES or not RUN_NAME.fullmatch(self.name):
            raise InputError(
                f"--name {self.name}: expected the name of one folder: at most 60 letters, digits, "
                f". _ + -, and none of {', '.join(RESERVED_NAMES)}"
            )

    @property
    def preset(self) -> str:
        """The preset whose upper limits hold in this run, "quick" or "small"; empty: none."""
        if small_profile():
            return "small"
        return "quick" if self.quick else ""

    @property
    def control_segments(self) -> int:
        """The number of segments for the controls of sections 3 and 6."""
        return 12 if self.preset else 100  # 40 + 2 x 12: the kernel of distances need not compile

    @property
    def initialisations(self) -> int:
        """The number of models with random weights for the control of section 5."""
        return 2 if self.preset else 3


_later_fields = []
for _name, _declaration in LATER_SETTINGS.items():
    _type = type(_declaration["default"]).__name__
    if "unlimited" in _declaration:
        _type += " | None"
    _later_fields.append((_name, _type, _flag(**_declaration)))
# The settings of the paper's notebooks and of the studies of later papers, as one dataclass.
Settings = make_dataclass(
    "Settings",
    _later_fields,
    bases=(_PaperSettings,),
    namespace={"__doc__": _PaperSettings.__doc__, "__module__": __name__},
    frozen=True,
)

# Settings that change results, that say how much is computed, that hold paths, and that identify
# the model.
RESULT_SETTINGS = [
    setting.name for setting in fields(Settings) if "execution" not in setting.metadata
]
SIZES = [
    setting.name
    for setting in fields(Settings)
    if not {"quick", "unlimited"}.isdisjoint(setting.metadata)
]
PATH_SETTINGS = [setting.name for setting in fields(Settings) if "is_path" in setting.metadata]
MODEL_SETTINGS = ("model", "random_init", "entropy_matched")


def capped(size: int | None, cap: int) -> int:
    """Compute the smaller of a size and a cap; a size of None has no limit."""
    return cap if size is None else min(size, cap)


def small_profile() -> bool:
    """Tell whether this is the small profile, for sizes that no setting has."""
    return os.environ.get("ATTENTION_PROFILE") == "small"


def flag(setting: str) -> str:
    """Write the name of a setting as its flag of the command line."""
    return f"--{setting.replace('_', '-')}"


def flag_value(value: object) -> str:
    """Write the value of a setting as the command line takes it."""
    return NO_LIMIT if value is None else str(value)


def _check(setting: Field, value: object) -> None:
    """Raise InputError unless a value has the type, and is within the limits, of its setting."""
    type_name = setting.type.removesuffix(" | None")
    limits = setting.metadata
    if value is None and type_name != setting.type:
        return
    is_valid = type(value).__name__ == type_name
    if type_name == "int":
        is_valid = is_valid and limits["minimum"] <= value <= MAX_NUMBER
        expected = f"a whole number from {limits['minimum']} to {MAX_NUMBER:,}"
        if "unlimited" in limits:
            expected += f", or {NO_LIMIT}"
    elif "choices" in limits:
        is_valid = value in limits["choices"]
        expected = " or ".join(choice or "nothing" for choice in limits["choices"])
    else:
        expected = "text" if type_name == "str" else "True or False"
    if not is_valid:
        raise InputError(f"{flag(setting.name)} {value}: expected {expected}")
