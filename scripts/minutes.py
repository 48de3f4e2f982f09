"""Fill in the minutes that reading a notebook takes: in the notebooks and on pages of the book.

Words / 150, lines of code / 6, two minutes a figure, one a table and five an exercise.  Solutions
and folded cells are left out.  The page for teachers also gets what a student can do after each
notebook, and plans, each with the sum of its minutes.
"""

import ast
import re
from collections.abc import Mapping
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "book" / "notebooks.md"
TEACHERS = ROOT / "book" / "teachers.md"
WORDS_PER_MINUTE = 150
LINES_PER_MINUTE = 6
MINUTES_PER_FIGURE = 2
MINUTES_PER_TABLE = 1
MINUTES_PER_EXERCISE = 5
SOLUTION = re.compile(r"<details>.*?</details>", re.DOTALL)
FIGURE = re.compile(r"save_figure\(|plt\.subplots\(|draw_arcs\(")
SHOWN_TABLE = re.compile(r"^\s*display\((?!figure|picture)", re.MULTILINE)
NO_TABLE = re.compile(r"print\(|check\(|view\(|verdict_list\(|draw_arcs\(|(axes|plt|study)\.")
EXERCISE = re.compile(r"^check\(", re.MULTILINE)
OBJECTIVES = re.compile(r"After this notebook, you can\n\n((?:- .*\n(?:  .*\n)*)+)")
# The notebooks of each plan, and the minutes that a class has.
PLANS = {
    "one hour": ("01", 60),
    "half a day": ("00 01 04", 210),
    "two days": ("00 01 02 03 04 05 06", 2 * 210),
}
SESSION_MINUTES = 90  # of a seminar


def reading_minutes(notebook: nbformat.NotebookNode) -> int:
    """Estimate the minutes that a student needs for a notebook."""
    minutes = 0.0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            minutes += len(SOLUTION.sub("", cell.source).split()) / WORDS_PER_MINUTE
        elif not cell.metadata.get("jupyter", {}).get("source_hidden"):
            lines = [line for line in cell.source.splitlines() if line.strip()]
            minutes += len(lines) / LINES_PER_MINUTE
            minutes += MINUTES_PER_FIGURE * len(FIGURE.findall(cell.source))
            minutes += MINUTES_PER_TABLE * count_tables(cell.source)
            minutes += MINUTES_PER_EXERCISE * len(EXERCISE.findall(cell.source))
    return 5 * round(minutes / 5)


def count_tables(source: str) -> int:
    """Count the tables that a cell shows: those of `display`, and a value at the end."""
    last = ast.parse(source).body[-1]
    ends_in_value = isinstance(last, ast.Expr) and not NO_TABLE.match(ast.unparse(last))
    ends_in_table = ends_in_value and not ast.unparse(last).startswith("display(")
    return len(SHOWN_TABLE.findall(source)) + ends_in_table


def with_minutes(page: str, minutes: Mapping[str, int]) -> str:
    """Write the minutes of each notebook into its row of the table, the second cell."""
    for stem, number in minutes.items():
        link = rf"\[[^|]*/{stem}\.ipynb\)"
        row = re.compile(rf"^(\| \d\d {link} \| )[^|]*( \|)", re.MULTILINE)
        page = row.sub(rf"\g<1>{number}\g<2>", page)
    return page


def objectives(notebook: nbformat.NotebookNode) -> list[str]:
    """Read what a student can do after a notebook from its first cell."""
    listed = OBJECTIVES.search(notebook.cells[0].source + "\n")
    if not listed:
        return []
    items = listed[1].removeprefix("- ").split("\n- ")
    return [" ".join(item.split()).rstrip(",.;") for item in items]


def objectives_block(notebooks: Mapping[str, nbformat.NotebookNode]) -> str:
    """Write a row for each notebook: its objectives and its minutes."""
    rows = ["| notebook | minutes | after it, a student can |", "|---|---|---|"]
    for stem, notebook in notebooks.items():
        link = f"[{stem[:2]}](../notebooks/{stem}.ipynb)"
        rows.append(f"| {link} | {reading_minutes(notebook)} | {'; '.join(objectives(notebook))} |")
    return "\n".join(rows)


def plans_block(minutes: Mapping[str, int]) -> str:
    """Write a row for each plan, with the sum of its minutes.

    Raises
    ------
    ValueError
        If the notebooks of a plan need more than a class has.
    """
    by_number = {stem[:2]: number for stem, number in minutes.items()}
    rows = ["| time | notebooks | minutes of reading and exercises |", "|---|---|---|"]
    for name, (numbers, limit) in PLANS.items():
        needed = sum(by_number[number] for number in numbers.split())
        if needed > limit:
            raise ValueError(f"the plan {name} needs {needed} minutes and has {limit}")
        rows.append(f"| {name} | {', '.join(numbers.split())} | {needed} of {limit} |")
    longest = max(by_number.values())
    if longest > SESSION_MINUTES:
        raise ValueError(f"a notebook needs {longest} minutes, a session has {SESSION_MINUTES}")
    rows.append(
        f"| a seminar of {len(by_number)} sessions | one in each session "
        f"| at most {longest} of {SESSION_MINUTES} |"
    )
    return "\n".join(rows)


def with_block(page: str, name: str, text: str) -> str:
    """Replace what stands between ``<!-- name -->`` and ``<!-- end -->``."""
    pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
    return re.sub(pattern, lambda match: f"{match[1]}{text}\n{match[2]}", page, flags=re.DOTALL)


def pages(notebooks: Mapping[str, nbformat.NotebookNode]) -> dict[Path, str]:
    """Return the pages of the book with the minutes of notebooks, as they should be."""
    minutes = {stem: reading_minutes(notebook) for stem, notebook in notebooks.items()}
    teachers = TEACHERS.read_text(encoding="utf-8")
    teachers = with_block(teachers, "objectives", objectives_block(notebooks))
    teachers = with_block(teachers, "plans", plans_block(minutes))
    table = with_minutes(TABLE.read_text(encoding="utf-8"), minutes)
    return {TABLE: table, TEACHERS: teachers}


def read_notebooks() -> dict[str, nbformat.NotebookNode]:
    """Read the notebooks of the series, by stem."""
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    return {path.stem: nbformat.read(path, as_version=4) for path in paths}


def main() -> None:
    """Fill in the minutes."""
    notebooks = read_notebooks()
    for stem, notebook in notebooks.items():
        first = notebook.cells[0]
        text = f"Reading: {reading_minutes(notebook)} minutes."
        source = re.sub(r"Reading: \d+ minutes[^.]*\.", text, first.source)
        if source != first.source:
            first.source = source
            nbformat.write(notebook, ROOT / "notebooks" / f"{stem}.ipynb")
    for path, text in pages(notebooks).items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
