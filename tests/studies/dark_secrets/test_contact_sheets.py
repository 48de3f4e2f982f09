"""Maps to label: drawn at random, computed again from what the table says of them."""

import numpy as np
import pandas as pd
import pytest

from helpers.store.extract import extract
from helpers.store.stream import Stream
from helpers.studies.dark_secrets.contact_sheets import (
    PER_SHEET,
    SHORT,
    draw_sheets,
    label_features,
    read_maps,
    sample_maps,
)
from helpers.studies.dark_secrets.pattern_labels import read_labels
from helpers.studies.dark_secrets.patterns import FEATURES
from helpers.study import Study


@pytest.fixture
def store(tiny_encoder, segments, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path))
    return extract(tiny_encoder("bert"), segments, level="token", max_tokens=64)


def test_sample_has_every_head_as_often_and_two_halves(store):
    rows = sample_maps(store, copies=2)
    assert list(rows["map"]) == list(range(1, len(rows) + 1))
    assert (rows.groupby(["layer", "head"]).size() == 3).all()
    assert len(rows) == 3 * store.layers * store.heads
    assert (rows["source"] == "segment").mean() == pytest.approx(2 / 3)
    assert (rows["half"] == "fit").sum() == len(rows) // 2
    assert not rows[["layer", "head"]].equals(
        rows[["layer", "head"]].sort_values(["layer", "head"])
    )
    pd.testing.assert_frame_equal(rows, sample_maps(store, copies=2))


def test_whole_segments_are_those_of_the_store(store, tiny_encoder):
    rows = sample_maps(store)
    rows = rows[rows["source"] == "segment"].iloc[:6]
    for row, drawn in zip(
        rows.itertuples(), read_maps(tiny_encoder("bert"), store, rows), strict=True
    ):
        stored = store[row.example].attention[row.layer - 1, row.head - 1]
        np.testing.assert_allclose(drawn.weights, stored, atol=2e-3)
        assert drawn.name == str(row.map)
        assert drawn.special.sum() == 3
        assert set(drawn.segment) == {0, 1}


def test_short_inputs_are_cut(store, tiny_encoder):
    rows = sample_maps(store)
    for kind, specials in (("short pair", 3), ("short text", 2)):
        some = rows[rows["source"] == kind]
        for drawn in read_maps(tiny_encoder("bert"), store, some):
            assert drawn.special.sum() == specials
            for text in set(drawn.segment):
                assert (~drawn.special & (drawn.segment == text)).sum() <= SHORT
            np.testing.assert_allclose(drawn.weights.sum(axis=-1), 1, atol=0.01)


def test_sheets_are_drawn_with_a_table_to_fill_in(tmp_path, store, tiny_encoder):
    few = sample_maps(store).iloc[: PER_SHEET + 1]
    rows = draw_sheets(tiny_encoder("bert"), store, few, tmp_path / "sheets")
    sheets = sorted((tmp_path / "sheets").glob("sheet-*.png"))
    assert len(sheets) == 2
    assert len(rows) == PER_SHEET + 1
    written = pd.read_csv(tmp_path / "sheets" / "pattern_labels.csv")
    assert written["label"].isna().all()
    assert len(label_features(tiny_encoder("bert"), store, written.iloc[:3]).columns) == len(
        written.columns
    ) + len(FEATURES)


@pytest.mark.default_model
def test_committed_features_are_those_of_the_default_model(monkeypatch):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)  # the labels are of the full profile
    study = Study()
    corpus = study.segment_corpus()
    source = Stream.open(study.encoder, corpus, max_tokens=study.max_tokens)
    labels = read_labels()
    drawn = sample_maps(source)
    everyone = labels[labels["drawn"] == "every head"].reset_index(drop=True)
    pd.testing.assert_frame_equal(everyone[list(drawn.columns)], drawn)
    some = labels.iloc[::30]
    again = label_features(study.encoder, source, some)
    np.testing.assert_allclose(again[list(FEATURES)], some[list(FEATURES)], atol=2e-3)
