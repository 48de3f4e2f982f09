"""Tables in, matplotlib figures out."""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

__all__ = [module.name for module in iter_modules(__path__)]


def __getattr__(name: str) -> ModuleType:
    """Import a module of this package when ``plots.<name>`` is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return __all__
