"""Run settings.  There are no heavy imports, so that the command line starts fast."""

import os
import re
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, cast

from helpers.errors import InputError

NO_LIMIT = "all"  # how the command line and papermill write a size of None
UNLIMITED = ("segments", "sentences", "gradient_segments")  # may be None
MINIMUM = {
    "random_init": 0,
    "segments": 2,
    "sentences": 2,
    "gradient_segments": 2,
    "max_tokens": 8,
    "minimum_count": 1,
    "seeds": 1,
    "seed": 0,
    "workers": 0,
}
MAX_NUMBER = 10**9  # NumPy takes seeds below 2**32, and a run adds up to three of its own
# Upper limits of --quick, for a class and for the tests of notebooks.
QUICK = {"segments": 24, "sentences": 120, "gradient_segments": 8, "minimum_count": 10, "seeds": 1}
CHOICES = {"dtype": ("float32", "float16", "bfloat16"), "lens": ("attention", "norm")}
INITIALISATIONS = 2  # of the model with random weights, for the control of section 5
FORMATS = ("png", "svg", "pdf")  # of figures
MODEL_SETTINGS = ("model", "random_init")  # identify the model
# A path, or several with commas between them, or the name of a corpus.
PATH_SETTINGS = ("text", "treebank", "pairs", "coref", "vectors")
EXECUTION_SETTINGS = ("device", "stream", "workers", "scheduler", "name", "formats")  # no result
RUN_NAME = re.compile(r"|[^\W_][\w.+-]{0,59}")  # empty: it is made from the settings
# A run cannot have the name of another folder of ``build/``, or of a column of compared runs.
RESERVED_NAMES = (
    "book", "book-doctrees", "book-source", "compare", "student",
    "claim", "paper", "relation", "section",
)  # fmt: skip


def _setting(default: Any, help_text: str) -> Any:
    return field(default=default, metadata={"help": help_text})


@dataclass(frozen=True)
class Settings:
    """Settings of a run: its model, corpora, sizes, and how it is executed.

    The command line has a flag for each.  A size of None has no limit.  `make_settings` makes them
    from what a user gives.

    Raises
    ------
    InputError
        For a value of the wrong type or out of bounds; the message names the flag.
    """

    model: str = _setting(
        "minilm", "minilm (bundled), mpnet or smollm2 (extras), a local folder, or a hub name"
    )
    revision: str | None = _setting(None, "hub revision: a branch, tag or commit")
    random_init: int | None = _setting(
        None, "a seed: keep the embeddings, re-initialise all other weights (a control)"
    )
    text: str = _setting("", "text file, or folder of .txt and .md (default: bundled sample)")
    treebank: str = _setting(
        "", "corpus name, file, folder or TRAIN,DEV (default: automatic parses of the text)"
    )
    pairs: str = _setting(
        "", "file of labelled pairs of words, for section 4.2 in place of trees (00, 01, 04)"
    )
    parser: str = _setting(
        "", "installed spaCy pipeline for automatic parses (default: an English one, bundled)"
    )
    coref: str = _setting(
        "", "corpus name, file or folder of coreference (default: bundled sample)"
    )
    vectors: str = _setting("", "GloVe text file (default: glove.6B.50d)")
    segments: int | None = _setting(1000, "segments of two paragraphs to sample ('all': no limit)")
    sentences: int | None = _setting(2000, "treebank sentences to sample ('all': no limit)")
    gradient_segments: int | None = _setting(
        128, "segments for the gradients of section 3.2 ('all': no limit)"
    )
    max_tokens: int = _setting(128, "largest number of tokens of an example")
    minimum_count: int = _setting(100, "smallest number of words of a relation in Table 1")
    seeds: int = _setting(3, "number of training runs of each probe, or of the encoder (09)")
    seed: int = _setting(0, "random seed of every sample and training run")
    quick: bool = _setting(
        False, "for a class: at most 24 segments, 120 sentences, one seed, and other small sizes"
    )
    device: str = _setting("auto", "cpu, cuda, mps or auto")
    dtype: str = _setting("float32", "float32, float16 or bfloat16 for the forward pass")
    lens: str = _setting(
        "attention",
        "attention (the weights), or norm (weights times value vectors, Kobayashi 2020)",
    )
    stream: bool = _setting(
        False, "compute the maps of sections 3 and 6 when they are read; store none"
    )
    workers: int = _setting(0, "number of local Dask processes for extraction (0: none)")
    scheduler: str = _setting(
        "", "address of a Dask cluster with the same cache folder (tcp://...)"
    )
    name: str = _setting("", "name of the results folder (default: the model and what differs)")
    formats: str = _setting("png", "formats of figures, such as png,svg,pdf; PNG is always written")

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if not _is_valid(setting, value):
                raise InputError(f"{flag(setting.name)} {value}: expected {_expected(setting)}")
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
    def control_segments(self) -> int:
        """The number of segments for the controls of sections 3 and 6."""
        return 12 if self.quick else 100


