"""FrameNet's full text: words, predicates and core arguments; broken files."""

import pytest

from helpers.errors import CorpusError
from helpers.studies.dark_secrets.framenet import framenet_sentences

TEXT = "The tall sailor sold Mary a boat yesterday ."
XMLNS = "http://framenet.icsi.berkeley.edu"


def label(part, name, text=TEXT, extra=""):
    start = text.index(part)
    return f'<label name="{name}" start="{start}" end="{start + len(part) - 1}" {extra}/>'


def layer(name, *labels, rank=1):
    return f'<layer rank="{rank}" name="{name}">{"".join(labels)}</layer>'


def words(text=TEXT):
    found, start = [], 0
    for word in text.split():
        start = text.index(word, start)
        found.append(f'<label start="{start}" end="{start + len(word) - 1}" name="X"/>')
        start += len(word)
    return f'<annotationSet status="UNANN">{layer("PENN", *found)}</annotationSet>'


def frame(*layers, name="Commerce_sell"):
    return (
        f'<annotationSet status="MANUAL" luName="sell.v" frameName="{name}">'
        f"{''.join(layers)}</annotationSet>"
    )


SOLD = frame(
    layer("Target", label("sold", "Target")),
    layer(
        "FE",
        label("The tall sailor", "Seller"),
        label("a boat", "Goods"),
        label("yesterday", "Time"),
        '<label name="Money" itype="INI"/>',
    ),
    layer("GF", label("Mary", "Dep")),
)


def sentence(*sets, text=TEXT, number="7"):
    return f'<sentence ID="{number}"><text>{text}</text>{"".join(sets)}</sentence>'


def full_text(*sentences):
    return f'<fullTextAnnotation xmlns="{XMLNS}"><header/>{"".join(sentences)}</fullTextAnnotation>'


def frame_file(name, **elements):
    own = "".join(f'<FE name="{fe}" coreType="{kind}"/>' for fe, kind in elements.items())
    return f'<?xml version="1.0"?><frame xmlns="{XMLNS}" name="{name}">{own}</frame>'


@pytest.fixture
def make(tmp_path):
    def make(content, frames=()):
        for folder, files in (("fulltext", {"doc": content}), ("frame", dict(frames))):
            for name, text in files.items():
                (tmp_path / folder).mkdir(exist_ok=True)
                data = text if isinstance(text, bytes) else text.encode()
                (tmp_path / folder / f"{name}.xml").write_bytes(data)
        return tmp_path

    return make


FRAMES = {
    "Commerce_sell": frame_file(
        "Commerce_sell", Seller="Core", Goods="Core-Unexpressed", Time="Peripheral"
    )
}


def test_links_of_a_predicate_to_every_word_of_its_core_arguments(make):
    (found,) = framenet_sentences(make(full_text(sentence(words(), SOLD)), FRAMES))
    assert found.words == tuple(TEXT.split())
    assert found.source == "doc:7"
    sold = found.words.index("sold")
    linked = {found.words[argument] for predicate, argument in found.links if predicate == sold}
    assert linked == {"The", "tall", "sailor", "a", "boat"}
    assert len(found.links) == 5


def test_all_arguments_where_the_frames_are_not_there(make):
    (found,) = framenet_sentences(make(full_text(sentence(words(), SOLD))))
    assert (3, 7) in found.links and len(found.links) == 6


@pytest.mark.parametrize("where", ["", "fulltext", "fulltext/doc.xml"])
def test_the_folder_may_be_named_at_any_level(make, where):
    root = make(full_text(sentence(words(), SOLD)), FRAMES)
    assert len(framenet_sentences(root / where)[0].links) == 5


def test_words_without_a_layer_of_them(make):
    text = "He didn't sell, though."
    sold = frame(
        layer("Target", label("sell", "Target", text)), layer("FE", label("He", "Seller", text))
    )
    (found,) = framenet_sentences(make(full_text(sentence(sold, text=text))))
    assert found.words == ("He", "didn't", "sell", ",", "though", ".")
    assert found.links == ((2, 0),)


def test_an_argument_is_no_word_of_its_predicate(make):
    sold = frame(layer("Target", label("sold", "Target")), layer("FE", label("sold Mary", "Goods")))
    (found,) = framenet_sentences(make(full_text(sentence(words(), sold))))
    assert found.links == ((3, 4),)


def test_long_sentences_and_those_without_a_link_are_left_out(make):
    long = " ".join(["word"] * 13)
    others = sentence(words(long), text=long), sentence(words())
    assert len(framenet_sentences(make(full_text(sentence(words(), SOLD), *others), FRAMES))) == 1


def test_what_is_left_out_is_counted_where_nothing_is_left(make):
    long = " ".join(["word"] * 13)
    with pytest.raises(
        CorpusError, match="1 sentences dropped: over 12 words, 1 sentences dropped: no"
    ):
        framenet_sentences(make(full_text(sentence(words(long), text=long), sentence(words()))))


EXTERNAL = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (EXTERNAL + full_text(sentence(text="&a;")), None, "declares a document type"),
        ("<corpus/>", None, "the XML is <corpus>, expected <fullTextAnnotation>"),
        (full_text("\n<sentence>"), 2, "malformed XML"),
        (full_text(sentence(words()))[:-30], 1, "malformed XML"),
        (
            full_text(sentence(frame(layer("Target", '<label start="3" end="99"/>')))),
            None,
            "a label from '3' to '99' is not inside its text",
        ),
        (
            full_text(sentence(frame(layer("FE", '<label start="x" end="-1"/>')))),
            None,
            "a label from 'x' to '-1' is not inside",
        ),
        (full_text(sentence(words())), None, "no sentence with a link left"),
    ],
)
def test_what_is_wrong_is_named(make, content, line, message):
    root = make(content)
    with pytest.raises(CorpusError) as raised:
        framenet_sentences(root)
    assert message in str(raised.value)
    assert line is None or f"doc.xml:{line}: " in str(raised.value)


def test_no_such_folder(tmp_path):
    with pytest.raises(CorpusError, match="does not exist"):
        framenet_sentences(tmp_path / "none")
    with pytest.raises(CorpusError, match=r"holds no \*\.xml"):
        framenet_sentences(tmp_path)
