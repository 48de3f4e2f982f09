"""Is attention to special tokens a no-op?  Its edges are ablated and the changes are measured.

Each measure compares the ablated with the intact model on the same texts:

- *layer output*: ``|h' - h| / |h|`` after the last ablated layer, mean over tokens;
- *sentence vector*: 1 minus the cosine of the mean vector of the last layer with the intact one;
- *sentence angle*: the angle between these two vectors, in degrees.  For small angles it is a
  length, and 1 minus the cosine half of its square;
- *token vectors*: 1 minus the cosine of each vector of the last layer, mean over tokens;
- *objective*: the increase of the training loss, in nats (`helpers.model.gradients`);
- *structural probe*, *Attn probe*: the decrease of UUAS, and of UAS without punctuation, on dev, in
  percentage points.  The probes were fitted to the intact model.  The Attn probe reads the
  attention weights before the ablation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.cache import cached
from helpers.data.records import Record, cluster_of
from helpers.metrics import statistics
from helpers.metrics.reference import UAS_WITHOUT_PUNCTUATION
from helpers.model import gradients
from helpers.model.encoder import Encoder
from helpers.model.forward import (
    Inputs,
    States,
    length_batches,
    model_inputs,
    padded,
    to_words,
    vectors_to_words,
)
from helpers.model.gradients import training_losses
from helpers.model.sites import Weights
from helpers.probes.data import Counts, ProbeData, attention_block, prepare
from helpers.probes.linear import fit_linear
from helpers.probes.structural import fit_layers, undirected_attachment
from helpers.probes.training import scores_of, shuffled
from helpers.store.store import Example, Store
from helpers.studies.common.edge_cuts import (
    DROPPED,
    MASS_MATCHED,
    MODES,
    MOST_ATTENDED,
    REDISTRIBUTED,
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
    BATCH_TOKENS,
    SPECIAL_TYPES,
    evenly_spaced_records,
    with_ratio,
)

LENGTHS = ("layer output", "sentence angle")  # of these, ratios are said
SHIFTS = (*LENGTHS, "sentence vector", "token vectors")
LOSSES = ("objective",)
PROBES = ("structural probe", "Attn probe")
OUTCOME_MODES = MODES[:3]  # of the losses and the probes, which take long: without `MOST_ATTENDED`
MAIN = "trained"  # in the column model: the model that the run is about
# The models of `edge_tables`, and the prefixes of the names of their tables of ratios.
PREFIXES = {MAIN: "", "random": "random_", "entropy-matched": "entropy_matched_"}
CONTROL_STRIDE = 2  # a control is measured on every second segment
KEY_COLUMNS = ["model", "layers", "keys", "queries", "share", "unmatched", "change", "measure"]
RATIO_COLUMNS = ["layers", "keys", "queries", "ways", "measure"]
COMPARED_MODES = (  # of a ratio
    (DROPPED, MASS_MATCHED), (DROPPED, MOST_ATTENDED), (REDISTRIBUTED, DROPPED),
)  # fmt: skip

Batch = Mapping[str, Tensor]
# ``values`` [example, cut, mode, measure], ``totals`` [example, measure], ``articles`` [example],
# and of `representation_shifts` ``shares`` [cut, two, example].
Measurements = dict[str, np.ndarray]


def ablated_states(
    model: nn.Module, batch: Batch, ablations: Sequence[Intervention]
) -> Iterator[tuple[list[Weights], States]]:
    """Yield each layer's attention and vectors, of the intact model and under each ablation.

    The attention is the output of the softmax, before edges are ablated.
    """
    run = partial(model, **batch, output_attentions=True, output_hidden_states=True)
    passes = run_interventions(model, run, ablations)
    intact, _ = next(passes)
    yield list(intact.attentions), intact.hidden_states
    for output, before_ablation in passes:
        maps = list(intact.attentions)
        maps[-len(output.attentions) :] = output.attentions  # lower layers are not computed again
        for layer, weights in before_ablation.items():
            maps[layer] = weights
        yield maps, output.hidden_states


def representation_shifts(
    encoder: Encoder, cuts: Sequence[Cut], records: Sequence[Record]
) -> Measurements:
    """Measure how far each ablation moves the vectors of each segment (`SHIFTS`).

    ``shares`` [cut, two, segment] has `cut_shares`.
    """
    inputs = [model_inputs(encoder, record) for record in records]
    token_ids = key_token_ids(encoder)
    ablations = list_ablations(encoder, cuts)

    def measure(model: nn.Module, batch: Batch, _: list[int]) -> tuple[np.ndarray, np.ndarray]:
        real = batch["attention_mask"].bool()
        states = ablated_states(model, batch, ablations)
        maps, intact = next(states)
        shares = []
        for cut in cuts:
            shares.append(cut_shares(maps, cut, batch["input_ids"], token_ids, real))
        shifts = []
        for (cut, _), (_, ablated) in zip(product(cuts, MODES), states, strict=True):
            layer_from_last = cut.layers[-1] - encoder.layers
            shifts.append(representation_shift(intact, ablated, real, layer_from_last))
        return _examples_first(shifts), _examples_first(shares)

    values, shares = _measure_batches(encoder, inputs, measure, "edges cut")
    measurements = _measurements(values, cuts, np.ones((len(records), len(SHIFTS))), records)
    measurements["shares"] = np.ascontiguousarray(np.moveaxis(shares, 0, -1))
    return measurements


def representation_shift(
    intact: States, ablated: States, real: Bool[Tensor, "batch token"], layer: int
) -> Float[Tensor, "measure batch"]:
    """Compute the `SHIFTS` of a batch; ``layer`` counts from the last, which is -1."""
    weights = real.double()
    weights /= weights.sum(dim=1, keepdim=True)  # of each token in the mean of its text
    before = intact[layer].double()
    after = ablated[layer].double()
    output_change = (after - before).norm(dim=-1) / before.norm(dim=-1)
    before = intact[-1].double()
    after = ablated[-1].double()
    token_change = 1 - F.cosine_similarity(before, after, dim=-1)
    mean_before = torch.einsum("btw,bt->bw", before, weights)
    mean_after = torch.einsum("btw,bt->bw", after, weights)
    cosine = F.cosine_similarity(mean_before, mean_after, dim=-1)
    angle = torch.rad2deg(torch.acos(cosine.clamp(max=1)))
    output_mean = (output_change * weights).sum(1)
    token_mean = (token_change * weights).sum(1)
    return torch.stack([output_mean, angle, 1 - cosine, token_mean])


def loss_increases(
    encoder: Encoder, cuts: Sequence[Cut], records: Sequence[Record], seed: int
) -> Measurements:
    """Measure how much each ablation increases each segment's training loss, in nats."""
    batches = [
        records[start : start + gradients.BATCH]
        for start in range(0, len(records), gradients.BATCH)
    ]
    ablations = list_ablations(encoder, cuts, OUTCOME_MODES)

    def measure(model: nn.Module, batch: list[Record]) -> np.ndarray:
        encoder_copy = encoder.with_model(model)

        def run() -> Tensor:
            losses, _, _ = training_losses(encoder_copy, batch, np.random.default_rng(seed))
            return losses.double().cpu()

        return _examples_first([loss for loss, _ in run_interventions(model, run, ablations)])

    label = "objective, edges cut"
    losses = np.concatenate(map_over_model_copies(encoder.model, batches, measure, label))
    increases = losses[:, 1:] - losses[:, :1]
    return _measurements(increases, cuts, np.ones((len(records), 1)), records)


