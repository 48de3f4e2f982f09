"""Names of a package that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def lazy_names(
    package: str, sources: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the functions ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package : str
        The full name of the package, for messages.
    sources : mapping of str to str
        Each name, and where it is: "package.module" or "package.module:name".

    Returns
    -------
    get_attribute, list_names : callable
    """

    def get_attribute(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"{package} has no {name!r}; it has {', '.join(sorted(sources))}")
        return pkgutil.resolve_name(sources[name])

    def list_names() -> list[str]:
        return sorted(sources)

    return get_attribute, list_names


def lazy_submodules(
    package: str, path: Iterable[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the functions ``__getattr__`` and ``__dir__`` of a package that has only modules.

    Parameters
    ----------
    package : str
        The full name of the package.
    path : iterable of str
        Its ``__path__``.

    Returns
    -------
    get_attribute, list_names : callable
    """
    modules = [module.name for module in pkgutil.iter_modules(path)]
    return lazy_names(package, {module: f"{package}.{module}" for module in modules})
