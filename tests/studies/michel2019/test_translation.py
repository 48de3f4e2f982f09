"""A translation model: its numbers, its training, its gradients, and pruning."""

import copy
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from helpers.studies.michel2019 import translation
from helpers.studies.michel2019.translation import Translation, Translator, number_pairs

LAYERS = 2
HEADS = 3
TINY = translation.TranslationRecipe(layers=1, heads=2, width=16, epochs=1, batch_size=16)
NUMBERS = tuple(translation.translation_of(number) for number in range(100))
TEST_NUMBERS = NUMBERS[::4]
PAIRS = number_pairs(12, seed=0)


@pytest.fixture(scope="module")
def learned():
    recipe = translation.TranslationRecipe(layers=2, heads=2, width=32, epochs=40, batch_size=25)
    return translation.train_translator(NUMBERS, recipe)


@pytest.fixture(scope="module")
def untrained():
    """Make a model with random weights whose attention is far from uniform."""
    translator = Translator(
        PAIRS, translation.TranslationRecipe(layers=LAYERS, heads=HEADS, width=24)
    )
    with torch.no_grad():
        for name, parameter in translator.model.named_parameters():
            if "proj" in name or "fc" in name:
                parameter.mul_(4)
    translator.model.eval().requires_grad_(False)
    return translator


def test_number_pairs_are_different_numbers_of_all_lengths():
    pairs = number_pairs(1000, seed=3)
    assert len(pairs) == len(set(pairs)) == 1000
    assert {len(pair.target.split()) for pair in pairs} == {1, 2, 3, 4, 5, 6}
    assert pairs == number_pairs(1000, seed=3)
    assert pairs != number_pairs(1000, seed=4)


def test_translation_of_a_number_has_no_commas_or_hyphens():
    words = "nine hundred and ninety nine thousand two hundred and five"
    assert translation.translation_of(999_205) == Translation(words, "9 9 9 2 0 5")


def test_translator_converts_words_to_ids_and_back():
    translator = Translator([Translation("two", "one")], TINY)
    ids = translator.ids("one two three")
    assert len(ids) == 4
    assert translator.text([0, *ids, 0]) == "one two <unk>"


def test_translator_batch_is_padded_and_ignores_padding_labels():
    translator = Translator([Translation("two", "one")], TINY)
    batch = translator.batch([Translation("one", "two two"), Translation("one two one", "two")])
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (2, 4)
    assert batch["attention_mask"].sum(dim=1).tolist() == [2, 4]
    assert (batch["labels"] == translation.IGNORED_LABEL).sum(dim=1).tolist() == [0, 1]


def losses_under(model, mask, attention_kind, translator):
    """Compute the loss of each pair with masked heads."""
    losses = []
    with translation.mask_attention_kind(model, mask, attention_kind):
        for pair in PAIRS:
            batch = translator.batch([pair])
            logits = model(**batch).logits[0]
            losses.append(F.cross_entropy(logits, batch["labels"][0]).item())
    return np.array(losses)


@pytest.mark.parametrize("attention_kind", translation.ATTENTION_KINDS)
def test_head_gradients_are_slopes_of_the_loss_of_each_pair(untrained, attention_kind):
    gradients = translation.head_gradients(untrained, PAIRS, attention_kind)
    assert gradients.shape == (len(PAIRS), LAYERS, HEADS)
    model = copy.deepcopy(untrained.model).double()
    step = 1e-4
    for layer, head in ((0, 1), (1, 2)):
        raised = torch.ones(LAYERS, HEADS, dtype=torch.double)
        raised[layer, head] += step
        lowered = torch.ones(LAYERS, HEADS, dtype=torch.double)
        lowered[layer, head] -= step
        above = losses_under(model, raised, attention_kind, untrained)
        below = losses_under(model, lowered, attention_kind, untrained)
        slopes = (above - below) / (2 * step)
        np.testing.assert_allclose(gradients[:, layer, head], slopes, atol=2e-4)


