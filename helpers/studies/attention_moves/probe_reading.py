"""What two probes, trained on the intact model, still read when something in it is changed.

The structural probe reads the vectors of one layer, so heads of that layer and later ones cannot
matter to it.  The Attn probe reads the maps of all layers.  Without a head's *output* its own map
is what it was, and the maps of later layers change: heads of the last layer cannot matter to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from helpers.analysis.probe_data import PUNCTUATION, prepare
from helpers.analysis.structural_probe import (
    NOT_COUNTED,
    StructuralProbe,
    edges_found,
    fit_layers,
    prepare_states,
)
from helpers.analysis.table3 import fit_probe
from helpers.data.records import Record
from helpers.model.word_attention import to_words, vectors_to_words
from helpers.store.store import Store

STRUCTURAL, ATTN = PROBES = ("structural", "Attn")


@dataclass(frozen=True)
class Probes:
    """Two trained probes: the structural one, and the weights of heads of the Attn probe."""

    structural: StructuralProbe  # for vectors divided by ``scale`` (see `WordStates`)
    layer: int  # that it reads; 0 is the embeddings
    scale: float
    words: Float[Tensor, "direction head"]  # attention from the candidate to the word, and back
    root: Float[Tensor, "direction head place"]  # special tokens before and after the text

    def reached(self, probe: str, layers: int) -> int:
        """Return how many layers, from the first, have heads that can matter to a probe."""
        return self.layer if probe == STRUCTURAL else layers - 1


def train_probes(store: Store, *, seed: int = 0) -> Probes:
    """Train both probes on the train sentences of a treebank's store (section 5)."""
    states = prepare_states(store)
    fits = fit_layers(states, seed)
    layer = int(np.argmax([uuas for _, uuas in fits]))
    attn = fit_probe(prepare(store), ATTN, [seed]).model
    root = (attn.root / attn.root_scales)[0]
    return Probes(
        fits[layer][0],
        layer,
        float(states.scales[layer]),
        attn.coefficients[0].unflatten(0, (2, -1)).detach(),
        root.unflatten(0, (2, -1)).detach(),
    )


class Reading(NamedTuple):
    """What a pass over a batch of sentences gives.

    ``found`` is 1 where a probe finds the word's head, 0 where it does not, and `NOT_COUNTED`
    where there is nothing to find: in padding, and for the structural probe at the root and at
    punctuation, which its trees leave out.
    """

    found: Int[Tensor, "sentence probe word"]
    maps: list[Float[Tensor, "sentence head query key"]]
    vectors: Float[Tensor, "sentence token width"]


def read_probes(
    model: nn.Module,
    batch: Mapping[str, Tensor],
    sentences: Sequence[tuple[Record, Sequence[int]]],
    probes: Probes,
    intact: Reading | None = None,
) -> Reading:
    """Run a batch of sentences, each a record and the word of each token, and ask the probes.

    ``intact`` is the reading of the unchanged model, whose maps stand for those of layers that
    are not computed again.
    """
    output = model.base_model(**batch, output_attentions=True, output_hidden_states=True)
    vectors, maps = output.hidden_states[probes.layer], list(output.attentions)
    if intact is not None:
        maps = [*intact.maps[: len(intact.maps) - len(maps)], *maps]
    root = probes.root.transpose(1, 2).flatten(0, 1)  # [direction * place, head]
    weights = torch.cat([probes.words, root])
    weighted = sum(
        torch.einsum("ch,bhqk->bcqk", own, layer.float())
        for own, layer in zip(weights.chunk(len(maps), dim=1), maps, strict=True)
    )
    same = intact is not None and torch.equal(vectors, intact.vectors)
    longest = max(len(record["words"]) for record, _ in sentences)
    found = torch.full((len(sentences), len(PROBES), longest), NOT_COUNTED, dtype=torch.int8)
    if same:
        found[:, 0] = intact.found[:, 0]
    for row, (record, groups) in enumerate(sentences):
        n, tokens = len(record["words"]), len(groups)
        own = slice(record.get("offset", 0), record.get("offset", 0) + n)
        if not same:
            words = vectors_to_words(vectors[row, :tokens].float(), groups)[own]
            found[row, 0, :n] = structural_found(probes, words, record)
        scores = to_words(weighted[row, :, :tokens, :tokens], groups)
        found[row, 1, :n] = attn_found(scores, own, record)
    return Reading(found, maps, vectors)


def structural_found(
    probes: Probes, words: Float[Tensor, "word width"], record: Record
) -> Int[Tensor, " word"]:
    """Return which words are joined with their heads in the spanning tree of the words."""
    punctuation = np.array([relation == PUNCTUATION for relation in record["relations"]])
    distances = probes.structural(words[None] / probes.scale)[0].numpy()
    return torch.from_numpy(edges_found(distances, np.asarray(record["heads"]), punctuation))


def attn_found(
    weighted: Float[Tensor, "weights query key"], own: slice, record: Record
) -> Int[Tensor, " word"]:
    """Return which words' heads, the root's included, have the highest score.

    ``weighted`` are sums of all heads' maps over words and special tokens, by `Probes.words`
    (2) and `Probes.root` (direction, then place).
    """
    sides = (slice(0, own.start), slice(own.stop, weighted.shape[-1]))
    words = weighted[0, own, own].T + weighted[1, own, own]  # [dependent, candidate]
    root = torch.zeros(len(words))
    for place, side in enumerate(sides):
        if side.stop > side.start:
            root += weighted[2 + place, side, own].mean(dim=0)
            root += weighted[4 + place, own, side].sum(dim=1)
    words.fill_diagonal_(-torch.inf)
    best = torch.cat([root[:, None], words], dim=1).argmax(dim=1)
    return (best == torch.tensor(record["heads"])).to(torch.int8)
