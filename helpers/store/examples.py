"""Examples: their records, which are the list of work, and their tensors, which a model computes.

A record is cut to what the model takes, and what is cut or dropped is counted.  The tensors of a
shard, consecutive examples, are a pure function of the model and of their records: in any order,
in any process and on any number of threads they have the same bits.  For this, batches run side
by side and each of them on one thread; on several a batch would round differently.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from tokenizers import Encoding
from torch import Tensor

from helpers.data.records import Corpus, Document, Record, Segment, Sentence
from helpers.errors import ModelError, or_wider
from helpers.model.encoder import Encoder, Lens
from helpers.model.forward import (
    Inputs,
    Pass,
    length_batches,
    lens_pass,
    model_inputs,
    to_words,
    vectors_to_words,
    word_groups,
)
from helpers.store.format import ROW_SUM_TOLERANCE, STORED, Level, Tensors, tensor_name
from helpers.work import in_order, trim

LARGEST = float(np.finfo(STORED).max)
# Padded tokens in a forward pass: what stays in the caches of one core; on a GPU, what fills it.
BATCH_TOKENS = {"cpu": 512}
BATCH_TOKENS_ACCELERATED = 4096


def examples(
    encoder: Encoder, corpus: Corpus, max_tokens: int, counts: Counter[str]
) -> Iterator[Record]:
    """Yield the record of each example that fits, counting in ``counts`` what does not."""
    make = {Segment: segment_record, Sentence: sentence_record, Document: document_record}
    for item in corpus.read(counts):
        record = make[type(item)](encoder, item, max_tokens, counts)
        if record is not None:
            yield record


def segment_record(
    encoder: Encoder, segment: Segment, max_tokens: int, counts: Counter[str]
) -> Record | None:
    """Tokenize two paragraphs, cut them as in BERT's pre-training, add the special tokens.

    ``second`` is the position where the second paragraph starts.  Where a pair is cut depends on
    the pair alone, not on the others or their order.
    """
    backend = encoder.tokenizer.backend_tokenizer
    backend.no_truncation()  # which transformers sets when it cuts a text elsewhere
    first, second = (
        backend.encode(text, add_special_tokens=False) for text in (segment.first, segment.second)
    )
    room = max_tokens - backend.num_special_tokens_to_add(is_pair=True)
    if len(first) + len(second) > room:
        counts["segments cut to the token limit"] += 1
        cut_pair(first, second, room, random.Random(f"{segment.first}\n{segment.second}"))
    if not len(first) or not len(second):
        counts["segments dropped: a paragraph without tokens"] += 1
        return None
    pair = backend.post_process(first, second, add_special_tokens=True)
    return {"tokens": pair.tokens, "title": segment.title, "second": pair.sequence_ids.index(1)}


def cut_pair(first: Encoding, second: Encoding, room: int, rng: random.Random) -> None:
    """Shorten the longer of two token sequences, at either end at random, until both fit.

    BERT's pre-training draws an end token by token; here it is one go, of the same distribution.
    """
    lengths = [len(first), len(second)]
    losses = [0, 0]
    while sum(lengths) - sum(losses) > room:
        left = [length - loss for length, loss in zip(lengths, losses, strict=True)]
        losses[0 if left[0] > left[1] else 1] += 1
    for encoding, loss in zip((first, second), losses, strict=True):
        if not loss:
            continue
        from_front = sum(rng.random() < 0.5 for _ in range(loss))
        encoding.truncate(len(encoding) - from_front, direction="left")
        encoding.truncate(len(encoding) - (loss - from_front), direction="right")


def sentence_record(
    encoder: Encoder, sentence: Sentence, max_tokens: int, counts: Counter[str]
) -> Record | None:
    """Return a treebank sentence's record, or None where the model cannot take it whole."""
    words = list(sentence.words)
    encoding = encoder.encode_words(words)
    if len(encoding.ids) > max_tokens:
        counts["sentences dropped: over the token limit"] += 1
        return None
    if not _every_word_has_tokens(encoding.word_ids, words):
        counts["sentences dropped: a word that the tokenizer turns into nothing"] += 1
        return None
    return {
        "words": words,
        "split": sentence.split,
        "source": sentence.source,
        "heads": list(sentence.heads),
        "relations": list(sentence.relations),
        "offset": _offset(encoding.word_ids),
    }


def document_record(
    encoder: Encoder, document: Document, max_tokens: int, counts: Counter[str]
) -> Record | None:
    """Return a coreference document's record, cut to the words that fit."""
    words = list(document.words)
    encoding = encoder.encode_words(words)
    if not _every_word_has_tokens(encoding.word_ids, words):
        counts["documents dropped: a word that the tokenizer turns into nothing"] += 1
        return None
    fitting = _words_that_fit(encoder, encoding.word_ids, max_tokens)
    if fitting < len(words):
        counts["documents cut to the token limit"] += 1
        document, dropped = document.cut(fitting)
        counts["mentions dropped: beyond the cut"] += dropped
    if not document.mentions:
        counts["documents dropped: no mention before the cut"] += 1
        return None
    return {
        "words": list(document.words),
        "tags": list(document.tags),
        "split": document.split,
        "source": document.source,
        "mentions": [list(mention) for mention in document.mentions],
        "offset": _offset(encoding.word_ids),
    }


def _every_word_has_tokens(word_ids: list[int | None], words: list[str]) -> bool:
    return len(set(word_ids) - {None}) == len(words) > 0


def _offset(word_ids: list[int | None]) -> int:
    """Return the word-level position of the first word: the special tokens before it."""
    return word_groups(word_ids)[word_ids.index(0)]


