"""Choose what Figures 1 and 5 show: the head by its table, the sentence by its score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields

import numpy as np
import pandas as pd

from helpers.analysis.heads import (
    COREFERENCE,
    DIRECTIONS,
    Question,
    answer,
    head_label,
    parse_head,
    questions,
)
from helpers.analysis.paper import FIGURE_5, paper_names
from helpers.analysis.surface import entropy, relative_position, token_types
from helpers.model.tokens import roles
from helpers.plots.examples import HeadPanel, PatternPanel, Place
from helpers.store.store import Example, Store, tokens_of

LONGEST = 16  # words of a sentence that is easy to read as two columns
SHORTEST = 8
LOOKED_AT = 400  # sentences to choose from


def pattern_panels(store: Store, heads: pd.DataFrame) -> list[PatternPanel]:
    """Return the panels of Figure 1, a head for each pattern of section 3.

    ``heads`` has a row for each head with the columns entropy, previous, next, cls, sep and
    punctuation.  The head with the most of a pattern is shown on the short sentence where it has
    most of it.  A model that cannot look ahead is shown with the previous token for the next.
    """
    special = "sep" if heads["sep"].mean() >= heads["cls"].fillna(0).mean() else "cls"
    neighbour = "next" if heads["next"].max() > 0 else "previous"
    examples = list(_short_examples(store))
    patterns = {
        "broad": "entropy",
        f"{neighbour} token": neighbour,
        str(store.special_tokens.get(special)): special,
        "punctuation": "punctuation",
    }
    return [
        _pattern_panel(store, examples, name, heads.loc[heads[column].idxmax()], column)
        for name, column in patterns.items()
        if heads[column].max() > 0
    ]


def relation_panels(
    store: Store, table: pd.DataFrame, relations: Mapping[str, str]
) -> list[HeadPanel]:
    """Return the panels of Figure 5 for relations: two sentences where the head is right, one not.

    ``table`` is dependency_heads.csv; ``relations`` maps its names to the paper's.
    """
    examples = list(_short_examples(store))
    panels = []
    for row in table[table["relation"].isin(list(relations))].itertuples():
        title = f"{relations[row.relation]} · head {row.head} · {row.accuracy:.0f}%"
        asked = (parse_head(row.head), row.relation, row.direction, title)
        panels += _most_certain([p for each in examples for p in _panels(store, each, *asked)])
    return panels


def coreference_panels(store: Store, head: tuple[int, int], accuracy: float) -> list[HeadPanel]:
    """Return the panels of Figure 5 for coreference, the head words of the mentions alone."""
    asked = (head, COREFERENCE, "", f"coreference · head {head_label(*head)} · {accuracy:.0f}%")
    return _most_certain([panel for each in store for panel in _panels(store, each, *asked)])


def places(panels: Sequence[PatternPanel | HeadPanel]) -> pd.DataFrame:
    """Return where each panel of a figure is from: title, example, layer, head (from 1) ..."""
    rows = [{"title": panel.title} | asdict(panel.place) for panel in panels]
    return pd.DataFrame(rows, columns=["title", *(field.name for field in fields(Place))])


def best_heads(tables: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Return the best head of each relation of Figure 5 and of coreference, where computed."""
    found = {}
    if "dependency_heads" in tables:
        heads = tables["dependency_heads"].set_index("relation")["head"]
        names = paper_names(heads.index)
        found = {names[own]: heads[own] for own in names if names[own] in FIGURE_5}
    if "coreference" in tables:
        own = tables["coreference"].set_index("system")["head"]
        found["coreference"] = own.loc[["head"]].iloc[0]
    return found


def _short_examples(store: Store) -> Iterator[Example]:
    """Yield sentences that are easy to read, or else those nearest to that in length."""
    lengths = [len(record["words"]) for record in store.records()]
    far = [max(SHORTEST - length, length - LONGEST, 0) for length in lengths]
    short = [i for i, words in enumerate(far) if words == min(far)]
    for index in short[:LOOKED_AT]:
        yield store[index]


