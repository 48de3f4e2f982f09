"""Tables in, matplotlib figures out."""

from helpers.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __path__)
