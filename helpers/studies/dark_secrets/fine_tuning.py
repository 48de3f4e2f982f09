"""What fine-tuning changes (Kovaleva et al. 2019): accuracy, maps, what heads attend to, and
what disabling one does (sections 4.3 to 4.6).

How much a head's maps change is their cosine similarity before and after.  What heads attend to
is asked of all rows of a map, and of the [CLS] row in the last layer, from which a masked language
model classifies.  A disabled head attends uniformly over the real tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from helpers.analysis.heads import head_rows
from helpers.analysis.statistics import bootstrap_interval
from helpers.cache import cached_table
from helpers.progress import progress
from helpers.store.store import Store
from helpers.studies.classifier import bag_of_words, classifier_alone
from helpers.studies.dark_secrets.maps import sentence_maps, tables_of, text_maps
from helpers.studies.fine_tune import FineTuned, each_run
from helpers.studies.head_mask import uniform_attention
from helpers.studies.head_removal import Change, in_looks
from helpers.studies.tasks import FINE_TUNED, PRETRAINED, RANDOM
from helpers.studies.wikipedia_tasks import Tagged, tag_words

ALONE = "classifier alone"  # column ``start``, beside what fine-tuning starts from
COMPARED_EXAMPLES = 200  # test examples of a task whose maps are compared
WHOLE_LAYER = 0  # the number that stands in the column ``head`` of a whole layer's row
SENTENCES = 300  # of the treebank
SPECIAL = ("cls", "sep")
WORDS = ("noun", "verb", "pronoun", "subject", "object", "negation")
KINDS = (*SPECIAL, *WORDS)
UNIFORM, FROM_CLS, NO_TASK = "uniform", "from_cls_", "none"
PRONOUNS = frozenset({"PRP", "PRP$", "WP", "WP$"})
OBJECTS = frozenset({"dobj", "obj", "iobj", "dative"})
NEGATIONS = frozenset(
    {"not", "n't", "n’t", "no", "never", "none", "nobody", "nothing", "neither", "nor"}
)

Maps = Float[np.ndarray, "layer head query key"]
Starts = Mapping[str, Sequence[FineTuned]]  # runs by what they started from


def accuracy_table(starts: Starts, *, seed: int) -> pd.DataFrame:
    """Return how well each task is learned, under the three conditions of section 4.3.

    Columns: task, start (what was fine-tuned: `PRETRAINED` or `RANDOM` weights, or the classifier
    `ALONE`, over the model's own weights), accuracy with its 95% bootstrap interval (ci_low,
    ci_high), majority (what the most frequent label gets) and bag_of_words (what a classifier
    that sees no order of words gets), in percent; learned (whether the interval is above both);
    labels, train, test (counts).
    """

    def compute() -> pd.DataFrame:
        told = [(start, run, run.predictions) for start in starts for run in starts[start]]
        bags = {}
        for run in starts[PRETRAINED]:
            of = partial(classifier_alone, run.encoder, run.task)
            told.append((ALONE, run, of(max_tokens=run.recipe.max_tokens)))
            bag = bag_of_words(run.encoder, run.task, max_tokens=run.recipe.max_tokens)
            bags[run.task.name] = (bag == run.labels).mean()
        rows = []
        for start, run, predictions in told:
            task, right = run.task, predictions == run.labels
            low, high = bootstrap_interval(right, np.ones(len(right)), seed=seed)
            values = np.array([right.mean(), low, high, task.majority, bags[task.name]])
            learned = low > max(values[3:])
            sizes = len(task.labels), len(task.train), len(task.test)
            rows.append((task.name, start, *100 * values, learned, *sizes))
        columns = ["task", "start", "accuracy", "ci_low", "ci_high", "majority", "bag_of_words"]
        return pd.DataFrame(rows, columns=[*columns, "learned", "labels", "train", "test"])

    runs = [run.folder.name for some in starts.values() for run in some]
    return cached_table("task-accuracy", compute, depends_on={"runs": runs, "seed": seed})


def control_accuracy(accuracy: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `accuracy_table` from random weights as if they were the model's own.

    For the claims' control: the same tasks count as learned.
    """
    learned = accuracy[accuracy["start"] == PRETRAINED].set_index("task")["learned"]
    rows = accuracy[accuracy["start"] == RANDOM]
    return rows.assign(start=PRETRAINED, learned=rows["task"].map(learned))


