"""Tasks made from text: correct labels, balance, and no article in both train and test."""

from collections import Counter

import pytest

from beyond.papers.common.wikipedia_tasks import (
    NEXT,
    NUMBER,
    SHIFT,
    ParsedSentence,
    labelled_pairs,
    subject_number,
    wikipedia_tasks,
)
from helpers.data.treebank import pipeline, spacy_doc
from helpers.errors import CorpusError

ARTICLES = 10
PARAGRAPHS = 12


def paragraph(article, number):
    return (
        f"Topic {article} has a paragraph {number} of several words. "
        f"Its second sentence, about topic {article}, is number {number} as well."
    )


@pytest.fixture
def text_file(tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    for article in range(ARTICLES):
        paragraphs = [paragraph(article, number) for number in range(PARAGRAPHS)]
        (folder / f"{article}.txt").write_text("\n".join(paragraphs), encoding="utf-8")
    return folder


def locate(text):
    """Find the article and the paragraph that a text of the toy corpus is from."""
    words = text.replace(",", "").split()
    article = int(words[words.index("topic" if "topic" in words else "Topic") + 1])
    number = words[words.index("paragraph" if "paragraph" in words else "number") + 1]
    return article, int(number)


def make_tasks(path, count=40, seed=0):
    return {task.name: task for task in wikipedia_tasks(path, count=count, seed=seed)}


def articles_of(pairs):
    """List the articles of all first and second texts."""
    articles = set()
    for pair in pairs:
        articles |= {locate(text)[0] for text in pair.texts}
    return articles


def test_next_paragraph_task_is_balanced_and_has_no_example_twice(text_file):
    task = make_tasks(text_file)[NEXT]
    for pairs in (task.train, task.test):
        assert Counter(pair.label for pair in pairs) == {0: 20, 1: 20}
        assert len({pair.texts for pair in pairs}) == 40


def test_next_paragraph_task_has_correct_labels(text_file):
    task = make_tasks(text_file)[NEXT]
    for pair in (*task.train, *task.test):
        first, second = pair.texts
        article, number = locate(first)
        second_article, second_number = locate(second)
        assert second_number > 0  # a wrong paragraph follows some paragraph, too
        if task.labels[pair.label] == "next paragraph":
            assert (second_article, second_number) == (article, number + 1)
        else:
            assert second_article != article


def test_next_paragraph_task_has_no_article_in_train_and_test(text_file):
    task = make_tasks(text_file)[NEXT]
    assert not articles_of(task.train) & articles_of(task.test)


def test_tasks_depend_on_the_seed_only(text_file):
    task = make_tasks(text_file)[NEXT]
    assert task == make_tasks(text_file)[NEXT]
    assert task.train != make_tasks(text_file, seed=1)[NEXT].train


def test_tasks_without_a_limit_have_all_that_the_text_gives(text_file):
    unlimited = make_tasks(text_file, count=None)
    assert unlimited == make_tasks(text_file, count=100_000)
    assert len(unlimited[NEXT].train) > 40
    assert len(unlimited[SHIFT].train) > 40


def test_tasks_of_a_text_that_is_too_short_are_refused(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("One line.\nAnother line.\n" * 3)
    with pytest.raises(CorpusError, match=r"short\.txt: 3 articles with two paragraphs"):
        make_tasks(path)


def test_tasks_without_both_labels_are_left_out(text_file):
    tasks = make_tasks(text_file)
    assert set(tasks) == {NEXT, SHIFT}  # all subjects are singular


def test_bigram_shift_task_is_balanced_and_has_no_article_in_train_and_test(text_file):
    task = make_tasks(text_file)[SHIFT]
    train = {pair.source for pair in task.train}
    test = {pair.source for pair in task.test}
    assert train
    assert test
    assert not train & test
    for pairs in (task.train, task.test):
        assert sum(pair.label for pair in pairs) == len(pairs) / 2


# Tasks of grammar


def toy_sentences(articles=6, per_article=20):
    """Make sentences like "The aaa of BBB sat here."; every fourth one has a plural subject."""
    names = [chr(97 + number) * 3 for number in range(26)]
    sentences = []
    for article in range(articles):
        for number in range(per_article):
            words = ("The", names[number], "of", names[article].upper(), "sat", "here", ".")
            is_plural = int(number % 4 == 0)
            title = f"Article {article}"
            sentences.append(ParsedSentence(article, title, words, is_plural))
    return sentences


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
    doc = pipeline()(spacy_doc(text.split(), None))
    assert subject_number(doc[:]) == number


def test_labelled_pairs_of_numbers_have_the_labels_of_their_sentences():
    sentences = {" ".join(sentence.words): sentence for sentence in toy_sentences()}
    pairs = labelled_pairs(NUMBER, sentences.values(), 20, seed=0)
    assert len({pair.texts for pair in pairs}) == 20
    assert Counter(pair.label for pair in pairs) == {0: 10, 1: 10}
    for pair in pairs:
        (text,) = pair.texts
        sentence = sentences[text]
        assert (pair.label, pair.source) == (sentence.number, sentence.title)


def test_labelled_pairs_of_shifts_have_two_neighbours_swapped():
    originals = {frozenset(sentence.words): sentence.words for sentence in toy_sentences()}
    pairs = labelled_pairs(SHIFT, toy_sentences(), 40, seed=0)
    assert Counter(pair.label for pair in pairs) == {0: 20, 1: 20}
    for pair in pairs:
        (text,) = pair.texts
        words = text.split()
        original = originals[frozenset(words)]
        changed = [index for index, word in enumerate(words) if word != original[index]]
        if pair.label:
            assert len(changed) == 2
            assert changed[1] == changed[0] + 1
        else:
            assert changed == []
        assert all(words[index].isalpha() for index in changed)
