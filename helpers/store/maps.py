"""Open the attention maps of another tool as a store: arrays of NumPy or torch.

The maps are written to a temporary folder in the format of every store, so that all that reads a
store reads them.  What needs the model that made them (gradients, the norm lens, controls) has no
place here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

from helpers.data.links import read_pair
from helpers.data.records import WORD_MARKS, Corpus, PairedText, Record, Visible, describe_mask
from helpers.data.treebank import split_by_document
from helpers.errors import InputError
from helpers.files import json_digest, sha256
from helpers.model.forward import number_words, to_words
from helpers.store.arrays import Maps, as_maps, example_columns
from helpers.store.extract import (
    EXAMPLES_PER_SHARD,
    finish,
    in_temporary_folder,
    write_list,
    write_shard,
)
from helpers.store.store import (
    ROW_SUM_TOLERANCE,
    STORED,
    Level,
    Store,
    shard_path,
    store_inputs,
    tensor_name,
)

FIELD_TYPES = {  # of a record that a user gives: of its values, those of annotation in lists
    "pairs": (list, tuple),
    "heads": (int,),
    "relations": (str,),
    "mentions": (list, tuple),
    "tags": (str, type(None)),
    "document": (str,),
    "split": (str,),
}
ANNOTATION = FIELD_TYPES.keys() - {"document", "split"}  # of words, as in a store
FULL = Visible(causal=False, window=None)

Tokens = Sequence[str] | tuple[Sequence[str], Sequence[str]]  # those of queries and of keys
RoleTokens = Mapping[str, str | None]


def open_maps(
    maps: Any,
    tokens: Tokens | Sequence[Tokens],
    *,
    words: Sequence[Any] | None = None,
    records: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    name: str = "maps",
    special_tokens: RoleTokens | None = None,
    sink: bool = False,
) -> Store:
    """Open attention maps of any origin as a store.

    Measures of sections 3, 4 and 6, distances, the viewer and figures take the store like that of a
    model.

    Parameters
    ----------
    maps : array or sequence of arrays
        For each example an array ``[layer, head, query, key]`` of NumPy or torch, or a sequence
        with an array for each layer, as transformers' ``outputs.attentions``, which may be those of
        a batch of texts.
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

    `helpers.read` does this for a text and the name of a model (the page "Look at a head").
    """
    name = str(name)
    try:
        columns = example_columns(maps, tokens, words, records)
        texts = [_sides(text) for text in columns[1]]
        given_roles = dict(special_tokens or {})
        if not given_roles.keys() <= {"cls", "sep", "first"}:
            raise InputError(f"special_tokens have the roles cls, sep and first, not {given_roles}")
    except (InputError, TypeError, ValueError) as error:
        raise InputError(f"{name}: {error}") from error
    fields = {field for entry in columns[3] if isinstance(entry, dict) for field in entry}
    has_words = any(columns[2]) or bool(ANNOTATION & fields)
    used = {token for _, keys in texts for token in keys}
    roles: dict[str, str | None] = {}
    for role, token in {"cls": "[CLS]", "sep": "[SEP]"}.items():
        roles[role] = token if token in used else None
    roles |= given_roles
    checked_maps: list[Maps] = []
    all_records: list[Record] = []
    for index, (queries, keys) in enumerate(texts):
        try:
            checked_maps.append(as_maps(columns[0][index]))
            _check_maps(checked_maps[-1], queries, keys, sink=sink)
            annotation = _checked_fields(columns[3][index] or {})
            record = {"tokens": list(keys), "title": annotation.get("document", "")}
            if queries is not keys:
                record["queries"] = list(queries)
            if has_words:
                record = _word_record(record, columns[2][index], annotation, roles)
            all_records.append(record)
        except (ValueError, TypeError, IndexError) as error:
            raise InputError(f"{name}, example {index}: {' '.join(str(error).split())}") from error
    shapes = {attention.shape[:2] for attention in checked_maps}
    if len(shapes) > 1:
        raise InputError(f"{name}: layers and heads differ, {shapes}; give the maps of one model")
    _set_sources(all_records, name)
    return in_temporary_folder(
        partial(_write, name=name, all_maps=checked_maps, records=all_records, roles=roles)
    )


def _sides(tokens: Any) -> tuple[Sequence[str], Sequence[str]]:
    """Return the tokens of the queries and of the keys, which are the same in self-attention."""
    queries, keys = (tokens, tokens) if isinstance(tokens[0], str) else tokens
    return queries, keys


def _check_maps(
    attention: Maps, queries: Sequence[str], keys: Sequence[str], *, sink: bool
) -> None:
    """Check that maps fit their tokens, and that each row is a distribution; else ValueError."""
    if attention.ndim != 4 or attention.shape[2:] != (len(queries), len(keys)):
        raise ValueError(
            f"an array of shape {list(attention.shape)} for {len(queries)} and {len(keys)} tokens; "
            "give [layer, head, query, key], every token and no padding, and both texts' tokens, "
            "as a tuple, for cross-attention"
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


def _word_record(
    record: Record, words: Sequence[int | None] | None, annotation: Mapping[str, Any],
    roles: RoleTokens,
) -> Record:  # fmt: skip
    """Join the tokens of a record to words, and annotate these.

    ValueError if special tokens stand between words, or the annotation does not fit.
    """
    if "queries" in record:
        raise ValueError(
            "words= and records= need maps from a text to itself; to score pairs of two texts, "
            "give both as one text, with their maps in a square of zeros, and sink=True"
        )
    tokens = record["tokens"]
    if words is None:
        special = set(roles.values())
        numbers = count()
        words = [None if token in special else next(numbers) for token in tokens]
    if len(words) != len(tokens):
        raise ValueError(f"words= has {len(words)} entries for {len(tokens)} tokens; give one each")
    groups = number_words(words)
    forms: dict[int, str] = {}  # by group
    ids: dict[int, int] = {}
    for token, word, group in zip(tokens, words, groups, strict=True):
        if word is not None:
            form = token.removeprefix("##").lstrip(WORD_MARKS)
            forms[group] = forms.get(group, "") + form
            ids[group] = word
    if list(ids.values()) != list(range(len(ids))):
        raise ValueError(
            f"words= are numbered {list(ids.values())!r:.60}; give 0, 1, 2 ... in order, and None "
            "for special tokens, as word_ids() does, because records count words by these numbers"
        )
    positions = list(forms)
    if not positions or positions != list(range(positions[0], positions[-1] + 1)):
        raise ValueError(
            "special tokens stand between words, or there is no word; give None in words= before "
            "the first word and after the last only"
        )
    return {
        "words": list(forms.values()),
        "offset": positions[0],
        "inputs": {"groups": groups},
        **_checked_annotation(annotation, len(forms)),
        "split": annotation.get("split", ""),
        "source": annotation.get("document", ""),
    }


def _checked_fields(record: Any) -> dict[str, Any]:
    """Check the fields of a user's record and the types of their values, else ValueError."""
    if not isinstance(record, dict) or not record.keys() <= FIELD_TYPES.keys():
        raise ValueError(f"the fields of a record are {', '.join(FIELD_TYPES)}, not {record!r:.80}")
    for field, value in record.items():
        is_list = isinstance(value, (list, tuple))
        types = {type(entry) for entry in (value if is_list else [value])}
        is_unknown = field == "split" and value not in ("train", "dev", "")
        if is_unknown or is_list != (field in ANNOTATION) or not types <= set(FIELD_TYPES[field]):
            names = " or ".join(expected.__name__ for expected in FIELD_TYPES[field])
            raise ValueError(f"{field} is {value!r:.80}; expected {names}, for every word a list")
    return record


