"""Fill in the minutes that reading a notebook takes: in the notebooks and in the README's table.

Words / 150, lines of code / 6, two minutes a figure and five an exercise.  Solutions and the cell
of settings are left out.
"""

import re
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
WORDS_PER_MINUTE = 150
LINES_PER_MINUTE = 6
MINUTES_PER_FIGURE = 2
MINUTES_PER_EXERCISE = 5
SOLUTION = re.compile(r"<details>.*?</details>", re.DOTALL)
FIGURE = re.compile(r"save_figure\(|plt\.subplots\(")
EXERCISE = re.compile(r"^check\.", re.MULTILINE)


def reading_minutes(notebook: nbformat.NotebookNode) -> int:
    """Estimate the minutes that a student needs for a notebook."""
    minutes = 0.0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            minutes += len(SOLUTION.sub("", cell.source).split()) / WORDS_PER_MINUTE
        elif "parameters" not in cell.metadata.get("tags", []):
            lines = [line for line in cell.source.splitlines() if line.strip()]
            minutes += len(lines) / LINES_PER_MINUTE
            minutes += MINUTES_PER_FIGURE * len(FIGURE.findall(cell.source))
            minutes += MINUTES_PER_EXERCISE * len(EXERCISE.findall(cell.source))
    return 5 * round(minutes / 5)


def with_minutes(page: str, minutes: dict[str, int]) -> str:
    """Write the minutes of each notebook into its row of the README's table, the fourth cell."""
    for stem, number in minutes.items():
        row = re.compile(rf"^(\| \[{stem}\]\([^|]*\|[^|]*\|[^|]*\| )[^|]*( \|)", re.MULTILINE)
        page = row.sub(rf"\g<1>{number}\g<2>", page)
    return page


def main() -> None:
    """Fill in the minutes."""
    minutes = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        minutes[path.stem] = reading_minutes(notebook)
        first = notebook.cells[0]
        number = minutes[path.stem]
        first.source = re.sub(
            r"Reading: \d+ minutes[^.]*\.", f"Reading: {number} minutes.", first.source
        )
        nbformat.write(notebook, path)
    README.write_text(with_minutes(README.read_text(encoding="utf-8"), minutes), encoding="utf-8")


if __name__ == "__main__":
    main()
