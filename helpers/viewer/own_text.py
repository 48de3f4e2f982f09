"""Attention maps of texts that a user types, as tokens or as words."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args
from unicodedata import category

from tokenizers import Encoding

from helpers.data.records import Corpus, Record, Sentence
from helpers.data.text_files import clean_word, is_english, quoted
from helpers.data.treebank import parsed_text
from helpers.errors import InputError
from helpers.model.forward import number_words
from helpers.model.loading import DEFAULT, Lens, Model, load_model
from helpers.model.tokenizer import readable_tokens
from helpers.store.extract import (
    ComputedStore,
    fill,
    in_temporary_folder,
    list_examples,
    sentence_record,
)
from helpers.store.store import Level, Store, store_inputs


def read(
    text: str | Sequence[str],
    model: str | Path | Model = DEFAULT,
    *,
    level: Level = "token",
    lens: Lens = "attention",
    parser: str = "",
) -> Store:
    """Compute the attention maps of a text.

    ``view(read("The keys to the cabinet are here."))`` shows them.  The text and its maps are in a
    temporary folder, which is removed together with the store; the cache keeps nothing of them.

    Parameters
    ----------
    text : str or sequence of str
        A text in any language, or several.  Each is one example, however many sentences it has.
    model : str, Path or Model
        Name or folder of a model, as for ``--model``, or what `load_model` returns.
    level : str
        ``token`` shows what the model reads, of any text.  ``word`` joins tokens to words (section
        4.1): those of English have syntactic relations, from a parse, and those of other languages
        are as the tokenizer divides them.
    lens : str
        ``attention``, or ``norm`` for the norms of what each weight moves.
    parser : str
        Name of an installed spaCy pipeline, such as ``de_core_news_sm``, for the relations of a
        text that is not English.

    Returns
    -------
    Store
        One example per text.

    Raises
    ------
    InputError
        If a text is empty or longer than the model takes, or if the model or the parser cannot be
        loaded.
    """
    texts: list[Any] = (
        [text] if not isinstance(text, Iterable) or isinstance(text, str) else list(text)
    )
    if not texts or not all(isinstance(entry, str) and entry.strip() for entry in texts):
        raise InputError(f"read takes a text, or a list of texts, that are not empty; got {text!r}")
    for name, value, choices in (("level", level, Level), ("lens", lens, Lens)):
        if value not in get_args(choices):
            raise InputError(f"there is no {name} {value!r}; use {' or '.join(get_args(choices))}")
    if not isinstance(model, (str, Path, Model)):
        problem = f"{type(model).__name__} is no name or folder of a model"
        raise InputError(f"{problem}; save it with save_pretrained, or use open_maps for its maps")
    encoder = model if isinstance(model, Model) else load_model(str(model))
    spec = {"kind": "text", "texts": texts, "parser": parser}
    corpus: Corpus[Any] = Corpus("own-text", spec, lambda _: iter(texts))
    inputs = store_inputs(
        encoder.key, corpus, level=level, lens=lens, max_tokens=encoder.max_length
    )

    def make(folder: Path) -> Store:
        make_records = partial(_records, level=level, parser=parser)
        list_examples(folder, encoder, corpus, inputs, make_records)
        return fill(ComputedStore(folder, encoder))

    return in_temporary_folder(make)


def _records(
    encoder: Model, corpus: Corpus[Any], max_tokens: int, counts: Counter[str], *, level: Level,
    parser: str,
) -> Iterator[Record]:  # fmt: skip
    """Yield the record of each text; InputError for one that the model cannot take."""
    for text in corpus.read(counts):
        try:
            encoding = encoder.tokenizer.backend_tokenizer.encode(text)
        except TypeError as error:
            problem = "has a half of a character (a surrogate); decode it again"
            raise InputError(f"the text {quoted(text)} {problem}") from error
        for name in encoder.tokenizer.all_special_tokens:
            if name in text:
                print(
                    f"{quoted(text)}: {name} is read as text, not as a special token.",
                    file=sys.stderr,
                )
        if len(encoding) > max_tokens:
            problem = f"has {len(encoding)} tokens, and {encoder.name} takes {max_tokens}"
            raise InputError(f"the text {quoted(text)} {problem}; give a part of it")
        if level == "token":
            inputs = {"input_ids": encoding.ids, "token_type_ids": encoding.type_ids}
            tokens = readable_tokens(encoder.tokenizer, encoding.ids)
            yield {"tokens": tokens, "title": "", "inputs": inputs}
        elif parser or is_english([text]):
            parse = _parsed(text, parser)
            record = sentence_record(encoder, parse, max_tokens, counts)
            if record is None:
                raise InputError(f"the text {quoted(text)}: {', '.join(counts)}; use level='token'")
            yield record
        else:
            yield _word_record(encoding, text, counts)


def _parsed(text: str, parser: str) -> Sentence:
    """Parse a text; the trees of its sentences stand side by side."""
    words: list[str] = []
    heads: list[int] = []
    relations: list[str] = []
    tags: list[str | None] = []
    spaces: list[bool] = []
    for sentence in parsed_text(text, parser).records():
        heads += [head and head + len(words) for head in sentence.heads]
        words += sentence.words
        relations += sentence.relations
        tags += sentence.tags
        spaces += sentence.spaces
    tree = (tuple(words), tuple(heads), tuple(relations))
    return Sentence(*tree, "dev", "", tuple(tags), tuple(spaces))


def _is_inside_word(characters: str) -> bool:
    """Tell whether a word goes on here, where some tokenizers cut: at a combining mark."""
    return "".join(category(character)[0] for character in characters) in ("LM", "ML", "MM")


def _word_record(encoding: Encoding, text: str, counts: Counter[str]) -> Record:
    """Make the record of words as the tokenizer divides them, and as spaces do.

    Some tokenizers (Llama 2, Gemma) have no words of their own.
    """
    words: list[str] = []
    word_of_token: list[int | None] = []
    start = end = 0  # of the last word, in characters
    id_before = None
    for word_id, (first, last) in zip(encoding.word_ids, encoding.offsets, strict=True):
        if word_id is None:  # a special token
            word_of_token.append(None)
            continue
        is_new = word_id != id_before and not _is_inside_word(text[max(first - 1, 0) : first + 1])
        if is_new or text[end : first + 1] != text[end : first + 1].strip():
            words.append("")
            start = first
        end = max(last, first)
        words[-1] = clean_word(text[start:end].strip(), counts)
        word_of_token.append(len(words) - 1)
        id_before = word_id
    return {
        "words": words,
        "split": "dev",
        "source": "",
        "offset": word_of_token.index(0),
        "inputs": {
            "input_ids": encoding.ids,
            "token_type_ids": encoding.type_ids,
            "groups": number_words(word_of_token),
        },
    }
