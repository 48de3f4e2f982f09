"""Notebook 07's tables on a tiny model: complete, and what they say they are."""

from itertools import product

import numpy as np
import pytest
import torch
from toy_corpora import conllu

from helpers.data.corpora import resolve_treebank
from helpers.data.wikipedia import segments
from helpers.model.encoder import load
from helpers.store.extract import extract
from helpers.studies import fine_tune
from helpers.studies.classifier import batches
from helpers.studies.dark_secrets import fine_tuning, links, patterns
from helpers.studies.dark_secrets.fine_tuning import WHOLE_LAYER
from helpers.studies.dark_secrets.maps import text_maps
from helpers.studies.head_removal import single_ablation, split_test, uniform_attention
from helpers.studies.tasks import PRETRAINED, RANDOM
from helpers.studies.wikipedia_tasks import ParsedSentence

TASKS = ["next paragraph", "bigram shift"]
LAYERS, HEADS, LONGEST = 3, 4, 48


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    subjects = ("cat", "dog", "rain", "winter", "reader", "coffee")
    paragraphs = [[f"The {own} in paragraph {number} sat on the mat. It was a lazy {own}."
                   for number in range(6)] for own in subjects]  # fmt: skip
    (folder / "text.txt").write_text("\n\n".join(map("\n".join, paragraphs)))
    sentence = [(1, "The", 2, "det"), (2, "cat", 4, "nsubj"), (3, "always", 4, "advmod"),
                (4, "likes", 0, "root"), (5, "the", 6, "det"), (6, "coffee", 4, "obj"),
                (7, "here", 4, "advmod")]  # fmt: skip
    (folder / "trees.conllu").write_text(conllu(sentence, times=12))
    return folder


@pytest.fixture(scope="module")
def models(tiny_folder):
    """A model and its control."""
    folder = str(tiny_folder("bert"))
    return load(folder, device="cpu"), load(folder, device="cpu", random_init=0)


@pytest.fixture(scope="module")
def starts(models, files):
    tasks = fine_tune.tasks_of("", str(files / "text.txt"), examples=12, seed=0)
    own, control = models
    runs = fine_tune.fine_tune_tasks(own, control, tasks, max_tokens=LONGEST, seed=0)
    return {PRETRAINED: runs.median, RANDOM: runs.random}


@pytest.fixture(scope="module")
def store(models, files):
    treebank = resolve_treebank(str(files / "trees.conllu"))
    return extract(models[0], treebank, level="word", max_tokens=LONGEST)


def test_accuracies_are_those_of_the_runs_from_both_starts(starts):
    table = fine_tuning.accuracy_table(starts, seed=0)
    assert table["task"].tolist() == TASKS * 3
    conditions = ["pretrained", "random", "classifier alone"]
    assert table["start"].tolist() == np.repeat(conditions, len(TASKS)).tolist()
    expected = [100 * run.accuracy for run in starts[PRETRAINED] + starts[RANDOM]]
    assert table["accuracy"].tolist()[: 2 * len(TASKS)] == pytest.approx(expected)
    best = table[["majority", "bag_of_words"]].max(axis=1)
    assert (table["learned"] == (table["ci_low"] > best)).all()
    assert (table.groupby("task")["bag_of_words"].nunique() == 1).all()
    # The control's are counted on the tasks that the model itself learns.
    own = table["start"] == PRETRAINED
    control = fine_tuning.control_accuracy(table.assign(learned=own & (table["task"] == TASKS[1])))
    assert control["accuracy"].tolist() == table.query("start == 'random'")["accuracy"].tolist()
    assert control["learned"].tolist() == [False, True] and (control["start"] == PRETRAINED).all()


def test_similarity_is_the_mean_cosine_of_flattened_maps(starts):
    before = np.zeros((1, 3, 2, 2), dtype=np.float16)
    after = before.copy()
    before[0, :] = [[1, 0], [0.5, 0.5]]
    after[0, 0] = before[0, 0]
    after[0, 1] = [[0, 1], [0.5, 0.5]]
    after[0, 2] = [[0, 1], [0, 0]]
    assert np.allclose(fine_tuning.map_similarity(before, after), [[1, 0.5 / 1.5, 0]])
    values = fine_tuning.similarity_table(starts)[["similarity", "similarity_random"]]
    assert len(values) == len(TASKS) * LAYERS * HEADS
    assert ((values > 0) & (values <= 1 + 1e-9)).all().all() and (values < 1 - 1e-9).any().all()


def test_each_row_of_disabling_is_that_of_its_own_context(starts):
    runs = starts[PRETRAINED]
    single = single_ablation(runs, seed=0).assign(first_change=range(2 * LAYERS * HEADS))
    table, run = fine_tuning.disabling_table(runs, single, seed=0), runs[0]
    own, classifier = table[table["task"] == run.task.name], run.classifier
    assert len(own) == LAYERS * (HEADS + 1)
    assert table["zeroed"].dropna().tolist() == single["first_change"].tolist()
    for row in own.iloc[::4].itertuples():
        whole, right = row.head == WHOLE_LAYER, []
        pairs, head = (run.task.test, None) if whole else (split_test(run, 0)[1], row.head - 1)
        with uniform_attention(classifier.encoder, row.layer - 1, head), torch.no_grad():
            for batch, labels, _ in batches(run.encoder, pairs, max_tokens=LONGEST):
                right += (classifier(**batch).argmax(dim=-1) == labels).tolist()
        assert row.accuracy == pytest.approx(100 * np.mean(right))
        assert not whole or row.change == pytest.approx(row.accuracy - 100 * run.accuracy)


