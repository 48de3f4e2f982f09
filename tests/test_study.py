"""Studies: their controls, the tables that they cache, and what takes the place of trees."""

import json
from dataclasses import asdict
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from toy_corpora import SENTENCES, conllu

from beyond.per_example import save_per_example
from beyond.silver_parses import score_every_head
from helpers.errors import InputError
from helpers.metrics import head_counts, surface
from helpers.metrics.clustering import distances
from helpers.metrics.dependency_heads import relation_tables
from helpers.settings import Settings
from helpers.study import Study, describe_store

TREE = [(1, "dogs", 2, "nsubj"), (2, "bark", 0, "root"), (3, "loudly", 2, "advmod")]


@pytest.fixture
def study(tiny_folder, tmp_path, own_cache):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(" ".join(words) + " and so it went on." for words in SENTENCES))
    return Study(model=str(tiny_folder("bert")), text=str(text), max_tokens=48, device="cpu")


@pytest.fixture
def trees(tmp_path):
    """A treebank of six documents."""
    path = tmp_path / "trees.conllu"
    path.write_text("".join(f"# newdoc id = {name}\n{conllu(TREE, times=3)}" for name in "abcdef"))
    return str(path)


def varied(study, **settings):
    """Make a study with some other settings, and with nothing in memory."""
    return Study(**asdict(study.settings) | settings)


def sums_of(study):
    return {name: surface.sums(study.segment_store(name)) for name in study.models}


def tables_of_relations(study, store):
    counts = head_counts.head_counts(store)
    return relation_tables(store, counts, minimum=study.settings.minimum_count)


def test_controls_are_two_random_models_measured_through_the_lens_of_the_run(study):
    entropies = {name: sums.mean("entropy") for name, sums in sums_of(study).items()}
    trained = entropies["trained"]
    assert entropies["random"].shape == trained.shape
    assert abs(entropies["random"] - trained).max() > 0.01
    assert abs(entropies["entropy-matched"] - trained).max() < 0.01
    repeated = surface.sums(varied(study).segment_store("entropy-matched")).mean("entropy")
    assert (repeated == entropies["entropy-matched"]).all()
    norms = varied(study, lens="norm")
    stores = [norms.segment_store(), norms.segment_store("random"), norms.coreference_store()]
    assert {store.lens for store in stores} == {"norm"}
    assert abs(surface.sums(stores[1]).mean("entropy") - entropies["random"]).max() > 0.01
    squares = [distances(study.segment_store(name))[0] for name in study.models]
    assert not squares[0].equals(squares[1]) and not squares[1].equals(squares[2])


def test_controls_see_a_part_of_the_sample_and_name_its_articles(study, monkeypatch):
    monkeypatch.setattr(Settings, "control_segments", 5)
    triples = list(product(SENTENCES, repeat=3))[:24]
    lines = [" ".join(sum(triple, ())) for triple in triples]
    Path(study.settings.text).write_text("\n".join(lines))
    divided = varied(study, segments=9)
    sample = divided.segment_corpus()
    assert divided.segment_corpus(5).records() == sample.records()[::2]
    assert divided.segment_corpus(9).fingerprint == sample.fingerprint
    assert varied(divided, seed=1).segment_corpus().records() != sample.records()
    in_all = varied(divided, segments=None)
    assert set(in_all.segment_corpus(5).records()) < set(in_all.segment_corpus().records())
    sums_by_model = sums_of(divided)
    names = set(sums_by_model.pop("trained").articles)
    assert names == {segment.title for segment in sample.records()}
    for sums in sums_by_model.values():
        assert set(sums.articles) < names
        assert (sums.by_article("entropy")[1].sum(axis=0) == 5).all()


def test_pairs_take_the_place_of_trees(study, trees, tmp_path):
    """Their tables are those of the trees, and each example is written on request."""
    pairs = [[0, 1, "nsubj"], [1, 1, "root"], [2, 1, "advmod"]]
    sentence = {"words": ["dogs", "bark", "loudly"], "pairs": pairs}
    documents = [document for document in "abcdef" for _ in range(3)]
    lines = [json.dumps({**sentence, "document": document}) for document in documents]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    parsed = varied(study, treebank=trees, minimum_count=1)
    paired = varied(study, pairs=str(tmp_path / "pairs.jsonl"), minimum_count=1, name="pairs")
    no_op = [
        tables_of_relations(version, version.treebank_store())["no_op"]
        for version in (paired, parsed)
    ]
    tag_columns = no_op[1].filter(like="within_tag")  # pairs have no parts of speech
    pd.testing.assert_frame_equal(*(table.drop(columns=tag_columns) for table in no_op))
    counts = [head_counts.head_counts(version.treebank_store()) for version in (paired, parsed)]
    pd.testing.assert_frame_equal(*(score_every_head(counted, minimum=1) for counted in counts))
    described = describe_store(paired.treebank_store())["store"]
    assert described["documents"] == "6" and described["examples"] == "18"
    assert "documents" not in describe_store(paired.segment_store())["store"]
    section_3, picks = save_per_example(paired)
    assert set(pd.read_parquet(picks)["relation"]) == {"nsubj", "root", "advmod"}
    assert len(pd.read_parquet(section_3)) == len(paired.segment_store()) * 3 * 4
    with pytest.raises(InputError, match="--treebank"):
        varied(parsed, pairs="x.jsonl")


def test_controls_of_a_model_with_random_weights_have_seeds_of_their_own():
    study = Study(random_init=3, seed=5)
    seeds = [study.model_key(name)["random_init"] for name in ("trained", "random", "random-1")]
    assert seeds == [3, 9, 10]
