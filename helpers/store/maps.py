"""Open the attention maps of another tool as a store: arrays of NumPy or torch, or their files.

The maps are written to a temporary folder in the format of every store, so that all that reads a
store reads them.  What needs the model that made them (gradients, the norm lens, controls) has no
place here.
"""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float
from safetensors import SafetensorError, safe_open

from helpers.data.pairs import read_pair
from helpers.data.records import WORD_MARKS, PairedText, Record
from helpers.data.treebank import split_by_document
from helpers.data.visible import Visible, describe_mask
from helpers.errors import InputError
from helpers.files import json_digest, resolve_user_path, sha256
from helpers.model.forward import number_words, to_words
from helpers.store.extract import EXAMPLES_PER_SHARD, finish, write_records, write_shard
from helpers.store.store import (
    CODE_DIGEST,
    FORMAT,
    ROW_SUM_TOLERANCE,
    STORED,
    Level,
    Store,
    Tensors,
    shard_name,
    tensor_name,
)

SHAPE = "[layer, head, query, key]"
CONTINUES_WORD = "##"  # the beginning of a WordPiece token that is not the first of its word
ROLE_TOKENS = {"cls": "[CLS]", "sep": "[SEP]"}  # of the tokens themselves, unless others are named
ANNOTATION = {"pairs", "heads", "relations", "mentions", "tags"}  # of words, as in a store

Tokens = Sequence[str] | tuple[Sequence[str], Sequence[str]]  # those of queries and of keys


class _Given(NamedTuple):
    """One example as it is given: where its maps are from, their reader, and what belongs to it."""

    place: str
    read: Callable[[], Any]
    tokens: Tokens = ()
    words: Sequence[int | None] | None = None
    annotation: Mapping[str, Any] = {}

    @property
    def is_cross(self) -> bool:
        """Whether the queries are tokens of another text."""
        return isinstance(self.tokens, tuple) and not _is_text_list(self.tokens)

    @property
    def queries(self) -> list[str]:
        """The tokens of the queries."""
        return list(cast("Sequence[str]", self.tokens[0] if self.is_cross else self.tokens))

    @property
    def keys(self) -> list[str]:
        """The tokens of the keys."""
        return list(cast("Sequence[str]", self.tokens[1] if self.is_cross else self.tokens))


def open_maps(
    maps: Any,
    tokens: Tokens | Sequence[Tokens],
    *,
    words: Sequence[Any] | None = None,
    records: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    name: str = "maps",
    special_tokens: Mapping[str, str | None] | None = None,
    sink: bool = False,
) -> Store:
    """Open attention maps of any origin as a store.

    Measures of sections 3, 4 and 6, distances, the viewer and figures take the store like that of a
    model.

    Parameters
    ----------
    maps : array, sequence of arrays, or path
        For each example an array ``[layer, head, query, key]`` of NumPy or torch, or a sequence
        with an array for each layer, as transformers' ``outputs.attentions`` of one text.  Or a
        folder of ``.npy`` or ``.safetensors`` files, each array in them an example, by name.
    tokens : sequence
        For each example its tokens.  For cross-attention, whose queries and keys are tokens of two
        texts, a tuple of two lists.  A single example may be given as it is, for ``maps`` as well.
    words : sequence, optional
        For each example the word of each token, None for a special token, as from transformers'
        ``word_ids()``.  The maps are then turned into maps over words (section 4.1).
    records : sequence of mapping, optional
        For each example the name of its ``document``, over which intervals are drawn, and its
        annotation, as in the records of a store: ``pairs``, or ``heads`` and ``relations``, or
        ``mentions``; ``tags`` and ``split``.  Words count from 0, without special tokens.  Without
        ``words``, each token is a word.
    name : str
        Name of the model in tables and views.
    special_tokens : mapping, optional
        The tokens in the roles "cls" and "sep"; by default ``[CLS]`` and ``[SEP]``, if they occur.
    sink : bool
        Whether rows may sum to less than one, because the softmax has a sink besides the keys.

    Returns
    -------
    Store
        At the level ``word`` with ``words`` or annotation, else ``token``.  Its folder is removed
        together with it.

    Raises
    ------
    InputError
        For maps that are no distributions, or do not fit their tokens; the message has the example
        or the file, the problem and the remedy.

    Examples
    --------
    >>> outputs = model(**tokenizer("A cat sat.", return_tensors="pt"), output_attentions=True)
    >>> store = open_maps(outputs.attentions, ["[CLS]", "a", "cat", "sat", ".", "[SEP]"])
    >>> view(store)
    """
    examples = _given_examples(maps, tokens, words, records, name)
    used = {token for example in examples for token in example.keys}
    roles = {role: token if token in used else None for role, token in ROLE_TOKENS.items()}
    roles |= special_tokens or {}
    has_words = words is not None or any(
        example.annotation.keys() & ANNOTATION for example in examples
    )
    level: Level = "word" if has_words else "token"
    annotated = [_record(example, roles, level) for example in examples]
    if level == "word":
        annotated = _with_splits(annotated, name)
    with ExitStack() as cleanup:  # after an error at once, otherwise together with the store
        temporary = TemporaryDirectory(prefix="attention-maps-", ignore_cleanup_errors=True)
        folder = Path(cleanup.enter_context(temporary))
        reader = _Reader(sink=sink)
        shard_size = EXAMPLES_PER_SHARD[level]
        digests = []
        for number, first in enumerate(range(0, len(examples), shard_size)):
            tensors: Tensors = {}
            for index, example in enumerate(examples[first : first + shard_size], first):
                groups = annotated[index].get("inputs", {}).get("groups")
                tensors[tensor_name("attention", index)] = reader.read(example, groups)
            write_shard(folder, number, tensors)
            digests.append(sha256(folder / shard_name(number)))
        given = [[example.keys, example.queries] for example in examples]
        inputs = {
            "format": FORMAT,
            "model": {"name": name, "random_init": None},
            "corpus": {"name": name, "fingerprint": json_digest([digests, given])},
            "level": level,
            "lens": "attention",
            "max_tokens": max(len(example.keys) for example in examples),
            "hidden": False,
            "code": CODE_DIGEST,
        }
        facts = {
            "cut_at": inputs["max_tokens"],
            "examples_per_shard": shard_size,
            "layers": list(range(1, reader.size["layers"] + 1)),
            "heads": reader.size["heads"],
            "special_tokens": roles,
            "visible": [layer._asdict() for layer in reader.visible],
        }
        write_records(folder, inputs, facts, annotated, Counter())
        finish(folder)
        store = Store(folder)
        weakref.finalize(store, cleanup.pop_all().close)
    return store


