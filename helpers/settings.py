"""Run settings.  There are no heavy imports, so that the command line starts fast."""

import ast
import os
import re
from dataclasses import Field, dataclass, fields, replace
from typing import Any, cast

from helpers.errors import InputError

NO_LIMIT = "all"  # how the command line and papermill write a size of None
UNLIMITED = ("segments", "sentences", "gradient_segments")  # may be None
MAX_NUMBER = 10**9  # NumPy takes seeds below 2**32, and a run adds up to three of its own
# Upper limits of --quick, for a class and for the tests of notebooks.
QUICK = {"segments": 24, "sentences": 120, "gradient_segments": 8, "minimum_count": 10, "seeds": 1}
INITIALISATIONS = 2  # of the model with random weights, for the control of section 5
MODEL_SETTINGS = ("model", "random_init")  # identify the model
# A path, or several with commas between them, or the name of a corpus.
PATH_SETTINGS = ("text", "treebank", "pairs", "coref", "vectors")
EXECUTION_SETTINGS = ("device", "stream", "workers", "scheduler", "name", "formats")  # no result
# The smallest value of a number that cannot be 0, and the form of a text that cannot be any.
MINIMUM = dict.fromkeys(UNLIMITED, 2) | {"max_tokens": 8, "minimum_count": 1, "seeds": 1}
FORMS = {
    "dtype": "float32|float16|bfloat16",
    "lens": "attention|norm",
    "formats": r"((png|svg|pdf),?\b)+",
    "name": r"|[^\W_][\w.+-]{0,59}",  # one folder
}
# Names of other folders of ``build/``, and of columns of compared runs.
TAKEN_NAMES = r"book(-\w+)?|compare|student|screens|claim|paper|relation|section"


@dataclass(frozen=True)
class Settings:
    """Settings of a run: its model, corpora, sizes, and how it is executed.

    The command line has a flag for each; its help is the line below its name here.  A size of
    None has no limit.  `make_settings` makes settings from what a user gives.

    Attributes
    ----------
    model : str
        minilm (bundled), mpnet or smollm2 (extras), a local folder, or a hub name
    revision : str or None
        hub revision: a branch, tag or commit
    random_init : int or None
        a seed: re-initialise all weights but the embeddings
    text : str
        text file, or folder of .txt and .md (default: bundled sample)
    treebank : str
        corpus name, file, folder or TRAIN,DEV (default: automatic parses)
    pairs : str
        file of labelled pairs of words, for 4.2 in place of trees
    parser : str
        spaCy pipeline for automatic parses (default: English, bundled)
    coref : str
        corpus name, file or folder of coreference (default: bundled sample)
    vectors : str
        GloVe text file (default: glove.6B.50d)
    segments : int or None
        segments of two paragraphs to sample ('all': no limit)
    sentences : int or None
        treebank sentences to sample ('all': no limit)
    gradient_segments : int or None
        segments for the gradients of 3.2 ('all': no limit)
    max_tokens : int
        largest number of tokens of an example
    minimum_count : int
        smallest number of words of a relation in Table 1
    seeds : int
        number of training runs of each probe, or of the encoder (09)
    seed : int
        random seed of every sample and training run
    quick : bool
        for a class: at most 24 segments, 120 sentences, one seed, other small sizes
    device : str
        cpu, cuda, mps or auto
    dtype : str
        float32, float16 or bfloat16 for the forward pass
    lens : str
        attention, or norm (weight times values, Kobayashi 2020)
    stream : bool
        compute maps of sections 3 and 6 as they are read; store none
    workers : int
        number of local Dask processes for extraction (0: none)
    scheduler : str
        address (tcp://...) of a Dask cluster with the same cache folder
    name : str
        folder of results: letters, digits, . _ + - (default: see the model)
    formats : str
        formats of figures, such as png,svg,pdf; PNG is always written

    Raises
    ------
    InputError
        For a value of the wrong type or out of bounds; the message names the flag.
    """

    model: str = "minilm"
    revision: str | None = None
    random_init: int | None = None
    text: str = ""
    treebank: str = ""
    pairs: str = ""
    parser: str = ""
    coref: str = ""
    vectors: str = ""
    segments: int | None = 1000
    sentences: int | None = 2000
    gradient_segments: int | None = 128
    max_tokens: int = 128
    minimum_count: int = 100
    seeds: int = 3
    seed: int = 0
    quick: bool = False
    device: str = "auto"
    dtype: str = "float32"
    lens: str = "attention"
    stream: bool = False
    workers: int = 0
    scheduler: str = ""
    name: str = ""
    formats: str = "png"

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if not _is_valid(setting, value):
                least = MINIMUM.get(setting.name, 0)
                numbers = f"; numbers from {least} to {MAX_NUMBER:,}" if least else ""
                expected = f"expected {describe_setting(setting.name)}{numbers}"
                if isinstance(value, str) and _is_valid(setting, read_literal(value)):
                    expected = "this is text; leave out its quotes, and use papermill's -p, not -r"
                raise InputError(f"{flag(setting.name)} {value}: {expected}")
        if re.fullmatch(TAKEN_NAMES, self.name):
            raise InputError(f"--name {self.name}: the name is already taken; choose another one")
        if self.treebank and self.pairs:
            raise InputError("--pairs takes the place of --treebank; give one of them")

    @property
    def control_segments(self) -> int:
        """The number of segments for the controls of sections 3 and 6."""
        return 12 if self.quick else 100


# Settings that change results.
RESULT_SETTINGS = [
    setting.name for setting in fields(Settings) if setting.name not in EXECUTION_SETTINGS
]


def describe_setting(name: str) -> str:
    """Read the description of a setting from the docstring, which Python -OO leaves out."""
    description = re.search(rf"^    {name} : .*\n +(.*)", Settings.__doc__ or "", re.MULTILINE)
    return description[1] if description else name


def make_settings(**values: Any) -> Settings:
    """Make the settings of a run from what a user gives.

    Parameters
    ----------
    **values
        The settings that differ from the defaults.  A path may be a `pathlib.Path`, a number one of
        NumPy, and a size "all", because papermill passes on text.  ``quick`` or the environment
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
    if not settings.quick and os.environ.get("ATTENTION_PROFILE") != "quick":
        return settings
    sizes = {name: capped(getattr(settings, name), cap) for name, cap in QUICK.items()}
    return replace(settings, quick=True, **sizes)


def capped(size: int | None, cap: int) -> int:
    """Compute the smaller of a size and a cap; a size of None has no limit."""
    return cap if size is None else min(size, cap)


def read_literal(text: str) -> Any:
    """Read a number, True, False or None; any other text, such as "all", stays."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def flag(setting: str) -> str:
    """Write the name of a setting as its flag of the command line."""
    return f"--{setting.replace('_', '-')}"


def _plain_value(name: str, value: Any) -> Any:
    """Convert a path, a number of NumPy or "all" to the value that a setting holds."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if getattr(value, "ndim", None) == 0:  # of NumPy or torch, which take long to import
        return value.item()
    return None if name in UNLIMITED and value == NO_LIMIT else value


def _is_valid(setting: Field, value: Any) -> bool:
    """Tell whether a value has the type of its setting, and its form or its size."""
    is_bool = isinstance(value, bool)  # which is an int, too
    if not isinstance(value, cast("type", setting.type)) or is_bool != (setting.type is bool):
        return False
    if isinstance(value, str):
        return bool(re.fullmatch(FORMS.get(setting.name, ".*"), value, re.DOTALL))
    least = MINIMUM.get(setting.name, 0)
    return value is None or is_bool or least <= value <= MAX_NUMBER
