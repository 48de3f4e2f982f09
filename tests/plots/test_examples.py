"""Figures 1 and 5 draw the sentences and pairs that the tables name, in the right colours."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from plot_checks import LONG_NAME, check_long_name, shown_texts, texts_outside
from viewer_stores import DOCUMENT, word_store

from helpers.data.visible import Visible
from helpers.metrics.head_counts import count_heads
from helpers.metrics.heads import DIRECTIONS
from helpers.metrics.surface import RELATIVE_POSITION
from helpers.plots import examples, style
from helpers.plots.examples import Link, Panel, coreference_panels, pattern_panels, relation_panels
from helpers.plots.style import RIGHT, TOKEN_COLORS, WRONG

TEXTS = {"model": "MiniLM, 6 layers of 12 heads", "lens": "attention"}

POSSESSIVE = {
    "words": ["old", "Ann", "'s", "red", "hat", "has", "a", "hole", "."],
    "heads": [2, 5, 2, 5, 6, 0, 8, 6, 6],
    "relations": ["amod", "poss", "case", "amod", "nsubj", "ROOT", "det", "dobj", "punct"],
    "split": "dev",
}
WORDS = ["[CLS]", "costs", "$", ".", "[SEP]"]
WORD_TYPES = ["cls", "other", "other", "punctuation", "sep"]
WEIGHTS = np.array([
    [0.0, 0.5, 0.0, 0.5, 0.0],
    [0.1, 0.2, 0.3, 0.4, 0.0],
    [0.0, 0.0, 1.0, 0.0, 0.0],
    [0.0, 0.0, 0.0, 0.0, 1.0],
    [0.2, 0.2, 0.2, 0.2, 0.2],
])  # fmt: skip


def best_head(relation, direction):
    """Make a row like those of dependency_heads.csv."""
    return {
        "relation": relation, "head": "1-1", "direction": direction, "accuracy": 90.0,
        "baseline": 50.0,
    }  # fmt: skip


def panel(title, links=(), **options):
    location = examples.MapLocation(0, 1, 2)
    return Panel(title, WORDS, WORD_TYPES, WEIGHTS, location, links=links, **options)


def fig1_of(*panels):
    return examples.fig1_examples(panels, **TEXTS)


def fig5_of(*panels):
    return examples.fig5_heads(panels, **TEXTS)


def test_fig1_examples_has_a_titled_axes_per_panel():
    figure = fig1_of(*[panel("Head 1-2: 70% to [SEP]")] * 5)
    assert [axes.get_title() for axes in figure.axes] == ["Head 1-2: 70% to [SEP]"] * 5
    assert not any(axes.lines for axes in figure.axes)


def test_fig1_examples_has_four_panels_in_two_rows():
    figure = fig1_of(*[panel("Head 1-2: 70% to [SEP]")] * 4)
    assert [axes.get_subplotspec().get_geometry()[:2] for axes in figure.axes] == [(2, 2)] * 4


@pytest.mark.parametrize("darkest_weight", [1.0, 0.4])
def test_fig1_examples_draws_lines_as_dark_as_the_weights(darkest_weight):
    drawn = replace(panel("Head 1-2: 70% to [SEP]"), darkness=WEIGHTS / darkest_weight)
    axes, *_ = fig1_of(drawn).axes
    (lines,) = axes.collections
    colors = {}
    for segment, color in zip(lines.get_segments(), lines.get_colors(), strict=True):
        (_, query), (_, key) = segment
        colors[int(query), int(key)] = color
    assert colors.keys() == {tuple(pair) for pair in np.argwhere(WEIGHTS > 0).tolist()}
    for (query, key), color in colors.items():
        assert color[3] == pytest.approx(min(1, WEIGHTS[query, key] / darkest_weight))
        assert to_hex(color).upper() == TOKEN_COLORS[WORD_TYPES[key]].upper()


def drawn_links(axes):
    """List the drawn links as (attending, attended, is dashed, colour, opacity)."""
    return [
        (*line.get_ydata(), line.is_dashed(), line.get_color(), line.get_alpha())
        for line in axes.lines
    ]


def test_fig5_heads_draws_all_links_of_a_success_as_dark_as_their_weights():
    right = panel("Head 2-3: ...", [Link(1, 3, "right"), Link(2, 2, "right")], special_share=0.25)
    axes, no_failure, _ = fig5_of(right).axes
    assert axes.get_title().strip().startswith("✓ 25%")
    assert drawn_links(axes) == [(1, 3, False, RIGHT, 0.4), (2, 2, False, RIGHT, 1.0)]
    assert [text.get_text() for text in axes.texts] == ["Head 2-3: ..."]
    assert [text.get_text() for text in no_failure.texts] == [
        "✗ none among the\nsentences looked at"
    ]


def test_fig5_heads_draws_the_choice_and_the_missed_link_of_a_failure():
    wrong = panel("Head 2-3: ...", [Link(1, 3, "wrong"), Link(1, 2, "missed")])
    no_success, axes, _ = fig5_of(wrong).axes
    assert "✓ none among the\nsentences looked at" in [text.get_text() for text in no_success.texts]
    assert axes.get_title().strip().startswith("✗")
    # The mark of the right answer is no weight.
    assert drawn_links(axes) == [(1, 3, False, WRONG, 0.4), (1, 2, True, WRONG, None)]
    colored = [text.get_text() for text in axes.get_yticklabels() if text.get_color() == WRONG]
    # The query on the left; the right answer and the choice on the right.
    assert colored == [WORDS[1], WORDS[2], WORDS[3]]


def test_fig5_heads_has_a_bar_for_the_head_and_each_rule():
    scores = {"head, held out": 73.0, "best fixed offset": 40.0, "nearest VERB on the left": 93.0}
    title = "Head 2-3: direct objects attend to their verbs, 73% (best fixed offset 40%)"
    figure = fig5_of(panel(title, [Link(1, 3, "right")], scores=scores))
    bars = figure.axes[2]
    assert [bar.get_width() for bar in bars.patches] == [100, 73, 100, 40, 100, 93]
    assert [text.get_text() for text in bars.texts] == [
        "head, held out: 73%", "best fixed offset: 40%", "nearest VERB on the left: 93%",
    ]  # fmt: skip
    finding = figure.texts[0].get_text().replace("\n", " ")
    assert "verbs, 73%; best fixed offset 40%, nearest VERB on the left 93%" in finding
    assert not texts_outside(figure)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_possessor_found_from_its_mark_is_right_as_in_the_table(direction):
    store = word_store(POSSESSIVE, layers=1, heads=1)
    example = store.examples[0]
    example.stored_attention[:] = 0
    example.stored_attention[0, 0, range(11), range(11)] = 1  # every word attends to itself but ...
    # Ann -> red and 's -> hat, or the reverse; positions count [CLS]
    edges = ((2, 4), (3, 5)) if direction == DIRECTIONS[0] else ((4, 2), (5, 3))
    for query, key in edges:
        example.stored_attention[0, 0, query, query] = 0
        example.stored_attention[0, 0, query, key] = 1
    counts = count_heads(store.examples)
    assert counts.accuracy("poss")[DIRECTIONS.index(direction)].item() == 100
    (drawn,) = relation_panels(
        store, pd.DataFrame([best_head("poss", direction)]), {"poss": "poss"}, english=True
    )
    assert drawn.correct
    assert drawn.links == [Link(*((2, 4) if direction == DIRECTIONS[0] else (4, 2)), "right")]
    assert drawn.special_share == pytest.approx(0)


@pytest.mark.parametrize(
    ("relation", "word", "n_panels"),
    [("det", "a", 1), ("det", "hole", 0), ("dobj", "hole", 1), ("dobj", "hat", 0)],
)
def test_relation_panels_leave_out_annotation_that_is_certainly_wrong(relation, word, n_panels):
    """A noun is no determiner, and English objects follow their verbs."""
    words = POSSESSIVE["words"]
    relations = ["dep"] * len(words)
    relations[words.index(word)] = relation
    store = word_store({**POSSESSIVE, "relations": relations}, layers=1, heads=1)
    table = pd.DataFrame([best_head(relation, DIRECTIONS[0])])
    assert len(relation_panels(store, table, {relation: relation}, english=True)) == n_panels


@pytest.mark.parametrize(("tag", "n_panels"), [("VERB", 1), ("AUX", 1), ("ADJ", 0), (None, 1)])
def test_relation_panels_have_objects_of_verbs_only(tag, n_panels):
    """In "Not religious himself, he insisted", a parser calls himself an object of religious."""
    words = POSSESSIVE["words"]
    relations = ["dep"] * len(words)
    relations[words.index("hole")] = "dobj"
    tags = ["X"] * len(words)
    tags[words.index("has")] = tag
    store = word_store({**POSSESSIVE, "relations": relations, "tags": tags}, layers=1, heads=1)
    table = pd.DataFrame([best_head("dobj", DIRECTIONS[0])])
    assert len(relation_panels(store, table, {"dobj": "dobj"}, english=True)) == n_panels


def test_relation_panels_have_all_links_of_a_sentence_and_the_attention_to_special_tokens():
    store = word_store(POSSESSIVE, layers=1, heads=1)
    example = store.examples[0]
    example.stored_attention[:] = 0
    example.stored_attention[..., 0] = 1  # to [CLS], except ...
    for query, key, weight in ((1, 2, 0.5), (4, 5, 0.75)):  # ... old -> Ann and red -> hat
        example.stored_attention[0, 0, query, [0, key]] = (1 - weight, weight)
    table = pd.DataFrame([best_head("amod", DIRECTIONS[0])])
    (drawn,) = relation_panels(store, table, {"amod": "poss"}, english=True)
    assert drawn.links == [Link(0, 1, "right"), Link(3, 4, "right")]
    assert drawn.special_share == pytest.approx(0.375)


def test_panels_have_no_negative_share_of_special_tokens():
    """Rounded weights may sum to a little more than one."""
    store = word_store(POSSESSIVE, layers=1, heads=1)
    example = store.examples[0]
    example.stored_attention[:] = 0
    example.stored_attention[..., 2] = 1.001
    table = pd.DataFrame([best_head("amod", DIRECTIONS[0])])
    (drawn,) = relation_panels(store, table, {"amod": "poss"}, english=True)
    assert f"{drawn.special_share:.0%}" == "0%"


def test_relation_panels_of_a_causal_model_have_the_links_that_can_be_seen():
    """A decoder's adjectives see neither of "old Ann" and "red hat", its nouns both."""
    store = word_store(POSSESSIVE, layers=1, heads=1)
    causal = [Visible(causal=True, window=None)]
    maps = np.tril(store.examples[0].attention)
    maps = maps / maps.sum(axis=-1, keepdims=True)
    store.examples[0] = replace(store.examples[0], stored_attention=maps, visible=causal)
    n_links = []
    for direction in DIRECTIONS:
        table = pd.DataFrame([best_head("amod", direction)])
        panels = relation_panels(store, table, {"amod": "poss"}, english=True)
        n_links.append(sum(len(panel.links) > 0 for panel in panels))
    assert n_links == [0, 1]


