"""Imports point downwards, and the lower layers know neither the cache nor a model."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULES = {}  # the files of both packages by module, such as "helpers.data.treebank"
for path in sorted([*(ROOT / "helpers").rglob("*.py"), *(ROOT / "beyond").rglob("*.py")]):
    MODULES[".".join(path.relative_to(ROOT).with_suffix("").parts)] = path
LAYERS = (  # of helpers, from the bottom up
    {"__init__", "errors", "files", "progress", "settings", "torch_utils"},
    {"cache"},
    {"data"},
    {"model"},
    {"store"},
    {"metrics"},
    {"probes"},
    {"plots"},
    {"viewer"},
    {"gradients", "notes", "results", "study"},
    {"check", "run"},
    {"__main__"},
)
# The model computes, and the cache is called above it; what draws keeps nothing.
WITHOUT_CACHE = {"model", "plots", "viewer"}
# Arrays and records in, tables and figures out.
WITHOUT_MODEL = {"data", "metrics", "probes", "plots"}
MODEL_NAMES = ("helpers.model", "transformers")
# Notebook 11 measures with what notebook 10 has.
MAY_IMPORT = {"beyond.papers.accuracy_and_function": ("beyond.papers.sinks",)}


def imported_names(path):
    """Yield the full names that a module imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def import_graph():
    """The modules of both packages that each module imports."""
    graph = {}
    for module, path in MODULES.items():
        graph[module] = (set(imported_names(path)) & MODULES.keys()) - {module}
    return graph


def subpackage(module):
    """The part of helpers that a module is in; empty for a module of beyond."""
    package, _, name = module.partition(".")
    return name.split(".")[0] if package == "helpers" else ""


def layer(module):
    """The number of a module's layer in helpers, from the bottom."""
    for number, subpackages in enumerate(LAYERS):
        if subpackage(module) in subpackages:
            return number
    raise AssertionError(f"{module} is in no layer: add {subpackage(module)} to LAYERS")


def test_imports_of_helpers_point_downwards():
    """No module imports from a layer above; see `helpers/README.md`."""
    upwards = []
    for module, imported in import_graph().items():
        if subpackage(module):
            of_helpers = filter(subpackage, imported)
            upwards += [(module, name) for name in of_helpers if layer(name) > layer(module)]
    assert not upwards


def test_helpers_names_beyond_only_as_the_folder_of_pages():
    pages = 'PAGES = PROJECT_ROOT / "beyond" / "pages"'
    for module, path in MODULES.items():
        if subpackage(module):
            text = path.read_text(encoding="utf-8").replace(pages, "")
            assert not re.search(r"\bbeyond\b[./\"]", text), module


def test_imports_have_no_circle():
    graph = import_graph()
    order = list(TopologicalSorter(graph).static_order())  # CycleError names a circle
    assert set(order) == set(graph)


def test_papers_do_not_import_each_other():
    for module, imported in import_graph().items():
        if module.startswith("beyond.papers.") and module.count(".") == 3:
            paper = module.rpartition(".")[0]
            allowed = (paper, "beyond.papers.common", *MAY_IMPORT.get(paper, ()))
            papers = [name for name in imported if name.startswith("beyond.papers.")]
            assert all(name.startswith(allowed) for name in papers), (module, papers)


def test_the_cache_is_called_above_the_model():
    for module, imported in import_graph().items():
        assert subpackage(module) not in WITHOUT_CACHE or "helpers.cache" not in imported, module


def test_data_metrics_probes_and_plots_know_no_model():
    for module, path in MODULES.items():
        if subpackage(module) in WITHOUT_MODEL:
            names = set(imported_names(path)) - {"helpers.model"}  # whose __init__ has digests
            assert not [name for name in names if name.startswith(MODEL_NAMES)], module
