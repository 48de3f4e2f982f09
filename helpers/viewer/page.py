"""Prepare an example's tokens, maps and answers for a browser, as JSON and HTML.

The weights of a map are sent in steps of 0.0001, and all maps together as thumbnails of at most 32
by 32 cells.  A page needs neither a kernel nor a network.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, UInt8, UInt16
from matplotlib import rc_context

from helpers.data.links import COREFERENCE, NO_MENTION, Links, read_links
from helpers.data.records import SPECIAL_ROLES, WORD_MARKS, Record
from helpers.errors import InputError
from helpers.files import build_dir, figures_dir, read_json
from helpers.metrics.atlas import MIXED
from helpers.metrics.heads import (
    DIRECTIONS,
    Direction,
    head_labels,
    is_right,
    parse_head,
    picked_words,
)
from helpers.metrics.panels import MapLocation, Panel, answer_lines
from helpers.model.loading import key_slug
from helpers.plots.examples import draw_maps
from helpers.plots.style import (
    ALL_STYLES,
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
STYLE = (HERE / "viewer.css").read_text("utf-8")
ALL_RELATIONS = "(all)"
MAX_HITS = 50  # of a search
AROUND = 12  # words on each side of a hit, as in viewer.js
HIT_COLUMNS = ["example", "asked", "before", "word", "after", "relation", "picked", "gold", "right"]
NO_ANSWER = ("", "", "", None)  # in the last four columns
MAX_THUMBNAIL_CELLS = 32  # on a side; a small map is about 40 pixels wide
THUMBNAIL_EXPONENT = 0.7  # keeps small weights visible
COLORS = {**TOKEN_COLORS, "ink": INK, "muted": MUTED, "right": RIGHT, "wrong": WRONG}
# What readers are told of `DIRECTIONS`: "head" is an attention head to them, as in the figures.
DIRECTION_LABELS = ("dependent attends to parent", "parent attends to dependent")
LOOK = {  # the colours and names that the viewer shares with the figures
    "colors": COLORS,
    "ramp": SEQUENTIAL_COLORS,
    "directions": list(DIRECTIONS),
    "direction_labels": list(DIRECTION_LABELS),
    "exponent": THUMBNAIL_EXPONENT,
}
# The browser enforces that nothing is loaded from anywhere.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
PAGES = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
PAGES.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
# Characters that show nothing and change the direction of the text around them.
BIDI_CONTROLS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

Maps = Float[np.ndarray, "layer head query key"]


def in_square(example: Example) -> Example:
    """Return the example of a view: cross-attention is drawn in a square, queries before keys."""
    if not example.is_cross:
        return example
    *_, n_queries, n_keys = example.stored_attention.shape
    around = ((0, 0), (0, 0), (0, n_keys), (n_queries, 0))  # the queries come before the keys
    square = np.pad(example.stored_attention, around)
    record = {"tokens": shown_tokens(example.record), "title": example.record["title"]}
    return replace(example, stored_attention=square, record=record)


def shown_tokens(record: Record) -> list[str]:
    """List the words or tokens of a record, those of the queries of cross-attention first."""
    return [*record.get("queries", ()), *(record.get("words") or record["tokens"])]


def page_facts(store: Store, example: Example) -> dict[str, Any]:
    """Return everything about an example except its weights, ready for JSON."""
    example = in_square(example)
    tokens = example.tokens
    token_roles = example.roles
    role_names = token_roles.kinds()
    record = example.record
    offset = example.offset  # of words, to be positions of the maps
    questions = []
    links = read_links(record)
    for row in np.flatnonzero(~links.is_root):
        gold = (np.flatnonzero(links.gold[row]) + offset).tolist()
        position = int(links.word[row]) + offset
        entry = {"relation": links.relation[row], "asked": position, "gold": gold}
        if links.query[row] != links.word[row]:  # the 's of a possessor
            entry["read"] = int(links.query[row]) + offset
        questions.append(entry)
    special = np.flatnonzero(np.isin(role_names, list(SPECIAL_ROLES))).tolist()
    maps = example.stored_attention
    labels = role_labels(store.special_tokens)
    masks = token_roles.masks()
    in_words = np.delete(np.arange(len(tokens)), special)
    word_masks = {role: mask[in_words] for role, mask in masks.items() if role not in SPECIAL_ROLES}
    mentions = []  # start, end and chain; without singletons
    for start, end, chain_number, _ in record.get("mentions", ()):
        if chain_number is not None:
            mentions.append([start + offset, end + offset, chain_number])
    return {
        "model": store.model_name,
        "corpus": store.corpus_name,
        "lens": store.lens,
        "level": store.level,
        "labels": head_labels(store.layers, store.heads, store.layer_numbers),
        "layers": store.layers,
        "heads": store.heads,
        "summaries": [  # with and without special tokens
            summaries(maps, masks, labels),
            summaries(maps[..., in_words, :][..., in_words], word_masks, labels),
        ],
        "example": example.index,
        "examples": len(store),
        "source": record.get("source") or record.get("title") or "",
        "tokens": tokens,
        "kinds": role_names,
        "special": special,
        "questions": questions,
        # Coreference is read in one direction only.
        "directed": "relations" in record or "pairs" in record,
        "mentions": mentions,
    }


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
    n_queries = maps.any(axis=(0, 2)).sum()  # in cross-attention, the keys have empty rows
    table = pd.DataFrame(shares) / max(n_queries, 1)
    largest = zip(table.max(axis=1), table.idxmax(axis=1), strict=True)
    return [f"{share:.0%} to {name}" for share, name in largest]


def thumbnails(attention: Maps, positions: np.ndarray) -> UInt8[np.ndarray, "head row column"]:
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
    """Return weights in steps of 0.0001, as sources.js takes them: a view shows four decimals."""
    return np.rint(weights.astype(np.float64) * 10_000).astype("<u2")


def buffers(example: Example, special: Sequence[int]) -> list[bytes]:
    """Return the thumbnails with and without special tokens, and the answers, as bytes.

    If a cell is one token, the thumbnails without special tokens are a part of the others, which
    the browser takes.

    An answer is the position that a head picks for a question: doubled, plus 1 if it is right.
    """
    example = in_square(example)
    maps = example.stored_attention
    positions = np.arange(maps.shape[-1])
    with_special = thumbnails(maps, positions)
    without_special = np.empty(0, np.uint8)
    if len(positions) > MAX_THUMBNAIL_CELLS:
        without_special = thumbnails(maps, np.delete(positions, special))
    links = read_links(example.record)
    is_asked = ~links.is_root
    answers = np.zeros((len(DIRECTIONS), *maps.shape[:2], is_asked.sum()), "<u2")
    if is_asked.any():
        words = example.word_positions
        visible = example.visible_keys[:, None, words, words]
        for index, direction in enumerate(DIRECTIONS):
            picked, right = answer_links(links, maps[:, :, words, words], direction, visible)
            answers[index] = (2 * (picked + example.offset) + right)[..., is_asked]
    return [with_special.tobytes(), without_special.tobytes(), answers.tobytes()]


def answer_links(
    links: Links,
    weights: Float[np.ndarray, "*heads word word"],
    direction: Direction,
    visible: Bool[np.ndarray, "*#heads word word"],
) -> tuple[Int[np.ndarray, "*heads link"], Bool[np.ndarray, "*heads link"]]:
    """Find the word that each head picks for each link, and whether it is right.

    Coreference is always read from the mention to its antecedent.
    """
    pick = partial(picked_words, weights, links.query, candidates=links.candidates, visible=visible)
    picked = np.where(links.mention == NO_MENTION, pick(direction=direction), pick())
    return picked, is_right(picked, links)


def panels_of_view(viewer: Any) -> list[Panel]:
    """Make the panel of the head of a view, and that of what is beside it.

    With a relation, they have the words only, and the first has the answers of the head.
    """
    store = viewer.store
    example = in_square(store[viewer.example])
    maps = example.attention
    layer, head = viewer.head
    number = store.layer_numbers[layer]
    label = f"Head {number}-{head + 1}"
    name = head_names(store).get(f"{number}-{head + 1}")
    weights = {f"{label}: {name}" if name else label: maps[layer, head]}
    if viewer.compare == "mean":
        weights["Mean over all heads"] = maps.mean(axis=(0, 1))
    elif viewer.compare == "layer":
        weights[f"Mean over the heads of layer {number}"] = maps[layer].mean(axis=0)
    elif viewer.compare == "control" and viewer.control is not None:
        control = in_square(viewer.control[viewer.example])
        weights[f"{label}, {control_name(viewer.control)}"] = control.attention[layer, head]
    elif viewer.compare:
        weights[f"Head {viewer.compare}"] = maps[parse_head(viewer.compare, store.layer_numbers)]
    location = MapLocation(viewer.example, number, head + 1, viewer.relation, viewer.direction)
    shown = example.word_positions if viewer.relation else slice(None)
    lines = []
    for relation in relation_names([example.record]):
        if viewer.relation in (relation, ALL_RELATIONS):
            # Coreference is read in one direction only.
            direction = DIRECTIONS[0] if relation == COREFERENCE else viewer.direction
            read_as = location._replace(relation=relation, direction=direction)
            lines += chain(*answer_lines(example, read_as))
    tokens = example.tokens[shown]
    panels = []
    for title, values in weights.items():
        kinds = example.roles.kinds()[shown]
        panels.append(Panel(title, tokens, kinds, values[shown, shown], location, lines))
        lines = []  # the answers are those of the head
    return panels


def drawing(viewer: Any) -> str:
    """Draw a view as SVG, in the form of Figure 1."""
    store = viewer.store
    figure = draw_maps(panels_of_view(viewer), viewer.heading, store.model_name, store.lens)
    content = BytesIO()
    with rc_context({"svg.fonttype": "none"}):  # text stays text
        figure.savefig(content, format="svg", metadata={"Date": None, "Title": viewer.heading})
    return show_bidi_controls(content.getvalue().decode())


def embedded_page(store: Store, example: Example, heads: Sequence[int]) -> dict[str, Any]:
    """Return an example for a page without a kernel: facts, thumbnails, and the maps of heads.

    ``heads`` counts the heads through the layers, from 0.
    """
    page = page_facts(store, example)
    page["buffers"] = [_packed(content) for content in buffers(example, page["special"])]
    return {**page, "maps": packed_maps(example, heads)}


def packed_maps(example: Example, heads: Sequence[int]) -> dict[int, str]:
    """Return the maps of heads, counted through the layers, as text for JSON."""
    all_maps = in_square(example).stored_attention
    maps = quantize(all_maps.reshape(-1, *all_maps.shape[2:])[list(heads)])
    packed = {}
    for head, steps in zip(heads, maps, strict=True):
        # A map's low bytes come before its high bytes: most of these are zero, so it deflates more.
        packed[head] = _packed(steps.reshape(-1, 1).view(np.uint8).T.tobytes())
    return packed


def _packed(content: bytes) -> str:
    """Deflate bytes and encode them in base64."""
    return base64.b64encode(zlib.compress(content, 6)).decode("ascii")


def role_labels(special_tokens: Mapping[str, str | None]) -> dict[str, str]:
    """Return the label of each token type; [CLS] and [SEP] under the model's own names."""
    styles = ALL_STYLES if "first" in special_tokens else TOKEN_STYLES
    return {role: style.label.format(**special_tokens) for role, style in styles.items()}


