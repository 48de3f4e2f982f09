"""Make records, the list of examples, and compute the tensors of shards from them with a model.

A record is cut to the length that the model takes, and cuts and drops are counted.  The tensors of
a shard are a pure function of the model and of the shard's records: in any order, in any process
and on any number of threads they have the same bits.  For this, each batch is computed on one
thread, because a batch on several threads would round differently.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from tokenizers import Encoding
from torch import Tensor

from helpers.data.records import (
    SPACED,
    WORD_MARKS,
    Corpus,
    Document,
    PairedText,
    Record,
    Segment,
    Sentence,
)
from helpers.errors import ModelError
from helpers.model.forward import (
    Inputs,
    Pass,
    length_batches,
    lens_pass,
    model_inputs,
    to_words,
    vectors_to_words,
    word_inputs,
)
from helpers.model.loading import Model
from helpers.progress import batch_threads, pool
from helpers.store.store import (
    ROW_SUM_TOLERANCE,
    STORED,
    GetTensor,
    Store,
    Tensors,
    shard_path,
    tensor_name,
)

BLANK_LINE = "\n\n"  # between the paragraphs of a segment of a decoder
MAX_STORED = float(np.finfo(STORED).max)
# Padded tokens in a forward pass: as many as stay in the caches of one core, or fill a GPU.
BATCH_TOKENS = {"cpu": 512}
GPU_BATCH_TOKENS = 4096


def examples(
    encoder: Model, corpus: Corpus, max_tokens: int, counts: Counter[str]
) -> Iterator[Record]:
    """Yield the record of each example that fits; ``counts`` counts cuts and drops by reason."""
    record_makers = {Segment: segment_record, Document: document_record}
    for text in corpus.read(counts):
        make_record = record_makers.get(type(text), sentence_record)
        record = make_record(encoder, text, max_tokens, counts)
        if record is not None:
            yield record


def segment_record(
    encoder: Model, segment: Segment, max_tokens: int, counts: Counter[str]
) -> Record | None:
    """Tokenize two paragraphs, cut them as in BERT's pre-training, add the special tokens.

    Decoders read both as one text, with a blank line between them.  ``second`` is the position of
    the second paragraph's first token, and ``blank_line`` that of the blank line's.  The random cut
    of a pair depends on the pair only, not on other pairs or their order.
    """
    backend = encoder.tokenizer.backend_tokenizer
    backend.no_truncation()  # transformers sets truncation when it cuts a text elsewhere
    if encoder.is_decoder:
        encoding = backend.encode(segment.first + BLANK_LINE + segment.second)
        paragraphs = _paragraphs_of_text(encoding, len(segment.first))
    else:
        encoding = backend.encode(segment.first, segment.second)
        paragraphs = np.array([2 if number is None else number for number in encoding.sequence_ids])
    first, second, others = (np.flatnonzero(paragraphs == number) for number in range(3))
    room = max_tokens - len(others)
    if len(first) + len(second) > room:
        counts["segments cut to the token limit"] += 1
        rng = random.Random(f"{segment.first}\n{segment.second}")
        for_first, for_second = choose_cuts(len(first), len(second), room, rng)
        first = first[for_first]
        second = second[for_second]
    if not len(first) or not len(second):
        counts["segments dropped: a paragraph without tokens"] += 1
        return None
    kept = sorted([*first, *second, *others])
    record = {"tokens": [encoding.tokens[position] for position in kept], "title": segment.title}
    if encoder.is_decoder:
        record["blank_line"] = kept.index(first[-1]) + 1
    return {**record, "second": kept.index(second[0])}


def _paragraphs_of_text(encoding: Encoding, n_first: int) -> Int[np.ndarray, " token"]:
    """Return the paragraph of each token, 0 or 1, and 2 for special tokens and the blank line.

    The first paragraph has ``n_first`` characters, and a blank line follows it.
    """
    is_text = np.array(encoding.special_tokens_mask) == 0
    _, ends = np.array(encoding.offsets).T  # of tokens, in characters
    is_second = is_text & (ends > n_first + len(BLANK_LINE))
    is_blank = is_text & ~is_second & (ends > n_first)
    if not is_blank.any():  # a token has the end of the paragraph and the blank line
        is_blank[np.flatnonzero(is_text & ~is_second)[-1:]] = True
    return np.select([is_second, is_text & ~is_blank], [1, 0], default=2)


def choose_cuts(n_first: int, n_second: int, room: int, rng: random.Random) -> tuple[slice, slice]:
    """Choose the parts of two sequences that are kept: the longer is cut, until both fit.

    BERT's pre-training removes token by token, from an end at random. Here the tokens of each end
    are counted first and removed together, which gives the same distribution.
    """
    second_length = min(n_second, max(room - n_first, room // 2))
    cuts = []
    for n_tokens, length in ((n_first, room - second_length), (n_second, second_length)):
        from_front = sum(rng.random() < 0.5 for _ in range(n_tokens - length))
        cuts.append(slice(from_front, from_front + length))
    return cuts[0], cuts[1]


def sentence_record(
    encoder: Model, sentence: Sentence | PairedText, max_tokens: int, counts: Counter[str]
) -> Record | None:
    """Return the record of a sentence, or None if the model cannot take the whole sentence."""
    spaces = () if isinstance(sentence, PairedText) else sentence.spaces
    encoding = encoder.encode_words(sentence.words, spaces)
    if len(encoding.ids) > max_tokens:
        counts["sentences dropped: over the token limit"] += 1
        return None
    if not _every_word_has_tokens(encoding.word_ids, sentence.words):
        counts["sentences dropped: a word that the tokenizer turns into nothing"] += 1
        return None
    return _word_record(encoder, sentence, encoding, counts)


def document_record(
    encoder: Model, document: Document, max_tokens: int, counts: Counter[str]
) -> Record | None:
    """Return a coreference document's record, cut to the words that fit."""
    words = document.words
    encoding = encoder.encode_words(words, document.spaces)
    if not _every_word_has_tokens(encoding.word_ids, words):
        counts["documents dropped: a word that the tokenizer turns into nothing"] += 1
        return None
    words_of_tokens = [word for word in encoding.word_ids if word is not None]
    room = max_tokens - (len(encoding) - len(words_of_tokens))  # without special tokens
    # The first token without room belongs to word n, so that words 0 to n - 1 fit.
    n_fitting = words_of_tokens[room] if len(words_of_tokens) > room else len(words)
    if n_fitting < len(words):
        counts["documents cut to the token limit"] += 1
        document, n_dropped = document.cut(n_fitting)
        counts["mentions dropped: beyond the cut"] += n_dropped
        encoding = encoder.encode_words(document.words, document.spaces)
    if not document.mentions:
        counts["documents dropped: no mention before the cut"] += 1
        return None
    return _word_record(encoder, document, encoding, counts)


