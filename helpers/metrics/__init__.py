"""Sections 3, 4 and 6 of the paper: arrays and records in, tables out; knows no model."""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from helpers import store
from helpers.files import file_digests
from helpers.metrics.models import by_model, rows_of_model

CODE = store.CODE | file_digests(Path(__file__).parent)  # of cached results
__all__ = ["by_model", "rows_of_model", *(module.name for module in iter_modules(__path__))]


def __getattr__(name: str) -> ModuleType:
    """Import a module of this package when ``metrics.<name>`` is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return __all__
