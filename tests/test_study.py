"""Studies: their controls, the tables that they cache, and the files that they write."""

import json
from dataclasses import asdict
from functools import wraps
from inspect import signature
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from toy_corpora import SENTENCES, conllu

from beyond.per_example import save_per_example
from helpers.errors import InputError, StoreError
from helpers.metrics import head_counts
from helpers.metrics.surface import article_table
from helpers.model.gradients import gradient_importance
from helpers.plots.style import canvas
from helpers.settings import Settings
from helpers.study import QUICK_ENTROPY_SEGMENTS, Study, describe_store


@pytest.fixture
def study(tiny_folder, tmp_path, own_cache):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(" ".join(words) + " and so it went on." for words in SENTENCES))
    return Study(model=str(tiny_folder("bert")), text=str(text), max_tokens=48, device="cpu")


def varied(study, **settings):
    """Make a study with some other settings, and with nothing in memory."""
    return Study(**asdict(study.settings) | settings)


def mean_entropy(sums):
    return sums.mean("entropy")


def test_control_sums_are_those_of_two_random_models(study):
    trained_entropy = mean_entropy(study.sums)
    entropies = {name: mean_entropy(sums) for name, sums in study.control_sums.items()}
    assert entropies["random"].shape == trained_entropy.shape
    assert abs(entropies["random"] - trained_entropy).max() > 0.01
    assert abs(entropies["entropy-matched"] - trained_entropy).max() < 0.01
    assert study.settings.segments >= study.settings.control_segments
    repeated = varied(study)
    assert (
        mean_entropy(repeated.control_sums["entropy-matched"]) == entropies["entropy-matched"]
    ).all()


@pytest.fixture
def divided_study(study, monkeypatch):
    """Make a study of nine of twelve segments, of which controls have five."""
    triples = list(product(SENTENCES, repeat=3))[:24]
    lines = [" ".join(sum(triple, ())) for triple in triples]
    Path(study.settings.text).write_text("\n".join(lines))
    monkeypatch.setattr(Settings, "control_segments", 5)
    return varied(study, segments=9)


def test_averages_of_controls_have_names_of_the_articles_of_the_model(divided_study):
    names = article_table(divided_study.sums)["article"]
    titles = {segment.title for segment in divided_study.segment_corpus().records()}
    assert set(names) == titles
    for sums in divided_study.control_sums.values():
        assert set(article_table(sums)["article"]) <= set(names)
        assert (sums.by_article("entropy")[1].sum(axis=0) == 5).all()


def test_segments_of_a_limit_are_spread_over_the_sample(divided_study):
    sample = divided_study.segment_corpus().records()
    assert divided_study.segment_corpus(5).records() == sample[::2]
    assert divided_study.segment_corpus(9).fingerprint == divided_study.segment_corpus().fingerprint
    in_all = varied(divided_study, segments=None)
    assert set(in_all.segment_corpus(5).records()) < set(in_all.segment_corpus().records())
    tokens = [record["tokens"] for record in divided_study.segment_store().records()]
    for store in divided_study._control_segments.values():
        assert [record["tokens"] for record in store.records()] == tokens[::2]


def test_gradients_of_a_control_are_of_segments_of_the_model(divided_study, monkeypatch):
    monkeypatch.setattr("helpers.study.CONTROL_GRADIENTS", 3)
    measured = []

    def spy(encoder, records, *, seed):
        measured.append([record["tokens"] for record in records])
        return gradient_importance(encoder, records, seed=seed)

    monkeypatch.setattr("helpers.model.gradients.gradient_importance", spy)
    divided_study.gradient_table()
    divided_study.gradient_table(divided_study.controls["random"])
    of_model, of_control = measured
    assert len(of_model) == 4 and len(of_control) == 3
    assert all(tokens in of_model for tokens in of_control)


def test_distances_of_a_control_are_its_own(study):
    trained, _ = study.distances()
    for name in study.controls:
        square, among_words = study.distances(name)
        assert square.shape == trained.shape == among_words.shape
        assert not square.equals(trained) and not square.equals(among_words)


def test_control_sums_go_through_the_lens_of_the_run(study):
    of_weights = mean_entropy(study.control_sums["random"])
    of_norms = mean_entropy(varied(study, lens="norm").control_sums["random"])
    assert abs(of_weights - of_norms).max() > 1e-3


def test_describe_store_counts_the_documents_of_a_treebank(study, tmp_path):
    treebank = tmp_path / "trees.conllu"
    tree = conllu([(1, "dogs", 2, "nsubj"), (2, "bark", 0, "root")], times=2)
    treebank.write_text("".join(f"# newdoc id = {name}\n{tree}" for name in "abc"))
    marked = varied(study, treebank=str(treebank))
    described = describe_store(marked.treebank_store())["store"]
    assert described["documents"] == "3" and described["examples"] == "6"
    assert "documents" not in describe_store(study.segment_store()).index
    assert "documents" not in describe_store(study.coreference_store()).index


