"""Runs in other languages than English, with three kinds of tokenizers."""

from pathlib import Path

import numpy as np
import other_languages
import pandas as pd
import pytest
import tiny_models
import transformers as hf
from notebook_tools import executed

from beyond.pages.compare import Run, across_treebanks
from beyond.silver_parses import universal_relations
from helpers.__main__ import main
from helpers.data.treebank import PIPELINE
from helpers.metrics.head_counts import count_heads
from helpers.model.loading import load_model
from helpers.notes import objective_note
from helpers.results import run_record
from helpers.study import Study

FAMILIES = {"Chinese": "bert", "German": "xlm_roberta", "Turkish": "roberta"}


@pytest.fixture
def settings(tmp_path, tiny_folder, figures, monkeypatch):
    """Make a function from a language to the settings of a small run of a text."""
    monkeypatch.setenv("ATTENTION_PROFILE", "quick")

    def make(language, **others):
        return {
            "model": str(tiny_folder(FAMILIES[language])),
            "text": str(other_languages.text(tmp_path, language)),
            "max_tokens": 48,
            "device": "cpu",
            "name": language,
            **others,
        }

    return make


@pytest.mark.parametrize(
    ("language", "numbers"),
    [("Chinese", "01 02 03 06"), ("German", "01"), ("Turkish", "01 02")],
)
def test_sections_3_and_6_need_no_parses(language, numbers, settings, figures):
    options = settings(language)
    for number in numbers.split():
        # Figure 1, which has words of the text, is written in the script with most characters.
        executed(number, files=language == "Chinese" and number == "01", **options)
    tables = figures.parent / "build" / language / "tables"
    if "02" in numbers:
        assert pd.read_csv(tables / "token_types.csv")["punctuation"].between(0.001, 0.5).any()


def flags(options):
    for name, value in options.items():
        yield from (f"--{name.replace('_', '-')}", str(value))


def test_run_asks_for_parses_where_section_4_has_none(settings, capsys):
    arguments = ["run", "--dry-run", *flags(settings("Turkish"))]
    assert main([*arguments, "--only", "04"]) == 2
    error = capsys.readouterr().err
    assert "--treebank" in error and "--parser" in error and error.count("\n") == 1
    assert main([*arguments, "--only", "01,02,03,06"]) == 0
    assert "language: not English" in capsys.readouterr().out


def test_study_leaves_english_resources_out_of_another_language(settings, tmp_path):
    options = settings("German")
    study = Study(**options)
    assert not study.has_parses and study.embeddings is None
    assert "--vectors" in study.missing_note("vectors")
    assert "--coref" in study.missing_note("coref")
    study.save_facts([])
    record = run_record(study.results.build)
    assert record["language"] == "not English" and len(record["notes"]) == 2
    documents = other_languages.documents(tmp_path, "German")
    asked = Study(**options | {"coref": str(documents), "vectors": "glove.txt"})
    assert not asked.notes
    overruled = Study(**options | {"parser": PIPELINE})
    assert overruled.language == "English" and overruled.has_parses and not overruled.notes


def test_study_takes_the_language_of_its_treebank(tmp_path, tiny_folder):
    treebank = other_languages.treebank(tmp_path, "Chinese")
    study = Study(model=str(tiny_folder("bert")), treebank=str(treebank))
    assert study.has_parses and study.language == "not English"
    assert Study(model=str(tiny_folder("bert"))).language == "English"


def test_sections_4_and_5_on_a_treebank_of_another_language(settings, tmp_path, figures, capsys):
    treebank = other_languages.treebank(tmp_path, "German")
    options = settings("German", treebank=str(treebank))
    for number, flag in (("04", "--coref"), ("05", "--vectors")):
        executed(number, **options)
        assert flag in capsys.readouterr().out
    folder = figures.parent / "build" / "German" / "tables"
    tables = {path.stem: pd.read_csv(path) for path in folder.glob("*.csv")}
    assert not {"coreference", "silver_quality"} & tables.keys()
    assert {"nsubj", "det"} <= set(tables["universal_relations"]["relation"])
    probes = set(tables["probes"]["probe"])
    assert {"Attn", "Random-init Attn"} <= probes
    assert not any("GloVe" in probe for probe in probes)


def universal_table(tiny_folder, treebank):
    model = str(tiny_folder("xlm_roberta"))
    study = Study(model=model, treebank=str(treebank), max_tokens=48, device="cpu")
    counts = count_heads(study.treebank_store(stream=True))
    return counts, universal_relations(counts, minimum=5)


def test_universal_relations_count_subtypes_with_their_universal_part(
    tmp_path, tiny_folder, own_cache
):
    counts, table = universal_table(tiny_folder, other_languages.treebank(tmp_path, "Turkish"))
    train = counts.of_split("train")
    right = 0
    total = 0
    for relation in ("nsubj", "nsubj:pass"):
        right = right + train.by_article(train.right, relation).sum(axis=0)
        total += train.size(relation)
    of_subjects = table[table["relation"] == "nsubj"]
    np.testing.assert_allclose(of_subjects["train_accuracy"], 100 * right.ravel() / total)
    assert "nsubj:pass" not in set(table["relation"])


def test_compare_scores_heads_of_one_language_in_the_others(tmp_path, tiny_folder, own_cache):
    tables = {}
    for language in other_languages.SENTENCES:
        treebank = other_languages.treebank(tmp_path, language)
        _, tables[language] = universal_table(tiny_folder, treebank)
    runs = [
        Run(Path(name), {"settings": {"model": "xlm"}}, {"universal_relations": table})
        for name, table in tables.items()
    ]
    table = across_treebanks(runs)
    subjects = table[table["relation"] == "nsubj"].set_index("run_of_choice")
    assert set(subjects.index) == set(tables)
    for chooser, row in subjects.iterrows():
        scores = {}
        for name, scored in tables.items():
            scores[name] = scored.set_index(["relation", "direction", "layer", "head"]).sort_index()
        place = tuple(row[["relation", "direction", "layer", "head"]])
        of_chooser = scores[chooser].loc["nsubj", "train_accuracy"]
        assert scores[chooser].loc[place, "train_accuracy"] == of_chooser.max()
        for name, scored in scores.items():
            assert row[name] == scored.loc[place, "margin"]
    other_model = Run(Path("other"), {"settings": {"model": "bert"}}, runs[0].tables)
    assert across_treebanks([runs[0], other_model]).empty
    assert across_treebanks([runs[0], Run(Path("clear"), {"settings": {"model": "xlm"}}, {})]).empty


def test_objective_note_of_a_checkpoint_with_another_head(tmp_path, figures, tiny_folder, capsys):
    folder = tmp_path / "classifier"
    tiny_models.save(folder, *tiny_models.bert(hf.BertForSequenceClassification))
    study = Study(model=str(folder), device="cpu")
    assert study.encoder.objective == "contrastive"
    assert "BertForSequenceClassification" in objective_note(study.encoder)
    assert objective_note(study.encoder) in study.notes
    assert not objective_note(load_model(str(tiny_folder("bert")), device="cpu"))
    bare = tmp_path / "bare"
    tiny_models.save(bare, *tiny_models.bert(lambda config: hf.BertModel(config)))
    assert not objective_note(load_model(str(bare), device="cpu"))
