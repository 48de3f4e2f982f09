"""Records: the roles of tokens, clusters of sentences, documents that are cut."""

import pytest
from tokenizers import pre_tokenizers

from helpers.data.records import (
    Document,
    Mention,
    cluster_of,
    is_punctuation,
    roles,
)

BERT = {"cls": "[CLS]", "sep": "[SEP]"}


def test_roles_gives_every_position_one_role():
    tokens = ["[CLS]", "a", ",", "b", ".", "[SEP]", "c", ".", "[SEP]"]
    token_roles = roles(tokens, BERT)
    assert token_roles.cls.tolist() == [token == "[CLS]" for token in tokens]
    assert token_roles.sep.tolist() == [token == "[SEP]" for token in tokens]
    assert token_roles.punctuation.tolist() == [token in {",", "."} for token in tokens]
    assert token_roles.other.tolist() == [token in {"a", "b", "c"} for token in tokens]
    masks = token_roles.masks()
    assert (sum(mask.astype(int) for mask in masks.values()) == 1).all()
    assert list(masks) == ["cls", "sep", "punctuation", "other"]
    assert roles(["a", "</s>"], {"cls": None, "sep": "</s>"}).cls is None
    marks = roles([".", ",", "Ġ.", "▁,", "...", ";", "!", "-", "##.", "Ġ", "▁"], BERT).punctuation
    assert marks.tolist() == [True] * 4 + [False] * 7


@pytest.mark.parametrize("mark", "。，、｡،۔।॥՝።፣")
def test_is_punctuation_of_other_scripts(mark):
    assert is_punctuation(mark) and is_punctuation(f"▁{mark}")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(mark)[0][0]
    assert is_punctuation(byte_level)
    assert not is_punctuation(byte_level[:-1]) or len(byte_level) == 1
    assert not is_punctuation(mark + mark)


@pytest.mark.parametrize("word", ["、の", "?", "؟", "¿", ";", "؛", "·", "", "Ġ", "word", "…", "ÃĢ"])
def test_is_punctuation_of_other_tokens(word):
    assert not is_punctuation(word)


def test_cut_keeps_mentions_that_end_before_it():
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
    assert dropped == 3  # 2-5 crosses; 4-6 and 5-6 lie beyond
    assert document.cut(6)[0].mentions[:4] == mentions[:4]


@pytest.mark.parametrize(
    ("record", "article"),
    [
        ({"title": "Paris, Texas"}, "Paris, Texas"),
        ({"source": "Paris, Texas, paragraph 12, sentence 3"}, "Paris, Texas"),
        ({"source": "a.conllu, document b-1, sentence b-1-0012"}, "a.conllu, document b-1"),
        ({"source": "bn/abc/00/abc_0001 part 003"}, "bn/abc/00/abc_0001"),
        ({"source": "wsj.txt, sentence 12"}, "wsj.txt, sentence 12 7"),
        ({}, " 7"),
    ],
)
def test_cluster_of_names_the_document_or_the_record_itself(record, article):
    assert cluster_of(record, 7) == article
