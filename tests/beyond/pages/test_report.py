"""The report shows what a run has left, as text, in one file."""

import base64
import html
import json
import re
from datetime import date
from io import BytesIO
from zipfile import ZipFile

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image
from viewer_stores import BIDI_SENTENCE, BIDI_SHOWN, BIDI_TEXT, HOSTILE, SENTENCE, word_store

from beyond.pages import report
from beyond.pages.report import write_report, zip_report
from helpers.metrics.heads import DIRECTIONS
from helpers.study import Study
from helpers.viewer.page import BIDI_CONTROLS
from helpers.viewer.view import view

FACTS = {
    "model": {"name": "toy", "layers": 3},
    "settings": {"text": "", "segments": 1000, "treebank": HOSTILE},
    "commit": None,
    "tables": {
        "claims": "06_clustering",
        "head_distances": "06_clustering",
        "dependency_heads": "04_individual_heads",
        "each_head": "04_individual_heads",
        "entropy": "03_focused_vs_broad",
        "not_there": "",
    },
    "figures": {
        "fig4_entropy": {
            "notebook": "03_focused_vs_broad",
            "title": "The first layer is broad",
            "caption": "Heads near the dashed line attend to everything.",
        },
        "my_own": {"notebook": "03_focused_vs_broad", "caption": ""},
    },
}


def picture(color):
    data = BytesIO()
    Image.new("RGB", (4, 4), color).save(data, "png")
    return data.getvalue()


@pytest.fixture
def run(tmp_path):
    """Make the folder of a finished run, without its ``run.json``."""
    folder = tmp_path / "mine"
    tables = folder / "tables"
    tables.mkdir(parents=True)
    (folder / "fig4_entropy.png").write_bytes(picture("red"))
    (folder / "my_own.png").write_bytes(picture("blue"))
    (folder / "fig4_entropy.svg").write_text("<svg/>")
    (tables / "unlisted.csv").write_text("x\n1\n")
    (tables / "entropy.csv").write_text("layer,head,entropy\n1,1,4.420812\n2,1,0.00001234\n")
    (tables / "dependency_heads.csv").write_text(
        f'relation,head,paper_accuracy\ndobj,3-1,86.8\n"{HOSTILE}",3-10,\n', encoding="utf-8"
    )
    wide = ",".join(f"1-{i}" for i in range(50))
    (tables / "head_distances.csv").write_text(f"head,{wide}\n")
    (folder / "03_focused_vs_broad.html").write_text("<p>")
    return folder


def report_of(folder, record=FACTS, **options):
    """Write the report of a run with a record."""
    (folder / "run.json").write_text(json.dumps(record))
    return write_report(folder, **options)


def sections_of(path):
    """Return the content of each section of a page by its id."""
    page = path.read_text(encoding="utf-8")
    return dict(re.findall(r'<section id="([^"]+)"[^>]*>(.*?)</section>', page, re.S))


def test_write_report_has_a_part_for_each_notebook_in_their_order(run):
    path = report_of(run)
    assert path == run / "index.html"
    sections = sections_of(path)
    assert list(sections) == [
        "part-", "part-03_focused_vs_broad", "part-04_individual_heads", "part-06_clustering",
        "run",
    ]  # fmt: skip
    part = sections["part-03_focused_vs_broad"]
    assert "<h2>03 · Focused or broad</h2>" in part
    assert '<a href="03_focused_vs_broad.html">03_focused_vs_broad.html</a>' in part
    for color in ("red", "blue"):
        assert base64.b64encode(picture(color)).decode() in part
    assert 'alt="The first layer is broad. The numbers' in part  # a title is a finding
    assert 'alt="My own. The numbers' in part
    assert "<figcaption>Heads near the dashed line attend to everything. <button" in part
    assert "href=" not in sections["part-04_individual_heads"].replace('href="data:', "")
    assert "unlisted" not in path.read_text()


