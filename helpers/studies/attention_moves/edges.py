"""Is attention to special tokens a no-op?  Its edges are cut, and what changes is measured.

Each measure is a difference from the intact model on the same texts:

- *layer output*: ``|h' - h| / |h|`` after the last of the layers, mean over tokens;
- *sentence vector*, *token vectors*: one less the cosine of the mean of the last layer's vectors
  with what it was, and of each of them, mean over tokens;
- *objective*: how far its loss rises, in nats (`helpers.model.gradients`);
- *structural probe*, *Attn probe*: how many points of UUAS, and of UAS without punctuation, they
  lose on dev, fitted to the intact model.  Attn reads where heads look, before the cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.analysis import statistics
from helpers.analysis.paper import UAS_WITHOUT_PUNCTUATION
from helpers.analysis.probe_data import attention_block, prepare
from helpers.analysis.structural_probe import fit_layers, prepare_states, undirected_attachment
from helpers.analysis.table3 import ATTN, UAS, attachment, linear_results
from helpers.analysis.training import predicted_heads
from helpers.cache import cached
from helpers.data.records import Record, cluster_of
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
from helpers.model.gradients import BATCH, contrastive_losses, objective, paragraphs
from helpers.model.sites import Weights
from helpers.model.weights import Loaded
from helpers.store.store import Example, Store
from helpers.studies import edge_cuts
from helpers.studies.attention_moves.lenses import BATCH_TOKENS, spread
from helpers.studies.edge_cuts import DROPPED, GIVEN, TAKEN, WAYS, Cut, changes_of, keys_of, shares
from helpers.studies.head_removal import Change, passes_under, side_by_side

MEASURES = {
    "movements": ("layer output", "sentence vector", "token vectors"),
    "losses": ("objective",),
    "probe_losses": ("structural probe", "Attn probe"),
}
OWN = "own"
EVERY = 4  # segments, one is measured in a control too
COLUMNS = ["model", "layers", "keys", "queries", "share", "over_half", "change", "measure"]

# ``values`` [cut, way, measure, item], ``totals`` [measure, item], ``articles`` [item].
Measured = dict[str, np.ndarray]


def views(
    model: nn.Module, batch: Mapping[str, Tensor], changes: Sequence[Change]
) -> Iterator[tuple[list[Weights], States]]:
    """Yield each layer's attention and vectors, of the intact model and under each change.

    Attention is what the softmax gives: where heads look, before edges are cut.
    """
    run = partial(model, **batch, output_attentions=True, output_hidden_states=True)
    passes = passes_under(model, run, changes)
    intact, _ = next(passes)
    layers = len(intact.attentions)
    yield list(intact.attentions), intact.hidden_states
    for change, (found, before) in zip(changes, passes, strict=True):
        later = range(change.layer, layers)  # what is below may not be there: it was not computed
        maps = [before.get(layer, found.attentions[layer - layers]) for layer in later]
        yield [*intact.attentions[: change.layer], *maps], found.hidden_states


def movements(encoder: Encoder, cuts: Sequence[Cut], records: Sequence[Record]) -> Measured:
    """Return how far each cut moves the vectors of each segment.

    Beside it ``shares`` [cut, two, segment]: see `shares`.
    """
    inputs = [model_inputs(encoder, record) for record in records]
    keys, changes, layers = keys_of(encoder), changes_of(encoder, cuts), encoder.layers

    def job(model: nn.Module, own: list[int]) -> tuple[np.ndarray, np.ndarray]:
        batch = padded(encoder, [inputs[index] for index in own])
        real, seen = batch["attention_mask"].bool(), views(model, batch, changes)
        maps, intact = next(seen)
        chosen = [cut.edges(batch["input_ids"], keys[cut.keys]) for cut in cuts]
        lost = [shares(maps, *each, real) for each in zip(cuts, chosen, strict=True)]
        ends = [cut.layers[-1] - layers for cut in cuts for _ in WAYS]
        moved = [movement(intact, now, real, end) for end, (_, now) in zip(ends, seen, strict=True)]
        return tuple(torch.stack(part).cpu().numpy() for part in (moved, lost))

    values, lost = _over_batches(encoder.model.base_model, inputs, job, "edges cut")
    return _measured(values, np.ones(values.shape[1:]), records) | {"shares": lost}


def movement(
    intact: States, now: States, real: Bool[Tensor, "batch token"], end: int
) -> Float[Tensor, "measure batch"]:
    """Return how far vectors have moved; ``end`` is the layer, counted from the last."""
    weights = (real / real.sum(dim=1, keepdim=True)).double()  # of a mean over tokens
    before, after = (states[end].double() for states in (intact, now))
    output = (after - before).norm(dim=-1) / before.norm(dim=-1)
    before, after = (states[-1].double() for states in (intact, now))
    tokens = 1 - F.cosine_similarity(before, after, dim=-1)
    means = (torch.einsum("btw,bt->bw", states, weights) for states in (before, after))
    sentence = 1 - F.cosine_similarity(*means, dim=-1)
    return torch.stack([(output * weights).sum(1), sentence, (tokens * weights).sum(1)])


def losses(encoder: Encoder, cuts: Sequence[Cut], records: Sequence[Record], seed: int) -> Measured:
    """Return how far each cut raises each segment's loss, in batches as the objective has them."""
    batches = [records[i : i + BATCH] for i in range(0, len(records), BATCH)]
    changes = changes_of(encoder, cuts)
    if encoder.objective == "contrastive":
        found = _contrastive_losses(encoder, changes, batches)
        return _measured(found[1:] - found[0], np.ones((1, len(records))), records)

    def job(model: nn.Module, own: list[Record]) -> np.ndarray:
        with_copy = replace(encoder, read=lambda: Loaded(model, encoder.tokenizer, {}))

        def run() -> Tensor:
            return objective(with_copy, own, np.random.default_rng(seed))[0].double().cpu()

        intact, *found = (each for each, _ in passes_under(model, run, changes))
        return (torch.stack(found) - intact).numpy()

    found = side_by_side(encoder.model, batches, job, "objective, edges cut")
    return _measured(np.concatenate(found, axis=-1), np.ones((1, len(records))), records)


