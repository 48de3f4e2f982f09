"""Names of a package that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any


def lazy_names(
    package: str, path: Iterable[str] = (), **sources: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the functions ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package : str
        The full name of the package.
    path : iterable of str, optional
        Its ``__path__``, if all modules there are names of the package.
    **sources : str
        Where each further name is: "package.module" or "package.module:name".

    Returns
    -------
    get_attribute, list_names : callable
    """
    for module in pkgutil.iter_modules(path):
        sources[module.name] = f"{package}.{module.name}"

    def get_attribute(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"{package} has no {name!r}; it has {', '.join(sorted(sources))}")
        return pkgutil.resolve_name(sources[name])

    return get_attribute, partial(sorted, sources)
