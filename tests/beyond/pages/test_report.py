"""The report of a run, in a browser: of full size, on a screen and on a phone."""

from pathlib import Path

import nbformat
import pandas as pd
import pytest
from executed_pages import PAGES
from nbconvert import HTMLExporter
from viewer_stores import BIDI_TEXT, HOSTILE, SENTENCE, word_store

from beyond.pages import report
from beyond.pages.run_folder import Run, open_run
from helpers.viewer.view import view

ROOT = Path(__file__).parents[3]
RECORD = {"tables": {}, "figures": {}, "model": {"name": "toy"}}


def parts_of(run):
    """Make the parts of a report as report.ipynb does."""
    return [
        report.header(run), report.atlas(run), report.viewer(run), report.claims(run),
        report.pictures(run), report.notebooks(run), report.description(run),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def full_report(tmp_path_factory):
    """The report of the committed default run, with a viewer of as many heads."""
    store = word_store(SENTENCE, layers=6, heads=12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "sentence_viewer", lambda _: (view(store), [0]))
        html = report.page(parts_of(open_run(ROOT / "figures" / "minilm")))
    output = nbformat.v4.new_output("display_data", {"text/html": html})
    cells = [nbformat.v4.new_code_cell("", outputs=[output])]
    exporter = HTMLExporter(template_name="lab", exclude_input=True)
    exporter.raw_template = (PAGES / "page.html.j2").read_text(encoding="utf-8")
    body, _ = exporter.from_notebook_node(nbformat.v4.new_notebook(cells=cells))
    path = tmp_path_factory.mktemp("report") / "index.html"
    path.write_text(body, encoding="utf-8")
    return path


RUNS = sorted(path.parent for path in (ROOT / "figures").glob("*/run.json"))


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_each_committed_run_has_a_report(folder, monkeypatch):
    """Also one of an earlier version, whose atlas has other kinds; `make book` makes them all."""
    monkeypatch.setattr(report, "viewer", lambda _: "")
    run = open_run(folder)
    html = report.page(parts_of(run))
    assert html.count('class="tile"') == len(run.tables.get("atlas", ()))
    assert "0 of 0" not in html


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_tile_opens_its_head_in_a_report_of_full_size(browser, full_report, width, scheme):
    assert full_report.stat().st_size > 1_000_000
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
    )
    page = context.new_page()
    problems = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(full_report.as_uri())
    for label in ("3-1", "4-2"):
        page.locator(f'[data-head="{label}"]').click()
        name = page.frame_locator("#viewer iframe").locator(".av-name")
        name.filter(has_text=f"Head {label}").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    answer = page.locator(".answer")
    assert answer.count() == 3
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    is_dark = int(background.removeprefix("rgb(").split(",")[0]) < 128
    assert is_dark == (scheme == "dark")
    assert not problems
    context.close()


def test_a_report_has_each_picture_but_the_atlas_once_and_at_most_200_rows_of_a_table(full_report):
    html = full_report.read_text(encoding="utf-8")
    run = open_run(ROOT / "figures" / "minilm")
    pictures = {name for name in run.record["figures"] if (run.folder / f"{name}.png").is_file()}
    assert html.count("<img ") == len(pictures - {"atlas", "atlas_column"})  # which is tiles
    assert max(part.count("<tr") for part in html.split("<table")) <= report.MAX_ROWS + 1


def test_text_from_outside_stays_text(tmp_path):
    tile = {"layer": 1, "head": 1, "kind": "relation", "name": HOSTILE, "number": BIDI_TEXT}
    tables = {"atlas": pd.DataFrame([tile | {"relation": HOSTILE, "direction": ""}])}
    record = RECORD | {"model": {"name": HOSTILE}, "tables": {"atlas": "06_clustering"}}
    run = Run(tmp_path, record, tables)
    html = report.page([report.header(run), report.atlas(run), report.notebooks(run)])
    assert "<img src=x" not in html and "\u202e" not in html


def test_choose_sentences_takes_short_ones_with_new_relations():
    sentences = [(8, ["det"]), (8, ["det", "dobj"]), (40, ["poss", "nsubj"]), (8, ["amod"])]
    records = [{"words": ["w"] * length, "relations": names} for length, names in sentences]
    assert report.choose_sentences(records) == [1, 3, 0]
    assert report.choose_sentences(records[2:3]) == [0]
