"""The viewer, the report and a notebook, in a real browser with the network off."""

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from itertools import product
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from jinja2.utils import htmlsafe_json_dumps
from PIL import Image
from viewer_stores import DOCUMENT, HOSTILE, OTHER, SENTENCE, token_store, word_store

from helpers.files import PROJECT_ROOT
from helpers.metrics.heads import DIRECTIONS, gold_links, predict_link
from helpers.model.forward import to_words
from helpers.run.notebooks import write_html
from helpers.run.report import write_report
from helpers.viewer.page import SCRIPT
from helpers.viewer.view import ViewerWidget, view

CHROMIUM = Path("/usr/bin/chromium")
SLOW = 120_000  # milliseconds: a kernel on a busy machine
NOTEBOOK = "03_focused_vs_broad.ipynb"
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no {CHROMIUM}")
expect = playwright.expect


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


def confined(context, allowed, problems):
    """Open a page that may only read addresses that start with ``allowed``.

    Other requests are refused and added to ``problems``.
    """

    def handle(route):
        if route.request.url.startswith(allowed):
            route.continue_()
        else:
            problems.append(f"request: {route.request.url}")
            route.abort()

    context.route("**/*", handle)
    return context.new_page()


@pytest.fixture
def offline(browser):
    """A page that reads files only; a message in its log or another request fails the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True)
    problems = []
    page = confined(context, ("file:", "data:"), problems)
    page.on("console", lambda message: problems.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    yield page
    context.close()
    assert not problems


def drawn(view_element, layer="av-lines"):
    """Return the drawn weights as {(query, key): weight}, once there are some."""
    lines = view_element.locator(f".{layer} line")
    lines.first.wait_for(state="attached")
    lines = lines.evaluate_all(
        "all => all.map(line => ['query', 'key', 'weight'].map(name => line.dataset[name]))"
    )
    return {(int(query), int(key)): float(weight) for query, key, weight in lines}


def assert_drawn(lines, weights, faintest=0.004, within=0.51e-4):
    """Compare all drawn lines with a map: each clear weight has a line, each line its weight."""
    weights = weights.astype(np.float64)
    for pair in np.ndindex(weights.shape):
        if weights[pair] > faintest + 1e-4:
            assert pair in lines
    for pair, weight in lines.items():
        assert weight == pytest.approx(weights[pair], abs=within)


def without_special(lines):
    """Return drawn lines with positions counted from the first word."""
    return {(query - 1, key - 1): weight for (query, key), weight in lines.items()}


@pytest.fixture
def sentence_view(offline, tmp_path):
    """The saved view of a sentence in the browser, and its store."""
    store = word_store(SENTENCE)
    offline.goto(view(store).save(tmp_path / "view.html").as_uri())
    return offline, store


def test_a_saved_view_draws_the_weights_of_the_chosen_head(sentence_view):
    page, store = sentence_view
    expect(page.locator(".av-name")).to_contain_text("Head 1-1")
    assert_drawn(drawn(page), store[0].attention[0, 0])
    page.get_by_role("radio", name="Head 2-3:").click()
    expect(page.locator(".av-name")).to_contain_text("Head 2-3")
    assert_drawn(drawn(page), store[0].attention[1, 2])
    assert HOSTILE in page.locator(".av-drawing").text_content()


def test_pointing_at_a_token_shows_its_weights_only(sentence_view):
    page, store = sentence_view
    page.get_by_role("radio", name="Head 2-3:").click()
    expect(page.locator(".av-name")).to_contain_text("Head 2-3")
    weights = store[0].attention[1, 2]
    page.locator("[data-left='2']").hover()
    focus = drawn(page, "av-focus")
    assert all(2 in pair for pair in focus)
    for position in range(9):
        for pair in ((2, position), (position, 2)):
            if weights[pair] >= 0.0011:
                assert focus[pair] == pytest.approx(float(weights[pair]), abs=0.51e-4)
    percentage = page.locator(f"[data-right='{weights[2].argmax()}'] .av-number")
    assert float(percentage.text_content()[:-1]) == pytest.approx(100 * weights[2].max(), abs=0.5)
    expect(page.locator(".av-status")).to_contain_text("dog attends to")


def test_special_tokens_can_be_hidden(sentence_view):
    page, store = sentence_view
    page.get_by_label("special tokens").uncheck()
    expect(page.locator("[data-left='0']")).to_have_count(0)
    words = store[0].word_positions
    assert_drawn(without_special(drawn(page)), store[0].attention[0, 0][words, words])


def test_tokens_can_be_joined_to_words(offline, tmp_path):
    tokens = ["[CLS]", "un", "##believ", "##able", "cats", ".", "[SEP]"]
    store = token_store(2, 2, len(tokens), tokens)
    offline.goto(view(store).save(tmp_path / "view.html").as_uri())
    assert_drawn(drawn(offline), store[0].attention[0, 0])
    offline.get_by_label("whole words").check()
    maps = torch.from_numpy(store[0].attention.astype(np.float32))
    words = to_words(maps, [0, 1, 1, 1, 2, 3, 4]).numpy()
    assert_drawn(drawn(offline), words[0, 0], within=2e-4)
    expect(offline.locator("[data-left='1']")).to_contain_text("unbelievable")
    offline.get_by_role("radio", name="Head 2-1:").click()
    expect(offline.locator(".av-name")).to_contain_text("Head 2-1")
    assert_drawn(drawn(offline), words[1, 0], within=2e-4)
    offline.get_by_label("special tokens").uncheck()
    assert_drawn(without_special(drawn(offline)), words[1, 0, 1:-1, 1:-1], within=2e-4)
    offline.get_by_label("whole words").uncheck()
    expect(offline.locator("[data-left='2']")).to_contain_text("##believ")


def token_page(offline, tmp_path, text):
    """Open the view of a text's tokens in the browser."""
    store = token_store(1, 1, len(text.split()) + 2, ["[CLS]", *text.split(), "[SEP]"])
    offline.goto(view(store).save(tmp_path / "view.html").as_uri())
    expect(offline.locator("[data-left]")).to_have_count(store[0].attention.shape[-1])


