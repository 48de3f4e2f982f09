"""Look at attention: any head of any stored example, in a notebook or in a file of its own.

``view(store, example=17, layer=8, head=10)`` is interactive in JupyterLab and VS Code, where the
kernel answers what the browser asks for; without one (in an HTML copy) the same view shows what
it holds.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import pandas as pd
import traitlets
from anywidget.experimental import command

from helpers.analysis.heads import COREFERENCE, DIRECTIONS, Direction, head_label
from helpers.errors import InputError
from helpers.paths import write_whole
from helpers.store.format import tensor_name
from helpers.store.store import Example, Store, tokens_of
from helpers.viewer import page
from helpers.viewer.page import MOST_FOUND, check_relation, relations_in, search

if TYPE_CHECKING:
    from torch import Tensor

    from helpers.model.encoder import Encoder

EVERY = "(all)"  # relations
ASKED = ("word", "relation", "right", "direction")  # of a search
NOTEBOOK_LIMIT = 1_000_000  # bytes of weights that a notebook's output may hold without a kernel
MOST_KEYS = 10  # of a query, that are shown beside it
FRAME = 620, 17  # pixels of a frame: the controls and small maps, and each token


@dataclass(frozen=True)
class Viewer:
    """One example of a store, seen through one head, (layer, head) from 0; made by `view`."""

    store: Store = field(repr=False)
    example: int
    head: tuple[int, int]
    relation: str = ""
    direction: Direction = DIRECTIONS[0]
    title: str = ""
    encoder: Encoder | None = field(default=None, repr=False)
    second: Viewer | None = None

    def beside(self, other: Viewer) -> Viewer:
        """Return this view and another (example, head, model or lens) side by side."""
        return replace(self, second=other)

    def save(self, path: str | Path, examples: Sequence[int] | None = None) -> Path:
        """Write the view as one HTML file that works offline, with every head's weights.

        ``examples`` puts more examples of the store into the file, to go through and search.
        """
        write_whole(Path(path), page.document(self.heading, self.data(examples)).encode())
        return Path(path)

    def data(
        self, examples: Sequence[int] | None = None, *, all_heads: bool = True
    ) -> dict[str, Any]:
        """Return what a page shows, ready for JSON; else than ``all_heads``, one head's weights."""
        data = self.settings()
        for pane, own in zip(self.panes, data["panes"], strict=True):
            heads = range(pane.store.layers * pane.store.heads) if all_heads else [pane.index]
            wanted = examples or [pane.example]
            own["pages"] = [page.embedded_page(pane.store, pane.store[i], heads) for i in wanted]
        return data

    def _frame(self) -> str:
        """Return a page for where there is no kernel as an inline frame: small, or of one head."""
        sizes = [pane.store[pane.example].attention.size for pane in self.panes]
        data = self.data(all_heads=sum(sizes) <= NOTEBOOK_LIMIT)
        tokens = max(len(pane["pages"][0]["tokens"]) for pane in data["panes"])
        shown = html.escape(page.document(self.heading, data))
        return (
            '<iframe title="Attention viewer" loading="lazy" style="width:100%;border:0;'
            f'height:{FRAME[0] + FRAME[1] * tokens}px" srcdoc="{shown}"></iframe>'
        )

    def search(self, **wanted: Any) -> pd.DataFrame:
        """Find examples by a word, or by how this head does at a relation: see `page.search`.

        ``view(store, layer=8, head=10).search(relation="dobj", right=False)`` lists where head
        8-10 is wrong about dobj; relation "coreference" asks for antecedents.
        """
        return search(self.store, self.head, direction=self.direction, **wanted)

    @property
    def panes(self) -> list[Viewer]:
        """The views that are shown: one, or two side by side."""
        return [self] if self.second is None else [replace(self, second=None), self.second]

    @property
    def heading(self) -> str:
        """What the view is of at first, in a line."""
        own = [f"head {head_label(*pane.head)}, example {pane.example}" for pane in self.panes]
        named = f"{self.title} · {own[0]}" if self.title else f"Attention of {own[0]}"
        return " | ".join([named, *own[1:]])

    @property
    def index(self) -> int:
        """The number of the head, counted through the layers from 0."""
        return self.head[0] * self.store.heads + self.head[1]

    def settings(self) -> dict[str, Any]:
        """Return what the view starts with, ready for JSON."""
        panes = [
            {"title": pane.title, "example": pane.example, "head": pane.index,
             "relation": pane.relation, "direction": pane.direction}
            for pane in self.panes
        ]  # fmt: skip
        return {"look": page.look(self.store.special_tokens), "panes": panes}

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle, metadata = ViewerWidget(self)._repr_mimebundle_()
        bundle["text/html"] = self._frame()
        bundle["text/plain"] = repr(self)
        return bundle, metadata


