"""A translator is trained once, the same way each time, and learns what it is shown."""

import pytest
import torch

from helpers.errors import StoreError
from helpers.studies.sixteen_heads import translation
from helpers.studies.sixteen_heads.numbers import number_pairs, translation_of
from helpers.studies.sixteen_heads.translation import TranslationRecipe, train_translator
from helpers.studies.sixteen_heads.translator import translate

TINY = TranslationRecipe(layers=1, heads=2, width=16, epochs=1, batch_size=16)
PAIRS = number_pairs(60, 1, seed=0)[0]


def weights(translator):
    return dict(translator.model.named_parameters())


def test_second_time_it_is_found(tmp_path, monkeypatch):
    first = train_translator(PAIRS, TINY, root=tmp_path)
    (folder,) = [path for path in (tmp_path / "translators").iterdir() if path.is_dir()]
    assert sorted(path.name for path in folder.iterdir()) == ["final.safetensors", "run.json"]
    monkeypatch.delattr(translation, "_train")
    second = train_translator(PAIRS, TINY, root=tmp_path)
    assert first.identity == second.identity
    for name, tensor in weights(first).items():
        assert torch.equal(tensor, weights(second)[name])


def test_same_seed_same_weights_and_another_seed_others(tmp_path):
    state = torch.get_rng_state()
    one = train_translator(PAIRS, TINY, root=tmp_path / "a")
    torch.rand(3)
    two = train_translator(PAIRS, TINY, root=tmp_path / "b")
    other = train_translator(PAIRS, TranslationRecipe(**{**vars(TINY), "seed": 1}), root=tmp_path)
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
        train_translator(PAIRS, TINY, root=tmp_path)
    assert [p for p in (tmp_path / "translators").iterdir() if p.is_dir()] == []


def test_damaged_weights_are_named(tmp_path):
    translator = train_translator(PAIRS, TINY, root=tmp_path)
    path = tmp_path / "translators" / translator.identity["weights"] / "final.safetensors"
    path.write_bytes(b"junk")
    with pytest.raises(StoreError, match="remove the folder numbers--"):
        train_translator(PAIRS, TINY, root=tmp_path)


def test_it_learns(tmp_path):
    pairs = tuple(translation_of(number) for number in range(100))
    recipe = TranslationRecipe(layers=1, heads=2, width=32, epochs=45, batch_size=25)
    translator = train_translator(pairs, recipe, root=tmp_path)
    found = translate(translator.model, translator.codec, [pair.source for pair in pairs])
    assert sum(a == b.target for a, b in zip(found, pairs, strict=True)) > 80
