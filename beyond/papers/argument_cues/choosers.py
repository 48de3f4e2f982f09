"""Models that choose between two warrants (Niven & Kao 2019, sections 2 and 3).

Each model scores both warrants of an argument, with the same weights, together with the parts of
the argument that it is shown.  A softmax over the two scores gives the probabilities.

- The *encoder* reads reason and claim as the first text and the warrant as the second (or only the
  warrant); the vector is that of `classifier`.
- The *bag of vectors* takes the mean of a text's word vectors, the *BiLSTM* the largest value of
  each state over the text's words.  A hidden layer turns the concatenated vectors of the parts into
  a score.  (The paper's score is linear: whatever both warrants share cancels out, including claim
  and reason.)

The word vectors are not trained, and in the encoder only the upper half of the layers is, because
that takes two thirds of the time.  Every training has a fixed number of epochs and keeps the last.
(The paper trains all of BERT, and keeps the epoch with the best accuracy on dev.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from beyond.papers.argument_cues.arguments import INPUTS, Argument
from beyond.papers.argument_cues.cues import words
from beyond.papers.common.classifier import BATCH_SIZE, Classifier, task_inputs
from beyond.papers.common.fine_tune import Recipe, gradient_steps
from beyond.papers.common.tasks import Pair
from helpers.model.forward import padded
from helpers.model.loading import Model
from helpers.model.sites import sites

ENCODER = "encoder"
BAG = "bag of vectors"
BILSTM = "BiLSTM"
HIDDEN = 32  # units of the hidden layer, and of the LSTM in either direction

Scores = Float[Tensor, "argument warrant"]
WordVectors = Callable[[list[str]], Float[np.ndarray, "word width"]]


def train_chooser(
    chooser: nn.Module,
    train: Sequence[Argument],
    test: Sequence[Argument],
    recipe: Recipe,
    description: str,
) -> Int[np.ndarray, " argument"]:
    """Train on some arguments and return the choices, 0 or 1, in others.

    A batch consists of arguments of similar length.  ``description`` names the model in an error.
    Raises ModelError if the loss is not a number.
    """

    def loss(indices: Sequence[int]) -> Tensor:
        batch = [train[index] for index in indices]
        scores = chooser(batch)
        labels = torch.tensor([argument.label for argument in batch], device=scores.device)
        return F.cross_entropy(scores, labels)

    lengths = [len(argument.reason + argument.warrant0) for argument in train]
    gradient_steps(chooser, chooser.parameters(), recipe, lengths, loss, description)
    with torch.inference_mode():
        return chooser(test).argmax(dim=-1).cpu().numpy()


class EncoderChooser(nn.Module):
    """A copy of an encoder with a linear layer that ``seed`` initialises.

    The embeddings and the lower half of the layers are not trained.  ``inputs`` is one of the
    `INPUTS` that are shown.
    """

    def __init__(self, encoder: Model, inputs: str, *, seed: int) -> None:
        super().__init__()
        self.model = Classifier(encoder, 1, seed=seed)
        middle_layer = sites(self.model.encoder)[encoder.layers // 2].inner
        first_trained = next(middle_layer.parameters())
        for weights in self.model.encoder.parameters():  # from the embeddings upwards
            if weights is first_trained:
                break
            weights.requires_grad_(False)
        self.encoder = encoder
        self.inputs = inputs

    def forward(self, arguments: Sequence[Argument]) -> Scores:
        """Score both warrants of each argument; equal pairs of texts are read once.

        Pairs are read in batches of similar length.  Of ARCT, one pair in a hundred is longer than
        `Recipe.max_tokens` and is cut.
        """
        pairs = pd.Series(warrant_pairs(arguments, self.inputs))
        rows, unique_pairs = pd.factorize(pairs)
        longest = min(Recipe.max_tokens, self.encoder.max_length)
        texts = task_inputs(self.encoder, list(unique_pairs), longest)
        order = np.argsort([len(text["input_ids"]) for text in texts], kind="stable")
        scores = []
        for batch in np.split(order, range(BATCH_SIZE, len(order), BATCH_SIZE)):
            scores.append(self.model(**padded(self.encoder, [texts[index] for index in batch])))
        in_order = torch.cat(scores)[order.argsort()]
        return in_order[rows].view(-1, 2)


def warrant_pairs(arguments: Sequence[Argument], inputs: str) -> list[Pair]:
    """List the texts that the encoder reads, one pair for each warrant of each argument."""
    *context_parts, _ = INPUTS[inputs]
    pairs = []
    for argument in arguments:
        context = " ".join(getattr(argument, part) for part in context_parts)
        for warrant in argument.warrants:
            texts = (context, warrant) if context else (warrant,)
            pairs.append(Pair(texts, label=0))  # unused: the label belongs to the argument
    return pairs


class WordChooser(nn.Module):
    """A bag of vectors or a BiLSTM over the words that have a vector.

    ``architecture`` is `BAG` or `BILSTM`, ``inputs`` one of the `INPUTS` that are shown; ``seed``
    initialises the weights.
    """

    def __init__(self, architecture: str, inputs: str, vectors: WordVectors, *, seed: int) -> None:
        super().__init__()
        self.parts = INPUTS[inputs]
        self.vectors_of = cache(partial(read_words, vectors=vectors))
        text_width = vectors(["the"]).shape[-1]
        self.lstm = None
        if architecture == BILSTM:
            self.lstm = nn.LSTM(text_width, HIDDEN, bidirectional=True, batch_first=True)
            text_width = 2 * HIDDEN
        self.inner = nn.Linear(len(self.parts) * text_width, HIDDEN)
        self.outer = nn.Linear(HIDDEN, 1)
        generator = torch.Generator().manual_seed(seed)
        for weights in self.parameters():  # torch's default distribution, but from this seed
            bound = weights.shape[-1] ** -0.5 if weights.dim() > 1 else 0.0
            # Not by torch.nn.init, which transformers replaces while another thread loads a model.
            weights.data.uniform_(-bound, bound, generator=generator)

    def forward(self, arguments: Sequence[Argument]) -> Scores:
        """Score both warrants of each argument; equal texts are read once."""
        texts = []
        for part in self.parts:
            for argument in arguments:
                texts += argument.texts(part)
        rows, unique_texts = pd.factorize(pd.Series(texts))
        vectors = [self.vectors_of(text) for text in unique_texts]
        lengths = torch.tensor([len(text_vectors) for text_vectors in vectors])
        read = self.text_vectors(pad_sequence(vectors, batch_first=True), lengths)
        part_vectors = read[rows].chunk(len(self.parts))  # each [argument and warrant, state]
        hidden = self.inner(torch.cat(part_vectors, dim=-1)).relu()
        return self.outer(hidden).view(-1, 2)

    def text_vectors(
        self, x: Float[Tensor, "text word width"], lengths: Int[Tensor, " text"]
    ) -> Float[Tensor, "text state"]:
        """Compute one vector per text: the mean of a bag, or the BiLSTM's largest values."""
        if self.lstm is None:
            return x.sum(dim=1) / lengths[:, None]
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, _ = self.lstm(packed)
        unpacked, _ = pad_packed_sequence(states, batch_first=True, padding_value=-torch.inf)
        return unpacked.amax(dim=1)


def read_words(text: str, vectors: WordVectors) -> Float[Tensor, "word width"]:
    """Look up the vectors of a text's words; a text without any is one word of zeros."""
    word_vectors = torch.tensor(vectors(words(text)), dtype=torch.float)
    nonzero = word_vectors[word_vectors.any(dim=1)]
    return nonzero if len(nonzero) else torch.zeros(1, word_vectors.shape[-1])
