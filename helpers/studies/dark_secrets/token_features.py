"""What heads attend to: special tokens, parts of speech, arguments, negation.

Section 4.4 of Kovaleva et al. (2019) asks it of all rows of a map, section 4.5 of the [CLS] row in
the last layer, from which a masked language model classifies; before fine-tuning and after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from helpers.analysis.averages import Sums
from helpers.analysis.heads import head_rows
from helpers.cache import cached_table
from helpers.model.encoder import Encoder
from helpers.model.parallel import StepDone, run_jobs
from helpers.store.store import Store
from helpers.studies.dark_secrets.maps import sentence_maps
from helpers.studies.fine_tune import FineTuned, stacked
from helpers.studies.tasks import FINE_TUNED, PRETRAINED
from helpers.studies.wikipedia_tasks import Tagged, tag_words

SENTENCES = 300  # of the treebank
NEGATIONS = frozenset(
    {"not", "n't", "n’t", "no", "never", "none", "nobody", "nothing", "neither", "nor"}
)
IS: Mapping[str, Callable[[str, str, str], bool]] = {  # of a word, its Penn tag and its relation
    "noun": lambda _word, tag, _relation: tag.startswith("NN"),
    "verb": lambda _word, tag, _relation: tag.startswith(("VB", "MD")),
    "pronoun": lambda _word, tag, _relation: tag in ("PRP", "PRP$", "WP", "WP$"),
    "subject": lambda _word, _tag, relation: relation.startswith(("nsubj", "csubj")),
    "object": lambda _word, _tag, relation: relation in ("dobj", "obj", "iobj", "dative"),
    "negation": lambda word, _tag, relation: relation == "neg" or word.lower() in NEGATIONS,
}  # fmt: skip
SPECIAL = ("cls", "sep")
WORDS = tuple(IS)
FEATURES = (*SPECIAL, *WORDS)
UNIFORM, FROM_CLS = "uniform", "from_cls_"
BEFORE, AFTER, NO_TASK = PRETRAINED, FINE_TUNED, "none"


def feature_table(runs: Sequence[FineTuned], store: Store, *, seed: int) -> pd.DataFrame:
    """Return how much of each head's attention goes to tokens of each kind.

    ``store`` names the sentences, `SENTENCES` of them at most: each kind is averaged over those
    that have a token of it, so that rare kinds count as much as frequent ones.

    Columns: task (`NO_TASK` before fine-tuning), weights, layer, head, and for each of `FEATURES`
    the share (0-1) that a row gives to tokens of the kind on average; ``from_cls_`` and its name:
    the share that the row of the first token gives, in the last layer (empty in the others).  A row
    with `UNIFORM` weights, layer and head 0, has the shares that uniform attention would give.
    """
    encoder = runs[0].encoder
    order = np.random.default_rng(seed).permutation(len(store))[:SENTENCES]
    chosen = sorted(int(index) for index in order)

    def compute() -> pd.DataFrame:
        tagged = tag_words([store[index].record["words"] for index in chosen])
        given = {(NO_TASK, BEFORE): encoder} | {(run.task.name, AFTER): run for run in runs}
        found = run_jobs(
            [partial(_shares, one, tagged) for one in given.values()],
            encoder.device,
            label="what heads attend to",
            unit="sentence",
            total=len(given) * len(tagged),
        )
        even = pd.DataFrame([{"layer": 0, "head": 0} | _uniform(tagged)])
        tables = dict(zip(given, found, strict=True)) | {(NO_TASK, UNIFORM): even}
        return stacked(tables, "task", "weights")

    return cached_table(
        "token-features",
        compute,
        depends_on={"runs": [run.folder.name for run in runs], "store": store.key, "seed": seed},
    )


def features_by_layer(table: pd.DataFrame) -> pd.DataFrame:
    """Return the mean share of each kind of token over the heads of each layer, and of uniform."""
    rows = table.groupby(["weights", "task", "layer"], sort=False)[list(FEATURES)]
    return rows.mean()


def from_cls(table: pd.DataFrame) -> pd.DataFrame:
    """Return what the first token attends to in the last layer: a row for each model, in shares."""
    last = table[(table["layer"] == table["layer"].max()) | (table["weights"] == UNIFORM)]
    columns = {f"{FROM_CLS}{name}": name for name in FEATURES}
    return (
        last.groupby(["weights", "task"], sort=False)[list(columns)].mean().rename(columns=columns)
    )


def token_kinds(
    sentence: Tagged, *, first: bool = True, last: bool = True
) -> dict[str, Bool[np.ndarray, " position"]]:
    """Return where the tokens of each kind are, of [CLS] (if ``first``), the words of a sentence
    and [SEP] (if ``last``).
    """
    words = list(zip(sentence.words, sentence.tags, sentence.relations, strict=True))
    before, after = [False] * first, [False] * last
    kinds = {
        "cls": [True] * first + [False] * len(words) + after,
        "sep": before + [False] * len(words) + [True] * last,
    } | {name: before + [is_one(*word) for word in words] + after for name, is_one in IS.items()}
    return {name: np.array(places, bool) for name, places in kinds.items()}


def kind_shares(
    attention: Float[np.ndarray, "layer head position position"],
    kinds: Mapping[str, Bool[np.ndarray, " position"]],
) -> dict[str, Float[np.ndarray, "layer head"]]:
    """Return the shares of `feature_table` of one sentence's maps, for the `token_kinds` it has."""
    shares = {}
    for name, there in kinds.items():
        if there.any():
            to_kind = attention[..., there].sum(axis=-1)  # [layer, head, query]
            shares[name] = to_kind.mean(axis=-1)
            shares[f"{FROM_CLS}{name}"] = to_kind[..., 0]
    return shares


def _shares(of: FineTuned | Encoder, tagged: Sequence[Tagged], step_done: StepDone) -> pd.DataFrame:
    encoder = of.fine_tuned_encoder() if isinstance(of, FineTuned) else of
    names = [column for name in FEATURES for column in (name, f"{FROM_CLS}{name}")]
    sums, maps = Sums(names), sentence_maps(encoder, [sentence.words for sentence in tagged])
    for (attention, own), sentence in zip(maps, tagged, strict=True):
        kinds = token_kinds(sentence, first=own.start > 0, last=own.stop < attention.shape[-1])
        sums.add(kind_shares(attention, kinds))
        step_done()
    table = head_rows(encoder.layers, encoder.heads, **{name: sums.mean(name) for name in names})
    table.loc[table["layer"] < encoder.layers, names[1::2]] = np.nan
    return table


def _uniform(tagged: Sequence[Tagged]) -> dict[str, float]:
    kinds = [token_kinds(sentence) for sentence in tagged]
    shares = {
        name: float(np.mean([own[name].mean() for own in kinds if own[name].any()] or [np.nan]))
        for name in FEATURES
    }
    return shares | {f"{FROM_CLS}{name}": share for name, share in shares.items()}
