"""Cut an edge of one attention head, and measure what the model loses.

An *edge* is the attention from the tokens of one word, the query, to those of another, the key, in
one head.  The other weights of the row, other rows and other heads stay as they are.  An *edge
case* is an edge in a text, and the outcome that is read there:

- the *log-probability*, in nats, of a word that the model predicts, or the difference between the
  log-probabilities of two forms of a word (log-odds);
- the *angle*, in degrees, by which the vectors of some words in the last layer turn.

The *first-order effect* of an edge on the log-probability is the gradient with respect to the
weight, times the weight.  It says what the edge brings, to first order, and one backward pass gives
it for all heads.  The *true effect* takes a pass of the model without the edge.  A decoder computes
the tokens before the query once, because no edge of the query changes them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import groupby, product
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map
from transformers import PreTrainedModel

from beyond.papers.common.edge_cuts import DROPPED, MOST_ATTENDED, ablate_edges
from beyond.papers.common.head_removal import (
    map_over_model_copies,
    repeatable_layers,
    skip_layers,
)
from helpers.data.links import read_links
from helpers.data.records import Record
from helpers.errors import ModelError
from helpers.metrics.heads import DIRECTIONS, Direction
from helpers.model.forward import vectors_to_words
from helpers.model.loading import Model
from helpers.model.sites import PatchSoftmax, Scores, Weights

NEXT_TOKEN = "next-token"  # the objective of a decoder
EFFECTS = LOG_PROBABILITY, ANGLE = "log-probability", "angle"
MAX_ROWS = 64  # copies of a text in one batch, each with another cut

Tokens = tuple[int, ...]
WordVectors = Float[Tensor, "word width"]


class EdgeCase(NamedTuple):
    """An edge in a text, and where its effect is read.  Tokens are numbered from 0.

    Attributes
    ----------
    token_ids : tuple of int
        The input of the model.
    queries, keys : tuple of int
        The tokens of the two words.  A decoder's queries begin after the keys, or with the last.
    words : tuple of tuple of int
        The tokens of each word whose vector may turn.
    article : str
        The article of the text.
    position : int
        The token whose logits predict the first token of a continuation.
    continuations : tuple of tuple of int
        The ids of a word that is predicted; or of two forms, and the outcome is the first minus
        the second.  Without any, only angles are measured.
    """

    token_ids: Tokens
    queries: Tokens
    keys: Tokens
    words: tuple[Tokens, ...]
    article: str
    position: int = 0
    continuations: tuple[Tokens, ...] = ()


class HeadCut(NamedTuple):
    """A change of an edge in one head; layer and head are from 0.

    Each query of the edge gives the key this weight, divided equally over the key's tokens; 0
    removes the edge.  In the mode `MOST_ATTENDED` the edge stays, and the most attended other words
    of its row lose as much attention as it has.
    """

    layer: int
    head: int
    weight: float = 0.0
    mode: str = DROPPED


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
    links = read_links(record)
    for row in np.flatnonzero((links.relation == relation) & ~links.is_root):
        dependent, reader = int(links.word[row]), int(links.query[row])
        (parent,) = np.flatnonzero(links.gold[row]).tolist()
        if direction == DIRECTIONS[0]:
            edges.append(RelationEdge(dependent, parent, query=reader, key=parent))
        else:
            edges.append(RelationEdge(dependent, parent, query=parent, key=reader))
    return edges


def tokens_of_word(record: Record, word: int) -> Tokens:
    """List the positions of a word's tokens in the input of its sentence."""
    groups = np.array(record["inputs"]["groups"])
    return tuple(np.flatnonzero(groups == word + record["offset"]).tolist())


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


