"""Two causes of a sink: the score of the first token's key, and one dimension of its vector.

The *lead* of the first token is its score minus the mean score of the other tokens that the query
can see, in nats.  A score is what the softmax sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import nn

from beyond.papers.common.edge_cuts import FIRST_ROLES
from beyond.papers.common.head_removal import LAYER_PATH
from beyond.papers.sinks import CODE
from beyond.papers.sinks.lenses import (
    ALL_LAYERS,
    evenly_spaced_records,
    lens_sums,
    special_table,
)
from helpers.cache import cached
from helpers.data.records import Record
from helpers.model.forward import Inputs, forward, model_inputs
from helpers.model.loading import Model
from helpers.model.sites import PatchSoftmax, Scores, Weights
from helpers.store.store import Store

TokenStates = Float[np.ndarray, "_ width"]  # of a text; texts have different numbers of tokens
ProjectedTokens = Float[np.ndarray, "layer token head width"]


class LargestComponents(NamedTuple):
    """The two largest components of the first token's vector before a layer.

    Attributes
    ----------
    dimensions : tuple of int
        The dimension of the largest component and that of the second largest, means over texts.
    means : tuple of float
        The mean of each of the two dimensions over all tokens.
    over_median : float
        The largest component over the median component of all tokens (absolute values).
    others_over_median : float
        The same for the largest component of each other token, a mean over tokens and texts.
    """

    dimensions: tuple[int, int]
    means: tuple[float, float]
    over_median: float
    others_over_median: float


def sink_tables(encoder: Model, source: Store, count: int) -> dict[str, pd.DataFrame]:
    """Measure what makes the first token a sink, on segments of a source.

    Parameters
    ----------
    encoder : Model
        The model.
    source : Store
        Segments; its records are read, not its maps.
    count : int
        The number of segments at most, spaced evenly over the source.

    Returns
    -------
    dict of str to DataFrame
        ``sink_causes``: `cause_table`, unless one module is all layers, as in ALBERT.
        ``sink_sides``: `side_table`, if queries and keys are projected as in BERT's family.

    Raises
    ------
    ModelError
        If the value vectors of the model cannot be located.
    """

    def compute() -> dict[str, pd.DataFrame]:
        records = evenly_spaced_records(source, count)
        tables = {}
        if len(layer_modules(encoder.model.base_model)) == encoder.layers:
            tables["sink_causes"] = cause_table(encoder, records)
        if len(query_key_modules(encoder)) == encoder.layers:
            tables["sink_sides"] = side_table(encoder, records)
        return tables

    inputs = {"store": source.key, "model": encoder.key, "segments": count}
    return cached("sinks", compute, inputs=inputs, code=CODE)


def first_token_leads(encoder: Model, inputs: Inputs) -> Float[np.ndarray, "layer head query"]:
    """Compute the lead of the first token for each query but the first token itself."""
    leads = []

    def keep_lead(_layer: int, scores: Scores, softmax: Callable) -> Weights:
        n = scores.shape[-2]  # a learned sink comes after the keys
        other_scores = scores[0, :, 1:, 1:n]  # [head, query, key]
        is_visible = other_scores > torch.finfo(scores.dtype).min / 2
        sums = torch.where(is_visible, other_scores, 0).sum(dim=-1)
        lead = scores[0, :, 1:, 0] - sums / is_visible.sum(dim=-1)
        leads.append(lead.float().numpy(force=True))
        return softmax(scores)

    with PatchSoftmax(encoder.model, keep_lead):
        forward(encoder, [inputs])
    return np.stack(leads)


def split_leads(leads: Float[np.ndarray, "text layer head query"]) -> pd.DataFrame:
    """Split the leads of each layer into parts, in nats.

    Parameters
    ----------
    leads : array
        From `first_token_leads`; all texts have the same queries.

    Returns
    -------
    DataFrame
        One row per layer.  Columns: layer; constant, the mean over texts, heads and queries;
        position, the standard deviation over queries of the mean over texts; content, the standard
        deviation over texts.  Variances are means over the heads.
    """
    constant = leads.mean(axis=(0, 3)).mean(axis=1)
    position_variance = leads.mean(axis=0).var(axis=2).mean(axis=1)
    content_variance = leads.var(axis=0).mean(axis=(1, 2))
    return pd.DataFrame(
        {
            "layer": np.arange(1, len(constant) + 1),
            "constant": constant,
            "position": np.sqrt(position_variance),
            "content": np.sqrt(content_variance),
        }
    )


def cause_table(encoder: Model, records: Sequence[Record]) -> pd.DataFrame:
    """Measure the leads of the first token, and the attention to it without its largest dimension.

    Parameters
    ----------
    encoder : Model
        The model.
    records : sequence of Record
        The texts.

    Returns
    -------
    DataFrame
        The table sink_causes.csv, one row per layer.  Columns: those of `split_leads`;
        ``dimension`` (from 0), ``over_median`` and ``others_over_median`` (`LargestComponents`);
        ``cls``, the share of attention on the first token, and ``cls_value``, the size of its value
        vectors over that of words (`special_table`); both again with ``_without_largest`` and
        ``_without_second``, if one dimension is set to its mean before every layer.  The columns
        are called ``first`` in place of ``cls`` for a model without [CLS].
    """
    inputs = [model_inputs(encoder, record) for record in records]
    n_queries = min(len(text["input_ids"]) for text in inputs) - 1  # without the first token
    leads = [first_token_leads(encoder, text)[..., :n_queries] for text in inputs]
    table = split_leads(np.stack(leads))
    components = layer_components(encoder, inputs)
    table["dimension"] = [layer.dimensions[0] for layer in components]
    table["over_median"] = [layer.over_median for layer in components]
    table["others_over_median"] = [layer.others_over_median for layer in components]
    for rank, suffix in ((None, ""), (0, "_without_largest"), (1, "_without_second")):
        with set_dimensions_to_means(encoder, components, rank):
            shares = special_table(lens_sums(encoder, records))
        rows = shares[shares["token"].isin(FIRST_ROLES) & (shares["layer"] != ALL_LAYERS)]
        role = rows["token"].iloc[0]
        table[f"{role}{suffix}"] = rows["attention"].to_numpy()
        table[f"{role}_value{suffix}"] = rows["value_ratio"].to_numpy()
    return table


def layer_modules(model: nn.Module) -> list[nn.Module]:
    """List the modules that are layers; one module can be several layers."""
    return [module for path, module in model.named_modules() if LAYER_PATH.fullmatch(path)]


def layer_components(encoder: Model, inputs: Sequence[Inputs]) -> list[LargestComponents]:
    """Find the `largest_components` before each layer, over some texts."""
    states_by_text = []
    for text in inputs:
        _, states = forward(encoder, [text])
        states_by_text.append([layer[0].float().numpy(force=True) for layer in states[:-1]])
    return [largest_components(states) for states in zip(*states_by_text, strict=True)]


def largest_components(states: Sequence[TokenStates]) -> LargestComponents:
    """Find the largest components of the first token, in the states of some texts."""
    all_tokens = np.concatenate(states)
    first_sizes = np.abs([text[0] for text in states]).mean(axis=0)  # of each dimension
    largest_of_others = [np.abs(text[1:]).max(axis=1).mean() for text in states]
    median = np.median(np.abs(all_tokens))
    largest, second = np.argsort(-first_sizes)[:2].tolist()
    return LargestComponents(
        dimensions=(largest, second),
        means=(float(all_tokens[:, largest].mean()), float(all_tokens[:, second].mean())),
        over_median=float(first_sizes.max() / median),
        others_over_median=float(np.mean(largest_of_others) / median),
    )


@contextmanager
def set_dimensions_to_means(
    encoder: Model, components: Sequence[LargestComponents], rank: int | None
) -> Iterator[None]:
    """Set one dimension of every vector to its mean, before each layer, inside the context.

    Parameters
    ----------
    encoder : Model
        The model.
    components : sequence of LargestComponents
        Those of each layer.
    rank : int or None
        0 for the largest dimension of the first token, 1 for the second largest; None changes
        nothing.
    """

    def set_to_mean(_module: nn.Module, args: tuple, *, dimension: int, mean: float) -> tuple:
        changed = args[0].clone()
        changed[..., dimension] = mean
        return (changed, *args[1:])

    with ExitStack() as hooks:
        if rank is not None:
            modules = layer_modules(encoder.model.base_model)
            for module, layer in zip(modules, components, strict=True):
                dimension = layer.dimensions[rank]
                hook = partial(set_to_mean, dimension=dimension, mean=layer.means[rank])
                hooks.callback(module.register_forward_pre_hook(hook).remove)
        yield


def query_key_modules(encoder: Model) -> list[Any]:
    """List the attention modules with projections ``query`` and ``key``, as in BERT's family."""
    modules = []
    for path, module in encoder.model.named_modules():
        if path.endswith(".self") and hasattr(module, "query") and hasattr(module, "key"):
            modules.append(module)
    return modules