# What heads attend to

SENTENCE = ParsedSentence(
    0, "", ("She", "does", "n't", "like", "cats"), None,
    ("PRP", "VBZ", "RB", "VB", "NNS"), ("nsubj", "aux", "neg", "root", "dobj"),
)  # fmt: skip


def test_kinds_of_tokens_and_shares_of_one_sentence():
    kinds = fine_tuning.token_types(SENTENCE, slice(1, 6), 7)
    places = [np.flatnonzero(there).tolist() for there in kinds]
    expected = [[0], [6], [5], [2, 4], [1], [1], [5], [3]]
    assert places == expected
    rows = np.zeros((1, 1, 7, 7))
    rows[..., 0] = 0.5
    rows[..., 2] = rows[..., 4] = 0.25
    rows[0, 0, 0] = np.eye(7)[6]  # [CLS] attends to [SEP] alone
    none = SENTENCE._replace(words=("A",), tags=("DT",), relations=("det",))
    even = np.full((1, 1, 3, 3), 1 / 3)  # a sentence without any of the kinds of words
    maps = [(rows, slice(1, 6)), (even, slice(1, 2))]
    (found,) = fine_tuning.mean_shares([SENTENCE, none], maps).to_dict("records")
    assert found["cls"] == pytest.approx((6 / 7 * 0.5 + 1 / 3) / 2)
    assert found["verb"] == pytest.approx(6 / 7 * 0.5) and found["negation"] == 0
    assert found["from_cls_sep"] == pytest.approx((1 + 1 / 3) / 2)
    without = fine_tuning.token_types(SENTENCE, slice(0, 5), 5)  # GPT-2 has no special token
    assert not without[:2].any() and without[2].tolist() == [False] * 4 + [True]


def test_a_table_of_what_heads_attend_to_before_and_after(starts, store):
    table = fine_tuning.feature_table(starts[PRETRAINED], store, seed=0)
    whole = np.mean([example.attention.astype(float) for example in store], axis=0)
    own = table[table["weights"] == "pretrained"]
    assert len(own) == LAYERS * HEADS
    assert np.allclose(own["cls"], whole[..., 0].mean(axis=-1).ravel(), atol=1e-3)
    assert np.allclose(own["object"], whole[..., 6].mean(axis=-1).ravel(), atol=1e-3)
    assert own["negation"].isna().all()  # there is none
    last = own[own["layer"] == LAYERS]
    assert np.allclose(last["from_cls_sep"], whole[-1, :, 0, -1], atol=1e-3)
    assert own.loc[own["layer"] < LAYERS, "from_cls_sep"].isna().all()
    tuned = table[table["weights"] == "fine-tuned"]
    assert tuned["task"].unique().tolist() == TASKS
    assert not np.allclose(tuned["cls"][: len(own)], own["cls"])
    even = table[table["weights"] == "uniform"].iloc[0]
    assert even["cls"] == pytest.approx(1 / 9) and even["layer"] == even["head"] == 0


# Patterns and links of the same model


def test_patterns_of_text_and_tasks_before_and_after_and_typical_maps(models, starts, files):
    texts = patterns.spread_segments(segments(files / "text.txt", count=6, seed=0))
    table = patterns.pattern_table(models[0], texts, starts[PRETRAINED], max_tokens=LONGEST)
    groups = table.groupby(["task", "weights"], sort=False).size()
    assert groups.index.tolist() == [
        (patterns.TEXT, "pretrained"), *product(TASKS, ("pretrained", "fine-tuned")),
    ]  # fmt: skip
    assert (groups == LAYERS * HEADS).all()
    assert np.allclose(table[list(patterns.CLASSES)].sum(axis=1), 1)
    found = patterns.typical_maps(models[0], texts[:1], max_tokens=LONGEST)
    (whole,) = text_maps(models[0], texts[:1], max_tokens=LONGEST)
    told = patterns.pattern_counts([whole]).set_index(["layer", "head"])["pattern"]
    for name, drawn in found.items():
        pattern, _, place = name.rstrip(")").rpartition(" (")
        layer, head = map(int, place.split("-"))
        assert told[layer, head] == pattern
        assert np.array_equal(drawn.attention, whole.attention[layer - 1, head - 1])


def test_links_of_the_treebank_and_of_framenet(models, store):
    table = links.treebank_links(store, seed=0)
    assert (table["sentences"] == len(store)).all()
    # By hand: the links at least two words apart are (likes, cat) and (likes, coffee).
    words = [example.attention[:, :, 1:8, 1:8].astype(float) for example in store]
    both = [[own[..., 3, 1], own[..., 1, 3], own[..., 3, 5], own[..., 5, 3]] for own in words]
    assert np.allclose(table["linked"], np.max(both, axis=1).mean(axis=0).ravel())
    sentence = links.FrameSentence(tuple(store[0].record["words"]), ((3, 1), (3, 5)), "doc")
    again = links.framenet_links(models[0], [sentence], seed=0)
    assert np.allclose(again["linked"], table["linked"], atol=1e-3)
