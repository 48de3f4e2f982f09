"""Antecedents that heads and rules pick: by hand, and against a slow reference under every mask."""

import numpy as np
import pytest
from references import HEADS, LAYERS, MASKS, point, random_example, slow_pick

from helpers.errors import InputError
from helpers.metrics.coreference import (
    RULES,
    TYPES,
    best_head,
    coreference_held_out,
    coreference_table,
    count_antecedents,
    count_rules,
    document_mentions,
    select_antecedent,
)

CANDIDATES = ("mentions", "words")
TAGS = {
    "Ann": "PROPN", "Bob": "PROPN", "she": "PRON", "it": "PRON", "they": "PRON", "we": "PRON",
    "dog": "NOUN", "cat": "NOUN", "dogs": "NOUN", "box": "NOUN", "doctor": "NOUN", "the": "DET",
}  # fmt: skip
# Of these, she, it and Ann have an antecedent; and the second the dog, which is the doctor.
ANN = ("Ann saw the dog when she fed it and Ann slept",
       [(0, 1, 1), (2, 4, 2), (5, 6, 1), (7, 8, 2), (9, 10, 1)])  # fmt: skip
DOCTOR = ("the doctor saw a cat when the dog saw the cat",
          [(0, 2, 1), (3, 5, 2), (6, 8, 1), (9, 11, 2)])  # fmt: skip


def record(text, mentions, split="train"):
    """Make a document; a mention is (first word, end, chain), and its last word is its head."""
    words = text.split()
    spans = [[start, end, chain, end - 1] for start, end, chain in mentions]
    tags = [TAGS.get(word, "VERB") for word in words]
    return {"words": words, "tags": tags, "mentions": spans, "split": split}


