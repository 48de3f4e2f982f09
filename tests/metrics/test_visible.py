"""The tokens that are visible decide every baseline: uniform maps over them, and hand counts."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from references import sums_of

from helpers.data.records import roles
from helpers.data.visible import Visible
from helpers.metrics import coreference, dependency_heads
from helpers.metrics.clustering import head_behaviours
from helpers.metrics.head_counts import OFFSETS, count_heads
from helpers.metrics.head_distance import renormalise_over_words
from helpers.metrics.heads import DIRECTIONS
from helpers.metrics.surface import SECTION_3, article_table, head_table
from helpers.store.store import Example

FULL = Visible(causal=False, window=None)
CAUSAL = Visible(causal=True, window=None)
WINDOW = Visible(causal=False, window=3)
CAUSAL_WINDOW = Visible(causal=True, window=4)
MASKS = {
    "full": [FULL, FULL],
    "causal": [CAUSAL, CAUSAL],
    "sliding window": [WINDOW, WINDOW],
    "causal sliding window": [CAUSAL_WINDOW, CAUSAL_WINDOW],
    "mixed": [FULL, CAUSAL_WINDOW],
}
MODELS = [pytest.param(visible, id=name) for name, visible in MASKS.items()]
HEADS = 3
BERT = {"cls": "[CLS]", "sep": "[SEP]"}
TO_HEAD = DIRECTIONS[0]


def sees(visible, query, key):
    """Whether a token sees another, as the words say it."""
    is_near = visible.window is None or abs(query - key) <= visible.window
    return is_near and not (visible.causal and key > query)


def masks_by_hand(visible, n):
    """Tabulate which tokens see which: [layer, query, key]."""
    masks = np.zeros((len(visible), n, n), bool)
    for layer, query, key in np.ndindex(masks.shape):
        masks[layer, query, key] = sees(visible[layer], query, key)
    return masks


def uniform_example(visible, index=0, n=40, **record):
    """Make maps whose heads attend equally to all tokens that they see."""
    masks = masks_by_hand(visible, n)
    maps = np.repeat((masks / masks.sum(axis=-1, keepdims=True))[:, None], HEADS, axis=1)
    record = {"tokens": ["[CLS]", *["a"] * (n - 2), "[SEP]"], "title": f"{index}", **record}
    return Example(index, maps, record, offset=0, visible=visible)


# Section 3


@pytest.mark.parametrize("visible", MODELS)
def test_visible_keys_are_those_of_each_layer(visible):
    example = uniform_example(visible)
    np.testing.assert_array_equal(example.visible_keys, masks_by_hand(visible, 40))


@pytest.mark.parametrize("visible", MODELS)
def test_uniform_heads_are_at_every_uniform_baseline_and_broad(visible):
    examples = [uniform_example(visible, index, n=30 + index) for index in range(4)]
    table = head_table(sums_of(examples, BERT), SECTION_3)
    for name in ("first", "cls", "sep"):
        np.testing.assert_allclose(table[name] / table[f"uniform_{name}"], 1, rtol=1e-6)
    np.testing.assert_allclose(table["entropy"] / table["uniform"], 1, rtol=5e-3)
    assert set(head_behaviours(table)["behaviour"]) == {"broad"}


@pytest.mark.parametrize("visible", MODELS)
def test_uniform_entropy_is_the_mean_logarithm_of_what_is_seen(visible):
    table = head_table(sums_of([uniform_example(visible)], BERT), ["uniform", "uniform_sep"])
    for layer, rows in table.groupby("layer"):
        counts = masks_by_hand(visible, 40)[layer - 1].sum(axis=-1)
        np.testing.assert_allclose(rows["uniform"], np.log(counts).mean())
        shares_of_sep = masks_by_hand(visible, 40)[layer - 1, :, -1] / counts
        np.testing.assert_allclose(rows["uniform_sep"], shares_of_sep.mean())


def test_what_a_mask_makes_impossible_is_empty():
    example = uniform_example([FULL, CAUSAL])
    sums = sums_of([example], BERT)
    table = head_table(sums, SECTION_3).groupby("layer").first()
    impossible = ["next", "cls_to_cls", "first_to_first", "entropy_from_cls"]
    assert table.loc[1, impossible].notna().all()
    assert table.loc[2, impossible].isna().all()
    assert table.loc[2, ["previous", "current", "other_to_first", "sep_to_sep"]].notna().all()
    by_article = article_table(sums).set_index("layer")
    assert by_article["next"].isna().tolist() == [False, True]


@pytest.mark.parametrize("visible", MODELS)
def test_rows_of_special_tokens_become_uniform_over_the_words_that_they_see(visible):
    n = 12
    maps = np.zeros((2, HEADS, n, n))
    maps[..., 0] = 1  # all attention to [CLS]
    token_roles = roles(["[CLS]", *["a"] * (n - 2), "[SEP]"], BERT)
    masks = masks_by_hand(visible, n)
    words = renormalise_over_words(maps, token_roles, masks)
    seen = masks[:, 1:-1, 1:-1]
    expected = seen / seen.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(words, np.broadcast_to(expected[:, None], words.shape))


# Section 4.2


def random_example(visible, index, words, heads, relations, **options):
    """Make random maps under masks, over words of one or two tokens, without special tokens."""
    rng = np.random.default_rng(index)
    groups = np.repeat(np.arange(len(words)), rng.integers(1, 3, len(words)))
    token_masks = masks_by_hand(visible, len(groups))
    tokens = rng.random((len(visible), HEADS, len(groups), len(groups))) * token_masks[:, None]
    tokens /= tokens.sum(axis=-1, keepdims=True)
    is_token_of = groups == np.arange(len(words))[:, None]
    maps = (is_token_of @ tokens @ is_token_of.T) / is_token_of.sum(axis=1)[:, None]
    record = {
        "words": list(words),
        "heads": heads,
        "relations": relations,
        "inputs": {"groups": groups.tolist()},
        "split": options.pop("split", "train"),
        **options,
    }
    return Example(index, maps, record, offset=0, visible=visible)


def random_treebank(visible, count=60):
    """Make sentences of two relations, a and b, whose words depend on any word."""
    rng = np.random.default_rng(7)
    treebank = []
    for index in range(count):
        n = int(rng.integers(2, 12))
        root = int(rng.integers(n))
        heads = []
        for word in range(n):
            others = [other + 1 for other in range(n) if other != word]
            heads.append(0 if word == root else int(rng.choice(others)))
        relations = ["root" if head == 0 else str(rng.choice(["a", "b"])) for head in heads]
        split = "dev" if index % 3 == 0 else "train"
        treebank.append(random_example(visible, index, "w" * n, heads, relations, split=split))
    return treebank


def word_sees(example, layer, query, key):
    """Whether a word sees another: if any of its tokens does."""
    groups = np.array(example.record["inputs"]["groups"])
    pairs = [(i, j) for i in np.flatnonzero(groups == query) for j in np.flatnonzero(groups == key)]
    return any(sees(example.visible[layer], i, j) for i, j in pairs)


def slow_counts(treebank, relation, direction, layer, head):
    """Count the words whose head can be picked, the right picks, and those at each offset."""
    total = 0
    right = 0
    at_offset = dict.fromkeys(OFFSETS.tolist(), 0)
    for example in treebank:
        weights = example.attention[layer, head]
        arcs = zip(example.record["heads"], example.record["relations"], strict=True)
        for word, (parent, name) in enumerate(arcs):
            if relation not in ("All", name):
                continue
            if parent == 0:
                total += relation == "All"
                continue
            scores = {}
            for other in range(len(weights)):
                query, key = (word, other) if direction == TO_HEAD else (other, word)
                if other != word and word_sees(example, layer, query, key):
                    scores[other] = weights[query, key]
            if parent - 1 not in scores:
                continue
            total += 1
            right += max(scores, key=scores.__getitem__) == parent - 1
            if parent - 1 - word in at_offset:
                at_offset[parent - 1 - word] += 1
    return total, right, list(at_offset.values())


@pytest.mark.parametrize("visible", MODELS)
@pytest.mark.parametrize("relation", ["All", "a"])
def test_words_count_where_their_head_can_be_picked(visible, relation):
    treebank = random_treebank(visible)
    counts = count_heads(treebank)
    accuracy = counts.accuracy(relation)
    offset_accuracy = counts.offset_accuracy(relation)
    sizes = counts.visible_size(relation)
    for direction, layer, head in np.ndindex(accuracy.shape):
        total, right, at_offset = slow_counts(
            treebank, relation, DIRECTIONS[direction], layer, head
        )
        assert sizes[direction, layer] == total
        assert accuracy[direction, layer, head] == pytest.approx(100 * right / total)
        expected = 100 * np.array(at_offset) / total
        np.testing.assert_allclose(offset_accuracy[direction, layer], expected)


@pytest.mark.parametrize("visible", MODELS)
def test_tables_of_section_4_have_the_words_that_count(visible):
    counts = count_heads(random_treebank(visible))
    table = dependency_heads.dependency_heads(counts, minimum=5)
    assert set(table["relation"]) == {"All", "a", "b"}
    for row in table.itertuples():
        layer, head = (int(part) - 1 for part in row.head.split("-"))
        best = (DIRECTIONS.index(row.direction), layer, head)
        assert row.count == counts.visible_size(row.relation)[best[:2]]
        assert row.accuracy == counts.accuracy(row.relation)[best]
        assert row.accuracy == counts.accuracy(row.relation).max()
        assert row.baseline == counts.offset_accuracy(row.relation)[best[:2]].max()
        if visible[layer].causal and row.relation != "All":
            assert (row.baseline_offset < 0) == (row.direction == TO_HEAD)
    held_out = dependency_heads.held_out_heads(counts, minimum=5)
    np.testing.assert_allclose(held_out["margin"], held_out["dev_accuracy"] - held_out["baseline"])
    assert (held_out["margin_low"] <= held_out["margin"]).all()
    each_head = dependency_heads.each_head(counts, minimum=5)
    assert len(each_head) == len(visible) * HEADS
    assert dependency_heads.special_token_summary(counts).empty  # there are none


def test_few_words_choose_no_head():
    """In a direction in which one word counts, a head that finds it would be right about all."""
    first = random_example([CAUSAL], 0, "wwww", [2, 3, 4, 0], ["a", "a", "a", "root"])
    second = random_example([CAUSAL], 1, "wwww", [0, 1, 4, 2], ["root", "a", "a", "a"])
    counts = count_heads([first, second])
    assert counts.visible_size("a").tolist() == [[2], [4]]
    row = dependency_heads.dependency_heads(counts, minimum=3).set_index("relation").loc["a"]
    assert row["count"] == 4
    assert row["direction"] == DIRECTIONS[1]
    assert dependency_heads.dependency_heads(counts, minimum=5)["relation"].tolist() == ["All"]


def test_a_mask_that_hides_later_words_says_nothing_about_directions():
    quantities = {}
    for name, visible in MASKS.items():
        treebank = random_treebank(visible)
        for example in treebank:  # relations that the paper has
            names = {"a": "det", "b": "dobj"}
            relations = example.record["relations"]
            example.record["relations"] = [names.get(relation, relation) for relation in relations]
        counts = count_heads(treebank)
        held_out = dependency_heads.held_out_heads(counts, minimum=1)
        summary = dependency_heads.relation_summary(counts, held_out)
        quantities[name] = dependency_heads.DEPENDENTS_SHARE in set(summary["quantity"])
    is_symmetric = {"full", "sliding window"}
    assert quantities == {name: name in is_symmetric for name in MASKS}


def causal_sentence(index, words, heads, relations, visible):
    """Make a sentence of a decoder without a beginning-of-text token: every head is uniform."""
    n = len(words)
    maps = np.tril(np.ones((1, HEADS, n, n))) / np.arange(1, n + 1)[:, None]
    maps[..., 0] += np.arange(n) * 1e-3  # except for a little more to the first word
    maps /= maps.sum(axis=-1, keepdims=True)
    record = {"words": words, "heads": heads, "relations": relations, "split": "train"}
    return Example(index, maps, record, offset=0, visible=visible)


@pytest.mark.parametrize("visible", [(), [CAUSAL]], ids=["unknown mask", "causal mask"])
def test_a_word_that_sees_only_itself_picks_nothing(visible):
    """The determiner in front of a sentence sees itself only, and no other sees its noun.

    Of 219 determiners 13 are there, so that the first of equal weights, word 2, would be right for
    5.9361% of them in every head.
    """
    treebank = []
    for index in range(219):
        words, heads, relations = (
            ["Ann", "saw", "the", "dog"],
            [2, 0, 4, 2],
            ["a", "root", "det", "b"],
        )
        if index < 13:
            words, heads, relations = ["the", "dog", "slept"], [2, 3, 0], ["det", "a", "root"]
        treebank.append(causal_sentence(index, words, heads, relations, visible))
    counts = count_heads(treebank)
    det = counts.accuracy("det")[DIRECTIONS.index(TO_HEAD), 0]
    if visible:
        assert np.isnan(det).all()
        assert counts.visible_size("det").ravel().tolist() == [0, 219]
    else:
        assert det.tolist() == [0] * HEADS
    example = treebank[0]
    first_of_equal = np.where(np.eye(3), -1, example.attention[0, 0]).argmax(axis=-1)
    assert first_of_equal[0] == 1


def test_possessors_are_compared_if_both_ways_see_the_noun():
    """Under a causal mask neither the 's nor the possessor sees the noun after them."""
    words, heads = ["Ann", "'s", "hat", "fell"], [3, 1, 4, 0]
    relations = ["poss", "case", "nsubj", "root"]
    held_out = [
        {"relation": "poss", "head": "1-1", "direction": direction} for direction in DIRECTIONS
    ]
    for row, count in zip(held_out, (0, 1), strict=True):
        sentence = causal_sentence(0, words, heads, relations, [CAUSAL])
        sentence = replace(sentence, record={**sentence.record, "split": "dev"})
        table = dependency_heads.possessive_summary([sentence], pd.DataFrame([row]))
        assert len(table) == count


