"""Wikipedia and plain text: from markup and lines to paragraphs and segments."""

import bz2
import gzip
import hashlib
from collections import Counter
from pathlib import Path

import pytest
from toy_corpora import write

from helpers.data.wikipedia import Article, articles, sample_path, segments
from helpers.data.wikitext import HIDDEN_PREFIXES, paragraphs, plain, tidy, why_not_prose
from helpers.errors import CorpusError

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


def test_articles_of_a_dump_are_no_redirects_and_no_talk_pages(tmp_path):
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
        assert list(articles(write(tmp_path, name, content), counts=counts)) == expected, name
        assert counts["articles"] == 1
        assert counts["pages skipped: redirect or not an article"] == 2


def test_articles_hides_file_links_in_the_language_of_the_dump(tmp_path):
    site = '<siteinfo><namespaces><namespace key="6">Datei</namespace></namespaces></siteinfo>'
    text = "[[Datei:Turm.jpg|mini|Ein Turm.]]" + prose("only")
    path = write(tmp_path, "de.xml", dump(page("Turm", text), before=site))
    assert [a.paragraphs for a in articles(path)] == [(PROSE.format("only"),)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<mediawiki>\n<page>\n</mediawiki>", r"a\.xml:3: malformed XML \(mismatched tag"),
        (bz2.compress(b"<mediawiki>" + bytes(range(32, 60)) * 99)[:-20], "complete copy"),
    ],
)
def test_articles_refuses_bad_dumps_with_file_and_line(tmp_path, content, message):
    with pytest.raises(CorpusError, match=message):
        list(articles(write(tmp_path, "a.xml", content)))


def test_segments_refuses_bad_paths(tmp_path):
    with pytest.raises(CorpusError, match="does not exist or is not a regular file; check the"):
        segments(tmp_path / "nowhere.txt")


def test_articles_of_plain_text_refuse_another_encoding(tmp_path):
    with pytest.raises(CorpusError, match=r"a\.txt:2: not UTF-8 text; save it as plain text"):
        list(articles(write(tmp_path, "a.txt", b"%PDF-1.7\n\xff")))


# Plain text


LINES = ["First  paragraph ( ; b ) .", "...", "שלום", "東京", "🙂\u2028x"]


@pytest.mark.parametrize(
    ("separator", "paragraphs"),
    [
        ("\n", ["First paragraph ( ; b ) .", "...", "שלום", "東京", "🙂 x"]),
        ("\r\n\r\n", ["First paragraph ( ; b ) .", "...", "שלום", "東京", "🙂 x"]),
        ("\n \t\n\n", ["First paragraph ( ; b ) .", "...", "שלום", "東京", "🙂 x"]),
    ],
    ids=["lines", "blank lines", "several blank lines"],
)
def test_articles_of_plain_text_keep_every_paragraph(separator, paragraphs, tmp_path):
    path = write(tmp_path, "notes.txt", "\ufeff\n" + separator.join(LINES) + "\n\n")
    blocks = list(articles(path))
    assert [block.title for block in blocks] == ["notes.txt 1", "notes.txt 2", "notes.txt 3"]
    assert [text for block in blocks for text in block.paragraphs] == paragraphs


def test_articles_of_plain_text_join_lines_up_to_a_blank_one(tmp_path):
    path = write(tmp_path, "my.txt", "The first\n  paragraph.\n\nThe second.\n\n\nA\r\nthird\n")
    counts = Counter()
    first, second = articles(path, counts=counts)
    assert first.paragraphs == ("The first paragraph.", "The second.")
    assert second.paragraphs == ("A third",)
    assert counts == {"paragraphs kept": 3, "articles": 2}


@pytest.mark.parametrize("unseen", ["\u200b", "\u200d \ufeff", "\x07", "\u0301", " \u2060\t"])
def test_articles_of_plain_text_take_invisible_lines_for_blank_ones(unseen, tmp_path):
    path = write(tmp_path, "notes.txt", f"one\ntwo\n{unseen}\nthree\n")
    assert [a.paragraphs for a in articles(path)] == [("one two", "three")]


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
    first = segments(numbered, count=5, seed=2).fingerprint
    assert first == segments(numbered, count=5, seed=2).fingerprint
    changed = {
        segments(numbered, count=6, seed=2).fingerprint,
        segments(numbered, count=5, seed=0).fingerprint,
        segments(numbered, count=None, seed=2).fingerprint,
    }
    write(numbered, "3.txt", "edited")
    changed.add(segments(numbered, count=5, seed=2).fingerprint)
    assert len(changed) == 4 and first not in changed


@pytest.mark.parametrize("content", ["", "one\n", "one\ntwo\n\n\n.\n"[:4]])
def test_segments_refuses_a_text_without_one(tmp_path, content):
    path = write(tmp_path, "a.txt", content.replace("\ntwo", ""))
    with pytest.raises(CorpusError, match=r"a\.txt: .*blank line between paragraphs"):
        segments(path, count=5).records()


def test_segments_refuses_xml_that_is_no_dump(tmp_path):
    path = write(tmp_path, "a.xml", "<html><p>One.</p><p>Two.</p></html>")
    with pytest.raises(CorpusError, match=r"a\.xml: .*expected a MediaWiki dump"):
        segments(path, count=5).records()


def test_segments_of_the_sample_dump_are_clean():
    counts = Counter()
    sample = list(segments(count=None).read(counts))
    assert counts["articles"] == 106
    assert 4400 < counts["paragraphs kept"] < 4900
    assert len(sample) == counts["segments"] > 2200
    assert Path(sample_path()).name.startswith("enwiki") and segments().name == "wikipedia-sample"
    texts = [segment.first for segment in sample] + [segment.second for segment in sample]
    for residue in ("''", "{{", "}}", "[[", "]]", "|", "<", "( ", " ,", "(;", "&nbsp;", "  "):
        assert not any(residue in text for text in texts), residue
    assert not any(text[0] in "*#:;=" for text in texts)
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    assert digest.startswith("343eb0c94d956135"), (
        "the committed runs were made with other paragraphs"
    )