def view(
    store: Store,
    example: int = 0,
    *,
    layer: int = 1,
    head: int = 1,
    relation: str = "",
    direction: Direction = DIRECTIONS[0],
    title: str = "",
    encoder: Encoder | None = None,
) -> Viewer:
    """Show the attention of an example of a store.

    ``layer`` and ``head`` count from 1, as in the paper; ``example`` from 0, as in the store.
    ``relation`` starts with one relation marked, read in ``direction``.  With the model of the
    store as ``encoder``, a notebook can mask words and show queries and keys.  InputError where
    there is no such example, head, direction or relation, or the encoder does not fit.
    """
    if not 0 <= example < len(store):
        raise InputError(f"no example {example}: the store has 0 to {len(store) - 1}")
    if not (1 <= layer <= store.layers and 1 <= head <= store.heads):
        last = head_label(store.layers - 1, store.heads - 1)
        raise InputError(f"no head {layer}-{head}: the model has 1-1 to {last}")
    if direction not in DIRECTIONS:
        raise InputError(f"no direction {direction!r}; there are {', '.join(DIRECTIONS)}")
    if relation not in ("", EVERY):
        check_relation(store, relation)
    if encoder is not None:
        from helpers.store.extract import encoder_facts

        if encoder_facts(encoder)["model"] != (made := store.spec.model):
            problem = f"and {encoder.name} is not that model as it was"
            raise InputError(f"the maps are those of {made['name']}, {problem}")
    return Viewer(store, example, (layer - 1, head - 1), relation, direction, title, encoder)


def viewers(
    table: pd.DataFrame, treebank: Callable[[], Store], documents: Callable[[], Store], **how: Any
) -> list[Viewer]:
    """Return a viewer of each row of `helpers.plots.examples.places`, in the store it is from.

    The two stores are opened where they are needed; without a row it is the first sentence's;
    ``how`` is for `view`.
    """
    found = []
    for row in table.astype(object).to_dict("records") or [{}]:
        store = documents() if row.get("relation") == COREFERENCE else treebank()
        given = {name: own for name, own in row.items() if pd.notna(own) and own != ""}
        found.append(view(store, **given, **how))
    return found


def masked_example(store: Store, index: int, positions: Sequence[int], encoder: Encoder) -> Example:
    """Return an example with the mask token at ``positions`` of its maps, tokens or whole words."""
    from helpers.store.examples import shard_tensors

    if encoder.tokenizer.mask_token is None:
        raise InputError(f"{encoder.name} has no mask token")
    example = store[index]
    kind, offset = ("words", example.offset) if "words" in example.record else ("tokens", 0)
    texts = list(example.record[kind])
    for position in positions:
        texts[position - offset] = encoder.tokenizer.mask_token
    record = example.record | {kind: texts}
    tensors = shard_tensors(encoder, [record], index, **store.spec.maps)
    return replace(example, attention=tensors[tensor_name("attention", index)], record=record)


