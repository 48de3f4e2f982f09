"""An encoder fine-tuned to choose between two warrants (Niven & Kao 2019, sections 2 and 3).

Each warrant is read with what the encoder is shown of the argument: the reason and the claim
are the first text, the warrant is the second (the only one where it is shown warrants alone).  A
linear layer turns the vector of the two texts into a score, the same for both warrants, and a
softmax over the two scores gives the probabilities.  The whole encoder is trained; kept is the
epoch with the best accuracy on dev, of equals that with the lowest loss there.

The vector is that of `classifier`: of the first token where the model was trained as a masked
language model, as in the paper, the mean over tokens in a sentence encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from helpers.model.encoder import Encoder
from helpers.model.forward import Inputs, padded
from helpers.model.parallel import length_batches
from helpers.studies.argument_cues.arguments import INPUTS, Argument
from helpers.studies.classifier import Classifier, batches, new_classifier, task_inputs
from helpers.studies.tasks import Pair
from helpers.studies.training import gradient_steps, steps_of, trained

SCORED_TOGETHER = 32  # pairs
READ_TOGETHER = 8  # pairs of a step, of similar length: padding is a third of a whole step's
NO_LABEL = 0  # of a pair, whose label is that of the argument

Read = tuple[dict[str, Tensor], list[int]]  # inputs, and which of a step's pairs they are
Batch = tuple[list[Read], Int[Tensor, " argument"]]


@dataclass(frozen=True)
class WarrantRecipe:
    """How to fine-tune; ``batch_size`` counts arguments, of two pairs each.

    The learning rate falls to zero along a line.
    """

    epochs: int = 5
    learning_rate: float = 1e-4
    batch_size: int = 8
    max_tokens: int = 64

    def steps(self, arguments: int) -> int:
        """Return the number of steps over so many arguments."""
        return steps_of(arguments, epochs=self.epochs, batch_size=self.batch_size)


def warrant_pairs(argument: Argument, inputs: str) -> tuple[Pair, Pair]:
    """Return the texts that the encoder reads for each of the two warrants."""
    parts = {"reason": argument.reason, "claim": argument.claim}
    shown = " ".join(parts[part] for part in INPUTS[inputs] if part in parts)
    first, second = (
        Pair(shown, warrant, NO_LABEL) if shown else Pair(warrant, None, NO_LABEL)
        for warrant in argument.warrants
    )
    return first, second


def choose_warrants(
    encoder: Encoder,
    splits: Mapping[str, Sequence[Argument]],
    inputs: str,
    seed: int,
    recipe: WarrantRecipe,
    step_done: Callable[[], None] = lambda: None,
) -> Int[np.ndarray, " argument"]:
    """Fine-tune on ``splits["train"]`` and return the choices, 0 or 1, in ``splits["test"]``.

    ``seed`` decides the first weights of the linear layer and the order of the examples; there
    is no dropout.  ``step_done`` is called after each step.

    Raises:
        ModelError: texts of ``max_tokens`` are too long for the model, or the loss is no number.
    """
    classifier = new_classifier(encoder, 1, seed=seed)
    weights = list(trained(classifier).values())
    optimizer = torch.optim.AdamW(weights, lr=recipe.learning_rate)
    steps = recipe.steps(len(splits["train"]))
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1 / steps, steps - 1 or 1)

    def loss(batch: Batch) -> Tensor:
        reads, labels = batch
        return F.cross_entropy(scores_of_reads(classifier, reads), labels)

    best: tuple[float, float] = (-1.0, 0.0)
    kept: list[Tensor] = []
    for epoch in range(recipe.epochs):
        shuffled = _batches(encoder, splits["train"], inputs, [seed, epoch], recipe)
        what = f"model {encoder.name!r}, warrants, epoch {epoch + 1}"
        for _ in gradient_steps(classifier, shuffled, loss, optimizer, falling, what=what):
            step_done()
        quality = _quality(classifier, encoder, splits["dev"], inputs, recipe)
        if quality > best:
            best, kept = quality, [own.detach().clone() for own in weights]
    with torch.no_grad():
        for own, good in zip(weights, kept, strict=True):
            own.copy_(good)
    return score_warrants(classifier, encoder, splits["test"], inputs, recipe).argmax(axis=-1)


def scores_of_reads(
    classifier: Classifier, reads: Sequence[Read]
) -> Float[Tensor, "argument warrant"]:
    """Return the scores of a step's pairs, read group by group, in their order."""
    places = torch.tensor([place for _, places in reads for place in places])
    scores = torch.cat([classifier(**texts) for texts, _ in reads])
    return scores[places.argsort()].view(-1, 2)


@torch.inference_mode()
def score_warrants(
    classifier: Classifier,
    encoder: Encoder,
    arguments: Sequence[Argument],
    inputs: str,
    recipe: WarrantRecipe,
) -> Float[np.ndarray, "argument warrant"]:
    """Return the score of each warrant; the same texts are read once."""
    pairs = [pair for argument in arguments for pair in warrant_pairs(argument, inputs)]
    different = list(dict.fromkeys(pairs))
    together = {"max_tokens": recipe.max_tokens, "batch_size": SCORED_TOGETHER}
    scores = np.zeros(len(different))
    for batch, _, order in batches(encoder, different, **together):
        scores[order] = classifier(**batch)[:, 0].cpu().numpy()
    place = {pair: index for index, pair in enumerate(different)}
    return scores[[place[pair] for pair in pairs]].reshape(-1, 2)


def _quality(
    classifier: Classifier,
    encoder: Encoder,
    dev: Sequence[Argument],
    inputs: str,
    recipe: WarrantRecipe,
) -> tuple[float, float]:
    """Return the accuracy and the negative loss on dev: the larger, the better."""
    scores = torch.tensor(score_warrants(classifier, encoder, dev, inputs, recipe))
    labels = torch.tensor([argument.label for argument in dev])
    right = (scores.argmax(dim=-1) == labels).double().mean()
    return right.item(), -F.cross_entropy(scores, labels).item()


def _batches(
    encoder: Encoder,
    arguments: Sequence[Argument],
    inputs: str,
    seed: Sequence[int],
    recipe: WarrantRecipe,
) -> Iterator[Batch]:
    """Yield an epoch's batches; the two pairs of an argument follow each other."""
    order = np.random.default_rng(seed).permutation(len(arguments))
    for start in range(0, len(order), recipe.batch_size):
        chosen = [arguments[index] for index in order[start : start + recipe.batch_size]]
        pairs = [pair for argument in chosen for pair in warrant_pairs(argument, inputs)]
        texts: list[Inputs] = task_inputs(encoder, pairs, recipe.max_tokens)
        labels = torch.tensor([argument.label for argument in chosen], device=encoder.device)
        groups = length_batches([len(text["input_ids"]) for text in texts], size=READ_TOGETHER)
        yield [(padded(encoder, [texts[i] for i in own]), own) for own in groups], labels
