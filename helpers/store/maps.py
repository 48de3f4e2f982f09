"""Open the attention maps of another tool as a store: arrays of NumPy or torch.

The maps are written to a temporary folder in the format of every store, so that all that reads a
store reads them.  What needs the model that made them (gradients, the norm lens, controls) has no
place here.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from helpers.data.pairs import read_pair
from helpers.data.records import WORD_MARKS, Corpus, PairedText, Record
from helpers.data.treebank import split_by_document
from helpers.data.visible import Visible, describe_mask
from helpers.errors import InputError
from helpers.files import json_digest, sha256
from helpers.model.forward import number_words, to_words
from helpers.store.extract import EXAMPLES_PER_SHARD, finish, write_list, write_shard
from helpers.store.store import (
    ROW_SUM_TOLERANCE,
    STORED,
    Level,
    Store,
    shard_path,
    store_inputs,
    tensor_name,
)

ANNOTATION = {"pairs", "heads", "relations", "mentions", "tags"}  # of words, as in a store

Maps = Float[np.ndarray, "layer head query key"]
Tokens = Sequence[str] | tuple[Sequence[str], Sequence[str]]  # those of queries and of keys
Words = Sequence[int | None]
RoleTokens = Mapping[str, str | None]


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
    maps : array or sequence of arrays
        For each example an array ``[layer, head, query, key]`` of NumPy or torch, or a sequence
        with an array for each layer, as transformers' ``outputs.attentions`` of one text.
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
        For maps that are no distributions, or do not fit their tokens; the message has the example,
        the problem and the remedy.

    Examples
    --------
    >>> outputs = model(**tokenizer("A cat sat.", return_tensors="pt"), output_attentions=True)
    >>> store = open_maps(outputs.attentions, ["[CLS]", "a", "cat", "sat", ".", "[SEP]"])
    >>> view(store)
    """
    arguments: list[Any] = [maps, tokens, words, records]
    if _is_example(tokens):
        arguments = [[value] for value in arguments]
    n_examples = len(arguments[1])
    arguments = [[None] * n_examples if values is None else values for values in arguments]
    counts = list(map(len, arguments))
    if min(counts) != max(counts) or not n_examples:
        raise InputError(
            "{}: maps of {} examples, tokens of {}, words of {} and records of {}; give each of "
            "every example, and of one at least".format(name, *counts)
        )
    arrays, texts, words_of_texts, annotations = arguments
    annotations = [annotation or {} for annotation in annotations]
    has_words = any(words_of_texts) or any(
        ANNOTATION & set(annotation) for annotation in annotations
    )
    used = {token for text in texts for token in _sides(text)[1]}
    usual = {"cls": "[CLS]", "sep": "[SEP]"}
    roles = {role: token if token in used else None for role, token in usual.items()}
    roles |= special_tokens or {}
    all_maps: list[Maps] = []
    annotated: list[Record] = []
    for index, text in enumerate(texts):
        try:
            all_maps.append(_as_maps(arrays[index]))
            _check_maps(all_maps[-1], *_sides(text), sink=sink)
            if has_words:
                record = _record(text, words_of_texts[index], annotations[index], roles)
            else:
                record = _token_record(text, annotations[index])
        except (ValueError, TypeError, IndexError) as error:
            problem = " ".join(str(error).split())
            raise InputError(f"{name}, example {index}: {problem}") from error
        annotated.append(record)
    sizes = {attention.shape[:2] for attention in all_maps}
    if len(sizes) > 1:
        raise InputError(f"{name}: layers and heads differ, {sizes}; give the maps of one model")
    if has_words:
        annotated = _with_splits(annotated, name)
    with ExitStack() as cleanup:  # after an error at once, otherwise together with the store
        temporary = TemporaryDirectory(prefix="attention-maps-", ignore_cleanup_errors=True)
        folder = Path(cleanup.enter_context(temporary))
        store = _write(folder, name, all_maps, annotated, roles)
        weakref.finalize(store, cleanup.pop_all().close)
    return store


def _is_example(tokens: Any) -> bool:
    """Tell whether tokens are those of one example, and not of a sequence of examples."""
    if isinstance(tokens, tuple) and len(tokens) == 2:
        return isinstance(tokens[0], str) or isinstance(tokens[0][0], str)
    return len(tokens) > 0 and isinstance(tokens[0], str)


def _sides(tokens: Any) -> tuple[Sequence[str], Sequence[str]]:
    """Return the tokens of the queries and of the keys, which are the same in self-attention."""
    return (tokens, tokens) if isinstance(tokens[0], str) else (tokens[0], tokens[1])


def _as_maps(value: Any) -> Maps:
    """Convert an array, or one for each layer, to NumPy."""
    if isinstance(value, (list, tuple)):
        layers = [_as_array(layer) for layer in value]
        # A layer of transformers has a batch of one text.
        array = np.stack([layer.reshape(layer.shape[-3:]) for layer in layers])
    else:
        array = _as_array(value)
    if array.ndim != 4 or array.dtype.kind not in "fiu" or not array.size:
        raise ValueError(
            f"an array of shape {list(array.shape)} and type {array.dtype}; give numbers of shape "
            "[layer, head, query, key]"
        )
    return array


def _as_array(value: Any) -> np.ndarray:
    """Convert an array of NumPy or torch to NumPy."""
    if isinstance(value, torch.Tensor):
        return value.detach().float().cpu().numpy()
    return np.asarray(value)


