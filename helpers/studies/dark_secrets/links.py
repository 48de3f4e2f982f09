"""Do heads encode semantic links? (Kovaleva et al. 2019, section 4.2)

A link joins a predicate and a word of one of its arguments: those of a treebank's verbs, or the
core arguments of FrameNet's full-text annotation, as in the paper.  A head's weight for a sentence
is the largest that it gives to a link, in either direction, beside that for as many other pairs of
words at the same distances: a head that looks at its neighbours gives those as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import product
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np
import pandas as pd

from helpers.analysis.heads import head_rows
from helpers.analysis.statistics import bootstrap_intervals, holm, sign_flip_test
from helpers.cache import cached
from helpers.data.records import cluster_of
from helpers.data.text_files import xml_elements
from helpers.errors import CorpusError, InputError
from helpers.model.encoder import Encoder
from helpers.store.extract import encoder_facts
from helpers.store.store import Store
from helpers.studies.dark_secrets.maps import Maps, PerHead, sentence_maps
from helpers.work import progress

# Arguments of a verb in Stanford, CLEAR and universal dependencies; what follows a colon is left
# out, except that an obl:agent is one.
ARGUMENTS = {
    "nsubj", "nsubjpass", "csubj", "csubjpass", "dobj", "obj", "iobj", "dative", "obl:agent",
}  # fmt: skip
NEAREST = 2  # words between which a link is not just a neighbour's
DRAWS = 10  # random sets of pairs a sentence
ALPHA = 0.05
LONGEST = 12  # words of a sentence of FrameNet, as in the paper

Link = tuple[int, int]  # words of a sentence, from 0: a predicate's and an argument's
Span = tuple[int, int]  # first character and the one after the last
Core = Set[tuple[str | None, str | None]]  # frames and their core elements
Linked = tuple[Maps, Sequence[Link], str]  # maps of words, their links, and the article


class FrameSentence(NamedTuple):
    """A sentence of FrameNet, its links, and the document that it is from."""

    words: tuple[str, ...]
    links: tuple[Link, ...]
    source: str


def treebank_links(store: Store, *, seed: int) -> pd.DataFrame:
    """Return how much more each head attends from verbs to their arguments, and back.

    ``store`` holds word-level maps of a treebank; columns as in `link_table`.
    """

    def maps() -> Iterator[Linked]:
        for index, example in enumerate(progress(store, "semantic links", unit="sentence")):
            links = dependency_links(example.record["heads"], example.record["relations"])
            words = example.word_positions
            attention = example.attention[..., words, words].astype(np.float32)
            yield attention, links, cluster_of(example.record, index)

    facts = {"store": store.key, "seed": seed}
    return cached(
        "semantic-links", lambda: link_table(maps(), seed=seed), inputs=facts, module=__name__
    )


def framenet_links(encoder: Encoder, sentences: list[FrameSentence], *, seed: int) -> pd.DataFrame:
    """Return how much more each head attends along FrameNet's links; see `treebank_links`."""

    def maps() -> Iterator[Linked]:
        found = sentence_maps(encoder, [sentence.words for sentence in sentences])
        shown = progress(sentences, "semantic links", unit="sentence")
        for sentence, (attention, own) in zip(shown, found, strict=True):
            yield attention[..., own, own], sentence.links, sentence.source

    facts = encoder_facts(encoder) | {"seed": seed, "sentences": sentences}
    return cached(
        "semantic-links", lambda: link_table(maps(), seed=seed), inputs=facts, module=__name__
    )


def link_table(sentences: Iterable[Linked], *, seed: int) -> pd.DataFrame:
    """Return how much more each head attends along links than along random pairs.

    Links of less than `NEAREST` words do not count; a sentence without others, or without
    `free_pairs`, is left out.  Columns: layer, head, linked and random (means over sentences,
    fractions of attention), difference with its 95% interval over articles (ci_low, ci_high),
    p_holm (`sign_flip_test` of articles, by Holm), and sentences.  InputError where no sentence has
    a link to look at.
    """
    articles, linked, random = [], [], []
    for number, (attention, given, article) in enumerate(sentences):
        links = [(a, b) for a, b in given if abs(a - b) >= NEAREST]
        pairs = free_pairs(links, attention.shape[-1])
        if pairs and all(pairs):
            generator = np.random.default_rng([seed, number])
            draws = [[own[generator.integers(len(own))] for own in pairs] for _ in range(DRAWS)]
            articles.append(article)
            linked.append(link_weights(attention, links))
            random.append(np.mean([link_weights(attention, draw) for draw in draws], axis=0))
    if not linked:
        problem = f"no sentence has a predicate with an argument {NEAREST} words away"
        advice = "use more, or a treebank with relations like nsubj or obj"
        raise InputError(f"semantic links: {problem}; {advice}")
    given, chance = np.stack(linked), np.stack(random)
    differences = pd.DataFrame((given - chance).reshape(len(given), -1))
    by_article = differences.groupby(np.array(articles))
    sums, counts = by_article.sum().to_numpy(), by_article.size().to_numpy()
    low, high = bootstrap_intervals(sums, np.tile(counts[:, None], sums.shape[1]), seed=seed)
    means = {"linked": given.mean(axis=0), "random": chance.mean(axis=0)}
    table = head_rows(*given.shape[1:], **means, difference=differences.mean())
    p_values = holm(sign_flip_test(sums, seed=seed)[0])
    return table.assign(ci_low=low, ci_high=high, p_holm=p_values, sentences=len(given))


