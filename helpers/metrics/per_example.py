"""Measures of each example and head, for statistics of your own: large tables, shard by shard."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from helpers.data.records import cluster_of
from helpers.metrics.head_counts import is_right_pick, links_that_count, read_links
from helpers.metrics.heads import DIRECTIONS, PickFrom, head_rows, picks_in
from helpers.metrics.surface import example_values
from helpers.progress import progress
from helpers.store.store import Store, Text


def section_3(store: Store) -> Iterator[pd.DataFrame]:
    """Yield the measures of section 3 of each example and head, a table for each shard.

    Parameters
    ----------
    store : Store
        The maps.

    Yields
    ------
    DataFrame
        A row for each example and head.  Columns: ``example`` (from 0), ``article``, ``layer`` and
        ``head`` (from 1), and the measures of `helpers.metrics.surface.SECTION_3`.
    """
    for number in progress(range(store.n_shards), "section 3, each example", unit="shard"):
        parts = []
        for text in store.texts(number):
            values = example_values(text, store.special_tokens)
            columns = {name: value.astype(np.float32) for name, value in values.items()}
            table = head_rows(store.layers, store.heads, **columns)
            table.insert(0, "example", text.index)
            table.insert(1, "article", cluster_of(text.record, text.index))
            parts.append(table)
        yield pd.concat(parts, ignore_index=True)


def picks(store: Store) -> Iterator[pd.DataFrame]:
    """Yield the word that each head picks for each word and relation (4.2), a table for each shard.

    Parameters
    ----------
    store : Store
        Word-level maps of a treebank, or of pairs.

    Yields
    ------
    DataFrame
        A row for each question, direction and head, if the answer can be picked.  Columns:
        ``example`` (from 0), ``article``, ``split``, ``word`` (from 0), ``relation``,
        ``direction``, ``layer`` and ``head`` (from 1), ``picked`` (from 0; the word from which the
        head picks, if it picks nothing) and ``right``.
    """
    for number in progress(range(store.n_shards), "picks of each example", unit="shard"):
        parts = [_picks_of(text) for text in store.texts(number)]
        yield pd.concat(parts, ignore_index=True)


def _picks_of(text: Text) -> pd.DataFrame:
    """Tabulate the picks of all heads in a text, in both directions."""
    links = read_links(text)
    words = text.word_positions
    counts = links_that_count(text, links)  # [direction, layer, question]
    variants = [PickFrom(text.is_word, direction) for direction in DIRECTIONS]
    picked = picks_in(text, variants)[..., words] - words.start  # [direction, layer, head, word]
    is_counted = np.broadcast_to(counts[:, :, None], (*picked.shape[:3], len(links.words)))
    direction, layer, head, question = np.nonzero(is_counted)
    return pd.DataFrame(
        {
            "example": np.int32(text.index),
            "article": cluster_of(text.record, text.index),
            "split": text.record.get("split", ""),
            "word": links.words[question].astype(np.int16),
            "relation": links.relations[question],
            "direction": np.array(DIRECTIONS)[direction],
            "layer": (layer + 1).astype(np.int16),
            "head": (head + 1).astype(np.int16),
            "picked": picked[..., links.queries][is_counted].astype(np.int16),
            "right": is_right_pick(picked, links)[is_counted],
        }
    )
