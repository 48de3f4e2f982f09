"""Open the attention maps of another tool as a store: arrays of NumPy or torch.

The maps are written to a temporary folder in the format of every store, so that all that reads a
store reads them.  What needs the model that made them (gradients, the norm lens, controls) has no
place here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from helpers.data.links import read_pair
from helpers.data.records import WORD_MARKS, Corpus, PairedText, Record, Visible, describe_mask
from helpers.data.treebank import split_by_document
from helpers.errors import InputError
from helpers.files import json_digest
from helpers.model.forward import number_words, to_words
from helpers.store.extract import (
    in_temporary_folder,
    row_problem,
    write_list,
    write_shard,
)
from helpers.store.store import Store, store_inputs, tensor_name

# The fields of a record that a user gives, with the type of each entry: first those of annotation.
FIELDS = {"heads": int, "relations": str, "tags": str | None, "pairs": list, "mentions": list,
          "document": str, "split": str}  # fmt: skip
ANNOTATION = FIELDS.keys() - {"document", "split"}
NO_MAPS = (
    'there is no map (None, or an empty tuple); load the model with attn_implementation="eager", '
    "because sdpa and flash attention compute none, and leave layers without maps out"
)
GENERATED = (
    "these are maps by step, as generate() returns them; run the model once over the finished "
    "text: model(sequences[:1], output_attentions=True).attentions"
)

Maps = Float[Tensor, "layer head query key"]
RoleTokens = Mapping[str, str | None]


def open_maps(
    maps: Any,
    tokens: Sequence[Any],
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
    maps = getattr(maps, "attentions", maps)
    with _errors_in_one_line(name):
        is_one = _is_pair(tokens) or isinstance(next(iter(tokens), None), str)
        texts = [_sides(text) for text in ([tokens] if is_one else tokens)]
        _check_steps(maps, 0 if is_one else len(texts))
        columns = []
        for values in (maps, plain(words), plain(records)):
            column = [values] if is_one else values
            columns.append([None] * len(texts) if column is None else column)
        columns[0] = _by_text(columns[0], len(texts))
        if not texts or {len(texts)} != set(map(len, columns)):
            raise ValueError(f"give maps, words and records of each of the {len(texts)} texts")
        all_fields = [_checked_fields(fields or {}) for fields in columns[2]]
        used_tokens = {token for _, keys in texts for token in keys}
        roles: dict[str, str | None] = {"cls": "[CLS]", "sep": "[SEP]", **(special_tokens or {})}
        if not roles.keys() <= {"cls", "sep", "first"}:
            raise ValueError(f"special_tokens have the roles cls, sep and first, not {roles}")
        roles = {role: token if token in used_tokens else None for role, token in roles.items()}
    has_words = words is not None or any(ANNOTATION & fields.keys() for fields in all_fields)
    all_maps: list[Maps] = []
    all_records: list[Record] = []
    for index, (queries, keys) in enumerate(texts):
        with _errors_in_one_line(f"{name}, example {index}"):
            attention = _as_tensor(columns[0][index])
            if attention.ndim == 5 and attention.shape[1] == 1:
                attention = attention[:, 0]  # a layer of transformers has a batch of one text
            _check_maps(attention, queries, keys, sink=sink)
            record = {"tokens": keys, "title": all_fields[index].get("document", "")}
            if queries is not keys:
                record["queries"] = queries
            if has_words:
                record = _word_record(record, columns[1][index], all_fields[index], roles)
            all_maps.append(attention)
            all_records.append(record)
    if len({attention.shape[:2] for attention in all_maps}) > 1:
        raise InputError(f"{name}: numbers of layers or heads differ; give the maps of one model")
    if has_words:
        _set_sources(all_records, name)
    return in_temporary_folder(lambda folder: _write(folder, name, all_maps, all_records, roles))


@contextmanager
def _errors_in_one_line(location: str) -> Iterator[None]:
    """Turn errors about what a user gave into an InputError of one line that begins with a name."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
        raise InputError(f"{location}: {' '.join(str(error).split())}") from error


def plain(value: Any) -> Any:
    """Convert arrays and numbers of NumPy, torch and pandas, and tuples, to what JSON has."""
    return json.loads(json.dumps(value, default=lambda array: array.tolist()))


