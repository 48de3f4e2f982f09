"""Wikipedia and plain text: from markup and lines to paragraphs and segments."""

import bz2
import hashlib
from collections import Counter

import pytest
from toy_corpora import write

from helpers.data.wikipedia import articles, segments
from helpers.errors import CorpusError

PROSE = "The {} paragraph has more than ten words, as every usable one must."


def test_segments_refuses_bad_paths(tmp_path):
    with pytest.raises(CorpusError, match="does not exist or is not a regular file; check the"):
        segments(tmp_path / "nowhere.txt")


def test_articles_of_plain_text_refuse_another_encoding(tmp_path):
    with pytest.raises(CorpusError, match=r"a\.txt:2: not UTF-8 text; save it as plain text"):
        list(articles(write(tmp_path, "a.txt", b"%PDF-1.7\n\xff")))


# Plain text


@pytest.mark.parametrize("separator", ["\n", "\r\n\r\n", "\n \t\n\n", "\n\u200b\n"])
def test_articles_of_plain_text_keep_every_visible_paragraph(separator, tmp_path):
    lines = ["First  paragraph ( ; b ) .", "...", "שלום", "東京", "🙂\u2028x"]
    path = write(tmp_path, "notes.txt", "\ufeff\n" + separator.join(lines) + "\n\n")
    counts = Counter()
    blocks = list(articles(path, counts=counts))
    assert [block.title for block in blocks] == ["notes.txt 1", "notes.txt 2", "notes.txt 3"]
    assert [text for block in blocks for text in block.paragraphs] == [
        *("First paragraph ( ; b ) .", "...", "שלום", "東京", "🙂 x"),
    ]
    assert counts == {"paragraphs kept": 5, "articles": 3}


def test_articles_of_plain_text_join_lines_up_to_a_blank_one(tmp_path):
    path = write(
        tmp_path, "my.txt", "The first\n  paragraph.\n\u200d \ufeff\nThe second.\n\n\nA\r\nb\n"
    )
    first, second = articles(path)
    assert first.paragraphs == ("The first paragraph.", "The second.")
    assert second.paragraphs == ("A b",)


@pytest.mark.parametrize(("n_paragraphs", "size"), [(1, 2), (39, 2), (40, 4), (95, 8), (1000, 10)])
def test_articles_of_a_single_file_are_blocks_of_a_tenth(n_paragraphs, size, tmp_path):
    path = write(tmp_path, "my.txt", "\n".join(f"line {n}" for n in range(n_paragraphs)))
    lengths = [len(block.paragraphs) for block in articles(path)]
    assert sum(lengths) == n_paragraphs
    assert set(lengths[:-1]) <= {size} and lengths[-1] <= size


def test_articles_of_a_folder_are_its_text_files(tmp_path):
    with pytest.raises(CorpusError, match=r"no \.txt or \.md"):
        segments(tmp_path)
    (tmp_path / "b").mkdir()
    write(tmp_path / "b", "one.md", "\n\n".join(["# One", *"abcdefg"]))
    write(tmp_path, "two.txt", "one\ntwo")
    write(tmp_path, "no.csv", "a,b")
    sizes = {article.title: len(article.paragraphs) for article in articles(tmp_path)}
    assert sizes == {"b/one.md": 8, "two.txt": 2}
    before = segments(tmp_path).fingerprint
    write(tmp_path, "two.txt", "one\nthree")
    assert segments(tmp_path).fingerprint != before


# Files that mark articles


def extracted(number, *names):
    """Write an article as WikiExtractor does: its title, a paragraph or heading per line."""
    text = "\n".join(PROSE.format(name) for name in names)
    return (
        f'<doc id="{number}" url="https://a.org/?curid={number}" title="Bridge &amp; {number}">\n'
        f"Bridge &amp; {number}\n\n{text}\nHistory.\n\n</doc>\n"
    )


def test_articles_of_wikiextractor_have_no_marks_and_titles(tmp_path):
    for folder, number in (("AA", 0), ("AB", 1)):
        (tmp_path / folder).mkdir()
        content = extracted(number, "first", "second", "third").encode()
        write(tmp_path / folder, "wiki_00.bz2", bz2.compress(content))
    counts = Counter()
    first, second = articles(tmp_path, counts=counts)
    assert (first.title, second.title) == ("Bridge & 0", "Bridge & 1")
    assert first.paragraphs == tuple(PROSE.format(n) for n in ("first", "second", "third"))
    assert counts["paragraphs dropped: fewer than 10 words"] == 4
    untitled = f'<doc id="1" url="x" title="">\nBridge\n\n{PROSE}\n{PROSE}\n</doc>\n'
    (article,) = articles(write(tmp_path, "wiki_01", untitled))
    assert article.title == "Bridge" and len(article.paragraphs) == 2


