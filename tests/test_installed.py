"""A copy of the package without its checkout says so, and writes nothing beside its code.

The package is used from a checkout: its notebooks are the product, and ``helpers`` is no name to
put among everybody's installed packages.  Installing it is no harm.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_an_installed_copy_says_where_the_notebooks_are_and_keeps_its_own_apart(tmp_path):
    site = tmp_path / "site-packages"
    for package in ("beyond", "helpers"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, site / package, ignore=ignored)
    outside = {"PYTHONPATH": str(site), "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    options = {"cwd": tmp_path, "env": outside, "capture_output": True, "text": True}
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run([sys.executable, "-m", "helpers", "run"], **options)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "checkout" in done.stderr
    assert sorted(tmp_path.rglob("*")) == before
    code = "from helpers.files import *; print(cache_root(), figures_dir('a'), build_dir('a'))"
    folders = subprocess.run([sys.executable, "-c", code], **options).stdout.split()
    expected = (".cache/attention-notebooks", "figures/a", "build/a")
    assert folders == [str(tmp_path / folder) for folder in expected]