@pytest.mark.parametrize("text", ["The Ġun able , Ġcat", "▁un able ▁cat"])
def test_marks_of_a_vocabulary_join_tokens_to_words(offline, tmp_path, text):
    token_page(offline, tmp_path, text)
    offline.get_by_label("whole words").check()
    words = offline.locator("[data-left] text:not(.av-number)").all_text_contents()
    assert [word for word in words if "un" in word] == ["unable"]
    assert len(words) == len(text.split()) + 1


def test_tokens_without_marks_of_a_vocabulary_stay_apart(offline, tmp_path):
    token_page(offline, tmp_path, "the cat")
    expect(offline.get_by_label("whole words")).to_have_count(0)


def test_arrow_keys_choose_heads(offline, tmp_path):
    store = word_store(SENTENCE)
    offline.goto(view(store, layer=2, head=2).save(tmp_path / "view.html").as_uri())
    offline.get_by_role("radio", name="Head 2-2:").focus()
    presses = [
        ("ArrowRight", "2-3"),
        ("ArrowDown", "3-3"),
        ("ArrowLeft", "3-2"),
        ("ArrowUp", "2-2"),
        ("ArrowUp", "1-2"),
        ("ArrowUp", "1-2"),
    ]
    for key, label in presses:
        offline.keyboard.press(key)
        expect(offline.locator(".av-name")).to_contain_text(f"Head {label}")
        expect(offline.locator("[role=radio]:focus")).to_have_attribute("data-head", label)
    assert_drawn(drawn(offline), store[0].attention[0, 1])


def test_the_keyboard_reaches_tokens_and_the_table_of_weights(sentence_view):
    page, store = sentence_view
    page.locator("[data-left='0']").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".av-status")).to_contain_text("The attends to")
    page.keyboard.press("Enter")
    page.get_by_text("The weights as a table").click()
    expect(page.locator(".av-table tbody tr")).to_have_count(9)
    cells = page.locator(".av-table tbody tr").nth(4).locator("td").all_text_contents()
    expected = pytest.approx(store[0].attention[0, 0, [1, 4], [4, 1]].astype(float), abs=6e-5)
    assert [float(cell) for cell in cells] == expected


