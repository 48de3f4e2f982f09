"""Does a sink grow with the input?  Section 3's measures on one text, cut to several lengths.

The maps of the longer texts do not fit into memory.  They come in blocks of rows, which are dropped
when they have been measured (`beyond.long_texts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from beyond.long_texts import long_text_measures
from beyond.papers.common.classifier import text_inputs
from beyond.papers.sinks import CODE
from helpers.cache import cached
from helpers.data.wikipedia import Article, articles
from helpers.errors import InputError
from helpers.metrics.heads import head_rows
from helpers.model.loading import Model
from helpers.store.examples import BLANK_LINE

LENGTHS = (128, 512, 2048, 4096)  # tokens
QUICK_LENGTHS = (64, 128, 256)
COLUMNS = ("first", "uniform_first", "entropy", "uniform", "previous")
LETTERS = 8  # of a token; few texts have more


def long_article(path: Path, length: int) -> Article:
    """Find the first article that is surely longer than a number of tokens, or the longest."""
    longest = Article("", ())
    for article in articles(path):
        if n_letters(article) > n_letters(longest):
            longest = article
        if n_letters(article) > LETTERS * length:
            break
    return longest


def n_letters(article: Article) -> int:
    """Count the letters of an article's paragraphs."""
    return sum(map(len, article.paragraphs))


def measures_by_length(
    encoder: Model, article: Article, lengths: Sequence[int] = LENGTHS
) -> pd.DataFrame:
    """Measure each head on the beginning of one text, at several lengths.

    Parameters
    ----------
    encoder : Model
        The model.
    article : Article
        The text: its paragraphs, with blank lines between them.
    lengths : sequence of int
        Numbers of tokens, special tokens included.  Those that the model does not take, or that the
        text does not reach, are left out.

    Returns
    -------
    DataFrame
        A row for each length and head.  Columns: ``tokens``; ``layer`` and ``head`` (from 1);
        ``first``, the share of the first token; ``uniform_first``, that of uniform attention;
        ``entropy`` and ``uniform`` (nats); ``previous``, the share of the previous token.

    Raises
    ------
    InputError
        If no length is left.
    ModelError
        If the model cannot compute its maps in blocks.
    """
    text = BLANK_LINE.join(article.paragraphs)

    def compute() -> pd.DataFrame:
        tables = []
        for length in lengths:
            (inputs,) = text_inputs(encoder, [(text,)], length)
            tokens = encoder.tokenizer.convert_ids_to_tokens(inputs["input_ids"])
            if len(tokens) < length or length > encoder.max_length:
                continue
            values = long_text_measures(encoder, tokens, inputs)
            columns = {name: values[name] for name in COLUMNS}
            table = head_rows(encoder.layers, encoder.heads, **columns)
            table.insert(0, "tokens", length)
            tables.append(table)
        if not tables:
            raise InputError(
                f"the text {article.title!r} or the model has fewer than {min(lengths)} tokens"
            )
        return pd.concat(tables, ignore_index=True)

    key = {"model": encoder.key, "text": text, "lengths": list(lengths)}
    return cached("sink-lengths", compute, inputs=key, code=CODE)
