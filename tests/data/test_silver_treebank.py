"""The silver treebank: sentences that spaCy parses, and those that it drops; shuffled words."""

from collections import Counter

import pytest
from toy_corpora import write

from helpers.data import treebank as silver
from helpers.data.records import Corpus, PairedText, Sentence
from helpers.data.treebank import parsed_text, shuffled_words, silver_treebank
from helpers.errors import CorpusError, InputError


@pytest.mark.parametrize(("count", "missing"), [(30, 0), (41, 1)])
def test_silver_treebank_reads_on_until_there_are_enough(tmp_path, count, missing):
    """One paragraph of three has a usable sentence: 40 of 120."""
    text = ""
    for number in range(40):
        text += f"Why?\nThey gave the child with number {number} an apple.\nIt was not.\n"
    path = write(tmp_path, "my lines.txt", text)
    counts = Counter()
    corpus = silver_treebank(path, count=count, seed=1)
    chosen = list(corpus.read(counts))
    assert corpus.name == "my lines-silver"
    assert len({tree.words for tree in chosen}) == len(chosen) == count - missing
    assert counts["sentences fewer than asked for"] == missing
    assert counts["articles"] == 12 and counts["paragraphs kept"] == 120  # counted once
    numbers = [int(tree.words[6]) for tree in chosen]
    assert numbers == sorted(numbers)
    articles = {"train": set(), "dev": set()}
    for tree in chosen:
        articles[tree.split].add(tree.source.partition(", paragraph ")[0])
    assert not articles["train"] & articles["dev"]
    assert 0 < sum(tree.split == "dev" for tree in chosen) <= len(chosen) / 5
    assert chosen == silver._parse(path, count, 1, silver.PIPELINE)["sentences"]  # not cached
    other = silver_treebank(path, count=None if missing else count, seed=2).records()
    assert ([tree.words for tree in other] == [tree.words for tree in chosen]) == bool(missing)


def test_silver_treebank_has_the_trees_and_tags_of_spacy(tmp_path):
    text = "The old man saw a large dog. No.\n\nWhy?\n\nShe gave the child an apple.\n"
    counts = Counter()
    first, second = silver_treebank(write(tmp_path, "a.txt", text), count=10).read(counts)
    assert first.words == ("The", "old", "man", "saw", "a", "large", "dog", ".")
    assert first.heads == (3, 3, 4, 0, 7, 7, 4, 4)
    assert first.relations == ("det", "amod", "nsubj", "root", "det", "amod", "dobj", "punct")
    assert first.tags == ("DET", "ADJ", "NOUN", "VERB", "DET", "ADJ", "NOUN", "PUNCT")
    assert first.source == "a.txt 1, paragraph 1, sentence 1"
    assert second.source == "a.txt 2, paragraph 1, sentence 1"
    assert {first.split, second.split} == {"train", "dev"}
    assert counts["sentences dropped: not 5 to 40 words"] == 2
    (doc,) = silver.pipeline().pipe(["He saw a dog."], disable=["tagger", "attribute_ruler"])
    assert silver.to_sentence(doc[:], "", "").tags == ()


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
    assert silver.why_unusable(silver.pipeline()(text)[:]) == reason


GERMAN = "Der Ausschuss hat meinen Plan abgelehnt. " * 4


def test_parsed_text_has_no_invisible_word_and_is_english(capsys):
    (sentence,) = parsed_text("He \u200b saw \x07 a \u200d dog\u200b.").records()
    assert sentence.words == ("He", "saw", "a", "_", "dog", ".")
    assert not capsys.readouterr().err
    with pytest.raises(InputError, match="the text is empty"):
        parsed_text(" \u200b\n")
    with pytest.raises(InputError, match=r"does not look like English.*parser="):
        parsed_text(GERMAN)
    assert len(parsed_text(GERMAN, silver.PIPELINE).records()) == 4
    assert not capsys.readouterr().err
    parsed_text(GERMAN[:40]).records()  # too short to tell
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(InputError, match="de_core_news_sm: no spaCy pipeline"):
        parsed_text(GERMAN, "de_core_news_sm")


def test_silver_treebank_needs_a_parser_of_its_language_and_two_articles(tmp_path):
    for number in range(2):
        write(tmp_path, f"{number}.txt", f"{GERMAN}\n\n{GERMAN}")
    treebank = silver_treebank(tmp_path, count=6)  # sections 3 and 6 do not need it
    with pytest.raises(InputError, match=r"does not look like English.*--treebank.*--parser"):
        treebank.records()
    assert len(silver_treebank(tmp_path, count=6, parser=silver.PIPELINE).records()) == 6
    with pytest.raises(InputError, match="--parser de_core_news_sm: no spaCy pipeline"):
        silver_treebank(tmp_path, parser="de_core_news_sm")
    path = write(tmp_path, "one.txt", "This is an article with one sentence.\nAnd a second one.\n")
    with pytest.raises(CorpusError, match=r"one\.txt: has usable .* 1 articles"):
        silver_treebank(path).records()


def arcs_of(sentence):
    """List relation, word, tag and parent of each arc of a tree or of pairs."""
    if isinstance(sentence, PairedText):
        pairs = sentence.pairs
    else:
        arcs = enumerate(zip(sentence.heads, sentence.relations, strict=True))
        pairs = [(word, head - 1 if head else word, name) for word, (head, name) in arcs]
    words = list(zip(sentence.words, sentence.tags, strict=True))
    return {(name, words[word], words[parent]) for word, parent, name in pairs}


def test_shuffled_words_keep_every_arc_with_its_words():
    words = ("the", "cat", "saw", "a", "dog")
    heads = (2, 3, 0, 5, 3)
    relations = ("det", "nsubj", "root", "det", "dobj")
    tags = ("DET", "NOUN", "VERB", "DET", "NOUN")
    tree = Sentence(words, heads, relations, "dev", "made up", tags)
    pairs = PairedText(words, ((0, 1, "det"), (4, 2, "dobj"), (2, 2, "root")), "dev", "", tags)
    for sentence in (tree, pairs):
        corpus = Corpus("tree", {"made": "up"}, lambda counts, text=sentence: iter([text] * 5))
        shuffled = shuffled_words(corpus, seed=0)
        assert len({text.words for text in shuffled.records()}) > 1  # each has its own order
        assert all(arcs_of(text) == arcs_of(sentence) for text in shuffled.records())
        assert shuffled.records() == shuffled.records()
        assert shuffled.fingerprint != corpus.fingerprint
