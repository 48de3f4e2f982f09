"""The report: one page with the facts, figures, tables and viewers of a run, to read or to send.

The page is one file, loads nothing from anywhere, and links only to the notebooks' HTML copies
that lie beside it.
"""

from __future__ import annotations

import base64
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pandas as pd

from helpers.claims.engine import verdicts
from helpers.csv_cells import unescape_formulas
from helpers.errors import InputError
from helpers.files import atomic_file, build_dir, figures_dir, write_atomic
from helpers.results import TEXT_AS_READ
from helpers.run.notebooks import read_times
from helpers.sources import recorded_outputs
from helpers.study import Study
from helpers.viewer.page import document, json_in_html, render
from helpers.viewer.view import Viewer, viewers

HERE = Path(__file__).parent
MAX_PAGE_BYTES = 15_000_000  # what can be sent by mail
MAX_TABLE_BYTES = 1_500_000
MAX_COLUMNS = 40  # a wider table is only offered as a file
LONG_CELL = 40  # characters: a column with longer cells is broken into lines
MAX_OPEN_ROWS = 16  # a longer table starts folded (and can be searched)
MARKUP_BYTES = 1000  # around the data of a viewer
UNFOLDED = ("atlas", "claims")
# The columns of claims.csv that are shown below a section.
CLAIM_COLUMNS = [
    "claim", "paper_value", "value", "value_low", "value_high", "verdict", "due_to_training",
]  # fmt: skip


def write_report(
    study_facts: Mapping[str, Any],
    figures: Path,
    tables: Path,
    build: Path,
    viewers: Iterable[Viewer] = (),
) -> Path:
    """Write ``index.html``, the page of a run or a comparison.

    Parameters
    ----------
    study_facts : mapping
        Those of `run.record.describe`, or the ``model`` and ``notes`` of a comparison.
    figures, tables : Path
        The folders of the PNG files and of the CSV files.
    build : Path
        The folder of the notebooks' HTML copies, into which the page is written.
    viewers : iterable of Viewer
        As many of them are shown as fit into 15 MB.

    Returns
    -------
    Path
    """
    description = dict(study_facts)
    times = read_times(build)
    if times:
        description["time of the notebooks"] = _duration(sum(times.values()))
    copies = sorted(build.glob("[0-9]*.html"))
    notes = description.pop("notes", None)
    if notes is None:
        text_as_read = description.get("corpora", {}).get(TEXT_AS_READ)
        notes = [text_as_read] if text_as_read else []
    written = {}
    for name, entry in description.pop("notebooks", {}).items():
        written[name] = {*entry["figures"], *entry["tables"]}
    page_parts = {
        "run": build.name,
        "name": description.get("model", {}).get("name") or build.name,
        "notes": notes,
        "parts": list(
            _parts(figures, tables, {path: written.get(path.stem, set()) for path in copies})
        ),
        "notebooks": {
            path: _duration(times[path.stem]) if path.stem in times else "" for path in copies
        },
        "facts": description,
        "style": (HERE / "report.css").read_text(encoding="utf-8"),
        "script": (HERE / "report.js").read_text(encoding="utf-8"),
    }
    page = render(HERE / "report.html", **page_parts)
    page_parts |= _viewers(viewers, MAX_PAGE_BYTES - len(page.encode()))
    build.mkdir(parents=True, exist_ok=True)
    path = build / "index.html"
    write_atomic(path, render(HERE / "report.html", **page_parts).encode())
    return path


def zip_report(run: str) -> Path:
    """Zip a run's page, the HTML copies of its notebooks and its tables.

    Raises
    ------
    InputError
        If the run has no page.
    """
    build = build_dir(run)
    results = figures_dir(run)
    if not (build / "index.html").is_file():
        raise InputError(f"{build}: there is no report; 'python -m helpers run' writes it")
    tables = _listed_files((results / "tables").glob("*.csv"), recorded_outputs(results, "tables"))
    path = build / f"{run}.zip"
    with atomic_file(path) as new, ZipFile(new, "w", ZIP_DEFLATED) as archive:
        for file in (*build.glob("*.html"), *tables.values()):
            archive.write(file, Path(run, "tables" if file.suffix == ".csv" else "", file.name))
    return path


def example_viewers(study: Study) -> list[Viewer]:
    """Make a viewer of each example of Figures 1 and 5 that a notebook has drawn."""
    tables = study.tables()
    example_viewers = []
    for name in ("fig1_examples", "fig5_examples"):
        if name in tables:
            example_viewers += viewers(tables[name], study.treebank_store, study.coreference_store)
    return example_viewers


