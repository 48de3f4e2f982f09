"""Settings: their types and bounds, and the names of runs."""

import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.errors import InputError
from helpers.results import run_name
from helpers.settings import Settings, capped, flag, make_settings

HEAVY = (
    "anywidget",
    "torch",
    "transformers",
    "spacy",
    "matplotlib",
    "seaborn",
    "scipy.stats",
    "distributed",
)
INVALID = [
    ("segments", "twenty"), ("segments", 20.0), ("segments", True), ("segments", 1),
    ("sentences", 0), ("gradient_segments", 1), ("seed", None), ("seed", -1), ("seed", 2**32),
    ("random_init", "one"), ("random_init", -1), ("seeds", 0), ("max_tokens", "all"),
    ("max_tokens", 7), ("minimum_count", 0), ("workers", -1), ("stream", "yes"), ("stream", 1),
    ("text", None), ("model", 5), ("lens", "values"), ("dtype", "float64"), ("formats", "eps"),
    ("formats", "png,"), ("formats", "pngsvg"), ("name", "../../evil"), ("name", "a/b"),
    ("name", ".."), ("name", "/etc"), ("name", "a\\b"), ("name", " "), ("name", "x" * 300),
    ("name", "-a"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def full_size(monkeypatch):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)


@pytest.mark.parametrize(("setting", "value"), INVALID)
def test_a_value_that_no_run_can_use_is_refused_in_a_line_with_the_flag(setting, value):
    """papermill passes on what it is given, and each of these would fail later, in a notebook."""
    with pytest.raises(InputError) as error:
        make_settings(**{setting: value})
    assert str(error.value).startswith(f"{flag(setting)} {value}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["compare", "book", "book-links", "screens"])
def test_name_of_another_folder_of_build_is_taken(name):
    with pytest.raises(InputError, match=rf"^--name {name}: .* taken"):
        make_settings(name=name)


def test_paths_and_sizes_without_a_limit_become_plain_values():
    settings = make_settings(text=Path("a/b.txt"), segments="all", sentences=None)
    assert (settings.text, settings.segments, settings.sentences) == ("a/b.txt", None, None)
    settings = make_settings(segments=np.int64(24), quick=np.bool_(True), seed=torch.tensor(3))
    assert settings == make_settings(segments=24, quick=True, seed=3)
    assert type(settings.segments) is int and type(settings.quick) is bool
    with pytest.raises(FrozenInstanceError):
        vars(Settings)["__setattr__"](settings, "segments", 7)


@pytest.mark.parametrize(("quick", "profile"), [(True, ""), (False, "quick")])
def test_quick_limits_sizes(quick, profile, monkeypatch):
    monkeypatch.setenv("ATTENTION_PROFILE", profile)
    settings = make_settings(quick=quick, segments=None, sentences="all", max_tokens=999)
    sizes = (settings.segments, settings.sentences, settings.gradient_segments, settings.seeds)
    assert sizes == (24, 120, 8, 1) and settings.quick and settings.max_tokens == 999
    assert settings == make_settings(**asdict(settings))
    assert make_settings(quick=quick, segments=7).segments == 7
    assert run_name(make_settings(quick=quick)) == "minilm--quick"
    assert [capped(size, 5) for size in (3, 5, 7, None)] == [3, 5, 5, 5]


def test_a_study_that_shows_tables_and_a_refused_command_load_no_heavy_library():
    """Every kernel imports a study; the sample is found without the library that ships it."""
    code = f"""import sys
from helpers import Study, metrics
from helpers.__main__ import main
from helpers.data.wikipedia import segments
main(["run", "--segments", "many"])
main(["run", "--text", "no/such.txt"])
segments(None, count=1, seed=0)
print(len(Study().tables()), metrics.dependency_heads.__name__, metrics.surface.__name__)
print([name for name in {HEAVY} if name in sys.modules])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"text": "some/where/my text.txt"}, "minilm--my-text"),
        ({"treebank": "train.conllu,dev.conllu", "random_init": 3}, "minilm-random-3--train"),
        ({"lens": "norm", "random_init": 0, "seed": 7}, "minilm-random-0--seed-7--lens-norm"),
        ({"quick": True, "segments": 20}, "minilm--segments-20--quick"),
    ],
)
def test_run_name_of_other_settings_has_a_label_and_a_digest(settings, label):
    """``run --text my.txt`` must not write over the results of the default."""
    assert re.fullmatch(f"{label}-[0-9a-f]{{6}}", run_name(make_settings(**settings)))


def test_run_name_is_that_of_the_file_and_not_of_its_path(tmp_path, monkeypatch):
    (tmp_path / "elsewhere" / "minilm").mkdir(parents=True)
    (tmp_path / "my.txt").touch()
    monkeypatch.chdir(tmp_path)
    text_name = run_name(make_settings(text="my.txt"))
    model_name = run_name(make_settings(model="elsewhere/minilm"))
    assert re.fullmatch("minilm-[0-9a-f]{6}", model_name)  # which is not the bundled one
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run_name(make_settings(text="../my.txt")) == text_name
    assert run_name(make_settings(model="./minilm")) == model_name
    (tmp_path / "elsewhere" / "my.txt").touch()
    assert run_name(make_settings(text="my.txt")) != text_name
