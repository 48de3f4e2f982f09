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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

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
Blocks = Any  # a `BlockBuffer`, or a mapping of positions to blocks

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
        self._file.write(block.tobytes())

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
    """

    heads: Int[np.ndarray, " word"]
    punctuation: Bool[np.ndarray, " word"]
    article: str

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
        return with_seed_noise(ratio(*self.by_article(articles)).scaled(100), self.by_seed)


@dataclass
class ProbeData:
    """Parsed sentences with their maps, their hidden states and the vectors of their words.

    Parameters
    ----------
    layers, heads
        Numbers of layers and of attention heads of the model.
    parses
        The parse of each sentence.
    splits
        Positions of the train and dev sentences in ``parses``.
    blocks
        A block of maps for each sentence, in the layout of this module.
    states
        For each layer (0: the embeddings), the hidden states ``[word, width]`` of each sentence,
        minus the mean of the sentence.  Empty if the examples have none.
    scales
        Standard deviation of each layer on train.  Hidden states are divided by it, so that one
        learning rate suits the layers of any model.
    rows, vectors
        The rows of each sentence's words in ``vectors``, which has the static vectors.
    is_control_task
        Whether the heads are those of the control task.
    """

    layers: int = 0
    heads: int = 0
    parses: list[Parse] = field(default_factory=list)
    splits: dict[Split, list[int]] = field(default_factory=lambda: {"train": [], "dev": []})
    blocks: Blocks = field(default_factory=BlockBuffer)
    states: Sequence[Blocks] = ()
    scales: Float[np.ndarray, " layer"] | None = None
    rows: list[Int[np.ndarray, " word"]] = field(default_factory=list)
    vectors: Float[Tensor, "row width"] | None = None
    is_control_task: bool = False

    def articles(self, indices: Sequence[int]) -> Shaped[np.ndarray, " sentence"]:
        """List the article of each sentence."""
        return np.array([self.parses[index].article for index in indices])

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
        special_squares = 0
        pairs = 0
        sentences = self.splits["train"][:SCALE_SENTENCES]
        for index in sentences:
            special, words = [features.double() for features in self.maps([index])]
            n = len(words)
            words[range(n), range(n)] = 0  # a word is no candidate for itself
            square_of_sum = words.sum(1).square().sum(0)
            squares = squares + words.square().sum((0, 1)) - square_of_sum / max(n - 1, 1)
            special_squares = special_squares + special.square().sum(0)
            pairs += n * (n - 1)
        n_words = sum(len(self.parses[index]) for index in sentences)
        scales = []
        for mean_squares in (squares / pairs, special_squares / n_words):
            scales.append(mean_squares.sqrt().clamp(min=SMALLEST_SCALE).float())
        return tuple(scales)

    def groups(
        self,
        indices: Sequence[int],
        size: int = MAX_BATCH,
        pairs: int = PAIRS_PER_BATCH,
    ) -> list[list[int]]:
        """Cut sentences into batches of one length, so that nothing is padded.

        Parameters
        ----------
        indices
            Positions of the sentences in ``parses``.
        size
            Largest number of sentences of a batch.
        pairs
            Largest number of pairs of words of a batch of several sentences.

        Returns
        -------
        list of list of int
            Positions of each batch.
        """
        by_length = defaultdict(list)
        for index in indices:
            by_length[len(self.parses[index])].append(index)
        batches = []
        for length, of_length in sorted(by_length.items()):
            step = max(1, min(size, pairs // (length * (length + N_SPECIAL_POSITIONS))))
            for start in range(0, len(of_length), step):
                batches.append(of_length[start : start + step])
        return batches

    def batches(self, indices: Sequence[int]) -> list[list[int]]:
        """Cut sentences into batches whose maps are small enough to be read together."""
        return self.groups(indices, pairs=FLOATS_PER_BATCH // self.features)

    def gold(self, indices: Sequence[int]) -> Int[Tensor, "sentence dependent"]:
        """Stack the heads of sentences of one length."""
        return torch.from_numpy(np.stack([self.parses[index].heads for index in indices]))

    def word_rows(self, indices: Sequence[int]) -> Int[np.ndarray, "sentence word"]:
        """Stack the rows of the words of sentences of one length in ``vectors``."""
        return np.stack([self.rows[index] for index in indices])

    def maps(
        self, indices: Sequence[int]
    ) -> tuple[Float[Tensor, "word special"], Float[Tensor, "word candidate feature"]]:
        """Read every word's features with the special positions, and with each candidate word."""
        blocks = np.concatenate([self.blocks[index] for index in indices])
        features = torch.from_numpy(blocks).float()
        special = features[:, :N_SPECIAL_POSITIONS].flatten(1)
        return special, features[:, N_SPECIAL_POSITIONS:]

    def hidden(self, indices: Sequence[int], layer: int) -> Float[Tensor, "sentence word width"]:
        """Read one layer's hidden states of sentences of one length, in units of ``scales``."""
        states = np.stack([self.states[layer][index] for index in indices])
        return torch.from_numpy(states).float() / self.scales[layer]

    def control_task(self) -> ProbeData:
        """Replace the syntactic heads by those of the control task (`control_heads`)."""
        behaviours = np.random.default_rng(0).integers(3, size=len(self.vectors))
        parses = []
        for parse, rows in zip(self.parses, self.rows, strict=True):
            parses.append(replace(parse, heads=control_heads(behaviours[rows])))
        return replace(self, parses=parses, is_control_task=True)


