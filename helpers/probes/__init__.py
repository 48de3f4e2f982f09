"""Section 5 of the paper: the probing classifiers, and Table 3."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=[
        "bilinear",
        "data",
        "distances",
        "linear",
        "structural",
        "table3",
        "training",
    ],
)
