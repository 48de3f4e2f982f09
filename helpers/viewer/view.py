"""Look at attention: any head of any stored example, in a notebook or in a file.

``view(store, example=17, layer=8, head=10)`` is interactive in JupyterLab, where the kernel
answers what the browser asks for.  Without a kernel, as in a saved notebook or its HTML copy, and
in other editors, the same view shows the maps that it holds.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from operator import index
from pathlib import Path
from typing import Any

import anywidget
import pandas as pd
import traitlets
from anywidget.experimental import command

from helpers.errors import InputError
from helpers.files import json_digest, write_atomic
from helpers.metrics.heads import DIRECTIONS, Direction, head_label, head_labels
from helpers.plots.style import SEQUENTIAL_COLORS
from helpers.store.arrays import plain
from helpers.store.store import Store
from helpers.viewer import page
from helpers.viewer.drawing import draw
from helpers.viewer.page import MAX_HITS, check_relation, relation_names

ALL_RELATIONS = "(all)"
MEANS = ("layer", "mean")
CONTROL = "control"
RELATION_SAMPLE_RECORDS = 300  # read for the names of relations to suggest
NOTEBOOK_LIMIT = 1_000_000  # bytes of weights that a notebook's output may hold without a kernel
FRAME_PIXELS = 620  # height of the controls and small maps
TOKEN_PIXELS = 17  # height of a token
NUMBERS = count(1)  # of the views of this kernel
# JupyterLab removes the frame from a notebook that it does not trust, and keeps its text.
UNTRUSTED = "JupyterLab shows the attention viewer here after its command Trust Notebook."


@dataclass(frozen=True)
class Viewer:
    """One example of a store, seen through one head; made by `view`.

    In a notebook, a Viewer as the last line of a cell is displayed.

    Attributes
    ----------
    store
        Examples with their attention maps.
    example
        Index of the example, from 0.
    head
        Layer and head, both from 0.
    relation
        Relation that is marked at first; empty for none.
    direction
        Direction in which heads are read.
    title
        Text before the name of the head.
    compare
        What is drawn beside the head, as in `view`; empty for nothing.
    control
        Store of the same texts by another model, such as one with random weights.
    """

    store: Store = field(repr=False)
    example: int
    head: tuple[int, int]
    relation: str
    direction: Direction
    title: str
    compare: str = ""
    control: Store | None = None

    def save(self, path: str | Path, examples: Sequence[int] | None = None) -> Path:
        """Write the view as one HTML file that works offline, with every head's weights.

        Parameters
        ----------
        path
            File to write. One that ends with ".svg" gets the drawing of the view's example alone,
            for a paper or slides.
        examples
            Indices of the examples to put into the file, from 0, to go through and search. The
            file opens with the example of the view, or with the first of these if the view's is
            not among them. By default it has the example of the view only.

        Returns
        -------
        Path
            The file. Its address can end with what to show, for example
            ``head.html#head=3-1&word=plan&example=2&relation=dobj``; examples count from 1.

        Raises
        ------
        InputError
            If the store does not have one of the examples, or the file ends otherwise.
        """
        path = Path(path).expanduser()
        suffix = path.suffix.lower()
        if suffix not in (".html", ".svg") or (suffix == ".svg" and examples is not None):
            expected = "name a file .html, or .svg for the drawing of one example"
            raise InputError(f"{path}: a view is a page or a drawing; {expected}")
        content = draw(self) if suffix == ".svg" else None
        content = content or page.document(self.heading, self.data(examples))
        write_atomic(path, content.encode())
        return path

    def data(
        self, examples: Sequence[int] | None = None, *, all_heads: bool = True
    ) -> dict[str, Any]:
        """Return everything that a page without a kernel shows, ready for JSON.

        Unless ``all_heads``, it has the weights of the view's own head only.
        """
        settings = self.settings()
        heads = range(self.store.layers * self.store.heads) if all_heads else [settings["head"]]
        numbers = [self.example] if examples is None else plain(examples)
        if not isinstance(numbers, (list, tuple, range)):
            numbers = [numbers]
        indices = list(dict.fromkeys(whole("examples", number) for number in numbers))
        if not indices:
            raise InputError("a page needs an example; leave examples out for that of the view")
        pages = []
        for number in indices:
            check_example(self.store, number)
            embedded = page.embedded_page(self.store, self.store[number], heads)
            if self.control is not None:
                embedded["control"] = page.packed_maps(self.control[number], heads)
            pages.append(embedded)
        if self.example not in indices:
            settings["example"] = pages[0]["example"]
        return {**settings, "pages": pages}

    def search(
        self, word: str = "", relation: str = "", right: bool | None = None, limit: int = MAX_HITS
    ) -> pd.DataFrame:
        """Find examples by a word, or by the answers of this head to a relation.

        ``view(store, layer=8, head=10).search(relation="dobj", right=False)`` lists the direct
        objects about which head 8-10 is wrong; relation "coreference" asks for antecedents.

        Parameters
        ----------
        word
            Form of the word, in any case. Together with a relation: words with that relation.
        relation
            Name of a relation.
        right
            Keep right (True) or wrong (False) answers only; None keeps both.
        limit
            Number of hits after which the search stops.

        Returns
        -------
        DataFrame
            One row per hit: ``example``, ``asked`` (position in the map), ``word`` between the
            words ``before`` and ``after`` it (at most 12 each), ``relation``, ``picked`` (word),
            ``gold`` (words), ``right``, ``head`` (label).

        Raises
        ------
        InputError
            If neither a word nor a relation is given, or no example has the relation.
        """
        word = str(word)
        relation = str(relation)
        if not word and not relation:
            raise InputError("search for a word, a relation or both, such as relation='dobj'")
        if relation:
            answers = page.relation_hits(self.store, self.head, self.direction, relation, word)
            hits = (hit for hit in answers if right in (None, hit[-1]))
        else:
            hits = page.word_hits(self.store, word)
        table = pd.DataFrame(islice(hits, whole("limit", limit)), columns=page.HIT_COLUMNS)
        if relation and table.empty:
            check_relation(self.store, relation)
        return table.assign(head=head_label(*self.head, self.store.layer_numbers))

    @property
    def heading(self) -> str:
        """The head and the example that the view starts with, in a line; readers count from 1."""
        first = (
            f"head {head_label(*self.head, self.store.layer_numbers)}, example {self.example + 1}"
        )
        return f"{self.title} · {first}" if self.title else f"Attention of {first}"

    def settings(self) -> dict[str, Any]:
        """Return the example, head and relation that the view starts with, ready for JSON.

        The heads are counted through the layers, from 0.
        """
        layer, head = self.head
        return {
            "look": {  # the colours and names that the viewer shares with the figures
                "colors": page.COLORS,
                "labels": page.role_labels(self.store.special_tokens),
                "ramp": SEQUENTIAL_COLORS,
                "directions": list(DIRECTIONS),
                "direction_labels": list(page.DIRECTION_LABELS),
                "exponent": page.THUMBNAIL_EXPONENT,
            },
            "title": self.title,
            "example": self.example,
            "head": layer * self.store.heads + head,
            "relation": self.relation,
            "direction": self.direction,
            "names": page.head_names(self.store),
            "compare": self.compare,
            "control": "" if self.control is None else page.control_name(self.control),
        }

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """Return a page without a kernel, in an element that the widget takes over.

        The page has the weights of all heads if these are few, and else of one head. The bundle has
        no view of a widget, which JupyterLab would prefer to the page: in a notebook that is opened
        without its kernel, it would say that the widget has no model.
        """
        widget = ViewerWidget(self)
        n_weights = self.store[self.example].stored_attention.size
        content = self.data(all_heads=n_weights <= NOTEBOOK_LIMIT or bool(self.compare))
        height = FRAME_PIXELS + TOKEN_PIXELS * len(content["pages"][0]["tokens"])
        document = html.escape(page.document(self.heading, content))
        output = (
            f'<div data-attention-viewer="{widget.settings["output"]}">'
            '<iframe title="Attention viewer" loading="lazy" style="width:100%;border:0;'
            f'height:{height}px" srcdoc="{document}">{UNTRUSTED}</iframe></div>'
        )
        return {"text/html": output, "text/plain": repr(self)}


def view(
    store: Store,
    example: int = 0,
    *,
    layer: int = 1,
    head: int = 1,
    relation: str = "",
    direction: Direction = DIRECTIONS[0],
    title: str = "",
    compare: str = "",
    control: Store | None = None,
) -> Viewer:
    """Show the attention of an example of a store.

    Parameters
    ----------
    store
        Examples with their attention maps.
    example
        Index of the example in the store, from 0.
    layer, head
        Attention head that is large at first; both count from 1, as in the paper.
    relation
        Relation that is marked at first, such as "dobj"; "(all)" marks every one.
    direction
        Direction in which heads are read.
    title
        Text before the name of the head.
    compare
        What is drawn beside the head: another head ("5-2"), the mean over its "layer" or over all
        heads ("mean"), or the same head of the "control".
    control
        Store of the same texts by another model; `read(text, load_model(random_init=0))` makes one
        with random weights.  It is beside the head if ``compare`` is empty.

    Returns
    -------
    Viewer
        The view, which a notebook displays.

    Raises
    ------
    InputError
        If the store has no such example, head or relation, or the direction is none.
    """
    for name, candidate in {"store": store, "control": control}.items():
        if not isinstance(candidate, Store) and (name == "store" or candidate is not None):
            problem = f"{name} is no store, but {type(candidate).__name__}"
            raise InputError(f"{problem}; read, open_maps and open_store make stores")
    example = whole("example", example)
    layer = whole("layer", layer)
    head = whole("head", head)
    check_example(store, example)
    numbers = store.layer_numbers
    if not (layer in numbers and 1 <= head <= store.heads):
        ends = f"{numbers[0]}-1 to {numbers[-1]}-{store.heads}"
        raise InputError(f"there is no head {layer}-{head}; the model has {ends}")
    if direction not in DIRECTIONS:
        raise InputError(f"there is no direction {direction!r}; use one of {', '.join(DIRECTIONS)}")
    if relation not in ("", ALL_RELATIONS):
        check_relation(store, relation)
    is_like = control is None or (
        len(control) == len(store) and control[example].shape == store[example].shape
    )
    if not is_like:
        raise InputError("the control has other texts, layers or heads; read the same text with it")
    labels = head_labels(store.layers, store.heads, numbers)
    choices = ["", *MEANS, *labels] if control is None else ["", *MEANS, CONTROL, *labels]
    if compare not in choices:
        raise InputError(
            f"there is no {compare!r} to compare the head with; use {', '.join(choices[1:])}"
        )
    if control is not None:
        compare = compare or CONTROL
    position = (numbers.index(layer), head - 1)
    return Viewer(store, example, position, relation, direction, title, compare, control)


def whole(name: str, number: Any) -> int:
    """Convert a whole number of any library to that of Python; InputError for another value."""
    try:
        return index(number)
    except TypeError as error:
        expected = "expected a whole number; head 3-1 is layer=3, head=1"
        raise InputError(f"{name}={number!r}: {expected}") from error


def check_example(store: Store, example: int) -> None:
    """Raise InputError if a store has no such example, counted from 0."""
    if not 0 <= example < len(store):
        raise InputError(f"there is no example {example}; the store has 0 to {len(store) - 1}")


class ViewerWidget(anywidget.AnyWidget):
    """A view whose examples and maps come from the kernel, one at a time."""

    _esm = page.SCRIPT
    _css = page.STYLE
    settings = traitlets.Dict().tag(sync=True)

    def __init__(self, viewer: Viewer) -> None:
        settings = viewer.settings()
        sample = islice(viewer.store.records(), RELATION_SAMPLE_RECORDS)
        settings["relations"] = relation_names(sample)
        settings = page.shown_in_browser(settings)
        # Names the element of the page; a notebook that is executed again has the same names.
        settings["output"] = json_digest([settings, next(NUMBERS)])
        super().__init__(settings=settings)
        self._viewer = viewer

    @command
    def answer(self, request: dict[str, Any], _: object) -> tuple[dict[str, Any], list[bytes]]:
        """Answer a request of the browser: with JSON and bytes, or with the user's mistake."""
        try:
            content, buffers = self._respond(request)
        except InputError as error:
            return page.shown_in_browser({"error": str(error)}), []
        return page.shown_in_browser(content), buffers

    def _respond(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        """Return the JSON and the bytes that a request asks for."""
        store = self._viewer.store
        head = divmod(int(request.get("head", 0)), store.heads)
        if request["kind"] == "search":
            searched = replace(self._viewer, head=head, direction=request["direction"])
            hits = searched.search(
                request["word"], request["relation"], request["right"], limit=MAX_HITS + 1
            )
            rows = hits.head(MAX_HITS).to_dict("records")
            return {"found": rows, "more": len(hits) > MAX_HITS}, []
        number = int(request["example"])
        check_example(store, number)
        example = store[number]
        if request["kind"] in ("map", "control"):
            if request["kind"] == "control" and self._viewer.control is not None:
                example = self._viewer.control[number]
            return {}, [page.quantize(page.in_square(example).stored_attention[head]).tobytes()]
        content = page.page_facts(store, example)
        return {"page": content}, page.buffers(example, content["special"])
