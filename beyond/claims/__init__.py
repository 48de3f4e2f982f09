"""Statements of the paper, and how each is tested with the tables of a run.

`claims.toml` says which cell of a table a claim is about, and the threshold; `engine` tests claims,
and `display` words them.  Pages that do so are in `beyond/pages`.
"""
