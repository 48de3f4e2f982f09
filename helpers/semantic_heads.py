"""Which heads of a study's model attend along semantic links (Kovaleva et al. 2019, 4.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from helpers.analysis import bootstrap, semantic_links
from helpers.analysis.semantic_links import Link, LinkCounts, dependency_links
from helpers.attention import task_maps
from helpers.attention.models import Encoder
from helpers.attention.store import Store
from helpers.cached import cached_table
from helpers.data import framenet
from helpers.data.framenet import FrameSentence, framenet_sentences
from helpers.errors import InputError
from helpers.paths import given_path
from helpers.progress import progress
from helpers.study import Study

Linked = Iterator[tuple[np.ndarray, Sequence[Link]]]  # maps of words, and links


def link_table(study: Study) -> pd.DataFrame:
    """Return how much more each head of the model attends along semantic links.

    The links are FrameNet's where the study names it, else those of verbs and their arguments in
    the treebank.  Columns as in `LinkCounts.table`.

    Raises:
        InputError: no sentence has a link to look at.
    """
    depends = {"model": study.encoder.identity, "seed": study.seed}
    if study.framenet:
        sentences = framenet_sentences(given_path(study.framenet))
        depends |= {"framenet": [(s.words, s.links) for s in sentences]}
        linked = _framenet_links(study.encoder, sentences)
    else:
        store = study.treebank_store()
        depends |= {"store": store.key}
        linked = _treebank_links(store)
    return cached_table(
        "semantic-links",
        lambda: _count_links(linked, study.seed),
        depends_on=depends,
        code=(semantic_links, bootstrap, task_maps, framenet),
    )


def _treebank_links(store: Store) -> Linked:
    for example in progress(store, "semantic links", unit="sentence", total=len(store)):
        links = dependency_links(example.record["heads"], example.record["relations"])
        words = example.word_positions
        yield example.attention[..., words, words].astype(np.float32), links


def _framenet_links(encoder: Encoder, sentences: Sequence[FrameSentence]) -> Linked:
    maps = task_maps.sentence_maps(encoder, [sentence.words for sentence in sentences])
    both = zip(maps, sentences, strict=True)
    for attention, sentence in progress(both, "semantic links", total=len(sentences)):
        yield attention, sentence.links


def _count_links(linked: Linked, seed: int) -> pd.DataFrame:
    counts = LinkCounts(seed)
    for attention, links in linked:
        counts.add(attention, links)
    if not counts.sentences:
        raise InputError(
            f"semantic links: none of {counts.unusable} sentences has a predicate with an argument "
            f"{semantic_links.NEAREST} words away; use more sentences, or another treebank"
        )
    return counts.table()
