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
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from PIL import Image
from toy_corpora import corpus_of, sentence_of
from viewer_stores import DOCUMENT, HOSTILE, OTHER, SENTENCE, token_store, word_store

from helpers.analysis.heads import DIRECTIONS, answer, questions
from helpers.model.forward import to_words
from helpers.paths import project_root
from helpers.run.notebooks import write_html
from helpers.run.report import write_report
from helpers.store.extract import extract
from helpers.viewer.page import SCRIPT, json_in_html
from helpers.viewer.view import ViewerWidget, masked_example, view

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


def confined(context, allowed, wrong):
    """Let a browser read nothing but what starts with ``allowed``; ``wrong`` gets the rest."""

    def route(route):
        if route.request.url.startswith(allowed):
            route.continue_()
        else:
            wrong.append(f"request: {route.request.url}")
            route.abort()

    context.route("**/*", route)
    return context.new_page()


@pytest.fixture
def offline(browser):
    """Return a page that reads files only; what it logs or asks for elsewhere fails the test."""
    context, wrong = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True), []
    page = confined(context, ("file:", "data:"), wrong)
    page.on("console", lambda message: wrong.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    yield page
    context.close()
    assert not wrong


def drawn(place, layer="av-lines"):
    """Return the drawn weights as {(query, key): weight}, once there are some."""
    lines = place.locator(f".{layer} line")
    lines.first.wait_for(state="attached")
    lines = lines.evaluate_all(
        "all => all.map(line => ['query', 'key', 'weight'].map(name => line.dataset[name]))"
    )
    return {(int(query), int(key)): float(weight) for query, key, weight in lines}


def assert_drawn(found, weights, faintest=0.004, within=0.51e-4):
    """Compare all drawn lines with a map: none is missing, none is made up."""
    weights = weights.astype(np.float64)
    expected = {
        pair: weights[pair] for pair in np.ndindex(weights.shape) if weights[pair] >= faintest
    }
    clear = {pair for pair, weight in expected.items() if weight > faintest + 1e-4}
    assert clear <= set(found)
    for pair, weight in found.items():
        assert weight == pytest.approx(weights[pair], abs=within)


def test_heads_and_tokens(offline, tmp_path):
    store = word_store(SENTENCE)
    offline.goto(view(store).save(tmp_path / "view.html").as_uri())
    expect(offline.locator(".av-name")).to_contain_text("Head 1-1")
    assert_drawn(drawn(offline), store[0].attention[0, 0])
    offline.get_by_role("radio", name="Head 2-3:").click()
    expect(offline.locator(".av-name")).to_contain_text("Head 2-3")
    weights = store[0].attention[1, 2]
    assert_drawn(drawn(offline), weights)

    offline.locator("[data-left='2']").hover()
    focus = drawn(offline, "av-focus")
    assert {2} == {2} & set.intersection(*(set(pair) for pair in focus))
    for other in range(9):
        for pair in ((2, other), (other, 2)):
            if weights[pair] >= 0.0011:
                assert focus[pair] == pytest.approx(float(weights[pair]), abs=0.51e-4)
    percentage = offline.locator(f"[data-right='{weights[2].argmax()}'] .av-number")
    assert float(percentage.text_content()[:-1]) == pytest.approx(100 * weights[2].max(), abs=0.5)
    expect(offline.locator(".av-status")).to_contain_text("dog attends to")
    assert HOSTILE in offline.locator(".av-drawing").text_content()

    offline.get_by_label("special tokens").uncheck()
    own = store[0].word_positions
    shifted = {(query - 1, key - 1): weight for (query, key), weight in drawn(offline).items()}
    assert_drawn(shifted, weights[own, own])
    expect(offline.locator("[data-left='0']")).to_have_count(0)


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
    assert_drawn({(q - 1, k - 1): weight for (q, k), weight in drawn(offline).items()},
                 words[1, 0, 1:-1, 1:-1], within=2e-4)  # fmt: skip
    offline.get_by_label("whole words").uncheck()
    expect(offline.locator("[data-left='2']")).to_contain_text("##believ")


@pytest.mark.parametrize("text", ["The Ġun able , Ġcat", "▁un able ▁cat", "the cat"])
def test_the_marks_of_a_vocabulary_say_which_tokens_are_one_word(offline, tmp_path, text):
    store = token_store(1, 1, len(text.split()) + 2, ["[CLS]", *text.split(), "[SEP]"])
    offline.goto(view(store).save(tmp_path / "view.html").as_uri())
    expect(offline.locator("[data-left]")).to_have_count(store[0].attention.shape[-1])
    expect(offline.get_by_label("whole words")).to_have_count(int("un" in text))
    if "un" in text:
        offline.get_by_label("whole words").check()
        shown = offline.locator("[data-left] text:not(.av-number)").all_text_contents()
        assert [word for word in shown if "un" in word] == ["unable"]
        assert len(shown) == len(text.split()) + 1


def test_the_keyboard_reaches_everything(offline, tmp_path):
    store = word_store(SENTENCE)
    offline.goto(view(store, layer=2, head=2).save(tmp_path / "view.html").as_uri())
    offline.get_by_role("radio", name="Head 2-2:").focus()
    for key, label in (("ArrowRight", "2-3"), ("ArrowDown", "3-3"), ("ArrowLeft", "3-2"),
                       ("ArrowUp", "2-2"), ("ArrowUp", "1-2"), ("ArrowUp", "1-2")):  # fmt: skip
        offline.keyboard.press(key)
        expect(offline.locator(".av-name")).to_contain_text(f"Head {label}")
        expect(offline.locator("[role=radio]:focus")).to_have_attribute("data-head", label)
    assert_drawn(drawn(offline), store[0].attention[0, 1])
    offline.locator("[data-left='0']").focus()
    offline.keyboard.press("ArrowDown")
    expect(offline.locator(".av-status")).to_contain_text("The attends to")
    offline.keyboard.press("Enter")
    offline.get_by_text("The weights as a table").click()
    expect(offline.locator(".av-table tbody tr")).to_have_count(9)
    cells = offline.locator(".av-table tbody tr").nth(4).locator("td").all_text_contents()
    expected = pytest.approx(store[0].attention[0, 1, [1, 4], [4, 1]].astype(float), abs=6e-5)
    assert [float(cell) for cell in cells] == expected


def test_verdicts_are_those_of_the_analysis(offline, tmp_path):
    for name, record in (("syntax", SENTENCE), ("coreference", DOCUMENT)):
        store = word_store(record)
        every = "(all)" if name == "syntax" else "coreference"
        for direction in DIRECTIONS if name == "syntax" else DIRECTIONS[:1]:
            shown = view(store, layer=2, head=1, relation=every, direction=direction)
            offline.goto(shown.save(tmp_path / f"{name}.html").as_uri())
            offline.locator(".av-verdicts li").first.wait_for(state="attached")
            found = offline.locator(".av-verdicts li").evaluate_all(
                "all => all.map(item => [Number(item.dataset.asked), Number(item.dataset.picked),"
                " item.className === 'av-right'])"
            )
            own = store[0].word_positions
            weights = store[0].attention[1, 0][own, own]
            expected = []
            for question in questions(record):
                picked, right = answer(question, weights, direction)
                expected.append([question.asked + 1, picked + 1, right])
            assert found == expected
        assert offline.locator(".av-arcs > g").count() == (6 if name == "syntax" else 2)


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
module.default.render({ model: { get: () => settings }, el: document.getElementById("here"),
  experimental: { invoke } });
"""


def with_kernel(page, shown, tmp_path):
    """Show a view on a page whose kernel is this process."""
    widget = ViewerWidget(shown)

    def ask(name, message):
        content, data = getattr(widget, name)(message, [])
        return content, [base64.b64encode(part).decode() for part in data]

    page.expose_function("ask", ask)
    path = tmp_path / "kernel.html"
    path.write_text(
        f"<!doctype html><meta charset='utf-8'><style>{widget._css}</style><div id='here'></div>"
        f"<script type='text/plain' id='module'>{SCRIPT}</script>"
        f"<script type='application/json' id='settings'>{json_in_html(widget.settings)}</script>"
        f"<script type='module'>{HOST}</script>",
        encoding="utf-8",
    )
    page.goto(path.as_uri())


def test_a_word_is_masked_beside_the_view_of_another_sentence(
    browser, encoder, tmp_path, own_cache
):
    words = ["the", "dog", "saw", "Ann", "."]
    corpus = corpus_of([sentence_of(words), sentence_of(words[::-1])])
    store = extract(encoder, corpus, level="word", max_tokens=32)
    page = browser.new_page()
    with_kernel(page, view(store, encoder=encoder).beside(view(store, 1)), tmp_path)
    left, right = page.locator(".av").nth(0), page.locator(".av").nth(1)
    expect(left.locator(".av-lines line").first).to_be_attached()
    assert_drawn(drawn(left), store[0].attention[0, 0])
    button = left.get_by_role("button", name="Mask the chosen word")
    expect(button).to_be_disabled()
    left.locator("[data-left='2']").click()
    expect(button).to_have_text("mask the chosen word")
    button.click()
    expect(left.locator("[data-left='2']")).to_contain_text(encoder.tokenizer.mask_token)
    masked = masked_example(store, 0, [2], encoder)
    assert_drawn(drawn(left), masked.attention[0, 0])
    left.get_by_role("radio", name="Head 2-1:").click()
    expect(left.locator(".av-name")).to_contain_text("Head 2-1")
    assert_drawn(drawn(left), masked.attention[1, 0])
    button.click()
    expect(left.locator("[data-left='2']")).to_contain_text("dog")
    assert_drawn(drawn(left), store[0].attention[1, 0])
    assert_drawn(drawn(right), store[1].attention[0, 0])
    expect(right.get_by_role("button", name="Mask the chosen word")).to_have_count(0)
    left.get_by_label("queries and keys").press("Space")  # of the word that is chosen
    expect(left.locator(".av-neurons h3")).to_contain_text("in head 2-1")
    rows = left.locator(".av-neurons tbody tr")
    expect(rows.locator("canvas")).to_have_count(21)  # the query; ten keys and products
    shown = rows.nth(1).locator("td").all_text_contents()
    asked = {"kind": "neurons", "pane": 0, "example": 0, "head": 4, "position": 2, "piece": 0}
    found, _ = ViewerWidget(view(store, encoder=encoder)).answer(asked, [])
    score = found["scale"] * np.dot(found["query"], found["keys"][0])
    assert float(shown[1].replace("−", "-")) == pytest.approx(score, abs=0.006)
    left.locator("[data-left='1']").press("Enter")
    expect(left.locator(".av-neurons h3")).to_contain_text("The query of the")
    page.keyboard.press("Tab")
    expect(left.get_by_label("Neuron view")).to_be_focused()
    page.keyboard.press("Escape")  # back to the word, let go
    expect(left.locator(".av-neurons")).to_contain_text("Choose a word")
    expect(left.locator("[data-left='1']")).to_be_focused()
    boxes = left.bounding_box(), right.bounding_box()
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"] + 1
    page.close()


def test_the_html_copy_of_a_notebook(offline, tmp_path):
    store = word_store(SENTENCE)
    bundle, _ = view(store, layer=3, head=4)._repr_mimebundle_()
    output = nbformat.v4.new_output("display_data", data=bundle)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=[output])])
    nbformat.write(notebook, tmp_path / "one.ipynb")
    write_html(tmp_path / "one.ipynb")
    offline.goto((tmp_path / "one.html").as_uri())
    frame = offline.frame_locator("iframe")
    expect(frame.locator(".av-name")).to_contain_text("Head 3-4")
    assert_drawn(drawn(frame), store[0].attention[2, 3])


def test_a_long_table_can_be_searched(offline, tmp_path):
    rows = [f"{model},{layer},{kind}" for model in ("minilm", HOSTILE) for layer in range(1, 13)
            for kind in ("next", "broad")]  # fmt: skip
    (tmp_path / "atlas.csv").write_text("\n".join(["model,layer,behaviour", *rows]))
    (tmp_path / "spread.csv").write_text("claim\nshort")
    path = write_report({"notes": [HOSTILE]}, tmp_path, tmp_path, tmp_path / "build")
    offline.goto(path.as_uri())
    box = offline.get_by_role("searchbox", name="Find rows: atlas")
    expect(offline.get_by_role("searchbox")).to_have_count(1)
    box.focus()
    offline.keyboard.type("mini BROAD")
    shown = offline.locator("#atlas-of-heads tbody tr:visible")
    expect(shown).to_have_count(12)
    expect(offline.locator("output")).to_have_text("12 of 48 rows")
    offline.keyboard.type(" 12")
    assert shown.all_text_contents() == ["minilm12broad"]
    box.fill(HOSTILE)
    expect(shown).to_have_count(24)
    for _ in range(3):  # to the scrolled table, then to its first heading
        offline.keyboard.press("Tab")
    offline.keyboard.press("Enter")
    assert shown.first.locator("td").nth(1).text_content() == "1"
    box.fill("")
    expect(shown).to_have_count(48)
    expect(offline.locator("#summary")).to_contain_text(HOSTILE)


def test_the_report(offline, tmp_path):
    figures = tmp_path / "figures"
    (figures / "tables").mkdir(parents=True)
    Image.new("RGB", (1600, 90), "red").save(figures / "probes.png")
    rows = "dobj,3-1,86.8\namod,3-10,\ndet,3-9,9.5\n"
    (figures / "tables" / "entropy.csv").write_text("entropy\n" + 20 * "1\n")
    (figures / "tables" / "dependency_heads.csv").write_text("relation,head,accuracy\n" + rows)
    store = word_store(SENTENCE)
    facts = {"model": {"name": "toy"}, "settings": {"text": HOSTILE}}
    path = write_report(facts, figures, figures / "tables", tmp_path, [view(store)])
    offline.goto(path.as_uri())
    expect(offline.locator("h1")).to_have_text("What does toy look at?")
    offline.keyboard.press("Tab")
    offline.keyboard.press("Enter")
    expect(offline.locator("main")).to_be_focused()  # by the skip link
    offline.emulate_media(media="print")
    assert offline.locator("#focused-or-broad tbody").bounding_box()["height"] > 100
    offline.emulate_media(media="screen")
    enlarge = offline.get_by_role("button", name="Enlarge Probes")
    enlarge.press("Enter")
    assert offline.locator("dialog img").bounding_box()["width"] > 1050
    offline.keyboard.press("Escape")
    expect(enlarge).to_be_focused()
    # Empty cells last; 9 before 10; the other way round at a second click.
    order = [("accuracy", "det dobj amod"), ("head", "dobj det amod"), ("head", "amod det dobj")]
    for column, expected in order:
        offline.get_by_role("button", name=column, exact=True).click()
        expect(offline.locator("#individual-heads td:first-child")).to_have_text(expected.split())
    offline.locator("#viewers summary").click()
    frame = offline.frame_locator("iframe")
    expect(frame.locator(".av-name")).to_contain_text("Head 1-1")
    assert_drawn(drawn(frame), store[0].attention[0, 0])


# ---- JupyterLab ------------------------------------------------------------------------------

LIVE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from viewer_stores import OTHER, SENTENCE, word_store
from helpers.viewer.view import view
view(word_store(SENTENCE, OTHER), layer=2, head=2)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Start JupyterLab on a copy of a notebook, with a cell more that shows a viewer."""
    root = tmp_path_factory.mktemp("lab")
    work = root / "work"
    work.mkdir()
    notebook = nbformat.read(project_root() / "notebooks" / NOTEBOOK, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(LIVE))
    nbformat.write(notebook, work / NOTEBOOK)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folders = {name: str(root / name) for name in (
        "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR",
        "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR", "ATTENTION_FIGURES", "ATTENTION_BUILD",
    )}  # fmt: skip
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
        server.wait(timeout=20)
        shutil.rmtree(root, ignore_errors=True)


def wait_for(url, server, log):
    for _ in range(120):
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=2) as answer_:
                json.load(answer_)
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


def test_a_notebook_and_a_viewer_in_jupyterlab(browser, lab):
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    elsewhere = []
    page = confined(context, (lab, "data:", "blob:"), elsewhere)
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
    assert not [url for url in elsewhere if "jupyter" not in url], elsewhere
    context.close()
