"""Do heads encode semantic links? (Kovaleva et al. 2019, section 4.2)

A link joins a predicate and a word of one of its arguments.  The arguments are those of a
treebank's verbs, or the core arguments of FrameNet's full-text annotation, as in the paper.  A
head's weight for a sentence is its largest attention weight on a link, in either direction.  It is
compared with the same for random pairs of words at the same distances, because a head that attends
to a fixed distance gives as much attention to those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import product
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np
import pandas as pd

from helpers.cache import cached
from helpers.data.records import cluster_of
from helpers.data.text_files import xml_elements
from helpers.errors import CorpusError, InputError
from helpers.metrics.heads import head_rows
from helpers.metrics.statistics import bootstrap_intervals, bootstrap_t_test, holm
from helpers.model.encoder import Encoder
from helpers.progress import progress
from helpers.store.extract import model_key
from helpers.store.store import Store
from helpers.studies.kovaleva2019.maps import Maps, PerHead, sentence_maps

# Relations of a verb's arguments in Stanford, CLEAR and universal dependencies.  Subtypes of them
# ("nsubj:pass") count too; "obl:agent" is an argument although "obl" is none.
ARGUMENTS = {
    "nsubj", "nsubjpass", "csubj", "csubjpass", "dobj", "obj", "iobj", "dative", "obl:agent",
}  # fmt: skip
MIN_DISTANCE = 2  # in words; links between neighbours do not count
RANDOM_SETS = 10  # random sets of pairs per sentence
ALPHA = 0.05
MAX_WORDS = 12  # of a FrameNet sentence, as in the paper

Link = tuple[int, int]  # positions of words, from 0: a predicate's and an argument's
Span = tuple[int, int]  # positions of the first character and of the one after the last
CoreElements = Set[tuple[str | None, str | None]]  # (frame, element)
LinkedMaps = tuple[Maps, Sequence[Link], str]  # maps over words, their links, and the article


class FrameSentence(NamedTuple):
    """A sentence of FrameNet, its links, and the name of its document."""

    words: tuple[str, ...]
    links: tuple[Link, ...]
    source: str


def treebank_links(store: Store, *, seed: int) -> pd.DataFrame:
    """Compare attention between verbs and their arguments with attention between random pairs.

    Parameters
    ----------
    store
        Word-level maps of a treebank.
    seed
        Seed of the random pairs and of the tests.

    Returns
    -------
    pandas.DataFrame
        One row per head, with the columns of `link_table`.

    Raises
    ------
    InputError
        If no sentence has a usable link.
    """

    def linked_maps() -> Iterator[LinkedMaps]:
        for index, example in enumerate(progress(store, "semantic links", unit="sentence")):
            links = dependency_links(example.record["heads"], example.record["relations"])
            words = example.word_positions
            attention = example.attention[..., words, words]
            yield attention, links, cluster_of(example.record, index)

    inputs = {"store": store.key, "seed": seed}
    return cached("semantic-links", lambda: link_table(linked_maps(), seed=seed), inputs=inputs)


def framenet_links(encoder: Encoder, sentences: list[FrameSentence], *, seed: int) -> pd.DataFrame:
    """Compare attention along FrameNet's links with attention between random pairs.

    Parameters
    ----------
    encoder
        The model.
    sentences
        From `framenet_sentences`.
    seed
        Seed of the random pairs and of the tests.

    Returns
    -------
    pandas.DataFrame
        One row per head, with the columns of `link_table`.

    Raises
    ------
    InputError
        If no sentence has a usable link.
    """

    def linked_maps() -> Iterator[LinkedMaps]:
        maps = sentence_maps(encoder, [sentence.words for sentence in sentences])
        bar = progress(sentences, "semantic links", unit="sentence")
        for sentence, (attention, words) in zip(bar, maps, strict=True):
            yield attention[..., words, words], sentence.links, sentence.source

    inputs = model_key(encoder) | {"seed": seed, "sentences": sentences}
    return cached("semantic-links", lambda: link_table(linked_maps(), seed=seed), inputs=inputs)


def link_table(sentences: Iterable[LinkedMaps], *, seed: int) -> pd.DataFrame:
    """Compare each head's attention along links with that between random pairs of words.

    Links shorter than `MIN_DISTANCE` do not count.  A sentence is left out if it has no other
    links, or one without `free_pairs`.

    Parameters
    ----------
    sentences
        Maps over words, links and the article of each sentence.
    seed
        Seed of the random pairs and of the tests.

    Returns
    -------
    pandas.DataFrame
        One row per head.  Columns: layer, head; linked and random (attention, 0-1, means over
        sentences); difference with its 95% interval over articles (difference_low,
        difference_high); p_holm (`bootstrap_t_test` over articles, adjusted by Holm); sentences
        (their number).

    Raises
    ------
    InputError
        If no sentence has a usable link.
    """
    articles = []
    linked = []
    random = []
    for number, (attention, all_links, article) in enumerate(sentences):
        links = [link for link in all_links if abs(link[0] - link[1]) >= MIN_DISTANCE]
        candidates = free_pairs(links, attention.shape[-1])
        if candidates and all(candidates):
            generator = np.random.default_rng([seed, number])
            articles.append(article)
            linked.append(link_weights(attention, links))
            random.append(_mean_random_weights(attention, candidates, generator))
    if not linked:
        problem = f"no sentence has a predicate with an argument {MIN_DISTANCE} words away"
        remedy = "use more sentences, or a treebank with relations like nsubj or obj"
        raise InputError(f"semantic links: {problem}; {remedy}")
    linked_weights = np.stack(linked)  # [sentence, layer, head]
    random_weights = np.stack(random)
    count, layers, heads = linked_weights.shape
    differences = pd.DataFrame((linked_weights - random_weights).reshape(count, -1))
    by_article = differences.groupby(np.array(articles))
    sums = by_article.sum().to_numpy()  # [article, head]
    sizes = by_article.size().to_numpy()
    sizes_by_head = np.tile(sizes[:, None], sums.shape[1])
    low, high = bootstrap_intervals(sums, sizes_by_head, seed=seed)
    p_values, _ = bootstrap_t_test(sums, seed=seed)
    table = head_rows(
        layers,
        heads,
        linked=linked_weights.mean(axis=0),
        random=random_weights.mean(axis=0),
        difference=differences.mean(),
        difference_low=low,
        difference_high=high,
        p_holm=holm(p_values),
    )
    return table.assign(sentences=count)


def linked_heads(table: pd.DataFrame) -> pd.DataFrame:
    """Select the heads of a `link_table` with significantly more attention on links than on pairs.

    The level is `ALPHA` over all heads.

    Parameters
    ----------
    table : DataFrame
        A `link_table`.

    Returns
    -------
    DataFrame
        The rows of these heads.
    """
    return table[table["p_holm"] < ALPHA]


def dependency_links(heads: Sequence[int], relations: Sequence[str]) -> list[Link]:
    """List the links of a dependency tree; ``heads`` count from 1, and the root's is 0."""
    links = []
    for word, (head, relation) in enumerate(zip(heads, relations, strict=True)):
        is_argument = relation in ARGUMENTS or relation.partition(":")[0] in ARGUMENTS
        if head and is_argument:
            links.append((head - 1, word))
    return links