def _word_record(
    encoder: Model,
    text: Sentence | PairedText | Document,
    encoding: Encoding,
    counts: Counter[str],
) -> Record:
    """Return the fields of a text, and where a model has its words.

    Words are counted whose tokens have the mark of a space although the text may have none.
    """
    first_word = encoding.word_ids.index(0)  # each special token has a position of its own
    record = {**text._asdict(), "offset": first_word, "inputs": word_inputs(encoding)}
    marks_spaces = encoding.tokens[first_word].startswith(tuple(WORD_MARKS))
    if marks_spaces and not (encoder.word_prefix and record.get("spaces")):
        counts[SPACED] += len(text.words)
    if not record.get("spaces"):
        record.pop("spaces", None)
    return record


def _every_word_has_tokens(word_ids: Sequence[int | None], words: Sequence[str]) -> bool:
    words_with_tokens = set(word_ids) - {None}
    return len(words_with_tokens) == len(words) > 0


class ComputedStore(Store):
    """A store that computes the maps of the shards that its folder lacks, when they are read."""

    def __init__(self, folder: str | Path, encoder: Model) -> None:
        super().__init__(folder)
        self.encoder: Model = encoder

    def _tensors(self, number: int) -> GetTensor:
        is_stored = self.manifest["shards"] and shard_path(self.folder, number).is_file()
        return super()._tensors(number) if is_stored else shard_tensors(self, number).__getitem__