def _given_examples(maps: Any, tokens: Any, words: Any, records: Any, name: str) -> list[_Given]:
    """Put together what belongs to each example; InputError if the numbers differ."""
    is_single = _is_example(tokens)
    all_tokens = [tokens] if is_single else list(tokens)
    n_examples = len(all_tokens)
    if not n_examples:
        raise InputError(f"{name}: there is no example; give the tokens of one or more")
    sources = _sources(maps, name, is_single=is_single)
    inputs_by_name: dict[str, Any] = {"maps": sources}
    for what, given, missing in (("words", words, None), ("records", records, {})):
        inputs_by_name[what] = [missing] * n_examples if given is None else given
        if is_single and given is not None:
            inputs_by_name[what] = [given]
    for what, given in inputs_by_name.items():
        if len(given) != n_examples:
            raise InputError(
                f"{name}: {what} of {len(given)} examples, but tokens of {n_examples}; give {what} "
                f"for each example{', an array ' + SHAPE if what == 'maps' else ''}"
            )
    rows = zip(sources, all_tokens, inputs_by_name["words"], inputs_by_name["records"], strict=True)
    return [
        source._replace(tokens=example_tokens, words=example_words, annotation=annotation)
        for source, example_tokens, example_words, annotation in rows
    ]


class _Reader:
    """Reads the maps of examples one by one, and notes what all of them have in common."""

    def __init__(self, *, sink: bool) -> None:
        self.sink = sink
        self.size: dict[str, int] = {}  # numbers of layers and heads
        self.visible: list[Visible] = []
        self._longest = 0

    def read(
        self, example: _Given, groups: Sequence[int] | None
    ) -> Float[np.ndarray, "layer head query key"]:
        """Read and check the maps of an example; ``groups`` has the word of each token, if any."""
        place = example.place
        attention = _as_maps(place, example.read())
        check_maps(place, attention, example.queries, example.keys, sink=self.sink)
        n_layers, n_heads, *_ = attention.shape
        size = {"layers": n_layers, "heads": n_heads}
        if self.size not in ({}, size):
            raise InputError(
                f"{place}: {n_layers} layers of {n_heads} heads, but the first example has "
                f"{self.size['layers']} of {self.size['heads']}; give the maps of one model"
            )
        self.size = size
        self._note_visible(attention)
        if groups is not None:
            attention = to_words(torch.tensor(attention, dtype=torch.float32), groups).numpy()
        return np.ascontiguousarray(attention, dtype=STORED)

    def _note_visible(self, attention: Float[np.ndarray, "layer head query key"]) -> None:
        """Find the mask of each layer in the longest example: what no head attends to is hidden."""
        *_, n_queries, n_keys = attention.shape
        if n_keys <= self._longest:
            return
        self._longest = n_keys
        self.visible = []
        for is_seen in np.any(attention > 0, axis=1):
            mask = describe_mask(is_seen) if n_queries == n_keys else None
            self.visible.append(mask or Visible(causal=False, window=None))


