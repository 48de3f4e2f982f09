"""Settings: their types, and what a notebook makes of its parameters."""

import subprocess
import sys
from dataclasses import asdict

import pytest

from helpers.errors import InputError
from helpers.settings import Settings
from helpers.study import Study

HEAVY = ("torch", "transformers", "spacy", "gensim", "matplotlib", "seaborn", "distributed")


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("segments", "twenty", "--segments twenty: expected a whole number"),
        ("segments", 20.0, "--segments 20.0: expected a whole number"),
        ("segments", True, "--segments True: expected a whole number"),
        ("random_init", "one", "--random-init one: expected a whole number"),
        ("stream", "yes", "--stream yes: expected True or False"),
        ("text", None, "--text None: expected text"),
        ("sentences", -1, "--sentences cannot be negative"),
    ],
)
def test_a_wrong_type_is_one_line_that_names_the_flag(setting, value, message):
    """papermill passes on what it is given: ``-p segments twenty`` is a string."""
    with pytest.raises(InputError) as error:
        Settings(**{setting: value})
    assert str(error.value) == message


def test_a_notebook_gives_the_settings_that_it_declares():
    cell = {"model": "x", "segments": 7, "stream": True, "study": None, "pd": object}
    study = Study.of(cell)
    assert asdict(study) == asdict(Study(model="x", segments=7, stream=True))


def test_a_study_loads_no_library_before_it_needs_one():
    """Every kernel of a run imports it; a finished run needs none of these for most tables."""
    code = f"import sys, helpers.study; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
