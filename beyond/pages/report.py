"""The parts of a run's report as HTML, for ``report.ipynb``.

A report shows everything in one file and loads nothing; it links to the tables and to the
notebooks' HTML copies beside it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from html import escape
from itertools import islice
from typing import Any

import pandas as pd
from IPython.display import HTML, display

from beyond.atlas_plot import COLORS
from beyond.claims.display import VERDICTS, claims_in_words
from beyond.pages.answers import answers
from beyond.pages.run_folder import Run
from helpers.data.records import Record
from helpers.errors import InputError
from helpers.metrics.atlas import MIXED
from helpers.study import Study
from helpers.viewer.page import document, show_bidi_controls
from helpers.viewer.view import Viewer, read, view

FIRST_PICTURES = ("fig2_token_types", "nearest_words", "probes")
SHOWN_AS_TILES = ("atlas", "atlas_column")
MAX_ROWS = 200  # of a table in the page; the file has all
MAX_COLUMNS = 40  # a wider table is only linked
MAX_OPEN_ROWS = 16  # a longer table is folded
# The viewer's sentences: few and short, with as many relations as possible.
VIEWER_SENTENCES = 5
SENTENCE_POOL = 400
SENTENCE_WORDS = range(6, 17)
OWN_SENTENCES = (
    "The committee that reviewed the proposals rejected my plan.",
    "My sister bought a red bicycle, but her neighbour never saw it.",
    "The keys to the old cabinet are on the table.",
    "After the storm, the crew of the ship was rescued by fishermen.",
)
SECTION = re.compile(r'<section id="(\w+)"><h2>(.*?)</h2>')
SHOWN_SETTINGS = ("random_init", "lens", "text", "segments", "treebank", "sentences", "coref")


def text(value: object) -> str:
    """Escape a text for HTML, and show the control characters that would turn it round."""
    return show_bidi_controls(escape(str(value)))


def header(run: Run) -> str:
    """Write the title, the sentences that answer it, what the model is, and the contents."""
    model = run.record.get("model", {})
    name = text(model.get("name", run.name))
    sentences = answers(run.tables, run.record.get("special_tokens", {}))
    notes = list(run.record.get("notes", []))
    if model.get("heads"):
        size = f"{model['layers']} layers of {model['heads']} heads, named layer-head, from 1."
        notes.insert(0, size)
    if run.settings.get("lens") == "norm":
        notes.insert(1, "Weights are norms of the vectors that they move.")
    title = f"<h1>What does {name} look at?</h1>"
    paragraphs = "".join(f'<p class="answer">{text(sentence)}</p>' for sentence in sentences)
    return f'<header>{title}{paragraphs}<p class="small">{text(" ".join(notes))}</p></header>'


def atlas(run: Run) -> str:
    """Write a tile for each head, which opens the head in the viewer; empty without an atlas."""
    table = run.tables.get("atlas", pd.DataFrame(columns=["kind"]))
    if not len(table):
        return ""
    # A run of an earlier version may have a kind that is gone.
    table = table.assign(kind=table["kind"].where(table["kind"].isin(COLORS), MIXED))
    tiles = "".join(_tile(head) for head in table.astype(object).fillna("").to_dict("records"))
    kinds = [kind for kind in COLORS if (table["kind"] == kind).any()]
    key = [f'<span><i style="background: {COLORS[kind]}"></i>{kind}</span>' for kind in kinds]
    return (
        '<section id="atlas"><h2>Atlas of heads</h2><p>What each head does, by one rule; choose a '
        "head to see it at work. A relation has the accuracies of the head and of a rule, both "
        "among words of one part of speech; the other tiles have a share of attention.</p>"
        f'<div class="tiles" style="--columns: {table["head"].max()}">{tiles}</div>'
        f'<p class="small key">{"".join(key)}</p>'
        "<output></output></section>"
    )


def _tile(head: Mapping[Any, Any]) -> str:
    label = f"{head['layer']}-{head['head']}"
    name = "" if head["kind"] == MIXED else f"<span>{text(head['name'])}</span>"
    values = {"data-head": label, "title": f"{label}: {head['name']} {head['number']}"}
    if head["kind"] == "relation":
        values |= {"data-relation": head["relation"], "data-direction": head["direction"]}
    attributes = " ".join(f'{key}="{text(value)}"' for key, value in values.items())
    return (
        f'<button type="button" class="tile" style="--kind: {COLORS[head["kind"]]}" {attributes}>'
        f"<b>{label}</b>{name}<small>{text(head['number'])}</small></button>"
    )


def viewer(run: Run) -> str:
    """Write the viewer of a few sentences with all heads; empty for a run without an atlas.

    The sentences are of the run's treebank; of a committed run, whose maps are not here, our own.
    """
    if "atlas" not in run.tables:
        return ""
    try:
        first, examples = sentence_viewer(run)
    except InputError:  # the model of a run that somebody else made is not here
        return ""
    page = text(document(first.heading, first.data(examples)))
    return (
        '<section id="viewer"><h2>Look for yourself</h2><p>Choose a head, point at a word.</p>'
        f'<iframe title="Attention viewer" srcdoc="{page}"></iframe></section>'
    )


def sentence_viewer(run: Run) -> tuple[Viewer, list[int]]:
    """Open a viewer, and choose its sentences; see `viewer`."""
    with suppress(InputError):
        study = Study(**run.settings)
        if study.results.build.resolve() == run.folder:  # its maps are in the cache
            store = study.example_store(stream=True)
            examples = choose_sentences(islice(store.records(), SENTENCE_POOL))
            return view(store, examples[0]), examples
    store = read(OWN_SENTENCES, run.settings["model"], level="word")
    return view(store), list(range(len(store)))


def choose_sentences(records: Iterable[Record]) -> list[int]:
    """Choose short sentences that together have many relations: each adds the most new ones.

    Parameters
    ----------
    records : iterable of Record
        The records of a store, in their order.

    Returns
    -------
    list of int
        At most `VIEWER_SENTENCES` indices; the first example if none is short.
    """
    relations = {}
    for index, record in enumerate(records):
        if len(record.get("words", ())) in SENTENCE_WORDS:
            relations[index] = set(record.get("relations", ()))
    chosen: list[int] = []
    covered: set[str] = set()
    while relations and len(chosen) < VIEWER_SENTENCES:
        best = max(relations, key=lambda index: len(relations[index] - covered))
        covered |= relations.pop(best)
        chosen.append(best)
    return chosen or [0]


def claims(run: Run) -> str:
    """Write the table of claims, those that are not supported first; empty without claims."""
    table = run.tables.get("claims", pd.DataFrame())
    if not len(table):
        return ""
    order = table["verdict"].map(VERDICTS.index)
    rows = claims_in_words(table.loc[order.sort_values(kind="stable").index])
    supported = (table["verdict"] == "supported").sum()
    measured = (table["verdict"] != "not measured").sum()
    return (
        f'<section id="claims"><h2>Claims</h2><p>{supported} of {measured} measured claims are '
        f'supported.</p><div class="scroll" tabindex="0">{grid(rows)}</div>'
        '<p class="small">All columns: <a href="tables/claims.csv">claims.csv</a></p></section>'
    )


def pictures(run: Run) -> str:
    """Write the pictures that come first; empty if the run has none of them."""
    figures = [picture(run, name) for name in FIRST_PICTURES]
    if not any(figures):
        return ""
    return f'<section id="pictures"><h2>Pictures</h2>{"".join(figures)}</section>'


def picture(run: Run, name: str) -> str:
    """Write a figure with its title, which is its finding, and its caption; empty without a PNG."""
    path = run.folder / f"{name}.png"
    figure = run.record["figures"].get(name)
    if not figure or not path.is_file():
        return ""
    title = text(figure.get("title") or name)
    data = base64.b64encode(path.read_bytes()).decode()
    return (
        f'<figure><div class="scroll" tabindex="0"><img src="data:image/png;base64,{data}" '
        f'alt="{title}"></div>'
        f"<figcaption>{text(figure['caption'])} "
        '<button type="button" class="enlarge">Enlarge</button></figcaption></figure>'
    )


def notebooks(run: Run) -> str:
    """Write a folded part for each notebook: its other figures, and its tables."""
    tables_of: dict[str, list[str]] = {}
    for name, writers in run.record["tables"].items():
        if name in run.tables and name != "claims":
            tables_of.setdefault(writers.split(", ")[0], []).append(name)
    figures_of: dict[str, list[str]] = {}
    for name, figure in run.record["figures"].items():
        if name not in FIRST_PICTURES + SHOWN_AS_TILES:
            figures_of.setdefault(figure["notebook"], []).append(name)
    parts = []
    for notebook in sorted(tables_of.keys() | figures_of.keys()):
        content = [picture(run, name) for name in sorted(figures_of.get(notebook, ()))]
        content += [table(run, name) for name in sorted(tables_of.get(notebook, ()))]
        parts.append(_part(run, notebook, "".join(content)))
    return f'<section id="notebooks"><h2>Notebook by notebook</h2>{"".join(parts)}</section>'


def _part(run: Run, notebook: str, content: str) -> str:
    number, _, words = notebook.partition("_")
    title = text(f"{number} · {words.replace('_', ' ').capitalize()}" if words else "Other results")
    copy = f"{notebook}.html"
    link = f'<p><a href="{copy}">The executed notebook</a></p>'
    if not (run.folder / copy).is_file():
        link = ""
    return f"<details><summary><h3>{title}</h3></summary>{link}{content}</details>"


def table(run: Run, name: str) -> str:
    """Write a table, folded if it is long, with a link to its file."""
    frame = run.tables[name]
    title = f"<b>{text(name.replace('_', ' '))}</b>"
    link = f'<a href="tables/{text(name)}.csv">{text(name)}.csv</a>'
    if frame.shape[1] > MAX_COLUMNS:
        return f"<p>{title}: {len(frame)} rows of {frame.shape[1]} columns in {link}</p>"
    size = f"{len(frame)} rows"
    if len(frame) > MAX_ROWS:
        size = f"{MAX_ROWS} of {size}"
    is_open = " open" if len(frame) <= MAX_OPEN_ROWS else ""
    return (
        f'<details{is_open}><summary>{title} ({size})</summary><p class="small">{link}</p>'
        f'<div class="scroll" tabindex="0">{grid(frame.head(MAX_ROWS))}</div></details>'
    )


def show(title: str, frame: pd.DataFrame) -> None:
    """Show a table under a title, in a page of its own."""
    cells = f'<div class="scroll" tabindex="0">{grid(frame)}</div>'
    display(HTML(f"<section><h2>{title}</h2>{cells}</section>"))


def grid(frame: pd.DataFrame) -> str:
    """Write the cells of a table as HTML, numbers with four digits."""
    names = [str(name).replace("_", " ") for name in frame]
    with pd.option_context("display.max_colwidth", None):
        cells = frame.set_axis(names, axis=1).to_html(
            index=False, na_rep="", border=0, float_format=_short
        )
    return show_bidi_controls(cells)


def _short(number: float) -> str:
    return f"{number:.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def description(run: Run) -> str:
    """Write what was run: model, settings that count, corpora, and code."""
    record = run.record
    entries = {"run": run.name, **record.get("corpora", {})}
    for name in SHOWN_SETTINGS:
        if run.settings.get(name) not in (None, ""):
            entries[name] = run.settings[name]
    entries |= {"commit": record.get("commit"), **record.get("versions", {})}
    rows = [
        f"<div><dt>{text(name.replace('_', ' '))}</dt><dd>{text(entry)}</dd></div>"
        for name, entry in entries.items()
    ]
    return f'<section id="run"><h2>The run</h2><dl>{"".join(rows)}</dl></section>'


def page(parts: Sequence[str]) -> str:
    """Put the sections of a report behind its header and links to them; empty ones are left out."""
    head, *sections = parts
    present = "".join(sections)
    links = [f'<a href="#{name}">{title}</a>' for name, title in SECTION.findall(present)]
    return f'{head}<nav aria-label="Contents">{"".join(links)}</nav>{present}'
