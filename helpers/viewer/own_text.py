"""A few sentences of one's own, to look at."""

from __future__ import annotations

from helpers.data.treebank import parsed_text
from helpers.model.encoder import DEFAULT, load
from helpers.store.extract import extract
from helpers.store.store import Store

LONGEST = 512  # tokens of a sentence, where the model takes as many


def read(text: str, *, model: str = DEFAULT, revision: str | None = None) -> Store:
    """Return the word-level maps of a text's sentences, with spaCy's parse of each.

    ``view(read("The keys to the cabinet are here."))`` shows them; ``model`` is what ``--model``
    takes.  InputError where the text has no word, or the model cannot be loaded.
    """
    encoder = load(model, revision=revision)
    longest = min(encoder.max_length, LONGEST)
    return extract(encoder, parsed_text(text), level="word", max_tokens=longest)
