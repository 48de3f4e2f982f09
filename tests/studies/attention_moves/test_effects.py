"""Tables of removal, on counts made up so that the answer is known."""

import numpy as np
import pytest

from helpers.studies.attention_moves import effects
from helpers.studies.attention_moves.effects import (
    objective_table,
    recall_table,
    relation_tables,
)
from helpers.studies.attention_moves.probe_reading import Probes
from helpers.studies.attention_moves.removal import Found

LAYERS, HEADS, ARTICLES, WORDS = 2, 8, 12, 20
RELATIONS = ("a", "b", "c")
OWNERS = {"a": (0, 1), "b": (0, 5), "c": (1, 2), "absent": (0, 0)}
PROBES = Probes(None, 2, 1.0, None, None)  # the structural probe reads layer 2


def found(lost_own, lost_other=1):
    """Every head costs each relation a word an article, its own head ``lost_own``."""
    total = np.full((2, ARTICLES, 3), WORDS)
    right = np.full((1 + 2 * LAYERS * HEADS, 2, ARTICLES, 3), WORDS - lost_other)
    right[0] = WORDS
    for relation, (layer, head) in OWNERS.items():
        if relation in RELATIONS:
            for kind in range(2):
                place = 1 + (kind * LAYERS + layer) * HEADS + head
                right[place, :, :, RELATIONS.index(relation)] = WORDS - lost_own
    return Found(RELATIONS, total, right, LAYERS, HEADS)


def tables(lost_own):
    importance = np.arange(LAYERS * HEADS, dtype=float).reshape(LAYERS, HEADS)
    return relation_tables(found(lost_own), PROBES, 3, OWNERS, importance, seed=0)


def test_a_head_that_its_relation_needs_is_told_from_others():
    made = tables(5)
    row = made["relation_heads"].query("kind == 'zero' and probe == 'Attn'").set_index("relation")
    assert list(row.index) == list(RELATIONS)
    assert list(row["head"]) == ["1-2", "1-6", "2-3"]
    assert row.loc["a", "words"] == ARTICLES * WORDS and row.loc["a", "recall"] == 100
    assert row.loc["a", "change"] == pytest.approx(-25)
    for name in ("layer", "matched", "relations"):
        assert row[name].tolist() == pytest.approx([20] * 3)
        assert row[f"{name}_low"].tolist() == pytest.approx([20] * 3)
    assert (row["p_holm"] < 0.05).all()
    means = made["relation_heads_mean"].set_index(["kind", "probe", "against"])
    assert means["lead"].tolist() == pytest.approx([20] * len(means))
    assert means.loc[("mean", "Attn", "layer"), "p_value"] < 0.02  # about (1/8) ** 3
    assert means.loc[("zero", "structural", "relations"), "p_value"] < 0.25  # one of six orders


def test_a_head_like_any_other_is_not():
    made = tables(1)
    assert made["relation_heads"]["layer"].tolist() == pytest.approx([0] * 12)
    assert (made["relation_heads_mean"]["p_value"] == 1).all()
    assert (made["relation_heads"]["p_holm"] == 1).all()


def test_losses_that_differ_in_the_last_bit_are_equal():
    ones = np.ones((ARTICLES, 1))
    lead = effects._leads("layer", (0.3 * ones, ones), ((0.1 + 0.2) * ones, ones), seed=0)
    assert list(lead) == ["layer", "layer_low", "layer_high"]
    assert [f"{value:g}" for values in lead.values() for value in values] == ["0", "0", "0"]


def test_a_probe_that_no_layer_reaches_has_no_rows():
    nothing = Probes(None, 0, 1.0, None, None)
    made = relation_tables(found(5), nothing, 1, OWNERS, np.zeros((1, HEADS)), seed=0)
    assert made["relation_heads"].empty and made["relation_heads_mean"].empty
    assert "relation" in made["relation_heads"]
    assert recall_table(found(5), nothing, 1, OWNERS).empty


def test_a_head_alone_has_nothing_to_be_compared_with():
    total = np.full((2, ARTICLES, 1), WORDS)
    right = np.full((3, 2, ARTICLES, 1), WORDS)
    right[1:] -= 5
    alone = Found(("a",), total, right, 1, 1)
    made = relation_tables(alone, PROBES, 2, {"a": (0, 0)}, np.zeros((1, 1)), seed=0)
    assert made["relation_heads"]["change"].tolist() == [-25] * 4
    assert made["relation_heads"][["layer", "matched", "relations"]].isna().all(axis=None)
    assert made["relation_heads_mean"].empty


def test_recall_has_a_row_for_each_head_that_can_matter():
    early = Probes(None, 1, 1.0, None, None)
    table = recall_table(found(5), early, 3, OWNERS)
    assert len(table.query("probe == 'structural'")) == 2 * 3 * HEADS
    assert len(table.query("probe == 'Attn'")) == 2 * 3 * 2 * HEADS
    own = table.query("kind == 'mean' and probe == 'Attn' and relation == 'c'")
    own = own.set_index(["layer", "head"])["change"]
    assert own[(2, 3)] == pytest.approx(-25) and own.drop((2, 3)).eq(-5).all()


def test_costs_are_differences_to_the_intact_model():
    scores = np.zeros((5, 4, 2))  # intact, two kinds of two heads; four texts; loss, similarity
    scores[0] = 1.0, 0.5
    scores[1:, :, 0] = [[1, 1, 2, 2], [1, 1, 1, 1], [3, 3, 3, 3], [1, 1, 1, 0]]
    scores[1:, :, 1] = 0.5
    records = [{"title": title} for title in "aabb"]
    table = objective_table(scores, records, (1, 2))
    assert list(table["kind"]) == ["zero", "zero", "mean", "mean"]
    assert table["loss_change"].tolist() == [0.5, 0, 2, -0.25]
    assert table["similarity_change"].abs().max() == 0
    row = table.iloc[0]
    assert row["loss"] == 1 and row["loss_change_low"] == 0 and row["loss_change_high"] == 1
