"""Attention maps of a few sentences that a user types."""

from __future__ import annotations

from helpers.data.treebank import parsed_text
from helpers.model.encoder import DEFAULT, load_encoder
from helpers.store.extract import extract
from helpers.store.store import Store

MAX_TOKENS = 512  # of a sentence, if the model takes as many


def read(text: str, *, model: str = DEFAULT) -> Store:
    """Parse a text with spaCy and compute the word-level attention maps of its sentences.

    ``view(read("The keys to the cabinet are here."))`` shows them.

    Parameters
    ----------
    text
        One or more sentences.
    model
        Name or folder of a model, as for ``--model``.

    Returns
    -------
    Store
        One example per sentence, with the parse in its record.

    Raises
    ------
    InputError
        If the text has no word, or the model cannot be loaded.
    """
    encoder = load_encoder(model)
    max_tokens = min(encoder.max_length, MAX_TOKENS)
    return extract(encoder, parsed_text(text), level="word", max_tokens=max_tokens)
