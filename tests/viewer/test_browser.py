"""The viewer and a notebook, in a real browser with the network off."""

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
from html import escape
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
from jinja2.utils import htmlsafe_json_dumps
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
from helpers.files import PROJECT_ROOT
from helpers.metrics.heads import DIRECTIONS
from helpers.model.forward import to_words
from helpers.run import write_html
from helpers.store.store import Example
from helpers.viewer.page import DIRECTION_LABELS, SCRIPT, answer_links, document
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
    links = read_links(record)
    picked, right = answer_links(links, weights, direction, np.ones(weights.shape, bool))
    for row in np.flatnonzero(~links.is_root):
        expected.append([links.word[row] + 1, picked[row] + 1, right[row]])
    assert sorted(listed_answers) == sorted(expected)
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
    expect(offline.locator(".av-verdicts li")).to_contain_text("poss: Ann 's →")
    offline.get_by_label("Relation to find").fill("")
    offline.get_by_label("Word", exact=True).fill("DOG")
    offline.get_by_role("button", name="Find", exact=True).click()
    expect(offline.locator(".av-results button")).to_have_count(2)


def test_readers_see_the_word_parent(sentence_view):
    page, _ = sentence_view
    options = page.get_by_label("Direction").locator("option")
    expect(options).to_have_text(list(DIRECTION_LABELS))
    assert "head attends" not in page.locator("main").text_content()


def test_a_page_has_one_main_heading(sentence_view):
    page, _ = sentence_view
    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator("h1")).to_contain_text("Head 1-1")


def test_the_summaries_of_heads_leave_special_tokens_out_if_the_view_does(sentence_view):
    page, store = sentence_view
    maps = store[0].attention.astype(float)
    page.get_by_label("special tokens").uncheck()
    summaries = page.get_by_role("radio").evaluate_all("all => all.map(button => button.title)")
    for summary, weights in zip(summaries, maps.reshape(12, 9, 9), strict=True):
        share, target = re.fullmatch(
            r"Head .: (\d+)% to (.*)".replace(".:", r"\S+:"), summary
        ).groups()
        words = weights[1:-1, 1:-1]
        shares = {
            "the previous": np.trace(words, -1),
            "itself": np.trace(words),
            "the next": np.trace(words, 1),
            "periods and commas": words[:, -1].sum(),
        }
        assert target in shares
        assert int(share) == pytest.approx(100 * max(shares.values()) / 7, abs=0.51)
    assert summaries[0] == f"Head 1-1: {page.locator('.av-name small').text_content()}"


def test_small_maps_without_special_tokens_are_a_part_of_the_others(sentence_view):
    page, _ = sentence_view
    pixels = """all => all.map(canvas => [canvas.width, Array.from(
        canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data)])"""
    drawn(page)
    with_special = page.locator(".av-grid canvas").evaluate_all(pixels)
    page.get_by_label("special tokens").uncheck()
    without_special = page.locator(".av-grid canvas").evaluate_all(pixels)
    for (side, whole), (inner_side, part) in zip(with_special, without_special, strict=True):
        assert (side, inner_side) == (9, 7)
        cells = np.array(whole).reshape(9, 9, 4)[1:-1, 1:-1]
        assert (cells == np.array(part).reshape(7, 7, 4)).all()


