"""Links of trees and of FrameNet, their weights by hand, and random pairs to compare with."""

import numpy as np
import pytest

from helpers.errors import CorpusError, InputError
from helpers.studies.dark_secrets.links import (
    FrameSentence,
    dependency_links,
    framenet_sentences,
    free_pairs,
    link_table,
    link_weights,
)


def uniform(words, layers=1, heads=2):
    return np.full((layers, heads, words, words), 1 / words)


def test_links_their_weights_and_pairs_to_compare_with_by_hand():
    relations = ["nsubj", "root", "det", "obj", "obl:agent", "nsubj:pass", "amod", "dative"]
    heads = [2, 0, 4, 2, 2, 2, 4, 2]
    assert dependency_links(heads, relations) == [(1, 0), (1, 3), (1, 4), (1, 5), (1, 7)]
    attention = np.zeros((1, 2, 4, 4))
    attention[0, 0, 0, 2], attention[0, 0, 3, 1] = 0.3, 0.6  # the second against its direction
    attention[0, 1, 0, 3] = 0.9  # not a link
    assert link_weights(attention, [(0, 2), (1, 3)]).tolist() == [[0.6, 0.0]]
    free = free_pairs([(1, 3), (5, 1), (4, 6)], 8)
    assert free[0] == free[2] == [(0, 2), (2, 4), (3, 5), (5, 7)]
    assert free[1] == [(0, 4), (2, 6), (3, 7)]
    assert free_pairs([(0, 2)], 3) == [[]]


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
    assert (table["sentences"] == 6).all() and table["head"].tolist() == [1, 2, 3]
    assert table["linked"].round(6).tolist() == [0.9, 0.9, round(1 / 12, 6)]
    assert table["random"].round(6).tolist() == [round(1 / 12, 6), 0.9, round(1 / 12, 6)]
    assert table["difference"][0] > 0.8 and np.allclose(table["difference"][1:], 0)
    assert table["p_holm"][0] < 0.1 and (table["p_holm"][1:] > 0.5).all()  # 1 in 64, of three heads


def test_sentences_that_say_nothing_are_left_out():
    neighbours, no_pair = (uniform(5), [(1, 2)], "a"), (uniform(3), [(0, 2)], "a")
    with pytest.raises(InputError, match="no sentence has a predicate"):
        link_table([neighbours, no_pair], seed=0)
    table = link_table([neighbours, (uniform(5), [(0, 2)], "a"), no_pair], seed=0)
    assert (table["sentences"] == 1).all()


# FrameNet

FULL_TEXT = """<?xml version="1.0"?>
<fullTextAnnotation xmlns="http://framenet.icsi.berkeley.edu"><header/>
<sentence ID="7"><text>The sailor didn't sell Mary a boat today.</text>
 <annotationSet status="UNANN"><layer name="PENN">WORDS</layer></annotationSet>
 <annotationSet frameName="Commerce_sell">
  <layer name="Target"><label name="Target" start="18" end="21"/></layer>
  <layer name="FE"><label name="Seller" start="0" end="9"/><label name="Goods" start="28" end="33"/>
   <label name="Time" start="35" end="39"/><label name="Money" itype="INI"/></layer>
  <layer name="GF"><label name="Dep" start="23" end="26"/></layer>
 </annotationSet></sentence>
<sentence ID="8"><text>LONG</text></sentence>
</fullTextAnnotation>"""
FRAME = """<frame xmlns="http://framenet.icsi.berkeley.edu" name="Commerce_sell">
<FE name="Seller" coreType="Core"/><FE name="Goods" coreType="Core-Unexpressed"/>
<FE name="Time" coreType="Peripheral"/></frame>"""
WORDS = ("The", "sailor", "did", "n't", "sell", "Mary", "a", "boat", "today", ".")
ENDS = ((0, 2), (4, 9), (11, 13), (14, 16), (18, 21), (23, 26), (28, 28), (30, 33), (35, 39),
        (40, 40))  # fmt: skip


def labels(ends):
    return "".join(f'<label start="{start}" end="{end}"/>' for start, end in ends)


LONG_SENTENCE = f"""{"x " * 13}</text><annotationSet frameName="Commerce_sell"><layer name="PENN">
{labels((n, n) for n in range(0, 26, 2))}</layer><layer name="Target">{labels([(0, 0)])}</layer>
<layer name="FE"><label name="Seller" start="4" end="4"/></layer></annotationSet><text>"""
FULL_TEXT = FULL_TEXT.replace("WORDS", labels(ENDS)).replace("LONG", LONG_SENTENCE)


@pytest.fixture
def corpus(tmp_path):
    """Return the folder of a corpus of FrameNet's form."""

    def write(text):
        for name, content in (("fulltext/doc.xml", text), ("frame/Commerce_sell.xml", FRAME)):
            (tmp_path / name).parent.mkdir()
            (tmp_path / name).write_text(content)
        return tmp_path

    return write


def test_links_of_a_predicate_to_every_word_of_its_core_arguments(corpus):
    folder = corpus(FULL_TEXT)  # the second sentence is too long
    links = ((4, 0), (4, 1), (4, 6), (4, 7))
    assert framenet_sentences(folder) == [FrameSentence(WORDS, links, "doc")]
    (found,) = framenet_sentences(folder / "fulltext/doc.xml")  # no frames: all arguments
    assert found.links == (*links, (4, 8))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fullTextAnnotation", "corpus", "the XML is <corpus>, expected <fullTextAnnotation>"),
        ("</sentence>", "", "malformed XML"),
        ('end="39"', 'end="99"', "doc.xml: a label is not inside its text"),
        ('start="0"', 'start="x"', "doc.xml: a label is not inside its text"),
        ('name="Target"', 'name="X"', "no sentence with a link and at most 12 words"),
    ],
)
def test_what_is_wrong_is_named(corpus, old, new, message):
    with pytest.raises(CorpusError) as raised:
        framenet_sentences(corpus(FULL_TEXT.replace(old, new)))
    assert message in str(raised.value)