def prepare(examples: Iterable[Example], vectors: WordVectors | None = None) -> ProbeData:
    """Read word-level examples once into the layout of the probes.

    Parameters
    ----------
    examples
        Examples of a treebank, with train and dev sentences.  Their maps take
        ``4 * heads * n * (n + 2)`` bytes for a sentence of n words (0.35 MB for 72 heads and 34
        words), and their hidden states ``2 * (layers + 1) * width * n``.  Both are kept in
        temporary files.
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
        If an example has no parse, or if there is no train or no dev sentence.
    MapError
        If the rows of a map are not distributions.
    """
    release_freed_memory()  # memory of earlier fits
    data = ProbeData()
    row_of_word: dict[str, int] = {}
    squares = 0
    values = 0
    for example in progress(examples, "maps for the probes", unit="sentence"):
        record = example.record
        heads = syntactic_heads(example) + 1
        punctuation = np.array(record["relations"]) == PUNCTUATION
        article = cluster_of(record, example.index)
        data.splits[record["split"]].append(len(data.parses))
        data.parses.append(Parse(heads, punctuation, article))
        data.layers, data.heads = example.stored_attention.shape[:2]
        rows = [row_of_word.setdefault(word, len(row_of_word)) for word in record["words"]]
        data.rows.append(np.array(rows))
        data.blocks.append(attention_block(example))
        if example.hidden is None:
            continue
        states = example.hidden[:, example.word_positions].astype(np.float32)
        states -= states.mean(1, keepdims=True)
        data.states = data.states or [BlockBuffer() for _ in states]
        for buffer, of_layer in zip(data.states, states, strict=True):
            buffer.append(of_layer.astype(np.float16))
        if record["split"] == "train":
            squares = squares + np.square(states, dtype=np.float64).sum((1, 2))
            values += states[0].size
    for split, indices in data.splits.items():
        if not indices:
            raise InputError(
                f"no {split} sentences; a probe needs a treebank with train and dev sentences"
            )
    if data.states:
        data.scales = np.sqrt(squares / values).clip(min=SMALLEST_SCALE)
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
    attention = example.attention
    maps = attention.reshape(-1, *attention.shape[2:])  # [head, query, key]
    words = example.word_positions
    of_words = maps[:, words, words]
    received = []
    paid = []
    for side in (slice(words.start), slice(words.stop, None)):
        count = max(1, maps[0, 0, side].size)
        received.append(maps[:, side, words].sum(1, keepdims=True, dtype=np.float32) / count)
        paid.append(maps[:, words, side].sum(2, keepdims=True, dtype=np.float32))
    to_dependents = np.concatenate([*received, of_words], axis=1).transpose(2, 1, 0)
    to_candidates = np.concatenate([*paid, of_words], axis=2).transpose(1, 2, 0)
    # [dependent, position, direction, head]
    block = np.stack([to_dependents, to_candidates], axis=2).astype(np.float16)
    return block.reshape(*block.shape[:2], -1)