@pytest.mark.parametrize(
    ("record", "relation", "direction", "n_arcs"),
    [
        (SENTENCE, "(all)", DIRECTIONS[0], 6),
        (SENTENCE, "(all)", DIRECTIONS[1], 6),
        (DOCUMENT, "coreference", DIRECTIONS[0], 2),
    ],
    ids=["dependents", "heads", "coreference"],
)
def test_marked_answers_are_those_of_the_analysis(
    record, relation, direction, n_arcs, offline, tmp_path
):
    store = word_store(record)
    viewer = view(store, layer=2, head=1, relation=relation, direction=direction)
    offline.goto(viewer.save(tmp_path / "view.html").as_uri())
    offline.locator(".av-verdicts li").first.wait_for(state="attached")
    listed_answers = offline.locator(".av-verdicts li").evaluate_all(
        "all => all.map(item => [Number(item.dataset.asked), Number(item.dataset.picked),"
        " item.className === 'av-right'])"
    )
    words = store[0].word_positions
    weights = store[0].attention[1, 0][words, words]
    expected = []
    for question in gold_links(record):
        picked, right = predict_link(question, weights, direction)
        expected.append([question.word + 1, picked + 1, right])
    assert listed_answers == expected
    assert offline.locator(".av-arcs > g").count() == n_arcs


def test_examples_and_search_in_an_exported_file(offline, tmp_path):
    store = word_store(SENTENCE, OTHER)
    offline.goto(view(store).save(tmp_path / "two.html", [0, 1]).as_uri())
    offline.get_by_role("button", name="Next example").click()
    expect(offline.locator(".av-facts")).to_contain_text("sentence 2")
    assert_drawn(drawn(offline), store[1].attention[0, 0])
    offline.get_by_label("Relation to find").fill("poss")
    offline.get_by_role("button", name="Find", exact=True).click()
    expect(offline.locator(".av-results button")).to_have_count(1)
    offline.locator(".av-results button").click()
    expect(offline.locator(".av-facts")).to_contain_text("sentence 1")
    expect(offline.locator(".av-verdicts li")).to_contain_text("poss: Ann →")
    offline.get_by_label("Relation to find").fill("")
    offline.get_by_label("Word", exact=True).fill("DOG")
    offline.get_by_role("button", name="Find", exact=True).click()
    expect(offline.locator(".av-results button")).to_have_count(2)


HOST = """
const settings = JSON.parse(document.getElementById("settings").textContent);
async function invoke(name, message) {
  const [content, buffers] = await ask(name, message);
  return [content, buffers.map((text) => new DataView(
    Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer))];
}
const module = await import(URL.createObjectURL(new Blob(
  [document.getElementById("module").textContent], { type: "text/javascript" })));
module.default.initialize({ model: { get: () => settings }, experimental: { invoke } });
const output = document.createElement("div"); // it comes after the model, as in JupyterLab
output.dataset.attentionViewer = settings.output;
document.body.append(output);
"""


def with_kernel(page, viewer, tmp_path):
    """Show a view on a page whose kernel is this process."""
    widget = ViewerWidget(viewer)

    def ask(name, message):
        content, buffers = getattr(widget, name)(message, [])
        return content, [base64.b64encode(buffer).decode() for buffer in buffers]

    page.expose_function("ask", ask)
    settings = htmlsafe_json_dumps(widget.settings)
    path = tmp_path / "kernel.html"
    path.write_text(
        f"<!doctype html><meta charset='utf-8'><style>{widget._css}</style><body>"
        f"<script type='text/plain' id='module'>{SCRIPT}</script>"
        f"<script type='application/json' id='settings'>{settings}</script>"
        f"<script type='module'>{HOST}</script>",
        encoding="utf-8",
    )
    page.goto(path.as_uri())


