"""Imports point downwards, and the lower layers know neither the cache nor a model."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "helpers"
LAYERS = (  # from the bottom up
    {"__init__", "errors", "files", "progress", "settings", "torch_utils"},
    {"cache"},
    {"data"},
    {"model"},
    {"store"},
    {"metrics"},
    {"probes"},
    {"claims"},
    {"plots"},
    {"viewer"},
    {"results", "study"},
    {"studies"},
    {"lessons"},
    {"run"},
    {"__main__"},
)
# The model computes, and the cache is called above it; what measures and draws keeps nothing.
WITHOUT_CACHE = {"model", "metrics", "probes", "claims", "plots", "viewer"}
# Arrays and records in, tables and figures out.
WITHOUT_MODEL = {"data", "metrics", "probes", "claims", "plots"}
MODEL_NAMES = ("helpers.model", "transformers")


def imported_names(path):
    """Yield the full names that a module imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def modules():
    """The files of the package by module, such as "data.treebank"."""
    by_name = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        by_name[".".join(path.relative_to(PACKAGE).with_suffix("").parts)] = path
    return by_name


def import_graph():
    """The modules of the package that each of its modules imports."""
    paths = modules()
    graph = {}
    for module, path in paths.items():
        names = {name.removeprefix("helpers.") for name in imported_names(path)}
        graph[module] = (names & paths.keys()) - {module}
    return graph


def subpackage(module):
    return module.split(".")[0]


def layer(module):
    """The number of a module's layer, from the bottom."""
    for number, subpackages in enumerate(LAYERS):
        if subpackage(module) in subpackages:
            return number
    raise AssertionError(f"{module} is in no layer: add {subpackage(module)} to LAYERS")


def test_imports_point_downwards():
    """No module imports from a layer above; see `helpers/README.md`."""
    upwards = []
    for module, imported in import_graph().items():
        upwards += [(module, name) for name in imported if layer(name) > layer(module)]
    assert not upwards


def test_imports_have_no_circle():
    graph = import_graph()
    order = list(TopologicalSorter(graph).static_order())  # CycleError names a circle
    assert set(order) == set(graph)


def test_studies_do_not_import_each_other():
    for module, imported in import_graph().items():
        if module.count(".") == 2 and not module.startswith(("studies.plots", "studies.claims")):
            study = module.rpartition(".")[0]
            for name in imported:
                assert name.count(".") < 2 or name.startswith((study, "studies.common")), module


def test_the_cache_is_called_above_the_model():
    for module, imported in import_graph().items():
        assert subpackage(module) not in WITHOUT_CACHE or "cache" not in imported, module


def test_data_metrics_probes_claims_and_plots_know_no_model():
    for module, path in modules().items():
        if subpackage(module) in WITHOUT_MODEL:
            names = set(imported_names(path))
            assert not [name for name in names if name.startswith(MODEL_NAMES)], module
