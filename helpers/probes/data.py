"""Parsed sentences and their attention maps in the layout that the probes read (section 5).

The candidates for a word's syntactic head are ROOT (candidate 0) and the words (candidates 1 to n),
so that the treebank's head numbers are the labels.  The maps of a sentence are one float16 block
``[dependent, position, feature]``.  The features are the attention heads, twice: first the
attention from the candidate to the dependent (the paper's alpha_ij), then from the dependent to the
candidate (alpha_ji).  The first position is the special token before the words ([CLS] in BERT), the
last one is that after them ([SEP]), and the words are between them.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float16, Int, Shaped
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

from helpers.data.records import cluster_of
from helpers.errors import InputError
from helpers.metrics.head_counts import syntactic_heads
from helpers.metrics.statistics import Clusters, Estimate, difference, ratio, with_seed_noise
from helpers.progress import progress
from helpers.store.store import Example

Sentences = Sequence[int]  # their positions in `ProbeData.parses`
WordNumbers = Int[np.ndarray, " word"]
WordPairs = Bool[np.ndarray, "word other"]
WordVectors = Callable[[list[str]], Float[np.ndarray, "word width"]]
Blocks = Any  # a `BlockBuffer`, or a dict

N_SPECIAL_POSITIONS = 2  # before and after the words of a block
PUNCTUATION = "punct"  # the relation, in Stanford, CLEAR and Universal Dependencies
SCALE_SENTENCES = 200  # of train, to estimate how much features vary
SMALLEST_SCALE = 1e-3  # below it a feature is rounding of float16, which must not be amplified
PAIRS_PER_BATCH = 1 << 15  # limits batches of long sentences
FLOATS_PER_BATCH = 1 << 20  # of maps: 4 MB
LAYERS_TOGETHER = 4  # in one training; more would need more memory and save little time
MAX_BATCH = 64  # sentences, where parameters do not change from batch to batch


class BlockBuffer:
    """A mapping of keys to float16 arrays, in a file that is removed with the mapping.

    The file is memory-mapped: the system keeps as much of it in memory as there is room for, and an
    array that is read is not copied.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - open with the buffer
        self._blocks = {}  # offset in values and shape, by key
        self._values = np.zeros(0, np.float16)  # of the file, when an array was last read from it

    def __setitem__(self, key: Any, block: Float16[np.ndarray, ...]) -> None:
        """Write an array to the end of the file."""
        self._blocks[key] = (self._file.tell() // block.itemsize, block.shape)
        self._file.write(block.tobytes())

    def __getitem__(self, key: Any) -> Float16[np.ndarray, ...]:
        """Read an array; several threads may do so at a time."""
        offset, shape = self._blocks[key]
        end = offset + math.prod(shape)
        if end > len(self._values):
            self._values = np.memmap(self._file, np.float16, mode="c").view(np.ndarray)
        return self._values[offset:end].reshape(shape)


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
    words
        Number of each word in the vocabulary: its row in the static vectors.
    """

    heads: WordNumbers
    punctuation: Bool[np.ndarray, " word"]
    article: str
    words: WordNumbers

    def __len__(self) -> int:
        """Count the words."""
        return len(self.heads)

    @property
    def edges(self) -> WordPairs:
        """The pairs of dependent and governor of which neither is punctuation."""
        is_word = ~self.punctuation
        return head_matrix(self.heads) & is_word & is_word[:, None]

    @cached_property
    def distances(self) -> Int[np.ndarray, "word other"]:
        """Number of edges between every two words in the tree; ROOT joins several roots."""
        n = len(self)
        edges = np.zeros((n + 1, n + 1))
        edges[self.heads, np.arange(1, n + 1)] = 1
        distances = shortest_path(edges, directed=False, unweighted=True)
        return distances[1:, 1:].astype(np.int16)


def head_matrix(heads: WordNumbers) -> WordPairs:
    """Mark the pairs of dependent and governor; the dependent of ROOT is in none."""
    return heads[:, None] == np.arange(1, len(heads) + 1)


@dataclass(frozen=True)
class Counts:
    """Correct attachments in each sentence.

    Parameters
    ----------
    right
        Number of correct attachments of the probe of each seed.
    total
        Number of attachments.
    articles
        The article of each sentence.
    """

    right: Int[np.ndarray, "seed sentence"]
    total: Int[np.ndarray, " sentence"]
    articles: Shaped[np.ndarray, " sentence"]

    @property
    def by_seed(self) -> Float[np.ndarray, " seed"]:
        """The score of each seed in percent; NaN where there is nothing to attach."""
        return 100 * self.right.sum(1) / (self.total.sum() or np.nan)

    @property
    def by_article(self) -> tuple[Clusters, Clusters]:
        """Numbers of correct attachments (a mean over seeds) and of attachments, by article."""
        owner = np.unique(self.articles, return_inverse=True)[1]
        return np.bincount(owner, self.right.mean(0)), np.bincount(owner, self.total)

    def estimate(self) -> Estimate:
        """Estimate the percentage that is right, a mean over seeds, with its 95% interval.

        The interval covers the choice of articles, by a bootstrap over them, and the noise of
        training: see `with_seed_noise`.
        """
        return with_seed_noise(ratio(*self.by_article).scaled(100), self.by_seed)

    def minus(self, subtrahend: Counts) -> Estimate:
        """Estimate the difference from another probe's percentage, with its 95% interval.

        The bootstrap gives both probes the same articles.  The noise of training is that of both.
        """
        over_articles = difference(ratio(*self.by_article), ratio(*subtrahend.by_article)).scaled(
            100
        )
        return with_seed_noise(over_articles, self.by_seed, subtrahend.by_seed)


def count_right(parses: Sequence[Parse], is_right: Sequence[Bool[np.ndarray, " _case"]]) -> Counts:
    """Count the cases of each sentence, for example its words, and those that are right."""
    right = np.array([cases.sum() for cases in is_right])
    total = np.array([len(cases) for cases in is_right])
    return Counts(right[None], total, np.array([parse.article for parse in parses]))


def stack_seeds(counts: Sequence[Counts]) -> Counts:
    """Stack the counts of probes of several seeds on the same sentences."""
    return replace(counts[0], right=np.concatenate([part.right for part in counts]))


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
        The hidden states ``[word, width]`` of each sentence and layer (0: the embeddings), minus
        the mean of the sentence.  Empty if the examples have none.
    scales
        Standard deviation of each layer on train.  Hidden states are divided by it, so that one
        learning rate suits the layers of any model.  Empty if the examples have none.
    vectors
        The static vector of each word of the vocabulary.
    """

    layers: int
    heads: int
    parses: Sequence[Parse]
    splits: Mapping[str, list[int]]
    blocks: Blocks
    states: Blocks
    scales: Float[np.ndarray, " layer"]
    vectors: Float[Tensor, "vocabulary width"]

    def n_words(self, indices: Sentences) -> int:
        """Count the words of sentences."""
        return sum(len(self.parses[index]) for index in indices)

    @property
    def layer_groups(self) -> list[range]:
        """The layers in groups whose probes are trained together; layer 0 is the embeddings."""
        end = self.layers + 1
        starts = range(0, end, LAYERS_TOGETHER)
        return [range(start, min(start + LAYERS_TOGETHER, end)) for start in starts]

    @property
    def features(self) -> int:
        """Number of features: the attention heads in both directions."""
        return 2 * self.layers * self.heads

    @cached_property
    def units(self) -> list[Float[Tensor, " feature"]]:
        """Scales of the features, from the first train sentences: a probe's units.

        The first are standard deviations over a word's candidate words; the second are root mean
        squares at the special positions.
        """
        sums = 0
        special_sums = 0
        sentences = self.splits["train"][:SCALE_SENTENCES]
        lengths = np.array([len(self.parses[index]) for index in sentences])
        for index, n in zip(sentences, lengths, strict=True):
            special, words = self.maps([index])
            # A word is no candidate for itself.
            candidates = words[~torch.eye(n, dtype=torch.bool)].double().unflatten(0, (n, n - 1))
            deviations = candidates - candidates.mean(1, keepdim=True)
            sums += deviations.square().sum((0, 1))
            special_sums += special.double().square().sum(0)
        mean_squares = [sums / (lengths * (lengths - 1)).sum(), special_sums / lengths.sum()]
        return [values.sqrt().clamp(min=SMALLEST_SCALE).float() for values in mean_squares]

    def groups(
        self,
        indices: Sentences,
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
        sentences = np.array(indices)
        lengths = np.array([len(self.parses[index]) for index in indices])
        batches = []
        for length in np.unique(lengths):
            equally_long = sentences[lengths == length].tolist()
            step = max(1, min(size, pairs // (length * (length + N_SPECIAL_POSITIONS))))
            for start in range(0, len(equally_long), step):
                batches.append(equally_long[start : start + step])
        return batches

    def batches(self, indices: Sentences) -> list[list[int]]:
        """Cut sentences into batches whose maps are small enough to be read together."""
        return self.groups(indices, pairs=FLOATS_PER_BATCH // self.features)

    def word_numbers(self, indices: Sentences) -> Int[np.ndarray, "sentence word"]:
        """Stack the numbers of the words of sentences of one length."""
        return np.stack([self.parses[index].words for index in indices])

    def maps(
        self, indices: Sentences
    ) -> tuple[Float[Tensor, "word special"], Float[Tensor, "word candidate feature"]]:
        """Read every word's features with the special positions, and with each candidate word."""
        n = len(self.parses[indices[0]])
        features = torch.empty(len(indices), n, n + N_SPECIAL_POSITIONS, self.features)
        for sentence_features, index in zip(features, indices, strict=True):
            sentence_features.copy_(torch.from_numpy(self.blocks[index]))
        features = features.flatten(0, 1)
        return features[:, :: n + 1].flatten(1), features[:, 1 : n + 1]

    def hidden(
        self, indices: Sentences, layers: Sequence[int]
    ) -> Float[Tensor, "layer sentence word width"]:
        """Read some layers' hidden states of sentences of one length, in units of ``scales``."""
        keys = product(layers, indices)
        states = np.stack([self.states[index, layer] for layer, index in keys])
        by_layer = torch.from_numpy(states).float().unflatten(0, (len(layers), len(indices)))
        scales = torch.tensor(self.scales[layers], dtype=torch.float32)
        return by_layer.div_(scales[:, None, None, None])

    def control_task(self) -> ProbeData:
        """Replace the syntactic heads by those of the control task (`control_heads`)."""
        behaviours = np.random.default_rng(0).integers(3, size=len(self.vectors))
        parses = [
            replace(parse, heads=control_heads(behaviours[parse.words])) for parse in self.parses
        ]
        return replace(self, parses=parses)


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
    """
    parses = []
    splits = {"train": [], "dev": []}
    blocks = BlockBuffer()
    states = BlockBuffer()
    number_of_word = {}
    squares = 0
    values = 0
    for example in progress(examples, "maps for the probes", unit="sentence"):
        index = len(parses)
        record = example.record
        heads = syntactic_heads(example) + 1
        punctuation = np.array(record["relations"]) == PUNCTUATION
        numbers = [number_of_word.setdefault(word, len(number_of_word)) for word in record["words"]]
        splits[record["split"]].append(index)
        article = cluster_of(record, example.index)
        parses.append(Parse(heads, punctuation, article, np.array(numbers)))
        blocks[index] = attention_block(example)
        if example.hidden is None:
            continue
        centred = example.hidden[:, example.word_positions].astype(np.float32)
        centred -= centred.mean(1, keepdims=True)
        for layer, layer_states in enumerate(centred.astype(np.float16)):
            states[index, layer] = layer_states
        if record["split"] == "train":
            squares += np.square(centred, dtype=np.float64).sum((1, 2))
            values += centred[0].size
    for split, indices in splits.items():
        if not indices:
            raise InputError(
                f"no {split} sentences; a probe needs a treebank with train and dev sentences"
            )
    layers, attention_heads = example.stored_attention.shape[:2]
    scales = np.sqrt(squares / values).clip(min=SMALLEST_SCALE) if values else np.zeros(0)
    words = list(number_of_word)
    word_vectors = vectors(words) if vectors else np.zeros((len(words), 0))
    static_vectors = torch.as_tensor(word_vectors, dtype=torch.float32)
    return ProbeData(
        layers, attention_heads, parses, splits, blocks, states, scales, static_vectors
    )


def control_heads(behaviours: WordNumbers) -> WordNumbers:
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
    words = example.word_positions
    n_words = words.stop - words.start
    positions = (np.arange(len(example)) - words.start + 1).clip(0, n_words + 1)  # of each token
    sums = np.eye(n_words + N_SPECIAL_POSITIONS, dtype=np.float32)[positions]  # [token, position]
    means = sums / np.maximum(sums.sum(0), 1)
    to_dependents = means.T @ attention[..., words]  # [layer, head, position, dependent]
    to_candidates = sums.T @ attention[:, :, words].swapaxes(2, 3)
    block = np.stack([to_dependents, to_candidates]).astype(np.float16).transpose(4, 3, 0, 1, 2)
    return block.reshape(n_words, len(means.T), -1)