def test_a_view_with_a_kernel_takes_the_place_of_the_output(browser, tmp_path):
    page = browser.new_page()
    store = word_store(SENTENCE, OTHER)
    with_kernel(page, view(store, layer=2, head=2), tmp_path)
    assert_drawn(drawn(page), store[0].attention[1, 1])
    page.get_by_role("button", name="Next example").click()
    expect(page.locator(".av-facts")).to_contain_text("sentence 2")
    assert_drawn(drawn(page), store[1].attention[1, 1])
    page.close()


def test_the_html_copy_of_a_notebook(offline, tmp_path):
    store = word_store(SENTENCE)
    bundle = view(store, layer=3, head=4)._repr_mimebundle_()
    output = nbformat.v4.new_output("display_data", data=bundle)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=[output])])
    nbformat.write(notebook, tmp_path / "one.ipynb")
    write_html(tmp_path / "one.ipynb")
    offline.goto((tmp_path / "one.html").as_uri())
    frame = offline.frame_locator("iframe")
    expect(frame.locator(".av-name")).to_contain_text("Head 3-4")
    assert_drawn(drawn(frame), store[0].attention[2, 3])


@pytest.fixture
def atlas_page(offline, tmp_path):
    """A report with a table of 48 rows, of two models, 12 layers and two behaviours."""
    rows = ["model,layer,behaviour"]
    for model, layer in product(("minilm", HOSTILE), range(1, 13)):
        rows += [f"{model},{layer},next", f"{model},{layer},broad"]
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "atlas.csv").write_text("\n".join(rows))
    tables = {"atlas": "atlas", "spread": "spread"}
    record = {"notes": [HOSTILE], "tables": tables, "figures": {}}
    (tmp_path / "run.json").write_text(json.dumps(record))
    path = write_report(tmp_path)
    offline.goto(path.as_uri())
    offline.locator("#part-atlas summary").click()
    return offline


def test_a_long_table_can_be_searched(atlas_page):
    box = atlas_page.get_by_role("searchbox", name="Find rows: atlas")
    expect(atlas_page.get_by_role("searchbox")).to_have_count(1)
    box.focus()
    atlas_page.keyboard.type("mini BROAD")
    visible_rows = atlas_page.locator("#part-atlas tbody tr:visible")
    expect(visible_rows).to_have_count(12)
    expect(atlas_page.locator("output")).to_have_text("12 of 48 rows")
    atlas_page.keyboard.type(" 12")
    assert visible_rows.all_text_contents() == ["minilm12broad"]
    box.fill(HOSTILE)
    expect(visible_rows).to_have_count(24)
    box.fill("")
    expect(visible_rows).to_have_count(48)
    expect(atlas_page.locator("#summary")).to_contain_text(HOSTILE)


def test_the_keyboard_sorts_a_long_table(atlas_page):
    box = atlas_page.get_by_role("searchbox", name="Find rows: atlas")
    box.fill(HOSTILE)
    visible_rows = atlas_page.locator("#part-atlas tbody tr:visible")
    expect(visible_rows).to_have_count(24)
    for _ in range(3):  # to the scrolled table, then to its first heading
        atlas_page.keyboard.press("Tab")
    atlas_page.keyboard.press("Enter")
    assert visible_rows.first.locator("td").nth(1).text_content() == "1"


@pytest.fixture
def report_page(offline, tmp_path):
    """A report with a figure, two tables and a viewer."""
    (tmp_path / "tables").mkdir()
    Image.new("RGB", (1600, 90), "red").save(tmp_path / "probes.png")
    rows = "dobj,3-1,86.8\namod,3-10,\ndet,3-9,9.5\n"
    (tmp_path / "tables" / "entropy.csv").write_text("entropy\n" + 20 * "1\n")
    (tmp_path / "tables" / "dependency_heads.csv").write_text("relation,head,accuracy\n" + rows)
    record = {
        "model": {"name": "toy"},
        "settings": {"text": HOSTILE},
        "tables": {"entropy": "03_focused_vs_broad", "dependency_heads": "04_individual_heads"},
        "figures": {"probes": {"notebook": "04_individual_heads", "caption": ""}},
    }
    viewers = [view(word_store(SENTENCE))]
    (tmp_path / "run.json").write_text(json.dumps(record))
    path = write_report(tmp_path, viewers)
    offline.goto(path.as_uri())
    return offline


