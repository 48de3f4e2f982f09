"""Links of trees and of FrameNet, their weights, and random pairs to compare with."""

import numpy as np
import pytest

from helpers.errors import CorpusError, InputError
from helpers.studies.kovaleva2019.links import (
    FrameSentence,
    dependency_links,
    framenet_sentences,
    free_pairs,
    link_table,
    link_weights,
)


def uniform(words, layers=1, heads=2):
    return np.full((layers, heads, words, words), 1 / words)


def test_dependency_links_join_verbs_and_arguments():
    relations = ["nsubj", "root", "det", "obj", "obl:agent", "nsubj:pass", "amod", "dative"]
    heads = [2, 0, 4, 2, 2, 2, 4, 2]
    assert dependency_links(heads, relations) == [(1, 0), (1, 3), (1, 4), (1, 5), (1, 7)]


def test_link_weights_are_the_largest_in_either_direction():
    attention = np.zeros((1, 2, 4, 4))
    attention[0, 0, 0, 2] = 0.3  # along a link
    attention[0, 0, 3, 1] = 0.6  # against the direction of a link
    attention[0, 1, 0, 3] = 0.9  # not on a link
    assert link_weights(attention, [(0, 2), (1, 3)]).tolist() == [[0.6, 0.0]]


def test_free_pairs_have_the_distance_of_their_link():
    pairs = free_pairs([(1, 3), (5, 1), (4, 6)], 8)
    assert pairs[0] == pairs[2] == [(0, 2), (2, 4), (3, 5), (5, 7)]
    assert pairs[1] == [(0, 4), (2, 6), (3, 7)]
    assert free_pairs([(0, 2)], 3) == [[]]


def test_link_table_distinguishes_links_from_distances():
    """Head 1 attends along links, head 2 to all words at the same distance, head 3 uniformly."""
    sentences = []
    for start in range(6):
        attention = uniform(12, heads=3)
        attention[0, 0, start, start + 3] = 0.9
        for word in range(9):
            attention[0, 1, word, word + 3] = 0.9
        sentences.append((attention, [(start, start + 3)], f"article {start}"))
    table = link_table(sentences, seed=1).set_index("head")
    assert table.index.tolist() == [1, 2, 3]
    assert (table["sentences"] == 6).all()
    assert table["linked"].tolist() == pytest.approx([0.9, 0.9, 1 / 12])
    assert table["random"].tolist() == pytest.approx([1 / 12, 0.9, 1 / 12])
    assert table["difference"].tolist() == pytest.approx([0.9 - 1 / 12, 0, 0])
    assert table.loc[1, "p_holm"] < 0.1  # 1 in 64, for three heads
    assert (table.loc[[2, 3], "p_holm"] > 0.5).all()


def test_link_table_leaves_out_sentences_without_usable_links():
    only_neighbours = (uniform(5), [(1, 2)], "a")
    no_free_pair = (uniform(3), [(0, 2)], "a")
    usable = (uniform(5), [(0, 2)], "a")
    table = link_table([only_neighbours, usable, no_free_pair], seed=0)
    assert (table["sentences"] == 1).all()
    with pytest.raises(InputError, match="no sentence has a predicate"):
        link_table([only_neighbours, no_free_pair], seed=0)


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
    """Make a function that writes a corpus in FrameNet's format and returns its folder."""

    def write(text):
        full_text = tmp_path / "fulltext" / "doc.xml"
        frame = tmp_path / "frame" / "Commerce_sell.xml"
        for path, content in ((full_text, text), (frame, FRAME)):
            path.parent.mkdir()
            path.write_text(content)
        return tmp_path

    return write


CORE_LINKS = ((4, 0), (4, 1), (4, 6), (4, 7))


def test_framenet_sentences_link_predicates_to_words_of_core_arguments(corpus):
    folder = corpus(FULL_TEXT)  # the second sentence is too long
    assert framenet_sentences(folder) == [FrameSentence(WORDS, CORE_LINKS, "doc")]


def test_framenet_sentences_of_one_file_link_all_arguments(corpus):
    (sentence,) = framenet_sentences(corpus(FULL_TEXT) / "fulltext" / "doc.xml")
    assert sentence.links == (*CORE_LINKS, (4, 8))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fullTextAnnotation", "corpus", "doc.xml: the XML is <corpus>"),
        ("</sentence>", "", "malformed XML"),
        ('end="39"', 'end="99"', "doc.xml: a label is not inside its text"),
        ('start="0"', 'start="x"', "doc.xml: a label is not inside its text"),
        ('name="Target"', 'name="X"', "no sentence with a link and at most 12 words"),
    ],
)
def test_framenet_sentences_of_a_wrong_file_name_the_problem(corpus, old, new, message):
    with pytest.raises(CorpusError) as raised:
        framenet_sentences(corpus(FULL_TEXT.replace(old, new)))
    assert message in str(raised.value)