def test_head_counts_are_counted_once(study, tmp_path, monkeypatch):
    treebank = tmp_path / "trees.conllu"
    treebank.write_text(conllu([(1, "dogs", 2, "nsubj"), (2, "bark", 0, "root")], times=2))
    parsed = varied(study, treebank=str(treebank))
    store = parsed.treebank_store()
    expected_counts = head_counts.count_heads(store)

    def check_tables():
        counts = parsed.head_counts(store)
        assert counts.names == expected_counts.names == ("All", "nsubj", "root")
        for name, expected in vars(expected_counts).items():
            if name == "names":
                continue
            counted = getattr(counts, name)
            assert counted.dtype == expected.dtype and (counted == expected).all(), name

    check_tables()
    refuse = wraps(head_counts.count_heads)(lambda *_: pytest.fail("counted again"))
    monkeypatch.setattr(head_counts, "count_heads", refuse)
    check_tables()


def test_relation_tables_are_computed_once_from_a_store(study, tmp_path, monkeypatch):
    treebank = tmp_path / "trees.conllu"
    tree = [(1, "dogs", 2, "nsubj"), (2, "bark", 0, "root"), (3, "loudly", 2, "advmod")]
    treebank.write_text(
        "".join(f"# newdoc id = {name}\n{conllu(tree, times=3)}" for name in "abcdef")
    )
    parsed = varied(study, treebank=str(treebank), minimum_count=1)
    tables = parsed.relation_tables(parsed.shuffled_store())
    monkeypatch.setattr(head_counts, "count_heads", lambda *_: pytest.fail("counted again"))
    repeated = varied(parsed)
    for name, table in repeated.relation_tables(repeated.shuffled_store()).items():
        pd.testing.assert_frame_equal(table, tables[name], check_dtype=False)


def test_pairs_take_the_place_of_trees(study, tmp_path):
    """Their tables are those of the trees, and each example is written on request."""
    tree = [(1, "dogs", 2, "nsubj"), (2, "bark", 0, "root"), (3, "loudly", 2, "advmod")]
    text = "".join(f"# newdoc id = {name}\n{conllu(tree, times=3)}" for name in "abcdef")
    (tmp_path / "trees.conllu").write_text(text)
    pairs = [[0, 1, "nsubj"], [1, 1, "root"], [2, 1, "advmod"]]
    lines = []
    for number in range(18):
        sentence = {"words": ["dogs", "bark", "loudly"], "pairs": pairs}
        lines.append(json.dumps({**sentence, "document": "abcdef"[number // 3]}))
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    parsed = varied(study, treebank=str(tmp_path / "trees.conllu"), minimum_count=1)
    paired = varied(study, pairs=str(tmp_path / "pairs.jsonl"), minimum_count=1, name="pairs")
    tables = paired.relation_tables(paired.treebank_store())
    expected = parsed.relation_tables(parsed.treebank_store())
    pd.testing.assert_frame_equal(tables["no_op"], expected["no_op"])  # it needs no tags
    pd.testing.assert_frame_equal(paired.heads_of_relations(), parsed.heads_of_relations())
    described = describe_store(paired.treebank_store())["store"]
    assert described["documents"] == "6" and described["examples"] == "18"
    section_3, picks = save_per_example(paired)
    assert set(pd.read_parquet(picks)["relation"]) == {"nsubj", "root", "advmod"}
    assert len(pd.read_parquet(section_3)) == len(paired.segment_store()) * 3 * 4
    assert section_3.parent == paired.results.build / "per_example"
    with pytest.raises(InputError, match="takes the place of --treebank; give one of them"):
        varied(parsed, pairs="x.jsonl")


def saved_files(study):
    """Save a table and a figure; return the bytes of each file by its name."""
    study.save_table(pd.DataFrame({"layer": [1], "entropy": [1 / 3]}), "entropy")
    study.save_figure(canvas(1.0, "Figure 4", note="A note"), "fig4")
    files = {path.name: path.read_bytes() for path in study.results.build.rglob("*.*")}
    del files["run.json"]
    return files


def test_save_figure_writes_the_formats_of_the_settings(figures):
    usual = saved_files(Study(name="usual"))
    vector = saved_files(Study(name="vector", formats="png,svg,pdf"))
    assert usual.keys() == {"entropy.csv", "fig4.png"}
    assert vector.keys() == {"entropy.csv", "fig4.png", "fig4.svg", "fig4.pdf"}
    assert all(vector[name] == usual[name] for name in usual)


def test_study_lists_its_settings_and_names_the_one_that_was_meant():
    parameters = signature(Study).parameters
    assert parameters["segments"].default == 1000 and "later" in parameters
    assert repr(Study(model="mine", max_tokens=48)).startswith("Study(model='mine', ")
    with pytest.raises(InputError, match="no setting 'segmnts'; did you mean 'segments'"):
        Study(segmnts=5)


def test_segment_store_without_segments_says_so(study):
    with pytest.raises(InputError, match="no example is left"):
        study.segment_store(limit=0)


def test_example_store_reports_a_full_disk(study, monkeypatch):
    def refuse(*_, **__):
        raise StoreError("disk full")

    monkeypatch.setattr("helpers.store.extract.extract", refuse)
    with pytest.raises(StoreError, match="disk full"):
        study.example_store()


def test_entropies_are_matched_on_fewer_segments_in_a_preset(study, monkeypatch):
    limits = []
    segment_corpus = study.segment_corpus

    def spy(limit=None):
        limits.append(limit)
        return segment_corpus(limit)

    monkeypatch.setattr(study, "segment_corpus", spy)
    _ = study.controls
    assert limits == [QUICK_ENTROPY_SEGMENTS]  # the tests run in the small profile
