"""The cause of a sink, and its transplant: one dimension of one vector before one layer.

The *sink* is the first token, or [SEP] if it gets more attention.  We look for the dimension in
which its vector differs most from those of other tokens, and for the layer that writes it.  Then
we change single vectors, before the next layer only, and measure who gets attention afterwards:

- *ablated*: the sink gets the mean of the other tokens in this dimension;
- *copied*: the token at position `TARGET` gets the sink's value, too;
- *moved*: both.

The controls change the next dimension, go as far in random directions, or change all other tokens.
Two more changes are of both dimensions, and of the whole vector, which says how much there is to
move.
Shares are those of the queries after `TARGET`, which see both tokens under a causal mask, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from beyond.papers.common.edge_cuts import SPECIAL_SHARE_THRESHOLD
from beyond.papers.common.head_removal import (
    Intervention,
    map_over_model_copies,
    run_interventions,
)
from beyond.papers.sinks import CODE
from beyond.papers.sinks.lenses import (
    ALL_LAYERS,
    evenly_spaced_records,
    list_articles,
    with_ratio,
)
from beyond.papers.sinks.sinks import layer_modules
from helpers.cache import cached
from helpers.data.records import Record
from helpers.errors import InputError, ModelError
from helpers.metrics.statistics import cluster_sums
from helpers.model.forward import Inputs, model_inputs, padded
from helpers.model.loading import Model
from helpers.model.sites import Weights
from helpers.store.store import Store

TARGET = 20  # the position, from 0, of the token that is to become a sink
RANDOM_DIRECTIONS = 3  # for each text
CAUSE_TEXTS = 8  # on which the dimension and its layer are looked for, at most
FIRST = "first"
SEP = "sep"
SINK = "sink"  # values of the column token: the sink, and the token at `TARGET`
TARGET_TOKEN = f"token {TARGET}"
INTACT = "intact"
ABLATED = "ablated"
COPIED = "copied"
MOVED = "moved"
SECOND = "second dimension"
BOTH = "both dimensions"
WHOLE = "whole vector"
RANDOM = "random direction"
OTHERS = "other tokens"
CHANGES = (
    ABLATED, f"{ABLATED}: {SECOND}", f"{ABLATED}: {BOTH}", f"{ABLATED}: {RANDOM}",
    f"{ABLATED}: {OTHERS}", COPIED, f"{COPIED}: {RANDOM}", MOVED, f"{MOVED}: {SECOND}",
    f"{MOVED}: {BOTH}", f"{MOVED}: {WHOLE}",
)  # fmt: skip

TokenStates = Float[Tensor, "token width"]
Change = Callable[[TokenStates], TokenStates]


class SinkText(NamedTuple):
    """A text, the positions of the sink in it, and the queries whose attention is measured."""

    inputs: Inputs
    is_sink: Bool[Tensor, " token"]
    queries: Bool[Tensor, " token"]


class SinkCause(NamedTuple):
    """The cause of the sink; layers and dimensions are counted from 0.

    Attributes
    ----------
    role : str
        The sink: "first" or "sep".
    layer : int
        The first layer in which the sink gets over a quarter of the attention, or if there is
        none, the layer in which it gets most.
    dimension, second_dimension : int
        The dimensions in which the sink differs most from the mean of other tokens, before that
        layer.
    before : int
        The layer before which vectors are changed; the layer below writes the dimension
        (`choose_layer_before`).
    """

    role: str
    layer: int
    dimension: int
    second_dimension: int
    before: int


def transplant_tables(
    encoder: Model, source: Store, count: int, *, seed: int
) -> dict[str, pd.DataFrame]:
    """Measure what makes the sink of a model, and whether another token can be made one.

    Parameters
    ----------
    encoder : Model
        An encoder or a decoder.
    source : Store
        Segments; its records are read, not its maps.
    count : int
        The number of segments at most, spaced evenly over the source.
    seed : int
        Seed of the random directions.

    Returns
    -------
    dict of str to DataFrame
        ``sink_writers``: `writer_table`.  ``sink_transplant``: `share_table`.  Intervals are
        bootstrap intervals over articles.

    Raises
    ------
    InputError
        If no text has a word at position `TARGET` and a token after it.
    ModelError
        If one module is all layers, as in ALBERT.
    """

    def compute() -> dict[str, pd.DataFrame]:
        if len(layer_modules(encoder.model.base_model)) != encoder.layers:
            raise ModelError(
                f"{encoder.name}: one module is all layers, so no vector can be changed before a "
                "single layer; choose a model whose layers have their own parameters"
            )
        records = evenly_spaced_records(source, count)
        role = find_sink(encoder, records)
        records = [record for record in records if is_usable(encoder, record, role)]
        if not records:
            raise InputError(
                f"no segment has a word at position {TARGET} and a token after it; use longer "
                "segments (--max-tokens)"
            )
        texts = [sink_text(encoder, record, role) for record in records]
        cause, writers = find_cause(encoder, role, texts[:CAUSE_TEXTS], records[:CAUSE_TEXTS])
        shares = changed_shares(encoder, cause, texts, seed)
        return {
            "sink_writers": writers,
            "sink_transplant": share_table(cause, shares, list_articles(records)),
        }

    inputs = {"store": source.key, "model": encoder.key, "segments": count, "seed": seed}
    return cached("sink-transplant", compute, inputs=inputs, code=CODE)


def sink_masks(encoder: Model, record: Record) -> dict[str, Bool[np.ndarray, " token"]]:
    """Mark the tokens of each role that can be a sink: the first token, and [SEP]."""
    tokens = np.array(record["tokens"])
    masks = {FIRST: np.arange(len(tokens)) == 0}
    sep = encoder.special_tokens[SEP]
    if sep is not None:
        masks[SEP] = tokens == sep
    return masks


def find_sink(encoder: Model, records: Sequence[Record]) -> str:
    """Find the role whose tokens get most attention each, mean over texts and layers."""

    def measure(model: nn.Module, record: Record) -> dict[str, float]:
        maps = intact_pass(encoder, model, model_inputs(encoder, record)).attentions
        received = torch.stack(list(maps))[:, 0].mean(dim=(0, 1, 2)).numpy(force=True)  # [key]
        masks = sink_masks(encoder, record)
        return {role: received[mask].mean() for role, mask in masks.items() if mask.any()}

    model = encoder.model.base_model
    shares = map_over_model_copies(model, records[:CAUSE_TEXTS], measure, "sinks")
    return pd.DataFrame(shares).mean().idxmax()


def is_usable(encoder: Model, record: Record, role: str) -> bool:
    """Check that a text has a word at position `TARGET`, and a query after it that is no sink."""
    masks = sink_masks(encoder, record)
    is_special = np.any(list(masks.values()), axis=0)
    return (
        len(is_special) > TARGET and not is_special[TARGET] and not masks[role][TARGET + 1 :].all()
    )


def sink_text(encoder: Model, record: Record, role: str) -> SinkText:
    """Prepare a text for `changed_shares`."""
    is_sink = torch.from_numpy(sink_masks(encoder, record)[role])
    queries = (torch.arange(len(is_sink)) > TARGET) & ~is_sink
    device = encoder.model.device
    return SinkText(model_inputs(encoder, record), is_sink.to(device), queries.to(device))


def intact_pass(encoder: Model, model: nn.Module, inputs: Inputs) -> Any:
    """Run a copy of the base model on one text, and return maps and states."""
    batch = padded(encoder, [inputs])
    with torch.inference_mode():
        return model(**batch, output_attentions=True, output_hidden_states=True)


@contextmanager
def change_states(model: nn.Module, layer: int, change: Change) -> Iterator[None]:
    """Change the vectors that go into a layer, for a batch of one text, inside the context.

    Parameters
    ----------
    model : Module
        The model without heads of tasks.
    layer : int
        The layer, from 0.
    change : callable
        It takes the vectors of the tokens, shape (token, width), and returns new ones.
    """

    def hook(_layer: nn.Module, args: tuple, options: dict) -> tuple[tuple, dict]:
        if args:
            return (change(args[0][0])[None], *args[1:]), options
        return args, {**options, "hidden_states": change(options["hidden_states"][0])[None]}

    handle = layer_modules(model)[layer].register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def ablate(
    states: TokenStates, is_sink: Bool[Tensor, " token"], dimensions: Sequence[int]
) -> TokenStates:
    """Give the sink the mean of the other tokens in some dimensions."""
    return with_values(states, is_sink, dimensions, states[~is_sink].mean(dim=0))


def ablate_others(
    states: TokenStates, is_sink: Bool[Tensor, " token"], dimensions: Sequence[int]
) -> TokenStates:
    """Give all tokens but the sink their mean in some dimensions."""
    return with_values(states, ~is_sink, dimensions, states[~is_sink].mean(dim=0))


def copy_value(
    states: TokenStates, is_sink: Bool[Tensor, " token"], dimensions: Sequence[int]
) -> TokenStates:
    """Give the token at `TARGET` the sink's values in some dimensions."""
    is_target = torch.arange(len(states), device=states.device) == TARGET
    return with_values(states, is_target, dimensions, states[is_sink].mean(dim=0))


