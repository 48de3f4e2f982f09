"""Solutions of the exercises in plain loops.

They are the references of `helpers.check.check` where neither ``helpers`` nor a library has the
function.  The solutions that are folded in the notebooks are shorter, in NumPy; tests compare both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

Texts = Sequence[Sequence[str]]  # lists of words

# 00: what a map is


def softmax_row(query: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Compute the attention from one query to each key."""
    scores = [sum(query * key) / len(query) ** 0.5 for key in keys]
    exponentials = [np.exp(score) for score in scores]
    return np.array([value / sum(exponentials) for value in exponentials])


def words_from_tokens(token_map: np.ndarray, word_of_token: np.ndarray) -> np.ndarray:
    """Compute the map over words: sum over the tokens looked at, mean over those that look."""
    n_words = max(word_of_token) + 1
    word_map = np.zeros((n_words, n_words))
    for query, row in enumerate(token_map):
        for key, weight in enumerate(row):
            n_tokens = sum(word_of_token == word_of_token[query])
            word_map[word_of_token[query], word_of_token[key]] += weight / n_tokens
    return word_map


def map_bytes(layers: int, heads: int, lengths: Sequence[int]) -> int:
    """Count the bytes of the float16 maps of examples."""
    return sum(2 * layers * heads * length**2 for length in lengths)


# 01: relative position


def two_back(attention: np.ndarray) -> np.ndarray:
    """Compute the share for the token before the previous one."""
    n = attention.shape[-1]
    weights = [attention[..., query, query - 2] for query in range(2, n)]
    return np.sum(weights, axis=0) / n


def previous_without(attention: np.ndarray, left_out: np.ndarray) -> np.ndarray:
    """Compute the share for the previous token among the rows that are not left out."""
    queries = [query for query in range(len(left_out)) if not left_out[query]]
    weights = [attention[..., query, query - 1] for query in queries if query]
    return np.sum(weights, axis=0) / len(queries)


# 02: token types, gradients


def share_of_keys(attention: np.ndarray, is_key: np.ndarray) -> np.ndarray:
    """Compute the mean attention of a row to the marked keys."""
    shares = [attention[..., key].mean(axis=-1) for key in np.flatnonzero(is_key)]
    return np.sum(shares, axis=0)


def uniform_share(visible: np.ndarray, is_key: np.ndarray) -> float:
    """Compute the share of the marked keys under uniform attention."""
    shares = [row[is_key].sum() / row.sum() for row in visible]
    return sum(shares) / len(shares)


def slope(function: Callable[[float], float], x: float, step: float) -> float:
    """Compute the derivative of a function of one number by a finite difference."""
    return (function(x + step) - function(x - step)) / (2 * step)


# 03: entropy


def entropy_of_row(weights: np.ndarray) -> float:
    """Compute the entropy of a row in nats."""
    return sum(weight * np.log(1 / weight) for weight in weights if weight > 0)


def count_broad(entropies: np.ndarray, uniform: float, cut_off: float) -> np.ndarray:
    """Count the heads of each layer whose entropy is at least cut_off x uniform."""
    return np.array([sum(entropy >= cut_off * uniform for entropy in row) for row in entropies])


# 04: a head as a classifier


def best_offset(words: np.ndarray, parents: np.ndarray) -> int:
    """Find the distance from a word to its parent that is right most often."""
    return Counter((parents - words).tolist()).most_common(1)[0][0]


# 05: probes


def word_losses(scores: np.ndarray, parents: np.ndarray) -> np.ndarray:
    """Compute -log p(parent) of each word."""
    rows = zip(scores, parents, strict=True)
    return np.array([np.log(np.exp(row).sum()) - row[parent] for row, parent in rows])


def is_tree(heads: Sequence[int]) -> bool:
    """Tell whether heads, from 1 with 0 for the root, is a tree with one root."""
    for word in range(1, len(heads) + 1):
        steps = 0
        while word and steps <= len(heads):
            word = heads[word - 1]
            steps += 1
        if word:
            return False
    return list(heads).count(0) == 1


def right_branching(n_words: int) -> np.ndarray:
    """Give each word the next word as its parent, and the last one the root."""
    return np.array([*range(2, n_words + 1), 0])


# 06: distances between heads


def js_divergence(p: np.ndarray, q: np.ndarray) -> float:
    """Compute the Jensen-Shannon divergence of two distributions in nats."""
    return entropy_of_row((p + q) / 2) - (entropy_of_row(p) + entropy_of_row(q)) / 2


