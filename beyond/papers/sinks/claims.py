"""Claims about what attention moves (Kobayashi et al. 2020, and our own), and about sinks.

Each special token has claims of its own, and so has the first token of a model without [CLS].
"The layers that attend to special tokens most" are those in which all of these together get over a
quarter of the attention.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from beyond.claims.claim import read_claims
from beyond.claims.estimates import TestedEstimate
from beyond.claims.tables import Tables, estimate_in, rows_where


def largest_ratio(tables: Tables, token: str) -> TestedEstimate:
    """Find the largest ratio of norm to attention of a token among the single layers."""
    rows = rows_where(tables, "special_tokens", token=token)
    layers = rows[rows["layer"].astype(str).str.isdigit()]
    return estimate_in(layers.sort_values("ratio", na_position="first").iloc[-1], "ratio")


MEASURES = {
    "kobayashi-lens-cls-every-layer": partial(largest_ratio, token="cls"),
    "kobayashi-lens-sep-every-layer": partial(largest_ratio, token="sep"),
}
CLAIMS = read_claims(Path(__file__).with_suffix(".toml"), MEASURES)