def neurons(
    encoder: Encoder, example: Example, head: tuple[int, int], position: int, piece: int = 0
) -> dict[str, Any]:
    """Return the neuron view of a token of the word at ``position`` of a map, ready for JSON.

    That is its query, and beside it (*A Multiscale Visualization of Attention*, Vig 2019) the keys
    of the tokens with most of its attention, with what `head_scores` finds in their scores.
    """
    from helpers.model.forward import model_inputs
    from helpers.model.queries import head_scores

    inputs = model_inputs(encoder, example.record)
    parts = head_scores(encoder, example.record, *head)
    tokens = encoder.tokenizer.convert_ids_to_tokens(inputs["input_ids"])
    words = inputs.get("groups", range(len(tokens)))
    pieces = [token for token, word in enumerate(words) if word == position]
    query, other = parts.queries[pieces[piece]], parts.other[pieces[piece]]
    weights = (parts.scale * parts.keys @ query + other).softmax(dim=0)
    keys = weights.argsort(descending=True)[: min(MOST_KEYS, int((weights > 0).sum()))]
    return {
        "pieces": [tokens[own] for own in pieces],
        "tokens": [tokens[key] for key in keys],
        "query": query.tolist(),
        "keys": parts.keys[keys].tolist(),
        "scale": parts.scale,
        "other": other[keys].tolist(),
        "weights": weights[keys].tolist(),
    }


def to_bertviz(store: Store, example: int) -> tuple[tuple[Tensor, ...], list[str]]:
    """Return an example as ``bertviz.head_view(*...)`` takes it: maps by layer, tokens."""
    import torch

    found = store[example]
    maps = torch.from_numpy(found.attention.astype("float32"))
    return tuple(layer[None] for layer in maps), tokens_of(store, found)


class ViewerWidget(anywidget.AnyWidget):
    """A view whose examples and maps come from the kernel, one at a time."""

    _esm = page.SCRIPT
    _css = (page.HERE / "viewer.css").read_text(encoding="utf-8")
    settings = traitlets.Dict().tag(sync=True)

    def __init__(self, viewer: Viewer) -> None:
        settings = viewer.settings()
        for pane, own in zip(viewer.panes, settings["panes"], strict=True):
            own |= {"relations": relations_in(pane.store), "encoder": pane.encoder is not None}
        super().__init__(settings=page.shown_in_browser(settings))
        self._panes = viewer.panes
        self._masked: dict[object, Example] = {}  # the last one that was asked for

    @command
    def answer(self, request: dict[str, Any], _: object) -> tuple[dict[str, Any], list[bytes]]:
        """Answer a request of the browser: with JSON and bytes, or with the user's mistake."""
        content, buffers = self._answer(request)
        return page.shown_in_browser(content), buffers

    def _answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        pane = self._panes[request["pane"]]
        head = divmod(int(request.get("head", 0)), pane.store.heads)
        try:
            if request["kind"] == "search":
                wanted = {name: request[name] for name in ASKED}
                found = search(pane.store, head, **wanted, limit=MOST_FOUND + 1)
                rows = json.loads(found.head(MOST_FOUND).to_json(orient="records"))
                return {"found": rows, "more": len(found) > MOST_FOUND}, []
            example = self._example(pane, request)
            if request["kind"] == "neurons":
                place = request["position"], request["piece"]
                return neurons(pane.encoder, example, head, *place), []
        except InputError as error:
            return {"error": str(error)}, []
        if request["kind"] == "map":
            return {}, [page.quantize(example.attention[head]).tobytes()]
        facts = page.page_facts(pane.store, example)
        return {"page": facts}, page.buffers(example, facts["special"])

    def _example(self, pane: Viewer, request: dict[str, Any]) -> Example:
        index, masked = int(request["example"]), request.get("masked") or []
        view(pane.store, index)  # refuses one that is not there
        if not masked:
            return pane.store[index]
        wanted = (request["pane"], index, *masked)
        if wanted not in self._masked:  # a pass of the model, which each of its heads would ask for
            self._masked = {wanted: masked_example(pane.store, index, masked, pane.encoder)}
        return self._masked[wanted]
