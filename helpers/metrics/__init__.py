"""Sections 3, 4 and 6 of the paper: arrays and records in, tables out; knows no model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=[
        "clustering",
        "coreference",
        "dependency_heads",
        "head_counts",
        "head_distance",
        "heads",
        "paper_heads",
        "reference",
        "silver_parses",
        "statistics",
        "surface",
    ],
)