def similarity_table(starts: Starts) -> pd.DataFrame:
    """Return the cosine similarity of each head's maps before and after fine-tuning.

    Columns: task, layer, head, similarity and similarity_random (the same for the run from
    random weights), means over the first `COMPARED_EXAMPLES` test examples.
    """
    own, random = (
        each_run(starts[start], "finetuning-similarity", similarity)
        for start in (PRETRAINED, RANDOM)
    )
    return own.assign(similarity_random=random["similarity"])


def similarity(run: FineTuned) -> pd.DataFrame:
    """Return a run's part of `similarity_table`."""
    before, after = (
        text_maps(encoder, run.task.test[:COMPARED_EXAMPLES], max_tokens=run.recipe.max_tokens)
        for encoder in (run.encoder, run.fine_tuned_encoder())
    )
    both = zip(progress(before, f"maps before and after ({run.task.name})"), after, strict=True)
    mean = np.mean([map_similarity(one.attention, other.attention) for one, other in both], axis=0)
    return head_rows(*mean.shape, similarity=mean)


def map_similarity(before: Maps, after: Maps) -> Float[np.ndarray, "layer head"]:
    """Return the cosine of the angle between two maps of each head, flattened to vectors."""
    a, b = (maps.reshape(*maps.shape[:2], -1).astype(np.float64) for maps in (before, after))
    product = np.einsum("lhx,lhx->lh", a, b)
    return product / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))


def feature_table(runs: Sequence[FineTuned], store: Store, *, seed: int) -> pd.DataFrame:
    """Return how much of each head's attention goes to tokens of each kind.

    ``store`` names the sentences, `SENTENCES` of them at most: each kind is averaged over those
    that have a token of it, so that rare kinds count as much as frequent ones.

    Columns: task (`NO_TASK` before fine-tuning), weights, layer, head, and for each of `KINDS`
    the share (0-1) that a row gives to tokens of the kind on average; ``from_cls_`` and its name:
    the share that the row of the first token gives, in the last layer (empty in the others).  A row
    with `UNIFORM` weights, layer and head 0, has the shares that uniform attention would give.
    """
    encoder = runs[0].encoder
    order = np.random.default_rng(seed).permutation(len(store))[:SENTENCES]
    chosen = sorted(int(index) for index in order)

    def compute() -> pd.DataFrame:
        tagged = tag_words([store[index].record["words"] for index in chosen])
        models = {(NO_TASK, PRETRAINED): encoder}
        models |= {(run.task.name, FINE_TUNED): run.fine_tuned_encoder() for run in runs}
        words = [sentence.words for sentence in tagged]
        maps = {key: sentence_maps(model, words) for key, model in models.items()}
        maps[NO_TASK, UNIFORM] = map(_uniform, words)
        shares = {key: _shares(own, tagged) for key, own in maps.items()}
        names, label = ["task", "weights"], "what heads attend to"
        found = tables_of(shares, _mean_shares, names, encoder.device, label)
        found.loc[found["weights"] == UNIFORM, ["layer", "head"]] = 0
        return found

    facts = {"runs": [run.folder.name for run in runs], "store": store.key, "seed": seed}
    return cached_table("token-features", compute, depends_on=facts)


def from_cls(table: pd.DataFrame) -> pd.DataFrame:
    """Return what the first token attends to in the last layer: a row for each model, in shares."""
    last = table[(table["layer"] == table["layer"].max()) | (table["weights"] == UNIFORM)]
    columns = {f"{FROM_CLS}{name}": name for name in KINDS}
    means = last.groupby(["weights", "task"], sort=False)[list(columns)].mean()
    return means.rename(columns=columns)


