"""Do heads encode semantic links? (Kovaleva et al. 2019, section 4.2)

A link joins a predicate and a word of one of its arguments: those of a treebank's verbs, or the
core arguments of FrameNet's full-text annotation, as in the paper.  A head's weight for a sentence
is the largest that it gives to any of the sentence's links, in either direction.  The same is
computed for as many pairs of words at the same distances that are no links: a head that looks at
its neighbours gives those the same weight, a head that sees the link does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np
import pandas as pd
from jaxtyping import Float

from helpers.analysis.heads import head_rows
from helpers.analysis.statistics import bootstrap_intervals, holm, sign_flip_test
from helpers.cache import cached_table
from helpers.data.records import cluster_of
from helpers.data.text_files import xml_elements
from helpers.errors import CorpusError, InputError
from helpers.model.encoder import Encoder
from helpers.progress import progress
from helpers.store.store import Store
from helpers.studies.dark_secrets.maps import sentence_maps

# Arguments of a verb in Stanford, CLEAR and universal dependencies; what follows a colon is left
# out, except that an obl:agent is one.
ARGUMENTS = {
    "nsubj", "nsubjpass", "csubj", "csubjpass", "dobj", "obj", "iobj", "dative", "obl:agent",
}  # fmt: skip
NEAREST = 2  # words between which a link is not just a neighbour's
DRAWS = 10  # random sets of pairs a sentence
ALPHA = 0.05  # of all heads together
LONGEST = 12  # words of a sentence of FrameNet, as in the paper
EXPECTED = "expected FrameNet's full-text annotation (fulltext/*.xml)"
WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")  # where FrameNet has no layer of words

Link = tuple[int, int]  # words of a sentence, from 0: a predicate's and an argument's
Span = tuple[int, int]  # first character and the one after the last
Maps = Float[np.ndarray, "layer head position position"]
Linked = tuple[Maps, Sequence[Link], str]  # maps of words, their links, and the article


@dataclass(frozen=True)
class FrameSentence:
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
    return cached_table("semantic-links", lambda: link_table(maps(), seed=seed), depends_on=facts)


def framenet_links(
    encoder: Encoder, sentences: Sequence[FrameSentence], *, seed: int
) -> pd.DataFrame:
    """Return how much more each head attends along FrameNet's links; see `treebank_links`."""

    def maps() -> Iterator[Linked]:
        found = sentence_maps(encoder, [sentence.words for sentence in sentences])
        shown = progress(sentences, "semantic links", unit="sentence")
        for sentence, (attention, own) in zip(shown, found, strict=True):
            yield attention[..., own, own], sentence.links, sentence.source

    facts = {"model": encoder.identity, "seed": seed, "sentences": sentences}
    return cached_table("semantic-links", lambda: link_table(maps(), seed=seed), depends_on=facts)


def link_table(sentences: Iterable[Linked], *, seed: int) -> pd.DataFrame:
    """Return how much more each head attends along links than along random pairs.

    ``sentences`` are word-level maps without the special tokens, the links, and the article or
    document.  A sentence without a link of `far_enough`, or without random pairs to compare
    with, is left out.  Columns: layer, head (from 1), linked and random (means over sentences,
    fractions of attention), difference with its 95% interval over articles (ci_low, ci_high),
    p_holm (that it is above zero: `sign_flip_test` over articles, adjusted for the number of
    heads), and sentences (how many).

    Raises:
        InputError: no sentence has a link to look at.
    """
    articles, linked, random = [], [], []
    for number, (attention, given, article) in enumerate(sentences):
        links, generator = far_enough(given), np.random.default_rng([seed, number])
        words = attention.shape[-1]
        draws = [random_links(links, words, generator) for _ in range(DRAWS)] if links else [None]
        if draws[0] is not None:
            articles.append(article)
            linked.append(link_weights(attention, links))
            random.append(np.mean([link_weights(attention, draw) for draw in draws], axis=0))
    if not linked:
        raise InputError(
            "semantic links: none of the sentences has a predicate with an argument "
            f"{NEAREST} words away; use more sentences, or a treebank whose relations have the "
            "names of Stanford or Universal Dependencies (nsubj, dobj, ...)"
        )
    given, chance = np.stack(linked), np.stack(random)
    differences = pd.DataFrame((given - chance).reshape(len(given), -1))
    by_article = differences.groupby(np.array(articles))
    sums, counts = by_article.sum().to_numpy(), by_article.size().to_numpy()
    low, high = bootstrap_intervals(sums, np.tile(counts[:, None], sums.shape[1]), seed=seed)
    table = head_rows(
        *given.shape[1:],
        linked=given.mean(axis=0),
        random=chance.mean(axis=0),
        difference=differences.mean(),
        ci_low=low,
        ci_high=high,
        p_holm=holm(sign_flip_test(sums, seed=seed)[0]),
    )
    return table.assign(sentences=len(given))


