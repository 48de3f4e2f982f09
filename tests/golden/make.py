"""Write the golden tables again: ``python tests/golden/make.py [MODEL ...]``.

It prints what differs from the files that there were, by table and column.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

# As conftest.py does for the tests, and before torch and helpers are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["ATTENTION_PROFILE"] = "quick"
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from golden.comparison import differences, read_golden  # noqa: E402
from golden.models import SEEDS  # noqa: E402
from golden.runs import FOLDER, run_model  # noqa: E402

DIGITS = 6


def make(model):
    """Write the golden tables of a model."""
    with tempfile.TemporaryDirectory() as folder:
        tables = run_model(model, Path(folder))
    old = {path.stem: read_golden(model, path.stem) for path in (FOLDER / model).glob("*.csv")}
    print(model, "gone:", *sorted(old.keys() - tables), "new:", *sorted(tables.keys() - old))
    shutil.rmtree(FOLDER / model, ignore_errors=True)
    (FOLDER / model).mkdir()
    for name, table in sorted(tables.items()):
        for line in differences(name, table, old.get(name, table)):
            print(f"{model}/{name} {line}")
        table.to_csv(FOLDER / model / f"{name}.csv", index=False, float_format=f"%.{DIGITS}g")


if __name__ == "__main__":
    for chosen_model in sys.argv[1:] or SEEDS:
        make(chosen_model)