def head_names(store: Store) -> dict[str, str]:
    """Name the heads as the atlas of a run of this model does; empty if no run here has one."""
    key = store.manifest["model"]
    recorded = {**key, "layers": store.layers, "heads": store.heads}
    for parent in (build_dir(""), figures_dir("")):
        for path in sorted(parent.glob(f"{key_slug(key)}*/run.json")):
            run = read_json(path)
            atlas = path.parent / "tables" / "atlas.csv"
            is_same = run.get("model") == recorded and run["settings"]["lens"] == store.lens
            if is_same and atlas.is_file():
                heads = pd.read_csv(atlas)
                heads = heads[heads["kind"] != MIXED]
                labels = heads["layer"].astype(str) + "-" + heads["head"].astype(str)
                return dict(zip(labels, heads["name"], strict=True))
    return {}


def control_name(control: Store) -> str:
    """Name a control for readers."""
    is_random = control.manifest["model"]["random_init"] is not None
    return "random weights" if is_random else control.model_name


def relation_names(records: Iterable[Record]) -> list[str]:
    """List the relations in the annotation of records, in alphabetical order."""
    names: set[str] = set()
    for record in records:
        links = read_links(record)
        names.update(links.relation[~links.is_root])
    return sorted(names)


def check_relation(store: Store, relation: str) -> None:
    """Raise InputError if no example of a store has a relation, with the names of those it has."""
    names = relation_names(store.records())
    if relation not in names:
        remedy = f"use one of {', '.join(names)}"
        if not names:
            remedy = 'there is no annotation; read(text, level="word") parses English'
        raise InputError(f"there is no relation {relation!r}; {remedy}")


