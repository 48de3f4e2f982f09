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
from helpers.data.records import Record
from helpers.model.encoder import Encoder
from helpers.model.forward import forward, model_inputs
from helpers.model.parallel import StepDone, run_jobs
from helpers.model.word_attention import to_words
from helpers.store.store import Store
from helpers.studies.fine_tune import FineTuned
from helpers.studies.grammar_tasks import Tagged, tag_words

SENTENCES = 300  # of the treebank
BATCH_SIZE = 16
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
BEFORE, AFTER, NO_TASK = "pretrained", "fine-tuned", "none"


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
        records = [store[index].record for index in chosen]
        tagged = tag_words([record["words"] for record in records])
        given = [(BEFORE, NO_TASK, encoder), *((AFTER, run.task.name, run) for run in runs)]
        parts = run_jobs(
            [partial(_shares, one, records, tagged) for _, _, one in given],
            encoder.device,
            label="what heads attend to",
            unit="sentence",
            total=len(given) * len(records),
        )
        tables = [
            part.assign(task=task, weights=weights)
            for part, (weights, task, _) in zip(parts, given, strict=True)
        ]
        even = pd.DataFrame([_uniform(tagged)]).assign(
            task=NO_TASK, weights=UNIFORM, layer=0, head=0
        )
        table = pd.concat([*tables, even], ignore_index=True)
        return table[["task", "weights", "layer", "head", *tables[0].columns[2:-2]]]

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


def _shares(
    of: FineTuned | Encoder,
    records: Sequence[Record],
    tagged: Sequence[Tagged],
    step_done: StepDone,
) -> pd.DataFrame:
    encoder = of.fine_tuned_encoder() if isinstance(of, FineTuned) else of
    sums = Sums()
    inputs = [model_inputs(encoder, record) for record in records]
    for start in range(0, len(inputs), BATCH_SIZE):
        batch = inputs[start : start + BATCH_SIZE]
        layers, _ = forward(encoder, batch)
        for row, (item, sentence) in enumerate(zip(batch, tagged[start:], strict=False)):
            n = len(item["input_ids"])
            maps = [to_words(layer[row, :, :n, :n].float(), item["groups"]) for layer in layers]
            ends = [item["input_ids"][end] in encoder.special_ids for end in (0, -1)]
            kinds = token_kinds(sentence, first=ends[0], last=ends[1])
            sums.add(kind_shares(np.stack([own.cpu().numpy() for own in maps]), kinds))
            step_done()
    columns = {}
    for name in FEATURES:
        for column in (name, f"{FROM_CLS}{name}"):
            empty = np.full((encoder.layers, encoder.heads), np.nan)
            columns[column] = sums.mean(column) if column in sums.totals else empty
        columns[f"{FROM_CLS}{name}"][:-1] = np.nan
    return head_rows(encoder.layers, encoder.heads, **columns)


def _uniform(tagged: Sequence[Tagged]) -> dict[str, float]:
    kinds = [token_kinds(sentence) for sentence in tagged]
    shares = {
        name: float(np.mean([own[name].mean() for own in kinds if own[name].any()] or [np.nan]))
        for name in FEATURES
    }
    return shares | {f"{FROM_CLS}{name}": share for name, share in shares.items()}
