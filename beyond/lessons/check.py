"""Checks of exercises: they run a student's function on small cases and say what differs.

``check.relative_position(my_function)`` prints whether the function gives what the plain loops
below give.  A function that returns nothing is "not written yet", which is no error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LARGEST_SHOWN = 40  # numbers of an array that are printed
Case = tuple[Any, ...]  # the arguments of one call


@dataclass(frozen=True)
class Exercise:
    """An exercise: cases, and a function that is right and as plain as possible.

    Attributes
    ----------
    solve : callable
        The function that students are asked for.
    cases : sequence of tuple
        The arguments of each call.
    """

    solve: Callable[..., Any]
    cases: Sequence[Case]

    def __call__(self, function: Callable[..., Any]) -> None:
        """Run a student's function on the cases, and print the first difference.

        Parameters
        ----------
        function : callable
            The function to check.  One that returns None is not written yet.
        """
        print(self.compare(function))

    def compare(self, function: Callable[..., Any]) -> str:
        """Describe the first case in which a function is wrong, or that it is right in all."""
        for number, case in enumerate(self.cases, 1):
            arguments = [argument.copy() if _is_array(argument) else argument for argument in case]
            try:
                answer = function(*arguments)
            except NotImplementedError:
                answer = None
            except Exception as error:  # of the student's code, whatever it is
                return f"Case {number} raises {type(error).__name__}: {error}\n{describe(case)}"
            if answer is None:
                return "Not written yet: the function returns nothing."
            problem = difference(self.solve(*case), answer)
            if problem:
                return f"Not yet. In case {number} {problem}\n{describe(case)}"
        return f"Right in all {len(self.cases)} cases."


def difference(expected: Any, answer: Any) -> str:
    """Describe how an answer differs from the expected one; the text is empty if it does not."""
    if isinstance(expected, str | bool):
        return "" if expected == answer else f"we expect {expected!r}; you have {answer!r}."
    expected = np.asarray(expected, dtype=float)
    try:
        answer = np.asarray(answer, dtype=float)
    except (TypeError, ValueError):
        return f"we expect numbers; you have {answer!r}."
    if expected.shape != answer.shape:
        return f"we expect the shape {expected.shape}; you have {answer.shape}."
    if np.allclose(expected, answer, atol=1e-6, equal_nan=True):
        return ""
    return f"we expect\n{expected.round(3)}\nand you have\n{answer.round(3)}"


def describe(case: Case) -> str:
    """Write the arguments of a case, with the numbers of small arrays."""
    lines = []
    for argument in case:
        if _is_array(argument) and argument.size > LARGEST_SHOWN:
            lines.append(f"an array of the shape {argument.shape}")
        else:
            with np.printoptions(precision=3, suppress=True):
                lines.append(str(argument))
    return "The arguments were:\n" + "\n".join(lines)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _maps(*shape: int, seed: int = 0) -> np.ndarray:
    """Make maps with random weights; rows sum to one."""
    scores = np.random.default_rng(seed).normal(size=shape)
    weights = np.exp(scores)
    return weights / weights.sum(axis=-1, keepdims=True)


# Three words: the first looks at itself, the second mostly one back, the third everywhere.
SMALL_MAP = np.array([[1.0, 0.0, 0.0], [0.8, 0.1, 0.1], [0.25, 0.25, 0.5]])


# 00: what a map is


def _softmax_row(query: np.ndarray, keys: np.ndarray) -> np.ndarray:
    scores = [sum(query * key) / len(query) ** 0.5 for key in keys]
    exponentials = [np.exp(score) for score in scores]
    return np.array([value / sum(exponentials) for value in exponentials])


def _words_from_tokens(token_map: np.ndarray, word_of_token: np.ndarray) -> np.ndarray:
    n_words = max(word_of_token) + 1
    word_map = np.zeros((n_words, n_words))
    for query, row in enumerate(token_map):
        for key, weight in enumerate(row):
            n_tokens = sum(word_of_token == word_of_token[query])
            word_map[word_of_token[query], word_of_token[key]] += weight / n_tokens
    return word_map


def _map_bytes(layers: int, heads: int, lengths: Sequence[int]) -> int:
    return sum(2 * layers * heads * length**2 for length in lengths)


softmax_row = Exercise(
    _softmax_row,
    [
        (np.array([1.0, 0.0]), np.array([[0.0, 0.0], [1.0, 0.0]])),
        (np.array([2.0, -1.0, 0.5, 1.0]), np.eye(4)),
    ],
)
words_from_tokens = Exercise(
    _words_from_tokens,
    [(SMALL_MAP, np.array([0, 1, 1])), (_maps(5, 5), np.array([0, 0, 1, 2, 2]))],
)
map_bytes = Exercise(_map_bytes, [(6, 12, [10]), (30, 9, [128, 64])])


# 01: relative position


def _shifted_share(attention: np.ndarray, shift: int) -> np.ndarray:
    n = attention.shape[-1]
    queries = [query for query in range(n) if 0 <= query + shift < n]
    return sum(attention[..., query, query + shift] for query in queries) / n


def _previous_without(attention: np.ndarray, left_out: np.ndarray) -> np.ndarray:
    queries = [query for query in range(len(left_out)) if not left_out[query]]
    weights = [attention[..., query, query - 1] for query in queries if query]
    return np.sum(weights, axis=0) / len(queries)


relative_position = Exercise(
    lambda attention: _shifted_share(attention, -1), [(SMALL_MAP,), (_maps(2, 3, 5, 5),)]
)
two_back = Exercise(
    lambda attention: _shifted_share(attention, -2), [(SMALL_MAP,), (_maps(2, 3, 5, 5),)]
)
previous_without = Exercise(
    _previous_without,
    [
        (SMALL_MAP, np.array([False, False, True])),
        (_maps(2, 3, 5, 5), np.array([True, False, True, False, False])),
    ],
)


# 02: token types, gradients


def _share_of_keys(attention: np.ndarray, is_key: np.ndarray) -> np.ndarray:
    return attention[..., is_key].sum(axis=-1).mean(axis=-1)


def _uniform_share(visible: np.ndarray, is_key: np.ndarray) -> float:
    shares = [row[is_key].sum() / row.sum() for row in visible]
    return sum(shares) / len(shares)


def _slope(function: Callable[[float], float], x: float) -> float:
    step = 1e-4
    return (function(x + step) - function(x - step)) / (2 * step)


share_of_keys = Exercise(
    _share_of_keys,
    [
        (SMALL_MAP, np.array([True, False, False])),
        (_maps(2, 3, 5, 5), np.array([True, False, False, False, True])),
    ],
)
uniform_share = Exercise(
    _uniform_share,
    [
        (np.ones((4, 4), dtype=bool), np.array([True, False, False, False])),
        (np.tri(4, dtype=bool), np.array([True, False, False, False])),
    ],
)
slope = Exercise(_slope, [(np.square, 3.0), (np.exp, 0.0)])


# 03: entropy


def _entropy(weights: np.ndarray) -> float:
    return -sum(weight * np.log(weight) for weight in weights if weight > 0)


def _count_broad(entropies: np.ndarray, uniform: float, cut_off: float) -> np.ndarray:
    return np.array([sum(entropy >= cut_off * uniform for entropy in row) for row in entropies])


entropy = Exercise(
    _entropy,
    [(np.array([1.0, 0.0]),), (np.array([0.5, 0.5]),), (np.array([0.7, 0.2, 0.1]),)],
)
effective_tokens = Exercise(np.exp, [(0.0,), (np.log(8),), (np.array([1.0, 2.5]),)])
count_broad = Exercise(
    _count_broad, [(np.array([[1.0, 2.0], [3.0, 3.5]]), 4.0, 0.75), (_maps(3, 4), 0.5, 0.5)]
)


# 04: a head as a classifier


def _picked_words(attention: np.ndarray) -> np.ndarray:
    picks = []
    for query, row in enumerate(attention):
        candidates = [key for key in range(len(row)) if key != query]
        picks.append(max(candidates, key=row.__getitem__))
    return np.array(picks)


def _accuracy(picks: np.ndarray, parents: np.ndarray) -> float:
    right = [pick == parent for pick, parent in zip(picks, parents, strict=True)]
    return 100 * sum(right) / len(right)


def _best_offset(words: np.ndarray, parents: np.ndarray) -> int:
    return Counter((parents - words).tolist()).most_common(1)[0][0]


picked_words = Exercise(_picked_words, [(SMALL_MAP,), (_maps(5, 5),)])
accuracy = Exercise(
    _accuracy,
    [(np.array([1, 0]), np.array([1, 2])), (np.array([1, 2, 0]), np.array([1, 2, 0]))],
)
best_offset = Exercise(
    _best_offset,
    [(np.array([0, 1, 4]), np.array([1, 2, 2])), (np.array([3, 5, 2]), np.array([1, 3, 1]))],
)


# 05: probes


def _word_losses(scores: np.ndarray, parents: np.ndarray) -> np.ndarray:
    rows = zip(scores, parents, strict=True)
    return np.array([np.log(np.exp(row).sum()) - row[parent] for row, parent in rows])


def _is_tree(heads: Sequence[int]) -> bool:
    for word in range(1, len(heads) + 1):
        steps = 0
        while word and steps <= len(heads):
            word = heads[word - 1]
            steps += 1
        if word:
            return False
    return list(heads).count(0) == 1


def _right_branching(n_words: int) -> np.ndarray:
    return np.array([*range(2, n_words + 1), 0])


word_losses = Exercise(
    _word_losses,
    [
        (np.array([[0.0, 0.0], [2.0, -1.0]]), np.array([0, 0])),
        (np.arange(6.0).reshape(2, 3), np.array([2, 0])),
    ],
)
is_tree = Exercise(
    _is_tree, [([2, 0, 2],), ([2, 1],), ([0, 0],), ([2, 3, 1, 0],), ([0],), ([3, 1, 0],)]
)
right_branching = Exercise(_right_branching, [(1,), (4,)])


# 06: distances between heads


def _js_divergence(p: np.ndarray, q: np.ndarray) -> float:
    return _entropy((p + q) / 2) - (_entropy(p) + _entropy(q)) / 2


def _head_distance(a: np.ndarray, b: np.ndarray) -> float:
    return sum(_js_divergence(p, q) for p, q in zip(a, b, strict=True))


def _nearest_heads(distances: np.ndarray) -> np.ndarray:
    nearest = []
    for head, row in enumerate(distances):
        others = [other for other in range(len(row)) if other != head]
        nearest.append(min(others, key=row.__getitem__))
    return np.array(nearest)


js_divergence = Exercise(
    _js_divergence,
    [
        (np.array([1.0, 0.0]), np.array([0.0, 1.0])),
        (np.array([0.5, 0.5]), np.array([0.5, 0.5])),
        (np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.3, 0.6])),
    ],
)
head_distance = Exercise(
    _head_distance,
    [(SMALL_MAP, SMALL_MAP), (SMALL_MAP, _maps(3, 3)), (_maps(4, 4), _maps(4, 4, seed=1))],
)
nearest_heads = Exercise(
    _nearest_heads, [(np.array([[0.0, 1, 2], [1, 0, 0.5], [2, 0.5, 0]]),), (_maps(5, 5),)]
)


# 07: patterns of maps, fine-tuning


def _diagonal_share(attention: np.ndarray) -> float:
    n = len(attention)
    near = [(i, j) for i in range(n) for j in range(n) if abs(i - j) <= 1]
    return sum(attention[i, j] for i, j in near) / n


def _darkest_column(attention: np.ndarray) -> int:
    column_sums = attention.sum(axis=0).tolist()
    return column_sums.index(max(column_sums))


def _cosine(before: np.ndarray, after: np.ndarray) -> float:
    product = (before * after).sum()
    return product / ((before**2).sum() * (after**2).sum()) ** 0.5


diagonal_share = Exercise(_diagonal_share, [(SMALL_MAP,), (_maps(6, 6),)])
darkest_column = Exercise(_darkest_column, [(SMALL_MAP,), (_maps(6, 6),)])
cosine = Exercise(_cosine, [(SMALL_MAP, SMALL_MAP), (_maps(4, 4), _maps(4, 4, seed=1))])


# 08: removing heads


def _without_head(outputs: np.ndarray, head: int) -> np.ndarray:
    changed = outputs.copy()
    changed[..., head, :] = 0
    return changed


def _with_mean_output(outputs: np.ndarray, head: int) -> np.ndarray:
    changed = outputs.copy()
    mean = sum(outputs[:, head]) / len(outputs)
    for token in range(len(outputs)):
        changed[token, head] = mean
    return changed


def _changed_answers(before: np.ndarray, after: np.ndarray, labels: np.ndarray) -> np.ndarray:
    rows = list(zip(before, after, labels, strict=True))
    lost = sum(old == label and new != label for old, new, label in rows)
    won = sum(old != label and new == label for old, new, label in rows)
    return np.array([lost, won])


without_head = Exercise(_without_head, [(_maps(3, 2, 4), 1), (_maps(2, 3, 4, 5), 0)])
with_mean_output = Exercise(_with_mean_output, [(_maps(3, 2, 4), 1), (_maps(5, 3, 2), 0)])
changed_answers = Exercise(
    _changed_answers,
    [
        (np.array([0, 1, 1]), np.array([0, 0, 1]), np.array([0, 1, 0])),
        (np.array([0, 0, 1]), np.array([1, 1, 1]), np.array([1, 1, 1])),
    ],
)


# 09: cues


def _coverage(first: Sequence[Sequence[str]], second: Sequence[Sequence[str]], cue: str) -> float:
    pairs = list(zip(first, second, strict=True))
    return 100 * sum((cue in warrant) != (cue in rival) for warrant, rival in pairs) / len(pairs)


def _productivity(
    right: Sequence[Sequence[str]], wrong: Sequence[Sequence[str]], cue: str
) -> float:
    pairs = list(zip(right, wrong, strict=True))
    decisive = [cue in warrant for warrant, rival in pairs if (cue in warrant) != (cue in rival)]
    return 100 * sum(decisive) / len(decisive)


def _accuracy_on_both(is_right: np.ndarray, is_right_on_counterpart: np.ndarray) -> float:
    return 100 * (sum(is_right) + sum(is_right_on_counterpart)) / (2 * len(is_right))


RIGHT_WARRANTS = [["it", "is", "not"], ["they", "do"], ["not", "so"], ["we", "can"]]
WRONG_WARRANTS = [["it", "is"], ["they", "do", "not"], ["so"], ["we", "may"]]
coverage = Exercise(
    _coverage,
    [(RIGHT_WARRANTS, WRONG_WARRANTS, "not"), (RIGHT_WARRANTS, WRONG_WARRANTS, "can")],
)
productivity = Exercise(
    _productivity,
    [(RIGHT_WARRANTS, WRONG_WARRANTS, "not"), (RIGHT_WARRANTS, WRONG_WARRANTS, "may")],
)
accuracy_on_both = Exercise(
    _accuracy_on_both,
    [
        (np.array([True, True, False]), np.array([False, False, True])),
        (np.array([True, True]), np.array([True, False])),
    ],
)


# 10: is attention to special tokens a no-op?


def _moved_shares(weights: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    norms = [
        weight * (vector @ vector) ** 0.5 for weight, vector in zip(weights, vectors, strict=True)
    ]
    return np.array(norms) / sum(norms)


def _redistributed(weights: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    remaining = np.where(chosen, 0, weights)
    return remaining * weights.sum() / remaining.sum()


def _angle(before: np.ndarray, after: np.ndarray) -> float:
    cosine_of_angle = before @ after / ((before @ before) * (after @ after)) ** 0.5
    return float(np.degrees(np.arccos(min(1, cosine_of_angle))))


moved_shares = Exercise(
    _moved_shares,
    [
        (np.array([0.9, 0.1]), np.array([[0.1, 0.0], [3.0, 4.0]])),
        (_maps(4), _maps(4, 3)),
    ],
)
redistributed = Exercise(
    _redistributed,
    [
        (np.array([0.5, 0.3, 0.2]), np.array([True, False, False])),
        (_maps(5), np.array([False, True, False, True, False])),
    ],
)
angle = Exercise(
    _angle,
    [
        (np.array([1.0, 0.0]), np.array([0.0, 2.0])),
        (np.array([1.0, 1.0]), np.array([1.0, 0.0])),
    ],
)


# 11: accuracy and function


def _nearest_of_class(tags: Sequence[str], word: int, tag: str, side: int) -> int:
    position = word + side
    while 0 <= position < len(tags):
        if tags[position] == tag:
            return position
        position += side
    return -1


def _first_order_effect(weight: float, gradient: float) -> float:
    return weight * gradient


def _without_group_means(values: np.ndarray) -> np.ndarray:
    centred = values - values.mean(axis=0, keepdims=True)
    return centred - centred.mean(axis=1, keepdims=True)


TAGS = ["DET", "NOUN", "VERB", "DET", "ADJ", "NOUN"]
nearest_of_class = Exercise(
    _nearest_of_class,
    [(TAGS, 0, "NOUN", 1), (TAGS, 5, "VERB", -1), (TAGS, 3, "NOUN", 1), (TAGS, 0, "VERB", -1)],
)
first_order_effect = Exercise(_first_order_effect, [(0.5, -2.0), (0.0, 3.0)])
without_group_means = Exercise(
    _without_group_means, [(np.array([[1.0, 2.0], [3.0, 8.0]]),), (_maps(3, 4),)]
)


# 12: what makes a sink?


def _sink_share(attention: np.ndarray) -> np.ndarray:
    return np.array([[head[:, 0].mean() for head in layer] for layer in attention])


def _count_sinks(shares: np.ndarray, threshold: float) -> int:
    return sum(share > threshold for row in shares for share in row)


def _outlier_dimension(vectors: np.ndarray) -> int:
    sizes = [abs(number) for number in vectors[0]]
    medians = [np.median(abs(vectors[1:, dimension])) for dimension in range(vectors.shape[1])]
    ratios = [size / median for size, median in zip(sizes, medians, strict=True)]
    return ratios.index(max(ratios))


sink_share = Exercise(_sink_share, [(SMALL_MAP[None, None],), (_maps(2, 3, 4, 4),)])
count_sinks = Exercise(
    _count_sinks, [(np.array([[0.6, 0.1], [0.51, 0.5]]), 0.5), (_maps(3, 4), 0.25)]
)
outlier_dimension = Exercise(
    _outlier_dimension,
    [
        (np.array([[9.0, 1.0], [1.0, 1.0], [1.5, 0.5]]),),
        (np.array([[1.0, -50.0, 2.0], [1.0, 2.0, 2.0], [3.0, 1.0, 2.0]]),),
    ],
)
