"""Maps to label: drawn at random, computed again from what the table says of them."""

import numpy as np
import pandas as pd
import pytest

from helpers.studies.dark_secrets.contact_sheets import (
    PER_SHEET,
    SOURCES,
    draw_sheets,
    read_maps,
    sample_maps,
)
from helpers.studies.dark_secrets.maps import small_maps
from helpers.studies.dark_secrets.pattern_features import map_features
from helpers.studies.dark_secrets.pattern_labels import read_labels
from helpers.studies.dark_secrets.pattern_labels import read_maps as committed_maps
from helpers.studies.tasks import Pair
from helpers.study import Study

PAIRS = [Pair("the dog barks at a cat . " * 2, "a cat sleeps", 0), Pair("the cat", "the dog", 0)]
TEXTS = {"segment": PAIRS, "task": PAIRS, "sentence": [Pair("the dog barks", None, 0)]}


def test_sample_has_every_head_in_every_source(tiny_encoder):
    encoder = tiny_encoder("bert")
    rows = sample_maps(encoder, TEXTS)
    assert (rows.groupby(["source", "layer", "head"]).size() == 1).all()
    assert len(rows) == len(SOURCES) * encoder.layers * encoder.heads
    pd.testing.assert_frame_equal(rows, sample_maps(encoder, TEXTS))
    for row, drawn in zip(rows.itertuples(), read_maps(encoder, TEXTS, rows), strict=True):
        assert drawn.special.sum() == (2 if row.source == "sentence" else 3)
        assert len(drawn.special) <= SOURCES[row.source]
        np.testing.assert_allclose(drawn.weights.sum(axis=-1), 1, atol=0.01)


def test_sheets_show_maps_in_an_order_of_their_own(tmp_path, tiny_encoder):
    encoder = tiny_encoder("bert")
    maps = list(read_maps(encoder, TEXTS, sample_maps(encoder, TEXTS)))[:4] * 10
    orders = [draw_sheets(maps, tmp_path / str(seed), seed=seed) for seed in (1, 2)]
    assert len(list((tmp_path / "1").glob("sheet-*.png"))) == -(-len(maps) // PER_SHEET)
    for order in orders:
        assert sorted(order["map"]) == list(range(len(maps)))
    assert list(orders[0]["map"]) != list(orders[1]["map"])
    assert pd.read_csv(tmp_path / "1" / "order.csv")["label"].isna().all()


@pytest.mark.default_model
def test_committed_maps_are_those_of_the_default_model(monkeypatch):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)  # the labels are of the full profile
    study, labels = Study(), read_labels()
    own = labels[labels["model"] == study.encoder.name]
    pairs = [Pair(found.first, found.second, 0) for found in study.segment_corpus().records()]
    texts = {"segment": pairs, "task": pairs, "sentence": 2 * pairs}  # as many as sentences
    rows = sample_maps(study.encoder, texts)
    pd.testing.assert_frame_equal(own.iloc[: len(rows)][list(rows)], rows)
    drawn = own[own["source"] != "sentence"].iloc[::25]
    for place, found in zip(drawn.index, read_maps(study.encoder, texts, drawn), strict=True):
        small = small_maps(found.weights).astype(int)
        assert np.abs(small - committed_maps()["maps"][place]).max() <= 4
        features = map_features(found.weights[None, None], found.special, found.segment)[0, 0]
        np.testing.assert_allclose(features, committed_maps()["features"][place], atol=0.02)
