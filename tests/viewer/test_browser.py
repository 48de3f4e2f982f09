"""The viewer in a real browser with the network off: as a file, with a kernel, in JupyterLab."""

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import numpy as np
import pytest
import torch
from viewer_stores import (
    DOCUMENT,
    HOSTILE,
    OTHER,
    SENTENCE,
    MemoryStore,
    token_store,
    word_store,
)

from helpers.data.links import read_links
from helpers.metrics.heads import DIRECTIONS
from helpers.model.forward import to_words
from helpers.run import write_html
from helpers.store.store import Example
from helpers.viewer.page import DIRECTION_LABELS, answer_links
from helpers.viewer.view import view

SLOW = 120_000  # milliseconds: a kernel on a busy machine

playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
expect = playwright.expect


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


@pytest.fixture
def show(offline, tmp_path):
    """Make a function that saves a view and opens the file, perhaps by a link into it."""

    def show(viewer, examples=None, link=""):
        path = viewer.save(tmp_path / "view.html", examples)
        offline.goto(path.as_uri() + link)
        return offline

    return show


def choose_head(page, label):
    page.get_by_role("radio", name=f"Head {label}:").click()
    expect(page.locator(".av-name")).to_contain_text(f"Head {label}")


def find(page, word="", relation=""):
    """Search for a word and a relation; return the hits."""
    page.get_by_label("Relation to find").fill(relation)
    page.get_by_label("Word", exact=True).fill(word)
    page.get_by_role("button", name="Find", exact=True).click()
    return page.locator(".av-results button")


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


def test_a_saved_view_draws_the_weights_of_the_chosen_head(show):
    store = word_store(SENTENCE)
    page = show(view(store))
    expect(page.locator("h1")).to_contain_text("Head 1-1")
    assert_drawn(drawn(page), store[0].attention[0, 0])
    choose_head(page, "2-3")
    weights = store[0].attention[1, 2]
    assert_drawn(drawn(page), weights)
    assert HOSTILE in page.locator(".av-drawing").text_content()
    page.get_by_label("special tokens").uncheck()
    expect(page.locator("[data-left='0']")).to_have_count(0)
    words = store[0].word_positions
    assert_drawn(without_special(drawn(page)), weights[words, words])


def test_a_token_shows_its_weights_only(show):
    """The token under the pointer; with the keyboard, also as a table."""
    store = word_store(SENTENCE)
    page = show(view(store, layer=2, head=3))
    weights = store[0].attention[1, 2].astype(float)
    page.locator("[data-left='2']").hover()
    focus = drawn(page, "av-focus")
    assert all(2 in pair for pair in focus)
    for position in range(9):
        for pair in ((2, position), (position, 2)):
            if weights[pair] >= 0.0011:
                assert focus[pair] == pytest.approx(weights[pair], abs=0.51e-4)
    percentage = page.locator(f"[data-right='{weights[2].argmax()}'] .av-number")
    assert float(percentage.text_content()[:-1]) == pytest.approx(100 * weights[2].max(), abs=0.5)
    page.locator("[data-left='0']").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".av-status")).to_contain_text("The attends to")
    page.keyboard.press("Enter")
    page.get_by_text("The weights as a table").click()
    expect(page.locator(".av-table tbody tr")).to_have_count(9)
    cells = page.locator(".av-table tbody tr").nth(4).locator("td").all_text_contents()
    expected = pytest.approx(weights[[1, 4], [4, 1]], abs=6e-5)
    assert [float(cell) for cell in cells] == expected


