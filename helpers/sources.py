"""What a run is of: its models, their controls and its corpora, and the stores of their maps.

Loading waits until something is to be computed; a store that is there is opened without a model.
Whose a folder of results is, its ``run.json`` says.
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
from helpers.model.encoder import DEFAULT, mpnet, slug
from helpers.paths import figures_dir, given_path, project_root, write_whole
from helpers.settings import LONGEST_NAME, MATERIAL, NO_NAMES, PLACES, Settings, flag, folder_name
from helpers.work import note_written

if TYPE_CHECKING:
    from helpers.data.records import Corpus, Document, Segment, Sentence
    from helpers.model.encoder import Encoder
    from helpers.store.format import StoreKey
    from helpers.store.store import Store

OF_RANDOM_WEIGHTS = {"level": "word"}  # the maps behind the control of section 5
FOCUS_SEGMENTS, QUICK_FOCUS_SEGMENTS = 16, 4  # on which a control's heads get the model's entropies


class Sources(Settings):
    """The settings of a run, and through them its models, corpora and stores."""

    @cached_property
    def encoder(self) -> Encoder:
        """The model, loaded once."""
        own = self.load(self.random_init)
        return self._focused(own, self.load(None)) if self.focused else own

    def load(self, random_init: int | None, **temperatures: Any) -> Encoder:
        """Load the study's model, or its control of that seed (and of these ``temperatures``)."""
        from helpers.model.encoder import load

        how = {"revision": self.revision, "device": self.device, "dtype": self.dtype}
        return load(self.model, random_init=random_init, **how, **temperatures)

    def control(self, seed: int, *, focused: bool = False) -> Encoder:
        """Load a control with random weights, other ones than those of a study of such a model.

        Each head of a ``focused`` one has the mean entropy of the study's own.
        """
        drawn = self.load(seed if self.random_init is None else self.random_init + 1 + seed)
        return self._focused(drawn, self.encoder) if focused else drawn

    @cached_property
    def controls(self) -> dict[str, Encoder]:
        """The controls of sections 3, 4 and 6, by what the names of their tables begin with."""
        kinds = {"control": False, "focused": True}
        return {name: self.control(self.seed, focused=kind) for name, kind in kinds.items()}

    def _focused(self, drawn: Encoder, like: Encoder) -> Encoder:
        """Give a control's heads the mean entropies of another model's, over a part of the text."""
        count = QUICK_FOCUS_SEGMENTS if self.quick else FOCUS_SEGMENTS
        corpus = replace(self, segments=count).segment_corpus()
        texts = self._extract(like, corpus, stored=False)

        def compute() -> list[list[float]]:
            from helpers.model.forward import model_inputs, padded
            from helpers.model.sites import temperatures

            batch = padded(like, [model_inputs(like, record) for record in texts.records()])
            return temperatures(drawn.model.base_model, like.model.base_model, batch)

        found = cached(
            "temperatures",
            compute,
            inputs={"drawn": drawn.identity, "texts": texts.key},
            module="helpers.model.forward",  # and what it imports: helpers.model.sites
        )
        return self.load(drawn.identity["random_init"], temperatures=found)

    def segment_corpus(self) -> Corpus[Segment]:
        """The text of sections 3 and 6."""
        from helpers.data.wikipedia import segments

        return segments(self.text or None, count=self.segments, seed=self.seed)

    def treebank_corpus(self) -> Corpus[Sentence]:
        """The treebank of sections 4.2 and 5."""
        if self.treebank:
            from helpers.data.corpora import resolve_treebank

            return resolve_treebank(self.treebank, sentences=self.sentences, seed=self.seed)
        from helpers.data.treebank import silver_treebank

        return silver_treebank(self.text or None, count=self.sentences, seed=self.seed)

    def coreference_corpus(self) -> Corpus[Document]:
        """The documents of section 4.3."""
        if self.coref:
            from helpers.data.corpora import resolve_coreference

            return resolve_coreference(self.coref)
        from helpers.data.coreference import coreference_corpus

        return coreference_corpus()

    def segment_store(self) -> Store:
        """Token-level maps over the text (or their stream)."""
        return self._extract(self.encoder, self.segment_corpus(), stored=not self.stream)

    def treebank_store(self) -> Store:
        """Word-level maps and word vectors over the treebank."""
        return self._extract(self.encoder, self.treebank_corpus(), level="word", hidden=True)

    def coreference_store(self) -> Store:
        """Word-level maps over the coreference documents."""
        return self._extract(self.encoder, self.coreference_corpus(), level="word")

    def random_treebank_stores(self) -> Iterator[Store]:
        """Word-level maps of the model with random weights, a store for each initialisation."""
        corpus = self._parsed_corpus()
        for encoder in self._random_encoders():
            yield self._extract(encoder, corpus, **OF_RANDOM_WEIGHTS)

    def random_treebank_keys(self) -> list[str]:
        """The keys of `random_treebank_stores`, for which nothing is extracted."""
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
        """Each control's name, and its word-level maps of the treebank and of the documents."""
        corpora = self._parsed_corpus(), self.coreference_corpus()
        for name, encoder in self.controls.items():
            yield name, *(self._extract(encoder, corpus, level="word") for corpus in corpora)

    @cached_property
    def slug(self) -> str:
        """The folder name of the results: ``name``, or the model's and what else differs.

        Where another run has that one (``x/tiny`` after ``y/tiny``), a digest of the settings
        follows.  InputError where ``name`` is taken by a run of other settings.
        """
        model = slug(self.model, random_seed=self.random_init, focused=self.focused)
        model += f"-{self.lens}" if self.lens != Settings.lens else ""
        natural = "--".join(filter(None, (model, self.difference)))
        name = self.name or folder_name(natural, LONGEST_NAME - 20)  # what follows has room
        others = _others(self, figures_dir(name))
        if self.name and others:
            raise InputError(
                f"--name {name}: {figures_dir(name)} has another run ({'; '.join(others)}); give "
                "this one another name, or none, or remove that folder"
            )
        if self.name or not (others or name in NO_NAMES):
            return name
        text = json.dumps(known(self, MATERIAL), sort_keys=True)
        return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"

    def _parsed_corpus(self) -> Corpus[Sentence]:
        """The treebank as its store has it: parsing it again would take long."""
        from helpers.data.records import Sentence

        store = self.treebank_store()

        def read(counts: Counter[str]) -> Iterator[Sentence]:
            counts.update(store.manifest.report)
            for record in store.records():
                parse = (tuple(record[name]) for name in ("words", "heads", "relations"))
                yield Sentence(*parse, record["split"], record["source"])

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
            note_written("accepted", store.folder.name)
        return store

    def _store_key(self, encoder: Encoder, corpus: Corpus, **options: Any) -> StoreKey:
        """The key of the store that `_extract` fills with the same arguments."""
        from helpers.store.extract import store_key

        return store_key(encoder, corpus, **self._extraction_options(**options))

    def _extraction_options(self, **options: Any) -> dict[str, Any]:
        return {"lens": self.lens, "max_tokens": self.max_tokens, **options}

    def _fill(self, *shards: Any) -> None:
        """Have a store's missing shards computed by the cluster, which is started for them."""
        from helpers.store.cluster import dask_client, fill_on

        with dask_client(scheduler=self.scheduler, workers=self.workers) as client:
            fill_on(client, *shards)


