"""FrameNet's full-text annotation: which words are a predicate and its core arguments.

The data are requested from the FrameNet project and read from a folder: ``fulltext/*.xml``, and
beside it ``frame/*.xml``, which says of each frame which of its elements are core.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree.ElementTree import Element

from helpers.data import text_files
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
        CorpusError: no such file, no full-text annotation, damaged XML (with its line), or
            no sentence of that kind.
    """
    counts: Counter[str] = Counter()
    files = _files(Path(path).expanduser())
    core = _core_elements(files[0].parent.parent / "frame")
    found = []
    for file in files:
        for sentence in _sentences(file):
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
    return {
        frame.get("name", ""): {
            element.get("name", "")
            for element in frame.iter("FE")
            if element.get("coreType", "").startswith("Core")
        }
        for file in sorted(folder.glob("*.xml"))
        for frame in text_files.xml_elements(file, "frame", ("frame",))
    }


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


def _sentences(path: Path) -> Iterator[_Sentence]:
    for element in text_files.xml_elements(path, "fullTextAnnotation", ("sentence",)):
        sentence = _Sentence(element.get("ID", "?"), element.findtext("text", ""))
        for annotation in element.iter("annotationSet"):
            frame = _Frame(annotation.get("frameName", ""))
            for layer in annotation.iter("layer"):
                found = [
                    (label.get("name", ""), _span(path, sentence, label))
                    for label in layer.iter("label")
                    if "start" in label.attrib  # others stand for what is not in the text
                ]
                if layer.get("name") == "FE":
                    frame.elements += found
                elif layer.get("name") == "Target":
                    frame.target += [span for _, span in found]
                elif layer.get("name") in WORD_LAYERS:
                    sentence.words += [span for _, span in found]
            if frame.target:
                sentence.frames.append(frame)
        sentence.words = sorted(set(sentence.words))
        yield sentence


def _span(path: Path, sentence: _Sentence, label: Element) -> Span:
    first, last = label.get("start", ""), label.get("end", "")
    if not all(re.fullmatch("[0-9]{1,9}", place) for place in (first, last)) or not (
        int(first) <= int(last) < len(sentence.text)
    ):
        place = f"sentence {sentence.number[:20]}: a label from {first[:20]!r} to {last[:20]!r}"
        raise CorpusError(path, f"{place} is not inside its text")
    return int(first), int(last) + 1
