import numpy as np
import pytest

from helpers.analysis import coreference
from helpers.analysis.coreference import ROWS, coreference_held_out, coreference_table, judge
from helpers.errors import InputError, MapError
from helpers.store.store import Example

TAGS = {
    "Ann": "PROPN", "Bob": "PROPN", "Lee": "PROPN", "Kim": "PROPN",
    "she": "PRON", "he": "PRON", "it": "PRON", "they": "PRON", "we": "PRON", "her": "PRON",
    "dog": "NOUN", "cat": "NOUN", "dogs": "NOUN", "box": "NOUN", "doctor": "NOUN",
    "the": "DET", "a": "DET", "old": "ADJ", "and": "CCONJ",
}  # fmt: skip


def record(text, *mentions, split="train"):
    """Each mention is (first word, end, chain); its head is its last word."""
    words = text.split()
    return {
        "words": words,
        "tags": [TAGS.get(word, "VERB") for word in words],
        "mentions": [[start, end, chain, end - 1] for start, end, chain in mentions],
        "split": split,
        "source": "made up",
    }


DOGS = [(0, 2), (3, 5), (6, 7), (8, 11)]


@pytest.mark.parametrize(
    ("system", "text", "mentions", "expected"),
    [
        ("nearest mention", "Ann saw Bob when she sang", [(0, 1), (2, 3), (4, 5)], "bob"),
        ("nearest mention", "Ann sang", [(0, 1)], None),
        # the nearest with that head, in any case
        ("head match", "The dog saw a dog and Ann hit the old dog", DOGS, "a dog"),
        ("head match", "Ann saw a cat then Bob", [(0, 1), (2, 4), (5, 6)], None),
        # the same words go before a nearer head match
        ("rule-based", "The dog bit the old dog while the dog barked",
         [(0, 2), (3, 6), (7, 9)], "the dog"),
        # the same head goes before a nearer mention that agrees
        ("rule-based", "the old dog bit a cat while the dog barked",
         [(0, 3), (4, 6), (7, 9)], "the old dog"),
        # gender: Bob and the box are nearer
        ("rule-based", "Ann told Bob about a box that she liked",
         [(0, 1), (2, 3), (4, 6), (7, 8)], "ann"),
        # number: the cat is nearer
        ("rule-based", "the dogs bit a cat but they slept", [(0, 2), (3, 5), (6, 7)], "the dogs"),
        # person: "we" is nearer and plural
        ("rule-based", "the dogs bit when we said they slept", [(0, 2), (4, 5), (6, 7)],
         "the dogs"),
        # of two that agree, the nearer
        ("rule-based", "a box hit the dog and it broke", [(0, 2), (3, 5), (6, 7)], "the dog"),
        # any mention where none agrees
        ("rule-based", "Bob took a box when she slept", [(0, 1), (2, 4), (5, 6)], "a box"),
        ("rule-based", "she slept", [(0, 1)], None),
    ],
)  # fmt: skip
def test_what_each_system_selects_for_the_last_mention(system, text, mentions, expected):
    chained = [(start, end, index) for index, (start, end) in enumerate(mentions)]
    found = coreference.document_mentions(record(text, *chained))
    chosen = coreference.selected(system, found, len(found) - 1)
    assert (None if chosen is None else " ".join(found[chosen].string)) == expected


LAYERS, HEADS = 2, 3


def planted(records, choose, seed=0):
    """Examples with random rows; head 2-3 puts 0.9 of word i's attention on ``choose(i)``."""
    generator = np.random.default_rng(seed)
    for index, example in enumerate(records):
        n = len(example["words"]) + 2
        maps = generator.random((LAYERS, HEADS, n, n))
        # As in BERT, [SEP] gets most of the attention; it must not count.
        maps[..., -1] += 10
        for word in range(n - 2):
            if (target := choose(example, word)) is not None:
                maps[1, 2, word + 1, :] = 0
                maps[1, 2, word + 1, [target + 1, -1]] = 0.4, 0.6
        maps /= maps.sum(axis=-1, keepdims=True)
        yield Example(index, maps.astype(np.float16), example)


