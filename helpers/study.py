"""One study: a model, its corpora and its settings, and where its results go.

What one notebook has computed, the next one finds.  What a method needs is imported in it: a
notebook whose tables are all in the cache loads neither a model nor the libraries that run one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Shaped

from helpers.cache import cached
from helpers.csv_cells import escape_formulas, unescape_formulas
from helpers.data.records import cluster_of, describe_documents
from helpers.errors import InputError, TableError, or_wider
from helpers.paths import build_dir, figures_dir, write_whole
from helpers.results import claim_folder, fingerprints, in_batch_run, made_by, register
from helpers.settings import capped
from helpers.sources import Sources, listed
from helpers.work import note_written

if TYPE_CHECKING:
    from IPython.display import Markdown
    from matplotlib.figure import Figure

    from helpers.analysis.head_counts import HeadCounts
    from helpers.analysis.paper import Claim
    from helpers.analysis.surface import Sums
    from helpers.data.glove import Embeddings
    from helpers.model.encoder import Encoder
    from helpers.store.store import Store

OF_CLAIMS = ("here", "threshold", "control", "focused_control")  # numbers that may not be there
DISCUSSION = Path(__file__).with_name("discussion.md")
CONTROL_GRADIENTS = 32  # segments for their gradients
# What columns begin with that may be empty.
MAY_BE_MISSING = ("paper", "p", "within", "between", "neighbouring", "validation")
CAUSE = "weights or states that are not finite, or a damaged store: try 'python -m helpers verify'"


class Study(Sources):
    """The settings of a run, and through them its stores, tables and figures."""

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
    def control_sums(self) -> dict[str, Sums]:
        """The same of the controls, over a part of the text."""
        count = capped(self.segments, self.control_segments)
        corpus = replace(self, segments=count).segment_corpus()
        stores = {k: self._extract(own, corpus, stored=False) for k, own in self.controls.items()}
        return {name: self._sums(store) for name, store in stores.items()}

    def _sums(self, store: Store) -> Sums:
        from helpers.analysis import surface

        def compute() -> dict[str, np.ndarray]:
            if not (self.workers or self.scheduler):
                return surface.sweep(store).to_arrays()
            from helpers.store.cluster import dask_client, map_shards

            with dask_client(scheduler=self.scheduler, workers=self.workers) as client:
                return surface.combine(map_shards(surface.shard_sums, store, client)).to_arrays()

        arrays = cached(
            "sections-3-and-6",
            compute,
            inputs={"store": store.key},
            module="helpers.analysis.surface",
        )
        return surface.Sums.from_arrays(arrays)

    def distances(self, sums: Sums | None = None, *, words: bool = False) -> pd.DataFrame:
        """The square table of the distances between heads (section 6), in nats; among words.

        Of a control where its ``sums`` are given.
        """
        from helpers.analysis.clustering import distance_table

        sums = sums or self.sums
        return distance_table(sums.mean_distances(words=words), *sums.mean("current").shape)

    def gradient_table(self, control: Encoder | None = None) -> pd.DataFrame:
        """The table of Figure 3, or that of a control over fewer segments."""
        from helpers.analysis.surface import gradient_table
        from helpers.model.gradients import chosen_segments, gradient_importance

        store, encoder = self.segment_store(), control or self.encoder
        most = CONTROL_GRADIENTS if control else len(store)
        articles = [cluster_of(record, index) for index, record in enumerate(store.records())]
        count = capped(self.gradient_segments, most)
        contrastive = encoder.objective == "contrastive"
        places = chosen_segments(articles, count, contrastive=contrastive)
        records = [store.record(place) for place in places]
        found = cached(
            "gradients",
            partial(gradient_importance, encoder, records, seed=self.seed),
            inputs={
                "store": store.key,
                "records": records,
                "seed": self.seed,
                "control": control and control.identity,
            },
            module="helpers.model.gradients",
        )
        return gradient_table(found, [articles[place] for place in places], encoder.objective)

    def head_counts(self, store: Store) -> HeadCounts:
        """What every head gets right over a treebank's maps (section 4.2), counted once."""
        from helpers.analysis.head_counts import HeadCounts, count_heads

        found = cached(
            "head-counts",
            lambda: vars(count_heads(store)),
            inputs={"store": store.key},
            module="helpers.analysis.head_counts",
        )
        return HeadCounts(**found | {"names": tuple(found["names"].tolist())})

    def split_words(self, store: Store) -> pd.DataFrame:
        """How many words of a treebank have how many tokens (section 4.1), counted once."""
        from helpers.analysis.dependency_heads import split_words

        def word_ids(words: list[str]) -> list[int | None]:
            return self.encoder.encode_words(words).word_ids

        return cached(
            "split-words",
            partial(split_words, store.records(), word_ids),
            inputs={"store": store.key},
            module="helpers.analysis.dependency_heads",
        )

    def special_candidates(self, store: Store, table: pd.DataFrame) -> pd.DataFrame:
        """Table 1's accuracies where special tokens may be picked, too, counted once."""
        from helpers.analysis.dependency_heads import with_special_tokens

        own = table[["relation", "count", "head", "direction", "accuracy"]]
        return cached(
            "special-candidates",
            partial(with_special_tokens, store, table),
            inputs={"store": store.key, "table": own},
            module="helpers.analysis.dependency_heads",
        )

    def probe_tables(self) -> dict[str, pd.DataFrame]:
        """The tables of section 5, trained once and kept."""
        store = self.treebank_store()

        def compute() -> dict[str, pd.DataFrame]:
            from helpers.analysis.table3 import table3

            controls = self.random_treebank_stores()
            return table3(store, controls, self.embeddings, seeds=self.seeds)

        return cached(
            "table3",
            compute,
            inputs={
                "store": store.key,
                "seeds": self.seeds,
                "random stores": self.random_treebank_keys(),
                "vectors": self.embeddings.name,
                "fingerprint": self.embeddings.fingerprint,
            },
            module="helpers.analysis.table3",
        )

    @property
    def results(self) -> Path:
        """The folder of this study's figures and tables."""
        return figures_dir(self.slug)

    @property
    def output(self) -> Path:
        """The folder that tables and figures are written to.

        In a batch run it is the build folder: the run compares them with those in `results` and
        decides which of the two stay there.
        """
        return build_dir(self.slug) if in_batch_run() else self.results

    @cached_property
    def corpus_fingerprints(self) -> dict[str, str]:
        """The SHA-256 of each corpus that the declared settings describe in full."""
        return fingerprints(self, self.declared)

    @cached_property
    def made_by(self) -> dict[str, Any]:
        """The commit, the versions of libraries and the digest of code that this process has."""
        return made_by()

    def save_table(
        self, table: pd.DataFrame, name: str, *, optional: Collection[str] = ()
    ) -> pd.DataFrame:
        """Write a table to ``tables/`` (with ``latex`` in both forms) and return it for display.

        ``optional`` columns may be empty; for TableError see `check_table`.
        """
        how = {"optional": optional, "dtype": self.dtype}
        check_table(table, name, special_tokens=lambda: self.encoder.special_tokens, **how)
        self._claim_folder()
        write_table(table, self.output / "tables", name, latex=self.latex)
        self._written.add(name)
        self._register("tables", name)
        return table

    def claims(self) -> pd.DataFrame:
        """The paper's claims, the paper's numbers and those found so far."""
        from helpers.analysis.measures import clark_claims
        from helpers.analysis.paper import check_claims

        return check_claims(self.tables(), clark_claims())

    def save_claims(self, later: Iterable[Claim] = ()) -> pd.DataFrame:
        """Write ``claims.csv`` (without ``later`` ones, those there stay); return the paper's."""
        from helpers.analysis.paper import NOT_MEASURED, check_claims

        tables, own = self.tables(), self.claims()
        rows = check_claims(tables, later)
        if "claims" in tables and not later:  # their sections have names, the paper's numbers
            rows = tables["claims"].loc[lambda own: own["section"].astype(str).str[0] > "9"]
        rows = rows[rows["holds"] != NOT_MEASURED]
        found = pd.concat([own, rows]) if (own["holds"] != NOT_MEASURED).any() else rows
        if len(found):
            self.save_table(found, "claims", optional=OF_CLAIMS)
        return own

    def discussion(self, part: str, *, aside: bool = False) -> Markdown | None:
        """A part of ``discussion.md``, which is about the default run; of other runs, a line.

        An ``aside`` to a notebook's own part, which has that line, is left out of other runs.
        """
        from IPython.display import Markdown

        if self.is_default:
            parts = DISCUSSION.read_text(encoding="utf-8").split("\n## ")[1:]
            return Markdown(dict(own.strip().split("\n\n", 1) for own in parts)[part])
        other = (
            f"`helpers/{DISCUSSION.name}` discusses what the default run found. This run, "
            f"`{self.slug}`, is another one: its verdicts stand in its tables of claims."
        )
        return None if aside else Markdown(other)

    def save_figure(self, figure: Figure, name: str) -> Figure:
        """Write a figure in the formats that are asked for and return it for display."""
        from helpers.plots.style import save_figure

        self._claim_folder()
        folder = self.output / "figures" if in_batch_run() else self.results
        save_figure(figure, folder, name, paper=self.figures == "pdf")
        self._register("figures", name)
        return figure

    def _claim_folder(self) -> None:
        """Say in ``run.json`` which settings and corpora the results are of; a run has done so."""
        if not in_batch_run():
            claim_folder(self, self.results, self.corpus_fingerprints)

    def _register(self, group: str, name: str) -> None:
        """List a file that was just written: for the batch run, or in ``run.json`` at once."""
        if in_batch_run():
            note_written(group, name)
        else:
            register(self.results, group, name, self.made_by)

    def tables(self) -> dict[str, pd.DataFrame]:
        """Read the tables that this run's notebooks have written so far, by name.

        In a batch run, its own tables are those in the build folder.  Those of notebooks that it
        does not run are in the results folder.
        """
        if not in_batch_run():
            return read_tables(self.results, self._written)
        tables = read_tables(self.results)
        tables.update(read_tables(self.output, self._written))
        return tables

    @cached_property
    def _written(self) -> set[str]:
        return set()


