"""Write the notebooks without their solutions into build/student: ``make student``.

A cell that begins with a folded solution or answer is left out, with what follows it in the cell.
The stub and the check of each exercise stay, and so do the outputs.  The notebooks run there as
they do in notebooks/.
"""

import re
import shutil
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "student"
SOLUTION = re.compile(r"<details>\s*<summary>\s*(Solution|Answer)s?\b", re.IGNORECASE)
TO_THE_REPOSITORY = re.compile(r"\[([^\]]*)\]\(\.\./[^)]*\)")  # a link out of the folder


def without_solutions(notebook: nbformat.NotebookNode) -> int:
    """Remove the cells with solutions from a notebook, and return how many there were."""
    cells = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            if SOLUTION.search(cell.source):
                continue
            cell.source = TO_THE_REPOSITORY.sub(r"\1", cell.source)
        cells.append(cell)
    removed = len(notebook.cells) - len(cells)
    notebook.cells = cells
    return removed


def main() -> None:
    """Write each notebook, and say how many solutions it lost."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        removed = without_solutions(notebook)
        nbformat.write(notebook, FOLDER / path.name)
        print(f"{path.name}: {removed} solutions left out")
    print(f"the notebooks are in {FOLDER.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