def test_the_report_has_a_heading_and_a_skip_link(report_page):
    expect(report_page.locator("h1")).to_have_text("What does toy look at?")
    report_page.keyboard.press("Tab")
    report_page.keyboard.press("Enter")
    expect(report_page.locator("main")).to_be_focused()


def test_the_report_prints_folded_tables(report_page):
    report_page.emulate_media(media="print")
    assert report_page.locator("#part-03_focused_vs_broad tbody").bounding_box()["height"] > 100


def test_the_report_enlarges_a_figure(report_page):
    enlarge = report_page.get_by_role("button", name="Enlarge Probes")
    enlarge.press("Enter")
    assert report_page.locator("dialog img").bounding_box()["width"] > 1050
    report_page.keyboard.press("Escape")
    expect(enlarge).to_be_focused()


def test_the_report_sorts_a_table(report_page):
    """Empty cells come last, 9 before 10, and a second click reverses the order."""
    clicks = [("accuracy", "det dobj amod"), ("head", "dobj det amod"), ("head", "amod det dobj")]
    for column, order in clicks:
        report_page.get_by_role("button", name=column, exact=True).click()
        first_cells = report_page.locator("#part-04_individual_heads td:first-child")
        expect(first_cells).to_have_text(order.split())


def test_the_report_unfolds_a_viewer(report_page):
    report_page.locator("#viewers summary").click()
    frame = report_page.frame_locator("iframe")
    expect(frame.locator(".av-name")).to_contain_text("Head 1-1")
    assert_drawn(drawn(frame), word_store(SENTENCE)[0].attention[0, 0])


# ---- JupyterLab ------------------------------------------------------------------------------

LIVE = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from viewer_stores import OTHER, SENTENCE, word_store
from helpers.progress import progress
from helpers.viewer.view import view
for _ in progress(range(4), "naps"):
    time.sleep(0.4)
view(word_store(SENTENCE, OTHER), layer=2, head=2)
"""


FOLDERS = (
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_RUNTIME_DIR",
    "JUPYTERLAB_SETTINGS_DIR",
    "JUPYTERLAB_WORKSPACES_DIR",
    "IPYTHONDIR",
    "ATTENTION_FIGURES",
    "ATTENTION_BUILD",
)  # environment variables


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Start JupyterLab on a copy of a notebook, with a cell more that shows a viewer."""
    root = tmp_path_factory.mktemp("lab")
    work = root / "work"
    work.mkdir()
    notebook = nbformat.read(PROJECT_ROOT / "notebooks" / NOTEBOOK, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(LIVE))
    nbformat.write(notebook, work / NOTEBOOK)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folders = {}
    for variable in FOLDERS:
        folders[variable] = str(root / variable)
    # All cells are in the page, also those that are out of sight; nothing asks about news.
    for plugin, settings in (
        ("notebook-extension/tracker", {"windowingMode": "none"}),
        ("apputils-extension/notification", {"fetchNews": "false", "checkForUpdates": False}),
    ):
        file = Path(folders["JUPYTERLAB_SETTINGS_DIR"], f"@jupyterlab/{plugin}.jupyterlab-settings")
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(settings))
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        *(f"--port={port}", "--port-retries=0", "--ip=127.0.0.1", "--IdentityProvider.token="),
        f"--ServerApp.root_dir={work}",
    ]
    log = root / "log.txt"
    environment = {**os.environ, **folders, "ATTENTION_PROFILE": "small"}
    with log.open("w") as file:
        server = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{url}/api", server, log)
        yield url
    finally:
        server.terminate()
        try:
            server.wait(timeout=90)  # it ends its kernels
        except subprocess.TimeoutExpired:  # on a busy machine
            server.kill()
        shutil.rmtree(root, ignore_errors=True)


