"""The report: one page with the facts, figures, tables and viewers of a run, to read or to send.

The page is one file, loads nothing from anywhere, and links only to the notebooks' HTML copies
that lie beside it.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pandas as pd

from beyond.atlas_plot import COLORS
from beyond.claims.display import LEAST_P, THIS_MODEL, summarise_claims
from beyond.claims.engine import count_verdicts
from beyond.pages.answers import answers
from helpers.cache import read_table
from helpers.files import atomic_file, write_atomic
from helpers.results import Results, read_tables, run_record
from helpers.run import read_title
from helpers.settings import Settings
from helpers.study import Study
from helpers.viewer.page import document, render
from helpers.viewer.view import Viewer, viewers

HERE = Path(__file__).parent
MAX_TABLE_BYTES = 1_500_000
MAX_VIEWERS = 12  # the page is to be sent by mail
FIRST_PICTURES = ("fig2_token_types", "nearest_words", "probes", "compare")
TILE = ("layer", "head", "kind", "name", "number", "relation", "direction")  # of the atlas
MAX_COLUMNS = 40  # a wider table is only named
LONG_CELL = 40  # characters: a column with longer cells is broken into lines


def write_report(folder: Path, viewers: Sequence[Viewer] = (), *, link: str = "") -> Path:
    """Write ``index.html``, the page of a run or a comparison, from what its ``run.json`` lists.

    It begins with three sentences that answer what the model looks at, the atlas of its heads and
    three pictures.  The claims follow, section by section.  Then come viewers and, folded, a part
    for each notebook, and what the run is.

    Parameters
    ----------
    folder : Path
        The folder with ``run.json``, ``tables/``, the figures and the notebooks' HTML copies, into
        which the page is written.
    viewers : sequence of Viewer
        At most `MAX_VIEWERS` of them are shown (`choose_viewers`).
    link : str
        The name of the run whose page is the other half of this one; empty if there is none.

    Returns
    -------
    Path
    """
    record = run_record(folder)
    tables = record.pop("tables")
    figures = record.pop("figures")
    notes = record.pop("notes", [])
    special_tokens = record.pop("special_tokens", {})
    own_tables = {name: table for name, table in read_tables(folder).items() if name in tables}
    pictures_of: dict[str, list[dict[str, str]]] = {}
    for name, figure in sorted(figures.items()):
        picture = _picture(folder, name, figure)
        if picture:
            pictures_of.setdefault(figure["notebook"], []).append(picture)
    parts = []
    first_writers = {name: writers.split(", ")[0] for name, writers in tables.items()}
    for notebook in sorted({*first_writers.values(), *pictures_of}):
        names = sorted(name for name, writer in first_writers.items() if writer == notebook)
        parts.append(
            {
                "id": f"part-{notebook}".replace(" ", "-"),
                "title": read_title(notebook) or "Other results",
                "html": f"{notebook}.html" if (folder / f"{notebook}.html").is_file() else "",
                "pictures": pictures_of.get(notebook, []),
                "tables": _tables(folder / "tables", names),
            }
        )
    pictures = [picture for part in parts for picture in part["pictures"]]
    claims_path = folder / "tables" / "claims.csv"
    page = render(
        HERE / "report.html",
        run=folder.name,
        link=link,
        today=date.today().isoformat(),
        name=record.get("model", {}).get("name", folder.name),
        notes=notes,
        answers=answers(own_tables, special_tokens),
        atlas=_tiles(own_tables.get("atlas", pd.DataFrame())),
        colors=COLORS,
        claims=_table(claims_path) if claims_path.is_file() else None,
        first_pictures=[picture for picture in pictures if picture["name"] in FIRST_PICTURES],
        parts=parts,
        facts=record,
        viewers=[
            (view.heading, document(view.heading, view.data())) for view in choose_viewers(viewers)
        ],
        n_viewers=len(viewers),
        style=(HERE / "report.css").read_text(encoding="utf-8"),
        script=(HERE / "report.js").read_text(encoding="utf-8"),
    )
    path = folder / "index.html"
    write_atomic(path, page.encode())
    return path


def choose_viewers(viewers: Sequence[Viewer]) -> list[Viewer]:
    """Choose at most `MAX_VIEWERS` viewers, the first of every title before the second of one."""
    numbers: Counter[str] = Counter()
    ranks = []
    for index, view in enumerate(viewers):
        ranks.append((numbers[view.title], index))
        numbers[view.title] += 1
    chosen = sorted(index for _, index in sorted(ranks)[:MAX_VIEWERS])
    return [viewers[index] for index in chosen]


def zip_report(folder: Path) -> Path:
    """Zip a run's page, which has the tables in it, and the HTML copies of its notebooks."""
    path = folder / f"{folder.name}.zip"
    with atomic_file(path) as new, ZipFile(new, "w", ZIP_DEFLATED) as archive:
        for page in folder.glob("*.html"):
            archive.write(page, Path(folder.name, page.name))
    return path


