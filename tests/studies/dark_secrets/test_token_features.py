"""Attention by kind of token: kinds by hand, shares by hand, and a table of real maps."""

import numpy as np
import pytest

from helpers.data.corpora import resolve_treebank
from helpers.store.extract import extract
from helpers.studies.dark_secrets import token_features as features
from helpers.studies.fine_tune import FineTuned, Recipe, fine_tune
from helpers.studies.tasks import Pair, Task
from helpers.studies.wikipedia_tasks import Tagged

SENTENCE = Tagged(
    0, "", ("She", "does", "n't", "like", "cats"), ("PRP", "VBZ", "RB", "VB", "NNS"),
    (4, 4, 4, 0, 4), ("nsubj", "aux", "neg", "root", "dobj"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ATTENTION_HEADLESS", "1")


def test_kinds_of_tokens():
    kinds = features.token_kinds(SENTENCE)
    assert {name: np.flatnonzero(there).tolist() for name, there in kinds.items()} == {
        "cls": [0], "sep": [6], "noun": [5], "verb": [2, 4], "pronoun": [1], "subject": [1],
        "object": [5], "negation": [3],
    }  # fmt: skip
    without = features.token_kinds(SENTENCE, first=False, last=False)
    assert not without["cls"].any() and without["noun"].tolist() == [False] * 4 + [True]


def test_shares_of_one_sentence():
    rows = np.zeros((1, 1, 7, 7))
    rows[..., 0] = 0.5
    rows[..., 2] = rows[..., 4] = 0.25
    rows[0, 0, 0] = np.eye(7)[6]  # [CLS] attends to [SEP] alone
    shares = features.kind_shares(rows, features.token_kinds(SENTENCE))
    assert shares["cls"].item() == pytest.approx(6 / 7 * 0.5)
    assert shares["verb"].item() == pytest.approx(6 / 7 * 0.5)
    assert shares["sep"].item() == pytest.approx(1 / 7)
    assert shares["from_cls_sep"].item() == 1 and shares["from_cls_cls"].item() == 0


def test_a_table_of_a_model_before_and_after(tiny_encoder, tmp_path):
    encoder = tiny_encoder("bert")
    pairs = tuple(Pair(f"the {noun}", None, int(noun == "dogs")) for noun in ("cat", "dogs") * 8)
    task = Task("pets", ("one", "more"), pairs, pairs)
    run = FineTuned(encoder, task, Recipe(max_tokens=16, epochs=1, learning_rate=0.1), tmp_path)
    row = "{}\t{}\t_\tX\t_\t_\t{}\t{}\t_\t_"
    words = [(1, "She", 2, "nsubj"), (2, "likes", 0, "root"), (3, "cats", 2, "obj")]
    path = tmp_path / "trees.conllu"
    path.write_text(("\n".join(row.format(*word) for word in words) + "\n\n") * 12)
    store = extract(encoder, resolve_treebank(str(path)), level="word", max_tokens=32)
    table = features.feature_table(fine_tune([run]), store, seed=0)
    whole = np.mean([example.attention.astype(float) for example in store], axis=0)
    own = table[table["weights"] == "pretrained"]
    assert len(own) == encoder.layers * encoder.heads
    assert np.allclose(own["cls"], whole[..., 0].mean(axis=-1).ravel(), atol=1e-3)
    assert np.allclose(own["object"], whole[..., 3].mean(axis=-1).ravel(), atol=1e-3)
    assert own["negation"].isna().all()  # there is none
    last = own[own["layer"] == encoder.layers]
    assert np.allclose(last["from_cls_sep"], whole[-1, :, 0, -1], atol=1e-3)
    assert own.loc[own["layer"] < encoder.layers, "from_cls_sep"].isna().all()
    tuned = table[table["weights"] == "fine-tuned"]
    assert (tuned["task"] == "pets").all() and not np.allclose(tuned["cls"], own["cls"])
    even = features.features_by_layer(table).loc[("uniform", "none")]
    assert even["cls"].item() == pytest.approx(1 / 5)
    from_cls = features.from_cls(table)
    assert from_cls.loc[("pretrained", "none"), "sep"] == pytest.approx(last["from_cls_sep"].mean())