def wait_for(url, server, log):
    for _ in range(120):
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=2) as response:
                json.load(response)
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


def run_all_cells(page):
    """Choose Run, Run All Cells; again if the kernel was not ready, which drops the request."""
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle", timeout=SLOW)
    started = page.locator(".jp-InputPrompt", has_text=re.compile(r"\[(\*|\d+)\]"))
    for _ in range(5):
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.locator(".lm-Menu-item", has_text=re.compile("^Run All Cells$")).click()
        try:
            started.first.wait_for(timeout=5000)
            return
        except playwright.TimeoutError:
            continue
    pytest.fail("no cell was run")


def choose(page, menu, command):
    """Choose a command from a menu of JupyterLab."""
    page.get_by_role("menuitem", name=menu, exact=True).click()
    page.locator(f".lm-Menu-item[data-command='{command}']").click()


def saved_outputs(page, lab):
    """Save the notebook, and return the outputs of its last cell."""
    choose(page, "File", "docmanager:save")
    for _ in range(60):
        notebook = page.request.get(f"{lab}/api/contents/{NOTEBOOK}").json()["content"]
        outputs = notebook["cells"][-1]["outputs"]
        if outputs:
            return outputs
        time.sleep(0.5)
    pytest.fail("the notebook was not saved")


def open_again_without_the_kernel(page, lab):
    choose(page, "Kernel", "kernelmenu:shutdown")
    for _ in range(60):
        if not page.request.get(f"{lab}/api/sessions").json():
            break
        time.sleep(0.5)
    page.goto("about:blank")
    page.goto(f"{lab}/lab/tree/{NOTEBOOK}?reset")


def test_a_notebook_and_a_viewer_in_jupyterlab(browser, lab):
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    problems = []
    page = confined(context, (lab, "data:", "blob:"), problems)
    page.goto(f"{lab}/lab/tree/{NOTEBOOK}?reset")
    page.set_default_timeout(SLOW)
    run_all_cells(page)
    failed = "[data-mime-type='application/vnd.jupyter.error']"
    image = page.locator(f".jp-OutputArea-output img, {failed}").first
    image.wait_for()
    assert not page.locator(failed).all_text_contents()
    assert image.evaluate("image => image.naturalWidth") > 600

    viewer = page.locator(".av").last
    viewer.scroll_into_view_if_needed()
    store = word_store(SENTENCE, OTHER)
    expect(viewer.locator(".av-name")).to_contain_text("Head 2-2", timeout=SLOW)
    assert_drawn(drawn(viewer), store[0].attention[1, 1])
    viewer.get_by_role("radio", name="Head 3-1:").click()
    expect(viewer.locator(".av-name")).to_contain_text("Head 3-1")
    expect(viewer).not_to_have_attribute("aria-busy", "true")
    assert_drawn(drawn(viewer), store[0].attention[2, 0])
    viewer.get_by_role("button", name="Next example").click()
    expect(viewer.locator(".av-facts")).to_contain_text("sentence 2")
    assert_drawn(drawn(viewer), store[1].attention[2, 0])
    viewer.get_by_label("Relation to find").fill("dobj")
    viewer.get_by_role("button", name="Find", exact=True).click()
    expect(viewer.locator(".av-results button")).to_have_count(2)
    assert not page.locator(failed).count()

    bar, saved = saved_outputs(page, lab)
    assert bar["data"] == {"text/plain": ""}
    assert {*saved["data"]} == {"text/html", "text/plain"}
    open_again_without_the_kernel(page, lab)
    frame = page.frame_locator("[data-attention-viewer] iframe").last
    expect(frame.locator(".av-name")).to_contain_text("Head 2-2", timeout=SLOW)
    assert_drawn(drawn(frame), store[0].attention[1, 1])
    assert "model not found" not in page.content()
    assert not [problem for problem in problems if "jupyter" not in problem], problems
    context.close()
