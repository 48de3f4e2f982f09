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
from torch.nn.utils.rnn import pad_sequence
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
from helpers.model.loading import Model
from helpers.model.sites import PatchSoftmax, Scores, Weights

NEXT_TOKEN = "next-token"  # the objective of a decoder
MAX_ROWS = 64  # copies of texts in one batch, each with another cut
CASES_AT_ONCE = 16  # of a decoder, whose passes over a few tokens read all of its parameters
MAX_SPREAD = 2  # tokens between the first readers of cases that are computed at once

Tokens = tuple[int, ...]


class EdgeCase(NamedTuple):
    """An edge in a text, and where its effect is read.  Tokens are numbered from 0.

    Attributes
    ----------
    token_ids : tuple of int
        The input of the model.
    queries, keys : tuple of int
        The tokens of the two words.  A decoder's queries begin after the keys, or with the last.
    words : tuple of tuple of int
        The tokens of each word whose vector may turn, if no word is predicted.
    article : str
        The article of the text.
    position : int
        The token whose logits predict the first token of a continuation.
    continuations : tuple of tuple of int
        The ids of a word that is predicted; or of two forms, and the outcome is the first minus
        the second.  Without any, angles are measured.
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


class EdgePass:
    """Passes of a model over some edge cases, intact or with one change in each copy of a text.

    Parameters
    ----------
    encoder
        The model with its tokenizer.
    model
        A copy of the model.
    cases
        The edges, and where their effects are read: one of an encoder, or several of a decoder,
        which does not see the padding behind a text.

    Attributes
    ----------
    rows : list of (int, tuple of int)
        The texts of the batch: the number of a case, and the end of its input, which is a form of a
        word without its last token.
    first_rows, owners : Tensor of int
        The first row of each case, and the case of each row.
    first : int
        The first token that is computed in each pass; those before it are in the cache.
    edges : Tensor of bool, shape (row, query, key)
        The weights of the edge of each row.
    are_words : Tensor of bool, shape (row, 1, key)
        The keys that are no special tokens.
    """

    def __init__(self, encoder: Model, model: PreTrainedModel, cases: Sequence[EdgeCase]) -> None:
        self.model = model
        self.cases = cases
        self.takes_token_types = encoder.takes_token_types
        self.layer_outputs: dict[nn.Module, Any] = {}
        self.rows = []
        texts = []
        for number, case in enumerate(cases):
            for ending in dict.fromkeys(form[:-1] for form in case.continuations or ((),)):
                self.rows.append((number, ending))
                texts.append(torch.tensor([*case.token_ids, *ending]))
        numbers = [number for number, _ in self.rows]
        device = encoder.model.device
        self.owners = torch.tensor(numbers, device=device)
        self.first_rows = torch.tensor([numbers.index(case) for case in range(len(cases))])
        token_ids = pad_sequence(texts, batch_first=True).to(device)
        self.first = 0
        self.cache = None
        if has_prefixes(encoder):
            self.first = min(map(first_reader, cases))
        if self.first:
            with torch.no_grad():
                prefix = model.base_model(token_ids[:, : self.first], use_cache=True)
            self.cache = prefix.cache
        self.tokens = token_ids[:, self.first :]
        self.edges = torch.zeros(*self.tokens.shape, token_ids.shape[1], dtype=torch.bool)
        for edge, number in zip(self.edges, numbers, strict=True):
            for query in cases[number].queries:
                edge[query - self.first, list(cases[number].keys)] = True
        self.edges = self.edges.to(device)
        special_ids = torch.tensor(sorted(encoder.special_ids), device=device)
        self.are_words = ~torch.isin(token_ids, special_ids)[:, None]

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
        """Run the model; the copies of a row are adjacent in the batch."""
        tokens = self.tokens.repeat_interleave(copies, dim=0)
        mask = tokens.new_ones(len(tokens), self.edges.shape[-1])
        batch: dict[str, Any] = {"input_ids": tokens, "attention_mask": mask}
        if self.takes_token_types:
            batch["token_type_ids"] = torch.zeros_like(tokens)
        if self.cache is not None:
            batch["cache"] = copy.deepcopy(self.cache)
            batch["cache"].batch_repeat_interleave(copies)
            batch["use_cache"] = True
        return self.model(**batch, output_attentions=copies == 1, output_hidden_states=True)

    def read(self, output: Any, copies: int = 1) -> Float[Tensor, "case copy ..."]:
        """Read the log-probability of each case, or the vectors of its words, in each copy."""
        is_predicted = bool(self.cases[0].continuations)
        return (self.log_probabilities if is_predicted else self.vectors)(output, copies)

    def log_probabilities(self, output: Any, copies: int) -> Float[Tensor, "case copy"]:
        """Compute the log-probability of each case in each copy."""
        logits = output.logits.unflatten(0, (-1, copies))
        totals = torch.zeros(len(self.cases), copies, dtype=torch.float64)
        for number, case in enumerate(self.cases):
            start = case.position - self.first
            for sign, form in zip((1, -1), case.continuations, strict=False):
                row = self.rows.index((number, form[:-1]))
                form_logits = logits[row, :, start : start + len(form)].double()
                by_token = form_logits.log_softmax(dim=-1)  # [copy, token, vocabulary]
                totals[number] += sign * by_token[:, range(len(form)), form].sum(dim=-1).cpu()
        return totals

    def vectors(self, output: Any, _copies: int) -> Float[Tensor, "case copy word width"]:
        """Average the last layer's vectors over the tokens of each word of the only case."""
        (case,) = self.cases
        states = output.hidden_states[-1].double()
        words = [states[:, list(tokens)].mean(dim=1) for tokens in case.words]
        return torch.stack(words, dim=1)[None]

    @contextmanager
    def cut(self, cuts: Sequence[Sequence[HeadCut]]) -> Iterator[None]:
        """Change the edge in copy i of each row as cut i of its case says, inside the context."""
        n_cuts = len(cuts[0])
        copy_cuts = []
        weights = []
        for number, _ in self.rows:
            copy_cuts += cuts[number]
            weights += [cut.weight / len(self.cases[number].keys) for cut in cuts[number]]
        weights_of_keys = torch.tensor(weights)
        layers = torch.tensor([cut.layer for cut in copy_cuts])
        heads = torch.tensor([cut.head for cut in copy_cuts])
        is_matched = torch.tensor([cut.mode == MOST_ATTENDED for cut in copy_cuts])
        changed_layers = set()

        def change(layer: int, scores: Scores, softmax: Callable) -> Weights:
            weights = softmax(scores)
            copies = torch.nonzero(layers == layer)[:, 0]
            if not len(copies):
                return weights
            changed_layers.add(layer)
            rows = copies // n_cuts
            edges = self.edges[rows]
            before = weights[copies, heads[copies]]  # [copy, query, key]
            weight_of_key = weights_of_keys[copies].to(before)[:, None, None]
            replaced = torch.where(edges, weight_of_key, before)
            matched = ablate_edges(before, edges, MOST_ATTENDED, self.are_words[rows])
            is_chosen = is_matched[copies].to(before.device)[:, None, None]
            after = torch.where(is_chosen, matched, replaced)
            return weights.index_put((copies, heads[copies]), after)

        with self.skip_below(int(layers.min()), n_cuts), PatchSoftmax(self.model, change):
            yield
        if changed_layers != set(layers.tolist()):
            raise ModelError(
                f"{type(self.model).__name__}: no softmax was called in some layers, so no edge "
                "can be cut; choose a model that computes its attention by torch's softmax"
            )

    def run_cuts(self, cuts: Sequence[Sequence[HeadCut]]) -> Float[Tensor, "case cut ..."]:
        """Read each case with each of its cuts."""
        chunks = list_chunks(cuts[0], skips_layers=self.cache is None)
        parts = []
        for chunk in chunks:
            with self.cut([[case_cuts[number] for number in chunk] for case_cuts in cuts]):
                parts.append(self.read(self.run(len(chunk)), len(chunk)))
        return torch.cat(parts, dim=1)[:, np.argsort(np.concatenate(chunks))]

    def skip_below(self, layer: int, copies: int) -> AbstractContextManager:
        """Repeat what the layers below put out in `run_intact`, which no cut changes."""
        reused = {}
        for module, output in list(self.layer_outputs.items())[:layer]:
            reused[module] = tree_map(
                lambda tensor: tensor.repeat_interleave(copies, dim=0), output
            )
        return skip_layers(self.model, reused)

    def edge_sums(self, maps: Sequence[Weights]) -> Float[Tensor, "row layer head"]:
        """Sum what a map has on the edge, for each row, layer and head."""
        sums = [(layer * self.edges[:, None]).sum(dim=(-1, -2)) for layer in maps]
        return torch.stack(sums, dim=1)

    def attention(self, maps: Sequence[Weights]) -> Float[Tensor, "case layer head"]:
        """Compute the attention on the edge of each case: a mean over the query's tokens."""
        sums = self.edge_sums(maps)[self.first_rows]
        n_queries = torch.tensor([len(case.queries) for case in self.cases], device=sums.device)
        return sums / n_queries[:, None, None]

    def case_sums(self, maps: Sequence[Weights]) -> Float[Tensor, "case layer head"]:
        """Sum what the maps have on the edge of each case, over its rows."""
        sums = self.edge_sums(maps)
        return sums.new_zeros(len(self.cases), *sums.shape[1:]).index_add(0, self.owners, sums)


