"""How often heads show each of five patterns (Kovaleva et al. 2019, section 4.1, Figures 1 and 2).

The classes are told by the support vectors of `pattern_labels`.  They err, and not evenly, so that
shares are corrected for their confusion on the labelled maps (`corrected_shares`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd
from jaxtyping import Float

from helpers.analysis.heads import head_rows
from helpers.analysis.statistics import percentiles, resampled_sums
from helpers.cache import cached_table
from helpers.data.records import Corpus, Segment
from helpers.errors import InputError
from helpers.model.encoder import Encoder
from helpers.model.parallel import StepDone, run_jobs
from helpers.studies.dark_secrets.maps import DrawnMap, TextMaps, text_maps
from helpers.studies.dark_secrets.pattern_features import ANY_COLUMN, CLASSES, map_features
from helpers.studies.dark_secrets.pattern_labels import (
    JUDGES,
    RESAMPLES,
    Confusion,
    confusion_by_head,
    pattern_judge,
    resampled,
)
from helpers.studies.fine_tune import FineTuned, stacked
from helpers.studies.tasks import FINE_TUNED, PRETRAINED, Pair

BEFORE, AFTER = PRETRAINED, FINE_TUNED  # column ``weights``
PATTERN_EXAMPLES = 100  # examples of a task, or segments of the text, whose maps are classified
TYPICAL_EXAMPLES = 10  # segments of the text to choose typical maps from
TEXT = "none (segments of the text)"  # what stands in column ``task`` for these
ROUNDS = 500  # of expectation maximisation

Shares = Float[np.ndarray, "*sample class"]


def pattern_counts(examples: Iterable[TextMaps]) -> pd.DataFrame:
    """Return how often each head shows each pattern: one row a head.

    Columns: layer, head (from 1), maps (how many), the share of each class (0-1), and pattern,
    the class that the head shows most often.
    """
    features = [map_features(*example) for example in examples]
    if not features:
        raise InputError("no attention map to classify; give at least one example")
    shape = (len(features), *features[0].shape[:2])
    classes = pattern_judge().predict(np.concatenate(features).reshape(-1, features[0].shape[-1]))
    shares = np.eye(len(CLASSES))[classes].reshape(*shape, -1).mean(axis=0)  # [layer, head, class]
    table = pd.DataFrame(shares.reshape(-1, len(CLASSES)), columns=list(CLASSES))
    heads = head_rows(*shape[1:], maps=np.full(len(table), len(features)))
    return heads.join(table).assign(pattern=table.idxmax(axis=1))


def spread_segments(corpus: Corpus[Segment]) -> list[Pair]:
    """Return `PATTERN_EXAMPLES` segments of a text, spread evenly over it."""
    found = corpus.records()
    places = np.linspace(0, len(found) - 1, min(PATTERN_EXAMPLES, len(found))).astype(int)
    return [Pair(found[place].first, found[place].second, 0) for place in places]


def pattern_table(
    encoder: Encoder, segments: Sequence[Pair], runs: Sequence[FineTuned], *, max_tokens: int
) -> pd.DataFrame:
    """Return how often each head shows each pattern, on each task and on segments of a text.

    Columns: task (`TEXT` for ``segments``), weights (before or after fine-tuning), and those of
    `pattern_counts`.
    """

    def compute() -> pd.DataFrame:
        parts = {(TEXT, BEFORE): (encoder, segments, max_tokens)}
        for run in runs:
            some = run.task.test[:PATTERN_EXAMPLES], run.recipe.max_tokens
            parts[run.task.name, BEFORE] = run.encoder, *some
            parts[run.task.name, AFTER] = run.fine_tuned_encoder(), *some
        found = run_jobs(
            [partial(_patterns, *part) for part in parts.values()],
            encoder.device,
            label="patterns of maps",
            unit="example",
            total=sum(len(pairs) for _, pairs, _ in parts.values()),
        )
        return stacked(dict(zip(parts, found, strict=True)), "task", "weights")

    facts = {"runs": [run.folder.name for run in runs], "segments": segments}
    return cached_table("patterns", compute, depends_on=facts | {"max_tokens": max_tokens})


def share_table(table: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
    """Return the share of each class over all heads, as told and corrected (`corrected_shares`).

    `ANY_COLUMN` is the sum of two classes.  Columns: task, weights, pattern, told, share, and the
    95% interval of share: the heads of
    ``table`` (a `pattern_table`) are drawn anew, and those of the labelled maps.
    """
    confusion = confusion_by_head(JUDGES[0])
    drawn_confusion = resampled(confusion, seed=seed + 1)
    rows = []
    for (task, weights), part in table.groupby(["task", "weights"], sort=False):
        counts = part[list(CLASSES)].to_numpy() * part[["maps"]].to_numpy()  # [head, class]
        told = counts.sum(axis=0) / counts.sum()
        share = _with_sum(corrected_shares(told, confusion.sum(axis=0)))
        drawn = resampled_sums(counts, resamples=RESAMPLES, seed=seed)
        drawn = corrected_shares(drawn / drawn.sum(axis=1, keepdims=True), drawn_confusion)
        bounds = percentiles(_with_sum(drawn), min(len(counts), len(confusion)))
        columns = zip((*CLASSES, ANY_COLUMN), _with_sum(told), share, *bounds, strict=True)
        rows += [(task, weights, *values) for values in columns]
    columns = ["task", "weights", "pattern", "told", "share", "ci_low", "ci_high"]
    return pd.DataFrame(rows, columns=columns)


def corrected_shares(told: Shares, counts: Confusion) -> Shares:
    """Return the most likely true shares, given those told and the confusion of who tells.

    ``counts`` are labelled maps by label and guess; how a class is taken for others is held to
    be the same in both.  Expectation maximisation (Vardi and Lee 1993) from equal shares: unlike
    those of the inverse matrix, no share is below 0.
    """
    taken = (counts + 1e-9) / (counts + 1e-9).sum(axis=-1, keepdims=True)  # P(guess | label)
    shares = np.full_like(told, 1 / len(CLASSES))
    for _ in range(ROUNDS):
        expected = np.einsum("...l,...lg->...g", shares, taken)
        shares = shares * np.einsum("...g,...lg->...l", told / expected, taken)
    return shares


def typical_maps(encoder: Encoder, segments: Sequence[Pair], *, max_tokens: int) -> list[DrawnMap]:
    """Return a map of each pattern class that occurs: the one that the judge is surest of."""
    some = segments[:: PATTERN_EXAMPLES // TYPICAL_EXAMPLES]
    examples = list(text_maps(encoder, some, max_tokens=max_tokens))
    features = np.stack([map_features(*example) for example in examples])
    sure = pattern_judge().decision_function(features.reshape(-1, features.shape[-1]))
    found = []
    for number, name in enumerate(CLASSES):
        own = np.where(sure.argmax(axis=1) == number, sure[:, number], 0)
        if own.any():
            example, layer, head = np.unravel_index(own.argmax(), features.shape[:-1])
            attention, special, segment = examples[example]
            title = f"{name} ({layer + 1}-{head + 1})"
            found.append(DrawnMap(title, attention[layer, head], special, segment))
    return found


def _with_sum(shares: Shares) -> Float[np.ndarray, "*sample share"]:
    columns = [name.startswith("vertical") for name in CLASSES]
    return np.concatenate([shares, shares[..., columns].sum(axis=-1, keepdims=True)], axis=-1)


def _patterns(
    encoder: Encoder, pairs: Sequence[Pair], max_tokens: int, step_done: StepDone
) -> pd.DataFrame:
    def examples() -> Iterator[TextMaps]:
        for example in text_maps(encoder, pairs, max_tokens=max_tokens):
            yield example
            step_done()

    return pattern_counts(examples())
