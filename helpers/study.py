"""A study: settings, a model and its controls, corpora and stores, and the results of a run.

A model is named as in the column ``model`` of tables: "trained" is the study's own, "random" has
random weights, and "entropy-matched" has the entropies of the study's own besides.  Further random
weights are "random-1", "random-2" ...  "reordered" has the trained layers in random order.  A
finished store opens without a model, so that a notebook whose results are all in the cache neither
loads one nor imports torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from jaxtyping import Shaped

from helpers.cache import cached
from helpers.data.records import cluster_of
from helpers.data.text_files import BUNDLED_IN_ENGLISH, ENGLISH, existing_file, is_english
from helpers.data.wikipedia import articles, note_text, segments
from helpers.errors import CorpusError, ModelError
from helpers.model.loading import load_model, model_key
from helpers.results import Results, run_name
from helpers.settings import flag, make_settings
from helpers.store import CODE as STORE_CODE
from helpers.store.store import find_store, store_inputs

if TYPE_CHECKING:
    from helpers.data.glove import Embeddings
    from helpers.data.records import Corpus, Document, PairedText, Segment, Sentence
    from helpers.model.loading import Model
    from helpers.store.store import Store

MATCHED = "entropy-matched"
REORDERED = "reordered"
DECODER = "The model is a decoder: under its causal mask a token sees itself and earlier tokens."
NO_BEGINNING = (
    "Its texts begin without a special token. The first word of a sentence therefore takes "
    "the attention that has no better use, and it stays a candidate in section 4."
)
MORE_THAN_MAPS = (
    "The heads of this model do more than weigh value vectors by their attention, so its maps do "
    "not show all that a head does."
)
TITLES = {"minilm": "MiniLM", "mpnet": "MPNet", "smollm2": "SmolLM2-135M"}
# Of built-in models whose weights are not those that were trained; shown with every result.
WEIGHTS_NOTES = {"smollm2": "4-bit weights, dequantised"}


class Study:
    """A model, its controls, its corpora, and the results of a run.

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
    models : tuple of str
        The names of the model and of the controls of sections 3 and 6.
    settings : Settings
        All settings; they do not change.
    results : Results
        The folder of the tables, the figures and ``run.json``.
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

    models = ("trained", "random", MATCHED)

    def __init__(self, *, later: bool = False, **settings: Any) -> None:
        self.settings = make_settings(**settings)
        self.results = Results(self.settings, later=later)
        self.save_table = self.results.save_table
        self.save_figure = self.results.save_figure
        self.tables = self.results.tables
        self._encoders: dict[str, Model] = {}

    @property
    def title(self) -> str:
        """The run, its model's size and weights, and the norm lens, for subtitles of figures."""
        if "model" not in self.results.facts:
            self.load()
        model = self.results.facts["model"]
        name = run_name(self.settings)
        parts = [TITLES.get(name, name), f"{model['layers']} layers of {model['heads']} heads"]
        parts.append(WEIGHTS_NOTES.get(self.settings.model, ""))
        parts.append("norm lens" if self.settings.lens == "norm" else "")
        return ", ".join(filter(None, parts))

    def model_key(self, name: str = "trained") -> dict[str, Any]:
        """Compute what decides the maps of a model or control, without reading its weights.

        Parameters
        ----------
        name : str
            "trained", "random", "entropy-matched", "random-1" ..., "reordered".

        Returns
        -------
        dict
            As `helpers.model.loading.model_key`.  That of the entropy-matched control is the key of
            the random one and, as "matched to", what its temperatures are computed from.
        """
        if name == MATCHED:
            return {**self.model_key("random"), "matched to": self._matched_to()}
        if name == REORDERED:
            return {**self.model_key(), "layer order": {"seed": self.settings.seed}}
        return model_key(self.settings.model, **self._model_options(name))

    def load(self, name: str = "trained") -> Model:
        """Load a model or control, once.

        Parameters
        ----------
        name : str
            As in `model_key`.

        Returns
        -------
        Model
        """
        if name in self._encoders:
            return self._encoders[name]
        if name == MATCHED:
            encoder = self._match_entropies()
        elif name == REORDERED:
            encoder = self.load().with_reordered_layers(self.settings.seed)
        else:
            options = self._model_options(name)
            encoder = load_model(self.settings.model, device=self.settings.device, **options)
        if name == "trained":
            self._describe(encoder)
        self._encoders[name] = encoder
        return encoder

    @property
    def encoder(self) -> Model:
        """The study's own model."""
        return self.load()

    def _model_options(self, name: str) -> dict[str, Any]:
        """Choose the weights of a model: its own, or random ones of a seed that differs."""
        settings = self.settings
        seed = settings.random_init
        if name != "trained":
            number = int(name.removeprefix("random").lstrip("-") or 0)
            seed = settings.seed + number + (0 if seed is None else seed + 1)
        return {"revision": settings.revision, "dtype": settings.dtype, "random_init": seed}

    @property
    def _entropy_corpus(self) -> Corpus[Segment]:
        """The texts on which the heads of a control get the model's entropies."""
        return self.segment_corpus(4 if self.settings.quick else 16)

    def _matched_to(self) -> dict[str, Any]:
        """List what temperatures are computed from, besides the random control."""
        return store_inputs(self.model_key(), self._entropy_corpus, **self._map_options)

    def _match_entropies(self) -> Model:
        """Give the heads of the random control the mean entropies of the model's heads."""
        trained = self.load()
        random = self.load("random")
        matched_to = self._matched_to()

        def compute() -> list[list[float]]:
            from helpers.model.forward import model_inputs, padded
            from helpers.model.sites import temperatures

            texts = self._open("trained", self._entropy_corpus, stream=True)
            batch = padded(trained, [model_inputs(trained, record) for record in texts.records()])
            return temperatures(random.model.base_model, trained.model.base_model, batch)

        inputs = {"random": random.key, "matched to": matched_to}
        factors = cached("temperatures", compute, inputs=inputs, code=STORE_CODE)
        return random.with_temperatures(factors, matched_to)

    @property
    def _map_options(self) -> dict[str, Any]:
        """The settings that decide the maps of every store."""
        return {"lens": self.settings.lens, "max_tokens": self.settings.max_tokens}

    def _describe(self, model: Model | Store) -> None:
        """Have titles and ``run.json`` say which model this is."""
        shape = {"layers": model.layers, "heads": model.heads}
        self.results.facts["model"] = {**self.model_key(), **shape}
        self.results.facts["special_tokens"] = model.special_tokens

    def _open(
        self, model: str, corpus: Corpus, *, role: str = "", stream: bool = False, **options: Any
    ) -> Store:
        """Open the store of a model's maps over a corpus, after computing those it lacks.

        ``run.json`` names the corpus if it has a ``role``.
        """
        settings = self.settings
        if (settings.workers or settings.scheduler) and (settings.stream or not stream):
            from helpers.store.cluster import start_cluster

            start_cluster(settings.workers, settings.scheduler)
        options |= self._map_options
        store = find_store(store_inputs(self.model_key(model), corpus, **options))
        if store is None:
            from helpers.store.extract import extract  # torch

            store = extract(self.load(model), corpus, stream=stream, **options)
        if model == "trained":
            self._describe(store)
            if role:
                corpora = self.results.facts.setdefault("corpora", {})
                corpora[role] = corpus.name
                corpora[f"{role} fingerprint"] = corpus.fingerprint
        return store

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
        from helpers.data.treebank import paired_corpus, silver_treebank, treebank

        settings = self.settings
        count = settings.sentences
        if settings.pairs:
            return paired_corpus(settings.pairs, sentences=count, seed=settings.seed)
        if settings.treebank:
            return treebank(settings.treebank, sentences=count, seed=settings.seed)
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

        return coreference_corpus(self.settings.coref)

    def segment_store(self, model: str = "trained", *, stream: bool = False) -> Store:
        """Extract the token-level maps over the text; a control sees a part of it.

        Parameters
        ----------
        model : str
            As in `model_key`.
        stream : bool
            Whether maps are computed when they are read, and none are stored.  With
            ``settings.stream`` they always are.

        Returns
        -------
        Store
            At the level ``token``; records have tokens and a title.
        """
        limit = None if model == "trained" else self.settings.control_segments
        corpus = self.segment_corpus(limit)
        return self._open(model, corpus, role="text", stream=stream or self.settings.stream)

    def treebank_store(self, model: str = "trained", *, stream: bool = False) -> Store:
        """Extract the word-level maps and hidden states over the treebank.

        Parameters
        ----------
        model : str
            As in `model_key`; those of "random-1" and so on are without hidden states.
        stream : bool
            Whether maps are computed when they are read, and none are stored.

        Returns
        -------
        Store
            At the level ``word``; records have words, heads and relations (or pairs), split, source
            and tags.
        """
        role = "pairs" if self.settings.pairs else "treebank"
        options = {"role": role, "stream": stream, "level": "word", "hidden": model in self.models}
        return self._open(model, self.treebank_corpus(), **options)

    def shuffled_store(self) -> Store:
        """Extract the model's maps over the treebank with the words of each sentence shuffled.

        Returns
        -------
        Store
            As that of `treebank_store`, without hidden states.
        """
        from helpers.data.treebank import shuffled_words

        corpus = shuffled_words(cast("Any", self.treebank_corpus()), seed=self.settings.seed)
        return self._open("trained", corpus, level="word")

    def coreference_store(self, model: str = "trained", *, stream: bool = False) -> Store:
        """Extract the word-level maps over the coreference documents.

        Parameters
        ----------
        model : str
            As in `model_key`.
        stream : bool
            Whether maps are computed when they are read, and none are stored.

        Returns
        -------
        Store
            At the level ``word``; records have words, mentions, split and source.
        """
        corpus = self.coreference_corpus()
        return self._open(model, corpus, role="coreference", stream=stream, level="word")

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
        except CorpusError:  # the text is too short, no prose, or not of the parser's language
            if self.settings.treebank or self.settings.pairs:
                raise
            return self.segment_store(stream=stream)

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
    def language(self) -> str:
        """The language of section 4, "English" or "not English": the treebank's, or the text's.

        It is English if ``--parser`` names the bundled pipeline, which is English.
        """
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
        has_sentences = settings.treebank or settings.pairs or settings.parser
        return bool(has_sentences) or self.language == ENGLISH

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
        """The sentences on what the run lacks, on its model and on its text."""
        settings = self.settings
        notes = [self.missing_note(setting) for setting in BUNDLED_IN_ENGLISH]
        notes += model_notes(self.encoder, settings.max_tokens)
        if settings.model in WEIGHTS_NOTES:
            notes.append(f"The model {settings.model} has {WEIGHTS_NOTES[settings.model]}.")
        if settings.text:
            notes += note_text(articles(existing_file(settings.text)))
        return list(filter(None, notes))

    def save_facts(self, stores: Sequence[Store]) -> None:
        """Have ``run.json`` say what of the corpora is used, and what a reader has to know.

        Parameters
        ----------
        stores : sequence of Store
            The stores of the run.
        """
        used = {}
        for store in stores:
            for unit, (n_used, n_read) in store.used.items():
                used[unit] = f"{n_used:,} of {n_read:,}"
        facts = {"language": self.language, "objective": self.encoder.objective}
        self.results.facts |= {**facts, "used": used, "notes": self.notes}
        with self.results.edited_record():
            pass  # facts go into every record that is written


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
        "corpus": store.corpus_name,
        "examples": f"{len(store):,}",
        "layers x heads": f"{store.layers} x {store.heads}",
        "level": store.level,
    }
    if store.record(0).keys() & {"relations", "pairs"}:
        clusters = {cluster_of(record, index) for index, record in enumerate(store.records())}
        rows["documents"] = f"{len(clusters):,}"
    for reason, count in store.report.items():
        rows[reason] = f"{count:,}"
    return pd.DataFrame({"store": rows})


