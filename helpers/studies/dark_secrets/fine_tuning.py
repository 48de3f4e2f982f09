"""What fine-tuning changes, and what disabling a head does (Kovaleva et al. 2019, 4.3 to 4.6).

What heads attend to is asked of all rows of a map, and of the [CLS] row in the last layer, from
which a masked language model classifies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool
from torch.nn import functional as F

from helpers.analysis.heads import head_rows
from helpers.analysis.statistics import ratio
from helpers.cache import cached
from helpers.store.store import Store
from helpers.studies import head_removal
from helpers.studies.classifier import ALONE, BAG, baselines
from helpers.studies.dark_secrets.maps import Maps, PerHead, sentence_maps, tables_of, text_maps
from helpers.studies.fine_tune import FineTuned, each_run
from helpers.studies.tasks import FINE_TUNED, PRETRAINED, RANDOM
from helpers.studies.wikipedia_tasks import Tagged, tag_words
from helpers.work import progress

PERCENTAGES = ("accuracy", "ci_low", "ci_high", "majority", "bag_of_words")
COMPARED_EXAMPLES = 200  # test examples of a task whose maps are compared
WHOLE_LAYER = 0  # the number that stands in the column ``head`` of a whole layer's row
SENTENCES = 300  # of the treebank
SPECIAL = ("cls", "sep")
WORDS = ("noun", "verb", "pronoun", "subject", "object", "negation")
KINDS = (*SPECIAL, *WORDS)
UNIFORM, FROM_CLS, NO_TASK = "uniform", "from_cls_", "none"
PRONOUNS = {"PRP", "PRP$", "WP", "WP$"}
OBJECTS = {"dobj", "obj", "iobj", "dative"}
NEGATIONS = {"not", "n't", "n’t", "no", "never", "none", "nobody", "nothing", "neither", "nor"}

Starts = Mapping[str, Sequence[FineTuned]]  # runs by what they started from


def accuracy_table(starts: Starts, *, seed: int) -> pd.DataFrame:
    """Return how well each task is learned, under the three conditions of section 4.3.

    Columns: task, start (what was fine-tuned: `PRETRAINED` or `RANDOM` weights, or `ALONE`: none),
    accuracy with its 95% bootstrap interval (ci_low, ci_high), what the most frequent label
    (majority) and words without their order (bag_of_words) get, in percent; learned (whether the
    interval is above both); labels, train, test (counts).
    """

    def compute() -> pd.DataFrame:
        told = [(start, run, run.predictions) for start in starts for run in starts[start]]
        bags, rows = {}, []
        for run in starts[PRETRAINED]:
            found = baselines(run.encoder, run.task, max_tokens=run.recipe.max_tokens)
            told.append((ALONE, run, found[ALONE]))
            bags[run.task.name] = (found[BAG] == run.labels).mean()
        for start, run, predictions in told:
            task, right = run.task, predictions == run.labels
            shares = *ratio(right, np.ones(len(right)), seed=seed), task.majority, bags[task.name]
            values = dict(zip(PERCENTAGES, 100 * np.array(shares), strict=True))
            learned = values["ci_low"] > max(values["majority"], values["bag_of_words"])
            sizes = {"labels": len(task.labels), "train": len(task.train), "test": len(task.test)}
            rows.append({"task": task.name, "start": start, **values, "learned": learned, **sizes})
        return pd.DataFrame(rows)

    folders = {start: [run.folder.name for run in runs] for start, runs in starts.items()}
    return cached("task-accuracy", compute, inputs={"runs": folders, "seed": seed}, module=__name__)


def control_accuracy(accuracy: pd.DataFrame) -> pd.DataFrame:
    """Return `accuracy_table` from random weights, for the control: the same tasks are learned."""
    learned = accuracy[accuracy["start"] == PRETRAINED].set_index("task")["learned"]
    rows = accuracy[accuracy["start"] == RANDOM]
    return rows.assign(start=PRETRAINED, learned=rows["task"].map(learned))


def similarity_table(starts: Starts) -> pd.DataFrame:
    """Return the cosine similarity of each head's maps before and after fine-tuning.

    Columns: task, layer, head, similarity and similarity_random (the same for the run from
    random weights), means over the first `COMPARED_EXAMPLES` test examples.
    """

    def of_task(run: FineTuned) -> pd.DataFrame:
        some, longest = run.task.test[:COMPARED_EXAMPLES], run.recipe.max_tokens
        before = text_maps(run.encoder, some, max_tokens=longest)
        after = text_maps(run.fine_tuned_encoder(), some, max_tokens=longest)
        both = zip(progress(before, f"maps before and after ({run.task.name})"), after, strict=True)
        found = [map_similarity(one.attention, other.attention) for one, other in both]
        return head_rows(*found[0].shape, similarity=np.mean(found, axis=0))

    own = each_run(starts[PRETRAINED], "finetuning-similarity", of_task)
    random = each_run(starts[RANDOM], "finetuning-similarity", of_task)
    return own.assign(similarity_random=random["similarity"])


def map_similarity(before: Maps, after: Maps) -> PerHead:
    """Return the cosine of the angle between two maps of each head, flattened to vectors."""
    a, b = (torch.from_numpy(maps).double().flatten(2) for maps in (before, after))
    return F.cosine_similarity(a, b, dim=-1).numpy()


def feature_table(runs: Sequence[FineTuned], store: Store, *, seed: int) -> pd.DataFrame:
    """Return how much of each head's attention goes to tokens of each kind.

    Over `SENTENCES` of a ``store`` at most; each kind over those that have a token of it.
    Columns: task (`NO_TASK` before fine-tuning), weights, layer, head, and those of
    `mean_shares`.  A row of `UNIFORM` attention (layer and head 0) is among them.
    """
    encoder = runs[0].encoder
    chosen = sorted(np.random.default_rng(seed).permutation(len(store))[:SENTENCES].tolist())

    def compute() -> pd.DataFrame:
        tagged = tag_words([store[index].record["words"] for index in chosen])
        words = [sentence.words for sentence in tagged]
        sizes = [len(own) + 2 for own in words]  # with [CLS] and [SEP]
        maps = {(NO_TASK, PRETRAINED): sentence_maps(encoder, words)}
        for run in runs:
            maps[run.task.name, FINE_TUNED] = sentence_maps(run.fine_tuned_encoder(), words)
        maps[NO_TASK, UNIFORM] = ((np.full((1, 1, n, n), 1 / n), slice(1, n - 1)) for n in sizes)
        found = tables_of(maps, partial(mean_shares, tagged), encoder.device)
        found.loc[found["weights"] == UNIFORM, ["layer", "head"]] = 0
        return found

    facts = {"runs": [run.folder.name for run in runs], "store": store.key, "seed": seed}
    return cached("token-features", compute, inputs=facts, module=__name__)


def token_kinds(sentence: Tagged, words: slice, count: int) -> Bool[np.ndarray, "kind position"]:
    """Return where tokens of each of `KINDS` are; [CLS] is in front of the words, [SEP] behind."""
    kinds = np.zeros((len(KINDS), count), bool)
    kinds[0, : words.start] = kinds[1, words.stop :] = True
    of_words = zip(sentence.words, sentence.tags, sentence.relations, strict=True)
    for place, (word, tag, relation) in enumerate(of_words, words.start):
        kinds[2:, place] = (  # in the order of `WORDS`
            tag.startswith("NN"),
            tag.startswith(("VB", "MD")),
            tag in PRONOUNS,
            relation.startswith(("nsubj", "csubj")),
            relation in OBJECTS,
            relation == "neg" or word.lower() in NEGATIONS,
        )
    return kinds


def mean_shares(tagged: Sequence[Tagged], maps: Iterable[tuple[Maps, slice]]) -> pd.DataFrame:
    """Return the mean share (0-1) that tokens of each of `KINDS` get from a row, for each head.

    `FROM_CLS` and its name: from the row of the first token, in the last layer.
    """
    total = count = 0
    for sentence, (attention, words) in zip(tagged, maps, strict=True):
        kinds = token_kinds(sentence, words, attention.shape[-1])
        to_kind = np.stack([attention[..., there].sum(axis=-1) for there in kinds])
        total = total + np.stack([to_kind.mean(axis=-1), to_kind[..., 0]], 1).astype(np.float64)
        count = count + kinds.any(axis=1)[:, None, None, None]
    means = total / np.where(count, count, np.nan)  # [kind, rows, layer, head]
    means[:, 1, :-1] = np.nan  # what the first token attends to is asked of the last layer
    columns = [f"{rows}{kind}" for kind in KINDS for rows in ("", FROM_CLS)]
    by_column = dict(zip(columns, np.concatenate(means), strict=True))
    return head_rows(*means.shape[2:], **by_column)


def disabling_table(runs: Sequence[FineTuned], single: pd.DataFrame, *, seed: int) -> pd.DataFrame:
    """Return what a task's accuracy becomes with the uniform attention of a head, or of a layer.

    Heads on the first look of ``single``, the table of `single_ablation`; layers on all test
    examples.  Columns: task, layer, head (from 1; `WHOLE_LAYER` for a layer), those of
    `changes_of`, and of heads zeroed (the change on the same examples with the output zeroed).
    """

    def uniform(layer: int, head: int) -> head_removal.Change:
        place = {"layer": layer - 1, "head": None if head == WHOLE_LAYER else head - 1}
        return head_removal.Change(layer - 1, partial(head_removal.uniform_attention, **place))

    def of_task(run: FineTuned) -> pd.DataFrame:
        heads = head_rows(run.encoder.layers, run.encoder.heads)
        layers = head_rows(run.encoder.layers, 1).assign(head=WHOLE_LAYER)
        first = head_removal.split_test(run, seed)[1][: head_removal.LOOKS[0]]
        parts = []
        for pairs, places in ((first, heads), (run.task.test, layers)):
            changes = [uniform(*place) for place in places.itertuples(index=False)]
            scores = head_removal.scores_under(run, pairs, changes, "uniform attention")
            parts.append(places.join(head_removal.changes_of(scores)))
        return pd.concat(parts, ignore_index=True)

    zeroed = single.rename(columns={"first_change": "zeroed"})[["task", "layer", "head", "zeroed"]]
    return each_run(runs, "disabling", of_task, seed=seed).merge(zeroed, how="left")
