"""Is attention to special tokens a no-op?  Its edges are ablated and the changes are measured.

Each measure compares the ablated with the intact model on the same texts:

- *sentence angle*: the angle between the intact and the ablated mean vector of the last layer, in
  degrees.  For small angles it is a length;
- *objective*: the increase of the training loss, in nats: of the next-token loss of a causal
  language model, and else of the loss in `helpers.model.gradients`;
- *structural probe*: the decrease of UUAS on dev, in percentage points.  The probe was fitted to
  the vectors of the intact model's middle layer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise, product, zip_longest
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int, Num
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from beyond.claims.estimates import difference
from beyond.claims.tables import estimate_in
from beyond.papers.common.edge_cuts import (
    ALL_QUERIES,
    DROPPED,
    FIRST_ROLES,
    MAIN_MODES,
    MASS_MATCHED,
    MOST_ATTENDED,
    REDISTRIBUTED,
    Ablation,
    Cut,
    cut_shares,
    key_token_ids,
    list_ablations,
    list_roles,
    plan_ablations,
)
from beyond.papers.common.head_edges import turned_angles, word_vectors
from beyond.papers.common.head_removal import map_over_model_copies, run_interventions
from beyond.papers.sinks import CODE
from beyond.papers.sinks.lenses import (
    evenly_spaced_records,
    list_articles,
    with_ratio,
)
from helpers.cache import cached
from helpers.data.records import Record, evenly_spaced
from helpers.metrics import by_model
from helpers.model import gradients
from helpers.model.forward import model_inputs, padded
from helpers.model.gradients import training_losses
from helpers.model.loading import Model
from helpers.probes.data import prepare
from helpers.probes.structural import StructuralProbe, found_edges
from helpers.probes.training import seeded, train
from helpers.store.store import Store

ANGLE = "sentence angle"
SHARES = ["share", "unmatched"]  # see `cut_shares`
OBJECTIVE = "objective"
PROBE = "structural probe"
MAIN = "trained"  # in the column model: the model that the run is about
CONTROL_STRIDE = 4  # a control is measured on every fourth segment
CUT_COLUMNS = ["layers", "keys", "queries"]
ORDERED_MODES = (DROPPED, REDISTRIBUTED, MASS_MATCHED)  # whose order `order_table` compares
YARDSTICKS = (MASS_MATCHED, MOST_ATTENDED)  # the angle under `DROPPED` is divided by theirs

Values: TypeAlias = pd.DataFrame  # a row for each example, a column for each ablation and measure


def representation_shifts(
    encoder: Model, ablations: Sequence[Ablation], records: Sequence[Record]
) -> Values:
    """Measure what each ablation changes in each segment: `ANGLE`, then `SHARES`.

    For a causal language model `OBJECTIVE` follows, the increase of the next-token loss.
    """
    token_ids = key_token_ids(encoder)
    interventions = list_ablations(encoder, ablations)
    is_language_model = encoder.objective == "next-token"

    def measure(model: nn.Module, record: Record) -> Float[Tensor, "ablation measure"]:
        batch = padded(encoder, [model_inputs(encoder, record)])
        run = partial(model, **batch, output_attentions=True, output_hidden_states=True)
        passes = run_interventions(model, run, interventions)
        intact = next(passes)
        rows = []
        for (cut, _), ablated in zip(ablations, passes, strict=True):
            angle = turned_angles(text_vector(intact), text_vector(ablated))
            row = [angle, *cut_shares(intact.attentions, cut, batch["input_ids"], token_ids)]
            if is_language_model:
                losses = [next_token_loss(output, batch) for output in (intact, ablated)]
                row.append(losses[1] - losses[0])
            rows.append(torch.stack([value.double() for value in row]))
        return torch.stack(rows).cpu()

    model = encoder.model if is_language_model else encoder.model.base_model
    values = torch.stack(map_over_model_copies(model, records, measure, "edges cut"))
    measures = [ANGLE, *SHARES, OBJECTIVE] if is_language_model else [ANGLE, *SHARES]
    return label_values(ablations, measures, values.numpy(), records)


def next_token_loss(output: Any, batch: Mapping[str, Tensor]) -> Float[Tensor, ""]:
    """Compute the mean loss of the tokens of a text after the first, in nats."""
    logits = output.logits[0, :-1].double()  # of the token after each position
    return functional.cross_entropy(logits, batch["input_ids"][0, 1:])


def text_vector(output: Any) -> Float[Tensor, " width"]:
    """Average the vectors of the last layer of a text."""
    return output.hidden_states[-1][0].double().mean(dim=0)


def loss_increases(
    encoder: Model,
    ablations: Sequence[Ablation],
    batches: Sequence[Sequence[Record]],
    seed: int,
) -> Values:
    """Measure how much each ablation increases each segment's training loss, in nats."""
    interventions = list_ablations(encoder, ablations)

    def measure(model: PreTrainedModel, batch: Sequence[Record]) -> Float[Tensor, "example pass"]:
        def run() -> Tensor:
            rng = np.random.default_rng(seed)
            return training_losses(replace(encoder, model=model), batch, rng)[0].double()

        return torch.stack(list(run_interventions(model, run, interventions)), dim=1).cpu()

    label = "objective, edges cut"
    losses = torch.cat(map_over_model_copies(encoder.model, batches, measure, label)).numpy()
    increases = losses[:, 1:] - losses[:, :1]
    records = list(chain.from_iterable(batches))
    return label_values(ablations, [OBJECTIVE], increases[..., None], records)