def move_value(
    states: TokenStates, is_sink: Bool[Tensor, " token"], dimensions: Sequence[int]
) -> TokenStates:
    """Give the token at `TARGET` the sink's values, and the sink the mean of the other tokens."""
    changed = ablate(states, is_sink, dimensions)
    changed[TARGET] = copy_value(states, is_sink, dimensions)[TARGET]
    return changed


def with_values(
    states: TokenStates,
    is_changed: Bool[Tensor, " token"],
    dimensions: Sequence[int],
    values: Float[Tensor, " width"],
) -> TokenStates:
    """Set some dimensions of the marked tokens to values."""
    is_dimension = torch.zeros(states.shape[1], dtype=torch.bool, device=states.device)
    is_dimension[list(dimensions)] = True
    return torch.where(is_changed[:, None] & is_dimension, values, states)


def displace_sink(
    states: TokenStates,
    is_sink: Bool[Tensor, " token"],
    dimension: int,
    direction: Float[Tensor, " width"],
) -> TokenStates:
    """Move the sink as far as `ablate` does, but in another direction, of length 1."""
    distance = (states[is_sink, dimension] - states[~is_sink, dimension].mean()).abs()
    changed = states.clone()
    changed[is_sink] += distance[:, None] * direction
    return changed


def displace_target(
    states: TokenStates,
    is_sink: Bool[Tensor, " token"],
    dimension: int,
    direction: Float[Tensor, " width"],
) -> TokenStates:
    """Move the token at `TARGET` as far as `copy_value` does, but in another direction."""
    distance = (states[is_sink, dimension].mean() - states[TARGET, dimension]).abs()
    changed = states.clone()
    changed[TARGET] += distance * direction
    return changed


