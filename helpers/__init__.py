"""What Does BERT Look At? (Clark et al., 2019) on encoders and decoders, and on any corpus.

`read` computes the attention maps of a text, and `view` shows them.  `open_maps` takes the maps of
another tool, and `open_store` opens a folder of maps.  `load_model` loads a model, and
`remove_heads` removes heads from it.  `Study` has the settings, the model, the maps and the results
of a run.
``metrics``, ``probes`` and ``plots`` are the functions of the notebooks.  Each name is imported
when it is first used.

``data`` reads text and annotations, ``model`` and ``store`` turn them into attention maps,
``metrics``, ``probes`` and ``claims`` turn maps into tables, and ``plots`` turns tables into
figures.  Imports run in that direction only; README.md has the whole map.
"""

from importlib import import_module
from typing import Any

__version__ = "1.0.0"

# The public names, and the module that has each; a subpackage is a name itself.
_SUBPACKAGES = ("metrics", "plots", "probes")
_MODULES = {
    "Settings": "helpers.settings",
    "Study": "helpers.study",
    "describe_store": "helpers.study",
    "head_grid": "helpers.study",
    "load_model": "helpers.model.loading",
    "open_maps": "helpers.store.maps",
    "open_store": "helpers.store.store",
    "read": "helpers.viewer.view",
    "remove_heads": "helpers.model.forward",
    "view": "helpers.viewer.view",
}
__all__ = [*_MODULES, *_SUBPACKAGES]


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: the command line starts without PyTorch."""
    if name in _SUBPACKAGES:
        return import_module(f"helpers.{name}")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
