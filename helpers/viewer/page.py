"""Prepare an example's tokens, maps and answers for a browser, as JSON and HTML.

The weights of a map are sent in steps of 0.0001, and all maps together as thumbnails of at most 32
by 32 cells.  A page needs neither a kernel nor a network.
"""

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

from helpers.data.records import Record
from helpers.errors import InputError
from helpers.metrics.heads import (
    DIRECTIONS,
    Direction,
    Question,
    gold_links,
    head_labels,
    predict_link,
)
from helpers.plots.style import (
    INK,
    MUTED,
    RIGHT,
    SEQUENTIAL_COLORS,
    TOKEN_COLORS,
    TOKEN_STYLES,
    WRONG,
)
from helpers.store.store import Example, Store

HERE = Path(__file__).parent
SCRIPT = "\n".join((HERE / name).read_text("utf-8") for name in ("sources.js", "viewer.js"))
MAX_HITS = 50  # of a search
HIT_COLUMNS = ("example", "asked", "word", "relation", "picked", "gold", "right")
RELATION_SAMPLE_RECORDS = 300  # read for the names of relations to suggest
MAX_THUMBNAIL_CELLS = 32  # on a side; a small map is about 40 pixels wide
THUMBNAIL_EXPONENT = 0.7  # keeps small weights visible
WEIGHT_STEPS = 10_000  # the weight 1, as in sources.js: a view shows four decimals
# The browser enforces that nothing is loaded from anywhere.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
# Characters that show nothing and change the direction of the text around them.
BIDI_CONTROLS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

Maps = Float[np.ndarray, "layer head query key"]


def page_facts(store: Store, example: Example) -> dict[str, Any]:
    """Return everything about an example except its weights, ready for JSON."""
    tokens = example.tokens
    token_roles = example.roles
    role_names = token_roles.kinds()
    labels = _role_labels(store.special_tokens)
    record = example.record
    return {
        "model": store.spec.model["name"],
        "corpus": store.spec.corpus["name"],
        "lens": store.spec.lens,
        "level": store.spec.level,
        "labels": head_labels(store.layers, store.heads),
        "layers": store.layers,
        "heads": store.heads,
        "summaries": summaries(example.stored_attention, token_roles.masks(), labels),
        "example": example.index,
        "examples": len(store),
        "source": record.get("source") or record.get("title") or "",
        "tokens": tokens,
        "kinds": role_names,
        "special": _special_positions(example, role_names),
        "questions": _questions_at_positions(example),
        "directed": "relations" in record,  # coreference is read in one direction only
        "mentions": _mentions_at_positions(example),
    }


def _special_positions(example: Example, role_names: Sequence[str]) -> list[int]:
    """Return the positions of an example's special tokens; at word level all except the words'."""
    positions = range(len(role_names))
    if "words" in example.record:
        words = positions[example.word_positions]
        return [position for position in positions if position not in words]
    return [position for position in positions if role_names[position] in ("cls", "sep")]


def _questions_at_positions(example: Example) -> list[dict[str, Any]]:
    """Return an example's questions, with words as positions of its maps."""
    questions = []
    for question in gold_links(example.record):
        position = question.word + example.offset
        gold = [word + example.offset for word in question.gold]
        questions.append({"relation": question.relation, "asked": position, "gold": gold})
    return questions


def _mentions_at_positions(example: Example) -> list[list[int]]:
    """Return start, end and chain of an example's mentions, as positions of its maps.

    Mentions without a chain are left out.
    """
    sent = []
    for start, end, chain, _ in example.record.get("mentions", ()):
        if chain is not None:
            sent.append([start + example.offset, end + example.offset, chain])
    return sent


def summaries(
    attention: Maps, masks: Mapping[str, np.ndarray], labels: Mapping[str, str]
) -> list[str]:
    """Describe each map, head by head, by the token type or place with most of its attention."""
    maps = attention.reshape(-1, *attention.shape[-2:]).astype(np.float32)
    shares = {}
    for role, mask in masks.items():
        if role != "other":
            shares[labels[role]] = maps[:, :, mask].sum(axis=(1, 2))
    for name, offset in (("the previous", -1), ("itself", 0), ("the next", 1)):
        shares[name] = np.trace(maps, offset, axis1=1, axis2=2)
    table = pd.DataFrame(shares) / maps.shape[-1]
    largest = zip(table.max(axis=1), table.idxmax(axis=1), strict=True)
    return [f"{share:.0%} to {name}" for share, name in largest]


def thumbnails(attention: Maps, positions: Sequence[int]) -> UInt8[np.ndarray, "head row column"]:
    """Shrink all maps over some positions to at most 32 cells on a side.

    A cell is the largest weight in it to the power 0.7, from 0 to 255: small weights stay visible.
    """
    maps = attention.reshape(-1, *attention.shape[-2:])
    maps = maps[:, positions][:, :, positions].astype(np.float32)
    side = min(len(positions), MAX_THUMBNAIL_CELLS)
    starts = np.arange(side) * len(positions) // max(side, 1)
    for axis in (1, 2):
        maps = np.maximum.reduceat(maps, starts, axis=axis)
    return np.rint(255 * maps.clip(0, 1) ** THUMBNAIL_EXPONENT).astype(np.uint8)


def quantize(weights: Float[np.ndarray, ...]) -> UInt16[np.ndarray, ...]:
    """Return weights in steps of 0.0001."""
    return np.rint(weights.astype(np.float64).clip(0, 1) * WEIGHT_STEPS).astype("<u2")