def describe_store(store: Store) -> pd.DataFrame:
    """Return what a store holds, and what was dropped or cut on the way, as a table."""
    facts = {"corpus": store.spec.corpus["name"], "examples": f"{len(store):,}"}
    facts |= {"layers x heads": f"{store.layers} x {store.heads}", "level": store.spec.level}
    if store.spec.level == "word" and "relations" in store.record(0):
        facts["documents"] = describe_documents(store.records())
    dropped = {reason: f"{count:,}" for reason, count in store.manifest.report.items()}
    return pd.Series(facts | dropped, name="store").to_frame()


def show_claims(claims: pd.DataFrame, section: str = "") -> None:
    """Display claims (about one section) in full and, to be opened, how each was measured."""
    from IPython.display import HTML, display

    claims = claims[claims["section"].str.startswith(section)].reset_index(drop=True)
    with pd.option_context("display.max_colwidth", None, "display.max_rows", None):
        display(claims.drop(columns="how_measured").round(3))
        how = claims[["claim", "how_measured"]].to_html(index=False)
    display(HTML(f"<details><summary>How each was measured</summary>{how}</details>"))


def check_table(
    table: pd.DataFrame,
    name: str,
    *,
    special_tokens: Callable[[], Mapping[str, str | None]],
    optional: Collection[str] = (),
    dtype: str = "float32",
) -> None:
    """Refuse a table with a column of numbers that are infinite, or all missing.

    Missing may be what the paper does not say, intervals, p-values, ``optional`` columns, what
    takes two heads or layers (`MAY_BE_MISSING`), and what is about [CLS] or [SEP] if the model, as
    ``special_tokens`` is then asked, has no such token.  TableError names table, column and likely
    cause, for this ``dtype``.
    """

    def refused(problem: str) -> TableError:
        return TableError(f"{name}.csv: column {column} {problem}; {CAUSE}{or_wider(dtype)}")

    for column in table.select_dtypes("float") if len(table) else ():
        values, parts = table[column], str(column).split("_")
        if np.isinf(values).any():
            raise refused("has infinite numbers")
        expected = column not in optional and parts[0] not in MAY_BE_MISSING
        if values.isna().all() and expected and parts[-1] not in ("low", "high"):
            about = {"cls", "sep"}.intersection(parts)
            if not any(special_tokens().get(role) is None for role in about):
                raise refused("has no number")