def check_maps(
    place: str,
    attention: Float[np.ndarray, "layer head query key"],
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    sink: bool = False,
) -> None:
    """Check that maps fit their tokens, and that each row is a distribution.

    Parameters
    ----------
    place : str
        Where the maps are from, for the message.
    attention : array of shape (layer, head, query, key)
        The maps.
    queries, keys : sequence of str
        Their tokens.
    sink : bool
        Whether rows may sum to less than one.

    Raises
    ------
    InputError
        With the problem and the remedy.
    """
    n_queries, n_keys = attention.shape[2:]
    if (n_queries, n_keys) != (len(queries), len(keys)):
        raise InputError(
            f"{place}: maps of {n_queries} queries and {n_keys} keys, but {len(queries)} and "
            f"{len(keys)} tokens; give every token and no padding, and for cross-attention a tuple "
            "of the queries' and the keys' tokens"
        )
    finite = np.isfinite(attention)
    if not finite.all():
        raise InputError(
            f"{place}: {_row_of(~finite)} has a weight that is not finite (such as NaN); leave "
            "out the example, or compute its maps again"
        )
    if (attention < 0).any():
        raise InputError(
            f"{place}: {_row_of(attention < 0)} has a negative weight; give the weights after the "
            "softmax"
        )
    sums = attention.sum(axis=-1, dtype=np.float64)
    errors = sums - 1 if sink else np.abs(sums - 1)
    if errors.max(initial=0) > ROW_SUM_TOLERANCE:
        worst = np.unravel_index(errors.argmax(), errors.shape)
        remedy = "give the weights after the softmax, without dropout"
        if not sink and sums.max() < 1 + ROW_SUM_TOLERANCE:
            remedy += ", or sink=True if rows may sum to less than one"
        raise InputError(f"{place}: {_row_name(*worst)} sums to {sums[worst]:.3g}; {remedy}")


def _row_of(is_wrong: Bool[np.ndarray, "layer head query key"]) -> str:
    """Name the first row of maps that has a wrong weight."""
    layer, head, query, _ = np.argwhere(is_wrong)[0]
    return _row_name(layer, head, query)


def _row_name(layer: int, head: int, query: int) -> str:
    """Name a row of maps: heads count from 1, as in tables, and queries from 0."""
    return f"head {layer + 1}-{head + 1}, query {query}"


def _is_example(tokens: Any) -> bool:
    """Tell whether tokens are those of one example, and not of a sequence of examples."""
    if isinstance(tokens, tuple) and len(tokens) == 2:
        return all(map(_is_text_list, tokens))
    return _is_text_list(tokens)


def _is_text_list(tokens: Any) -> bool:
    """Tell whether something is a sequence of texts."""
    return bool(len(tokens)) and all(isinstance(token, str) for token in tokens)


def _sources(maps: Any, name: str, *, is_single: bool) -> list[_Given]:
    """List the examples of files, of a sequence, or the only one."""
    if isinstance(maps, (str, os.PathLike)):
        return list(_file_sources(resolve_user_path(os.fspath(maps))))
    is_array = hasattr(maps, "ndim") and maps.ndim == 4
    given = [maps] if is_single or is_array else maps
    return [_Given(f"{name}, example {number}", lambda a=a: a) for number, a in enumerate(given)]


def _file_sources(path: Path) -> Iterator[_Given]:
    """Yield the arrays in the files of a folder, in order of name, or in a file."""
    files = [path] if path.is_file() else sorted(path.glob("*.npy"))
    files = files or sorted(path.glob("*.safetensors"))
    if not files:
        raise InputError(f"{path}: no .npy or .safetensors file; check the path")
    for file in files:
        if file.suffix == ".npy":
            yield _Given(str(file), partial(_read_npy, file))
            continue
        try:
            with safe_open(file, framework="numpy") as tensors:
                names = sorted(tensors.keys())
        except (OSError, SafetensorError) as error:
            raise _unreadable(file, error) from error
        for tensor in names:
            yield _Given(f"{file}, tensor {tensor!r}", partial(_read_tensor, file, tensor))


def _read_npy(path: Path) -> np.ndarray:
    """Read the array of a file."""
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _unreadable(path, error) from error


