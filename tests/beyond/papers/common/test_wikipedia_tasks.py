"""Tasks made from text: correct labels, balance, and no article in both train and test."""

from collections import Counter

import pytest

from beyond.papers.common.wikipedia_tasks import (
    NEXT,
    NUMBER,
    SHIFT,
    ParsedSentence,
    labelled_pairs,
    split_by_article,
    subject_number,
    wikipedia_tasks,
)
from helpers.data.treebank import pipeline, spacy_doc
from helpers.errors import CorpusError

PARAGRAPH = "Topic {0} has a paragraph {1} of several words. Its second sentence is short."


@pytest.fixture(scope="module")
def text_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for article in range(10):
        paragraphs = [PARAGRAPH.format(article, number) for number in range(12)]
        (folder / f"{article}.txt").write_text("\n".join(paragraphs), encoding="utf-8")
    return folder


def make_tasks(path, count=40, seed=0):
    return {task.name: task for task in wikipedia_tasks(path, count=count, seed=seed)}


def locate(text):
    """Find the article and the number of a paragraph of the toy corpus."""
    words = text.split()
    return int(words[1]), int(words[5])


def test_next_paragraphs_have_correct_labels_and_articles_of_one_split(text_file):
    task = make_tasks(text_file)[NEXT]
    articles = []
    for pairs in (task.train, task.test):
        assert Counter(pair.label for pair in pairs) == {0: 20, 1: 20}
        assert len({pair.texts for pair in pairs}) == 40
        articles.append({locate(text)[0] for pair in pairs for text in pair.texts})
        for pair in pairs:
            (article, number), (second_article, second_number) = map(locate, pair.texts)
            assert second_number > 0  # a wrong paragraph follows some paragraph, too
            is_next = (second_article, second_number) == (article, number + 1)
            assert is_next == pair.label and (is_next or second_article != article)
    assert not articles[0] & articles[1]
    assert task == make_tasks(text_file)[NEXT] != make_tasks(text_file, seed=1)[NEXT]


def test_tasks_without_a_limit_or_without_enough_text(text_file, tmp_path):
    unlimited = make_tasks(text_file, count=None)
    assert set(unlimited) == {NEXT, SHIFT}  # all subjects are singular
    assert len(unlimited[NEXT].train) > 40
    (tmp_path / "short.txt").write_text("One line.\nAnother line.\n" * 3)
    with pytest.raises(CorpusError, match=r"short\.txt: 3 articles with two paragraphs"):
        make_tasks(tmp_path / "short.txt")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The cat of the neighbours sat here .", 0),
        ("The cats were seen here .", 1),
        ("Anna sat here .", None),  # a name
        ("The cat and the dog sat here .", None),
        ("Sit here .", None),
    ],
)
def test_subject_number_of_a_sentence(text, number):
    assert subject_number(pipeline()(spacy_doc(text.split(), None))[:]) == number


# Sentences like "The aaa of BBB sat here."; every fourth one has a plural subject.
SENTENCES = [
    ParsedSentence(article, ("The", 3 * "abcdefghijklmnopqrst"[number], "of", 3 * "ABCDEF"[article],
                             "sat", "here", "."), int(number % 4 == 0))
    for article in range(6) for number in range(20)
]  # fmt: skip


def test_split_by_article_has_each_sentence_once():
    train, test = split_by_article(SENTENCES, seed=0)
    assert len(train) == len(test) == 60 and {*train, *test} == {*SENTENCES}
    assert not {sentence.article for sentence in train} & {sentence.article for sentence in test}


@pytest.mark.parametrize("name", [NUMBER, SHIFT])
def test_labelled_pairs_are_balanced_and_have_the_labels_of_their_sentences(name):
    by_words = {frozenset(sentence.words): sentence for sentence in SENTENCES}
    pairs = labelled_pairs(name, SENTENCES, 20, seed=0)
    assert Counter(pair.label for pair in pairs) == {0: 10, 1: 10}
    assert len({pair.texts for pair in pairs}) == 20
    for pair in pairs:
        words = pair.texts[0].split()
        sentence = by_words[frozenset(words)]
        changed = [i for i, word in enumerate(words) if word != sentence.words[i]]
        assert all(words[index].isalpha() for index in changed)
        if name == NUMBER:
            assert (pair.label, changed) == (sentence.number, [])
        else:  # two neighbours are swapped
            assert changed == ([changed[0], changed[0] + 1] if pair.label else [])
