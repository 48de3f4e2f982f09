"""An encoder with a linear layer on top, which tells the labels of a task apart.

The vector of a text is what the model was trained to make: of a sentence encoder (and of a
decoder, whose first token sees nothing) the mean over the tokens, of a masked language model
that of the first token, [CLS] in BERT.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from helpers.errors import ModelError
from helpers.model.encoder import Encoder
from helpers.model.forward import Inputs, padded
from helpers.model.parallel import length_batches
from helpers.studies.tasks import Pair

BATCH_SIZE = 16
HEAD_SCALE = 0.02  # standard deviation of the head's first weights, as in BERT

Pooling = Literal["first", "mean"]
Batch = dict[str, Tensor]
Labelled = tuple[Batch, Int[Tensor, " example"], Int[np.ndarray, " example"]]


class Classifier(nn.Module):
    """An encoder and a linear head over the vector of a text.

    It stays in evaluation mode while it is trained, too: without dropout a run needs no random
    numbers but those of its order, and is the same beside others as alone.
    """

    def __init__(self, encoder: PreTrainedModel, labels: int, pooling: Pooling) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.config.hidden_size, labels)
        self.pooling = pooling
        self.eval()

    def forward(self, **batch: Tensor) -> Float[Tensor, "example label"]:
        """Return the logits of a padded batch (input_ids, attention_mask, ...)."""
        states = self.encoder(**batch).last_hidden_state
        return self.head(self.pooled(states, batch["attention_mask"]))

    def pooled(
        self, states: Float[Tensor, "example token width"], mask: Int[Tensor, "example token"]
    ) -> Float[Tensor, "example width"]:
        """Return the vector of each text."""
        if self.pooling == "first":
            return states[:, 0]
        weights = mask[..., None].to(states.dtype)
        return (states * weights).sum(dim=1) / weights.sum(dim=1)


def new_classifier(encoder: Encoder, labels: int, *, seed: int) -> Classifier:
    """Return a copy of an encoder, in float32, with a head drawn with ``seed``, on its device.

    Everything can be trained but the table of word vectors: it holds half of a small model's
    weights, and a few thousand examples touch few of its rows.
    """
    model = copy.deepcopy(encoder.model.base_model).float().requires_grad_(True)
    model.get_input_embeddings().requires_grad_(False)
    pooling = "first" if encoder.objective == "masked-lm" else "mean"
    classifier = Classifier(model, labels, pooling)
    weights = torch.randn(
        classifier.head.weight.shape, generator=torch.Generator().manual_seed(seed)
    )
    with torch.no_grad():
        classifier.head.weight.copy_(HEAD_SCALE * weights)
        classifier.head.bias.zero_()
    return classifier.to(encoder.device)


def task_inputs(encoder: Encoder, pairs: Sequence[Pair], max_tokens: int) -> list[Inputs]:
    """Tokenize the texts of a task, with the model's special tokens.

    Of a text that is too long its end is cut off; of two, that of the longer one, until both
    fit into ``max_tokens``.

    Raises:
        ModelError: ``max_tokens`` is more than the model takes, or leaves no room for words.
    """
    if not 8 <= max_tokens <= encoder.max_length:
        raise ModelError(
            f"model {encoder.name!r}: tasks of {max_tokens} tokens; it takes 8 to "
            f"{encoder.max_length}"
        )
    backend = encoder.tokenizer.backend_tokenizer
    inputs = []
    for pair in pairs:
        texts = [pair.first] if pair.second is None else [pair.first, pair.second]
        encodings = [backend.encode(text, add_special_tokens=False) for text in texts]
        room = max_tokens - backend.num_special_tokens_to_add(is_pair=len(texts) == 2)
        for encoding, length in zip(encodings, _lengths(encodings, room), strict=True):
            encoding.truncate(length)
        whole = backend.post_process(*encodings, add_special_tokens=True)
        inputs.append({"input_ids": whole.ids, "token_type_ids": whole.type_ids})
    return inputs


def batches(
    encoder: Encoder, pairs: Sequence[Pair], *, max_tokens: int, batch_size: int = BATCH_SIZE
) -> Iterator[Labelled]:
    """Yield padded batches of similar length, longest first.

    Each is the tensors for the model, the labels, and which of ``pairs`` the examples are.
    """
    inputs = task_inputs(encoder, pairs, max_tokens)
    labels = [pair.label for pair in pairs]
    lengths = [len(item["input_ids"]) for item in inputs]
    for indices in length_batches(lengths, size=batch_size, longest_first=True):
        yield padded_batch(encoder, inputs, labels, indices)


def padded_batch(
    encoder: Encoder, inputs: Sequence[Inputs], labels: Sequence[int], indices: Sequence[int]
) -> Labelled:
    """Return the batch of the examples ``indices``."""
    batch = padded(encoder, [inputs[index] for index in indices])
    own = torch.tensor([labels[index] for index in indices], device=encoder.device)
    return batch, own, np.array(indices)


@torch.inference_mode()
def predict(
    classifier: Classifier,
    encoder: Encoder,
    pairs: Sequence[Pair],
    *,
    max_tokens: int,
) -> Int[np.ndarray, " example"]:
    """Return the label that a classifier gives to each of ``pairs``."""
    predicted = np.zeros(len(pairs), dtype=np.int64)
    for batch, _, order in batches(encoder, pairs, max_tokens=max_tokens):
        predicted[order] = classifier(**batch).argmax(dim=-1).cpu().numpy()
    return predicted


def _lengths(encodings: Sequence[object], room: int) -> list[int]:
    """Return to how many tokens each text is cut, the longer one first."""
    lengths = [len(encoding) for encoding in encodings]
    if sum(lengths) <= room or len(lengths) == 1:
        return [min(length, room) for length in lengths]
    shorter = min(*lengths, room // 2)
    if lengths[0] <= lengths[1]:
        return [shorter, min(lengths[1], room - shorter)]
    return [min(lengths[0], room - shorter), shorter]
