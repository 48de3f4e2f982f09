"""Make records, the list of examples, and compute the tensors of shards from them with a model.

A record is cut to the length that the model takes, and cuts and drops are counted.  The tensors of
a shard are a pure function of the model and of the shard's records: in any order, in any process
and on any number of threads they have the same bits.  For this, each batch is computed on one
thread, because a batch on several threads would round differently.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from tokenizers import Encoding
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from helpers.data.records import Corpus, Document, PairedText, Record, Segment, Sentence
from helpers.errors import ModelError, or_wider
from helpers.model.encoder import Encoder
from helpers.model.forward import (
    Inputs,
    Pass,
    length_batches,
    lens_pass,
    model_inputs,
    to_words,
    to_words_by_matrix,
    vectors_to_words_by_matrix,
    word_inputs,
    word_matrix,
)
from helpers.store.format import (
    ROW_SUM_TOLERANCE,
    STORED,
    StoreKey,
    Tensors,
    tensor_name,
)
from helpers.torch_utils import batch_threads, pool

BLANK_LINE = "\n\n"  # between the paragraphs of a segment of a decoder
MAX_STORED = float(np.finfo(STORED).max)
# Padded tokens in a forward pass: as many as stay in the caches of one core, or fill a GPU.
BATCH_TOKENS = {"cpu": 512}
BATCH_TOKENS_ACCELERATED = 4096


def examples(
    encoder: Encoder, corpus: Corpus, max_tokens: int, counts: Counter[str]
) -> Iterator[Record]:
    """Yield the record of each example that fits; ``counts`` counts cuts and drops by reason."""
    record_makers = {
        Segment: segment_record,
        Sentence: sentence_record,
        PairedText: sentence_record,
        Document: document_record,
    }
    for text in corpus.read(counts):
        make_record = record_makers[type(text)]
        record = make_record(encoder, text, max_tokens, counts)
        if record is not None:
            yield record


def segment_record(
    encoder: Encoder, segment: Segment, max_tokens: int, counts: Counter[str]
) -> Record | None:
    """Tokenize two paragraphs, cut them as in BERT's pre-training, add the special tokens.

    ``second`` is the position of the second paragraph's first token.  The random cut of a pair
    depends on the pair only, not on other pairs or their order.  Decoders read one text, see
    `running_record`.
    """
    if encoder.is_decoder:
        return running_record(encoder, segment, max_tokens, counts)
    backend = encoder.tokenizer.backend_tokenizer
    backend.no_truncation()  # transformers sets truncation when it cuts a text elsewhere
    first = backend.encode(segment.first, add_special_tokens=False)
    second = backend.encode(segment.second, add_special_tokens=False)
    room = max_tokens - backend.num_special_tokens_to_add(is_pair=True)
    if len(first) + len(second) > room:
        counts["segments cut to the token limit"] += 1
        cut_pair(first, second, room, _generator(segment))
    if not len(first) or not len(second):
        counts["segments dropped: a paragraph without tokens"] += 1
        return None
    pair = backend.post_process(first, second, add_special_tokens=True)
    return {"tokens": pair.tokens, "title": segment.title, "second": pair.sequence_ids.index(1)}


def running_record(
    encoder: Encoder, segment: Segment, max_tokens: int, counts: Counter[str]
) -> Record | None:
    """Tokenize two paragraphs and a blank line as one text, and cut the paragraphs.

    ``blank_line`` is the position of the blank line's first token, ``second`` that of the second
    paragraph's.
    """
    backend = encoder.tokenizer.backend_tokenizer
    backend.no_truncation()  # transformers sets truncation when it cuts a text elsewhere
    text = backend.encode(segment.first + BLANK_LINE + segment.second)
    positions = np.arange(len(text))
    is_text = np.array(text.special_tokens_mask) == 0
    _, ends = np.array(text.offsets).T  # of tokens, in characters
    is_second = is_text & (ends > len(segment.first) + len(BLANK_LINE))
    is_blank = is_text & ~is_second & (ends > len(segment.first))
    if not is_blank.any():  # a token has the end of the paragraph and the blank line
        is_blank[positions[is_text & ~is_second][-1:]] = True
    first = positions[is_text & ~is_second & ~is_blank]
    second = positions[is_second]
    room = max_tokens - (len(positions) - len(first) - len(second))
    if len(first) + len(second) > room:
        counts["segments cut to the token limit"] += 1
        for_first, for_second = choose_cuts(len(first), len(second), room, _generator(segment))
        first = first[for_first]
        second = second[for_second]
    if not len(first) or not len(second):
        counts["segments dropped: a paragraph without tokens"] += 1
        return None
    is_kept = ~is_text | is_blank
    is_kept[[*first, *second]] = True
    kept_positions = positions[is_kept].tolist()
    return {
        "tokens": [text.tokens[position] for position in kept_positions],
        "title": segment.title,
        "blank_line": kept_positions.index(first[-1]) + 1,
        "second": kept_positions.index(second[0]),
    }


def _generator(segment: Segment) -> random.Random:
    """Make the random numbers for the cut of a pair, which depend on the pair only."""
    return random.Random(f"{segment.first}\n{segment.second}")


def cut_pair(first: Encoding, second: Encoding, room: int, rng: random.Random) -> None:
    """Shorten the longer of two token sequences as `choose_cuts` says."""
    cuts = choose_cuts(len(first), len(second), room, rng)
    for encoding, kept in zip((first, second), cuts, strict=True):
        encoding.truncate(len(encoding) - kept.start, direction="left")
        encoding.truncate(kept.stop - kept.start, direction="right")


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
    encoder: Encoder, sentence: Sentence | PairedText, max_tokens: int, counts: Counter[str]
) -> Record | None:
    """Return the record of a sentence, or None if the model cannot take the whole sentence."""
    encoding = encoder.encode_words(sentence.words)
    if len(encoding.ids) > max_tokens:
        counts["sentences dropped: over the token limit"] += 1
        return None
    if not _every_word_has_tokens(encoding.word_ids, sentence.words):
        counts["sentences dropped: a word that the tokenizer turns into nothing"] += 1
        return None
    return {
        **sentence._asdict(),
        "offset": encoding.word_ids.index(0),  # each special token has a position of its own
        "inputs": word_inputs(encoding),
    }


def document_record(
    encoder: Encoder, document: Document, max_tokens: int, counts: Counter[str]
) -> Record | None:
    """Return a coreference document's record, cut to the words that fit."""
    words = document.words
    encoding = encoder.encode_words(words)
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
        encoding = encoder.encode_words(document.words)
    if not document.mentions:
        counts["documents dropped: no mention before the cut"] += 1
        return None
    return {
        **document._asdict(),
        "offset": encoding.word_ids.index(0),  # each special token has a position of its own
        "inputs": word_inputs(encoding),
    }


