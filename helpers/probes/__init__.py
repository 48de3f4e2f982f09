"""Section 5 of the paper: the probing classifiers, and Table 3."""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from helpers import metrics
from helpers.files import file_digests

CODE = metrics.CODE | file_digests(Path(__file__).parent)  # of cached results
__all__ = [module.name for module in iter_modules(__path__)]


def __getattr__(name: str) -> ModuleType:
    """Import a module of this package when ``probes.<name>`` is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return __all__
