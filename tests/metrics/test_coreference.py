"""Antecedents that heads and rules pick: by hand, or against a slow reference."""

import numpy as np
import pytest

from helpers.errors import InputError
from helpers.metrics.coreference import (
    ROWS,
    SYSTEMS,
    coreference_held_out,
    coreference_table,
    document_mentions,
    evaluate_antecedents,
    select_antecedent,
)
from helpers.store.store import Example

LAYERS = 2
HEADS = 3
TAGS = {
    "Ann": "PROPN", "Bob": "PROPN", "Lee": "PROPN", "Kim": "PROPN",
    "she": "PRON", "he": "PRON", "it": "PRON", "they": "PRON", "we": "PRON", "her": "PRON",
    "dog": "NOUN", "cat": "NOUN", "dogs": "NOUN", "box": "NOUN", "doctor": "NOUN",
    "the": "DET", "a": "DET", "old": "ADJ", "and": "CCONJ",
}  # fmt: skip

# 0 Ann 1 saw 2 the 3 dog 4 when 5 she 6 fed 7 it 8 and 9 Ann
ANN_AND_DOG = "Ann saw the dog when she fed it and Ann slept"
ANN_AND_DOG_MENTIONS = ((0, 1, 1), (2, 4, 2), (5, 6, 1), (7, 8, 2), (9, 10, 1))
# Those with an antecedent are two pronouns (she, it) and a name (Ann).

# 0 the 1 doctor 2 saw 3 a 4 cat 5 when 6 the 7 dog 8 saw 9 the 10 cat; the dog is the doctor
DOCTOR = "the doctor saw a cat when the dog saw the cat"
DOCTOR_MENTIONS = ((0, 2, 1), (3, 5, 2), (6, 8, 1), (9, 11, 2))


def record(text, *mentions, split="train"):
    """Make a document; a mention is (first word, end, chain), and its last word is its head."""
    words = text.split()
    return {
        "words": words,
        "tags": [TAGS.get(word, "VERB") for word in words],
        "mentions": [[start, end, chain, end - 1] for start, end, chain in mentions],
        "split": split,
        "source": "made up",
    }


def ann_and_dog(split="train"):
    """Make the document of Ann and the dog."""
    return record(ANN_AND_DOG, *ANN_AND_DOG_MENTIONS, split=split)


def in_both_splits(count):
    """Make documents of Ann and the dog, as many for train as for dev."""
    return [ann_and_dog(split) for split in ("train", "dev") * count]


def first_mention(document, word):
    """Find the head word of the first mention of a word's chain; None for that word itself."""
    chains = {head: chain for _, _, chain, head in document["mentions"]}
    heads = [head for _, _, chain, head in document["mentions"] if chain == chains.get(word)]
    return heads[0] if heads and heads[0] != word else None


def first_mention_on_dev(document, word):
    """Find a right word on dev, and a verb on train."""
    return first_mention(document, word) if document["split"] == "dev" else 10


def nothing(document, word):
    return None


def planted(documents, choose, *, seed=0):
    """Yield random maps, in which head 2-3 attends from each word to the word of ``choose``."""
    generator = np.random.default_rng(seed)
    for index, document in enumerate(documents):
        positions = len(document["words"]) + 2
        maps = generator.random((LAYERS, HEADS, positions, positions))
        maps[..., -1] += 10  # as in BERT, [SEP] gets most of the attention; it must not count
        for word in range(positions - 2):
            target = choose(document, word)
            if target is not None:
                maps[1, 2, word + 1, :] = 0
                maps[1, 2, word + 1, target + 1] = 0.4
                maps[1, 2, word + 1, -1] = 0.6
        maps /= maps.sum(axis=-1, keepdims=True)
        yield Example(index, maps.astype(np.float16), document)


