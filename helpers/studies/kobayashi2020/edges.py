"""Is attention to special tokens a no-op?  Its edges are ablated and the changes are measured.

Each measure compares the ablated with the intact model on the same texts:

- *layer output*: ``|h' - h| / |h|`` after the last ablated layer, mean over tokens;
- *sentence vector*: 1 minus the cosine of the mean vector of the last layer with the intact one;
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
from helpers.model.gradients import BATCH, contrastive_losses, paragraphs, training_losses
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
    REDISTRIBUTED,
    SPECIAL_SHARE_THRESHOLD,
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
from helpers.studies.kobayashi2020.lenses import BATCH_TOKENS, evenly_spaced_records

SHIFTS = ("layer output", "sentence vector", "token vectors")
LOSSES = ("objective",)
PROBES = ("structural probe", "Attn probe")
MAIN = "trained"  # in the column model: the model that the run is about
CONTROL_STRIDE = 4  # a control is measured on every fourth segment
KEY_COLUMNS = ["model", "layers", "keys", "queries", "share", "over_half", "change", "measure"]
ROW_COLUMNS = ["model", "layers", "keys", "queries", "over_half"]
COMPARED_MODES = ((DROPPED, MASS_MATCHED), (REDISTRIBUTED, DROPPED))  # of a ratio

# ``values`` [example, cut, mode, measure], ``totals`` [example, measure], ``articles`` [example],
# and of `representation_shifts` ``shares`` [cut, two, example].
Measurements = dict[str, np.ndarray]


def ablated_states(
    model: nn.Module, batch: Mapping[str, Tensor], ablations: Sequence[Intervention]
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

    def measure(model: nn.Module, indices: list[int]) -> tuple[np.ndarray, np.ndarray]:
        batch = padded(encoder, [inputs[index] for index in indices])
        real = batch["attention_mask"].bool()
        states = ablated_states(model, batch, ablations)
        maps, intact = next(states)
        shares = []
        for cut in cuts:
            edges = cut.edges(batch["input_ids"], token_ids[cut.keys])
            shares.append(cut_shares(maps, cut, edges, real))
        shifts = []
        for (cut, _), (_, ablated) in zip(product(cuts, MODES), states, strict=True):
            layer_from_last = cut.layers[-1] - encoder.layers
            shifts.append(representation_shift(intact, ablated, real, layer_from_last))
        return _examples_first(shifts), _examples_first(shares)

    values, shares = _measure_batches(encoder.model.base_model, inputs, measure, "edges cut")
    measurements = _measurements(values, np.ones((len(records), len(SHIFTS))), records)
    measurements["shares"] = np.ascontiguousarray(np.moveaxis(shares, 0, -1))
    return measurements


def representation_shift(
    intact: States, ablated: States, real: Bool[Tensor, "batch token"], layer: int
) -> Float[Tensor, "measure batch"]:
    """Compute the three `SHIFTS` of a batch; ``layer`` counts from the last, which is -1."""
    weights = token_weights(real)
    before = intact[layer].double()
    after = ablated[layer].double()
    output_change = (after - before).norm(dim=-1) / before.norm(dim=-1)
    before = intact[-1].double()
    after = ablated[-1].double()
    token_change = 1 - F.cosine_similarity(before, after, dim=-1)
    mean_before = torch.einsum("btw,bt->bw", before, weights)
    mean_after = torch.einsum("btw,bt->bw", after, weights)
    sentence_change = 1 - F.cosine_similarity(mean_before, mean_after, dim=-1)
    output_mean = (output_change * weights).sum(1)
    token_mean = (token_change * weights).sum(1)
    return torch.stack([output_mean, sentence_change, token_mean])


def loss_increases(
    encoder: Encoder, cuts: Sequence[Cut], records: Sequence[Record], seed: int
) -> Measurements:
    """Measure how much each ablation increases each segment's training loss, in nats."""
    batches = [records[start : start + BATCH] for start in range(0, len(records), BATCH)]
    ablations = list_ablations(encoder, cuts)

    def measure(model: nn.Module, batch: list[Record]) -> np.ndarray:
        encoder_copy = encoder.with_model(model)

        def run() -> Tensor:
            losses, _, _ = training_losses(encoder_copy, batch, np.random.default_rng(seed))
            return losses.double().cpu()

        return _examples_first([loss for loss, _ in run_interventions(model, run, ablations)])

    if encoder.objective == "contrastive":
        losses = _contrastive_losses(encoder, ablations, batches)
    else:
        label = "objective, edges cut"
        losses = np.concatenate(map_over_model_copies(encoder.model, batches, measure, label))
    return _measurements(losses[:, 1:] - losses[:, :1], np.ones((len(records), 1)), records)