def head_grid(
    values: Shaped[np.ndarray, "layer head"], numbers: Sequence[int] = ()
) -> pd.DataFrame:
    """Make a table of one number per attention head, with numbers of layers and heads from 1.

    Parameters
    ----------
    values : array of shape (layer, head)
        One number per head.
    numbers : sequence of int
        The numbers of the layers that attend (`Store.layer_numbers`); all if there are none.

    Returns
    -------
    DataFrame
        One row per layer, one column per head.
    """
    grid = pd.DataFrame(values).rename_axis(index="layer", columns="head")
    grid.index = pd.Index(numbers, name="layer") if len(numbers) else grid.index + 1
    grid.columns += 1
    return grid


def model_notes(encoder: Model, max_tokens: int) -> Iterator[str]:
    """Describe what decides the results of a model: objective, mask, layers, heads and length."""
    from helpers.model.forward import MixedHeadsError, check_lens  # torch
    from helpers.model.sites import base_transformer, is_hybrid
    from helpers.store.extract import longest_whole_maps

    # Sentence encoders may keep the name of the masked language model that they were before.
    has_other_head = re.search("For(?!MaskedLM)[A-Z]|Head", encoder.architecture)
    if encoder.objective == "contrastive" and has_other_head:
        yield (
            f"The checkpoint is a {encoder.architecture}. Section 3.2 does not use the objective "
            "of its head, which needs labels or other inputs. It uses the contrastive loss between "
            "neighbouring paragraphs, with which the checkpoint was not trained."
        )
    if encoder.is_decoder:
        beginning = encoder.special_tokens["cls"] or encoder.special_tokens.get("first")
        yield f"{DECODER} {f'Each text begins with {beginning}.' if beginning else NO_BEGINNING}"
    if is_hybrid(encoder.model):
        n_layers = base_transformer(encoder.model).config.num_hidden_layers
        numbers = ", ".join(map(str, encoder.layer_numbers))
        yield (
            f"Of the model's {n_layers} layers, {encoder.layers} have attention maps. Only these "
            f"are measured, under their own numbers: {numbers}."
        )
    try:
        check_lens(encoder)
    except ModelError as error:
        if isinstance(error, MixedHeadsError):  # and not value vectors that cannot be found
            yield MORE_THAN_MAPS
    longest = min(encoder.max_length, longest_whole_maps(encoder.layers, encoder.heads))
    if longest < max_tokens:
        yield (
            f"Texts are cut at {longest:,} tokens, and not at {max_tokens:,}, because the model "
            "takes no longer ones, or their maps are too large to be kept."
        )
