"""One study: a model, its corpora and its settings, and where its results go.

Every notebook makes a :class:`Study` from its parameters and asks it for stores and tables; what
one notebook has computed, the next one finds.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from helpers.analysis import averages, table3
from helpers.analysis.claims import NOT_MEASURED, Claim, check_claims
from helpers.analysis.claims_clark import clark_claims
from helpers.analysis.clustering import distance_table
from helpers.analysis.head_choice import COREFERENCE
from helpers.analysis.parser_agreement import attachment_agreement
from helpers.analysis.relations import paper_names, scheme_of
from helpers.cache import cached_table, cached_tables
from helpers.data import glove as embeddings
from helpers.data.coreference import coreference_corpus
from helpers.data.corpora import resolve_coreference, resolve_treebank
from helpers.data.glove import Embeddings, glove, read_glove
from helpers.data.records import Corpus, Document, Segment, Sentence
from helpers.data.silver_treebank import parse_words, silver_treebank
from helpers.data.wikipedia import segments
from helpers.errors import InputError
from helpers.model import encoder as models
from helpers.model import gradients
from helpers.model.encoder import Encoder
from helpers.paths import figures_dir, given_path, project_root
from helpers.plots import heads as plots
from helpers.settings import Settings
from helpers.store.cluster import dask_client, extract_distributed, map_shards
from helpers.store.extract import extract
from helpers.store.format import Level
from helpers.store.store import Store
from helpers.store.stream import Stream
from helpers.viewer import showcase
from helpers.viewer.view import Viewer

PACKAGES = ("torch", "transformers", "numpy", "pandas", "scikit-learn", "spacy", "gensim")


class Study(Settings):
    """The settings of a run, and through them its stores, tables and figures."""

    @cached_property
    def encoder(self) -> Encoder:
        """The model, loaded once."""
        return self.load(self.random_init)

    def load(self, random_init: int | None) -> Encoder:
        """Load the study's model, or its control of that seed."""
        return models.load(
            self.model,
            revision=self.revision,
            device=self.device,
            dtype=self.dtype,
            random_init=random_init,
        )

    def segment_corpus(self) -> Corpus[Segment]:
        """The text of sections 3 and 6."""
        return segments(self._text, count=self.segments or None, seed=self.seed)

    def treebank_corpus(self) -> Corpus[Sentence]:
        """The treebank of sections 4.2 and 5."""
        if self.treebank:
            limit = self.sentences or None
            return resolve_treebank(self.treebank, sentences=limit, seed=self.seed)
        return silver_treebank(self._text, count=self.sentences or 10**9, seed=self.seed)

    def coreference_corpus(self) -> Corpus[Document]:
        """The documents of section 4.3."""
        if not self.coref:
            return coreference_corpus()
        return resolve_coreference(str(given_path(self.coref)))

    def segment_store(self) -> Store | Stream:
        """Token-level maps over the text (or their stream)."""
        if self.stream:
            return Stream.open(self.encoder, self.segment_corpus(), max_tokens=self.max_tokens)
        return self._extract(self.encoder, self.segment_corpus(), level="token")

    def treebank_store(self) -> Store:
        """Word-level maps and word vectors over the treebank."""
        return self._word_store(self.encoder, self.treebank_corpus(), hidden=True)

    def random_treebank_stores(self) -> Iterator[Store]:
        """Word-level maps of the model with random weights, one store for each of the seeds."""
        corpus = _already_read(self.treebank_corpus(), self.treebank_store())
        for seed in range(self.seeds):
            yield self._word_store(self.load(seed), corpus)

    def coreference_store(self) -> Store:
        """Word-level maps over the coreference documents."""
        return self._word_store(self.encoder, self.coreference_corpus())

    @cached_property
    def embeddings(self) -> Embeddings:
        """GloVe vectors."""
        return read_glove(Path(self.vectors)) if self.vectors else glove()

    @cached_property
    def sums(self) -> averages.Sums:
        """The sums of sections 3 and 6 over the text, computed in one pass and kept."""
        store = self.segment_store()
        flat = cached_table(
            "sections-3-and-6",
            lambda: averages.to_table(self._sweep(store)),
            depends_on={"store": store.key},
            code="analysis.averages.sweep",
        )
        return averages.from_table(flat)

    def distances(self) -> pd.DataFrame:
        """The square table of the distances between heads (section 6), in nats."""
        identity = self.encoder.identity
        return distance_table(self.sums.mean("distance"), identity["layers"], identity["heads"])

    def gradient_table(self) -> pd.DataFrame:
        """The table of Figure 3."""
        store, count = self.segment_store(), self.gradient_segments
        return cached_table(
            "gradients",
            lambda: gradients.gradient_table(self.encoder, store, count, seed=self.seed),
            depends_on={"store": store.key, "segments": count, "seed": self.seed},
            code="model.gradients.gradient_table",
        )

    def probe_tables(self) -> dict[str, pd.DataFrame]:
        """The tables of section 5, trained once and kept."""
        store = self.treebank_store()
        vectors = {"vectors": self.embeddings.name, "fingerprint": self.embeddings.fingerprint}
        return cached_tables(
            "table3",
            lambda: table3.table3(
                store, self.random_treebank_stores(), self.embeddings.vectors, seeds=self.seeds
            ),
            depends_on={"store": store.key, "seeds": self.seeds, **vectors},
            code="analysis.table3.table3",
        )

    @property
    def slug(self) -> str:
        """The folder name of the results: ``name``, or the model's."""
        return self.name or models.slug(self.model, random_seed=self.random_init)

    @property
    def results(self) -> Path:
        """The folder of this study's figures and tables."""
        return figures_dir(self.slug)

    def save_table(self, table: pd.DataFrame, name: str) -> pd.DataFrame:
        """Write a table to ``tables/`` and return it, so that a cell can end with it."""
        folder = self.results / "tables"
        folder.mkdir(parents=True, exist_ok=True)
        table.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
        return table

    def save_claims(self, later: Iterable[Claim] = ()) -> pd.DataFrame:
        """Check every claim that the tables so far can tell, and write ``claims.csv``.

        Those of ``later`` papers are in it if this run has measured them.
        """
        tables = self.tables()
        others = check_claims(tables, later)
        measured = others[others["holds"] != NOT_MEASURED]
        return self.save_table(
            pd.concat([check_claims(tables, clark_claims()), measured]), "claims"
        )

    def save_figure(self, figure: Figure, name: str) -> Figure:
        """Write a figure as PNG and SVG and return it, so that a cell can end with it."""
        plots.save_figure(figure, self.results, name)
        return figure

    def read_table(self, name: str) -> pd.DataFrame:
        """Read a table that an earlier notebook has written.

        Raises:
            InputError: no notebook has written it yet.
        """
        path = self.results / "tables" / f"{name}.csv"
        if not path.is_file():
            raise InputError(f"{path.name}: not there yet; run the notebook that writes it first")
        return pd.read_csv(path)

    def findings(self) -> dict[str, str]:
        """Return the best head of each relation of Figure 5 and of coreference, if known yet."""
        tables, found = self.tables(), {}
        if "dependency_heads" in tables:
            heads = tables["dependency_heads"].set_index("relation")["head"]
            names = paper_names(heads.index)
            found = {names[own]: heads[own] for own in names if names[own] in showcase.RELATIONS}
        if "coreference" in tables:
            own = tables["coreference"]["system"].str.extract(r"^head (\d+-\d+)$")[0].dropna()
            found["coreference"] = own.iloc[0]
        return found

    def viewers(self) -> list[Viewer]:
        """Return a viewer of each example of Figures 1 and 5 that a notebook has drawn."""
        tables, found = self.tables(), []
        for name in ("fig1_examples", "fig5_examples"):
            rows = tables.get(name, pd.DataFrame({"relation": []}))
            documents = rows["relation"] == COREFERENCE
            if not documents.all():
                found += showcase.viewers(self.treebank_store(), rows[~documents])
            if documents.any():
                found += showcase.viewers(self.coreference_store(), rows[documents])
        return found

    @property
    def minimum_count(self) -> int:
        """How many words a relation needs to be in Table 1: 100, fewer in a small profile."""
        return 100 if os.environ.get("ATTENTION_PROFILE") != "small" else 10

    def silver_quality(self) -> pd.DataFrame | None:
        """Compare spaCy's parses with the treebank's own trees, where those are gold and UD."""
        if not self.treebank:
            return None
        gold = [
            sentence for sentence in self.treebank_corpus().records() if sentence.split == "dev"
        ]
        if scheme_of({name for tree in gold for name in tree.relations}) != "ud":
            return None
        parses = parse_words([tree.words for tree in gold])
        silver = [
            replace(tree, heads=tuple(parse.heads), relations=tuple(parse.relations))
            for tree, parse in zip(gold, parses, strict=True)
        ]
        return attachment_agreement(gold, silver, minimum=self.minimum_count)

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return every table that this study's notebooks have written so far, by name."""
        files = sorted((self.results / "tables").glob("*.csv"))
        return {file.stem: pd.read_csv(file) for file in files}

    def report(self, store: Store | Stream) -> pd.DataFrame:
        """Return what a store holds, and what was dropped or cut on the way, as a table."""
        facts = {
            "corpus": store.manifest["corpus"]["name"],
            "examples": f"{len(store):,}",
            "layers x heads": f"{store.layers} x {store.heads}",
            "level": store.level,
        }
        dropped = {reason: f"{count:,}" for reason, count in store.manifest["report"].items()}
        return pd.Series(facts | dropped, name="store").to_frame()

    def describe(self) -> dict[str, Any]:
        """Return the facts of the run: settings, model, versions, git commit."""
        return {
            "settings": asdict(self),
            "model": self.encoder.identity,
            "objective": self.encoder.objective,
            "corpora": {
                "text": self.segment_corpus().name,
                "treebank": self.treebank_corpus().name,
                "coreference": self.coreference_corpus().name,
                "word vectors": Path(self.vectors).stem or embeddings.DEFAULT,
            },
            "versions": {name: version(name) for name in PACKAGES}
            | {"python": platform.python_version()},
            "commit": _commit(),
        }

    def save_description(self) -> None:
        """Write ``run.json`` beside the figures."""
        self.results.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.describe(), indent=1, default=str)
        (self.results / "run.json").write_text(text + "\n", encoding="utf-8")

    @property
    def _text(self) -> Path | None:
        return given_path(self.text) if self.text else None

    def _word_store(self, encoder: Encoder, corpus: Corpus, *, hidden: bool = False) -> Store:
        return self._extract(encoder, corpus, level="word", hidden=hidden)

    def _extract(
        self, encoder: Encoder, corpus: Corpus, *, level: Level, hidden: bool = False
    ) -> Store:
        how = {"level": level, "max_tokens": self.max_tokens, "hidden": hidden}
        if not self._distributed:
            return extract(encoder, corpus, **how)
        with dask_client(scheduler=self.scheduler, workers=self.workers) as client:
            return extract_distributed(encoder, corpus, client, **how)

    def _sweep(self, store: Store | Stream) -> averages.Sums:
        if not self._distributed:
            return averages.sweep(store)
        with dask_client(scheduler=self.scheduler, workers=self.workers) as client:
            return averages.combine(map_shards(averages.shard_sums, store, client))

    @property
    def _distributed(self) -> bool:
        return bool(self.workers or self.scheduler)


def _already_read(corpus: Corpus[Sentence], store: Store) -> Corpus[Sentence]:
    """Return the same treebank, read from a store's records: parsing it again would take long."""

    def read(counts: Counter[str]) -> Iterator[Sentence]:
        counts.update(store.manifest["report"])
        for record in store.records():
            words, heads, relations = (tuple(record[k]) for k in ("words", "heads", "relations"))
            yield Sentence(words, heads, relations, record["split"], record["source"])

    return replace(corpus, read=read)


def _commit() -> str | None:
    """Return the git commit of the project, with a mark if the code that computes differs from it.

    Figures, tables and executed notebooks are what a run writes: they do not count.
    """
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--", "helpers", "requirements.txt")
    return f"{commit}-dirty" if commit and changed else commit


def _git(*arguments: str) -> str | None:
    """Return what git prints in the project's folder; None without git or a repository."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=project_root(), capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
