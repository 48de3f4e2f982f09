"""Find what makes a token the sink: change single numbers of its vector, and measure attention.

The *sink* is the first token, or [SEP] if it gets more attention.  Its *layer* is the one in which
its share of attention rises most over the layer below.  Its *dimensions* are the two in which its
vector differs most from the mean of the other tokens, before this layer.  Vectors are changed at
one of two sites:

- *vectors*: what goes into the layer of the sink, which all later layers read;
- *keys*: what goes into the projection of keys, in this layer and in each later one.  Queries,
  values and the vectors themselves stay as they are.

In a layer that normalises its input first, a number of the vector has no meaning of its own: a
large one makes all others smaller.  The keys are then the only site, because they are projected
from what has been normalised.

The changes, of the largest dimension, of the second one, or of both:

- *ablated*: the sink gets the mean of the other tokens;
- *moved*: another token gets the sink's value, too.

More changes of the largest dimension say what it is about the value: `change_states`.  The other
token stands at each of the `POSITIONS`.  All numbers are shares of attention: means over the
layers from that of the sink on, over heads, and over the queries after the other token, which see
both tokens under a causal mask, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from beyond.papers.common.head_removal import (
    LAYER_PATH,
    Intervention,
    map_over_model_copies,
    run_interventions,
)
from beyond.papers.sinks import CODE
from beyond.papers.sinks.lenses import evenly_spaced_records, list_articles, with_means
from helpers.cache import cached
from helpers.data.records import Record
from helpers.errors import InputError, ModelError
from helpers.model.forward import model_inputs, padded
from helpers.model.loading import Model
from helpers.model.sites import sites
from helpers.store.store import Store

POSITIONS = (5, 20, 40, 60, 100)  # of the other token, from 0, as far as a text has them
FEWEST_QUERIES = 5  # after the other token
CAUSE_TEXTS = 8  # on which the sink and its dimensions are looked for, at most
KEY_NAMES = {"value": "key", "value_proj": "key_proj", "v": "k", "v_lin": "k_lin",
             "v_proj": "k_proj"}  # fmt: skip
FIRST = "first"
SEP = "sep"
SITES = VECTORS, KEYS = "vectors", "keys"
LARGEST, SECOND, BOTH, ALL = "largest", "second", "both", "all"
INTACT = "intact"
NONE = "none"  # the site and the dimensions of what is intact
ABLATED = "ablated"
COPIED = "copied"
MOVED = "moved"
NORM_KEPT = "moved, norm kept"
NORM_ALONE = "norm alone moved"
OPPOSITE = "moved with the opposite sign"
RANDOM = "moved in a random direction"
TOKENS = SINK, OTHER = "sink", "other token"
# By dimensions and change; all vectors of the two tokens are exchanged at last, which says how much
# there is to move.
CHANGES = (
    *product((LARGEST, SECOND, BOTH), (ABLATED, MOVED)),
    *product((LARGEST,), (COPIED, NORM_KEPT, OPPOSITE, NORM_ALONE, RANDOM)),
    (ALL, MOVED),
)

TokenStates = Float[Tensor, "token width"]
Change = Callable[[TokenStates], TokenStates]


class SinkCause(NamedTuple):
    """The sink of a model; its layer and its dimensions are counted from 0."""

    role: str  # "first" or "sep"
    layer: int
    dimensions: tuple[int, int]  # the largest first
    sites: tuple[str, ...]


class Target(NamedTuple):
    """The sink and the other token of a text, and the queries whose attention is measured."""

    is_sink: Bool[Tensor, " token"]
    position: int
    queries: Bool[Tensor, " token"]


def cause_table(encoder: Model, source: Store, count: int, *, seed: int) -> pd.DataFrame:
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
    DataFrame
        The table sink_causes.csv, see `share_table`.

    Raises
    ------
    InputError
        If no text has a word at one of the `POSITIONS` and tokens after it.
    ModelError
        If one module is all layers, as in ALBERT.
    """

    def compute() -> pd.DataFrame:
        check_layers(encoder)
        records = evenly_spaced_records(source, count)
        cause = find_cause(encoder, records[:CAUSE_TEXTS])
        records = [record for record in records if list_targets(encoder, record, cause.role)]
        if not records:
            raise InputError(
                f"no segment has a word at position {POSITIONS[0]} and {FEWEST_QUERIES} tokens "
                "after it; use longer segments (--max-tokens)"
            )
        shares = changed_shares(encoder, cause, records, seed)
        return share_table(cause, shares, list_articles(records))

    inputs = {"store": source.key, "model": encoder.key, "segments": count, "seed": seed}
    return cached("sink-causes", compute, inputs=inputs, code=CODE)


