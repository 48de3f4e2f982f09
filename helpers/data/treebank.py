"""A treebank as a corpus: train and dev sentences, whole or sampled."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from helpers.data.columns import detect_format, read_trees
from helpers.data.records import Corpus, Sentence
from helpers.data.text_files import file_fingerprint
from helpers.errors import CorpusError, InputError
from helpers.progress import progress

Tree = tuple[int, Sentence]  # with the number of its document

SPEC_VERSION = 2  # raise it when the same files would give other sentences
DEV_SHARE = 0.2
ONE_SENTENCE = "holds one sentence; splitting into train and dev takes two"
BLOCK = 20  # sentences that stay together where a file has no documents
FOLDER_PATTERNS = ("*-{}.conllu*", "{}.conllu*", "*{}.conll*", "{}.txt*")


def treebank(
    train: Path,
    dev: Path | None = None,
    *,
    sentences: int | None = None,
    seed: int = 0,
    name: str | None = None,
) -> Corpus[Sentence]:
    """Return the sentences of a treebank, those of the train split first.

    Args:
        train: the train file; or a folder that holds a train and a dev file (as UD's
            ``*-train.conllu`` and ``*-dev.conllu``, or the paper's ``train.txt`` and
            ``dev.txt``); or, where ``dev`` is None, one file to split.  One file is split by
            document (``# newdoc``), and where it marks none, by blocks of 20 sentences: a
            random fifth of the sentences becomes dev.
        dev: the dev file.
        sentences: the size of a random sample of both splits together, a fifth of it dev; a
            split with fewer sentences than its part is taken whole.  None takes everything.
        seed: decides the split of a single file, and the sample.
        name: what the corpus is called; by default the train file's name.

    Raises:
        CorpusError: a file that cannot be read, or one too small to split.
        InputError: fewer than two sentences asked for.
    """
    if sentences is not None and sentences < 2:
        raise InputError(f"a sample of {sentences} sentences; expected 2 or more (train and dev)")
    train = Path(train)
    if train.is_dir():
        train, dev = _split_file(train, "train"), _split_file(train, "dev")
    files = [train] if dev is None else [train, Path(dev)]
    spec = {
        "kind": "treebank",
        "version": SPEC_VERSION,
        "files": [file_fingerprint(file) for file in files],
        "formats": [detect_format(file) for file in files],
        "sentences": sentences,
        "seed": seed,
    }

    def read(counts: Counter[str]) -> Iterator[Sentence]:
        splits = []
        for file, format in zip(files, spec["formats"], strict=True):
            trees = read_trees(file, format, counts)
            splits.append(list(progress(trees, f"reading {file.name}", unit="sentence")))
        if dev is None:
            splits = _split(splits[0], files[0], seed)
        chosen = _sample(splits, sentences, seed)
        if left_out := sum(map(len, splits)) - sum(map(len, chosen)):
            counts["sentences outside the sample"] += left_out
        for split, file, part in zip(("train", "dev"), (files[0], files[-1]), chosen, strict=True):
            name = file.name.removesuffix(".gz").removesuffix(".bz2")
            for _, tree in part:
                yield tree._replace(split=split, source=f"{name}:{tree.source}")

    return Corpus(name or files[0].name.partition(".")[0], spec, read)


def _split_file(folder: Path, split: str) -> Path:
    """Return a folder's only file of a split."""
    for pattern in FOLDER_PATTERNS:
        found = sorted(folder.glob(pattern.format(split)))
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise CorpusError(folder, f"holds several {split} files ({names}); name one of them")
        if found:
            return found[0]
    raise CorpusError(
        folder, f"holds no {split} file; expected a name like en-ud-{split}.conllu or {split}.txt"
    )


def _split(trees: Sequence[Tree], path: Path, seed: int) -> list[list[Tree]]:
    """Put whole documents into dev, at random, until it has its share of the sentences."""
    documents = [list(group) for _, group in groupby(trees, key=itemgetter(0))]
    if len(documents) == 1:
        size = min(BLOCK, max(1, len(trees) // 10))
        documents = [list(trees[start : start + size]) for start in range(0, len(trees), size)]
    if len(documents) == 1:
        raise CorpusError(path, ONE_SENTENCE)
    order = random.Random(seed).sample(range(len(documents)), len(documents))
    in_dev: set[int] = set()
    size = 0
    for index in order[:-1]:
        if size >= DEV_SHARE * len(trees):
            break
        in_dev.add(index)
        size += len(documents[index])
    halves: list[list[Tree]] = [[], []]
    for index, group in enumerate(documents):
        halves[index in in_dev] += group
    return halves


def _sample(
    splits: Sequence[Sequence[Tree]], sentences: int | None, seed: int
) -> list[Sequence[Tree]]:
    """Choose sentences at random, and keep them in the order of the corpus."""
    if sentences is None:
        return list(splits)
    n_dev = max(1, round(DEV_SHARE * sentences))
    generator = random.Random(seed)
    return [
        [part[i] for i in sorted(generator.sample(range(len(part)), min(size, len(part))))]
        for part, size in zip(splits, (sentences - n_dev, n_dev), strict=True)
    ]