def probe_accuracy_losses(encoder: Encoder, cuts: Sequence[Cut], store: Store) -> Measurements:
    """Measure how many percentage points the `PROBES` lose on each dev sentence.

    ``store`` has the word-level maps and vectors of the intact model on a treebank.
    """
    data = prepare(store)
    attention_probe = fit_linear(data, shuffled(data.splits["train"])).probe
    structural_probes, layer_table = fit_layers(data)
    best_layer = int(layer_table["chosen"].argmax())
    ablations = list_ablations(encoder, cuts, OUTCOME_MODES)
    dev = data.splits["dev"]
    inputs = [model_inputs(encoder, store.record(sentence)) for sentence in dev]

    def score(data: ProbeData, sentences: list[int]) -> list[Counts]:
        """Count the right edges of both probes."""
        return [
            undirected_attachment(data, structural_probes[best_layer], best_layer, sentences),
            scores_of(attention_probe, data, sentences)[UAS_WITHOUT_PUNCTUATION],
        ]

    totals = [counts.total for counts in score(data, dev)]

    def measure(model: nn.Module, batch: Batch, indices: list[int]) -> list[np.ndarray]:
        sentences = [dev[index] for index in indices]
        right = []
        for maps, vectors in ablated_states(model, batch, ablations):
            blocks = {}
            states = {}
            for row, (index, sentence) in enumerate(zip(indices, sentences, strict=True)):
                record = store.record(sentence)
                groups = inputs[index]["groups"]
                n = len(groups)
                token_maps = torch.stack([layer[row, :, :n, :n] for layer in maps]).float()
                word_maps = to_words(token_maps, groups).half().cpu().numpy()
                example = Example(sentence, word_maps, record, offset=record["offset"])
                blocks[sentence] = attention_block(example)
                layer_from_last = best_layer - encoder.layers - 1
                token_vectors = vectors[layer_from_last][row, :n].float()
                of_words = vectors_to_words(token_vectors, groups)[example.word_positions]
                centred = of_words - of_words.mean(dim=0)
                states[sentence] = centred.cpu().numpy()
            ablated_data = replace(data, blocks=blocks, states={best_layer: states})
            scores = score(ablated_data, sentences)
            right.append([counts.right[0] for counts in scores])
        right = np.array(right)  # [pass, probe, sentence]
        return [np.moveaxis(100 * (right[0] - right[1:]), -1, 0)]

    (values,) = _measure_batches(encoder, inputs, measure, "probes, edges cut")
    dev_records = [store.record(index) for index in dev]
    return _measurements(values, cuts, np.stack(totals, axis=1), dev_records)


