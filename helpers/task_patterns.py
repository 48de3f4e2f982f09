"""Which patterns the heads of a study show, on text and tasks (Kovaleva et al. 2019, 4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

import numpy as np
import pandas as pd

from helpers import task_runs
from helpers.analysis import patterns
from helpers.attention import classify, task_maps
from helpers.attention.finetune import FineTuned
from helpers.attention.jobs import StepDone, run_jobs
from helpers.attention.models import Encoder
from helpers.cached import cached_table
from helpers.data.tasks import Pair
from helpers.plots_patterns import DrawnMap
from helpers.study import Study

BEFORE, AFTER = "pretrained", "fine-tuned"  # column ``weights``
PATTERN_EXAMPLES = 100  # examples of a task, or segments of the text, whose maps are classified
TYPICAL_EXAMPLES = 10  # segments of the text to choose typical maps from
TEXT = "none (segments of the text)"  # what stands in column ``task`` for these


def pattern_table(study: Study) -> pd.DataFrame:
    """Return how often each head shows each pattern, on each task and on the study's text.

    Columns: task (`TEXT` for segments of the text), weights (before or after fine-tuning), and
    those of `helpers.analysis.patterns.pattern_table`.
    """
    runs = task_runs.fine_tuned(study)

    def compute() -> pd.DataFrame:
        parts = [(study.encoder, _segments(study), study.max_tokens, TEXT, BEFORE)]
        for run in runs.values():
            some, longest = run.task.test[:PATTERN_EXAMPLES], run.recipe.max_tokens
            for weights, encoder in _before_and_after(run).items():
                parts.append((encoder, some, longest, run.task.name, weights))
        found = run_jobs(
            [partial(_patterns, *part) for part in parts],
            study.encoder.device,
            label="patterns of maps",
            unit="example",
            total=sum(len(pairs) for _, pairs, *_ in parts),
        )
        return pd.concat(found, ignore_index=True)

    text = {"text": study.segment_corpus().fingerprint, "max_tokens": study.max_tokens}
    thresholds = patterns.default_thresholds()
    return cached_table(
        "patterns",
        compute,
        depends_on={"runs": [run.folder.name for run in runs.values()]}
        | text
        | {"examples": PATTERN_EXAMPLES, **thresholds},
        code=(patterns, task_maps, classify),
    )


def typical_maps(study: Study) -> list[DrawnMap]:
    """Return a map of each pattern class, the most typical of the model on some segments."""
    pairs = _segments(study)[:: PATTERN_EXAMPLES // TYPICAL_EXAMPLES]
    examples = list(task_maps.task_maps(study.encoder, pairs, max_tokens=study.max_tokens))
    texts = [patterns.text_segments(example.special) for example in examples]
    features = np.stack(
        [
            patterns.map_features(example.attention, example.special, segment)
            for example, segment in zip(examples, texts, strict=True)
        ]
    )  # [example, layer, head, feature]
    found = []
    for name, index in patterns.typical_maps(features.reshape(-1, features.shape[-1])).items():
        number, layer, head = np.unravel_index(index, features.shape[:-1])
        example = examples[number]
        weights = example.attention[layer, head]
        title = f"{name} ({layer + 1}-{head + 1})"
        found.append(DrawnMap(title, weights, example.special, texts[number]))
    return found


def _patterns(
    encoder: Encoder,
    pairs: Sequence[Pair],
    max_tokens: int,
    task: str,
    weights: str,
    step_done: StepDone,
) -> pd.DataFrame:
    def examples() -> Iterator[patterns.Example]:
        for example in task_maps.task_maps(encoder, pairs, max_tokens=max_tokens):
            segment = patterns.text_segments(example.special)
            yield example.attention, example.special, segment
            step_done()

    table = patterns.pattern_table(examples())
    table.insert(0, "task", task)
    table.insert(1, "weights", weights)
    return table


@lru_cache(maxsize=1)
def _segments(study: Study) -> list[Pair]:
    """Return segments of the study's text, spread evenly over it."""
    found = study.segment_corpus().records()
    places = np.linspace(0, len(found) - 1, min(PATTERN_EXAMPLES, len(found))).astype(int)
    return [Pair(found[place].first, found[place].second, 0) for place in places]


def _before_and_after(run: FineTuned) -> dict[str, Encoder]:
    return {BEFORE: run.encoder, AFTER: run.fine_tuned_encoder()}
