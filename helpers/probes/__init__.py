"""Section 5 of the paper: the probing classifiers, and Table 3."""

from helpers.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __path__)
