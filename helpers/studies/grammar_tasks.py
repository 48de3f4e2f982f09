"""Three tasks that ask for form, made of a text's parsed sentences as SentEval makes its own.

Conneau et al. (2018), *What you can cram into a single vector*: are two neighbouring words
swapped (*bigram shift*), is the subject of the main clause singular or plural (*number of the
subject*), is the main verb in the present or the past (*tense of the main verb*)?  The labels are
spaCy's, errors included.  No article is in both train and test; labels are balanced.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from helpers.cache import cached_table
from helpers.data.silver_treebank import BATCH, pipeline, why_unusable
from helpers.data.text_files import file_fingerprint
from helpers.data.wikipedia import Article
from helpers.progress import progress
from helpers.studies.tasks import Pair, Task

if TYPE_CHECKING:
    from spacy.tokens import Span

SHIFT, NUMBER, TENSE = "bigram shift", "number of the subject", "tense of the main verb"
LABELS = {
    SHIFT: ("as written", "two words swapped"),
    NUMBER: ("singular", "plural"),
    TENSE: ("present", "past"),
}
TAGS = {NUMBER: {"NN": 0, "NNS": 1}, TENSE: {"VBZ": 0, "VBP": 0, "VBD": 1}}
SUBJECTS = ("nsubj", "nsubjpass")
SPARE = 1.25  # sentences of a label for each that a task takes: articles are not split


class Tagged(NamedTuple):
    """A sentence; of each word its Penn tag, its head (1: first word, 0: root) and relation."""

    article: int
    title: str
    words: tuple[str, ...]
    tags: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]


def tagged_sentences(
    path: Path, articles: Sequence[Article], *, count: int, seed: int
) -> list[Tagged]:
    """Return sentences of some articles of ``path``, enough for tasks of ``count`` examples.

    Paragraphs are parsed in random order until each label of each task has `SPARE` times its
    share, or to the end.  What was parsed is kept in the cache.
    """
    table = cached_table(
        "tagged-sentences",
        lambda: pd.DataFrame(_parsed(articles, count, seed), columns=Tagged._fields),
        depends_on={"file": file_fingerprint(path), "count": count, "seed": seed},
    )
    return [_from_row(*row) for row in table.itertuples(index=False)]


def tag_words(sentences: Sequence[Sequence[str]]) -> list[Tagged]:
    """Tag and parse sentences that are split into words already, each an article of its own."""
    from spacy.tokens import Doc

    nlp = pipeline()
    docs = (
        Doc(nlp.vocab, words=list(words), sent_starts=[i == 0 for i in range(len(words))])
        for words in sentences
    )
    read = progress(nlp.pipe(docs), "Tagging", unit=" sentences", total=len(sentences))
    return [_tagged(number, "", doc[:]) for number, doc in enumerate(read)]


def grammar_tasks(
    sentences: Sequence[Tagged],
    split: Callable[[Mapping[int, int]], set[int]],
    *,
    train: int,
    test: int,
    seed: int,
) -> dict[str, Task]:
    """Return the three tasks, without those of which a label is not in train or not in test.

    ``split`` takes the number of sentences of each article and says which articles are to test.
    """
    held_out = split(Counter(sentence.article for sentence in sentences))
    parts = [
        [s for s in sentences if (s.article in held_out) == to_test] for to_test in (False, True)
    ]
    found = {
        name: [
            labelled_pairs(name, part, size, seed)
            for part, size in zip(parts, (train, test), strict=True)
        ]
        for name in LABELS
    }
    return {name: Task(name, LABELS[name], *own) for name, own in found.items() if all(own)}


def labelled_pairs(
    name: str, sentences: Iterable[Tagged], size: int, seed: int
) -> tuple[Pair, ...]:
    """Return at most ``size`` sentences with the labels of a task, as many of the one as of the
    other; no sentence comes twice.
    """
    generator = random.Random(f"{name} {seed}")
    by_label: list[list[Pair]] = [[], []]
    unique = list({sentence.words: sentence for sentence in sentences}.values())
    for number, sentence in enumerate(generator.sample(unique, len(unique))):
        words: Sequence[str] = sentence.words
        if name != SHIFT:
            label = label_of(name, sentence)
        elif swapped := _swapped(words, generator):
            label = number % 2
            words = swapped if label else words
        else:
            label = None
        if label is not None:
            by_label[label].append(Pair(" ".join(words), None, label, sentence.title))
    each = min(size // 2, *map(len, by_label))
    pairs = [pair for own in by_label for pair in own[:each]]
    return tuple(generator.sample(pairs, len(pairs)))


def label_of(name: str, sentence: Tagged) -> int | None:
    """Return the number or the tense of a sentence's main clause; None where it is not plain.

    A subject is one common noun that nothing is joined to with *and*; a main verb is finite.
    """
    root = sentence.heads.index(0)
    word = root if name == TENSE else _subject(sentence, root)
    return None if word is None else TAGS[name].get(sentence.tags[word])


def _subject(sentence: Tagged, root: int) -> int | None:
    links = list(zip(sentence.heads, sentence.relations, strict=True))
    wanted = [(root + 1, relation) for relation in SUBJECTS]
    of_root = [i for i, link in enumerate(links) if link in wanted]
    if len(of_root) != 1 or (of_root[0] + 1, "conj") in links:
        return None
    return of_root[0]


def _swapped(words: Sequence[str], generator: random.Random) -> list[str] | None:
    """Return the words with two neighbours in each other's place; both are words, and differ."""
    places = [
        i
        for i, (one, other) in enumerate(pairwise(words))
        if one.isalpha() and other.isalpha() and one.lower() != other.lower()
    ]
    if not places:
        return None
    place = generator.choice(places)
    return [*words[:place], words[place + 1], words[place], *words[place + 2 :]]


def _parsed(articles: Sequence[Article], count: int, seed: int) -> list[tuple]:
    paragraphs = [
        (text, (number, article.title))
        for number, article in enumerate(articles)
        for text in article.paragraphs
    ]
    random.Random(seed).shuffle(paragraphs)
    wanted, found = SPARE * count / 2, []
    labels: Counter[tuple[str, int | None]] = Counter()
    docs = pipeline().pipe(paragraphs, as_tuples=True, batch_size=BATCH)
    read = progress(docs, "Parsing for tasks", unit=" paragraphs", total=len(paragraphs))
    usable = (_tagged(*place, s) for doc, place in read for s in doc.sents if not why_unusable(s))
    for sentence in usable:
        found.append(_to_row(sentence))
        labels.update((name, label_of(name, sentence)) for name in TAGS)
        if min(labels[name, label] for name in TAGS for label in (0, 1)) >= wanted:
            break
    return found


def _tagged(article: int, title: str, span: Span) -> Tagged:
    heads = tuple(0 if w.head.i == w.i else w.head.i - span.start + 1 for w in span)
    tags, relations = zip(*((word.tag_, word.dep_.lower()) for word in span), strict=True)
    return Tagged(article, title, tuple(word.text for word in span), tags, heads, relations)


def _to_row(sentence: Tagged) -> tuple:
    joined = (" ".join(map(str, part)) for part in sentence[2:])
    return sentence.article, sentence.title, *joined


def _from_row(article: int, title: str, *parts: str) -> Tagged:
    words, tags, heads, relations = (tuple(str(part).split(" ")) for part in parts)
    return Tagged(article, str(title), words, tags, tuple(map(int, heads)), relations)