def link_weights(attention: Maps, links: Sequence[Link]) -> PerHead:
    """Find the largest weight of each head over the links, in either direction."""
    first, second = np.array(links).T
    forward = attention[..., first, second]
    backward = attention[..., second, first]
    return np.maximum(forward, backward).max(axis=-1).astype(np.float64)


def free_pairs(links: Sequence[Link], words: int) -> list[list[Link]]:
    """List, for each link, the pairs at the same distance that are no links.

    ``words`` is the number of words of the sentence.
    """
    linked = {(min(link), max(link)) for link in links}
    pairs_by_link = []
    for first, second in links:
        distance = abs(first - second)
        pairs = [(start, start + distance) for start in range(words - distance)]
        pairs_by_link.append([pair for pair in pairs if pair not in linked])
    return pairs_by_link


def framenet_sentences(path: Path) -> list[FrameSentence]:
    """Read FrameNet's sentences of at most `MAX_WORDS` words that have a link.

    Parameters
    ----------
    path
        FrameNet's folder, whose ``frame/*.xml`` name the core arguments; or one file of its
        full-text annotation, of which all arguments count.

    Returns
    -------
    list of FrameSentence
        In the order of the files.

    Raises
    ------
    CorpusError
        If XML is malformed (with its line), a label is outside its text, or no sentence has a link.
    """
    core = _core_elements(path)
    files = [path] if path.is_file() else sorted(path.glob("fulltext/*.xml"))
    sentences = []
    for file in files:
        for element in xml_elements(file, "fullTextAnnotation", ("sentence",)):
            try:
                words, links = _words_and_links(element, core)
            except ValueError as error:
                raise CorpusError(file, "a label is not inside its text") from error
            if links:
                sentences.append(FrameSentence(words, links, file.stem))
    if not sentences:
        problem = f"no sentence with a link and at most {MAX_WORDS} words"
        remedy = "expected FrameNet's folder (fulltext/*.xml, frame/*.xml)"
        raise CorpusError(path, f"{problem}; {remedy}")
    return sentences


