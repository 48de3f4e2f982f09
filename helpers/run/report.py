"""One page for a whole run: its facts, figures, tables and viewers, to read, print or send.

The page is one file, loads nothing from anywhere, and links only to the notebooks' HTML copies
that lie beside it.
"""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from helpers.analysis.tables import listed
from helpers.paths import write_whole
from helpers.run.notebooks import read_times
from helpers.study import Study
from helpers.viewer.page import POLICY, document, json_in_html
from helpers.viewer.view import Viewer, viewers

HERE = Path(__file__).parent
LARGEST = 15_000_000  # bytes: what can be sent by mail
LARGEST_TABLE = 1_500_000  # bytes
WIDEST = 40  # columns of a table that is shown; a wider one is only offered as a file
OPEN_ROWS = 16  # a longer table starts folded (and can be searched)
UNFOLDED = ("atlas",)
VIEWER = document("Attention viewer", "DATA")  # the page of every viewer, but for its data


class Part(NamedTuple):
    """What belongs together in a report: names of tables, and of figures with their captions."""

    title: str
    text: str
    tables: Sequence[str] = ()
    figures: Mapping[str, str] = {}


def write_report(
    study_facts: Mapping[str, Any],
    figures: Path,
    tables: Path,
    build: Path,
    viewers: Sequence[Viewer] = (),
) -> Path:
    """Write ``index.html`` into ``build`` and return its path.

    ``study_facts`` are those of `run.record.describe`: groups (``settings``, ``model`` ...) and
    single facts.  Shown are what the run found, the PNG files of ``figures``, the CSV files of
    ``tables``, and as many ``viewers`` as fit into 15 MB; what the run has not made is left out.
    """
    facts = dict(study_facts)
    name = str(facts.get("model", {}).get("name") or build.name)
    parts = list(_parts(figures, tables))
    sources = _sources(facts.pop("notebooks", {}), build)
    head = [
        _summary(facts.pop("notes", [])),
        *(_section(*part, sources) for part in parts),
        _facts(facts, build),
    ]
    page = _page(name, head, parts, build, [])
    room = LARGEST - len(page.encode())
    path = build / "index.html"
    build.mkdir(parents=True, exist_ok=True)
    write_whole(path, _page(name, head, parts, build, list(_frames(viewers, room))).encode())
    return path


def example_viewers(study: Study) -> list[Viewer]:
    """Return a viewer of each example of Figures 1 and 5 that a notebook has drawn."""
    tables = study.tables()
    drawn = [tables[name] for name in ("fig1_examples", "fig5_examples") if name in tables]
    stores = (study.treebank_store, study.coreference_store)
    return [viewer for rows in drawn for viewer in viewers(rows, *stores)]


def _parts(figures: Path, tables: Path) -> Iterator[tuple[Part, list[Path], list[Path]]]:
    """Yield the parts that have something to show, and a last one of what no part names."""
    pictures = _own(figures.glob("*.png"), listed(figures, "figures"))
    files = _own(tables.glob("*.csv"), listed(figures, "tables"))
    contents = tomllib.loads((HERE / "contents.toml").read_text(encoding="utf-8"))
    for part in (Part(**part) for part in contents["part"]):
        own = [pictures.pop(name) for name in part.figures if name in pictures]
        names = [name for table in part.tables for name in (table, f"control_{table}")]
        data = [files.pop(name) for name in names if name in files]
        if own or data:
            yield part, own, data
    if pictures or files:
        yield Part("More results", ""), list(pictures.values()), list(files.values())


def _own(found: Iterable[Path], listed: set[str] | None) -> dict[str, Path]:
    """Return files by name; where a run has a list of what it wrote, those on it."""
    return {path.stem: path for path in sorted(found) if listed is None or path.stem in listed}


