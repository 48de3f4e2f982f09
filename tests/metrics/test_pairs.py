"""Pairs of any relation: the counts of section 4.2 by brute force, trees as pairs, each example."""

from collections import defaultdict

import numpy as np
import pandas as pd

from beyond import per_example
from helpers.metrics import surface
from helpers.metrics.head_counts import OFFSETS, count_heads
from helpers.metrics.heads import DIRECTIONS
from helpers.metrics.nearest_words import FAR_PARENTS
from helpers.metrics.reference import ALL
from helpers.metrics.relation_tables import relation_tables
from helpers.store.maps import open_maps

LAYERS = 2
HEADS = 3
N_WORDS = 7
TAGS = ["NOUN", "VERB", "DET", "NOUN", "ADJ", "VERB", "DET"]


def random_maps(generator):
    """Make maps over the words and two special tokens."""
    weights = np.exp(generator.normal(size=(LAYERS, HEADS, N_WORDS + 2, N_WORDS + 2)))
    return weights / weights.sum(axis=-1, keepdims=True)


def store_of(annotations):
    """Make a store of random maps with some annotations of seven words."""
    generator = np.random.default_rng(0)
    tokens = ["[CLS]", *"abcdefg", "[SEP]"]
    maps = [random_maps(generator) for _ in annotations]
    return open_maps(maps, [tokens] * len(annotations), records=annotations)


def random_pairs(count):
    """Make annotations in which words have any number of partners, and some are roots."""
    generator = np.random.default_rng(1)
    annotations = []
    for number in range(count):
        pairs = []
        for _ in range(12):
            dependent, parent = generator.integers(N_WORDS, size=2).tolist()
            pairs.append([dependent, parent, str(generator.choice(["bond", "contact", "root"]))])
        record = {"pairs": pairs, "document": f"d{number // 3}", "tags": TAGS}
        annotations.append(record)
    return annotations


def test_counts_of_pairs_are_those_of_brute_force():
    store = store_of(random_pairs(12))
    counts = count_heads(store)
    right = defaultdict(lambda: np.zeros((2, LAYERS, HEADS)))
    at_offset = defaultdict(lambda: np.zeros(len(OFFSETS)))
    total = defaultdict(int)
    for example in store:
        words = example.word_positions
        maps = example.attention[:, :, words, words]
        partners = defaultdict(set)
        for dependent, parent, label in example.record["pairs"]:
            is_link = label == "root" and dependent != parent
            partners[dependent, "root (label)" if is_link else label].add(parent)
        for (word, label), gold in partners.items():
            others = [index for index in range(N_WORDS) if index != word]
            for name in (label, ALL):
                total[name] += 1
                for layer, head in np.ndindex(LAYERS, HEADS):
                    for number, weights in enumerate((maps[layer, head], maps[layer, head].T)):
                        picked = max(others, key=lambda other: weights[word, other])
                        right[name][number, layer, head] += picked in gold
                at_offset[name] += [word + offset in gold for offset in OFFSETS]
    for name, n_questions in total.items():
        assert counts.size(name) == n_questions
        np.testing.assert_allclose(counts.accuracy(name), 100 * right[name] / n_questions)
        by_offset = 100 * at_offset[name] / n_questions
        np.testing.assert_allclose(counts.offset_accuracy(name)[0, 0], by_offset)


def test_counts_of_labels_with_names_of_the_program_are_those_of_other_labels():
    names = {"bond": "All", "contact": "coreference"}
    renamed = random_pairs(12)
    for record in renamed:
        record["pairs"] = [[*words, names.get(label, label)] for *words, label in record["pairs"]]
    counts = count_heads(store_of(random_pairs(12)))
    renamed_counts = count_heads(store_of(renamed))
    for label, expected in (
        (ALL, ALL),
        ("All (label)", "bond"),
        ("coreference (label)", "contact"),
    ):
        assert renamed_counts.size(label) == counts.size(expected)
        np.testing.assert_array_equal(renamed_counts.accuracy(label), counts.accuracy(expected))


def test_tables_of_pairs_have_every_rival():
    annotations = random_pairs(60)
    store = store_of(annotations)
    tables = relation_tables(store, count_heads(store), minimum=5)
    held_out = tables["dependency_heads_held_out"]
    assert set(held_out["relation"]) == {ALL, "bond", "contact", "root (label)"}  # "root" is none
    assert held_out[["margin", "nearest_accuracy", "nearest_margin"]].notna().all(axis=None)
    assert tables["no_op"]["with"].between(0, 1).all()
    assert set(tables["accuracy_by_distance"]["distance"]) <= {"1", "2", "3 to 5", "over 5"}
    assert FAR_PARENTS in set(tables["relation_summary"]["quantity"])