def test_the_exponent_of_the_small_maps_is_said(sentence_view):
    page, _ = sentence_view
    expect(page.locator(".av-hint").first).to_contain_text("weight to the power 0.7")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_verdict_line_and_arc_point_the_same_way(direction, offline, tmp_path):
    store = word_store(OTHER)
    viewer = view(store, layer=1, head=1, relation="nsubj", direction=direction)
    offline.goto(viewer.save(tmp_path / "view.html").as_uri())
    tokens = store[0].tokens
    line = offline.locator(".av-marked .av-picked")
    line.wait_for(state="attached")
    query, key = (int(line.get_attribute(f"data-{end}")) for end in ("query", "key"))
    verdict = offline.locator(".av-verdicts li").text_content()
    assert verdict.startswith(f"nsubj: {tokens[query]} → {tokens[key]} ")
    dependent, parent = tokens.index("Ann"), tokens.index("saw")
    assert dependent == (query if direction == DIRECTIONS[0] else key)
    missed = offline.locator(".av-marked .av-missed")
    if missed.count():
        ends = [dependent, parent] if direction == DIRECTIONS[0] else [parent, dependent]
        assert [int(missed.get_attribute(f"data-{end}")) for end in ("query", "key")] == ends
    tip = offline.locator(f"[data-arc='{dependent} {parent}'] .av-tip").bounding_box()
    target = parent if direction == DIRECTIONS[0] else dependent
    row = offline.locator(f"[data-right='{target}'] .av-back").bounding_box()
    assert row["y"] < tip["y"] + tip["height"] / 2 < row["y"] + row["height"]


def test_a_head_that_picks_no_word_has_no_line(offline, tmp_path):
    uniform = np.full((1, 1, 7, 7), 1 / 7)
    store = MemoryStore([Example(0, uniform, OTHER)], "word")
    offline.goto(view(store, relation="dobj").save(tmp_path / "view.html").as_uri())
    verdict = offline.locator(".av-verdicts li")
    expect(verdict).to_have_text("dobj: dog: no word ✗ wrong, saw would be right")
    expect(offline.locator(".av-picked")).to_have_count(0)
    expect(offline.locator(".av-missed")).to_have_count(1)


def test_the_line_of_a_possessor_starts_at_its_mark(offline, tmp_path):
    """The answer is read from the 's, so that the line has the largest weight of its row."""
    store = word_store(SENTENCE)
    viewer = view(store, layer=2, head=2, relation="poss")
    offline.goto(viewer.save(tmp_path / "view.html").as_uri())
    line = offline.locator(".av-marked .av-picked")
    line.wait_for(state="attached")
    assert line.get_attribute("data-query") == "5"
    row = store[0].attention[1, 1, 5].astype(float)
    row[[0, 5, 8]] = 0
    assert float(line.get_attribute("data-weight")) == pytest.approx(row.max(), abs=0.51e-4)


@pytest.mark.parametrize("relation", ["dobj", "(all)"])
def test_lines_are_as_strong_as_their_weights_if_a_relation_is_marked(relation, offline, tmp_path):
    store = word_store(SENTENCE)
    offline.goto(view(store, relation=relation).save(tmp_path / "view.html").as_uri())
    offline.locator(".av-picked").first.wait_for(state="attached")
    lines = offline.locator(".av-lines line, .av-picked").evaluate_all(
        "all => all.map(line => [Number(line.dataset.weight), ['stroke-opacity', 'opacity']"
        ".map(name => Number(getComputedStyle(line)[name])).reduce((a, b) => a * b)"
        " * Number(getComputedStyle(line.parentNode).opacity)])"
    )
    assert len(lines) > 40
    for (lighter, weaker), (heavier, stronger) in pairwise(sorted(lines)):
        assert heavier == lighter or stronger >= weaker


def test_every_relation_is_folded_by_relation_and_thin(sentence_view):
    page, _ = sentence_view
    page.get_by_label("Relation", exact=True).select_option("(all)")
    folds = page.locator(".av-verdicts details")
    names = ["case", "det", "dobj", "nsubj", "poss", "punct"]
    expect(folds.locator("summary")).to_have_text(
        [re.compile(rf"^{name}: [01] of 1 right$") for name in names]
    )
    expect(folds.locator("li").first).to_be_hidden()
    folds.locator("summary").first.click()
    expect(folds.locator("li").first).to_be_visible()
    widths = page.locator(".av-picked").evaluate_all(
        "all => all.map(line => parseFloat(getComputedStyle(line).strokeWidth))"
    )
    assert max(widths) < 1.4
    shown = "all => all.filter(line => getComputedStyle(line).display !== 'none').length"
    assert page.locator(".av-missed").count() > 1
    assert page.locator(".av-missed").evaluate_all(shown) == 0
    asked = page.locator(".av-missed").first.get_attribute("data-query")
    page.locator(f"[data-left='{asked}']").hover()
    assert page.locator(".av-missed").evaluate_all(shown) >= 1