# Settings that change results.
RESULT_SETTINGS = [
    setting.name for setting in fields(Settings) if setting.name not in EXECUTION_SETTINGS
]


def make_settings(**values: Any) -> Settings:
    """Make the settings of a run from what a user gives.

    Parameters
    ----------
    **values
        The settings that differ from the defaults.  A path may be a `pathlib.Path`, a number one of
        NumPy's, and a size "all", because papermill passes on text.  ``quick`` or the environment
        variable ``ATTENTION_PROFILE=quick`` limits sizes.

    Returns
    -------
    Settings

    Raises
    ------
    InputError
        For a value of the wrong type or out of bounds; the message names the flag.
    """
    settings = Settings(**{name: _plain_value(name, value) for name, value in values.items()})
    if not (settings.quick or quick_profile()):
        return settings
    sizes = {name: capped(getattr(settings, name), cap) for name, cap in QUICK.items()}
    return replace(settings, quick=True, **sizes)


def default_settings() -> dict[str, Any]:
    """Collect the defaults of all settings, by name."""
    return {setting.name: setting.default for setting in fields(Settings)}


def capped(size: int | None, cap: int) -> int:
    """Compute the smaller of a size and a cap; a size of None has no limit."""
    return cap if size is None else min(size, cap)


def quick_profile() -> bool:
    """Tell whether the environment makes every run a quick one, as the tests of notebooks do."""
    return os.environ.get("ATTENTION_PROFILE") == "quick"


def flag(setting: str) -> str:
    """Write the name of a setting as its flag of the command line."""
    return f"--{setting.replace('_', '-')}"


def _plain_value(name: str, value: Any) -> Any:
    """Convert a path, a number of NumPy or "all" to the value that a setting holds."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if name in UNLIMITED and value == NO_LIMIT:
        return None
    is_scalar = getattr(value, "ndim", None) == 0
    return value.item() if is_scalar else value


def _is_valid(setting: Field, value: Any) -> bool:
    """Tell whether a value has the type of its setting and is within its limits."""
    is_bool = isinstance(value, bool)  # which is an int, too
    if not isinstance(value, cast("type", setting.type)) or is_bool != (setting.type is bool):
        return False
    if setting.name in CHOICES:
        return value in CHOICES[setting.name]
    if value is None or setting.name not in MINIMUM:
        return True
    return MINIMUM[setting.name] <= value <= MAX_NUMBER


def _expected(setting: Field) -> str:
    """Describe the values that a setting can have."""
    if setting.name in CHOICES:
        return " or ".join(CHOICES[setting.name])
    if setting.name in MINIMUM:
        number = f"a whole number from {MINIMUM[setting.name]} to {MAX_NUMBER:,}"
        return f"{number}, or {NO_LIMIT}" if setting.name in UNLIMITED else number
    return "True or False" if setting.type is bool else "text"