def known(settings: Settings, names: Collection[str]) -> dict[str, Any]:
    """Return settings as run.json has them, with models and files as where they are."""
    own = {name: getattr(settings, name) for name in names}
    places = {name: _place(own[name]) for name in ("model", *PLACES) if name in own}
    return own | places | {"small": settings.small}


def write_record(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write ``run.json``."""
    write_whole(folder / "run.json", f"{json.dumps(facts, indent=1, default=str)}\n".encode())


def _others(settings: Settings, folder: Path) -> list[str]:
    """Return how the run of a folder differs in the settings that matter and both know."""
    there = run_record(folder).get("settings")
    if there is None:
        unknown = any((folder / "tables").glob("*.csv"))
        return ["tables without a run.json that says what of"] if unknown else []
    here, there = known(settings, settings.declared), {"small": False} | there
    names = {name: flag(name) for name in MATERIAL} | {"small": "the small profile"}
    return [
        f"{said} is {there[name]!r} there, {here[name]!r} here"
        for name, said in names.items()
        if name in here and name in there and here[name] != there[name]
    ]


def _place(given: str) -> str:
    """Return where a model or file is, from the project; what has a name of its own keeps it."""
    if given in ("", DEFAULT, mpnet.NAME) or given in registry().index:
        return given
    if (path := given_path(given)).exists():
        return f"./{os.path.relpath(path.resolve(), project_root())}"
    return ",".join(_place(part.strip()) for part in given.split(",")) if "," in given else given


def listed(results: Path, kind: str) -> set[str] | None:
    """Return the "tables" or "figures" that ``run.json`` lists; None where it lists none."""
    notebooks = run_record(results).get("notebooks")
    if notebooks is None:
        return None
    return {name for files in notebooks.values() for name in files[kind]}


def run_record(results: Path) -> dict[str, Any]:
    """Return what a run's ``run.json`` says; nothing where it is missing or damaged."""
    try:
        return dict(json.loads((results / "run.json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}
