"""Look at attention: any head of any stored example, in a notebook or in a file of its own.

``view(store, example=17, layer=8, head=10)`` is interactive in JupyterLab and VS Code, where the
kernel answers what the browser asks for; where there is no kernel (an nbconvert page, an exported
file) the same view shows what it holds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import pandas as pd
import traitlets

from helpers.analysis.head_choice import DIRECTIONS, Direction
from helpers.analysis.heads import head_label
from helpers.errors import InputError
from helpers.store.store import Source, tokens_of
from helpers.viewer.page import (
    HERE,
    buffers,
    document,
    embedded_page,
    frame,
    look,
    page_facts,
    quantize,
)
from helpers.viewer.search import relations_in, search

if TYPE_CHECKING:
    from torch import Tensor

NOTEBOOK_LIMIT = 1_000_000  # bytes of weights that a notebook's output may hold without a kernel
FRAME = 620, 17  # pixels of a frame: the controls and small maps, and each token


@dataclass(frozen=True)
class Viewer:
    """One example of a store, seen through one head; made by `view`.

    ``head`` is (layer, head) from 0.  Displayed in a notebook it reads other examples and heads
    when they are asked for.
    """

    store: Source = field(repr=False)
    example: int
    head: tuple[int, int]
    relation: str = ""
    direction: Direction = DIRECTIONS[0]
    title: str = ""

    def save(self, path: str | Path, examples: Sequence[int] | None = None) -> Path:
        """Write the view as one HTML file that works offline, with every head's weights.

        ``examples`` puts more examples of the store into the file, to go through and search.
        """
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.html(examples), encoding="utf-8")
        return target

    def html(self, examples: Sequence[int] | None = None) -> str:
        """Return the page that `save` writes."""
        every = range(self.store.layers * self.store.heads)
        return self._document(every, examples or [self.example])

    def frame(self, page: str | None = None) -> str:
        """Return a page (default: `html`) as an inline frame."""
        record = self.store.record(self.example)
        tokens = len(record.get("words") or record["tokens"]) + 2
        return frame(page or self.html(), self.heading, FRAME[0] + FRAME[1] * tokens)

    def search(
        self, *, word: str = "", relation: str = "", right: bool | None = None, limit: int = 50
    ) -> pd.DataFrame:
        """Find examples by a word, or by how this head does at a relation.

        ``view(store, layer=8, head=10).search(relation="dobj", right=False)`` lists where head
        8-10 is wrong about dobj; relation "coreference" asks for antecedents.  See
        `helpers.viewer.search.search`.
        """
        return search(
            self.store,
            self.head,
            word=word,
            relation=relation,
            right=right,
            direction=self.direction,
            limit=limit,
        )

    @property
    def heading(self) -> str:
        """What the view is of, in a line."""
        own = f"head {head_label(*self.head)}, example {self.example}"
        return f"{self.title} · {own}" if self.title else f"Attention of {own}"

    def settings(self) -> dict[str, Any]:
        """Return what the view starts with, ready for JSON."""
        layer, head = self.head
        return {
            "title": self.title,
            "head": layer * self.store.heads + head,
            "example": self.example,
            "relation": self.relation,
            "direction": self.direction,
            "look": look(self.store.special_tokens),
        }

    def _document(self, heads: Sequence[int], examples: Sequence[int]) -> str:
        pages = [embedded_page(self.store, self.store[index], heads) for index in examples]
        return document(self.heading, self.settings() | {"pages": pages})

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle, metadata = ViewerWidget(self)._repr_mimebundle_()
        bundle["text/html"] = self.frame(self._page_for_notebook())
        bundle["text/plain"] = repr(self)
        return bundle, metadata

    def _page_for_notebook(self) -> str:
        """Return the page of where there is no kernel, with one head's weights if all are large."""
        maps = self.store[self.example].attention
        layer, head = self.head
        own = range(layer * self.store.heads + head, layer * self.store.heads + head + 1)
        heads = range(self.store.layers * self.store.heads) if maps.size <= NOTEBOOK_LIMIT else own
        return self._document(heads, [self.example])


def view(
    store: Source,
    example: int = 0,
    *,
    layer: int = 1,
    head: int = 1,
    relation: str = "",
    direction: Direction = DIRECTIONS[0],
    title: str = "",
) -> Viewer:
    """Show the attention of an example of a store.

    ``layer`` and ``head`` count from 1, as in the paper; ``example`` from 0, as in the store.
    ``relation`` starts with one relation of the example marked, read in ``direction``.

    Raises:
        InputError: there is no such example, head or direction.
    """
    if not 0 <= example < len(store):
        raise InputError(f"no example {example}: the store has 0 to {len(store) - 1}")
    if not (1 <= layer <= store.layers and 1 <= head <= store.heads):
        last = head_label(store.layers - 1, store.heads - 1)
        raise InputError(f"no head {layer}-{head}: the model has 1-1 to {last}")
    if direction not in DIRECTIONS:
        raise InputError(f"no direction {direction!r}; there are {', '.join(DIRECTIONS)}")
    return Viewer(store, example, (layer - 1, head - 1), relation, direction, title)


def to_bertviz(store: Source, example: int) -> tuple[tuple[Tensor, ...], list[str]]:
    """Return an example as bertviz takes it: maps ``[1, head, query, key]`` by layer, tokens.

    ``bertviz.head_view(*to_bertviz(store, 17))`` shows it; bertviz loads scripts from the network.

    Raises:
        InputError: bertviz is not installed.
    """
    if find_spec("bertviz") is None:
        raise InputError("bertviz is not installed; pip install bertviz, or use view(store, i)")
    import torch

    found = store[example]
    maps = torch.from_numpy(found.attention.astype("float32"))
    return tuple(layer[None] for layer in maps), tokens_of(store, found)


class ViewerWidget(anywidget.AnyWidget):
    """A view whose examples and maps come from the kernel, one at a time."""

    _esm = HERE / "viewer.js"
    _css = HERE / "viewer.css"
    settings = traitlets.Dict().tag(sync=True)

    def __init__(self, viewer: Viewer) -> None:
        super().__init__(settings=viewer.settings() | {"relations": relations_in(viewer.store)})
        self._viewer = viewer
        self.on_msg(self._answer)

    def _answer(self, _: object, message: dict[str, Any], __: object) -> None:
        """Answer one request; a mistake of the user's is shown in the view, not raised."""
        try:
            content, data = self.reply(message)
        except InputError as error:
            content, data = {"error": str(error)}, []
        self.send({"answer": message["ask"]} | content, data)

    def reply(self, message: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        """Return what a request asks for: JSON and bytes."""
        store = self._viewer.store
        if message["kind"] == "search":
            found = search(
                store,
                divmod(int(message["head"]), store.heads),
                word=message["word"],
                relation=message["relation"],
                right=message["right"],
                direction=message["direction"],
            )
            return {"found": json.loads(found.to_json(orient="records"))}, []
        index = int(message["example"])
        if not 0 <= index < len(store):
            raise InputError(f"no example {index}: the store has 0 to {len(store) - 1}")
        example = store[index]
        if message["kind"] == "map":
            head = divmod(int(message["head"]), store.heads)
            return {}, [quantize(example.attention[head]).tobytes()]
        facts = page_facts(store, example)
        return {"page": facts}, buffers(example, facts["special"])