def test_pattern_panels_draw_the_first_token_of_a_model_without_special_ones():
    store = word_store(POSSESSIVE, layers=1, heads=1)
    patterns = ("entropy", "uniform", *RELATIVE_POSITION, "punctuation")
    heads = pd.DataFrame([{"layer": 1, "head": 1, **dict.fromkeys(patterns, 0.1)}])
    panels = pattern_panels(store, heads.assign(cls=np.nan, sep=np.nan, first=0.7))
    (drawn,) = [panel for panel in panels if "first token" in panel.title]
    assert drawn.title == "Head 1-1: 70% to the first token"
    assert drawn.word_types[0] == "first"


def test_pattern_panels_choose_the_broadest_head_of_what_its_layer_sees():
    store = word_store(POSSESSIVE, layers=2, heads=1)
    patterns = dict.fromkeys((*RELATIVE_POSITION, "cls", "sep", "punctuation"), 0.1)
    heads = pd.DataFrame({"layer": [1, 2], "head": 1, "entropy": [3.0, 2.4], "uniform": [4.5, 2.5]})
    panels = pattern_panels(store, heads.assign(**patterns))
    assert panels[0].title == "Head 2-1: broad, 2.4 of 2.5 nats"


@pytest.mark.parametrize("causal", [False, True])
def test_pattern_panels_name_the_closest_head_and_skip_what_a_causal_model_cannot_do(causal):
    store = word_store(POSSESSIVE, layers=1, heads=2)
    if causal:
        maps = np.tril(store.examples[0].attention)
        store.examples[0].stored_attention[:] = maps / maps.sum(axis=-1, keepdims=True)
    heads = pd.DataFrame({
        "layer": 1, "head": [1, 2], "entropy": [2.0, 1.0], "previous": [0.1, 0.6],
        "next": [0.0, 0.0] if causal else [0.1, 0.4], "cls": [0.5, 0.1], "sep": np.nan,
        "punctuation": [0.0, 0.0], "current": 0.0, "uniform": 2.2,
    })  # fmt: skip
    chosen = [
        (panel.location.head, "closest" in panel.title) for panel in pattern_panels(store, heads)
    ]
    closest_next = [] if causal else [(2, True)]
    # Broad, previous, next, [CLS]; of punctuation there is nothing to show.
    assert chosen == [(1, False), (2, False), *closest_next, (1, True)]


