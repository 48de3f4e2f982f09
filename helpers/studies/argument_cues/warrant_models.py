"""A bag of vectors and a BiLSTM that choose between two warrants (Niven & Kao 2019, section 2).

Both read words as fixed vectors and make a vector of each text: the bag takes the mean of its
words, the BiLSTM the largest value of each state over its words.  The vectors of the parts of an
argument that a model is shown are joined, one after the other, and a hidden layer turns them into
a score for each of the two warrants, with the same weights; a softmax over the two scores gives
the probabilities.  (The paper's score is linear, in which whatever both warrants share cancels
out: claim and reason need the hidden layer to matter.)

Models of several seeds are trained as one, each with its own weights and its own order of the
examples: every parameter has the seed for its first axis, and nothing passes between seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.analysis.training import Schedule
from helpers.studies.argument_cues.arguments import INPUTS, Argument
from helpers.studies.argument_cues.cues import words

BAG, BILSTM = "bag of vectors", "BiLSTM"
HIDDEN = 32  # units of the hidden layer, and of the LSTM in either direction
WEIGHT_DECAY = 1e-4
LONGEST = 60  # words of a text that are read
# Plenty for both: the parameters kept are those of the best epoch on dev.
SCHEDULES = {
    BAG: Schedule(epochs=20, learning_rate=3e-3, batch_size=32, min_updates=200),
    BILSTM: Schedule(epochs=10, learning_rate=1e-2, batch_size=32, min_updates=60),
}

WordVectors = Callable[[list[str]], Float[np.ndarray, "word width"]]


@dataclass(frozen=True)
class Texts:
    """Arguments as rows of word vectors; row 0 is padding.

    ``words`` maps a part ("claim", "reason": ``[argument, 1, word]``; "warrant":
    ``[argument, 2, word]``) to the rows of its words, padded at the end.
    """

    vectors: Float[Tensor, "row width"]
    words: Mapping[str, Int[Tensor, "argument text word"]]
    labels: Int[Tensor, " argument"]


def prepare(arguments: Mapping[str, Sequence[Argument]], vectors: WordVectors) -> dict[str, Texts]:
    """Look up the words of several lists of arguments; words without a vector are left out."""
    everything = [argument for part in arguments.values() for argument in part]
    vocabulary = sorted(
        {
            word
            for a in everything
            for text in (a.claim, a.reason, *a.warrants)
            for word in words(text)
        }
    )
    found = np.asarray(vectors(vocabulary), dtype=np.float32).reshape(len(vocabulary), -1)
    known = found.any(axis=1)
    rows = dict(zip(np.array(vocabulary)[known].tolist(), range(1, 1 + known.sum()), strict=True))
    table = torch.tensor(np.concatenate([np.zeros_like(found[:1]), found[known]]))
    return {name: _rows(part, rows, table) for name, part in arguments.items()}


class Bag(nn.Module):
    """The mean of a text's word vectors; it has nothing to learn."""

    def __init__(self, width: int, seeds: Sequence[int]) -> None:
        super().__init__()
        self.width = width

    def forward(
        self, x: Float[Tensor, "seed text word width"], real: Bool[Tensor, "seed text word"]
    ) -> Float[Tensor, "seed text width"]:
        """Return a vector for each text; zeros for one without words."""
        total = (x * real[..., None]).sum(dim=2)
        return total / real.sum(dim=2).clamp(min=1)[..., None]


class BiLSTM(nn.Module):
    """The largest value, over a text's words, of each state of a bidirectional LSTM."""

    def __init__(self, width: int, seeds: Sequence[int]) -> None:
        super().__init__()
        self.width = 2 * HIDDEN
        scale = 1 / math.sqrt(HIDDEN)
        # The second axis is the direction; the last holds the four gates side by side.
        self.into = _parameter(seeds, (2, width, 4 * HIDDEN), scale)
        self.across = _parameter(seeds, (2, HIDDEN, 4 * HIDDEN), scale)
        self.bias = _parameter(seeds, (2, 1, 4 * HIDDEN), scale)

    def forward(
        self, x: Float[Tensor, "seed text word width"], real: Bool[Tensor, "seed text word"]
    ) -> Float[Tensor, "seed text state"]:
        """Return a vector for each text; zeros for one without words."""
        seeds, texts, length, _ = x.shape
        lengths = real.sum(dim=2, keepdim=True)
        # Backwards from each text's own last word; what comes before its first is not counted.
        backwards = (lengths - 1 - torch.arange(length)).clamp(min=0)
        reverse = x.gather(2, backwards[..., None].expand_as(x))
        both = torch.stack([x, reverse], dim=1)  # [seed, direction, text, word, width]
        driven = both.flatten(2, 3) @ self.into + self.bias
        driven = driven.view(seeds, 2, texts, length, -1)
        state = cell = x.new_zeros(seeds, 2, texts, HIDDEN)
        largest = torch.full_like(state, -torch.inf)
        for word in range(length):
            gates = driven[:, :, :, word] + state @ self.across
            enter, keep, value, leave = gates.chunk(4, dim=-1)
            cell = keep.sigmoid() * cell + enter.sigmoid() * value.tanh()
            state = leave.sigmoid() * cell.tanh()
            there = real[:, None, :, word, None]
            largest = torch.where(there, torch.maximum(largest, state), largest)
        largest = largest.where(lengths[:, None] > 0, 0)
        return largest.transpose(1, 2).flatten(2)  # [seed, text, direction * state]


ENCODERS = {BAG: Bag, BILSTM: BiLSTM}


