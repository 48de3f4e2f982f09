"""Parsed sentences and their attention maps in the layout that the probes read (section 5).

The candidates for a word's syntactic head are ROOT (candidate 0) and the words (candidates 1 to n),
so that the treebank's head numbers are the labels.  The maps of a sentence are one float16 block
``[dependent, position, feature]``.  The features are the attention heads, twice: first the
attention from the candidate to the dependent (the paper's alpha_ij), then from the dependent to the
candidate (alpha_ji).  Position 0 is the special token before the words ([CLS] in BERT), position 1
the one after them ([SEP]), and position ``i + 2`` is word ``i``.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float16, Int, Shaped
from torch import Tensor

from helpers.data.records import cluster_of
from helpers.errors import InputError
from helpers.metrics.head_counts import syntactic_heads
from helpers.metrics.statistics import Estimate, ratio, with_seed_noise
from helpers.progress import progress
from helpers.store.store import Example
from helpers.torch_utils import release_freed_memory

Split = Literal["train", "dev"]
WordVectors = Callable[[list[str]], Float[np.ndarray, "word width"]]

N_SPECIAL_POSITIONS = 2  # they precede the words in a block
PUNCTUATION = "punct"  # the relation, in Stanford, CLEAR and Universal Dependencies
SCALE_SENTENCES = 200  # of train, to estimate how much features vary
SMALLEST_SCALE = 1e-3  # below it a feature is rounding of float16, which must not be amplified
PAIRS_PER_BATCH = 1 << 15  # limits batches of long sentences
FLOATS_PER_BATCH = 1 << 20  # of maps: 4 MB
MAX_BATCH = 64  # sentences, where parameters do not change from batch to batch


class BlockBuffer:
    """Append-only float16 arrays of any shapes, in a file that is removed with the buffer.

    Memory therefore does not grow with the corpus.  Reading is fast, because the system keeps as
    much of the file in memory as there is room for.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - open with the buffer
        self._blocks: list[tuple[int, tuple[int, ...]]] = []  # offset in bytes, shape

    def append(self, block: Float16[np.ndarray, ...]) -> None:
        """Write a block to the end of the file."""
        self._blocks.append((self._file.tell(), block.shape))
        self._file.write(np.ascontiguousarray(block).data)

    def __getitem__(self, index: int) -> Float16[np.ndarray, ...]:
        """Read a block; several threads may do so at a time."""
        offset, shape = self._blocks[index]
        block = np.empty(shape, np.float16)
        os.preadv(self._file.fileno(), [block], offset)
        return block


@dataclass
class Parse:
    """The dependency parse of a sentence.

    Parameters
    ----------
    heads
        Number of each word's syntactic head, from 1; 0 is ROOT.
    punctuation
        Whether each word is punctuation.
    article
        The article or document that the sentence is from.
    control
        Heads in the control task, numbered in the same way.
    """

    heads: Int[np.ndarray, " word"]
    punctuation: Bool[np.ndarray, " word"]
    article: str
    control: Int[np.ndarray, " word"] | None = None

    def __len__(self) -> int:
        """Count the words."""
        return len(self.heads)

    def edges(self) -> tuple[Int[np.ndarray, " edge"], Int[np.ndarray, " edge"]]:
        """List the dependents and the governors, from 0, of the edges without punctuation."""
        is_word = ~self.punctuation
        is_edge = is_word & (self.heads > 0) & is_word[self.heads - 1]
        dependents = np.flatnonzero(is_edge)
        return dependents, self.heads[dependents] - 1


