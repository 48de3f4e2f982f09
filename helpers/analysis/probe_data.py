"""Parsed sentences and their attention maps in the layout that the probes read (section 5).

A word's candidate heads are ROOT (candidate 0) and the words (candidates 1 to n), so that the
treebank's head numbers are the labels.  One sentence's maps are kept as one float16 block
``[dependent, place, feature]``.  The features are the heads, twice: first the attention from the
candidate to the dependent (the paper's alpha_ij), then from the dependent to the candidate
(alpha_ji).  Place 0 is the special position before the words ([CLS] in BERT), place 1 the one
after them ([SEP]), and place ``i + 2`` is word ``i``.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float16, Int, Shaped
from torch import Tensor

from helpers.analysis.statistics import Estimate, ratio, with_seed_noise
from helpers.data.records import cluster_of
from helpers.errors import InputError
from helpers.store.store import Example, checked_maps
from helpers.work import in_order, progress, trim

Split = Literal["train", "dev"]
WordVectors = Callable[[list[str]], Float[np.ndarray, "word width"]]

PLACES = 2  # the special positions stand before the words in a block
PUNCTUATION = "punct"  # the relation, in Stanford, CLEAR and Universal Dependencies alike
SAMPLE = 200  # train sentences that say enough of how features vary
SMALLEST_UNIT = 1e-3  # under it a feature is rounding of float16, not to be blown up
PAIRS_PER_BATCH = 1 << 15  # bounds a batch of long sentences
FLOATS_PER_BATCH = 1 << 20  # of maps: 4 MB
BATCH = 64  # sentences, at most, where nothing is learned from batch to batch
MEMORY_BUDGET = 1 << 30  # bytes of a corpus that stay in memory


class MapBuffer:
    """Append-only float16 arrays of any shapes.

    What exceeds `MEMORY_BUDGET` goes to a temporary file, which is removed with the buffer, and is
    read when it is asked for: memory stays near the budget whatever the corpus.
    """

    def __init__(self) -> None:
        self._budget = MEMORY_BUDGET
        self._blocks: list[np.ndarray | tuple[int, tuple[int, ...]]] = []
        self._file = None

    def append(self, block: Float16[np.ndarray, ...]) -> None:
        """Keep a block; once one has not fitted in memory, all go to disk."""
        if self._file is None and block.nbytes <= self._budget:
            self._budget -= block.nbytes
            self._blocks.append(block)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - open with the buffer
        self._blocks.append((self._file.tell(), block.shape))
        self._file.write(np.ascontiguousarray(block).data)

    def __getitem__(self, index: int) -> Float16[np.ndarray, ...]:
        """Return a block; several threads may read at a time."""
        block = self._blocks[index]
        if isinstance(block, np.ndarray):
            return block
        offset, shape = block
        read = bytearray(os.pread(self._file.fileno(), 2 * prod(shape), offset))
        return np.frombuffer(read, np.float16).reshape(shape)


@dataclass(frozen=True)
class Parse:
    """What a probe knows of a sentence; heads are 1-based, 0 is ROOT, as in the control task."""

    heads: Int[np.ndarray, " word"]
    punctuation: Bool[np.ndarray, " word"]
    article: str
    control: Int[np.ndarray, " word"] | None = None

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self.heads)


@dataclass(frozen=True)
class Counts:
    """How many attachments are right, for every seed and dev sentence, and out of how many."""

    right: Int[np.ndarray, "seed sentence"]
    total: Int[np.ndarray, " sentence"]

    @property
    def by_seed(self) -> Float[np.ndarray, " seed"]:
        """Percent right of each seed; NaN where there is nothing to attach."""
        return 100 * self.right.sum(1) / (self.total.sum() or np.nan)

    def by_article(
        self, articles: Shaped[np.ndarray, " sentence"]
    ) -> tuple[Float[np.ndarray, " article"], Int[np.ndarray, " article"]]:
        """Return how many are right in each article, a mean over seeds, and out of how many."""
        owner = np.unique(articles, return_inverse=True)[1]
        return np.bincount(owner, self.right.mean(0)), np.bincount(owner, self.total)

    def estimate(self, articles: Shaped[np.ndarray, " sentence"]) -> Estimate:
        """Estimate the percentage that is right, a mean over seeds, with its 95% interval.

        The interval covers the choice of articles, by a bootstrap over them, and the noise of
        training: see `with_seed_noise`.
        """
        _, low, high = ratio(*self.by_article(articles))
        over_articles = Estimate(float(self.by_seed.mean()), 100 * low, 100 * high)
        return with_seed_noise(over_articles, self.by_seed)


@dataclass
class Sentences:
    """The parses of a treebank's sentences, and which of them are train and dev."""

    parses: list[Parse] = field(default_factory=list)
    splits: dict[Split, list[int]] = field(default_factory=lambda: {"train": [], "dev": []})

    def read(self, examples: Iterable[Example], label: str) -> Iterator[tuple[Example, Parse]]:
        """Yield examples once their parse is taken in.

        InputError for no split, or no parse that fits; in the end, for no train or dev sentence.
        """
        for example in progress(examples, label, unit="sentence"):
            record, where = example.record, f"example {example.index}"
            if record.get("split") not in self.splits:
                raise InputError(f"{where}: split {record.get('split')!r}, not train or dev")
            if "heads" not in record or "relations" not in record:
                raise InputError(f"{where}: no dependency parse; the probes need a treebank")
            heads, n = np.asarray(record["heads"], np.int64), len(record["words"])
            if heads.shape != (n,) or not n or heads.min() < 0 or heads.max() > n:
                raise InputError(f"{where}: expected {n} heads, between 0 and the {n} words")
            punctuation = np.array([relation == PUNCTUATION for relation in record["relations"]])
            parse = Parse(heads, punctuation, cluster_of(record, example.index))
            self.splits[record["split"]].append(len(self.parses))
            self.parses.append(parse)
            yield example, parse
        if missing := [split for split, indices in self.splits.items() if not indices]:
            raise InputError(
                f"no {missing[0]} sentences: a probe needs a treebank with train and dev"
            )

    @property
    def dev_articles(self) -> Shaped[np.ndarray, " sentence"]:
        """The article of each dev sentence."""
        return np.array([self.parses[index].article for index in self.splits["dev"]])

    def groups(
        self,
        indices: Sequence[int],
        size: int,
        order: np.random.Generator | None = None,
        pairs: int = PAIRS_PER_BATCH,
    ) -> list[list[int]]:
        """Cut sentence numbers into batches of one length, so that nothing is ever padded.

        A batch has at most ``size`` sentences and, if it has several, so many pairs of words.
        With ``order``, sentences of one length and the batches are shuffled.
        """
        shuffled = indices if order is None else order.permutation(indices).tolist()
        by_length = defaultdict(list)
        for index in shuffled:
            by_length[len(self.parses[index])].append(index)
        batches = []
        for n, same in sorted(by_length.items()):
            step = max(1, min(size, pairs // (n * (n + PLACES))))
            batches += [same[at : at + step] for at in range(0, len(same), step)]
        if order is not None:
            order.shuffle(batches)
        return batches


class Batch(NamedTuple):
    """Sentences of one length; ``rows`` are those of their word vectors."""

    indices: list[int]
    heads: Int[Tensor, "sentence dependent"]
    control: Int[Tensor, "sentence dependent"]
    rows: Int[Tensor, "sentence word"]


@dataclass
class ProbeData(Sentences):
    """Parsed sentences, their maps, and the ``rows`` of ``vectors`` that their words have."""

    layers: int = 0
    heads: int = 0
    blocks: MapBuffer = field(default_factory=MapBuffer)
    rows: list[Int[np.ndarray, " word"]] = field(default_factory=list)
    vectors: Float[Tensor, "row width"] = field(default_factory=lambda: torch.zeros(0, 0))

    @property
    def features(self) -> int:
        """The number of attention features of a pair of words: both directions of every head."""
        return 2 * self.layers * self.heads

    @cached_property
    def units(self) -> tuple[Float[Tensor, " feature"], Float[Tensor, " special"]]:
        """How much features vary on (the first sentences of) train: a probe's units.

        The deviation over a word's candidate words; the root mean square at the special places.
        """
        squares, pairs, root, count = 0, 0, 0, 0
        for index in self.splits["train"][:SAMPLE]:
            block = self.blocks[index].astype(np.float64)
            n, own = len(block), block[:, PLACES:]
            own[range(n), range(n)] = 0  # a word is no candidate for its own head
            squares = squares + (own**2).sum((0, 1)) - (own.sum(1) ** 2).sum(0) / max(n - 1, 1)
            root = root + (block[:, :PLACES] ** 2).sum(0).ravel()
            pairs, count = pairs + n * (n - 1), count + n
        words, special = (
            torch.from_numpy(own.clip(SMALLEST_UNIT**2)).sqrt().float()
            for own in (squares / max(pairs, 1), root / count)
        )
        return words, special

    def batches(self, indices: Sequence[int]) -> Iterator[Batch]:
        """Yield the sentences ``indices`` in batches (see `groups`), without their maps."""
        pairs = FLOATS_PER_BATCH // max(1, self.features)
        for group in self.groups(indices, BATCH, pairs=pairs):
            yield self.batch(group)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Put sentences of one length together."""
        parses = [self.parses[index] for index in indices]
        heads, control = ([getattr(own, name) for own in parses] for name in ("heads", "control"))
        rows = [self.rows[index] for index in indices]
        return Batch(
            list(indices), *(torch.from_numpy(np.stack(own)) for own in (heads, control, rows))
        )

    def maps(
        self, batch: Batch
    ) -> tuple[Float[Tensor, "word special"], Float[Tensor, "word candidate feature"]]:
        """Return every word's features with the special places, and with each candidate word."""
        blocks = [torch.from_numpy(self.blocks[index]) for index in batch.indices]
        special, words = torch.cat(blocks).float().split((PLACES, batch.heads.shape[1]), 1)
        return special.flatten(1), words


def prepare(examples: Iterable[Example], vectors: WordVectors | None = None) -> ProbeData:
    """Read word-level examples once into the layout of the probes.

    ``vectors`` maps words to their static vectors (GloVe in the paper), asked once for all.  Maps
    take ``4 * heads * n * (n + 2)`` bytes a sentence of n words (0.35 MB at 72 heads and 34 words).
    Errors are those of `Sentences.read`, and MapError for maps whose rows are no distributions.
    """
    trim()  # of what the fits to other maps had
    data = ProbeData()
    rows: dict[str, int] = {}

    def blocks() -> Iterator[Callable[[], np.ndarray]]:
        for example, _ in data.read(examples, "maps for the probes"):
            data.layers, data.heads = example.attention.shape[:2]
            own = [rows.setdefault(word, len(rows)) for word in example.record["words"]]
            data.rows.append(np.array(own))
            yield partial(attention_block, example)

    threads = torch.get_num_threads()
    for block in in_order(blocks(), threads=threads, ahead=2 * threads):
        data.blocks.append(block)
    behaviours = np.random.default_rng(0).integers(3, size=len(rows))
    data.parses = [
        replace(parse, control=control_heads(behaviours[own]))
        for parse, own in zip(data.parses, data.rows, strict=True)
    ]
    found = vectors(list(rows)) if vectors else np.zeros((len(rows), 0))
    data.vectors = torch.from_numpy(np.asarray(found, np.float32))
    return data


def control_heads(behaviours: Int[np.ndarray, " word"]) -> Int[np.ndarray, " word"]:
    """Return a sentence's heads in the control task of Hewitt and Liang (2019, section 2).

    A word's head is random, but the same wherever the word occurs: its ``behaviour`` attaches
    it to ROOT (0), to the first word (1) or to the last (2); a word that would be its own head
    goes to ROOT, since no probe here can give it.  Only one that remembers words can learn this.
    """
    n = len(behaviours)
    heads = np.array([0, 1, n])[behaviours]
    return np.where(heads == np.arange(1, n + 1), 0, heads)


def attention_block(example: Example) -> Float16[np.ndarray, "dependent place feature"]:
    """Return one example's maps in the layout of this module.

    The special positions of one side count as one word (section 4.1); a side without any is zero.
    """
    layers, heads, n, _ = example.attention.shape
    maps = checked_maps(example).reshape(layers * heads, n, n)
    words = example.word_positions
    count = words.stop - words.start
    block = np.zeros((count, count + PLACES, 2, layers * heads), np.float16)
    block[:, PLACES:, 0] = maps[:, words, words].transpose(2, 1, 0)  # [key, query, head]
    block[:, PLACES:, 1] = maps[:, words, words].transpose(1, 2, 0)  # [query, key, head]
    for place, side in enumerate((slice(0, words.start), slice(words.stop, n))):
        if side.stop > side.start:
            block[:, place, 0] = maps[:, side, words].mean(1, dtype=np.float32).T
            block[:, place, 1] = maps[:, words, side].sum(2, dtype=np.float32).T
    return block.reshape(count, count + PLACES, 2 * layers * heads)
