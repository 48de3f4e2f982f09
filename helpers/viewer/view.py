"""Look at attention: any head of any stored example, or of a text, in a notebook or in a file.

``view(store, example=17, layer=8, head=10)`` is interactive in JupyterLab, where the kernel
answers what the browser asks for.  Without a kernel, as in a saved notebook or its HTML copy, and
in other editors, the same view shows the maps that it holds.
"""

from __future__ import annotations

import html
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice, pairwise
from operator import index
from pathlib import Path
from typing import Any, get_args
from unicodedata import category

import anywidget
import numpy as np
import pandas as pd
import traitlets
from anywidget.experimental import command
from tokenizers import Encoding

from helpers.data.records import Corpus, Record, Sentence
from helpers.data.text_files import clean_word, is_english, quoted
from helpers.data.treebank import parsed_text
from helpers.errors import InputError
from helpers.files import json_digest, write_atomic
from helpers.metrics.heads import DIRECTIONS, Direction, head_label, head_labels
from helpers.model.forward import number_words
from helpers.model.loading import DEFAULT, Lens, Model, load_model
from helpers.model.tokenizer import readable_tokens
from helpers.store.extract import (
    ComputedStore,
    fill,
    in_temporary_folder,
    list_examples,
    sentence_record,
)
from helpers.store.store import Level, Store, store_inputs
from helpers.viewer import page
from helpers.viewer.page import ALL_RELATIONS, MAX_HITS, check_relation, relation_names