def _check_maps(
    attention: Maps, queries: Sequence[str], keys: Sequence[str], *, sink: bool
) -> None:
    """Check that maps fit their tokens, and that each row is a distribution; else ValueError."""
    if attention.shape[2:] != (len(queries), len(keys)):
        raise ValueError(
            f"maps of shape {attention.shape}, but {len(queries)} and {len(keys)} tokens; give "
            "every token and no padding, and both texts' tokens, as a tuple, for cross-attention"
        )
    errors = attention.sum(axis=-1, dtype=np.float64) - 1
    if not sink:
        errors = np.abs(errors)
    is_row = (attention.min(axis=-1) >= 0) & (errors < ROW_SUM_TOLERANCE)  # NaN is neither
    if not is_row.all():
        layer, head, query = np.argwhere(~is_row)[0]
        row = attention[layer, head, query]
        raise ValueError(
            f"head {layer + 1}-{head + 1}, query {query} is not a distribution (the smallest "
            f"weight is {row.min():.3g}, and the sum {row.sum():.3g}); give the weights after the "
            "softmax, without dropout, or sink=True if rows may sum to less than one"
        )


def _record(
    tokens: Any, words: Words | None, annotation: Mapping[str, Any], roles: RoleTokens
) -> Record:
    """Make the record of an example with words; ValueError if its annotation does not fit."""
    if not isinstance(tokens[0], str):
        raise ValueError(
            "words= and records= need maps from a text to itself; to score pairs of two texts, "
            "give both as one text, with their maps in a square of zeros, and sink=True"
        )
    if words is None:
        special = set(roles.values())
        words = [None if token in special else number for number, token in enumerate(tokens)]
    record = _join_words(tokens, words)
    record |= {field: annotation[field] for field in sorted(ANNOTATION & annotation.keys())}
    _check_annotation(record)
    return record | {field: annotation.get(field, "") for field in ("split", "document")}


def _token_record(tokens: Any, annotation: Mapping[str, Any]) -> Record:
    """Make the record of an example without words."""
    queries, keys = _sides(tokens)
    record = {"tokens": list(keys), "title": annotation.get("document", "")}
    return record if isinstance(tokens[0], str) else {**record, "queries": list(queries)}


def _join_words(tokens: Sequence[str], words: Words) -> Record:
    """Join tokens to the words that they are of; ValueError if special tokens stand between."""
    groups = number_words(words)
    forms: dict[int, str] = {}  # by group
    for token, word, group in zip(tokens, words, groups, strict=True):
        if word is not None:
            form = token.removeprefix("##").lstrip(WORD_MARKS)
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
    if ("heads" in record) != ("relations" in record):
        raise ValueError("heads without relations, or relations without heads; give both")
    for field in {"heads", "relations", "tags"} & record.keys():
        if len(record[field]) != n_words:
            raise ValueError(f"{len(record[field])} {field} for {n_words} words; give one of each")
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
    annotated = []
    for number, record in enumerate(records, 1):
        document = record.pop("document")
        origin = f"{name}, document {document}" if document else name
        annotated.append({**record, "source": f"{origin}, sentence {number}"})
    if len(records) < 2 or any(record["split"] for record in records):
        return annotated
    texts = [PairedText((), (), "", record["source"]) for record in annotated]
    dev = {text.source for text in split_by_document(texts, Path(name), 0)["dev"]}
    for record in annotated:
        record["split"] = "dev" if record["source"] in dev else "train"
    return annotated


def _write(
    folder: Path, name: str, all_maps: list[Maps], records: list[Record], roles: RoleTokens
) -> Store:
    """Write the maps of examples and their records as a store."""
    level: Level = "word" if "words" in records[0] else "token"
    shard_size = EXAMPLES_PER_SHARD[level]
    digests = []
    for number, first in enumerate(range(0, len(records), shard_size)):
        tensors = {}
        for index in range(len(records))[first : first + shard_size]:
            attention = all_maps[index]
            if level == "word":
                weights = torch.tensor(attention, dtype=torch.float32)
                attention = to_words(weights, records[index]["inputs"]["groups"]).numpy()
            stored = np.ascontiguousarray(attention, dtype=STORED)
            tensors[tensor_name("attention", index)] = stored
        write_shard(folder, number, tensors)
        digests.append(sha256(shard_path(folder, number)))
    longest = max(all_maps, key=lambda attention: attention.shape[-1])
    corpus = Corpus(name, {"maps": digests, "records": records}, lambda _: iter(()))
    key = {"name": name, "random_init": None}
    inputs = store_inputs(key, corpus, level=level, max_tokens=longest.shape[-1])
    contents = {
        "key": json_digest(inputs),
        "cut_at": longest.shape[-1],
        "examples_per_shard": shard_size,
        "layers": list(range(1, len(longest) + 1)),
        "heads": longest.shape[1],
        "special_tokens": roles,
        "visible": [_visible(is_seen)._asdict() for is_seen in np.any(longest > 0, axis=1)],
    }
    write_list(folder, inputs | contents, records, Counter())
    return finish(Store(folder))


def _visible(is_seen: Bool[np.ndarray, "query key"]) -> Visible:
    """Describe the mask of a layer: what no head attends to is hidden."""
    mask = describe_mask(is_seen) if is_seen.shape[0] == is_seen.shape[1] else None
    return mask or Visible(causal=False, window=None)
