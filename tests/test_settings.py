"""Settings: their types and bounds, and the names of runs."""

import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, asdict
from pathlib import Path

import numpy as np
import pytest

from helpers.errors import InputError
from helpers.results import run_name
from helpers.settings import capped, flag, make_settings
from helpers.study import Study

HEAVY = ("torch", "transformers", "spacy", "matplotlib", "seaborn", "distributed")


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        (
            "segments",
            "twenty",
            "--segments twenty: expected a whole number from 2 to 1,000,000,000, or all",
        ),
        (
            "segments",
            20.0,
            "--segments 20.0: expected a whole number from 2 to 1,000,000,000, or all",
        ),
        (
            "segments",
            True,
            "--segments True: expected a whole number from 2 to 1,000,000,000, or all",
        ),
        ("seed", None, "--seed None: expected a whole number from 0 to 1,000,000,000"),
        ("max_tokens", "all", "--max-tokens all: expected a whole number from 8 to 1,000,000,000"),
        (
            "random_init",
            "one",
            "--random-init one: expected a whole number from 0 to 1,000,000,000",
        ),
        ("stream", "yes", "--stream yes: expected True or False"),
        ("text", None, "--text None: expected text"),
        ("lens", "values", "--lens values: expected attention or norm"),
        ("dtype", "float64", "--dtype float64: expected float32 or float16 or bfloat16"),
        ("formats", "eps", "--formats eps: expected one or more of png,svg,pdf"),
    ],
)
def test_settings_of_a_wrong_type_are_refused_with_the_flag(setting, value, message):
    """papermill passes on what it is given: ``-p segments twenty`` is a string."""
    with pytest.raises(InputError) as error:
        make_settings(**{setting: value})
    assert str(error.value) == message


def test_numbers_of_numpy_and_paths_become_plain_values():
    settings = make_settings(
        text=Path("a/b.txt"), segments=np.int64(5), seed=np.uint8(7), stream=np.bool_(True)
    )
    for setting, expected in {"text": "a/b.txt", "segments": 5, "seed": 7, "stream": True}.items():
        value = getattr(settings, setting)
        assert value == expected and type(value) is type(expected)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("segments", np.float64(5.0)), ("model", np.int64(5))],
)
def test_other_values_of_numpy_are_refused_with_the_flag(setting, value):
    with pytest.raises(InputError, match=f"^--{setting} .*: expected"):
        make_settings(**{setting: value})


@pytest.mark.parametrize("setting", ["segments", "sentences", "gradient_segments"])
def test_sizes_without_a_limit_are_none_and_not_zero(setting, monkeypatch):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    for no_limit in (None, "all"):
        assert getattr(make_settings(**{setting: no_limit}), setting) is None
    with pytest.raises(InputError, match=rf"^{flag(setting)} 0: .* or all$"):
        make_settings(**{setting: 0})


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("seed", -1),
        ("seed", 2**32),
        ("random_init", -1),
        ("seeds", 0),
        ("seeds", -3),
        ("max_tokens", 7),
        ("minimum_count", 0),
        ("segments", -1),
        ("segments", 1),
        ("sentences", 1),
        ("gradient_segments", 1),
        ("workers", -1),
    ],
)
def test_settings_out_of_bounds_are_refused_with_the_flag(setting, value):
    """Each of these would fail later, in a notebook."""
    with pytest.raises(InputError) as error:
        make_settings(**{setting: value})
    assert str(error.value).startswith(f"{flag(setting)} {value}: expected ")
    assert "\n" not in str(error.value)


def test_capped_takes_the_smaller_number_and_the_cap_for_no_limit():
    assert [capped(size, 5) for size in (3, 5, 7, None)] == [3, 5, 5, 5]


@pytest.mark.parametrize(("quick", "profile"), [(True, ""), (False, "quick")])
def test_quick_limits_sizes(quick, profile, monkeypatch):
    monkeypatch.setenv("ATTENTION_PROFILE", profile)
    settings = make_settings(quick=quick, segments=None, sentences="all", max_tokens=999)
    sizes = (settings.segments, settings.sentences, settings.gradient_segments, settings.seeds)
    assert sizes == (24, 120, 8, 1)
    assert settings.quick and settings.max_tokens == 999
    assert settings == make_settings(**asdict(settings))
    assert make_settings(quick=quick, segments=7).segments == 7


def test_settings_stay_as_they_are_made():
    with pytest.raises(FrozenInstanceError):
        Study().settings.segments = 7


