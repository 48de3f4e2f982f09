"""One study: a model, its corpora and its settings, and where its results go.

Every notebook makes a :class:`Study` from its parameters and asks it for stores and tables; what
one notebook has computed, the next one finds.  What a method needs is imported in it: a notebook
whose tables are all in the cache loads neither a model nor the libraries that run one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from helpers.cache import cached_arrays, cached_table, cached_tables
from helpers.data.records import cluster_of
from helpers.paths import figures_dir
from helpers.results import check_table, claim, read_tables, results_name, write_table
from helpers.settings import Settings
from helpers.work import note_written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from helpers.analysis.head_counts import HeadCounts
    from helpers.analysis.paper import Claim
    from helpers.analysis.surface import Sums
    from helpers.data.glove import Embeddings
    from helpers.data.records import Corpus, Document, Segment, Sentence
    from helpers.model.encoder import Encoder
    from helpers.store.store import Store

EVERYTHING = 10**9
OF_CLAIMS = ("here", "threshold", "control", "focused_control")  # numbers that may not be there
CONTROL_SEGMENTS = 100  # for the control of sections 3 and 6
CONTROL_GRADIENTS = 32  # segments for its gradients


class Study(Settings):
    """The settings of a run, and through them its stores, tables and figures."""

    @cached_property
    def encoder(self) -> Encoder:
        """The model, loaded once."""
        return self.load(self.random_init)

    def load(self, random_init: int | None) -> Encoder:
        """Load the study's model, or its control of that seed."""
        from helpers.model.encoder import load

        how = {"revision": self.revision, "device": self.device, "dtype": self.dtype}
        return load(self.model, random_init=random_init, **how)

    def control(self, seed: int) -> Encoder:
        """Load a control with random weights, other ones than those of a study of such a model."""
        return self.load(seed if self.random_init is None else self.random_init + 1 + seed)

    def segment_corpus(self) -> Corpus[Segment]:
        """The text of sections 3 and 6."""
        from helpers.data.wikipedia import segments

        return segments(self.text or None, count=self.segments or None, seed=self.seed)

    def treebank_corpus(self) -> Corpus[Sentence]:
        """The treebank of sections 4.2 and 5."""
        if self.treebank:
            from helpers.data.corpora import resolve_treebank

            limit = self.sentences or None
            return resolve_treebank(self.treebank, sentences=limit, seed=self.seed)
        from helpers.data.treebank import silver_treebank

        return silver_treebank(
            self.text or None, count=self.sentences or EVERYTHING, seed=self.seed
        )

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
        for seed in range(self.initialisations):
            yield self._extract(self.load(seed), corpus, level="word")

    def random_coreference_store(self) -> Store:
        """Word-level maps of the documents, of the first model with random weights."""
        return self._extract(self.load(0), self.coreference_corpus(), level="word")

    def lens_stores(self, lens: str) -> tuple[Store, Store]:
        """Word-level maps of the treebank and of the documents through a lens, the run's or not."""
        options = {"level": "word", "lens": lens}
        treebank = self._extract(self.encoder, self._parsed_corpus(), hidden=True, **options)
        return treebank, self._extract(self.encoder, self.coreference_corpus(), **options)

    @cached_property
    def embeddings(self) -> Embeddings:
        """GloVe vectors."""
        from helpers.data.glove import glove, read_glove

        return read_glove(self.vectors) if self.vectors else glove()

    @cached_property
    def sums(self) -> Sums:
        """The sums of sections 3 and 6 over the text, computed in one pass and kept."""
        return self._sums(self.segment_store())

    @cached_property
    def control_sums(self) -> Sums:
        """The same of the model with random weights, over a part of the text: claims' control."""
        count = min(self.segments or CONTROL_SEGMENTS, CONTROL_SEGMENTS)
        corpus = replace(self, segments=count).segment_corpus()
        return self._sums(self._extract(self.control(self.seed), corpus, stored=False))

    def _sums(self, store: Store) -> Sums:
        from helpers.analysis import surface

        arrays = cached_arrays(
            "sections-3-and-6",
            lambda: self._sweep(store).to_arrays(),
            depends_on={"store": store.key},
            code="analysis.surface.sweep",
        )
        return surface.Sums.from_arrays(arrays)

    def distances(self, *, control: bool = False, words: bool = False) -> pd.DataFrame:
        """The square table of the distances between heads (section 6), in nats; among words."""
        from helpers.analysis.clustering import distance_table

        sums = self.control_sums if control else self.sums
        return distance_table(sums.mean_distances(words=words), *sums.mean("current").shape)

    def gradient_table(self, *, control: bool = False) -> pd.DataFrame:
        """The table of Figure 3, or that of the model with random weights over fewer segments."""
        from helpers.analysis.surface import gradient_table

        store, count = self.segment_store(), self.gradient_segments
        if control:
            count = min(count or CONTROL_GRADIENTS, CONTROL_GRADIENTS)
        places = np.linspace(0, len(store) - 1, min(count or len(store), len(store))).astype(int)
        records = [store.record(place) for place in places]

        def compute() -> dict[str, np.ndarray]:
            from helpers.model.gradients import gradient_importance

            encoder = self.control(self.seed) if control else self.encoder
            return {encoder.objective: gradient_importance(encoder, records, seed=self.seed)}

        facts = {"store": store.key, "records": records, "seed": self.seed, "control": control}
        kept = cached_arrays(
            "gradients", compute, depends_on=facts, code="model.gradients.gradient_importance"
        )
        ((objective, importance),) = kept.items()
        articles = [cluster_of(record, index) for index, record in enumerate(records)]
        return gradient_table(importance, articles, objective)

    def head_counts(self, store: Store) -> HeadCounts:
        """What every head gets right over a treebank's maps (section 4.2), counted once."""
        from helpers.analysis.head_counts import HeadCounts, count_heads

        arrays = cached_arrays(
            "head-counts",
            lambda: vars(count_heads(store)),
            depends_on={"store": store.key},
            code="analysis.head_counts.count_heads",
        )
        return HeadCounts(**arrays | {"names": tuple(arrays["names"].tolist())})

    def split_words(self, store: Store) -> pd.DataFrame:
        """How many words of a treebank have how many tokens (section 4.1), counted once."""
        from helpers.analysis.dependency_heads import split_words

        def word_ids(words: list[str]) -> list[int | None]:
            return self.encoder.encode_words(words).word_ids

        count = partial(split_words, store.records(), word_ids)
        return cached_table("split-words", count, depends_on={"store": store.key})

    def special_candidates(self, store: Store, table: pd.DataFrame) -> pd.DataFrame:
        """Table 1's accuracies where special tokens may be picked, too, counted once."""
        from helpers.analysis.dependency_heads import with_special_tokens

        own = table[["relation", "count", "head", "direction", "accuracy"]]
        depends_on = {"store": store.key, "table": own.to_csv()}
        count = partial(with_special_tokens, store, table)
        return cached_table("special-candidates", count, depends_on=depends_on)

    def probe_tables(self) -> dict[str, pd.DataFrame]:
        """The tables of section 5, trained once and kept."""
        store = self.treebank_store()

        def compute() -> dict[str, pd.DataFrame]:
            from helpers.analysis.table3 import table3

            controls = self.random_treebank_stores()
            return table3(store, controls, self.embeddings, seeds=self.seeds)

        facts = {"store": store.key, "seeds": self.seeds, "initialisations": self.initialisations}
        facts |= {"vectors": self.embeddings.name, "fingerprint": self.embeddings.fingerprint}
        return cached_tables("table3", compute, depends_on=facts, code="analysis.table3.table3")

    @cached_property
    def slug(self) -> str:
        """The folder name of the results, which is this run's alone: see `results_name`."""
        return results_name(self)

    @property
    def results(self) -> Path:
        """The folder of this study's figures and tables."""
        return figures_dir(self.slug)

    def save_table(
        self, table: pd.DataFrame, name: str, *, optional: Collection[str] = ()
    ) -> pd.DataFrame:
        """Write a table to ``tables/`` (with ``latex`` in both forms) and return it for display.

        ``optional`` columns may be empty.  TableError where a column that this model should have is
        empty or not finite.
        """
        how = {"optional": optional, "dtype": self.dtype}
        check_table(table, name, special_tokens=lambda: self.encoder.special_tokens, **how)
        claim(self, self.results)
        write_table(table, self.results / "tables", name, latex=self.latex)
        self._written.add(name)
        note_written("tables", name)
        return table

    def claims(self, section: str = "") -> pd.DataFrame:
        """The paper's claims (about one section), the paper's numbers and those found so far."""
        from helpers.analysis.measures import clark_claims
        from helpers.analysis.paper import check_claims

        found = check_claims(self.tables(), clark_claims())
        return found[found["section"].str.startswith(section)].reset_index(drop=True)

    def save_claims(self, later: Iterable[Claim] = ()) -> None:
        """Write ``claims.csv``, if one is measured; without ``later`` ones, those there stay."""
        from helpers.analysis.paper import check_claims, with_later

        tables = self.tables()
        rows = check_claims(tables, later)
        if "claims" in tables and not later:  # their sections have names, the paper's numbers
            rows = tables["claims"].loc[lambda own: own["section"].astype(str).str[0] > "9"]
        found = with_later(self.claims(), rows)
        if len(found):
            self.save_table(found, "claims", optional=OF_CLAIMS)

    def save_figure(self, figure: Figure, name: str) -> Figure:
        """Write a figure in the formats that are asked for and return it for display."""
        from helpers.plots.style import save_figure

        claim(self, self.results)
        save_figure(figure, self.results, name, paper=self.figures == "pdf")
        note_written("figures", name)
        return figure

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the tables that this run's notebooks have written so far, by name."""
        return read_tables(self.results, self._written)

    def _parsed_corpus(self) -> Corpus[Sentence]:
        """The treebank as its store has it: parsing it again would take long."""
        from helpers.data.records import Sentence

        store = self.treebank_store()

        def read(counts: Counter[str]) -> Iterator[Sentence]:
            counts.update(store.report)
            for record in store.records():
                parse = (tuple(record[name]) for name in ("words", "heads", "relations"))
                yield Sentence(*parse, record["split"], record["source"])

        corpus = self.treebank_corpus()
        return replace(corpus, read=read, reader=corpus.read)

    @cached_property
    def _written(self) -> set[str]:
        return set()

    def _extract(
        self, encoder: Encoder, corpus: Corpus, *, stored: bool = True, **options: Any
    ) -> Store:
        from helpers.store.extract import extract, stream
        from helpers.store.format import note_use

        options = {"lens": self.lens, "max_tokens": self.max_tokens} | options
        if not stored:
            return stream(encoder, corpus, **options)
        fill = self._fill if self.workers or self.scheduler else None
        store = extract(encoder, corpus, fill=fill, **options)
        note_use(store.folder, self.slug)
        if store.manifest.accepted:
            note_written("accepted", store.folder.name)
        return store

    def _fill(self, *shards: Any) -> None:
        """Have a store's missing shards computed by the cluster, which is started for them."""
        from helpers.store.cluster import dask_client, fill_on

        with dask_client(scheduler=self.scheduler, workers=self.workers) as client:
            fill_on(client, *shards)

    def _sweep(self, store: Store) -> Sums:
        from helpers.analysis import surface

        if not (self.workers or self.scheduler):
            return surface.sweep(store)
        from helpers.store.cluster import dask_client, map_shards

        with dask_client(scheduler=self.scheduler, workers=self.workers) as client:
            return surface.combine(map_shards(surface.shard_sums, store, client))


def describe_store(store: Store) -> pd.DataFrame:
    """Return what a store holds, and what was dropped or cut on the way, as a table."""
    facts = {"corpus": store.spec.corpus["name"], "examples": f"{len(store):,}"}
    facts |= {"layers x heads": f"{store.layers} x {store.heads}", "level": store.level}
    dropped = {reason: f"{count:,}" for reason, count in store.report.items()}
    return pd.Series(facts | dropped, name="store").to_frame()
