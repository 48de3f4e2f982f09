"""A study: settings, a model, its controls, corpora and stores, and the results of a run.

Each notebook finds the tables that earlier ones have computed.  A model is loaded when something is
to be computed; a finished store is opened without one.  Methods import what they need, so that a
notebook whose tables are all in the cache loads neither a model nor the libraries that run one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from difflib import get_close_matches
from functools import cache, cached_property, partial
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from jaxtyping import Shaped

from helpers import metrics
from helpers.cache import cached
from helpers.data.language import BUNDLED_IN_ENGLISH, ENGLISH, is_english
from helpers.data.records import cluster_of, describe_documents
from helpers.errors import InputError, ModelError, StoreError
from helpers.progress import progress
from helpers.results import Results, run_name
from helpers.settings import Settings, capped, default_settings, flag
from helpers.store import CODE as STORE_CODE
from helpers.torch_utils import torch_device

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import ModuleType

    from distributed import Client

    from helpers.data.glove import Embeddings
    from helpers.data.records import Corpus, Document, PairedText, Segment, Sentence
    from helpers.metrics.coreference import AntecedentJudgements
    from helpers.metrics.head_counts import HeadCounts
    from helpers.metrics.surface import Sums
    from helpers.model.encoder import Encoder
    from helpers.store.store import Store

CONTROL_GRADIENTS = 32  # segments for their gradients
# Segments on which the heads of a control get the model's entropies.
ENTROPY_SEGMENTS = 16
QUICK_ENTROPY_SEGMENTS = 4

MODEL_TITLES = {"minilm": "MiniLM", "mpnet": "MPNet", "smollm2": "SmolLM2-135M"}
DECODER = "The model is a decoder: under its causal mask a token sees itself and earlier tokens."
NO_BEGINNING = (
    "Its texts begin without a special token. The first word of a sentence therefore takes "
    "the attention that has no better use, and it stays a candidate in section 4."
)
# Of built-in models whose weights are not those that were trained; shown with every result.
WEIGHTS_NOTES = {"smollm2": "4-bit weights, dequantised"}


class Study:
    """A model, its corpora and its results.

    A study has its ``settings``.  Through them it has the model (``encoder``), the stores of
    attention maps (``segment_store()`` over the text, ``treebank_store()`` and
    ``coreference_store()``), what is computed from them once (``sums``, ``distances()``,
    ...), the controls with random weights (``controls``), and the ``results``,
    which ``save_table`` and ``save_figure`` write.

    Parameters
    ----------
    later : bool
        Whether the results are those of the notebooks on later papers, which are a run of their
        own.
    **settings
        The settings that differ from the defaults, for example ``model="bert-base-uncased"``,
        ``text="my.txt"``, ``segments=100`` or ``name="mine"``.  `Settings` describes all of them.

    Attributes
    ----------
    settings : Settings
        All settings; they do not change.
    results : Results
        The folder of the tables, the figures and ``run.json``.
    uses_cluster : bool
        Whether Dask computes the shards of stores, and the sums over them.
    slug : str
        The name of the paper's run, and of its folders.
    save_table, save_figure, tables : callable
        Those of the results: `Results.save_table`, `Results.save_figure` and `Results.tables`.

    Raises
    ------
    InputError
        For a value that no run can use; the message names the flag.

    Examples
    --------
    >>> study = Study(segments=100)
    >>> store = study.segment_store()
    >>> store[0].attention.shape  # (layer, head, query, key)
    (6, 12, 119, 119)
    """

    # For help and completion: each setting by its name, with its default.
    __signature__ = Signature(
        [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default)
            for name, default in {"later": False, **default_settings()}.items()
        ]
    )

    def __init__(self, *, later: bool = False, **settings: Any) -> None:
        for name in settings.keys() - default_settings().keys():
            close = get_close_matches(name, default_settings(), n=1)
            hint = f"did you mean {close[0]!r}?" if close else "helpers.Settings lists them all"
            raise InputError(f"there is no setting {name!r}; {hint}")
        self.settings = Settings(**settings)
        self.results = Results(self.settings, later=later)
        self.uses_cluster = bool(self.settings.workers or self.settings.scheduler)
        self.slug = run_name(self.settings)
        self.save_table = self.results.save_table
        self.save_figure = self.results.save_figure
        self.tables = self.results.tables

    def __repr__(self) -> str:
        defaults = default_settings()
        named = {"model": self.settings.model}
        for name, value in asdict(self.settings).items():
            if value != defaults[name]:
                named[name] = value
        return f"Study({', '.join(f'{name}={value!r}' for name, value in named.items())})"

    def paper_tables(self) -> dict[str, pd.DataFrame]:
        """Read the tables of the paper's notebooks (00 to 06), which later ones build on.

        Returns
        -------
        dict of str to DataFrame
            The tables by the names of their files.
        """
        return Results(self.settings).tables()

    @property
    def title(self) -> str:
        """The run, its model's size and weights, and the norm lens, for subtitles of figures."""
        parts = [
            MODEL_TITLES.get(self.slug, self.slug),
            f"{self.encoder.layers} layers of {self.encoder.heads} heads",
            WEIGHTS_NOTES.get(self.settings.model, ""),
            "norm lens" if self.settings.lens == "norm" else "",
        ]
        return ", ".join(filter(None, parts))

    @cached_property
    def encoder(self) -> Encoder:
        """The model, loaded once."""
        encoder = self._load(self.settings.random_init)
        self._record(model=encoder.identity, special_tokens=encoder.special_tokens)
        return encoder

    def _record(self, **facts: Any) -> None:
        """Have ``run.json`` say what the results are made from."""
        self.results.facts |= facts

    def _record_corpus(self, role: str, corpus: Corpus) -> None:
        corpora = self.results.facts.setdefault("corpora", {})
        corpora |= {role: corpus.name, f"{role} fingerprint": corpus.fingerprint}

    def save_facts(self, stores: Sequence[Store] = ()) -> None:
        """Have ``run.json`` say which model and language this is, and what the run lacks.

        Parameters
        ----------
        stores : sequence of Store
            The stores of the run; how much of their corpora is used is said, too.
        """
        used: dict[str, str] = {}
        for store in stores:
            for unit, (n_used, n_read) in store.used.items():
                used[unit] = f"{n_used:,} of {n_read:,}"
        self._record(
            used=used,
            model=self.encoder.identity,
            language=self.language,
            objective=self.encoder.objective,
            notes=self.notes,
        )
        with self.results.edited_record():
            pass  # facts go into every record that is written

    def control(self, seed: int) -> Encoder:
        """Load a control with random weights.

        Its seed differs from the one that the study itself uses.

        Parameters
        ----------
        seed : int
            Seed of the random weights.

        Returns
        -------
        Encoder
        """
        own_seed = self.settings.random_init
        if own_seed is not None:
            seed += own_seed + 1
        return self._load(seed)

    @cached_property
    def controls(self) -> dict[str, Encoder]:
        """The controls with random weights, by their names in the column ``model`` of tables."""
        random = self.control(self.settings.seed)
        return {"random": random, "entropy-matched": self._match_entropies(random, self.encoder)}

    def _load(self, random_init: int | None) -> Encoder:
        """Find the study's model, or its control of a seed.

        What a store's key needs of a model is kept, so that finished stores open without weights.
        """
        from helpers.model.encoder import Encoder, encoder_key, load_encoder

        settings = self.settings
        options = {
            "revision": settings.revision,
            "dtype": settings.dtype,
            "random_init": random_init,
        }
        if settings.device not in ("auto", "cpu"):
            torch_device(settings.device)  # fails now, and not when a map is needed
        key = encoder_key(settings.model, **options)
        load = cache(partial(load_encoder, settings.model, device=settings.device, **options))
        properties = cached("model", lambda: load().properties, inputs=key, code=STORE_CODE)
        return Encoder(**properties, load=load)

    def _match_entropies(self, control: Encoder, trained: Encoder) -> Encoder:
        """Give the heads of a control the mean entropies of a model over a part of the text."""
        limit = QUICK_ENTROPY_SEGMENTS if self.settings.preset else ENTROPY_SEGMENTS
        texts = self._store(trained, self.segment_corpus(limit), stream=True)

        def compute() -> list[list[float]]:
            from helpers.model.forward import model_inputs, padded
            from helpers.model.sites import temperatures

            batch = padded(trained, [model_inputs(trained, record) for record in texts.records()])
            return temperatures(control.model.base_model, trained.model.base_model, batch)

        head_temperatures = cached(
            "temperatures",
            compute,
            inputs={"random": control.identity, "texts": texts.key},
            code=STORE_CODE,
        )
        return control.with_temperatures(head_temperatures)

    @cached_property
    def language(self) -> str:
        """The language of section 4, "English" or "not English": the treebank's, or the text's.

        It is English if ``--parser`` names the bundled pipeline, which is English.
        """
        from helpers.data.text_files import existing_file
        from helpers.data.treebank import PIPELINE, is_english_text

        settings = self.settings
        if settings.treebank or settings.pairs:
            sentences = self.treebank_corpus().records()
            english = is_english(" ".join(sentence.words) for sentence in sentences)
        else:
            english = not settings.text or is_english_text(existing_file(settings.text))
        return ENGLISH if english or settings.parser == PIPELINE else f"not {ENGLISH}"

    @property
    def has_parses(self) -> bool:
        """Whether there are annotated sentences, or a parser of the text's language."""
        settings = self.settings
        has_sentences = settings.treebank or settings.pairs
        return bool(has_sentences or settings.parser or self.language == ENGLISH)

    def missing_note(self, setting: str) -> str:
        """Say why a run has no word vectors, or no coreference documents.

        Parameters
        ----------
        setting : str
            "vectors" or "coref".

        Returns
        -------
        str
            One sentence; empty if the run has them.
        """
        if self.language == ENGLISH or getattr(self.settings, setting):
            return ""
        return (
            f"This run has no {BUNDLED_IN_ENGLISH[setting]}: the bundled ones are English, and its "
            f"text or treebank is not. {flag(setting)} takes others."
        )

    @property
    def notes(self) -> list[str]:
        """The sentences on what the run lacks, on its text, and on the objective of gradients."""
        missing = map(self.missing_note, BUNDLED_IN_ENGLISH)
        notes = [*missing, self.objective_note, self.decoder_note, self.long_text_note]
        weights = WEIGHTS_NOTES.get(self.settings.model)
        if weights:
            notes.append(f"The model {self.settings.model} has {weights}.")
        if self.settings.text:
            from helpers.data.preview import note_text
            from helpers.data.text_files import existing_file
            from helpers.data.wikipedia import articles

            notes += note_text(articles(existing_file(self.settings.text)))
        return list(filter(None, notes))

    @property
    def decoder_note(self) -> str:
        """A note on a decoder's mask and the beginning of its texts; empty for other models."""
        if not self.encoder.is_decoder:
            return ""
        roles = self.encoder.special_tokens
        beginning = roles["cls"] or roles.get("first")
        return f"{DECODER} {f'Each text begins with {beginning}.' if beginning else NO_BEGINNING}"

    @property
    def map_tokens(self) -> int:
        """The largest number of tokens of an example; longer texts are cut."""
        return self._map_tokens(self.encoder)

    def _map_tokens(self, encoder: Encoder) -> int:
        """As `map_tokens`, for the model or a control."""
        from helpers.store.format import longest_whole_maps

        longest = longest_whole_maps(encoder.layers, encoder.heads)
        return min(self.settings.max_tokens, longest)

    @property
    def long_text_note(self) -> str:
        """A note on the cut of long texts; empty if the setting fits."""
        if self.map_tokens == self.settings.max_tokens:
            return ""
        return (
            f"Texts are cut at {self.map_tokens:,} tokens, and not at "
            f"{self.settings.max_tokens:,}, because maps of longer texts are too large to be kept."
        )

    @property
    def objective_note(self) -> str:
        """The reason for the contrastive loss, if the checkpoint has the head of another task.

        The text is empty for a language model, and for a model without a head.
        """
        architecture = self.encoder.architecture
        # Sentence encoders may keep the name of the masked language model that they were before.
        has_other_head = re.search("For(?!MaskedLM)[A-Z]|Head", architecture)
        if self.encoder.objective != "contrastive" or not has_other_head:
            return ""
        return (
            f"The checkpoint is a {architecture}. Section 3.2 does not use the objective of its "
            "head, which needs labels or other inputs. It uses the contrastive loss between "
            "neighbouring paragraphs, with which the checkpoint was not trained."
        )

    def segment_corpus(self, limit: int | None = None) -> Corpus[Segment]:
        """Sample the text of sections 3 and 6.

        Parameters
        ----------
        limit : int, optional
            Largest number of segments, which are a part of the sample; by default all of it.

        Returns
        -------
        Corpus of Segment
            A sample of pairs of paragraphs of ``settings.text`` (default: the bundled dump).
        """
        from helpers.data.wikipedia import segments

        settings = self.settings
        sample = segments(settings.text or None, count=settings.segments, seed=settings.seed)
        if limit is None or (settings.segments is not None and limit >= settings.segments):
            return sample
        return sample.part(limit)

    def treebank_corpus(self) -> Corpus[Sentence] | Corpus[PairedText]:
        """Sample the treebank of sections 4.2 and 5, or the sentences with pairs of section 4.2.

        Returns
        -------
        Corpus of Sentence or of PairedText
            A sample of trees of ``settings.treebank`` (default: automatic parses of the text), or
            of the sentences of ``settings.pairs``.
        """
        from helpers.data.corpora import resolve_treebank
        from helpers.data.pairs import paired_corpus
        from helpers.data.treebank import silver_treebank

        settings = self.settings
        count = settings.sentences
        if settings.pairs:
            return paired_corpus(settings.pairs, sentences=count, seed=settings.seed)
        if settings.treebank:
            return resolve_treebank(settings.treebank, sentences=count, seed=settings.seed)
        text = settings.text or None
        return silver_treebank(text, count=count, seed=settings.seed, parser=settings.parser)

    def coreference_corpus(self) -> Corpus[Document]:
        """Choose the documents of section 4.3.

        Returns
        -------
        Corpus of Document
            Those of ``settings.coref``; by default the bundled sample.
        """
        from helpers.data.coreference import coreference_corpus
        from helpers.data.corpora import resolve_coreference

        coref = self.settings.coref
        return resolve_coreference(coref) if coref else coreference_corpus()

    def segment_store(self, limit: int | None = None, *, stream: bool = False) -> Store:
        """Extract the token-level maps over the text.

        Parameters
        ----------
        limit : int, optional
            Largest number of segments, which are a part of the sample; by default all of it.
        stream : bool
            Whether maps are computed when they are read, and none are stored.  With
            ``settings.stream`` they always are.

        Returns
        -------
        Store
            At the level ``token``; records have tokens and a title.
        """
        corpus = self.segment_corpus(limit)
        self._record_corpus("text", corpus)
        return self._store(self.encoder, corpus, stream=stream or self.settings.stream)

    def treebank_store(self, control: Encoder | None = None, *, stream: bool = False) -> Store:
        """Extract the word-level maps and hidden states over the treebank.

        Parameters
        ----------
        control : Encoder, optional
            A control; by default the study's own model.
        stream : bool
            Whether maps are computed when they are read, and none are stored.

        Returns
        -------
        Store
            At the level ``word``; records have words, heads and relations (or pairs), split, source
            and tags.
        """
        encoder = control or self.encoder
        corpus = self.treebank_corpus()
        self._record_corpus("pairs" if self.settings.pairs else "treebank", corpus)
        return self._store(encoder, corpus, level="word", stream=stream, hidden=True)

    def shuffled_store(self) -> Store:
        """Extract the model's maps over the treebank with the words of each sentence shuffled.

        Returns
        -------
        Store
            As that of `treebank_store`, without hidden states.
        """
        from helpers.data.treebank import shuffled_words

        corpus = shuffled_words(cast("Any", self.treebank_corpus()), seed=self.settings.seed)
        return self._store(self.encoder, corpus, level="word")

    def example_store(self, *, stream: bool = False) -> Store:
        """Open the store of the examples of Figure 1.

        Parameters
        ----------
        stream : bool
            Whether maps are computed when they are read, and none are stored.

        Returns
        -------
        Store
            That of the treebank, or that of the segments if there are no parses.
        """
        try:
            return self.treebank_store(stream=stream)
        except (ModelError, StoreError):
            raise
        except InputError:  # the text is too short, no prose, or not of the parser's language
            if self.settings.treebank or self.settings.pairs or self.settings.parser:
                raise
            return self.segment_store(stream=stream)

    def coreference_store(self, control: Encoder | None = None, *, stream: bool = False) -> Store:
        """Extract the word-level maps over the coreference documents.

        Parameters
        ----------
        control : Encoder, optional
            A control; by default the study's own model.
        stream : bool
            Whether maps are computed when they are read, and none are stored.

        Returns
        -------
        Store
            At the level ``word``; records have words, mentions, split and source.
        """
        encoder = control or self.encoder
        corpus = self.coreference_corpus()
        self._record_corpus("coreference", corpus)
        return self._store(encoder, corpus, level="word", stream=stream)

    def antecedents(self, control: Encoder | None = None) -> AntecedentJudgements:
        """Let every attention head and rule pick an antecedent for each mention, once (4.3).

        Parameters
        ----------
        control : Encoder, optional
            A control; by default the study's own model.

        Returns
        -------
        AntecedentJudgements
            What `helpers.metrics.coreference.evaluate_antecedents` returns for `coreference_store`.
        """
        from helpers.metrics.coreference import AntecedentJudgements, evaluate_antecedents

        store = self.coreference_store(control)

        def compute() -> dict[str, np.ndarray]:
            texts = progress(store, "antecedents", unit="document")
            return evaluate_antecedents(text for text in texts).to_arrays()

        inputs = {"store": store.key}
        arrays = cached("antecedents", compute, inputs=inputs, code=metrics.CODE)
        return AntecedentJudgements.from_arrays(arrays)

    def _store(
        self, encoder: Encoder, corpus: Corpus, *, stream: bool = False, **options: Any
    ) -> Store:
        """Open the store of a model's maps over a corpus, after computing those it lacks."""
        from helpers.store import extract

        max_tokens = self._map_tokens(encoder)
        options = {"lens": self.settings.lens, "max_tokens": max_tokens, **options}
        if stream:
            return extract.stream(encoder, corpus, **options)
        if self.uses_cluster:
            options["fill"] = self._fill
        return extract.extract(encoder, corpus, **options)

    def _cluster(self) -> AbstractContextManager[Client]:
        """Start local workers, or connect to the scheduler of the settings."""
        from helpers.store.cluster import dask_client

        return dask_client(scheduler=self.settings.scheduler, workers=self.settings.workers)

    def _fill(self, store: Store, missing: Sequence[int]) -> None:
        """Have a store's missing shards computed by the cluster, which is started for them."""
        from helpers.store.cluster import extract_on_cluster

        with self._cluster() as client:
            extract_on_cluster(client, store, missing)

    @cached_property
    def embeddings(self) -> Embeddings | None:
        """The word vectors of the Attn + GloVe probe (section 5); see `missing_note`."""
        from helpers.data.glove import glove, read_glove

        if self.missing_note("vectors"):
            return None
        vectors = self.settings.vectors
        embeddings = read_glove(vectors) if vectors else glove()
        self.results.facts.setdefault("corpora", {})["word vectors"] = embeddings.name
        return embeddings

    @cached_property
    def sums(self) -> Sums:
        """The sums of section 3 over the text, computed in one pass and cached."""
        from helpers.metrics import surface

        return self._pass_over("section-3", self.segment_store(), surface)

    @cached_property
    def control_sums(self) -> dict[str, Sums]:
        """The sums of section 3 of each control, over a part of the text."""
        from helpers.metrics import surface

        parts = {
            name: self._pass_over("section-3", store, surface)
            for name, store in self._control_segments.items()
        }
        # Models are paired by the names of groups, which are buckets if those of the model are.
        to_groups = partial(surface.combine, in_buckets=self.sums.are_buckets)
        return {name: to_groups([sums]) for name, sums in parts.items()}

    @property
    def sums_by_model(self) -> dict[str, Sums]:
        """The sums of section 3 of the model ("trained") and of its controls."""
        return {"trained": self.sums, **self.control_sums}

    @property
    def _control_limit(self) -> int | None:
        """The largest number of segments of a control."""
        return capped(self.settings.segments, self.settings.control_segments)

    @cached_property
    def _control_segments(self) -> dict[str, Store]:
        """The maps of each control over a part of the text, which sections 3 and 6 read."""
        corpus = self.segment_corpus(self._control_limit)
        return {
            name: self._store(encoder, corpus, stream=self.settings.stream)
            for name, encoder in self.controls.items()
        }

    def _pass_over(self, name: str, store: Store, module: ModuleType) -> Sums:
        """Sum what a module of metrics computes of each shard, once."""
        from helpers.metrics import surface

        def compute() -> dict[str, np.ndarray]:
            if not self.uses_cluster:
                return module.sweep(store).to_arrays()
            from helpers.store.cluster import map_shards

            with self._cluster() as client:
                shards = map_shards(module.sweep, store, client, range(store.n_shards))
                return surface.combine(shards).to_arrays()

        arrays = cached(name, compute, inputs={"store": store.key}, code=metrics.CODE)
        return surface.Sums.from_arrays(arrays)

    def distances(self, control: str = "") -> tuple[pd.DataFrame, pd.DataFrame]:
        """Compute the square tables of the distances between heads, in nats (section 6).

        Parameters
        ----------
        control : str
            Name of one of the `controls`; by default the study's own model.

        Returns
        -------
        distances, distances_among_words : DataFrame
            Distances by head; rows and columns are named ``layer-head``.  In the second table
            special tokens are left out; it is measured on one of eight examples.
        """
        from helpers.metrics import head_distance
        from helpers.metrics.clustering import distance_table

        store = self._control_segments[control] if control else self.segment_store()
        sums = self._pass_over("section-6", store, head_distance)
        return (
            distance_table(sums.mean("distances"), store.layers, store.heads),
            distance_table(sums.mean("word_distances"), store.layers, store.heads),
        )

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
        from helpers.metrics.surface import gradient_table, table_without_gradients
        from helpers.model.gradients import ONE_ARTICLE, choose_segments, gradient_importance

        store = self.segment_store()
        encoder = control or self.encoder
        articles = [cluster_of(record, index) for index, record in enumerate(store.records())]
        self._record(objective=encoder.objective, notes=self.notes)
        if encoder.objective == "contrastive" and len(set(articles)) < 2:
            return table_without_gradients(encoder.layers, encoder.objective, ONE_ARTICLE)
        choose = partial(choose_segments, contrastive=encoder.objective == "contrastive")
        count = capped(self.settings.gradient_segments, len(articles))
        indices = choose(articles, count)
        if control:  # a part of the model's
            part = choose([articles[index] for index in indices], CONTROL_GRADIENTS)
            indices = [indices[position] for position in part]
        records = [store.record(index) for index in indices]
        gradients = cached(
            "gradients",
            partial(gradient_importance, encoder, records, seed=self.settings.seed),
            inputs={"records": records, "seed": self.settings.seed, "model": encoder.identity},
            code=STORE_CODE,
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
            code=metrics.CODE,
        )
        arrays["names"] = tuple(arrays["names"].tolist())
        return HeadCounts(**arrays)

    def heads_of_relations(self) -> pd.DataFrame:
        """Score each attention head on the relation that it does best, and on coreference.

        Returns
        -------
        DataFrame
            As `helpers.metrics.dependency_heads.each_head`, with the accuracy of each head at
            ``coreference`` in percent.  What the run has no annotation for is left out.
        """
        from helpers.metrics.dependency_heads import each_head
        from helpers.metrics.heads import head_rows

        if self.has_parses:
            counts = self.head_counts(self.treebank_store())
            heads = each_head(counts, minimum=self.settings.minimum_count)
        else:
            heads = head_rows(self.encoder.layers, self.encoder.heads)
        if not self.missing_note("coref"):
            heads["coreference"] = self.antecedents().accuracy().ravel()
        return heads

    def relation_tables(self, store: Store) -> dict[str, pd.DataFrame]:
        """Compute the tables of section 4.2 over a treebank, once.

        Parameters
        ----------
        store : Store
            Word-level maps of a treebank.

        Returns
        -------
        dict of str to DataFrame
            As `helpers.metrics.relation_tables.relation_tables`.
        """
        from helpers.metrics.relation_tables import relation_tables

        minimum = self.settings.minimum_count
        counts = self.head_counts(store)
        return cached(
            "relation-tables",
            partial(relation_tables, store, counts, minimum=minimum),
            inputs={"store": store.key, "minimum": minimum},
            code=metrics.CODE,
        )


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
    if store.record(0).keys() & {"relations", "pairs"}:
        rows["documents"] = describe_documents(store.records())
    for reason, count in store.manifest.report.items():
        rows[reason] = f"{count:,}"
    return pd.DataFrame({"store": rows})


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
    grid = pd.DataFrame(values).rename_axis(index="layer", columns="head")
    grid.index += 1
    grid.columns += 1
    return grid