def project_tokens(encoder: Model, inputs: Inputs) -> tuple[ProjectedTokens, ProjectedTokens]:
    """Compute the query vectors and the key vectors of a text in each layer."""
    vectors = {}

    def keep(projection: nn.Module, _args: tuple, output: torch.Tensor) -> None:
        vectors[projection] = output[0].unflatten(-1, (encoder.heads, -1)).float().cpu()

    modules = query_key_modules(encoder)
    with ExitStack() as hooks:
        for module in modules:
            for projection in (module.query, module.key):
                hooks.callback(projection.register_forward_hook(keep).remove)
        forward(encoder, [inputs])
    queries = torch.stack([vectors[module.query] for module in modules])
    keys = torch.stack([vectors[module.key] for module in modules])
    return queries.numpy(), keys.numpy()


def side_table(encoder: Model, records: Sequence[Record]) -> pd.DataFrame:
    """Divide the lead of the first token between the query and the key (see `split_sides`).

    Parameters
    ----------
    encoder : Model
        The model, with the modules of `query_key_modules` in every layer.
    records : sequence of Record
        The texts.

    Returns
    -------
    DataFrame
        The table sink_sides.csv, see `split_sides`.
    """
    inputs = [model_inputs(encoder, record) for record in records]
    n_tokens = min(len(text["input_ids"]) for text in inputs)
    query_vectors = []
    lead_keys = []
    for text in inputs:
        queries, keys = project_tokens(encoder, text)
        query_vectors.append(queries[:, 1:n_tokens])
        lead_keys.append(keys[:, 0] - keys[:, 1:].mean(axis=1))
    modules = query_key_modules(encoder)
    biases = torch.stack([module.query.bias.detach().float().cpu() for module in modules])
    biases = biases.unflatten(-1, (encoder.heads, -1)).numpy()
    return split_sides(np.stack(query_vectors), np.stack(lead_keys), biases)


