"""Slow and plain ways to the numbers of the package, which several tests compare with."""

from collections import defaultdict
from dataclasses import replace

import numpy as np

from helpers.data.records import Visible, cluster_of
from helpers.metrics.heads import DIRECTIONS
from helpers.metrics.surface import example_values, sum_by_article
from helpers.store.store import Example

LAYERS = 2
HEADS = 3
MASKS = {
    "full": Visible(causal=False, window=None),
    "causal": Visible(causal=True, window=None),
    "window": Visible(causal=False, window=5),
    "causal window": Visible(causal=True, window=6),
}
TO_PARENT = DIRECTIONS[0]


def sums_of(examples, special_tokens):
    """Sum every measure of section 3 over some examples, by article."""
    examples = list(examples)
    values = [example_values(replace(e, special_tokens=special_tokens)) for e in examples]
    return sum_by_article(values, [cluster_of(e.record, e.index) for e in examples])


def sees(visible, query, key):
    """Whether a token sees another, as the words say it."""
    is_near = visible.window is None or abs(query - key) <= visible.window
    return is_near and not (visible.causal and key > query)


def random_example(rng, mask, record, *, offset=1):
    """Make random maps under a mask over a record's words, of one or two tokens each.

    The record gets the words that each word sees, as "seen"; special tokens get most attention.
    """
    n = len(record["words"]) + 2 * offset
    groups = np.repeat(np.arange(n), rng.integers(1, 3, n))
    seen = np.zeros((n, n), bool)
    for query, key in np.ndindex(len(groups), len(groups)):
        seen[groups[query], groups[key]] |= sees(MASKS[mask], query, key)
    maps = rng.random((LAYERS, HEADS, n, n))
    if offset:
        maps[..., [0, -1]] += 1
    maps *= seen
    maps /= maps.sum(axis=-1, keepdims=True)
    record |= {"seen": seen, "inputs": {"groups": groups.tolist()}}
    return Example(0, maps, record, offset=offset, visible=[MASKS[mask]] * LAYERS)


def random_treebank(mask, count=24, *, seed=0, offset=1):
    """Make sentences whose words have one or two partners, a root, and possessors with an 's."""
    rng = np.random.default_rng(seed)
    treebank = []
    for number in range(count):
        n = int(rng.integers(2, 10))
        words = rng.choice(["w", "'s"], n, p=[0.8, 0.2]).tolist()
        root = int(rng.integers(n))
        pairs = [[root, root, "root"]]
        for word in set(range(n)) - {root}:
            parents = rng.choice(sorted(set(range(n)) - {word}), rng.integers(1, 3))
            label = str(rng.choice(["det", "dobj", "poss"]))
            pairs += [[word, int(parent), label] for parent in parents]
        record = {"words": words, "pairs": pairs, "source": f"article {number // 2}"}
        record["tags"] = rng.choice(["NOUN", "VERB", "DET"], n).tolist()
        record["split"] = "dev" if number % 4 < 2 else "train"
        treebank.append(random_example(rng, mask, record, offset=offset))
    return treebank


def point(example, layer, head, arrows):
    """Make words attend to one word each, by their numbers from 0."""
    for query, key in arrows.items():
        example.stored_attention[layer, head, query + example.offset] = 0
        example.stored_attention[layer, head, query + example.offset, key + example.offset] = 1


def slow_pick(weights, seen, query, candidates):
    """Find the candidate that gets most attention; None if all that are seen get the same."""
    shares = {key: weights[query, key] for key in candidates if key != query and seen[query, key]}
    best = max(shares, key=shares.get, default=None)
    differ = len(set(shares.values())) > 1 or len(shares) == 1
    return best if differ and shares[best] > 0 else None


def slow_questions(record, relation):
    """Yield dependent, word that is read, partners and label, for each word of a relation."""
    partners = defaultdict(set)
    for word, parent, label in record["pairs"]:
        partners[word, label].add(parent)
    for (word, label), parents in partners.items():
        if relation in ("All", label):
            is_possessor = label == "poss" and record["words"][word + 1 : word + 2] == ["'s"]
            yield word, word + is_possessor, parents - {word}, label


def slow_words(treebank, relation, direction, layer, head, *, special_tokens=False):
    """List for each word of a relation whose parent can be picked: the pick, and what is asked."""
    answers = []
    for example in treebank:
        record = example.record
        offset = example.offset
        weights, seen = example.attention[layer, head], record["seen"]
        if direction != TO_PARENT:
            weights, seen = weights.T, seen.T
        words = range(offset, offset + len(record["words"]))
        candidates = range(len(example)) if special_tokens else words
        for word, query, parents, label in slow_questions(record, relation):
            if label != "root" and not any(seen[query + offset, p + offset] for p in parents):
                continue
            pick = slow_pick(weights, seen, query + offset, candidates)
            pick = None if pick is None else pick - offset
            answers.append((example, word, query, parents, pick))
    return answers
