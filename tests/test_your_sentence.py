"""The page "Your sentence" in a real browser, from a local server, with no other request."""

import json
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlencode

import numpy as np
import pytest

from helpers.data.wikipedia import SAMPLE, articles
from helpers.errors import InputError
from scripts.browser_model import open_graph, run_graph
from scripts.browser_page import write_page

SCRIPTS = {"your-sentence.js", "viewer.js", "tokenizer.js", "runtime.js"}
FILES = {"", *SCRIPTS, "runtime.wasm", "graph.onnx", "vocabulary.txt"}
LOADED = "() => document.querySelector('.av-lines line')"
HOSTILE = "<img src=x onerror=alert(1)> & <b>bold</b>"
# What the bundled text has little of.
UNUSUAL = (
    "Ça va? Crème brûlée à l'Éléphant, naïve façade, İstanbul, ΣΊΣΥΦΟΣ and Straße.",
    "北京 is the 首都 of 中国。東京タワー, 한국어, हिन्दी, العربية, עברית, ไทย",
    "I love 🍕 and 👩‍👩‍👧‍👦 ❤️ 🇩🇪!",
    "[CLS] [SEP] [MASK] [UNK] [PAD] are text here.",
    "a\u200bb\ufeffc\u00add\u202eabc\u0000x\ufffdy tab\tline\nline\r\u2028\u3000\u00a0end",
    "x" * 101 + " " + "x" * 100,
    "price $5 <b>^`~|+=</b> © ® ™ ½ € № ﬁ ① Ⅷ ｱｲｳ Ａｂｃ",
    "",
)

pytestmark = pytest.mark.default_model


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def encoder():
    from helpers.model.loading import load_model

    return load_model("minilm", device="cpu")


@pytest.fixture(scope="module")
def graph(folder):
    """The graph of the page, open in Python."""
    return open_graph(folder / "graph.onnx")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "your-sentence"
    try:
        write_page(folder)
    except InputError as error:
        pytest.skip(str(error))
    return folder


@pytest.fixture(scope="module")
def address(folder):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="module")
def requests():
    """The addresses that the page asked for, and the messages that it logged."""
    return []


@pytest.fixture(scope="module")
def page(browser, address, requests):
    """The page with its first sentence."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(120_000)
    page.on("request", lambda request: requests.append(request.url.removeprefix(address)))
    page.on("console", lambda message: requests.append(message.text))
    page.on("pageerror", lambda error: requests.append(str(error)))
    page.goto(address)
    page.wait_for_function(LOADED)
    return page


def sentences(count):
    """Sentences of the bundled text, those with unusual characters first."""
    actual = []
    for article in articles(SAMPLE):
        for paragraph in article.paragraphs:
            actual += re.split(r"(?<=[.!?]) ", paragraph)
    return sorted(actual, key=str.isascii)[:count]


def show(page, text):
    """Type a sentence and wait for its maps."""
    page.fill("#text", text)
    page.click("text=Show attention")
    page.wait_for_function(
        "text => new URLSearchParams(location.hash.slice(1)).get('text') === text", arg=text
    )


def run_in_browser(page, texts):
    """Compute the maps of texts in the page."""
    run = """async (texts) => {
      const { yourSentence } = await import("./your-sentence.js");
      const { tokenizer, run } = yourSentence.model;
      const maps = [];
      for (const text of texts) {
        maps.push(Array.from((await run(tokenizer.encode(text), 0)).attention));
      }
      return JSON.stringify(maps);
    }"""
    return json.loads(page.evaluate(run, texts))


def test_tokenizer_gives_the_ids_of_transformers(page, encoder):
    texts = [*UNUSUAL, *sentences(200)]
    ids = page.evaluate(
        """async (texts) => {
          const { yourSentence } = await import("./your-sentence.js");
          return texts.map((text) => yourSentence.model.tokenizer.encode(text));
        }""",
        texts,
    )
    for text, actual in zip(texts, ids, strict=True):
        assert actual == encoder.tokenizer(text)["input_ids"], text


def test_maps_of_5_sentences_are_those_of_python(page, encoder, graph):
    texts = [text for text in sentences(100) if len(text.split()) < 30][:5]
    for text, maps in zip(texts, run_in_browser(page, texts), strict=True):
        inputs = encoder.tokenizer(text, return_tensors="pt")
        graph_maps, _ = run_graph(graph, inputs["input_ids"][0].tolist())
        np.testing.assert_allclose(np.reshape(maps, graph_maps.shape), graph_maps, atol=1e-4)
        exact = encoder.model(**inputs, output_attentions=True).attentions
        difference = np.abs(graph_maps - np.concatenate([m[0].detach() for m in exact]))
        assert difference.mean() < 0.003


def test_slider_changes_the_maps_and_says_the_angle(page, encoder, graph):
    text = "The keys to the old cabinet are on the table."
    show(page, text)
    ids = encoder.tokenizer(text)["input_ids"]
    intact = run_graph(graph, ids)[1]
    for change, name in enumerate(("constant", "dropped", "given to words"), 1):
        page.fill("#change", str(change))
        page.wait_for_function(
            "name => document.getElementById('change-name').value === name", arg=name
        )
        vector = run_graph(graph, ids, change)[1]
        cosine = intact @ vector / np.linalg.norm(intact) / np.linalg.norm(vector)
        degrees = float(re.search(r"turns by ([\d.]+)°", page.inner_text("#angle"))[1])
        assert degrees == pytest.approx(np.degrees(np.arccos(cosine)), abs=0.1)
    to_cls = page.locator(".av-lines line[data-key='0']")
    assert to_cls.count() == 0
    page.fill("#change", "0")
    page.wait_for_function("() => document.getElementById('change-name').value === 'as it is'")
    assert to_cls.count() > 0


def test_address_with_a_sentence_shows_it_as_text(page):
    link = {"text": HOSTILE, "cls": "dropped", "head": "2-5"}
    page.evaluate("hash => { location.hash = hash; }", urlencode(link))
    page.locator(".av-name", has_text="Head 2-5").wait_for()
    assert page.input_value("#text") == HOSTILE
    assert page.inner_text("#change-name") == "dropped"
    assert page.locator("#viewer img").count() == 0
    assert "<" in page.locator(".av-svg").first.text_content()


def test_nothing_else_was_asked_for(page, requests):
    """The last test of this page: requests have no sentence in them, and nothing was logged."""
    assert set(requests) == FILES
