"""The check before a run: inputs can be read, and the disk has room for their maps.

A run with inputs of the user begins with it; ``run --dry-run`` does nothing else.  The bundled
default needs no check.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, cast

from helpers.data.glove import read_glove
from helpers.data.preview import (
    describe_record,
    describe_used,
    note_unknown,
    unknown_share,
)
from helpers.errors import ModelError
from helpers.files import cache_root, check_free
from helpers.model.encoder import Encoder
from helpers.store.extract import needed_bytes, store_key
from helpers.store.store import Store
from helpers.study import Study


def check_files(study: Study) -> None:
    """Refuse a missing file or scheduler before the model is loaded or a corpus is read.

    Raises
    ------
    InputError
        If a path does not exist, a file of vectors cannot be read, or a scheduler does not answer.
    """
    settings = study.settings
    if settings.scheduler:
        from helpers.store.cluster import dask_client  # an extra

        dask_client(scheduler=settings.scheduler).close()
    if settings.vectors:
        read_glove(settings.vectors, max_lines=1000)
    # A missing file is refused here, before the model is loaded or a corpus is read.
    study.treebank_corpus()
    study.coreference_corpus()


def check_inputs(study: Study, used: Collection[str]) -> Iterator[str]:
    """Read all inputs of a run, and yield a line about each corpus.

    Parameters
    ----------
    study : Study
        The study whose model and corpora are read.
    used : collection of str
        The settings that the notebooks of the run use, which say what it extracts.

    Yields
    ------
    str
        The language, what the run lacks, and the examples of each corpus with the megabytes of
        their maps.

    Raises
    ------
    InputError
        If a corpus cannot be read, or the model cannot be loaded.
    StoreError
        If the disk has no room for the maps.
    """
    settings = study.settings
    if settings.lens == "norm":
        from helpers.model.forward import check_lens  # torch

        try:
            check_lens(study.encoder)
        except ModelError as error:
            raise ModelError(f"--lens norm: {error} Or leave --lens out.") from error
    store_key(study.encoder, study.segment_corpus(), max_tokens=settings.max_tokens)
    yield f"language: {study.language}"
    yield from study.notes
    # Maps of words are stored again for two controls and for shuffled sentences (04), and for the
    # random weights of section 5.
    control_stores = 2 if "minimum_count" in used else 0
    shuffled_stores = 1 if "minimum_count" in used else 0
    random_stores = settings.initialisations + 1 if "vectors" in used else 0
    other_stores = max(control_stores, random_stores) + shuffled_stores
    # Without other stores, sentences are only for examples, which can be segments as well.
    open_sentences = study.treebank_store if other_stores else study.example_store
    stores = {
        "segments": (0 if settings.stream else 1, study.segment_store),
        "sentences": (1 + other_stores, open_sentences),
        "coref": (1 + control_stores, study.coreference_store),
    }
    if study.missing_note("coref"):
        del stores["coref"]
    total = 0
    for setting, (n_stores, open_store) in stores.items():
        if setting in used:
            store = open_store(stream=True)  # all of a corpus is read, cut and counted
            size = n_stores * needed_bytes(store)
            total += size
            name = store.spec.corpus["name"]
            yield f"{name}: {len(store):,} examples, {size / 1e6:,.0f} MB to extract"
            yield from describe_examples(study.encoder, store, name)
    check_free(cache_root(), total)
    yield f"{total / 1e9:.1f} GB to extract in all"


def describe_examples(encoder: Encoder, store: Store, name: str) -> Iterator[str]:
    """Describe the used part of a corpus and its first example; warn of unknown tokens."""
    yield f"  {describe_used(store.used)}"
    yield f"  the first: {describe_record(store.record(0))}"
    tokenizer = cast("Any", encoder.tokenizer)  # transformers allows lists for one token
    unknown = {tokenizer.unk_token, tokenizer.unk_token_id} - {None}
    special = {*tokenizer.all_special_tokens, *tokenizer.all_special_ids}
    warning = note_unknown(unknown_share(store.records(), unknown, special), name)
    if warning:
        yield f"  {warning}"
