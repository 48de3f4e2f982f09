"""Is attention to special tokens a no-op?  Its edges are ablated and the changes are measured.

Each measure compares the ablated with the intact model on the same texts:

- *sentence angle*: the angle between the intact and the ablated mean vector of the last layer, in
  degrees.  For small angles it is a length;
- *objective*: the increase of the training loss, in nats (`helpers.model.gradients`);
- *structural probe*: the decrease of UUAS on dev, in percentage points.  The probe was fitted to
  the vectors of the intact model's middle layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int, Num
from numpy.typing import ArrayLike
from torch import Tensor, nn
from transformers.utils import ModelOutput

from helpers.cache import cached
from helpers.data.records import Record
from helpers.model import gradients
from helpers.model.encoder import Encoder
from helpers.model.forward import model_inputs, padded
from helpers.model.gradients import training_losses
from helpers.probes.data import prepare
from helpers.probes.structural import fit_layer, undirected_attachment
from helpers.store.store import Store
from helpers.studies.common.edge_cuts import (
    DROPPED,
    MAIN_MODES,
    MASS_MATCHED,
    MOST_ATTENDED,
    Ablation,
    cut_shares,
    key_token_ids,
    list_ablations,
    plan_ablations,
)
from helpers.studies.common.head_edges import turned_angles, with_vectors, word_vectors
from helpers.studies.common.head_removal import map_over_model_copies, run_interventions
from helpers.studies.kobayashi2020.lenses import (
    SPECIAL_TYPES,
    evenly_spaced_records,
    list_articles,
    with_ratio,
)

ANGLE = "sentence angle"
SHARES = ["share", "unmatched"]  # see `cut_shares`
OBJECTIVE = "objective"
PROBE = "structural probe"
MAIN = "trained"  # in the column model: the model that the run is about
# The models of `edge_tables`, and the prefixes of the names of their tables of ratios.
PREFIXES = {MAIN: "", "random": "random_", "entropy-matched": "entropy_matched_"}
CONTROL_STRIDE = 4  # a control is measured on every fourth segment
CUT_COLUMNS = ["layers", "keys"]
YARDSTICKS = (MASS_MATCHED, MOST_ATTENDED)  # the angle under `DROPPED` is divided by theirs

Values = pd.DataFrame  # a row for each example, a column for each ablation and measure


def representation_shifts(
    encoder: Encoder, ablations: Sequence[Ablation], records: Sequence[Record]
) -> Values:
    """Measure by how far each ablation turns the vector of each segment: `ANGLE`, then `SHARES`."""
    token_ids = key_token_ids(encoder)
    interventions = list_ablations(encoder, ablations)

    def measure(model: nn.Module, record: Record) -> Float[Tensor, "ablation measure"]:
        batch = padded(encoder, [model_inputs(encoder, record)])
        run = partial(model, **batch, output_attentions=True, output_hidden_states=True)
        passes = run_interventions(model, run, interventions)
        intact = next(passes)
        rows = []
        for (cut, _), ablated in zip(ablations, passes, strict=True):
            angle = turned_angles(text_vector(intact), text_vector(ablated))
            shares = cut_shares(intact.attentions, cut, batch["input_ids"], token_ids)
            rows.append(torch.hstack([angle, shares]))
        return torch.stack(rows).cpu()

    base = encoder.model.base_model
    values = torch.stack(map_over_model_copies(base, records, measure, "edges cut"))
    return label_values(ablations, [ANGLE, *SHARES], values.numpy(), records)


def text_vector(output: ModelOutput) -> Float[Tensor, " width"]:
    """Average the vectors of the last layer of a text."""
    return output.hidden_states[-1][0].double().mean(dim=0)


def loss_increases(
    encoder: Encoder, ablations: Sequence[Ablation], records: Sequence[Record], seed: int
) -> Values:
    """Measure how much each ablation increases each segment's training loss, in nats."""
    starts = range(0, len(records), gradients.BATCH)
    interventions = list_ablations(encoder, ablations)

    def measure(model: nn.Module, start: int) -> Float[Tensor, "example pass"]:
        batch = records[start : start + gradients.BATCH]

        def run() -> Tensor:
            rng = np.random.default_rng(seed)
            return training_losses(encoder.with_model(model), batch, rng)[0].double()

        return torch.stack(list(run_interventions(model, run, interventions)), dim=1).cpu()

    label = "objective, edges cut"
    losses = torch.cat(map_over_model_copies(encoder.model, starts, measure, label)).numpy()
    increases = losses[:, 1:] - losses[:, :1]
    return label_values(ablations, [OBJECTIVE], increases[..., None], records)


def probe_losses(
    encoder: Encoder, ablations: Sequence[Ablation], store: Store
) -> tuple[Values, Int[np.ndarray, " example"]]:
    """Measure how many percentage points of UUAS the structural probe loses on dev sentences.

    Parameters
    ----------
    encoder : Encoder
        The model.
    ablations : sequence of (Cut, str)
        What is cut, and how.
    store : Store
        The word-level maps and vectors of the intact model on a treebank.

    Returns
    -------
    losses : DataFrame
        The edges that each sentence loses, times 100.
    totals : array
        The edges of each sentence.
    """
    data = prepare(store)
    middle = encoder.layers // 2
    (probe,) = fit_layer(data, 1, middle)
    dev = data.splits["dev"]
    interventions = list_ablations(encoder, ablations)

    def measure(model: nn.Module, sentence: int) -> Int[np.ndarray, "ablation one"]:
        record = store.record(sentence)
        batch = padded(encoder, [record["inputs"]])
        run = partial(model, **batch, output_hidden_states=True)
        right = []
        for output in run_interventions(model, run, interventions):
            states = output.hidden_states[middle - encoder.layers - 1][0].float()
            vectors = word_vectors(states, record)
            sentence_data = with_vectors(data, sentence, middle, vectors)
            right.append(undirected_attachment(sentence_data, probe, [sentence]).right[0])
        return 100 * (right[0] - np.array(right[1:]))  # [ablation, one]

    losses = map_over_model_copies(encoder.model.base_model, dev, measure, "probe, edges cut")
    records = [store.record(sentence) for sentence in dev]
    totals = undirected_attachment(data, probe, dev).total
    return label_values(ablations, [PROBE], np.stack(losses), records), totals


