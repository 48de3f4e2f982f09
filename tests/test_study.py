"""What a study computes, keeps and compares with."""

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


def test_what_heads_get_right_is_counted_once(tiny_folder, tmp_path, monkeypatch):
    from helpers.analysis import head_counts

    treebank = tmp_path / "trees.conllu"
    rows = ("1 dogs _ _ _ _ 2 nsubj _ _", "2 bark _ _ _ _ 0 root _ _")
    treebank.write_text("\n".join([*(row.replace(" ", "\t") for row in rows), "\n"]) * 2)
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "cache"))
    study = Study(model=str(tiny_folder("bert")), treebank=str(treebank), device="cpu",
                  max_tokens=48)  # fmt: skip
    store = study.treebank_store()
    expected = head_counts.count_heads(store)
    first = study.head_counts(store)
    monkeypatch.setattr(head_counts, "count_heads", lambda _: pytest.fail("counted again"))
    for found in (first, study.head_counts(store)):
        assert found.names == expected.names == ("All", "nsubj", "root")
        for name, array in list(vars(expected).items())[1:]:
            kept = vars(found)[name]
            assert kept.dtype == array.dtype and (kept == array).all(), name
