"""All heads together, beside the rule of tags and places (beyond the paper).

`AttnWithRule` is Attn with ``log P`` of the rule as one more feature: what do all attention heads
add to what tags and places say?
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from helpers.cache import cached
from helpers.data.links import ROOT, read_links
from helpers.metrics.statistics import cluster_sums
from helpers.metrics.tags_and_places import UNSEEN, ParentRule, mean_gain
from helpers.probes import CODE
from helpers.probes.data import Batch, ProbeData, prepare
from helpers.probes.modules import Attn
from helpers.probes.training import Scores, predict_heads, train
from helpers.store.store import Store

ALL_HEADS = "all heads, mean of relations"

LogP = Float[Tensor, "word candidate"]


class AttnWithRule(Attn):
    """Attn with the log-probability of the rule, which begins as the rule alone.

    Parameters
    ----------
    data
        The sentences.
    log_p
        ``log P`` of ROOT and of every word as the parent of each word, for each sentence.
    """

    def __init__(self, data: ProbeData, log_p: list[LogP]) -> None:
        super().__init__(data)
        self.log_p = log_p
        self.rule = nn.Parameter(torch.ones(()))

    def forward(self, batch: Batch) -> Scores:
        """Score ROOT and every word as the head of each word."""
        log_p = torch.stack([self.log_p[index] for index in batch.sentences])
        return super().forward(batch) + self.rule * log_p


def log_p_with_root(store: Store) -> list[LogP]:
    """Compute ``log P`` of the rule for ROOT and all words; a root's is known from its relation."""
    rule = ParentRule(store)
    tables = []
    for example in store:
        links = read_links(example.record)
        is_root = links.relation == ROOT
        root_log_p = np.log(np.where(is_root, 1, UNSEEN))[:, None]
        word_log_p = rule.log_probabilities(example, links)
        # Of equal words, the nearest counts.
        word_log_p -= 1e-5 * np.abs(links.word[:, None] - np.arange(len(links.word)))
        word_log_p[is_root] = np.log(UNSEEN)
        tables.append(torch.from_numpy(np.hstack([root_log_p, word_log_p]).astype(np.float32)))
    return tables


def all_heads_add(store: Store, relations: list[str]) -> pd.DataFrame:
    """Compute what all heads together add to the rule, as a mean over relations, once.

    Parameters
    ----------
    store
        Word-level maps of a treebank with tags.
    relations
        The relations of `helpers.metrics.tags_and_places.addition_table`.

    Returns
    -------
    DataFrame
        The row `ALL_HEADS`, with ``count``, ``rule``, ``with_head`` and ``added`` of the words of
        dev, as in that table.  The rule chooses among all words, whatever the mask.
    """

    def compute() -> pd.DataFrame:
        data = prepare(store)
        log_p = log_p_with_root(store)
        probe = AttnWithRule(data, log_p)
        rule = AttnWithRule(data, log_p)  # not trained, its other weights are zero
        train([probe], data, data.splits["train"])
        dev = data.splits["dev"]
        parses = data.parses_of(dev)
        right = []
        for scorer in (probe, rule):
            pairs = zip(predict_heads(scorer, data, dev), parses, strict=True)
            right.append(np.concatenate([heads == parse.heads for heads, parse in pairs]))
        values = np.column_stack([*right, np.ones_like(right[0])])
        relation = np.concatenate([read_links(store.record(index)).relation for index in dev])
        article = np.concatenate([np.repeat(parse.article, len(parse)) for parse in parses])
        articles = np.unique(article)
        sums = []
        for name in relations:
            words = relation == name
            sums.append(cluster_sums(values[words], article[words], articles))
        return pd.DataFrame([{"relation": ALL_HEADS, **mean_gain(sums, "rule", "added")}])

    inputs = {"store": store.key, "relations": relations}
    return cached("all-heads-add", compute, inputs=inputs, code=CODE)
