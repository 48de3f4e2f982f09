"""The models of a run, their controls and its corpora, and the stores of their maps.

A model is loaded when something is to be computed; a finished store is opened without one.  Each
results folder has a `run.json` that records which run wrote it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers.cache import cached
from helpers.data.corpora import registry
from helpers.errors import InputError
from helpers.files import figures_dir, project_root, resolve_user_path, write_atomic
from helpers.model.encoder import BUILT_IN, slug
from helpers.progress import note_output
from helpers.settings import (
    MAX_NAME_BYTES,
    PATH_SETTINGS,
    RESERVED_NAMES,
    RESULT_SETTINGS,
    Settings,
    flag,
    folder_name,
)

if TYPE_CHECKING:
    from helpers.data.records import Corpus, Document, Segment, Sentence
    from helpers.model.encoder import Encoder
    from helpers.store.format import StoreKey
    from helpers.store.store import Store

OF_RANDOM_WEIGHTS = {"level": "word"}  # the maps behind the control of section 5
# Segments on which the heads of a control get the model's entropies.
ENTROPY_SEGMENTS = 16
QUICK_ENTROPY_SEGMENTS = 4


class Sources(Settings):
    """The settings of a run, and through them its models, corpora and stores."""

    @cached_property
    def encoder(self) -> Encoder:
        """The model, loaded once."""
        encoder = self.load(self.random_init)
        return self._entropy_matched(encoder, self.load(None)) if self.entropy_matched else encoder

    def load(self, random_init: int | None, **temperatures: Any) -> Encoder:
        """Load the study's model, or its control of that seed (and of these ``temperatures``).

        Parameters
        ----------
        random_init : int or None
            Seed of random weights; None for the trained weights.
        **temperatures
            Factors for the scores of each layer's heads, for `helpers.model.encoder.load`.

        Returns
        -------
        Encoder
        """
        from helpers.model.encoder import load

        return load(
            self.model,
            revision=self.revision,
            device=self.device,
            dtype=self.dtype,
            random_init=random_init,
            **temperatures,
        )

    def control(self, seed: int, *, entropy_matched: bool = False) -> Encoder:
        """Load a control with random weights.

        Its seed differs from the one that the study itself uses.

        Parameters
        ----------
        seed : int
            Seed of the random weights.
        entropy_matched : bool
            Whether each attention head gets the mean entropy of the study's own (entropy-matched).

        Returns
        -------
        Encoder
        """
        control_seed = seed if self.random_init is None else self.random_init + 1 + seed
        random_model = self.load(control_seed)
        return (
            self._entropy_matched(random_model, self.encoder) if entropy_matched else random_model
        )

    @cached_property
    def controls(self) -> dict[str, Encoder]:
        """The controls of sections 3, 4 and 6, by the beginning of the names of their tables."""
        return {
            "random": self.control(self.seed),
            "entropy_matched": self.control(self.seed, entropy_matched=True),
        }

    def _entropy_matched(self, random_model: Encoder, reference: Encoder) -> Encoder:
        """Give a control's heads the mean entropies of another model's, over a part of the text."""
        count = QUICK_ENTROPY_SEGMENTS if self.quick else ENTROPY_SEGMENTS
        corpus = replace(self, segments=count).segment_corpus()
        texts = self._extract(reference, corpus, stored=False)

        def compute() -> list[list[float]]:
            from helpers.model.forward import model_inputs, padded
            from helpers.model.sites import temperatures

            inputs = [model_inputs(reference, record) for record in texts.records()]
            batch = padded(reference, inputs)
            return temperatures(random_model.model.base_model, reference.model.base_model, batch)

        head_temperatures = cached(
            "temperatures",
            compute,
            inputs={"random": random_model.identity, "texts": texts.key},
            module="helpers.model.forward",  # and what it imports: helpers.model.sites
        )
        return self.load(random_model.identity["random_init"], temperatures=head_temperatures)

    def segment_corpus(self) -> Corpus[Segment]:
        """Sample the text of sections 3 and 6.

        Returns
        -------
        Corpus of Segment
            A sample of ``segments`` pairs of paragraphs of ``text`` (default: the bundled dump).
        """
        from helpers.data.wikipedia import segments

        return segments(self.text or None, count=self.segments, seed=self.seed)

    def treebank_corpus(self) -> Corpus[Sentence]:
        """Sample the treebank of sections 4.2 and 5.

        Returns
        -------
        Corpus of Sentence
            A sample of ``sentences`` trees of ``treebank`` (default: automatic parses of the text).
        """
        if self.treebank:
            from helpers.data.corpora import resolve_treebank

            return resolve_treebank(self.treebank, sentences=self.sentences, seed=self.seed)
        from helpers.data.treebank import silver_treebank

        return silver_treebank(self.text or None, count=self.sentences, seed=self.seed)

    def coreference_corpus(self) -> Corpus[Document]:
        """Choose the documents of section 4.3.

        Returns
        -------
        Corpus of Document
            Those of ``coref``; by default the bundled sample.
        """
        if self.coref:
            from helpers.data.corpora import resolve_coreference

            return resolve_coreference(self.coref)
        from helpers.data.coreference import coreference_corpus

        return coreference_corpus()

    def segment_store(self) -> Store:
        """Extract the token-level maps over the text, or stream them.

        Returns
        -------
        Store
            At the level ``token``; records have tokens and a title.  With ``stream`` its maps are
            computed when they are read.
        """
        return self._extract(self.encoder, self.segment_corpus(), stored=not self.stream)

    def treebank_store(self) -> Store:
        """Extract the word-level maps and word vectors over the treebank.

        Returns
        -------
        Store
            At the level ``word``; records have words, heads, relations, split and source.
        """
        return self._extract(self.encoder, self.treebank_corpus(), level="word", hidden=True)

    def coreference_store(self) -> Store:
        """Extract the word-level maps over the coreference documents.

        Returns
        -------
        Store
            At the level ``word``; records have words, mentions, split and source.
        """
        return self._extract(self.encoder, self.coreference_corpus(), level="word")

    def random_treebank_stores(self) -> Iterator[Store]:
        """Extract the word-level maps of the model with random weights, once per initialisation.

        Yields
        ------
        Store
            One store per initialisation.
        """
        corpus = self._parsed_corpus()
        for encoder in self._random_encoders():
            yield self._extract(encoder, corpus, **OF_RANDOM_WEIGHTS)

    def random_treebank_keys(self) -> list[str]:
        """Compute the keys of `random_treebank_stores` without extracting them.

        Returns
        -------
        list of str
            One key per initialisation.
        """
        corpus = self.treebank_corpus()
        return [
            self._store_key(encoder, corpus, **OF_RANDOM_WEIGHTS).hash
            for encoder in self._random_encoders()
        ]

    def _random_encoders(self) -> Iterator[Encoder]:
        """Load the model with random weights, once for each initialisation."""
        for seed in range(self.initialisations):
            yield self.load(seed)

    def control_stores(self) -> Iterator[tuple[str, Store, Store]]:
        """Yield each control's name and its word-level maps of the treebank and the documents.

        Yields
        ------
        name : str
            The beginning of the names of the control's tables.
        treebank, coreference : Store
            Its maps over the two corpora.
        """
        treebank = self._parsed_corpus()
        documents = self.coreference_corpus()
        for name, encoder in self.controls.items():
            treebank_store = self._extract(encoder, treebank, level="word")
            coreference_store = self._extract(encoder, documents, level="word")
            yield name, treebank_store, coreference_store

    @cached_property
    def slug(self) -> str:
        """The folder name of the results: ``name``, or that of the model and of what differs.

        A digest of the settings follows if another run has that name (``x/tiny`` after
        ``y/tiny``).  InputError if ``name`` is that of a run with other settings.
        """
        model = slug(self.model, random_seed=self.random_init, entropy_matched=self.entropy_matched)
        if self.lens != Settings.lens:
            model += f"-{self.lens}"
        default_name = f"{model}--{self.non_default_slug}" if self.non_default_slug else model
        # A digest of seven characters still fits after it.
        name = self.name or folder_name(default_name, MAX_NAME_BYTES - 20)
        conflicts = _conflicting_settings(self, figures_dir(name))
        if self.name and conflicts:
            raise InputError(
                f"--name {name}: {figures_dir(name)} has another run ({'; '.join(conflicts)}); "
                "give this one another name, or none, or remove that folder"
            )
        if self.name:
            return name
        if not conflicts and name not in RESERVED_NAMES:
            return name
        text = json.dumps(serialize_settings(self, RESULT_SETTINGS), sort_keys=True)
        return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"

    def _parsed_corpus(self) -> Corpus[Sentence]:
        """The treebank as its store has it, because parsing it again would take long."""
        from helpers.data.records import Sentence

        store = self.treebank_store()

        def read(counts: Counter[str]) -> Iterator[Sentence]:
            counts.update(store.manifest.report)
            for record in store.records():
                yield Sentence(
                    words=tuple(record["words"]),
                    heads=tuple(record["heads"]),
                    relations=tuple(record["relations"]),
                    split=record["split"],
                    source=record["source"],
                )

        corpus = self.treebank_corpus()
        return replace(corpus, read=read, reader=corpus.read)

    def _extract(
        self, encoder: Encoder, corpus: Corpus, *, stored: bool = True, **options: Any
    ) -> Store:
        from helpers.store.extract import extract, stream
        from helpers.store.format import note_use

        options = self._extraction_options(**options)
        if not stored:
            return stream(encoder, corpus, **options)
        fill = self._fill if self.workers or self.scheduler else None
        store = extract(encoder, corpus, fill=fill, **options)
        note_use(store.folder, self.slug)
        if store.manifest.accepted:
            note_output("accepted", store.folder.name)
        return store

    def _store_key(self, encoder: Encoder, corpus: Corpus, **options: Any) -> StoreKey:
        """Compute the key of the store that `_extract` fills with the same arguments."""
        from helpers.store.extract import store_key

        return store_key(encoder, corpus, **self._extraction_options(**options))

    def _extraction_options(self, **options: Any) -> dict[str, Any]:
        return {"lens": self.lens, "max_tokens": self.max_tokens, **options}

    def _fill(self, *shards: Any) -> None:
        """Have a store's missing shards computed by the cluster, which is started for them."""
        from helpers.store.cluster import dask_client, extract_on_cluster

        with dask_client(scheduler=self.scheduler, workers=self.workers) as client:
            extract_on_cluster(client, *shards)


