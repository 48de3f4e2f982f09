"""Attention maps of a few sentences that a user types."""

from __future__ import annotations

from pathlib import Path

from helpers.data.treebank import parsed_text
from helpers.model.loading import DEFAULT, load_model
from helpers.store.extract import ComputedStore, fill, in_temporary_folder, list_examples
from helpers.store.store import Store, store_inputs


def read(text: str, *, model: str = DEFAULT, parser: str = "") -> Store:
    """Parse a text with spaCy and compute the word-level attention maps of its sentences.

    ``view(read("The keys to the cabinet are here."))`` shows them.  The text and its maps are in a
    temporary folder, which is removed together with the store; the cache keeps nothing of them.

    Parameters
    ----------
    text
        One or more sentences.
    model
        Name or folder of a model, as for ``--model``.
    parser
        Name of an installed spaCy pipeline, such as ``de_core_news_sm`` for a German text; by
        default the bundled English one.

    Returns
    -------
    Store
        One example per sentence, with the parse in its record.

    Raises
    ------
    InputError
        If the text has no word or is not English and no parser is named, or if the model or the
        parser cannot be loaded.
    """
    corpus = parsed_text(text, parser)
    encoder = load_model(model)
    # Of a sentence, if the model takes as many.
    inputs = store_inputs(encoder.key, corpus, level="word", max_tokens=512)

    def make(folder: Path) -> Store:
        list_examples(folder, encoder, corpus, inputs)
        return fill(ComputedStore(folder, encoder))

    return in_temporary_folder(make)
