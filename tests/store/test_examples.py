from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from toy_corpora import corpus_of, sentence_of

from helpers.data.records import Document, Mention, Segment
from helpers.errors import InputError
from helpers.store.examples import (
    cut_pair,
    document_record,
    examples,
    segment_record,
    sentence_record,
)
from helpers.store.extract import extract

LONG = Segment("the cat sat on the mat " * 6, "the dog watched it " * 4, "t")


def tokens_of(encoder, text):
    return encoder.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).tokens


# Segments


def test_a_segment_that_fits_is_kept_whole(encoder):
    counts = Counter()
    record = segment_record(encoder, Segment("The cat.", "A dog", "Pets"), 60, counts)
    first, second = tokens_of(encoder, "The cat."), tokens_of(encoder, "A dog")
    assert record["tokens"] == ["[CLS]", *first, "[SEP]", *second, "[SEP]"]
    assert record["second"] == len(first) + 2
    assert record["title"] == "Pets"
    assert not counts


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "t5"])
@pytest.mark.parametrize("limit", [9, 31])
def test_a_long_segment_is_cut_to_the_limit_and_counted(family, limit, tiny_encoder):
    encoder, counts = tiny_encoder(family), Counter()
    record = segment_record(encoder, LONG, limit, counts)
    assert len(record["tokens"]) == limit
    assert counts == {"segments cut to the token limit": 1}
    specials = set(encoder.special_tokens.values()) | {"</s>"}
    halves = record["tokens"][: record["second"]], record["tokens"][record["second"] :]
    for half, text in zip(halves, (LONG.first, LONG.second), strict=True):
        own, whole = [token for token in half if token not in specials], tokens_of(encoder, text)
        assert own and any(whole[i : i + len(own)] == own for i in range(len(whole)))


def test_a_segment_is_cut_alike_wherever_it_stands(encoder):
    segments = [Segment(f"{word} {LONG.first}", LONG.second, "t") for word in ("a", "the", "dog")]
    once, shuffled = (
        [record["tokens"] for record in examples(encoder, corpus_of(each), 20, Counter())]
        for each in (segments, [*segments[::-1], *segments])
    )
    assert shuffled == once[::-1] + once
    assert len({len(tokens) for tokens in once}) == 1 < len(set(map(tuple, once)))


def slow_cut(first, second, room, rng):
    """BERT's own loop: one token at a time off the longer list, at either end."""
    first, second = list(first), list(second)
    while len(first) + len(second) > room:
        longer = first if len(first) > len(second) else second
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()
    return first, second


@pytest.mark.parametrize(("a", "b", "room"), [(30, 7, 20), (7, 30, 20), (25, 25, 9), (4, 4, 8)])
def test_cutting_follows_the_distribution_of_berts_pre_training(a, b, room, encoder):
    encode = encoder.tokenizer.backend_tokenizer.encode
    starts = np.zeros((2, 300, 2))
    for seed in range(300):
        pair = [encode("a " * length, add_special_tokens=False) for length in (a, b)]
        cut_pair(*pair, room, random.Random(seed))
        slow = slow_cut(range(a), range(b), room, random.Random(seed + 10_000))
        assert [len(half) for half in pair] == [len(half) for half in slow]
        starts[0, seed] = [half.offsets[0][0] // 2 for half in pair]
        starts[1, seed] = [half[0] for half in slow]
    np.testing.assert_allclose(*starts.mean(axis=1), atol=0.5)
    np.testing.assert_allclose(*starts.std(axis=1), atol=0.5)


# Sentences


def test_a_sentence_keeps_its_annotation(encoder):
    record = sentence_record(encoder, sentence_of(["The", "cats", "sat"], "train"), 60, Counter())
    assert record == {
        "words": ["The", "cats", "sat"],
        "split": "train",
        "source": "toy",
        "heads": [0, 1, 2],
        "relations": ["root", "dep", "dep"],
        "offset": 1,
    }


def test_a_sentence_over_the_limit_or_with_a_word_that_vanishes_is_counted(encoder, tiny_encoder):
    counts, sentence = Counter(), sentence_of(["a"] * 19)
    assert sentence_record(encoder, sentence, 21, counts) is not None
    assert sentence_record(encoder, sentence, 20, counts) is None
    for word in ("\u200b", "\u200e\u200f"):
        sentence = sentence_of(["The", word, "cat"])
        assert sentence_record(encoder, sentence, 60, counts) is None
        assert sentence_record(tiny_encoder("roberta"), sentence, 60, counts) is not None
    assert counts == {
        "sentences dropped: over the token limit": 1,
        "sentences dropped: a word that the tokenizer turns into nothing": 2,
    }


# Documents


def document(words, *mentions):
    tags = tuple("NOUN" for _ in words)
    return Document(tuple(words), tags, tuple(Mention(*m) for m in mentions), "dev", "toy")


def test_a_document_is_cut_between_words(encoder):
    # "watched" is several tokens: the limit falls inside it
    pieces, before = len(tokens_of(encoder, "watched")), len(tokens_of(encoder, "the cat"))
    assert pieces > 1
    item = document(["the", "cat", "watched", "it"], (0, 2, 1, 1), (3, 4, 1, 3), (0, 1, None, 0))
    counts = Counter()
    record = document_record(encoder, item, 2 + before + pieces - 1, counts)
    assert (record["words"], record["tags"]) == (["the", "cat"], ["NOUN", "NOUN"])
    assert record["mentions"] == [[0, 2, None, 1], [0, 1, None, 0]]
    assert record["offset"] == 1
    assert counts["documents cut to the token limit"] == 1
    whole = document_record(encoder, item, 60, Counter())
    assert whole["words"] == list(item.words)
    assert whole["mentions"] == [[0, 2, 1, 1], [3, 4, 1, 3], [0, 1, None, 0]]
    just = document(["a"] * 10, (0, 1, 1, 0))
    assert [len(document_record(encoder, just, n, Counter())["words"]) for n in (11, 12)] == [9, 10]


# The list of work


def test_records_and_what_was_dropped_are_written(encoder, own_cache):
    corpus = corpus_of([sentence_of(["The", "cat"]), sentence_of(["a"] * 40)])
    store = extract(encoder, corpus, level="word", max_tokens=20)
    assert [record["words"] for record in store.records()] == [["The", "cat"]]
    assert store.manifest.report == {"sentences dropped: over the token limit": 1}


def test_a_corpus_of_which_nothing_is_left_is_refused(encoder, own_cache):
    for items, why in (([sentence_of(["a"] * 40)], "1 sentences dropped"), ([], "it is empty")):
        with pytest.raises(InputError, match=rf"no example left to analyse \({why}"):
            extract(encoder, corpus_of(items), level="word", max_tokens=20)
    assert not list(own_cache.glob("*/examples.jsonl"))
