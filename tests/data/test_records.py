"""What is read off a record: the roles of its tokens, its article, its first words."""

import pytest

from helpers.data.records import Document, Mention, cluster_of, describe_documents, roles

BERT = {"cls": "[CLS]", "sep": "[SEP]"}


def test_every_position_has_one_role_and_only_full_stops_and_commas_are_punctuation():
    tokens = ["[CLS]", "a", ",", "b", ".", "[SEP]", "c", ".", "[SEP]"]
    found = roles(tokens, BERT)
    assert found.cls.tolist() == [token == "[CLS]" for token in tokens]
    assert found.sep.tolist() == [token == "[SEP]" for token in tokens]
    assert found.punctuation.tolist() == [token in {",", "."} for token in tokens]
    assert found.other.tolist() == [token in {"a", "b", "c"} for token in tokens]
    assert (sum(mask.astype(int) for mask in found.masks().values()) == 1).all()
    assert list(found.masks()) == ["cls", "sep", "punctuation", "other"]
    tokens = [".", ",", "Ġ.", "▁,", "...", ";", "!", "-", "##.", "Ġ", "▁"]
    assert roles(tokens, BERT).punctuation.tolist() == [True] * 4 + [False] * 7
    found = roles(["a", "</s>"], {"cls": None, "sep": "</s>"})
    assert found.cls is None
    assert found.sep.tolist() == [False, True]


def test_cut_keeps_what_is_wholly_inside():
    mentions = (
        Mention(0, 1, 1, 0),
        Mention(1, 2, 2, 1),
        Mention(2, 5, 1, 2),
        Mention(3, 4, 2, 3),
        Mention(4, 6, 3, 4),
        Mention(5, 6, 1, 5),
    )
    document = Document(tuple("abcdef"), ("NOUN",) * 6, mentions, "dev", "d")
    shorter, dropped = document.cut(4)
    assert (shorter.words, len(shorter.tags)) == (tuple("abcd"), 4)
    assert shorter.mentions == (Mention(0, 1, None, 0), Mention(1, 2, 2, 1), Mention(3, 4, 2, 3))
    assert dropped == 1  # 2-5 crosses; 4-6 and 5-6 lie beyond
    assert document.cut(6)[0].mentions[:4] == mentions[:4]


@pytest.mark.parametrize(
    ("record", "article"),
    [
        ({"title": "Paris, Texas"}, "Paris, Texas"),
        ({"source": "Paris, Texas, paragraph 12, sentence 3"}, "Paris, Texas"),
        ({"source": "a.conllu, document b-1, sentence b-1-0012"}, "a.conllu, document b-1"),
        ({"source": "wsj.txt, sentence 12"}, "wsj.txt, sentence 12 7"),
        ({}, " 7"),
    ],
)
def test_a_record_is_from_its_article_or_stands_for_itself(record, article):
    assert cluster_of(record, 7) == article


@pytest.mark.parametrize(
    ("sources", "stated"),
    [
        (["A, paragraph 1, sentence 1", "A, paragraph 2, sentence 1", "B, paragraph 1, sentence 1"],
         "2"),
        (["a.conllu, document d, sentence 1", "a.conllu, document d, sentence 2"], "1"),
        (["a.txt, sentence 1", "a.txt, sentence 2"], "not marked, so that"),
        (["a.conllu, document d, sentence 1", "b.txt, sentence 1"], "1, and 1 sentences without"),
    ],
)  # fmt: skip
def test_describe_documents_counts_documents_and_sentences_without_one(sources, stated):
    records = [{"source": source} for source in sources]
    assert describe_documents(records).startswith(stated)
    assert (describe_documents(records) == stated) == stated.isdigit()
