"""Text: from lines and articles to paragraphs and segments."""

import bz2
import hashlib
from collections import Counter

import pytest
from toy_corpora import write

from helpers.data.wikipedia import SAMPLE, Article, articles, note_text, segments
from helpers.errors import CorpusError

PROSE = "The {} paragraph has more than ten words, as every usable one must."


def test_texts_without_a_segment_are_refused(tmp_path):
    with pytest.raises(CorpusError, match="does not exist or is not a regular file; check the"):
        segments(tmp_path / "nowhere.txt")
    with pytest.raises(CorpusError, match=r"no \.txt or \.md"):
        segments(tmp_path)
    with pytest.raises(CorpusError, match=r"a\.txt:2: not UTF-8 text; save it as plain text"):
        list(articles(write(tmp_path, "a.txt", b"%PDF-1.7\n\xff")))
    for content in ("", "one\n"):
        with pytest.raises(CorpusError, match=r"a\.txt: "):
            segments(write(tmp_path, "a.txt", content)).records()


@pytest.mark.parametrize("separator", ["\n", "\r\n\r\n", "\n \t\n\n", "\n\u200b\n"])
def test_articles_of_plain_text_keep_every_visible_paragraph(separator, tmp_path):
    lines = ["First\u200b  paragraph ( ; b ) .", "...", "שלום", "東京", "🙂\u2028x"]
    path = write(tmp_path, "notes.txt", "\ufeff\n" + separator.join(lines) + "\n\n")
    counts = Counter()
    blocks = list(articles(path, counts=counts))
    assert [block.title for block in blocks] == ["notes.txt 1", "notes.txt 2", "notes.txt 3"]
    assert [text for block in blocks for text in block.paragraphs] == [
        *("First paragraph ( ; b ) .", "...", "שלום", "東京", "🙂 x"),
    ]
    assert counts == {"paragraphs kept": 5, "articles": 3}


def test_articles_of_plain_text_join_lines_up_to_a_blank_one(tmp_path):
    content = "The first\n  paragraph.\n\u200d \ufeff\nThe second.\n\n\nA\r\nb\n"
    first, second = articles(write(tmp_path, "my.txt", content))
    assert first.paragraphs == ("The first paragraph.", "The second.")
    assert second.paragraphs == ("A b",)


@pytest.mark.parametrize(("n_paragraphs", "size"), [(1, 2), (39, 2), (40, 4), (95, 8), (1000, 10)])
def test_articles_of_a_single_file_are_blocks_of_a_tenth(n_paragraphs, size, tmp_path):
    path = write(tmp_path, "my.txt", "\n".join(f"line {n}" for n in range(n_paragraphs)))
    lengths = [len(block.paragraphs) for block in articles(path)]
    assert sum(lengths) == n_paragraphs
    assert set(lengths[:-1]) <= {size} and lengths[-1] <= size


def test_articles_of_a_folder_are_its_text_files(tmp_path):
    (tmp_path / "b").mkdir()
    write(tmp_path / "b", "one.md", "\n\n".join(["# One", *"abcdefg"]))
    write(tmp_path, "two.txt", "one\ntwo")
    write(tmp_path, "packed.txt.bz2", bz2.compress(b"one\ntwo\nthree"))
    write(tmp_path, "no.csv", "a,b")
    sizes = {article.title: len(article.paragraphs) for article in articles(tmp_path)}
    assert sizes == {"b/one.md": 8, "packed.txt.bz2": 3, "two.txt": 2}


def test_articles_of_wikiextractor_are_prose_without_titles_and_markup(tmp_path):
    for folder, number in (("AA", 0), ("AB", 1)):
        (tmp_path / folder).mkdir()
        texts = "\n".join(map(PROSE.format, ["R&amp;amp;D", "&lt;br&gt;", "third"]))
        mark = f'<doc id="1" url="https://a.org/" title="Bridge &amp; {number}">'
        content = f"{mark}\nBridge\n\n{texts}\nHistory.\n\n</doc>\n"
        write(tmp_path / folder, "wiki_00.bz2", bz2.compress(content.encode()))
    counts = Counter()
    first, second = articles(tmp_path, counts=counts)
    assert (first.title, second.title) == ("Bridge & 0", "Bridge & 1")
    assert first.paragraphs == (PROSE.format("R&amp;D"), PROSE.format("third"))
    assert counts["paragraphs dropped: title, list or markup"] == 6