def _measure_batches(
    encoder: Encoder,
    inputs: Sequence[Inputs],
    measure: Callable[[nn.Module, Batch, list[int]], Sequence[np.ndarray]],
    label: str,
) -> list[np.ndarray]:
    """Measure batches of similar length, and concatenate each array in the order of the inputs."""
    lengths = [len(token_inputs["input_ids"]) for token_inputs in inputs]
    batches = length_batches(lengths, budget=BATCH_TOKENS)

    def measure_batch(model: nn.Module, indices: list[int]) -> Sequence[np.ndarray]:
        return measure(model, padded(encoder, [inputs[index] for index in indices]), indices)

    order = np.argsort(np.concatenate(batches))
    measured = map_over_model_copies(encoder.model.base_model, batches, measure_batch, label)
    return [np.concatenate(arrays)[order] for arrays in zip(*measured, strict=True)]


def _examples_first(tensors: Sequence[Tensor]) -> np.ndarray:
    """Stack tensors whose last axis is that of the examples, which becomes the first."""
    return torch.stack(tensors).movedim(-1, 0).cpu().numpy()


def _measurements(
    values: np.ndarray, cuts: Sequence[Cut], totals: np.ndarray, records: Sequence[Record]
) -> Measurements:
    """Reshape values of [example, cut and mode, *measure], and add each example's article."""
    articles = np.array([cluster_of(record, index) for index, record in enumerate(records)])
    values = values.reshape(len(values), len(cuts), -1, totals.shape[1])
    return {"values": values, "totals": totals, "articles": articles}


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
        control is measured on every second segment.
    source : Store
        Segments; its records are read, not its maps.
    treebank : Store
        The main model's word-level maps and vectors, for the probes.
    group : tuple of int
        Layers, from 0, that are also ablated together (`special_token_layers`).
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
        ``edge_ratios``: each of the `LENGTHS` under one mode over that under another; those of a
        control in a table with its prefix.

    Raises
    ------
    InputError
        If the model's input has no special tokens.
    ModelError
        If the attention is not computed by a softmax that can be replaced.
    """
    main = encoders[MAIN]
    records = evenly_spaced_records(source, count)
    roles = [role for role in SPECIAL_TYPES if role in key_token_ids(main)]
    cuts, main_cuts = plan_cuts(main.layers, group, roles)
    articles = [cluster_of(record, index) for index, record in enumerate(source.records())]
    pair_indices = gradients.choose_segments(
        articles, len(records), contrastive=main.objective == "contrastive"
    )
    pairs = [source.record(index) for index in pair_indices]
    sample = {"store": source.key, "segments": len(records), "group": group, "seed": seed}

    def measure(function: Callable, encoder: Encoder, *arguments: Any) -> Measurements:
        """Call a function, or read its measurements from the cache."""
        inputs = {**sample, "model": encoder.identity, "treebank": treebank.key}
        compute = partial(function, encoder, *arguments)
        return cached(f"edges-{function.__name__}", compute, inputs=inputs)

    shifts = {MAIN: measure(representation_shifts, main, cuts + main_cuts, records)}
    for name, encoder in encoders.items():
        if name != MAIN:
            shifts[name] = measure(representation_shifts, encoder, cuts, records[::CONTROL_STRIDE])
    losses = measure(loss_increases, main, cuts, pairs, seed)
    probe_losses = measure(probe_accuracy_losses, main, cuts, treebank)

    all_cuts = cuts + main_cuts
    frames = []
    tables = {}
    for name, measurements in shifts.items():
        frames.append(_edge_rows(name, all_cuts, measurements["shares"], measurements, SHIFTS))
        tables[PREFIXES[name] + "edge_ratios"] = _ratio_table(all_cuts, measurements)
    shares = shifts[MAIN]["shares"]
    frames.append(_edge_rows(MAIN, all_cuts, shares, losses, LOSSES))
    frames.append(_edge_rows(MAIN, all_cuts, shares, probe_losses, PROBES))
    return {"edges": pd.concat(frames, ignore_index=True), **tables}


def _edge_rows(
    model: str,
    cuts: Sequence[Cut],
    shares: Float[np.ndarray, "cut two example"],
    measurements: Measurements,
    measures: Sequence[str],
) -> pd.DataFrame:
    """Tabulate the means of some measures with intervals, one row per cut, mode and measure.

    The measurements may be of the first of the cuts only.
    """
    values, totals = _article_sums(measurements)  # [article, cut, mode, measure]
    n_cuts = values.shape[1]
    rows = []
    for cut, mean_shares in zip(cuts[:n_cuts], shares.mean(axis=-1)[:n_cuts], strict=True):
        for mode, measure in product(MODES[: values.shape[2]], measures):
            rows.append((model, cut.name, cut.keys, cut.queries, *mean_shares, mode, measure))
    return with_ratio(pd.DataFrame(rows, columns=KEY_COLUMNS), "value", values, totals)


def _ratio_table(cuts: Sequence[Cut], measurements: Measurements) -> pd.DataFrame:
    """Compare the ablation modes of each cut: the table ``edge_ratios``.

    The measurements may be of the first of the cuts only.
    """
    values, _ = _article_sums(measurements)
    lengths = values[..., : len(LENGTHS)]
    rows = []
    for cut, modes, measure in product(cuts[: values.shape[1]], COMPARED_MODES, LENGTHS):
        rows.append((cut.name, cut.keys, cut.queries, " / ".join(modes), measure))
    upper = [MODES.index(mode) for mode, _ in COMPARED_MODES]
    lower = [MODES.index(mode) for _, mode in COMPARED_MODES]
    table = pd.DataFrame(rows, columns=RATIO_COLUMNS)
    return with_ratio(table, "ratio", lengths[:, :, upper], lengths[:, :, lower])


def _article_sums(measurements: Measurements) -> tuple[statistics.Clusters, statistics.Clusters]:
    """Sum values and totals over the examples of each article: [article, cut, mode, measure]."""
    articles = measurements["articles"]
    clusters = np.unique(articles)
    values = statistics.cluster_sums(measurements["values"], articles, clusters)
    totals = statistics.cluster_sums(measurements["totals"], articles, clusters)
    return values, np.broadcast_to(totals[:, None, None], values.shape)
