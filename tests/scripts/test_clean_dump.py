"""From a MediaWiki dump to the files that ``--text`` reads."""

import bz2
import gzip
from collections import Counter

import pytest
from faults import at_most
from toy_corpora import write

from helpers.data.wikipedia import Article, articles
from helpers.errors import CorpusError
from scripts.clean_dump import HIDDEN_PREFIXES, dump_articles, main, paragraphs, plain, tidy

PROSE = "The {} paragraph has more than ten words, as every usable one must."
FIRST, LAST = PROSE.format("first"), PROSE.format("last")


def page(title, text, ns="0", extra=""):
    return (
        f"<page><title>{title}</title><ns>{ns}</ns>{extra}"
        f"<revision><id>1</id><text>{text}</text></revision></page>"
    )


def dump(*pages):
    site = '<siteinfo><namespaces><namespace key="6">Datei</namespace></namespaces></siteinfo>'
    space = "http://www.mediawiki.org/xml/export-0.10/"
    return f'<mediawiki xmlns="{space}">{site}{"".join(pages)}</mediawiki>'


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
        ("{{lang|fr|mot}} of {{small|two}}, {{convert|5|mi|km}}", "mot of two, <>"),
        ("a&nbsp;b &ndash; c<br/>d", "a b – c d"),
        ("H<sub>2</sub>O, 10<sup>-9</sup>", "H2O, 10^-9"),
        ("the dog''''s tail __NOTOC__", "the dog's tail"),
        ("{|\n! a\n|-\n| b || {{c}}\n|}\nx", "x"),
    ],
)
def test_plain_and_tidy_give_the_text_of_markup(markup, text):
    assert tidy(plain(markup, HIDDEN_PREFIXES)) == text


def test_paragraphs_leaves_out_what_is_no_prose():
    text = (
        ":''For other uses see elsewhere, in a hatnote of more than ten words here.''\n"
        f"{FIRST}\nIts second line.\n"
        "* An item of a list with more than ten words in its only sentence.\n"
        f"\n{PROSE.format('{{broken')}\n\n{PROSE.format('[[broken')}\n"
        f"\n{PROSE.format('<math>x</math>')}\n\nThis paragraph has too few words.\n"
        f"== Life ==\n{LAST}"
    )
    counts = Counter()
    expected = [f"{FIRST} Its second line.", LAST]
    assert list(paragraphs(text, HIDDEN_PREFIXES, counts)) == expected
    assert counts == {"paragraphs kept": 2, "paragraphs dropped": 4}


@pytest.mark.parametrize(
    "bomb",
    ["{{", "[[", "}}", "<ref>", "<!--", "<br ", "; ", "( ;", "[http://a ", "''", "{|\n", "=="],
)
def test_paragraphs_takes_linear_time(bomb):
    """A quadratic pass over 60,000 repeats would take minutes."""
    with at_most(5):
        list(paragraphs("Start " + bomb * 60_000 + " end.", HIDDEN_PREFIXES, Counter()))


def test_dump_articles_are_no_redirects_and_no_talk_pages(tmp_path):
    """Links to files are hidden in the language of the dump, too."""
    xml = dump(
        page("Kept", f"[[Datei:Turm.jpg|mini|Ein Turm.]]{FIRST}\n\n{LAST}"),
        page("Moved", "#REDIRECT [[Kept]]", extra='<redirect title="Kept" />'),
        page("Talk:Kept", f"{FIRST}\n\n{LAST}", ns="1"),
    ).encode()
    counts = Counter()
    kept_articles = list(dump_articles(write(tmp_path, "a.xml.gz", gzip.compress(xml)), counts))
    assert kept_articles == [Article("Kept", (FIRST, LAST))]
    assert counts["pages skipped: redirect or not an article"] == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<mediawiki>\n<page>\n</mediawiki>", r"a\.xml:3: "),
        (bz2.compress(b"<mediawiki>" + bytes(range(32, 60)) * 99)[:-20], r"a\.xml"),
        (b'<!DOCTYPE m [<!ENTITY a SYSTEM "file:///etc/passwd">]><m>&a;</m>', "document type"),
        (b'<!DOCTYPE m [<!ENTITY a "a"><!ENTITY b "&a;">]><m>&b;</m>', "document type"),
    ],
)
def test_dump_articles_refuses_bad_dumps_and_entities(tmp_path, content, message):
    with pytest.raises(CorpusError, match=message):
        list(dump_articles(write(tmp_path, "a.xml", content), Counter()))


def test_main_writes_a_folder_that_text_reads(tmp_path, monkeypatch):
    title = "Tom &amp; &quot;Jerry&quot;"
    xml = dump(page(title, PROSE.format("R&amp;amp;D")), page("Empty", "x"), page("Next", LAST))
    folder = tmp_path / "clean"
    path = write(tmp_path, "a.xml", xml)
    monkeypatch.setattr("sys.argv", ["clean_dump.py", str(path), str(folder)])
    assert main() == 0
    expected = [Article('Tom & "Jerry"', (PROSE.format("R&D"),)), Article("Next", (LAST,))]
    assert list(articles(folder)) == expected
    assert main() == 2  # a folder that is there is not replaced
