"""Do heads encode semantic links? (Kovaleva et al. 2019, section 4.2)

A link joins a predicate and a word of one of its arguments.  A head's weight for a sentence is
the largest that it gives to any of the sentence's links, in either direction.  The same is
computed for as many pairs of words at the same distances that are no links: a head that looks at
its neighbours gives those the same weight, a head that sees the link does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import t

from helpers.analysis.heads import head_rows
from helpers.cache import cached_table
from helpers.data.records import cluster_of
from helpers.errors import InputError
from helpers.model.encoder import Encoder
from helpers.progress import progress
from helpers.store.store import Store
from helpers.studies.dark_secrets.framenet import FrameSentence
from helpers.studies.dark_secrets.maps import sentence_maps

# Arguments of a verb in Stanford, CLEAR and universal dependencies; what follows a colon is left
# out, except that an obl:agent is one.
ARGUMENTS = {
    "nsubj", "nsubjpass", "csubj", "csubjpass", "dobj", "obj", "iobj", "dative", "obl:agent",
}  # fmt: skip
NEAREST = 2  # words between which a link is not just a neighbour's
DRAWS = 10  # random sets of pairs a sentence
LEVEL = 0.95  # of the intervals, all heads together

Link = tuple[int, int]
Maps = Float[np.ndarray, "layer head position position"]
Weights = Float[np.ndarray, "layer head"]


def dependency_links(heads: Sequence[int], relations: Sequence[str]) -> list[Link]:
    """Return the (predicate, argument) pairs of a dependency tree, words counted from 0.

    ``heads`` count from 1, the root's is 0.
    """
    return [
        (head - 1, word)
        for word, (head, relation) in enumerate(zip(heads, relations, strict=True))
        if head and (relation in ARGUMENTS or relation.partition(":")[0] in ARGUMENTS)
    ]


def far_enough(links: Sequence[Link]) -> list[Link]:
    """Return the links between words that are at least `NEAREST` apart."""
    return [(a, b) for a, b in links if abs(a - b) >= NEAREST]


def link_weights(attention: Maps, links: Sequence[Link]) -> Weights:
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
        free = [
            (start, start + distance)
            for start in range(words - distance)
            if frozenset((start, start + distance)) not in taken
        ]
        if not free:
            return None
        drawn.append(free[generator.integers(len(free))])
    return drawn


def linked_heads(table: pd.DataFrame) -> pd.DataFrame:
    """Return the heads that attend along links beyond chance; ``table`` is `link_table`.

    Beyond chance is not yet much: see how ``difference`` is distributed.
    """
    return table[table["ci_low"] > 0]


def corrected_interval(
    values: Float[np.ndarray, "sentence head"], clusters: Sequence[str]
) -> tuple[Float[np.ndarray, " head"], Float[np.ndarray, " head"]]:
    """Return intervals of the heads' means that hold for all heads at once, in 95% of cases.

    Sentences of an article are not independent: the standard errors are those of its clusters.
    Bonferroni's correction for the number of heads, Student's t; NaN for a single cluster.
    """
    names, place = np.unique(np.asarray(clusters), return_inverse=True)
    mean = values.mean(axis=0)
    sums = np.zeros((len(names), values.shape[1]))
    np.add.at(sums, place, values - mean)
    count = len(names)
    if count < 2:
        return np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    error = np.sqrt((sums**2).sum(axis=0) * count / (count - 1)) / len(values)
    half = t.ppf(1 - (1 - LEVEL) / 2 / len(mean), count - 1) * error
    return mean - half, mean + half


Linked = Iterable[tuple[Maps, Sequence[Link], str]]  # maps of words, links, and the article


def link_table(sentences: Linked, *, seed: int) -> pd.DataFrame:
    """Return how much more each head attends along links than along random pairs.

    ``sentences`` are word-level maps without the special tokens, the links, and the article or
    document.  A sentence without a link of `far_enough`, or without random pairs to compare
    with, is left out.  Columns: layer, head (from 1), linked and random (means over sentences,
    fractions of attention), difference with the interval (ci_low, ci_high) of
    `corrected_interval`, and sentences (how many).

    Raises:
        InputError: no sentence has a link to look at.
    """
    clusters, linked, random = [], [], []
    for number, (attention, given, cluster) in enumerate(sentences):
        links, generator = far_enough(given), np.random.default_rng([seed, number])
        words = attention.shape[-1]
        draws = [random_links(links, words, generator) for _ in range(DRAWS)] if links else [None]
        if draws[0] is not None:
            clusters.append(cluster)
            linked.append(link_weights(attention, links))
            random.append(np.mean([link_weights(attention, draw) for draw in draws], axis=0))
    if not linked:
        raise InputError(
            "semantic links: none of the sentences has a predicate with an argument "
            f"{NEAREST} words away; use more sentences, or a treebank whose relations have the "
            "names of Stanford or Universal Dependencies (nsubj, dobj, ...)"
        )
    values = {"linked": np.array(linked), "random": np.array(random)}
    values["difference"] = values["linked"] - values["random"]
    low, high = corrected_interval(values["difference"].reshape(len(linked), -1), clusters)
    means = {name: value.mean(axis=0) for name, value in values.items()}
    table = head_rows(*linked[0].shape, **means, ci_low=low, ci_high=high)
    return table.assign(sentences=len(linked))


def treebank_links(store: Store, *, seed: int) -> pd.DataFrame:
    """Return how much more each head attends from verbs to their arguments, and back.

    ``store`` holds word-level maps of a treebank; columns as in `link_table`.
    """
    return cached_table(
        "semantic-links",
        lambda: link_table(_treebank(store), seed=seed),
        depends_on={"store": store.key, "seed": seed},
    )


def framenet_links(
    encoder: Encoder, sentences: Sequence[FrameSentence], *, seed: int
) -> pd.DataFrame:
    """Return how much more each head attends along FrameNet's links; see `treebank_links`."""
    facts = {"model": encoder.identity, "seed": seed}
    return cached_table(
        "semantic-links",
        lambda: link_table(_framenet(encoder, sentences), seed=seed),
        depends_on=facts | {"framenet": [(s.words, s.links) for s in sentences]},
    )


def _treebank(store: Store) -> Linked:
    examples = progress(store, "semantic links", unit="sentence", total=len(store))
    for index, example in enumerate(examples):
        links = dependency_links(example.record["heads"], example.record["relations"])
        words = example.word_positions
        attention = example.attention[..., words, words].astype(np.float32)
        yield attention, links, cluster_of(example.record, index)


def _framenet(encoder: Encoder, sentences: Sequence[FrameSentence]) -> Linked:
    maps = sentence_maps(encoder, [sentence.words for sentence in sentences])
    both = zip(maps, sentences, strict=True)
    for (attention, own), sentence in progress(both, "semantic links", total=len(sentences)):
        yield attention[..., own, own], sentence.links, sentence.source.rpartition(":")[0]