# 0 Ann 1 saw 2 the 3 dog 4 when 5 she 6 fed 7 it 8 and 9 Ann
TEXT = "Ann saw the dog when she fed it and Ann slept"
MENTIONS = [(0, 1, 1), (2, 4, 2), (5, 6, 1), (7, 8, 2), (9, 10, 1)]


def first_mention(example, word):
    """Return the head word of the first mention of the chain that the word belongs to."""
    chains = {head: chain for _, _, chain, head in example["mentions"]}
    heads = [head for _, _, chain, head in example["mentions"] if chain == chains.get(word)]
    return heads[0] if heads and heads[0] != word else None


def test_heads_agree_with_a_slow_reference():
    records = [record(TEXT, *MENTIONS), record(TEXT, *MENTIONS[:3], (7, 8, None), MENTIONS[4])]
    examples = list(planted(records, lambda example, word: None, seed=3))
    judgements = judge(examples)
    expected = {name: [] for name in judgements.heads}
    for example in examples:
        mentions = example.record["mentions"]
        for i, (_, _, chain, head) in enumerate(mentions):
            right = {m[3] for m in mentions[:i] if chain is not None and m[2] == chain}
            options = {
                "mentions": {m[3] for j, m in enumerate(mentions) if j != i},
                "earlier mentions": {m[3] for m in mentions[:i]},
                "words": set(range(len(example.record["words"]))) - {head},
            }
            for name, words in options.items() if right else ():
                rows = example.attention[:, :, head + 1].astype(float).reshape(-1, len(example))
                picked = [max(words, key=row[1:].__getitem__) for row in rows]
                expected[name].append([word in right for word in picked])
    for name, right in judgements.heads.items():
        np.testing.assert_array_equal(right.reshape(LAYERS * HEADS, -1).T, expected[name])


def test_rules_types_and_splits_of_a_small_document():
    judgements = judge(planted([record(TEXT, *MENTIONS)], first_mention))
    # she, it, Ann in turn
    assert judgements.types.tolist() == ["pronoun", "pronoun", "proper"]
    expected = {"nearest mention": [0, 0, 0], "head match": [0, 0, 1], "rule-based": [1, 1, 1]}
    assert {name: right.tolist() for name, right in judgements.rules.items()} == expected
    assert judgements.select("proper").tolist() == [False, False, True]
    assert not judgements.select(split="dev").any()


def by_split(example, word):
    """The planted head is right on dev only; on train it attends to a verb."""
    return first_mention(example, word) if example["split"] == "dev" else 10


def test_table_has_every_system_and_type_in_percent():
    records = [record(TEXT, *MENTIONS, split=split) for split in ("train", "dev") * 4]
    table = coreference_table(judge(planted(records, first_mention)))
    assert tuple(table.columns) == coreference.COLUMNS
    assert len(table) == (3 + 3 + 3) * len(ROWS)
    best = table[(table["system"] == "head") & (table["candidates"] == "mentions")]
    assert set(best["head"]) == {"2-3"}
    assert best["type"].tolist() == list(ROWS)
    assert best["n"].tolist() == [24, 16, 8, 0, 0]
    assert best["accuracy"].tolist()[:3] == [100, 100, 100]
    assert np.isnan(best["accuracy"].iloc[3])
    for reading in (best, table[(table["system"] == "head") & (table["candidates"] == "words")]):
        np.testing.assert_equal(reading["paper_accuracy"].tolist(), [65, 64, 73, 58, np.nan])
    held_out = table[table["system"].str.contains("chosen on train")]
    assert set(held_out["n"]) == {12, 8, 4, 0}  # no nominal mention
    assert held_out["paper_accuracy"].isna().all()
    scored = table.dropna(subset="accuracy")
    assert (scored["ci_low"] <= scored["accuracy"]).all()
    assert (scored["accuracy"] <= scored["ci_high"]).all()


