"""Table 1, its held-out form, summaries and no-op: planted heads and slow references."""

import numpy as np
import pandas as pd
import pytest
from references import (
    HEADS,
    LAYERS,
    MASKS,
    TO_PARENT,
    point,
    random_example,
    random_treebank,
    slow_words,
)

from beyond.silver_parses import score_every_head
from helpers.metrics.dependency_heads import (
    COLUMNS,
    dependency_heads,
    held_out_heads,
    largest_of,
    no_op_table,
    relation_summary,
    special_token_summary,
)
from helpers.metrics.head_counts import count_heads
from helpers.metrics.heads import DIRECTIONS, head_indices
from helpers.metrics.reference import paper_names, paper_table1, relation_table, scheme_of
from helpers.metrics.statistics import effective_clusters, resampled_ratios
from helpers.store.store import Example


@pytest.fixture(scope="module")
def treebank():
    """Sentences in which head 1-2 knows the parents of train, and head 2-1 those of dev."""
    sentences = random_treebank("full", 40)
    for sentence in sentences:
        head = (0, 1) if sentence.record["split"] == "train" else (1, 0)
        point(sentence, *head, {word: parent for word, parent, _ in sentence.record["pairs"]})
    return sentences


@pytest.mark.parametrize("mask", MASKS)
def test_table_1_has_the_best_head_and_the_best_offset(mask):
    counts = count_heads(random_treebank(mask))
    table = dependency_heads(counts, minimum=5)
    assert list(table) == COLUMNS
    assert set(table["relation"]) == {"All", "det", "dobj", "poss"}
    for row, head in zip(table.itertuples(), head_indices(table).T, strict=True):
        direction, layer, _ = head
        accuracy = counts.accuracy(row.relation)
        assert row.count == counts.visible_size(row.relation)[direction, layer]
        assert row.accuracy == accuracy[*head] == accuracy.max()
        assert row.accuracy_low <= row.accuracy <= row.accuracy_high
        assert row.baseline == counts.rival_accuracy(row.relation)[direction, layer].max()
        if MASKS[mask].causal and row.relation in ("det", "dobj"):
            assert (row.baseline_offset < 0) == (row.direction == TO_PARENT)
    det = table.set_index("relation").loc["det"]
    assert det[["paper_accuracy", "paper_head"]].tolist() == [94.3, "8-11"]
    assert dependency_heads(counts, minimum=10_000).empty
    # A mask that hides later words decides in which direction a relation is read.
    summary = relation_summary(counts, held_out_heads(counts, minimum=5))["quantity"]
    has_direction = "share whose dependents attend to heads" in set(summary)
    assert has_direction != MASKS[mask].causal


def test_all_words_are_compared_with_the_paper_if_the_annotation_is_trees():
    rng = np.random.default_rng(0)
    pairs = [[0, 1, "contact"], [2, 3, "contact"], [3, 3, "root"]]
    for annotation, paper_value in ((pairs, 34.5), (pairs[:2], np.nan)):
        record = {"words": "wwww", "pairs": annotation}
        counts = count_heads([random_example(rng, "full", record) for _ in range(4)])
        table = dependency_heads(counts, minimum=1).set_index("relation")
        assert table.loc["All", "paper_accuracy"] == pytest.approx(paper_value, nan_ok=True)
        assert np.isnan(table.loc["contact", "paper_accuracy"])


def test_held_out_heads_are_chosen_on_train_and_scored_on_dev(treebank):
    counts = count_heads(treebank)
    table = held_out_heads(counts, minimum=5).set_index("relation")
    assert set(table["head"]) == {"1-2"} and set(table["direction"]) == {TO_PARENT}
    dev = [sentence for sentence in treebank if sentence.record["split"] == "dev"]
    assert set(dependency_heads(count_heads(dev), minimum=5)["head"]) == {"2-1"}
    for relation, row in table.iterrows():
        words = slow_words(dev, relation, TO_PARENT, 0, 1)
        right = [pick in parents for *_, parents, pick in words]
        at_offset = [query + row["baseline_offset"] in parents for _, _, query, parents, _ in words]
        assert row["dev_accuracy"] == pytest.approx(100 * np.mean(right))
        assert row["baseline"] == pytest.approx(100 * np.mean(at_offset))
        assert row["margin"] == pytest.approx(row["dev_accuracy"] - row["baseline"])
        assert row["margin_low"] < row["margin"] < row["margin_high"]
        assert row["dev_count"] == len(words)
        assert row["p_holm"] > 0.05  # on dev the head is random
    assert (table.loc[["det", "dobj"], "train_accuracy"] == 100).all()
    scores = score_every_head(counts, minimum=5).set_index(["relation", "direction", "layer"])
    scores_of_head = scores.loc[("det", TO_PARENT, 1)].set_index("head").loc[2]
    best_offset = counts.of_split("train").rival_accuracy("det")[0, 0].max()
    assert scores_of_head["margin"] == pytest.approx(table.loc["det", "margin"])
    assert scores_of_head[["train_accuracy", "train_margin"]].tolist() == [100, 100 - best_offset]


