"""Is attention to special tokens a no-op?  Its edges are ablated and the changes are measured.

Each measure compares the ablated with the intact model on the same texts:

- *sentence angle*: the angle between the intact and the ablated mean vector of the last layer, in
  degrees.  For small angles it is a length;
- *sentence vector*: 1 minus the cosine of this angle, which is about half of its square;
- *token vectors*: 1 minus the cosine of each vector of the last layer, mean over tokens;
- *layer output*: ``|h' - h| / |h|`` after the last ablated layer, mean over tokens;
- *objective*: the increase of the training loss, in nats (`helpers.model.gradients`);
- *structural probe*: the decrease of UUAS on dev, in percentage points.  The probe was fitted to
  the vectors of the intact model's middle layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.cache import cached
from helpers.data.records import Record, cluster_of
from helpers.metrics.statistics import Clusters, cluster_sums
from helpers.model import gradients
from helpers.model.encoder import Encoder
from helpers.model.forward import (
    States,
    model_inputs,
    padded,
    vectors_to_words,
)
from helpers.model.gradients import training_losses
from helpers.probes.data import prepare
from helpers.probes.structural import fit_layers, undirected_attachment
from helpers.store.store import Store
from helpers.studies.common.edge_cuts import (
    DROPPED,
    MASS_MATCHED,
    MODES,
    MOST_ATTENDED,
    AblationMode,
    Cut,
    cut_shares,
    key_token_ids,
    list_ablations,
    plan_cuts,
)
from helpers.studies.common.head_removal import (
    Intervention,
    map_over_model_copies,
    run_interventions,
)
from helpers.studies.kobayashi2020.lenses import (
    SPECIAL_TYPES,
    evenly_spaced_records,
    with_ratio,
)

ANGLE = "sentence angle"
SHIFTS = (ANGLE, "sentence vector", "token vectors", "layer output")
SHARES = ("share", "unmatched")  # see `cut_shares`
OBJECTIVE = "objective"
PROBE = "structural probe"
# Single layers, the training loss and the probe are measured without the other `MODES`.
MAIN_MODES = (DROPPED, MASS_MATCHED)
MAIN = "trained"  # in the column model: the model that the run is about
# The models of `edge_tables`, and the prefixes of the names of their tables of ratios.
PREFIXES = {MAIN: "", "random": "random_", "entropy-matched": "entropy_matched_"}
CONTROL_STRIDE = 4  # a control is measured on every fourth segment
KEY_COLUMNS = ["model", "layers", "keys", "queries", *SHARES, "change", "measure"]
YARDSTICKS = (MASS_MATCHED, MOST_ATTENDED)  # the angle under `DROPPED` is divided by theirs

Ablation = tuple[Cut, AblationMode]
Values = Float[np.ndarray, "example ablation measure"]


def representation_shifts(
    encoder: Encoder, ablations: Sequence[Ablation], records: Sequence[Record]
) -> Values:
    """Measure how far each ablation moves the vectors of each segment: `SHIFTS`, then `SHARES`."""
    token_ids = key_token_ids(encoder)
    interventions = _interventions(encoder, ablations)

    def measure(model: nn.Module, record: Record) -> Float[Tensor, "ablation measure"]:
        batch = padded(encoder, [model_inputs(encoder, record)])
        run = partial(model, **batch, output_attentions=True, output_hidden_states=True)
        passes = run_interventions(model, run, interventions)
        intact, _ = next(passes)
        rows = []
        for (cut, _), (ablated, _) in zip(ablations, passes, strict=True):
            states = (intact.hidden_states, ablated.hidden_states)
            shifts = representation_shift(*states, cut.layers[-1] - encoder.layers)
            shares = cut_shares(
                intact.attentions, cut, batch["input_ids"], token_ids, batch["attention_mask"] > 0
            )
            rows.append(torch.cat([shifts, shares[:, 0]]))
        return torch.stack(rows).cpu()

    base = encoder.model.base_model
    return torch.stack(map_over_model_copies(base, records, measure, "edges cut")).numpy()


def representation_shift(intact: States, ablated: States, layer: int) -> Float[Tensor, " measure"]:
    """Compute the `SHIFTS` of one text; ``layer`` counts from the last, which is -1."""
    output_change = (ablated[layer] - intact[layer]).norm(dim=-1) / intact[layer].norm(dim=-1)
    before = intact[-1][0].double()  # [token, width]
    after = ablated[-1][0].double()
    token_change = 1 - F.cosine_similarity(before, after, dim=-1)
    cosine = F.cosine_similarity(before.mean(dim=0), after.mean(dim=0), dim=0)
    angle = torch.rad2deg(torch.acos(cosine.clamp(max=1)))
    return torch.stack([angle, 1 - cosine, token_change.mean(), output_change.double().mean()])


def loss_increases(
    encoder: Encoder, ablations: Sequence[Ablation], records: Sequence[Record], seed: int
) -> Values:
    """Measure how much each ablation increases each segment's training loss, in nats."""
    starts = range(0, len(records), gradients.BATCH)
    interventions = _interventions(encoder, ablations)

    def measure(model: nn.Module, start: int) -> Float[Tensor, "example pass"]:
        batch = records[start : start + gradients.BATCH]

        def run() -> Tensor:
            rng = np.random.default_rng(seed)
            return training_losses(encoder.with_model(model), batch, rng)[0].double()

        losses = [loss for loss, _ in run_interventions(model, run, interventions)]
        return torch.stack(losses, dim=1).cpu()

    label = "objective, edges cut"
    losses = torch.cat(map_over_model_copies(encoder.model, starts, measure, label)).numpy()
    return (losses[:, 1:] - losses[:, :1])[..., None]