@pytest.fixture
def store_of_ann():
    """Make a store of one document in which every word attends to its first word, Ann."""
    store = word_store(DOCUMENT, layers=1, heads=1)
    store.examples[0].stored_attention[:] = 0
    store.examples[0].stored_attention[..., 1] = 1
    return store


def test_coreference_panels_draw_all_sentences_that_fit(store_of_ann):
    (drawn,) = coreference_panels(store_of_ann, (0, 0), 50.0)
    assert drawn.words == DOCUMENT["words"]
    assert drawn.links[:3] == [Link(4, 0, "right"), Link(8, 0, "wrong"), Link(8, 2, "missed")]


def test_coreference_panels_need_the_antecedent_in_the_sentences_that_fit(
    store_of_ann, monkeypatch
):
    monkeypatch.setattr(examples, "MAX_WORDS", 8)  # only the second sentence fits
    assert coreference_panels(store_of_ann, (0, 0), 50.0) == []


def repeated(record, times):
    return {name: value * times for name, value in record.items() if name != "split"}


@pytest.mark.parametrize("times", [1, 3])  # 9 and 27 words, next to a sentence of 36
def test_pattern_panels_draw_the_sentence_closest_to_an_easy_length(times):
    longer = repeated(POSSESSIVE, 4)
    closest = repeated(POSSESSIVE, times)
    store = word_store(longer, closest, layers=1, heads=1)
    patterns = ("entropy", "uniform", *RELATIVE_POSITION, "cls", "sep", "punctuation")
    heads = pd.DataFrame([{"layer": 1, "head": 1, **dict.fromkeys(patterns, 0.1)}])
    panels = pattern_panels(store, heads)
    assert panels
    assert {panel.location.example for panel in panels} == {1}