def _core_elements(path: Path) -> CoreElements:
    """Read the core elements of all frames; none if ``path`` is a file."""
    core = set()
    for file in sorted(path.glob("frame/*.xml")):
        for frame in xml_elements(file, "frame", ("frame",)):
            for element in frame.iter("FE"):
                if element.get("coreType", "").startswith("Core"):
                    core.add((frame.get("name"), element.get("name")))
    return core


def _mean_random_weights(
    attention: Maps, candidates: Sequence[Sequence[Link]], generator: np.random.Generator
) -> PerHead:
    """Average `link_weights` over `RANDOM_SETS` sets with one random candidate per link."""
    weights = []
    for _ in range(RANDOM_SETS):
        pairs = [choices[generator.integers(len(choices))] for choices in candidates]
        weights.append(link_weights(attention, pairs))
    return np.mean(weights, axis=0)


def _words_and_links(
    sentence: Element, core: CoreElements
) -> tuple[tuple[str, ...], tuple[Link, ...]]:
    """Read the words of a sentence and its links; a sentence that is too long has no links."""
    text = sentence.findtext("text", "")
    word_spans = set()
    for tag_layer in ("PENN", "BNC"):
        word_spans.update(span for span, _ in _labels(sentence, tag_layer, text))
    spans = sorted(word_spans)
    words = tuple(text[start:end] for start, end in spans)
    if len(spans) > MAX_WORDS:
        return words, ()
    links: set[Link] = set()
    for frame in sentence.iter("annotationSet"):
        predicate: set[int] = set()
        for span, _ in _labels(frame, "Target", text):
            predicate |= _overlapping(spans, span)
        for span, name in _labels(frame, "FE", text):
            if not core or (frame.get("frameName"), name) in core:
                argument = _overlapping(spans, span) - predicate
                links.update(product(predicate, argument))
    return words, tuple(sorted(links))


def _overlapping(words: Sequence[Span], span: Span) -> set[int]:
    """Find the words that share a character with a span."""
    first, end = span
    return {
        number
        for number, (word_start, word_end) in enumerate(words)
        if word_start < end and first < word_end
    }


def _labels(element: Element, layer: str, text: str) -> Iterator[tuple[Span, str | None]]:
    """Yield the span and the name of each label of a layer; ValueError outside the text."""
    for label in element.iterfind(f".//layer[@name='{layer}']/label[@start]"):
        first = int(label.get("start", ""))
        last = int(label.get("end", ""))
        if not 0 <= first <= last < len(text):
            raise ValueError(f"characters {first} to {last} of {len(text)}")
        yield (first, last + 1), label.get("name")