def has_prefixes(encoder: Model) -> bool:
    """Tell whether a model computes the tokens before an edge once, and caches them.

    That is a decoder; if some layer sees a part of the text only, its cache has other lengths.
    """
    has_window = any(layer["window"] is not None for layer in encoder.visible)
    return encoder.objective == NEXT_TOKEN and not has_window


def first_reader(case: EdgeCase) -> int:
    """Find the first token of a case that a cut changes, or whose logits are read."""
    return min(*case.queries, case.position)


def map_cases(
    encoder: Model,
    cases: Sequence[EdgeCase],
    measure: Callable[[EdgePass, list[int]], np.ndarray],
    label: str,
    at_once: int = CASES_AT_ONCE,
) -> np.ndarray:
    """Measure each edge case, several cases of a decoder at once, and stack the results in order.

    ``measure`` takes the pass over some cases, and their numbers.  Cases that are computed at once
    have first readers at about the same token, because they have one cache.
    """
    at_once = at_once if has_prefixes(encoder) else 1
    readers = [first_reader(case) for case in cases]
    order = np.argsort(readers, kind="stable").tolist()
    batches: list[list[int]] = []
    for number in order:
        is_full = not batches or len(batches[-1]) == at_once
        if is_full or readers[number] - readers[batches[-1][0]] > MAX_SPREAD:
            batches.append([])
        batches[-1].append(number)

    def measure_batch(model: PreTrainedModel, batch: list[int]) -> np.ndarray:
        return measure(EdgePass(encoder, model, [cases[number] for number in batch]), batch)

    measured = map_over_model_copies(encoder.model, batches, measure_batch, label)
    return np.concatenate(measured)[np.argsort(order)]


