"""Change the code in one place at a time, and print which changes no test notices.

    python scripts/mutate.py --count 50 --paths "helpers/metrics/*.py"

A mutation is a change that a slip of the hand could make: a flipped comparison, a different
operator or axis, an integer off by one, train for dev, a mask left out.  The tests that are named
after the module run first.  If they pass, the rest of the tests in its folder run.  All of this
happens in a copy of the repository in a temporary folder.  Somebody has to read a survivor: it is a
gap in the tests, or a change that makes no difference.
"""

import argparse
import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, chain
from pathlib import Path
from typing import NamedTuple

SWAPPED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
}  # fmt: skip
SPLITS = {"train": "dev", "dev": "train"}
MASKS = ("~", "is_", "has_", "in_", "mask", "visible", "keep", "valid")
TYPES = ("annotation", "returns", "decorator_list")  # fields of a function's node
TIMEOUT = 120  # seconds of the tests of a mutation
NOT_COPIED = (".git", ".venv", ".cache", "build", "__pycache__")
PYTEST = [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider", "-m not default_model"]


class Mutation(NamedTuple):
    """The text that replaces the bytes from ``start`` to ``end`` of a file."""

    path: Path
    start: int
    end: int
    replacement: bytes
    description: str


def main() -> None:
    """Run the tests for a sample of mutations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paths", nargs="+", default=["helpers/**/*.py"], help="files or patterns")
    parser.add_argument("--count", type=int, default=50, help="number of mutations (50)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (0)")
    options = parser.parse_args()
    paths = sorted({path for pattern in options.paths for path in Path().glob(pattern)})
    mutations = list(chain.from_iterable(map(find_mutations, paths)))
    sample = random.Random(options.seed).sample(mutations, min(options.count, len(mutations)))
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        shutil.copytree(".", copy, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
        files = set(chain(*(set.union(*test_files(copy, change.path)) for change in sample)))
        if run_tests(copy, files, 20 * TIMEOUT) != "survived":
            sys.exit("Tests fail without a mutation. Run pytest, and make them pass first.")
        for mutation in sample:
            outcome = try_mutation(copy, mutation)
            print(outcome, mutation.description, flush=True)
            outcomes[outcome] += 1
    print(dict(outcomes))
    sys.exit(outcomes["survived"] > 0)


def find_mutations(path: Path) -> Iterator[Mutation]:
    """Yield all mutations of the functions of a file."""
    source = path.read_bytes()
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
    for node in function_nodes(ast.parse(source)):
        for kind, target, replacement in changes(node):
            start = starts[target.lineno - 1] + target.col_offset
            end = starts[target.end_lineno - 1] + target.end_col_offset
            text = ast.unparse(replacement)
            description = f"{path}:{target.lineno} {kind}: {ast.unparse(target)} -> {text}"
            if isinstance(target, ast.expr):
                text = f"({text})"
            yield Mutation(path, start, end, text.encode(), description)


def function_nodes(node: ast.AST, inside: bool = False) -> Iterator[ast.AST]:
    """Yield the nodes in functions, without docstrings, messages and types."""
    if inside:
        yield node
    inside = inside or isinstance(node, ast.FunctionDef)
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            is_message = isinstance(child, ast.Raise | ast.Assert | ast.JoinedStr)
            if isinstance(child, ast.AST) and not (field in TYPES or is_docstring or is_message):
                yield from function_nodes(child, inside)


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Yield the sort, the node that is replaced, and its replacement."""
    match node:
        case ast.Compare(ops=[sign, *signs]) if type(sign) in SWAPPED:
            yield "comparison", node, altered(node, ops=[SWAPPED[type(sign)](), *signs])
        case ast.BinOp(op=ast.BitAnd(), left=left, right=right):
            yield "mask", node, left
            yield "mask", node, right
        case ast.BinOp(op=sign) | ast.AugAssign(op=sign) if type(sign) in SWAPPED:
            if not any(isinstance(getattr(part, "value", 0), str) for part in ast.walk(node)):
                yield "operator", node, altered(node, op=SWAPPED[type(sign)]())  # of no message
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield "off by one", node, ast.Constant(number + 1)
        case ast.Constant(value="train" | "dev"):
            yield "split", node, ast.Constant(SPLITS[node.value])
        case ast.keyword(arg="axis" | "dim", value=ast.Constant() | ast.UnaryOp()):
            yield "axis", node.value, ast.Constant(int(ast.unparse(node.value) == "0"))
        case ast.Subscript(ctx=ast.Load(), slice=index, value=value):
            if isinstance(index, ast.Compare) or ast.unparse(index).startswith(MASKS):
                yield "mask", node, value


def altered(node: ast.AST, **fields: object) -> ast.AST:
    """Copy a node with some of its fields replaced."""
    return type(node)(**{**dict(ast.iter_fields(node)), **fields})


def try_mutation(copy: Path, mutation: Mutation) -> str:
    """Run the tests with a mutation: killed, survived, or timed out."""
    path = copy / mutation.path
    source = path.read_bytes()
    path.write_bytes(source[: mutation.start] + mutation.replacement + source[mutation.end :])
    # Python believes the bytecode of a file that changed within the same second.
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
    outcome = "survived"
    for files in test_files(copy, mutation.path):
        if outcome == "survived" and files:
            outcome = run_tests(copy, files, TIMEOUT)
    path.write_bytes(source)
    return outcome


def test_files(copy: Path, module: Path) -> tuple[set[Path], set[Path]]:
    """List the tests named after a module, and the rest of its folder."""
    folder = copy / "tests" / Path(*module.parts[1:-1])
    named = set(folder.glob(f"test_{module.stem}*.py"))
    rest = set(folder.glob("test_*.py")) - named
    return named, rest if folder.name != "tests" else set()


def run_tests(copy: Path, files: set[Path], timeout: float) -> str:
    """Run tests in a group of processes, which ends with those that the tests start."""
    environment = {key: os.environ[key] for key in os.environ if key[:10] != "ATTENTION_"}
    process = subprocess.Popen(
        [*PYTEST, *sorted(files)],
        cwd=copy, env=environment | {"PYTHONPATH": str(copy)}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return "timed out"
    return "survived" if process.returncode in (0, 5) else "killed"  # 5: all of them are slow


if __name__ == "__main__":
    main()