def test_translate_takes_the_likeliest_word_at_each_step(untrained, monkeypatch):
    monkeypatch.setattr(translation, "BATCH_SIZE", 5)
    sources = [pair.source for pair in PAIRS]
    texts = translation.translate(untrained.model, untrained, sources)
    assert len(set(texts)) > 1
    for pair, text in zip(PAIRS, texts, strict=True):
        source = torch.tensor([untrained.ids(pair.source)])
        ids = [0]
        while len(ids) <= source.shape[1] + 2 and ids[-1] != 1:
            decoded = torch.tensor([ids])
            scores = untrained.model(input_ids=source, decoder_input_ids=decoded)
            ids.append(int(scores.logits[0, -1].argmax()))
        expected = untrained.text(ids[1:])
        assert text.startswith(expected)
        assert text == expected or ids[-1] != 1


@pytest.fixture(scope="module")
def curves(learned):
    return translation.pruning_curves(learned, NUMBERS[:40], TEST_NUMBERS)


@pytest.mark.parametrize("attention_kind", translation.ATTENTION_KINDS)
def test_pruning_curves_end_without_any_head(learned, curves, attention_kind):
    rows = curves[curves["kind"] == attention_kind]
    assert rows["kept"].tolist() == [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0]
    assert rows["heads"].is_monotonic_decreasing
    assert rows["heads"].iloc[0] == 4
    assert rows["heads"].iloc[-1] == 0
    with translation.mask_attention_kind(learned.model, torch.zeros(2, 2), attention_kind):
        texts = translation.translate(learned.model, learned, [p.source for p in TEST_NUMBERS])
    targets = [pair.target for pair in TEST_NUMBERS]
    exact = 100 * np.mean(np.array(texts) == np.array(targets))
    assert rows["exact"].iloc[-1] == exact


def test_pruning_curves_begin_with_the_trained_model(curves):
    all_heads = curves[curves["kept"] == 1]
    assert all_heads["bleu"].nunique() == 1
    assert all_heads["exact"].nunique() == 1
    assert (all_heads["exact"] > 80).all()


def test_pruning_curves_without_cross_attention_find_no_number(curves):
    is_without_cross = (curves["kind"] == "cross") & (curves["kept"] == 0)
    assert curves.loc[is_without_cross, "exact"].item() < 10


@pytest.fixture
def prune_tiny(tmp_path, monkeypatch):
    """Train and prune a tiny model, with a cache of a given name."""
    monkeypatch.setattr(translation, "TranslationRecipe", partial(replace, TINY))

    def prune(cache, seed):
        monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / cache))
        torch.rand(3)  # random numbers of others do not matter
        return translation.translation_pruning(examples=8, seed=seed)

    return prune


def test_translation_pruning_depends_on_the_seed_only(prune_tiny):
    table = prune_tiny("first", seed=0)
    assert (table["pairs"] == 2).all()
    assert table.equals(prune_tiny("second", seed=0))
    assert not table.equals(prune_tiny("second", seed=1))


def test_translation_pruning_is_read_from_the_cache(prune_tiny, monkeypatch):
    table = prune_tiny("first", seed=1)
    monkeypatch.setattr(translation, "MAX_EXAMPLES", 8)
    monkeypatch.delattr(translation, "pruning_curves")
    assert prune_tiny("first", seed=1).equals(table)
    assert translation.translation_pruning(examples=None, seed=1).equals(table)


TARGETS = [Translation("", "3 2 0 5"), Translation("", "1 2 3 4 5 6")]


@pytest.mark.parametrize(
    ("texts", "expected_bleu", "expected_exact"),
    [
        (["3 2 0 5", "1 2 3 4 5 6"], 100, 100),
        # 9 of 10 words, 6 of 8 pairs, 4 of 6 triples, 2 of 4 quadruples; the same length
        (
            ["3 2 0 5", "1 2 3 4 9 6"],
            100 * math.prod([9 / 10, 6 / 8, 4 / 6, 2 / 4]) ** 0.25,
            50,
        ),
        (["", ""], 0, 0),
    ],
)
def test_translation_scores_by_hand(texts, expected_bleu, expected_exact):
    bleu, exact = translation.translation_scores(texts, TARGETS)
    assert bleu == pytest.approx(expected_bleu)
    assert exact == expected_exact