def test_held_out_head_is_chosen_without_a_look_at_dev():
    records = [record(TEXT, *MENTIONS, split=split) for split in ("train", "dev") * 6]
    judgements = judge(planted(records, by_split))
    for split, right in (("dev", 100), ("train", 0)):
        assert judgements.accuracy("words", split)[1, 2] == right
        assert (judgements.best_head("words", split) == (1, 2)) == (right == 100)


def test_the_first_document_with_an_antecedent_is_found():
    without = record("Ann slept", (0, 1, 0))
    examples = list(planted([without, record(TEXT, *MENTIONS)], first_mention))
    assert coreference.first_document(examples).index == 1
    with pytest.raises(InputError, match="before a document is cut"):
        coreference.first_document(examples[:1])


def test_bad_input_is_refused():
    (example,) = planted([record(TEXT, *MENTIONS)], first_mention)
    with pytest.raises(InputError, match="no mentions"):
        judge([Example(7, example.attention, {"words": ["a"]})])
    with pytest.raises(InputError, match="antecedent"):
        judge(planted([record("Ann slept", (0, 1, None))], first_mention))
    with pytest.raises(MapError, match="example 0"):
        judge([Example(0, example.attention[..., :5, :5], example.record)])
    judgements = judge([example])
    with pytest.raises(InputError, match="no mention with an antecedent in no-such split"):
        judgements.accuracy(split="no-such")


def test_margins_over_rules_are_of_the_head_that_train_chose_on_dev():
    records = [record(TEXT, *MENTIONS, split=split) for split in ("train", "dev") * 6]
    judgements = judge(planted(records, first_mention))  # head 2-3 is always right
    table = coreference_held_out(judgements).set_index(["candidates", "type", "against"])
    for rule, right in judgements.rules.items():
        row = table.loc[("mentions", "all", rule)]
        mine = judgements.select(split="dev")
        assert (row["head"], row["n"]) == ("2-3", mine.sum())
        assert row["margin"] == pytest.approx(100 - 100 * right[mine].mean())
        assert row["ci_low"] <= row["margin"] <= row["ci_high"]
    assert np.isnan(table.loc[("words", "nominal less all", "head match"), "margin"])
    of_train = judge(planted(records[::2], first_mention))
    assert coreference_held_out(of_train).empty
    assert not coreference_table(of_train)["system"].str.contains("chosen on train").any()


# 0 the 1 doctor 2 saw 3 a 4 cat 5 when 6 the 7 dog 8 saw 9 the 10 cat; the dog is the doctor
NOMINAL = "the doctor saw a cat when the dog saw the cat"
NOMINALS = [(0, 2, 1), (3, 5, 2), (6, 8, 1), (9, 11, 2)]


def test_each_type_has_a_head_of_its_own_and_its_lead_over_all_is_paired():
    texts = [(TEXT, *MENTIONS), (NOMINAL, *NOMINALS)]
    records = [record(*text, split=split) for text in texts for split in ("train", "dev") * 4]
    examples = list(planted(records, first_mention))  # head 2-3 knows ...
    for example in examples[:8]:
        example.attention[1, 2] = example.attention[0, 0]  # ... but where none is a pronoun
        example.attention[1, 1, [6, 8, 10]] = np.eye(len(example))[[1, 4, 1]]  # which 2-2 does
    judgements = judge(examples)
    assert judgements.types[judgements.unmatched].tolist() == ["pronoun"] * 16 + ["nominal"] * 8
    assert judgements.select("nominal without match").sum() == 8
    assert judgements.best_head("words", "train") == (1, 1)  # three mentions a document, not two
    assert judgements.best_head("words", "train", "nominal") == (1, 2)
    table = coreference_held_out(judgements).set_index(["candidates", "type", "against"])
    of_all, nominal = (table.loc[("words", kind, "head match")] for kind in ("all", "nominal"))
    assert (of_all["head"], nominal["head"], nominal["margin"]) == ("2-2", "2-3", 50)
    more = table.loc[("words", "nominal less all", "head match")]
    assert more["margin"] == pytest.approx(nominal["margin"] - of_all["margin"])
    assert more["ci_low"] < more["margin"] < more["ci_high"]
