"""Known wrong functions of the exercises, two or three each, and what to tell who answers so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from beyond.solutions.in_loops import (
    Texts,
    angle,
    best_offset,
    changed_answers,
    cosine,
    coverage,
    entropy_of_row,
    head_distance,
    is_tree,
    js_divergence,
    previous_without,
    productivity,
    redistributed,
    slope,
    softmax_row,
    word_losses,
    words_from_tokens,
)


def _members(word_of_token: np.ndarray) -> np.ndarray:
    """Mark the tokens of each word: [token, word], 0 or 1."""
    return np.eye(max(word_of_token) + 1)[word_of_token]


def _joined(warrants: Texts) -> list[str]:
    """Write each warrant as a text, in which a word may be found inside another."""
    return [" ".join(warrant) for warrant in warrants]


Hints = dict[Callable[..., Any], str]
HINTS: dict[str, Hints] = {
    "softmax_row": {
        lambda query, keys: softmax_row(query * (len(query) / len(keys)) ** 0.5, keys): (
            "you divide by the root of the number of keys; it is the width of the query."
        ),
        lambda query, keys: softmax_row(query * len(query) ** 0.5, keys): (
            "divide the scores by the root of the width first."
        ),
        lambda query, keys: np.exp(keys @ query / len(query) ** 0.5): (
            "a row sums to one: divide by the sum of the exponentials."
        ),
    },
    "words_from_tokens": {
        lambda token_map, word_of_token: (
            _members(word_of_token).T @ token_map @ _members(word_of_token)
        ): "attention from a word is the mean over its tokens; you add them up.",
        lambda token_map, word_of_token: words_from_tokens(
            token_map / _members(word_of_token).sum(axis=0)[word_of_token], word_of_token
        ): "attention to a word is the sum over its tokens; you take the mean.",
    },
    "map_bytes": {
        lambda layers, heads, lengths: 2 * layers * heads * sum(lengths): (
            "a map has a weight for each pair of tokens, not for each token."
        ),
        lambda layers, heads, lengths: 2 * layers * heads * sum(lengths) ** 2: (
            "each example has maps of its own: square its length before you add up."
        ),
    },
    "relative_position": {
        lambda maps: np.diagonal(maps, -1, -2, -1).mean(axis=-1): (
            "you divide by n - 1; the first row counts, too."
        ),
        lambda maps: np.trace(maps, 1, -2, -1) / maps.shape[-1]: (
            "this is the next token: rows look, and columns are looked at."
        ),
    },
    "two_back": {
        lambda maps: np.diagonal(maps, -2, -2, -1).mean(axis=-1): (
            "you divide by n - 2; the first two rows count, too."
        ),
        lambda maps: np.trace(maps, 2, -2, -1) / maps.shape[-1]: (
            "this is the token two ahead: rows look, and columns are looked at."
        ),
    },
    "previous_without": {
        lambda maps, left_out: maps[..., ~left_out, np.flatnonzero(~left_out) - 1].mean(axis=-1): (
            "the index -1 is the last token; the first one has no previous token."
        ),
        lambda maps, left_out: previous_without(maps, left_out) * np.mean(~left_out): (
            "divide by the number of rows that are left."
        ),
        lambda maps, left_out: np.trace(maps * ~left_out, -1, -2, -1) / len(left_out): (
            "leave out rows, not columns: the tokens that look."
        ),
    },
    "share_of_keys": {
        lambda attention, is_key: attention[..., is_key].mean(axis=(-2, -1)): (
            "add up the weights of the marked keys of a row; you take their mean."
        ),
        lambda attention, is_key: attention[..., is_key, :].mean(axis=(-2, -1)): (
            "you read the rows of the marked tokens; what they get is in their columns."
        ),
    },
    "uniform_share": {
        lambda visible, is_key: np.mean(is_key): (
            "a query that sees fewer keys gives more to each of them."
        ),
        lambda visible, is_key: (visible & is_key).sum() / visible.sum(): (
            "compute the share of each row first, then the mean of the rows."
        ),
    },
    "slope": {
        lambda function, x, step: (function(x + step) - function(x)) / step: (
            "take a step in both directions; one alone is less exact."
        ),
        lambda function, x, step: 2 * slope(function, x, step): (
            "the two points are two steps apart."
        ),
    },
    "entropy_of_row": {
        lambda weights: entropy_of_row(weights) / np.log(2): (
            "this is in bits; nats have the natural logarithm."
        ),
        lambda weights: -entropy_of_row(weights): (
            "the logarithm of a weight is negative; put a minus before the sum."
        ),
    },
    "count_broad": {
        lambda entropies, uniform, cut_off: (entropies > cut_off * uniform).sum(axis=1): (
            "a head at the cut-off itself is broad: at least."
        ),
        lambda entropies, uniform, cut_off: (entropies >= cut_off * uniform).sum(axis=0): (
            "you count over the layers; rows are layers."
        ),
    },
    "picked_words": {
        lambda attention: attention.argmax(axis=1): "a word may not pick itself.",
        lambda attention: (attention - 2 * np.eye(len(attention))).argmax(axis=0): (
            "you read columns: the word that attends most to this one."
        ),
    },
    "best_offset": {
        lambda words, parents: parents[0] - words[0]: (
            "this is the distance of the first word, not the most frequent one."
        ),
        lambda words, parents: best_offset(parents, words): (
            "count from the word to its parent: a parent on the left is negative."
        ),
    },
    "word_losses": {
        lambda scores, parents: -word_losses(scores, parents): (
            "the logarithm of a probability is negative; the loss is minus it."
        ),
        lambda scores, parents: (
            np.log(np.exp(scores).sum(axis=0))[parents] - scores[np.arange(len(parents)), parents]
        ): ("the candidates of a word are in its row; you add up a column."),
    },
    "right_branching": {
        lambda n_words: np.arange(2, n_words + 2): (
            "the last word has no next word; it is the root, and its parent is 0."
        ),
        lambda n_words: np.array([*range(1, n_words), 0]): (
            "words count from 1, so you give each word itself."
        ),
    },
    "is_tree": {
        lambda heads: list(heads).count(0) == 1: "a cycle is no tree, even beside one root.",
        lambda heads: is_tree(heads) or list(heads).count(0) > 1: "a tree has one root.",
    },
    "js_divergence": {
        lambda p, q: 2 * js_divergence(p, q): "the two sums have the weight one half each.",
        lambda p, q: js_divergence(p, q) / np.log(2): (
            "this is in bits; nats have the natural logarithm."
        ),
    },
    "head_distance": {
        lambda a, b: head_distance(a, b) / len(a): "add the rows up; you take their mean.",
        lambda a, b: np.abs(a - b).sum() / 2: (
            "this is half the absolute difference; the divergence has logarithms."
        ),
    },
    "nearest_heads": {
        lambda distances: distances.argmin(axis=1): (
            "each head is nearest to itself; leave it out."
        ),
        lambda distances: distances.argmax(axis=1): "this is the farthest head.",
    },
    "column_share": {
        lambda attention: attention.mean(axis=1).max(): (
            "this is the mean of a row; a column has what a token gets."
        ),
        lambda attention: attention.sum(axis=0).max(): (
            "you add up the column; divide by the number of rows."
        ),
    },
    "darkest_diagonal": {
        lambda shades: max(np.trace(shades, offset) / len(shades) for offset in range(-3, 4)): (
            "a diagonal beside the main one is shorter: divide by its own length."
        ),
        lambda shades: max(np.diagonal(shades, offset).mean() for offset in range(4)): (
            "look on both sides of the main diagonal."
        ),
    },
    "cosine": {
        lambda before, after: (before * after).sum(): (
            "divide by the lengths of both vectors; a map is no unit vector."
        ),
        lambda before, after: np.mean(
            [cosine(*rows) for rows in zip(before, after, strict=True)]
        ): ("you average over rows; take each map as one long vector."),
    },
    "without_head": {
        lambda outputs, head: np.delete(outputs, head, axis=-2): (
            "the head stays, with zeros, because the projection expects all heads."
        ),
        lambda outputs, head: outputs * (np.arange(outputs.shape[-1]) != head): (
            "the last axis is the width of a head; heads are the axis before."
        ),
    },
    "mean_output": {
        lambda texts: np.mean([outputs.mean(axis=0) for outputs in texts], axis=0): (
            "you average over texts; a long text has more tokens and counts more."
        ),
        lambda texts: np.concatenate(texts).sum(axis=0) / len(texts): (
            "divide by the number of tokens, not of texts."
        ),
    },
    "changed_answers": {
        lambda is_right, is_right_after: changed_answers(is_right_after, is_right): (
            "the answers that are lost come first."
        ),
        lambda is_right, is_right_after: np.array([is_right.sum(), is_right_after.sum()]): (
            "answers that stay right have not changed."
        ),
    },
    "coverage": {
        lambda first, second, cue: (
            100 * np.mean([cue in a or cue in b for a, b in zip(first, second, strict=True)])
        ): "a cue in both warrants decides nothing.",
        lambda first, second, cue: coverage(_joined(first), _joined(second), cue): (
            "compare whole words: “nothing” is no “not”."
        ),
    },
    "productivity": {
        lambda right, wrong, cue: (
            100 * np.mean([cue in a for a, b in zip(right, wrong, strict=True) if cue in [*a, *b]])
        ): "an argument with the cue in both warrants does not count.",
        lambda right, wrong, cue: (
            productivity(right, wrong, cue) * coverage(right, wrong, cue) / 100
        ): ("divide by the arguments that the cue decides, not by all."),
        lambda right, wrong, cue: productivity(wrong, right, cue): (
            "count the arguments in which the right warrant has the cue."
        ),
    },
    "accuracy_on_both": {
        lambda is_right, on_counterpart: 100 * np.mean(is_right & on_counterpart): (
            "each argument and each counterpart counts by itself, not only pairs with both right."
        ),
        lambda is_right, on_counterpart: 100 * (np.mean(is_right) + np.mean(on_counterpart)): (
            "there are twice as many answers as arguments."
        ),
    },
    "sink_share": {
        lambda attention: attention[..., 0].mean(axis=-1): (
            "leave out the first query, which may see nothing but itself."
        ),
        lambda attention: attention[..., 0, 1:].mean(axis=-1): (
            "this is a row, what the first token looks at; what it gets is a column."
        ),
    },
    "redistributed": {
        lambda weights, chosen: redistributed(weights / weights.sum(), chosen): (
            "you scale to one; the old sum of the row may be less."
        ),
        lambda weights, chosen: np.where(chosen, 0, weights): (
            "this is dropped; the others have to take over the weight."
        ),
    },
    "outlier_dimension": {
        lambda vectors: np.abs(vectors[0]).argmax(): (
            "a dimension that is large in all tokens is no mark: subtract their mean."
        ),
        lambda vectors: (vectors[0] - vectors[1:].mean(axis=0)).argmax(): (
            "a number far below the mean stands out, too: take the absolute value."
        ),
    },
    "angle": {
        lambda before, after: np.radians(angle(before, after)): "this is in radians.",
        lambda before, after: cosine(before, after): "this is the cosine of the angle.",
    },
    "without_group_means": {
        lambda values: values - values.mean(axis=0): "subtract the means of rows, too.",
        lambda values: values - values.mean(axis=1, keepdims=True): (
            "subtract the means of columns, too."
        ),
    },
    "geometric_mean": {
        lambda ratios: ratios.mean(): "this is the arithmetic mean: 2 and 1/2 do not cancel.",
        lambda ratios: np.prod(ratios): "take the root of the product.",
    },
}
