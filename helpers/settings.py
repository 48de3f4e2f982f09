"""Run settings.  There are no heavy imports, so that the command line starts fast."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import Field, field, fields, make_dataclass
from pathlib import Path
from typing import Any

from helpers.errors import InputError

_HERE = Path(__file__).parent
# The declarations of the settings by name, and of those that only studies of later papers use.
PAPER_SETTINGS = tomllib.loads((_HERE / "settings.toml").read_text(encoding="utf-8"))
LATER_SETTINGS: dict[str, dict[str, Any]] = {}
for _path in sorted(_HERE.glob("studies/*/settings.toml")):
    LATER_SETTINGS |= tomllib.loads(_path.read_text(encoding="utf-8"))

NO_LIMIT = "all"  # how the command line and papermill write a size of None
MAX_NUMBER = 10**9  # NumPy takes seeds below 2**32, and a run adds up to three of its own
RUN_NAME = re.compile(r"|[^\W_][\w.+-]{0,59}")  # empty: it is made from the settings
# A run cannot have the name of the folder of comparisons, or of a column of their tables.
RESERVED_NAMES = ("compare", "section", "claim", "paper", "relation")


class _SettingsMethods:
    """Settings of a run: its model, corpora, sizes, and how it is executed.

    The files ``settings.toml`` declare them, and the command line has a flag for each.  A size of
    None has no limit; the text "all" is read as None, because papermill passes on text.

    Raises
    ------
    InputError
        For a value of the wrong type or out of bounds; the message names the flag.
    """

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


_DECLARATIONS = PAPER_SETTINGS | LATER_SETTINGS
Settings = make_dataclass(
    "Settings",
    [
        (name, declaration["type"], field(default=declaration.get("default"), metadata=declaration))
        for name, declaration in _DECLARATIONS.items()
    ],
    bases=(_SettingsMethods,),
    namespace={"__doc__": _SettingsMethods.__doc__, "__module__": __name__},
    frozen=True,
)

# Settings that change results, that say how much is computed, that hold paths, and that identify
# the model.
RESULT_SETTINGS = [name for name, limits in _DECLARATIONS.items() if "execution" not in limits]
SIZES = [
    name for name, limits in _DECLARATIONS.items() if not {"quick", "unlimited"}.isdisjoint(limits)
]
PATH_SETTINGS = [name for name, limits in _DECLARATIONS.items() if "is_path" in limits]
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
