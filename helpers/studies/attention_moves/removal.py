"""What depends on a head: its output taken out, one head at a time (notebook 10, part two).

Two kinds of removal: the output is set to zero, or to its mean over the corpus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.data.records import Record, cluster_of
from helpers.model import gradients
from helpers.model.checkpoint import Objective
from helpers.model.encoder import Encoder
from helpers.model.forward import model_inputs, padded
from helpers.model.parallel import length_batches
from helpers.studies.activation_cache import Change, outputs_under
from helpers.studies.attention_moves.probe_reading import (
    NOT_COUNTED,
    PROBES,
    Probes,
    Reading,
    read_probes,
)
from helpers.studies.head_mask import head_output, mean_outputs

KINDS = ("zero", "mean")
BATCH_TOKENS = 512
PAIRS_AT_ONCE = 16  # the contrastive loss is that of finding one's own neighbour among so many
SEGMENTS_AT_ONCE = 4


@dataclass(frozen=True)
class Found:
    """What probes find without each head, summed by article and relation.

    ``right`` is of the intact model and then of each change: kind by kind, head by head of the
    first ``layers`` layers (the others can change nothing here).
    """

    relations: tuple[str, ...]
    total: Int[np.ndarray, "probe article relation"]
    right: Int[np.ndarray, "change probe article relation"]
    layers: int
    heads: int

    def lost(self, probe: int, kind: int) -> Int[np.ndarray, "layer head article relation"]:
        """Return how many fewer words are right without each head (negative: more)."""
        own = self.right[:, probe]
        without = own[1:].reshape(len(KINDS), self.layers, self.heads, *own.shape[1:])
        return own[0] - without[kind]


def changes_of(means: Float[Tensor, "layer head width"], layers: int) -> list[Change]:
    """Return the removals of each kind of each head of the first ``layers`` layers."""
    return [
        Change(layer, partial(head_output, layer=layer, head=head, output=vector))
        for kind in KINDS
        for layer, head in product(range(layers), range(means.shape[1]))
        for vector in [means[layer, head] if kind == "mean" else torch.zeros(means.shape[2])]
    ]


def found_without_heads(
    encoder: Encoder, records: Sequence[Record], probes: Probes, means: Tensor
) -> Found:
    """Return what the probes find of each relation without each head, for parsed sentences."""
    inputs = [model_inputs(encoder, record) for record in records]
    batches = length_batches([len(i["input_ids"]) for i in inputs], budget=BATCH_TOKENS)
    layers = max(probes.reached(probe, encoder.layers) for probe in PROBES)
    changes = changes_of(means, layers)

    def read(model: nn.Module, batch: list[int], intact: Reading | None) -> Reading:
        sentences = [(records[i], inputs[i]["groups"]) for i in batch]
        own = padded(encoder, [inputs[i] for i in batch])
        return read_probes(model, own, sentences, probes, intact)

    readings = outputs_under(encoder.model, batches, changes, read, label="heads taken out")
    relations = sorted({name for record in records for name in record["relations"]})
    articles: dict[str, int] = {}
    owner = [
        articles.setdefault(cluster_of(record, i), len(articles))
        for i, record in enumerate(records)
    ]
    total = np.zeros((len(PROBES), len(articles), len(relations)), int)
    right = np.zeros((1 + len(changes), *total.shape), int)
    for batch, found in zip(batches, readings, strict=True):
        for row, i in enumerate(batch):
            for word, name in enumerate(records[i]["relations"]):
                own, place = found[:, row, :, word].numpy(), relations.index(name)
                total[:, owner[i], place] += own[0] != NOT_COUNTED
                right[:, :, owner[i], place] += own == 1
    return Found(tuple(relations), total, right, layers, encoder.heads)


def objective_without_heads(
    encoder: Encoder, records: Sequence[Record], *, seed: int = 0
) -> Float[np.ndarray, "change example measure"]:
    """Return loss (nats) and similarity of each segment's paragraphs, intact and without heads.

    The loss is that of the model's objective, the similarity the cosine of the paragraphs' mean
    vectors.  Changes are in the order of `changes_of`, the unchanged model first.
    """
    inputs = [model_inputs(encoder, record) for record in records]
    changes = changes_of(mean_outputs(encoder, inputs), encoder.layers)
    jobs = [
        padded(encoder, inputs[some])
        | {"seconds": torch.tensor([r["second"] for r in records[some]])}
        for some in _parts(records)
    ]
    label = "heads taken out: paragraphs"
    found = outputs_under(encoder.model, jobs, changes, _paragraphs, label=label)
    first, second = torch.cat(found, dim=1).unbind(2)  # [change, pair, width]
    if encoder.objective == "contrastive":
        sides = zip(*(side.split(PAIRS_AT_ONCE, dim=1) for side in (first, second)), strict=True)
        losses = torch.cat([_contrastive(*both) for both in sides], dim=1).numpy()
    else:
        losses = _losses_without_heads(encoder, records, changes, seed)
    return np.stack([losses, (first * second).sum(dim=-1).numpy()], axis=-1)


def _losses_without_heads(
    encoder: Encoder, records: Sequence[Record], changes: Sequence[Change], seed: int
) -> Float[np.ndarray, "change example"]:
    inputs = labels = [model_inputs(encoder, record) for record in records]
    if encoder.objective == "masked-lm":
        inputs, labels = gradients.corrupted(encoder, inputs, np.random.default_rng(seed))
    jobs = []
    for some in _parts(records):
        batch = padded(encoder, inputs[some])
        length = batch["input_ids"].shape[1]
        jobs.append(batch | {"targets": gradients.targets_of(labels[some], length, encoder.device)})
    read = partial(_token_losses, encoder.objective)
    found = outputs_under(encoder.model, jobs, changes, read, label="heads taken out: loss")
    return torch.cat(found, dim=1).numpy()


def _parts(records: Sequence[Record]) -> list[slice]:
    starts = range(0, len(records), SEGMENTS_AT_ONCE)
    return [slice(start, start + SEGMENTS_AT_ONCE) for start in starts]


def _paragraphs(
    model: nn.Module, batch: Mapping[str, Tensor], _: object
) -> tuple[Float[Tensor, "pair side width"]]:
    """Return the vectors of both paragraphs of each segment of a batch."""
    inputs = {name: tensor for name, tensor in batch.items() if name != "seconds"}
    states, inside = model.base_model(**inputs).last_hidden_state, batch["attention_mask"].bool()
    return (torch.stack(gradients.paragraph_vectors(states, inside, batch["seconds"]), dim=1),)


def _contrastive(
    first: Float[Tensor, "change pair width"], second: Float[Tensor, "change pair width"]
) -> Float[Tensor, "change pair"]:
    """Return the loss of telling each paragraph's neighbour from those of the other pairs."""
    scores = gradients.SCALE * first @ second.mT
    ways = (F.log_softmax(way, dim=-1) for way in (scores, scores.mT))
    return -sum(way.diagonal(dim1=-2, dim2=-1) for way in ways) / 2


def _token_losses(
    objective: Objective, model: nn.Module, batch: Mapping[str, Tensor], _: object
) -> tuple[Float[Tensor, " example"]]:
    inputs = {name: tensor for name, tensor in batch.items() if name != "targets"}
    return (gradients.token_losses(model(**inputs).logits, batch["targets"], objective),)