def linked_heads(table: pd.DataFrame) -> pd.DataFrame:
    """Return the heads of a `link_table` that attend along links beyond chance.

    Beyond chance is not yet much: see how ``difference`` is distributed.
    """
    return table[table["p_holm"] < ALPHA]


def dependency_links(heads: Sequence[int], relations: Sequence[str]) -> list[Link]:
    """Return the links of a dependency tree; ``heads`` count from 1, the root's is 0."""
    return [
        (head - 1, word)
        for word, (head, relation) in enumerate(zip(heads, relations, strict=True))
        if head and (relation in ARGUMENTS or relation.partition(":")[0] in ARGUMENTS)
    ]


def far_enough(links: Sequence[Link]) -> list[Link]:
    """Return the links between words that are at least `NEAREST` apart."""
    return [(a, b) for a, b in links if abs(a - b) >= NEAREST]


def link_weights(attention: Maps, links: Sequence[Link]) -> Float[np.ndarray, "layer head"]:
    """Return the largest weight of each head over the links, in either direction."""
    first, second = np.array(links).T
    both = np.maximum(attention[..., first, second], attention[..., second, first])
    return both.max(axis=-1).astype(np.float64)


def random_links(
    links: Sequence[Link], words: int, generator: np.random.Generator
) -> list[Link] | None:
    """Return for each link a random pair at its distance that is no link.

    None where a distance leaves no other pair in a sentence of so many ``words``.
    """
    taken = {frozenset(link) for link in links}
    drawn = []
    for first, second in links:
        distance = abs(first - second)
        pairs = [(start, start + distance) for start in range(words - distance)]
        free = [pair for pair in pairs if frozenset(pair) not in taken]
        if not free:
            return None
        drawn.append(free[generator.integers(len(free))])
    return drawn


def framenet_sentences(path: Path) -> list[FrameSentence]:
    """Return FrameNet's sentences of at most `LONGEST` words that have a link.

    ``path`` is FrameNet's folder, its ``fulltext`` folder, or one file of it.  The arguments are
    the core elements where ``frame/*.xml`` beside it says which they are, otherwise all.

    Raises:
        CorpusError: no such file, no full-text annotation, damaged XML (with its line), or
            no sentence of that kind.
    """
    files = [path] if path.is_file() else sorted(path.glob("fulltext/*.xml"))
    files = files or sorted(path.glob("*.xml"))
    if not files:
        problem = "holds no *.xml" if path.is_dir() else "does not exist"
        raise CorpusError(path, f"{problem}; {EXPECTED}")
    core = {
        frame.get("name"): {
            element.get("name")
            for element in frame.iter("FE")
            if element.get("coreType", "").startswith("Core")
        }
        for file in sorted(files[0].parent.parent.glob("frame/*.xml"))
        for frame in xml_elements(file, "frame", ("frame",))
    }
    read = [
        _sentence(file, element, core)
        for file in files
        for element in xml_elements(file, "fullTextAnnotation", ("sentence",))
    ]
    found = [sentence for sentence in read if sentence and sentence.links]
    if not found:
        message = f"no sentence with a link and at most {LONGEST} words among {len(read)}"
        raise CorpusError(path, f"{message}; {EXPECTED}")
    return found


def _sentence(
    path: Path, element: Element, core: Mapping[str | None, set[str | None]]
) -> FrameSentence | None:
    """Return a sentence of FrameNet with its links, or None if it is too long."""
    text = element.findtext("text", "")
    spans = {span for name in ("PENN", "BNC") for span, _ in _labels(path, element, name, text)}
    words = sorted(spans) or [match.span() for match in WORD.finditer(text)]
    if len(words) > LONGEST:
        return None
    links: set[Link] = set()
    for frame in element.iter("annotationSet"):
        wanted = core.get(frame.get("frameName"), set())
        predicate = {
            word
            for span, _ in _labels(path, frame, "Target", text)
            for word in _within(words, span)
        }
        for span, name in _labels(path, frame, "FE", text):
            if name in wanted or not core:
                argument = set(_within(words, span)) - predicate
                links |= {(a, b) for a in predicate for b in argument}
    own = tuple(text[start:end] for start, end in words)
    return FrameSentence(own, tuple(sorted(links)), path.stem)


def _labels(
    path: Path, element: Element, layer: str, text: str
) -> Iterator[tuple[Span, str | None]]:
    """Yield where the labels of a layer are in the text, and their names."""
    for label in element.iterfind(f".//layer[@name='{layer}']/label[@start]"):
        first, last = label.get("start", ""), label.get("end", "")
        whole = all(re.fullmatch("[0-9]{1,9}", place) for place in (first, last))
        if not whole or not int(first) <= int(last) < len(text):
            place = f"a label from {first[:20]!r} to {last[:20]!r}"
            raise CorpusError(path, f"{place} is not inside its text, {text[:40]!r}")
        yield (int(first), int(last) + 1), label.get("name")


def _within(words: Sequence[Span], span: Span) -> list[int]:
    """Return the words that share a character with a span."""
    return [n for n, (start, end) in enumerate(words) if start < span[1] and span[0] < end]
