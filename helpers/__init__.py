"""What Does BERT Look At? (Clark et al., 2019) on any encoder and any corpus.

``data`` reads text and annotations, ``model`` and ``store`` turn them into attention maps,
``metrics``, ``probes`` and ``claims`` turn maps into tables, and ``plots`` turns tables into
figures.  Imports run in that direction only; README.md has the whole map.
"""