def test_tables_without_frequent_relations_are_empty(treebank):
    counts = count_heads(treebank)
    held_out = held_out_heads(counts, minimum=10_000)
    assert held_out.empty and score_every_head(counts, minimum=10_000).empty
    assert no_op_table(treebank, held_out).empty and relation_summary(counts, held_out).empty


def no_op_sentence(number, special_share):
    """Make a dev sentence of which three nouns and one verb are objects of the last word.

    ``special_share(tag, is_object)`` is each word's attention to [CLS]; a tenth goes to the parent,
    and the rest to the word itself.
    """
    rng = np.random.default_rng(number)
    nouns, verbs = rng.permutation(4), 4 + rng.permutation(3)
    objects = {*nouns[:3].tolist(), int(verbs[0])}
    tags = ["NOUN"] * 4 + ["VERB"] * 4
    maps = np.zeros((1, 2, 9, 9))
    for word, tag in enumerate(tags):
        share = special_share(tag, word in objects)
        maps[..., word + 1, word + 1] = 0.9 - share
        maps[..., word + 1, [0, 8]] += (share, 0.1)
    pairs = [[word, 7, "dobj"] for word in sorted(objects)] + [[7, 7, "root"]]
    record = {"words": list("abcdefgh"), "tags": tags, "pairs": pairs, "split": "dev"}
    return Example(number, maps, record | {"source": f"article {number}"}, offset=1)


@pytest.mark.parametrize(
    ("special_share", "share_with", "share_without", "within_tag"),
    [
        # Verbs attend to [CLS] more than nouns, and are rarely objects.
        (lambda tag, is_object: 0.2 if tag == "NOUN" else 0.6, 0.3 / 0.9, 0.5, -1 / 30),
        # Whatever the tag, words without the relation attend to [CLS] more.
        (lambda tag, is_object: 0.18 if is_object else 0.5, 0.2, 0.5, 0.3),
    ],
)
def test_no_op_of_a_planted_confounder_and_of_an_effect_by_hand(
    special_share, share_with, share_without, within_tag
):
    sentences = [no_op_sentence(number, special_share) for number in range(30)]
    columns = ["relation", "head", "direction", "margin", "p_holm"]
    rows = [("dobj", "1-1", TO_PARENT, 50.0, 0.01), ("dobj", "1-2", DIRECTIONS[1], 5.0, 0.01)]
    held_out = pd.DataFrame(rows, columns=columns)
    table = no_op_table(sentences, held_out).set_index("head", drop=False)
    row = table.loc["1-1"]
    expected = [120, share_with, share_without, share_without - share_with]
    assert row[["count", "with", "without", "difference"]].tolist() == pytest.approx(expected)
    # Of nouns and verbs, the first with three times as many objects.
    assert row["within_tag"] == pytest.approx(within_tag)
    assert row["within_tag_low"] - 1e-6 <= row["within_tag"] <= row["within_tag_high"] + 1e-6
    from_verbs = table.loc["1-2"]  # the last word, which attends to none of its objects
    verb = special_share("VERB", False)
    assert from_verbs[["count", "with"]].tolist() == pytest.approx([30, verb])
    with_function = table.set_index("relation").loc["heads with a function"]  # that of 1-1 alone
    numbers = table.columns.drop(["relation", "head", "direction"])
    assert with_function[numbers].tolist() == row[numbers].tolist()
    few = no_op_table(sentences[:1], held_out.assign(p_holm=0.2)).set_index("head")
    assert np.isnan(few.loc["1-1", "within_tag"]) and few.loc["1-1", "difference"] > 0
    assert set(few["relation"]) == {"dobj"}


