"""From a corpus to the list of work: one JSON record an example, truncated and counted.

The records are written before the model is loaded with work, so that every later step (a
resumed run, a worker on another machine) reads the same list.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Encoding

from helpers.data.records import Corpus, Document, Record, Segment, Sentence
from helpers.errors import InputError
from helpers.model.encoder import Encoder
from helpers.model.tokens import word_groups


def write_examples(
    encoder: Encoder, corpus: Corpus, path: Path, max_tokens: int
) -> tuple[int, Counter[str]]:
    """Write one record a line to ``path``; return how many, and what was dropped or cut.

    Raises:
        InputError: the corpus yields no example for this model.
    """
    counts: Counter[str] = Counter()
    temporary = path.with_name(f"{path.name}.tmp")
    written = 0
    with temporary.open("w", encoding="utf-8") as file:
        for record in examples(encoder, corpus, max_tokens, counts):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            written += 1
    if not written:
        dropped = ", ".join(f"{count} {reason}" for reason, count in counts.items())
        raise InputError(
            f"corpus {corpus.name!r}: no example left to analyse ({dropped or 'it is empty'}); "
            "check the path and the format"
        )
    temporary.replace(path)
    return written, counts


def examples(
    encoder: Encoder, corpus: Corpus, max_tokens: int, counts: Counter[str]
) -> Iterator[Record]:
    """Yield the record of each example that fits, counting in ``counts`` what does not."""
    for index, item in enumerate(corpus.read(counts)):
        match item:
            case Segment():
                record = segment_record(encoder, item, max_tokens, index, counts)
            case Sentence():
                record = sentence_record(encoder, item, max_tokens, counts)
            case Document():
                record = document_record(encoder, item, max_tokens, counts)
        if record is not None:
            yield record


def segment_record(
    encoder: Encoder, segment: Segment, max_tokens: int, index: int, counts: Counter[str]
) -> Record | None:
    """Tokenize two paragraphs, cut them as in BERT's pre-training, add the special tokens.

    ``second`` is the position where the second paragraph starts.
    """
    backend = encoder.tokenizer.backend_tokenizer
    backend.no_truncation()
    first, second = (
        backend.encode(text, add_special_tokens=False) for text in (segment.first, segment.second)
    )
    room = max_tokens - backend.num_special_tokens_to_add(is_pair=True)
    if len(first) + len(second) > room:
        counts["segments cut to the token limit"] += 1
        cut_pair(first, second, room, random.Random(index))
    if not len(first) or not len(second):
        counts["segments dropped: a paragraph without tokens"] += 1
        return None
    pair = backend.post_process(first, second, add_special_tokens=True)
    return {
        "tokens": pair.tokens,
        "title": segment.title,
        "second": next(i for i, part in enumerate(pair.sequence_ids) if part == 1),
    }


def cut_pair(first: Encoding, second: Encoding, room: int, rng: random.Random) -> None:
    """Shorten the longer of two token sequences, at either end at random, until both fit.

    BERT's pre-training does this token by token; the number of tokens that each end loses is
    drawn here in one go, with the same distribution.
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
    return len({word for word in word_ids if word is not None}) == len(words) > 0


def _offset(word_ids: list[int | None]) -> int:
    """Return the word-level position of the first word: the special tokens before it."""
    return word_groups(word_ids)[word_ids.index(0)]


def _words_that_fit(encoder: Encoder, word_ids: list[int | None], max_tokens: int) -> int:
    room = max_tokens - sum(word is None for word in word_ids)
    own = [word for word in word_ids if word is not None]
    return len(set(own)) if len(own) <= room else own[room]