def layer_modules(model: nn.Module) -> list[nn.Module]:
    """List the modules that are layers; one module can be several layers."""
    return [module for path, module in model.named_modules() if LAYER_PATH.fullmatch(path)]


def check_layers(encoder: Model) -> None:
    """Raise ModelError if one module is all layers, so that no vector changes before one."""
    if len(layer_modules(encoder.model.base_model)) != encoder.layers:
        raise ModelError(
            f"{encoder.name}: one module is all layers, so no vector can be changed before one of "
            "them; choose a model whose layers have their own parameters"
        )


def key_projections(model: nn.Module) -> list[Any]:
    """List the projection of keys of each layer; none if it is one with that of values."""
    projections = []
    for site in sites(model):
        values = site.values  # noqa: PD011
        for name, module in site.inner.named_children():
            if module is values and name in KEY_NAMES:
                projections.append(getattr(site.inner, KEY_NAMES[name]))
    return projections


def sink_masks(encoder: Model, record: Record) -> dict[str, Bool[np.ndarray, " token"]]:
    """Mark the tokens of each role that can be a sink: the first token, and [SEP]."""
    tokens = np.array(record["tokens"])
    masks = {FIRST: np.arange(len(tokens)) == 0}
    sep = encoder.special_tokens[SEP]
    if sep is not None:
        masks[SEP] = tokens == sep
    return masks


def list_targets(encoder: Model, record: Record, role: str) -> list[Target]:
    """List the words of a text that can be the other token: those at `POSITIONS`."""
    masks = sink_masks(encoder, record)
    is_special = np.any(list(masks.values()), axis=0)
    device = encoder.model.device
    is_sink = torch.from_numpy(masks[role]).to(device)
    targets = []
    for position in POSITIONS:
        queries = (torch.arange(len(is_special), device=device) > position) & ~is_sink
        if queries.sum() >= FEWEST_QUERIES and not is_special[position]:
            targets.append(Target(is_sink, position, queries))
    return targets


def find_cause(encoder: Model, records: Sequence[Record]) -> SinkCause:
    """Find the sink of a model, its layer, its dimensions and the sites, on some texts."""

    def measure(model: nn.Module, record: Record) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        batch = padded(encoder, [model_inputs(encoder, record)])
        with torch.inference_mode():
            output = model(**batch, output_attentions=True, output_hidden_states=True)
        received = torch.stack(list(output.attentions))[:, 0, :, 1:].float().mean(dim=(1, 2))
        states = torch.stack(output.hidden_states[:-1])[:, 0].float()  # [layer, token, width]
        by_role = {}
        for role, mask in sink_masks(encoder, record).items():
            is_sink = torch.from_numpy(mask).to(states.device)
            if is_sink.any():
                share = received[:, is_sink].mean(dim=1)
                difference = states[:, is_sink].mean(dim=1) - states[:, ~is_sink].mean(dim=1)
                by_role[role] = (share.numpy(force=True), difference.numpy(force=True))
        return by_role

    model = encoder.model.base_model
    measured = map_over_model_copies(model, records, measure, "sinks")
    means = {}
    for role in (FIRST, SEP):
        role_results = [by_role[role] for by_role in measured if role in by_role]
        if role_results:
            shares, differences = zip(*role_results, strict=True)
            means[role] = (np.mean(shares, axis=0), np.mean(differences, axis=0))
    role = max(means, key=lambda name: means[name][0].mean())
    shares, differences = means[role]
    layer = int(np.diff(shares, prepend=0).argmax())
    largest, second = np.argsort(-np.abs(differences[layer]))[:2].tolist()
    return SinkCause(role, layer, (largest, second), find_sites(encoder, records[0], layer))