def _words_that_fit(encoder: Encoder, word_ids: list[int | None], max_tokens: int) -> int:
    room = max_tokens - sum(word is None for word in word_ids)
    own = [word for word in word_ids if word is not None]
    return len(set(own)) if len(own) <= room else own[room]


def shard_tensors(encoder: Encoder, records: list[Record], first: int, **options: Any) -> Tensors:
    """Compute one shard: the tensors of examples ``first`` to ``first + len(records)``."""
    work = [(range(first, first + len(records)), records)]
    ((_, tensors),) = shards_tensors(encoder, work, **options)
    return tensors


def shards_tensors(
    encoder: Encoder,
    work: Iterable[tuple[range, list[Record]]],
    *,
    level: Level,
    lens: Lens = "attention",
    hidden: bool = False,
) -> Generator[tuple[range, Tensors]]:
    """Compute shards, in order, on all threads; the next shard is begun before one is done.

    Yields each shard's indices and tensors: ``attention/000123`` ``[layer, head, query, key]``,
    ``token_ids/...`` ``[token]`` (token level) and, if asked for,
    ``hidden/...`` ``[layer, position, width]``.  ModelError where rows of a map do not sum to 1.
    """
    width = torch.get_num_threads() if encoder.device.type == "cpu" else 1
    sizes: deque[tuple[range, int]] = deque()  # batches of the shards that are begun

    def jobs() -> Iterator[Callable[[], Tensors]]:
        for indices, records in work:
            batches = _batches(encoder, records, indices.start)
            sizes.append((indices, len(batches)))
            for batch in batches:
                yield partial(_batch, encoder, batch, run, level, hidden)

    with (
        lens_pass(encoder, lens) as run,
        closing(in_order(jobs(), threads=width, ahead=2 * width)) as found,
    ):
        for tensors in found:
            indices, size = sizes.popleft()
            for other in islice(found, size - 1):
                tensors |= other
            yield indices, dict(sorted(tensors.items()))
            trim()


def _batches(encoder: Encoder, records: list[Record], first: int) -> list[list[tuple[int, Inputs]]]:
    """Return a shard's batches; which one an example is in depends on its shard alone."""
    inputs = [model_inputs(encoder, record) for record in records]
    budget = BATCH_TOKENS.get(encoder.device.type, BATCH_TOKENS_ACCELERATED)
    lengths = [len(item["input_ids"]) for item in inputs]
    batches = length_batches(lengths, budget=budget, longest_first=True)
    return [[(first + i, inputs[i]) for i in batch] for batch in batches]


@torch.inference_mode()
def _batch(
    encoder: Encoder, batch: list[tuple[int, Inputs]], run: Pass, level: Level, hidden: bool
) -> Tensors:
    """Return the tensors of one batch's examples, as they are stored."""
    attentions, states = run([item for _, item in batch], hidden=hidden)
    tensors: Tensors = {}
    for row, (index, item) in enumerate(batch):
        length = len(item["input_ids"])
        layers = [layer[row, :, :length, :length] for layer in attentions]
        if level == "word":
            layers = list(to_words(torch.stack(layers).float(), item["groups"]))
        else:
            tensors[tensor_name("token_ids", index)] = np.array(item["input_ids"], dtype=np.int32)
        tensors[tensor_name("attention", index)] = _stored(encoder, layers, index)
        if hidden:
            vectors = torch.stack([layer[row, :length] for layer in states]).float()
            if level == "word":
                vectors = vectors_to_words(vectors, item["groups"])
            _check_vectors(encoder, vectors, index)
            tensors[tensor_name("hidden", index)] = vectors.cpu().numpy().astype(STORED)
    return tensors


def _stored(
    encoder: Encoder, layers: list[Float[Tensor, "head query key"]], index: int
) -> Float[np.ndarray, "layer head query key"]:
    """Return maps as they are stored, after checking that each row is a distribution."""
    # Layer by layer into their place, in half precision: stacking would copy all maps once more.
    maps = torch.empty((len(layers), *layers[0].shape), dtype=torch.half, device=layers[0].device)
    sums = torch.empty(maps.shape[:-1], device=maps.device)
    for number, layer in enumerate(layers):
        maps[number].copy_(layer)
        torch.sum(layer, dim=-1, dtype=torch.float32, out=sums[number])
    error = (sums - 1).abs().max()
    if not error < ROW_SUM_TOLERANCE:  # NaN is not smaller either
        raise ModelError(
            f"model {encoder.name!r}: an attention row of example {index} is off from summing to "
            f"1 by {error:.3g}; take a whole copy of the model{or_wider(encoder.dtype)}"
        )
    return maps.cpu().numpy()


def _check_vectors(
    encoder: Encoder, vectors: Float[Tensor, "layer position width"], index: int
) -> None:
    """Refuse vectors that half precision cannot hold: large models have some."""
    largest = vectors.abs().amax(dim=(1, 2))  # of each layer; NaN where there is one
    beyond = (largest <= LARGEST).logical_not().nonzero()
    if len(beyond):
        layer = int(beyond[0])
        whole = f"take a whole copy of the model{or_wider(encoder.dtype)}"
        raise ModelError(
            f"model {encoder.name!r}: in example {index}, layer {layer} (0: the embeddings), a "
            f"hidden state reaches {largest[layer]:,.0f}, and {np.dtype(STORED)} holds "
            f"{LARGEST:,.0f}; {'it cannot be stored' if largest[layer].isfinite() else whole}"
        )
