"""One page for a whole run: its facts, figures, tables and viewers, to read, print or send.

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

from helpers.analysis.paper import verdicts
from helpers.csv_cells import unescape_formulas
from helpers.errors import InputError
from helpers.paths import build_dir, figures_dir, whole_file, write_whole
from helpers.run.notebooks import read_times
from helpers.sources import listed
from helpers.study import Study
from helpers.viewer.page import document, json_in_html, render
from helpers.viewer.view import Viewer, viewers

HERE = Path(__file__).parent
LARGEST = 15_000_000  # bytes: what can be sent by mail
LARGEST_TABLE = 1_500_000  # bytes
WIDEST = 40  # columns of a table that is shown; a wider one is only offered as a file
LONG = 40  # characters of a cell: its column is broken into lines
OPEN_ROWS = 16  # a longer table starts folded (and can be searched)
UNFOLDED = ("atlas", "claims")
# Of claims.csv, below a section.
OF_CLAIMS = ["claim", "paper_value", "here", "ci_low", "ci_high", "holds", "learned"]


def write_report(
    study_facts: Mapping[str, Any],
    figures: Path,
    tables: Path,
    build: Path,
    viewers: Iterable[Viewer] = (),
) -> Path:
    """Write ``index.html`` into ``build`` and return its path.

    ``study_facts`` are those of `run.record.describe`, or the ``notes`` of a comparison.  Shown are
    the PNG files of ``figures``, the CSV files of ``tables``, the verdicts on each section's
    claims, and as many ``viewers`` as fit into 15 MB.
    """
    facts, times = dict(study_facts), read_times(build)
    if times:
        facts["time of the notebooks"] = _duration(sum(times.values()))
    copies = sorted(build.glob("[0-9]*.html"))
    read = [how for what, how in facts.get("corpora", {}).items() if what == "text, as read"]
    notes, notebooks = facts.pop("notes", read), facts.pop("notebooks", {})
    wrote = {name: {*own["figures"], *own["tables"]} for name, own in notebooks.items()}
    shown = {
        "run": build.name,
        "name": facts.get("model", {}).get("name") or build.name,
        "notes": notes,
        "parts": list(_parts(figures, tables, {p: wrote.get(p.stem, set()) for p in copies})),
        "notebooks": {p: _duration(times[p.stem]) if p.stem in times else "" for p in copies},
        "facts": facts,
        "style": (HERE / "report.css").read_text(encoding="utf-8"),
        "script": (HERE / "report.js").read_text(encoding="utf-8"),
    }
    page = render(HERE / "report.html", **shown)
    shown |= _viewers(viewers, LARGEST - len(page.encode()))
    build.mkdir(parents=True, exist_ok=True)
    path = build / "index.html"
    write_whole(path, render(HERE / "report.html", **shown).encode())
    return path


def zip_report(run: str) -> Path:
    """Zip a run's page, the HTML copies of its notebooks and its tables; return the file's path.

    InputError where the run has no page.
    """
    build, results = build_dir(run), figures_dir(run)
    if not (build / "index.html").is_file():
        raise InputError(f"{build}: there is no report; 'python -m helpers run' writes it")
    tables = _own((results / "tables").glob("*.csv"), listed(results, "tables"))
    path = build / f"{run}.zip"
    with whole_file(path) as new, ZipFile(new, "w", ZIP_DEFLATED) as archive:
        for file in (*build.glob("*.html"), *tables.values()):
            archive.write(file, Path(run, "tables" if file.suffix == ".csv" else "", file.name))
    return path


def example_viewers(study: Study) -> list[Viewer]:
    """Return a viewer of each example of Figures 1 and 5 that a notebook has drawn."""
    tables = study.tables()
    drawn = [tables[name] for name in ("fig1_examples", "fig5_examples") if name in tables]
    stores = (study.treebank_store, study.coreference_store)
    return [viewer for rows in drawn for viewer in viewers(rows, *stores)]


def _parts(figures: Path, tables: Path, wrote: Mapping[Path, set[str]]) -> Iterator[dict[str, Any]]:
    """Yield the parts of contents.toml that have something to show, and one of what none names.

    ``wrote`` has the HTML copies of the notebooks with what each wrote, which link to them.
    """
    pictures = _own(figures.glob("*.png"), listed(figures, "figures"))
    files = _own(tables.glob("*.csv"), listed(figures, "tables"))
    contents = tomllib.loads((HERE / "contents.toml").read_text(encoding="utf-8"))
    claims = _read(files["claims"]) if "claims" in files else None
    rest = {"title": "More results", "tables": [*files], "figures": dict.fromkeys(pictures, "")}
    for part in (*contents["part"], rest):
        kinds = ("", "control_", "focused_")
        names = [kind + table for table in part["tables"] for kind in kinds]
        own = [files.pop(name) for name in names if name in files]
        captions = part.get("figures", {})
        drawn = [pictures.pop(name) for name in captions if name in pictures]
        stems = {path.stem for path in (*own, *drawn)}
        if not stems:
            continue
        found = [_table(path) for path in own]
        if claims is not None and "claims" in part:
            about = claims[claims["section"].str.startswith(tuple(part["claims"]))]
            found.append(_shown("the paper's claims, here", about.filter(OF_CLAIMS)))
        yield part | {
            "short": part["title"].partition(" (")[0],
            "pictures": [_picture(path, captions[path.stem]) for path in drawn],
            "found": found,
            "notebooks": [path for path, names in wrote.items() if stems & names],
        }


def _own(found: Iterable[Path], listed: set[str] | None) -> dict[str, Path]:
    """Return files by name; where a run has a list of what it wrote, those on it."""
    return {path.stem: path for path in sorted(found) if listed is None or path.stem in listed}


def _picture(path: Path, caption: str) -> dict[str, str]:
    number = path.stem.split("_")[0].removeprefix("fig")
    label = f"Figure {number}" if number.isdecimal() else path.stem.replace("_", " ").capitalize()
    return {"label": label, "caption": caption, "data": _in_base64(path)}


def _table(path: Path) -> dict[str, Any]:
    title, size = path.stem.replace("_", " "), path.stat().st_size
    if size > LARGEST_TABLE:
        return {"title": title, "note": f"{size / 1e6:,.0f} MB, too much for a page"}
    table = _read(path)
    file = {"file": path.name, "data": _in_base64(path)}
    if table.shape[1] > WIDEST:
        count = f"{len(table)} x {table.shape[1]}, too wide to show"
        return {"title": title, "note": count} | file
    if path.stem == "claims" and {"holds", "learned"} <= set(table):
        paper = table[table["section"] < "9"]  # later papers' sections begin with a name
        file["verdicts"] = verdicts(paper["holds"], paper["learned"])
    return _shown(title, table, opened=path.stem in UNFOLDED) | file


def _read(path: Path) -> pd.DataFrame:
    """Return a table of text, with the digits that stand in the file."""
    return unescape_formulas(pd.read_csv(path, dtype=str, keep_default_na=False))


def _shown(title: str, table: pd.DataFrame, *, opened: bool = False) -> dict[str, Any]:
    """Return a table of text, its numbers cut short; the file has all digits."""
    numbers = table.apply(pd.to_numeric, errors="coerce")
    are_numbers = (numbers.notna() | (table == "")).all()
    are_long = table.map(len).max() > LONG
    kinds = ["number" if n else "text" * w for n, w in zip(are_numbers, are_long, strict=True)]
    names = (name.replace("_", " ") for name in table)
    return {
        "title": title,
        "columns": list(zip(names, kinds, strict=True)),
        "rows": table.map(_short).to_numpy().tolist(),
        "open": opened or len(table) <= OPEN_ROWS,
    }


def _short(cell: str) -> str:
    """Return a number with at most four digits after its leading zeros."""
    try:
        number = float(cell)
    except ValueError:
        return cell
    if cell.lstrip("-").isdecimal():
        return cell
    return f"{number:.1f}" if abs(number) >= 1000 else f"{number:.4g}"


def _viewers(viewers: Iterable[Viewer], room: int) -> dict[str, Any]:
    """Return the viewers that there is room for, and the page that all of them share."""
    shared = json_in_html(document("Attention viewer", "DATA"))  # unfolding one puts its data in
    room, found, left = room - len(shared), [], 0
    for viewer in viewers:
        data = json_in_html(viewer.data())
        if len(data.encode()) + 1000 < room:
            room -= len(data.encode()) + 1000
            found.append((viewer.heading, data))
        else:
            left += 1
    return {"viewers": found, "left_out": left, "viewer": shared}


def _in_base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