def edge_tables(
    encoders: Mapping[str, Encoder],
    source: Store,
    treebank: Store,
    group: tuple[int, ...],
    *,
    count: int,
    seed: int,
) -> dict[str, pd.DataFrame]:
    """Measure the ablation of attention edges on segments, and on the dev sentences of a treebank.

    Parameters
    ----------
    encoders : mapping of str to Encoder
        The main model under the name `MAIN`, and its controls "random" and "entropy-matched".  A
        control is measured on every fourth segment.
    source : Store
        Segments; its records are read, not its maps.
    treebank : Store
        The main model's word-level maps and vectors, for the probe.
    group : tuple of int
        Layers, from 0, that are also ablated together (`special_token_layers`), with all modes.
        The training loss and the probe are measured for them only.
    count : int
        Number of segments.
    seed : int
        Seed of the words that the objective masks.

    Returns
    -------
    dict of str to DataFrame
        ``edges``: the mean of each measure for each model, cut and mode, with its bootstrap
        interval over articles; ``share``, the share of attention on the cut edges; ``unmatched``,
        the share of rows in which words get less attention than the cut edges.
        ``edge_ratios``: the angle under one mode over that under another; those of a control in a
        table with its prefix.

    Raises
    ------
    InputError
        If the model's input has no special tokens.
    ModelError
        If the attention is not computed by a softmax that can be replaced.
    """
    main = encoders[MAIN]
    roles = [role for role in SPECIAL_TYPES if role in key_token_ids(main)]
    ablations = plan_ablations(main.layers, group, roles)
    outcomes = [
        (cut, mode) for cut, mode in ablations if cut.layers == group and mode in MAIN_MODES
    ]

    def compute() -> dict[str, pd.DataFrame]:
        records = evenly_spaced_records(source, count)
        frames = []
        tables = {}
        for name, encoder in encoders.items():
            sample = records if name == MAIN else records[::CONTROL_STRIDE]
            shifts = representation_shifts(encoder, ablations, sample)
            frames.append(mean_table(name, shifts))
            tables[PREFIXES[name] + "edge_ratios"] = ratio_table(shifts)
        if outcomes:
            is_contrastive = main.objective == "contrastive"
            articles = list_articles(source.records())
            indices = gradients.choose_segments(articles, count, contrastive=is_contrastive)
            pairs = [source.record(index) for index in indices]
            frames.append(mean_table(MAIN, loss_increases(main, outcomes, pairs, seed)))
            frames.append(mean_table(MAIN, *probe_losses(main, outcomes, treebank)))
        return {"edges": with_shares(pd.concat(frames)), **tables}

    inputs = {
        "models": [encoder.identity for encoder in encoders.values()],
        "store": source.key,
        "segments": count,
        "treebank": treebank.key,
        "ablations": ablations,
        "seed": seed,
    }
    return cached("edges", compute, inputs=inputs, layer="studies/kobayashi2020")


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
    names = [*CUT_COLUMNS, "change", "measure"]
    columns = pd.MultiIndex.from_tuples(columns, names=names)
    return pd.DataFrame(values.reshape(len(values), -1), list_articles(records), columns)


def mean_table(model: str, values: Values, totals: ArrayLike = 1) -> pd.DataFrame:
    """Tabulate the means of some values, per total, with intervals over articles.

    Parameters
    ----------
    model : str
        Name of the model, for the column of that name.
    values : DataFrame
        A row for each example (`label_values`).
    totals : array-like
        The total of each example.

    Returns
    -------
    DataFrame
        A table like ``edges`` of `edge_tables`, one row per ablation and measure.
    """
    sums = values.groupby(level=0).sum()
    denominators = values.notna().mul(totals, axis=0).groupby(level=0).sum()
    table = values.columns.to_frame(index=False)
    table.insert(0, "model", model)
    return with_ratio(table, "value", sums, denominators)


def with_shares(table: pd.DataFrame) -> pd.DataFrame:
    """Turn the rows of `SHARES` in a `mean_table` into columns of the other rows of their cuts."""
    is_share = table["measure"].isin(SHARES)
    cut_columns = ["model", *CUT_COLUMNS]
    shares = table[is_share].pivot_table("value", cut_columns, "measure")
    return table[~is_share].join(shares, on=cut_columns).reset_index(drop=True)


def ratio_table(shifts: Values) -> pd.DataFrame:
    """Divide the angle under `DROPPED` by that under each of the `YARDSTICKS`."""
    angles = shifts.xs(ANGLE, axis=1, level="measure").groupby(level=0).sum()
    dropped = angles.xs(DROPPED, axis=1, level="change")
    tables = []
    for mode in YARDSTICKS:
        if mode not in angles.columns.unique("change"):  # some need a group of layers
            continue
        yardstick = angles.xs(mode, axis=1, level="change")
        table = yardstick.columns.to_frame(index=False)
        table = table.assign(ways=f"{DROPPED} / {mode}", measure=ANGLE)
        tables.append(with_ratio(table, "ratio", dropped[yardstick.columns], yardstick))
    return pd.concat(tables, ignore_index=True)
