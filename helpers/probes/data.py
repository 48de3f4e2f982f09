"""Parsed sentences, with their maps in the layout that the probes read (section 5).

The candidates for a word's syntactic head are ROOT (candidate 0) and the words (candidates 1 to n),
so that the treebank's head numbers are the labels.  The maps of a sentence are one block
``[dependent, position, feature]``.  The features are the attention heads, twice: first the
attention from the candidate to the dependent (the paper's alpha_ij), then from the dependent to the
candidate (alpha_ji).  The first position is the special token before the words ([CLS] in BERT), the
last one is that after them ([SEP]), and the words are between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float16, Float32, Int
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

from helpers.data.records import cluster_of
from helpers.store.store import Example

Sentences = Sequence[int]  # their positions in the store
WordNumbers = Int[np.ndarray, " word"]
WordPairs = Bool[np.ndarray, "word other"]

SCALE_SENTENCES = 200  # of train, to estimate how much features vary
SMALLEST_SCALE = 1e-3  # below it a feature is rounding of float16, which must not be amplified


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
    def distances(self) -> Float[np.ndarray, "word other"]:
        """Number of edges between every two words in the tree; ROOT joins several roots."""
        n = len(self)
        edges = np.zeros((n + 1, n + 1))
        edges[self.heads, np.arange(1, n + 1)] = 1
        return shortest_path(edges, directed=False, unweighted=True)[1:, 1:].astype(np.float32)


def head_matrix(heads: WordNumbers) -> WordPairs:
    """Mark the pairs of dependent and governor; the dependent of ROOT is in none."""
    return heads[:, None] == np.arange(1, len(heads) + 1)


@dataclass
class ProbeData:
    """Parsed sentences, the vectors of their words, and the store that has their maps.

    Parameters
    ----------
    store
        Word-level examples, each of which is read when a probe needs its maps.
    parses
        The parse of each sentence, in the order of the store.
    splits
        Positions of the train and dev sentences in the store.
    vectors
        The static vector of each word of the vocabulary, standardised over the words of train.
    states
        The hidden states of one layer for each sentence, minus their mean; see `at_layer`.
    scale
        The standard deviation of these states on the first train sentences.
    """

    store: Any
    parses: Sequence[Parse]
    splits: Mapping[str, list[int]]
    vectors: Float[Tensor, "vocabulary width"]
    states: Sequence[Float16[Tensor, "_word dimension"]] = ()
    scale: float = 1.0

    def parses_of(self, sentences: Sentences) -> list[Parse]:
        """Select the parses of some sentences."""
        return [self.parses[index] for index in sentences]

    def at_layer(self, layer: int) -> ProbeData:
        """Read the hidden states of a layer; 0 is the embeddings."""
        states = []
        for example in self.store:
            words = torch.from_numpy(example.hidden[layer, example.word_positions]).float()
            states.append((words - words.mean(0)).half())
        sample = [states[index] for index in self.splits["train"][:SCALE_SENTENCES]]
        scale = torch.cat(sample).float().std().item()
        return replace(self, states=states, scale=max(scale, SMALLEST_SCALE))

    def control_task(self) -> ProbeData:
        """Replace the syntactic heads by those of the control task (`control_heads`)."""
        behaviours = np.random.default_rng(0).integers(3, size=len(self.vectors))
        parses = [
            replace(parse, heads=control_heads(behaviours[parse.words])) for parse in self.parses
        ]
        return replace(self, parses=parses)

    def batches(self, sentences: Sentences) -> Iterator[Batch]:
        """Gather sentences of one length in batches, so that nothing is padded.

        A batch follows as soon as it has 320 words; the smaller ones are the last.
        """
        by_length = defaultdict(list)
        for index in sentences:
            length = len(self.parses[index])
            by_length[length].append(index)
            if length * len(by_length[length]) >= 320:
                yield Batch(self, by_length.pop(length))
        for equally_long in by_length.values():
            yield Batch(self, equally_long)

    @cached_property
    def feature_scales(self) -> tuple[Float[Tensor, " feature"], Float[Tensor, " special"]]:
        """How much each feature varies, from the first train sentences.

        The first scales are standard deviations over a word's candidate words; the second are root
        mean squares at the special positions.
        """
        words = []
        special = []
        for batch in self.batches(self.splits["train"][:SCALE_SENTENCES]):
            words.append(batch.blocks[:, :, 1:-1].var(2, correction=0).flatten(0, 1))
            special.append(batch.blocks[:, :, [0, -1]].square().flatten(2).flatten(0, 1))
        word_scales = torch.cat(words).mean(0).sqrt().clamp(min=SMALLEST_SCALE)
        return word_scales, torch.cat(special).mean(0).flatten().sqrt().clamp(min=SMALLEST_SCALE)


class Batch:
    """Sentences of one length; their maps are read when they are asked for.

    Parameters
    ----------
    data
        The sentences.
    sentences
        Those of the batch.
    """

    def __init__(self, data: ProbeData, sentences: Sentences) -> None:
        self.data = data
        self.sentences = sentences
        self.parses = data.parses_of(sentences)

    @cached_property
    def blocks(self) -> Float[Tensor, "sentence dependent position feature"]:
        """Read the maps, in the layout of this module."""
        blocks = [attention_block(self.data.store[index]) for index in self.sentences]
        return torch.from_numpy(np.stack(blocks))

    @property
    def states(self) -> Float[Tensor, "sentence word width"]:
        """The hidden states of the words, in units of their scale."""
        states = torch.stack([self.data.states[index] for index in self.sentences])
        return states.float() / self.data.scale

    @property
    def vectors(self) -> Float[Tensor, "sentence word width"]:
        """The static vectors of the words."""
        return self.data.vectors[self.stacked("words")]

    def stacked(self, field: str) -> Tensor:
        """Stack a field of the sentences' parses, such as "heads" or "distances"."""
        return torch.from_numpy(np.stack([getattr(parse, field) for parse in self.parses]))


