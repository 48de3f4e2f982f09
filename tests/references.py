"""Slow and plain ways to the numbers of the package, which several tests compare with."""

import numpy as np

from helpers.data.records import cluster_of
from helpers.metrics.surface import example_values, sum_by_article


def sums_of(examples, special_tokens):
    """Sum every measure of section 3 over some examples, by article."""
    examples = list(examples)
    values = [example_values(example, special_tokens) for example in examples]
    return sum_by_article(values, [cluster_of(e.record, e.index) for e in examples])


def slow_section_3(maps, tokens, visible):
    """Compute measures of section 3 of one layer, row by row: arrays ``[head]``."""
    n = len(tokens)
    values = {}
    for name, offset in (("previous", -1), ("current", 0), ("next", 1)):
        places = [(i, i + offset) for i in range(n) if 0 <= i + offset < n]
        share = sum(maps[0, :, i, j] for i, j in places) / n
        values[name] = share if any(visible[i, j] for i, j in places) else share * np.nan
    types = {"cls": ["[CLS]"], "sep": ["[SEP]"], "punctuation": [".", ","]}
    keys = {name: [j for j in range(n) if tokens[j] in kinds] for name, kinds in types.items()}
    for name in types:
        values[name] = sum(maps[0, :, i, j] for i in range(n) for j in keys[name]) / n
    others = [i for i in range(n) if i not in keys["sep"]]
    values["other_to_sep"] = sum(maps[0, :, i, j] for i in others for j in keys["sep"]) / len(
        others
    )
    seen = visible.sum(axis=1)
    values["uniform"] = np.full(maps.shape[1], np.log(seen).mean())
    values["largest"] = sum(maps[0, :, i].max(axis=-1) for i in range(n)) / n
    entropies = np.zeros(maps.shape[1])
    for head, i in np.ndindex(maps.shape[1], n):
        for j in np.flatnonzero(visible[i]):
            weight = 0.9999 * maps[0, head, i, j] + 0.0001 / seen[i]
            entropies[head] -= weight * np.log(weight) / n
    values["entropy"] = entropies
    return values
