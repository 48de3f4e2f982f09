"""Files of other corpora are refused by the name of their format, before anything is parsed."""

import bz2

import pytest
from toy_corpora import write

from helpers.data.coreference import coreference_corpus
from helpers.data.treebank import treebank
from helpers.data.wikipedia import articles
from helpers.errors import CorpusError

ROW = "1\tAnn\t_\tPROPN\t_\t_\t0\troot\t_\t{}\n"
GAP = "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL\n"
PRECO = '{"id": "d0", "sentences": [["Ann", "left"]], "mention_clusters": [[[0, 0, 1]]]}\n'


@pytest.mark.parametrize(
    ("name", "content", "line", "format"),
    [
        ("preco.jsonl", PRECO, 1, "JSON"),
        ("gap-validation.tsv", f"{GAP}v-1\tShe left.\tShe\t0\tAnn\t9\tTRUE\n", 1, "GAP"),
        ("x.conllup", f"# global.columns = ID FORM\n{ROW.format('_')}", 1, "CoNLL-U Plus"),
        ("x.xml", "\n<?xml version='1.0'?>\n<words/>\n", 2, "XML"),
    ],
)  # fmt: skip
def test_coreference_corpus_refuses_other_formats_when_it_is_made(
    tmp_path, name, content, line, format
):
    path = write(tmp_path, name, content)
    with pytest.raises(CorpusError, match=format) as error:
        coreference_corpus(path)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert "expected CoNLL-2012" in str(error.value)


@pytest.mark.parametrize(
    ("content", "line", "format"),
    [
        (f"# global.columns = ID FORM PARSEME:MWE\n{ROW.format('_')}", 1, "CoNLL-U Plus"),
        ("#begin document (nw/0); part 000\nnw/0 0 0 Ann NNP\n", 1, "CoNLL-2012"),
        ("\n( (S (NP (NNP Ann)) (VP (VBD left)) (. .)) )\n", 2, "phrase structure"),
        ("(TOP (S (NP (NNP Ann))))\n", 1, "phrase structure"),
        ('[\n{"words": []}\n]\n', 1, "JSON"),
    ],
)
def test_treebank_refuses_other_formats_when_it_is_made(tmp_path, content, line, format):
    path = write(tmp_path, "x.txt", content)
    with pytest.raises(CorpusError, match=format) as error:
        treebank(path)
    assert str(error.value).startswith(f"{path}:{line}: ")


PROSE = "My aunt read the report, which was short."


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("a.jsonl.txt", f'{{"id": 0, "text": "{PROSE}"}}\n' * 2, "JSON"),
        ("a.csv.txt", f'id,text,label\n0,"{PROSE}",1\n', "a table"),
        ("a.csv.txt", f'"id";"text"\n0;"{PROSE}"\n', "a table"),
        ("a.tsv.txt", f"{PROSE}\t1\n{PROSE}\t0\n", "a table"),
        ("a.html.txt", f"<!DOCTYPE html>\n<html><p>{PROSE}</p></html>\n", "HTML"),
        ("dump.xml", "<mediawiki>\n<page/></mediawiki>\n", "MediaWiki dump"),
        ("multistream-index.txt.bz2", bz2.compress(b"654:0:Bridge\n654:1:Road\n"), "the index"),
    ],
)
def test_articles_refuse_text_that_is_no_prose(tmp_path, name, content, format):
    path = write(tmp_path, name, content)
    with pytest.raises(CorpusError, match=format) as error:
        list(articles(path))
    assert str(error.value).startswith(f"{path}:1: looks like ")
    write(tmp_path, "b.txt", f"{PROSE}\n\n{PROSE}\n")
    if name.endswith(".txt"):
        with pytest.raises(CorpusError, match=format):
            list(articles(tmp_path))


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