@pytest.mark.parametrize(
    ("system", "text", "mentions", "expected"),
    [
        pytest.param(
            "nearest mention", "Ann saw Bob when she sang", [(0, 1), (2, 3), (4, 5)], "bob",
            id="nearest mention",
        ),
        pytest.param(
            "nearest mention", "Ann sang", [(0, 1)], None,
            id="no earlier mention",
        ),
        pytest.param(
            "head match", "The dog saw a dog and Ann hit the old dog",
            [(0, 2), (3, 5), (6, 7), (8, 11)], "a dog",
            id="nearest with that head word, in any case",
        ),
        pytest.param(
            "head match", "Ann saw a cat then Bob", [(0, 1), (2, 4), (5, 6)], None,
            id="no such head word",
        ),
        pytest.param(
            "match, else nearest", "the dog saw a cat and hit the dog", [(0, 2), (3, 5), (7, 9)],
            "the dog",
            id="same head word before a nearer mention",
        ),
        pytest.param(
            "match, else nearest", "Ann saw a cat then Bob", [(0, 1), (2, 4), (5, 6)], "a cat",
            id="nearest without such a head word",
        ),
        pytest.param(
            "rule-based", "The dog bit the old dog while the dog barked",
            [(0, 2), (3, 6), (7, 9)], "the dog",
            id="same words before a nearer head match",
        ),
        pytest.param(
            "rule-based", "the old dog bit a cat while the dog barked",
            [(0, 3), (4, 6), (7, 9)], "the old dog",
            id="same head word before a nearer mention that agrees",
        ),
        pytest.param(
            "rule-based", "Ann told Bob about a box that she liked",
            [(0, 1), (2, 3), (4, 6), (7, 8)], "ann",
            id="gender before nearer mentions",
        ),
        pytest.param(
            "rule-based", "the dogs bit a cat but they slept", [(0, 2), (3, 5), (6, 7)],
            "the dogs",
            id="number before a nearer mention",
        ),
        pytest.param(
            "rule-based", "the dogs bit when we said they slept", [(0, 2), (4, 5), (6, 7)],
            "the dogs",
            id="person before a nearer plural",
        ),
        pytest.param(
            "rule-based", "a box hit the dog and it broke", [(0, 2), (3, 5), (6, 7)], "the dog",
            id="nearer of two that agree",
        ),
        pytest.param(
            "rule-based", "Bob took a box when she slept", [(0, 1), (2, 4), (5, 6)], "a box",
            id="any mention if none agrees",
        ),
        pytest.param("rule-based", "she slept", [(0, 1)], None, id="rules, no earlier mention"),
    ],
)  # fmt: skip
def test_select_antecedent_for_the_last_mention(system, text, mentions, expected):
    in_own_chains = [(start, end, chain) for chain, (start, end) in enumerate(mentions)]
    listed = document_mentions(record(text, *in_own_chains))
    selected = select_antecedent(system, listed, len(listed) - 1)
    words = None if selected is None else " ".join(listed[selected].string)
    assert words == expected


def slow_judgements(example):
    """For each set of candidates and each mention with an antecedent: which heads are right."""
    mentions = example.record["mentions"]
    words = range(len(example.record["words"]))
    right = {"mentions": [], "words": []}
    for number, (_, _, chain, head_word) in enumerate(mentions):
        earlier = mentions[:number]
        gold = {head for _, _, same, head in earlier if chain is not None and same == chain}
        if not gold:
            continue
        later = mentions[number + 1 :]
        candidates = {
            "mentions": {head for _, _, _, head in earlier + later},
            "words": set(words) - {head_word},
        }
        rows = example.attention[:, :, head_word + 1].astype(float).reshape(-1, len(example))
        for name, allowed in candidates.items():
            picked = [max(allowed, key=row[1:].__getitem__) for row in rows]
            right[name].append([word in gold for word in picked])
    return right


@pytest.mark.parametrize("fourth_chain", [2, None], ids=["in a chain", "without a chain"])
def test_judge_of_heads_equals_a_slow_reference(fourth_chain):
    mentions = list(ANN_AND_DOG_MENTIONS)
    mentions[3] = (7, 8, fourth_chain)
    (example,) = planted([record(ANN_AND_DOG, *mentions)], nothing, seed=3)
    judgements = evaluate_antecedents([example])
    for name, right in slow_judgements(example).items():
        by_mention = judgements.heads[name].reshape(LAYERS * HEADS, -1).T
        np.testing.assert_array_equal(by_mention, right)


def test_judge_counts_documents_from_zero():
    documents = [ann_and_dog("train"), record("Ann slept", (0, 1, 0)), ann_and_dog("dev")]
    judgements = evaluate_antecedents(planted(documents, first_mention))
    assert judgements.mentions["document"].tolist() == [0, 0, 0, 1, 1, 1]
    assert judgements.mentions["split"].tolist() == ["train"] * 3 + ["dev"] * 3


