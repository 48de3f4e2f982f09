"""What Does BERT Look At? (Clark et al., 2019) on any encoder and any corpus.

`Study` has the settings, the model, the maps and the results of a run.  `load_encoder` loads a
model, and `open_store` opens a folder of attention maps.  ``metrics``, ``probes`` and ``plots``
are the functions of the notebooks.  Everything is imported when it is first used.

``data`` reads text and annotations, ``model`` and ``store`` turn them into attention maps,
``metrics``, ``probes`` and ``claims`` turn maps into tables, and ``plots`` turns tables into
figures.  Imports run in that direction only; README.md has the whole map.
"""

import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=["metrics", "plots", "probes"],
    submod_attrs={
        "model.encoder": ["load_encoder"],
        "settings": ["Settings"],
        "store.store": ["open_store"],
        "study": ["Study", "describe_store", "head_grid", "show_claims"],
    },
)
