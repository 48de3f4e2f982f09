"""What maps say of which tokens matter, against leaving each of them out (part three).

A text is the first paragraph of a segment; its vector is the mean of its tokens'.  Rollout is
that of Abnar and Zuidema (2020): the product over layers of half the mean map of the heads and
half the identity, which stands for the residual connection.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.stats import spearmanr
from torch import Tensor
from torch.nn import functional as F

from helpers.analysis.statistics import bootstrap_intervals
from helpers.cache import cached
from helpers.data.records import Record, cluster_of
from helpers.model.encoder import Encoder
from helpers.model.forward import Inputs, norm_maps, padded, value_pass
from helpers.model.gradients import paragraphs, with_graph
from helpers.store.store import Store
from helpers.studies.attention_moves.lenses import spread
from helpers.studies.edge_cuts import GIVEN, changed
from helpers.work import progress

EFFECTS = ("vector", "similarity")
ATTENTION = "attention, all layers"  # what the others are compared with
FEWEST = 5  # tokens to rank
AT_ONCE = 32  # copies of a text


def attribution_table(encoder: Encoder, source: Store, count: int) -> pd.DataFrame:
    """Return how well each method ranks the tokens of ``count`` segments of a source.

    Columns: method, effect, texts, correlation (Spearman's, mean over texts) and lead (over
    `ATTENTION`), with intervals over articles.  The effects of leaving a token out (no position
    attends to it, nor has it a part in the mean) are one less the cosine of the text's vector with
    what it was, and the change of its similarity to the second paragraph.
    """
    facts = {"store": source.key, "model": encoder.identity, "texts": min(count, len(source))}
    return cached(
        "attributions",
        lambda: compare(encoder, spread(source, count)),
        inputs=facts,
        module=__name__,
    )


def compare(encoder: Encoder, records: Sequence[Record]) -> pd.DataFrame:
    """Return `attribution_table` of some segments."""
    rows = []
    for index, record in enumerate(progress(records, "leaving tokens out", unit="text")):
        first, second = paragraphs(encoder, [record])
        own = np.array([i not in encoder.special_ids for i in first["input_ids"]])
        if own.sum() < FEWEST:
            continue
        effects = left_out(encoder, first, second)
        for method, scores in attributions(encoder, first, second).items():
            for effect in EFFECTS:
                rho = spearmanr(scores[own], effects[effect][own]).statistic
                rows.append((method, effect, cluster_of(record, index), index, rho))
    table = pd.DataFrame(rows, columns=["method", "effect", "article", "text", "rho"])
    by_text = table.pivot_table("rho", ["article", "text"], ["effect", "method"], sort=False)
    leads = by_text.sub(by_text.xs(ATTENTION, axis=1, level="method"), level="effect")
    columns = {"texts": by_text.count()}
    for name, values in (("correlation", by_text), ("lead", leads)):
        of_article = values.groupby("article")
        low, high = bootstrap_intervals(of_article.sum().to_numpy(), of_article.count().to_numpy())
        columns |= {name: values.mean(), f"{name}_low": low, f"{name}_high": high}
    found = pd.DataFrame(columns).reset_index()
    return found[["method", *found.columns.drop("method")]]


def rollout(maps: Float[np.ndarray, "layer query key"]) -> Float[np.ndarray, "query key"]:
    """Return what of each token of the input is in each position at the end."""
    n = maps.shape[-1]
    return np.linalg.multi_dot([*(maps[::-1] + np.eye(n)) / 2, np.eye(n)])


def attributions(encoder: Encoder, text: Inputs, other: Inputs) -> dict[str, np.ndarray]:
    """Return a score for each token of a text by each method.

    Attention received (mean over queries and heads), also where that to special tokens is given to
    the others, through both lenses and rolled out; and the size of gradient times attention, summed
    over layers, heads and queries, of the similarity to ``other``: to first order what that loses
    without the attention to the token.
    """
    with value_pass(encoder) as run:
        maps, norms, _ = run([text])
    attention, sizes = (np.stack([x[0].float().cpu() for x in part]) for part in (maps, norms))
    looked, moved = attention.mean(axis=1), norm_maps(attention, sizes).mean(axis=1)
    special = torch.tensor([index in encoder.special_ids for index in text["input_ids"]])
    given = changed(torch.from_numpy(attention), special, GIVEN)
    return {
        "attention, last layer": attention[-1].mean(axis=(0, 1)),
        ATTENTION: looked.mean(axis=(0, 1)),
        "attention, special tokens dropped": given.mean(dim=(0, 1, 2)).numpy(),
        "norm lens, all layers": moved.mean(axis=(0, 1)),
        "rollout": rollout(looked.astype(float)).mean(axis=0),
        "rollout of the norm lens": rollout(moved.astype(float)).mean(axis=0),
        "gradient x attention": gradient_times_attention(encoder, text, other),
    }


def gradient_times_attention(encoder: Encoder, text: Inputs, other: Inputs) -> np.ndarray:
    """Return ``|sum A dS/dA|`` of each token as a key; S is the similarity of the texts' means."""
    target = _vectors(encoder, [other])[0].clone()
    output = with_graph(encoder, encoder.model.base_model, [text])
    mean = output.last_hidden_state[0].double().mean(dim=0)
    similarity = F.cosine_similarity(mean, target, dim=0)
    slopes = torch.autograd.grad(similarity, output.attentions)
    parts = zip(output.attentions, slopes, strict=True)
    total = sum((weights * slope)[0].sum(dim=(0, 1)) for weights, slope in parts)
    return total.detach().abs().float().cpu().numpy()


def left_out(encoder: Encoder, text: Inputs, other: Inputs) -> dict[str, np.ndarray]:
    """Return the effects of leaving out each token of a text."""
    whole, target = _vectors(encoder, [text])[0], _vectors(encoder, [other])[0]
    groups = torch.arange(len(text["input_ids"])).split(AT_ONCE)
    without = torch.cat([_vectors(encoder, [text] * len(own), own) for own in groups])
    change = F.cosine_similarity(without, target[None]) - F.cosine_similarity(whole, target, dim=0)
    moved = 1 - F.cosine_similarity(without, whole[None])
    return {"vector": moved.cpu().numpy(), "similarity": change.abs().cpu().numpy()}


@torch.inference_mode()
def _vectors(
    encoder: Encoder, texts: list[Inputs], left_out: Tensor | None = None
) -> Float[Tensor, "text width"]:
    """Return the mean vectors of texts, each without one of its tokens if so asked."""
    batch = padded(encoder, texts)
    if left_out is not None:
        batch["attention_mask"][torch.arange(len(texts)), left_out] = 0
    states = encoder.model.base_model(**batch).last_hidden_state.double()
    mask = batch["attention_mask"][..., None]
    return (states * mask).sum(dim=1) / mask.sum(dim=1)
