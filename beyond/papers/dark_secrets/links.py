"""Do heads encode semantic links? (Kovaleva et al. 2019, section 4.2)

The paper takes its links from FrameNet: a predicate and a word of one of its core arguments.  Here
a link joins a verb and its subject or object in a treebank, which is syntax.  A head's weight for a
sentence is its largest attention weight on a link, in either direction.  It is compared with the
same for random pairs of words at the same distances, because a head that attends to a fixed
distance gives as much attention to those.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from beyond.papers.dark_secrets import CODE
from beyond.papers.dark_secrets.maps import Maps, PerHead
from helpers.cache import cached
from helpers.data.records import cluster_of
from helpers.errors import InputError
from helpers.metrics.heads import head_rows
from helpers.metrics.statistics import bootstrap_intervals
from helpers.progress import progress
from helpers.store.store import Store

# Relations of a verb's arguments in Stanford, CLEAR and universal dependencies.  Subtypes of them
# ("nsubj:pass") count too; "obl:agent" is an argument although "obl" is none.
ARGUMENTS = {
    "nsubj", "nsubjpass", "csubj", "csubjpass", "dobj", "obj", "iobj", "dative", "obl:agent",
}  # fmt: skip
MIN_DISTANCE = 2  # in words; links between neighbours do not count
RANDOM_SETS = 10  # random sets of pairs per sentence
EXCESS = 0.05  # of attention: a smaller difference from random pairs is not called a link's

Link = tuple[int, int]  # positions of words, from 0: a predicate's and an argument's


def treebank_links(store: Store, *, seed: int) -> pd.DataFrame:
    """Compare attention between verbs and their arguments with attention between random pairs.

    A sentence is left out if it has no `dependency_links`, or one without `free_pairs`.

    Parameters
    ----------
    store
        Word-level maps of a treebank.
    seed
        Seed of the random pairs.

    Returns
    -------
    pandas.DataFrame
        One row per head.  Columns: layer, head; linked and random (attention, 0-1, means over
        sentences); difference with its 95% interval over articles (difference_low,
        difference_high).

    Raises
    ------
    InputError
        If no sentence has a usable link.
    """

    def compute() -> pd.DataFrame:
        articles = []
        linked = []
        random = []
        for index, example in enumerate(progress(store, "semantic links", unit="sentence")):
            words = example.word_positions
            attention = example.attention[..., words, words]
            links = dependency_links(example.record["heads"], example.record["relations"])
            candidates = free_pairs(links, attention.shape[-1])
            if candidates and all(candidates):
                generator = np.random.default_rng([seed, index])
                articles.append(cluster_of(example.record, index))
                linked.append(link_weights(attention, links))
                weights_of_sets = []  # each set has one random candidate per link
                for _ in range(RANDOM_SETS):
                    pairs = [choices[generator.integers(len(choices))] for choices in candidates]
                    weights_of_sets.append(link_weights(attention, pairs))
                random.append(np.mean(weights_of_sets, axis=0))
        if not linked:
            raise InputError(
                "semantic links: no sentence has a predicate with an argument "
                f"{MIN_DISTANCE} words away; use more sentences, or a treebank with relations like "
                "nsubj or obj"
            )
        linked_weights = np.stack(linked)  # [sentence, layer, head]
        random_weights = np.stack(random)
        differences = pd.DataFrame((linked_weights - random_weights).reshape(len(linked), -1))
        by_article = differences.groupby(np.array(articles))
        sums = by_article.sum().to_numpy()  # [article, head]
        counts = by_article.count().to_numpy()
        low, high = bootstrap_intervals(sums, counts)
        shape = (store.layers, store.heads)
        return head_rows(
            store.layers,
            store.heads,
            linked=linked_weights.mean(axis=0),
            random=random_weights.mean(axis=0),
            difference=differences.mean().to_numpy().reshape(shape),
            difference_low=low.reshape(shape),
            difference_high=high.reshape(shape),
        )

    return cached(
        "semantic-links",
        compute,
        inputs={"store": store.key, "seed": seed},
        code=CODE,
    )


def dependency_links(heads: Sequence[int], relations: Sequence[str]) -> list[Link]:
    """List the links of a dependency tree whose words are at least `MIN_DISTANCE` apart.

    ``heads`` count from 1, and the root's is 0.
    """
    links = []
    for word, (head, relation) in enumerate(zip(heads, relations, strict=True), 1):
        is_argument = relation in ARGUMENTS or relation.partition(":")[0] in ARGUMENTS
        if head and is_argument and abs(head - word) >= MIN_DISTANCE:
            links.append((head - 1, word - 1))
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
    linked = {tuple(sorted(link)) for link in links}
    pairs_by_link = []
    for first, second in links:
        distance = abs(first - second)
        pairs = [(start, start + distance) for start in range(words - distance)]
        pairs_by_link.append([pair for pair in pairs if pair not in linked])
    return pairs_by_link
