"""What a study computes, keeps and compares with."""

import subprocess
import sys
from dataclasses import replace
from functools import wraps

import pytest
from toy_corpora import SENTENCES

from helpers.study import CONTROL_SEGMENTS, Study


@pytest.fixture
def study(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text(
        "\n".join(" ".join(words) + " and so it went on and on." for words in SENTENCES)
    )
    return Study(model=str(tiny_folder("bert")), text=str(text), max_tokens=48, device="cpu")


def test_the_control_is_computed_in_the_run_and_is_another_model(study):
    own, control = study.sums, study.control_sums
    assert control.mean("entropy").shape == own.mean("entropy").shape
    assert abs(control.mean("entropy") - own.mean("entropy")).max() > 0.01
    square = study.distances(control=True)
    assert square.shape == study.distances().shape and not square.equals(study.distances())
    again = Study.of(
        {name: getattr(study, name) for name in ("model", "text", "max_tokens", "device")}
    )
    assert (again.control_sums.mean("entropy") == control.mean("entropy")).all()
    assert study.segments >= CONTROL_SEGMENTS or study.small


def test_the_control_goes_through_the_lens_of_the_run(study):
    through_norms = replace(study, lens="norm")
    weights, norms = (one.control_sums.mean("entropy") for one in (study, through_norms))
    assert abs(weights - norms).max() > 1e-3


@pytest.fixture
def parsed(tiny_folder, tmp_path, monkeypatch):
    """A study of a small treebank, in a cache of its own."""
    treebank = tmp_path / "trees.conllu"
    rows = ("1 dogs _ _ _ _ 2 nsubj _ _", "2 bark _ _ _ _ 0 root _ _")
    treebank.write_text("\n".join([*(row.replace(" ", "\t") for row in rows), "\n"]) * 2)
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "cache"))
    folder = str(tiny_folder("bert"))
    return Study(model=folder, treebank=str(treebank), device="cpu", max_tokens=48)


def test_what_heads_get_right_is_counted_once(parsed, monkeypatch):
    from helpers.analysis import head_counts

    store = parsed.treebank_store()
    expected = head_counts.count_heads(store)
    first = parsed.head_counts(store)
    monkeypatch.setattr(head_counts, "count_heads", lambda _: pytest.fail("counted again"))
    for found in (first, parsed.head_counts(store)):
        assert found.names == expected.names == ("All", "nsubj", "root")
        for name, array in list(vars(expected).items())[1:]:
            kept = vars(found)[name]
            assert kept.dtype == array.dtype and (kept == array).all(), name


def test_what_takes_a_tokenizer_or_a_pass_is_kept(parsed, monkeypatch):
    from helpers.analysis import dependency_heads

    store = parsed.treebank_store()
    table = dependency_heads.dependency_heads(parsed.head_counts(store), minimum=1)
    expected = dependency_heads.with_special_tokens(store, table)
    first = parsed.split_words(store), parsed.special_candidates(store, table)
    assert first[0]["words"].sum() == 4
    for name in ("split_words", "with_special_tokens"):
        refuse = wraps(getattr(dependency_heads, name))(lambda *_: pytest.fail("counted again"))
        monkeypatch.setattr(dependency_heads, name, refuse)
    again = parsed.split_words(store), parsed.special_candidates(store, table)
    assert again[0].equals(first[0]) and again[1].equals(first[1]) and again[1].equals(expected)


def test_the_sample_is_found_without_the_library_that_ships_it():
    code = (
        "import sys; from helpers.data.wikipedia import segments; segments(None, count=1, seed=0);"
        "print('gensim' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