def _contrastive_losses(
    encoder: Encoder, changes: Sequence[Change], batches: Sequence[Sequence[Record]]
) -> Float[np.ndarray, "pass example"]:
    """Return each pair's loss in its batch, by vectors that are made in batches of one length."""
    inputs = [text for batch in batches for text in paragraphs(encoder, batch)]

    def job(model: nn.Module, own: list[int]) -> list[np.ndarray]:
        batch = padded(encoder, [inputs[index] for index in own])
        passes = passes_under(model, partial(model, **batch), changes)
        real = (batch["attention_mask"] / batch["attention_mask"].sum(dim=1, keepdim=True)).double()
        states = torch.stack([found.last_hidden_state.double() for found, _ in passes])
        return [torch.einsum("pbtw,bt->pwb", states, real).cpu().numpy()]

    (vectors,) = _over_batches(encoder.model.base_model, inputs, job, "objective, edges cut")
    of_batches = torch.from_numpy(vectors).mT.split([2 * len(batch) for batch in batches], dim=1)
    losses = [[contrastive_losses(one) for one in batch] for batch in of_batches]
    return torch.cat([torch.stack(batch) for batch in losses], dim=1).numpy()


def probe_losses(encoder: Encoder, cuts: Sequence[Cut], store: Store) -> Measured:
    """Return what of each dev sentence the probes get right no more, in percent.

    ``store`` has the intact model's word-level maps and vectors of a treebank.
    """
    states, data, changes = prepare_states(store), prepare(store), changes_of(encoder, cuts)
    fits, table = fit_layers(states)
    best, dev = int(table["chosen"].argmax()), data.splits["dev"]
    attn = linear_results(data, ATTN, control_task=False)[0].fits[UAS].probe
    states, data = replace(states, states={}), replace(data, blocks={})  # without the store's
    records = [store.record(index) for index in dev]
    inputs = [model_inputs(encoder, record) for record in records]

    def read(own: list[int], maps: Sequence[Weights], vectors: Tensor) -> np.ndarray:
        """Return how much of each sentence is right, and of how much: [two, probe, sentence]."""
        blocks, words = {}, {}
        for row, place in enumerate(own):
            index, record, groups = dev[place], records[place], inputs[place]["groups"]
            n = len(groups)
            looks = to_words(torch.stack([each[row, :, :n, :n] for each in maps]).float(), groups)
            example = Example(index, looks.half().cpu().numpy(), record, None, record["offset"])
            blocks[index] = attention_block(example)
            hidden = vectors_to_words(vectors[row, :n].float(), groups)[example.word_positions]
            words[index] = {best: (hidden - hidden.mean(dim=0)).cpu().numpy()}
        parses = [data.parses[index] for index in blocks]
        heads = predicted_heads(attn, replace(data, blocks=blocks), list(blocks))
        found = (
            undirected_attachment(replace(states, states=words), fits[best], best, list(blocks)),
            attachment(parses, heads)[UAS_WITHOUT_PUNCTUATION],
        )
        return np.array([[each.right[0] for each in found], [each.total for each in found]])

    def job(model: nn.Module, own: list[int]) -> tuple[np.ndarray, np.ndarray]:
        batch, end = padded(encoder, [inputs[place] for place in own]), best - encoder.layers - 1
        seen = [read(own, maps, now[end]) for maps, now in views(model, batch, changes)]
        right, total = np.stack(seen, axis=1)  # [pass, probe, sentence]
        return 100 * (right[0] - right[1:]), total[0]

    found = _over_batches(encoder.model.base_model, inputs, job, "probes, edges cut")
    return _measured(*found, records)


