import bz2
import gzip
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from toy_corpora import write

from helpers.data import plain_text
from helpers.data.wikipedia import Article, articles, how_read, sample_path, segments
from helpers.data.wikitext import paragraphs, plain, tidy, why_not_prose
from helpers.errors import CorpusError

PROSE = "The {} paragraph has more than ten words, as every usable one must."
XMLNS = "http://www.mediawiki.org/xml/export-0.10/"


def page(title, text, ns="0", extra=""):
    return (
        f"<page><title>{title}</title><ns>{ns}</ns>{extra}"
        f"<revision><id>1</id><text>{text}</text></revision></page>"
    )


def dump(*found, before=""):
    return f'<mediawiki xmlns="{XMLNS}">{before}{"".join(found)}</mediawiki>'


def prose(*names):
    return "\n\n".join(PROSE.format(name) for name in names)


# Markup


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("'''Bold''' and ''italic'' and '''''both'''''", "Bold and italic and both"),
        ("a [[link]], a [[target|label]], [[pipe (trick)|]]", "a link, a label, pipe"),
        ("x{{cite web|a={{b|c}}|d}} y", "x y"),
        ("x<ref name='a'>[[f]] {{g}}</ref> y<ref name='a' /> z", "x y z"),
        ("x<!-- a <ref> b --> y", "x y"),
        ("[[File:a.jpg|thumb|left|Woodcut from a [[book]].]]x", "x"),
        ("x [[Category:Birds]][[fr:Oiseau]] [[:Category:Birds]]", "x Category:Birds"),
        ("[http://a.org the site], [https://b.org]", "the site,"),
        ("Ayn Rand ({{IPAc-en|r}}; {{lang-ru|Алиса}}; born 1905)", "Ayn Rand (Алиса; born 1905)"),
        ("Aristotle ( ; 384 BC) wrote {{clarify}}, then ( ) .", "Aristotle (384 BC) wrote, then."),
        ("{{convert|5|mi|km}} to {{convert|2|to|3|e6acre|km2}}", "5 miles to 2 to 3 million acres"),
        ("{{as of|2010|lc=y}}, {{frac|3|2|4}}, {{lang|fr|mot}}", "as of 2010, 3 2/4, mot"),
        ("a&nbsp;b &ndash; c<br/>d", "a b – c d"),
        ("H<sub>2</sub>O, 10<sup>-9</sup>", "H2O, 10⁻⁹"),
        ("the dog''''s tail __NOTOC__", "the dog's tail"),
        ("{|\n! a\n|-\n| b || {{c}}\n|}\nx", "x"),
    ],
)
def test_markup_becomes_what_a_reader_sees(markup, text):
    assert tidy(plain(markup)) == text


def test_brackets_without_partner_drop_one_paragraph_only():
    text = prose("first") + "\n\n" + PROSE.format("{{broken") + "\n\n" + prose("last")
    assert list(paragraphs(text)) == [PROSE.format("first"), PROSE.format("last")]
    text = prose("first") + "\n\n" + PROSE.format("[[broken") + "\n\n" + prose("last") + "]]"
    assert list(paragraphs(text)) == [PROSE.format("first")]


def test_lists_headings_and_reference_sections_are_left_out():
    text = (
        ":''For other uses see elsewhere, in a hatnote of more than ten words here.''\n"
        f"{PROSE.format('first')}\nIts second line.\n"
        "* An item of a list with more than ten words in its only sentence.\n"
        f"== See also ==\n{PROSE.format('skipped')}\n=== Deeper ===\n{PROSE.format('skipped')}\n"
        f"== Life ==\n{PROSE.format('last')}"
    )
    counts = Counter()
    found = list(paragraphs(text, counts=counts))
    assert found == [PROSE.format("first") + " Its second line.", PROSE.format("last")]
    assert counts["lines dropped: list or table"] == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PROSE, None),
        ('"' + PROSE + '"', None),
        ("Nine words are not quite enough for one paragraph.", "fewer than 10 words"),
        (PROSE[:-1], "no end of sentence"),
        ("and " + PROSE, "no start of sentence"),
        (PROSE.replace("more", "|"), "markup left"),
        ("A 1 2 3 4 5 6 7 8 9 10 11 12 13 14.", "mostly not letters"),
        ("東京は日本の首都であり、世界で最も人口の多い都市の一つです。", None),
    ],
)
def test_prose_filter(text, reason):
    assert why_not_prose(text) == reason


@pytest.mark.parametrize(
    "bomb",
    ["{{", "[[", "}}", "<ref>", "<!--", "<br ", "; ", "( ;", "[http://a ", "''", "{|\n", "=="],
)
def test_cleaning_time_is_linear(bomb):
    """A quadratic pass over 60,000 repeats would take minutes."""
    assert list(paragraphs("Start " + bomb * 60_000 + " end.")) == []


# Dumps