def linked_heads(table: pd.DataFrame) -> pd.DataFrame:
    """Return the heads of a `link_table` that attend along links beyond chance."""
    return table[table["p_holm"] < ALPHA]


def dependency_links(heads: Sequence[int], relations: Sequence[str]) -> list[Link]:
    """Return the links of a dependency tree; ``heads`` count from 1, the root's is 0."""
    return [
        (head - 1, word)
        for word, (head, relation) in enumerate(zip(heads, relations, strict=True))
        if head and (relation in ARGUMENTS or relation.partition(":")[0] in ARGUMENTS)
    ]


def link_weights(attention: Maps, links: Sequence[Link]) -> PerHead:
    """Return the largest weight of each head over the links, in either direction."""
    first, second = np.array(links).T
    both = np.maximum(attention[..., first, second], attention[..., second, first])
    return both.max(axis=-1).astype(np.float64)


def free_pairs(links: Sequence[Link], words: int) -> list[list[Link]]:
    """Return, for each link, the pairs at its distance that are none, of so many ``words``."""
    taken = {(min(link), max(link)) for link in links}
    distances = [abs(first - second) for first, second in links]
    pairs = [[(start, start + far) for start in range(words - far)] for far in distances]
    return [[pair for pair in own if pair not in taken] for own in pairs]


def framenet_sentences(path: Path) -> list[FrameSentence]:
    """Return FrameNet's sentences of at most `LONGEST` words that have a link.

    ``path`` is FrameNet's folder, whose ``frame/*.xml`` say which elements are core arguments, or
    one file of its full-text annotation, of which all elements count.  CorpusError for damaged
    XML (with its line), a label outside its text, or no such sentence.
    """
    core = {
        (frame.get("name"), element.get("name"))
        for file in sorted(path.glob("frame/*.xml"))
        for frame in xml_elements(file, "frame", ("frame",))
        for element in frame.iter("FE")
        if element.get("coreType", "").startswith("Core")
    }
    found = []
    for file in [path] if path.is_file() else sorted(path.glob("fulltext/*.xml")):
        for element in xml_elements(file, "fullTextAnnotation", ("sentence",)):
            try:
                words, links = _words_and_links(element, core)
            except ValueError as error:
                raise CorpusError(file, "a label is not inside its text") from error
            if links:
                found.append(FrameSentence(words, links, file.stem))
    if not found:
        message = f"no sentence with a link and at most {LONGEST} words; expected FrameNet's folder"
        raise CorpusError(path, f"{message} (fulltext/*.xml, frame/*.xml)")
    return found


def _words_and_links(sentence: Element, core: Core) -> tuple[tuple[str, ...], tuple[Link, ...]]:
    """Return the words of a sentence and its links; none of one that is too long."""
    text = sentence.findtext("text", "")
    words = sorted({span for name in ("PENN", "BNC") for span, _ in _labels(sentence, name, text)})

    def within(span: Span) -> set[int]:
        """Return the words that share a character with a span."""
        return {n for n, (start, end) in enumerate(words) if start < span[1] and span[0] < end}

    links: set[Link] = set()
    for frame in sentence.iter("annotationSet") if len(words) <= LONGEST else ():
        predicate = set().union(*(within(span) for span, _ in _labels(frame, "Target", text)))
        for span, name in _labels(frame, "FE", text):
            if not core or (frame.get("frameName"), name) in core:
                links |= set(product(predicate, within(span) - predicate))
    return tuple(text[start:end] for start, end in words), tuple(sorted(links))


def _labels(element: Element, layer: str, text: str) -> Iterator[tuple[Span, str | None]]:
    """Yield where the labels of a layer are in the text, and their names."""
    for label in element.iterfind(f".//layer[@name='{layer}']/label[@start]"):
        first, last = int(label.get("start", "")), int(label.get("end", ""))
        if not 0 <= first <= last < len(text):
            raise ValueError(f"characters {first} to {last} of {len(text)}")
        yield (first, last + 1), label.get("name")