def _contrastive_losses(
    encoder: Encoder, ablations: Sequence[Intervention], batches: Sequence[Sequence[Record]]
) -> Float[np.ndarray, "example pass"]:
    """Compute each pair's loss in its batch; vectors are computed in batches of similar length."""
    inputs = [text for batch in batches for text in paragraphs(encoder, batch)]

    def mean_vectors(model: nn.Module, indices: list[int]) -> list[np.ndarray]:
        batch = padded(encoder, [inputs[index] for index in indices])
        weights = token_weights(batch["attention_mask"])
        passes = run_interventions(model, partial(model, **batch), ablations)
        states = torch.stack([output.last_hidden_state.double() for output, _ in passes])
        return [torch.einsum("pbtw,bt->bpw", states, weights).cpu().numpy()]

    model = encoder.model.base_model
    (vectors,) = _measure_batches(model, inputs, mean_vectors, "objective, edges cut")
    sizes = [2 * len(batch) for batch in batches]  # both paragraphs of each pair
    losses = []
    for batch_vectors in torch.from_numpy(vectors).split(sizes):
        losses.append(_examples_first([contrastive_losses(run) for run in batch_vectors.unbind(1)]))
    return np.concatenate(losses)


def token_weights(mask: Tensor) -> Float[Tensor, "batch token"]:
    """Compute the weight of each token in the mean over the tokens that are not padding."""
    return (mask / mask.sum(dim=1, keepdim=True)).double()


def probe_accuracy_losses(encoder: Encoder, cuts: Sequence[Cut], store: Store) -> Measurements:
    """Measure how many percentage points the `PROBES` lose on each dev sentence.

    ``store`` has the word-level maps and vectors of the intact model on a treebank.
    """
    data = prepare(store)
    attention_probe = fit_linear(data, shuffled(data.splits["train"])).probe
    structural_probes, layer_table = fit_layers(data)
    best_layer = int(layer_table["chosen"].argmax())
    ablations = list_ablations(encoder, cuts)
    dev = data.splits["dev"]
    inputs = [model_inputs(encoder, store.record(sentence)) for sentence in dev]

    def score(data: ProbeData, sentences: list[int]) -> list[Counts]:
        """Count the right edges of both probes."""
        return [
            undirected_attachment(data, structural_probes[best_layer], best_layer, sentences),
            scores_of(attention_probe, data, sentences)[UAS_WITHOUT_PUNCTUATION],
        ]

    totals = [counts.total for counts in score(data, dev)]

    def measure(model: nn.Module, indices: list[int]) -> list[np.ndarray]:
        batch = padded(encoder, [inputs[index] for index in indices])
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

    model = encoder.model.base_model
    (values,) = _measure_batches(model, inputs, measure, "probes, edges cut")
    return _measurements(values, np.stack(totals, axis=1), [store.record(index) for index in dev])


