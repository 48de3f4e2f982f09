"""The scripts of this folder compute numbers again, and therefore share no code with helpers."""

import ast
from pathlib import Path

import pytest

SCRIPTS = [path for path in Path(__file__).parent.glob("*.py") if path != Path(__file__)]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_imports_nothing_of_helpers_or_of_the_tests(path):
    packages = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            packages |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            packages.add(node.module.partition(".")[0])
    standard_library = {"argparse", "importlib", "json", "pathlib"}
    siblings = {script.stem for script in SCRIPTS}
    libraries = {"numpy", "pandas", "torch", "transformers"}
    assert packages <= standard_library | siblings | libraries
