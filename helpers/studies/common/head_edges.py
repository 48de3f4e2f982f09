"""Ablation of one attention head's edges between dependents and their syntactic heads (parents).

An edge is a weight that Table 1 reads: from the tokens of the dependent to those of the parent, or
the reverse, in one head.  All edges of a relation in a sentence are ablated at once; the other
weights of the row, other rows and other heads stay as they are.  The effects are read in the last
layer:

- a word *turns* by the angle, in degrees, between its vectors before and after.  For small angles
  it is a length, and 1 minus the cosine half of its square;
- a probe *loses* the decrease of the log-probability, in nats, of the word's parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.data.records import Record
from helpers.metrics.heads import DIRECTIONS, Direction, gold_links
from helpers.model.encoder import Encoder
from helpers.model.forward import padded, to_words, vectors_to_words
from helpers.model.sites import Weights
from helpers.probes.data import ProbeData
from helpers.store.store import Store
from helpers.studies.common.edge_cuts import Edges, ablate_edges, mark_keys, patch_layers
from helpers.studies.common.head_removal import (
    Intervention,
    map_over_model_copies,
    run_interventions,
)

RESAMPLED = "resampled"  # the rows of the edges are those of the next sentence of the batch
# "turns" and "loses" are of dependent and parent, over all edges or over those that can be matched.
# "attention" and "unmatched" are of the edges.
MEASURES = (
    "turns", "turns, matched", "loses, matched", "turns, other words", "loses, other words",
    "attention", "unmatched",
)  # fmt: skip

WordVectors = Float[Tensor, "word width"]
WordValues = Float[np.ndarray, " word"]
Probe = Callable[[int, WordVectors], WordValues]  # of a sentence; log-probability of each parent


class HeadCut(NamedTuple):
    """An ablation of the edges of a head; layer and head are from 0.

    The mode is one of `edge_cuts.MODES`, or `RESAMPLED`.
    """

    layer: int
    head: int
    direction: Direction
    mode: str


class RelationEdge(NamedTuple):
    """A dependent, its parent, and the edge between them: from a query to a key.

    All four are words, counted from 0.
    """

    dependent: int
    parent: int
    query: int
    key: int


def relation_edges(record: Record, relation: str, direction: Direction) -> list[RelationEdge]:
    """List the edges of a relation in a sentence, in one direction.

    The edge of a possessor is that of its 's (section 4.2).
    """
    edges = []
    for question in gold_links(record):
        if question.relation != relation:
            continue
        dependent = question.word
        (parent,) = question.gold
        reader = dependent if question.mark is None else question.mark
        if direction == DIRECTIONS[0]:
            edges.append(RelationEdge(dependent, parent, query=reader, key=parent))
        else:
            edges.append(RelationEdge(dependent, parent, query=parent, key=reader))
    return edges


def cut_head_edges(
    model: nn.Module,
    cut: HeadCut,
    edges: Edges,
    is_word: Bool[Tensor, "batch 1 #query key"],
) -> AbstractContextManager:
    """Ablate edges in one head inside the context, see `edge_cuts.patch_layers`.

    Parameters
    ----------
    model
        An encoder or a decoder.
    cut
        The head and the mode.
    edges
        The edges of the sentences that are passed to the model, which have the same length.
    is_word
        The keys that mass-matched ablation may take mass from.
    """

    def ablate(weights: Weights) -> Weights:
        head_weights = weights[:, [cut.head]]
        if cut.mode == RESAMPLED:
            has_edge = edges.any(dim=-1, keepdim=True)
            changed = torch.where(has_edge, head_weights.roll(-1, 0), head_weights)
        else:
            changed = ablate_edges(head_weights, edges, cut.mode, is_word)
        return weights.index_copy(1, torch.tensor([cut.head]).to(edges.device), changed)

    return patch_layers(model, (cut.layer,), ablate)


def turned_angles(
    before: Float[Tensor, "*word width"], after: Float[Tensor, "*word width"]
) -> Float[Tensor, "*word"]:
    """Compute the angle between two vectors of each word, in degrees; 0 if they are the same."""
    chord = (F.normalize(before, dim=-1) - F.normalize(after, dim=-1)).norm(dim=-1)
    return torch.rad2deg(2 * torch.asin((chord / 2).clamp(max=1)))


def word_positions(record: Record) -> slice:
    """Select the words of a sentence, without the special tokens around them."""
    return slice(record["offset"], record["offset"] + len(record["words"]))


def word_vectors(states: Float[Tensor, "token width"], record: Record) -> WordVectors:
    """Average the vectors of the tokens of each word of a sentence."""
    return vectors_to_words(states, record["inputs"]["groups"])[word_positions(record)]


def with_vectors(data: ProbeData, sentence: int, layer: int, vectors: WordVectors) -> ProbeData:
    """Replace the hidden states that a probe reads of a sentence by other vectors of its words.

    The mean of the sentence is subtracted, as from all states of a probe.  The result has no states
    of other sentences or layers.
    """
    centred = (vectors - vectors.mean(dim=0)).cpu().numpy()
    return replace(data, states={(sentence, layer): centred})


def cut_passes(
    encoder: Encoder,
    model: nn.Module,
    records: Sequence[Record],
    relation: str,
    cuts: Sequence[HeadCut],
) -> Iterator[Any]:
    """Yield the output of a model for sentences of one length, intact and under each ablation.

    Parameters
    ----------
    encoder
        The model with its tokenizer.
    model
        A copy of the model, with or without its head for a task.
    records
        The sentences, each with a word of the relation.
    relation
        Name of the relation.
    cuts
        The ablations.
    """
    tensors = padded(encoder, [record["inputs"] for record in records])
    is_word = ~mark_keys(tensors["input_ids"], encoder.special_ids)
    interventions = []
    for cut in cuts:
        masks = [mark_edges(record, relation, cut.direction) for record in records]
        edges = torch.stack(masks)[:, None].to(encoder.model.device)
        context = partial(cut_head_edges, cut=cut, edges=edges, is_word=is_word)
        interventions.append(Intervention(cut.layer, context))
    run = partial(model, **tensors, output_attentions=True, output_hidden_states=True)
    return run_interventions(model, run, interventions)


def edge_effects(
    encoder: Encoder,
    store: Store,
    batches: Sequence[Sequence[int]],
    relation: str,
    cuts: Sequence[HeadCut],
    probe: Probe | None,
) -> Float[np.ndarray, "two sentence cut measure"]:
    """Measure what each ablation of a relation's edges does to the words of some sentences.

    Parameters
    ----------
    encoder
        The model.
    store
        A treebank at word level; its records are read, not its maps.
    batches
        Sentences by their index in the store.  Those of a batch have the same number of tokens, and
        each of them has a word of the relation.
    relation
        Name of the relation.
    cuts
        The ablations.
    probe
        Function of a sentence and its word vectors in the last layer; without it, nothing is lost.

    Returns
    -------
    array
        Sums of `MEASURES` over the edges or words of each sentence, and their numbers.
    """

    def measure(model: nn.Module, batch: Sequence[int]) -> Float[np.ndarray, "cut row two measure"]:
        records = [store.record(sentence) for sentence in batch]
        passes = cut_passes(encoder, model, records, relation, cuts)
        intact = next(passes)
        sums = []
        for cut, ablated in zip(cuts, passes, strict=True):
            for row, (sentence, record) in enumerate(zip(batch, records, strict=True)):
                before, after = [
                    word_vectors(output.hidden_states[-1][row].double().cpu(), record)
                    for output in (intact, ablated)
                ]
                turned = turned_angles(before, after).numpy()
                lost = np.zeros_like(turned)
                if probe is not None:
                    lost = probe(sentence, before) - probe(sentence, after)
                weights = intact.attentions[cut.layer][row, cut.head].float()
                words = word_positions(record)
                attention = to_words(weights, record["inputs"]["groups"])[words, words].numpy()
                edges = relation_edges(record, relation, cut.direction)
                sums.append(sum_over_words(edges, turned, lost, attention))
        return np.reshape(sums, (len(cuts), len(batch), 2, len(MEASURES)))

    label = f"edges of {relation}"
    measured = map_over_model_copies(encoder.model.base_model, batches, measure, label)
    return np.concatenate(measured, axis=1).transpose(2, 1, 0, 3)


def mark_edges(record: Record, relation: str, direction: Direction) -> Bool[Tensor, "query key"]:
    """Mark the edges of a relation among the tokens of a sentence."""
    word_of_token = torch.tensor(record["inputs"]["groups"]) - record["offset"]
    is_edge = torch.zeros(len(word_of_token), len(word_of_token), dtype=torch.bool)
    for edge in relation_edges(record, relation, direction):
        is_edge |= (word_of_token == edge.query)[:, None] & (word_of_token == edge.key)
    return is_edge


def sum_over_words(
    edges: Sequence[RelationEdge],
    turned: WordValues,
    lost: WordValues,
    attention: Float[np.ndarray, "query key"],
) -> Float[np.ndarray, "two measure"]:
    """Sum the `MEASURES` of a sentence, and count what each of the sums is over.

    An edge can be matched if the other words of its row have as much attention.
    """
    dependents, parents, queries, keys = np.transpose(edges)
    mass = attention[queries, keys]
    is_matched = mass <= attention[queries].sum(axis=1) - mass
    edge_turns = (turned[dependents] + turned[parents]) / 2
    is_other = np.ones(len(turned), bool)
    is_other[[*dependents, *parents]] = False
    parts = (
        edge_turns, edge_turns[is_matched], lost[dependents[is_matched]], turned[is_other],
        lost[is_other], mass, ~is_matched,
    )  # fmt: skip
    return np.array([[np.sum(part) for part in parts], [len(part) for part in parts]])