def _measure_batches(
    model: nn.Module,
    inputs: Sequence[Inputs],
    measure: Callable[[nn.Module, list[int]], Sequence[np.ndarray]],
    label: str,
) -> list[np.ndarray]:
    """Measure batches of similar length, and concatenate each array in the order of the inputs."""
    lengths = [len(token_inputs["input_ids"]) for token_inputs in inputs]
    batches = length_batches(lengths, budget=BATCH_TOKENS)
    order = np.argsort(np.concatenate(batches))
    arrays_of_batches = map_over_model_copies(model, batches, measure, label)
    return [np.concatenate(arrays)[order] for arrays in zip(*arrays_of_batches, strict=True)]


def _examples_first(tensors: Sequence[Tensor]) -> np.ndarray:
    """Stack tensors whose last axis is that of the examples, which becomes the first."""
    return torch.stack(tensors).movedim(-1, 0).cpu().numpy()


def _measurements(
    values: np.ndarray, totals: np.ndarray, records: Sequence[Record]
) -> Measurements:
    """Reshape values of [example, cut and mode, *measure], and add each example's article."""
    articles = np.array([cluster_of(record, index) for index, record in enumerate(records)])
    values = values.reshape(len(values), -1, len(MODES), totals.shape[1])
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
        The main model under the name `MAIN`, and its controls.  A control is measured on every
        fourth segment.
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
        ``edges``: the mean of each measure for each cut and mode, with its bootstrap interval over
        articles, and ``share``, the share of attention on the cut edges.
        ``edge_rows``: the share of rows with over half of their attention on the cut edges.
        ``edge_ratios`` (if there is a group): the shift under one mode over that under another;
        ``lead`` is the main model's ratio minus the control's, on the same segments.

    Raises
    ------
    InputError
        If the model's input has no special tokens.
    ModelError
        If the attention is not computed by a softmax that can be replaced.
    """
    records = evenly_spaced_records(source, count)
    main = encoders[MAIN]
    cuts, main_cuts = plan_cuts(main.layers, group)
    articles = [cluster_of(record, index) for index, record in enumerate(source.records())]
    pair_indices = gradients.choose_segments(
        articles, len(records), contrastive=main.objective == "contrastive"
    )
    pairs = [source.record(index) for index in pair_indices]

    def measure(function: Callable, encoder: Encoder, *arguments: Any, **key: Any) -> Measurements:
        """Measure an encoder, or read the measurements from the cache."""
        compute = partial(function, encoder, *arguments)
        sample = {"store": source.key, "segments": len(records), "group": group}
        inputs = {**sample, "model": encoder.identity, **key}
        return cached(f"edges-{function.__name__}", compute, inputs=inputs)

    all_cuts = cuts + main_cuts
    shifts = {MAIN: measure(representation_shifts, main, all_cuts, records, control=False)}
    for name, encoder in encoders.items():
        if name != MAIN:
            shifts[name] = measure(
                representation_shifts, encoder, cuts, records[::CONTROL_STRIDE], control=True
            )
    losses = measure(loss_increases, main, cuts, pairs, seed, seed=seed)
    probe_losses = measure(probe_accuracy_losses, main, cuts, treebank, treebank=treebank.key)

    main_shares = shifts[MAIN]["shares"]
    frames = []
    for name, measurements in shifts.items():
        frames.append(_edge_rows(name, all_cuts, measurements["shares"], measurements, SHIFTS))
    frames.append(_edge_rows(MAIN, cuts, main_shares, losses, LOSSES))
    frames.append(_edge_rows(MAIN, cuts, main_shares, probe_losses, PROBES))
    edges = pd.concat(frames, ignore_index=True)
    tables = {"edges": edges.drop(columns="over_half")}
    tables["edge_rows"] = edges[ROW_COLUMNS].drop_duplicates(ignore_index=True)
    if group:
        tables["edge_ratios"] = _ratio_table(shifts, cuts.index(Cut(group)))
    return tables


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
    mean_shares = shares[:n_cuts].mean(axis=-1)
    rows = []
    for cut, (share, over_half) in zip(cuts[:n_cuts], mean_shares, strict=True):
        for mode, measure in product(MODES, measures):
            rows.append((model, cut.name, cut.keys, cut.queries, share, over_half, mode, measure))
    numerators = values.reshape(len(values), -1)
    denominators = totals.reshape(len(totals), -1)
    low, high = statistics.bootstrap_intervals(numerators, denominators)
    table = pd.DataFrame(rows, columns=KEY_COLUMNS)
    mean = numerators.sum(axis=0) / denominators.sum(axis=0)
    return table.assign(value=mean, value_low=low, value_high=high)


def _article_sums(measurements: Measurements) -> tuple[statistics.Clusters, statistics.Clusters]:
    """Sum values and totals over the examples of each article: [article, cut, mode, measure]."""
    articles = measurements["articles"]
    clusters = np.unique(articles)
    values = statistics.cluster_sums(measurements["values"], articles, clusters)
    totals = statistics.cluster_sums(measurements["totals"], articles, clusters)
    return values, np.broadcast_to(totals[:, None, None], values.shape)


def _ratio_table(shifts: Mapping[str, Measurements], cut_index: int) -> pd.DataFrame:
    """Compare the ablation modes of one cut: the table ``edge_ratios``."""
    on_control_sample = {}
    for name, array in shifts[MAIN].items():
        if name != "shares":
            on_control_sample[name] = array[::CONTROL_STRIDE]
    paired_sums = _article_sums(on_control_sample)[0][:, cut_index]  # [article, mode, measure]
    sums = {name: _article_sums(of_model)[0][:, cut_index] for name, of_model in shifts.items()}
    rows = []
    for (number, measure), (upper, lower) in product(enumerate(SHIFTS), COMPARED_MODES):
        modes = [MODES.index(upper), MODES.index(lower)]
        main_sides = paired_sums[:, modes, number].T
        for name, model_sums in sums.items():
            sides = model_sums[:, modes, number].T
            ratio = statistics.ratio(*sides)
            row = {"model": name, "ways": f"{upper} / {lower}", "measure": measure}
            row.update(ratio.columns("ratio"))
            if name != MAIN:
                lead = statistics.paired_difference(main_sides, sides)
                row.update(lead.columns("lead"))
            rows.append(row)
    return pd.DataFrame(rows)


def summarise_edge_ablation(tables: Mapping[str, pd.DataFrame], group: tuple[int, ...]) -> str:
    """Describe in sentences how far the ablation of a group of layers moves the sentence vector.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        ``edges`` and ``edge_rows`` of `edge_tables`.
    group : tuple of int
        The layers, from 0, that were ablated together.

    Returns
    -------
    str
        One line for each model, or one line if the group is empty.
    """
    if not group:
        share = f"{SPECIAL_SHARE_THRESHOLD:.0%}"
        return f"There is no layer in which special tokens get over {share} of the attention."
    layers = Cut(group).name
    is_group = f"layers == '{layers}' and keys == 'special' and queries == 'all'"
    over_half = tables["edge_rows"].query(is_group).set_index("model")["over_half"]
    rows = tables["edges"].query(f"{is_group} and measure == 'sentence vector'")
    lines = []
    for model, model_rows in rows.groupby("model", sort=False):
        by_mode = model_rows.set_index("change")
        shift = by_mode["value"]
        low, high = by_mode.loc[DROPPED, ["value_low", "value_high"]]
        dropped = shift[DROPPED]
        subject = "Dropping" if model == MAIN else f"With {model} weights, dropping"
        lines.append(
            f"{subject} the {by_mode['share'].iloc[0]:.0%} of attention that special tokens get in "
            f"layers {layers} moves the sentence vector by {dropped:.2g} ({low:.2g} to "
            f"{high:.2g}). Removing the same mass from the other tokens moves it "
            f"{shift[MASS_MATCHED] / dropped:.2g} times as far, and redistributing the mass to "
            f"them {shift[REDISTRIBUTED] / dropped:.2g} times as far. Over half of the attention "
            f"is on special tokens in {over_half[model]:.0%} of all rows."
        )
    return "\n".join(lines)
