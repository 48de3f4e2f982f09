"""What the viewer sends to a browser: an example's facts and maps, and what a search finds."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from jaxtyping import Float, UInt8, UInt16
from jinja2.utils import htmlsafe_json_dumps

from helpers.analysis.heads import (
    DIRECTIONS,
    Direction,
    Question,
    answer,
    head_label,
    head_labels,
    questions,
)
from helpers.data.records import roles
from helpers.errors import InputError
from helpers.plots.style import INK, MUTED, RIGHT, TOKEN_COLORS, TOKEN_STYLES, WRONG
from helpers.store.store import Example, Store, tokens_of

HERE = Path(__file__).parent
SCRIPT = "\n".join((HERE / name).read_text("utf-8") for name in ("sources.js", "viewer.js"))
MOST_FOUND = 50  # places that a search shows at a time
FOUND = ("example", "asked", "word", "relation", "picked", "gold", "right")
RELATIONS_FROM = 300  # records looked at for the names of relations to suggest
LARGEST_THUMBNAIL = 32  # cells a side; a small map is about 40 pixels wide
FULL = 10_000  # the weight 1, as in sources.js: four decimals are what a view shows
# Nothing is loaded from anywhere, and the browser enforces it.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
# Characters that show nothing and change the direction of the text around them.
BIDI_CONTROLS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# Of a small map: white, then the colours of the figures' heat maps (without importing seaborn).
RAMP = [
    *("#ffffff", "#b7e6c5", "#82d8b0", "#50c6ad", "#3cb2ad", "#359baa", "#3485a5"),
    *("#3670a0", "#3b589a", "#414184", "#3c3162", "#312140", "#1f1220"),
]
# Of numbers below and above zero: the colours of the figures (without importing matplotlib).
DIVERGING = ["#2d004b", "#9990bf", "#f7f7f6", "#ee9b39", "#7f3b08"]

Maps = Float[np.ndarray, "layer head query key"]


def page_facts(store: Store, example: Example) -> dict[str, Any]:
    """Return everything about an example but its weights, ready for JSON."""
    tokens = tokens_of(store, example)
    own_roles = roles(tokens, store.special_tokens)
    masks, kinds = own_roles.masks(), own_roles.kinds()
    special = {i for i, kind in enumerate(kinds) if kind in ("cls", "sep")}
    record, offset = example.record, example.offset
    if "words" in record:
        special = set(range(len(tokens))).difference(range(len(tokens))[example.word_positions])
    return {
        "model": store.spec.model["name"],
        "corpus": store.spec.corpus["name"],
        "lens": store.spec.lens,
        "level": store.spec.level,
        "labels": head_labels(store.layers, store.heads),
        "layers": store.layers,
        "heads": store.heads,
        "summaries": summaries(example.attention, masks, _kind_labels(store.special_tokens)),
        "example": example.index,
        "examples": len(store),
        "source": record.get("source") or record.get("title") or "",
        "tokens": tokens,
        "kinds": kinds,
        "special": sorted(special),
        "questions": [
            {"relation": relation, "asked": asked + offset, "gold": [own + offset for own in gold]}
            for relation, asked, gold, *_ in questions(record)
        ],
        "directed": "relations" in record,  # coreference is read one way only
        "mentions": [
            [start + offset, end + offset, chain]
            for start, end, chain, _ in record.get("mentions", ())
            if chain is not None
        ],
    }


def summaries(
    attention: Maps, masks: Mapping[str, np.ndarray], labels: Mapping[str, str]
) -> list[str]:
    """Return a text for each map, head by head: the type or place with most of its attention."""
    maps = attention.reshape(-1, *attention.shape[-2:]).astype(np.float32)
    n = maps.shape[-1]
    named = {labels[kind]: mask for kind, mask in masks.items() if kind != "other"}
    shares = {label: maps[:, :, mask].sum(axis=(1, 2)) / n for label, mask in named.items()}
    for name, offset in (("the previous", -1), ("itself", 0), ("the next", 1)):
        shares[name] = np.trace(maps, offset, axis1=1, axis2=2) / n
    table = pd.DataFrame(shares)
    best = zip(table.max(axis=1), table.idxmax(axis=1), strict=True)
    return [f"{share:.0%} to {name}" for share, name in best]


def thumbnails(attention: Maps, kept: Sequence[int]) -> UInt8[np.ndarray, "head row column"]:
    """Return all maps over the positions ``kept``, at most 32 cells a side.

    A cell is the largest weight in it to the power 0.7, from 0 to 255: small weights stay visible.
    """
    maps = attention.reshape(-1, *attention.shape[-2:])[:, kept][:, :, kept].astype(np.float32)
    side = min(len(kept), LARGEST_THUMBNAIL)
    starts = np.arange(side) * len(kept) // max(side, 1)
    for axis in (1, 2):
        maps = np.maximum.reduceat(maps, starts, axis=axis)
    return np.rint(255 * maps.clip(0, 1) ** 0.7).astype(np.uint8)


def quantize(weights: Float[np.ndarray, ...]) -> UInt16[np.ndarray, ...]:
    """Return weights in steps of 0.0001."""
    return np.rint(weights.astype(np.float64).clip(0, 1) * FULL).astype("<u2")


def answers(example: Example) -> UInt16[np.ndarray, "direction layer head question"]:
    """Return what each head picks for each question: twice the position, plus 1 if right."""
    asked = list(questions(example.record))
    found = np.zeros((len(DIRECTIONS), *example.attention.shape[:2], len(asked)), "<u2")
    for place, question in enumerate(asked):
        maps = example.attention[:, :, example.word_positions, example.word_positions]
        for index, direction in enumerate(DIRECTIONS):
            picked, right = answer(question, maps, direction)
            found[index, ..., place] = 2 * (picked + example.offset) + right
    return found


def buffers(example: Example, special: Sequence[int]) -> list[bytes]:
    """Return the small maps with and without special tokens, and the answers, as bytes."""
    words = [position for position in range(len(example)) if position not in special]
    small = [thumbnails(example.attention, kept) for kept in (range(len(example)), words)]
    return [array.tobytes() for array in (*small, answers(example))]


def embedded_page(store: Store, example: Example, heads: Sequence[int]) -> dict[str, Any]:
    """Return an example for a page without a kernel: facts, small maps, and the maps ``heads``."""
    facts = page_facts(store, example)
    maps = quantize(example.attention.reshape(-1, len(example), len(example))[list(heads)])
    # A map's high bytes come before its low bytes: most are zero, so it deflates to about half.
    return facts | {
        "buffers": [_packed(data) for data in buffers(example, facts["special"])],
        "maps": {
            head: _packed((own >> 8).astype(np.uint8).tobytes() + own.astype(np.uint8).tobytes())
            for head, own in zip(heads, maps, strict=True)
        },
    }


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 6)).decode("ascii")


def look(special_tokens: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the colours and names that the viewer shares with the figures."""
    return {
        "colors": TOKEN_COLORS | {"ink": INK, "muted": MUTED, "right": RIGHT, "wrong": WRONG},
        "labels": _kind_labels(special_tokens),
        "ramp": RAMP,
        "diverging": DIVERGING,
        "directions": list(DIRECTIONS),
    }


