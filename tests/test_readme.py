"""What the documentation names is there, and what it shows runs."""

import json
import pkgutil
import re
from pathlib import Path

import pandas as pd
import pytest
from readme_numbers import notebook_09, sentences
from readme_tables import PAGES as SIDE_BY_SIDE
from readme_tables import written_anew
from screens import readme_viewer
from toy_corpora import SENTENCES, conllu, sentence_of

from helpers.analysis.heads import head_label
from helpers.run.notebooks import notebooks
from helpers.study import Study

ROOT = Path(__file__).resolve().parent.parent
MAP = ROOT / "helpers" / "README.md"
PAGES = [ROOT / "README.md", ROOT / "figures" / "README.md", *(ROOT / "helpers").rglob("README.md")]
ROOMS = "data|model|store|analysis|plots|viewer|studies|run|study|tables|settings"


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(rf"`((?:{ROOMS})\.[\w.]+)`", MAP.read_text())))
)
def test_every_function_that_the_map_names_is_there(name):
    assert pkgutil.resolve_name(f"helpers.{name}")


def test_the_code_of_the_map_runs(tiny_folder, tmp_path, monkeypatch):
    """A measure that is not there yet, the stores, and a reader of one's own, as documented."""
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "cache"))
    paragraphs = [" ".join(words) + " and so it went on and on." for words in SENTENCES] * 3
    text = tmp_path / "text.txt"
    text.write_text("\n".join(paragraphs))
    own = sentence_of(SENTENCES[0])
    rows = zip(range(1, 9), own.words, own.heads, own.relations, strict=False)
    bank = tmp_path / "trees.conllu"
    bank.write_text(conllu(list(rows), times=2))
    paths = {"model": str(tiny_folder("bert")), "text": str(text), "treebank": f"{bank},{bank}"}
    study = Study(**paths, max_tokens=48, device="cpu")
    names = {"study": study}
    blocks = re.findall(r"```python\n(.*?)```", MAP.read_text(), re.S)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, str(MAP), "exec"), names)
    table, (layers, heads) = names["table"], study.sums.mean("entropy").shape
    assert list(table) == ["layer", "head", "first_token"] and len(table) == layers * heads
    assert table["first_token"].between(0, 1).all()
    assert len(names["store"]) == 4 and names["store"].spec.corpus["name"] == "cats"


@pytest.mark.default_model
def test_the_head_of_the_first_viewer_is_the_best_held_out_and_right(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path))
    shown = readme_viewer()
    table = pd.read_csv(ROOT / "figures/minilm/tables/dependency_heads_held_out.csv")
    best = table.loc[table["margin"].idxmax()]
    assert (best["relation"], best["head"]) == (shown.relation, head_label(*shown.head))
    found = shown.search(relation=shown.relation)
    assert len(found) == 2 and found["right"].all()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_first_page_is_short_and_has_a_row_for_every_notebook():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 220
    assert text.index("![") < text.index("```")  # a figure first
    for path in notebooks():
        assert f"(notebooks/{path.name})" in text


@pytest.mark.parametrize("name", SIDE_BY_SIDE)
def test_the_runs_side_by_side_are_the_committed_ones(name):
    """``python tests/readme_tables.py`` writes the tables."""
    page = (ROOT / name).read_text()
    assert written_anew(page, ROOT / "figures") == page


def test_what_is_said_of_the_later_notebooks_is_what_their_tables_say():
    page = " ".join((ROOT / "figures" / "README.md").read_text().split())
    assert [sentence for sentence in sentences() if sentence not in page] == []
    cells = json.loads((ROOT / "notebooks" / "09_argument_cues.ipynb").read_text())["cells"]
    prose = " ".join("".join(word for cell in cells for word in cell["source"]).split())
    assert [sentence for sentence in notebook_09() if sentence not in prose] == []
