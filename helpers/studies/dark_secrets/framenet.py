"""FrameNet's full-text annotation: which words are a predicate and its core arguments.

The data are requested from the FrameNet project and read from a folder: ``fulltext/*.xml``, and
beside it ``frame/*.xml``, which says of each frame which of its elements are core.  The XML is
read with the limits of :mod:`helpers.data.xml_reader`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from helpers.data import text_files
from helpers.data.xml_reader import Attributes, XmlReader
from helpers.errors import CorpusError

LONGEST = 12  # words of a sentence, as in Kovaleva et al. (2019, section 4.2)
WORD_LAYERS = ("PENN", "BNC")  # the layers whose labels are the words
EXPECTED = "expected FrameNet's full-text annotation (fulltext/*.xml)"
_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")

Span = tuple[int, int]  # first character and the one after the last


@dataclass(frozen=True, slots=True)
class FrameSentence:
    """A sentence and its links: pairs of a predicate's word and an argument's, from 0."""

    words: tuple[str, ...]
    links: tuple[tuple[int, int], ...]
    source: str


@dataclass(slots=True)
class _Frame:
    """The annotation of one predicate: its spans, and those of its elements by name."""

    name: str
    target: list[Span] = field(default_factory=list)
    elements: list[tuple[str, Span]] = field(default_factory=list)


@dataclass(slots=True)
class _Sentence:
    number: str
    text: str = ""
    words: list[Span] = field(default_factory=list)
    frames: list[_Frame] = field(default_factory=list)


def framenet_sentences(path: Path) -> list[FrameSentence]:
    """Return the sentences of at most `LONGEST` words that have a predicate with an argument.

    ``path`` is FrameNet's folder, its ``fulltext`` folder, or one file of it.  The arguments are
    the core elements where the frames are there, otherwise all elements.

    Raises:
        CorpusError: no such file, no full-text annotation, damaged or hostile XML (with its
            line), or no sentence of that kind.
    """
    counts: Counter[str] = Counter()
    files = _files(Path(path).expanduser())
    core = _core_elements(files[0].parent.parent / "frame")
    found = []
    for file in files:
        for sentence in _FullTextReader(file).read():
            words = sentence.words or [match.span() for match in _WORD.finditer(sentence.text)]
            if len(words) > LONGEST:  # before the links, whose number grows with its cube
                counts[f"sentences dropped: over {LONGEST} words"] += 1
            elif not (links := _links(sentence, words, core)):
                counts["sentences dropped: no predicate with an argument"] += 1
            else:
                own = tuple(sentence.text[start:end] for start, end in words)
                found.append(FrameSentence(own, links, f"{file.stem}:{sentence.number}"))
    if not found:
        dropped = ", ".join(f"{count} {reason}" for reason, count in counts.items())
        raise CorpusError(path, f"no sentence with a link left ({dropped}); {EXPECTED}")
    return found


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    for folder in (path / "fulltext", path):
        if files := sorted(folder.glob("*.xml")):
            return files
    problem = "holds no *.xml" if path.is_dir() else "does not exist"
    raise CorpusError(path, f"{problem}; {EXPECTED}")


def _core_elements(folder: Path) -> dict[str, set[str]] | None:
    """Return the names of each frame's core elements, or None without the frames' folder."""
    if not folder.is_dir():
        return None
    return dict(
        frame for file in sorted(folder.glob("*.xml")) for frame in _FrameReader(file).read()
    )


def _links(
    sentence: _Sentence, words: list[Span], core: dict[str, set[str]] | None
) -> tuple[tuple[int, int], ...]:
    """Return every pair of a word of a predicate and a word of one of its arguments."""
    pairs = set()
    for frame in sentence.frames:
        wanted = None if core is None else core.get(frame.name, set())
        predicate = _within(words, frame.target)
        for name, span in frame.elements:
            if wanted is None or name in wanted:
                argument = _within(words, [span])
                pairs |= {(a, b) for a in predicate for b in argument if b not in predicate}
    return tuple(sorted(pairs))


def _within(words: list[Span], spans: list[Span]) -> list[int]:
    """Return the words that share a character with one of the spans."""
    return [
        index
        for index, (start, end) in enumerate(words)
        if any(start < last and first < end for first, last in spans)
    ]


class _FrameReader(XmlReader):
    """Yields a frame's name and the names of its core elements."""

    root, item, expected = "frame", "frame", EXPECTED

    def start(self, tag: str, attributes: Attributes) -> None:
        if tag == self.root:
            self._frame = (attributes.get("name", ""), set())
        elif tag == "FE" and attributes.get("coreType", "").startswith("Core"):
            self._frame[1].add(attributes.get("name", ""))

    def end(self, tag: str) -> None:
        if tag == self.root:
            self.done.append(self._frame)


class _FullTextReader(XmlReader):
    """Yields sentences."""

    root, item, expected = "fullTextAnnotation", "sentence", EXPECTED

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._most = text_files.limit("ATTENTION_MAX_LINE")
        self._sentence = _Sentence("")
        self._frame = _Frame("")
        self._layer, self._in_text = "", False

    def start(self, tag: str, attributes: Attributes) -> None:
        if tag == "sentence":
            self._sentence = _Sentence(attributes.get("ID", "?"))
        elif tag == "annotationSet":
            self._frame = _Frame(attributes.get("frameName", ""))
        elif tag == "layer":
            self._layer = attributes.get("name", "")
        elif tag == "label" and "start" in attributes:  # others stand for what is not in the text
            self._label(attributes)
        self._in_text = tag == "text"

    def characters(self, data: str) -> None:
        if self._in_text:
            self._sentence.text += data
            if len(self._sentence.text) > self._most:
                self.fail(f"sentence over {self._most:,} characters; set ATTENTION_MAX_LINE higher")

    def end(self, tag: str) -> None:
        self._in_text = False
        if tag == "annotationSet" and self._frame.target:
            self._sentence.frames.append(self._frame)
        elif tag == "sentence":
            self._sentence.words = sorted(set(self._sentence.words))
            self.done.append(self._sentence)

    def _label(self, attributes: Attributes) -> None:
        if self._layer not in (*WORD_LAYERS, "Target", "FE"):
            return
        span = self._span(attributes)
        if self._layer == "Target":
            self._frame.target.append(span)
        elif self._layer == "FE":
            self._frame.elements.append((attributes.get("name", ""), span))
        else:
            self._sentence.words.append(span)

    def _span(self, attributes: Attributes) -> Span:
        first, last = attributes["start"], attributes.get("end", "")
        if not all(re.fullmatch("[0-9]{1,9}", place) for place in (first, last)):
            self.fail(f"a label from {first[:20]!r} to {last[:20]!r}; expected whole numbers")
        if not int(first) <= int(last) < len(self._sentence.text):
            self.fail(f"a label from {first} to {last} is not inside its sentence")
        return int(first), int(last) + 1
