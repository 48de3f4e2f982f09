"""Section 5 of the paper: the probing classifiers, and Table 3."""

from helpers.lazy import lazy_submodules

__getattr__, __dir__ = lazy_submodules(__name__, __path__)
