"""Choose what Figures 1 and 5 show: the head by its table, the sentence by its score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import NamedTuple

import numpy as np
import pandas as pd

from helpers.analysis.head_choice import (
    COREFERENCE,
    DIRECTIONS,
    Direction,
    answer,
    questions,
)
from helpers.analysis.heads import head_label, parse_head
from helpers.analysis.relations import paper_names
from helpers.analysis.surface import entropy, relative_position, token_types
from helpers.model.token_types import Roles, roles
from helpers.plots.examples import HeadPanel, PatternPanel, Place
from helpers.store.store import Example, Source, tokens_of
from helpers.viewer.view import Viewer, view

RELATIONS = ("dobj", "det", "pobj", "poss", "auxpass")  # of the paper's Figure 5
LONGEST = 16  # words of a sentence that is easy to read as two columns
SHORTEST = 8
LOOKED_AT = 400  # sentences to choose from

Score = Callable[[np.ndarray, Roles], np.ndarray]


def pattern_panels(store: Source, heads: pd.DataFrame) -> list[PatternPanel]:
    """Return the panels of Figure 1, a head for each pattern of section 3.

    ``heads`` has a row for each head with the columns entropy, previous, next, cls, sep and
    punctuation.  The head with the most of a pattern is shown on the short sentence where it has
    most of it.  A model that cannot look ahead is shown with the previous token for the next.
    """
    special = "sep" if heads["sep"].mean() >= heads["cls"].fillna(0).mean() else "cls"
    neighbour = "next" if heads["next"].max() > 0 else "previous"
    examples = list(_short_examples(store))
    patterns: dict[str, tuple[str, Score]] = {
        "broad": ("entropy", lambda maps, own: entropy(maps, own)["entropy"]),
        f"{neighbour} token": (neighbour, lambda maps, _: relative_position(maps)[neighbour]),
        f"{store.special_tokens.get(special)}": (
            special,
            lambda maps, own: token_types(maps, own)[special],
        ),
        "punctuation": ("punctuation", lambda maps, own: token_types(maps, own)["punctuation"]),
    }
    return [
        _pattern_panel(store, examples, name, heads.loc[heads[column].idxmax()], score)
        for name, (column, score) in patterns.items()
        if heads[column].max() > 0
    ]


def relation_panels(
    store: Source, table: pd.DataFrame, relations: Mapping[str, str], *, right: int = 2
) -> list[HeadPanel]:
    """Return the panels of Figure 5 for relations: two sentences where the head is right, one not.

    ``table`` is dependency_heads.csv; ``relations`` maps its names to the paper's.
    """
    examples = list(_short_examples(store))
    panels = []
    for row in table[table["relation"].isin(list(relations))].itertuples():
        title = f"{relations[row.relation]} · head {row.head} · {row.accuracy:.0f}%"
        found = [
            panel for example in examples for panel in _relation_panel(store, example, row, title)
        ]
        panels += _most_certain(found, right)
    return panels


def coreference_panels(store: Source, head: tuple[int, int], accuracy: float) -> list[HeadPanel]:
    """Return the panels of Figure 5 for coreference, the head words of the mentions alone."""
    title = f"coreference · head {head_label(*head)} · {accuracy:.0f}%"
    found = [panel for example in store for panel in _mention_panels(store, example, head, title)]
    return _most_certain(found, 2)


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
        found = {names[own]: heads[own] for own in names if names[own] in RELATIONS}
    if "coreference" in tables:
        own = tables["coreference"]["system"].str.extract(r"^head (\d+-\d+)$")[0].dropna()
        found["coreference"] = own.iloc[0]
    return found


def viewers(
    table: pd.DataFrame, treebank: Callable[[], Source], documents: Callable[[], Source]
) -> list[Viewer]:
    """Return a viewer of each row of :func:`places`, in the store that its example is from.

    ``treebank`` and ``documents`` give the two stores and are called where they are needed.
    """
    return [
        view(
            (documents if row.relation == COREFERENCE else treebank)(),
            int(row.example),
            layer=int(row.layer),
            head=int(row.head),
            relation=row.relation,
            direction=row.direction or DIRECTIONS[0],
            title=row.title,
        )
        for row in table.fillna("").itertuples()
    ]


def _short_examples(store: Source) -> Iterator[Example]:
    lengths = [len(record["words"]) for record in store.records()]
    short = [i for i, length in enumerate(lengths) if SHORTEST <= length <= LONGEST]
    for index in short[:LOOKED_AT]:
        yield store[index]


def _pattern_panel(
    store: Source, examples: Sequence[Example], name: str, head: pd.Series, score: Score
) -> PatternPanel:
    layer, number = int(head["layer"]) - 1, int(head["head"]) - 1

    def strength(example: Example) -> float:
        maps = example.attention[[[layer]], [[number]]].astype(np.float32)
        return float(score(maps, roles(tokens_of(store, example), store.special_tokens))[0, 0])

    best = max(examples, key=strength)
    weights = best.attention[layer, number].astype(np.float32)
    place = Place(best.index, layer + 1, number + 1)
    title = f"{head_label(layer, number)} · {name}"
    return PatternPanel(title, tokens_of(store, best), weights, place)


def _relation_panel(
    store: Source, example: Example, row: NamedTuple, title: str
) -> Iterator[HeadPanel]:
    layer, number = parse_head(row.head)
    own = example.word_positions
    weights = example.attention[layer, number].astype(np.float32)
    shown, special = _with_special(store, example, weights, list(range(own.start, own.stop)))
    place = {position: index for index, position in enumerate(shown)}
    tokens = tokens_of(store, example)
    for question in questions(example.record):
        if question.relation != row.relation:
            continue
        picked, right = answer(question, weights[own, own], row.direction)
        asked, gold = question.asked, question.gold[0]
        if right and picked != gold:
            asked, picked = question.mark, gold  # the possessor's 's has found the head
        asked, gold, picked = (place[word + example.offset] for word in (asked, gold, int(picked)))
        yield HeadPanel(
            title,
            [tokens[position] for position in shown],
            weights[np.ix_(shown, shown)],
            [_pair(asked, gold, row.direction)],
            [_pair(asked, picked, row.direction)],
            Place(example.index, layer + 1, number + 1, row.relation, row.direction),
            special,
        )


def _with_special(
    store: Source, example: Example, weights: np.ndarray, positions: list[int]
) -> tuple[list[int], dict[int, str]]:
    """Return positions with the special tokens that get most of one's attention, and their kinds.

    The second value has the kind (``cls``, ``sep``) of each special token by its index.
    """
    own = example.word_positions
    most = set(weights[positions].argmax(axis=1).tolist()) - set(range(own.start, own.stop))
    shown = sorted({*positions, *most})
    masks = roles(tokens_of(store, example), store.special_tokens).masks()
    return shown, {
        shown.index(position): next((k for k in ("cls", "sep") if masks[k][position]), "other")
        for position in most
    }


def _pair(dependent: int, head: int, direction: Direction) -> tuple[int, int]:
    """Return (attending, attended)."""
    return (dependent, head) if direction == DIRECTIONS[0] else (head, dependent)


def _mention_panels(
    store: Source, example: Example, head: tuple[int, int], title: str
) -> Iterator[HeadPanel]:
    record, own = example.record, example.word_positions
    weights = example.attention[head].astype(np.float32)
    mentions = sorted({mention[3] + example.offset for mention in record["mentions"]})
    tokens = tokens_of(store, example)
    for question in questions(record):
        picked, _ = answer(question, weights[own, own], DIRECTIONS[0])
        asked, choice = question.asked + example.offset, int(picked) + example.offset
        # Documents are too long to draw: show the last mentions up to the one in question.
        last = [place for place in mentions if place <= asked][-LONGEST:]
        gold = [place + example.offset for place in question.gold]
        if choice not in last or len(last) < SHORTEST or not set(gold) & set(last):
            continue
        shown, special = _with_special(store, example, weights, last)
        index = {position: place for place, position in enumerate(shown)}
        yield HeadPanel(
            title,
            [tokens[position] for position in shown],
            weights[np.ix_(shown, shown)],
            [(index[asked], index[place]) for place in gold if place in last],
            [(index[asked], index[choice])],
            Place(example.index, head[0] + 1, head[1] + 1, COREFERENCE),
            special,
        )


def _most_certain(panels: Sequence[HeadPanel], right: int) -> list[HeadPanel]:
    """Return the clearest right ones, no sentence twice, and the clearest wrong one.

    Pairs of neighbours come last: what a fixed offset finds too shows little of the head.
    """

    def rank(panel: HeadPanel) -> tuple[bool, float]:
        attending, attended = panel.gold[-1]
        return abs(attending - attended) == 1, -panel.weights[panel.picked[0]]

    ranked = sorted(panels, key=rank)
    chosen: list[HeadPanel] = []
    for panel in [panel for panel in ranked if panel.correct]:
        if len(chosen) < right and all(panel.words != other.words for other in chosen):
            chosen.append(panel)
    return chosen + [panel for panel in ranked if not panel.correct][:1]
