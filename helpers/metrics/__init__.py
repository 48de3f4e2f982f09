"""Sections 3, 4 and 6 of the paper: arrays and records in, tables out; knows no model."""

from helpers.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __path__)