def test_dump_yields_articles_without_redirects_and_other_namespaces(tmp_path):
    xml = dump(
        page("Kept", prose("first", "second")),
        page("Moved", "#REDIRECT [[Kept]]"),
        page("Tagged", prose("a", "b"), extra='<redirect title="Kept" />'),
        page("Talk:Kept", prose("a", "b"), ns="1"),
    )
    expected = [Article("Kept", (PROSE.format("first"), PROSE.format("second")))]
    for name, content in [
        ("a.xml", xml.encode()),
        ("a.xml.bz2", bz2.compress(xml.encode())),
        ("a.xml.gz", gzip.compress(xml.encode())),
        ("a.xml-p1p2.bz2", bz2.compress(xml[:300].encode()) + bz2.compress(xml[300:].encode())),
        ("a", b"\xef\xbb\xbf" + xml.replace("><", ">\r\n<").encode()),
    ]:
        counts = Counter()
        assert list(articles(write(tmp_path, name, content), counts=counts)) == expected, name
        assert counts["articles"] == 1
        assert counts["pages skipped: redirect or not an article"] == 3


def test_file_links_of_another_language_are_known_from_the_dump(tmp_path):
    site = '<siteinfo><namespaces><namespace key="6">Datei</namespace></namespaces></siteinfo>'
    text = "[[Datei:Turm.jpg|mini|Ein Turm.]]" + prose("only")
    path = write(tmp_path, "de.xml", dump(page("Turm", text), before=site))
    assert [a.paragraphs for a in articles(path)] == [(PROSE.format("only"),)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html></html>", "the XML is <html>; expected <mediawiki>"),
        (b"<mediawiki>\n<page>\n</mediawiki>", r"a\.xml:3: malformed XML \(mismatched tag"),
        (bz2.compress(b"<mediawiki>" + bytes(range(32, 60)) * 99)[:-20], "is the file whole"),
        (b"%PDF-1.7\n\xff", "is a PDF; save it as plain text"),
        (b"PK\x03\x04\x14", "is a Word, OpenDocument or e-book file"),
    ],
)
def test_bad_dumps_are_refused_with_file_and_line(tmp_path, content, message):
    with pytest.raises(CorpusError, match=message):
        list(articles(write(tmp_path, "a.xml", content)))


@pytest.mark.parametrize("name", ["nowhere.txt", "n" * 5000])
def test_bad_paths(name, tmp_path):
    problem = r"(does not exist|is not a regular file|cannot be reached .*); check the path"
    with pytest.raises(CorpusError, match=problem):
        segments(tmp_path / name)


# Plain text


def test_plain_text_keeps_every_line(tmp_path):
    content = "\ufeffFirst  paragraph ( ; b ) .\r\n...\r\n\r\n \t\r\nשלום\n東京\n🙂\u2028x\n"
    path = write(tmp_path, "notes.txt", content)
    assert [a.paragraphs for a in articles(path)] == [
        ("First paragraph ( ; b ) .", "..."),
        ("שלום", "東京", "🙂 x"),
    ]


@pytest.mark.parametrize("unseen", ["\u200b", "\u200d \ufeff", "\x07", "\u0301", " \u2060\t"])
def test_a_line_of_invisible_characters_is_dropped_and_ends_no_document(unseen, tmp_path):
    counts = Counter()
    path = write(tmp_path, "notes.txt", f"one\n{unseen}\ntwo\n \u3000\nthree\n")
    assert [a.paragraphs for a in articles(path, counts=counts)] == [("one", "two"), ("three",)]
    assert counts["paragraphs"] == 4 and counts["paragraphs kept"] == 3
    assert counts["paragraphs dropped: nothing to be seen"] == 1


TOLD = [
    f"Chapter {n} goes on, " + "as it says, and on " * (9 + n) + "to its end." for n in range(8)
]
WRAPPED = [textwrap.fill(paragraph, 66 + n) for n, paragraph in enumerate(TOLD)]
VERSE = ["\n".join(f"And line {n} of the verse that I write has {n} ends" for n in range(9))] * 8
LETTER = "From: Ann <ann@example.org>\nSubject: The cat\n\nDear Bob,\n\n"


