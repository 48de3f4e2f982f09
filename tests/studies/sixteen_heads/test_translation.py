"""A translator is trained once, learns what it is shown, and loses it as heads are pruned."""

import math

import numpy as np
import pytest
import torch

from helpers.studies.sixteen_heads import translation
from helpers.studies.sixteen_heads.numbers import Translation, number_pairs, translation_of
from helpers.studies.sixteen_heads.translation import (
    TranslationRecipe,
    pruning_curves,
    train_translator,
    translation_scores,
    translation_tables,
)
from helpers.studies.sixteen_heads.translator import KINDS, masked, translate

TINY = TranslationRecipe(layers=1, heads=2, width=16, epochs=1, batch_size=16)
SOME = number_pairs(60, 1, seed=0)[0]
PAIRS = tuple(translation_of(number) for number in range(100))


def trained_in(root, pairs, recipe):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTENTION_CACHE", str(root))
        return train_translator(pairs, recipe)


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    recipe = TranslationRecipe(layers=2, heads=2, width=32, epochs=40, batch_size=25)
    return trained_in(tmp_path_factory.mktemp("cache"), PAIRS, recipe)


def test_curves_start_whole_and_end_with_no_head(translator):
    test = PAIRS[::4]
    table = pruning_curves(translator, PAIRS[:40], test)
    assert list(table["kind"].unique()) == list(KINDS)
    for kind, rows in table.groupby("kind"):
        assert rows["kept"].tolist() == [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0]
        assert rows["heads"].tolist()[::10] == [4, 0]
        assert rows["heads"].is_monotonic_decreasing
        with masked(translator.model, kind, torch.zeros(2, 2)):
            found = translate(translator.model, translator.codec, [p.source for p in test])
        exact = 100 * np.mean([a == b.target for a, b in zip(found, test, strict=True)])
        assert rows["exact"].iloc[-1] == exact
    whole = table[table["kept"] == 1]
    assert whole["bleu"].nunique() == whole["exact"].nunique() == 1
    assert whole["exact"].iloc[0] > 80
    # without cross-attention the decoder knows nothing of the number
    assert table.set_index(["kind", "kept"]).loc[("cross", 0.0), "exact"] < 10


def test_what_was_trained_and_computed_is_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path))
    first = translation_tables(examples=8, seed=0)
    curves = first["translation_pruning"]
    assert list(curves.columns) == ["kind", "kept", "heads", "pairs", "bleu", "exact"]
    assert (curves["pairs"] == 2).all()
    monkeypatch.delattr(translation, "pruning_curves")
    again = translation_tables(examples=8, seed=0)
    assert all(again[name].equals(table) for name, table in first.items())


def test_each_head_alone_and_all_of_a_layer_but_one(translator):
    test = PAIRS[::3]
    single, one = translation.each_head(translator, test), translation.one_head(translator, test)
    assert len(single) == 3 * 2 * 2 and len(one) == 3 * 2
    sources = [pair.source for pair in test]
    whole = translate(translator.model, translator.codec, sources)
    for kind in KINDS:
        mask = torch.ones(2, 2)
        mask[1, 0] = 0
        with masked(translator.model, kind, mask):
            found = translate(translator.model, translator.codec, sources)
        own = single.query("kind == @kind and layer == 2 and head == 1").iloc[0]
        bleu, exact = translation_scores(found, test)
        before = translation_scores(whole, test)
        assert (own["bleu"], own["exact"]) == (bleu, exact)
        assert own["change"] == pytest.approx(bleu - before[0])
        assert own["exact_change"] == pytest.approx(exact - before[1])
    assert (one["pairs"] == len(test) - len(test) // 3).all()  # a third has chosen the heads
    assert not single.loc[single["exact_change"] < -5, "removable"].any()


# Training


def weights(translator):
    return dict(translator.model.named_parameters())


def test_second_time_it_is_found(tmp_path, monkeypatch):
    first = trained_in(tmp_path, SOME, TINY)
    (folder,) = [path for path in (tmp_path / "translators").iterdir() if path.is_dir()]
    assert {path.name for path in folder.iterdir()} >= {"final.safetensors", "run.json"}
    monkeypatch.delattr(translation, "_train")
    second = trained_in(tmp_path, SOME, TINY)
    assert first.identity == second.identity
    for name, tensor in weights(first).items():
        assert torch.equal(tensor, weights(second)[name])


def test_same_seed_same_weights_and_another_seed_others(tmp_path):
    state = torch.get_rng_state()
    one = trained_in(tmp_path / "a", SOME, TINY)
    torch.rand(3)
    two = trained_in(tmp_path / "b", SOME, TINY)
    other = trained_in(tmp_path, SOME, TranslationRecipe(**{**vars(TINY), "seed": 1}))
    torch.set_rng_state(state)
    assert all(torch.equal(tensor, weights(two)[n]) for n, tensor in weights(one).items())
    assert one.identity["weights"] == two.identity["weights"] != other.identity["weights"]
    matrix = "model.encoder.layers.0.fc1.weight"
    assert not torch.equal(weights(one)[matrix], weights(other)[matrix])


def test_failed_training_leaves_nothing(tmp_path, monkeypatch):
    def failing(*_args):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(translation, "_train", failing)
    with pytest.raises(RuntimeError, match="out of luck"):
        trained_in(tmp_path, SOME, TINY)
    assert [p for p in (tmp_path / "translators").iterdir() if p.is_dir()] == []


def test_damaged_weights_are_trained_again(tmp_path):
    translator = trained_in(tmp_path, SOME, TINY)
    path = tmp_path / "translators" / translator.identity["weights"] / "final.safetensors"
    whole = path.read_bytes()
    path.write_bytes(b"junk")
    trained_in(tmp_path, SOME, TINY)
    assert path.read_bytes() == whole


def test_it_learns(tmp_path):
    pairs = tuple(translation_of(number) for number in range(100))
    recipe = TranslationRecipe(layers=1, heads=2, width=32, epochs=45, batch_size=25)
    translator = trained_in(tmp_path, pairs, recipe)
    found = translate(translator.model, translator.codec, [pair.source for pair in pairs])
    assert sum(a == b.target for a, b in zip(found, pairs, strict=True)) > 80


# Scores


def test_exact_matches_and_a_bleu_by_hand():
    same = ["3 2 0 5", "1 2 3 4 5 6"]
    pairs = [Translation("", target) for target in same]
    bleu, exact = translation_scores(same, pairs)
    assert (round(bleu, 6), exact) == (100, 100)
    # 9 of 10 words, 6 of 8 pairs, 4 of 6 triples, 2 of 4 quadruples; same length
    bleu, exact = translation_scores(["3 2 0 5", "1 2 3 4 9 6"], pairs)
    expected = 100 * math.prod([9 / 10, 6 / 8, 4 / 6, 2 / 4]) ** 0.25
    assert bleu == pytest.approx(expected)
    assert exact == 50


def test_nothing_said_scores_nothing():
    assert translation_scores(["", ""], [Translation("", "1 2"), Translation("", "3")]) == (0, 0)