def _over_batches(
    model: nn.Module,
    inputs: Sequence[Inputs],
    job: Callable[[nn.Module, list[int]], Sequence[np.ndarray]],
    label: str,
) -> list[np.ndarray]:
    """Return what a job gives of batches of similar length, in the order of the inputs."""
    batches = length_batches([len(item["input_ids"]) for item in inputs], budget=BATCH_TOKENS)
    order = np.argsort(np.concatenate(batches))
    found = zip(*side_by_side(model, batches, job, label), strict=True)
    return [np.concatenate(part, axis=-1)[..., order] for part in found]


def _measured(values: np.ndarray, totals: np.ndarray, records: Sequence[Record]) -> Measured:
    """Return values of [cut and way, *measure, item] with where the items are from."""
    articles = np.array([cluster_of(own, index) for index, own in enumerate(records)])
    shape = -1, len(WAYS), len(totals), len(records)
    return {"values": values.reshape(shape), "totals": totals, "articles": articles}


def edge_tables(
    encoders: Mapping[str, Encoder],
    source: Store,
    treebank: Store,
    group: tuple[int, ...],
    *,
    count: int,
    seed: int,
) -> dict[str, pd.DataFrame]:
    """Return what cutting edges changes, on ``count`` segments and the dev of a treebank.

    ``encoders`` are the model itself (`OWN`) and its controls; ``group`` has the layers (from 0)
    that are cut together.  ``edges`` has a row for each cut, way and measure, with intervals over
    articles, ``edge_rows`` the share of rows with over half of their attention on what is cut, and
    ``edge_ratios``, of the group, how far one way moves over how far another does; of a control
    (measured on every fourth segment) with the ``lead`` of the model's ratio, paired.
    """
    records, (plain, more) = spread(source, count), edge_cuts.cuts_of(encoders[OWN].layers, group)
    articles = [cluster_of(record, index) for index, record in enumerate(source.records())]
    contrastive = encoders[OWN].objective == "contrastive"
    places = gradients.chosen_segments(articles, len(records), contrastive=contrastive)
    pairs = [source.record(place) for place in places]
    text = {"store": source.key, "segments": len(records), "group": group}

    def kept(name: str, measure: Callable[..., Measured], *given: Any, **facts: Any) -> Measured:
        encoder, cuts = encoders[name], plain + more * (measure is movements and name == OWN)
        facts |= text | {"model": encoder.identity, "control": name != OWN}
        compute = partial(measure, encoder, cuts, *given)
        return cached(f"edges-{measure.__name__}", compute, inputs=facts, module=__name__)

    moved = {name: kept(name, movements, records[:: EVERY ** (name != OWN)]) for name in encoders}
    parts = [(name, "movements", found) for name, found in moved.items()]
    parts.append((OWN, "losses", kept(OWN, losses, pairs, seed, seed=seed)))
    parts.append((OWN, "probe_losses", kept(OWN, probe_losses, treebank, treebank=treebank.key)))
    frames = []
    for name, part, found in parts:
        over, under = (sums.reshape(len(sums), -1) for sums in _by_article(found))
        own = zip(plain + more, moved[name]["shares"], found["values"], strict=False)
        names = [
            (name, cut.name, cut.keys, cut.queries, *lost.mean(axis=-1), way, measure)
            for cut, lost, _ in own
            for way in WAYS
            for measure in MEASURES[part]
        ]
        low, high = statistics.bootstrap_intervals(over, under)
        numbers = {"value": over.sum(axis=0) / under.sum(axis=0), "ci_low": low, "ci_high": high}
        frames.append(pd.DataFrame(names, columns=COLUMNS).assign(**numbers))
    edges = pd.concat(frames, ignore_index=True)
    rows = edges[[*COLUMNS[:4], "over_half"]].drop_duplicates(ignore_index=True)
    tables = {"edges": edges.drop(columns="over_half"), "edge_rows": rows}
    return tables | ({"edge_ratios": _ratios(moved, plain.index(Cut(group)))} if group else {})


