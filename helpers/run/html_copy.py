"""The HTML copy of an executed notebook: one file that loads nothing from anywhere."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat

from helpers.paths import write_whole

if TYPE_CHECKING:
    from nbconvert import HTMLExporter


def write_html(path: Path) -> Path:
    """Write the HTML copy of an executed notebook beside it, and return its path."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.pop("widgets", None)  # a live widget is blank without its kernel
    body, _ = _exporter().from_notebook_node(notebook)
    copy = path.with_suffix(".html")
    write_whole(copy, re.sub(r'<script src=""[^>]*></script>', "", body).encode())
    return copy


@cache
def _exporter() -> HTMLExporter:
    """Return the one exporter of this process: making its templates takes longer than a copy."""
    from nbconvert import HTMLExporter

    return HTMLExporter(
        template_name="lab", require_js_url="", mathjax_url="", mermaid_js_url="", embed_images=True
    )