class EdgePass:
    """Passes of a model over one edge case, intact or with one change in each copy of the text.

    Parameters
    ----------
    encoder
        The model with its tokenizer.
    model
        A copy of the model.
    case
        The edge, and where its effect is read.

    Attributes
    ----------
    first : int
        The first token that is computed in each pass; those before it are in the cache.
    endings : list of tuple of int
        The different ends of the input: each form of a word without its last token.
    edge : Tensor of bool, shape (query, key)
        The weights of the edge.
    is_word : Tensor of bool, shape (1, key)
        The keys that are no special tokens.
    """

    def __init__(self, encoder: Model, model: nn.Module, case: EdgeCase) -> None:
        self.model = model
        self.case = case
        self.takes_token_types = encoder.takes_token_types
        self.first = 0
        self.cache = None
        self.layer_outputs: dict[nn.Module, Any] = {}
        device = encoder.model.device
        token_ids = torch.tensor(case.token_ids, device=device)
        if encoder.objective == NEXT_TOKEN and not has_window(encoder):
            self.first = min(*case.queries, case.position)
        if self.first:
            with torch.no_grad():
                prefix = model(token_ids[None, : self.first], use_cache=True)
            self.cache = prefix.past_key_values
        self.endings = list(dict.fromkeys(form[:-1] for form in case.continuations)) or [()]
        longest = max(map(len, self.endings))
        # What stands behind a shorter form is not seen by it.
        padded_endings = [[*ending, *[0] * (longest - len(ending))] for ending in self.endings]
        rest = token_ids[self.first :].expand(len(self.endings), -1)
        endings = torch.tensor(padded_endings, dtype=torch.long, device=device)
        self.tokens = torch.cat([rest, endings], dim=1)  # [ending, token]
        n_tokens = len(token_ids) + longest
        self.edge = torch.zeros(self.tokens.shape[1], n_tokens, dtype=torch.bool, device=device)
        for query in case.queries:
            self.edge[query - self.first, list(case.keys)] = True
        all_ids = torch.cat([token_ids, endings[0]])
        special_ids = torch.tensor(sorted(encoder.special_ids), device=device)
        self.is_word = ~torch.isin(all_ids, special_ids)[None]

    def run_intact(self) -> Any:
        """Run the model without a cut, and keep the outputs of its layers for other passes."""
        if self.cache is not None:
            return self.run()

        def keep(layer: nn.Module, _args: tuple, output: Any) -> None:
            self.layer_outputs[layer] = output

        with ExitStack() as hooks:
            for layer in repeatable_layers(self.model):
                hooks.callback(layer.register_forward_hook(keep).remove)
            return self.run()

    def run(self, copies: int = 1) -> Any:
        """Run the model; the copies of an ending are adjacent rows of the batch."""
        tokens = self.tokens.repeat_interleave(copies, dim=0)
        n_tokens = self.edge.shape[1]
        mask = tokens.new_ones(len(tokens), n_tokens)
        batch: dict[str, Any] = {"input_ids": tokens, "attention_mask": mask}
        if self.takes_token_types:
            batch["token_type_ids"] = torch.zeros_like(tokens)
        if self.cache is not None:
            batch["past_key_values"] = copy.deepcopy(self.cache)
            batch["past_key_values"].batch_repeat_interleave(len(tokens))
            batch["use_cache"] = True
        return self.model(**batch, output_attentions=copies == 1, output_hidden_states=True)

    def log_probabilities(self, output: Any, copies: int = 1) -> Float[Tensor, " copy"]:
        """Compute the log-probability of the case in each copy; NaN without continuations."""
        if not self.case.continuations:
            return torch.full((copies,), torch.nan, dtype=torch.float64)
        logits = output.logits.unflatten(0, (len(self.endings), copies))
        total = torch.zeros(())
        for sign, form in zip((1, -1), self.case.continuations, strict=False):
            start = self.case.position - self.first
            form_logits = logits[self.endings.index(form[:-1]), :, start : start + len(form)]
            # [copy, token, vocabulary]
            log_probabilities = form_logits.double().log_softmax(dim=-1)
            token = torch.arange(len(form), device=logits.device)
            form_ids = torch.tensor(form, device=logits.device)
            total = total + sign * log_probabilities[:, token, form_ids].sum(dim=-1)
        return total

    def vectors(self, output: Any, copies: int = 1) -> Float[Tensor, "copy word width"]:
        """Average the last layer's vectors over the tokens of each word of the case."""
        states = output.hidden_states[-1][:copies].double()  # of the first ending
        words = []
        for tokens in self.case.words:
            local = [token - self.first for token in tokens]
            words.append(states[:, local].mean(dim=1))
        return torch.stack(words, dim=1)

    @contextmanager
    def cut(self, cuts: Sequence[HeadCut]) -> Iterator[None]:
        """Change the edge in copy i as cut i says, inside the context."""
        row_cuts = [*cuts] * len(self.endings)
        layers = torch.tensor([cut.layer for cut in row_cuts])
        heads = torch.tensor([cut.head for cut in row_cuts])
        weights_of_keys = torch.tensor([cut.weight for cut in row_cuts]) / len(self.case.keys)
        is_matched = torch.tensor([cut.mode == MOST_ATTENDED for cut in row_cuts])
        changed_layers = set()

        def change(layer: int, scores: Scores, softmax: Callable) -> Weights:
            weights = softmax(scores)
            rows = torch.nonzero(layers == layer)[:, 0]
            if not len(rows):
                return weights
            changed_layers.add(layer)
            before = weights[rows, heads[rows]]  # [row, query, key]
            weight_of_key = weights_of_keys[rows].to(before)[:, None, None]
            replaced = torch.where(self.edge, weight_of_key, before)
            matched = ablate_edges(before, self.edge, MOST_ATTENDED, self.is_word)
            after = torch.where(
                is_matched[rows].to(before.device)[:, None, None], matched, replaced
            )
            return weights.index_put((rows, heads[rows]), after)

        with self.skip_below(int(layers.min()), len(cuts)), PatchSoftmax(self.model, change):
            yield
        if changed_layers != {cut.layer for cut in cuts}:
            raise ModelError(
                f"{type(self.model).__name__}: no softmax was called in some layers, so no edge "
                "can be cut; choose a model that computes its attention by torch's softmax"
            )

    def run_cuts(
        self, cuts: Sequence[HeadCut], chunks: Sequence[Sequence[int]]
    ) -> tuple[Float[Tensor, "cut word width"], Float[Tensor, " cut"]]:
        """Compute the vectors and the log-probability with each cut.

        The chunks are the numbers of the cuts that are computed together (`list_chunks`).
        """
        vectors = {}
        log_probabilities = {}
        for chunk in chunks:
            chunk_cuts = [cuts[number] for number in chunk]
            with self.cut(chunk_cuts):
                output = self.run(len(chunk))
            vectors |= zip(chunk, self.vectors(output, len(chunk)), strict=True)
            values = self.log_probabilities(output, len(chunk)).cpu()
            log_probabilities |= zip(chunk, values, strict=True)
        numbers = range(len(cuts))
        return (
            torch.stack([vectors[number] for number in numbers]),
            torch.stack([log_probabilities[number] for number in numbers]),
        )

    def skip_below(self, layer: int, copies: int) -> AbstractContextManager:
        """Repeat what the layers below put out in `run_intact`, which no cut changes."""
        reused = {}
        for module, output in list(self.layer_outputs.items())[:layer]:
            reused[module] = tree_map(
                lambda tensor: tensor.repeat_interleave(copies, dim=0), output
            )
        return skip_layers(self.model, reused)

    def sum_over_edge(self, maps: Sequence[Weights]) -> Float[Tensor, "ending layer head"]:
        """Sum what a map has on the edge, for each ending, layer and head."""
        return torch.stack([(layer * self.edge).sum(dim=(-1, -2)) for layer in maps], dim=1)


