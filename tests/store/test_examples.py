"""Records: how segments, sentences and documents are cut to the limit, counted and listed."""

from __future__ import annotations

import copy
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from toy_corpora import corpus_of, sentence_of

from helpers.data.records import SPACED, Document, Mention, Segment
from helpers.errors import InputError
from helpers.model.forward import model_inputs
from helpers.store.extract import (
    choose_cuts,
    document_record,
    examples,
    extract,
    segment_record,
    sentence_record,
)

LONG = Segment("the cat sat on the mat " * 6, "the dog watched it " * 4, "t")


def tokens_of(encoder, text):
    return encoder.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).tokens


# Segments


def is_part(tokens, whole_text):
    """Whether tokens follow each other in a longer list."""
    length = len(tokens)
    starts = range(len(whole_text) - length + 1)
    return any(whole_text[start : start + length] == tokens for start in starts)


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "t5"])
@pytest.mark.parametrize("limit", [9, 31])
def test_segment_record_cuts_a_long_segment_to_the_limit(family, limit, tiny_encoder):
    encoder = tiny_encoder(family)
    counts = Counter()
    record = segment_record(encoder, LONG, limit, counts)
    tokens = record["tokens"]
    assert len(tokens) == limit
    assert counts == {"segments cut to the token limit": 1}
    special_tokens = {*encoder.special_tokens.values(), "</s>"}
    end_of_first = record.get("blank_line", record["second"])
    halves = [(tokens[:end_of_first], LONG.first), (tokens[record["second"] :], LONG.second)]
    for half, text in halves:
        kept_tokens = [token for token in half if token not in special_tokens]
        assert kept_tokens
        assert is_part(kept_tokens, tokens_of(encoder, text))


def test_segment_record_of_a_decoder_is_one_text_with_a_blank_line(tiny_encoder):
    encoder = tiny_encoder("gpt2")
    segment = Segment("The cat.", "A dog watched it", "Pets")
    record = segment_record(encoder, segment, 60, Counter())
    assert record["tokens"] == encoder.tokenizer("The cat.\n\nA dog watched it").tokens()
    assert record["tokens"][0] == "<|endoftext|>"
    assert record["tokens"][record["blank_line"] : record["second"]] == ["Ċ", "Ċ"]
    second = record["tokens"][record["second"] :]
    assert second == tokens_of(encoder, "A dog watched it")
    cut = segment_record(encoder, LONG, 20, Counter())
    assert cut["tokens"][cut["blank_line"] : cut["second"]] == ["Ċ", "Ċ"]
    assert len(cut["tokens"]) == 20


def test_segment_record_of_a_decoder_keeps_a_blank_line_that_is_part_of_a_token(tiny_encoder):
    """Large vocabularies have tokens such as a full stop with a blank line."""
    encoder = copy.copy(tiny_encoder("gpt2"))
    tokenizer = copy.deepcopy(encoder.tokenizer)
    merged = Tokenizer(models.BPE(vocab={"a": 0, ".": 1, "Ċ": 2, "ĊĊ": 3, ".ĊĊ": 4, "b": 5},
                                  merges=[("Ċ", "Ċ"), (".", "ĊĊ")]))  # fmt: skip
    merged.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer._tokenizer = merged
    encoder = replace(encoder, tokenizer=tokenizer)
    record = segment_record(encoder, Segment("aaaaaaaaa.", "bbbbbbbbb", "t"), 8, Counter())
    assert record["tokens"].count(".ĊĊ") == 1
    assert record["tokens"][record["blank_line"]] == ".ĊĊ"
    assert record["second"] == record["blank_line"] + 1
    assert len(record["tokens"]) == 8


def test_segment_record_cuts_a_segment_alike_at_any_position(encoder):
    segments = [Segment(f"{word} {LONG.first}", LONG.second, "t") for word in ("a", "the", "dog")]

    def cut(ordered_segments):
        records = examples(encoder, corpus_of(ordered_segments), 20, Counter())
        return [record["tokens"] for record in records]

    in_order = cut(segments)
    assert cut([*segments[::-1], *segments]) == in_order[::-1] + in_order
    assert [len(tokens) for tokens in in_order] == [20, 20, 20]
    assert in_order[0] != in_order[1]


def slow_cut(first, second, room, rng):
    """BERT's own loop: take one token at a time off the longer list, at either end."""
    first = list(first)
    second = list(second)
    while len(first) + len(second) > room:
        longer = first if len(first) > len(second) else second
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()
    return first, second


@pytest.mark.parametrize(("a", "b", "room"), [(30, 7, 20), (7, 30, 20), (25, 25, 9), (4, 4, 8)])
def test_choose_cuts_follows_the_distribution_of_berts_pre_training(a, b, room):
    starts = np.zeros((2, 300, 2))
    for seed in range(300):
        cuts = choose_cuts(a, b, room, random.Random(seed))
        slow = slow_cut(range(a), range(b), room, random.Random(seed + 10_000))
        assert [cut.stop - cut.start for cut in cuts] == [len(half) for half in slow]
        starts[0, seed] = [cut.start for cut in cuts]
        starts[1, seed] = [half[0] for half in slow]
    np.testing.assert_allclose(*starts.mean(axis=1), atol=0.5)
    np.testing.assert_allclose(*starts.std(axis=1), atol=0.5)