def _by_article(found: Measured) -> tuple[statistics.Clusters, statistics.Clusters]:
    """Return the sums of values and of totals: [article, cut, way, measure]."""
    clusters = np.unique(found["articles"])
    values, totals = (
        statistics.cluster_sums(np.moveaxis(found[name], -1, 0), found["articles"], clusters)
        for name in ("values", "totals")
    )
    return values, np.broadcast_to(totals[:, None, None], values.shape)


def _ratios(moved: Mapping[str, Measured], at: int) -> pd.DataFrame:
    """Return what `edge_tables` says of ratios, of one cut."""
    rows, sums = [], {name: _by_article(found)[0][:, at] for name, found in moved.items()}
    shared, _ = _by_article({name: own[..., ::EVERY] for name, own in moved[OWN].items()})
    for number, measure in enumerate(MEASURES["movements"]):
        for over, under in ((DROPPED, TAKEN), (GIVEN, DROPPED)):
            ways = [WAYS.index(over), WAYS.index(under)]
            own = shared[:, at, ways, number].T
            for name, each in sums.items():
                sides = each[:, ways, number].T
                row = {"model": name, "ways": f"{over} / {under}", "measure": measure}
                row |= statistics.ratio(*sides).columns("ratio")
                if name != OWN:
                    bounds = np.concatenate(statistics.paired_interval(own, sides))
                    lead = own[0].sum() / own[1].sum() - row["ratio"]
                    row |= statistics.Estimate(lead, *bounds).columns("lead")
                rows.append(row)
    return pd.DataFrame(rows)


def in_words(tables: Mapping[str, pd.DataFrame], group: tuple[int, ...]) -> str:
    """Return how far the sentence vector moves, in words that a reader can hold."""
    if not group:
        return f"In no layer do special tokens get over {edge_cuts.MUCH:.0%} of the attention."
    own = f"layers == '{Cut(group).name}' and keys == 'special' and queries == 'all'"
    said, halves = [], tables["edge_rows"].query(own).set_index("model")["over_half"]
    rows = tables["edges"].query(f"{own} and measure == 'sentence vector'")
    for model, ways in rows.set_index("change").groupby("model", sort=False):
        dropped, given, taken = (ways.loc[way, "value"] for way in WAYS)
        low, high = ways.loc[DROPPED, ["ci_low", "ci_high"]]
        whose = "" if model == OWN else f"With {model} weights, "
        said.append(
            f"{whose}dropping the {ways['share'].iloc[0]:.0%} of attention that special tokens get "
            f"in layers {Cut(group).name} moves the sentence vector by {dropped:.2g} "
            f"({low:.2g} to {high:.2g}); taking as much from words moves it {taken / dropped:.2g} "
            f"times as far, giving it to them {given / dropped:.2g} times. Of all rows "
            f"{halves[model]:.0%} have over half of their attention on special tokens."
        )
    return "\n".join(sentence[0].upper() + sentence[1:] for sentence in said)
