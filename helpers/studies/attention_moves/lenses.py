"""Attention beside what it moves (Kobayashi et al. 2020): shares, values, sinks.

Attention adds ``sum_j A[i, j] f(x_j)`` to position i (`helpers.model.forward`).  Here is what one
example's maps, the sizes ``|f(x_j)|`` and its hidden states say, on average over a corpus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from helpers.analysis.statistics import bootstrap_intervals
from helpers.analysis.surface import Sums, combine, head_table
from helpers.cache import cached
from helpers.data.records import Record, Roles, cluster_of, roles
from helpers.errors import InputError, ModelError
from helpers.model.encoder import Encoder
from helpers.model.forward import length_batches, model_inputs, norm_maps, value_pass
from helpers.settings import Settings
from helpers.store.store import Store
from helpers.studies.jobs import StepDone, run_jobs

Maps = Float[np.ndarray, "layer head query key"]
Norms = Float[np.ndarray, "layer head key"]
TYPES = ("cls", "sep", "punctuation", "other")
LENSES = ("attention", "norm")
RATIOS = ("ratio", "value_ratio")  # empty for a model without special tokens
SHARES = tuple(f"{lens}_{kind}" for lens in LENSES for kind in TYPES)
VALUES = tuple(f"value_{kind}" for kind in TYPES)
SINKS = (
    "attention_first", "norm_first", "uniform", "value_first", "state_first", "peak_first",
    "peak_others",
)  # fmt: skip
BATCH_TOKENS = 512
SPECIAL = ("cls", "sep")
WHOLE = "all"  # layers
MANY_HEADS = 100  # 12 layers of 12 heads take 16 times as long as 6 of half the width


class Sizes(NamedTuple):
    """Numbers of examples: segments, also with random weights, or cut; and texts taken apart."""

    segments: int
    control_segments: int
    cut_segments: int
    attributed: int


def sizes(settings: Settings, heads: int) -> Sizes:
    """Return the sizes of a run: no more segments than it has, less for a model of many heads."""
    full = Sizes(300, 100, cut_segments=256, attributed=12 if heads > MANY_HEADS else 24)
    size = Sizes(8, 4, cut_segments=4, attributed=2) if settings.small else full
    return size._replace(segments=min(settings.segments or size.segments, size.segments))


def spread(source: Store, count: int) -> list[Record]:
    """Return at most ``count`` records of a source, spread evenly over it."""
    places = np.unique(np.linspace(0, len(source) - 1, min(count, len(source))).astype(int))
    return [source.record(int(place)) for place in places]


class Kept(dict[str, pd.DataFrame]):
    """The notebook's tables; to ask for one that could not be had is an `InputError`."""

    def __missing__(self, name: str) -> pd.DataFrame:
        raise InputError(f"there is no {name}.csv (see above)")


@contextmanager
def where_possible() -> Iterator[None]:
    """Print in a line what a cell cannot have of this model or text, and go on after it.

    What is damaged stays an error.
    """
    try:
        yield
    except InputError as error:
        if type(error) not in (InputError, ModelError):
            raise
        print(f"Left out: {error}")


def lens_values(
    lenses: Mapping[str, Maps], norms: Norms, roles: Roles
) -> dict[str, Float[np.ndarray, "layer head"]]:
    """Return what attention and norm lens make of one example's maps, for each head.

    ``attention_cls`` ... ``norm_other``: shares of the types of token, NaN for a token that the
    model does not have.  ``value_cls`` ...: the mean ``|f(x)|`` of a type, as a multiple of the
    mean over all tokens of the example (NaN where it has none).  ``same_token``: how often the
    most-attended token is also the one that moves most.
    """
    masks, missing = roles.masks(), np.full(norms.shape[:2], np.nan)
    received = {lens: maps.mean(axis=-2) for lens, maps in lenses.items()}  # [layer, head, key]
    relative, values = norms / norms.mean(axis=-1, keepdims=True), {}
    for kind in TYPES:
        own = masks.get(kind)
        for lens, of_key in received.items():
            values[f"{lens}_{kind}"] = missing if own is None else of_key[..., own].sum(axis=-1)
        there = own is not None and own.any()
        values[f"value_{kind}"] = relative[..., own].mean(axis=-1) if there else missing
    most, moves = (lenses[lens].argmax(axis=-1) for lens in LENSES)
    values["same_token"] = (most == moves).mean(axis=-1)
    return values


