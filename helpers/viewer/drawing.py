"""Draw a view as SVG without a browser, in the form in which the viewer draws it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from helpers.metrics.heads import DIRECTIONS, head_labels
from helpers.plots.style import INK, MUTED, RIGHT, TOKEN_COLORS, WRONG
from helpers.viewer import page

FAINTEST = 0.004  # a lighter line cannot be seen, as in viewer.js
ROW = 17  # pixels from one token to the next
MIDDLE = 200  # pixels between the columns of words
TOP = 40  # pixels of the titles
LETTER = 7.2  # pixels; most letters are narrower
FAMILY = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"

Map = Float[np.ndarray, "query key"]


class Line(NamedTuple):
    """A line of a drawing, from a query to a key."""

    query: int
    key: int
    color: str
    style: str = 'stroke-width="1.4"'


def draw(viewer: Any) -> str:
    """Return a `view.Viewer` as SVG: its example, the head, and what is beside it."""
    example = page.in_square(viewer.store[viewer.example])
    content = page.page_facts(viewer.store, example)
    hidden = content["special"] if viewer.relation else []
    rows = {}
    for position in range(len(example)):
        if position not in hidden:
            rows[position] = TOP + ROW * len(rows) + ROW / 2
    column = 12 + LETTER * max(map(_n_columns, content["tokens"]))
    width = 2 * column + MIDDLE + 30
    drawings = []
    for title, weights in _titled_maps(viewer, example.attention):
        answers = [] if drawings else list(_answers(viewer, content, page.buffers(example, [])[2]))
        marks = "".join(_draw_map(title, weights, content, rows, column, answers))
        drawings.append(f'<g transform="translate({width * len(drawings):.0f} 0)">{marks}</g>')
    total = round(width * len(drawings))
    height = TOP + ROW * len(rows) + 8
    return page.show_bidi_controls(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {height}" width="{total}" '
        f'height="{height}" font-family="{FAMILY}" font-size="12.5">'
        f"<title>{escape(viewer.heading)}</title>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(drawings)}</svg>\n'
    )


def _n_columns(text: str) -> int:
    """Count the columns of a text; those of East Asian characters are two."""
    return sum(1 + (unicodedata.east_asian_width(character) in "WF") for character in text)


def _titled_maps(
    viewer: Any, maps: Float[np.ndarray, "layer head query key"]
) -> Iterator[tuple[str, Map]]:
    """Yield the maps that are drawn side by side, with their titles."""
    layer, head = viewer.head
    store = viewer.store
    labels = head_labels(store.layers, store.heads, store.layer_numbers)
    label = labels[layer * store.heads + head]
    name = page.head_names(store).get(label)
    yield f"Head {label}: {name}" if name else f"Head {label}", maps[layer, head]
    if viewer.compare == "mean":
        yield "Mean over all heads", maps.mean(axis=(0, 1))
    elif viewer.compare == "layer":
        yield f"Mean over the heads of layer {label.split('-')[0]}", maps[layer].mean(axis=0)
    elif viewer.compare == "control" and viewer.control is not None:
        control = page.in_square(viewer.control[viewer.example])
        yield f"Head {label}, {page.control_name(viewer.control)}", control.attention[layer, head]
    elif viewer.compare:
        other = divmod(labels.index(viewer.compare), store.heads)
        yield f"Head {viewer.compare}", maps[other]


def _answers(viewer: Any, content: Mapping[str, Any], packed: bytes) -> Iterator[Line]:
    """Yield the answers of the head to the questions of the relation, and the right ones."""
    questions = content["questions"]
    if not questions:
        return
    answers = np.frombuffer(packed, "<u2").reshape(2, -1, len(questions))
    is_reversed = viewer.direction == DIRECTIONS[1] and content["directed"]
    head = viewer.settings()["head"]
    for question, answer in zip(questions, answers[int(is_reversed), head].tolist(), strict=True):
        if viewer.relation not in (question["relation"], "(all)"):
            continue
        word = question.get("read", question["asked"])
        color = RIGHT if answer % 2 else WRONG
        ends = [(answer // 2, 'stroke-width="2.4"')]
        if not answer % 2 and viewer.relation != "(all)":  # these would be too many lines
            ends += [(gold, 'stroke-dasharray="4 3"') for gold in question["gold"]]
        for position, style in ends:
            query, key = (position, word) if is_reversed else (word, position)
            if query != key:  # else the head picks no word
                yield Line(query, key, color, style)


def _draw_map(
    title: str, weights: Map, content: Mapping[str, Any], rows: Mapping[int, float], column: float,
    answers: Sequence[Line],
) -> Iterator[str]:  # fmt: skip
    """Yield the elements of the drawing of a map."""
    x_query = column
    x_key = column + MIDDLE
    yield f'<text x="8" y="16" font-weight="600" fill="{INK}">{escape(title)}</text>'
    for x, anchor, text in ((x_query - 6, "end", "from"), (x_key + 6, "start", "to")):
        yield f'<text x="{x:.0f}" y="34" text-anchor="{anchor}" fill="{MUTED}">{text}</text>'
    lines = list(answers)
    for query in rows:
        for key in rows:
            color = MUTED if answers else TOKEN_COLORS[content["kinds"][key]]
            if weights[query, key] >= FAINTEST:
                lines.append(Line(query, key, color))
    for query, key, color, style in sorted(lines, key=lambda line: (line.style, weights[line[:2]])):
        opacity = 1 if "dash" in style else weights[query, key]
        yield (
            f'<line x1="{x_query:.0f}" y1="{rows[query]}" x2="{x_key:.0f}" y2="{rows[key]}" '
            f'stroke="{color}" stroke-opacity="{opacity:.4f}" {style}/>'
        )
    for position, y in rows.items():
        role = content["kinds"][position]
        color = INK if role == "other" else TOKEN_COLORS[role]
        for x, anchor in ((x_query - 6, "end"), (x_key + 6, "start")):
            token = escape(content["tokens"][position].strip() or "␣")
            attributes = f'x="{x:.0f}" y="{y + 4}" text-anchor="{anchor}" fill="{color}"'
            yield f"<text {attributes}>{token}</text>"