def find_hits(
    store: Store, head: tuple[int, int], direction: Direction, word: str, relation: str
) -> Iterator[tuple[Any, ...]]:
    """Yield a row of a search for each word of a form, or each answer of a head to a relation.

    An empty word is any word, and an empty relation asks no head.
    """
    for index, record in enumerate(store.records()):
        words = shown_tokens(record)
        is_form = [word.lower() in ("", form.lstrip(WORD_MARKS).lower()) for form in words]
        links = read_links(record)
        is_asked = (links.relation == relation) & ~links.is_root & np.array(is_form)[links.word]
        if not relation:
            for position in np.flatnonzero(is_form).tolist():
                yield hit_row(index, words, position, record.get("offset", 0))
        elif is_asked.any():
            example = store[index]
            positions = example.word_positions
            weights = example.stored_attention[head][positions, positions]
            visible = example.visible_keys[head[0], positions, positions]
            picked, right = answer_links(links, weights, direction, visible)
            for row in np.flatnonzero(is_asked):
                gold = " / ".join(np.array(words)[links.gold[row]])
                answer = (relation, words[picked[row]], gold, bool(right[row]))
                yield hit_row(index, words, int(links.word[row]), example.offset, answer)


def hit_row(
    index: int, words: Sequence[str], position: int, offset: int, answer: Sequence[Any] = NO_ANSWER
) -> tuple[Any, ...]:
    """Make a row of a search, with at most 12 words before and after the one at a position."""
    before = ["…"] * (position > AROUND) + [*words[max(0, position - AROUND) : position]]
    after = [*words[position + 1 :][:AROUND]] + ["…"] * (len(words) > position + 1 + AROUND)
    return (index, position + offset, " ".join(before), words[position], " ".join(after), *answer)


def show_bidi_controls(text: str) -> str:
    """Replace bidirectional control characters by their code points, such as "[U+202E]".

    A right-to-left override makes a browser draw the letters after it in reverse order, so that a
    reader sees another text than the model. Hebrew and Arabic need no control characters to be
    drawn correctly: their letters have a direction of their own.
    """
    return BIDI_CONTROLS.sub(lambda match: f"[U+{ord(match[0]):04X}]", text)


def shown_in_browser(content: Any) -> Any:
    """Return JSON content with the bidirectional control characters of its texts replaced."""
    return json.loads(show_bidi_controls(json.dumps(content, ensure_ascii=False)))


def render(template: Path, **values: object) -> str:
    """Return the page of a jinja2 template; text among ``values`` stays text, in JSON too."""
    page = PAGES.from_string(template.read_text(encoding="utf-8"))
    return show_bidi_controls(page.render(values, policy=POLICY))


def document(title: str, data: object) -> str:
    """Return a page that shows a viewer's data and needs neither a network nor a kernel."""
    return render(HERE / "viewer.html", title=title, data=data, style=STYLE, script=SCRIPT)