def _page(
    name: str,
    sections: Sequence[str],
    parts: Sequence[tuple[Part, list[Path], list[Path]]],
    build: Path,
    frames: Sequence[str],
) -> str:
    title = f"What does {name} look at?"
    links = [("summary", "Summary")] * ('id="summary"' in sections[0])
    links += [(_anchor(part), _short_title(part)) for part, _, _ in parts]
    links += [("viewers", "Look for yourself")] * bool(frames)
    links += [("notebooks", "Notebooks")] * any(build.glob("[0-9]*.html"))
    links += [("run", "The run")]
    navigation = "".join(f'<a href="#{anchor}">{_text(label)}</a>' for anchor, label in links)
    viewers = (
        '<section id="viewers"><h2>Look for yourself</h2><p>The examples of Figures 1 and 5, with '
        "every head: choose a head, point at a token.</p>" + "".join(frames) + "</section>"
        f'<script type="application/json" id="viewer-page">{json_in_html(VIEWER)}</script>'
        if frames
        else ""
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{_text(title)}</title>
<link rel="icon" href="data:,">
<style>{(HERE / "report.css").read_text(encoding="utf-8")}</style>
</head>
<body>
<header>
<h1>{_text(title)}</h1>
<p>The analyses of <cite>What Does BERT Look At? An Analysis of BERT's Attention</cite> (Clark,
Khandelwal, Levy, Manning, 2019), run on {_text(name)}. Heads are named layer-head, from 1.</p>
</header>
<nav aria-label="Contents">{navigation}</nav>
<main>
{"".join(sections[:-1])}
{viewers}
{_notebooks(build)}
{sections[-1]}
</main>
<script>{(HERE / "report.js").read_text(encoding="utf-8")}</script>
</body>
</html>
"""


def _text(value: object) -> str:
    return html.escape(str(value))


def _short_title(part: Part) -> str:
    return part.title.partition(" (")[0]


def _anchor(part: Part) -> str:
    return _short_title(part).lower().replace(" ", "-")


def _facts(facts: Mapping[str, Any], build: Path) -> str:
    groups = {name: value for name, value in facts.items() if isinstance(value, Mapping)}
    single = {name: value for name, value in facts.items() if not isinstance(value, Mapping)}
    seconds = sum(read_times(build).values())
    if seconds:
        single["time of the notebooks"] = _duration(seconds)
    lists = {"run": single, **groups} if single else groups
    boxes = "".join(
        f"<div><h3>{_text(name)}</h3><dl>"
        + "".join(
            f"<div><dt>{_text(str(key).replace('_', ' '))}</dt>"
            f"<dd>{_fact(value, 'default' if name == 'settings' else '–')}</dd></div>"
            for key, value in group.items()
        )
        + "</dl></div>"
        for name, group in lists.items()
    )
    return (
        '<section id="run"><h2>The run</h2><details><summary>Settings, model, versions</summary>'
        f'<div class="facts">{boxes}</div></details></section>'
    )


def _fact(value: object, empty: str) -> str:
    if value is None or value == "":
        return f'<span class="default">{empty}</span>'
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | dict):
        return _text(json.dumps(value, ensure_ascii=False))
    return _text(f"{value:,}" if isinstance(value, int) else value)


def _summary(notes: Sequence[str]) -> str:
    """Return what is to be known before the tables, a paragraph a note."""
    if not notes:
        return ""
    paragraphs = "".join(f"<p>{_text(note)}</p>" for note in notes)
    return f'<section id="summary"><h2>Summary</h2><div class="prose">{paragraphs}</div></section>'


def _sources(notebooks: Mapping[str, Mapping[str, Sequence[str]]], build: Path) -> dict[str, Path]:
    """Return the HTML copy of the notebook that wrote each table and figure."""
    copies = {name: build / f"{name}.html" for name in notebooks}
    return {
        own: copy
        for name, copy in copies.items()
        if copy.is_file()
        for own in (*notebooks[name]["figures"], *notebooks[name]["tables"])
    }


def _link(copy: Path | None) -> str:
    if copy is None:
        return ""
    return f' <a href="{_text(copy.name)}">{_text(copy.stem.replace("_", " "))}</a>'


def _section(
    part: Part, figures: Sequence[Path], tables: Sequence[Path], sources: Mapping[str, Path]
) -> str:
    written = {sources[path.stem] for path in (*figures, *tables) if path.stem in sources}
    shown = [*(_figure(path, part) for path in figures), *map(_table, tables)]
    return (
        f'<section id="{_anchor(part)}"><h2>{_text(part.title)}</h2><p>{_text(part.text)}'
        f"{''.join(map(_link, sorted(written)))}</p>{''.join(shown)}</section>"
    )


def _figure(path: Path, part: Part) -> str:
    number = path.stem.split("_")[0].removeprefix("fig")
    label = f"Figure {number}" if number.isdecimal() else path.stem.replace("_", " ").capitalize()
    alt = f"{label}. {part.text} The numbers are in the tables of this section."
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    said = f"<figcaption>{_text(part.figures.get(path.stem, ''))}</figcaption>"
    return f'<figure><img src="data:image/png;base64,{data}" alt="{_text(alt)}">{said}</figure>'


def _table(path: Path) -> str:
    title, size = _text(path.stem.replace("_", " ")), path.stat().st_size
    if size > LARGEST_TABLE:
        return f'<p class="wide"><b>{title}</b>: {size / 1e6:,.0f} MB, too much for a page</p>'
    content = path.read_bytes()
    try:
        text = io.StringIO(content.decode("utf-8"), newline="")
        columns, *rows = list(csv.reader(text)) or [[]]
    except (csv.Error, UnicodeError):
        columns, rows = [], [[""]]
    data = base64.b64encode(content).decode("ascii")
    file = (
        f'<a class="file" download="{_text(path.name)}" href="data:text/csv;base64,{data}">'
        f"{_text(path.name)}</a>"
    )
    uneven = any(len(row) != len(columns) for row in rows)
    if uneven or len(columns) > WIDEST:
        count = f"{len(rows)} x {len(columns)}, too wide to show" if not uneven else "not a table"
        return f'<p class="wide"><b>{title}</b> ({count}): {file}</p>'
    numeric = [all(_is_number(row[i]) or not row[i] for row in rows) for i in range(len(columns))]
    kinds = [' class="number"' if own else "" for own in numeric]
    heads = "".join(
        f'<th scope="col"{kind}><button type="button">{_text(name.replace("_", " "))}</button></th>'
        for name, kind in zip(columns, kinds, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(map('<td{}>{}</td>'.format, kinds, map(_text, map(_short, row))))}</tr>"
        for row in rows
    )
    opened = " open" if len(rows) <= OPEN_ROWS or path.stem in UNFOLDED else ""
    return (
        f"<details{opened}><summary><b>{title}</b> ({len(rows)} rows) {file}</summary>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table><thead>'
        f"<tr>{heads}</tr></thead><tbody>{body}</tbody></table></div></details>"
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _short(cell: str) -> str:
    """Return a number with at most four digits after its leading zeros; the file has them all."""
    if not _is_number(cell) or cell.lstrip("-").isdecimal():
        return cell
    number = float(cell)
    return f"{number:.1f}" if abs(number) >= 1000 else f"{number:.4g}"


def _notebooks(build: Path) -> str:
    times = read_times(build)
    items = "".join(
        f'<li><a href="{_text(path.name)}">{_text(path.stem.replace("_", " "))}</a>'
        + (f" <span>{_duration(times[path.stem])}</span>" if path.stem in times else "")
        + "</li>"
        for path in sorted(build.glob("[0-9]*.html"))
    )
    if not items:
        return ""
    return f'<section id="notebooks"><h2>Notebooks</h2><ul class="files">{items}</ul></section>'


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _frames(viewers: Iterable[Viewer], room: int) -> Iterator[str]:
    """Yield viewers, folded, while there is room for them; unfolding one makes its frame."""
    left, room = 0, room - len(json_in_html(VIEWER))
    for viewer in viewers:
        block = (
            f'<details class="viewer"><summary>{_text(viewer.heading)}</summary>'
            f'<script type="application/json">{json_in_html(viewer.data())}</script></details>'
        )
        room -= len(block.encode())
        if room < 1000:
            left += 1
        else:
            yield block
    if left:
        yield f"<p>{left} more would make this page too large; the notebooks show them.</p>"
