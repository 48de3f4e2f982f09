"""A copy of the package without its checkout says so, and writes nothing beside its code.

The package is used from a checkout: its notebooks are the product, and ``helpers`` is no name to
put among everybody's installed packages.  Installing it is no harm.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "helpers"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site-packages")
    shutil.copytree(PACKAGE, folder / "helpers", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def python(site, home, *arguments):
    outside = {key: value for key, value in os.environ.items() if not key.startswith("ATTENTION_")}
    outside |= {"PYTHONPATH": str(site), "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    outside.pop("XDG_CACHE_HOME", None)
    return subprocess.run(
        [sys.executable, *arguments], cwd=home, env=outside, capture_output=True, text=True
    )


def test_an_installed_copy_says_where_the_notebooks_are(site, tmp_path):
    before = sorted(site.rglob("*"))
    done = python(site, tmp_path, "-m", "helpers", "run")
    assert done.returncode == 2
    assert "an installed copy has no notebooks; run them from a checkout" in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(site.rglob("*")) == before


def test_its_cache_and_results_are_the_users(site, tmp_path):
    code = "from helpers.paths import *; print(cache_root(), figures_dir('a'), build_dir('a'))"
    done = python(site, tmp_path, "-c", code)
    cache, figures, build = done.stdout.split()
    assert cache == str(tmp_path / ".cache" / "attention-notebooks")
    assert figures == str(tmp_path / "figures" / "a") and build == str(tmp_path / "build" / "a")
