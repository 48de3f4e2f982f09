"""Copy runs from build/ to figures/, where they are committed: ``scripts/publish.py RUN ...``.

A run replaces a committed one only if it has all of its notebooks.
"""

import shutil
import sys

from helpers.files import build_dir, figures_dir
from helpers.results import RECORD, run_record
from helpers.run import list_notebooks

COMMITTED = (
    "minilm", "minilm-later", "minilm-ewt", "minilm-arct-later",
    "mpnet", "mpnet-later", "mpnet-ewt", "smollm2", "smollm2-later", "smollm2-ewt",
)  # fmt: skip


def main() -> None:
    """Publish each run of the command line."""
    for name in sys.argv[1:]:
        publish(name)


def publish(name: str) -> None:
    """Copy the PNG, the tables and ``run.json`` of a run, and remove all that the target held."""
    if name not in COMMITTED:
        sys.exit(f"{name} is none of the committed runs: {', '.join(COMMITTED)}")
    source = build_dir(name)
    target = figures_dir(name)
    series = {path.stem for path in list_notebooks()}
    executed = run_record(source).get("seconds", {}).keys()
    missing = (run_record(target).get("seconds", {}).keys() & series) - executed
    if missing or not executed:
        sys.exit(f"{source}: this run lacks {', '.join(sorted(missing)) or RECORD}; execute it")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source / "tables", target / "tables")
    for path in [source / RECORD, *source.glob("*.png")]:
        shutil.copy(path, target)
    print(f"{target}: {len(list(target.glob('tables/*.csv')))} tables")


if __name__ == "__main__":
    main()