def find_sites(encoder: Model, record: Record, layer: int) -> tuple[str, ...]:
    """Find the `SITES` of a model: no vectors if a layer normalises them before its keys."""
    model = encoder.model.base_model
    projections = key_projections(model)
    if len(projections) != encoder.layers:
        return (VECTORS,)
    batch = padded(encoder, [model_inputs(encoder, record)])
    read = []
    hook = projections[layer].register_forward_pre_hook(lambda _module, args: read.append(args[0]))
    with hook, torch.inference_mode():
        states = model(**batch, output_hidden_states=True).hidden_states[layer]
    return SITES if torch.equal(read[0], states) else (KEYS,)


@contextmanager
def change_vectors(model: nn.Module, layer: int, change: Change) -> Iterator[None]:
    """Change the vectors that go into a layer, for a batch of one text, inside the context.

    Layers are counted from 0; ``change`` takes and returns ``[token, width]``.
    """

    def hook(_module: nn.Module, args: tuple, options: dict) -> tuple[tuple, dict]:
        if args:
            return (change(args[0][0])[None], *args[1:]), options
        return args, {**options, "hidden_states": change(options["hidden_states"][0])[None]}

    with layer_modules(model)[layer].register_forward_pre_hook(hook, with_kwargs=True):
        yield


@contextmanager
def change_keys(model: nn.Module, layer: int, change: Change) -> Iterator[None]:
    """Change what goes into the projections of keys of a layer and of all later ones."""

    def hook(_module: nn.Module, args: tuple) -> tuple:
        return (change(args[0][0])[None],)

    with ExitStack() as hooks:
        for projection in key_projections(model)[layer:]:
            hooks.enter_context(projection.register_forward_pre_hook(hook))
        yield


CONTEXTS = {VECTORS: change_vectors, KEYS: change_keys}


def change_states(
    states: TokenStates,
    target: Target,
    dimensions: Sequence[int],
    change: str,
    direction: Float[Tensor, " width"],
) -> TokenStates:
    """Change the sink, the other token, or both, in some dimensions.

    Parameters
    ----------
    states : Tensor, shape (token, width)
        The vectors of a text.
    target : Target
        The two tokens.
    dimensions : sequence of int
        The dimensions that change.
    change : str
        `ABLATED`: the sink gets the mean of the other tokens.  `COPIED`: the other token gets the
        sink's values.  `MOVED`: both.  `OPPOSITE`: both, but the other token gets as much less
        than the mean as the sink has more.  `NORM_KEPT`: both, and the other token is then scaled
        to the length that it had.  `NORM_ALONE`: the sink loses its value, and the other token is
        scaled to the length that the sink had.  `RANDOM`: both tokens move as far as by `MOVED` in
        the first of the dimensions, but in a random direction.
    direction : Tensor, shape (width,)
        The random direction, of length 1.
    """
    is_dimension = torch.zeros(states.shape[1], dtype=torch.bool, device=states.device)
    is_dimension[list(dimensions)] = True
    mean_of_rest = states[~target.is_sink].mean(dim=0)
    values = states[target.is_sink].mean(dim=0)
    if change == OPPOSITE:
        values = 2 * mean_of_rest - values
    changed = states.clone()
    other = changed[target.position]
    norm = other.norm()
    if change != COPIED:
        changed[target.is_sink] = torch.where(is_dimension, mean_of_rest, states[target.is_sink])
    if change == NORM_ALONE:
        other *= states[target.is_sink].norm(dim=-1).mean() / norm
    elif change != ABLATED:
        other[:] = torch.where(is_dimension, values, other)
    if change == NORM_KEPT:
        other *= norm / other.norm()
    if change == RANDOM:
        moved = (changed - states)[:, dimensions[0], None]
        return states + moved * direction
    return changed