def write_run_report(settings: Settings, *, later: bool = False) -> Path:
    """Write the report of a run, with viewers of its examples and a link to its other half."""
    study = Study(later=later, **asdict(settings))
    folder = study.results.build
    other_run = Results(settings, later=not later)
    link = other_run.name if (other_run.build / "index.html").is_file() else ""
    return write_report(folder, example_viewers(study), link=link)


def example_viewers(study: Study) -> list[Viewer]:
    """Make a viewer of each example of Figures 1 and 5 that a notebook has drawn."""
    tables = study.results.own_tables()
    example_viewers = []
    for name in ("fig1_examples", "fig5_examples"):
        if name in tables:
            example_viewers += viewers(tables[name], study.example_store, study.coreference_store)
    return example_viewers


def _picture(folder: Path, name: str, figure: Mapping[str, str]) -> dict[str, str]:
    """Prepare a figure: its title, which is its finding, caption and PNG; empty without a file."""
    path = folder / f"{name}.png"
    if not path.is_file():
        return {}
    label = name.replace("fig", "figure ").replace("_", " ").capitalize()
    title = figure.get("title") or label
    return {"name": name, "title": title, "caption": figure["caption"], "data": _in_base64(path)}


def _tiles(atlas: pd.DataFrame) -> list[dict[str, Any]]:
    """Prepare the atlas of one run, or those of several: the tiles of each, layer by layer."""
    if not set(TILE) <= set(atlas):
        return []
    models = atlas["model"] if "model" in atlas else pd.Series("", index=atlas.index)
    grids = []
    for model, heads in atlas.astype(object).fillna("").groupby(models, sort=False):
        grids.append(
            {
                "model": model,
                "columns": int(heads["head"].max()),
                "heads": heads[list(TILE)].to_dict("records"),
                "kinds": [name for name in COLORS if (heads["kind"] == name).any()],
            }
        )
    return grids


def _tables(folder: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Prepare the tables of a notebook, except that of claims, which comes first in the page."""
    paths = [folder / f"{name}.csv" for name in names if name != "claims"]
    return [_table(path) for path in paths if path.is_file()]


def _table(path: Path) -> dict[str, Any]:
    """Prepare a table for the page: its rows, or a note if it is too large for a page.

    Its numbers are cut short; the file, which the page offers, has all digits.
    """
    # Text, with the digits that stand in the file.
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    content: dict[str, Any] = {"title": path.stem.replace("_", " ")}
    if path.stat().st_size > MAX_TABLE_BYTES or table.shape[1] > MAX_COLUMNS:
        return content | {"note": f"{len(table)} x {table.shape[1]}, too large for a page"}
    content |= {"file": path.name, "data": _in_base64(path)}
    if "adjusted_low" in table:  # the claims of a run
        paper = table[table["section"] < "9"]  # later papers' sections begin with a name
        content["verdicts"] = count_verdicts(paper["verdict"], paper["due_to_training"])
        content["sections"] = _claims_by_section(read_table(path, dtype={"section": str}))
    elif "claim" in table:  # those of several runs
        content["summary"] = _grid(table)
    return content | _grid(table)


def _grid(table: pd.DataFrame) -> dict[str, Any]:
    """Prepare columns of text for the page, with a CSS class for each, and rows."""
    short = {name: table[name].apply(_short, is_p_value=name.startswith("p_")) for name in table}
    return {
        "columns": [(name.replace("_", " "), _css_class(table[name])) for name in table],
        "rows": pd.DataFrame(short).to_numpy().tolist(),
    }


def _claims_by_section(claims: pd.DataFrame) -> list[tuple[str, list[dict[str, str]]]]:
    """Prepare claims as sentences: the numbers with their units, the threshold and the verdict."""
    rows = summarise_claims(claims).rename(columns={THIS_MODEL: "here"}).to_dict("records")
    sections: dict[str, list[dict[str, str]]] = {}
    for row, claim in zip(rows, claims.to_dict("records"), strict=True):
        row["mark"] = claim["verdict"].replace(" ", "-")
        row["threshold"] = f"{claim['threshold']:.3g}" if pd.notna(claim["threshold"]) else ""
        sections.setdefault(str(claim["section"]), []).append(row)
    return list(sections.items())


def _css_class(column: pd.Series) -> str:
    """Choose how a column of text is set: as numbers, as long text in several lines, or plainly."""
    numbers = pd.to_numeric(column, errors="coerce")
    if (numbers.notna() | (column == "")).all():
        return "number"
    return "text" if column.map(len).max() > LONG_CELL else ""


def _short(cell: str, *, is_p_value: bool = False) -> str:
    """Shorten a number to four digits after its leading zeros."""
    try:
        number = float(cell)
    except ValueError:
        return cell
    if is_p_value and number < LEAST_P:
        return f"< {LEAST_P:.4f}"
    if cell.lstrip("-").isdecimal():
        return cell
    return f"{number:.1f}" if abs(number) >= 1000 else f"{number:.4g}"


def _in_base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
