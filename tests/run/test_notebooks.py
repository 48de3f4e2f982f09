"""Notebooks of the series on inputs that lack something."""

import json

import pandas as pd
import pytest
import tiny_models
from notebook_tools import executed
from toy_corpora import write

from helpers.errors import InputError
from helpers.run import check_notebooks, list_notebooks
from helpers.settings import make_settings


def test_pairs_of_any_relation_run_and_need_no_trees(tmp_path, tiny_folder, figures, monkeypatch):
    """00 and 04 to their end on pairs without tags; the notebooks that need trees refuse them."""
    monkeypatch.setenv("ATTENTION_PROFILE", "quick")
    lines = []
    for number in range(40):
        words = ["Ann", "saw", "Bob", "and", "Bob", "saw", f"number{number}"]
        pairs = [[4, 2, "repeat"], [5, 1, "repeat"], [2, 4, "later"], [2, 6, "later"]]
        lines.append(json.dumps({"words": words, "pairs": pairs, "document": f"d{number // 4}"}))
    pairs_path = write(tmp_path, "pairs.jsonl", "\n".join(lines))
    text = write(tmp_path, "cats.txt", "\n".join(["A cat sat here.", "A dog sat there."] * 12))
    for number in ("00", "04"):
        executed(
            number, model=str(tiny_folder("bert")), pairs=str(pairs_path), text=str(text),
            max_tokens=48, device="cpu", name="pairs",
        )  # fmt: skip
    tables = figures.parent / "build" / "pairs" / "tables"
    held_out = pd.read_csv(tables / "dependency_heads_held_out.csv")
    assert set(held_out["relation"]) == {"All", "repeat", "later"}
    assert held_out["nearest_accuracy"].isna().all()
    settings = make_settings(pairs=str(pairs_path))
    check_notebooks(list_notebooks("00,01,04"), settings)
    for number in ("05", "07", "11"):
        with pytest.raises(InputError, match="--pairs"):
            check_notebooks(list_notebooks(number), settings)


def test_a_model_of_one_head_has_what_it_can_have(tmp_path, figures, monkeypatch):
    """Nothing within layers, nothing between them: 03 and 06 to their end, without a warning."""
    monkeypatch.setenv("ATTENTION_PROFILE", "quick")
    for name in ("num_hidden_layers", "num_attention_heads"):
        monkeypatch.setitem(tiny_models.SIZES, name, 1)
    model = tiny_models.save(tmp_path / "one", *tiny_models.bert())
    text = tmp_path / "cats.txt"
    text.write_text("\n".join("A cat sat here.\nA dog sat there." for _ in range(12)))
    for number in ("03", "06"):
        executed(number, model=str(model), text=str(text), max_tokens=32, device="cpu", name="one")
    tables = figures.parent / "build" / "one" / "tables"
    cohesion = pd.read_csv(tables / "cohesion.csv")
    assert cohesion[["within", "between"]].isna().all(axis=None)
