"""Tasks that label themselves: right labels, balance, and no leak from train to test."""

from collections import Counter

import pytest

from helpers.errors import CorpusError, InputError
from helpers.studies.grammar_tasks import SHIFT
from helpers.studies.wikipedia_tasks import ARTICLE, NEXT, sentences, wikipedia_tasks

ARTICLES, PARAGRAPHS = 10, 12


def paragraph(article, number):
    return (
        f"Topic {article} has a paragraph {number} of several words. "
        f"Its second sentence, about topic {article}, is number {number} as well."
    )


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ATTENTION_HEADLESS", "1")


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


def make(path, train=40, test=10, seed=0):
    return wikipedia_tasks(path, train=train, test=test, seed=seed)


def test_fewer_examples_than_articles_leave_some_without_any(text):
    task = make(text, train=4, test=3)[ARTICLE]
    assert (len(task.labels), len(task.train), len(task.test)) == (ARTICLES, 4, 3)


def test_next_paragraph(text):
    task = make(text)[NEXT]
    for pair in (*task.train, *task.test):
        (article, number), (other, after) = where(pair.first), where(pair.second)
        assert after > 0  # a wrong paragraph follows some other one, too
        if task.labels[pair.label] == "next paragraph":
            assert (other, after) == (article, number + 1)
        else:
            assert other != article


def test_article(text):
    task = make(text)[ARTICLE]
    assert len(task.labels) == ARTICLES
    for pair in (*task.train, *task.test):
        assert pair.second is None
        assert where(pair.first)[0] == pair.label  # articles in the order of the corpus


def test_no_article_is_in_train_and_test(text):
    task = make(text)[NEXT]
    train, test = (
        {where(side)[0] for pair in part for side in (pair.first, pair.second)}
        for part in (task.train, task.test)
    )
    assert train and test and not train & test


def test_no_paragraph_is_in_train_and_test_of_the_article_task(text):
    task = make(text)[ARTICLE]
    train, test = ({where(pair.first) for pair in part} for part in (task.train, task.test))
    assert not train & test


@pytest.mark.parametrize("name", [NEXT, ARTICLE])
def test_sizes_and_balance(text, name):
    task = make(text, train=40, test=10)[name]
    assert (len(task.train), len(task.test)) == (40, 10)
    for part in (task.train, task.test):
        counts = Counter(pair.label for pair in part)
        assert len(counts) == len(task.labels)
        assert max(counts.values()) - min(counts.values()) <= 1
        assert len({(pair.first, pair.second) for pair in part}) == len(part)


def test_fewer_examples_where_the_text_has_fewer(text):
    tasks = make(text, train=2000, test=500)
    pairs = ARTICLES * (PARAGRAPHS - 1)
    assert len(tasks[NEXT].train) + len(tasks[NEXT].test) == pairs
    assert len(tasks[NEXT].test) == 2 * (PARAGRAPHS - 1)  # two articles: a fifth of the pairs
    assert len(tasks[ARTICLE].train) + len(tasks[ARTICLE].test) == ARTICLES * PARAGRAPHS * 2


def test_the_seed_decides(text):
    assert make(text) == make(text)
    assert make(text)[NEXT].train != make(text, seed=1)[NEXT].train
    assert make(text)[ARTICLE].train != make(text, seed=1)[ARTICLE].train


def test_a_text_that_is_too_short(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("\n\n".join("One line.\nAnother line." for _ in range(3)))
    with pytest.raises(CorpusError, match=r"short\.txt: 3 articles with two paragraphs"):
        make(path)
    path.write_text("\n\n".join("One line.\nAnother line." for _ in range(4)))
    with pytest.raises(CorpusError, match="fewer than two articles with sentences"):
        make(path)


def test_tasks_of_grammar_are_made_where_the_text_has_both_labels(text):
    assert set(make(text)) == {NEXT, ARTICLE, SHIFT}  # one subject, one tense


def test_counts_too_small(text):
    with pytest.raises(InputError, match="ask for 2 or more"):
        make(text, train=1)


def test_sentences():
    long = " ".join(["Word"] * 45)
    found = sentences(
        "It was led by J. R. Smith of the north until 1901. Was that too short? "
        f'"He said that it was over now." The U.S. Army left in the spring after that. {long}.'
    )
    assert found == [
        "It was led by J. R. Smith of the north until 1901.",
        '"He said that it was over now."',
        "The U.S. Army left in the spring after that.",
    ]
