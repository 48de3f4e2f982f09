"""Files of WikiExtractor and WikiText are read as articles."""

import bz2
from collections import Counter

import pytest
from toy_corpora import write

from helpers.data.wikipedia import articles, segments

PROSE = "The {} paragraph has more than ten words, as every usable one must."


def extracted(number, *names):
    """Write an article as WikiExtractor does: its title, a paragraph or heading per line."""
    text = "\n".join(PROSE.format(name) for name in names)
    return (
        f'<doc id="{number}" url="https://a.org/?curid={number}" title="Bridge &amp; {number}">\n'
        f"Bridge &amp; {number}\n\n{text}\nHistory.\n\n</doc>\n"
    )


EXTRACTED = extracted(0, "first", "second", "third") + extracted(1, "fourth", "fifth")
WIKITEXT = (
    " \n = Bridge 0 = \n \n {} \n {} \n = = History = = \n \n"
    " The <unk> bridge was built by the town in 19 @-@ 20 for 1 @,@ 200 marks . \n"
    " It was built by the town in 19 @-@ 20 , for 1 @,@ 200 marks , and sold at once . \n"
    " = Bridge 1 = \n {} \n {} \n"
).format(*(PROSE.format(name) for name in ("first", "second", "third", "fourth")))


def test_articles_of_wikiextractor_have_no_marks_and_titles(tmp_path):
    counts = Counter()
    first, second = articles(write(tmp_path, "wiki_00", EXTRACTED), counts=counts)
    assert (first.title, second.title) == ("Bridge & 0", "Bridge & 1")
    assert first.paragraphs == tuple(PROSE.format(n) for n in ("first", "second", "third"))
    assert second.paragraphs == tuple(PROSE.format(n) for n in ("fourth", "fifth"))
    assert counts["paragraphs dropped: fewer than 10 words"] == 4


def test_segments_of_wikiextractor_do_not_cross_articles(tmp_path):
    pairs = segments(write(tmp_path, "wiki_00", EXTRACTED)).records()
    assert [(pair.first.split()[1], pair.second.split()[1], pair.title) for pair in pairs] == [
        ("first", "second", "Bridge & 0"),
        ("fourth", "fifth", "Bridge & 1"),
    ]


def test_articles_of_a_folder_of_wikiextractor(tmp_path):
    for folder, number in (("AA", 0), ("AB", 1)):
        (tmp_path / folder).mkdir()
        content = extracted(number, "first", "second").encode()
        write(tmp_path / folder, "wiki_00.bz2", bz2.compress(content))
    assert [article.title for article in articles(tmp_path)] == ["Bridge & 0", "Bridge & 1"]


def test_articles_of_wikitext_have_no_headings_and_marks(tmp_path):
    counts = Counter()
    first, second = articles(write(tmp_path, "wiki.train.tokens", WIKITEXT), counts=counts)
    assert (first.title, second.title) == ("Bridge 0", "Bridge 1")
    assert first.paragraphs == (
        PROSE.format("first"),
        PROSE.format("second"),
        "It was built by the town in 19-20, for 1,200 marks, and sold at once.",
    )
    assert len(second.paragraphs) == 2
    assert counts["paragraphs dropped: markup left"] == 1  # with <unk>


@pytest.mark.parametrize("start", ['<doc id="1">', '<doc id="1" url="x" title="">'])
def test_articles_without_a_title_have_their_first_line(tmp_path, start):
    content = f"{start}\nBridge\n\n{PROSE}\n{PROSE}\n</doc>\n"
    (article,) = articles(write(tmp_path, "wiki_00", content))
    assert article.title == "Bridge" and len(article.paragraphs) == 2