def documents(count=8, mask="full", *, finds=lambda record: False):
    """Make documents of both splits; head 2-3 finds all first mentions where ``finds`` says so."""
    rng = np.random.default_rng(0)
    made = []
    for number in range(count):
        text = record(*(ANN, DOCTOR)[number % 2], ("train", "dev")[number // 2 % 2])
        text["source"] = f"bn/{number} part 000"
        example = random_example(rng, mask, text)
        first = {}
        for *_, chain, head in text["mentions"]:
            if finds(text):
                point(example, 1, 2, {head: first.get(chain, head)})
            first.setdefault(chain, head)
        made.append(example)
    return made


def tables(examples):
    heads = {name: count_antecedents(examples, name) for name in CANDIDATES}
    rules = count_rules([example.record for example in examples])
    return coreference_table(heads, rules), coreference_held_out(heads), heads


def test_select_antecedent_for_the_last_mention():
    cases = [
        ("nearest mention", "Ann saw Bob when she sang", [(0, 1), (2, 3), (4, 5)], "bob"),
        ("head match", "The dog saw a dog and Ann hit the old dog",
         [(0, 2), (3, 5), (6, 7), (8, 11)], "a dog"),
        ("head match", "Ann saw a cat then Bob", [(0, 1), (2, 4), (5, 6)], None),
        ("match, else nearest", "Ann saw a cat then Bob", [(0, 1), (2, 4), (5, 6)], "a cat"),
        # Same words before a nearer match of the head, before a mention that agrees.
        ("rule-based", "The dog bit the old dog while the dog barked",
         [(0, 2), (3, 6), (7, 9)], "the dog"),
        # Gender, number and person before nearer mentions.
        ("rule-based", "Ann told Bob about a box that she liked",
         [(0, 1), (2, 3), (4, 6), (7, 8)], "ann"),
        ("rule-based", "the dogs bit a cat but they slept",
         [(0, 2), (3, 5), (6, 7)], "the dogs"),
        # Any mention if none agrees.
        ("rule-based", "Bob took a box when she slept", [(0, 1), (2, 4), (5, 6)], "a box"),
    ]  # fmt: skip
    for system, text, spans, expected in cases:
        mentions = document_mentions(record(text, [(*span, n) for n, span in enumerate(spans)]))
        selected = select_antecedent(system, mentions, len(mentions) - 1)
        assert (selected and " ".join(selected.string)) == expected


@pytest.mark.parametrize("mask", MASKS)
def test_counts_equal_a_slow_reference(mask):
    examples = documents(4, mask)
    examples[0].record["mentions"][3][2] = None  # a mention without a chain
    for name in CANDIDATES:
        counts = count_antecedents(examples, name)
        for layer, head in np.ndindex(LAYERS, HEADS):
            right = []
            for example in examples:
                spans, seen = example.record["mentions"], example.record["seen"]
                for number, (*_, chain, word) in enumerate(spans):
                    earlier = {h + 1 for *_, c, h in spans[:number] if c == chain is not None}
                    if not any(seen[word + 1, key] for key in earlier):
                        continue
                    keys = {h + 1 for *_, h in spans} if name == "mentions" else range(1, 12)
                    keys = [key for key in keys if key <= len(example.record["words"])]
                    pick = slow_pick(example.attention[layer, head], seen, word + 1, sorted(keys))
                    right.append(pick in earlier)
            assert counts.visible_size("all")[0, layer] == len(right)
            assert counts.right_of_head("all", (0, layer, head))[0].sum() == 100 * sum(right)


def test_rules_and_types_by_hand():
    """In Ann's document she, it and Ann count; in the doctor's the dog and the second cat."""
    rules = count_rules([example.record for example in documents(2)])
    sizes = {name: rules.size(name) for name in TYPES}
    assert list(sizes.values()) == [5, 2, 1, 2, 1]  # the dog has no match
    by_rule = dict(zip(RULES, rules.accuracy("all")[0, 0], strict=True))
    assert by_rule == {
        "nearest mention": 0, "head match": 40, "match, else nearest": 40, "rule-based": 80,
    }  # fmt: skip


def test_tables_of_a_head_that_finds_everything_by_hand():
    table, held_out, _ = tables(documents(finds=lambda record: True))
    assert len(table) == (len(RULES) + 2 * 2) * len(TYPES)  # rules, heads, held-out heads
    by_row = table.set_index(["candidates", "system", "type"]).sort_index()
    for candidates in CANDIDATES:
        rows = by_row.loc[candidates, "head"].loc[list(TYPES)]
        assert set(rows["head"]) == {"2-3"} and (rows["accuracy"] == 100).all()
        assert rows["n"].tolist() == [20, 8, 4, 8, 4]
        paper = [65, 64, 73, 58, np.nan]
        assert rows["paper_accuracy"].tolist() == pytest.approx(paper, nan_ok=True)
        on_dev = by_row.loc[candidates, "head of the type (chosen on train, scored on dev)"]
        assert on_dev.loc["all", "n"] == 10 and on_dev["paper_accuracy"].isna().all()
        rows = held_out[held_out["candidates"] == candidates].set_index(["against", "type"])
        # Head match finds Ann and the second cat, and neither the pronouns nor the dog.
        margins = rows.loc["head match", "margin"]
        types = ["all", "pronoun", "proper", "nominal"]
        assert margins[types].tolist() == pytest.approx([60, 100, 0, 50])
        assert (rows["margin_low"] <= rows["margin"]).all()


def test_the_head_of_train_is_scored_on_dev():
    table, held_out, heads = tables(documents(finds=lambda record: record["split"] == "dev"))
    assert best_head(heads["words"].of_split("dev")) == (1, 2)
    chosen = table[table["system"].str.contains("chosen on train")]
    assert "2-3" not in {*held_out["head"], *chosen["head"]}
    assert (chosen["accuracy"] < 100).any()


def test_tables_without_dev_have_no_held_out_heads():
    table, held_out, _ = tables(documents(2))
    assert held_out.empty and set(table["system"]) == {*RULES, "head"}


def test_parts_of_a_document_are_one_cluster():
    examples = documents(4)
    for number, example in enumerate(examples):
        example.record["source"] = f"bn/abc_{number // 2} part 00{number % 2}"
    _, totals = count_antecedents(examples, "words").right_of_head("all", (0, 0, 0))
    assert totals.tolist() == [5, 5]


@pytest.mark.parametrize("mentions", [[], [(0, 1, None)], [(0, 1, 3)]])
def test_documents_without_antecedents_are_refused(mentions):
    text = record("Ann slept", mentions)
    with pytest.raises(InputError, match="no mention has an antecedent"):
        count_antecedents([random_example(np.random.default_rng(0), "full", text)], "words")
    with pytest.raises(InputError, match="no mention has an antecedent"):
        count_rules([text])


def test_the_best_head_of_a_type_is_another_and_that_of_no_mention_is_the_best_of_all():
    examples = documents(finds=lambda record: "doctor" in record["words"])
    for example in examples[::2]:  # of Ann's documents, head 2-2 finds all and 2-3 nothing
        point(example, 1, 1, {5: 0, 7: 3, 9: 0})
        point(example, 1, 2, {5: 1, 7: 1, 9: 1})
    counts = count_antecedents(examples, "words")
    assert best_head(counts) == (1, 1)
    assert best_head(counts, "nominal") == (1, 2)
    without = count_antecedents(examples[::2], "words")
    assert without.size("nominal") == 0 and best_head(without, "nominal") == best_head(without)
