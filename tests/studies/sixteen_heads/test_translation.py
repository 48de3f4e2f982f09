"""A translator learns what it is shown, and loses it as heads are pruned."""

import copy
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from helpers.studies.sixteen_heads import translation
from helpers.studies.sixteen_heads.translation import Translation, Translator, number_pairs

LAYERS, HEADS = 2, 3
TINY = translation.TranslationRecipe(layers=1, heads=2, width=16, epochs=1, batch_size=16)
NUMBERS = tuple(translation.translation_of(number) for number in range(100))
PAIRS = number_pairs(12, seed=0)


@pytest.fixture(scope="module")
def learned():
    recipe = translation.TranslationRecipe(layers=2, heads=2, width=32, epochs=40, batch_size=25)
    return translation.train_translator(NUMBERS, recipe)


@pytest.fixture(scope="module")
def drawn():
    """Random weights, far from uniform attention."""
    translator = Translator(
        PAIRS, translation.TranslationRecipe(layers=LAYERS, heads=HEADS, width=24)
    )
    with torch.no_grad():
        for name, parameter in translator.model.named_parameters():
            if "proj" in name or "fc" in name:
                parameter.mul_(4)
    translator.model.eval().requires_grad_(False)
    return translator


def test_pairs_are_different_numbers_of_all_lengths():
    pairs = number_pairs(1000, seed=3)
    assert len(pairs) == len({*pairs}) == 1000
    assert {len(pair.target.split()) for pair in pairs} == {1, 2, 3, 4, 5, 6}
    assert number_pairs(1000, seed=3) == pairs != number_pairs(1000, seed=4)
    words = "nine hundred and ninety nine thousand two hundred and five"
    assert translation.translation_of(999_205) == Translation(words, "9 9 9 2 0 5")


def test_words_become_ids_and_words_again_and_padding_is_no_label():
    translator = Translator([Translation("two", "one")], TINY)
    ids = translator.ids("one two three")
    assert len(ids) == 4 and translator.text([0, *ids, 0]) == "one two <unk>"
    batch = translator.batch([Translation("one", "two two"), Translation("one two one", "two")])
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (2, 4)
    assert batch["attention_mask"].sum(dim=1).tolist() == [2, 4]
    assert (batch["labels"] == translation.IGNORED_LABEL).sum(dim=1).tolist() == [0, 1]


@pytest.mark.parametrize("kind", translation.ATTENTION_KINDS)
def test_gradients_are_those_of_each_pair_alone_by_small_steps(drawn, kind):
    found = translation.head_gradients(drawn, PAIRS, kind)
    assert found.shape == (len(PAIRS), LAYERS, HEADS)
    model, step = copy.deepcopy(drawn.model).double(), 1e-4
    for layer, head in ((0, 1), (1, 2)):
        ends = []
        for sign in (1, -1):
            mask = torch.ones(LAYERS, HEADS, dtype=torch.double)
            mask[layer, head] += sign * step
            with translation.mask_attention_kind(model, mask, kind):
                batches = [drawn.batch([pair]) for pair in PAIRS]
                logits = [model(**batch).logits[0] for batch in batches]
            labels = [batch["labels"][0] for batch in batches]
            ends.append([F.cross_entropy(*b).item() for b in zip(logits, labels, strict=True)])
        slope = np.subtract(*ends) / (2 * step)
        np.testing.assert_allclose(found[:, layer, head], slope, atol=2e-4)


def test_greedy_translation_takes_the_likeliest_word_each_time(drawn, monkeypatch):
    monkeypatch.setattr(translation, "BATCH_SIZE", 5)
    found = translation.translate(drawn.model, drawn, [pair.source for pair in PAIRS])
    assert len(set(found)) > 1
    for pair, text in zip(PAIRS, found, strict=True):
        source, ids = torch.tensor([drawn.ids(pair.source)]), [0]
        while len(ids) <= source.shape[1] + 2 and ids[-1] != 1:
            scores = drawn.model(input_ids=source, decoder_input_ids=torch.tensor([ids]))
            ids.append(int(scores.logits[0, -1].argmax()))
        expected = drawn.text(ids[1:])
        assert text.startswith(expected)
        assert text == expected or ids[-1] != 1


def test_it_learns_and_its_curves_start_whole_and_end_with_no_head(learned):
    test = NUMBERS[::4]
    table = translation.pruning_curves(learned, NUMBERS[:40], test)
    assert list(table["kind"].unique()) == list(translation.ATTENTION_KINDS)
    for kind, rows in table.groupby("kind"):
        assert rows["kept"].tolist() == [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0]
        assert rows["heads"].tolist()[::10] == [4, 0] and rows["heads"].is_monotonic_decreasing
        with translation.mask_attention_kind(learned.model, torch.zeros(2, 2), kind):
            found = translation.translate(learned.model, learned, [p.source for p in test])
        exact = 100 * np.mean([a == b.target for a, b in zip(found, test, strict=True)])
        assert rows["exact"].iloc[-1] == exact
    whole = table[table["kept"] == 1]
    assert whole["bleu"].nunique() == whole["exact"].nunique() == 1
    assert whole["exact"].iloc[0] > 80
    # without cross-attention the decoder knows nothing of the number
    assert table.set_index(["kind", "kept"]).loc[("cross", 0.0), "exact"] < 10


def test_the_table_is_kept_and_the_seed_alone_decides_it(tmp_path, monkeypatch):
    monkeypatch.setattr(translation, "TranslationRecipe", partial(replace, TINY))
    found = []
    for cache, seed in (("a", 0), ("b", 0), ("b", 1)):
        monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / cache))
        torch.rand(3)
        found.append(translation.translation_pruning(examples=8, seed=seed))
    one, two, other = found
    assert (one["pairs"] == 2).all()
    assert one.equals(two) and not one.equals(other)
    monkeypatch.setattr(translation, "MAX_EXAMPLES", 8)
    monkeypatch.delattr(translation, "pruning_curves")
    assert translation.translation_pruning(examples=None, seed=1).equals(other)
    assert translation.translation_pruning(examples=8, seed=1).equals(other)


def test_exact_matches_and_a_bleu_by_hand():
    same = ["3 2 0 5", "1 2 3 4 5 6"]
    pairs = [Translation("", target) for target in same]
    bleu, exact = translation.translation_scores(same, pairs)
    assert (round(bleu, 6), exact) == (100, 100)
    # 9 of 10 words, 6 of 8 pairs, 4 of 6 triples, 2 of 4 quadruples; same length
    bleu, exact = translation.translation_scores(["3 2 0 5", "1 2 3 4 9 6"], pairs)
    assert bleu == pytest.approx(100 * math.prod([9 / 10, 6 / 8, 4 / 6, 2 / 4]) ** 0.25)
    assert exact == 50
    assert translation.translation_scores(["", ""], pairs) == (0, 0)
