"""Files from strangers: a reader gives records, or refuses with the file and the line.

The profile is fixed (derandomized): every run of a form (`faults`) reads the same files.  No case
may take longer than ``SECONDS``.
"""

import bz2
import gzip
import math
import re
from collections import Counter

import numpy as np
import pytest
from annotated_files import CONLL_2012, CONLLU, CONLLX, CZECH, PLAIN
from faults import FILES, at_most
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.data import coreference
from helpers.data.coreference import coreference_corpus
from helpers.data.glove import read_glove
from helpers.data.records import Document, Segment, Sentence
from helpers.data.text_files import clean_word, visible
from helpers.data.treebank import pipeline, spacy_doc, treebank
from helpers.data.wikipedia import segments
from helpers.errors import CorpusError

SECONDS = 10  # a case; the slowest takes a fraction of one
PROFILE = settings(
    max_examples=FILES,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
# Facts of a file as a whole; every other error has a line.
WHOLE_FILE = re.compile(
    r"(has|holds) no |has one sentence|no document has|use a complete copy|save it as "
    r"plain text|no word has a parent|archive, which is not read|looks like"
)

HUGE = 100_000
ODD = [
    "", " ", "\t", "\n", "\n\n", "x" * HUGE, "é" * HUGE, "9" * HUGE, "9" * 5000, "שלום", "東京",
    "🙂", "👩\u200d👩\u200d👧", "e\u0301", "\u200b", "\u202e", "\ufeff", "\0", "\x1b[31m", "\x07",
    "\x85", "\u2028", "\xa0", "\U0010ffff", "#", "(", ")", "[", "]", "|", "=", "<", "&", "_", "-",
    "[WORD]", "0", "1", "2", "4", "9", "00", "-1", "٣", "²", "1.5", "1-2", "x", "1_0", "nan", "inf",
    "1e999", "-1e39", "0x1", "(1", "1)", "(2)", "2)1)", "()", "(x)", "(1" * 200, "{{" * 5000,
    f"&amp;#{'9' * 5000};", "&amp;#xD800;", "&#0;", "&nope;", "<a>" * 100, "<a " + "b" * HUGE,
]  # fmt: skip

BRACKETS = (
    "## note\n# tale-01 story\n[Ann]1 lost [[her]1 ring]2, and [a magpie] found [it]2.\n"
    "It's 10:30; [she]1 doesn't\nmind.\n# tale-02 story\n[שלום]1 met [東京]2. [He]1 saw [it]2.\n"
)
GLOVE = "the 0.1 -0.2 3e-4\n東京 1 2 3\n. . . 0 0 0\n"
PROSE = "A paragraph of prose has ten words or more than that in it."
EXTRACTED = "".join(
    f'<doc id="{number}" url="u" title="T &amp; {number}">\nT\n\n{PROSE}\n{PROSE}\n\n</doc>\n'
    for number in (1, 2)
)
TEXT = "One paragraph.\nAnother one.\n\n東京\n🙂\r\n\r\ny\n"

# Damage to a file

PIECE = re.compile(r"[\w.'’:*]+|\s|.", re.DOTALL)
ENCODINGS = [("utf-8", "\n")] * 8 + [
    ("utf-8", "\r\n"), ("utf-8", "\r"), ("utf-8-sig", "\r\n"), ("utf-16", "\n"), ("latin-1", "\n"),
]  # fmt: skip
PACKERS = [bytes] * 8 + [gzip.compress, bz2.compress]


@st.composite
def files(draw, intact):
    """Draw bytes: a file with some pieces replaced, encoded, packed, cut or with junk; or any."""
    index = st.integers(0, 1 << 16)
    pieces = PIECE.findall(intact)
    for position, odd in draw(st.lists(st.tuples(index, st.sampled_from(ODD)), max_size=2)):
        pieces[position % len(pieces)] = odd
    rows = "".join(pieces).splitlines(keepends=True)
    for start, length, copies in draw(
        st.lists(st.tuples(index, *[st.integers(0, 2)] * 2), max_size=1)
    ):
        start %= len(rows)
        rows[start : start + length] = rows[start : start + 1] * copies  # deleted or doubled
    codec, ends = draw(st.sampled_from(ENCODINGS))
    content = "".join(rows).replace("\n", ends).encode(codec, errors="replace")
    content = draw(st.sampled_from(PACKERS))(content)
    position = draw(index) % (len(content) + 1)
    junk = draw(st.sampled_from([b""] * 12 + [b"\0", b"\xff", None]))
    end = b"" if junk is None else junk + content[position:]
    return draw(st.sampled_from([content[:position] + end] * 12 + [draw(st.binary(max_size=9))]))


# Checks of records and errors


def trivial_parse(text):
    """Stand in for spaCy: a chain of words; like its words, none is empty."""
    assert all(text.words)
    return tuple(range(-1, len(text.words) - 1)), ("NOUN",) * len(text.words)


def check_error(error, path, content):
    message = str(error).removeprefix(str(path))
    assert message != str(error)
    assert message.isprintable(), "a message is one line, without control characters"
    assert len(message) < 300
    if error.line is None:
        assert WHOLE_FILE.search(message)
    elif not content.startswith((b"BZh", b"\x1f\x8b")):
        assert 1 <= error.line <= content.count(b"\n") + content.count(b"\r") + 1
        assert message.startswith(f":{error.line}: ")


def check(record):
    """Check the record of a reader by its type."""
    match record:
        case Segment():
            assert record.first.strip() and record.second.strip()
            assert not set(record.first + record.second) & set("\0\n\r\x1b\ufeff")
        case Sentence():
            check_tree(record)
        case Document():
            n_words = len(record.words)
            assert n_words == len(record.tags) and all(map(visible, record.words))
            for mention in record.mentions:
                assert 0 <= mention.start <= mention.head < mention.end <= n_words
        case (form, vector):
            assert isinstance(form, str) and vector.dtype == np.float32
            assert all(map(math.isfinite, vector))
        case _:
            raise AssertionError(record)


def check_tree(sentence):
    """Check that all words are visible, have relations and reach the root."""
    n_words = len(sentence.words)
    assert n_words == len(sentence.heads) == len(sentence.relations)
    assert len(sentence.tags) in (0, n_words)
    assert all(map(visible, sentence.words)) and all(sentence.relations)
    for start in range(1, n_words + 1):
        steps = 0
        node = start
        while node:
            node = sentence.heads[node - 1]
            steps += 1
            assert steps <= n_words


def glove_entries(path):
    embeddings = read_glove(path)
    return zip(embeddings.rows, embeddings.matrix, strict=True)


def corpus_of(make, **options):
    return lambda path: make(path, **options).read(Counter())


READERS = {
    "WikiExtractor": ("wiki_00", EXTRACTED, corpus_of(segments, count=None)),
    "plain text": ("a.txt", TEXT, corpus_of(segments, count=None)),
    "CoNLL-U": ("a.conllu", CONLLU, corpus_of(treebank)),
    "CoNLL-X": ("a.conll", CONLLX, corpus_of(treebank)),
    "word head-relation": ("a.txt", PLAIN, corpus_of(treebank)),
    "CoNLL-2012": ("a_conll", CONLL_2012, corpus_of(coreference_corpus)),
    "CorefUD": ("a.conllu", CZECH, corpus_of(coreference_corpus)),
    "brackets": ("a.txt", BRACKETS, corpus_of(coreference_corpus)),
    "GloVe": ("a.txt", GLOVE, glove_entries),
}


@pytest.mark.parametrize("reader", READERS)
def test_readers_give_records_or_refuse_with_the_line(
    reader, tmp_path, monkeypatch, record_property
):
    monkeypatch.setattr(coreference, "_parse", trivial_parse)
    name, intact, records = READERS[reader]
    path = tmp_path / name
    outcomes = Counter()

    @PROFILE
    @given(files(intact))
    def fuzz(content):
        path.write_bytes(content)
        try:
            with at_most(SECONDS):
                for record in records(path):
                    check(record)
        except CorpusError as error:
            check_error(error, path, content)
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1

    fuzz()
    read = outcomes["read"]
    refused = outcomes["refused"]
    record_property("found", f"{reader}: {read:,} files read, {refused:,} refused in one line")
    # A profile that hardly ever gets to one of the two ends tests half of the reader.
    assert min(read, refused) > FILES // 20, outcomes


def test_spacy_takes_every_word_that_a_reader_lets_through():
    words = [clean_word(odd, Counter()) for odd in ODD]
    assert len(pipeline()(spacy_doc(words, None))) == len(words)