def serialize_settings(settings: Settings, names: Collection[str]) -> dict[str, Any]:
    """Serialise settings for ``run.json``; models and files are paths from the project."""
    values = {}
    for name in names:
        value = getattr(settings, name)
        values[name] = _portable_path(value) if name in ("model", *PATH_SETTINGS) else value
    values["small"] = settings.small
    return values


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write ``run.json``."""
    text = json.dumps(record, indent=1, default=str)
    write_atomic(folder / "run.json", f"{text}\n".encode())


def _conflicting_settings(settings: Settings, folder: Path) -> list[str]:
    """List the settings that change results and differ from those of the run in a folder."""
    recorded = run_record(folder).get("settings")
    if recorded is None:
        has_tables = any((folder / "tables").glob("*.csv"))
        if has_tables:
            return ["it has tables but no run.json, so their settings are unknown"]
        return []
    recorded = {"small": False, **recorded}
    current = serialize_settings(settings, settings.declared)
    descriptions = {name: flag(name) for name in RESULT_SETTINGS}
    descriptions["small"] = "the small profile"
    conflicts = []
    for name, description in descriptions.items():
        if name not in current or name not in recorded:
            continue
        if current[name] != recorded[name]:
            conflicts.append(f"{description} is {recorded[name]!r} there, {current[name]!r} here")
    return conflicts


def _portable_path(path: str) -> str:
    """Write the path of a model or file from the project; names of models and corpora stay."""
    if path in ("", *BUILT_IN) or path in registry().index:
        return path
    resolved = resolve_user_path(path)
    if resolved.exists():
        return f"./{os.path.relpath(resolved.resolve(), project_root())}"
    if "," not in path:
        return path
    return ",".join(_portable_path(part.strip()) for part in path.split(","))


def recorded_outputs(results: Path, group: str) -> set[str] | None:
    """Read the "tables" or "figures" that ``run.json`` lists; None if it has no such lists."""
    notebooks = run_record(results).get("notebooks")
    if notebooks is None:
        return None
    names = set()
    for outputs in notebooks.values():
        names.update(outputs[group])
    return names


def run_record(results: Path) -> dict[str, Any]:
    """Read a run's ``run.json``; empty if it is missing or damaged."""
    try:
        return dict(json.loads((results / "run.json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}