def _every_word_has_tokens(word_ids: Sequence[int | None], words: Sequence[str]) -> bool:
    words_with_tokens = set(word_ids) - {None}
    return len(words_with_tokens) == len(words) > 0


def shard_tensors(
    encoder: Encoder, spec: StoreKey, indices: range, records: Iterable[Record]
) -> Tensors:
    """Compute the tensors of a shard, several batches at a time.

    Parameters
    ----------
    encoder
        Model that computes the maps.
    spec
        Key of the store: its level, its lens, and whether it has vectors.
    indices, records
        Indices and records of the shard's examples.

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
    inputs = [model_inputs(encoder, record) for record in records]
    lengths = [len(example_inputs["input_ids"]) for example_inputs in inputs]
    device = encoder.model.device
    budget = BATCH_TOKENS.get(device.type, BATCH_TOKENS_ACCELERATED)
    # The batch of an example depends on its shard only.
    batches = [
        {indices[row]: inputs[row] for row in rows}
        for rows in length_batches(lengths, budget=budget)
    ]
    tensors: dict[str, Tensor] = {}
    checks: list[Check] = []
    with lens_pass(encoder, spec.lens) as run, pool(batch_threads(device)) as workers:
        for computed in workers.map(partial(_batch_tensors, encoder, spec, run), batches):
            tensors |= computed.tensors
            checks += computed.checks
    _raise_first(encoder, checks)
    return to_arrays(dict(sorted(tensors.items())))


class Check(NamedTuple):
    """The smallest weight and the largest error of a row's sum, or the largest hidden state."""

    index: int  # of the example
    values: Float[Tensor, " value"]  # on the device


class BatchTensors(NamedTuple):
    """The maps of a batch as they are stored, still on the device, and their checks."""

    tensors: dict[str, Tensor]
    checks: list[Check]