def bars(page):
    """Return the shares that the bars on the small maps show, head by head."""
    page.locator(".av-bar").first.wait_for()
    return page.locator(".av-bar").evaluate_all("all => all.map(bar => Number(bar.dataset.share))")


def shares_right(store, examples, relation, direction):
    """Collect the share of right choices for a relation, head by head."""
    rights = []
    for index in examples:
        words = store[index].word_positions
        weights = store[index].attention[..., words, words]
        links = read_links(store.record(index))
        visible = np.ones(weights.shape[-2:], bool)
        _, right = answer_links(links, weights, direction, visible)
        is_chosen = ~links.is_root & ((relation == "(all)") | (links.relation == relation))
        rights += list(right[..., is_chosen].reshape(-1, is_chosen.sum()).T)
    return np.mean(rights, axis=0)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_grid_shows_how_often_each_head_is_right(direction, offline, tmp_path):
    store = word_store(SENTENCE, OTHER)
    path = view(store, direction=direction).save(tmp_path / "view.html", [0, 1])
    offline.goto(path.as_uri())
    expect(offline.get_by_label("share right of each head")).to_have_count(0)
    for relation in ("dobj", "(all)"):
        offline.get_by_label("Relation", exact=True).select_option(relation)
        offline.get_by_label("share right of each head").check()
        expect(offline.locator(".av-rating")).to_contain_text("2 examples of this page")
        expected = shares_right(store, [0, 1], relation, direction)
        assert bars(offline) == pytest.approx(expected, abs=1e-4)
    best = offline.get_by_role("radio").nth(int(expected.argmax()))
    n_questions = 10
    label = f"every relation: {round(expected.max() * n_questions)} of {n_questions} right"
    expect(best).to_have_attribute("aria-label", re.compile(label))
    offline.get_by_label("share right of each head").uncheck()
    expect(offline.locator(".av-bar")).to_have_count(0)


def test_a_hit_of_a_search_shows_its_sentence(offline, tmp_path):
    store = word_store(SENTENCE, OTHER)
    offline.goto(view(store).save(tmp_path / "two.html", [0, 1]).as_uri())
    offline.get_by_label("Word", exact=True).fill("saw")
    offline.get_by_role("button", name="Find", exact=True).click()
    hit = offline.locator(".av-results button")
    expect(hit).to_have_text("2 · Ann saw the dog .")
    expect(hit.locator("b")).to_have_text("saw")


def test_readers_count_examples_from_one(offline, tmp_path):
    store = word_store(SENTENCE, OTHER, DOCUMENT)
    viewer = view(store, example=2)
    assert viewer.heading.endswith("example 3")
    offline.goto(viewer.save(tmp_path / "two.html", [1, 2]).as_uri())
    number = offline.get_by_label("Example, of 2")
    expect(number).to_have_value("2")
    expect(offline.locator(".av-facts")).to_contain_text("example 2 of 2 (3 of 3 in the corpus)")
    number.fill("1")
    number.press("Enter")
    expect(offline.locator(".av-facts")).to_contain_text("example 1 of 2 (2 of 3 in the corpus)")
    expect(offline.locator(".av-facts")).to_contain_text("sentence 2")
    assert offline.title().endswith("example 1")
    number.fill("3")
    number.press("Enter")
    expect(offline.get_by_role("alert")).to_have_text(
        "There is no such example here; there are 1 to 2."
    )


TWO_THE = {
    "words": ["The", "dog", "saw", "the", "plan", "."],
    "heads": [2, 3, 0, 5, 3, 3],
    "relations": ["det", "nsubj", "root", "det", "dobj", "punct"],
    "split": "dev",
    "source": "made up, sentence 3",
    "offset": 1,
}


