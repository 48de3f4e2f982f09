"""Tables in, matplotlib figures out."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=[
        "compare",
        "examples",
        "heads",
        "labels",
        "scores",
        "style",
    ],
)
