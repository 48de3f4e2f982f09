"""Maps drawn by hand have the features and classes that they should."""

import numpy as np
import pytest

from helpers.errors import InputError
from helpers.studies.dark_secrets.maps import text_segments
from helpers.studies.dark_secrets.pattern_features import (
    CLASSES,
    FEATURES,
    _contrast,
    _corner_sums,
    map_features,
)
from helpers.studies.dark_secrets.pattern_labels import pattern_judge

N = 40
SPECIAL = np.isin(np.arange(N), (0, 19, N - 1))
SEGMENT = (np.arange(N) > 19).astype(int)


def rows(weights):
    return weights / weights.sum(axis=-1, keepdims=True)


def background():
    return np.full((N, N), 0.1 / N)


def column():
    weights = background()
    weights[:, 0] += 0.7
    return rows(weights)


def diagonal():
    weights = background() + np.eye(N, k=-1)
    return rows(weights)


def blocks():
    return rows(background() + (SEGMENT[:, None] == SEGMENT))


def noise():
    return rows(np.random.default_rng(0).uniform(0.5, 1, (N, N)))


def features_of(weights, special=SPECIAL, segment=SEGMENT):
    values = map_features(weights[None, None], special, segment)[0, 0]
    return dict(zip(FEATURES, values[: len(FEATURES)], strict=True))


def pattern_of(weights, special=SPECIAL):
    features = map_features(weights[None, None], special, SEGMENT)
    return CLASSES[pattern_judge().predict(features[0])[0]]


def test_plain_maps_are_recognised():
    # but for squares: no labelled map has as plain ones, and they are told as a diagonal
    assert pattern_of(column()) == "vertical"
    assert pattern_of(diagonal()) == "diagonal"
    assert pattern_of((column() + diagonal()) / 2) == "vertical + diagonal"
    assert pattern_of(noise()) == "heterogeneous"
    assert pattern_of(np.full((N, N), 1 / N)) == "heterogeneous"


def test_features_by_hand():
    weights = np.array(
        [[0.5, 0.5, 0.0, 0.0], [0.2, 0.4, 0.4, 0.0], [0.2, 0.3, 0.1, 0.4], [0.0, 0.0, 0.4, 0.6]]
    )
    special = np.array([True, False, False, False])
    found = features_of(weights, special, np.array([0, 0, 1, 1]))
    assert found["special"] == pytest.approx(0.9 / 4)
    assert found["column"] == pytest.approx(1.2 / 4)  # the second key
    # medians by key: 0.2, 0.35, 0.25, 0.2; uniform attention is 0.25
    assert found["stripes"] == pytest.approx(0.1)
    assert found["previous"] == pytest.approx((0.2 + 0.3 + 0.4) / 3)
    assert found["current"] == pytest.approx(1.6 / 4)
    assert found["next"] == pytest.approx((0.5 + 0.4 + 0.4) / 3)
    # ordinary tokens: 0.4 0.4 0 / 0.3 0.1 0.4 / 0 0.4 0.6, 2.6 together, and all near the diagonal
    assert found["diagonal"] == pytest.approx(1)
    # own text: 0.4, 0.5 and 1 of 2.6; five of nine cells
    assert found["text"] == pytest.approx((1.9 / 2.6 - 5 / 9) / (4 / 9))
    # rows .5 .5 0 / .375 .125 .5 / 0 .4 .6: what two rows share if moved, and if not
    moved = (0.125 + 0.5 + 0.375 + 0.125) / 2
    stayed = (0.375 + 0.125 + 0.125 + 0.5) / 2
    assert found["slide"] == pytest.approx(moved - stayed)
    logs = -(weights * np.log(np.where(weights > 0, weights, 1))).sum(axis=1)
    assert found["entropy"] == pytest.approx(logs.mean() / np.log(4), abs=1e-6)


