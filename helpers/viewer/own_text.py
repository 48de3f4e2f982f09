"""A few sentences of one's own, to look at."""

from __future__ import annotations

import os

from helpers.data.treebank import OWN_TEXT, parsed_text
from helpers.model.encoder import DEFAULT, load
from helpers.store import format
from helpers.store.extract import extract
from helpers.store.store import Store

LONGEST = 512  # tokens of a sentence, where the model takes as many
KEPT = 20  # stores of own texts; those looked at longest ago make room


def read(text: str, *, model: str = DEFAULT, revision: str | None = None) -> Store:
    """Return the word-level maps of a text's sentences, with spaCy's parse of each.

    ``view(read("The keys to the cabinet are here."))`` shows them; ``model`` is what ``--model``
    takes.

    Raises:
        InputError: the text has no word, or the model cannot be loaded.
    """
    encoder = load(model, revision=revision)
    longest = min(encoder.max_length, LONGEST)
    store = extract(encoder, parsed_text(text), level="word", max_tokens=longest)
    if os.access(store.folder.parent, os.W_OK):
        os.utime(store.folder)
        _make_room()
    return store


def _make_room() -> None:
    """Remove the own texts that were looked at longest ago, but for those kept."""
    own = [folder for folder in format.stores() if f"--{OWN_TEXT}--" in folder.name]
    for folder in sorted(own, key=lambda folder: folder.stat().st_mtime)[:-KEPT]:
        format.remove(folder)