def _is_pair(tokens: Any) -> bool:
    """Tell whether tokens are those of queries and of keys, in cross-attention."""
    return isinstance(tokens, tuple) and len(tokens) == 2


def _sides(tokens: Any) -> tuple[list[str], list[str]]:
    """Return the tokens of the queries and of the keys, which are the same in self-attention."""
    sides = [plain(side) for side in (tokens if _is_pair(tokens) else (tokens,))]
    for side in sides:
        is_list = isinstance(side, list) and len(side) > 0
        if not (is_list and all(isinstance(token, str) for token in side)):
            problem = f"tokens are a list of texts, not {side!r:.60}"
            raise ValueError(f"{problem}; see tokenizer.convert_ids_to_tokens(input_ids[0])")
    return sides[0], sides[-1]


def _check_steps(maps: Any, n_tuples: int) -> None:
    """Raise ValueError for tuples in a tuple, unless there is one for each text of several."""
    is_by_step = isinstance(maps, tuple) and {*map(type, maps)} == {tuple}
    if is_by_step and len(maps) != n_tuples:
        raise ValueError(GENERATED)


def _by_text(maps: Any, n_texts: int) -> Any:
    """List the maps of each text; transformers has them by layers of a batch of texts.

    ValueError if there are none, or it is not clear whether they are examples or layers.
    """
    if any(entry is None for entry in maps):
        raise ValueError(NO_MAPS)
    shape, *more_shapes = {getattr(entry, "shape", ()) for entry in maps} or {()}
    if more_shapes or len(shape) != 4 or shape[0] != n_texts:
        return maps
    by_text = _as_tensor(maps).swapaxes(0, 1)
    can_be_examples = len(maps) == n_texts and not isinstance(maps, tuple)
    if can_be_examples and not torch.equal(by_text, by_text.swapaxes(0, 1)):
        raise ValueError(
            "layers or examples? Give tuple(maps), or a list with a tuple for each text"
        )
    return list(by_text)


def _as_tensor(value: Any) -> Tensor:
    """Convert an array, or a sequence of arrays of one shape, to torch; ValueError for None."""
    if value is None or (isinstance(value, (list, tuple)) and not value):
        raise ValueError(NO_MAPS)
    if isinstance(value, (list, tuple)):
        return torch.stack([_as_tensor(entry) for entry in value])
    if isinstance(value, Tensor):
        return value.detach().float().cpu()
    return torch.tensor(np.asarray(value))


def _check_maps(
    attention: Maps, queries: Sequence[str], keys: Sequence[str], *, sink: bool
) -> None:
    """Check that maps fit their tokens, and that each row is a distribution; else ValueError."""
    if attention.ndim != 4 or attention.shape[2:] != (len(queries), len(keys)):
        problem = f"an array {list(attention.shape)} for {len(queries)} and {len(keys)} tokens"
        raise ValueError(f"{problem}; give [layer, head, query, key] of one text, without padding")
    problem = row_problem(attention, has_sink=sink)
    if problem:
        raise ValueError(f"{problem}; give weights after the softmax, or sink=True if it has one")


def _word_record(
    record: Record, words: Any, fields: Mapping[str, Any], roles: RoleTokens
) -> Record:
    """Join the tokens of a record to words, and annotate these.

    ValueError if words are not numbered in order, or the annotation does not fit.
    """
    if "queries" in record:
        problem = "words= and records= need maps from a text to itself; give both texts as one"
        raise ValueError(f"{problem}, with their maps in a square of zeros, and sink=True")
    tokens = record["tokens"]
    if words is None:
        numbers = count()
        words = [None if token in roles.values() else next(numbers) for token in tokens]
    runs = [word for word, _ in groupby(words)]
    inner = runs[runs[0] is None : len(runs) - (runs[-1] is None)]
    if not inner or inner != list(range(len(inner))) or len(words) != len(tokens):
        problem = (
            f"words= are numbered {words!r:.60}; give 0, 1, 2 ... in order, one for each token"
        )
        raise ValueError(f"{problem}, and None for special tokens at both ends, as word_ids() does")
    forms = [""] * len(inner)
    for token, word in zip(tokens, words, strict=True):
        if word is not None:
            forms[word] += token.removeprefix("##").lstrip(WORD_MARKS)
    return {
        "words": forms,
        "offset": words.index(0),
        "inputs": {"groups": number_words(words)},
        **_checked_annotation(fields, len(inner)),
        "split": fields.get("split", ""),
        "source": fields.get("document", ""),
    }


