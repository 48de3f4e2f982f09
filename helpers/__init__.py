"""What Does BERT Look At? (Clark et al., 2019) on any encoder and any corpus.

`Study` has the settings, the model, the maps and the results of a run.  `load_encoder` loads a
model, and `open_store` opens a folder of attention maps.  ``metrics``, ``probes`` and ``plots``
are the functions of the notebooks.  Everything is imported when it is first used.

``data`` reads text and annotations, ``model`` and ``store`` turn them into attention maps,
``metrics``, ``probes`` and ``claims`` turn maps into tables, and ``plots`` turns tables into
figures.  Imports run in that direction only; README.md has the whole map.
"""

from helpers.lazy import lazy_names

__all__ = [
    "Settings",
    "Study",
    "describe_store",
    "head_grid",
    "load_encoder",
    "metrics",
    "open_store",
    "plots",
    "probes",
    "show_claims",
]
__version__ = "0.1.0"
__getattr__, __dir__ = lazy_names(
    __name__,
    Settings="helpers.settings:Settings",
    Study="helpers.study:Study",
    describe_store="helpers.study:describe_store",
    head_grid="helpers.study:head_grid",
    load_encoder="helpers.model.encoder:load",
    metrics="helpers.metrics",
    open_store="helpers.store.store:Store",
    plots="helpers.plots",
    probes="helpers.probes",
    show_claims="helpers.study:show_claims",
)