def has_window(encoder: Model) -> bool:
    """Tell whether some layer sees a part of the text only; its cache has other lengths then."""
    return any(layer["window"] is not None for layer in encoder.visible)


def edge_attention(
    encoder: Model, cases: Sequence[EdgeCase]
) -> Float[np.ndarray, "case layer head"]:
    """Compute the attention on each edge in every head; it is a mean over the query's tokens."""

    def measure(model: nn.Module, case: EdgeCase) -> Float[np.ndarray, "layer head"]:
        edge_pass = EdgePass(encoder, model, case)
        with torch.no_grad():
            maps = edge_pass.run().attentions
        weights = edge_pass.sum_over_edge(maps)[0] / len(case.queries)
        return weights.double().numpy(force=True)

    return np.array(map_over_model_copies(encoder.model, cases, measure, "attention on edges"))


def log_probabilities(encoder: Model, cases: Sequence[EdgeCase]) -> Float[np.ndarray, " case"]:
    """Compute the log-probability, or the log-odds, of each case in the intact model, in nats."""

    @torch.no_grad()
    def measure(model: nn.Module, case: EdgeCase) -> float:
        edge_pass = EdgePass(encoder, model, case)
        return edge_pass.log_probabilities(edge_pass.run()).item()

    return np.array(map_over_model_copies(encoder.model, cases, measure, "log-probabilities"))


