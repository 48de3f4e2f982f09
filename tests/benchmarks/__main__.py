"""Every benchmark, one after the other, each in a process of its own.

    python tests/benchmarks [--json FOLDER]

Run it on a machine that does nothing else: `machine.load` in the results says whether it did.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=FOLDER / "results", metavar="FOLDER")
    given = parser.parse_args()
    given.json.mkdir(parents=True, exist_ok=True)
    failed = 0
    for path in sorted(FOLDER.glob("bench_*.py")):
        name = path.stem.removeprefix("bench_")
        print(f"\n{name}", flush=True)
        command = [sys.executable, str(path), "--json", str(given.json / f"{name}.json")]
        failed += subprocess.run(command).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
