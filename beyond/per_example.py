"""Measures of each example and head, for statistics of your own: large tables, shard by shard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.data.links import read_links
from helpers.data.records import cluster_of
from helpers.files import atomic_file
from helpers.metrics.head_counts import links_that_count
from helpers.metrics.heads import DIRECTIONS, head_rows, is_right, picked_words
from helpers.metrics.surface import example_values
from helpers.progress import progress
from helpers.store.store import Example, Store
from helpers.study import Study


def save_per_example(study: Study) -> list[Path]:
    """Write the measures of each example and head as Parquet files, for your own statistics.

    Parameters
    ----------
    study : Study
        The study with the maps.

    Returns
    -------
    list of Path
        ``section_3.parquet`` and ``picks.parquet`` in ``build/<run>/per_example/``; for their
        columns see `section_3` and `picks`.
    """
    with study.results.edited_record():
        pass  # the folder is that of a run from now on
    folder = study.results.build / "per_example"
    return [
        _write_parquet(section_3(study.segment_store()), folder / "section_3.parquet"),
        _write_parquet(picks(study.treebank_store()), folder / "picks.parquet"),
    ]


def _write_parquet(tables: Iterator[pd.DataFrame], path: Path) -> Path:
    """Write a large table part by part."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    first = pa.Table.from_pandas(next(tables), preserve_index=False)
    with atomic_file(path) as temporary, ParquetWriter(temporary, first.schema) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(pa.Table.from_pandas(table, first.schema, preserve_index=False))
    return path


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
        for example in store.shard(number):
            values = example_values(example)
            columns = {name: value.astype(np.float32) for name, value in values.items()}
            table = head_rows(store.layers, store.heads, **columns)
            table.insert(0, "example", example.index)
            table.insert(1, "article", cluster_of(example.record, example.index))
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
        A row for each link, direction and head, if the answer can be picked.  Columns:
        ``example`` (from 0), ``article``, ``split``, ``word`` (from 0), ``relation``,
        ``direction``, ``layer`` and ``head`` (from 1), ``picked`` (from 0; the word from which the
        head picks, if it picks nothing) and ``right``.
    """
    for number in progress(range(store.n_shards), "picks of each example", unit="shard"):
        parts = [_picks_of(example) for example in store.shard(number)]
        yield pd.concat(parts, ignore_index=True)


def _picks_of(example: Example) -> pd.DataFrame:
    """Tabulate the picks of all heads in a example, in both directions."""
    links = read_links(example.record)
    words = example.word_positions
    counts = links_that_count(example, links)  # [direction, layer, link]
    maps = example.attention[..., words, words]
    visible = example.visible_keys[:, None, words, words]
    picks = [
        picked_words(maps, links.query, direction=direction, visible=visible)
        for direction in DIRECTIONS
    ]
    picked = np.stack(picks)  # [direction, layer, head, link]
    is_counted = np.broadcast_to(counts[:, :, None], picked.shape)
    direction, layer, head, link = np.nonzero(is_counted)
    return pd.DataFrame(
        {
            "example": np.int32(example.index),
            "article": cluster_of(example.record, example.index),
            "split": example.record.get("split", ""),
            "word": links.word[link].astype(np.int16),
            "relation": links.relation[link],
            "direction": np.array(DIRECTIONS)[direction],
            "layer": (layer + 1).astype(np.int16),
            "head": (head + 1).astype(np.int16),
            "picked": picked[is_counted].astype(np.int16),
            "right": is_right(picked, links)[is_counted],
        }
    )
