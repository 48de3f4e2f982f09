"""The silver treebank: sentences that spaCy parses, and those that it drops."""

from collections import Counter

import pytest

from helpers.data import treebank as silver
from helpers.data.records import Corpus, Sentence
from helpers.data.treebank import parsed_text, shuffled_words, silver_treebank
from helpers.errors import CorpusError, InputError


@pytest.fixture(scope="module")
def sample():
    counts = Counter()
    return list(silver_treebank(count=60, seed=3).read(counts)), counts


def test_silver_treebank_has_clean_trees_and_articles_in_one_split(sample):
    sentences, counts = sample
    assert len(sentences) == 60 and counts["sentences fewer than asked for"] == 0
    assert 0 < counts["paragraphs parsed"] < 60
    articles = {"train": set(), "dev": set()}
    for words, heads, relations, split, source, _ in sentences:
        assert 5 <= len(words) == len(heads) == len(relations) <= 40
        assert relations[heads.index(0)] == "root" and heads.count(0) == 1
        assert all(word.strip() == word != "" for word in words)
        articles[split].add(source.partition(", paragraph ")[0])
    assert not articles["train"] & articles["dev"]
    assert 6 <= sum(sentence.split == "dev" for sentence in sentences) <= 12  # 20% of 60


def test_parses_of_a_pipeline_without_a_tagger_have_no_tags():
    (doc,) = silver.pipeline().pipe(["He saw a dog."], disable=["tagger", "attribute_ruler"])
    assert silver.to_sentence(doc[:], "", "").tags == ()


@pytest.mark.parametrize(("count", "missing"), [(30, 0), (41, 1)])
def test_silver_treebank_reads_on_until_there_are_enough(tmp_path, count, missing):
    """One paragraph of three has a usable sentence: 40 of 120."""
    path = tmp_path / "my lines.txt"
    sentence = "They gave the child with number {} an apple."
    path.write_text("".join(f"Why?\n{sentence}\nIt was not.\n".format(i) for i in range(40)))
    counts = Counter()
    corpus = silver_treebank(path, count=count, seed=1)
    chosen = list(corpus.read(counts))
    assert corpus.name == "my-lines-silver"
    assert len({tree.words for tree in chosen}) == len(chosen) == count - missing
    assert counts["sentences fewer than asked for"] == missing
    assert counts["articles"] == 12 and counts["paragraphs kept"] == 120  # counted once
    numbers = [int(tree.words[6]) for tree in chosen]
    assert numbers == sorted(numbers)
    assert chosen == silver._parse(path, count, 1, silver.PIPELINE)["sentences"]  # not cached
    if missing:
        assert [tree.words for tree in silver_treebank(path, count=None).records()] == [
            tree.words for tree in chosen
        ]
    else:
        assert chosen != silver_treebank(path, count=count, seed=2).records()


def test_silver_treebank_has_the_trees_and_tags_of_spacy(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("The old man saw a large dog. No.\n\nWhy?\n\nShe gave the child an apple.\n")
    counts = Counter()
    first, second = silver_treebank(path, count=10).read(counts)
    assert first.words == ("The", "old", "man", "saw", "a", "large", "dog", ".")
    assert first.heads == (3, 3, 4, 0, 7, 7, 4, 4)
    assert first.relations == ("det", "amod", "nsubj", "root", "det", "amod", "dobj", "punct")
    assert first.tags == ("DET", "ADJ", "NOUN", "VERB", "DET", "ADJ", "NOUN", "PUNCT")
    assert (first.source, second.source) == (
        "a.txt 1, paragraph 1, sentence 1",
        "a.txt 2, paragraph 1, sentence 1",
    )
    assert {first.split, second.split} == {"train", "dev"}
    assert counts["sentences dropped: not 5 to 40 words"] == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Visit the page at www.example.org for it.", "start, end or characters unusual"),
        ("This sentence has no end at all", "start, end or characters unusual"),
        ("This one has a ⟨strange⟩ character in it.", "start, end or characters unusual"),
        ("This one opens (a bracket and goes on.", "unbalanced brackets or quotes"),
        ("In 1990 1,200,300 and 1,400,500 came.", "mostly not letters"),
        ("Too short this.", "not 5 to 40 words"),
        ("Nothing is wrong with this plain sentence.", None),
    ],
)
def test_why_unusable_gives_the_reason(text, reason):
    doc = silver.pipeline()(text)
    assert silver.why_unusable(doc[:]) == reason