def edge_attention(
    encoder: Model, cases: Sequence[EdgeCase]
) -> Float[np.ndarray, "case layer head"]:
    """Compute the attention on each edge in every head; it is a mean over the query's tokens."""

    @torch.no_grad()
    def measure(edge_pass: EdgePass, _batch: list[int]) -> Float[np.ndarray, "case layer head"]:
        return edge_pass.attention(edge_pass.run().attentions).double().numpy(force=True)

    return map_cases(encoder, cases, measure, "attention on edges")


def log_probabilities(encoder: Model, cases: Sequence[EdgeCase]) -> Float[np.ndarray, " case"]:
    """Compute the log-probability, or the log-odds, of each case in the intact model, in nats."""

    @torch.no_grad()
    def measure(edge_pass: EdgePass, _batch: list[int]) -> Float[np.ndarray, " case"]:
        return edge_pass.read(edge_pass.run())[:, 0].numpy()

    return map_cases(encoder, cases, measure, "log-probabilities")


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

    def measure(
        edge_pass: EdgePass, _batch: list[int]
    ) -> Float[np.ndarray, "case three layer head"]:
        embeddings = edge_pass.model.get_input_embeddings()
        # The parameters are frozen, so the graph begins at the embeddings.
        hook = embeddings.register_forward_hook(lambda _module, _args, out: out.requires_grad_())
        with hook:
            output = edge_pass.run()
        # The cases do not see each other, so that the gradient of their sum is that of each.
        log_probability = edge_pass.read(output).sum()
        maps = output.attentions
        gradients = torch.autograd.grad(log_probability, maps)
        products = [a * g for a, g in zip(maps, gradients, strict=True)]
        n_keys = torch.tensor([len(case.keys) for case in edge_pass.cases])
        per_unit = edge_pass.case_sums(gradients) / n_keys.to(maps[0])[:, None, None]
        numbers = [edge_pass.attention(maps), edge_pass.case_sums(products), per_unit]
        return torch.stack(numbers, dim=1).double().numpy(force=True)

    return np.moveaxis(map_cases(encoder, cases, measure, "edges, first order"), 1, 0)