@dataclass(frozen=True)
class Counts:
    """Correct attachments in each sentence.

    Parameters
    ----------
    right
        Number of correct attachments of the probe of each seed.
    total
        Number of attachments.
    """

    right: Int[np.ndarray, "seed sentence"]
    total: Int[np.ndarray, " sentence"]

    @property
    def by_seed(self) -> Float[np.ndarray, " seed"]:
        """The score of each seed in percent; NaN where there is nothing to attach."""
        return 100 * self.right.sum(1) / (self.total.sum() or np.nan)

    def by_article(
        self, articles: Shaped[np.ndarray, " sentence"]
    ) -> tuple[Float[np.ndarray, " article"], Int[np.ndarray, " article"]]:
        """Sum over the sentences of each article.

        Parameters
        ----------
        articles
            The article of each sentence.

        Returns
        -------
        right, total
            Number of correct attachments (a mean over seeds) and of attachments, by article.
        """
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
    """The parses of a treebank's sentences.

    ``splits`` has the positions of train and dev sentences in ``parses``.
    """

    parses: list[Parse] = field(default_factory=list)
    splits: dict[Split, list[int]] = field(default_factory=lambda: {"train": [], "dev": []})

    def read(self, examples: Iterable[Example], label: str) -> Iterator[tuple[Example, Parse]]:
        """Add the parses of examples, and yield each example with its parse.

        Parameters
        ----------
        examples
            Word-level examples of a treebank.
        label
            Description for the progress bar.

        Raises
        ------
        InputError
            If an example has no parse, or, in the end, if there is no train or no dev sentence.
        """
        for example in progress(examples, label, unit="sentence"):
            heads = syntactic_heads(example) + 1
            punctuation = np.array(example.record["relations"]) == PUNCTUATION
            parse = Parse(heads, punctuation, cluster_of(example.record, example.index))
            self.splits[example.record["split"]].append(len(self.parses))
            self.parses.append(parse)
            yield example, parse
        for split, indices in self.splits.items():
            if not indices:
                raise InputError(
                    f"no {split} sentences; a probe needs a treebank with train and dev sentences"
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
        """Cut sentences into batches of one length, so that nothing is padded.

        Parameters
        ----------
        indices
            Positions of the sentences in ``parses``.
        size
            Largest number of sentences of a batch.
        order
            Generator that shuffles the sentences of a length, and the batches; None to keep the
            order.
        pairs
            Largest number of pairs of words of a batch of several sentences.

        Returns
        -------
        list of list of int
            Positions of each batch.
        """
        shuffled = indices if order is None else order.permutation(indices).tolist()
        by_length = defaultdict(list)
        for index in shuffled:
            by_length[len(self.parses[index])].append(index)
        batches = []
        for length, of_length in sorted(by_length.items()):
            step = max(1, min(size, pairs // (length * (length + N_SPECIAL_POSITIONS))))
            for start in range(0, len(of_length), step):
                batches.append(of_length[start : start + step])
        if order is not None:
            order.shuffle(batches)
        return batches


class Batch(NamedTuple):
    """Sentences of one length.

    ``rows`` are the rows of the words in ``ProbeData.vectors``; ``control`` are the heads of the
    control task.
    """

    indices: list[int]
    heads: Int[Tensor, "sentence dependent"]
    control: Int[Tensor, "sentence dependent"]
    rows: Int[Tensor, "sentence word"]


@dataclass
class ProbeData(Sentences):
    """Parsed sentences with their maps and the vectors of their words.

    ``blocks`` has a block of maps for each sentence, ``rows`` the rows of its words in ``vectors``.
    ``layers`` and ``heads`` count those of the model.
    """

    layers: int = 0
    heads: int = 0
    blocks: BlockBuffer = field(default_factory=BlockBuffer)
    rows: list[Int[np.ndarray, " word"]] = field(default_factory=list)
    vectors: Float[Tensor, "row width"] = field(default_factory=lambda: torch.zeros(0, 0))

    @property
    def features(self) -> int:
        """Number of attention features of a pair of words: both directions of every head."""
        return 2 * self.layers * self.heads

    @cached_property
    def units(self) -> tuple[Float[Tensor, " feature"], Float[Tensor, " special"]]:
        """Scales of the features, from the first train sentences: a probe's units.

        The first are standard deviations over a word's candidate words; the second are root mean
        squares at the special positions.
        """
        squares = 0
        pairs = 0
        special_squares = 0
        words = 0
        for index in self.splits["train"][:SCALE_SENTENCES]:
            block = self.blocks[index].astype(np.float64)
            length = len(block)
            of_words = block[:, N_SPECIAL_POSITIONS:]
            of_words[range(length), range(length)] = 0  # a word is no candidate for itself
            square_of_sum = (of_words.sum(1) ** 2).sum(0)
            squares = squares + (of_words**2).sum((0, 1)) - square_of_sum / max(length - 1, 1)
            special_squares = special_squares + (block[:, :N_SPECIAL_POSITIONS] ** 2).sum(0).ravel()
            pairs += length * (length - 1)
            words += length
        return _root(squares / max(pairs, 1)), _root(special_squares / words)

    def batches(self, indices: Sequence[int]) -> Iterator[Batch]:
        """Yield sentences in batches (see `groups`), without their maps."""
        pairs = FLOATS_PER_BATCH // max(1, self.features)
        for group in self.groups(indices, MAX_BATCH, pairs=pairs):
            yield self.batch(group)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Stack sentences of one length."""
        parses = [self.parses[index] for index in indices]
        return Batch(
            indices=list(indices),
            heads=_stack([parse.heads for parse in parses]),
            control=_stack([parse.control for parse in parses]),
            rows=_stack([self.rows[index] for index in indices]),
        )

    def maps(
        self, batch: Batch
    ) -> tuple[Float[Tensor, "word special"], Float[Tensor, "word candidate feature"]]:
        """Read every word's features with the special positions, and with each candidate word."""
        blocks = [torch.from_numpy(self.blocks[index]) for index in batch.indices]
        special, words = (
            torch.cat(blocks).float().split((N_SPECIAL_POSITIONS, batch.heads.shape[1]), 1)
        )
        return special.flatten(1), words


def _root(mean_squares: Float[np.ndarray, " feature"]) -> Float[Tensor, " feature"]:
    """Compute scales from mean squares, no smaller than `SMALLEST_SCALE`."""
    return torch.from_numpy(mean_squares.clip(SMALLEST_SCALE**2)).sqrt().float()


def _stack(arrays: Sequence[Int[np.ndarray, " word"]]) -> Int[Tensor, "sentence word"]:
    """Stack arrays of one length as a tensor."""
    return torch.from_numpy(np.stack(arrays))


def prepare(examples: Iterable[Example], vectors: WordVectors | None = None) -> ProbeData:
    """Read word-level examples once into the layout of the probes.

    Parameters
    ----------
    examples
        Examples of a treebank, with train and dev sentences.  Their maps take
        ``4 * heads * n * (n + 2)`` bytes for a sentence of n words (0.35 MB for 72 heads and 34
        words), which are kept in a temporary file.
    vectors
        Function of words that returns their static vectors (GloVe in the paper); it is called once,
        with all different words.

    Returns
    -------
    ProbeData
        The sentences in the order of the examples.

    Raises
    ------
    InputError
        As in `Sentences.read`.
    MapError
        If the rows of a map are not distributions.
    """
    release_freed_memory()  # memory of earlier fits
    data = ProbeData()
    row_of_word: dict[str, int] = {}
    for example, _ in data.read(examples, "maps for the probes"):
        data.layers, data.heads = example.stored_attention.shape[:2]
        words = example.record["words"]
        rows = [row_of_word.setdefault(word, len(row_of_word)) for word in words]
        data.rows.append(np.array(rows))
        data.blocks.append(attention_block(example))
    behaviours = np.random.default_rng(0).integers(3, size=len(row_of_word))
    for parse, rows in zip(data.parses, data.rows, strict=True):
        parse.control = control_heads(behaviours[rows])
    words = list(row_of_word)
    word_vectors = vectors(words) if vectors else np.zeros((len(words), 0))
    data.vectors = torch.from_numpy(np.asarray(word_vectors, np.float32))
    return data


def control_heads(behaviours: Int[np.ndarray, " word"]) -> Int[np.ndarray, " word"]:
    """Compute a sentence's heads in the control task of Hewitt and Liang (2019, section 2).

    The head of a word is random, but the same wherever the word occurs.  Only a probe that
    memorises words can learn it.  The ``behaviour`` of a word attaches it to ROOT (0), to the first
    word (1) or to the last word (2).  A word that would be its own head goes to ROOT, because no
    probe here can predict that.
    """
    n = len(behaviours)
    heads = np.array([0, 1, n])[behaviours]
    return np.where(heads == np.arange(1, n + 1), 0, heads)


def attention_block(example: Example) -> Float16[np.ndarray, "dependent place feature"]:
    """Arrange the maps of an example in the layout of this module.

    The special tokens of a side count as one word (section 4.1); a side without any is zero.

    Parameters
    ----------
    example
        A word-level example; ``attention[layer, head, query, key]``.

    Returns
    -------
    array
        ``[dependent, position, feature]``.
    """
    layers, heads, length, _ = example.stored_attention.shape
    maps = example.attention.reshape(layers * heads, length, length)
    words = example.word_positions
    count = words.stop - words.start
    block = np.zeros((count, count + N_SPECIAL_POSITIONS, 2, layers * heads), np.float16)
    of_words = maps[:, words, words]
    block[:, N_SPECIAL_POSITIONS:, 0] = of_words.transpose(2, 1, 0)  # [key, query, head]
    block[:, N_SPECIAL_POSITIONS:, 1] = of_words.transpose(1, 2, 0)  # [query, key, head]
    sides = (slice(0, words.start), slice(words.stop, length))
    for position, side in enumerate(sides):
        if side.stop > side.start:
            block[:, position, 0] = maps[:, side, words].mean(1, dtype=np.float32).T
            block[:, position, 1] = maps[:, words, side].sum(2, dtype=np.float32).T
    return block.reshape(count, count + N_SPECIAL_POSITIONS, 2 * layers * heads)
