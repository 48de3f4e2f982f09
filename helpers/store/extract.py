"""Extract attention maps of a corpus into a store, or list its examples and compute maps lazily.

The list of examples is written first, one JSON record per line, truncated and counted.  Every
later step (a resumed run, a worker on another machine) reads the same list.  Then the shards that
are missing are computed.  The tensors of a shard are a pure function of the model and of the
shard's records: in any order, in any process and on any number of threads they have the same bits.
For this, each batch is computed on one thread, because a batch on several threads would round
differently.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors.numpy import save_file
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
from helpers.errors import InputError, ModelError
from helpers.files import atomic_file, check_free, folder_lock, json_digest, sha256, write_atomic
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
from helpers.progress import batch_threads, pool, progress
from helpers.store.cluster import map_shards
from helpers.store.store import (
    EXAMPLES,
    ROW_SUM_TOLERANCE,
    STORED,
    GetTensor,
    Level,
    Store,
    Tensors,
    digest_path,
    find_store,
    is_listed,
    shard_path,
    store_folder,
    store_inputs,
    tensor_name,
    write_manifest,
)

Text = Sentence | PairedText | Document  # in words

EXAMPLES_PER_SHARD: dict[Level, int] = {"token": 32, "word": 256}  # of `USUAL_TOKENS` or less
USUAL_TOKENS = 128
MAX_MAP_BYTES = 256 << 20  # of an example; longer texts are cut
BLANK_LINE = "\n\n"  # between the paragraphs of a segment of a decoder
MAX_STORED = float(np.finfo(STORED).max)
# Padded tokens in a forward pass: as many as stay in the caches of one core, or fill a GPU.
BATCH_TOKENS = {"cpu": 512}
GPU_BATCH_TOKENS = 4096


def extract(encoder: Model, corpus: Corpus, *, stream: bool = False, **options: Any) -> Store:
    """Return the store of a model's maps over a corpus, after computing the maps it lacks.

    One process at a time fills a store, from the first unfinished shard on; a second one waits.

    Parameters
    ----------
    encoder
        Model whose maps are stored.
    corpus
        Segments, sentences or documents.
    stream
        Whether maps are computed when they are read, and none are stored: for corpora whose maps
        are larger than the disk.  Those that are stored are read.
    options
        ``level``, ``lens``, ``max_tokens`` and ``hidden``, as in `store.store_inputs`.

    Returns
    -------
    Store
        The finished store, or the list of its examples.

    Raises
    ------
    InputError
        If the corpus has no example.
    ModelError
        If the rows of a map do not sum to 1.
    StoreError
        If the disk is full or cannot be written to, or the store is damaged.
    """
    inputs = store_inputs(encoder.key, corpus, **options)
    finished = find_store(inputs)
    if finished is not None:
        return finished
    folder = store_folder(inputs)
    with folder_lock(folder):  # another process may have done the work when it is free
        if not is_listed(folder):
            list_examples(folder, encoder, corpus, inputs)
        unfinished = ComputedStore(folder, encoder)
        return unfinished if stream else fill(unfinished)


def in_temporary_folder(make: Callable[[Path], Store]) -> Store:
    """Make a store in a temporary folder, which is removed together with it, or after an error."""
    temporary = TemporaryDirectory(prefix="attention-", ignore_cleanup_errors=True)
    with ExitStack() as cleanup:
        store = make(Path(cleanup.enter_context(temporary)))
        weakref.finalize(store, cleanup.pop_all().close)
    return store


def list_examples(
    folder: Path,
    encoder: Model,
    corpus: Corpus,
    inputs: Mapping[str, Any],
    make_records: Callable[..., Iterable[Record]] | None = None,
) -> None:
    """Write the records of a corpus, and the manifest of a store without shards."""
    # A killed process may have left a part, and shards of an unknown list are useless.
    shutil.rmtree(folder, ignore_errors=True)
    whole_maps = longest_whole_maps(encoder.layers, encoder.heads)
    cut_at = min(inputs["max_tokens"], encoder.max_length, whole_maps)
    contents = {
        "key": json_digest(inputs),
        "cut_at": cut_at,
        "examples_per_shard": shard_size(inputs["level"], cut_at),
        "layers": encoder.layer_numbers,
        "heads": encoder.heads,
        "special_tokens": encoder.special_tokens,
        "visible": encoder.visible,
    }
    counts: Counter[str] = Counter()
    records = (make_records or examples)(encoder, corpus, cut_at, counts)
    write_list(folder, {**inputs, **contents}, records, counts)


def longest_whole_maps(layers: int, heads: int) -> int:
    """Compute the number of tokens of the longest example whose whole maps may be kept."""
    return math.isqrt(MAX_MAP_BYTES // (layers * heads * np.dtype(STORED).itemsize))


def write_list(
    folder: Path, contents: Mapping[str, Any], records: Iterable[Record], counts: Counter[str]
) -> None:
    """Write one record per line, and the manifest without shards; InputError without a record.

    ``counts`` has the numbers of dropped and changed examples when the last record has been read.
    """
    n_examples = 0
    with atomic_file(folder / EXAMPLES) as temporary:
        with temporary.open("wb") as file:
            for record in records:
                file.write((json.dumps(record, ensure_ascii=False) + "\n").encode())
                n_examples += 1
        digest = sha256(temporary)
        if n_examples == 0:
            reasons = ", ".join(f"{count} {reason}" for reason, count in counts.items())
            raise InputError(
                f"corpus {contents['corpus']['name']!r}: no example is left "
                f"({reasons or 'it is empty'}); check its path, or raise --max-tokens"
            )
    results = {
        "dtype": np.dtype(STORED).name,
        "n_examples": n_examples,
        "examples_sha256": digest,
        "report": dict(sorted(counts.items())),
    }
    write_manifest(folder, {**contents, **results})


def shard_size(level: Level, max_tokens: int) -> int:
    """Choose the number of examples of a shard: fewer long ones, which take as much memory."""
    times_as_large = max(1, max_tokens / USUAL_TOKENS) ** 2
    return max(1, int(EXAMPLES_PER_SHARD[level] / times_as_large))


def fill(store: ComputedStore) -> Store:
    """Compute the missing shards of a store, and open the finished one.

    StoreError if the disk is full.
    """
    check_free(store.folder, needed_bytes(store))
    missing = store.missing_shards()
    shards = map_shards(make_shard, store, missing)
    label = f"{store.model_name} over {store.corpus_name}"
    for _ in progress(shards, label, unit="shard", total=len(missing)):
        pass
    # Killed processes left these; the temporary files of safetensors begin with ``.tmp``.
    for pattern in ("*.tmp", ".tmp*"):
        for leftover in store.folder.glob(pattern):
            leftover.unlink(missing_ok=True)
    return Store(store.folder)


def needed_bytes(store: Store) -> int:
    """Compute the size in bytes of the tensors of the missing shards, headers of files excluded."""
    n_values = 0
    width = store.encoder.model.config.hidden_size if store.manifest["hidden"] else 0
    for number in store.missing_shards():
        for record in store.records(store.indices(number)):
            length = len(record.get("tokens") or {*record["inputs"]["groups"]})
            n_values += store.layers * store.heads * length**2
            n_values += (store.layers + 1) * width * length  # vectors of all layers
    return n_values * np.dtype(STORED).itemsize


def make_shard(store: Store, number: int) -> None:
    """Compute and write one shard."""
    write_shard(store.folder, number, shard_tensors(store, number))


def write_shard(folder: Path, number: int, tensors: Tensors) -> str:
    """Write a shard, and return its digest.

    The digest is written first, so that every complete shard has one.  The next shard is computed
    while the system writes this one to the disk.  If the power fails meanwhile, the digest shows
    the damage when the shard is read.
    """
    path = shard_path(folder, number)
    # The file is written from the tensors' memory: bytes in between would hold every map twice.
    with atomic_file(path) as temporary:
        save_file(tensors, temporary)
        digest = sha256(temporary)
        write_atomic(digest_path(path), digest.encode("ascii"))
    return digest


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
    encoding = encoder.encode_words(sentence.words, getattr(sentence, "spaces", ()))
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


def _word_record(encoder: Model, text: Text, encoding: Encoding, counts: Counter[str]) -> Record:
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

    def _tensors(self, number: int) -> GetTensor:
        is_stored = shard_path(self.folder, number).is_file()
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
    """Raise ModelError unless rows are distributions, and half precision can hold the vectors."""
    problem = row_problem(maps, has_sink=encoder.has_sink)
    largest_vector = 0.0 if vectors is None else vectors.abs().max().item()
    if not problem and not largest_vector <= MAX_STORED:  # as in some large models
        problem = f"a hidden state reaches {largest_vector:,.0f}, above {MAX_STORED:,.0f}"
    if problem:
        remedy = "use a complete copy of the model, --dtype float32, or another model"
        raise ModelError(f"model {encoder.name!r}: in example {index} {problem}; {remedy}")


def row_problem(maps: Float[Tensor, "layer head query key"], *, has_sink: bool) -> str:
    """Describe a row of attention that is no distribution; empty if all rows are.

    If the softmax has a learned sink, a row may sum to less than one.
    """
    sums = maps.sum(dim=-1, dtype=torch.float32)
    errors = sums - 1 if has_sink else (sums - 1).abs()
    smallest = maps.min().item()
    if smallest >= 0 and errors.max() < ROW_SUM_TOLERANCE:  # NaN is neither
        return ""
    farthest = sums.flatten()[errors.argmax()]
    return f"a row of attention is no distribution (smallest {smallest:.3g}, sum {farthest:.3g})"