def cut_effects(
    encoder: Model, cases: Sequence[EdgeCase], cuts: Sequence[Sequence[HeadCut]]
) -> Float[np.ndarray, "case cut"]:
    """Measure what each cut of each edge changes.

    Parameters
    ----------
    encoder
        The model.
    cases
        The edges.
    cuts
        The changes of each edge, one by one; all edges have the same number of them.

    Returns
    -------
    array
        The decrease of the log-probability, in nats; or, of cases without continuations, the mean
        angle over the words, in degrees.
    """

    @torch.no_grad()
    def measure(edge_pass: EdgePass, batch: list[int]) -> Float[np.ndarray, "case cut"]:
        before = edge_pass.read(edge_pass.run_intact())
        after = edge_pass.run_cuts([cuts[number] for number in batch])
        if edge_pass.cases[0].continuations:
            return (before - after).numpy()
        return turned_angles(before, after).mean(dim=-1).numpy(force=True)

    at_once = max(1, MAX_ROWS // len(cuts[0]))
    return map_cases(encoder, cases, measure, "edges cut", at_once)


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

    @torch.no_grad()
    def measure(edge_pass: EdgePass, _batch: list[int]) -> Float[np.ndarray, "case two head"]:
        intact = edge_pass.read(edge_pass.run_intact())
        dropped, weighted = edge_pass.run_cuts([cuts]).chunk(2, dim=1)
        turned = [turned_angles(intact, dropped), turned_angles(dropped, weighted)]
        return torch.stack(turned, dim=1).mean(dim=-1).numpy(force=True)

    measured = map_cases(encoder, cases, measure, "edges weighted", at_once=1)
    by_case = measured.reshape(len(cases), 2, encoder.layers, encoder.heads)
    return np.moveaxis(by_case, 1, 0)


def list_chunks(cuts: Sequence[HeadCut], *, skips_layers: bool) -> list[list[int]]:
    """List the numbers of cuts that are computed at once, `MAX_ROWS` at most.

    If layers are skipped, the cuts are of one layer, because they share the layers below it.
    """
    order = sorted(range(len(cuts)), key=lambda number: cuts[number].layer)
    groups = [order]
    if skips_layers:
        groups = [list(group) for _, group in groupby(order, key=lambda n: cuts[n].layer)]
    chunks = []
    for group in groups:
        chunks += [group[start : start + MAX_ROWS] for start in range(0, len(group), MAX_ROWS)]
    return chunks
