"""Notebook 09's tables from a tiny model: complete, reproducible, and with the plant found."""

import numpy as np
import pytest

from helpers.analysis.training import Schedule
from helpers.data.glove import Embeddings
from helpers.studies.argument_cues import partial_inputs, warrant_models
from helpers.study import Study

WORDS = ["not", "do", "does", "a", "of"]


class SmallStudy(Study):
    """A study with vectors of a few words, so that nothing is loaded from disk."""

    embeddings = Embeddings(
        "few", "few", {word: row for row, word in enumerate(WORDS)}, np.eye(5, dtype=np.float32)
    )


@pytest.fixture
def study(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path))
    monkeypatch.setenv("ATTENTION_PROFILE", "small")
    schedule = Schedule(epochs=6, learning_rate=1e-2, batch_size=16, min_updates=1)
    monkeypatch.setattr(
        warrant_models, "SCHEDULES", dict.fromkeys(warrant_models.ENCODERS, schedule)
    )
    return SmallStudy(model=str(tiny_folder("bert")), device="cpu", max_tokens=64)


def test_the_tables_of_a_run(study, monkeypatch):
    tables = partial_inputs.choice_tables(study)
    table = tables["partial_inputs"]
    key = ["model", "train", "inputs", "test"]
    assert not table.duplicated(key).any()
    runs = table[key[:3]].drop_duplicates().value_counts(["model", "train"], sort=False)
    assert runs.to_dict() == {
        ("bag of vectors", "original"): 4,
        ("bag of vectors", "mirrored"): 1,
        ("BiLSTM", "original"): 4,
        ("BiLSTM", "mirrored"): 1,
        ("encoder", "original"): 4,
        ("encoder", "mirrored"): 1,
        ("random-init encoder", "original"): 2,
    }
    assert (table["seeds"] == 1).all()
    warrants = table[table["inputs"] == "warrants"].set_index(["model", "test"])["mean"]
    for model in table["model"].unique():
        assert warrants[model, "both"] == 50
        assert warrants[model, "original"] + warrants[model, "adversarial"] == pytest.approx(100)
    assert warrants["bag of vectors", "original"] > 65
    assert len(tables["partial_input_seeds"]) == len(table)
    # What is kept is found again, and the same.
    monkeypatch.setattr(partial_inputs, "_tables", None)
    again = partial_inputs.choice_tables(study)
    assert again["partial_inputs"].equals(table)


def test_other_arguments_are_other_tables(study, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        partial_inputs, "cached_tables",
        lambda name, compute, *, depends_on, code: seen.append(depends_on),
    )  # fmt: skip
    folder = tmp_path / "mine"
    folder.mkdir()
    header = "#id\twarrant0\twarrant1\tcorrectLabelW0orW1\treason\tclaim\n"
    for split in ("train", "dev", "test"):
        (folder / f"{split}.tsv").write_text(header + "a\tit is\tit is not\t1\tSo.\tGo\n")
    own = {"model": study.model, "device": "cpu", "max_tokens": 64}
    for other in (study, SmallStudy(**own, arct=str(folder)), SmallStudy(**own, seed=1)):
        partial_inputs.choice_tables(other)
    assert len({str(facts) for facts in seen}) == 3


def test_counterparts_stay_with_their_original_when_training_is_cut(study):
    corpus = partial_inputs.arguments(study)
    mirrored = partial_inputs._splits(study, corpus, mirrored=True)["train"]
    assert len(mirrored) == 2 * study.task_examples
    assert [a.id + "-adversarial" for a in mirrored[:40]] == [a.id for a in mirrored[40:]]
