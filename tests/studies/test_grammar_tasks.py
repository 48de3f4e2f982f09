"""Tasks of grammar: labels that the tree gives, balance, swapped neighbours, articles apart."""

from collections import Counter

import pytest

from helpers.studies.grammar_tasks import (
    LABELS,
    NUMBER,
    SHIFT,
    TENSE,
    Tagged,
    grammar_tasks,
    label_of,
    labelled_pairs,
    tag_words,
)

NUMBERS = [chr(97 + n) * 3 for n in range(26)]  # words of letters alone


def sentence(article, number, *, subject="NN", verb="VBD", relation="nsubj", joined="prep"):
    """The <number> <subject> of <article> <verb> here."""
    words = ("The", NUMBERS[number], "of", NUMBERS[article].upper(), "sat", "here", ".")
    return Tagged(
        article, f"Article {article}", words, ("DT", subject, "IN", "NN", verb, "RB", "."),
        (2, 5, 2, 3, 0, 5, 5), ("det", relation, joined, "pobj", "root", "advmod", "punct"),
    )  # fmt: skip


def text(articles=6, each=20):
    return [
        sentence(a, n, subject="NNS" if n % 4 == 0 else "NN", verb="VBD" if n % 5 else "VBZ")
        for a in range(articles)
        for n in range(each)
    ]


def first_two(sizes):
    return set(list(sizes)[:2])


@pytest.mark.parametrize(
    ("tags", "number", "tense"),
    [
        ({"subject": "NN", "verb": "VBZ"}, 0, 0),
        ({"subject": "NNS", "verb": "VBD"}, 1, 1),
        ({"subject": "NNS", "verb": "VBP", "relation": "nsubjpass"}, 1, 0),
        ({"subject": "NNP", "verb": "VBN"}, None, None),  # a name; no finite verb
        ({"joined": "conj"}, None, 1),  # "the cat and the dog"
        ({"relation": "dobj"}, None, 1),
    ],
)
def test_labels_of_a_tree(tags, number, tense):
    one = sentence(0, 0, **tags)
    assert (label_of(NUMBER, one), label_of(TENSE, one)) == (number, tense)


@pytest.mark.parametrize("name", [NUMBER, TENSE])
def test_every_label_is_that_of_its_sentence(name):
    sentences = {" ".join(s.words): s for s in text()}
    pairs = labelled_pairs(name, sentences.values(), 20, seed=0)
    assert len(pairs) == len({pair.first for pair in pairs}) == 20
    assert Counter(pair.label for pair in pairs) == {0: 10, 1: 10}
    for pair in pairs:
        assert pair.label == label_of(name, sentences[pair.first])
        assert pair.source == sentences[pair.first].title


def test_a_shifted_sentence_has_two_neighbouring_words_in_each_others_place():
    originals = {frozenset(s.words): s.words for s in text()}
    pairs = labelled_pairs(SHIFT, text(), 40, seed=0)
    assert Counter(pair.label for pair in pairs) == {0: 20, 1: 20}
    for pair in pairs:
        words = tuple(pair.first.split())
        original = originals[frozenset(words)]
        apart = [i for i, (a, b) in enumerate(zip(words, original, strict=True)) if a != b]
        if pair.label == 0:
            assert apart == []
        else:
            assert apart[1] == apart[0] + 1 and len(apart) == 2
            assert all(words[i].isalpha() for i in apart)


def test_no_article_is_in_train_and_in_test_and_a_task_with_one_label_is_left_out():
    tasks = grammar_tasks(text(), first_two, train=30, test=12, seed=0)
    assert list(tasks) == list(LABELS)
    for task in tasks.values():
        train, test = ({pair.source for pair in part} for part in (task.train, task.test))
        assert test == {"Article 0", "Article 1"} and not train & test
        assert (len(task.train), len(task.test), task.majority) == (30, 12, 0.5)
    past = [s for s in text() if s.tags[4] == "VBD"]
    assert TENSE not in grammar_tasks(past, first_two, train=30, test=12, seed=0)
    again = grammar_tasks(text(), first_two, train=30, test=12, seed=0)
    assert again == tasks != grammar_tasks(text(), first_two, train=30, test=12, seed=1)


def test_words_are_tagged_as_they_are():
    words = ["The", "cats", "were", "asleep", "."]
    (found,) = tag_words([words])
    assert list(found.words) == words
    assert (label_of(NUMBER, found), label_of(TENSE, found)) == (1, 1)