def prepare(store: Any, vectors: Callable[[list[str]], Any] | None = None) -> ProbeData:
    """Read the parses of a treebank; its maps are read later, in batches.

    Parameters
    ----------
    store
        Word-level maps of a treebank with train and dev sentences.
    vectors
        Function of words that returns their static vectors (GloVe in the paper),
        ``[word, width]``; it is called once, with all different words.

    Returns
    -------
    ProbeData
        The sentences in the order of the store.
    """
    parses = []
    splits = {"train": [], "dev": []}
    numbers = {}
    for index, record in enumerate(store.records()):
        is_punctuation = np.array(record["relations"]) == "punct"
        words = [numbers.setdefault(word, len(numbers)) for word in record["words"]]
        article = cluster_of(record, index)
        parses.append(Parse(np.array(record["heads"]), is_punctuation, article, np.array(words)))
        splits[record["split"]].append(index)
    matrix = vectors(list(numbers)) if vectors else np.zeros((len(numbers), 0), np.float32)
    train_vectors = matrix[np.concatenate([parses[index].words for index in splits["train"]])]
    deviations = train_vectors.std(0).clip(min=SMALLEST_SCALE)
    standardised = torch.as_tensor((matrix - train_vectors.mean(0)) / deviations)
    return ProbeData(store, parses, splits, standardised)


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


def attention_block(example: Example) -> Float32[np.ndarray, "dependent position feature"]:
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
    maps = example.stored_attention.transpose(2, 3, 0, 1)  # [query, key, layer, head]
    words = example.word_positions
    n = words.stop - words.start
    block = np.zeros((n, n + 2, 2, *maps.shape[2:]), np.float32)
    block[:, 1:-1, 0] = maps[words, words].swapaxes(0, 1)
    block[:, 1:-1, 1] = maps[words, words]
    for position, tokens in ((0, slice(words.start)), (-1, slice(words.stop, None))):
        from_tokens = maps[tokens, words]
        block[:, position, 0] = from_tokens.sum(0, dtype=np.float32) / max(len(from_tokens), 1)
        block[:, position, 1] = maps[words, tokens].sum(1, dtype=np.float32)
    return block.reshape(n, n + 2, -1)
