"""Run settings.  There are no heavy imports, so that the command line starts fast."""

import os
import re
from dataclasses import Field, dataclass, field, fields
from typing import Any, cast

from helpers.errors import InputError

NO_LIMIT = "all"  # how the command line and papermill write a size of None
MAX_NUMBER = 10**9  # NumPy takes seeds below 2**32, and a run adds up to three of its own
INITIALISATIONS = 2  # of the model with random weights, for the control of section 5
FORMATS = ("png", "svg", "pdf")  # of figures
RUN_NAME = re.compile(r"|[^\W_][\w.+-]{0,59}")  # empty: it is made from the settings
# A run cannot have the name of another folder of ``build/``, or of a column of compared runs.
RESERVED_NAMES = (
    "book", "book-doctrees", "book-source", "compare", "student",
    "claim", "paper", "relation", "section",
)  # fmt: skip


def _flag(default: Any, help_text: str, **limits: Any) -> Any:
    """Declare a setting: its default, its help and its limits.

    A number has a ``minimum``; None means "no limit" for one that is ``unlimited``.  ``quick`` and
    ``small`` are its upper limits in these presets, for teaching and for the tests of notebooks.
    A text may have ``choices``; one that ``is_path`` holds a path, or several with commas between
    them, or the name of a corpus.  ``execution`` says that the setting changes no result.
    """
    return field(default=default, metadata={"help": help_text, **limits})


@dataclass(frozen=True)
class Settings:
    """Settings of a run: its model, corpora, sizes, and how it is executed.

    The command line has a flag for each.  A size of None has no limit; the text "all" is read as
    None, because papermill passes on text.  A path may be a `pathlib.Path`, and a number may be one
    of NumPy's.

    Raises
    ------
    InputError
        For a value of the wrong type or out of bounds; the message names the flag.
    """

    model: str = _flag(
        "minilm", "minilm (bundled), mpnet or smollm2 (extras), a local folder, or a hub name"
    )
    revision: str | None = _flag(None, "hub revision: a branch, tag or commit")
    random_init: int | None = _flag(
        None,
        "a seed: keep the embeddings, re-initialise all other weights (a control)",
        minimum=0,
    )
    text: str = _flag(
        "",
        "text file, or folder of .txt and .md (default: bundled sample)",
        is_path=True,
    )
    treebank: str = _flag(
        "",
        "corpus name, file, folder or TRAIN,DEV (default: automatic parses of the text)",
        is_path=True,
    )
    pairs: str = _flag(
        "",
        "file of labelled pairs of words, for section 4.2 in place of trees (00, 01, 04)",
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
    formats: str = _flag(
        "png", "formats of figures, such as png,svg,pdf; PNG is always written", execution=True
    )

    def __post_init__(self) -> None:
        preset = self.preset
        for setting in fields(self):
            value = _plain_value(getattr(self, setting.name))
            if "unlimited" in setting.metadata and value == NO_LIMIT:
                value = None
            if not _is_valid(setting, value):
                raise InputError(f"{flag(setting.name)} {value}: expected {_expected(setting)}")
            if preset in setting.metadata:
                value = capped(value, setting.metadata[preset])
            # The one change of a frozen object: it is still being made.
            object.__setattr__(self, setting.name, value)
        if not set(self.formats.split(",")) <= set(FORMATS):
            raise InputError(f"--formats {self.formats}: expected one or more of png,svg,pdf")
        if self.treebank and self.pairs:
            raise InputError("--pairs takes the place of --treebank; give one of them")
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


# Settings that change results.
RESULT_SETTINGS = [
    setting.name for setting in fields(Settings) if "execution" not in setting.metadata
]
# Settings that say how much is computed.
SIZES = [
    setting.name
    for setting in fields(Settings)
    if "quick" in setting.metadata or "unlimited" in setting.metadata
]
# Settings that hold paths.
PATH_SETTINGS = [setting.name for setting in fields(Settings) if "is_path" in setting.metadata]
# Settings that identify the model.
MODEL_SETTINGS = ("model", "random_init")


def default_settings() -> dict[str, Any]:
    """Collect the defaults of all settings, by name."""
    return {setting.name: setting.default for setting in fields(Settings)}


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


def _plain_value(value: Any) -> Any:
    """Convert a path, or a number of NumPy, to the text or the number that a setting holds."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    is_scalar = getattr(value, "ndim", None) == 0
    return value.item() if is_scalar else value


def _is_valid(setting: Field, value: Any) -> bool:
    """Tell whether a value has the type of its setting and is within its limits."""
    limits = setting.metadata
    is_bool = isinstance(value, bool)  # which is an int, too
    if not isinstance(value, cast("type", setting.type)) or is_bool != (setting.type is bool):
        return False
    if "choices" in limits:
        return value in limits["choices"]
    return value is None or "minimum" not in limits or limits["minimum"] <= value <= MAX_NUMBER


def _expected(setting: Field) -> str:
    """Describe the values that a setting can have."""
    limits = setting.metadata
    if "choices" in limits:
        return " or ".join(limits["choices"])
    if "minimum" in limits:
        number = f"a whole number from {limits['minimum']} to {MAX_NUMBER:,}"
        return f"{number}, or {NO_LIMIT}" if "unlimited" in limits else number
    return "True or False" if setting.type is bool else "text"