def _checked_fields(fields: Any) -> dict[str, Any]:
    """Check the names of the fields of a user's record, and the types of their values."""
    if not isinstance(fields, dict) or not fields.keys() <= FIELDS.keys():
        raise ValueError(f"the fields of a record are {', '.join(FIELDS)}, not {fields!r:.80}")
    for name, value in fields.items():
        entries = value if name in ANNOTATION else [value]
        fits = isinstance(entries, list) and all(isinstance(e, FIELDS[name]) for e in entries)
        if not fits or (name == "split" and value not in ("train", "dev", "")):
            raise ValueError(f"{name} is {value!r:.80}; see the documentation of open_maps")
    return fields


def _checked_annotation(fields: Mapping[str, Any], n_words: int) -> Record:
    """Select the annotation of words; ValueError says how it does not fit them."""
    annotation = {name: fields[name] for name in sorted(ANNOTATION & fields.keys())}
    sizes = {len(annotation[name]) for name in {"heads", "relations", "tags"} & annotation.keys()}
    heads = annotation.get("heads", [])
    is_tree = len(heads) == len(annotation.get("relations", []))
    if sizes - {n_words} or not is_tree or not set(heads) <= set(range(n_words + 1)):
        raise ValueError(
            f"give heads (0 to {n_words}), relations and tags for each of {n_words} words"
        )
    if "pairs" in annotation:
        annotation["pairs"] = [list(read_pair(pair, n_words)) for pair in annotation["pairs"]]
    for start, end, chain, head in annotation.get("mentions", ()):
        is_whole = all(type(number) is int for number in (start, end, head, chain or 0))
        if not (is_whole and 0 <= start <= head < end <= n_words):
            raise ValueError(f"a mention is no [start, end, chain, head] within {n_words} words")
    return annotation


def _set_sources(records: Sequence[Record], name: str) -> None:
    """Name the sources of sentences, and divide documents into train and dev if none is divided."""
    for number, record in enumerate(records, 1):
        document = f", document {record['source']}" if record["source"] else ""
        record["source"] = f"{name}{document}, sentence {number}"
    if len(records) > 1 and not any(record["split"] for record in records):
        texts = [PairedText((), (), "", record["source"]) for record in records]
        dev = {text.source for text in split_by_document(texts, Path(name), 0)["dev"]}
        for record in records:
            record["split"] = "dev" if record["source"] in dev else "train"


def _write(
    folder: Path, name: str, all_maps: list[Maps], records: list[Record], roles: RoleTokens
) -> Store:
    """Write the maps of examples and their records as a store."""
    level = "word" if "words" in records[0] else "token"
    longest = max(all_maps, key=lambda attention: attention.shape[-1])
    n_layers, n_heads, n_queries, n_keys = longest.shape
    tensors = {}
    for index, attention in enumerate(all_maps):
        groups = records[index].get("inputs", {}).get("groups", [])
        weights = to_words(attention.float(), groups) if level == "word" else attention
        tensors[tensor_name("attention", index)] = weights.half().contiguous().numpy()
    digest = write_shard(folder, 0, tensors)
    visible = []  # what no head attends to is hidden
    for is_seen in (longest > 0).any(dim=1).numpy():
        layer = (n_queries == n_keys and describe_mask(is_seen)) or Visible(
            causal=False, window=None
        )
        visible.append(layer._asdict())
    corpus = Corpus(name, {"maps": digest, "records": records}, lambda _: iter(()))
    key = {"name": name, "random_init": None}
    inputs = store_inputs(key, corpus, level=level, max_tokens=n_keys)
    contents = {
        "key": json_digest(inputs),
        "cut_at": n_keys,
        "examples_per_shard": len(records),
        "layers": list(range(1, n_layers + 1)),
        "heads": n_heads,
        "special_tokens": roles,
        "visible": visible,
    }
    write_list(folder, {**inputs, **contents}, records, Counter())
    return Store(folder)