def test_relation_summary_of_planted_heads():
    """Head 1-1 finds det and nsubj, head 1-2 attends from "on" to "mat"."""
    rng = np.random.default_rng(0)
    pairs = [[0, 1, "det"], [1, 2, "nsubj"], [2, 2, "root"], [3, 2, "prep"], [4, 3, "pobj"]]
    sentences = []
    for index in range(50):
        record = {"words": ["the", "cat", "sat", "on", "mat"], "pairs": pairs}
        record |= {"split": "train" if index % 2 else "dev", "source": f"article {index}"}
        sentences.append(random_example(rng, "full", record))
        point(sentences[-1], 0, 0, {0: 1, 1: 2, 3: 2})
        point(sentences[-1], 0, 1, {3: 4})
    counts = count_heads(sentences)
    held_out = held_out_heads(counts, minimum=1)
    table = relation_summary(counts, held_out).set_index("quantity")
    margins = held_out.loc[held_out["relation"] != "All", "margin"]
    for name in ("mean margin", "mean margin over the paper's relations"):
        assert table.loc[name, "value"] == pytest.approx(margins.mean())  # the paper has all four
    assert table.loc["share with a slight margin", "value"] == (margins.abs() <= 5).mean()
    largest = table.loc["largest margin of the paper's relations", "value"]
    assert largest == pytest.approx(margins.max())
    share = table.loc["share whose dependents attend to heads"]
    assert share["value"] == share["value_low"] == 1  # pobj is left out
    assert share["value_p"] < 0.001  # no resample has another direction


def test_the_largest_margin_has_bounds_that_allow_for_the_choice():
    """Without any difference, the best of many relations is seldom above zero."""
    rng = np.random.default_rng(0)
    words = np.full((40, 12), 10)
    n_above = 0
    for _ in range(60):
        leads = rng.normal(0, 100, (40, 12))
        values = leads.sum(axis=0) / words.sum(axis=0)
        largest = largest_of(values, resampled_ratios(leads, words, 1000), words)
        assert largest.low < largest.value == values.max() < largest.high
        assert largest.df == effective_clusters(words)[0] - 1
        n_above += largest.low > 0
    assert n_above <= 5


def test_special_tokens_change_the_share_scores_of_heads_that_lose_more_than_the_limit():
    """Nothing attends to special tokens, except that all words of head 1-1 prefer [CLS]."""
    sentences = random_treebank("full")
    for sentence in sentences:
        sentence.stored_attention[..., [0, -1]] = sentence.stored_attention[:, :, [0, -1]] = 0
        sentence.stored_attention[0, 0, :, 0] = sentence.stored_attention[0, 0, 0] = 2
    counts = count_heads(sentences)
    summary = special_token_summary(counts, count_heads(sentences, special_tokens=True))
    share = 1 - 1 / (LAYERS * HEADS)
    columns = ["value", "value_low", "value_high"]
    assert summary[columns].to_numpy() == pytest.approx(np.full((1, 3), share))
    assert special_token_summary(counts, counts).empty


def test_schemes_of_relation_names_and_their_names_in_the_paper():
    schemes = {"ud": {"obj", "case", "compound"}, "clear": {"ROOT", "dobj"}, "stanford": {"nn"}}
    for scheme, relations in schemes.items():
        assert scheme_of(relations) == scheme
    assert paper_names(schemes["ud"]) == {"obj": "dobj", "compound": "nn"}
    table = relation_table().query("fit != 'rough'")
    expected = set(paper_table1().index) - {"All", "mark"}
    for scheme, missing in (("clear", set()), ("ud", {"prep", "pobj"})):
        names = set(table.loc[table["scheme"] == scheme, "paper"])
        assert expected - names == missing


def test_few_words_choose_no_head():
    """In a direction in which one word counts, a head that finds it would be right about all."""
    rng = np.random.default_rng(0)
    pairs = [[[0, 1, "a"], [1, 2, "a"], [2, 3, "a"]], [[1, 0, "a"], [2, 3, "a"], [3, 1, "a"]]]
    sentences = [random_example(rng, "causal", {"words": "wwww", "pairs": p}) for p in pairs]
    counts = count_heads(sentences)
    sizes = counts.visible_size("a")
    row = dependency_heads(counts, minimum=int(sizes.max())).set_index("relation").loc["a"]
    assert row["direction"] == DIRECTIONS[sizes.max(axis=1).argmax()]
    assert row["count"] == sizes.max() > sizes.min()