def _checked_annotation(annotation: Mapping[str, Any], n_words: int) -> Record:
    """Select the annotation of words; ValueError says how it does not fit them."""
    fields = {field: annotation[field] for field in sorted(ANNOTATION & annotation.keys())}
    if "pairs" in fields:
        fields["pairs"] = [list(read_pair(pair, n_words)) for pair in fields["pairs"]]
    if ("heads" in fields) != ("relations" in fields):
        raise ValueError("heads without relations, or relations without heads; give both")
    for field in {"heads", "relations", "tags"} & fields.keys():
        if len(fields[field]) != n_words:
            raise ValueError(f"{len(fields[field])} {field} for {n_words} words; give one of each")
    if not all(0 <= head <= n_words for head in fields.get("heads", ())):
        raise ValueError(f"a head is not from 0 (the root) to {n_words}; count words from 1")
    for start, end, chain, head in fields.get("mentions", ()):
        is_whole = all(type(number) is int for number in (start, end, head, chain or 0))
        if not (is_whole and 0 <= start <= head < end <= n_words):
            raise ValueError(
                f"the mention {[start, end, chain, head]} is not in the words 0 to {n_words - 1}; "
                "give whole numbers [start, end, chain, head], with the end exclusive"
            )
    return fields


def _set_sources(records: Sequence[Record], name: str) -> None:
    """Name the sources of sentences, and divide documents into train and dev if none is divided."""
    sentences = [record for record in records if "words" in record]
    for number, record in enumerate(sentences, 1):
        document = f", document {record['source']}" if record["source"] else ""
        record["source"] = f"{name}{document}, sentence {number}"
    if len(sentences) > 1 and not any(record["split"] for record in sentences):
        texts = [PairedText((), (), "", record["source"]) for record in sentences]
        dev = {text.source for text in split_by_document(texts, Path(name), 0)["dev"]}
        for record in sentences:
            record["split"] = "dev" if record["source"] in dev else "train"


def _write(
    folder: Path, *, name: str, all_maps: list[Maps], records: list[Record], roles: RoleTokens
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
    n_layers, n_heads, n_queries, n_keys = longest.shape
    visible = []  # what no head attends to is hidden
    for is_seen in np.any(longest > 0, axis=1):
        visible.append((n_queries == n_keys and describe_mask(is_seen)) or FULL)
    corpus = Corpus(name, {"maps": digests, "records": records}, lambda _: iter(()))
    key = {"name": name, "random_init": None}
    inputs = store_inputs(key, corpus, level=level, max_tokens=n_keys)
    contents = {
        "key": json_digest(inputs),
        "cut_at": n_keys,
        "examples_per_shard": shard_size,
        "layers": list(range(1, n_layers + 1)),
        "heads": n_heads,
        "special_tokens": roles,
        "visible": [layer._asdict() for layer in visible],
    }
    write_list(folder, {**inputs, **contents}, records, Counter())
    return finish(Store(folder))
