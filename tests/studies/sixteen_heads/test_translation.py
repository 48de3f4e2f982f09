"""The pruning curves of a translation model, of which the default run is one case."""

import numpy as np
import pytest
import torch

from helpers.errors import InputError
from helpers.studies.sixteen_heads import translation
from helpers.studies.sixteen_heads.numbers import translation_of
from helpers.studies.sixteen_heads.translation import (
    TranslationRecipe,
    importance_table,
    pruning_curves,
    train_translator,
    translation_pruning,
)
from helpers.studies.sixteen_heads.translator import KINDS, mask_gradients, masked, translate
from helpers.study import Study

PAIRS = tuple(translation_of(number) for number in range(100))


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    recipe = TranslationRecipe(layers=2, heads=2, width=32, epochs=40, batch_size=25)
    return train_translator(PAIRS, recipe, root=tmp_path_factory.mktemp("cache"))


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


def test_importance_is_the_mean_of_absolute_gradients(translator):
    table = importance_table(translator, PAIRS[:20]).set_index(["kind", "layer", "head"])
    assert len(table) == 3 * 2 * 2
    expected = np.abs(mask_gradients(translator, PAIRS[:20], "cross")).mean(axis=0)
    assert table.loc[("cross", 2, 1), "importance"] == pytest.approx(expected[1, 0])
    norms = (table["normalised"] ** 2).groupby(["kind", "layer"]).sum()
    np.testing.assert_allclose(norms, 1)


def test_default_study_trains_once(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path))
    study = Study(task_examples=8)
    first = translation_pruning(study)
    assert list(first.columns) == ["kind", "kept", "heads", "pairs", "bleu", "exact"]
    assert (first["pairs"] == 2).all()
    monkeypatch.delattr(translation, "pruning_curves")
    assert translation_pruning(study).equals(first)


def test_published_model_needs_sentences(tmp_path):
    with pytest.raises(InputError, match="no sentences to translate"):
        translation_pruning(Study(task_examples=8), model="Helsinki-NLP/opus-mt-en-de")
    with pytest.raises(InputError, match="not a folder"):
        translation_pruning(Study(task_examples=8), model="./no-model", sentences="pairs.tsv")
