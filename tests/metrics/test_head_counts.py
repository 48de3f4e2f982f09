"""Counts of right picks against a slow reference, under every mask; edge cases by hand."""

import numpy as np
import pandas as pd
import pytest
from references import (
    HEADS,
    LAYERS,
    MASKS,
    point,
    random_example,
    random_treebank,
    slow_words,
)

from beyond import per_example
from helpers.errors import InputError
from helpers.metrics.head_counts import OFFSETS, count_heads
from helpers.metrics.heads import DIRECTIONS
from helpers.store.maps import open_maps
from helpers.store.store import Example


@pytest.mark.parametrize("special_tokens", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_counts_equal_a_slow_reference(mask, special_tokens):
    treebank = random_treebank(mask)
    counts = count_heads(treebank, special_tokens=special_tokens)
    assert set(counts.names) == {"All", "det", "dobj", "poss", "root"}
    dev = [example for example in treebank if example.record["split"] == "dev"]
    for examples, selected in ((treebank, counts), (dev, counts.of_split("dev"))):
        for relation in ("All", "det", "poss"):
            sizes = selected.visible_size(relation)
            for (number, layer, head), accuracy in np.ndenumerate(selected.accuracy(relation)):
                words = slow_words(
                    examples, relation, DIRECTIONS[number], layer, head,
                    special_tokens=special_tokens,
                )  # fmt: skip
                assert sizes[number, layer] == len(words)
                right = [pick in parents for *_, parents, pick in words]
                assert accuracy == pytest.approx(100 * np.mean(right))
                at_offset = [[q + o in parents for o in OFFSETS] for _, _, q, parents, _ in words]
                np.testing.assert_allclose(
                    selected.rival_accuracy(relation)[number, layer],
                    100 * np.mean(at_offset, axis=0),
                )


def test_relations_are_frequent_if_enough_words_count_in_a_layer():
    counts = count_heads(random_treebank("causal"))
    sizes = {name: counts.visible_size(name).max().item() for name in counts.names}
    assert max(sizes.values()) == sizes["All"] > sizes["det"]
    frequent = counts.frequent(sizes["det"])
    assert frequent[0] == "All" and "det" in frequent and "root" not in frequent
    assert "det" not in counts.frequent(sizes["det"] + 1)
    assert np.isnan(counts.accuracy("det", minimum=sizes["det"] + 1)).all()
    assert [counts.size(name) for name in frequent] == sorted(
        map(counts.size, frequent), reverse=True
    )


def test_the_pick_of_an_s_is_that_of_its_possessor_by_hand():
    """As in the released evaluation, in which the possessor's own pick does not count."""
    pairs = [[0, 3, "poss"], [1, 0, "case"], [2, 3, "amod"], [3, 4, "nsubj"], [4, 4, "ROOT"]]
    record = {"words": ["Ann", "'s", "old", "hat", "fell"], "pairs": pairs}
    example = random_example(np.random.default_rng(0), "full", record)
    point(example, 0, 0, {0: 1, 1: 3})
    point(example, 0, 1, {0: 3, 1: 2})
    counts = count_heads([example])
    assert counts.accuracy("poss")[0, 0, :2].tolist() == [100, 0]
    assert OFFSETS[counts.rival_accuracy("poss")[0, 0] > 0].tolist() == [2]  # from the 's
    by_relation = sum(counts.accuracy(name) for name in ("poss", "case", "amod", "nsubj"))
    np.testing.assert_allclose(counts.accuracy("All"), by_relation / 5)


@pytest.mark.parametrize("records", [[], [{"words": ["a"]}], [{"tokens": ["a"]}]])
def test_texts_without_annotation_are_refused(records):
    examples = [Example(7, np.zeros((1, 1, 3, 3)), record) for record in records]
    with pytest.raises(InputError, match="no syntactic heads and no pairs"):
        count_heads(examples)
    with pytest.raises(InputError, match="no test sentences"):
        count_heads(random_treebank("full", 4)).of_split("test")


def test_picks_of_each_example_add_up_to_those_of_the_corpus():
    examples = random_treebank("full", 6)
    tokens = [["[CLS]", *example.record["words"], "[SEP]"] for example in examples]
    records = [{"pairs": example.record["pairs"]} for example in examples]
    store = open_maps([example.stored_attention for example in examples], tokens, records=records)
    picks = pd.concat(per_example.picks(store)).query("relation == 'det'")
    by_head = picks.groupby(["direction", "layer", "head"])["right"].mean()
    for number, direction in enumerate(DIRECTIONS):
        accuracy = 100 * by_head[direction].to_numpy().reshape(LAYERS, HEADS)
        np.testing.assert_allclose(count_heads(store).accuracy("det")[number], accuracy)


def test_picks_leave_out_what_a_mask_hides():
    maps = np.tril(np.ones((1, 1, 4, 4))) / np.arange(1, 5)[:, None]
    annotation = {"pairs": [[2, 0, "back"], [0, 3, "ahead"]]}
    (picks,) = per_example.picks(open_maps(maps, list("abcd"), records=annotation))
    by_direction = picks.groupby("direction")["relation"].agg(list).to_dict()
    assert by_direction == {DIRECTIONS[0]: ["back"], DIRECTIONS[1]: ["ahead"]}