def list_changes(
    cause: SinkCause, text: SinkText, directions: Float[Tensor, "direction width"]
) -> list[tuple[str, Change]]:
    """List the changes of a text's vectors with their names in `CHANGES`; some names repeat."""
    largest = {"is_sink": text.is_sink, "dimensions": [cause.dimension]}
    second = {"is_sink": text.is_sink, "dimensions": [cause.second_dimension]}
    both_dimensions = {
        "is_sink": text.is_sink,
        "dimensions": [cause.dimension, cause.second_dimension],
    }
    whole_vector = {"is_sink": text.is_sink, "dimensions": range(directions.shape[1])}
    changes = [
        (ABLATED, partial(ablate, **largest)),
        (f"{ABLATED}: {SECOND}", partial(ablate, **second)),
        (f"{ABLATED}: {BOTH}", partial(ablate, **both_dimensions)),
        (f"{ABLATED}: {OTHERS}", partial(ablate_others, **largest)),
        (COPIED, partial(copy_value, **largest)),
        (MOVED, partial(move_value, **largest)),
        (f"{MOVED}: {SECOND}", partial(move_value, **second)),
        (f"{MOVED}: {BOTH}", partial(move_value, **both_dimensions)),
        (f"{MOVED}: {WHOLE}", partial(move_value, **whole_vector)),
    ]
    for direction in directions:
        displacement = {
            "is_sink": text.is_sink,
            "dimension": cause.dimension,
            "direction": direction,
        }
        changes.append((f"{ABLATED}: {RANDOM}", partial(displace_sink, **displacement)))
        changes.append((f"{COPIED}: {RANDOM}", partial(displace_target, **displacement)))
    return changes


def token_shares(maps: Sequence[Weights], text: SinkText) -> Float[np.ndarray, "token layer"]:
    """Compute the share of attention on the sink and on the token at `TARGET`, in each layer."""
    shares = []
    for weights in maps:
        by_key = weights[0][:, text.queries].float().mean(dim=(0, 1))  # [key]
        shares.append(torch.stack([by_key[text.is_sink].sum(), by_key[TARGET]]))
    return torch.stack(shares, dim=1).numpy(force=True)