LISTED = {
    "words": [
        "However",
        ",",
        "one",
        "classic",
        "scholar",
        "offers",
        "an",
        "alternative",
        "interpretation",
        ".",
    ],
    "heads": [6, 6, 5, 5, 6, 0, 9, 9, 6, 6],
    "relations": [
        "advmod",
        "punct",
        "nummod",
        "amod",
        "nsubj",
        "ROOT",
        "det",
        "amod",
        "dobj",
        "punct",
    ],
    "split": "dev",
}


def test_relation_panels_take_hand_checked_sentences_if_the_treebank_has_them():
    store = word_store(POSSESSIVE, LISTED, layers=1, heads=1)
    table = pd.DataFrame([best_head("dobj", DIRECTIONS[0])])
    panels = relation_panels(store, table, {"dobj": "dobj"}, english=True)
    assert [(drawn.location.example, drawn.chosen) for drawn in panels] == [(1, "hand-checked")]
    assert "hand-checked parses" in examples.describe_choice(panels)
    other_text = word_store(POSSESSIVE, layers=1, heads=1)
    panels = relation_panels(other_text, table, {"dobj": "dobj"}, english=True)
    assert {drawn.chosen for drawn in panels} == {"by rule"}
    assert "by rule" in examples.describe_choice(panels)