def test_tokens_can_be_joined_to_words(show):
    tokens = ["[CLS]", "un", "##believ", "##able", "cats", ".", "[SEP]"]
    store = token_store(2, 2, len(tokens), tokens)
    page = show(view(store))
    assert_drawn(drawn(page), store[0].attention[0, 0])
    page.get_by_label("whole words").check()
    maps = torch.from_numpy(store[0].attention.astype(np.float32))
    words = to_words(maps, [0, 1, 1, 1, 2, 3, 4]).numpy()
    assert_drawn(drawn(page), words[0, 0], within=2e-4)
    expect(page.locator("[data-left='1']")).to_contain_text("unbelievable")
    choose_head(page, "2-1")
    page.get_by_label("special tokens").uncheck()
    assert_drawn(without_special(drawn(page)), words[1, 0, 1:-1, 1:-1], within=2e-4)
    page.get_by_label("whole words").uncheck()
    expect(page.locator("[data-left='2']")).to_contain_text("##believ")


@pytest.mark.parametrize(
    ("record", "relation", "direction", "n_arcs"),
    [
        (SENTENCE, "(all)", DIRECTIONS[0], 6),
        (SENTENCE, "(all)", DIRECTIONS[1], 6),
        (DOCUMENT, "coreference", DIRECTIONS[0], 2),
    ],
    ids=["dependents", "heads", "coreference"],
)
def test_marked_answers_are_those_of_the_analysis(record, relation, direction, n_arcs, show):
    store = word_store(record)
    page = show(view(store, layer=2, head=1, relation=relation, direction=direction))
    page.locator(".av-verdicts li").first.wait_for(state="attached")
    listed_answers = page.locator(".av-verdicts li").evaluate_all(
        "all => all.map(item => [Number(item.dataset.asked), Number(item.dataset.picked),"
        " item.className === 'av-right'])"
    )
    words = store[0].word_positions
    weights = store[0].attention[1, 0][words, words]
    links = read_links(record)
    picked, right = answer_links(links, weights, direction, np.ones(weights.shape, bool))
    expected = []
    for row in np.flatnonzero(~links.is_root):
        expected.append([links.word[row] + 1, picked[row] + 1, right[row]])
    assert sorted(listed_answers) == sorted(expected)
    assert page.locator(".av-arcs > g").count() == n_arcs


@pytest.mark.parametrize(("choice", "title"), [("mean", "all heads"), ("control", "toy")])
def test_a_second_map_is_drawn_beside_the_head(choice, title, show):
    store = word_store(SENTENCE)
    control = MemoryStore([Example(0, store[0].attention[::-1], SENTENCE)], "word")
    page = show(view(store, layer=3, head=1, control=control))
    page.get_by_label("Beside").select_option(choice)
    maps = store[0].attention.astype(np.float64)
    expected = {"mean": maps.mean(axis=(0, 1)), "control": maps[0, 0]}
    second = page.locator(".av-second")
    expect(second.locator(".av-title")).to_contain_text(title)
    assert_drawn(drawn(second), expected[choice])
    assert_drawn(drawn(page.locator(".av-drawing")), maps[2, 0])
    second.locator("[data-left='2']").hover()
    expect(page.locator(".av-focused")).to_have_count(2)


def bars(page):
    """Return the shares that the bars on the small maps show, head by head."""
    page.locator(".av-bar").first.wait_for()
    return page.locator(".av-bar").evaluate_all("all => all.map(bar => Number(bar.dataset.share))")


def shares_right(examples, relation, direction):
    """Collect the share of right choices for a relation, head by head."""
    rights = []
    for example in examples:
        words = example.word_positions
        weights = example.attention[..., words, words]
        links = read_links(example.record)
        visible = np.ones(weights.shape[-2:], bool)
        _, right = answer_links(links, weights, direction, visible)
        is_chosen = ~links.is_root & ((relation == "(all)") | (links.relation == relation))
        rights += list(right[..., is_chosen].reshape(-1, is_chosen.sum()).T)
    return np.mean(rights, axis=0)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_grid_shows_how_often_each_head_is_right(direction, show):
    store = word_store(SENTENCE, OTHER)
    page = show(view(store, direction=direction), [0, 1])
    for relation in ("dobj", "(all)"):
        page.get_by_label("Relation", exact=True).select_option(relation)
        page.get_by_label("share right of each head").check()
        expect(page.locator(".av-rating")).to_contain_text("2 examples of this page")
        expected = shares_right(store.examples, relation, direction)
        assert bars(page) == pytest.approx(expected, abs=1e-4)
    best = page.get_by_role("radio").nth(int(expected.argmax()))
    label = f"{round(10 * expected.max())} of 10 right"
    expect(best).to_have_attribute("aria-label", re.compile(label))