def _parts(
    figures: Path, tables: Path, written: Mapping[Path, set[str]]
) -> Iterator[dict[str, Any]]:
    """Yield the parts of contents.toml that have something to show, and one of what none names.

    ``written`` has the names of the tables and figures of each notebook, by its HTML copy.
    """
    pictures = _listed_files(figures.glob("*.png"), recorded_outputs(figures, "figures"))
    files = _listed_files(tables.glob("*.csv"), recorded_outputs(figures, "tables"))
    contents = tomllib.loads((HERE / "contents.toml").read_text(encoding="utf-8"))
    claims = _read(files["claims"]) if "claims" in files else None
    rest = {"title": "More results", "tables": [*files], "figures": dict.fromkeys(pictures, "")}
    for part in (*contents["part"], rest):
        names = []
        for table in part["tables"]:
            names += [table, f"random_{table}", f"entropy_matched_{table}"]
        table_paths = [files.pop(name) for name in names if name in files]
        captions = part.get("figures", {})
        picture_paths = [pictures.pop(name) for name in captions if name in pictures]
        stems = {path.stem for path in (*table_paths, *picture_paths)}
        if not stems:
            continue
        formatted = [_table(path) for path in table_paths]
        if claims is not None and "claims" in part:
            about = claims[claims["section"].str.startswith(tuple(part["claims"]))]
            formatted.append(_format_table("the paper's claims, here", about.filter(CLAIM_COLUMNS)))
        yield part | {
            "short": part["title"].partition(" (")[0],
            "pictures": [_picture(path, captions[path.stem]) for path in picture_paths],
            "found": formatted,
            "notebooks": [path for path, outputs in written.items() if stems & outputs],
        }


def _listed_files(paths: Iterable[Path], names: set[str] | None) -> dict[str, Path]:
    """Select the files that ``run.json`` lists (None: all of them), by name."""
    return {path.stem: path for path in sorted(paths) if names is None or path.stem in names}


def _picture(path: Path, caption: str) -> dict[str, str]:
    number = path.stem.split("_")[0].removeprefix("fig")
    label = f"Figure {number}" if number.isdecimal() else path.stem.replace("_", " ").capitalize()
    return {"label": label, "caption": caption, "data": _in_base64(path)}


def _table(path: Path) -> dict[str, Any]:
    """Prepare a table for the page: its rows, or a note if it is too large for a page."""
    title = path.stem.replace("_", " ")
    size = path.stat().st_size
    if size > MAX_TABLE_BYTES:
        return {"title": title, "note": f"{size / 1e6:,.0f} MB, too much for a page"}
    table = _read(path)
    file = {"file": path.name, "data": _in_base64(path)}
    if table.shape[1] > MAX_COLUMNS:
        count = f"{len(table)} x {table.shape[1]}, too wide to show"
        return {"title": title, "note": count} | file
    if path.stem == "claims" and {"verdict", "due_to_training"} <= set(table):
        paper = table[table["section"] < "9"]  # later papers' sections begin with a name
        file["verdicts"] = verdicts(paper["verdict"], paper["due_to_training"])
    return _format_table(title, table, opened=path.stem in UNFOLDED) | file


def _read(path: Path) -> pd.DataFrame:
    """Return a table of text, with the digits that stand in the file."""
    return unescape_formulas(pd.read_csv(path, dtype=str, keep_default_na=False))


def _format_table(title: str, table: pd.DataFrame, *, opened: bool = False) -> dict[str, Any]:
    """Prepare a table of text for the page, its numbers cut short; the file has all digits."""
    columns = []
    for name in table:
        columns.append((name.replace("_", " "), _css_class(table[name])))
    return {
        "title": title,
        "columns": columns,
        "rows": table.map(_short).to_numpy().tolist(),
        "open": opened or len(table) <= MAX_OPEN_ROWS,
    }


def _css_class(column: pd.Series) -> str:
    """Choose how a column of text is set: as numbers, as long text in several lines, or plainly."""
    numbers = pd.to_numeric(column, errors="coerce")
    if (numbers.notna() | (column == "")).all():
        return "number"
    return "text" if column.map(len).max() > LONG_CELL else ""


def _short(cell: str) -> str:
    """Shorten a number to four digits after its leading zeros."""
    try:
        number = float(cell)
    except ValueError:
        return cell
    if cell.lstrip("-").isdecimal():
        return cell
    return f"{number:.1f}" if abs(number) >= 1000 else f"{number:.4g}"


def _viewers(viewers: Iterable[Viewer], room: int) -> dict[str, Any]:
    """Select the viewers that fit into ``room`` bytes, and make the page that all of them share."""
    # The script of report.js puts the data of an example in when its viewer is unfolded.
    shared_page = json_in_html(document("Attention viewer", "DATA"))
    room -= len(shared_page)
    fitting = []
    left_out = 0
    for viewer in viewers:
        viewer_data = json_in_html(viewer.data())
        size = len(viewer_data.encode()) + MARKUP_BYTES
        if size < room:
            room -= size
            fitting.append((viewer.heading, viewer_data))
        else:
            left_out += 1
    return {"viewers": fitting, "left_out": left_out, "viewer": shared_page}


def _in_base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _duration(seconds: float) -> str:
    minutes, remainder = divmod(round(seconds), 60)
    return f"{minutes} min {remainder:02d} s" if minutes else f"{remainder} s"