# Sentences


def test_sentence_record_drops_and_counts_a_sentence_over_the_limit(encoder):
    counts = Counter()
    sentence = sentence_of(["a"] * 19)
    assert sentence_record(encoder, sentence, 21, counts) is not None
    assert sentence_record(encoder, sentence, 20, counts) is None
    assert counts == {"sentences dropped: over the token limit": 1}


@pytest.mark.parametrize("word", ["\u200b", "\u200e\u200f"])
def test_sentence_record_drops_a_word_without_tokens(word, encoder, tiny_encoder):
    counts = Counter()
    sentence = sentence_of(["The", word, "cat"])
    assert sentence_record(encoder, sentence, 60, counts) is None
    assert sentence_record(tiny_encoder("roberta"), sentence, 60, counts) is not None
    assert counts == {
        "sentences dropped: a word that the tokenizer turns into nothing": 1,
        SPACED: 3,
    }


@pytest.mark.parametrize("make", ["sentence", "document"])
def test_records_have_a_space_before_a_word_where_the_text_has_one(make, encoder, tiny_encoder):
    words = ("He", "did", "n't", "go", ".")
    spaces = (True, True, False, True, False)
    sentence = sentence_of(words)._replace(spaces=spaces)
    text = Document(words, (None,) * 5, (Mention(0, 1, None, 0),), "dev", "d", spaces)
    make_record = document_record if make == "document" else sentence_record
    text = text if make == "document" else sentence
    byte_level = tiny_encoder("gpt2")
    counts = Counter()
    inputs = make_record(byte_level, text, 60, counts)["inputs"]
    tokenize = byte_level.tokenizer.backend_tokenizer.encode
    expected = []
    for part in (" He", " did", "n't", " go", "."):
        expected += tokenize(part, add_special_tokens=False).ids
    assert inputs["input_ids"][-len(expected) :] == expected and not counts
    without = text._replace(spaces=())
    spaced = make_record(byte_level, without, 60, counts)
    assert spaced["inputs"] != inputs and counts == {SPACED: 5} and "spaces" not in spaced
    make_record(tiny_encoder("t5"), text, 60, counts)  # it always marks a space
    assert counts.pop(SPACED) == 10
    inputs = make_record(encoder, text, 60, counts)["inputs"]  # WordPiece marks no spaces
    assert inputs == make_record(encoder, without, 60, counts)["inputs"] and not counts


# Documents


def document(words, *mentions):
    return Document(
        words=tuple(words),
        tags=("NOUN",) * len(words),
        mentions=tuple(Mention(*mention) for mention in mentions),
        split="dev",
        source="toy",
    )


@pytest.fixture
def cat_document():
    """A document of which the third word has several tokens."""
    return document(["the", "cat", "watched", "it"], (0, 2, 1, 1), (3, 4, 1, 3), (0, 1, None, 0))


def test_document_record_cuts_between_words(encoder, cat_document):
    n_before = len(tokens_of(encoder, "the cat"))
    n_pieces = len(tokens_of(encoder, "watched"))
    assert n_pieces > 1
    limit_inside_word = 2 + n_before + n_pieces - 1
    counts = Counter()
    record = document_record(encoder, cat_document, limit_inside_word, counts)
    assert (record["words"], record["tags"]) == (("the", "cat"), ("NOUN", "NOUN"))
    assert record["mentions"] == ((0, 2, None, 1), (0, 1, None, 0))
    assert record["offset"] == 1
    assert record["inputs"] == model_inputs(encoder, {"words": ["the", "cat"]})
    assert counts["documents cut to the token limit"] == 1


@pytest.mark.parametrize(("limit", "n_words"), [(11, 9), (12, 10)])
def test_document_record_fills_the_limit(limit, n_words, encoder):
    ten_words = document(["a"] * 10, (0, 1, 1, 0))
    record = document_record(encoder, ten_words, limit, Counter())
    assert len(record["words"]) == n_words


# The list of examples


def test_extract_lists_records_and_counts_dropped_ones(encoder, own_cache):
    corpus = corpus_of([sentence_of(["The", "cat"]), sentence_of(["a"] * 40)])
    store = extract(encoder, corpus, level="word", max_tokens=20)
    assert [record["words"] for record in store.records()] == [["The", "cat"]]
    assert store.report == {"sentences dropped: over the token limit": 1}


@pytest.mark.parametrize(
    ("sentences", "reason"),
    [([sentence_of(["a"] * 40)], "1 sentences dropped"), ([], "it is empty")],
    ids=["too long", "empty"],
)
def test_extract_refuses_a_corpus_without_an_example(sentences, reason, encoder, own_cache):
    with pytest.raises(InputError, match=rf"no example is left \({reason}"):
        extract(encoder, corpus_of(sentences), level="word", max_tokens=20)
    assert not list(own_cache.glob("*/examples.jsonl"))