@pytest.fixture
def two_page(tmp_path):
    """The address of a page with two sentences."""
    return view(word_store(SENTENCE, TWO_THE)).save(tmp_path / "two.html", [0, 1]).as_uri()


def shows(page, head, example, word="", relation=""):
    """Expect that a page shows a head, an example, a pinned word and a relation."""
    expect(page.locator(".av-name")).to_contain_text(f"Head {head}")
    expect(page.locator(".av-facts")).to_contain_text(f"example {example} of")
    pinned = page.locator(".av-pinned[data-left] text:not(.av-number)")
    expect(pinned).to_have_text([word] if word else [])
    expect(page.get_by_label("Relation", exact=True)).to_have_value(relation)


def test_a_link_names_head_word_example_and_relation(offline, two_page):
    offline.goto(f"{two_page}#head=3-1&word=plan&example=2&relation=dobj")
    shows(offline, "3-1", 2, "plan", "dobj")
    offline.evaluate("window.location.hash = '#head=2-4&word=Ann&example=1'")
    shows(offline, "2-4", 1, "Ann", "dobj")
    offline.evaluate("window.location.hash = '#word=the&nth=2&relation=det&direction=parent'")
    shows(offline, "2-4", 2, "the", "det")
    expect(offline.get_by_label("Direction")).to_have_value(DIRECTION_LABELS[1])


def test_a_link_to_a_word_finds_its_example(offline, two_page):
    offline.goto(f"{two_page}#head=3-1&word=plan")
    shows(offline, "3-1", 2, "plan")


@pytest.mark.parametrize(
    ("link", "missing"),
    [
        ("head=9-9", "head 9-9"),
        ("example=3", "example 3"),
        ("word=cat&relation=iobj", "relation iobj, word cat"),
    ],
)
def test_a_link_to_what_is_not_here_is_answered(link, missing, offline, two_page):
    offline.goto(f"{two_page}#{link}")
    expect(offline.locator(".av-notice")).to_have_text(f"Not here: {missing}.")


def test_the_address_is_a_link_to_what_is_shown(offline, two_page):
    offline.goto(two_page)
    expect(offline.locator(".av-name")).to_contain_text("Head 1-1")
    assert "#" not in offline.url
    offline.get_by_role("radio", name="Head 3-2:").click()
    offline.get_by_role("button", name="Next example").click()
    shows(offline, "3-2", 2)  # an example that comes in makes new controls
    offline.get_by_label("Relation", exact=True).select_option("det")
    offline.get_by_label("Direction").select_option(DIRECTION_LABELS[1])
    offline.locator("[data-left='4']").click()
    shows(offline, "3-2", 2, "the", "det")
    copied = offline.url
    assert copied.endswith("#head=3-2&example=2&word=the&nth=2&relation=det&direction=parent")
    offline.goto("about:blank")
    offline.goto(copied)
    shows(offline, "3-2", 2, "the", "det")
    expect(offline.get_by_label("Direction")).to_have_value(DIRECTION_LABELS[1])


def test_the_page_around_a_view_chooses_what_it_shows(offline, tmp_path):
    """As the report's atlas of heads does."""
    viewer = view(word_store(SENTENCE, TWO_THE))
    page = escape(document(viewer.heading, viewer.data([0, 1])))
    (tmp_path / "around.html").write_text(f"<!doctype html><iframe srcdoc='{page}'></iframe>")
    offline.goto((tmp_path / "around.html").as_uri())
    frame = offline.frame_locator("iframe")
    shows(frame, "1-1", 1)
    send = "link => document.querySelector('iframe').contentWindow.postMessage(link, '*')"
    offline.evaluate(send, {"attentionViewer": {"head": "3-1", "word": "plan", "relation": "dobj"}})
    shows(frame, "3-1", 2, "plan", "dobj")
    link = {"head": "2-2", "word": "", "relation": "", "direction": DIRECTIONS[1]}
    offline.evaluate(send, {"attentionViewer": link})
    shows(frame, "2-2", 2)
    for other in ("ready", {"attentionViewer": "3-1"}, None):
        offline.evaluate(send, other)
    frame.get_by_role("radio", name="Head 1-2:").click()
    shows(frame, "1-2", 2)


