"""The documentation: names exist, commands and Python blocks run, tables are the committed ones."""

import pkgutil
import re
import runpy
import shlex
from collections import Counter
from dataclasses import fields
from pathlib import Path

import page_numbers
import pytest
import readme_tables
import tiny_models
from committed import committed_figures

from helpers.__main__ import parser
from helpers.data.columns import detect_format, read_trees
from helpers.data.coreference import read_documents
from helpers.data.glove import read_glove
from helpers.data.links import read_pairs
from helpers.run import check_notebooks, list_notebooks
from helpers.settings import Settings, make_settings

ROOT = Path(__file__).resolve().parent.parent
MAP = ROOT / "helpers" / "README.md"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SAFETY.md",
    *ROOT.glob("figures/README.md"),
    *ROOT.glob("tests/**/*.md"),
    *(ROOT / "helpers").rglob("README.md"),
    ROOT / "CHANGELOG.md",
    *ROOT.glob("book/*.md"),
]
SUBPACKAGES = "data|model|store|metrics|probes|plots|viewer|run|study|results|settings"
FORMATS = ROOT / "helpers" / "data" / "README.md"
QUESTIONS = ROOT / "book" / "questions.md"


def test_every_function_that_the_map_names_is_there():
    names = set(re.findall(rf"`((?:{SUBPACKAGES})\.(?!csv|json|toml|py)[\w.]+)`", MAP.read_text()))
    assert len(names) > 5
    for name in names:
        pkgutil.resolve_name(f"helpers.{name}")  # an error names it


def blocks(language, pages=PAGES):
    """List the blocks of code in a language, each with the folder of its page."""
    found_blocks = []
    for page in pages:
        for block in re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S):
            found_blocks.append((page.parent.name, block))
    return found_blocks


@pytest.mark.default_model
@pytest.mark.parametrize(
    ("page", "block"), blocks("python", [page for page in PAGES if page != QUESTIONS])
)
def test_every_block_of_python_runs_as_it_stands(page, block, tmp_path, monkeypatch):
    """Each by itself, under the quick profile, with the maps of the notebooks that are tested."""
    monkeypatch.setenv("ATTENTION_PROFILE", "quick")
    for folder in ("figures", "build"):
        monkeypatch.setenv(f"ATTENTION_{folder.upper()}", str(tmp_path / folder))
    reader = tmp_path / "reader"  # a block may write into the folder in which it runs
    reader.mkdir()
    (reader / "figures").symlink_to(ROOT / "figures")
    monkeypatch.chdir(reader)
    script = tmp_path / f"{page}.py"  # cached functions need a source
    script.write_text(block)
    runpy.run_path(str(script))
    if "save_figure" in block:
        saved = (tmp_path / "build").rglob("*.*g")
        assert {path.suffix for path in saved} == {".png"}


@pytest.mark.default_model
def test_the_lines_of_the_questions_run_in_one_session(tmp_path, monkeypatch):
    """As the page says; `my-decoder` is a reader's, and the page writes into build/."""
    model, tokenizer = tiny_models.gpt2()
    tiny_models.save(tmp_path / "my-decoder", model, tokenizer)
    (tmp_path / "figures").symlink_to(ROOT / "figures")
    (tmp_path / "build").mkdir()
    monkeypatch.chdir(tmp_path)
    session = tmp_path / "session.py"
    session.write_text("\n".join(block for _, block in blocks("python", [QUESTIONS])))
    runpy.run_path(str(session))
    assert (tmp_path / "build" / "head.html").is_file()


def test_every_command_line_is_one():
    """Parsed, and refused where its flags do nothing; the files that it names are the reader's."""
    text = "\n".join(block for _, block in blocks("bash")).replace("\\\n", " ")
    lines = re.findall(
        r"^(?:ATTENTION_CACHE=\S+ )?(?:\.venv/bin/)?python -m helpers (.*)", text, re.M
    )
    lines += re.findall(r"`(?:\.venv/bin/)?python -m helpers (\w[^`]*)`", "".join(
        page.read_text().replace("\n", " ") for page in PAGES))  # fmt: skip
    assert len(lines) > 12
    for line in lines:
        options = vars(parser().parse_args(shlex.split(line, comments=True)))
        if "extended" in options:
            settings = {setting.name: options[setting.name] for setting in fields(Settings)}
            check_notebooks(list_notebooks(options["only"]), make_settings(**settings))


def test_examples_of_formats_are_read(tmp_path):
    names = {"json": "pairs.jsonl", "brackets": "tale.txt", "glove": "glove.txt"}
    paths = {}
    for language in ("conllu", "plain", *names):
        (block,) = re.findall(rf"```{language}\n(.*?)```", FORMATS.read_text(), re.S)
        paths[language] = tmp_path / names.get(language, f"example.{language}")
        paths[language].write_text(block)
    for format in ("conllu", "plain"):
        assert detect_format(paths[format]) == format
        (sentence,) = read_trees(paths[format], Counter())
        assert sentence.words == ("She", "reads", "books") and sentence.heads == (2, 0, 2)
    (sentence,) = read_pairs(paths["json"], Counter())
    assert sentence.pairs == ((0, 1, "nsubj"), (2, 1, "obj"), (1, 1, "root"))
    (document,) = read_documents(paths["brackets"], Counter())
    assert [chain for _, _, chain in document.spans] == [1, 1, 2, None, 2]
    assert read_glove(paths["glove"]).matrix.shape == (2, 3)


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_tables_and_numbers_of_the_pages_are_the_committed_ones():
    """``python tests/readme_tables.py`` writes them."""
    for path, text in readme_tables.rewritten_pages(committed_figures()).items():
        assert path.read_text(encoding="utf-8") == text, path.name


@pytest.mark.parametrize("name", readme_tables.PAGES)
def test_every_number_of_a_page_comes_from_a_cell(name):
    """tests/page_numbers.toml names the cells, and the few numbers that come from elsewhere."""
    assert page_numbers.numbers_without_a_cell((ROOT / name).read_text(encoding="utf-8")) == []


def test_every_cell_is_of_a_number_on_a_page():
    text = "".join((ROOT / name).read_text(encoding="utf-8") for name in readme_tables.PAGES)
    for number in page_numbers.read_numbers()["numbers"]:
        assert page_numbers.pattern(number["text"]).search(text), number["text"]
        assert number["text"].count("{}") == len(number["cells"]), number["text"]
