"""The report shows what a run has left, as text, in one file."""

import base64
import json
import re
from io import BytesIO
from zipfile import ZipFile

import pytest
from PIL import Image
from viewer_stores import BIDI_SENTENCE, BIDI_SHOWN, BIDI_TEXT, HOSTILE, SENTENCE, word_store

from helpers.__main__ import main
from helpers.run import report
from helpers.run.report import write_report
from helpers.viewer.page import BIDI_CONTROLS
from helpers.viewer.view import view

FACTS = {
    "model": {"name": "toy", "layers": 3},
    "settings": {"text": "", "segments": 1000, "treebank": HOSTILE},
    "commit": None,
}


def picture(color):
    data = BytesIO()
    Image.new("RGB", (4, 4), color).save(data, "png")
    return data.getvalue()


@pytest.fixture
def run(tmp_path):
    figures = tmp_path / "figures"
    build = tmp_path / "build"
    tables = figures / "tables"
    tables.mkdir(parents=True)
    build.mkdir()
    (figures / "fig4_entropy.png").write_bytes(picture("red"))
    (figures / "my_own.png").write_bytes(picture("blue"))
    (figures / "fig4_entropy.svg").write_text("<svg/>")
    (tables / "entropy.csv").write_text("layer,head,entropy\n1,1,4.420812\n2,1,0.00001234\n")
    (tables / "dependency_heads.csv").write_text(
        f'relation,head,paper_accuracy\ndobj,3-1,86.8\n"{HOSTILE}",3-10,\n', encoding="utf-8"
    )
    wide = ",".join(f"1-{i}" for i in range(50))
    (tables / "head_distances.csv").write_text(f"head,{wide}\n")
    (build / "03_focused_vs_broad.html").write_text("<p>")
    (build / "times.json").write_text(json.dumps({"03_focused_vs_broad": 75.2}))
    return figures, tables, build


def test_figures_and_tables_stand_in_the_part_they_belong_to(run):
    path = write_report(FACTS, *run)
    assert path == run[2] / "index.html"
    page = path.read_text(encoding="utf-8")
    sections = dict(re.findall(r'<section id="([^"]+)">(.*?)</section>', page, re.S))
    assert list(sections) == [
        "focused-or-broad", "individual-heads", "clustering", "more-results", "notebooks", "run"
    ]  # fmt: skip
    red = base64.b64encode(picture("red")).decode()
    blue = base64.b64encode(picture("blue")).decode()
    assert red in sections["focused-or-broad"]
    assert 'alt="Figure 4. ' in sections["focused-or-broad"]
    assert blue in sections["more-results"]


def test_a_section_closes_with_the_verdicts_on_its_claims(run, monkeypatch):
    rows = (
        "3.1,A,1,supported,yes,x\n3.3,C,,not measured,,x\n"
        "3.3,B,2,not supported,yes,x\nNiven,D,3,supported,,x\n"
    )
    (run[1] / "claims.csv").write_text(
        "section,claim,value,verdict,due_to_training,how_measured\n" + rows
    )
    monkeypatch.setattr(report, "MAX_TABLE_BYTES", 300_000)
    (run[1] / "huge.csv").write_bytes(b"a\n" + b"1\n" * 200_000)
    page = write_report(FACTS, *run).read_text(encoding="utf-8")
    sections = dict(re.findall(r'<section id="([^"]+)">(.*?)</section>', page, re.S))
    cells = re.findall("<td[^>]*>(.*?)</td>", sections["focused-or-broad"])
    assert cells[-4:] == ["B", "2", "not supported", "yes"] and "A" not in cells
    assert "<b>1 of 2 measured claims are supported, 1 of them due to training</b>" in page
    assert next(iter(sections)) == "claims" and "<details open" in sections["claims"]
    assert not re.search(r"<summary>((?!</summary>).)*<(a|button|input)\b", page, re.S)
    assert "<b>huge</b> (0 MB, too much for a page)" in page and len(page) < 1_000_000


