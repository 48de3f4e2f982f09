"""Several checkpoints of one model, run and compared by one command."""

import pandas as pd
import pytest
import tiny_models
import torch

from helpers.__main__ import main

STEPS = ("step-1", "step-2")
LAST = "In the last layer, [CLS] attends very broadly"


@pytest.fixture
def checkpoints(tmp_path):
    """Tiny models of one architecture, in folders."""
    folders = []
    for seed, name in enumerate(STEPS):
        torch.manual_seed(seed)
        model, tokenizer = tiny_models.FAMILIES["bert"]()
        model = tiny_models.spread(model, factor=6.0 * 2**seed)  # the later, the sharper its maps
        folders.append(tiny_models.save(tmp_path / name, model, tokenizer))
    return folders


def test_several_checkpoints_in_one_command(checkpoints, figures, tmp_path, capsys, monkeypatch):
    """``--model a,b``: each has its run, and each claim's number its mean and spread."""
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    text = tmp_path / "text.txt"
    lines = ("The {} cat sat on the old mat and slept.", "The dog saw the {} cat and ran away.")
    documents = ["\n".join(lines * 2).format(*[word] * 4) for word in ("big", "lazy", "small")]
    text.write_text("\n\n".join(documents))
    models = ",".join(map(str, checkpoints))
    arguments = ["--text", str(text), "--segments", "6", "--max-tokens", "48", "--device", "cpu"]
    assert main(["run", "--only", "03", "--model", models, *arguments]) == 0
    said = capsys.readouterr().out
    runs = [f"{name}--text--segments-6--max-tokens-48" for name in STEPS]
    found = []
    for run in runs:
        table = pd.read_csv(figures / run / "tables" / "entropy.csv")
        found.append(table.groupby("layer")["entropy_from_cls"].mean().iloc[-1])
    assert found[0] > found[1]
    folder = figures / "compare" / "-vs-".join(runs)
    rows = pd.read_csv(folder / "spread.csv").set_index("claim")
    row = rows.loc[LAST]
    assert row["runs"] == 2
    assert row["mean"] == pytest.approx(pd.Series(found).mean(), rel=1e-3)
    assert row["sd"] == pytest.approx(pd.Series(found).std(), rel=1e-3)
    assert (row["least"], row["most"]) == pytest.approx((min(found), max(found)), rel=1e-3)
    atlas = pd.read_csv(folder / "atlas.csv")
    assert list(atlas["model"].unique()) == runs
    assert f"report: {tmp_path / 'build' / 'compare'}" in said