def head_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Add up the divergence over the rows of two maps."""
    return sum(js_divergence(p, q) for p, q in zip(a, b, strict=True))


def nearest_heads(distances: np.ndarray) -> np.ndarray:
    """Find the nearest other head of each head."""
    nearest = []
    for head, row in enumerate(distances):
        candidates = [index for index in range(len(row)) if index != head]
        nearest.append(min(candidates, key=row.__getitem__, default=head))
    return np.array(nearest)


# 07: patterns of maps, fine-tuning


def column_share(attention: np.ndarray) -> float:
    """Compute the largest mean attention that a token gets."""
    n = len(attention)
    return max(sum(attention[:, key]) / n for key in range(n))


def darkest_diagonal(shades: np.ndarray) -> float:
    """Compute the largest mean of a diagonal that is at most three tokens from the main one."""
    return max(float(np.mean(np.diagonal(shades, offset))) for offset in range(-3, 4))


def cosine(before: np.ndarray, after: np.ndarray) -> float:
    """Compute the cosine of the angle between two maps."""
    product = (before * after).sum()
    return product / ((before**2).sum() * (after**2).sum()) ** 0.5


# 08: removing heads


def without_head(outputs: np.ndarray, head: int) -> np.ndarray:
    """Set the outputs of one head to zero."""
    outputs[..., head, :] = 0
    return outputs


def mean_output(outputs_by_text: Sequence[np.ndarray]) -> np.ndarray:
    """Compute the mean output of a head over the tokens of all texts."""
    vectors = [vector for outputs in outputs_by_text for vector in outputs]
    return np.sum(vectors, axis=0) / len(vectors)


def changed_answers(is_right: np.ndarray, is_right_after: np.ndarray) -> np.ndarray:
    """Count the answers that were right and are now wrong, and those that became right."""
    rows = list(zip(is_right, is_right_after, strict=True))
    lost = sum(before and not after for before, after in rows)
    won = sum(after and not before for before, after in rows)
    return np.array([lost, won])


# 09: cues


def coverage(first: Texts, second: Texts, cue: str) -> float:
    """Compute the percentage of arguments with the cue in one warrant only."""
    pairs = list(zip(first, second, strict=True))
    return 100 * sum((cue in warrant) != (cue in rival) for warrant, rival in pairs) / len(pairs)


def productivity(right: Texts, wrong: Texts, cue: str) -> float:
    """Compute in how many percent of the arguments that the cue decides it is right."""
    pairs = zip(right, wrong, strict=True)
    decisive = [cue in warrant for warrant, rival in pairs if (cue in warrant) != (cue in rival)]
    return 100 * sum(decisive) / len(decisive)


def accuracy_on_both(is_right: np.ndarray, is_right_on_counterpart: np.ndarray) -> float:
    """Compute the percentage of right answers to arguments and counterparts together."""
    return 100 * (sum(is_right) + sum(is_right_on_counterpart)) / (2 * len(is_right))


# 10: sinks


def redistributed(weights: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Set the chosen weights to zero and scale the others to the old sum of the row."""
    remaining = np.where(chosen, 0, weights)
    return remaining * weights.sum() / remaining.sum()


def sink_share(attention: np.ndarray) -> np.ndarray:
    """Compute the mean attention of each head to the first token, without the first query."""
    return np.array([[head[1:, 0].mean() for head in layer] for layer in attention])


def outlier_dimension(vectors: np.ndarray) -> int:
    """Find the dimension in which the first token is furthest from the mean of the others."""
    distances = abs(vectors[0] - sum(vectors[1:]) / (len(vectors) - 1)).tolist()
    return distances.index(max(distances))


# 11: accuracy and function


def angle(before: np.ndarray, after: np.ndarray) -> float:
    """Compute the angle between two vectors in degrees."""
    return np.degrees(np.arccos(cosine(before, after)))


def geometric_mean(ratios: np.ndarray) -> float:
    """Compute the geometric mean of some ratios."""
    product = 1.0
    for ratio in ratios:
        product *= ratio
    return product ** (1 / len(ratios))


def without_group_means(values: np.ndarray) -> np.ndarray:
    """Subtract column means, then row means."""
    centred = values - values.mean(axis=0, keepdims=True)
    return centred - centred.mean(axis=1, keepdims=True)
