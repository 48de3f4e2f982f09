"""Heads as classifiers: every number against a hand count or a slow reference."""

import numpy as np
import pandas as pd
import pytest

from helpers.analysis.dependency_heads import (
    COLUMNS,
    attachment_agreement,
    dependency_heads,
    each_head,
    held_out_heads,
    no_op_table,
    possessives,
    split_words,
    with_special_tokens,
)
from helpers.analysis.head_counts import OFFSETS, count_heads
from helpers.analysis.heads import DIRECTIONS, parse_head
from helpers.analysis.paper import paper_names, paper_table1, relation_table, scheme_of
from helpers.data.records import Sentence
from helpers.errors import InputError, MapError
from helpers.store.store import Example

LAYERS, HEADS = 2, 3


def example(words, heads, relations, *, split="dev", index=0, seed=0) -> Example:
    """Random maps with [CLS] and [SEP], which get most of the attention."""
    n = len(words) + 2
    maps = np.random.default_rng(seed).random((LAYERS, HEADS, n, n))
    maps[..., [0, -1]] += 5
    maps /= maps.sum(axis=-1, keepdims=True)
    record = {
        "words": list(words),
        "heads": list(heads),
        "relations": list(relations),
        "split": split,
    }
    return Example(index, maps.astype(np.float16), record)


def point(item: Example, layer: int, head: int, arrows: dict[int, int]) -> None:
    """Make words (from 1) attend to words: [CLS] is position 0, so that positions match."""
    for query, key in arrows.items():
        item.attention[layer, head, query] = 0
        item.attention[layer, head, query, key] = 1


def random_corpus(n: int) -> list[Example]:
    rng = np.random.default_rng(1)
    corpus = []
    for index in range(n):
        size = int(rng.integers(1, 9))
        root = int(rng.integers(size))
        heads = [0 if i == root else root + 1 for i in range(size)]
        relations = ["root" if i == root else str(rng.choice(["a", "b"])) for i in range(size)]
        split = "train" if index % 2 else "dev"
        corpus.append(example("w" * size, heads, relations, split=split, index=index, seed=index))
    return corpus


def slow_accuracy(corpus, relation, direction, layer, head, split=None, *, special=0) -> float:
    """``special`` tokens on either side may be picked, too."""
    hits = []
    for item in corpus:
        maps = item.attention[layer, head].astype(float)
        weight = maps if direction == DIRECTIONS[0] else maps.T
        words = range(1, len(item.record["words"]) + 1)
        for word, gold, name in zip(
            words, item.record["heads"], item.record["relations"], strict=True
        ):
            if split in (None, item.record["split"]) and relation in ("All", name):
                places = range(1 - special, len(words) + 1 + special)
                others = [other for other in places if other != word]
                picked = max(others, key=lambda other: weight[word, other], default=None)
                hits.append(picked == gold)
    return 100 * np.mean(hits)


