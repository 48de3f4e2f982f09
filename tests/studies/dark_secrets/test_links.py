"""Links of trees and of FrameNet, their weights by hand, and random pairs to compare with."""

import numpy as np
import pytest

from helpers.errors import CorpusError, InputError
from helpers.studies.dark_secrets.links import (
    dependency_links,
    far_enough,
    framenet_sentences,
    link_table,
    link_weights,
    linked_heads,
    random_links,
)


def uniform(words, layers=1, heads=2):
    return np.full((layers, heads, words, words), 1 / words)


def test_arguments_of_every_scheme_are_links_to_their_predicate():
    relations = ["nsubj", "root", "det", "obj", "obl:agent", "nsubj:pass", "amod", "dative"]
    heads = [2, 0, 4, 2, 2, 2, 4, 2]
    assert dependency_links(heads, relations) == [(1, 0), (1, 3), (1, 4), (1, 5), (1, 7)]


def test_a_root_is_an_argument_of_nothing():
    assert dependency_links([0], ["nsubj"]) == []


def test_neighbours_are_not_counted():
    assert far_enough([(1, 0), (1, 3), (4, 2), (5, 4)]) == [(1, 3), (4, 2)]


def test_the_weight_is_the_largest_of_any_link_in_either_direction():
    attention = np.zeros((1, 2, 4, 4))
    attention[0, 0, 0, 2], attention[0, 0, 3, 1] = 0.3, 0.6  # the second against its direction
    attention[0, 1, 0, 3] = 0.9  # not a link
    assert link_weights(attention, [(0, 2), (1, 3)]).tolist() == [[0.6, 0.0]]


def test_random_pairs_have_the_distances_of_the_links_and_are_none():
    links = [(1, 3), (5, 1), (4, 6)]
    generator = np.random.default_rng(0)
    drawn = [random_links(links, 8, generator) for _ in range(200)]
    for pairs in drawn:
        assert [abs(a - b) for a, b in pairs] == [2, 4, 2]
        assert not {(1, 3), (1, 5), (4, 6)} & set(pairs)
    assert {pairs[1] for pairs in drawn} == {(0, 4), (2, 6), (3, 7)}


def test_no_random_pair_where_every_one_is_a_link():
    assert random_links([(0, 2)], 3, np.random.default_rng(0)) is None


def test_a_head_that_sees_links_and_one_that_sees_distances():
    sentences = []
    for shift in range(6):
        attention = uniform(12, heads=3)
        link = (shift, shift + 3)
        attention[0, 0, link[0], link[1]] = 0.9
        for i in range(9):
            attention[0, 1, i, i + 3] = 0.9
        sentences.append((attention, [link], f"article {shift}"))
    table = link_table(sentences, seed=1)
    assert (table["sentences"] == 6).all()
    assert table["layer"].tolist() == [1, 1, 1] and table["head"].tolist() == [1, 2, 3]
    assert table["linked"].round(6).tolist() == [0.9, 0.9, round(1 / 12, 6)]
    assert table["random"].round(6).tolist() == [round(1 / 12, 6), 0.9, round(1 / 12, 6)]
    assert table["difference"][0] > 0.8 and np.allclose(table["difference"][1:], 0)
    assert (table["ci_low"] <= table["difference"] + 1e-9).all()
    assert (table["ci_high"] >= table["difference"] - 1e-9).all()
    assert table["p_holm"][0] < 0.1 and (table["p_holm"][1:] > 0.5).all()  # 1 in 64, of three heads


def test_heads_that_see_nothing_are_rarely_linked():
    """Of 40 sets of 20 heads that see nothing, about one in twenty has a head beyond chance."""
    generator, wrong = np.random.default_rng(0), 0
    articles = np.repeat(np.arange(12), 3).astype(str)
    for seed in range(40):
        maps = generator.dirichlet(np.ones(8), (len(articles), 1, 20, 8))
        links = [[(1, 4)]] * len(maps)
        table = link_table(zip(maps, links, articles, strict=True), seed=seed)
        wrong += len(linked_heads(table)) > 0
    assert wrong <= 6


def test_sentences_that_say_nothing_are_left_out():
    neighbours, nothing = (uniform(5), [(1, 2)], "a"), (uniform(5), [], "a")
    no_pair = uniform(3), [(0, 2)], "a"
    with pytest.raises(InputError, match="none of the sentences"):
        link_table([neighbours, nothing, no_pair], seed=0)
    table = link_table([neighbours, (uniform(5), [(0, 2)], "a"), no_pair], seed=0)
    assert (table["sentences"] == 1).all()


def test_the_seed_decides():
    rng = np.random.default_rng(0)
    sentences = [(maps, [(1, 4)], "a") for maps in rng.dirichlet(np.ones(9), size=(4, 1, 2, 9))]
    first, again, other = (link_table(sentences, seed=seed) for seed in (0, 0, 1))
    assert first.equals(again) and not first.equals(other)


# FrameNet

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
    assert found.source == "doc"
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
        (
            full_text(sentence(words())),
            None,
            "no sentence with a link and at most 12 words among 1",
        ),
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
