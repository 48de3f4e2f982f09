"""Tasks that label themselves: right labels, balance, and no leak from train to test."""

from collections import Counter

import pytest

from helpers.errors import CorpusError
from helpers.studies.wikipedia_tasks import (
    NEXT,
    NUMBER,
    SHIFT,
    ParsedSentence,
    labelled_pairs,
    parse_words,
    wikipedia_tasks,
)

ARTICLES, PARAGRAPHS = 10, 12


def paragraph(article, number):
    return (
        f"Topic {article} has a paragraph {number} of several words. "
        f"Its second sentence, about topic {article}, is number {number} as well."
    )


@pytest.fixture
def text(tmp_path):
    documents = (
        "\n".join(paragraph(article, number) for number in range(PARAGRAPHS))
        for article in range(ARTICLES)
    )
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(documents), encoding="utf-8")
    return path


def where(text):
    """Return the article and the paragraph that a text of the toy corpus is from."""
    words = text.replace(",", "").split()
    article = int(words[words.index("topic" if "topic" in words else "Topic") + 1])
    number = words[words.index("paragraph" if "paragraph" in words else "number") + 1]
    return article, int(number)


def make(path, count=40, seed=0):
    return {task.name: task for task in wikipedia_tasks(path, count=count, seed=seed)}


def test_next_paragraphs_are_balanced_right_and_of_other_articles_in_test(text):
    task = make(text)[NEXT]
    articles = []
    for part in (task.train, task.test):
        assert Counter(pair.label for pair in part) == {0: 20, 1: 20}
        assert len({(pair.first, pair.second) for pair in part}) == 40
        places = [(where(pair.first), where(pair.second)) for pair in part]
        for pair, ((article, number), (other, after)) in zip(part, places, strict=True):
            assert after > 0  # a wrong paragraph follows some other one, too
            if task.labels[pair.label] == "next paragraph":
                assert (other, after) == (article, number + 1)
            else:
                assert other != article
        articles.append({article for both in places for article, _ in both})
    assert not articles[0] & articles[1]
    assert task == make(text)[NEXT] and task.train != make(text, seed=1)[NEXT].train


def test_tasks_without_a_limit_take_every_example(text):
    unlimited, ample = make(text, count=None), make(text, count=100_000)
    assert unlimited == ample
    assert len(unlimited[NEXT].train) > 40 and len(unlimited[SHIFT].train) > 40


def test_a_text_that_is_too_short(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("\n\n".join("One line.\nAnother line." for _ in range(3)))
    with pytest.raises(CorpusError, match=r"short\.txt: 3 articles with two paragraphs"):
        make(path)


def test_tasks_of_grammar_are_made_where_the_text_has_both_labels(text):
    tasks = make(text)
    assert set(tasks) == {NEXT, SHIFT}  # all subjects are singular
    train, test = (
        {pair.source for pair in part} for part in (tasks[SHIFT].train, tasks[SHIFT].test)
    )
    assert train and test and not train & test
    assert tasks[SHIFT].majority == 0.5


# Tasks of grammar


def parsed(articles=6, each=20):
    """Sentences like "The aaa of BBB sat here." """
    letters = [chr(97 + n) * 3 for n in range(26)]
    for a in range(articles):
        for n in range(each):
            words = ("The", letters[n], "of", letters[a].upper(), "sat", "here", ".")
            yield ParsedSentence(a, f"Article {a}", words, int(n % 4 == 0), (), ())


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
def test_the_number_of_a_trees_subject(text, number):
    (found,) = parse_words([text.split()])
    assert list(found.words) == text.split()
    assert found.number == number


def test_every_label_is_that_of_its_sentence():
    sentences = {" ".join(s.words): s for s in parsed()}
    pairs = labelled_pairs(NUMBER, sentences.values(), 20, seed=0)
    assert len({pair.first for pair in pairs}) == 20
    assert Counter(pair.label for pair in pairs) == {0: 10, 1: 10}
    for pair in pairs:
        own = sentences[pair.first]
        assert (pair.label, pair.source) == (own.number, own.title)


def test_a_shifted_sentence_has_two_neighbouring_words_in_each_others_place():
    originals = {frozenset(s.words): s.words for s in parsed()}
    pairs = labelled_pairs(SHIFT, parsed(), 40, seed=0)
    assert Counter(pair.label for pair in pairs) == {0: 20, 1: 20}
    for pair in pairs:
        words = pair.first.split()
        original = originals[frozenset(words)]
        apart = [i for i, (a, b) in enumerate(zip(words, original, strict=True)) if a != b]
        assert apart == ([apart[0], apart[0] + 1] if pair.label else [])
        assert all(words[i].isalpha() for i in apart)
