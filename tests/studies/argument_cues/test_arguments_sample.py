"""The embedded arguments: as many, as varied and with the plant that their description says."""

import re
from collections import Counter
from itertools import combinations

import pytest

from helpers.studies.argument_cues.arguments import SAMPLE, SPLITS, adversarial, argument_corpus

SIZES = {"train": 100, "dev": 20, "test": 60}
TENTHS = {"right": 6, "wrong": 1, "both": 1, "neither": 2}
OTHER_NEGATION = re.compile(r"n't\b|\b(?:cannot|no|never|none|nothing|nobody|neither|nor)\b")


@pytest.fixture(scope="module")
def corpus():
    return argument_corpus()


def words(text):
    return re.findall(r"[a-z']+", text.lower())


def where_not_is(argument):
    right, wrong = argument.warrants[argument.label], argument.warrants[1 - argument.label]
    there = "not" in words(right), "not" in words(wrong)
    return {
        (True, False): "right", (False, True): "wrong", (True, True): "both",
        (False, False): "neither",
    }[there]  # fmt: skip


def texts(argument):
    return argument.claim, argument.negated_claim, argument.reason, *argument.warrants


def test_there_are_enough_in_every_split(corpus):
    assert Counter(argument.split for argument in corpus.original) == SIZES
    assert len(corpus.original) >= 120
    assert len(corpus.adversarial) == len(corpus.original)


@pytest.mark.parametrize("split", SPLITS)
def test_the_cue_is_planted_at_the_documented_rate(corpus, split):
    part = corpus.part(split)
    found = Counter(where_not_is(argument) for argument in part)
    assert found == {place: share * len(part) // 10 for place, share in TENTHS.items()}


@pytest.mark.parametrize("split", SPLITS)
def test_the_label_itself_tells_nothing(corpus, split):
    for place in TENTHS:
        labels = [a.label for a in corpus.part(split) if where_not_is(a) == place]
        assert sum(labels) * 2 == len(labels)


def test_no_other_negation_word_is_in_a_warrant(corpus):
    for argument in corpus.original:
        for warrant in argument.warrants:
            assert not OTHER_NEGATION.search(warrant.lower()), warrant


def test_warrants_are_of_similar_length_and_length_is_no_cue(corpus):
    longer = 0
    for argument in corpus.original:
        right, wrong = argument.warrants[argument.label], argument.warrants[1 - argument.label]
        assert max(len(right), len(wrong)) < 1.5 * min(len(right), len(wrong)), right
        longer += (len(right) > len(wrong)) - (len(right) < len(wrong))
    assert abs(longer) < 0.15 * len(corpus.original)


def test_nothing_is_written_twice(corpus):
    counts = Counter(text for argument in corpus.original for text in texts(argument))
    assert [text for text, count in counts.items() if count > 1] == []


def test_no_argument_is_another_one_with_words_replaced(corpus):
    bags = [(a.id, set(words(" ".join(texts(a))))) for a in corpus.original]
    for (first, one), (second, other) in combinations(bags, 2):
        assert len(one & other) < 0.4 * len(one | other), (first, second)


def test_no_frame_of_words_makes_many_warrants(corpus):
    """The frame of a text is what is left of it when the words that are rare here are blanks."""
    warrants = [warrant for argument in corpus.original for warrant in argument.warrants]
    common = {
        word
        for word, count in Counter(w for text in warrants for w in set(words(text))).items()
        if count >= 10
    }
    frames = Counter(" ".join(w if w in common else "_" for w in words(t)) for t in warrants)
    frame, count = frames.most_common(1)[0]
    assert count <= 4, frame


def test_every_text_is_plain_and_complete(corpus):
    for argument in corpus.original:
        assert argument.reason.endswith(".")
        assert argument.reason[0].isupper()
        assert all(claim[0].isupper() and claim[-1].isalpha()
                   for claim in (argument.claim, argument.negated_claim))  # fmt: skip
        assert all(not warrant.endswith(".") for warrant in argument.warrants)
        assert all(3 <= len(words(text)) <= 20 for text in texts(argument))
        assert len(argument.claim.split()) and argument.claim != argument.negated_claim


def test_the_file_is_ascii_without_stray_spaces():
    text = SAMPLE.read_text(encoding="utf-8")
    assert text.isascii()
    assert "  " not in text
    assert not re.search(r" [\t\n]|[\t\n] ", text)


def test_the_counterparts_are_made_by_the_builder(corpus):
    assert list(corpus.adversarial) == adversarial(corpus.original)


def test_the_small_profile_has_few_arguments_with_their_counterparts_and_the_cue(monkeypatch):
    whole = argument_corpus()
    monkeypatch.setenv("ATTENTION_PROFILE", "small")
    corpus = argument_corpus()
    assert corpus.fingerprint != whole.fingerprint
    for split in SPLITS:
        own = corpus.part(split)
        assert own == whole.part(split)[:8]
        assert corpus.part(split, adversarial=True) == adversarial(own)
        assert sum("not" in " ".join(one.warrants).split() for one in own) >= 5