def test_articles_of_wikitext_have_no_headings_and_marks(tmp_path):
    wikitext = (
        f" \n = Bridge 0 = \n \n {PROSE} \n = = History = = \n \n"
        " The <unk> bridge was built by the town in 19 @-@ 20 for 1 @,@ 200 marks . \n"
        " It was built by the town in 19 @-@ 20 , for 1 @,@ 200 marks , and sold at once . \n"
        f" = Bridge 1 = \n {PROSE} \n {PROSE} \n"
    )
    counts = Counter()
    first, second = articles(write(tmp_path, "wiki.train.tokens", wikitext), counts=counts)
    assert (first.title, second.title) == ("Bridge 0", "Bridge 1")
    built = "It was built by the town in 19-20, for 1,200 marks, and sold at once."
    assert (first.paragraphs, len(second.paragraphs)) == ((PROSE, built), 2)
    assert counts["paragraphs dropped: markup left"] == 1  # with <unk>


# Segments


@pytest.fixture
def numbered(tmp_path):
    """Write ten documents of five paragraphs: two segments and one left-over paragraph each."""
    folder = tmp_path / "My Corpus.v2"
    folder.mkdir()
    for number in range(10):
        lines = [f"d{number} p{paragraph}" for paragraph in range(5)]
        write(folder, f"{number}.txt", "\n".join(lines))
    return folder


def test_segments_are_pairs_of_paragraphs_that_do_not_overlap(numbered):
    counts = Counter()
    corpus = segments(numbered, count=None)
    pairs = [(segment.first, segment.second) for segment in corpus.read(counts)]
    assert pairs[:3] == [("d0 p0", "d0 p1"), ("d0 p2", "d0 p3"), ("d1 p0", "d1 p1")]
    assert len(pairs) == counts["segments"] == 20 and corpus.name == "my-corpus"
    assert counts["paragraphs without a partner"] == 10


def test_segments_sample_is_seeded_and_in_order(numbered):
    population = segments(numbered, count=None).records()
    counts = Counter()
    sample = list(segments(numbered, count=7, seed=1).read(counts))
    assert sample == segments(numbered, count=7, seed=1).records()
    assert sample != segments(numbered, count=7, seed=2).records()
    indices = [population.index(segment) for segment in sample]
    assert indices == sorted(set(indices))
    assert counts["segments not sampled"] == 13
    assert segments(numbered, count=50).records() == population


def test_segments_fingerprint_depends_on_count_seed_and_file(numbered):
    choices = [(5, 2), (5, 2), (6, 2), (5, 0), (None, 2)]
    fingerprints = [segments(numbered, count=n, seed=seed).fingerprint for n, seed in choices]
    write(numbered, "3.txt", "edited")
    fingerprints.append(segments(numbered, count=5, seed=2).fingerprint)
    assert fingerprints[0] == fingerprints[1] and len(set(fingerprints)) == 5


@pytest.mark.parametrize("content", ["", "one\n"])
def test_segments_refuses_a_text_without_a_pair(tmp_path, content):
    with pytest.raises(CorpusError, match=r"a\.txt: "):
        segments(write(tmp_path, "a.txt", content)).records()


def test_segments_of_the_sample_are_clean():
    counts = Counter()
    sample = list(segments(count=None).read(counts))
    assert counts["articles"] == 101
    assert counts["paragraphs kept"] == 4566
    assert len(sample) == counts["segments"] > 2200
    assert segments().name == "wikipedia-sample"
    texts = [segment.first for segment in sample] + [segment.second for segment in sample]
    for residue in ("''", "{{", "}}", "[[", "]]", "|", "<", "( ", " ,", "(;", "&nbsp;", "  "):
        assert not any(residue in text for text in texts), residue
    assert not any(text[0] in "*#:;=" for text in texts)
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    assert digest.startswith("343eb0c94d956135"), (
        "the committed runs were made with other paragraphs"
    )