@pytest.mark.parametrize("relation", ["All", "a", "b"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("split", [None, "train", "dev"])
def test_accuracy_equals_a_slow_reference(relation, direction, split):
    corpus = random_corpus(40)
    accuracy = count_heads(corpus).accuracy(relation, split=split)[DIRECTIONS.index(direction)]
    for (layer, head), found in np.ndenumerate(accuracy):
        expected = slow_accuracy(corpus, relation, direction, layer, head, split)
        assert found == pytest.approx(expected)


def test_the_pick_of_an_s_takes_the_place_of_its_possessors():
    """As in the released evaluation; not a second try."""
    words = ["Ann", "'s", "old", "hat", "fell"]
    heads, relations = [4, 1, 4, 5, 0], ["poss", "case", "amod", "nsubj", "ROOT"]
    item = example(words, heads, relations)
    point(item, 0, 0, {1: 2, 2: 4})  # Ann -> 's -> hat
    point(item, 0, 1, {1: 4, 2: 3})  # Ann -> hat
    point(item, 0, 2, {1: 2, 2: 3})  # neither
    counts = count_heads([item])
    poss = counts.accuracy("poss")[0]
    assert poss[0].tolist() == [100, 0, 0]
    names = ("poss", "case", "amod", "nsubj")
    everything = sum(counts.accuracy(name)[0] for name in names)
    np.testing.assert_allclose(counts.accuracy("All")[0], everything / 5)
    # Offsets follow the rule as well: hat is 3 from Ann and 2 from 's.
    by_offset = counts.offset_right[counts.rows("poss")[0]]
    assert OFFSETS[by_offset > 0].tolist() == [2]
    held_out = pd.DataFrame([{"relation": "poss", "direction": DIRECTIONS[0]}])
    for head, mark, possessor in (("1-1", 100, 0), ("1-2", 0, 100), ("1-3", 0, 0)):
        (row,) = possessives([item], held_out.assign(head=head)).to_dict("records")
        assert (row["mark"], row["possessor"], row["difference"], row["count"]) == (
            mark, possessor, mark - possessor, 1
        )  # fmt: skip
    assert possessives([item], held_out.assign(relation="det", head="1-1")).empty


def test_fixed_offsets_by_hand():
    corpus = [
        example("www", [2, 3, 0], ["det", "nsubj", "root"]),
        example("wwwww", [3, 3, 4, 0, 4], ["det", "amod", "nsubj", "root", "punct"]),
    ]
    table = dependency_heads(count_heads(corpus), minimum=1).set_index("relation")
    assert "root" not in table.index
    own = table[["count", "baseline", "baseline_offset"]]
    assert own.loc["All"].tolist() == [8, 50.0, 1]  # det, nsubj, amod, nsubj of eight words
    assert own.loc["det"].tolist() == [2, 50.0, 1]  # offsets 1 and 2; the first best
    assert own.loc["nsubj"].tolist() == [2, 100.0, 1]
    assert own.loc["punct"].tolist() == [1, 100.0, -1]
    frequent = dependency_heads(count_heads(corpus), minimum=2)
    assert list(frequent["relation"]) == ["All", "det", "nsubj"]


def test_table_has_the_contracts_columns_and_the_best_head():
    counts = count_heads(random_corpus(60))
    table = dependency_heads(counts, minimum=10)
    assert tuple(table.columns) == COLUMNS
    assert table.loc[0, "relation"] == "All" and set(table["relation"]) == {"All", "a", "b"}
    for row in table.itertuples():
        accuracy = counts.accuracy(row.relation)
        chosen = DIRECTIONS.index(row.direction), *parse_head(row.head)
        assert row.accuracy == accuracy.max() == accuracy[chosen]
        assert row.ci_low <= row.accuracy <= row.ci_high
    assert dependency_heads(counts, minimum=10**6).empty


def test_held_out_scores_the_head_that_train_chose():
    corpus = random_corpus(60)
    for item in corpus:  # one head knows the trees of train, another those of dev
        arrows = {i: h for i, h in enumerate(item.record["heads"], 1) if h}
        point(item, *((0, 1) if item.record["split"] == "train" else (1, 0)), arrows)
    counts = count_heads(corpus)
    table = held_out_heads(counts, minimum=10).set_index("relation")
    assert set(table["head"]) == {"1-2"} and set(table["direction"]) == {DIRECTIONS[0]}
    row = table.loc["a"]
    assert row["train_accuracy"] == 100 > row["dev_accuracy"]
    expected = slow_accuracy(corpus, "a", DIRECTIONS[0], 0, 1, "dev")
    assert row["dev_accuracy"] == pytest.approx(expected)
    assert row["ci_low"] < row["dev_accuracy"] < row["ci_high"]
    np.testing.assert_allclose(table["margin"], table["dev_accuracy"] - table["baseline"])
    assert (table["margin_low"] < table["margin"]).all() and (table["p_holm"] > 0.05).all()
    assert (table["margin"] < table["margin_high"]).all()
    on_dev = count_heads([item for item in corpus if item.record["split"] == "dev"])
    assert dependency_heads(on_dev, minimum=10)["head"].tolist() == ["2-1"] * 3


def test_what_is_no_treebank_is_refused():
    with pytest.raises(InputError, match="example 7 has no syntactic heads"):
        count_heads([Example(7, np.zeros((1, 1, 3, 3)), {"words": ["a"]})])
    with pytest.raises(InputError, match="at least one"):
        count_heads([])
    cut = example("ab", [2, 0], ["a", "root"], index=5)
    with pytest.raises(MapError, match="example 5: expected a map over 2 words"):
        count_heads([Example(5, cut.attention[..., :2, :2], cut.record)])
    counts = count_heads([example("ab", [2, 0], ["a", "root"])])
    with pytest.raises(InputError, match="no train sentences"):
        held_out_heads(counts)
    for relation, message in (("x", "no relation 'x'"), ("a", "the train split")):
        with pytest.raises(InputError, match=message):
            counts.accuracy(relation, split="train")


def test_mapping_is_one_to_one_onto_table_1():
    ud = {"root", "nsubj", "compound", "obj", "case", "nmod:poss"}
    clear = {"ROOT", "nsubj", "compound", "prep", "pobj", "dobj"}
    stanford = {"root", "nsubj", "nn", "prep", "pobj", "dobj"}
    assert [scheme_of(names) for names in (clear, ud, stanford)] == ["clear", "ud", "stanford"]
    assert paper_names(ud)["obj"] == "dobj" and "case" not in paper_names(ud)
    table = relation_table()
    for scheme, missing in (("clear", set()), ("ud", {"prep", "pobj"})):
        mapped = table.loc[(table["scheme"] == scheme) & (table["fit"] != "rough"), "paper"]
        assert set(paper_table1().index) - set(mapped) - {"All"} - {"mark"} == missing


def test_agreement_separates_conventions_from_errors():
    # "the cat is on a big mat": UD hangs everything on "mat", CLEAR on "is".
    words = ("the", "cat", "is", "on", "a", "big", "mat")
    names = ("det", "nsubj", "cop", "case", "det", "amod", "root")
    gold = Sentence(words, (2, 7, 7, 7, 7, 7, 0), names, "dev", "")
    relations = ["det", "nsubj", "ROOT", "prep", "det", "amod", "pobj"]
    parse = gold._replace(heads=[2, 3, 0, 3, 7, 5, 4], relations=relations)
    table = attachment_agreement([gold], [parse]).set_index("relation")
    assert table.loc["All", "attachment"] == pytest.approx(100 * 2 / 7)  # the, a
    # Whatever hangs on "mat" may move with the copula; only "the" of "the cat" is left.
    assert table.loc["same conventions", ["count", "attachment"]].tolist() == [1, 100]
    case = table.loc["case", ["attachment", "inverted", "silver_relation"]]
    assert case.tolist() == [0, 100, "prep"]
    assert table.loc["cop", "inverted"] == 0  # its predicate hangs on the preposition
    assert table.loc["det", ["count", "comparable"]].tolist() == [2, 1]


def test_what_each_head_does_best():
    """Chosen on train by its lead over the offset, scored on dev like `held_out_heads`."""
    corpus = random_corpus(60)
    counts = count_heads(corpus)
    table = each_head(counts, minimum=1)
    held_out = held_out_heads(counts, minimum=1).set_index("relation")
    same = 0
    for row in table.itertuples():
        lead = {
            (name, way): slow_accuracy(corpus, name, way, row.layer - 1, row.head - 1, "train")
            - counts.accuracy(name, "train", offsets=True).max()
            for name in ("a", "b")
            for way in DIRECTIONS
        }
        assert lead[(row.relation, row.direction)] == max(lead.values())
        assert row.ci_low < row.margin < row.ci_high
        best = held_out.loc[row.relation]
        if f"{row.layer}-{row.head}" == best["head"]:
            found = [row.accuracy, row.margin, row.ci_low, row.ci_high]
            names = ["dev_accuracy", "margin", "margin_low", "margin_high"]
            assert found == pytest.approx(best[names].tolist())
            same += 1
    assert same
    few = count_heads(random_corpus(10))
    assert list(each_head(few, minimum=1000)) == ["layer", "head"]
    assert held_out_heads(few, minimum=1000).empty


def slow_shares(corpus, held_out, asked_for):
    """Attention to special tokens of each word of dev with a relation, and with none of its head's.

    ``held_out`` has the direction of each relation of the head of ``asked_for``.
    """
    shares = {True: [], None: []}
    layer, head = parse_head(held_out.loc[asked_for, "head"])
    its = held_out[held_out["head"] == held_out.loc[asked_for, "head"]]
    for item in corpus[::2]:
        arcs = list(zip(item.record["heads"], item.record["relations"], strict=True))
        for word, (_, own) in enumerate(arcs, start=1):
            there = {
                name for name, way in its["direction"].items()
                if ((word, name) in arcs if way == DIRECTIONS[1] else own == name)
            }  # fmt: skip
            share = item.attention[layer, head, word, [0, -1]].astype(float).sum()
            if asked_for in there or not there:
                shares[True if there else None].append(share)
    return shares.values()


@pytest.mark.parametrize("share", [True, False])  # one head for both relations, or two
def test_attention_to_special_tokens_with_the_relation_and_with_none(share):
    corpus = random_corpus(60)
    held_out = held_out_heads(count_heads(corpus), minimum=1)
    if share:
        held_out["head"] = "2-1"
        held_out["direction"] = held_out["relation"].map(
            {"All": "", "a": DIRECTIONS[0], "b": DIRECTIONS[1]}
        )
    table = no_op_table(corpus, held_out).set_index("relation")
    held_out = held_out.set_index("relation").drop(index="All")
    assert sorted(table.index) == ["a", "b"]
    for name, row in table.iterrows():
        assert list(row[["head", "direction"]]) == list(held_out.loc[name, ["head", "direction"]])
        with_it, without = slow_shares(corpus, held_out, name)
        assert row["count"] == len(with_it)
        assert row["with"] == pytest.approx(np.mean(with_it), rel=1e-4)
        assert row["without"] == pytest.approx(np.mean(without), rel=1e-4)
        assert row["difference"] == pytest.approx(row["without"] - row["with"])
        for side in ("with", "without", "difference"):
            assert row[f"{side}_low"] < row[side] < row[f"{side}_high"]


def test_special_tokens_may_be_picked():
    corpus = random_corpus(60)
    for item in corpus:  # words get the most from some words, special tokens from others
        item.attention[..., ::2, [0, -1]] *= 0.01
        item.attention[:] /= item.attention.sum(axis=-1, keepdims=True)
    table = dependency_heads(count_heads(corpus), minimum=1)
    found = with_special_tokens(corpus, table)
    assert sorted(found["relation"]) == ["a", "b"]
    for row in found.itertuples():
        place = row.relation, row.direction, *parse_head(row.head)
        expected = slow_accuracy(corpus, *place, special=1)
        assert row.with_special == pytest.approx(expected)
        assert row.change == row.with_special - row.accuracy <= 0
    assert (found["with_special"] > 0).all() and (found["change"] < 0).any()


def test_words_by_their_number_of_tokens():
    records = [{"words": ["a", "bcd", "ef"]}, {"words": ["g"]}]

    def word_ids(words):
        return [None, *(i for i, word in enumerate(words) for _ in word), None]

    table = split_words(records, word_ids)
    assert table[["tokens", "words"]].to_numpy().tolist() == [[1, 2], [2, 1], [3, 1]]
    assert table["share"].tolist() == [0.5, 0.25, 0.25]
