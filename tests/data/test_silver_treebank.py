"""The silver treebank: sentences that spaCy parses, and those that it drops."""

from collections import Counter

import pytest

from helpers.data import treebank as silver
from helpers.data.records import Corpus, Sentence
from helpers.data.treebank import parse_words, parsed_text, shuffled_words, silver_treebank
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


def test_silver_treebank_is_seeded_and_in_the_order_of_the_text(sample, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(" ".join(sentence.words) for sentence in sample[0]))
    chosen = silver_treebank(path, count=12, seed=1).records()
    assert chosen == silver._parse(path, 12, 1, silver.PIPELINE)["sentences"]  # not from the cache
    assert chosen != silver_treebank(path, count=12, seed=2).records()
    documents = [int(sentence.source.split(",")[0].removeprefix("a.txt ")) for sentence in chosen]
    assert documents == sorted(documents)
    assert len({sentence.source for sentence in chosen}) == 12
    fingerprints = {silver_treebank(path, seed=seed).fingerprint for seed in (0, 0, 1)}
    assert len(fingerprints) == 2


def test_silver_treebank_without_a_limit_has_every_usable_sentence(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(
        "The old man saw a very large dog. No.\n\nWhy?\n\nShe gave the child a red apple.\n"
    )
    counts = Counter()
    unlimited = list(silver_treebank(path, count=None).read(counts))
    assert unlimited == silver_treebank(path, count=1000).records()
    assert len(unlimited) == 2 and "sentences fewer than asked for" not in counts


@pytest.fixture
def one_line_paragraphs(tmp_path):
    """Write a text in which one paragraph of three has a usable sentence: 40 of 120."""
    path = tmp_path / "lines.txt"
    sentence = "They gave the child with number {} an apple."
    path.write_text("".join(f"Why?\n{sentence}\nIt was not.\n".format(i) for i in range(40)))
    return path


def test_silver_treebank_goes_on_until_there_are_enough(one_line_paragraphs):
    counts = Counter()
    chosen = list(silver_treebank(one_line_paragraphs, count=30, seed=1).read(counts))
    assert len({sentence.words for sentence in chosen}) == len(chosen) == 30
    assert counts["sentences fewer than asked for"] == 0
    assert counts["articles"] == 12 and counts["paragraphs kept"] == 120  # counted once
    numbers = [int(sentence.words[6]) for sentence in chosen]
    assert numbers == sorted(numbers)
    assert chosen == [
        silver.Sentence(*parts)
        for parts in silver._parse(one_line_paragraphs, 30, 1, silver.PIPELINE)["sentences"]
    ]


def test_silver_treebank_has_the_tags_of_its_parser(one_line_paragraphs):
    sentence = silver_treebank(one_line_paragraphs, count=3).records()[0]
    tags = dict(zip(sentence.words, sentence.tags, strict=True))
    assert tags["They"] == "PRON" and tags["gave"] == "VERB" and tags["child"] == "NOUN"


def test_the_tagger_leaves_parses_unchanged(one_line_paragraphs):
    texts = [*one_line_paragraphs.read_text().splitlines(), "The old man saw dogs. He ran home."]
    parser_only = silver.pipeline().pipe(texts, disable=["tagger", "attribute_ruler"])
    for untagged, tagged in zip(parser_only, silver.pipeline().pipe(texts), strict=True):
        assert not any(token.pos_ for token in untagged)
        for name in ("head", "dep_", "is_sent_start"):
            values = [[str(getattr(token, name)) for token in doc] for doc in (untagged, tagged)]
            assert values[0] == values[1]


def test_parses_of_a_pipeline_without_a_tagger_have_no_tags():
    (doc,) = silver.pipeline().pipe(["He saw a dog."], disable=["tagger", "attribute_ruler"])
    assert silver._sentence(doc[:]).tags == ()


def test_silver_treebank_reads_each_paragraph_once(one_line_paragraphs):
    counts = Counter()
    chosen = list(silver_treebank(one_line_paragraphs, count=41, seed=1).read(counts))
    assert len({sentence.words for sentence in chosen}) == len(chosen) == 40
    assert counts["paragraphs parsed"] == 120 and counts["sentences fewer than asked for"] == 1


def test_silver_treebank_parses_plain_text(tmp_path):
    path = tmp_path / "my text.txt"
    path.write_text(
        "The old man saw a very large dog. No.\n\nWhy?\n\nShe gave the child a red apple.\n"
    )
    corpus = silver_treebank(path, count=10)
    assert corpus.name == "my-text-silver"
    counts = Counter()
    first, second = corpus.read(counts)
    assert first.words == ("The", "old", "man", "saw", "a", "very", "large", "dog", ".")
    assert first.heads == (3, 3, 4, 0, 8, 7, 8, 4, 4)
    assert first.relations == (
        *("det", "amod", "nsubj", "root", "det", "advmod", "amod", "dobj", "punct"),
    )
    assert (first.source, second.source) == (
        "my text.txt 1, paragraph 1, sentence 1",
        "my text.txt 2, paragraph 1, sentence 1",
    )
    assert {first.split, second.split} == {"train", "dev"}
    assert counts["sentences fewer than asked for"] == 8
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


def test_parse_words_keeps_words_and_gives_one_root():
    she, two, york, empty = parse_words(
        [["She", "saw", "him", "."], ["One", ".", "Two", "."], ["New York", "is", "big"], []]
    )
    assert she[1:3] == ((2, 0, 2, 2), ("nsubj", "root", "dobj", "punct"))
    assert two.heads.count(0) == 1 and len(two.heads) == 4
    assert york.heads == (2, 0, 2) and empty.heads == empty.relations == ()


def test_parsed_text_has_no_invisible_word():
    counts = Counter()
    (sentence,) = parsed_text("He \u200b saw \x07 a \u200d dog\u200b.").read(counts)
    assert sentence.words == ("He", "saw", "a", "_", "dog", ".")
    assert counts == {"words that are empty or invisible, read as _": 1}
    with pytest.raises(InputError, match="the text is empty"):
        parsed_text(" \u200b\n")


GERMAN = "Der Ausschuss hat meinen Plan abgelehnt."


@pytest.mark.parametrize(
    ("text", "parser", "noted"),
    [
        (GERMAN, "", True),
        (GERMAN, silver.PIPELINE, False),
        ("The committee rejected my plan.", "", False),
    ],
)
def test_parsed_text_says_when_it_takes_a_short_text_for_english(text, parser, noted, capsys):
    (sentence,) = parsed_text(text, parser).records()
    assert sentence.words[-1] == "."
    assert ("is parsed as English" in capsys.readouterr().err) == noted


def test_parsed_text_refuses_another_language_without_a_parser():
    with pytest.raises(InputError, match=r"does not look like English.*parser="):
        parsed_text(f"{GERMAN} " * 4)
    assert len(parsed_text(f"{GERMAN} " * 4, silver.PIPELINE).records()) == 4
    with pytest.raises(InputError, match="de_core_news_sm: no spaCy pipeline"):
        parsed_text(GERMAN, "de_core_news_sm")


@pytest.mark.parametrize(
    ("text", "n_sentences"),
    [("This is an article with one sentence.\nThis is its second paragraph here.\n", 2), ("", 0)],
)
def test_silver_treebank_refuses_sentences_of_one_article(text, n_sentences, tmp_path):
    path = tmp_path / "one.txt"
    path.write_text(text)
    with pytest.raises(CorpusError, match=rf"one\.txt: .*\b{n_sentences} usable .* --treebank"):
        silver_treebank(path).records()


@pytest.fixture
def german(tmp_path):
    """Write a text of two articles in German."""
    paragraph = (
        "Der alte Mann ging jeden Morgen langsam durch den kleinen Park am Fluss. "
        "Seine beiden Hunde liefen immer weit vor ihm her durch das nasse Gras."
    )
    for number in range(2):
        (tmp_path / f"{number}.txt").write_text(f"{paragraph}\n\n{paragraph}")
    return tmp_path


def test_silver_treebank_refuses_another_language_when_it_is_read(german):
    treebank = silver_treebank(german, count=4)  # sections 3 and 6 do not need it
    with pytest.raises(InputError, match=r"does not look like English.*--treebank.*--parser"):
        treebank.records()


def test_silver_treebank_takes_a_parser_for_another_language(german):
    parsed = silver_treebank(german, count=4, parser=silver.PIPELINE)
    assert len(parsed.records()) == 4
    assert parsed.fingerprint == silver_treebank(german, count=4).fingerprint


def test_silver_treebank_names_a_parser_that_is_not_installed(german):
    with pytest.raises(InputError, match="--parser de_core_news_sm: no spaCy pipeline"):
        silver_treebank(german, parser="de_core_news_sm")


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