def test_examples_of_a_file_are_searched_and_counted_from_one(show):
    store = word_store(SENTENCE, OTHER, DOCUMENT)
    page = show(view(store, example=1), [0, 1])
    line = page.locator(".av-facts")
    expect(line).to_contain_text("example 2 of 2 (2 of 3 in the corpus)")
    assert_drawn(drawn(page), store[1].attention[0, 0])
    hit = find(page, relation="poss")
    expect(hit).to_have_count(1)
    hit.click()
    expect(line).to_contain_text("sentence 1")
    expect(page.locator(".av-verdicts li")).to_contain_text("poss: Ann 's attends to")
    expect(find(page, word="DOG")).to_have_count(2)
    hit = find(page, word="saw")
    expect(hit).to_have_text("2 · Ann saw the dog .")
    expect(hit.locator("b")).to_have_text("saw")
    page.get_by_role("button", name="Next example").click()
    number = page.get_by_label("Example, of 2")
    expect(number).to_have_value("2")
    number.fill("1")
    number.press("Enter")
    expect(line).to_contain_text("sentence 1")
    number.fill("3")
    number.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("no such example")


def shows(page, head, example, word="", relation=""):
    """Expect that a page shows a head, an example, a pinned word and a relation."""
    expect(page.locator(".av-name")).to_contain_text(f"Head {head}")
    expect(page.locator(".av-facts")).to_contain_text(f"example {example} of")
    pinned = page.locator(".av-pinned[data-left] text:not(.av-number)")
    expect(pinned).to_have_text([word] if word else [])
    expect(page.get_by_label("Relation", exact=True)).to_have_value(relation)


def test_save_writes_a_page_whose_address_is_a_link_to_what_is_shown(show):
    page = show(view(word_store(SENTENCE, OTHER)), [0, 1])
    choose_head(page, "3-2")
    page.get_by_role("button", name="Next example").click()
    shows(page, "3-2", 2)  # an example that comes in makes new controls
    page.get_by_label("Relation", exact=True).select_option("det")
    page.get_by_label("Direction").select_option(DIRECTION_LABELS[1])
    page.locator("[data-left='4']").click()
    copied = page.url
    assert copied.endswith("#head=3-2&example=2&word=dog&relation=det&direction=parent")
    page.goto("about:blank")
    page.goto(copied)
    shows(page, "3-2", 2, "dog", "det")
    expect(page.get_by_label("Direction")).to_have_value(DIRECTION_LABELS[1])