def test_judge_of_rules_by_hand():
    judgements = evaluate_antecedents(planted([ann_and_dog()], first_mention))
    assert judgements.mentions[list(SYSTEMS)].to_dict("list") == {
        "nearest mention": [False, False, False],
        "head match": [False, False, True],
        "match, else nearest": [False, False, True],
        "rule-based": [True, True, True],
    }


def test_judge_marks_types_and_splits():
    judgements = evaluate_antecedents(planted([ann_and_dog()], first_mention))
    assert judgements.mentions["proper"].tolist() == [False, False, True]
    assert judgements.of_split("train").mentions["pronoun"].tolist() == [True, True, False]
    assert judgements.of_split("dev").mentions.empty


def test_unmatched_mentions_are_nominal():
    documents = [ann_and_dog(), record(DOCTOR, *DOCTOR_MENTIONS)]
    mentions = evaluate_antecedents(planted(documents, first_mention)).mentions
    # The dog is the doctor; the second cat has a match.
    assert mentions["nominal"].tolist() == [False] * 3 + [True, True]
    assert mentions["nominal without match"].tolist() == [False] * 3 + [True, False]


def test_coreference_table_has_a_row_for_each_system_and_type():
    table = coreference_table(evaluate_antecedents(planted(in_both_splits(4), first_mention)))
    assert list(table.columns) == [
        "system", "head", "candidates", "type", "n", "accuracy", "accuracy_low", "accuracy_high",
        "paper_accuracy", "chance",
    ]  # fmt: skip
    by_system = table.groupby(["system", "candidates"])["type"].agg(tuple)
    assert len(by_system) == 4 + 2 + 2  # rules, heads, held-out heads
    assert set(by_system) == {ROWS}


def test_coreference_table_has_intervals_around_accuracies():
    table = coreference_table(evaluate_antecedents(planted(in_both_splits(4), nothing)))
    scored = table.dropna(subset="accuracy")
    assert len(scored)
    assert (scored["accuracy_low"] <= scored["accuracy"]).all()
    assert (scored["accuracy"] <= scored["accuracy_high"]).all()


def test_coreference_table_scores_the_best_head():
    table = coreference_table(evaluate_antecedents(planted(in_both_splits(4), first_mention)))
    rows = table[(table["system"] == "head") & (table["candidates"] == "mentions")]
    rows = rows.set_index("type")
    assert set(rows["head"]) == {"2-3"}
    assert rows["n"].to_dict() == {
        "all": 24, "pronoun": 16, "proper": 8, "nominal": 0, "nominal without match": 0,
    }  # fmt: skip
    assert rows["accuracy"].dropna().to_dict() == {"all": 100, "pronoun": 100, "proper": 100}


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ("mentions", [65, 64, 73, 58, np.nan]),
        ("words", [65, 64, 73, 58, np.nan]),
    ],
)
def test_coreference_table_has_the_paper_s_figures_of_its_head(candidates, expected):
    table = coreference_table(evaluate_antecedents(planted(in_both_splits(4), first_mention)))
    rows = table[(table["system"] == "head") & (table["candidates"] == candidates)]
    in_paper = rows.set_index("type")["paper_accuracy"].loc[list(ROWS)]
    np.testing.assert_equal(in_paper.tolist(), expected)


def test_coreference_table_scores_held_out_heads_on_dev():
    table = coreference_table(evaluate_antecedents(planted(in_both_splits(4), first_mention)))
    held_out = table[table["system"].str.contains("chosen on train")]
    words = held_out[held_out["candidates"] == "words"].set_index("type")
    assert words["n"].to_dict() == {
        "all": 12, "pronoun": 8, "proper": 4, "nominal": 0, "nominal without match": 0,
    }  # fmt: skip
    assert held_out["paper_accuracy"].isna().all()


def test_tables_without_dev_have_no_held_out_heads():
    judgements = evaluate_antecedents(planted([ann_and_dog("train")] * 4, first_mention))
    assert coreference_held_out(judgements).empty
    assert set(coreference_table(judgements)["system"]) == {*SYSTEMS, "head"}


def test_best_head_on_train_does_not_see_dev():
    judgements = evaluate_antecedents(planted(in_both_splits(6), first_mention_on_dev))
    train = judgements.of_split("train")
    dev = judgements.of_split("dev")
    assert dev.accuracy("words")[1, 2] == 100
    assert train.accuracy("words")[1, 2] == 0
    assert dev.best_head("words") == (1, 2)
    assert train.best_head("words") != (1, 2)