def probe_losses(
    encoder: Encoder, ablations: Sequence[Ablation], store: Store
) -> tuple[Values, Float[np.ndarray, " example"], list[Record]]:
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
    losses : array
        The edges that each sentence loses, times 100.
    totals : array
        The edges of each sentence.
    records : list of Record
        The sentences.
    """
    data = prepare(store)
    middle = encoder.layers // 2
    data = replace(data, scales=np.full_like(data.scales, data.scales[0]))
    (probe,), _ = fit_layers(data, [middle], seeds=1)
    dev = data.splits["dev"]
    interventions = _interventions(encoder, ablations)

    def measure(model: nn.Module, sentence: int) -> np.ndarray:
        record = store.record(sentence)
        inputs = model_inputs(encoder, record)
        run = partial(model, **padded(encoder, [inputs]), output_hidden_states=True)
        right = []
        for output, _ in run_interventions(model, run, interventions):
            layer = output.hidden_states[middle - encoder.layers - 1][0].float()
            vectors = vectors_to_words(layer, inputs["groups"])[record["offset"] :]
            of_words = vectors[: len(record["words"])]
            states = {(sentence, middle): (of_words - of_words.mean(dim=0)).cpu().numpy()}
            ablated = replace(data, states=states)
            right.append(undirected_attachment(ablated, probe, [sentence]).right[0])
        return 100 * (right[0] - np.array(right[1:]))  # [ablation, one]

    losses = map_over_model_copies(encoder.model.base_model, dev, measure, "probe, edges cut")
    totals = undirected_attachment(data, probe, dev).total
    return np.stack(losses), totals, [store.record(sentence) for sentence in dev]


def _interventions(encoder: Encoder, ablations: Sequence[Ablation]) -> list[Intervention]:
    """List ablations as changes of the model."""
    interventions = []
    for cut, mode in ablations:
        interventions += list_ablations(encoder, [cut], [mode])
    return interventions


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
        Layers, from 0, that are also ablated together (`special_token_layers`), with all `MODES`.
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
    layer_cuts, group_cuts = plan_cuts(main.layers, group, roles)
    outcome_ablations = list(product(group_cuts, MAIN_MODES))
    ablations = [*product(layer_cuts, MAIN_MODES), *product(group_cuts, MODES)]

    def compute() -> dict[str, pd.DataFrame]:
        records = evenly_spaced_records(source, count)
        frames = []
        tables = {}
        for name, encoder in encoders.items():
            sample = records if name == MAIN else records[::CONTROL_STRIDE]
            shifts = representation_shifts(encoder, ablations, sample)
            frames.append(shift_table(name, ablations, shifts, sample))
            tables[PREFIXES[name] + "edge_ratios"] = _ratio_rows(ablations, shifts, sample)
        if outcome_ablations:
            is_contrastive = main.objective == "contrastive"
            articles = _articles(source.records())
            indices = gradients.choose_segments(articles, count, contrastive=is_contrastive)
            pairs = [source.record(index) for index in indices]
            increases = loss_increases(main, outcome_ablations, pairs, seed)
            losses, totals, sentences = probe_losses(main, outcome_ablations, treebank)
            of_group = frames[0]["layers"] == group_cuts[0].name
            is_main = frames[0]["change"].isin(MAIN_MODES) & (frames[0]["measure"] == ANGLE)
            rows = frames[0][of_group & is_main]  # of the same ablations, in their order
            ones = np.ones(len(pairs))
            frames.append(_with_values(rows.assign(measure=OBJECTIVE), increases, ones, pairs))
            frames.append(_with_values(rows.assign(measure=PROBE), losses, totals, sentences))
        return {"edges": pd.concat(frames, ignore_index=True), **tables}

    inputs = {
        "models": [encoder.identity for encoder in encoders.values()],
        "store": source.key,
        "segments": count,
        "treebank": treebank.key,
        "ablations": ablations,
        "seed": seed,
    }
    return cached("edges", compute, inputs=inputs)


def shift_table(
    model: str, ablations: Sequence[Ablation], shifts: Values, records: Sequence[Record]
) -> pd.DataFrame:
    """Tabulate the means of `SHIFTS` with intervals, one row per ablation and measure.

    Parameters
    ----------
    model : str
        Name of the model, for the column of that name.
    ablations : sequence of (Cut, str)
        What was cut, and how.
    shifts : array, shape (segment, ablation, measure)
        What `representation_shifts` has measured.
    records : sequence of Record
        The segments, whose articles are resampled for the intervals.

    Returns
    -------
    DataFrame
        A table like ``edges`` of `edge_tables`.
    """
    rows = []
    for (cut, mode), shares in zip(ablations, shifts.mean(axis=0), strict=True):
        for measure in SHIFTS:
            key = (model, cut.name, cut.keys, cut.queries)
            rows.append((*key, *shares[len(SHIFTS) :], mode, measure))
    values = shifts[..., : len(SHIFTS)]
    table = pd.DataFrame(rows, columns=KEY_COLUMNS)
    return _with_values(table, values, np.ones(len(records)), records)


def _with_values(
    rows: pd.DataFrame,
    values: Values,
    totals: Float[np.ndarray, " example"],
    records: Sequence[Record],
) -> pd.DataFrame:
    """Add the means of some values, per total, and their intervals to the rows of a table."""
    by_article = _article_sums(values, records)
    totals_by_article = _article_sums(totals, records)
    denominators = np.broadcast_to(totals_by_article[:, None, None], by_article.shape)
    return with_ratio(rows, "value", by_article, denominators)


def _ratio_rows(
    ablations: Sequence[Ablation], shifts: Values, records: Sequence[Record]
) -> pd.DataFrame:
    """Divide the angles of each cut under two modes: the table ``edge_ratios``."""
    angles = _article_sums(shifts[..., SHIFTS.index(ANGLE)], records)  # [article, ablation]
    rows = []
    upper = []
    lower = []
    for lower_index, (cut, mode) in enumerate(ablations):
        if mode in YARDSTICKS:
            rows.append((cut.name, cut.keys, cut.queries, f"{DROPPED} / {mode}", ANGLE))
            upper.append(ablations.index((cut, DROPPED)))
            lower.append(lower_index)
    table = pd.DataFrame(rows, columns=["layers", "keys", "queries", "ways", "measure"])
    return with_ratio(table, "ratio", angles[:, upper], angles[:, lower])


def _article_sums(values: np.ndarray, records: Iterable[Record]) -> Clusters:
    """Sum the values of the examples of each article."""
    articles = np.array(_articles(records))
    return cluster_sums(values, articles, np.unique(articles))


def _articles(records: Iterable[Record]) -> list[str]:
    """List the articles of records."""
    return [cluster_of(record, index) for index, record in enumerate(records)]
