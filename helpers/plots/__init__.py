"""Tables in, matplotlib figures out."""

from helpers.lazy import lazy_submodules

__getattr__, __dir__ = lazy_submodules(__name__, __path__)