# Section 4.3


def test_coreference_counts_mentions_that_see_an_antecedent_and_their_own_chance():
    """Words 0, 2, 4 and 6 are mentions; 0, 4 and 6 are one chain."""
    words = [*"abcdefgh"]
    mentions = [[0, 1, 1, 0], [2, 3, None, 2], [4, 5, 1, 4], [6, 7, 1, 6]]
    document = {"words": words, "tags": ["PRON"] * 8, "mentions": mentions, "split": "train"}
    visible = [FULL, CAUSAL, Visible(causal=True, window=2)]
    masks = masks_by_hand(visible, 8)
    rng = np.random.default_rng(0)
    maps = rng.random((3, HEADS, 8, 8)) * masks[:, None]
    maps[1, 0, 4, :3] = 0.5, 0.0, 0.1  # head 2-1 finds the antecedent of word 4 among three words
    maps[1, 0, 6, :] = 0.0
    maps[1, 0, 6, 2] = 1.0  # and takes the singleton for that of word 6
    maps /= maps.sum(axis=-1, keepdims=True)
    example = Example(0, maps, document, offset=0, visible=visible)
    judgements = coreference.evaluate_antecedents([example])
    # Word 4 is the first mention with an antecedent, word 6 the second.
    assert judgements.sees_antecedent.tolist() == [[True, True], [True, True], [False, True]]
    among_mentions = [[1 / 3, 2 / 3], [1 / 2, 2 / 3], [0 / 1, 1 / 1]]
    np.testing.assert_allclose(judgements.chance["mentions"], among_mentions)
    among_words = [[1 / 7, 2 / 7], [1 / 4, 2 / 6], [0 / 2, 1 / 2]]
    np.testing.assert_allclose(judgements.chance["words"], among_words)
    accuracy = judgements.accuracy()
    assert accuracy[1, 0] == 50
    assert (accuracy[2] == 100).all()  # the only mention that word 6 sees is right
    table = coreference.coreference_table(judgements)
    row = table[(table["system"] == "head") & (table["type"] == "all")].iloc[0]
    layer = int(row["head"].split("-")[0]) - 1
    counted = judgements.sees_antecedent[layer]
    assert row["n"] == counted.sum()
    assert row["chance"] == pytest.approx(
        100 * judgements.chance["mentions"][layer, counted].mean()
    )


def test_chance_of_a_full_map_is_among_all_other_candidates():
    words = [*"abcd"]
    mentions = [[0, 1, 1, 0], [1, 2, 1, 1], [3, 4, 1, 3]]
    document = {"words": words, "tags": ["PRON"] * 4, "mentions": mentions, "split": "train"}
    maps = np.random.default_rng(0).dirichlet(np.ones(4), size=(1, HEADS, 4))
    judgements = coreference.evaluate_antecedents([Example(0, maps, document, offset=0)])
    assert judgements.chance["mentions"].tolist() == [[1 / 2, 2 / 2]]
    np.testing.assert_allclose(judgements.chance["words"], [[1 / 3, 2 / 3]])
    table = coreference.coreference_table(judgements)
    rules = table[table["system"] != "head"]
    assert rules["chance"].isna().all()