def attention_and_effects(
    encoder: Model, cases: Sequence[EdgeCase]
) -> Float[np.ndarray, "three case layer head"]:
    """Compute the attention on each edge, and what it brings, in every head, with one pass each.

    The first number is that of `edge_attention`.  The second is the effect on the log-probability
    to first order, ``sum over the edge of A[i, j] * d log p / dA[i, j]``, in nats: what would be
    lost without the edge if the log-probability were linear in the weight.  The third is the
    effect per unit of attention, if each query divides its attention equally over the tokens of the
    key: the sum of ``d log p / dA[i, j]`` over the edge, divided by the number of these tokens.

    Parameters
    ----------
    encoder
        A model with a head that predicts words.
    cases
        Edges with continuations.
    """

    def measure(model: PreTrainedModel, case: EdgeCase) -> Float[np.ndarray, "three layer head"]:
        edge_pass = EdgePass(encoder, model, case)
        embeddings = model.get_input_embeddings()
        # The parameters are frozen, so the graph begins at the embeddings.
        hook = embeddings.register_forward_hook(lambda _module, _args, out: out.requires_grad_())
        try:
            output = edge_pass.run()
        finally:
            hook.remove()
        log_probability = edge_pass.log_probabilities(output).sum()
        gradients = torch.autograd.grad(log_probability, output.attentions)
        products = [a * g for a, g in zip(output.attentions, gradients, strict=True)]
        attention = edge_pass.sum_over_edge(output.attentions)[0] / len(case.queries)
        # Each ending has its own maps of the same weights.
        effects = edge_pass.sum_over_edge(products).sum(dim=0)
        per_unit = edge_pass.sum_over_edge(gradients).sum(dim=0) / len(case.keys)
        return torch.stack([attention, effects, per_unit]).double().numpy(force=True)

    measured = map_over_model_copies(encoder.model, cases, measure, "edges, first order")
    return np.stack(measured, axis=1)


def cut_effects(
    encoder: Model, cases: Sequence[EdgeCase], cuts: Sequence[HeadCut]
) -> Float[np.ndarray, "case cut effect"]:
    """Measure what each cut of each edge takes: log-probability in nats, and angle in degrees.

    Parameters
    ----------
    encoder
        The model.
    cases
        The edges.
    cuts
        The changes, one by one.

    Returns
    -------
    array
        The `EFFECTS`: the decrease of the log-probability, NaN without continuations; and the mean
        angle over the words of the case.
    """
    chunks = list_chunks(encoder, cuts)

    @torch.no_grad()
    def measure(model: nn.Module, case: EdgeCase) -> Float[np.ndarray, "cut effect"]:
        edge_pass = EdgePass(encoder, model, case)
        intact = edge_pass.run_intact()
        vectors, log_probabilities = edge_pass.run_cuts(cuts, chunks)
        turned = turned_angles(edge_pass.vectors(intact), vectors).mean(dim=-1).cpu()
        before = edge_pass.log_probabilities(intact).cpu()
        return torch.stack([before - log_probabilities, turned], dim=-1).numpy()

    return np.array(map_over_model_copies(encoder.model, cases, measure, "edges cut"))


def turns_by_weight(
    encoder: Model, cases: Sequence[EdgeCase], weight: float
) -> Float[np.ndarray, "two case layer head"]:
    """Measure the angles of each edge in every head, as it is and at the same weight in all heads.

    Parameters
    ----------
    encoder
        The model.
    cases
        The edges.
    weight
        The weight that the edge gets in every head.

    Returns
    -------
    array
        Degrees, means over the words of the case: the angle between the intact pass and that
        without the edge; and the angle between the pass without the edge and the one in which it
        has the weight.  The other weights of the row stay as they are in each of them.
    """
    heads = [HeadCut(*head) for head in product(range(encoder.layers), range(encoder.heads))]
    cuts = [*heads, *(head._replace(weight=weight) for head in heads)]
    chunks = list_chunks(encoder, cuts)

    @torch.no_grad()
    def measure(model: nn.Module, case: EdgeCase) -> Float[np.ndarray, "two head"]:
        edge_pass = EdgePass(encoder, model, case)
        intact = edge_pass.vectors(edge_pass.run_intact())
        vectors, _ = edge_pass.run_cuts(cuts, chunks)
        dropped, weighted = vectors.chunk(2)
        turned = [turned_angles(intact, dropped), turned_angles(dropped, weighted)]
        return torch.stack(turned).mean(dim=-1).numpy(force=True)

    measured = np.array(map_over_model_copies(encoder.model, cases, measure, "edges weighted"))
    by_case = measured.reshape(len(cases), 2, encoder.layers, encoder.heads)
    return np.moveaxis(by_case, 1, 0)


def list_chunks(encoder: Model, cuts: Sequence[HeadCut]) -> list[list[int]]:
    """List the numbers of cuts that are computed together: of one layer, `MAX_ROWS` at most.

    Cuts of one layer share the layers below it.  The passes of a decoder are short, and skip no
    layer, so that its cuts are of any layer.
    """
    order = sorted(range(len(cuts)), key=lambda number: cuts[number].layer)
    groups = [order]
    if encoder.objective != NEXT_TOKEN:
        groups = [list(group) for _, group in groupby(order, key=lambda n: cuts[n].layer)]
    chunks = []
    for group in groups:
        chunks += [group[start : start + MAX_ROWS] for start in range(0, len(group), MAX_ROWS)]
    return chunks
