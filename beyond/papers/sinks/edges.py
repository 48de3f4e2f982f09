"""Measure what a model loses if the attention to a special token is changed.

The edges to the token are ablated in four ways (`beyond.papers.common.edge_cuts.ablate_edges`), in
the layers in which special tokens get over a quarter of the attention, and in all layers.  The
outcome compares the ablated with the intact model on the same texts:

- *loss*, of a causal language model: the increase of the mean loss of the next token, in nats;
- *sentence angle*, of other models: the angle between the intact and the ablated mean vector of the
  last layer, in degrees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Num
from torch import Tensor, nn
from torch.nn import functional

from beyond.papers.common.edge_cuts import (
    DROPPED,
    FIRST_ROLES,
    REDISTRIBUTED,
    Ablation,
    Cut,
    cut_shares,
    key_token_ids,
    list_ablations,
    list_roles,
    plan_ablations,
)
from beyond.papers.common.head_edges import NEXT_TOKEN, turned_angles
from beyond.papers.common.head_removal import map_over_model_copies, run_interventions
from beyond.papers.sinks import CODE
from beyond.papers.sinks.lenses import (
    evenly_spaced_records,
    list_articles,
    with_means,
    with_ratio,
)
from helpers.cache import cached
from helpers.data.records import Record
from helpers.metrics import TRAINED, by_model
from helpers.model.forward import model_inputs, padded
from helpers.model.loading import Model
from helpers.store.store import Store

ANGLE = "sentence angle"
LOSS = "loss"
OUTCOME = "outcome"  # one of these two
SHARES = ("share", "unmatched")  # see `cut_shares`
CONTROL_STRIDE = 2  # a control is measured on every second segment
POSITIONS = 4  # first tokens of a text that have a row of their own in `next_sink_table`
MOST = "most attended"

Values: TypeAlias = pd.DataFrame  # a row for each example, a column for each ablation and measure


def edge_tables(
    encoders: Mapping[str, Model], source: Store, group: tuple[int, ...], *, count: int
) -> dict[str, pd.DataFrame]:
    """Measure the ablation of the attention to special tokens on segments.

    Parameters
    ----------
    encoders : mapping of str to Model
        The main model under the name "trained", and its control "random", which is measured on
        every second segment.
    source : Store
        Segments; its records are read, not its maps.
    group : tuple of int
        Layers, from 0, that are ablated together (`special_token_layers`); all layers are, too.
    count : int
        Number of segments, spaced evenly over the source.

    Returns
    -------
    dict of str to DataFrame
        ``edges``: `edge_table` of each model.  ``next_sinks``: `next_sink_table` of each model.

    Raises
    ------
    ModelError
        If the attention is not computed by a softmax that can be replaced.
    """
    main = encoders[TRAINED]
    ablations = plan_ablations(main.layers, group, list_roles(main))

    def compute() -> dict[str, pd.DataFrame]:
        records = evenly_spaced_records(source, count)
        edges = {}
        next_sinks = {}
        for name, encoder in encoders.items():
            sample = records if name == TRAINED else records[::CONTROL_STRIDE]
            edges[name] = edge_table(encoder, measure_ablations(encoder, ablations, sample))
            next_sinks[name] = next_sink_table(encoder, sample)
        return {"edges": by_model(edges), "next_sinks": by_model(next_sinks)}

    inputs = {
        "models": [encoder.key for encoder in encoders.values()],
        "store": source.key,
        "segments": count,
        "ablations": ablations,
    }
    return cached("edges", compute, inputs=inputs, code=CODE)


def measure_ablations(
    encoder: Model, ablations: Sequence[Ablation], records: Sequence[Record]
) -> Values:
    """Measure what each ablation changes in each segment: the `OUTCOME` and the `SHARES`."""
    token_ids = key_token_ids(encoder)
    interventions = list_ablations(encoder, ablations)
    is_language_model = encoder.objective == NEXT_TOKEN

    def measure(model: nn.Module, record: Record) -> Float[Tensor, "ablation measure"]:
        batch = padded(encoder, [model_inputs(encoder, record)])
        tokens = batch["input_ids"]
        run = partial(model, **batch, output_attentions=True, output_hidden_states=True)
        passes = run_interventions(model, run, interventions)
        intact = next(passes)
        read = partial(next_token_loss, tokens=tokens) if is_language_model else text_vector
        before = read(intact)
        rows = []
        for (cut, _), ablated in zip(ablations, passes, strict=True):
            after = read(ablated)
            outcome = after - before if is_language_model else turned_angles(before, after)
            shares = cut_shares(intact.attentions, cut, tokens, token_ids)
            rows.append(torch.cat([outcome[None], shares.to(outcome)]))
        return torch.stack(rows).cpu()

    model = encoder.model if is_language_model else encoder.model.base_model
    values = torch.stack(map_over_model_copies(model, records, measure, "edges cut"))
    return label_values(ablations, [OUTCOME, *SHARES], values.numpy(), records)


def next_token_loss(output: Any, tokens: Tensor) -> Float[Tensor, ""]:
    """Compute the mean loss of the tokens of a text after the first, in nats."""
    logits = output.logits[0, :-1].double()  # of the token after each position
    return functional.cross_entropy(logits, tokens[0, 1:])


def text_vector(output: Any) -> Float[Tensor, " width"]:
    """Average the vectors of the last layer of a text."""
    return output.hidden_states[-1][0].double().mean(dim=0)


def label_values(
    ablations: Sequence[Ablation],
    measures: Sequence[str],
    values: Num[np.ndarray, "example ablation measure"],
    records: Iterable[Record],
) -> Values:
    """Label the values of some examples by their articles, ablations and measures."""
    columns = []
    for (cut, mode), measure in product(ablations, measures):
        columns.append((cut.name, cut.keys, mode, measure))
    columns = pd.MultiIndex.from_tuples(columns, names=["layers", "keys", "change", "measure"])
    return pd.DataFrame(values.reshape(len(values), -1), list_articles(records), columns)


def edge_table(encoder: Model, values: Values) -> pd.DataFrame:
    """Tabulate the means of `measure_ablations`, with intervals over articles.

    Returns
    -------
    DataFrame
        The table edges.csv, one row per ablation.  Columns: layers, keys, change; ``share``, the
        share of attention on the edges, and ``unmatched`` (`cut_shares`); ``measure``, `LOSS` or
        `ANGLE`, and its ``value``; ``of_dropped``, the value over that of the same edges dropped,
        empty if dropping them costs nothing.  Bounds of both end in _low and _high, degrees of
        freedom in _df.
    """
    sums = values.groupby(level=0).sum()
    outcomes = sums.xs(OUTCOME, axis=1, level="measure")
    table = outcomes.columns.to_frame(index=False)
    for name in SHARES:
        table[name] = values.xs(name, axis=1, level="measure").mean().to_numpy()
    table["measure"] = LOSS if encoder.objective == NEXT_TOKEN else ANGLE
    counts = values.xs(OUTCOME, axis=1, level="measure").groupby(level=0).count()
    table = with_ratio(table, "value", outcomes, counts)
    dropped = outcomes[[(layers, keys, DROPPED) for layers, keys, _ in outcomes.columns]]
    is_cost = dropped.sum().to_numpy() > 0
    return with_ratio(table, "of_dropped", outcomes, dropped * is_cost)


def next_sink_table(encoder: Model, records: Sequence[Record]) -> pd.DataFrame:
    """Find the token that gets most attention if none goes to the first token in any layer.

    The weights on the first token are `REDISTRIBUTED` in all layers.

    Returns
    -------
    DataFrame
        The table next_sinks.csv.  A row for each of the first `POSITIONS` positions (from 0), for
        all [SEP] tokens, for all other tokens, and for the most attended token of each text
        (`MOST`).  Columns: tokens; ``common``, the most common token of the first positions;
        ``intact`` and ``redistributed``, the attention that the tokens get, a mean over layers,
        heads and queries after these positions; ``largest``, the share of texts in which one of
        the tokens gets most after the redistribution.  Bounds end in _low and _high.
    """
    (role,) = [role for role in list_roles(encoder) if role in FIRST_ROLES]
    cut = Cut(tuple(range(encoder.layers)), role)
    interventions = list_ablations(encoder, [(cut, REDISTRIBUTED)])
    records = [record for record in records if len(record["tokens"]) > POSITIONS]
    positions = np.arange(POSITIONS)

    def measure(model: nn.Module, record: Record) -> Float[np.ndarray, "number row"]:
        batch = padded(encoder, [model_inputs(encoder, record)])
        run = partial(model, **batch, output_attentions=True)
        numbers = []
        for output in run_interventions(model, run, interventions):
            weights = torch.stack(list(output.attentions))[:, 0, :, POSITIONS:]
            numbers.append(weights.float().mean(dim=(0, 1, 2)).numpy(force=True))  # [key]
        numbers.append(np.arange(len(numbers[1])) == numbers[1].argmax())
        is_sep = np.array(record["tokens"]) == encoder.special_tokens["sep"]
        is_sep[:POSITIONS] = False
        is_other = ~is_sep
        is_other[:POSITIONS] = False
        by_row = []
        for number in numbers:
            sums = (number[is_sep].sum(), number[is_other].sum(), number.max())
            by_row.append([*number[:POSITIONS], *sums])
        return np.array(by_row, float)

    model = encoder.model.base_model
    numbers = np.array(map_over_model_copies(model, records, measure, "next sinks"))
    table = pd.DataFrame({"tokens": [*positions.astype(str), "sep", "other", MOST]})
    tokens = [Counter(record["tokens"][position] for record in records) for position in positions]
    table["common"] = [*(counter.most_common(1)[0][0] for counter in tokens), "", "", ""]
    for number, name in enumerate(("intact", "redistributed", "largest")):
        table = with_means(table, name, numbers[:, number], list_articles(records))
    return table
