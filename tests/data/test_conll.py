"""One definition of a word for every column format; what is odd is read the same and counted."""

from collections import Counter

import pytest

from helpers.data.conll import read_documents, read_trees
from helpers.data.coreference import coreference_corpus
from helpers.data.text_files import visible, word

COUNTED = "words that are empty or invisible, read as _"
FILES = {
    "conllu": "1\t{}\t_\tX\t_\t_\t2\tdep\t_\tEntity=(1)\n2\tend\t_\tX\t_\t_\t0\troot\t_\t_\n",
    "conllx": "1\t{}\t_\tX\t_\t_\t2\tdep\n2\tend\t_\tX\t_\t_\t0\troot\n",
    "plain": "{} 2-dep\nend 0-root\n",
    "conll2012": "#begin document (a); part 000\nx 0 0 {} NN * - - - - * (1)\n"
    "x 0 1 end NN * - - - - * -\n#end document\n",
    "ontogum": "# begin document a\n0\t{}\t(1)\n1\tend\t_\n# end document\n",
}
INVISIBLE = ["\xa0", "\u200b", "\u200b\u2060", "\u202e", "\u0301", "\ufffd", "\x07", "\U000e0001"]


def words_of(tmp_path, format, form):
    path = tmp_path / "file"
    path.write_text(FILES[format].format(form), encoding="utf-8", newline="")
    counts = Counter()
    read = read_documents if format in ("conll2012", "ontogum") else read_trees
    (found,) = read(path, format, counts)
    return found.words, counts


@pytest.mark.parametrize("format", FILES)
@pytest.mark.parametrize(
    "form", ["10\xa0000", "a\u200bb", "\u2014", "שלום", "👩\u200d👧", "e\u0301"]
)
def test_a_word_that_shows_stays_as_it_is(tmp_path, format, form):
    assert words_of(tmp_path, format, form) == ((form, "end"), {})


@pytest.mark.parametrize("format", FILES)
@pytest.mark.parametrize("form", [*INVISIBLE, "\r"])
def test_a_word_of_which_nothing_shows_is_read_as_a_line_and_counted(tmp_path, format, form):
    assert words_of(tmp_path, format, form) == (("_", "end"), {COUNTED: 1})


@pytest.mark.parametrize("format", ["conllu", "conllx", "ontogum"])
def test_a_word_without_a_form_is_read_as_a_line_and_counted(tmp_path, format):
    assert words_of(tmp_path, format, "") == (("_", "end"), {COUNTED: 1})


def test_what_a_tokenizer_keeps_is_visible():
    assert all(visible(text) for text in ("a", ".", "_", "é", "東", "🙂", "\u200b."))
    assert not any(visible(text) for text in ("", " ", *INVISIBLE))
    assert word("x", Counter()) == "x"


def test_no_reader_yields_a_word_that_bert_turns_into_nothing(tmp_path):
    from tokenizers.normalizers import BertNormalizer

    normal = BertNormalizer(lowercase=True)
    for form in INVISIBLE:
        assert not normal.normalize_str(form).strip()  # as such it would drop the document
        path = tmp_path / "a.conll"
        path.write_text(FILES["ontogum"].format(form), encoding="utf-8")
        (document,) = coreference_corpus(path).records()
        assert normal.normalize_str(document.words[0]) == "_"


def test_brackets_leave_out_what_does_not_show(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("# a b\n[Ann\u200b]1 saw \u200d [\ufeffher]1\xa0again.\n", encoding="utf-8")
    counts = Counter()
    (document,) = coreference_corpus(path).read(counts)
    assert document.words == ("Ann", "saw", "her", "again", ".")
    assert counts["invisible characters left out"] == 1


def test_a_document_starts_at_its_mark_without_a_blank_line(tmp_path):
    path = tmp_path / "a.conllu"
    tree = FILES["conllu"].format("go")
    path.write_text(f"# newdoc id = a\n{tree}# newdoc id = b\n{tree}", encoding="utf-8")
    assert [text.name for text in read_documents(path, "conllu")] == ["a", "b"]
    assert [tree.document for tree in read_trees(path)] == [0, 1]
