"""Write the tables of model families in book/own-model.md and helpers/model/README.md again.

They come from tiny models of tests/zoo.py; tests/model/test_zoo.py fails where a page differs.
"""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import readme_tables  # noqa: E402
import zoo  # noqa: E402

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        blocks = zoo.blocks(zoo.save_and_load(Path(folder)))
    for name in zoo.PAGES:
        page = ROOT / name
        page.write_text(readme_tables.written_anew(page.read_text(), blocks))
