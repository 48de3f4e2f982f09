"""The book: it is built without a warning, and a browser needs nothing else."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from scripts import minutes, student
from scripts.book import colab_link, repository_of

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "build" / "book"
MAX_PAGE_BYTES = 3_000_000
PHONE = {"width": 390, "height": 844}
READ = (
    "index.html",
    "notebooks/02_separator_tokens.html",
    "notebooks/04_individual_heads.html",
    "look-at-a-head.html",
    "own-model.html",
    "api.html",
    "runs/minilm.html",
    "search.html?q=entropy",
)


@pytest.fixture(scope="module")
def book():
    """The book without reports; Sphinx stops at a warning, also of a dead link."""
    for package in ("sphinx", "myst_nb", "sphinx_book_theme"):
        pytest.importorskip(package, reason="needs requirements-book.txt")
    command = [sys.executable, "scripts/book.py", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return BOOK


@pytest.mark.default_model
def test_settings_are_folded_and_solutions_hidden(book):
    page = (book / "notebooks" / "04_individual_heads.html").read_text()
    assert page.count("<summary>Solution</summary>") == 2
    assert "tag_hide-input" in page
    assert "Before you start" in page


@pytest.mark.default_model
def test_pages_open_in_a_browser_without_a_message_or_a_request(book, browser):
    problems = []
    context = browser.new_context(offline=True)
    page = context.new_page()

    def note(message):
        if message.type in ("error", "warning"):
            problems.append(message.text)

    def note_outside(request):
        if not request.url.startswith(("file:", "data:", "about:", "blob:")):
            problems.append(request.url)

    page.on("console", note)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", note_outside)
    for name in READ:
        page.goto(f"{book.as_uri()}/{name}")
        page.wait_for_load_state("load")
    hit = page.locator("#search-results li a").first
    hit.wait_for()
    assert "notebooks/" in hit.get_attribute("href")  # lessons before functions
    page.goto(f"{book.as_uri()}/look-at-a-head.html")
    page.frame_locator("iframe.viewer").locator(".av-lines line").first.wait_for(state="attached")
    page.goto(f"{book.as_uri()}/notebooks/04_individual_heads.html")
    frame = page.frame_locator("iframe[title='Attention viewer']")
    page.locator("iframe[title='Attention viewer']").scroll_into_view_if_needed()
    frame.locator(".av-lines line").first.wait_for(state="attached")
    page.set_viewport_size(PHONE)
    for name in READ[:-1]:
        page.goto(f"{book.as_uri()}/{name}")
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > PHONE["width"]:
            problems.append(f"{name} is {width} pixels wide on a phone")
    context.close()
    assert not problems


@pytest.mark.default_model
def test_no_page_is_large(book):
    sizes = {path: path.stat().st_size for path in book.rglob("*.html")}
    large = max(sizes, key=lambda path: sizes[path])
    assert sizes[large] <= MAX_PAGE_BYTES, large


@pytest.mark.parametrize(
    ("remote", "repository"),
    [
        ("https://github.com/someone/attention.git\n", "someone/attention"),
        ("git@github.com:someone/attention.git\n", "someone/attention"),
        ("https://example.org/someone/attention.git\n", ""),
        ("", ""),
    ],
)
def test_repository_of_a_remote(remote, repository):
    assert repository_of(remote) == repository


def test_colab_link_is_of_the_notebooks_on_the_paper_and_needs_a_repository():
    link = colab_link("03_focused_vs_broad.ipynb", "someone/attention")
    address = "github/someone/attention/blob/HEAD/notebooks/03_focused_vs_broad.ipynb"
    assert f"(https://colab.research.google.com/{address})" in link
    assert colab_link("03_focused_vs_broad.ipynb", "") == ""
    assert colab_link("07_dark_secrets.ipynb", "someone/attention") == ""


def test_pages_of_the_book_have_the_minutes_and_objectives_of_the_notebooks():
    """``python scripts/minutes.py`` fills them in."""
    notebooks = minutes.read_notebooks()
    for path, text in minutes.pages(notebooks).items():
        assert path.read_text() == text, path.name
    for stem, notebook in notebooks.items():
        assert minutes.objectives(notebook), stem
        number = minutes.reading_minutes(notebook)
        assert f"Reading: {number} minutes." in notebook.cells[0].source, stem


def test_notebooks_for_students_have_the_stubs_and_no_solutions():
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        checks = [cell.source for cell in notebook.cells if "\ncheck(" in cell.source]
        removed = student.without_solutions(notebook)
        text = nbformat.writes(notebook)
        assert "<summary>Solution" not in text and "<summary>Answer" not in text
        assert removed >= len(checks) >= 2
        assert [cell.source for cell in notebook.cells if "\ncheck(" in cell.source] == checks
        nbformat.validate(notebook)
