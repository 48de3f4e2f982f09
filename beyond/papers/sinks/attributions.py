"""Attribution: how well attention maps predict the effect of leaving out a token (part three).

A text is the first paragraph of a segment; its vector is the mean of its token vectors.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.stats import spearmanr
from torch.nn import functional as F

from beyond.papers.sinks import CODE
from beyond.papers.sinks.lenses import (
    evenly_spaced_records,
    first_example,
    with_ratio,
)
from helpers.cache import cached
from helpers.data.records import cluster_of
from helpers.model.forward import Inputs, norm_maps, padded, value_pass
from helpers.model.gradients import paragraphs
from helpers.model.loading import Model
from helpers.progress import progress
from helpers.store.store import Store

BASELINE = "attention, all layers"  # the method that the others are compared with
MIN_TOKENS = 5  # shorter texts have too few tokens to rank
COPIES_PER_BATCH = 32  # of a text, each without another token

TokenScores = Float[np.ndarray, " token"]


def attribution_table(encoder: Model, source: Store, count: int) -> pd.DataFrame:
    """Correlate attribution methods with the effects of leaving out each token.

    A token is left out by masking it (no position attends to it) and by averaging without it.  The
    effect ("vector") is 1 minus the cosine of the text's vector with the vector of the full text.

    Parameters
    ----------
    encoder : Model
        The model, which may differ from that of ``source`` if it has the same tokenizer.
    source : Store
        Segments; its records are read, not its maps.
    count : int
        The number of segments at most, spaced evenly over the source.

    Returns
    -------
    DataFrame
        One row per method.  ``correlation`` is Spearman's, mean over ``texts``;
        ``lead`` is that minus the correlation of `BASELINE`.  Bounds end in _low and _high and are
        of bootstrap intervals over articles.

    Raises
    ------
    ModelError
        If the value vectors of the model cannot be located.
    """

    def compute() -> pd.DataFrame:
        rows = []
        records = progress(evenly_spaced_records(source, count), "leaving tokens out", unit="text")
        for index, record in enumerate(records):
            text, _ = paragraphs(encoder, [record])
            is_word = np.array([token not in encoder.special_ids for token in text["input_ids"]])
            if is_word.sum() < MIN_TOKENS:
                continue
            effects = leave_one_out_effects(encoder, text)[is_word]
            correlations = {"article": cluster_of(record, index)}
            for method, scores in attribution_scores(encoder, text).items():
                correlations[method] = spearmanr(scores[is_word], effects).statistic
            rows.append(correlations)
        by_text = pd.DataFrame(rows).set_index("article").sort_index(kind="stable")
        leads = by_text.sub(by_text[BASELINE], axis=0)
        table = pd.DataFrame({"method": by_text.columns, "texts": len(by_text)})
        for name, values in (("correlation", by_text), ("lead", leads)):
            by_article = values.groupby("article")
            with_ratio(table, name, by_article.sum(), by_article.count())
        return table

    inputs = {"store": source.key, "model": encoder.key, "texts": count}
    return cached("attributions", compute, inputs=inputs, code=CODE)


def attribution_scores(encoder: Model, text: Inputs) -> dict[str, TokenScores]:
    """Score each token of a text by each attribution method.

    The scores are the attention that a token receives (mean over queries and heads): in the last
    layer, in all layers, and in all layers through the norm lens.
    """
    with value_pass(encoder) as run:
        layer_maps, layer_norms, _ = run([text])
    attention = first_example(layer_maps)
    mean_attention = attention.mean(axis=1)  # over heads
    mean_moved = norm_maps(attention, first_example(layer_norms)).mean(axis=1)
    return {
        "attention, last layer": mean_attention[-1].mean(axis=0),
        BASELINE: mean_attention.mean(axis=(0, 1)),
        "norm lens, all layers": mean_moved.mean(axis=(0, 1)),
    }


@torch.inference_mode()
def leave_one_out_effects(encoder: Model, text: Inputs) -> TokenScores:
    """Compute the effect of leaving out each token of a text, see `attribution_table`."""
    n = len(text["input_ids"])
    masks = torch.cat([torch.ones(1, n), 1 - torch.eye(n)]).long()  # the first one is the full text
    vectors = []
    for mask in masks.to(encoder.model.device).split(COPIES_PER_BATCH):
        batch = padded(encoder, [text] * len(mask))
        output = encoder.model.base_model(**{**batch, "attention_mask": mask})
        states = output.last_hidden_state.double() * mask[..., None]
        vectors.append(states.sum(dim=1) / mask.sum(dim=1, keepdim=True))
    means = torch.cat(vectors)  # [full text and each reduced one, width]
    return (1 - F.cosine_similarity(means[1:], means[:1])).cpu().numpy()