def test_parsed_text_has_no_invisible_word():
    counts = Counter()
    (sentence,) = parsed_text("He \u200b saw \x07 a \u200d dog\u200b.").read(counts)
    assert sentence.words == ("He", "saw", "a", "_", "dog", ".")
    assert counts == {"words that are empty or invisible, read as _": 1}
    with pytest.raises(InputError, match="the text is empty"):
        parsed_text(" \u200b\n")


GERMAN = "Der Ausschuss hat meinen Plan abgelehnt."


def test_parsed_text_refuses_another_language_without_a_parser():
    with pytest.raises(InputError, match=r"does not look like English.*parser="):
        parsed_text(f"{GERMAN} " * 4)
    assert len(parsed_text(f"{GERMAN} " * 4, silver.PIPELINE).records()) == 4
    with pytest.raises(InputError, match="de_core_news_sm: no spaCy pipeline"):
        parsed_text(GERMAN, "de_core_news_sm")


def test_silver_treebank_of_another_language_needs_a_parser(tmp_path):
    for number in range(2):
        (tmp_path / f"{number}.txt").write_text("\n\n".join([f"{GERMAN} {GERMAN}"] * 4))
    treebank = silver_treebank(tmp_path, count=4)  # sections 3 and 6 do not need it
    with pytest.raises(InputError, match=r"does not look like English.*--treebank.*--parser"):
        treebank.records()
    assert len(silver_treebank(tmp_path, count=4, parser=silver.PIPELINE).records()) == 4
    with pytest.raises(InputError, match="--parser de_core_news_sm: no spaCy pipeline"):
        silver_treebank(tmp_path, parser="de_core_news_sm")


def test_silver_treebank_refuses_sentences_of_one_article(tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("This is an article with one sentence.\nThis is its second paragraph here.\n")
    with pytest.raises(CorpusError, match=r"one\.txt: has usable .* 1 articles"):
        silver_treebank(path).records()


def test_shuffled_words_keep_every_arc_with_its_words():
    words = ("the", "old", "cat", "saw", "a", "dog")
    heads = (3, 3, 4, 0, 6, 4)
    relations = ("det", "amod", "nsubj", "root", "det", "dobj")
    tags = ("DET", "ADJ", "NOUN", "VERB", "DET", "NOUN")
    sentence = Sentence(words, heads, relations, "dev", "made up", tags)
    corpus = Corpus("tree", {"made": "up"}, lambda counts: iter([sentence] * 5))
    shuffled = shuffled_words(corpus, seed=0)
    orders = set()
    for tree in shuffled.records():
        orders.add(tree.words)
        arcs = {}
        for word, head, relation, tag in zip(
            tree.words, tree.heads, tree.relations, tree.tags, strict=True
        ):
            arcs[word, relation, tag] = tree.words[head - 1] if head else None
        assert arcs == {
            ("the", "det", "DET"): "cat",
            ("old", "amod", "ADJ"): "cat",
            ("cat", "nsubj", "NOUN"): "saw",
            ("saw", "root", "VERB"): None,
            ("a", "det", "DET"): "dog",
            ("dog", "dobj", "NOUN"): "saw",
        }
    assert len(orders) > 1  # every sentence has an order of its own
    assert shuffled.records() == shuffled.records()
    assert shuffled.fingerprint != corpus.fingerprint