def test_write_report_has_claims_as_sentences_by_section(run, monkeypatch):
    rows = (
        "3.1,A,,40,1.23456,1,2,1,2,0.5,0,share,0.00001,supported,0.1,0.2,,yes,x\n"
        "3.3,C,no table,,,,,,,,0,share,,not measured,,,,,x\n"
        "3.3,B,,,0.5,,,,,0.7,4,share of heads,0.02,not supported,0.1,0.2,,,x\n"
        "Niven 4.1,D,,,3,,,,,0,0,share,,supported,,,,,x\n"
    )
    (run / "tables" / "claims.csv").write_text(
        "section,claim,reason,paper_value,value,value_low,value_high,adjusted_low,adjusted_high,"
        "threshold,cases,unit,p_adjusted,verdict,control,entropy_matched_control,shuffled_control,"
        "due_to_training,how_measured\n" + rows
    )
    monkeypatch.setattr(report, "MAX_TABLE_BYTES", 300_000)
    (run / "tables" / "each_head.csv").write_bytes(b"a\n" + b"1\n" * 200_000)
    path = report_of(run)
    page = path.read_text(encoding="utf-8")
    sections = sections_of(path)
    assert "<b>1 of 2 measured claims are supported, 1 of them due to training</b>" in page
    assert next(iter(sections)) == "claims"
    headings = re.findall("<h3>(.*?)</h3>", sections["claims"])
    assert headings == ["Section 3.1", "Section 3.3", "Niven 4.1"]
    sentences = re.findall('<li class="(.*?)">(.*?)</li>', sections["claims"])
    assert [mark for mark, _ in sentences] == [
        "supported", "not-measured", "not-supported", "supported",
    ]  # fmt: skip
    assert sentences[0][1] == (
        "<b>A.</b> 1.23 [1 to 2]; paper 40; threshold 0.5: <em>supported, due to training "
        "(random weights: 0.1, entropy-matched 0.2)</em>"
    )
    assert sentences[1][1] == "<b>C.</b> no number: <em>not measured: no table</em>"
    assert "2 of 4 heads; threshold 0.7" in sentences[2][1]
    assert re.search(r"<td[^>]*>&lt; 0.0001</td>", sections["run"])  # the whole table
    assert page.count("claims</b> (4 rows)") == 1
    assert not re.search(r"<summary>((?!</summary>).)*<(a|button|input)\b", page, re.S)
    assert "<b>each head</b> (200000 x 1, too large for a page)" in page
    assert len(page) < 1_000_000


DEFAULT_RUN = {
    "model": {"name": "toy", "layers": 3, "heads": 4, "random_init": None},
    "settings": {"lens": "norm", "segments": 1000, "gradient_segments": 9, "sentences": None},
    "corpora": {"text": "wiki", "treebank": "ewt", "coreference": "news"},
    "commit": "0123abc",
    "tables": {},
    "figures": {"fig2_token_types": {"notebook": "02_separator_tokens", "caption": ""}},
}


def test_write_report_begins_with_the_model_and_figure_2(run):
    (run / "fig2_token_types.png").write_bytes(picture("green"))
    path = report_of(run, DEFAULT_RUN)
    lead = re.search(r"<header>(.*?)</header>", path.read_text(encoding="utf-8"), re.S)[1]
    assert "3 layers of 4 heads" in lead and "norms" in lead
    sections = sections_of(path)
    assert next(iter(sections)) == "pictures"
    assert base64.b64encode(picture("green")).decode() in sections["pictures"]
    assert "0123abc" in sections["run"] and date.today().isoformat() in sections["run"]
    assert "ewt" in sections["run"]


def test_write_report_has_a_tile_for_each_head_that_opens_a_viewer_if_there_is_one(run):
    (run / "tables" / "atlas.csv").write_text(
        "layer,head,kind,name,number,relation,direction\n"
        f"1,1,relation,object to verb,73% vs 40%,dobj,{DIRECTIONS[0]}\n"
        f"1,2,other,–,12% {HOSTILE},det,\n",
        encoding="utf-8",
    )
    record = FACTS | {"tables": {"atlas": "06_clustering"}}
    without_viewers = sections_of(report_of(run, record))["atlas"]
    assert without_viewers.count('<div class="tile"') == 2
    assert "<span>object to verb</span> <small>73% vs 40%</small>" in without_viewers
    assert HOSTILE not in without_viewers
    viewers = [view(word_store(SENTENCE))]
    tiles = sections_of(report_of(run, record, viewers=viewers))["atlas"]
    assert re.findall('<button type=button class="tile".*? data-head="(.*?)"', tiles) == [
        "1-1", "1-2",
    ]  # fmt: skip
    assert re.findall('data-relation="(.*?)" data-direction="(.*?)"', tiles) == [
        ("dobj", DIRECTIONS[0])
    ]