def test_save_writes_a_page_that_copies_its_map_as_svg(offline, show):
    offline.context.grant_permissions(["clipboard-read", "clipboard-write"])
    offline.emulate_media(color_scheme="dark")
    page = show(view(word_store(SENTENCE), relation="(all)"))
    page.get_by_role("button", name="Copy as SVG").click()
    expect(page.locator(".av-tools")).to_contain_text("Copied")
    root = ElementTree.fromstring(page.evaluate("navigator.clipboard.readText()"))
    namespace = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{namespace}title").text.startswith("Head 1-1 of toy: ")
    count_visible = "all => all.filter(mark => getComputedStyle(mark).display !== 'none').length"
    for tag in ("line", "circle", "path", "text"):
        marks = list(root.iter(namespace + tag))
        assert len(marks) == page.locator(f".av-svg {tag}").evaluate_all(count_visible)
        for mark in marks:  # in light colours, without the page's style sheet
            assert not {"class", "style", "data-query"} & {*mark.attrib}
            assert not re.search(r"var\(|light-dark", " ".join(mark.attrib.values()))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_write_html_shows_the_saved_view_without_a_violation_of_accessibility(
    browser, tmp_path, scheme
):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe").Axe()
    store = word_store(SENTENCE)
    a_view = view(store, layer=3, head=4)
    bundle = {**a_view._repr_mimebundle_(), "text/plain": "a view"}
    output = nbformat.v4.new_output("display_data", data=bundle)
    code = "x = {'name': 1.5}  # a comment\nprint(x, None)\nfor y in x: y += 1"
    cells = [
        nbformat.v4.new_markdown_cell("# One\n\nSee [two](two.ipynb) in a text."),
        nbformat.v4.new_code_cell(code, metadata={"jupyter": {"source_hidden": True}}),
        nbformat.v4.new_code_cell(code, outputs=[output], execution_count=1),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "one.ipynb")
    write_html(tmp_path / "one.ipynb")
    context = browser.new_context(bypass_csp=True, color_scheme=scheme)
    page = context.new_page()
    for path in (a_view.save(tmp_path / "head.html"), tmp_path / "one.html"):
        page.goto(path.as_uri())
        page.locator("h1").first.wait_for()
        violations = axe.run(page).response["violations"]
        assert not [(path.name, rule["id"], rule["nodes"][0]["html"]) for rule in violations]
    expect(page.locator("details.folded")).to_have_count(1)
    frame = page.frame_locator("iframe")
    expect(frame.locator(".av-name")).to_contain_text("Head 3-4")
    assert_drawn(drawn(frame), store[0].attention[2, 3])
    context.close()


LIVE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from viewer_stores import OTHER, SENTENCE, word_store
from helpers.viewer.view import view
view(word_store(SENTENCE, OTHER), layer=2, head=2)
"""


@pytest.fixture
def lab(tmp_path):
    """Start JupyterLab in a home of its own, with a notebook that shows a viewer."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(LIVE)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, tmp_path / "one.ipynb")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        *(f"--port={port}", "--port-retries=0", "--ip=127.0.0.1", "--IdentityProvider.token="),
        f"--ServerApp.root_dir={tmp_path}",
    ]
    environment = {**os.environ, "HOME": str(tmp_path / "home")}
    with (tmp_path / "log.txt").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    for _ in range(240):
        if "is running at" in (tmp_path / "log.txt").read_text():
            break
        time.sleep(0.5)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    try:
        server.wait(timeout=90)  # it ends its kernels
    except subprocess.TimeoutExpired:  # on a busy machine
        server.kill()


def test_a_viewer_in_jupyterlab(browser, lab):
    """The kernel of the notebook answers what the browser asks for."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    problems = []
    page = confined(context, (lab, "data:", "blob:"), problems)
    page.set_default_timeout(SLOW)
    page.goto(f"{lab}/lab/tree/one.ipynb?reset")
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle", timeout=SLOW)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator(".lm-Menu-item[data-command='runmenu:run-all']").click()
    viewer = page.locator(".av").last
    store = word_store(SENTENCE, OTHER)
    expect(viewer.locator(".av-name")).to_contain_text("Head 2-2", timeout=SLOW)
    choose_head(viewer, "3-1")
    expect(viewer).not_to_have_attribute("aria-busy", "true")
    assert_drawn(drawn(viewer), store[0].attention[2, 0])
    viewer.get_by_role("button", name="Next example").click()
    expect(viewer.locator(".av-facts")).to_contain_text("sentence 2")
    assert_drawn(drawn(viewer), store[1].attention[2, 0])
    expect(find(viewer, relation="dobj")).to_have_count(2)
    viewer.get_by_label("Relation", exact=True).select_option("dobj")
    viewer.get_by_label("share right of each head").check()
    expect(viewer.locator(".av-rating")).to_contain_text("in this example")
    expected = shares_right(store.examples[1:], "dobj", DIRECTIONS[0])
    assert bars(viewer) == pytest.approx(expected, abs=1e-4)
    assert not [problem for problem in problems if "jupyter" not in problem], problems
    context.close()
