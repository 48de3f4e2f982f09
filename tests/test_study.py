"""Studies: their controls, the tables that they cache, and the files that they write."""

import json
from dataclasses import asdict
from functools import wraps
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from toy_corpora import SENTENCES, conllu

from beyond.per_example import save_per_example
from helpers.errors import InputError, StoreError
from helpers.gradients import gradient_table
from helpers.metrics import head_counts, surface
from helpers.metrics.dependency_heads import each_head
from helpers.metrics.head_distance import distances
from helpers.metrics.relation_tables import relation_tables
from helpers.metrics.surface import article_table
from helpers.model.gradients import gradient_importance
from helpers.plots.style import canvas
from helpers.settings import Settings
from helpers.study import Study, describe_store


@pytest.fixture
def study(tiny_folder, tmp_path, own_cache):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(" ".join(words) + " and so it went on." for words in SENTENCES))
    return Study(model=str(tiny_folder("bert")), text=str(text), max_tokens=48, device="cpu")


def varied(study, **settings):
    """Make a study with some other settings, and with nothing in memory."""
    return Study(**asdict(study.settings) | settings)


def sums_of(study):
    return {name: surface.sums(study.segment_store(name)) for name in study.models}


def tables_of_relations(study, store):
    counts = head_counts.head_counts(store)
    return relation_tables(store, counts, minimum=study.settings.minimum_count)


def test_sums_of_controls_are_those_of_two_random_models(study):
    entropies = {name: sums.mean("entropy") for name, sums in sums_of(study).items()}
    trained = entropies["trained"]
    assert entropies["random"].shape == trained.shape
    assert abs(entropies["random"] - trained).max() > 0.01
    assert abs(entropies["entropy-matched"] - trained).max() < 0.01
    assert study.settings.segments >= study.settings.control_segments
    repeated = varied(study)
    of_matched = surface.sums(repeated.segment_store("entropy-matched")).mean("entropy")
    assert (of_matched == entropies["entropy-matched"]).all()


def test_names_of_models_have_their_own_random_weights(study):
    seeds = {}
    for name in ("trained", "random", "random-0", "random-1", "random-2"):
        seeds[name] = study.model_key(name)["random_init"]
    assert seeds == {"trained": None, "random": 0, "random-0": 0, "random-1": 1, "random-2": 2}
    control = varied(study, random_init=2, seed=1)  # whose controls have other weights than itself
    names = ("trained", "random", "random-1")
    assert [control.model_key(name)["random_init"] for name in names] == [2, 4, 5]
    keys = [study.model_key(name) for name in study.models]
    assert keys[2]["matched to"] and len({str(key) for key in keys}) == 3


def test_a_finished_store_opens_without_a_model(study, monkeypatch):
    stores = {name: study.segment_store(name) for name in study.models}
    monkeypatch.setattr("helpers.study.load_model", lambda *_, **__: pytest.fail("loaded"))
    opened = varied(study)
    for name, store in stores.items():
        assert opened.segment_store(name).key == store.key
    assert opened.title == study.title and "3 layers of 4 heads" in opened.title


@pytest.fixture
def divided_study(study, monkeypatch):
    """Make a study of nine of twelve segments, of which controls have five."""
    triples = list(product(SENTENCES, repeat=3))[:24]
    lines = [" ".join(sum(triple, ())) for triple in triples]
    Path(study.settings.text).write_text("\n".join(lines))
    monkeypatch.setattr(Settings, "control_segments", 5)
    return varied(study, segments=9)


def test_averages_of_controls_have_names_of_the_articles_of_the_model(divided_study):
    sums_by_model = sums_of(divided_study)
    names = article_table(sums_by_model.pop("trained"))["article"]
    titles = {segment.title for segment in divided_study.segment_corpus().records()}
    assert set(names) == titles
    for sums in sums_by_model.values():
        assert set(article_table(sums)["article"]) <= set(names)
        assert (sums.by_article("entropy")[1].sum(axis=0) == 5).all()


def test_segments_of_a_limit_are_spread_over_the_sample(divided_study):
    sample = divided_study.segment_corpus().records()
    assert divided_study.segment_corpus(5).records() == sample[::2]
    assert divided_study.segment_corpus(9).fingerprint == divided_study.segment_corpus().fingerprint
    in_all = varied(divided_study, segments=None)
    assert set(in_all.segment_corpus(5).records()) < set(in_all.segment_corpus().records())
    tokens = [record["tokens"] for record in divided_study.segment_store().records()]
    for name in ("random", "entropy-matched"):
        store = divided_study.segment_store(name)
        assert [record["tokens"] for record in store.records()] == tokens[::2]


def test_gradients_of_a_control_are_of_segments_of_the_model(divided_study, monkeypatch):
    measured = []

    def spy(encoder, records, *, seed):
        measured.append([record["tokens"] for record in records])
        return gradient_importance(encoder, records, seed=seed)

    monkeypatch.setattr("helpers.gradients.gradient_importance", spy)
    store = divided_study.segment_store()
    for name, limit in (("trained", None), ("random", 3)):
        gradient_table(divided_study.load(name), store, count=4, seed=0, limit=limit)
    of_model, of_control = measured
    assert len(of_model) == 4 and len(of_control) == 3
    assert all(tokens in of_model for tokens in of_control)


def test_distances_of_a_control_are_its_own(study):
    trained, _ = distances(study.segment_store())
    for name in ("random", "entropy-matched"):
        square, among_words = distances(study.segment_store(name))
        assert square.shape == trained.shape == among_words.shape
        assert not square.equals(trained) and not square.equals(among_words)


def test_maps_of_controls_go_through_the_lens_of_the_run(study):
    of_weights = surface.sums(study.segment_store("random")).mean("entropy")
    in_norms = varied(study, lens="norm")
    of_norms = surface.sums(in_norms.segment_store("random")).mean("entropy")
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
        counts = head_counts.head_counts(store)
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
    tables = tables_of_relations(parsed, parsed.shuffled_store())
    monkeypatch.setattr(head_counts, "count_heads", lambda *_: pytest.fail("counted again"))
    repeated = varied(parsed)
    for name, table in tables_of_relations(repeated, repeated.shuffled_store()).items():
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
    tables = tables_of_relations(paired, paired.treebank_store())
    expected = tables_of_relations(parsed, parsed.treebank_store())
    pd.testing.assert_frame_equal(tables["no_op"], expected["no_op"])  # it needs no tags
    heads = []
    for each_study in (paired, parsed):
        counts = head_counts.head_counts(each_study.treebank_store())
        heads.append(each_head(counts, minimum=1))
    pd.testing.assert_frame_equal(*heads)
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
    study.save_figure(canvas(1.0, "Figure 4", "A note"), "fig4")
    files = {path.name: path.read_bytes() for path in study.results.build.rglob("*.*")}
    del files["run.json"]
    return files


def test_save_figure_writes_the_formats_of_the_settings(figures):
    usual = saved_files(Study(name="usual"))
    vector = saved_files(Study(name="vector", formats="png,svg,pdf"))
    assert usual.keys() == {"entropy.csv", "fig4.png"}
    assert vector.keys() == {"entropy.csv", "fig4.png", "fig4.svg", "fig4.pdf"}
    assert all(vector[name] == usual[name] for name in usual)


def test_a_setting_that_there_is_not_is_refused():
    with pytest.raises(TypeError, match="segmnts"):
        Study(segmnts=5)


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
    study.load("entropy-matched")
    assert set(limits) == {4}  # the tests run in the quick profile
