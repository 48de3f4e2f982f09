"""Files from strangers: whatever is in them, a reader gives records or names file and line.

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
from faults import FILES, at_most
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.data import coreference
from helpers.data.coreference import coreference_corpus
from helpers.data.glove import read_glove
from helpers.data.records import Document, Segment, Sentence
from helpers.data.text_files import visible
from helpers.data.treebank import treebank
from helpers.data.wikipedia import segments
from helpers.errors import CorpusError
from helpers.studies.argument_cues.arguments import Argument, read_arguments
from helpers.studies.dark_secrets.links import FrameSentence, framenet_sentences
from helpers.studies.tasks import Pair, read_task

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
    r"holds no |holds one sentence|no mention in any|no segment of|is the file whole|"
    r"document type|the XML is|not inside its text|no examples|no sentence with a link|"
    r"\d+ labels in|no argument after|not tab-separated"
)

# What may stand where a word, a number, a bracket column, wikitext, or a value is expected

HUGE = 100_000
WORDS = [
    "", " ", "\t", "\n", "x" * HUGE, "é" * HUGE, "9" * HUGE, "שלום", "مرحبا", "東京", "🙂", "_",
    "-", "👩\u200d👩\u200d👧", "e\u0301", "\u200b", "\u202e", "\ufeff", "\0", "\x1b[31m", "\x07",
    "\x85", "\u2028", "\xa0", "\U0010ffff", "#", "(", ")", "[", "]", "|", "=", "<", "&", "[WORD]",
]  # fmt: skip
NUMBERS = [
    "0", "1", "2", "3", "4", "9", "00", "-1", "", " 1", "٣", "²", "1.5", "1-2", "2-x", "x", "1_0",
    "9999999999", "9" * 5000, "9" * HUGE,
]  # fmt: skip
MENTIONS = [
    "-", "_", "(1)", "(2)", "(1", "1)", "(2", "2)", "(1|(2)", "2)1)", "(1(2", "()", "(x)", "(-1)",
    "(٣)", "", "(9999999999)", "(" + "9" * 5000, "9" * HUGE + ")", "(1" * 200, "1)" * 200,
]  # fmt: skip
MARKUP = [
    "{{", "}}", "[[", "]]", "{|\n", "\n|}", "\n\n", "\n* ", "==", "|", "{{convert|", "{{quote|",
    "[[File:", "[[Datei:", "&lt;ref&gt;", "&lt;/ref&gt;", "&lt;!--", "--&gt;", "&lt;sup&gt;",
    f"&amp;#{'9' * 5000};", f"&amp;#{'0' * 5000}65;", "&amp;#xD800;", "&amp;#0;", "&#0;", "&nope;",
    "{{" * 5000, "&lt;ref " * 5000, "[//" * 5000, "''" * 5000, "<![CDATA[", "<!--", "</text>",
    "<a>", "</page>", "<page>", "<text>", "</mediawiki>", "<?xml?>",
    "<!DOCTYPE m [<!ENTITY a 'b'>]>", "<a>" * 100, "<a " + "b" * HUGE, *WORDS,
]  # fmt: skip
VALUES = ["nan", "inf", "1e999", "-1e39", "0x1", "x", "0.1 0.2", "1,5", *NUMBERS]
POOLS = {"w": WORDS, "n": NUMBERS, "m": MENTIONS, "x": MARKUP, "v": VALUES}

# Whole files of each format; ⟨n 2⟩ is a slot: there stands "2", or something of the pool "n"

TREES = [
    "# newdoc id = ⟨w a⟩\n# sent_id = ⟨w 1⟩\n"
    "⟨n 1⟩\t⟨w Ann⟩\t_\tPROPN\t_\t_\t⟨n 2⟩\tnsubj\t_\tEntity=⟨m (1)⟩\n"
    "2-3\tdidn't\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "⟨n 2⟩\t⟨w saw⟩\t_\tVERB\t_\t_\t⟨n 0⟩\troot\t_\tEntity=⟨m _⟩\n"
    "2.1\tgone\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "⟨n 3⟩\t⟨w her⟩\t_\t⟨w PRON⟩\t_\t_\t⟨n 4⟩\tnmod:poss\t_\tEntity=⟨m (2(1)⟩\n"
    "⟨n 4⟩\t⟨w dog⟩\t_\tNOUN\t_\t_\t⟨n 2⟩\t⟨w obj⟩\t_\tSpaceAfter=No|Entity=⟨m 2)⟩\n⟨w ⟩\n"
    "# newdoc id = b\n# sent_id = 1\n"
    "1\tשלום\t_\tINTJ\t_\t_\t⟨n 0⟩\troot\t_\tEntity=⟨m (3)⟩\n\n"
    "1\t東京\t_\tPROPN\t_\t_\t⟨n 2⟩\tnsubj\t_\tEntity=⟨m (3)⟩\n"
    "2\t🙂\t_\tSYM\t_\t_\t0\troot\t_\t⟨w _⟩\n",
    "1\tGo\t_\tVERB\t_\t_\t⟨n 0⟩\troot\t_\tEntity=⟨m (1)⟩\n\n1\tNo\t_\tX\t_\t_\t0\troot\t_\t_\n\n",
]
NOT_CONLL_X = re.compile(r"#|2[-.]")
TREES_X = [
    "\n".join(row for row in file.split("\n") if not NOT_CONLL_X.match(row)) for file in TREES
]
PLAIN_TREES = [
    "⟨w Ann⟩ ⟨n 2⟩-nsubj\n⟨w saw⟩ ⟨n 0⟩-⟨w root⟩\nher ⟨n 4⟩-poss\ndog 2⟨w -⟩dobj\n⟨w ⟩\n"
    "שלום ⟨n 0⟩-root",
    "⟨w x⟩ ⟨n 0⟩-root\n\nx 0-root\n\nx 0-root",
]


def conll_2012(name, part, *rows):
    """Write a part of a document; a row is a word and its bracket column."""
    row = "nw/a 0 0 ⟨w {}⟩ ⟨w NN⟩ * - - - - * ⟨m {}⟩\n"
    body = "".join(row.format(*cells) if cells else "⟨w ⟩\n" for cells in rows)
    return f"#begin document (⟨w {name}⟩); part ⟨n {part}⟩\n{body}⟨w #end document⟩\n"


MENTIONED = [("Ann", "(1|(2|(1"), ("saw", "1)|(3"), None, ("שלום", "1)|2)"), ("🙂", "3)")]
CONLL_2012 = [
    conll_2012("nw/a", "000", *MENTIONED) + conll_2012("nw/a", "001", ("x" * HUGE, "-")),
    conll_2012("nw/b", "000", ("Ann", "(1)")),
]
BRACKETS = [
    "## note\n# ⟨w tale-01⟩ ⟨w story⟩\n[⟨w Ann⟩]⟨n 1⟩ ⟨w lost⟩ [[her]⟨n 1⟩ ring]⟨n 2⟩, "
    "and [a ⟨w magpie⟩] found [it]2⟨w .⟩\nIt's ⟨w 10:30⟩; [she]1 doesn't\nmind.\n"
    "# ⟨w tale-02⟩ story\n"
    "⟨w [⟩שלום]⟨n 1⟩ met [東京⟨w ]⟩2. [He]1 saw [it]⟨n 2⟩.\n",
    "# t g\n[⟨w x⟩]⟨n 1⟩\n",
]
GLOVE = [
    "⟨w the⟩ ⟨v 0.1⟩ ⟨v -0.2⟩ ⟨v 3e-4⟩\n⟨w 東京⟩ ⟨v 1⟩ 2 ⟨v 3⟩\n⟨w . . .⟩ 0 ⟨v 0⟩ 0\n",
    "⟨n 2⟩ ⟨n 3⟩\n⟨w the⟩ 0.1 ⟨v 0.2⟩ 0.3\n⟨w the⟩ 1 2 ⟨v 3⟩\n",
]
PROSE = "A paragraph of prose ⟨x has⟩ ten words or more ⟨x ⟩ in it."
PAGE = (
    "<page>⟨x ⟩<title>⟨x T⟩</title><ns>⟨n 0⟩</ns><revision><text>{}</text>⟨x ⟩</revision></page>"
    "<page><title>U</title><ns>1</ns><redirect title='T' /><text>no</text></page>"
)
BODY = (
    f"{{{{Box | a = ⟨x {{{{b}}}}⟩ }}}}\n⟨x '''⟩{PROSE}&lt;ref&gt;⟨x x⟩&lt;/ref&gt;\n\n"
    f"{PROSE} [[a⟨x |⟩b]].\n\n== See also ==\n* [[c]]\n{{|\n| x ⟨x ||⟩ y\n|}}\n"
    f"== B ==\n{PROSE}\n\n{PROSE}\n"
)
DUMPS = [
    "<?xml version='1.0' encoding='⟨w utf-8⟩'?>\n<mediawiki>\n<siteinfo><namespaces>"
    "<namespace key='6'>⟨x Datei⟩</namespace></namespaces></siteinfo>\n"
    f"{PAGE.format(BODY)}\n{PAGE.format(BODY)}\n</mediawiki>⟨x ⟩\n",
    f"<mediawiki>{PAGE.format(f'{PROSE} &#10;&#10; {PROSE}')}</mediawiki>",
]
TEXTS = ["⟨w One⟩ paragraph.\nAnother ⟨w one.⟩\n⟨w ⟩\n東京⟨x ⟩\n🙂⟨w ⟩\r\n\r\n⟨w y⟩"]
FRAMES = [
    "<fullTextAnnotation>⟨x ⟩<sentence ID='⟨n 1⟩'><text>Ann ⟨x sold⟩ a boat .</text>"
    "<annotationSet><layer name='PENN'><label start='⟨n 0⟩' end='⟨n 2⟩'/>"
    "<label start='4' end='7'/><label start='9' end='⟨n 9⟩'/></layer></annotationSet>\n"
    "<annotationSet frameName='⟨x Sell⟩'><layer name='Target'><label start='⟨n 4⟩' end='⟨n 7⟩'/>"
    "</layer><layer name='FE'>⟨x ⟩<label name='⟨x Seller⟩' start='⟨n 0⟩' end='2'/></layer>"
    "</annotationSet></sentence>\n</fullTextAnnotation>⟨x ⟩",
]
COLUMNS = "#id\twarrant0\t⟨w warrant1⟩\tcorrectLabelW0orW1\treason\tclaim\tadversarial\n"
ARGUMENTS = [
    COLUMNS + "⟨w 1⟩\t⟨w It is.⟩\t⟨w It is not.⟩\t⟨n 0⟩\t⟨w So.⟩\tTrue.\tFalse\n"
    '⟨w ⟩\n2\t⟨w Yes.⟩\tNo.\t⟨n 1⟩\t東京\t⟨w It"s.⟩\t⟨w False⟩\n',
    COLUMNS + '"1"\t"It ⟨w ""is""⟩."\t"Not.\nHere⟨w ."⟩\t1\tSo.\tTrue.\tTrue\n',
]
TASKS = [
    "⟨w sentence1⟩\t⟨w sentence2⟩\t⟨w label⟩\nA cat.\t⟨w A dog.⟩\t⟨n 0⟩\n⟨w ⟩\n"
    "⟨w Cats.⟩\tDogs.\t⟨n 1⟩\nSnow.\tIt snows.\t⟨w 1⟩\nRain.\t⟨w Sun.⟩\t0\n",
    "⟨w good⟩\tA ⟨w fine⟩ film.\nbad\t⟨w No.⟩\ngood\tYes.\nbad\tWell.\n",
]


# What happens to a file on its way

SLOT = re.compile("⟨(.) (.*?)⟩", re.DOTALL)
EDITS = ["slot"] * 8 + ["insert", "delete", "double", "swap", "cut"]


def edited(text, edits):
    """Fill some of the slots with odd things, then change whole lines."""
    slots = len(SLOT.findall(text))
    odd = {place % slots: choice for kind, place, choice in edits if kind == "slot"}
    numbers = iter(range(slots))

    def fill(slot):
        pool = POOLS[slot[1]]
        choice = odd.get(next(numbers))
        return slot[2] if choice is None else pool[choice % len(pool)]

    lines = SLOT.sub(fill, text).splitlines(keepends=True)
    for kind, place, choice in edits:
        at = place % len(lines)
        match kind:
            case "insert":
                lines.insert(at, f"{WORDS[choice % len(WORDS)]}\n")
            case "delete" if len(lines) > 1:
                del lines[at]
            case "double":
                lines.insert(at, lines[at])
            case "swap":
                lines[at], lines[at - 1] = lines[at - 1], lines[at]
            case "cut":
                lines[at:] = [lines[at][: choice % 9]]
    return "".join(lines)


def encoded(text, way):
    codec, ends = way
    return text.replace("\n", ends).encode(codec, errors="replace")


def damaged(data, place, junk):
    """Cut the bytes at a place, or put others there."""
    place %= len(data) + 1
    return data[:place] if junk is None else data[:place] + junk + data[place:]


def packed(data, way):
    pack, lost = way
    data = pack(data)
    return data[: len(data) - lost]


ENCODINGS = [("utf-8", "\n")] * 8 + [
    ("utf-8", "\r\n"), ("utf-8", "\r"), ("utf-8", "\n\n"), ("utf-8-sig", "\r\n"),
    ("utf-8", "\x85"), ("utf-8-sig", "\n"), ("utf-16", "\n"),
    ("latin-1", "\n"), ("cp932", "\r\n"),
]  # fmt: skip
PACKINGS = [(bz2.compress, 0), (gzip.compress, 0), (bz2.compress, 5), (gzip.compress, 9)]
JUNK = st.sampled_from([None, b"\0", b"\xff", b"\xef\xbb\xbf"]) | st.binary(max_size=6)


ANY = st.integers(0, 1 << 16)


def files(whole):
    """Bytes of a file with up to three mistakes, encoded in some way, damaged, packed; or any."""
    edits = st.lists(st.tuples(st.sampled_from(EDITS), ANY, ANY), max_size=3)
    text = st.builds(edited, st.sampled_from(whole), edits)
    data = st.builds(encoded, text, st.sampled_from(ENCODINGS))
    hurt = st.builds(damaged, data, ANY, JUNK)
    in_archive = st.builds(packed, data | hurt, st.sampled_from(PACKINGS))
    kinds = [data] * 9 + [hurt, in_archive, st.binary(max_size=200)]
    return st.sampled_from(kinds).flatmap(lambda kind: kind)


# What must come out


def trivial_parse(text):
    """Stand in for spaCy: a chain of words; like its words, none is empty."""
    assert all(text.words)
    return tuple(range(-1, len(text.words) - 1)), ("NOUN",) * len(text.words)


def check_error(error, path, data):
    message = str(error).removeprefix(str(path))
    assert message != str(error)
    assert message.isprintable(), "a message is one line, without control characters"
    assert len(message) < 300
    if error.line is None:
        assert WHOLE_FILE.search(message)
    elif not data.startswith((b"BZh", b"\x1f\x8b")):
        assert 1 <= error.line <= data.count(b"\n") + data.count(b"\r") + 1
        assert message.startswith(f":{error.line}: ")


def check(record):
    match record:
        case Segment():
            assert record.first.strip() and record.second.strip()
            assert not set(record.first + record.second) & set("\0\n\r\x1b\ufeff")
        case Sentence():
            n = len(record.words)
            assert n == len(record.heads) == len(record.relations)
            assert all(map(visible, record.words)) and all(record.relations)
            for word in range(1, n + 1):  # every word reaches the root
                steps = 0
                while word:
                    word, steps = record.heads[word - 1], steps + 1
                    assert steps <= n
        case Document():
            n = len(record.words)
            assert n == len(record.tags) and all(map(visible, record.words))
            for mention in record.mentions:
                assert 0 <= mention.start <= mention.head < mention.end <= n
                assert mention.chain is None or mention.chain >= 0
        case FrameSentence():
            assert 0 < len(record.words) <= 12 and record.links
            assert all(0 <= place < len(record.words) for link in record.links for place in link)
        case Argument():
            assert record.label in (0, 1) and record.warrant0 != record.warrant1
            assert record.id and record.claim and record.reason and record.warrant0
        case Pair():
            assert record.first and record.second != "" and record.label >= 0
        case (word, vector):
            assert isinstance(word, str) and vector.dtype == np.float32
            assert all(map(math.isfinite, vector))
        case _:
            raise AssertionError(record)


def glove_entries(path):
    found = read_glove(path)
    assert len(found.rows) == len(found.matrix)
    return zip(found.rows, found.matrix, strict=True)


def corpus_of(make, **options):
    return lambda path: make(path, **options).read(Counter())


READERS = {
    "Wikipedia XML": ("a.xml", DUMPS, corpus_of(segments, count=5)),
    "plain text": ("a.txt", TEXTS, corpus_of(segments, count=None)),
    "CoNLL-U": ("a.conllu", TREES, corpus_of(treebank)),
    "CoNLL-X": ("a.conll", TREES_X, corpus_of(treebank)),
    "word head-relation": ("a.txt", PLAIN_TREES, corpus_of(treebank)),
    "CoNLL-2012": ("a_conll", CONLL_2012, corpus_of(coreference_corpus)),
    "OntoGUM trees": ("a.conllu", TREES, corpus_of(coreference_corpus)),
    "brackets": ("a.txt", BRACKETS, corpus_of(coreference_corpus)),
    "GloVe": ("a.txt", GLOVE, glove_entries),
    "FrameNet": ("a.xml", FRAMES, framenet_sentences),
    "arguments": ("a.tsv", ARGUMENTS, read_arguments),
    "arguments, quoted": ("a.csv", ARGUMENTS, read_arguments),
    "pairs of sentences": ("a.tsv", TASKS, lambda path: read_task(path, path).train),
}


@pytest.mark.parametrize("reader", READERS)
def test_any_file_gives_records_or_its_line(reader, tmp_path, monkeypatch, record_property):
    monkeypatch.setattr(coreference, "_parse", trivial_parse)
    name, whole, records = READERS[reader]
    path, outcomes = tmp_path / name, Counter()

    @PROFILE
    @given(files(whole))
    def fuzz(data):
        path.write_bytes(data)
        try:
            with at_most(SECONDS):
                for record in records(path):
                    check(record)
        except CorpusError as error:
            check_error(error, path, data)
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1

    fuzz()
    assert outcomes.total() >= FILES
    read, refused = outcomes["read"], outcomes["refused"]
    record_property("found", f"{reader}: {read:,} files read, {refused:,} refused in one line")
    # A profile that hardly ever gets to one of the two ends tests half of the reader.
    assert min(read, refused) > FILES // 20, outcomes


def test_the_parser_that_gives_head_words_takes_every_odd_word(tmp_path):
    words = [word for word in WORDS if word.strip() and word != "[WORD]"]
    rows = "".join(f"x 0 0 {word} NN * - - - - * (1)\n" for word in words)
    path = tmp_path / "a_conll"
    path.write_text(f"#begin document (a);\n{rows}#end document\n", encoding="utf-8", newline="")
    (document,) = coreference_corpus(path).records()
    check(document)
    shown = tuple(word if visible(word) else "_" for word in words)
    assert document.words == shown != tuple(words)
