"""Change the code in one place at a time, and print which changes no test notices.

    python scripts/mutate.py --count 50 --paths "helpers/metrics/*.py"

A mutation is a change that a slip of the hand could make: a flipped comparison, a different
operator or axis, an integer off by one, train for dev, a mask left out, pairs by position, a seed
left out.  The tests that are named after the module run first.  If they pass, the rest of the tests
in its folder run.  All of this happens in a copy of the repository in a temporary folder.  Somebody
has to read a survivor: it is a gap in the tests, or a change that makes no difference.
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
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import accumulate, chain
from pathlib import Path
from typing import NamedTuple

SWAPPED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
}  # fmt: skip
SPLITS = {"train": "dev", "dev": "train"}
DROPPED = {"seed": "seed", "random_state": "seed", "where": "mask"}  # arguments, and the sort
MASKS = ("~", "is_", "has_", "in_", "mask", "visible", "keep", "valid")
TYPES = ("annotation", "returns", "decorator_list")  # fields of a function's node
NOT_COPIED = (".git", ".venv", ".cache", "build", "__pycache__")
PYTEST = [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider", "-m not default_model"]


class Mutation(NamedTuple):
    """The text that replaces the bytes from ``start`` to ``end`` of a file."""

    path: Path
    kind: str
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
    parser.add_argument("--timeout", type=float, default=120, help="seconds for its tests (120)")
    parser.add_argument("-x", "--exitfirst", action="store_true", help="stop at a survivor")
    options = parser.parse_args()
    paths = sorted({path for pattern in options.paths for path in Path().glob(pattern)})
    sample = choose(paths, options.count, random.Random(options.seed))
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        shutil.copytree(".", copy, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
        files = set(chain(*(set.union(*test_files(copy, change.path)) for change in sample)))
        if run_tests(copy, files, 20 * options.timeout) != "survived":
            sys.exit("Tests fail without a mutation. Run pytest, and make them pass first.")
        for mutation in sample:
            outcome = try_mutation(copy, mutation, options.timeout)
            print(outcome, mutation.description, flush=True)
            outcomes[str(mutation.path.parent)][outcome] += 1
            if options.exitfirst and outcome == "survived":
                break
    outcomes["all"] = sum(outcomes.values(), Counter())
    for name, counts in sorted(outcomes.items()):
        n_killed = counts["killed"] + counts["timed out"]
        print(f"{name}: {n_killed} of {n_killed + counts['survived']} killed {dict(counts)}")
    sys.exit(outcomes["all"]["survived"] > 0)


def choose(paths: list[Path], count: int, generator: random.Random) -> list[Mutation]:
    """Choose mutations of all sorts, in a folder in proportion to its lines."""
    lines: Counter[Path] = Counter()
    pools: dict[tuple[Path, str], list[Mutation]] = defaultdict(list)
    for path in paths:
        lines[path.parent] += path.read_bytes().count(b"\n")
        for mutation in find_mutations(path):
            pools[path.parent, mutation.kind].append(mutation)
    sample = []
    for folder in generator.choices([*lines], [*lines.values()], k=count):
        filled = [pool for (parent, _), pool in pools.items() if pool and parent == folder]
        if filled:
            pool = generator.choice(filled)
            sample.append(pool.pop(generator.randrange(len(pool))))
    return sample


def find_mutations(path: Path) -> Iterator[Mutation]:
    """Yield all mutations of the functions of a file."""
    source = path.read_bytes()
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
    for node in function_nodes(ast.parse(source)):
        for kind, target, replacement in [*changes(node), *changes_of_arguments(node)]:
            start = starts[target.lineno - 1] + target.col_offset
            end = starts[target.end_lineno - 1] + target.end_col_offset
            text = ast.unparse(replacement)
            description = f"{path}:{target.lineno} {kind}: {ast.unparse(target)} -> {text}"
            if isinstance(target, ast.expr):
                text = f"({text})"
            yield Mutation(path, kind, start, end, text.encode(), description)


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
        case ast.Subscript(ctx=ast.Load(), slice=index, value=value):
            if isinstance(index, ast.Compare) or ast.unparse(index).startswith(MASKS):
                yield "mask", node, value


def changes_of_arguments(node: ast.AST) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Yield the changes of the arguments of a call."""
    match node:
        case ast.keyword(arg="axis" | "dim", value=ast.Constant() | ast.UnaryOp()):
            yield "axis", node.value, ast.Constant(int(ast.unparse(node.value) == "0"))
        case ast.Call(func=ast.Name("zip"), args=[_, ast.Name() as last]):
            yield "pairing", last, ast.parse(f"list({last.id})[::-1]", mode="eval").body
        case ast.Call(func=ast.Attribute(value, "reindex" | "sort_values"), args=[_, *_]):
            yield "pairing", node, value
        case ast.Call(func=ast.Attribute(value, "masked_fill" | "where"), args=[_, *values]):
            yield "mask", node, values[0] if values[1:] else value  # three for np.where
        case ast.Call(func=ast.Attribute(_, "default_rng" | "manual_seed")):
            yield "seed", node, altered(node, args=[ast.Constant(7)])
    for name in DROPPED.keys() & {keyword.arg for keyword in getattr(node, "keywords", [])}:
        kept = [keyword for keyword in node.keywords if keyword.arg != name]
        yield DROPPED[name], node, altered(node, keywords=kept)


def altered(node: ast.AST, **fields: object) -> ast.AST:
    """Copy a node with some of its fields replaced."""
    return type(node)(**{**dict(ast.iter_fields(node)), **fields})


def try_mutation(copy: Path, mutation: Mutation, timeout: float) -> str:
    """Run the tests with a mutation: killed, survived, timed out, or uncollectable."""
    path = copy / mutation.path
    source = path.read_bytes()
    path.write_bytes(source[: mutation.start] + mutation.replacement + source[mutation.end :])
    # Python believes the bytecode of a file that changed within the same second.
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
    outcome = "survived"
    for files in test_files(copy, mutation.path):
        if outcome == "survived" and files:
            outcome = run_tests(copy, files, timeout)
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
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "timed out"
    if process.returncode in (0, 5):  # 5: all of them are slow
        return "survived"
    return "uncollectable" if "ERROR collecting" in output else "killed"


if __name__ == "__main__":
    main()