MEANS = ("layer", "mean")
CONTROL = "control"
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
        if suffix == ".svg" and examples is None:
            content = page.drawing(self)
        elif suffix == ".html":
            content = page.document(self.heading, self.data(examples))
        else:
            raise InputError(f"{path}: name a file .html, or .svg for the drawing of one example")
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
        numbers = np.atleast_1d(self.example if examples is None else examples).tolist()
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
        if not word and not relation:
            raise InputError("search for a word, a relation or both, such as relation='dobj'")
        hits = page.find_hits(self.store, self.head, self.direction, str(word), relation)
        answered = (hit for hit in hits if not relation or right in (None, hit[-1]))
        table = pd.DataFrame(islice(answered, whole("limit", limit)), columns=page.HIT_COLUMNS)
        if relation and table.empty:
            check_relation(self.store, relation)
        return table.assign(head=head_label(*self.head, self.store.layer_numbers))

    @property
    def heading(self) -> str:
        """The head and the example that the view starts with, in a line; readers count from 1."""
        label = head_label(*self.head, self.store.layer_numbers)
        first = f"head {label}, example {self.example + 1}"
        return f"{self.title} · {first}" if self.title else f"Attention of {first}"

    def settings(self) -> dict[str, Any]:
        """Return the example, head and relation that the view starts with, ready for JSON.

        The heads are counted through the layers, from 0.
        """
        layer, head = self.head
        return {
            "look": page.LOOK | {"labels": page.role_labels(self.store.special_tokens)},
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
        is_small = self.store[self.example].stored_attention.size <= 1_000_000
        content = self.data(all_heads=is_small or bool(self.compare))
        height = 620 + 17 * len(content["pages"][0]["tokens"])  # pixels: controls, then tokens
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
    if not (isinstance(store, Store) and isinstance(control, Store | None)):
        raise InputError(f"{store!r:.60} is no store; read, open_maps and open_store make stores")
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
    choices = [*MEANS, *head_labels(store.layers, store.heads, numbers)]
    if control is not None:
        shapes = {source[example].stored_attention.shape for source in (store, control)}
        if len(control) != len(store) or len(shapes) > 1:
            raise InputError("the control has other texts, layers or heads; read the same with it")
        choices.append(CONTROL)
        compare = compare or CONTROL
    if compare and compare not in choices:
        raise InputError(f"nothing is beside the head: {compare!r} is none of {', '.join(choices)}")
    position = (numbers.index(layer), head - 1)
    return Viewer(store, example, position, relation, direction, title, compare, control)


def whole(name: str, number: Any) -> int:
    """Convert a whole number of any library to that of Python; InputError for another value."""
    try:
        return index(number)
    except TypeError as error:
        raise InputError(
            f"{name}={number!r}: give a whole number; 3-1 is layer=3, head=1"
        ) from error


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
        sample = islice(viewer.store.records(), 300)  # has most names of relations
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
            content = {"error": str(error)}
            buffers = []
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


def read(
    text: str | Sequence[str],
    model: str | Path | Model = DEFAULT,
    *,
    level: Level = "token",
    lens: Lens = "attention",
    parser: str = "",
) -> Store:
    """Compute the attention maps of a text.

    ``view(read("The keys to the cabinet are here."))`` shows them.  The text and its maps are in a
    temporary folder, which is removed together with the store; the cache keeps nothing of them.

    Parameters
    ----------
    text : str or sequence of str
        A text in any language, or several.  Each is one example, however many sentences it has.
    model : str, Path or Model
        Name or folder of a model, as for ``--model``, or what `load_model` returns.
    level : str
        ``token`` shows what the model reads, of any text.  ``word`` joins tokens to words (section
        4.1): those of English have syntactic relations, from a parse, and those of other languages
        are as the tokenizer divides them.
    lens : str
        ``attention``, or ``norm`` for the norms of what each weight moves.
    parser : str
        Name of an installed spaCy pipeline, such as ``de_core_news_sm``, for the relations of a
        text that is not English.

    Returns
    -------
    Store
        One example per text.

    Raises
    ------
    InputError
        If a text is empty or longer than the model takes, or if the model or the parser cannot be
        loaded.
    """
    texts: list[Any] = (
        [text] if not isinstance(text, Iterable) or isinstance(text, str) else list(text)
    )
    if not texts or not all(isinstance(entry, str) and entry.strip() for entry in texts):
        raise InputError(f"read takes a text, or a list of texts, that are not empty; got {text!r}")
    for name, value, choices in (("level", level, Level), ("lens", lens, Lens)):
        if value not in get_args(choices):
            raise InputError(f"there is no {name} {value!r}; use {' or '.join(get_args(choices))}")
    if not isinstance(model, (str, Path, Model)):
        problem = f"{type(model).__name__} is no name or folder of a model"
        raise InputError(f"{problem}; save it with save_pretrained, or use open_maps for its maps")
    encoder = model if isinstance(model, Model) else load_model(str(model))
    spec = {"kind": "text", "texts": texts, "parser": parser}
    corpus: Corpus[Any] = Corpus("own-text", spec, lambda _: iter(texts))
    inputs = store_inputs(
        encoder.key, corpus, level=level, lens=lens, max_tokens=encoder.max_length
    )

    def make(folder: Path) -> Store:
        make_records = partial(_records, level=level, parser=parser)
        list_examples(folder, encoder, corpus, inputs, make_records)
        return fill(ComputedStore(folder, encoder))

    return in_temporary_folder(make)


def _records(
    encoder: Model, corpus: Corpus[Any], max_tokens: int, counts: Counter[str], *, level: Level,
    parser: str,
) -> Iterator[Record]:  # fmt: skip
    """Yield the record of each text; InputError for one that the model cannot take."""
    for text in corpus.read(counts):
        try:
            encoding = encoder.tokenizer.backend_tokenizer.encode(text)
        except TypeError as error:
            raise InputError(f"{quoted(text)} has a half of a character (a surrogate)") from error
        named = [name for name in encoder.tokenizer.all_special_tokens if name in text]
        if named:
            print(f"{quoted(text)}: {', '.join(named)} is read as text.", file=sys.stderr)
        if len(encoding) > max_tokens:
            problem = f"has {len(encoding)} tokens, and {encoder.name} takes {max_tokens}"
            raise InputError(f"the text {quoted(text)} {problem}; give a part of it")
        if level == "token":
            inputs = {"input_ids": encoding.ids, "token_type_ids": encoding.type_ids}
            tokens = readable_tokens(encoder.tokenizer, encoding.ids)
            yield {"tokens": tokens, "title": "", "inputs": inputs}
        elif parser or is_english([text]):
            parse = _parsed(text, parser)
            record = sentence_record(encoder, parse, max_tokens, counts)
            if record is None:
                raise InputError(f"the text {quoted(text)}: {', '.join(counts)}; use level='token'")
            yield record
        else:
            yield _word_record(encoding, text, counts)


def _parsed(text: str, parser: str) -> Sentence:
    """Parse a text; the trees of its sentences stand side by side."""
    parse = Sentence((), (), (), "dev", "")
    for sentence in parsed_text(text, parser).records():
        n_before = len(parse.words)
        parse = parse._replace(
            words=parse.words + sentence.words,
            heads=parse.heads + tuple(head and head + n_before for head in sentence.heads),
            relations=parse.relations + sentence.relations,
            tags=parse.tags + sentence.tags,
            spaces=parse.spaces + sentence.spaces,
        )
    return parse


def _word_record(encoding: Encoding, text: str, counts: Counter[str]) -> Record:
    """Make the record of words as the tokenizer divides them, and as spaces do.

    Some tokenizers (Llama 2, Gemma) have no words of their own, and some cut at combining marks.
    """
    begins: list[int] = []  # of words, in characters
    word_of_token: list[int | None] = []
    for (before, word_id), (first, last) in zip(
        pairwise([None, *encoding.word_ids]), encoding.offsets, strict=True
    ):
        if word_id is None:  # a special token
            word_of_token.append(None)
            continue
        begin = last - len(text[first:last].lstrip())
        classes = "".join(
            category(character)[0] for character in text[max(begin - 1, 0) : begin + 1]
        )
        is_inside = word_id == before or classes in ("LM", "ML", "MM")
        is_after_space = text[max(begin - 1, 0)].isspace()
        if not begins or (begin > begins[-1] and (is_after_space or not is_inside)):
            begins.append(begin)
        word_of_token.append(len(begins) - 1)
    words = []
    for begin, end in pairwise([*begins, len(text)]):
        words.append(clean_word(text[begin:end].strip(), counts))
    inputs = {"input_ids": encoding.ids, "token_type_ids": encoding.type_ids}
    inputs["groups"] = number_words(word_of_token)
    record = {"words": words, "split": "dev", "source": "", "inputs": inputs}
    return {**record, "offset": word_of_token.index(0)}