def sink_values(
    lenses: Mapping[str, Maps], norms: Norms, states: Float[np.ndarray, "layer position width"]
) -> dict[str, Float[np.ndarray, "layer one"]]:
    """Return what marks the first position as an attention sink, for each layer, a column wide.

    ``attention_first`` and ``norm_first`` are its shares, ``uniform`` that of any position.
    ``value_first`` and ``state_first`` are the sizes of its value vector and of its hidden state
    (``states[l]`` goes into layer l), as multiples of the other positions' mean.  ``peak_first`` is
    the largest component of that state as a multiple of the example's median (absolute values);
    ``peak_others`` the mean of the same over the other positions.
    """
    sizes, absolute = np.linalg.norm(states, axis=-1), np.abs(states)
    peaks = absolute.max(axis=-1) / np.median(absolute, axis=(1, 2))[:, None]
    values = {f"{lens}_first": maps[..., 0].mean(axis=(1, 2)) for lens, maps in lenses.items()}
    values |= {
        "uniform": np.full(len(norms), 1 / norms.shape[-1]),
        "value_first": (norms[..., 0] / norms[..., 1:].mean(axis=-1)).mean(axis=-1),
        "state_first": sizes[:, 0] / sizes[:, 1:].mean(axis=-1),
        "peak_first": peaks[:, 0],
        "peak_others": peaks[:, 1:].mean(axis=-1),
    }
    return {name: value[:, None] for name, value in values.items()}


def lens_tables(encoder: Encoder, source: Store, count: int) -> dict[str, pd.DataFrame]:
    """Return how attention and norm lens see ``count`` segments, spread evenly over a source.

    ``lens_shares`` and ``value_norms`` have `lens_values`, a row a head; ``sinks`` `sink_values`,
    a row a layer; ``special_tokens`` is `special_table`; all with intervals over articles.  The
    model may be another than that of ``source``, with the same tokenizer.
    """

    def compute() -> dict[str, pd.DataFrame]:
        sums = lens_sums(encoder, spread(source, count))
        return {
            "lens_shares": head_table(sums, SHARES),
            "value_norms": head_table(sums, (*VALUES, "same_token")),
            "sinks": head_table(sums, SINKS).query("head == 1").drop(columns="head"),  # by layer
            "special_tokens": special_table(sums),
        }

    facts = {"store": source.key, "model": encoder.identity, "segments": min(count, len(source))}
    return cached("lenses", compute, inputs=facts, module=__name__)


def lens_sums(encoder: Encoder, records: Sequence[Record]) -> Sums:
    """Return the sums of both kinds of values over segments, by group of articles too."""
    inputs = [model_inputs(encoder, record) for record in records]
    lengths = [len(item["input_ids"]) for item in inputs]
    with value_pass(encoder) as run:

        def job(batch: list[int], step_done: StepDone) -> Sums:
            maps, norms, states = run([inputs[index] for index in batch], hidden=True)
            sums = Sums()
            for row, index in enumerate(batch):
                n, record = lengths[index], records[index]
                attention = np.stack([layer[row, :, :n, :n].float().cpu() for layer in maps])
                sizes = np.stack([layer[row, :, :n].cpu() for layer in norms])
                vectors = np.stack([layer[row, :n].float().cpu() for layer in states[:-1]])
                own = roles(record["tokens"], encoder.special_tokens)
                both = {"attention": attention, "norm": norm_maps(attention, sizes)}
                values = lens_values(both, sizes, own) | sink_values(both, sizes, vectors)
                sums.add(values, cluster_of(record, index))
            step_done()
            return sums

        jobs = [partial(job, batch) for batch in length_batches(lengths, budget=BATCH_TOKENS)]
        found = run_jobs(jobs, encoder.device, label="lenses", unit="batch", total=len(jobs))
    return combine(found)


def special_table(sums: Sums) -> pd.DataFrame:
    """Return the share of [CLS] and [SEP] together through both lenses, by layer and in all.

    Columns: layer, attention, norm, ``ratio`` of the two, and ``value_ratio``, the size of the
    value vectors of special tokens over that of words (no punctuation), with intervals.
    """

    def parts(*names: str) -> Float[np.ndarray, "article column"]:
        """Return sums over examples, means over heads: of each layer, and of all layers."""
        layers = sum(sums.by_group(name)[0].mean(axis=2) for name in names)
        return np.column_stack([layers, layers.mean(axis=1)])

    attention, norm = (parts(*(f"{lens}_{kind}" for kind in SPECIAL)) for lens in LENSES)
    values = [f"value_{kind}" for kind in SPECIAL]
    kinds = sum(bool(sums.by_group(name)[1].any()) for name in values)
    examples = sums.by_group("same_token")[1].sum(axis=0).max()
    layers = [*map(str, range(1, attention.shape[1])), WHOLE]
    columns = {"layer": layers, "attention": attention.sum(axis=0) / examples,
               "norm": norm.sum(axis=0) / examples}  # fmt: skip
    ratios = (norm, attention), (parts(*values), kinds * parts("value_other"))
    for name, (over, under) in zip(RATIOS, ratios, strict=True):
        with np.errstate(invalid="ignore"):  # a model with neither token
            columns[name] = over.sum(axis=0) / under.sum(axis=0)
        columns[f"{name}_low"], columns[f"{name}_high"] = bootstrap_intervals(over, under)
    return pd.DataFrame(columns)