def _kind_labels(special_tokens: Mapping[str, str | None]) -> dict[str, str]:
    labels = {kind: style.label for kind, style in TOKEN_STYLES.items()}
    own = {role: special_tokens.get(role) for role in ("cls", "sep")}
    return {kind: own.get(kind, label) for kind, label in labels.items() if own.get(kind, label)}


def relations_in(store: Store) -> list[str]:
    """Return the names of relations in the first records of a store."""
    records = store.records(range(min(RELATIONS_FROM, len(store))))
    return sorted({question.relation for record in records for question in questions(record)})


def check_relation(store: Store, relation: str) -> None:
    """Raise InputError where no example of a store has a relation, with those that there are."""
    known: set[str] = set()
    for record in store.records():
        known.update(question.relation for question in questions(record))
        if relation in known:
            return
    there = f"there are {', '.join(sorted(known))}" if known else "the corpus has no annotation"
    raise InputError(f"no relation {relation!r} here; {there}")


def search(
    store: Store,
    head: tuple[int, int],
    *,
    word: str = "",
    relation: str = "",
    right: bool | None = None,
    direction: Direction = DIRECTIONS[0],
    limit: int = MOST_FOUND,
) -> pd.DataFrame:
    """Find the first ``limit`` places with a word, or where a head answers a relation.

    ``head`` is (layer, head) from 0.  A word (any case) and a relation together ask for words with
    that relation.  ``right`` keeps the right or the wrong answers.  Columns: example, asked (place
    in the map), word, relation, picked, gold (words), right.  InputError where nothing is asked
    for, or no example has the relation.
    """
    if not word and not relation:
        raise InputError("search for a word, a relation or both, such as relation='dobj'")
    rows: list[tuple[Any, ...]] = []
    for index, record in enumerate(store.records()):
        words = record.get("words") or record["tokens"]
        places = [i for i, other in enumerate(words) if word.lower() in ("", other.lower())]
        if relation:
            asked = [q for q in questions(record) if q.relation == relation and q.asked in places]
            found = _answered(store[index], asked, head, direction) if asked else ()
            rows += [row for row in found if right in (None, row[-1])]
        else:
            offset = record.get("offset", 0) if "words" in record else 0
            rows += [(index, i + offset, words[i], "", "", "", None) for i in places]
        if len(rows) >= limit:
            break
    if relation and not rows:
        check_relation(store, relation)
    return pd.DataFrame(rows[:limit], columns=FOUND).assign(head=head_label(*head))


