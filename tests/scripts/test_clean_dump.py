"""From a MediaWiki dump to the files that ``--text`` reads."""

import bz2
import gzip
from collections import Counter

import pytest
from toy_corpora import write

from helpers.data.wikipedia import Article, articles
from helpers.errors import CorpusError
from scripts import clean_dump
from scripts.clean_dump import (
    HIDDEN_PREFIXES,
    dump_articles,
    paragraphs,
    plain,
    tidy,
    why_not_prose,
)

PROSE = "The {} paragraph has more than ten words, as every usable one must."
XMLNS = "http://www.mediawiki.org/xml/export-0.10/"


def page(title, text, ns="0", extra=""):
    return (
        f"<page><title>{title}</title><ns>{ns}</ns>{extra}"
        f"<revision><id>1</id><text>{text}</text></revision></page>"
    )


def dump(*pages, before=""):
    return f'<mediawiki xmlns="{XMLNS}">{before}{"".join(pages)}</mediawiki>'


def prose(*names):
    return "\n\n".join(PROSE.format(name) for name in names)


# Markup


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("'''Bold''' and ''italic'' and '''''both'''''", "Bold and italic and both"),
        ("a [[link]], a [[target|label]]", "a link, a label"),
        ("x{{cite web|a={{b|c}}|d}} y", "x y"),
        ("x<ref name='a'>[[f]] {{g}}</ref> y<ref name='a' /> z", "x y z"),
        ("x<!-- a <ref> b --> y", "x y"),
        ("[[File:a.jpg|thumb|left|Woodcut from a [[book]].]]x", "x"),
        ("x [[Category:Birds]] [[:Category:Birds]]", "x Category:Birds"),
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
def test_plain_and_tidy_give_the_text_of_markup(markup, text):
    assert tidy(plain(markup, HIDDEN_PREFIXES)) == text


def test_paragraphs_drops_one_with_an_unpaired_bracket():
    text = prose("first") + "\n\n" + PROSE.format("{{broken") + "\n\n" + prose("last")
    assert list(paragraphs(text, HIDDEN_PREFIXES, Counter())) == [
        PROSE.format("first"),
        PROSE.format("last"),
    ]
    text = prose("first") + "\n\n" + PROSE.format("[[broken") + "\n\n" + prose("last")
    assert list(paragraphs(text, HIDDEN_PREFIXES, Counter())) == [
        PROSE.format("first"),
        PROSE.format("last"),
    ]


def test_paragraphs_leaves_out_lists_headings_and_references():
    text = (
        ":''For other uses see elsewhere, in a hatnote of more than ten words here.''\n"
        f"{PROSE.format('first')}\nIts second line.\n"
        "* An item of a list with more than ten words in its only sentence.\n"
        f"== See also ==\n{PROSE.format('skipped')}\n=== Deeper ===\n{PROSE.format('skipped')}\n"
        f"== Life ==\n{PROSE.format('last')}"
    )
    counts = Counter()
    expected = [PROSE.format("first") + " Its second line.", PROSE.format("last")]
    assert list(paragraphs(text, HIDDEN_PREFIXES, counts)) == expected
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
def test_why_not_prose_gives_the_reason(text, reason):
    assert why_not_prose(text) == reason


@pytest.mark.parametrize(
    "bomb",
    ["{{", "[[", "}}", "<ref>", "<!--", "<br ", "; ", "( ;", "[http://a ", "''", "{|\n", "=="],
)
def test_paragraphs_takes_linear_time(bomb):
    """A quadratic pass over 60,000 repeats would take minutes."""
    assert list(paragraphs("Start " + bomb * 60_000 + " end.", HIDDEN_PREFIXES, Counter())) == []


# Dumps


def test_dump_articles_are_no_redirects_and_no_talk_pages(tmp_path):
    xml = dump(
        page("Kept", prose("first", "second")),
        page("Moved", "#REDIRECT [[Kept]]", extra='<redirect title="Kept" />'),
        page("Talk:Kept", prose("a", "b"), ns="1"),
    )
    expected = [Article("Kept", (PROSE.format("first"), PROSE.format("second")))]
    for name, content in [
        ("a.xml", xml.encode()),
        ("a.xml.bz2", bz2.compress(xml.encode())),
        ("a.xml.gz", gzip.compress(xml.encode())),
        ("a.xml-p1p2.bz2", bz2.compress(xml[:300].encode()) + bz2.compress(xml[300:].encode())),
        ("b.xml", b"\xef\xbb\xbf" + xml.replace("><", ">\r\n<").encode()),
    ]:
        counts = Counter()
        assert list(dump_articles(write(tmp_path, name, content), counts)) == expected, name
        assert counts["articles"] == 1
        assert counts["pages skipped: redirect or not an article"] == 2


def test_dump_articles_hides_file_links_in_the_language_of_the_dump(tmp_path):
    site = '<siteinfo><namespaces><namespace key="6">Datei</namespace></namespaces></siteinfo>'
    text = "[[Datei:Turm.jpg|mini|Ein Turm.]]" + prose("only")
    path = write(tmp_path, "de.xml", dump(page("Turm", text), before=site))
    assert [a.paragraphs for a in dump_articles(path, Counter())] == [(PROSE.format("only"),)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<mediawiki>\n<page>\n</mediawiki>", r"a\.xml:3: malformed XML \(mismatched tag"),
        (bz2.compress(b"<mediawiki>" + bytes(range(32, 60)) * 99)[:-20], "complete copy"),
    ],
)
def test_dump_articles_refuses_bad_dumps_with_file_and_line(tmp_path, content, message):
    with pytest.raises(CorpusError, match=message):
        list(dump_articles(write(tmp_path, "a.xml", content), Counter()))


@pytest.mark.parametrize(
    "declared",
    ['<!ENTITY a SYSTEM "file:///etc/passwd">', '<!ENTITY a "aa"><!ENTITY b "&a;&a;">'],
)
def test_dump_articles_reads_neither_entities_nor_document_types(declared, tmp_path):
    xml = f"<?xml version='1.0'?><!DOCTYPE m [{declared}]><m>&a;</m>"
    with pytest.raises(CorpusError, match="declares a document type"):
        list(dump_articles(write(tmp_path, "a.xml", xml), Counter()))


def test_main_writes_a_folder_that_text_reads(tmp_path, monkeypatch):
    title = "Tom &amp; &quot;Jerry&quot;"
    path = write(
        tmp_path, "a.xml", dump(page(title, prose("R&amp;amp;D", "second")), page("Empty", "x"))
    )
    folder = tmp_path / "clean"
    monkeypatch.setattr("sys.argv", ["clean_dump.py", str(path), str(folder)])
    assert clean_dump.main() == 0
    texts = (PROSE.format("R&D"), PROSE.format("second"))
    assert list(articles(folder)) == [Article('Tom & "Jerry"', texts)]
    assert clean_dump.main() == 2  # files that are there are not replaced


def test_write_folder_begins_a_file_after_some_characters(tmp_path, monkeypatch):
    monkeypatch.setattr(clean_dump, "FILE_CHARACTERS", 50)
    written = [Article(f"Title {number}", (PROSE.format(number),)) for number in range(3)]
    clean_dump.write_folder(written, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wiki_00", "wiki_01", "wiki_02"]
    assert list(articles(tmp_path)) == written