def test_hand_checked_sentences_fit_into_a_panel_and_are_listed_once():
    for relation, sentences in examples.checked_sentences().items():
        assert len(set(sentences)) == len(sentences), relation
        for sentence in sentences:
            words = sentence.split()
            assert examples.MIN_WORDS <= len(words) <= examples.MAX_WORDS, sentence
            assert max(map(len, words)) <= examples.MAX_CHARACTERS, sentence


def test_relation_panels_have_held_out_accuracies_and_three_relations_in_a_fixed_order():
    names = ["poss", "pobj", "amod", "det", "dobj"]
    held_out = pd.DataFrame([best_head(name, DIRECTIONS[0]) for name in names])
    held_out = held_out.assign(
        dev_accuracy=70.0, nearest_class="NOUN", nearest_side="left", nearest_accuracy=90.0
    )
    relations = ["nsubj", "pobj", "pobj", "poss", "det", "ROOT", "det", "dobj", "punct"]
    store = word_store({**POSSESSIVE, "relations": relations}, layers=1, heads=1)
    mapping = {name: name for name in names if name != "amod"}
    panels = relation_panels(store, held_out, mapping, english=False, held_out=held_out)
    drawn = list(dict.fromkeys(drawn.location.relation for drawn in panels))
    assert drawn == ["dobj", "det", "pobj"]
    expected = {"head, held out": 70, "best fixed offset": 50, "nearest NOUN on the left": 90}
    assert all(drawn.scores == expected for drawn in panels)


def test_relation_panels_leave_out_a_compound_between_a_possessor_and_its_noun():
    """In "keeps their skin moist", the parser may take "skin moist" for a compound."""
    relations = ["amod", "poss", "case", "compound", *POSSESSIVE["relations"][4:]]
    store = word_store({**POSSESSIVE, "relations": relations}, layers=1, heads=1)
    table = pd.DataFrame([best_head("poss", DIRECTIONS[0])])
    assert relation_panels(store, table, {"poss": "poss"}, english=True) == []


@pytest.mark.parametrize("word", ["costs", "anthropologists"])
@pytest.mark.parametrize("in_column", [False, True])
def test_panels_fit_into_the_figure_and_do_not_overlap(word, in_column):
    words = ["[CLS]", word, "$", ".", "[SEP]"]
    title = "Head 2-3: 70% to the previous token\n(the closest; the paper counts from 60%)"
    drawn = replace(panel(title), words=words)
    figure = fig1_of(drawn, drawn, drawn)
    if in_column:
        figure = figure.draw_for_column()
    check_words(figure)


@pytest.mark.parametrize("word", ["costs", "counterrevolutionaries"])
def test_fig5_heads_fit_into_the_figure_and_do_not_overlap(word):
    words = ["[CLS]", word, "$", ".", "[SEP]"]
    title = "Head 2-3: possessive pronouns and 's attend to what is possessed, 73%"
    right = replace(panel(title, [Link(0, 3, "right"), Link(4, 1, "right")]), words=words)
    wrong = replace(panel(title, [Link(2, 1, "wrong"), Link(2, 3, "missed")]), words=words)
    check_words(fig5_of(right, right, wrong))