def _answered(
    example: Example, asked: list[Question], head: tuple[int, int], direction: Direction
) -> Iterator[tuple[Any, ...]]:
    own, words = example.word_positions, example.record["words"]
    weights = example.attention[head][own, own]
    for question in asked:
        picked, right = answer(question, weights, direction)
        gold = " / ".join(words[place] for place in question.gold)
        place = question.asked + example.offset
        row = (example.index, place, words[question.asked], question.relation)
        yield *row, words[picked], gold, bool(right)


def show_bidi_controls(text: str) -> str:
    """Replace bidirectional control characters by their code points, such as "[U+202E]".

    A right-to-left override makes a browser draw the letters after it in reverse order, so that a
    reader sees another text than the model. Hebrew and Arabic need no control characters to be
    drawn correctly: their letters have a direction of their own.
    """
    return BIDI_CONTROLS.sub(lambda match: f"[U+{ord(match[0]):04X}]", text)


def shown_in_browser(content: Any) -> Any:
    """Return JSON content with the bidirectional control characters of its texts replaced."""
    return json.loads(_json_text(content, ensure_ascii=False))


def _json_text(content: object, **options: Any) -> str:
    """Return content as JSON, with bidirectional control characters replaced."""
    return show_bidi_controls(json.dumps(content, **options))


def json_in_html(value: object) -> str:
    """Return JSON that stays data inside a script element, whatever the text in it."""
    return htmlsafe_json_dumps(value, _json_text, ensure_ascii=False, separators=(",", ":"))


def render(template: Path, **values: object) -> str:
    """Return the page of a jinja2 template; text that it is given stays text."""
    pages = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = pages.from_string(template.read_text(encoding="utf-8"))
    return show_bidi_controls(page.render(values, policy=POLICY))


def document(title: str, data: object) -> str:
    """Return a page that shows ``data`` and needs nothing else: no network, no kernel."""
    style = (HERE / "viewer.css").read_text(encoding="utf-8")
    own = {"data": json_in_html(data), "style": style, "script": SCRIPT}
    return render(HERE / "viewer.html", title=title, **own)