def test_importing_study_loads_no_heavy_library():
    """Every kernel of a run imports it; the sample is found without the library that ships it."""
    code = f"""import sys, helpers.study
from helpers.data.wikipedia import segments
segments(None, count=1, seed=0)
print([name for name in {HEAVY} if name in sys.modules])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "minilm"),
        ({"device": "cpu", "stream": True, "formats": "png,pdf"}, "minilm"),
        ({"model": "mpnet"}, "mpnet"),
        ({"model": "google/electra"}, "google--electra"),
        ({"random_init": 0}, "minilm-random-0"),
        ({"quick": True}, "minilm--quick"),
        ({"text": "my.txt", "name": "mine"}, "mine"),
    ],
)
def test_run_name_of_default_settings_is_the_model(settings, name, monkeypatch):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    assert run_name(make_settings(**settings)) == name


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"text": "some/where/my text.txt"}, "minilm--my-text"),
        (
            {"text": "enwiki-latest.xml.bz2", "segments": None},
            "minilm--enwiki-latest--segments-all",
        ),
        ({"treebank": "train.conllu,dev.conllu", "random_init": 3}, "minilm-random-3--train"),
        ({"model": "google/electra", "max_tokens": 64}, "google--electra--max-tokens-64"),
        ({"lens": "norm", "random_init": 0, "seed": 7}, "minilm-random-0--seed-7--lens-norm"),
        ({"quick": True, "segments": 20}, "minilm--segments-20--quick"),
        ({"model": "compare"}, "compare"),
    ],
)
def test_run_name_of_other_settings_has_a_label_and_a_digest(settings, label, monkeypatch):
    """``run --text my.txt`` must not write over the results of the default."""
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    assert re.fullmatch(f"{label}-[0-9a-f]{{6}}", run_name(make_settings(**settings)))


def test_run_name_of_many_settings_is_a_name_that_a_run_can_be_given(monkeypatch):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    settings = make_settings(
        segments=16, sentences=80, max_tokens=64, gradient_segments=16, seeds=1
    )
    name = run_name(settings)
    assert run_name(make_settings(name=name)) == name


def test_run_name_differs_between_files_of_one_name():
    names = {run_name(make_settings(text=f"{folder}/my.txt")) for folder in "abc"}
    assert len(names) == 3


def test_run_name_is_that_of_the_file_and_not_of_its_path(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "my.txt").touch()
    monkeypatch.chdir(tmp_path)
    name = run_name(make_settings(text="my.txt"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run_name(make_settings(text="../my.txt")) == name
    (tmp_path / "elsewhere" / "my.txt").touch()
    assert run_name(make_settings(text="my.txt")) != name


def test_run_name_counts_parameters(monkeypatch):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    names = {run_name(make_settings(), {"task": f"{folder}/a.tsv,b.tsv"}) for folder in "xy"}
    assert len(names) == 2
    assert all(make_settings(name=name).name.startswith("minilm--task-") for name in names)


def test_run_name_of_a_local_model_is_not_that_of_a_bundled_one(tmp_path, monkeypatch):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x" / "minilm").mkdir(parents=True)
    local = run_name(make_settings(model="x/minilm"))
    assert re.fullmatch("minilm-[0-9a-f]{6}", local)
    monkeypatch.chdir(tmp_path / "x")
    assert run_name(make_settings(model="./minilm")) == local


def test_quick_has_smaller_sizes_and_a_slug_of_its_own(monkeypatch):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    study = Study(quick=True, sentences=None)
    assert study.results.name == "minilm--quick"
    monkeypatch.setenv("ATTENTION_PROFILE", "quick")
    assert Study(quick=True).results.name == Study().results.name == "minilm--quick"


def test_slug_of_long_names_is_cut_and_still_differs(monkeypatch):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    first = Study(text="x" * 200 + "a", segments=7).results.name
    second = Study(text="x" * 200 + "b", segments=7).results.name
    assert len(first) < 100 and first != second
    assert len(Study(text="文" * 80, treebank="文" * 80).results.name.encode()) < 256


@pytest.mark.parametrize(
    "name",
    ["../../evil", "a/b", "..", "/etc", "a\\b", "compare", "paper", " ", "x" * 300, "ä" * 99],
)
def test_name_that_is_not_one_folder_is_refused(name):
    with pytest.raises(InputError, match="expected the name of one folder"):
        make_settings(name=name)


@pytest.mark.parametrize("stream", [False, True])
def test_lens_applies_to_every_store(
    stream, tiny_folder, segments, sentences, own_cache, monkeypatch
):
    for corpus in ("segment", "treebank", "coreference"):
        toy = segments if corpus == "segment" else sentences
        monkeypatch.setattr(Study, f"{corpus}_corpus", lambda *_, toy=toy: toy)
    study = Study(model=str(tiny_folder("bert")), device="cpu", max_tokens=60, seeds=1,
                  lens="norm", stream=stream)  # fmt: skip
    stores = [study.segment_store(), study.treebank_store(), study.coreference_store()]
    stores.append(study.treebank_store("random"))
    assert [store.lens for store in stores] == ["norm"] * 4