@pytest.mark.parametrize(
    ("record", "relation"), [(SENTENCE, "dobj"), (SENTENCE, "(all)"), (DOCUMENT, "coreference")]
)
def test_the_drawn_map_is_copied_as_svg(record, relation, offline, tmp_path):
    offline.context.grant_permissions(["clipboard-read", "clipboard-write"])
    offline.emulate_media(color_scheme="dark")
    store = word_store(record)
    offline.goto(view(store, relation=relation).save(tmp_path / "view.html").as_uri())
    offline.get_by_role("button", name="Copy as SVG").click()
    expect(offline.locator(".av-tools")).to_contain_text("Copied")
    picture = offline.evaluate("navigator.clipboard.readText()")
    first_word = record["words"][1]
    assert_stands_alone(picture, offline, first_word)


def assert_stands_alone(picture, page, word="dog"):
    """Check that a picture has all marks of a page's drawing, and their styles in light colours."""
    namespace = "{http://www.w3.org/2000/svg}"
    root = ElementTree.fromstring(picture)
    assert root.tag == f"{namespace}svg"
    assert root.find(f"{namespace}title").text.startswith("Head 1-1 of toy: ")
    for tag in ("line", "circle", "path", "text"):
        marks = list(root.iter(namespace + tag))
        shown = "all => all.filter(mark => getComputedStyle(mark).display !== 'none').length"
        assert len(marks) == page.locator(f".av-svg {tag}").evaluate_all(shown)
        for mark in marks:
            assert not {"class", "style", "data-query"} & {*mark.attrib}
            assert not re.search(r"var\(|light-dark", " ".join(mark.attrib.values()))
    assert all("stroke" not in group.attrib for group in root.iter(f"{namespace}g"))
    words = [mark for mark in root.iter(f"{namespace}text") if mark.text == word]
    assert words[0].get("fill") == "rgb(34, 34, 34)"
    assert words[0].get("font-size") == "12.5px"
    opacities = [line.get("stroke-opacity") for line in root.iter(f"{namespace}line")]
    assert len({*opacities}) > 10


def test_a_refused_clipboard_makes_a_download(offline, tmp_path):
    offline.add_init_script("navigator.clipboard.writeText = () => Promise.reject(new Error('no'))")
    offline.goto(view(word_store(SENTENCE)).save(tmp_path / "view.html").as_uri())
    with offline.expect_download() as download:
        offline.get_by_role("button", name="Copy as SVG").click()
    assert download.value.suggested_filename == "head-1-1.svg"
    expect(offline.locator(".av-tools")).to_contain_text("head-1-1.svg is downloaded")
    assert_stands_alone(Path(download.value.path()).read_text(encoding="utf-8"), offline)


@pytest.mark.parametrize("width", [320, 390])
@pytest.mark.parametrize("record", [SENTENCE, DOCUMENT], ids=["syntax", "coreference"])
def test_type_can_be_read_on_a_phone(width, record, offline, tmp_path):
    offline.set_viewport_size({"width": width, "height": 800})
    viewer = view(word_store(record, layers=2, heads=12), relation="(all)")
    offline.goto(viewer.save(tmp_path / "view.html").as_uri())
    offline.locator("[data-left='2']").click()
    offline.get_by_text("The weights as a table").click()
    sizes = offline.locator("main *").evaluate_all(
        """all => all.filter(node => [...node.childNodes].some(
             child => child.nodeType === 3 && child.data.trim()) && node.checkVisibility())
           .map(node => {
             const svg = node.closest("svg");
             const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
             return [parseFloat(getComputedStyle(node).fontSize) * scale, node.textContent];
           })"""
    )
    assert len(sizes) > 50
    assert min(sizes)[0] > 10.99, min(sizes)
    assert offline.evaluate("document.documentElement.scrollWidth") == width


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
    expect(page.get_by_label("Example, of 2")).to_have_value("2")
    expect(page.locator("h1")).to_have_count(0)
    page.close()