def test_tables_are_shown_short_and_offered_whole_with_facts_and_notebooks(run):
    page = write_report(FACTS, *run).read_text(encoding="utf-8")
    assert '<td class="number">4.421</td>' in page
    assert '<td class="number">1.234e-05</td>' in page
    assert '<td class="">3-1</td>' in page
    files = re.findall(r'download="([^"]+)" href="data:text/csv;base64,([^"]+)"', page)
    assert [name for name, _ in files] == [
        "entropy.csv", "dependency_heads.csv", "head_distances.csv"
    ]  # fmt: skip
    assert base64.b64decode(files[0][1]) == (run[1] / "entropy.csv").read_bytes()
    assert "too wide to show" in page
    assert "<dt>segments</dt><dd>1,000</dd>" in page
    assert '<dt>text</dt><dd><span class="default">default</span></dd>' in page
    assert "<dt>time of the notebooks</dt><dd>1 min 15 s</dd>" in page
    assert '<a href="03_focused_vs_broad.html">03 focused vs broad</a>' in page


def test_text_from_outside_stays_text(run):
    page = write_report(FACTS, *run, viewers=[view(word_store(SENTENCE), title=HOSTILE)])
    text = page.read_text(encoding="utf-8")
    assert "<img src=x" not in text
    assert text.count("<script") == text.count("</script>") == 3
    assert text.count("&lt;img src=x onerror=alert(1)&gt;") >= 2


def test_write_report_shows_bidirectional_control_characters(run):
    """Bidi controls of a corpus would draw the text after them in reverse order."""
    path = run[1] / "dependency_heads.csv"
    path.write_text(f"relation,head\n{BIDI_TEXT},3-1\n", encoding="utf-8")
    viewers = [view(word_store(BIDI_SENTENCE), title=BIDI_TEXT)]
    page = write_report(FACTS | {"notes": [BIDI_TEXT]}, *run, viewers=viewers)
    text = page.read_text(encoding="utf-8")
    assert not BIDI_CONTROLS.search(text)
    assert f'<td class="">{BIDI_SHOWN}</td>' in text
    assert f"<p>{BIDI_SHOWN}</p>" in text
    viewer_data = re.search(r'<script type="application/json">(.*?)</script>', text, re.S)
    assert json.loads(viewer_data[1])["panes"][0]["pages"][0]["tokens"][2] == BIDI_SHOWN


def test_the_page_never_grows_too_large(run, monkeypatch):
    viewers = [view(word_store(SENTENCE))] * 5
    size_of_one = write_report(FACTS, *run, viewers[:1]).stat().st_size
    size_of_two = write_report(FACTS, *run, viewers[:2]).stat().st_size
    assert size_of_two - size_of_one < 20_000  # the script is there once
    monkeypatch.setattr(report, "MAX_PAGE_BYTES", size_of_one + 1500)
    path = write_report(FACTS, *run, viewers=viewers)
    assert path.stat().st_size <= report.MAX_PAGE_BYTES
    page = path.read_text(encoding="utf-8")
    assert page.count('<details class="viewer">') == 1
    assert "4 more would make this page too large" in page


def test_a_section_shows_the_runs_own_and_links_to_their_notebook(run):
    figures = run[0]
    description = FACTS | {
        "notebooks": {"03_focused_vs_broad": {"tables": ["entropy"], "figures": ["fig4_entropy"]}},
    }
    (figures / "run.json").write_text(json.dumps(description))
    page = write_report(description, *run).read_text(encoding="utf-8")
    sections = dict(re.findall(r'<section id="([^"]+)">(.*?)</section>', page, re.S))
    assert list(sections) == ["focused-or-broad", "notebooks", "run"]
    assert "dependency_heads" not in page  # an earlier run's: not on the list
    assert 'href="03_focused_vs_broad.html"' in sections["focused-or-broad"]
    assert "<figcaption>" in sections["focused-or-broad"]


def test_page_notebooks_and_tables_go_into_one_file(run, monkeypatch, capsys):
    for name, folder in (("figures_dir", run[0]), ("build_dir", run[2])):
        monkeypatch.setattr(report, name, lambda _, folder=folder: folder)
    command = ["report", str(run[0]), "--zip"]
    assert main(command) == 2
    assert "there is no report; 'python -m helpers run' writes it" in capsys.readouterr().err
    write_report(FACTS, *run)
    assert main(command) == 0
    with ZipFile(capsys.readouterr().out.strip()) as archive:
        files = {"index.html", "03_focused_vs_broad.html", "tables/entropy.csv"}
        assert {f"figures/{name}" for name in files} < {*archive.namelist()}