def changed_shares(
    encoder: Model, cause: SinkCause, records: Sequence[Record], seed: int
) -> pd.DataFrame:
    """Measure the shares of attention of both tokens, intact and after each change.

    Returns
    -------
    DataFrame
        A row for each text: means over the positions of the other token.  The columns are those of
        site, dimensions, change and token.
    """
    n_layers = encoder.layers - cause.layer
    largest, second = cause.dimensions
    dimensions = {LARGEST: [largest], SECOND: [second], BOTH: [largest, second]}
    dimensions[ALL] = list(range(encoder.model.config.hidden_size))

    def measure(model: nn.Module, number: int) -> pd.Series:
        record = records[number]
        batch = padded(encoder, [model_inputs(encoder, record)])
        run = partial(model, **batch, output_attentions=True)
        measured = []
        for target in list_targets(encoder, record, cause.role):
            direction = random_direction(encoder, [seed, number, target.position])
            names = [(NONE, NONE, INTACT)]
            interventions = []
            for site, (name, change) in product(cause.sites, CHANGES):
                names.append((site, name, change))
                edit = partial(
                    change_states, target=target, dimensions=dimensions[name], change=change,
                    direction=direction,
                )  # fmt: skip
                context = partial(CONTEXTS[site], layer=cause.layer, change=edit)
                interventions.append(Intervention(cause.layer, context))
            passes = run_interventions(model, run, interventions)
            for name, output in zip(names, passes, strict=True):
                maps = torch.stack(list(output.attentions[-n_layers:]))[:, 0]
                received = maps[:, :, target.queries].float().mean(dim=(0, 1, 2))  # [key]
                shares = (received[target.is_sink].sum(), received[target.position])
                for token, share in zip(TOKENS, shares, strict=True):
                    measured.append((*name, token, share.item()))
        columns = ["site", "dimensions", "change", "token"]
        table = pd.DataFrame(measured, columns=[*columns, "share"])
        return table.groupby(columns, sort=False)["share"].mean()

    model = encoder.model.base_model
    by_text = map_over_model_copies(model, range(len(records)), measure, "sink causes")
    return pd.DataFrame(by_text)


def random_direction(encoder: Model, seed: Sequence[int]) -> Float[Tensor, " width"]:
    """Draw a random direction, of length 1, in the space of a model's vectors."""
    vector = np.random.default_rng(seed).standard_normal(encoder.model.config.hidden_size)
    direction = torch.from_numpy(vector / np.linalg.norm(vector))
    return direction.to(encoder.model.device, encoder.model.dtype)


def share_table(cause: SinkCause, shares: pd.DataFrame, articles: Sequence[str]) -> pd.DataFrame:
    """Tabulate the shares of attention after each change, with intervals over articles.

    Parameters
    ----------
    cause : SinkCause
        The sink.
    shares : DataFrame
        From `changed_shares`.
    articles : sequence of str
        The article of each text.

    Returns
    -------
    DataFrame
        The table sink_causes.csv.  Columns: sink ("first" or "sep"); layer (from 1); ``numbers``,
        those of the two dimensions, from 0; site, dimensions, change; token, "sink" or "other
        token"; ``share``, of the attention on the token; ``minus_half``, the share minus half of
        what the sink gets intact.  Bounds of both end in _low and _high, degrees of freedom in _df.
    """
    table = shares.columns.to_frame(index=False)
    table.insert(0, "sink", cause.role)
    table.insert(1, "layer", cause.layer + 1)
    table.insert(2, "numbers", " ".join(map(str, cause.dimensions)))
    values = shares.to_numpy()
    minus_half = values - values[:, :1] / 2  # the first column is that of the intact sink
    table = with_means(table, "share", values, articles)
    return with_means(table, "minus_half", minus_half, articles)
