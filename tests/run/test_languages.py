"""Runs in other languages than English, with three kinds of tokenizers."""

import numpy as np
import other_languages
import pandas as pd
import pytest
from notebook_tools import executed

from beyond.silver_parses import universal_relations
from helpers.__main__ import main
from helpers.metrics.head_counts import count_heads
from helpers.settings import flag
from helpers.study import Study

FAMILIES = {"Chinese": "bert", "German": "xlm_roberta", "Turkish": "roberta"}


@pytest.fixture
def settings(tmp_path, tiny_folder, figures, monkeypatch):
    """Make a function from a language to the settings of a small run of a text."""
    monkeypatch.setenv("ATTENTION_PROFILE", "quick")

    def make(language, **options):
        model = str(tiny_folder(FAMILIES[language]))
        text = str(other_languages.text(tmp_path, language))
        usual = {"model": model, "text": text, "max_tokens": 48, "device": "cpu", "name": language}
        return {**usual, **options}

    return make


def test_section_3_needs_no_parses(settings, figures):
    # Figure 1, which has words of the text, is written in the script with most characters.
    options = settings("Chinese")
    executed("01", files=True, **options)
    executed("02", **options)
    tables = figures.parent / "build" / "Chinese" / "tables"
    assert pd.read_csv(tables / "token_types.csv")["punctuation"].between(0.001, 0.5).any()


def test_run_asks_for_parses_where_section_4_has_none(settings, capsys):
    arguments = ["run", "--dry-run"]
    for name, value in settings("Turkish").items():
        arguments += [flag(name), str(value)]
    assert main([*arguments, "--only", "04"]) == 2
    error = capsys.readouterr().err
    assert "--treebank" in error and "--parser" in error and error.count("\n") == 1
    assert main([*arguments, "--only", "01,02,03,06"]) == 0
    assert "language: not English" in capsys.readouterr().out


def test_sections_4_and_5_on_a_treebank_of_another_language(
    settings, tmp_path, figures, monkeypatch, capsys
):
    """Without the relations of Figure 5: the names are those of Surface-syntactic UD."""
    monkeypatch.setattr("helpers.probes.training.MIN_UPDATES", 20)  # the scores do not matter
    treebank = other_languages.treebank(tmp_path, "German")
    text = treebank.read_text().replace("\tnsubj", "\tsubj").replace("\tobj\t", "\tcomp:obj\t")
    treebank.write_text(text)
    options = settings("German", treebank=str(treebank))
    for number, resource in (("04", "--coref"), ("05", "--vectors")):
        executed(number, **options)
        assert resource in capsys.readouterr().out
    folder = figures.parent / "build" / "German" / "tables"
    tables = {path.stem: pd.read_csv(path) for path in folder.glob("*.csv")}
    assert not {"coreference", "silver_quality"} & tables.keys()
    assert {"All", "subj", "comp:obj"} <= set(tables["dependency_heads"]["relation"])
    assert {"subj", "det"} <= set(tables["universal_relations"]["relation"])
    probes = set(tables["probes"]["probe"])
    assert "Attn" in probes and not any("GloVe" in probe for probe in probes)


def test_universal_relations_count_subtypes_with_their_universal_part(
    tmp_path, tiny_folder, own_cache
):
    treebank = str(other_languages.treebank(tmp_path, "Turkish"))
    model = str(tiny_folder("xlm_roberta"))
    study = Study(model=model, treebank=treebank, max_tokens=48, device="cpu")
    counts = count_heads(study.treebank_store(stream=True))
    table = universal_relations(counts, minimum=5)
    train = counts.of_split("train")
    names = ("nsubj", "nsubj:pass")
    right = sum(train.by_article(train.right, name).sum(axis=0) for name in names)
    subjects = table[table["relation"] == "nsubj"]
    accuracy = 100 * right.ravel() / sum(map(train.size, names))
    np.testing.assert_allclose(subjects["train_accuracy"], accuracy)
    assert "nsubj:pass" not in set(table["relation"])
