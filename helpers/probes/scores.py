"""Scores of the probes (section 5): correct attachments, with intervals over articles and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from helpers.metrics.reference import UAS_WITHOUT_PUNCTUATION
from helpers.metrics.statistics import Clusters, Estimate, ratio, weighted_ratios, with_seed_noise
from helpers.probes.data import Parse, head_matrix

UAS = "UAS"
UNDIRECTED = "UAS, undirected"  # comparable with UUAS
CONTROL_TASK = "control task"
SELECTIVITY = "selectivity"


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
        right, total = self.by_article
        return with_seed_noise(ratio(100 * right, total), self.by_seed)

    def minus(self, subtrahend: Counts) -> Estimate:
        """Estimate the difference from another probe's percentage, with its 95% interval.

        The bootstrap gives both probes the same articles.  The noise of training is that of both.
        """
        pairs = zip(self.by_article, subtrahend.by_article, strict=True)
        right, total = (np.column_stack(pair) for pair in pairs)
        over_articles = weighted_ratios(100 * right, total, [1, -1])
        return with_seed_noise(over_articles, self.by_seed, subtrahend.by_seed)


ProbeCounts = dict[str, Counts]  # by metric


def count_right(parses: Sequence[Parse], is_right: Sequence[Bool[np.ndarray, " _case"]]) -> Counts:
    """Count the cases of each sentence, for example its words, and those that are right."""
    right = np.array([cases.sum() for cases in is_right])
    total = np.array([len(cases) for cases in is_right])
    return Counts(right[None], total, np.array([parse.article for parse in parses]))


def stack_seeds(results: Sequence[ProbeCounts]) -> ProbeCounts:
    """Stack the results of probes of several seeds on the same sentences."""
    return {
        metric: replace(counts, right=np.concatenate([result[metric].right for result in results]))
        for metric, counts in results[0].items()
    }


def with_selectivity(result: ProbeCounts, control_task: Counts) -> ProbeCounts:
    """Add the control task, and selectivity: UAS minus its accuracy, both without punctuation.

    In the control task, too, words are counted without punctuation (Hewitt and Liang 2019, section
    2.2).
    """
    attached = result[UAS_WITHOUT_PUNCTUATION]
    selectivity = replace(attached, right=attached.right - control_task.right)
    return {**result, CONTROL_TASK: control_task, SELECTIVITY: selectivity}


def attachment(parses: Sequence[Parse], heads: Sequence[Int[np.ndarray, " _word"]]) -> ProbeCounts:
    """Count the correct attachments of each sentence.

    Parameters
    ----------
    parses
        The sentences' parses.
    heads
        The predicted heads of each sentence; 0 is ROOT, words count from 1.

    Returns
    -------
    dict of Counts
        Correct heads with and without punctuation, and edges without punctuation: an edge between
        two words is found if either is the predicted head of the other, as UUAS counts it.
    """
    by_metric = {UAS: [], UAS_WITHOUT_PUNCTUATION: [], UNDIRECTED: []}
    for predicted, parse in zip(heads, parses, strict=True):
        is_right = predicted == parse.heads
        is_link = head_matrix(predicted)
        by_metric[UAS].append(is_right)
        by_metric[UAS_WITHOUT_PUNCTUATION].append(is_right[~parse.punctuation])
        by_metric[UNDIRECTED].append((is_link | is_link.T)[parse.edges])
    return {metric: count_right(parses, is_right) for metric, is_right in by_metric.items()}