def find_cause(
    encoder: Model, role: str, texts: Sequence[SinkText], records: Sequence[Record]
) -> tuple[SinkCause, pd.DataFrame]:
    """Find the dimension that makes a sink, and the layer that writes it.

    Parameters
    ----------
    encoder : Model
        The model.
    role : str
        The sink: "first" or "sep".
    texts : sequence of SinkText
        The texts.
    records : sequence of Record
        Their records, which name their articles.

    Returns
    -------
    cause : SinkCause
        The cause of the sink.
    writers : DataFrame
        `writer_table`.
    """
    model = encoder.model.base_model

    def measure_intact(model: nn.Module, text: SinkText) -> tuple[np.ndarray, ...]:
        output = intact_pass(encoder, model, text.inputs)
        states = torch.stack(output.hidden_states[:-1])[:, 0].float()  # [layer, token, width]
        other_states = states[:, ~text.is_sink]
        differences = states[:, text.is_sink].mean(dim=1) - other_states.mean(dim=1)
        spreads = other_states.std(dim=1)
        shares = token_shares(output.attentions, text)[0]
        return shares, differences.numpy(force=True), spreads.numpy(force=True)

    measured = map_over_model_copies(model, texts, measure_intact, "sinks")
    shares, differences, spreads = map(np.array, zip(*measured, strict=True))
    layer = choose_sink_layer(shares.mean(axis=0))
    by_size = np.argsort(-np.abs(differences[:, layer].mean(axis=0)))
    dimension, second_dimension = by_size[:2].tolist()

    def measure_ablated(model: nn.Module, text: SinkText) -> list[float]:
        run = partial(model, **padded(encoder, [text.inputs]), output_attentions=True)
        change = partial(ablate, is_sink=text.is_sink, dimensions=[dimension])
        interventions = []
        for before in range(layer + 1):
            context = partial(change_states, layer=before, change=change)
            interventions.append(Intervention(before, context))
        passes = run_interventions(model, run, interventions)
        next(passes)  # the intact one
        return [token_shares([maps_at(encoder, ablated, layer)], text)[0, 0] for ablated in passes]

    ablated = map_over_model_copies(model, texts, measure_ablated, "sinks, ablated")
    ablated_shares = np.array(ablated)  # [text, layer before which it is ablated]
    before = choose_layer_before(
        ablated_shares.mean(axis=0),
        shares[:, layer].mean(),
        differences[:, : layer + 1, dimension].mean(axis=0),
    )
    cause = SinkCause(role, layer, dimension, second_dimension, before)
    by_layer = {"difference": differences[..., dimension], "spread": spreads[..., dimension]}
    return cause, writer_table(cause, by_layer, ablated_shares, shares[:, layer], records)


def maps_at(encoder: Model, output: Any, layer: int) -> Weights:
    """Return the maps of a layer; those of layers that were not computed again are missing."""
    return output.attentions[layer - encoder.layers]


def choose_sink_layer(shares: Float[np.ndarray, " layer"]) -> int:
    """Choose the first layer in which a sink gets over a quarter, or else the one with most."""
    is_large = shares > SPECIAL_SHARE_THRESHOLD
    return int(np.argmax(is_large if is_large.any() else shares))


def choose_layer_before(
    ablated: Float[np.ndarray, " layer"],
    intact: float,
    differences: Float[np.ndarray, " layer"],
) -> int:
    """Choose the layer before which a dimension is changed: that after the one that writes it.

    Parameters
    ----------
    ablated : array
        The sink's share in its layer, if the dimension is ablated before each of the layers up to
        it.
    intact : float
        The same without ablation.
    differences : array
        The sink's value in the dimension minus that of other tokens, before each of these layers.

    Returns
    -------
    int
        The first layer, from 0, from which on ablation takes over half of the share.  If it does
        not do so before the last layer, the sink does not depend on the dimension alone.  Then it
        is the layer before which the difference has grown most.
    """
    keeps_half = np.flatnonzero(ablated > intact / 2)
    if len(keeps_half) == 0:
        return 0
    if keeps_half[-1] < len(ablated) - 1:
        return int(keeps_half[-1]) + 1
    growth = np.diff(np.abs(differences))
    return int(np.argmax(growth)) + 1 if len(growth) else 0