def token_kinds(sentence: Tagged, words: slice, count: int) -> Bool[np.ndarray, "kind position"]:
    """Return where the tokens of each of `KINDS` are, of a sentence's ``count`` positions.

    ``words`` are those of its words; [CLS] is in front of them, [SEP] behind.
    """
    kinds = np.zeros((len(KINDS), count), bool)
    kinds[0, : words.start] = kinds[1, words.stop :] = True
    of_words = zip(sentence.words, sentence.tags, sentence.relations, strict=True)
    kinds[2:, words] = np.transpose([_word_kinds(*word) for word in of_words])
    return kinds


def kind_shares(
    attention: Maps, kinds: Bool[np.ndarray, "kind position"]
) -> Float[np.ndarray, "2 kind layer head"]:
    """Return the share of attention that each kind gets from all tokens, and from the first.

    NaN where the sentence has no token of the kind.
    """
    to_kind = np.stack([attention[..., there].sum(axis=-1) for there in kinds])
    shares = np.stack([to_kind.mean(axis=-1), to_kind[..., 0]])
    return np.where(kinds.any(axis=1)[:, None, None], shares, np.nan)


def disabling_table(runs: Sequence[FineTuned]) -> pd.DataFrame:
    """Return what each task's accuracy becomes without each head, and without each layer.

    Columns: task, layer and head (from 1; `WHOLE_LAYER` for a layer), and those of
    `head_removal.changes_of`, over all test examples where fewer do not settle it
    (`head_removal.in_looks`).
    """
    return each_run(runs, "disabling", disabled)


def disabled(run: FineTuned) -> pd.DataFrame:
    """Return a run's part of `disabling_table`: of each layer its heads, and then all of them."""
    places = list(product(range(run.encoder.layers), (*range(run.encoder.heads), None)))
    changes = [
        Change(layer, partial(uniform_attention, layer=layer, head=head)) for layer, head in places
    ]
    order = np.random.default_rng(run.recipe.seed).permutation(len(run.task.test))
    table, _ = in_looks(run, [run.task.test[i] for i in order], changes, "disabling heads")
    table.insert(0, "layer", [layer + 1 for layer, _ in places])
    table.insert(1, "head", [WHOLE_LAYER if head is None else head + 1 for _, head in places])
    return table


def _uniform(words: Sequence[str]) -> tuple[Maps, slice]:
    """Return a uniform map of a sentence between [CLS] and [SEP], and where its words are."""
    count = len(words) + 2
    return np.full((1, 1, count, count), 1 / count), slice(1, count - 1)


def _shares(
    maps: Iterable[tuple[Maps, slice]], tagged: Sequence[Tagged]
) -> Iterator[Float[np.ndarray, "2 kind layer head"]]:
    """Yield the `kind_shares` of each sentence."""
    for (attention, words), sentence in zip(maps, tagged, strict=True):
        yield kind_shares(attention, token_kinds(sentence, words, attention.shape[-1]))


def _mean_shares(sentences: Iterable[Float[np.ndarray, "2 kind layer head"]]) -> pd.DataFrame:
    """Return the means over the sentences that have a token of the kind, a row a head."""
    shares = np.array(list(sentences), np.float64)
    counts = (~np.isnan(shares)).sum(axis=0)
    means = np.nansum(shares, axis=0) / np.where(counts, counts, np.nan)
    columns = {}
    means[1, :, :-1] = np.nan  # what the first token attends to is asked of the last layer
    for name, overall, first in zip(KINDS, *means, strict=True):
        columns |= {name: overall, f"{FROM_CLS}{name}": first}
    return head_rows(*means.shape[2:], **columns)


def _word_kinds(word: str, tag: str, relation: str) -> tuple[bool, ...]:
    """Return which of `WORDS` a word is, by its Penn tag and its relation."""
    return (
        tag.startswith("NN"),
        tag.startswith(("VB", "MD")),
        tag in PRONOUNS,
        relation.startswith(("nsubj", "csubj")),
        relation in OBJECTS,
        relation == "neg" or word.lower() in NEGATIONS,
    )