def test_judge_refuses_records_without_mentions():
    (example,) = planted([ann_and_dog()], first_mention)
    with pytest.raises(InputError, match="no mention has an antecedent"):
        evaluate_antecedents([Example(7, example.attention, {"words": ["a"]})])


def test_judge_refuses_documents_without_antecedents():
    with pytest.raises(InputError, match="no mention has an antecedent"):
        evaluate_antecedents(planted([record("Ann slept", (0, 1, None))], first_mention))


def held_out_of(judgements, chosen_for):
    """Index the margins of the heads that are chosen for all mentions, or for each type."""
    table = coreference_held_out(judgements)
    rows = table[table["chosen_for"] == chosen_for]
    return rows.set_index(["candidates", "type", "against"]).sort_index()


def test_coreference_held_out_compares_the_head_of_train_with_rules():
    judgements = evaluate_antecedents(
        planted(in_both_splits(6), first_mention)
    )  # head 2-3 is always right
    table = held_out_of(judgements, "the type")
    on_dev = judgements.of_split("dev").mentions
    for rule in SYSTEMS:
        row = table.loc[("mentions", "all", rule)]
        assert row["head"] == "2-3"
        assert row["n"] == len(on_dev)
        assert row["margin"] == pytest.approx(100 - 100 * on_dev[rule].mean())
        assert row["margin_low"] <= row["margin"] <= row["margin_high"]


def test_coreference_held_out_without_a_type_has_no_difference():
    judgements = evaluate_antecedents(
        planted(in_both_splits(6), first_mention)
    )  # no nominal mention
    table = held_out_of(judgements, "the type")
    for combination in ("nominal minus all", "paper's mix of types"):
        assert np.isnan(table.loc[("words", combination, "head match"), "margin"])


@pytest.fixture
def two_heads():
    """Judgements in which head 2-2 is right about pronouns, and head 2-3 about nouns."""
    documents = in_both_splits(4)
    doctors = [record(DOCTOR, *DOCTOR_MENTIONS, split=split) for split in ("train", "dev") * 4]
    examples = list(planted([*documents, *doctors], first_mention))
    for example in examples:
        if example.record["words"] == ANN_AND_DOG.split():
            maps = example.stored_attention
            maps[1, 2] = maps[0, 0]
            # From she, it and Ann to Ann, the dog and Ann; [CLS] is position 0.
            maps[1, 1, [6, 8, 10]] = np.eye(len(example))[[1, 4, 1]]
    return evaluate_antecedents(examples)


def test_best_head_differs_between_types(two_heads):
    # A document about Ann has three mentions with an antecedent, one about the doctor has two.
    train = two_heads.of_split("train")
    assert train.best_head("words") == (1, 1)
    assert train.best_head("words", "nominal") == (1, 2)


def test_coreference_held_out_pairs_nominal_with_all(two_heads):
    table = held_out_of(two_heads, "the type")
    overall = table.loc[("words", "all", "head match")]
    nominal = table.loc[("words", "nominal", "head match")]
    difference = table.loc[("words", "nominal minus all", "head match")]
    assert overall["head"] == "2-2"
    assert nominal["head"] == "2-3"
    assert nominal["margin"] == 50
    assert difference["margin"] == pytest.approx(nominal["margin"] - overall["margin"])
    assert difference["margin_low"] < difference["margin"] < difference["margin_high"]


def test_coreference_held_out_has_the_margins_of_one_head(two_heads):
    table = held_out_of(two_heads, "all mentions")
    assert set(table.loc["words", "head"]) == {"2-2"}
    margins = table.loc["words", "margin"].unstack("against")["head match"]
    difference = margins["nominal"] - margins["all"]
    assert margins["nominal minus all"] == pytest.approx(difference)
    by_type = margins[["pronoun", "proper", "nominal"]]
    assert margins["paper's mix of types"] == pytest.approx(by_type @ [0.48, 0.32, 0.20])


def test_intervals_are_over_documents_whose_parts_are_one_cluster():
    documents = [ann_and_dog() for _ in range(4)]
    for number, document in enumerate(documents):
        document["source"] = f"bn/abc_{number // 2} part 00{number % 2}"
    judgements = evaluate_antecedents(planted(documents, first_mention))
    totals, counts = judgements.sums(np.ones(12), "all")
    assert counts.tolist() == [6, 6] and totals.tolist() == [600, 600]
