"""A study: a model, its corpora and settings, and the folder of its results.

Each notebook finds the tables that earlier ones have computed.  Methods import what they need, so
that a notebook whose tables are all in the cache loads neither a model nor the libraries that run
one.
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
from helpers.files import build_dir, figures_dir, write_atomic
from helpers.progress import note_output
from helpers.results import claim_folder, fingerprints, in_batch_run, made_by, register
from helpers.settings import capped
from helpers.sources import Sources, recorded_outputs

if TYPE_CHECKING:
    from IPython.display import Markdown
    from matplotlib.figure import Figure

    from helpers.claims.engine import Claim
    from helpers.data.glove import Embeddings
    from helpers.metrics.head_counts import HeadCounts
    from helpers.metrics.surface import Sums
    from helpers.model.encoder import Encoder
    from helpers.store.store import Store

# Numbers that a claim may lack.
OPTIONAL_CLAIM_COLUMNS = ("value", "threshold", "control", "entropy_matched_control")
DISCUSSION = Path(__file__).with_name("discussion.md")
CONTROL_GRADIENTS = 32  # segments for their gradients
# The beginnings of the names of columns that may be empty.
MAY_BE_MISSING = ("paper", "p", "within", "between", "neighbouring", "validation")
NON_FINITE_HINT = (
    "weights or states that are not finite, or a damaged store: try 'python -m helpers verify'"
)


class Study(Sources):
    """The settings of a run, and through them its stores, tables and figures.

    Parameters
    ----------
    **settings
        As in `Settings`; a notebook writes ``Study.of(globals())``.
    """

    @cached_property
    def embeddings(self) -> Embeddings:
        """The word vectors of the Attn + GloVe probe (section 5)."""
        from helpers.data.glove import glove, read_glove

        return read_glove(self.vectors) if self.vectors else glove()

    @cached_property
    def sums(self) -> Sums:
        """The sums of sections 3 and 6 over the text, computed in one pass and cached."""
        return self._sums(self.segment_store())

    @cached_property
    def control_sums(self) -> dict[str, Sums]:
        """The sums of sections 3 and 6 of each control, over a part of the text."""
        count = capped(self.segments, self.control_segments)
        corpus = replace(self, segments=count).segment_corpus()
        stores = {}
        for name, encoder in self.controls.items():
            stores[name] = self._extract(encoder, corpus, stored=False)
        return {name: self._sums(store) for name, store in stores.items()}

    def _sums(self, store: Store) -> Sums:
        from helpers.metrics import surface

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
            module="helpers.metrics.surface",
        )
        return surface.Sums.from_arrays(arrays)

    def distances(self, sums: Sums | None = None, *, words: bool = False) -> pd.DataFrame:
        """Compute the square table of the distances between heads, in nats (section 6).

        Parameters
        ----------
        sums : Sums, optional
            Those of a control; by default the study's own.
        words : bool
            Whether special tokens are left out, which is measured on one of eight examples.

        Returns
        -------
        DataFrame
            Distances by head; rows and columns are named ``layer-head``.
        """
        from helpers.metrics.clustering import distance_table

        sums = sums or self.sums
        return distance_table(sums.mean_distances(words=words), *sums.mean("current").shape)

    def gradient_table(self, control: Encoder | None = None) -> pd.DataFrame:
        """Compute the gradients of the loss by attention weights (section 3.2, Figure 3), once.

        Parameters
        ----------
        control : Encoder, optional
            A control, which sees fewer segments; by default the study's own model.

        Returns
        -------
        DataFrame
            One row per layer; for its columns see `surface.gradient_table`.
        """
        from helpers.metrics.surface import gradient_table
        from helpers.model.gradients import choose_segments, gradient_importance

        store = self.segment_store()
        encoder = self.encoder if control is None else control
        articles = [cluster_of(record, index) for index, record in enumerate(store.records())]
        max_segments = len(store) if control is None else CONTROL_GRADIENTS
        indices = choose_segments(
            articles,
            capped(self.gradient_segments, max_segments),
            contrastive=encoder.objective == "contrastive",
        )
        records = [store.record(index) for index in indices]
        gradients = cached(
            "gradients",
            partial(gradient_importance, encoder, records, seed=self.seed),
            inputs={
                "store": store.key,
                "records": records,
                "seed": self.seed,
                "control": None if control is None else control.identity,
            },
            module="helpers.model.gradients",
        )
        articles_of_records = [articles[index] for index in indices]
        return gradient_table(gradients, articles_of_records, encoder.objective)

    def head_counts(self, store: Store) -> HeadCounts:
        """Count the words that every attention head gets right over a treebank, once (section 4.2).

        Parameters
        ----------
        store : Store
            Word-level maps of a treebank.

        Returns
        -------
        HeadCounts
        """
        from helpers.metrics.head_counts import HeadCounts, count_heads

        arrays = cached(
            "head-counts",
            lambda: vars(count_heads(store)),
            inputs={"store": store.key},
            module="helpers.metrics.head_counts",
        )
        names = tuple(arrays["names"].tolist())
        return HeadCounts(**{**arrays, "names": names})

    def split_words(self, store: Store) -> pd.DataFrame:
        """Count the words of a treebank by their number of tokens, once (section 4.1).

        Parameters
        ----------
        store : Store
            Word-level maps of a treebank.

        Returns
        -------
        DataFrame
            For its columns see `dependency_heads.split_words`.
        """
        from helpers.metrics.dependency_heads import split_words

        def word_ids(words: list[str]) -> list[int | None]:
            return self.encoder.encode_words(words).word_ids

        return cached(
            "split-words",
            partial(split_words, store.records(), word_ids),
            inputs={"store": store.key},
            module="helpers.metrics.dependency_heads",
        )

    def special_candidates(self, store: Store, table: pd.DataFrame) -> pd.DataFrame:
        """Compute Table 1's accuracies with special tokens among the candidates, once.

        Parameters
        ----------
        store : Store
            Word-level maps of a treebank.
        table : DataFrame
            Table 1.

        Returns
        -------
        DataFrame
            For its columns see `dependency_heads.with_special_tokens`.
        """
        from helpers.metrics.dependency_heads import with_special_tokens

        columns = ["relation", "count", "head", "direction", "accuracy"]
        return cached(
            "special-candidates",
            partial(with_special_tokens, store, table),
            inputs={"store": store.key, "table": table[columns]},
            module="helpers.metrics.dependency_heads",
        )

    def probe_tables(self) -> dict[str, pd.DataFrame]:
        """Train the probes of section 5, once.

        Returns
        -------
        dict of str to DataFrame
            The tables of section 5, by name.
        """
        store = self.treebank_store()

        def compute() -> dict[str, pd.DataFrame]:
            from helpers.probes.table3 import table3

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
            module="helpers.probes.table3",
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

        Parameters
        ----------
        table : DataFrame
            The table.
        name : str
            Name of its file, without the suffix.
        optional : collection of str
            Columns that may be empty.

        Returns
        -------
        DataFrame
            The table.

        Raises
        ------
        TableError
            As in `check_table`.
        """
        check_table(
            table,
            name,
            special_tokens=lambda: self.encoder.special_tokens,
            optional=optional,
            dtype=self.dtype,
        )
        self._claim_folder()
        write_table(table, self.output / "tables", name, latex=self.latex)
        self._written.add(name)
        self._register("tables", name)
        return table

    def claims(self) -> pd.DataFrame:
        """Check the paper's claims against the tables that there are so far.

        Returns
        -------
        DataFrame
            One row per claim: the paper's number, the number of this run, and the verdict.
        """
        from helpers.claims.clark2019 import CLAIMS
        from helpers.claims.engine import check_claims

        return check_claims(self.tables(), CLAIMS)

    def save_claims(self, later: Iterable[Claim] = ()) -> pd.DataFrame:
        """Write ``claims.csv`` and return the paper's claims.

        Parameters
        ----------
        later : iterable of Claim
            Claims of later papers.  Without them, the rows of later papers that are in the file
            already stay in it.

        Returns
        -------
        DataFrame
            The paper's claims, as in `claims`.
        """
        from helpers.claims.engine import NOT_MEASURED, check_claims

        tables = self.tables()
        paper_rows = self.claims()
        later_rows = check_claims(tables, later)
        if "claims" in tables and not later:
            # Sections of later papers are names, those of this paper numbers.
            saved = tables["claims"]
            later_rows = saved[saved["section"].astype(str).str[0] > "9"]
        later_rows = later_rows[later_rows["verdict"] != NOT_MEASURED]
        rows = later_rows
        if (paper_rows["verdict"] != NOT_MEASURED).any():
            rows = pd.concat([paper_rows, later_rows])
        if len(rows):
            self.save_table(rows, "claims", optional=OPTIONAL_CLAIM_COLUMNS)
        return paper_rows

    def discussion(self, part: str, *, aside: bool = False) -> Markdown | None:
        """Show a part of ``discussion.md``, which is about the default run.

        Parameters
        ----------
        part : str
            Heading of the part.
        aside : bool
            Whether the part is shown next to the notebook's main part.  Other runs than the
            default one show a line instead of the main part, and nothing instead of an aside.

        Returns
        -------
        Markdown or None
        """
        from IPython.display import Markdown

        if self.is_default:
            return Markdown(_discussion_part(part))
        if aside:
            return None
        return Markdown(
            f"`helpers/{DISCUSSION.name}` discusses the results of the default run. This run, "
            f"`{self.slug}`, is another one: its verdicts are in its tables of claims."
        )

    def save_figure(self, figure: Figure, name: str) -> Figure:
        """Write a figure in the formats of the settings and return it for display.

        Parameters
        ----------
        figure : matplotlib.figure.Figure
            The figure.
        name : str
            Name of its files, without the suffix.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
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
            note_output(group, name)
        else:
            register(self.results, group, name, self.made_by)

    def tables(self) -> dict[str, pd.DataFrame]:
        """Read the tables that this run's notebooks have written so far, by name.

        In a batch run, its own tables are those in the build folder.  Those of notebooks that it
        does not run are in the results folder.

        Returns
        -------
        dict of str to DataFrame
            The tables by the names of their files.
        """
        if not in_batch_run():
            return read_tables(self.results, self._written)
        tables = read_tables(self.results)
        tables.update(read_tables(self.output, self._written))
        return tables

    @cached_property
    def _written(self) -> set[str]:
        return set()


def _discussion_part(heading: str) -> str:
    """Read the text under a heading of ``discussion.md``."""
    for section in DISCUSSION.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, text = section.strip().split("\n\n", 1)
        if title == heading:
            return text
    raise KeyError(heading)


def describe_store(store: Store) -> pd.DataFrame:
    """Describe the examples of a store.

    Parameters
    ----------
    store : Store
        The store.

    Returns
    -------
    DataFrame
        One column of texts: the corpus, the numbers of examples, layers, heads and, for a
        treebank, documents, and the numbers of examples that were dropped or cut, by reason.
    """
    rows = {
        "corpus": store.spec.corpus["name"],
        "examples": f"{len(store):,}",
        "layers x heads": f"{store.layers} x {store.heads}",
        "level": store.spec.level,
    }
    is_treebank = store.spec.level == "word" and "relations" in store.record(0)
    if is_treebank:
        rows["documents"] = describe_documents(store.records())
    for reason, count in store.manifest.report.items():
        rows[reason] = f"{count:,}"
    return pd.Series(rows, name="store").to_frame()


def show_claims(claims: pd.DataFrame, section: str = "") -> None:
    """Display claims in full and, in a part that can be opened, how each was measured.

    Parameters
    ----------
    claims : DataFrame
        Table of claims, as from `Study.claims`.
    section : str
        Beginning of the sections to display; by default all.
    """
    from IPython.display import HTML, display

    claims = claims[claims["section"].str.startswith(section)].reset_index(drop=True)
    with pd.option_context("display.max_colwidth", None, "display.max_rows", None):
        display(claims.drop(columns="how_measured").round(3))
        measurements = claims[["claim", "how_measured"]].to_html(index=False)
    summary = "<summary>How each was measured</summary>"
    display(HTML(f"<details>{summary}{measurements}</details>"))


def check_table(
    table: pd.DataFrame,
    name: str,
    *,
    special_tokens: Callable[[], Mapping[str, str | None]],
    optional: Collection[str] = (),
    dtype: str = "float32",
) -> None:
    """Refuse a table with a column of numbers that are infinite, or all missing.

    A column may be empty if it is optional, a bound of an interval, about two heads or layers or
    about a number of the paper (`MAY_BE_MISSING`), or about a special token that the model lacks.

    Parameters
    ----------
    table : DataFrame
        The table.
    name : str
        Its name in messages.
    special_tokens : callable
        Function that returns the model's tokens for "cls" and "sep"; it is called if a column
        about one of them is empty.
    optional : collection of str
        Columns that may be empty.
    dtype : str
        Precision of the run, for the advice in messages.

    Raises
    ------
    TableError
        With the table, the column and the likely cause.
    """
    if not len(table):
        return
    for column in table.select_dtypes("float"):
        values = table[column]
        if np.isinf(values).any():
            problem = "has infinite numbers"
        elif values.isna().all() and not _may_be_empty(str(column), special_tokens, optional):
            problem = "has no number"
        else:
            continue
        raise TableError(
            f"{name}.csv: column {column} {problem}; {NON_FINITE_HINT}{or_wider(dtype)}"
        )


def _may_be_empty(
    column: str,
    special_tokens: Callable[[], Mapping[str, str | None]],
    optional: Collection[str],
) -> bool:
    """Tell whether a column of a table may have no number."""
    parts = column.split("_")
    if column in optional or parts[0] in MAY_BE_MISSING or parts[-1] in ("low", "high"):
        return True
    roles = {"cls", "sep"}.intersection(parts)
    return any(special_tokens().get(role) is None for role in roles)


def write_table(table: pd.DataFrame, folder: Path, name: str, *, latex: bool = False) -> None:
    """Write ``folder/name.csv`` with six digits, with ``latex`` also ``.tex`` with about three."""
    text = escape_formulas(table).to_csv(index=False, float_format="%.6g")
    write_atomic(folder / f"{name}.csv", text.encode())
    if latex:
        write_atomic(folder / f"{name}.tex", as_latex(table).encode())


def as_latex(table: pd.DataFrame) -> str:
    """Write a table as LaTeX (booktabs), its numbers rounded to about three digits.

    Parameters
    ----------
    table : DataFrame
        The table; underscores in the names of its columns become spaces.

    Returns
    -------
    str
        A ``tabular`` environment.
    """

    def format_number(value: float) -> str:
        if value % 1 == 0 or abs(value) >= 1000:
            return f"{value:.0f}"
        return f"{value:.3g}"

    table = table.rename(columns=lambda name: str(name).replace("_", " "))
    text = table.to_latex(index=False, escape=True, na_rep="", float_format=format_number)
    return text.replace("·", r"\textperiodcentered{}")


def read_tables(results: Path, written: Iterable[str] = ()) -> dict[str, pd.DataFrame]:
    """Read the tables of the run that a results folder belongs to, by name.

    If ``run.json`` lists tables, those and the ``written`` ones are read, otherwise all tables of
    the folder.  InputError for a file that is no table.
    """
    names = recorded_outputs(results, "tables")
    if names is not None:
        names = names.union(written)
    tables = {}
    for path in sorted((results / "tables").glob("*.csv")):
        if names is not None and path.stem not in names:
            continue
        try:
            tables[path.stem] = unescape_formulas(pd.read_csv(path))
        except ValueError as error:
            problem = str(error).splitlines()[0]
            raise InputError(f"{path}: not a table ({problem}); run the notebook again") from error
    return tables


def head_grid(values: Shaped[np.ndarray, "layer head"]) -> pd.DataFrame:
    """Make a table of one number per attention head, with numbers of layers and heads from 1.

    Parameters
    ----------
    values : array of shape (layer, head)
        One number per head.

    Returns
    -------
    DataFrame
        One row per layer, one column per head.
    """
    n_layers, n_heads = values.shape
    layers = pd.RangeIndex(1, n_layers + 1, name="layer")
    heads = pd.RangeIndex(1, n_heads + 1, name="head")
    return pd.DataFrame(values, layers, heads)
