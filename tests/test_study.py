"""What a study computes, keeps and compares with."""

from dataclasses import replace
from functools import wraps

import pandas as pd
import pytest
from toy_corpora import SENTENCES, conllu

from helpers.analysis import dependency_heads, head_counts
from helpers.plots.style import canvas
from helpers.study import Study, describe_store


@pytest.fixture
def study(tiny_folder, tmp_path, own_cache):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(" ".join(words) + " and so it went on." for words in SENTENCES))
    return Study(model=str(tiny_folder("bert")), text=str(text), max_tokens=48, device="cpu")


def test_the_controls_are_computed_in_the_run_and_are_other_models(study):
    own, drawn, focused = study.sums, *study.control_sums.values()
    assert drawn.mean("entropy").shape == own.mean("entropy").shape
    assert abs(drawn.mean("entropy") - own.mean("entropy")).max() > 0.01
    assert abs(focused.mean("entropy") - own.mean("entropy")).max() < 0.01
    for control in (drawn, focused):
        square = study.distances(control)
        assert square.shape == study.distances().shape and not square.equals(study.distances())
    again = replace(study)  # with nothing in memory
    assert (again.control_sums["focused"].mean("entropy") == focused.mean("entropy")).all()
    itself = replace(study, random_init=study.seed, focused=True).encoder
    assert itself.identity == study.controls["focused"].identity
    assert itself.slug == "bert-random-0-focused"
    assert study.segments >= study.control_segments


def test_the_control_goes_through_the_lens_of_the_run(study):
    through_norms = replace(study, lens="norm")
    weights, norms = (one.control_sums["control"].mean("entropy") for one in (study, through_norms))
    assert abs(weights - norms).max() > 1e-3


def test_describe_store_counts_the_documents_of_a_treebank(study, tmp_path):
    treebank = tmp_path / "trees.conllu"
    tree = conllu([(1, "dogs", 2, "nsubj"), (2, "bark", 0, "root")], times=2)
    treebank.write_text("".join(f"# newdoc id = {name}\n{tree}" for name in "abc"))
    marked = replace(study, treebank=str(treebank))
    described = describe_store(marked.treebank_store())["store"]
    assert described["documents"] == "3" and described["examples"] == "6"
    assert "documents" not in describe_store(study.segment_store()).index
    assert "documents" not in describe_store(study.coreference_store()).index


def test_what_takes_a_tokenizer_or_a_pass_is_kept(study, tmp_path, monkeypatch):
    treebank = tmp_path / "trees.conllu"
    treebank.write_text(conllu([(1, "dogs", 2, "nsubj"), (2, "bark", 0, "root")], times=2))
    parsed = replace(study, treebank=str(treebank))

    def kept():
        words, special = parsed.split_words(store), parsed.special_candidates(store, table)
        return parsed.head_counts(store), words, special

    store = parsed.treebank_store()
    counts = head_counts.count_heads(store)
    table = dependency_heads.dependency_heads(counts, minimum=1)
    expected = dependency_heads.with_special_tokens(store, table)
    first = kept()
    for module, name in (
        (head_counts, "count_heads"),
        (dependency_heads, "split_words"),
        (dependency_heads, "with_special_tokens"),
    ):
        refuse = wraps(getattr(module, name))(lambda *_: pytest.fail("counted again"))
        monkeypatch.setattr(module, name, refuse)
    for own, words, special in (first, kept()):
        assert own.names == counts.names == ("All", "nsubj", "root")
        for name, array in list(vars(counts).items())[1:]:
            assert vars(own)[name].dtype == array.dtype and (vars(own)[name] == array).all(), name
        assert words["words"].sum() == 4 and words.equals(first[1]) and special.equals(expected)


def test_for_papers_there_are_pdf_and_latex_too_and_the_same_files(figures):
    found = []
    for settings in ({}, {"figures": "pdf", "latex": True}):
        study = Study(name=f"mine-{len(found)}", **settings)
        study.save_table(pd.DataFrame({"layer": [1], "entropy": [1 / 3]}), "entropy")
        study.save_figure(canvas(1.0, "Figure 4", note="A note"), "fig4")
        files = {path.name: path for path in study.results.rglob("*.*")}
        del files["run.json"]
        found.append({name: path.read_bytes() for name, path in files.items()})
    plain, paper = found
    assert plain.keys() == {"entropy.csv", "fig4.png", "fig4.svg"}
    assert paper.keys() - plain.keys() == {"fig4.pdf", "entropy.tex"}
    assert all(paper[name] == plain[name] for name in plain)
