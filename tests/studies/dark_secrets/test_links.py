"""Links of trees and of FrameNet, their weights by hand, and random pairs to compare with."""

import numpy as np
import pytest

from helpers.errors import CorpusError, InputError
from helpers.studies.dark_secrets.links import (
    FrameSentence,
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


# FrameNet

FULL_TEXT = """<?xml version="1.0"?>
<fullTextAnnotation xmlns="http://framenet.icsi.berkeley.edu"><header/>
<sentence ID="7"><text>The sailor didn't sell Mary a boat today.</text>
 <annotationSet status="UNANN"><layer name="BNC">WORDS</layer></annotationSet>
 <annotationSet frameName="Commerce_sell">
  <layer name="Target"><label name="Target" start="18" end="21"/></layer>
  <layer name="FE"><label name="Seller" start="0" end="9"/><label name="Goods" start="28" end="33"/>
   <label name="Time" start="35" end="39"/><label name="Money" itype="INI"/></layer>
  <layer name="GF"><label name="Dep" start="23" end="26"/></layer>
 </annotationSet></sentence>
<sentence ID="8"><text>LONG</text></sentence>
</fullTextAnnotation>""".replace("LONG", "word " * 13)
FRAME = """<frame xmlns="http://framenet.icsi.berkeley.edu" name="Commerce_sell">
<FE name="Seller" coreType="Core"/><FE name="Goods" coreType="Core-Unexpressed"/>
<FE name="Time" coreType="Peripheral"/></frame>"""
WORDS = ("The", "sailor", "didn't", "sell", "Mary", "a", "boat", "today", ".")


@pytest.fixture
def corpus(tmp_path):
    """Return the folder of a corpus of FrameNet's form."""

    def write(text, frames=True):
        (tmp_path / "fulltext").mkdir(exist_ok=True)
        (tmp_path / "fulltext" / "doc.xml").write_text(text)
        if frames:
            (tmp_path / "frame").mkdir()
            (tmp_path / "frame" / "Commerce_sell.xml").write_text(FRAME)
        return tmp_path

    return write


@pytest.mark.parametrize("where", ["", "fulltext", "fulltext/doc.xml"])
def test_links_of_a_predicate_to_every_word_of_its_core_arguments(corpus, where):
    found = framenet_sentences(corpus(FULL_TEXT) / where)  # the second sentence is too long
    assert found == [FrameSentence(WORDS, ((3, 0), (3, 1), (3, 5), (3, 6)), "doc")]


def test_all_arguments_where_the_frames_are_not_there(corpus):
    (found,) = framenet_sentences(corpus(FULL_TEXT, frames=False))
    assert found.links == ((3, 0), (3, 1), (3, 5), (3, 6), (3, 7))


def test_words_are_those_of_their_layer_and_no_argument_is_a_word_of_its_predicate(corpus):
    label = '<label start="{}" end="{}"/>'
    layer = "".join(label.format(*ends) for ends in ((0, 9), (11, 21), (23, 39)))
    (found,) = framenet_sentences(corpus(FULL_TEXT.replace("WORDS", layer)))
    assert found.words == ("The sailor", "didn't sell", "Mary a boat today")
    assert found.links == ((1, 0), (1, 2))
    overlapping = FULL_TEXT.replace('start="0" end="9"', 'start="11" end="26"')
    (found,) = framenet_sentences(corpus(overlapping, frames=False))
    assert (3, 2) in found.links and (3, 4) in found.links and (3, 3) not in found.links


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"1.0"?>', '"1.0"?><!DOCTYPE x [<!ENTITY a "b">]>', "doc.xml: declares a document type"),
        ("fullTextAnnotation", "corpus", "the XML is <corpus>, expected <fullTextAnnotation>"),
        ("</sentence>", "", "doc.xml:12: malformed XML"),
        ('end="21"', 'end="99"', "a label from '18' to '99' is not inside its text"),
        ('start="0"', 'start="x"', "a label from 'x' to '9' is not inside its text"),
        ('name="Target"', 'name="X"', "no sentence with a link and at most 12 words among 2"),
    ],
)
def test_what_is_wrong_is_named(corpus, old, new, message):
    with pytest.raises(CorpusError) as raised:
        framenet_sentences(corpus(FULL_TEXT.replace(old, new)))
    assert message in str(raised.value)


def test_no_such_folder(tmp_path):
    with pytest.raises(CorpusError, match="does not exist"):
        framenet_sentences(tmp_path / "none")
    with pytest.raises(CorpusError, match=r"holds no \*\.xml"):
        framenet_sentences(tmp_path)