def writer_table(
    cause: SinkCause,
    by_layer: Mapping[str, Float[np.ndarray, "text layer"]],
    ablated: Float[np.ndarray, "text layer"],
    intact: Float[np.ndarray, " text"],
    records: Sequence[Record],
) -> pd.DataFrame:
    """Tabulate the dimension of a sink before each layer.

    Parameters
    ----------
    cause : SinkCause
        The cause of the sink.
    by_layer : mapping of str to array
        ``difference``, the sink's value minus the mean of other tokens, and ``spread``, the
        standard deviation of other tokens.
    ablated : array
        The sink's share in its layer, if its dimension is ablated before each layer up to it.
    intact : array
        The same without ablation.
    records : sequence of Record
        The records of the texts.

    Returns
    -------
    DataFrame
        One row per layer.  Columns: sink, dimension (from 0), sink_layer; layer, before which the
        vector is read and ablated; difference; spread; ``share``, the sink's share in sink_layer
        without its difference, with its interval over articles; ``intact``, its share with it.
        The share is empty above the layer of the sink, which a later ablation cannot change.
    """
    n_layers = by_layer["difference"].shape[1]
    table = pd.DataFrame({"layer": np.arange(1, n_layers + 1)})
    table.insert(0, "sink", cause.role)
    table.insert(1, "dimension", cause.dimension)
    table.insert(2, "sink_layer", cause.layer + 1)
    for name, values in by_layer.items():
        table[name] = values.mean(axis=0)
    articles = np.array(list_articles(records))
    sums = cluster_sums(ablated, articles, np.unique(articles))
    counts = cluster_sums(np.ones_like(ablated), articles, np.unique(articles))
    shares = with_ratio(table[: cause.layer + 1][["layer"]].copy(), "share", sums, counts)
    return table.assign(intact=intact.mean()).merge(shares, how="left", on="layer")


def changed_shares(
    encoder: Model, cause: SinkCause, texts: Sequence[SinkText], seed: int
) -> Float[np.ndarray, "text change token layer"]:
    """Measure the shares of attention on both tokens, intact and after each of `CHANGES`.

    Layers are those from ``cause.before`` on.  Shares after changes in random directions are
    means over the directions.
    """

    def measure(model: nn.Module, number: int) -> Float[np.ndarray, "change token layer"]:
        text = texts[number]
        directions = random_directions(encoder, [seed, number])
        changes = list_changes(cause, text, directions)
        run = partial(model, **padded(encoder, [text.inputs]), output_attentions=True)
        interventions = []
        for _, change in changes:
            context = partial(change_states, layer=cause.before, change=change)
            interventions.append(Intervention(cause.before, context))
        n_layers = encoder.layers - cause.before
        shares = []
        for output in run_interventions(model, run, interventions):
            shares.append(token_shares(output.attentions[-n_layers:], text))
        names = np.array([INTACT, *(name for name, _ in changes)])
        by_name = [np.array(shares)[names == name].mean(axis=0) for name in (INTACT, *CHANGES)]
        return np.stack(by_name)

    model = encoder.model.base_model
    numbers = range(len(texts))
    return np.stack(map_over_model_copies(model, numbers, measure, "sink transplant"))


def random_directions(encoder: Model, seed: Sequence[int]) -> Float[Tensor, "direction width"]:
    """Draw random directions, of length 1, in the space of a model's vectors."""
    width = encoder.model.config.hidden_size
    vectors = np.random.default_rng(seed).standard_normal((RANDOM_DIRECTIONS, width))
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return torch.from_numpy(directions).to(encoder.model.device, encoder.model.dtype)


def share_table(
    cause: SinkCause,
    shares: Float[np.ndarray, "text change token layer"],
    articles: Sequence[str],
) -> pd.DataFrame:
    """Tabulate the shares of attention after each change.

    Parameters
    ----------
    cause : SinkCause
        The cause of the sink.
    shares : array
        From `changed_shares`.
    articles : sequence of str
        The article of each text.

    Returns
    -------
    DataFrame
        The table sink_transplant.csv.  Columns: sink ("first" or "sep"); dimension (from 0);
        before, the layer before which vectors are changed; change ("intact" or one of `CHANGES`);
        token ("sink" or "token 20"); layer, or "all" for the mean of the layers from there on;
        share, of the attention on the token; ``gain``, what the token gains, as a multiple of the
        intact share of the sink.  Bounds of both end in _low and _high, degrees of freedom in _df.
    """
    shares = np.concatenate([shares, shares.mean(axis=-1, keepdims=True)], axis=-1)
    layers = [str(cause.before + 1 + offset) for offset in range(shares.shape[-1] - 1)]
    key = product((INTACT, *CHANGES), (SINK, TARGET_TOKEN), [*layers, ALL_LAYERS])
    table = pd.DataFrame(key, columns=["change", "token", "layer"])
    table.insert(0, "sink", cause.role)
    table.insert(1, "dimension", cause.dimension)
    table.insert(2, "before", cause.before + 1)
    owners = np.array(articles)
    clusters = np.unique(owners)
    sums = cluster_sums(shares, owners, clusters)  # [article, change, token, layer]
    counts = cluster_sums(np.ones_like(shares), owners, clusters)
    intact_sums = np.broadcast_to(sums[:, :1, :1], sums.shape)
    table = with_ratio(table, "share", sums, counts)
    return with_ratio(table, "gain", sums - sums[:, :1], intact_sums)