def test_tables_of_pairs_without_tags_have_heads_and_offsets():
    without_tags = []
    for record in random_pairs(60):
        without_tags.append({"pairs": record["pairs"], "document": record["document"]})
    store = store_of(without_tags)
    tables = relation_tables(store, count_heads(store), minimum=5)
    held_out = tables["dependency_heads_held_out"]
    assert held_out["dev_accuracy"].notna().all() and held_out["nearest_accuracy"].isna().all()
    by_distance = tables["accuracy_by_distance"]
    assert by_distance[["head", "offset"]].notna().all(axis=None)
    assert by_distance[["nearest", "head_lead"]].isna().all(axis=None)
    assert FAR_PARENTS not in set(tables["relation_summary"]["quantity"])
    with_tags = store_of(random_pairs(60))
    expected = relation_tables(with_tags, count_heads(with_tags), minimum=5)
    columns = ["relation", "distance", "count", "head", "offset"]
    pd.testing.assert_frame_equal(
        by_distance[columns], expected["accuracy_by_distance"][columns], check_exact=True
    )


def trees(count):
    """Make annotations that are trees: random parents before or after each word."""
    generator = np.random.default_rng(2)
    annotations = []
    for number in range(count):
        order = generator.permutation(N_WORDS)
        heads = [0] * N_WORDS
        for place, word in enumerate(order[1:], 1):
            heads[word] = int(order[generator.integers(place)]) + 1
        relations = [str(generator.choice(["det", "obj"])) if head else "root" for head in heads]
        record = {"heads": heads, "relations": relations, "tags": TAGS}
        annotations.append({**record, "document": f"d{number // 3}"})
    return annotations


def test_tables_of_trees_are_those_of_their_pairs():
    annotations = trees(60)
    as_pairs = []
    for record in annotations:
        arcs = enumerate(zip(record["heads"], record["relations"], strict=True))
        pairs = [[word, head - 1 if head else word, name] for word, (head, name) in arcs]
        as_pairs.append({"pairs": pairs, "tags": TAGS, "document": record["document"]})
    of_trees = store_of(annotations)
    of_pairs = store_of(as_pairs)
    expected = relation_tables(of_trees, count_heads(of_trees), minimum=5)
    tables = relation_tables(of_pairs, count_heads(of_pairs), minimum=5)
    assert tables.keys() == expected.keys()
    for name, table in tables.items():
        pd.testing.assert_frame_equal(table, expected[name], check_exact=True)


def test_tables_of_each_example_add_up_to_those_of_the_corpus():
    store = store_of(random_pairs(6))
    picks = pd.concat(per_example.picks(store))
    counts = count_heads(store)
    for relation in ("bond", "contact"):
        rows = picks[picks["relation"] == relation]
        by_head = rows.groupby(["direction", "layer", "head"])["right"].mean()
        for number, direction in enumerate(DIRECTIONS):
            accuracy = 100 * by_head[direction].to_numpy().reshape(LAYERS, HEADS)
            np.testing.assert_allclose(counts.accuracy(relation)[number], accuracy)
    first = picks[picks["example"] == 0]
    assert set(first["word"]) <= set(range(N_WORDS))
    assert first["article"].unique().tolist() == ["maps, document d0"]
    measures = pd.concat(per_example.section_3(store))
    assert len(measures) == 6 * LAYERS * HEADS
    means = measures.groupby(["layer", "head"])[["previous", "entropy", "cls"]].mean()
    table = surface.head_table(surface.sums(store), ["previous", "entropy", "cls"])
    np.testing.assert_allclose(means, table[["previous", "entropy", "cls"]], rtol=1e-5)


def test_picks_leave_out_what_a_mask_hides():
    causal = np.tril(np.ones((4, 4)))
    causal = np.broadcast_to(causal / causal.sum(axis=-1, keepdims=True), (1, 1, 4, 4))
    annotation = {"pairs": [[2, 0, "back"], [0, 3, "ahead"]]}
    store = open_maps(causal, list("abcd"), records=annotation)
    (picks,) = per_example.picks(store)
    by_direction = picks.groupby("direction")["relation"].agg(list).to_dict()
    assert by_direction == {DIRECTIONS[0]: ["back"], DIRECTIONS[1]: ["ahead"]}