class Chooser(nn.Module):
    """Scores both warrants of an argument, for every seed."""

    def __init__(self, kind: str, inputs: str, width: int, seeds: Sequence[int]) -> None:
        super().__init__()
        self.parts = INPUTS[inputs]
        self.encoder = ENCODERS[kind](width, seeds)
        joined = len(self.parts) * self.encoder.width
        self.inner = _parameter(seeds, (joined, HIDDEN), 1 / math.sqrt(joined))
        self.inner_bias = _parameter(seeds, (1, HIDDEN), 1 / math.sqrt(joined))
        self.outer = _parameter(seeds, (HIDDEN, 1), 1 / math.sqrt(HIDDEN))

    def forward(
        self, texts: Texts, chosen: Int[Tensor, "seed argument"]
    ) -> Float[Tensor, "seed argument warrant"]:
        """Return the scores of the arguments ``chosen``, which may differ from seed to seed."""
        # One pass over the texts of all parts: [seed, argument * text, word], padded alike.
        rows = [texts.words[part][chosen].flatten(1, 2) for part in self.parts]
        longest = max(row.shape[-1] for row in rows)
        joined = torch.cat([F.pad(row, (0, longest - row.shape[-1])) for row in rows], dim=1)
        joined = joined[..., : max(1, int((joined > 0).sum(dim=-1).max()))]
        vectors = self.encoder(texts.vectors[joined], joined > 0)
        pieces = vectors.split([row.shape[1] for row in rows], dim=1)
        seeds, arguments = chosen.shape
        pieces = [piece.reshape(seeds, arguments, -1, self.encoder.width) for piece in pieces]
        features = torch.cat([piece.expand(-1, -1, 2, -1) for piece in pieces], dim=-1)
        hidden = (features.flatten(1, 2) @ self.inner + self.inner_bias).relu()
        return (hidden @ self.outer).view(seeds, arguments, 2)


def train_chooser(
    kind: str,
    inputs: str,
    texts: Mapping[str, Texts],
    seeds: Sequence[int],
    epoch_done: Callable[[], None] = lambda: None,
) -> Int[np.ndarray, "seed argument"]:
    """Train on ``texts["train"]`` and return the choices in ``texts["test"]``, for every seed.

    Kept are each seed's parameters of the epoch with the best accuracy on ``texts["dev"]``, of
    equals that of the lowest loss there.
    """
    train, dev, test = (texts[split] for split in ("train", "dev", "test"))
    schedule, count = SCHEDULES[kind], len(train.labels)
    model = Chooser(kind, inputs, train.vectors.shape[1], seeds)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=schedule.learning_rate, weight_decay=WEIGHT_DECAY)
    orders = [np.random.default_rng(seed) for seed in seeds]
    best = [parameter.detach().clone() for parameter in parameters]
    accuracy, loss = torch.full((len(seeds),), -1.0), torch.full((len(seeds),), torch.inf)
    for _ in range(schedule.epochs_for(count)):
        order = torch.tensor(np.stack([generator.permutation(count) for generator in orders]))
        for batch in order.split(schedule.batch_size, dim=1):
            optimizer.zero_grad()
            # The sum over seeds: each one's gradient is what it would be alone.
            _losses(model(train, batch), train.labels[batch]).sum().backward()
            optimizer.step()
        new_accuracy, new_loss = _validate(model, dev, len(seeds))
        same = new_accuracy == accuracy
        better = (new_accuracy > accuracy) | (same & (new_loss < loss))
        accuracy = torch.where(better, new_accuracy, accuracy)
        loss = torch.where(better, new_loss, loss)
        for kept, parameter in zip(best, parameters, strict=True):
            kept[better] = parameter.detach()[better]
        epoch_done()
    with torch.no_grad():
        for kept, parameter in zip(best, parameters, strict=True):
            parameter.copy_(kept)
        return model(test, _everything(test, len(seeds))).argmax(dim=-1).numpy()


@torch.no_grad()
def _validate(
    model: Chooser, dev: Texts, seeds: int
) -> tuple[Float[Tensor, " seed"], Float[Tensor, " seed"]]:
    everything = _everything(dev, seeds)
    scores, labels = model(dev, everything), dev.labels[everything]
    right = (scores.argmax(dim=-1) == labels).float()
    return right.mean(dim=1), _losses(scores, labels)


def _losses(
    scores: Float[Tensor, "seed argument warrant"], labels: Int[Tensor, "seed argument"]
) -> Float[Tensor, " seed"]:
    each = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none")
    return each.view(labels.shape).mean(dim=1)


def _everything(texts: Texts, seeds: int) -> Int[Tensor, "seed argument"]:
    return torch.arange(len(texts.labels)).expand(seeds, -1)


def _parameter(seeds: Sequence[int], shape: tuple[int, ...], scale: float) -> nn.Parameter:
    """Return uniform weights of every seed, which depend on that seed and the shape alone."""
    drawn = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(1_000_003 * seed + math.prod(shape))
        drawn.append(torch.rand(shape, generator=generator))
    return nn.Parameter((2 * torch.stack(drawn) - 1) * scale)


def _rows(arguments: Sequence[Argument], rows: Mapping[str, int], vectors: Tensor) -> Texts:
    def lookup(texts: Sequence[Sequence[str]]) -> Int[Tensor, "argument text word"]:
        found = [
            [[rows[word] for word in words(text) if word in rows][:LONGEST] for text in both]
            for both in texts
        ]
        longest = max([1, *(len(text) for both in found for text in both)])
        padded = [[text + [0] * (longest - len(text)) for text in both] for both in found]
        return torch.tensor(padded, dtype=torch.long).view(len(texts), -1, longest)

    parts = {
        "claim": lookup([[argument.claim] for argument in arguments]),
        "reason": lookup([[argument.reason] for argument in arguments]),
        "warrant": lookup([argument.warrants for argument in arguments]),
    }
    return Texts(vectors, parts, torch.tensor([argument.label for argument in arguments]))
