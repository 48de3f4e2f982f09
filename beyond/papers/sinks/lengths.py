"""Does a sink grow with the input?  Section 3's measures on long texts, cut to several lengths.

The maps of the longer texts do not fit into memory.  They come in blocks of rows, which are dropped
when they have been measured (`beyond.long_texts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float

from beyond.long_texts import long_text_measures
from beyond.papers.common.classifier import text_inputs
from beyond.papers.common.edge_cuts import Cut
from beyond.papers.common.statistics import mean_interval
from beyond.papers.sinks import CODE
from beyond.papers.sinks.lenses import ALL_LAYERS
from helpers.cache import cached
from helpers.data.text_files import existing_file
from helpers.data.wikipedia import Article, articles
from helpers.errors import InputError
from helpers.metrics.heads import head_label
from helpers.model.loading import Model
from helpers.store.extract import BLANK_LINE

LENGTHS = (128, 512, 2048, 4096)  # tokens
QUICK_LENGTHS = (64, 128, 256)
TEXTS = 5

ByHead = Mapping[str, Float[np.ndarray, "text layer head"]]


def long_texts(path: Path) -> list[Article]:
    """List the longest articles of a corpus: `TEXTS` of them."""
    by_length = sorted(articles(path), key=lambda article: -sum(map(len, article.paragraphs)))
    return by_length[:TEXTS]


def whole_text(path: str) -> list[Article]:
    """Read a file or a folder of a user as a single text."""
    file = existing_file(path)
    paragraphs = [paragraph for article in articles(file) for paragraph in article.paragraphs]
    return [Article(file.name, tuple(paragraphs))]


def length_table(
    encoder: Model,
    texts: Sequence[Article],
    group: tuple[int, ...],
    lengths: Sequence[int] = LENGTHS,
) -> pd.DataFrame:
    """Measure the sink on the beginnings of some texts, at several lengths.

    Parameters
    ----------
    encoder : Model
        The model.
    texts : sequence of Article
        Each is its paragraphs, with blank lines between them.
    group : tuple of int
        The layers of the sink, from 0, which have a row of their own.
    lengths : sequence of int
        Numbers of tokens, special tokens included.  Those that the model does not take are left
        out, and so is a text that is shorter.

    Returns
    -------
    DataFrame
        The table sink_lengths.csv.  A row for each length and layer ("1", ..., the group, "all"),
        with the number of ``texts`` and means over texts and heads: ``first``, the share of
        attention on the first token; ``uniform_first``, that of uniform attention;
        ``relative_entropy``, the entropy over that of uniform attention; ``previous_head``, the
        share of the previous token in the head (``head``) that has most of it in the shortest
        texts.  Bounds end in _low and _high: Student's t over texts.

    Raises
    ------
    InputError
        If no length is left.
    ModelError
        If the model cannot compute its maps in blocks.
    """
    joined = [BLANK_LINE.join(text.paragraphs) for text in texts]

    def compute() -> pd.DataFrame:
        rows = []
        chosen = None  # by row: the head that has most of the previous token
        for length in [length for length in lengths if length <= encoder.max_length]:
            measured = []
            for (inputs,) in (text_inputs(encoder, [(text,)], length) for text in joined):
                tokens = encoder.tokenizer.convert_ids_to_tokens(inputs["input_ids"])
                if len(tokens) == length:
                    measured.append(long_text_measures(encoder, tokens, inputs))
            if measured:
                values = {name: np.stack([text[name] for text in measured]) for name in measured[0]}
                chosen = values["previous"].mean(axis=0) if chosen is None else chosen
                rows += length_rows(values, chosen, group, length)
        if not rows:
            raise InputError(f"the texts or the model have fewer than {min(lengths)} tokens")
        return pd.DataFrame(rows)

    key = {"model": encoder.key, "texts": joined, "lengths": list(lengths), "layers": list(group)}
    return cached("sink-lengths", compute, inputs=key, code=CODE)


def length_rows(
    values: ByHead,
    previous: Float[np.ndarray, "layer head"],
    group: tuple[int, ...],
    length: int,
) -> list[dict[str, object]]:
    """Make the rows of one length, see `length_table`.

    Parameters
    ----------
    values : mapping of str to array, shape (text, layer, head)
        The measures of section 3.
    previous : array
        The share of the previous token in the shortest texts, by which the head is chosen.
    group : tuple of int
        The layers of the sink.
    length : int
        Number of tokens.
    """
    n_layers = len(previous)
    layers_by_name = {str(layer + 1): [layer] for layer in range(n_layers)}
    if group:
        layers_by_name[Cut(group).name] = list(group)
    layers_by_name[ALL_LAYERS] = list(range(n_layers))
    rows = []
    for name, layers in layers_by_name.items():
        head = np.unravel_index(previous[layers].argmax(), previous[layers].shape)
        layer, number = layers[int(head[0])], int(head[1])
        measures = {column: values[column][:, layers] for column in ("first", "uniform_first")}
        measures["relative_entropy"] = (values["entropy"] / values["uniform"])[:, layers]
        measures["previous_head"] = values["previous"][:, layer, number]
        row: dict[str, object] = {
            "tokens": length,
            "layer": name,
            "head": head_label(layer, number),
            "texts": len(values["first"]),
        }
        for column, by_text in measures.items():
            means = by_text.reshape(len(by_text), -1).mean(axis=1)
            row |= mean_interval(means).columns(column, df=True)
        rows.append(row)
    return rows