def test_uniform_attention_has_nothing_above_uniform():
    found = features_of(np.full((N, N), 1 / N))
    for name in ("stripes", "diagonal", "band", "text"):
        assert found[name] == pytest.approx(0, abs=1e-5)
    assert found["entropy"] == pytest.approx(1, abs=1e-5)


def test_rows_that_move_slide_and_rows_that_repeat_do_not():
    assert features_of(diagonal())["slide"] > 0.5
    assert features_of(blocks())["slide"] < 0
    # the same row throughout: its neighbours differ where it does
    assert features_of(rows(background() + np.arange(N) % 2))["slide"] < -0.5


def test_squares_stand_out_from_what_crosses_them():
    at_cut = _contrast(_corner_sums(blocks()[None, None]), N)[0, 0]
    inside = rows(background() + (SEGMENT[:, None] == SEGMENT)).max()
    assert at_cut.max() == pytest.approx(inside - blocks().min())
    margin = (N - 2) // 3
    assert at_cut.argmax() == 19 - margin  # the cut after 20 tokens, where the second text starts
    for other in (noise(), column()):
        assert _contrast(_corner_sums(other[None, None]), N).max() < 0.2 * at_cut.max() + 0.02


def test_one_text_has_no_block_of_texts_and_dead_rows_are_no_error():
    single = np.zeros(N, int)
    assert features_of(blocks(), SPECIAL, single)["text"] == 0
    to_first = np.zeros((N, N))
    to_first[:, 0] = 1  # nothing at all between ordinary tokens
    found = features_of(to_first)
    for name in ("diagonal", "band", "text", "slide"):
        assert found[name] == pytest.approx(0, abs=1e-6)
    assert pattern_of(to_first) == "vertical"
    assert np.isfinite(map_features(to_first[None, None], SPECIAL, SEGMENT)).all()


def test_a_text_without_special_tokens_is_a_map_like_any_other():
    none = np.zeros(N, bool)  # GPT-2 has neither [CLS] nor [SEP]
    for number, maps in enumerate((column(), diagonal(), noise())):
        found = features_of(maps, none, SEGMENT)
        assert np.isfinite(list(found.values())).all(), number
        assert found["special"] == 0
    assert pattern_of(diagonal(), none) == "diagonal"


def test_features_do_not_depend_on_the_other_heads():
    maps = np.stack([column(), diagonal(), blocks(), noise()])
    together = map_features(maps.reshape(2, 2, N, N), SPECIAL, SEGMENT)
    assert together.shape[:2] == (2, 2)
    for index, weights in enumerate(maps):
        alone = map_features(weights[None, None], SPECIAL, SEGMENT)[0, 0]
        np.testing.assert_allclose(together[divmod(index, 2)], alone, atol=1e-4)
    half = map_features(maps.reshape(2, 2, N, N).astype(np.float16), SPECIAL, SEGMENT)
    np.testing.assert_allclose(half, together, atol=5e-3)


@pytest.mark.parametrize(
    ("special", "segment"),
    [("1001001", "0000111"), ("1001100100", "0000011122"), ("000", "000"), ("1101", "0000")],
)
def test_texts_are_told_apart_by_special_tokens(special, segment):
    mask = np.array([flag == "1" for flag in special])
    assert "".join(map(str, text_segments(mask))) == segment


def test_bad_input_is_said():
    with pytest.raises(InputError, match="40 special flags and 39 segments"):
        map_features(noise()[None, None], SPECIAL, SEGMENT[1:])
    with pytest.raises(InputError, match="ordinary"):
        map_features(noise()[None, None], np.ones(N, bool), SEGMENT)


@pytest.mark.parametrize("length", [2, 3, 4, 9])
def test_the_shortest_inputs_have_finite_features(length):
    special = np.arange(length) == 0
    weights = np.random.default_rng(0).dirichlet(np.ones(length), (2, 3, length))
    found = map_features(weights, special, np.zeros(length, int))
    assert found.shape[:2] == (2, 3)
    assert np.isfinite(found).all()
    assert found.shape == map_features(weights, special, np.arange(length) % 2).shape
