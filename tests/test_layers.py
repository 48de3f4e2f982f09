"""Imports point downwards, and the lower layers know neither the cache nor a model."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULES = {}  # the files of both packages by module, such as "helpers.data.treebank"
for path in sorted([*(ROOT / "helpers").rglob("*.py"), *(ROOT / "beyond").rglob("*.py")]):
    MODULES[".".join(path.relative_to(ROOT).with_suffix("").parts)] = path
LAYERS = [  # of helpers, from the bottom up
    "__init__ errors files progress settings", "cache", "data", "model", "store",
    "metrics", "probes", "plots", "viewer", "gradients results study", "check run",
    "__main__",
]  # fmt: skip


def imported_names(path):
    """Yield the full names that a module imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


IMPORTS = {module: set(imported_names(path)) for module, path in MODULES.items()}
GRAPH = {module: (names & MODULES.keys()) - {module} for module, names in IMPORTS.items()}


def layer(module):
    """The number of a module's layer in helpers, from the bottom."""
    name = module.split(".")[1]
    (number,) = [number for number, names in enumerate(LAYERS) if name in names.split()]
    return number


def test_imports_point_downwards_and_have_no_circle():
    """No module imports from a layer above; see `helpers/README.md`."""
    for module, imported in GRAPH.items():
        if module.startswith("helpers."):
            text = MODULES[module].read_text(encoding="utf-8")
            text = text.replace('PAGES = PROJECT_ROOT / "beyond" / "pages"', "")
            assert not re.search(r"\bbeyond\b[./\"]", text), module
            assert all(layer(name) <= layer(module) for name in imported), module
    list(TopologicalSorter(GRAPH).static_order())  # CycleError names a circle


def test_measures_and_data_know_no_model():
    """Measures take arrays and records; the digests of the model's ``__init__`` are allowed."""
    for module, names in IMPORTS.items():
        if module.startswith(
            ("helpers.data", "helpers.metrics", "helpers.probes", "helpers.plots")
        ):
            assert not [name for name in names if re.match(r"helpers\.model\.|transformers", name)]