def _read_tensor(path: Path, name: str) -> np.ndarray:
    """Read a tensor of a file."""
    try:
        with safe_open(path, framework="pt") as tensors:  # NumPy has no bfloat16
            return tensors.get_tensor(name).float().numpy()
    except (OSError, SafetensorError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InputError:
    """Return the error of a file that cannot be read."""
    reason = " ".join(str(error).split())
    return InputError(f"{path}: cannot be read ({reason}); write it with numpy.save or safetensors")


def _as_maps(place: str, given: Any) -> Float[np.ndarray, "layer head query key"]:
    """Convert an array, or one for each layer, to NumPy."""
    try:
        if isinstance(given, (list, tuple)) and hasattr(given[0], "shape"):
            layers = [_as_array(layer) for layer in given]
            # A layer of transformers has a batch of one text.
            array = np.stack([layer[0] if layer.shape[:-3] == (1,) else layer for layer in layers])
        else:
            array = _as_array(given)
    except (ValueError, TypeError, IndexError) as error:
        raise InputError(f"{place}: no array {SHAPE} of numbers; give one of one shape") from error
    if array.ndim != 4 or array.dtype.kind not in "fiu" or not array.size:
        raise InputError(
            f"{place}: an array of shape {list(array.shape)} and type {array.dtype}; give numbers "
            f"of shape {SHAPE}"
        )
    return array


def _as_array(given: Any) -> np.ndarray:
    """Convert an array of NumPy or torch to NumPy."""
    if isinstance(given, torch.Tensor):
        return given.detach().float().cpu().numpy()
    return np.asarray(given)


def _record(example: _Given, special_tokens: Mapping[str, str | None], level: Level) -> Record:
    """Make the record of an example; InputError says what is wrong with its annotation."""
    keys = example.keys
    annotation = example.annotation
    words = example.words
    if level == "token":
        queries = {"queries": example.queries} if example.is_cross else {}
        return {"tokens": keys, **queries, "title": annotation.get("document", "")}
    try:
        if example.is_cross:
            raise ValueError(
                "words= and records= need maps from a text to itself; to score pairs of two texts, "
                "give both as one text, with their maps in a square of zeros, and sink=True"
            )
        if words is None:
            special = set(special_tokens.values())
            words = [None if token in special else number for number, token in enumerate(keys)]
        record = _join_words(keys, words)
        record |= {field: annotation[field] for field in sorted(ANNOTATION & annotation.keys())}
        _check_annotation(record)
    except ValueError as error:
        raise InputError(f"{example.place}: {error}") from error
    record |= {field: annotation.get(field, "") for field in ("split", "document")}
    return record


def _join_words(tokens: Sequence[str], words: Sequence[int | None]) -> Record:
    """Join tokens to the words that they are of; ValueError if special tokens stand between."""
    if len(words) != len(tokens):
        raise ValueError(f"{len(words)} words for {len(tokens)} tokens; give one for each token")
    groups = number_words(words)
    forms: dict[int, str] = {}  # by group
    for token, word, group in zip(tokens, words, groups, strict=True):
        if word is not None:
            form = token.removeprefix(CONTINUES_WORD).lstrip(WORD_MARKS)
            forms[group] = forms.get(group, "") + form
    numbers = list(forms)
    if not numbers or numbers != list(range(numbers[0], numbers[-1] + 1)):
        raise ValueError(
            "special tokens stand between words, or there is no word; give None in words= before "
            "the first word and after the last only"
        )
    return {"words": list(forms.values()), "offset": numbers[0], "inputs": {"groups": groups}}


def _check_annotation(record: Record) -> None:
    """Check the annotation of words; ValueError says what is wrong with it."""
    n_words = len(record["words"])
    if "pairs" in record:
        record["pairs"] = [list(read_pair(pair, n_words)) for pair in record["pairs"]]
    for field in ("heads", "relations", "tags"):
        if field in record and len(record[field]) != n_words:
            raise ValueError(
                f"{len(record[field])} {field} for {n_words} words; give one for each word"
            )
    if ("heads" in record) != ("relations" in record):
        raise ValueError("heads without relations, or relations without heads; give both")
    if not all(0 <= head <= n_words for head in record.get("heads", ())):
        raise ValueError(f"a head is not from 0 (the root) to {n_words}; count words from 1")
    for start, end, _, head in record.get("mentions", ()):
        if not 0 <= start <= head < end <= n_words:
            raise ValueError(
                f"the mention {[start, end]} with the head {head} is not in the words 0 to "
                f"{n_words - 1}; give [start, end, chain, head], with the end exclusive"
            )


def _with_splits(records: Sequence[Record], name: str) -> list[Record]:
    """Name the source of each record, and divide documents into train and dev, if none is named."""
    with_sources = []
    for number, record in enumerate(records, 1):
        document = record["document"]
        origin = f"{name}, document {document}" if document else name
        rest = {key: value for key, value in record.items() if key != "document"}
        with_sources.append({**rest, "source": f"{origin}, sentence {number}"})
    if len(records) < 2 or any(record["split"] for record in records):
        return with_sources
    texts = [PairedText((), (), "", record["source"]) for record in with_sources]
    dev = {text.source for text in split_by_document(texts, Path(name), 0)["dev"]}
    return [
        {**record, "split": "dev" if record["source"] in dev else "train"}
        for record in with_sources
    ]
