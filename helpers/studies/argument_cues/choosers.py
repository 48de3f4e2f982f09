"""Models that choose between two warrants (Niven & Kao 2019, sections 2 and 3).

Each scores both warrants of an argument, with the same weights, beside what it is shown of the
argument; a softmax over the two scores gives the probabilities.

- The *encoder* reads reason and claim as the first text and the warrant as the second (or the
  warrant alone); the vector is that of `classifier`.
- The *bag of vectors* takes the mean of a text's word vectors, the *BiLSTM* the largest value of
  each state over its words.  A hidden layer turns the joined vectors of the parts into a score.
  (The paper's score is linear: whatever both warrants share cancels out, claim and reason too.)

All weights are trained but word vectors; kept is the epoch with the best accuracy on dev, of
equals that with the lowest loss there.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from helpers.model.encoder import Encoder
from helpers.model.forward import length_batches, padded
from helpers.studies.argument_cues.arguments import INPUTS, Argument
from helpers.studies.argument_cues.cues import words
from helpers.studies.classifier import Classifier, task_inputs
from helpers.studies.fine_tune import Recipe, gradient_steps, trained
from helpers.studies.tasks import Pair

ENCODER, BAG, BILSTM = "encoder", "bag of vectors", "BiLSTM"
SCORED_TOGETHER = 32  # pairs
READ_TOGETHER = 8  # pairs of a step, of similar length: padding is a third of a whole step's
HIDDEN = 32  # units of the hidden layer, and of the LSTM in either direction
LONGEST = 60  # words of a text that are read

Scores = Float[Tensor, "argument warrant"]
WordVectors = Callable[[list[str]], Float[np.ndarray, "word width"]]


def train_chooser(
    chooser: EncoderChooser | WordChooser,
    splits: Mapping[str, Sequence[Argument]],
    recipe: Recipe,
    what: str,
) -> Int[np.ndarray, " argument"]:
    """Train on ``splits["train"]`` and return the choices, 0 or 1, in ``splits["test"]``.

    A batch is of arguments; the learning rate falls along a line.  ``what`` names the model in an
    error.  ModelError where texts of ``max_tokens`` are too long for the model, or the loss is no
    number.
    """
    train, dev = splits["train"], splits["dev"]
    steps, best, weights = recipe.steps(len(train)), (0.0, -math.inf), {}
    optimizer = torch.optim.AdamW(trained(chooser).values(), lr=recipe.learning_rate)
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1 / steps, steps - 1 or 1)

    def loss(batch: Sequence[Argument]) -> Tensor:
        scores = chooser(batch)
        return F.cross_entropy(scores, _labels(batch).to(scores.device))

    for epoch in range(recipe.epochs):
        order = np.random.default_rng([recipe.seed, epoch]).permutation(len(train))
        parts = np.split(order, range(recipe.batch_size, len(order), recipe.batch_size))
        shuffled = ([train[index] for index in part] for part in parts)
        name = f"{what}, epoch {epoch + 1}"
        gradient_steps(chooser, shuffled, loss, optimizer, falling, what=name)
        found = quality(chooser.scores(dev), _labels(dev))
        if found > best:
            best, weights = found, copy.deepcopy(trained(chooser))
    chooser.load_state_dict(weights, strict=False)
    return chooser.scores(splits["test"]).argmax(dim=-1).numpy()


def quality(scores: Scores, labels: Int[Tensor, " argument"]) -> tuple[float, float]:
    """Return the accuracy and the negative loss: the larger, the better."""
    right = (scores.argmax(dim=-1) == labels).double().mean()
    return right.item(), -F.cross_entropy(scores, labels).item()


class EncoderChooser(nn.Module):
    """A copy of an encoder with a linear layer, whose first weights ``seed`` decides."""

    def __init__(self, encoder: Encoder, inputs: str, max_tokens: int, *, seed: int) -> None:
        super().__init__()
        self.model = Classifier(encoder, 1, seed=seed)
        self.encoder, self.inputs, self.max_tokens = encoder, inputs, max_tokens

    def forward(self, arguments: Sequence[Argument]) -> Scores:
        """Return the scores of the arguments of a step."""
        return self._read(warrant_pairs(arguments, self.inputs), READ_TOGETHER).view(-1, 2)

    @torch.inference_mode()
    def scores(self, arguments: Sequence[Argument]) -> Scores:
        """Return the scores of any number of arguments; the same texts are read once."""
        rows, pairs = pd.factorize(pd.Series(warrant_pairs(arguments, self.inputs)))
        return self._read(pairs, SCORED_TOGETHER).double().cpu()[rows].view(-1, 2)

    def _read(self, pairs: Sequence[Pair], together: int) -> Float[Tensor, "pair one"]:
        """Return the score of each pair of texts, read in groups of similar length."""
        texts = task_inputs(self.encoder, pairs, self.max_tokens)
        lengths = [len(text["input_ids"]) for text in texts]
        groups = length_batches(lengths, size=together)
        scores = [self.model(**padded(self.encoder, [texts[i] for i in own])) for own in groups]
        places = torch.tensor([place for group in groups for place in group])
        return torch.cat(scores)[places.argsort()]


def warrant_pairs(arguments: Sequence[Argument], inputs: str) -> list[Pair]:
    """Return the texts that the encoder reads for both warrants of each argument."""
    pairs = []
    for argument in arguments:
        shown = " ".join(getattr(argument, part) for part in INPUTS[inputs] if part != "warrant")
        texts = [(shown, own) if shown else (own, None) for own in argument.warrants]
        pairs += [Pair(*both, label=0) for both in texts]  # the argument has the label
    return pairs


class WordChooser(nn.Module):
    """A bag of vectors or a BiLSTM over words with a vector; ``seed`` draws its weights."""

    def __init__(self, kind: str, inputs: str, vectors: WordVectors, *, seed: int) -> None:
        super().__init__()
        self.parts, self.vectors = INPUTS[inputs], vectors
        width = self.width = vectors(["the"]).shape[-1]
        self.lstm = None
        if kind == BILSTM:
            self.lstm = nn.LSTM(width, HIDDEN, bidirectional=True, batch_first=True)
            width = 2 * HIDDEN
        self.inner = nn.Linear(len(self.parts) * width, HIDDEN)
        self.outer = nn.Linear(HIDDEN, 1)
        generator = torch.Generator().manual_seed(seed)
        for weights in self.parameters():  # as the layers draw them, but from this seed
            bound = weights.shape[-1] ** -0.5 if weights.dim() > 1 else 0.0
            nn.init.uniform_(weights, -bound, bound, generator=generator)
        self._read: dict[str, Float[Tensor, "word width"]] = {}

    def forward(self, arguments: Sequence[Argument]) -> Scores:
        """Return the scores of arguments; the same texts are read once."""
        everything = [
            text
            for part in self.parts
            for one in arguments
            for text in (one.warrants if part == "warrant" else [getattr(one, part)] * 2)
        ]
        rows, texts = pd.factorize(pd.Series(everything))
        read = [self._vectors_of(text) for text in texts]
        lengths = torch.tensor([len(text) for text in read])
        found = self.text_vectors(pad_sequence(read, batch_first=True), lengths)
        pieces = found[rows].chunk(len(self.parts))  # of each part, two an argument
        hidden = self.inner(torch.cat(pieces, dim=-1)).relu()
        return self.outer(hidden).view(-1, 2)

    scores = torch.inference_mode()(forward)  # not to be trained on

    def text_vectors(
        self, x: Float[Tensor, "text word width"], lengths: Int[Tensor, " text"]
    ) -> Float[Tensor, "text state"]:
        """Return a vector for each text."""
        if self.lstm is None:
            return x.sum(dim=1) / lengths[:, None]
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, _ = self.lstm(packed)
        unpacked = pad_packed_sequence(states, batch_first=True, padding_value=-torch.inf)[0]
        return unpacked.amax(dim=1)

    def _vectors_of(self, text: str) -> Float[Tensor, "word width"]:
        """Return the vectors of a text's words; a text without any is one word of zeros."""
        if text not in self._read:
            found = torch.tensor(self.vectors(words(text)), dtype=torch.float).view(-1, self.width)
            known = found[found.any(dim=1)][:LONGEST]
            self._read[text] = known if len(known) else torch.zeros(1, self.width)
        return self._read[text]


def _labels(arguments: Sequence[Argument]) -> Int[Tensor, " argument"]:
    return torch.tensor([argument.label for argument in arguments])
