"""An encoder with a linear layer on top, and the baselines that it has to beat on a task.

The vector of a text is what the model was trained to make: of a sentence encoder (and of a
decoder, whose first token sees nothing) the mean over the tokens, of a masked language model
that of the first token, [CLS] in BERT.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from helpers.errors import ModelError
from helpers.model.encoder import Encoder
from helpers.model.forward import Inputs, length_batches, padded
from helpers.model.linear import convolve
from helpers.studies.tasks import Pair, Task

BATCH_SIZE = 16
HEAD_SCALE = 0.02  # standard deviation of the head's first weights, as in BERT
MOST_STEPS = 1000  # of a logistic regression, which needs far fewer
BAG, ALONE = "bag of words", "classifier alone"  # the baselines

Batch = dict[str, Tensor]
Labelled = tuple[Batch, Int[Tensor, " example"], Int[np.ndarray, " example"]]


class Classifier(nn.Module):
    """A copy of an encoder, in float32, and a linear head over the vector of a text.

    ``seed`` draws the head.  Everything can be trained but the table of word vectors: it holds half
    of a small model's weights, and a few thousand examples touch few of its rows.  The model stays
    in evaluation mode while it is trained, too: without dropout a run is the same beside others as
    alone.
    """

    def __init__(self, encoder: Encoder, labels: int, *, seed: int) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder.model.base_model).float().requires_grad_(True)
        self.encoder.get_input_embeddings().requires_grad_(False)
        self.reads_first = encoder.objective == "masked-lm"
        self.head = nn.Linear(self.encoder.config.hidden_size, labels)
        generator = torch.Generator().manual_seed(seed)
        nn.init.normal_(self.head.weight, std=HEAD_SCALE, generator=generator)
        nn.init.zeros_(self.head.bias)
        convolve(self.eval().to(encoder.device))

    def forward(self, **batch: Tensor) -> Float[Tensor, "example label"]:
        """Return the logits of a padded batch (input_ids, attention_mask, ...)."""
        states = self.encoder(**batch).last_hidden_state
        if self.reads_first:
            return self.head(states[:, 0])
        weights = batch["attention_mask"][..., None].to(states.dtype)
        return self.head((states * weights).sum(dim=1) / weights.sum(dim=1))


def task_inputs(encoder: Encoder, pairs: Sequence[Pair], max_tokens: int) -> list[Inputs]:
    """Tokenize the texts of a task, with the model's special tokens.

    Of a text that is too long its end is cut off; of two, that of the longer one, until both fit
    into ``max_tokens``.  ModelError where ``max_tokens`` is more than the model takes, or leaves no
    room for words.
    """
    longest = encoder.max_length
    if not 8 <= max_tokens <= longest:
        problem = f"tasks of {max_tokens} tokens; it takes 8 to {longest}"
        raise ModelError(f"model {encoder.name!r}: {problem}")
    texts = [p.first if p.second is None else (p.first, p.second) for p in pairs]
    found = _cutting(encoder.tokenizer, max_tokens).encode_batch(texts)
    return [{"input_ids": one.ids, "token_type_ids": one.type_ids} for one in found]


@lru_cache(maxsize=4)
def _cutting(tokenizer: PreTrainedTokenizerFast, max_tokens: int) -> Tokenizer:
    """Return a tokenizer that cuts; a copy, because others read with the same at the same time."""
    cutting = copy.deepcopy(tokenizer.backend_tokenizer)
    cutting.enable_truncation(max_tokens, strategy="longest_first")
    return cutting


def batches(encoder: Encoder, pairs: Sequence[Pair], *, max_tokens: int) -> Iterator[Labelled]:
    """Yield padded batches of similar length, longest first.

    Each is the tensors for the model, the labels, and which of ``pairs`` the examples are.
    """
    inputs = task_inputs(encoder, pairs, max_tokens)
    labels = torch.tensor([pair.label for pair in pairs], device=encoder.device)
    lengths = [len(item["input_ids"]) for item in inputs]
    for indices in length_batches(lengths, size=BATCH_SIZE, longest_first=True):
        chosen = np.array(indices)
        yield padded(encoder, [inputs[index] for index in indices]), labels[chosen], chosen


@torch.inference_mode()
def outputs(
    classifier: Classifier, encoder: Encoder, pairs: Sequence[Pair], *, max_tokens: int
) -> Float[np.ndarray, "example output"]:
    """Return what a classifier gives for each of ``pairs``: its logits, if it has a head."""
    found = {}
    for batch, _, order in batches(encoder, pairs, max_tokens=max_tokens):
        found.update(zip(order, classifier(**batch).double().cpu().numpy(), strict=True))
    return np.stack([found[number] for number in range(len(pairs))])


def baselines(
    encoder: Encoder, task: Task, *, max_tokens: int
) -> dict[str, Int[np.ndarray, " example"]]:
    """Return the labels that logistic regressions give to the test examples.

    `BAG` knows which tokens occur in the first text and which in the second, each cut as for the
    encoder, and nothing of their order: what it gets right, a task's labels give away.  `ALONE` is
    of the vectors that are pooled for the fine-tuned classifier, of the encoder as it is: the third
    condition of Kovaleva et al. (2019, section 4.3).
    """

    def words(item: Inputs) -> list[str]:
        """Return the tokens, each with the number of special tokens before it."""
        texts = np.isin(item["input_ids"], list(encoder.special_ids)).cumsum()
        return [f"{text} {token}" for text, token in zip(texts, item["input_ids"], strict=True)]

    pooled, parts = Classifier(encoder, 1, seed=0), (task.train, task.test)
    pooled.head = nn.Identity()
    inputs = {
        BAG: [task_inputs(encoder, part, max_tokens) for part in parts],
        ALONE: [outputs(pooled, encoder, part, max_tokens=max_tokens) for part in parts],
    }
    features = {BAG: CountVectorizer(analyzer=words, binary=True), ALONE: StandardScaler()}
    found = {}
    for name, (train, test) in inputs.items():
        model = make_pipeline(features[name], LogisticRegression(max_iter=MOST_STEPS))
        found[name] = model.fit(train, [pair.label for pair in task.train]).predict(test)
    return found