def shard_tensors(store: Store, number: int) -> Tensors:
    """Compute the tensors of a shard with the encoder of its store, several batches at a time.

    Parameters
    ----------
    store
        Store with an encoder.
    number
        Number of the shard.

    Returns
    -------
    dict
        The tensors by name: ``attention/000123`` of shape (layer, head, query, key) and, if the
        store has vectors, ``hidden/000123`` of shape (layer, position, width).

    Raises
    ------
    ModelError
        If a row of a map is not a distribution, or a vector is too large to be stored.
    """
    encoder = store.encoder
    indices = store.indices(number)
    inputs = [model_inputs(encoder, record) for record in store.records(indices)]
    lengths = [len(example_inputs["input_ids"]) for example_inputs in inputs]
    device = encoder.model.device
    # The batch of an example depends on its shard only.
    batches = [
        {indices[row]: inputs[row] for row in rows}
        for rows in length_batches(lengths, budget=BATCH_TOKENS.get(device.type, GPU_BATCH_TOKENS))
    ]
    tensors: Tensors = {}
    with lens_pass(encoder, store.lens) as run, pool(batch_threads(device)) as workers:
        for computed in workers.map(partial(_compute_batch, store, run), batches):
            tensors |= computed
    return dict(sorted(tensors.items()))


@torch.inference_mode()
def _compute_batch(store: Store, run: Pass, batch: Mapping[int, Inputs]) -> Tensors:
    """Compute and check the tensors of one batch's examples, in half precision."""
    tensors = {}
    attentions, states = run(list(batch.values()))
    for row, (index, inputs) in enumerate(batch.items()):
        length = len(inputs["input_ids"])
        maps = torch.stack([layer[row, :, :length, :length] for layer in attentions])
        if store.level == "word":
            maps = to_words(maps.float(), inputs["groups"])
        vectors = None
        if store.manifest["hidden"]:
            vectors = torch.stack([layer[row, :length] for layer in states]).float()
            if store.level == "word":
                vectors = vectors_to_words(vectors, inputs["groups"])
            tensors[tensor_name("hidden", index)] = vectors.half().cpu().numpy()
        tensors[tensor_name("attention", index)] = maps.half().cpu().numpy()
        check_example(store.encoder, index, maps, vectors)
    return tensors


def check_example(
    encoder: Model,
    index: int,
    maps: Float[Tensor, "layer head query key"],
    vectors: Float[Tensor, "state position width"] | None = None,
) -> None:
    """Raise ModelError unless rows are distributions, and half precision can hold the vectors.

    If the softmax has a learned sink, a row may sum to less than one.
    """
    errors = maps.sum(dim=-1, dtype=torch.float32) - 1
    largest_error = (errors if encoder.has_sink else errors.abs()).max().item()
    smallest = maps.min().item()
    largest_vector = 0.0 if vectors is None else vectors.abs().max().item()
    if not (smallest >= 0 and largest_error < ROW_SUM_TOLERANCE):  # NaN is neither
        problem = (
            f"a row of attention is not a distribution (the smallest weight is {smallest:.3g}, and "
            f"the sum of a row differs from 1 by {largest_error:.3g})"
        )
    elif not largest_vector <= MAX_STORED:  # as in some large models
        problem = f"a hidden state reaches {largest_vector:,.0f}, above {MAX_STORED:,.0f}"
    else:
        return
    wider = "" if encoder.model.dtype == torch.float32 else ", or --dtype float32"
    raise ModelError(
        f"model {encoder.name!r}: in example {index} {problem}, so the store cannot hold it. Use a "
        f"complete copy of the model{wider}, or another model."
    )