def test_articles_of_wikitext_have_no_headings_and_marks(tmp_path):
    wikitext = (
        f" \n = Bridge 0 = \n \n {PROSE} \n = = History = = \n \n"
        " The <unk> bridge was built by the town in 19 @-@ 20 for 1 @,@ 200 marks . \n"
        " It was built by the town in 19 @-@ 20 , for 1 @,@ 200 marks , and sold at once . \n"
        f" = Bridge 1 = \n {PROSE} \n {PROSE} \n"
    )
    first, second = articles(write(tmp_path, "wiki.train.tokens", wikitext))
    assert (first.title, second.title) == ("Bridge 0", "Bridge 1")
    built = "It was built by the town in 19-20, for 1,200 marks, and sold at once."
    assert (first.paragraphs, len(second.paragraphs)) == ((PROSE, built), 2)


@pytest.fixture
def numbered(tmp_path):
    """Write ten documents of five paragraphs: two segments and one left-over paragraph each."""
    folder = tmp_path / "My Corpus.v2"
    folder.mkdir()
    for number in range(10):
        lines = [f"d{number} p{paragraph}" for paragraph in range(5)]
        write(folder, f"{number}.txt", "\n".join(lines))
    return folder


def test_segments_are_pairs_of_paragraphs_of_which_some_are_sampled(numbered):
    counts = Counter()
    corpus = segments(numbered, count=None)
    population = list(corpus.read(counts))
    pairs = [(segment.first, segment.second) for segment in population]
    assert pairs[:3] == [("d0 p0", "d0 p1"), ("d0 p2", "d0 p3"), ("d1 p0", "d1 p1")]
    assert len(pairs) == counts["segments"] == 20 and corpus.name == "My Corpus"
    assert counts["paragraphs without a partner"] == 10
    sample = list(segments(numbered, count=7, seed=1).read(counts))
    assert counts["segments not sampled"] == 33  # both readings are counted
    assert sample == segments(numbered, count=7, seed=1).records()
    assert sample != segments(numbered, count=7, seed=2).records()
    indices = [population.index(segment) for segment in sample]
    assert indices == sorted(set(indices))
    assert segments(numbered, count=50).records() == population
    assert corpus.part(3).records() == [population[0], population[9], population[19]]


def test_segments_fingerprint_depends_on_count_seed_and_file(numbered):
    choices = [(5, 2), (5, 2), (6, 2), (5, 0), (None, 2)]
    fingerprints = [segments(numbered, count=n, seed=seed).fingerprint for n, seed in choices]
    write(numbered, "3.txt", "edited")
    fingerprints.append(segments(numbered, count=5, seed=2).fingerprint)
    assert fingerprints[0] == fingerprints[1] and len(set(fingerprints)) == 5


def test_segments_of_the_sample_are_those_of_the_committed_runs():
    counts = Counter()
    sample = list(segments(count=None).read(counts))
    assert (counts["articles"], counts["paragraphs kept"]) == (101, 4566)
    assert segments().name == "wikipedia-sample"
    texts = [segment.first for segment in sample] + [segment.second for segment in sample]
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    assert digest.startswith("343eb0c94d956135")


@pytest.mark.parametrize(
    ("prose", "paragraph", "n_noted"),
    [
        *(("A cat, 3 < 4 and 5 > 4.", text, 1) for text in ("<p>A cat.</p>", "A [[cat]].")),
        *(("A cat.", text, 1) for text in ("| a | cat |", "## Cats", r"\emph{A}", "A&amp;")),
        *(("A cat.", text, 4) for text in ("[12:01] A cat.", ">seq_1", '"A cat.", 1', "F(x) {")),
        *(('"Never," said Ann, "at 10:30."', text, 4) for text in ("2024-01-05 cat", "Key = [1]")),
        ("A cat.", "on the wire, and said that", 4),
    ],
)
def test_note_text_counts_paragraphs_that_are_no_prose(prose, paragraph, n_noted):
    paragraphs = [prose] * (10 - n_noted) + [paragraph] * n_noted
    (note,) = note_text([Article("a", tuple(paragraphs))])
    assert note.startswith(f"{n_noted} of the first 10 paragraphs")


def test_note_text_is_empty_for_prose():
    assert note_text(articles(SAMPLE)) == note_text([]) == []
