"""Sections 3, 4 and 6 of the paper: arrays and records in, tables out; knows no model."""

import pkgutil

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submodules=[module.name for module in pkgutil.iter_modules(__path__)]
)