@torch.inference_mode()
def _batch_tensors(
    encoder: Encoder, spec: StoreKey, run: Pass, batch: Mapping[int, Inputs]
) -> BatchTensors:
    """Compute the tensors of one batch's examples, in half precision.

    Nothing here waits for the device once the forward pass is queued.
    """
    device = encoder.model.device
    if spec.level == "word":
        rows = [torch.tensor(inputs["groups"]) for inputs in batch.values()]
        word_of_token = pad_sequence(rows, batch_first=True).to(device)
    attentions, states = run(list(batch.values()))
    computed = BatchTensors({}, [])
    for row, (index, inputs) in enumerate(batch.items()):
        length = len(inputs["input_ids"])
        maps = torch.stack([layer[row, :, :length, :length] for layer in attentions])
        if spec.level == "word":
            groups = inputs["groups"]
            token_in_word = word_matrix(word_of_token[row, :length], groups[-1] + 1)
            if device.type == "cpu":  # sums are faster than products here
                maps = to_words(maps.float(), groups)
            else:
                maps = to_words_by_matrix(maps.float(), token_in_word)
        computed.checks.append(Check(index, distribution_errors(maps, has_sink=encoder.has_sink)))
        computed.tensors[tensor_name("attention", index)] = maps.half()
        if spec.hidden:
            vectors = torch.stack([layer[row, :length] for layer in states]).float()
            if spec.level == "word":
                vectors = vectors_to_words_by_matrix(vectors, token_in_word)
            computed.checks.append(Check(index, vectors.abs().max()[None]))
            computed.tensors[tensor_name("hidden", index)] = vectors.half()
    return computed


def to_arrays(tensors: Mapping[str, Tensor]) -> Tensors:
    """Convert the tensors of a shard to arrays; from an accelerator they come in one copy."""
    if all(tensor.device.type == "cpu" for tensor in tensors.values()):
        return {name: tensor.numpy() for name, tensor in tensors.items()}
    return copied_at_once(tensors)


def copied_at_once(tensors: Mapping[str, Tensor]) -> Tensors:
    """Join tensors on their device, copy them to the CPU, and take them apart again."""
    joined = torch.cat([tensor.flatten() for tensor in tensors.values()]).cpu()
    parts = joined.split([tensor.numel() for tensor in tensors.values()])
    return {
        name: part.view(tensor.shape).numpy()
        for (name, tensor), part in zip(tensors.items(), parts, strict=True)
    }


def _raise_first(encoder: Encoder, checks: Sequence[Check]) -> None:
    """Raise ModelError for the first example that cannot be stored; waits for the device once."""
    checks = sorted(checks, key=lambda check: check.index)
    sizes = [len(check.values) for check in checks]
    values = torch.cat([check.values.float() for check in checks]).cpu().split(sizes)
    for check, measured in zip(checks, values, strict=True):
        if len(measured) == 2:
            _check_errors(encoder, check.index, *measured.tolist())
        elif not measured <= MAX_STORED:  # half precision cannot hold some states of large models
            problem = f"a hidden state reaches {measured.item():,.0f}, above {MAX_STORED:,.0f}"
            raise _not_storable(encoder, check.index, problem)


def distribution_errors(
    maps: Float[Tensor, "layer head query key"], *, has_sink: bool
) -> Float[Tensor, 2]:
    """Compute the smallest weight, and the largest difference of the sum of a row from 1.

    If the softmax has a learned sink, a row may sum to less than one.
    """
    errors = maps.sum(dim=-1, dtype=torch.float32) - 1
    largest_error = (errors if has_sink else errors.abs()).max()
    return torch.stack([maps.min().float(), largest_error])


def check_distributions(
    encoder: Encoder, index: int, maps: Float[Tensor, "layer head query key"]
) -> None:
    """Raise ModelError unless each row ``[layer, head, query, :]`` is a distribution."""
    errors = distribution_errors(maps, has_sink=encoder.has_sink)
    _check_errors(encoder, index, *errors.tolist())


def _check_errors(encoder: Encoder, index: int, smallest: float, largest_error: float) -> None:
    """Raise ModelError unless the `distribution_errors` of an example are small."""
    if not (smallest >= 0 and largest_error < ROW_SUM_TOLERANCE):  # NaN is neither
        problem = (
            f"a row of attention is not a distribution (the smallest weight is {smallest:.3g}, and "
            f"the sum of a row differs from 1 by {largest_error:.3g})"
        )
        raise _not_storable(encoder, index, problem)


def _not_storable(encoder: Encoder, index: int, problem: str) -> ModelError:
    """Return the error of an example whose maps or vectors cannot be stored."""
    return ModelError(
        f"model {encoder.name!r}: in example {index} {problem}, so the store cannot hold it. Use a "
        f"complete copy of the model{or_wider(encoder.key['dtype'])}, or another model."
    )