def answers(example: Example) -> UInt16[np.ndarray, "direction layer head question"]:
    """Return the position that each head picks for each question: doubled, plus 1 if right."""
    asked_questions = list(gold_links(example.record))
    shape = (len(DIRECTIONS), *example.stored_attention.shape[:2], len(asked_questions))
    coded = np.zeros(shape, "<u2")
    for number, question in enumerate(asked_questions):
        words = example.word_positions
        maps = example.stored_attention[:, :, words, words]
        for index, direction in enumerate(DIRECTIONS):
            picked, right = predict_link(question, maps, direction)
            coded[index, ..., number] = 2 * (picked + example.offset) + right
    return coded


def buffers(example: Example, special: Sequence[int]) -> list[bytes]:
    """Return the thumbnails with and without special tokens, and the answers, as bytes."""
    positions = range(len(example))
    words = [position for position in positions if position not in special]
    with_special = thumbnails(example.stored_attention, positions)
    without_special = thumbnails(example.stored_attention, words)
    return [with_special.tobytes(), without_special.tobytes(), answers(example).tobytes()]


def embedded_page(store: Store, example: Example, heads: Sequence[int]) -> dict[str, Any]:
    """Return an example for a page without a kernel: facts, thumbnails, and the maps of heads.

    ``heads`` counts the heads through the layers, from 0.
    """
    page = page_facts(store, example)
    page["buffers"] = [_packed(content) for content in buffers(example, page["special"])]
    maps = quantize(example.stored_attention.reshape(-1, len(example), len(example))[list(heads)])
    page["maps"] = {}
    for head, steps in zip(heads, maps, strict=True):
        # A map's high bytes come before its low bytes: most are zero, so it deflates to about half.
        high_bytes = (steps >> 8).astype(np.uint8).tobytes()
        low_bytes = steps.astype(np.uint8).tobytes()
        page["maps"][head] = _packed(high_bytes + low_bytes)
    return page


def _packed(content: bytes) -> str:
    """Deflate bytes and encode them in base64."""
    return base64.b64encode(zlib.compress(content, 6)).decode("ascii")


def look(special_tokens: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the colours and names that the viewer shares with the figures."""
    return {
        "colors": {**TOKEN_COLORS, "ink": INK, "muted": MUTED, "right": RIGHT, "wrong": WRONG},
        "labels": _role_labels(special_tokens),
        "ramp": SEQUENTIAL_COLORS,
        "directions": list(DIRECTIONS),
    }


def _role_labels(special_tokens: Mapping[str, str | None]) -> dict[str, str]:
    """Return the label of each token type that a model has; [CLS] and [SEP] under its own names."""
    labels = {}
    for role, style in TOKEN_STYLES.items():
        if special_tokens.get(role, role):  # the model may have no [CLS] or [SEP]
            labels[role] = style.label.format(**special_tokens)
    return labels


def relations_in(store: Store) -> list[str]:
    """Return the names of relations in the first records of a store."""
    records = store.records(range(min(RELATION_SAMPLE_RECORDS, len(store))))
    names: set[str] = set()
    for record in records:
        names |= _relation_names(record)
    return sorted(names)


def _relation_names(record: Record) -> set[str]:
    return {question.relation for question in gold_links(record)}


def check_relation(store: Store, relation: str) -> None:
    """Raise InputError if no example of a store has a relation, with the names of those it has."""
    names: set[str] = set()
    for record in store.records():
        names |= _relation_names(record)
        if relation in names:
            return
    remedy = f"use one of {', '.join(sorted(names))}" if names else "the corpus has no annotation"
    raise InputError(f"there is no relation {relation!r}; {remedy}")


def word_hits(index: int, record: Record, word: str) -> Iterator[tuple[Any, ...]]:
    """Yield a row of a search for each time that a word is in example ``index``, in any case."""
    for position, form in enumerate(record.get("words") or record["tokens"]):
        if form.lower() == word.lower():
            yield (index, position + record.get("offset", 0), form, "", "", "", None)


def matching_questions(record: Record, relation: str, word: str) -> list[Question]:
    """List a record's questions about a relation of a word, in any case, or (empty) of all."""
    questions = []
    for question in gold_links(record):
        form = record["words"][question.word]
        if question.relation == relation and word.lower() in ("", form.lower()):
            questions.append(question)
    return questions


def answered(
    example: Example, questions: Sequence[Question], head: tuple[int, int], direction: Direction
) -> Iterator[tuple[Any, ...]]:
    """Yield a row of a search for the answer of a head to each question about an example."""
    positions = example.word_positions
    weights = example.stored_attention[head][positions, positions]
    words = example.record["words"]
    for question in questions:
        picked, right = predict_link(question, weights, direction)
        yield (
            example.index,
            question.word + example.offset,
            words[question.word],
            question.relation,
            words[picked],
            " / ".join(words[index] for index in question.gold),
            bool(right),
        )


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
    """Return the page of a jinja2 template; text among ``values`` stays text."""
    pages = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = pages.from_string(template.read_text(encoding="utf-8"))
    return show_bidi_controls(page.render(values, policy=POLICY))


def document(title: str, data: object) -> str:
    """Return a page that shows a viewer's data and needs neither a network nor a kernel."""
    style = (HERE / "viewer.css").read_text(encoding="utf-8")
    return render(
        HERE / "viewer.html", title=title, data=json_in_html(data), style=style, script=SCRIPT
    )
