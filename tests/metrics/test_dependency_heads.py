"""Table 1, its held-out form, summaries and no-op: planted heads and slow references."""

from dataclasses import replace

import numpy as np
import pytest
from references import (
    HEADS,
    LAYERS,
    MASKS,
    TO_PARENT,
    point,
    random_example,
    random_treebank,
    slow_no_op,
    slow_words,
)

from beyond.silver_parses import score_every_head
from helpers.metrics.dependency_heads import (
    COLUMNS,
    beside_paper,
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
    det = beside_paper(table).set_index("relation").loc["det"]
    assert det[["paper_accuracy", "paper_head", "fit"]].tolist() == [94.3, "8-11", "exact"]
    assert dependency_heads(counts, minimum=10_000).empty


def test_all_words_are_compared_with_the_paper_if_the_annotation_is_trees():
    rng = np.random.default_rng(0)
    pairs = [[0, 1, "contact"], [2, 3, "contact"], [3, 3, "root"]]
    for annotation, paper_value in ((pairs, 34.5), (pairs[:2], np.nan)):
        record = {"words": "wwww", "pairs": annotation}
        counts = count_heads([random_example(rng, "full", record) for _ in range(4)])
        table = dependency_heads(counts, minimum=1).set_index("relation")
        assert table.loc["All", "paper_accuracy"] == pytest.approx(paper_value, nan_ok=True)
        assert np.isnan(table.loc["contact", "paper_accuracy"])


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
        assert (row["dev_count"], row["train_count"]) == (
            len(words), counts.of_split("train").size(relation),
        )  # fmt: skip
        assert row["p_holm"] > 0.05  # on dev the head is random
    assert (table.loc[["det", "dobj"], "train_accuracy"] == 100).all()


def test_score_every_head_equals_a_slow_reference(treebank):
    counts = count_heads(treebank)
    train = [sentence for sentence in treebank if sentence.record["split"] == "train"]
    offsets = counts.of_split("train")
    table = score_every_head(counts, minimum=5).query("relation in ['det', 'dobj', 'poss']")
    assert len(table) == 3 * len(DIRECTIONS) * LAYERS * HEADS
    for row in table.itertuples():
        words = slow_words(train, row.relation, row.direction, row.layer - 1, row.head - 1)
        right = 100 * np.mean([pick in parents for *_, parents, pick in words])
        best_offset = offsets.rival_accuracy(row.relation)[0, 0].max()
        assert row.train_accuracy == pytest.approx(right)
        assert row.train_margin == pytest.approx(right - best_offset)


def test_tables_without_frequent_relations_are_empty(treebank):
    counts = count_heads(treebank)
    held_out = held_out_heads(counts, minimum=10_000)
    assert held_out.empty and score_every_head(counts, minimum=10_000).empty
    assert no_op_table(treebank, held_out).empty and relation_summary(counts, held_out).empty


@pytest.mark.parametrize("same_head", [True, False])
def test_no_op_equals_a_slow_reference(same_head):
    treebank = random_treebank("full")
    held_out = held_out_heads(count_heads(treebank), minimum=5)
    if same_head:
        held_out["head"] = "2-1"
        held_out["direction"] = np.where(held_out["relation"] == "det", *DIRECTIONS[::-1])
    held_out["margin"] = np.where(held_out["relation"] == "poss", 5.0, 50.0)
    held_out["p_holm"] = 0.01
    table = no_op_table(treebank, held_out).set_index("relation")
    with_function = table.loc["heads with a function"]
    by_relation = held_out[held_out["relation"] != "All"].set_index("relation")
    assert set(table.index) == {*by_relation.index, "heads with a function"}
    for column in ("with", "without", "difference"):
        assert with_function[column] == pytest.approx(table.loc[["det", "dobj"], column].mean())
        assert (table[f"{column}_low"] < table[column]).all()
    for relation in by_relation.index:
        row = table.loc[relation]
        expected = slow_no_op(treebank, by_relation, relation)
        assert row[["count", "with", "without"]].tolist() == pytest.approx(expected, rel=1e-4)
        assert row["difference"] == pytest.approx(row["without"] - row["with"])
    held_out["p_holm"] = 0.2
    assert "heads with a function" not in set(no_op_table(treebank, held_out)["relation"])


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
    of_no_table = {"det": "a", "nsubj": "b", "prep": "c", "pobj": "d"}
    names = tuple(of_no_table.get(name, name) for name in counts.names)
    summary = relation_summary(
        replace(counts, names=names), held_out.replace({"relation": of_no_table})
    )
    assert summary["quantity"].tolist() == ["mean margin", "share with a slight margin"]


@pytest.mark.parametrize("mask", MASKS)
def test_a_mask_that_hides_later_words_says_nothing_about_directions(mask):
    counts = count_heads(random_treebank(mask))
    summary = relation_summary(counts, held_out_heads(counts, minimum=5))
    has_row = "share whose dependents attend to heads" in set(summary["quantity"])
    assert has_row != MASKS[mask].causal


def test_the_largest_margin_has_bounds_that_allow_for_the_choice():
    """Without any difference, the best of many relations is seldom above zero."""
    rng = np.random.default_rng(0)
    words = np.full((40, 12), 10)
    found = 0
    for _ in range(60):
        leads = rng.normal(0, 100, (40, 12))
        values = leads.sum(axis=0) / words.sum(axis=0)
        largest = largest_of(values, resampled_ratios(leads, words, 1000), words)
        assert largest.low < largest.value == values.max() < largest.high
        assert largest.df == effective_clusters(words)[0] - 1
        found += largest.low > 0
    assert found <= 5


def test_special_tokens_change_the_share_of_heads_that_lose_more_than_the_limit():
    sentences = random_treebank("full")
    for sentence in sentences:  # in one layer, special tokens get little
        sentence.stored_attention[0, :, :, [0, -1]] *= 0.001
        sentence.stored_attention[0, :, [0, -1]] *= 0.001
    counts = count_heads(sentences)
    with_special = count_heads(sentences, special_tokens=True)
    accuracies = counts.accuracy("All"), with_special.accuracy("All")
    losses = []
    for layer, head in np.ndindex(LAYERS, HEADS):
        best = accuracies[0][:, layer, head].argmax()
        losses.append(np.subtract(*accuracies)[best, layer, head])
    share = np.mean(np.array(losses) <= 5)
    (row,) = special_token_summary(counts, with_special).to_dict("records")
    assert 0 < share < 1
    assert row["value"] == row["value_low"] == row["value_high"] == pytest.approx(share)
    assert special_token_summary(counts, counts).empty


def test_schemes_of_relation_names_and_their_names_in_the_paper():
    schemes = {
        "ud": {"root", "nsubj", "compound", "obj", "case", "nmod:poss"},
        "clear": {"ROOT", "nsubj", "compound", "prep", "pobj", "dobj"},
        "stanford": {"root", "nsubj", "nn", "prep", "pobj", "dobj"},
    }
    for scheme, relations in schemes.items():
        assert scheme_of(relations) == scheme
    assert paper_names(schemes["ud"])["obj"] == "dobj" and "case" not in paper_names(schemes["ud"])
    table = relation_table().query("fit != 'rough'")
    expected = set(paper_table1().index) - {"All", "mark"}
    for scheme, missing in (("clear", set()), ("ud", {"prep", "pobj"})):
        names = set(table.loc[table["scheme"] == scheme, "paper"])
        assert expected - names == missing