def test_a_view_with_a_kernel_rates_heads_on_the_example_that_is_shown(browser, tmp_path):
    page = browser.new_page()
    store = word_store(SENTENCE, OTHER)
    with_kernel(page, view(store, relation="dobj"), tmp_path)
    page.get_by_label("share right of each head").check()
    expect(page.locator(".av-rating")).to_contain_text("in this example")
    assert bars(page) == pytest.approx(shares_right(store, [0], "dobj", DIRECTIONS[0]), abs=1e-4)
    page.get_by_label("Word", exact=True).fill("dog")
    page.get_by_role("button", name="Find", exact=True).click()
    expect(page.locator(".av-results button").last).to_have_text("2 · Ann saw the dog .")
    page.close()


def test_the_html_copy_of_a_notebook(offline, tmp_path):
    store = word_store(SENTENCE)
    bundle = view(store, layer=3, head=4)._repr_mimebundle_()
    output = nbformat.v4.new_output("display_data", data=bundle)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=[output])])
    nbformat.write(notebook, tmp_path / "one.ipynb")
    write_html(tmp_path / "one.ipynb", tmp_path / "one.html")
    offline.goto((tmp_path / "one.html").as_uri())
    frame = offline.frame_locator("iframe")
    expect(frame.locator(".av-name")).to_contain_text("Head 3-4")
    assert_drawn(drawn(frame), store[0].attention[2, 3])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_no_violation_of_accessibility(browser, tmp_path, scheme):
    """The rules of axe on a viewer and the copy of a notebook."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe").Axe()
    a_view = view(word_store(SENTENCE))
    table = nbformat.v4.new_output(
        "display_data", {"text/html": pd.DataFrame({"share": [0.5]})._repr_html_()}
    )
    code = "x = {'name': 1.5}  # a comment\nprint(x, None)\nfor y in x: y += 1"
    settings = nbformat.v4.new_code_cell(code, metadata={"jupyter": {"source_hidden": True}})
    cells = [
        nbformat.v4.new_markdown_cell("# One\n\nSee [two](two.ipynb) in a text."),
        settings,
        nbformat.v4.new_code_cell(code, outputs=[table], execution_count=1),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "one.ipynb")
    write_html(tmp_path / "one.ipynb", tmp_path / "one.html")
    context = browser.new_context(bypass_csp=True, color_scheme=scheme)
    page = context.new_page()
    for path in (a_view.save(tmp_path / "head.html"), tmp_path / "one.html"):
        page.goto(path.as_uri())
        page.locator("h1").first.wait_for()
        violations = axe.run(page).response["violations"]
        assert not [(path.name, rule["id"], rule["nodes"][0]["html"]) for rule in violations]
    expect(page.locator("details.folded")).to_have_count(1)
    context.close()


# ---- JupyterLab ------------------------------------------------------------------------------

LIVE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from viewer_stores import OTHER, SENTENCE, word_store
from helpers.viewer.view import view
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
    environment = {**os.environ, **folders, "ATTENTION_PROFILE": "quick"}
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
        answer = page.request.get(f"{lab}/api/contents/{NOTEBOOK}")
        if answer.ok:  # not while the file is being written
            outputs = answer.json()["content"]["cells"][-1]["outputs"]
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

    (saved,) = saved_outputs(page, lab)
    assert {*saved["data"]} == {"text/html", "text/plain"}
    open_again_without_the_kernel(page, lab)
    frame = page.frame_locator("[data-attention-viewer] iframe").last
    expect(frame.locator(".av-name")).to_contain_text("Head 2-2", timeout=SLOW)
    assert_drawn(drawn(frame), store[0].attention[1, 1])
    assert "model not found" not in page.content()
    assert not [problem for problem in problems if "jupyter" not in problem], problems
    context.close()