def split_sides(
    queries: Float[np.ndarray, "text layer query head width"],
    lead_keys: Float[np.ndarray, "text layer head width"],
    biases: Float[np.ndarray, "layer head width"],
) -> pd.DataFrame:
    """Multiply the parts of the query vectors with the mean lead key, and the reverse, in nats.

    A lead is the product of a query vector and the *lead key*, the key vector of the first token
    minus the mean key vector of the others, divided by the root of the width of the head.

    Parameters
    ----------
    queries : array
        The query vectors of each text, without that of the first token.
    lead_keys : array
        The lead key of each text.
    biases : array
        The bias of the query projection.

    Returns
    -------
    DataFrame
        One row per layer.  With the mean lead key: ``query bias`` and ``query mean`` (the rest of
        the mean over positions and texts), means over heads; ``query position`` and ``query
        content`` (what positions add to the mean, and the rest), root mean squares.  With the mean
        query vector: ``key content``, the root mean square of what texts add to the mean lead key.
    """
    lead_keys = lead_keys / np.sqrt(queries.shape[-1])
    mean_key = lead_keys.mean(axis=0)  # [layer, head, width]
    position_means = queries.mean(axis=0)  # [layer, query, head, width]
    mean_query = position_means.mean(axis=1)  # [layer, head, width]
    position_parts = position_means - mean_query[:, None]
    position_products = np.einsum("lqhw,lhw->lqh", position_parts, mean_key)
    content_products = np.einsum("tlqhw,lhw->tlqh", queries - position_means, mean_key)
    key_products = np.einsum("lhw,tlhw->tlh", mean_query, lead_keys - mean_key)
    return pd.DataFrame(
        {
            "layer": np.arange(1, len(biases) + 1),
            "query bias": (biases * mean_key).sum(axis=-1).mean(axis=1),
            "query mean": ((mean_query - biases) * mean_key).sum(axis=-1).mean(axis=1),
            "query position": np.sqrt((position_products**2).mean(axis=(1, 2))),
            "query content": np.sqrt((content_products**2).mean(axis=(0, 2, 3))),
            "key content": np.sqrt((key_products**2).mean(axis=(0, 2))),
        }
    )