def batches_of_articles(articles: Sequence[str], count: int) -> list[list[int]]:
    """Choose segments of as many articles as possible, in batches of different articles.

    The first batches have one segment of each article, the next ones a second segment, and so on.
    In a contrastive objective, a paragraph of the same article would be a poor wrong candidate.

    Parameters
    ----------
    articles : sequence of str
        The article of each segment.
    count : int
        Number of segments at most.

    Returns
    -------
    list of list of int
        The indices of the segments of each batch: two at least, and `gradients.BATCH` at most.
    """
    segments_of = defaultdict(list)
    for segment, article in enumerate(articles):
        segments_of[article].append(segment)
    batches = []
    for segments in zip_longest(*segments_of.values()):
        present = [segment for segment in segments if segment is not None]
        chosen = evenly_spaced(present, count)
        count -= len(chosen)
        n_batches = -(-len(chosen) // gradients.BATCH)
        for batch in np.array_split(chosen, max(1, n_batches)):
            if len(batch) > 1:
                batches.append(batch.tolist())
    return batches


def probe_losses(
    encoder: Model, ablations: Sequence[Ablation], store: Store
) -> tuple[Values, Int[np.ndarray, " example"]]:
    """Measure how many percentage points of UUAS the structural probe loses on dev sentences.

    Parameters
    ----------
    encoder : Model
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
    middle = encoder.layers // 2
    data = prepare(store).at_layer(middle)
    probe = seeded(partial(StructuralProbe, data), 0)
    train([probe], data, data.splits["train"])
    dev = data.splits["dev"]
    interventions = list_ablations(encoder, ablations)

    def measure(model: nn.Module, sentence: int) -> Int[np.ndarray, "ablation one"]:
        record = store.record(sentence)
        batch = padded(encoder, [record["inputs"]])
        run = partial(model, **batch, output_hidden_states=True)
        right = []
        for output in run_interventions(model, run, interventions):
            states = output.hidden_states[middle - encoder.layers - 1][0].float()
            vectors = word_vectors(states, record).cpu() / data.scale
            (distances,) = probe.squared_distances(vectors[None])
            is_found = found_edges(distances.detach().numpy(), data.parses[sentence])
            right.append([is_found.sum()])
        return 100 * (np.array(right[0]) - np.array(right[1:]))  # [ablation, one]

    losses = map_over_model_copies(encoder.model.base_model, dev, measure, "probe, edges cut")
    records = [store.record(sentence) for sentence in dev]
    totals = np.array([data.parses[sentence].edges.sum() for sentence in dev])
    return label_values(ablations, [PROBE], np.stack(losses), records), totals


def edge_tables(
    encoders: Mapping[str, Model],
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
    encoders : mapping of str to Model
        The main model under the name `MAIN`, and its control "random", which is measured on every
        fourth segment.
    source : Store
        Segments; its records are read, not its maps.
    treebank : Store
        The main model's word-level maps and vectors, for the probe.
    group : tuple of int
        Layers, from 0, that are also ablated together (`special_token_layers`), with all modes.
        The probe is measured for them only, and so is the training loss of an encoder.
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
        ``edge_ratios``: the angle under one mode over that under another, for each model.
        ``edge_orders``: `order_table`.

    Raises
    ------
    ModelError
        If the attention is not computed by a softmax that can be replaced.
    """
    main = encoders[MAIN]
    ablations = plan_ablations(main.layers, group, list_roles(main))
    outcomes: list[Ablation] = [
        (cut, mode) for cut, mode in ablations if cut.layers == group and cut.queries == ALL_QUERIES
    ]
    probed: list[Ablation] = [(cut, mode) for cut, mode in outcomes if mode in MAIN_MODES]

    def compute() -> dict[str, pd.DataFrame]:
        records = evenly_spaced_records(source, count)
        frames = []
        ratios = {}
        for name, encoder in encoders.items():
            sample = records if name == MAIN else records[::CONTROL_STRIDE]
            shifts = representation_shifts(encoder, ablations, sample)
            frames.append(mean_table(name, shifts))
            ratios[name] = ratio_table(shifts)
        if outcomes and main.objective != "next-token":
            batches = batches_of_articles(list_articles(source.records()), count)
            batches = [[source.record(index) for index in batch] for batch in batches]
            if batches:
                frames.append(mean_table(MAIN, loss_increases(main, outcomes, batches, seed)))
        if outcomes:
            frames.append(mean_table(MAIN, *probe_losses(main, probed, treebank)))
        edges = with_shares(pd.concat(frames))
        return {
            "edges": edges,
            "edge_orders": order_table(edges),
            "edge_ratios": by_model(ratios),
        }

    inputs = {
        "models": [encoder.key for encoder in encoders.values()],
        "store": source.key,
        "segments": count,
        "treebank": treebank.key,
        "ablations": ablations,
        "seed": seed,
    }
    return cached("edges", compute, inputs=inputs, code=CODE)


def label_values(
    ablations: Sequence[Ablation],
    measures: Sequence[str],
    values: Num[np.ndarray, "example ablation measure"],
    records: Iterable[Record],
) -> Values:
    """Label the values of some examples by their articles, ablations and measures."""
    columns = []
    for (cut, mode), measure in product(ablations, measures):
        columns.append((cut.name, cut.keys, cut.queries, mode, measure))
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


def order_table(edges: pd.DataFrame) -> pd.DataFrame:
    """Order the modes by what they change, if the edges to the first token are cut.

    Parameters
    ----------
    edges : DataFrame
        The table edges.csv.  Its controls are left out.

    Returns
    -------
    DataFrame
        One row per scope and measure.  Columns: scope ("single layers", "layers together" or "all
        layers"); keys ("cls" or "first"); measure; layers, those of the cut; the value of each of
        the `ORDERED_MODES`, of single layers the mean; ``order``, from the smallest change to the
        largest, with "~" between two modes whose difference may be zero (`describe_order`; of
        single layers, the most common order); ``count``, the number of cuts with this order, and
        ``of``, the number of all cuts; ``agrees``, whether the values have the same order as in the
        first row of the scope.
    """
    is_ordered = edges["model"].eq(MAIN) & edges["keys"].isin(FIRST_ROLES)
    is_ordered &= edges["queries"].eq(ALL_QUERIES) & edges["change"].isin(ORDERED_MODES)
    edges = edges[is_ordered].astype({"layers": str})
    scopes = edges["layers"].map(partial(name_scope, n_layers=count_layers(edges)))
    rows = []
    for (scope, keys, measure), cuts in edges.groupby([scopes, "keys", "measure"], sort=False):
        by_cut = [cut.set_index("change") for _, cut in cuts.groupby("layers", sort=False)]
        by_cut = [cut for cut in by_cut if set(ORDERED_MODES) <= set(cut.index)]
        if by_cut:
            key = {"scope": scope, "keys": keys, "measure": measure}
            rows.append({**key, **summarise_orders(by_cut)})
    table = pd.DataFrame(rows)
    if len(table):
        by_value = table["order"].str.replace("~", "<")
        table["agrees"] = by_value == by_value.groupby(table["scope"]).transform("first")
    return table


def count_layers(edges: pd.DataFrame) -> int:
    """Count the layers of a model by the last one that is cut."""
    return int(edges["layers"].str.extract(r"(\d+)$", expand=False).astype(int).max())


def name_scope(layers: str, n_layers: int) -> str:
    """Name the scope of a cut by its layers."""
    if layers == Cut(tuple(range(n_layers))).name:
        return "all layers"
    return "single layers" if layers.isdigit() else "layers together"


def summarise_orders(by_cut: Sequence[pd.DataFrame]) -> dict[str, float | str]:
    """Summarise the order of the modes in some cuts: a row of `order_table`."""
    values = pd.DataFrame([cut["value"].reindex(ORDERED_MODES) for cut in by_cut])
    orders = [" < ".join(row.sort_values(kind="stable").index) for _, row in values.iterrows()]
    order, count = Counter(orders).most_common(1)[0]
    layers = ""
    if len(by_cut) == 1:
        order = describe_order(by_cut[0])
        layers = by_cut[0]["layers"].iloc[0]
    summary = {"order": order, "count": count, "of": len(by_cut)}
    return {"layers": layers, **values.mean(), **summary}


def describe_order(by_mode: pd.DataFrame) -> str:
    """Describe the order of the `ORDERED_MODES`, as "dropped < mass-matched ~ redistributed".

    Two modes are told apart ("<") if the interval of their difference leaves zero out.  It is
    combined from the intervals of both as if they were independent, which is too wide, because
    they are measured on the same texts.
    """
    by_size = by_mode.loc[by_mode.index.isin(ORDERED_MODES)].sort_values("value", kind="stable")
    estimates = [estimate_in(row, "value") for _, row in by_size.iterrows()]
    order = by_size.index[0]
    for name, (smaller, larger) in zip(by_size.index[1:], pairwise(estimates), strict=True):
        sign = "<" if difference(larger, smaller).low > 0 else "~"
        order += f" {sign} {name}"
    return order