def check_words(figure):
    """Check that the words of panels are in the figure and do not overlap."""
    assert not texts_outside(figure)
    boxes = []
    for axes in figure.axes:
        if axes.axison:  # bars have no words
            boxes += [label.get_window_extent() for label in axes.get_yticklabels()]
    assert boxes
    for box in boxes:
        assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 + 1
        assert sum(box.overlaps(neighbour) for neighbour in boxes) == 1  # with itself


def column_of(*panels):
    return fig5_of(*panels).draw_for_column()


def head_pair(number, length, scores=None):
    """Make a success and a failure of a head, with a word of so many letters."""
    words = ["[CLS]", "w" * length, "$", ".", "[SEP]"]
    drawn = panel(f"Head 1-{number}: ..., 50% (best fixed offset 40%)", scores=scores or {})
    drawn = replace(drawn, words=words)
    right = replace(drawn, links=[Link(2, 3, "right")])
    wrong = replace(drawn, links=[Link(2, 1, "wrong"), Link(2, 3, "missed")])
    return [right, wrong]


def test_fig5_for_a_column_has_a_success_and_a_failure_of_two_heads_with_short_words():
    pairs = [*head_pair(1, 15), *head_pair(2, 9), *head_pair(3, 3), *head_pair(4, 4)]
    figure = column_of(*pairs)
    assert [axes.get_title().strip()[0] for axes in figure.axes] == ["✓", "✗"] * 2
    headings = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert [heading.split(":")[0] for heading in headings if heading] == ["Head 1-2", "Head 1-3"]


def test_fig5_for_a_column_gives_the_accuracies_in_words():
    scores = {"head, held out": 50.0, "best fixed offset": 40.0}
    figure = column_of(*head_pair(1, 4, scores))
    texts = " ".join(text.get_text() for text in shown_texts(figure)).replace("\n", " ")
    assert "head, held out 50%, best fixed offset 40%" in texts


@pytest.mark.parametrize("length", [4, examples.MAX_CHARACTERS])
def test_fig5_fits_into_a_column_of_six_inches(length):
    words = ["w" * length] * examples.MAX_WORDS
    n_words = len(words)
    scores = {"head, held out": 73, "best fixed offset": 40, "nearest NOUN on the right": 74}
    panels = []
    for number in range(4):
        title = (
            f"Head 2-{number}: possessive pronouns and 's attend to what is possessed, 73% (40%)"
        )
        right = Panel(
            title, words, ["other"] * n_words, np.eye(n_words), examples.MapLocation(0, 1, 2),
            links=[Link(0, 3, "right")], scores=scores,
        )  # fmt: skip
        panels += [right, replace(right, links=[Link(0, 3, "wrong")])]
    figure = column_of(*panels)
    assert figure.get_figwidth() == style.COLUMN_WIDTH
    assert figure.get_figheight() <= 6
    check_words(figure)
    sizes = {text.get_fontsize() for text in shown_texts(figure)}
    assert sizes == {style.COLUMN_TYPE}


def test_words_without_a_font_give_one_warning_for_a_figure(monkeypatch):
    monkeypatch.setattr(style, "INSTALLED_FONTS", style.FONTS[:1])
    foreign = replace(panel("Head 1-2: 70% to [SEP]"), words=["猫", "は", "$", ".", "[SEP]"])
    with pytest.warns(UserWarning) as caught:
        figure = fig1_of(foreign, foreign)
        figure.draw_without_rendering()
    assert len(caught) == 1


def test_a_long_name_of_a_model_stays_on_the_page():
    right = panel("Head 2-3: 70%", [Link(0, 3, "right")])
    for draw in (examples.fig1_examples, examples.fig5_heads):
        check_long_name(draw([right], model=LONG_NAME, lens="norm"))