def write_table(table: pd.DataFrame, folder: Path, name: str, *, latex: bool = False) -> None:
    """Write ``folder/name.csv`` with six digits, with ``latex`` also ``.tex`` with about three."""
    text = escape_formulas(table).to_csv(index=False, float_format="%.6g")
    write_whole(folder / f"{name}.csv", text.encode())
    if latex:
        write_whole(folder / f"{name}.tex", as_latex(table).encode())


def as_latex(table: pd.DataFrame) -> str:
    """Return a table as LaTeX (booktabs), its numbers rounded to about three digits."""

    def shown(value: float) -> str:
        return f"{value:.0f}" if value % 1 == 0 or abs(value) >= 1000 else f"{value:.3g}"

    named = table.rename(columns=lambda name: str(name).replace("_", " "))
    text = named.to_latex(index=False, escape=True, na_rep="", float_format=shown)
    return text.replace("·", r"\textperiodcentered{}")


def read_tables(results: Path, written: Iterable[str] = ()) -> dict[str, pd.DataFrame]:
    """Return the tables of the run that a results folder belongs to, by name.

    Those that ``run.json`` lists, and ``written`` just now; where the notebooks were run one by
    one, all of the folder.  InputError where a table cannot be read.
    """
    own = listed(results, "tables")
    found = {}
    for path in sorted((results / "tables").glob("*.csv")):
        if own is not None and path.stem not in own.union(written):
            continue
        try:
            found[path.stem] = unescape_formulas(pd.read_csv(path))
        except ValueError as error:
            problem = str(error).splitlines()[0]
            raise InputError(f"{path}: not a table ({problem}); run the notebook again") from error
    return found


def head_grid(values: Shaped[np.ndarray, "layer head"]) -> pd.DataFrame:
    """Return one number a head as a table to look at: a row a layer, a column a head, from 1."""
    layers, heads = (pd.RangeIndex(1, size + 1) for size in values.shape)
    return pd.DataFrame(values, layers.rename("layer"), heads.rename("head"))
