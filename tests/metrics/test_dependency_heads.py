"""Heads as classifiers: every number against a hand count or a slow reference."""

import itertools

import numpy as np
import pandas as pd
import pytest

from helpers.errors import InputError
from helpers.metrics.dependency_heads import (
    COLUMNS,
    _largest_margin,
    dependency_heads,
    each_head,
    held_out_heads,
    no_op_table,
    possessive_summary,
    relation_summary,
    special_token_summary,
)
from helpers.metrics.head_counts import OFFSETS, HeadCounts, count_heads
from helpers.metrics.heads import DIRECTIONS, parse_head
from helpers.metrics.reference import paper_names, paper_table1, relation_table, scheme_of
from helpers.store.store import Example

LAYERS = 2
HEADS = 3
TO_HEAD = DIRECTIONS[0]
TO_DEPENDENT = DIRECTIONS[1]


def example(words, heads, relations, *, split="dev", index=0, seed=0) -> Example:
    """Make random maps with [CLS] and [SEP], which get most of the attention."""
    positions = len(words) + 2
    maps = np.random.default_rng(seed).random((LAYERS, HEADS, positions, positions))
    maps[..., [0, -1]] += 5
    maps /= maps.sum(axis=-1, keepdims=True)
    record = {
        "words": list(words),
        "heads": list(heads),
        "relations": list(relations),
        "split": split,
    }
    return Example(index, maps.astype(np.float16), record)


def point(sentence: Example, layer: int, head: int, arrows: dict[int, int]) -> None:
    """Make words (from 1) attend to words: [CLS] is position 0, so that positions match."""
    for query, key in arrows.items():
        sentence.stored_attention[layer, head, query] = 0
        sentence.stored_attention[layer, head, query, key] = 1


def random_tree(index: int, generator: np.random.Generator) -> Example:
    """Make a sentence of one to eight words, in which all words depend on the root."""
    size = int(generator.integers(1, 9))
    root = int(generator.integers(size))
    heads = []
    relations = []
    for word in range(size):
        heads.append(0 if word == root else root + 1)
        relations.append("root" if word == root else str(generator.choice(["a", "b"])))
    split = "train" if index % 2 else "dev"
    return example("w" * size, heads, relations, split=split, index=index, seed=index)


def random_treebank(count: int) -> list[Example]:
    """Make sentences of two relations, a and b, half of them in each split."""
    generator = np.random.default_rng(1)
    return [random_tree(index, generator) for index in range(count)]


def slow_accuracy(
    treebank, relation, direction, layer, head, split=None, *, special_tokens=False
) -> float:
    """Compute a head's accuracy in percent, word by word."""
    right = []
    for sentence in treebank:
        record = sentence.record
        if split not in (None, record["split"]):
            continue
        maps = sentence.attention[layer, head].astype(float)
        weights = maps if direction == TO_HEAD else maps.T
        last = len(record["words"])
        arcs = zip(record["heads"], record["relations"], strict=True)
        for word, (gold, name) in enumerate(arcs, start=1):
            if relation in ("All", name):
                candidates = range(last + 2) if special_tokens else range(1, last + 1)
                allowed = [candidate for candidate in candidates if candidate != word]
                picked = max(allowed, key=weights[word].__getitem__, default=None)
                right.append(
                    gold > 0 and picked == gold
                )  # [CLS] does not count as the head of the root
    return 100 * np.mean(right)