def test_write_report_has_headings_in_order_texts_of_pictures_and_heads_of_columns(run):
    page = report_of(run, DEFAULT_RUN | FACTS).read_text(encoding="utf-8")
    levels = [int(level) for level in re.findall(r"<h([1-6])", page)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert max(np.diff(levels)) <= 1
    pictures = re.findall(r"<img [^>]*>", page)
    assert pictures and all(re.search(r' alt="[^"]+"', image) for image in pictures)
    tables = page.count("<table>")
    assert tables and len(re.findall(r'<thead><tr>\s*<th scope="col"', page)) == tables


def test_tables_are_shown_short_and_offered_whole_with_facts_and_notebooks(run):
    page = report_of(run).read_text(encoding="utf-8")
    assert '<td class="number">4.421</td>' in page
    assert '<td class="number">1.234e-05</td>' in page
    assert '<td class="">3-1</td>' in page
    files = re.findall(r'download="([^"]+)" href="data:text/csv;base64,([^"]+)"', page)
    assert [name for name, _ in files] == ["entropy.csv", "dependency_heads.csv"]
    assert base64.b64decode(files[0][1]) == (run / "tables" / "entropy.csv").read_bytes()
    assert "<b>head distances</b> (0 x 51, too large for a page)" in page
    assert "<dt>segments</dt><dd>1,000</dd>" in page
    assert '<dt>text</dt><dd><span class="default">default</span></dd>' in page


def test_text_from_outside_stays_text(run):
    page = report_of(run, viewers=[view(word_store(SENTENCE), title=HOSTILE)])
    text = page.read_text(encoding="utf-8")
    assert "<img src=x" not in text
    assert text.count("<script") == text.count("</script>") == 1
    assert text.count("&lt;img src=x onerror=alert(1)&gt;") >= 2


def test_write_report_shows_bidirectional_control_characters(run):
    """Bidi controls of a corpus would draw the text after them in reverse order."""
    path = run / "tables" / "dependency_heads.csv"
    path.write_text(f"relation,head\n{BIDI_TEXT},3-1\n", encoding="utf-8")
    viewers = [view(word_store(BIDI_SENTENCE), title=BIDI_TEXT)]
    page = report_of(run, FACTS | {"notes": [BIDI_TEXT]}, viewers=viewers)
    text = page.read_text(encoding="utf-8")
    assert not BIDI_CONTROLS.search(text)
    assert f'<td class="">{BIDI_SHOWN}</td>' in text
    assert f'<p class="small">{BIDI_SHOWN}</p>' in text
    viewer_page = html.unescape(re.search(r'srcdoc="(.*?)"', text, re.S)[1])
    viewer_data = re.search(r'id="data">(.*?)</script>', viewer_page, re.S)
    assert json.loads(viewer_data[1])["pages"][0]["tokens"][2] == BIDI_SHOWN


def test_write_report_shows_as_many_viewers_as_can_be_sent(run, monkeypatch):
    viewers = [view(word_store(SENTENCE))] * 5
    monkeypatch.setattr(report, "MAX_VIEWERS", 2)
    page = report_of(run, viewers=viewers).read_text(encoding="utf-8")
    assert page.count('<details class="viewer">') == 2
    assert "<p>2 of the 5 examples" in page


def test_choose_viewers_takes_every_title_before_a_second_one(monkeypatch):
    titles = ["a", "a", "a", "b", "c"]
    viewers = [view(word_store(SENTENCE), title=title) for title in titles]
    monkeypatch.setattr(report, "MAX_VIEWERS", 4)
    assert [chosen.title for chosen in report.choose_viewers(viewers)] == ["a", "a", "b", "c"]


def test_write_report_shows_the_caption_of_a_figure_that_a_notebook_saves(figures):
    study = Study(name="mine")
    study.save_figure(plt.figure(), "mine", caption="Look for\n<nothing>.")
    page = write_report(study.results.build)
    assert "Look for &lt;nothing&gt;. <button" in page.read_text(encoding="utf-8")


def test_write_report_links_to_the_other_half_of_a_run(run):
    page = report_of(run, link="mine-later").read_text(encoding="utf-8")
    assert '<a href="../mine-later/index.html">mine-later</a>' in page


def test_zip_report_has_the_page_and_the_copies_of_notebooks(run):
    report_of(run)
    with ZipFile(zip_report(run)) as archive:
        names = set(archive.namelist())
    assert names == {"mine/index.html", "mine/03_focused_vs_broad.html"}