def _pattern_panel(
    store: Store, examples: Sequence[Example], name: str, head: pd.Series, column: str
) -> PatternPanel:
    layer, number = int(head["layer"]) - 1, int(head["head"]) - 1

    def strength(example: Example) -> float:
        maps = example.attention[[[layer]], [[number]]].astype(np.float32)
        own = roles(tokens_of(store, example), store.special_tokens)
        measures = entropy(maps, own) | relative_position(maps) | token_types(maps, own)
        return float(measures[column][0, 0])

    best = max(examples, key=strength)
    weights = best.attention[layer, number].astype(np.float32)
    place = Place(best.index, layer + 1, number + 1)
    title = f"{head_label(layer, number)} · {name}"
    return PatternPanel(title, tokens_of(store, best), weights, place)


def _panels(
    store: Store,
    example: Example,
    head: tuple[int, int],
    relation: str,
    direction: str,
    title: str,
) -> Iterator[HeadPanel]:
    """Yield a panel for each time that an example asks a head about a relation."""
    own = example.word_positions
    weights = example.attention[head].astype(np.float32)
    place = Place(example.index, head[0] + 1, head[1] + 1, relation, direction)
    for question in questions(example.record):
        if question.relation != relation:
            continue
        words = _words_to_show(example, question)
        gold = [word for word in question.gold if word in words]
        picked, right = answer(question, weights[own, own], direction or DIRECTIONS[0])
        asked = question.asked
        if right and picked not in question.gold:
            asked, picked = question.mark, gold[0]  # the possessor's 's has found the head
        if not gold or picked not in words:
            continue
        pairs = [(asked, word) for word in (*gold, int(picked))]
        if direction == DIRECTIONS[1]:
            pairs = [(attended, attending) for attending, attended in pairs]
        yield _head_panel(store, example, weights, words, pairs[:-1], pairs[-1], title, place)


def _words_to_show(example: Example, question: Question) -> Sequence[int]:
    """Return a sentence's words, or the last mentions of a document, which is too long to draw."""
    if question.relation != COREFERENCE:
        return range(len(example.record["words"]))
    mentions = sorted({mention[3] for mention in example.record["mentions"]})
    last = [word for word in mentions if word <= question.asked][-LONGEST:]
    return last if len(last) >= SHORTEST else []


def _head_panel(
    store: Store,
    example: Example,
    weights: np.ndarray,
    words: Sequence[int],
    gold: Sequence[tuple[int, int]],
    picked: tuple[int, int],
    title: str,
    place: Place,
) -> HeadPanel:
    """Return a panel of ``words``, with the special tokens that get most of one's attention."""
    own, tokens = example.word_positions, tokens_of(store, example)
    positions = [word + own.start for word in words]
    most = set(weights[positions].argmax(axis=1).tolist()) - set(range(own.start, own.stop))
    shown = sorted({*positions, *most})
    kinds = roles(tokens, store.special_tokens).kinds()
    index = {position - own.start: at for at, position in enumerate(shown)}
    return HeadPanel(
        title,
        [tokens[position] for position in shown],
        weights[np.ix_(shown, shown)],
        [(index[attending], index[attended]) for attending, attended in gold],
        [(index[picked[0]], index[picked[1]])],
        place,
        {shown.index(position): kinds[position] for position in most},
    )


def _most_certain(panels: Sequence[HeadPanel]) -> list[HeadPanel]:
    """Return the two clearest right ones, no sentence twice, and the clearest wrong one.

    Pairs of neighbours come last: what a fixed offset finds too shows little of the head.
    """

    def rank(panel: HeadPanel) -> tuple[bool, float]:
        attending, attended = panel.gold[-1]
        return abs(attending - attended) == 1, -panel.weights[panel.picked[0]]

    ranked = sorted(panels, key=rank)
    chosen: list[HeadPanel] = []
    for panel in [panel for panel in ranked if panel.correct]:
        if len(chosen) < 2 and all(panel.words != other.words for other in chosen):
            chosen.append(panel)
    return chosen + [panel for panel in ranked if not panel.correct][:1]
