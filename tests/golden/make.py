"""Write the golden tables again: ``python tests/golden/make.py [MODEL ...]``.

It prints the largest differences from the files that there were, by table and column, and fails
if two picks of a head are so close that another processor could choose the other one.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

# As conftest.py does for the tests, and before torch and helpers are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["ATTENTION_PROFILE"] = "quick"
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from golden.comparison import differences, read_golden, write_golden  # noqa: E402
from golden.margins import check_margins  # noqa: E402
from golden.models import SEEDS, save_model  # noqa: E402
from golden.runs import FOLDER, run_model  # noqa: E402


def make(model):
    """Write the golden tables of a model."""
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        save_model(model, Path(folder) / "margins")
        print(f"{model}: {check_margins(Path(folder) / 'margins')}")
        tables = run_model(model, Path(folder))
    print(f"{model}: {len(tables)} tables, {time.process_time() - start:.1f} processor seconds")
    old_names = {path.stem for path in (FOLDER / model).glob("*.csv")}
    for name in sorted(old_names - set(tables)):
        (FOLDER / model / f"{name}.csv").unlink()
        print(f"{model}/{name}: is gone")
    for name, table in sorted(tables.items()):
        if name not in old_names:
            print(f"{model}/{name}: is new")
        else:
            for column, absolute, relative, is_within in differences(
                name, table, read_golden(model, name)
            ):
                if not is_within:
                    print(f"{model}/{name} {column}: {absolute:.3g}, relative {relative:.2g}")
        write_golden(table, model, name)


if __name__ == "__main__":
    for chosen_model in sys.argv[1:] or SEEDS:
        make(chosen_model)