@pytest.mark.parametrize(
    ("content", "sizes", "layout"),
    [
        ("\n\n".join(WRAPPED).replace("\n", "\r\n"), [2, 2, 2, 2], plain_text.WRAPPED),
        ("I\n\n\n" + "\n\n".join([*WRAPPED[:2], "\nII\n", *WRAPPED[2:]]), [3, 7],
         plain_text.WRAPPED),
        ("\n\n".join(["# A", *WRAPPED[:3], "```", "x = 1\n\n\ny = 2", "```", "| a | b |", "## B",
                      *WRAPPED[3:]]), [3, 5], plain_text.WRAPPED),
        (LETTER + "\n\n".join(["> " + WRAPPED[0], *WRAPPED[1:3], "-- \nAnn"]), [2] * 3,
         plain_text.WRAPPED),
        ("\n\n".join(["My day", *TOLD]), [2, 2, 2, 2, 1], plain_text.APART),  # of a word processor
        ("\n".join(TOLD), [2, 2, 2, 2], plain_text.LINES),
        ("\n".join(TOLD[:4]) + "\n\n" + TOLD[4], [4, 1], plain_text.LINES),
        ("\n\n".join(VERSE), [9] * 8, plain_text.LINES),
        ("A single line of text.", [1], plain_text.LINES),
    ],
)  # fmt: skip
def test_text_as_people_have_it(content, sizes, layout, tmp_path):
    path = write(tmp_path, "my.txt", content)
    counts, told = Counter(), " ".join(" ".join(content.replace("> ", "").split()).split())
    found = list(articles(path, counts=counts))
    assert [len(article.paragraphs) for article in found] == sizes
    assert how_read(path).startswith(f"my.txt: {layout}")
    assert ("one document: blocks of 2" in how_read(path)) == (set(sizes) <= {1, 2})
    assert all(" ".join(own.split()) in told for one in found for own in one.paragraphs)
    assert found[-1].title == f"my.txt {len(sizes)}"


def test_a_folder_of_text_files_is_a_corpus(tmp_path):
    with pytest.raises(CorpusError, match=r"holds no file \.txt or \.md"):
        segments(tmp_path)
    (tmp_path / "b").mkdir()
    write(tmp_path / "b", "one.md", "\n\n".join(["# One", *WRAPPED]))
    write(tmp_path, "two.txt", "\n".join(TOLD[:2]))
    write(tmp_path, "no.csv", "a,b")
    found = [(article.title, len(article.paragraphs)) for article in articles(tmp_path)]
    assert found == [("b/one.md 1", 8), ("two.txt 2", 2)]
    before = segments(tmp_path).fingerprint
    assert how_read(tmp_path).count("a blank line ") == 2
    write(tmp_path, "two.txt", "\n".join(TOLD[1:]))
    assert segments(tmp_path).fingerprint != before


# Segments


@pytest.fixture
def numbered(tmp_path):
    """Ten documents of five paragraphs: two segments and one left-over paragraph each."""
    documents = ["\n".join(f"d{d} p{p}" for p in range(5)) for d in range(10)]
    return write(tmp_path, "My Corpus.v2.txt", "\n\n".join(documents))


def test_segments_are_consecutive_pairs_that_do_not_overlap(numbered):
    counts = Counter()
    corpus = segments(numbered, count=None)
    found = [(s.first, s.second) for s in corpus.read(counts)]
    assert found[:3] == [("d0 p0", "d0 p1"), ("d0 p2", "d0 p3"), ("d1 p0", "d1 p1")]
    assert len(found) == counts["segments"] == 20 and corpus.name == "my-corpus"
    assert counts["paragraphs without a partner"] == 10


def test_sampling_is_seeded_in_corpus_order_and_decides_the_fingerprint(numbered):
    everything = segments(numbered, count=None).records()
    counts = Counter()
    chosen = list(segments(numbered, count=7, seed=1).read(counts))
    assert chosen == segments(numbered, count=7, seed=1).records()
    assert chosen != segments(numbered, count=7, seed=2).records()
    places = [everything.index(s) for s in chosen]
    assert places == sorted(set(places))
    assert counts["segments not sampled"] == 13
    assert segments(numbered, count=50).records() == everything
    fingerprints = {segments(numbered, count=n, seed=n % 3).fingerprint for n in (5, 6, 5, 8)}
    numbered.write_text("other")
    assert len(fingerprints | {segments(numbered, count=5, seed=2).fingerprint}) == 4


@pytest.mark.parametrize("content", ["", "one\n\ntwo\n", dump(page("T", "short"))])
def test_no_segment_is_an_error_that_says_what_is_expected(tmp_path, content):
    path = write(tmp_path, "a.txt", content)
    with pytest.raises(CorpusError, match=r"a\.txt: no segment .*blank line between documents"):
        segments(path, count=5).records()


def test_sample_dump_gives_clean_segments():
    counts = Counter()
    found = list(segments(count=None).read(counts))
    assert counts["articles"] == 106
    assert 4400 < counts["paragraphs kept"] < 4900
    assert len(found) == counts["segments"] > 2200
    assert Path(sample_path()).name.startswith("enwiki") and segments().name == "wikipedia-sample"
    text = "\n".join(paragraph for s in found for paragraph in (s.first, s.second))
    for residue in ("''", "{{", "}}", "[[", "]]", "|", "<", "( ", " ,", "(;", "&nbsp;", "  "):
        assert residue not in text, residue
    assert not any(paragraph[0] in "*#:;=" for paragraph in text.split("\n"))
