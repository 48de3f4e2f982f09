"""Files of other corpora are refused by the name of their format, before anything is parsed."""

import pytest
from toy_corpora import write

from helpers.data.text_files import lines, refuse_other_formats
from helpers.data.wikipedia import articles
from helpers.errors import CorpusError

ROW = "1\tAnn\t_\tPROPN\t_\t_\t0\troot\t_\t_\n"
PROSE = "My aunt read the report, which was short."


@pytest.mark.parametrize(
    ("purpose", "content", "format"),
    [
        ("coreference", '{"id": "d0", "mention_clusters": [[[0, 0, 1]]]}\n', "JSON"),
        ("coreference", "ID\tText\tPronoun\tPronoun-offset\n", "GAP"),
        ("coreference", f"# global.columns = ID FORM\n{ROW}", "CoNLL-U Plus"),
        ("coreference", "\n<?xml version='1.0'?>\n<words/>\n", "XML"),
        ("treebank", f"# global.columns = ID FORM PARSEME:MWE\n{ROW}", "CoNLL-U Plus"),
        ("treebank", "#begin document (nw/0); part 000\nnw/0 0 0 Ann NNP\n", "CoNLL-2012"),
        ("treebank", "\n( (S (NP (NNP Ann)) (VP (VBD left)) (. .)) )\n", "phrase structure"),
        ("treebank", "(TOP (S (NP (NNP Ann))))\n", "phrase structure"),
        ("treebank", '[\n{"words": []}\n]\n', "JSON"),
        ("text", f'{{"id": 0, "text": "{PROSE}"}}\n' * 2, "JSON"),
        ("text", f'id,text,label\n0,"{PROSE}",1\n', "a table"),
        ("text", f'"id";"text"\n0;"{PROSE}"\n', "a table"),
        ("text", f"{PROSE}\t1\n{PROSE}\t0\n", "a table"),
        ("text", f"# text = Ann\n{ROW}{ROW}", "a table"),
        ("text", f"<!DOCTYPE html>\n<html><p>{PROSE}</p></html>\n", "XML or HTML"),
        ("text", "<mediawiki>\n<page/></mediawiki>\n", "a MediaWiki dump"),
        ("text", "654:0:Bridge\n654:1:Road\n", "the index of a dump"),
    ],
)
def test_refuse_other_formats_by_their_beginning(purpose, content, format, tmp_path):
    path = write(tmp_path, "x.txt", content)
    with pytest.raises(CorpusError, match=f"looks like {format}") as error:
        refuse_other_formats(path, purpose)
    assert str(error.value).startswith(f"{path}:1: ")


@pytest.mark.parametrize(
    "content",
    [
        "Yes, no, perhaps\nbread, water and salt\n",
        "One,two\nthree\n",
        "10:30: the train\n11:40: the bus\n",
        "00:12:34 Good evening.\n00:12:36 Good evening.\n",
        "# Title\n# Title again\nAnn left.\n",
        "(She left.)\n[He stayed.]\n",
        "\tIndented.\n\tIndented.\n",
    ],
)
def test_articles_read_text_that_looks_a_little_like_data(tmp_path, content):
    path = write(tmp_path, "a.txt", content)
    paragraphs = [text for article in articles(path) for text in article.paragraphs]
    assert paragraphs == [" ".join(line.split()) for line in content.splitlines()]


@pytest.mark.parametrize("magic", [b"PK\x03\x04", b"7z\xbc\xaf", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"])
def test_lines_refuse_an_archive_that_is_not_read(tmp_path, magic):
    path = write(tmp_path, "vectors.txt", magic + b"rest")
    with pytest.raises(CorpusError, match=r"vectors.txt: is an archive"):
        list(lines(path))