@pytest.mark.parametrize("relation", ["All", "a", "b"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("split", [None, "train", "dev"])
def test_accuracy_equals_a_slow_reference(relation, direction, split):
    treebank = random_treebank(40)
    counts = count_heads(treebank)
    selected = counts if split is None else counts.of_split(split)
    accuracies = selected.accuracy(relation)[DIRECTIONS.index(direction)]
    for (layer, head), accuracy in np.ndenumerate(accuracies):
        expected = slow_accuracy(treebank, relation, direction, layer, head, split)
        assert accuracy == pytest.approx(expected)


# "Ann's old hat fell"; heads of layer 1: Ann -> 's -> hat; Ann -> hat; neither.
MARK_HEAD = (0, 0)
POSSESSOR_HEAD = (0, 1)
NEITHER_HEAD = (0, 2)


@pytest.fixture
def anns_hat() -> Example:
    """A sentence with a possessor, and three heads that read it."""
    words = ["Ann", "'s", "old", "hat", "fell"]
    relations = ["poss", "case", "amod", "nsubj", "ROOT"]
    sentence = example(words, [4, 1, 4, 5, 0], relations)
    point(sentence, *MARK_HEAD, {1: 2, 2: 4})
    point(sentence, *POSSESSOR_HEAD, {1: 4, 2: 3})
    point(sentence, *NEITHER_HEAD, {1: 2, 2: 3})
    return sentence


def test_count_heads_takes_the_pick_of_an_s_for_its_possessor(anns_hat):
    """As in the released evaluation, in which the possessor's own pick does not count."""
    poss = count_heads([anns_hat]).accuracy("poss")[DIRECTIONS.index(TO_HEAD)]
    assert poss[MARK_HEAD] == 100
    assert poss[POSSESSOR_HEAD] == 0
    assert poss[NEITHER_HEAD] == 0


def test_count_heads_of_all_is_the_sum_of_relations(anns_hat):
    counts = count_heads([anns_hat])
    relations = ("poss", "case", "amod", "nsubj")
    sum_of_accuracies = sum(counts.accuracy(name) for name in relations)
    np.testing.assert_allclose(counts.accuracy("All"), sum_of_accuracies / 5)


def test_count_heads_reads_offsets_from_the_s(anns_hat):
    """The hat is three words from Ann and two from the 's."""
    right = count_heads([anns_hat]).offset_accuracy("poss")[0, 0]
    assert OFFSETS[right > 0].tolist() == [2]


@pytest.mark.parametrize(
    ("head", "mark", "possessor"), [("1-1", 100, 0), ("1-2", 0, 100), ("1-3", 0, 0)]
)
def test_possessive_summary_compares_the_s_with_the_possessor(anns_hat, head, mark, possessor):
    held_out = pd.DataFrame([{"relation": "poss", "head": head, "direction": TO_HEAD}])
    (row,) = possessive_summary([anns_hat], held_out).to_dict("records")
    assert row["value"] == mark - possessor  # the hat is two words after the 's, not the next one


def test_possessive_summary_subtracts_what_the_word_after_the_s_explains():
    words = ["Ann", "'s", "hat", "fell"]
    sentence = example(words, [3, 1, 4, 0], ["poss", "case", "nsubj", "ROOT"])
    point(sentence, *MARK_HEAD, {1: 2, 2: 3})
    held_out = pd.DataFrame([{"relation": "poss", "head": "1-1", "direction": TO_HEAD}])
    (row,) = possessive_summary([sentence], held_out).to_dict("records")
    assert row["value"] == 0  # it is right from the 's, and so is the next word


def test_possessive_summary_without_the_relation_has_no_row(anns_hat):
    held_out = pd.DataFrame([{"relation": "det", "head": "1-1", "direction": TO_HEAD}])
    assert possessive_summary([anns_hat], held_out).empty


TWO_SENTENCES = (
    ("www", [2, 3, 0], ["det", "nsubj", "root"]),
    ("wwwww", [3, 3, 4, 0, 4], ["det", "amod", "nsubj", "root", "punct"]),
)


def test_dependency_heads_has_the_best_offset():
    counts = count_heads([example(*sentence) for sentence in TWO_SENTENCES])
    table = dependency_heads(counts, minimum=1).set_index("relation")
    assert "root" not in table.index
    columns = ["count", "baseline", "baseline_offset"]
    assert table.loc["All", columns].tolist() == [8, 50.0, 1]  # det, two nsubj, amod of 8 words
    assert table.loc["det", columns].tolist() == [2, 50.0, 1]  # offsets 1 and 2; first of the best
    assert table.loc["nsubj", columns].tolist() == [2, 100.0, 1]
    assert table.loc["punct", columns].tolist() == [1, 100.0, -1]


def test_dependency_heads_leaves_out_rare_relations():
    counts = count_heads([example(*sentence) for sentence in TWO_SENTENCES])
    table = dependency_heads(counts, minimum=2)
    assert set(table["relation"]) == {"All", "det", "nsubj"}
    assert dependency_heads(counts, minimum=100).empty


def test_dependency_heads_is_ordered_by_count():
    table = dependency_heads(count_heads(random_treebank(60)), minimum=1)
    assert table["count"].is_monotonic_decreasing
    assert table["relation"].iloc[0] == "All"


def test_dependency_heads_has_the_best_head():
    counts = count_heads(random_treebank(60))
    table = dependency_heads(counts, minimum=10)
    assert tuple(table.columns) == COLUMNS
    assert set(table["relation"]) == {"All", "a", "b"}
    for row in table.itertuples():
        accuracy = counts.accuracy(row.relation)
        chosen = (DIRECTIONS.index(row.direction), *parse_head(row.head))
        assert row.accuracy == accuracy.max() == accuracy[chosen]
        assert row.accuracy_low <= row.accuracy <= row.accuracy_high


@pytest.fixture(scope="module")
def heads_of_splits() -> list[Example]:
    """A treebank in which head 1-2 knows the trees of train, and head 2-1 those of dev."""
    treebank = random_treebank(60)
    for sentence in treebank:
        record = sentence.record
        arrows = {word: head for word, head in enumerate(record["heads"], start=1) if head}
        layer, head = (0, 1) if record["split"] == "train" else (1, 0)
        point(sentence, layer, head, arrows)
    return treebank


def test_held_out_heads_are_chosen_on_train(heads_of_splits):
    table = held_out_heads(count_heads(heads_of_splits), minimum=10)
    assert set(table["head"]) == {"1-2"}
    assert set(table["direction"]) == {TO_HEAD}
    assert (table.loc[table["relation"] != "All", "train_accuracy"] == 100).all()
    on_dev = [sentence for sentence in heads_of_splits if sentence.record["split"] == "dev"]
    best_on_dev = dependency_heads(count_heads(on_dev), minimum=10)
    assert set(best_on_dev["head"]) == {"2-1"}


def test_held_out_heads_are_scored_on_dev(heads_of_splits):
    table = held_out_heads(count_heads(heads_of_splits), minimum=10).set_index("relation")
    row = table.loc["a"]
    expected = slow_accuracy(heads_of_splits, "a", TO_HEAD, 0, 1, "dev")
    assert row["dev_accuracy"] == pytest.approx(expected)
    assert row["dev_accuracy"] < 100
    assert row["dev_accuracy_low"] < row["dev_accuracy"] < row["dev_accuracy_high"]


def test_held_out_heads_have_a_margin_over_the_offset(heads_of_splits):
    table = held_out_heads(count_heads(heads_of_splits), minimum=10)
    np.testing.assert_allclose(table["margin"], table["dev_accuracy"] - table["baseline"])
    assert (table["margin_low"] < table["margin"]).all()
    assert (table["margin"] < table["margin_high"]).all()
    assert (table["p_holm"] > 0.05).all()  # on dev the head is random


def test_held_out_heads_refuses_a_treebank_without_train():
    counts = count_heads([example("ab", [2, 0], ["a", "root"])])
    with pytest.raises(InputError, match="no train sentences"):
        held_out_heads(counts, minimum=1)


def test_count_heads_refuses_records_without_syntax():
    with pytest.raises(InputError, match="no syntactic heads and no pairs"):
        count_heads([Example(7, np.zeros((1, 1, 3, 3)), {"words": ["a"]})])


def test_count_heads_refuses_an_empty_treebank():
    with pytest.raises(InputError, match="no syntactic heads and no pairs"):
        count_heads([])


def test_scheme_of_recognises_relation_names():
    schemes = {
        "ud": {"root", "nsubj", "compound", "obj", "case", "nmod:poss"},
        "clear": {"ROOT", "nsubj", "compound", "prep", "pobj", "dobj"},
        "stanford": {"root", "nsubj", "nn", "prep", "pobj", "dobj"},
    }
    assert {scheme: scheme_of(names) for scheme, names in schemes.items()} == {
        scheme: scheme for scheme in schemes
    }


def test_paper_names_of_universal_dependencies():
    names = paper_names({"root", "nsubj", "obj", "case", "nmod:poss"})
    assert names["obj"] == "dobj"
    assert "case" not in names


@pytest.mark.parametrize(("scheme", "missing"), [("clear", set()), ("ud", {"prep", "pobj"})])
def test_relation_table_has_the_paper_s_relations(scheme, missing):
    table = relation_table()
    is_mapped = (table["scheme"] == scheme) & (table["fit"] != "rough")
    expected = set(paper_table1().index) - {"All", "mark"} - missing
    assert expected & set(table.loc[is_mapped, "paper"]) == expected
    assert not missing & set(table.loc[is_mapped, "paper"])


def slow_leads(treebank, counts: HeadCounts, layer, head):
    """Compute by how much a head is above the best offset on train, by relation and direction."""
    leads = {}
    for relation in ("a", "b"):
        best_offset = counts.of_split("train").offset_accuracy(relation)[0, 0].max()
        for direction in DIRECTIONS:
            accuracy = slow_accuracy(treebank, relation, direction, layer, head, "train")
            leads[relation, direction] = accuracy - best_offset
    return leads


def test_each_head_chooses_the_largest_lead_on_train():
    treebank = random_treebank(60)
    counts = count_heads(treebank)
    table = each_head(counts, minimum=1)
    assert len(table) == LAYERS * HEADS
    for row in table.itertuples():
        leads = slow_leads(treebank, counts, row.layer - 1, row.head - 1)
        assert leads[row.relation, row.direction] == max(leads.values())


def test_each_head_agrees_with_held_out_heads():
    counts = count_heads(random_treebank(60))
    table = each_head(counts, minimum=1)
    labels = table["layer"].astype(str) + "-" + table["head"].astype(str)
    held_out = held_out_heads(counts, minimum=1)
    merged = table.assign(label=labels).merge(
        held_out,
        left_on=["relation", "label", "direction"],
        right_on=["relation", "head", "direction"],
        suffixes=("", "_held_out"),
    )
    assert len(merged)
    for column, held_out_column in (
        ("accuracy", "dev_accuracy"),
        ("margin", "margin_held_out"),
    ):
        np.testing.assert_allclose(merged[column], merged[held_out_column])


def test_tables_without_frequent_relations():
    counts = count_heads(random_treebank(10))
    assert list(each_head(counts, minimum=1000)) == ["layer", "head"]
    held_out = held_out_heads(counts, minimum=1000)
    assert held_out.empty
    assert no_op_table(random_treebank(10), held_out).empty
    assert relation_summary(counts, held_out).empty
    assert possessive_summary(random_treebank(10), held_out).empty


def relations_at(record, word, directions):
    """Find the relations of a head, of given directions, that are read from a word (from 1)."""
    arcs = list(zip(record["heads"], record["relations"], strict=True))
    _, relation_of_word = arcs[word - 1]
    present = set()
    for relation, direction in directions.items():
        is_governor = (word, relation) in arcs
        is_dependent = relation_of_word == relation
        if is_governor if direction == TO_DEPENDENT else is_dependent:
            present.add(relation)
    return present


def slow_shares(treebank, held_out, relation):
    """List attention to special tokens with a relation, and with none of its head's relations.

    With the relation also what is left without the attention to the words that it leads to.
    """
    label = held_out.loc[relation, "head"]
    layer, head = parse_head(label)
    directions = held_out.loc[held_out["head"] == label, "direction"]
    with_relation = []
    rest = []
    without_any = []
    for sentence in treebank:
        record = sentence.record
        if record["split"] == "dev":
            for word in range(1, len(record["words"]) + 1):
                share = sentence.attention[layer, head, word, [0, -1]].astype(float).sum()
                present = relations_at(record, word, directions)
                if relation in present:
                    weights = sentence.attention[layer, head, word].astype(float)
                    heads = record["heads"]
                    answers = [heads[word - 1]]
                    if directions[relation] == TO_DEPENDENT:
                        answers = [
                            dependent
                            for dependent, parent in enumerate(heads, start=1)
                            if parent == word and record["relations"][dependent - 1] == relation
                        ]
                    with_relation.append(share)
                    rest.append(1 - weights[answers].sum())
                elif not present:
                    without_any.append(share)
    return with_relation, rest, without_any


@pytest.mark.parametrize("one_head", [True, False], ids=["one head for both", "two heads"])
def test_no_op_table_equals_a_slow_reference(one_head):
    treebank = random_treebank(60)
    held_out = held_out_heads(count_heads(treebank), minimum=1)
    if one_head:
        directions = {"All": "", "a": TO_HEAD, "b": TO_DEPENDENT}
        held_out["head"] = "2-1"
        held_out["direction"] = held_out["relation"].map(directions)
    held_out[["margin", "p_holm"]] = 50.0, 0.01
    table = no_op_table(treebank, held_out).set_index("relation")
    held_out = held_out.set_index("relation").drop(index="All")
    with_function = table.loc["heads with a function"]
    table = table.drop(index="heads with a function")
    for column in ("with", "without", "difference"):
        assert with_function[column] == pytest.approx(table[column].mean())
        assert (
            with_function[f"{column}_low"] < with_function[column] < with_function[f"{column}_high"]
        )
    assert set(table.index) == {"a", "b"}
    for relation, row in table.iterrows():
        assert row["head"] == held_out.loc[relation, "head"]
        assert row["direction"] == held_out.loc[relation, "direction"]
        with_relation, rest, without_any = slow_shares(treebank, held_out, relation)
        assert row["count"] == len(with_relation)
        assert row["with"] == pytest.approx(sum(with_relation) / sum(rest), rel=1e-4)
        assert row["without"] == pytest.approx(np.mean(without_any), rel=1e-4)
        assert row["difference"] == pytest.approx(row["without"] - row["with"])
        for column in ("with", "without", "difference"):
            assert row[f"{column}_low"] < row[column] < row[f"{column}_high"]


def test_no_op_table_has_no_mean_without_a_head_with_a_function():
    treebank = random_treebank(60)
    held_out = held_out_heads(count_heads(treebank), minimum=1)
    held_out["margin"] = [50.0, 5.0, 50.0]  # All, a slight margin, and one by chance
    held_out["p_holm"] = [0.01, 0.01, 0.2]
    assert len(no_op_table(treebank, held_out)) == 2


@pytest.fixture(scope="module")
def objects_of_prepositions() -> list[Example]:
    """Fifty sentences in which head 1-1 finds det, and head 1-2 attends from "on" to "mat"."""
    treebank = []
    for index in range(50):
        split = "train" if index % 2 else "dev"
        relations = ["det", "nsubj", "ROOT", "prep", "pobj"]
        words = ["the", "cat", "sat", "on", "mat"]
        sentence = example(words, [2, 3, 0, 3, 4], relations, split=split, index=index, seed=index)
        sentence.record["source"] = f"article {index}"
        point(sentence, 0, 0, {1: 2, 2: 3, 4: 3})
        point(sentence, 0, 1, {4: 5})
        treebank.append(sentence)
    return treebank


def test_relation_summary_of_planted_heads(objects_of_prepositions):
    counts = count_heads(objects_of_prepositions)
    held_out = held_out_heads(counts, minimum=1)
    table = relation_summary(counts, held_out).set_index("quantity")
    single = held_out[held_out["relation"] != "All"]
    assert table.loc["mean margin", "value"] == pytest.approx(single["margin"].mean())
    assert table.loc["mean margin over the paper's relations", "value"] == pytest.approx(
        single["margin"].mean()  # the paper has all four
    )
    assert table.loc["share with a slight margin", "value"] == (single["margin"].abs() <= 5).mean()
    largest = table.loc["largest margin of the paper's relations"]
    assert largest["value"] == pytest.approx(single["margin"].max())
    read_from_dependents = table.loc["share whose dependents attend to heads"]
    assert read_from_dependents["value"] == read_from_dependents["value_low"] == 1
    assert read_from_dependents["value_p"] < 0.001  # no resample has another direction
    assert table["value_df"].gt(1).all()


def test_the_largest_margin_has_bounds_that_allow_for_the_choice():
    """Without any difference, the best of many relations is seldom above zero."""
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(60):
        leads = rng.normal(0, 100, (40, 12))
        largest = _largest_margin(leads, np.full((40, 12), 10))
        assert largest.low < largest.value < largest.high
        found += largest.low > 0
    assert found <= 5


def test_relation_summary_chooses_heads_again_in_every_resample(heads_of_splits):
    """Relations that the paper does not have are in the means alone."""
    counts = count_heads(heads_of_splits)
    table = relation_summary(counts, held_out_heads(counts, minimum=10))
    assert set(table["quantity"]) == {"mean margin", "share with a slight margin"}
    only_all = held_out_heads(counts, minimum=10).head(1)
    assert relation_summary(counts, only_all).empty


def test_special_token_summary_equals_a_slow_reference(monkeypatch):
    treebank = random_treebank(60)
    for sentence in treebank:  # words get the most from some words, special tokens from others
        sentence.stored_attention[..., ::2, [0, -1]] *= 0.01
        sentence.stored_attention[:] /= sentence.stored_attention.sum(axis=-1, keepdims=True)
    changes = []
    for layer, head in itertools.product(range(LAYERS), range(HEADS)):
        accuracies = {}
        for direction in DIRECTIONS:
            accuracies[direction] = slow_accuracy(treebank, "All", direction, layer, head)
        best = max(DIRECTIONS, key=accuracies.__getitem__)
        with_special = slow_accuracy(treebank, "All", best, layer, head, special_tokens=True)
        changes.append(with_special - accuracies[best])
    limit = -np.median(changes)
    monkeypatch.setattr("helpers.metrics.dependency_heads.LITTLE", limit)
    (row,) = special_token_summary(count_heads(treebank)).to_dict("records")
    share = np.mean(np.array(changes) >= -limit)
    assert 0 < share < 1
    assert row["value"] == row["value_low"] == row["value_high"] == pytest.approx(share)
