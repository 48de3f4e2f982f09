"""What the user named is read through before any work starts."""

import pytest

from helpers.errors import CorpusError
from helpers.run.checks import check
from helpers.study import Study

TREE = "1\tGo\tgo\tVERB\t_\t_\t0\troot\t_\tEntity=(1)\n\n"
BROKEN = TREE * 500 + "1\tGo\tgo\tVERB\t_\t_\t1\tdep\t_\tEntity=(1)\n"
CASES = {
    "treebank": ("a.conllu", TREE * 500, BROKEN, 1001),
    "coref": ("a.conllu", TREE * 500, BROKEN, 1001),
    "text": ("a.txt", "One.\nTwo.\n\n" * 90, "One.\nTwo.\n\n" * 90 + "a\0", 271),
    "vectors": ("a.txt", "the 1 2\n" * 90, "the 1 2\n" * 90 + "a 1\n", 91),
}


@pytest.mark.parametrize("setting", CASES)
def test_damage_far_into_a_corpus_is_found_before_the_work(setting, tmp_path):
    name, whole, broken, line = CASES[setting]
    path = tmp_path / name
    path.write_text(whole, encoding="utf-8")
    check(Study(**{setting: str(path)}))
    path.write_text(broken, encoding="utf-8")
    with pytest.raises(CorpusError) as caught:
        check(Study(**{setting: str(path)}))
    assert caught.value.line == line


def test_a_corpus_that_cannot_be_split_or_has_no_mention_is_found_before_the_work(tmp_path):
    one, unmarked, short = tmp_path / "a.conllu", tmp_path / "b.txt", tmp_path / "c.txt"
    one.write_text(TREE)
    unmarked.write_text("# a b\nNobody is marked here.\n")
    short.write_text("One paragraph.\n")
    for study, message in (
        (Study(treebank=str(one)), "holds one sentence"),
        (Study(coref=str(unmarked)), "no mention in any document"),
        (Study(text=str(short)), "no segment of two consecutive paragraphs"),
        (Study(vectors=str(tmp_path / "none")), "does not exist"),
    ):
        with pytest.raises(CorpusError, match=message):
            check(study)
