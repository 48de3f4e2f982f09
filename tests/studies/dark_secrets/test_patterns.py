"""Features by hand, maps drawn by hand, and a judge scored on heads that it has not seen."""

from itertools import product

import numpy as np
import pytest
import torch

from helpers.studies.dark_secrets import maps as map_reader
from helpers.studies.dark_secrets import patterns
from helpers.studies.dark_secrets.maps import TextMaps, shaded, text_maps
from helpers.studies.dark_secrets.patterns import ANY_COLUMN, CLASSES, FEATURES, SPECIAL_COLUMN
from helpers.studies.tasks import Pair
from helpers.study import Study

N = 40
SPECIAL = np.isin(np.arange(N), (0, 19, N - 1))
SEGMENT = (np.arange(N) > 19).astype(int)


def rows(weights):
    return weights / weights.sum(axis=-1, keepdims=True)


def background():
    return np.full((N, N), 0.1 / N)


def column(place=0):
    weights = background()
    weights[:, place] += 0.7
    return rows(weights)


def diagonal():
    return rows(background() + np.eye(N, k=-1))


def features_of(weights, special=SPECIAL, segment=SEGMENT):
    values = patterns.map_features(weights[None, None], special, segment)[0, 0]
    return dict(zip(FEATURES, values, strict=True))


def pattern_of(weights, special=SPECIAL):
    features = patterns.map_features(weights[None, None], special, SEGMENT)
    return patterns.pattern_classifier().predict(features[0])[0]


def test_plain_maps_are_recognised():
    # but for squares: no labelled map has as plain ones, and they are told as a diagonal
    to_first = np.zeros((N, N))
    to_first[:, 0] = 1
    for columns in (column(), column(7), to_first):
        assert pattern_of(columns) == "vertical"
    assert pattern_of(diagonal()) == "diagonal"
    assert pattern_of(diagonal(), np.zeros(N, bool)) == "diagonal"  # GPT-2 has no special token
    assert pattern_of((column() + diagonal()) / 2) == "vertical + diagonal"
    noise = rows(np.random.default_rng(0).uniform(0.5, 1, (N, N)))
    assert pattern_of(noise) == "heterogeneous"
    assert pattern_of(np.full((N, N), 1 / N)) == "heterogeneous"


def test_features_by_hand():
    weights = np.array(
        [
            [0.4, 0.2, 0.1, 0.2, 0.1],
            [0.3, 0.2, 0.3, 0.1, 0.1],
            [0.2, 0.4, 0.2, 0.1, 0.1],
            [0.1, 0.1, 0.2, 0.3, 0.3],
            [0.5, 0.0, 0.1, 0.2, 0.2],
        ]
    )
    found = features_of(weights, np.arange(5) == 0, np.array([0, 0, 0, 1, 1]))
    assert found["column share"] == pytest.approx(1.5 / 5)
    dark = shaded(weights)  # the darkest colour is 1 here, whatever the map
    assert dark.max() == pytest.approx(0.5**0.7)
    assert found["first column"] == pytest.approx(0.3**0.7)
    # of the four words, by diagonal: which is the largest of seven, and the next
    plain = dark[1:, 1:]
    means = sorted(np.diagonal(plain, step).mean() for step in range(-3, 4))
    assert found["diagonal"] == pytest.approx(means[-1])
    assert found["second diagonal"] == pytest.approx(means[-2])
    assert found["main diagonal"] == pytest.approx(np.trace(plain) / 4)
    assert found["far"] == 0  # nothing is more than three words away
    inside = [plain[0, 1], plain[1, 0], plain[2, 3], plain[3, 2]]  # a word away, the same text
    between = [*plain[:2, 2:].flat, *plain[2:, :2].flat]
    assert found["square"] == pytest.approx(np.mean(inside) - np.mean(between), abs=1e-6)
    correlation = np.corrcoef(plain)
    alike = [correlation[0, 1], correlation[1, 2], correlation[2, 3]]
    assert found["rows alike"] == pytest.approx(np.mean(alike), abs=1e-5)
    far_alike = [correlation[0, 2], correlation[1, 3]]
    assert found["far rows alike"] == pytest.approx(np.mean(far_alike), abs=1e-5)
    assert found["length"] == pytest.approx(np.log(5))


def test_one_text_has_no_square_and_the_shortest_inputs_finite_features():
    blocks = rows(background() + (SEGMENT[:, None] == SEGMENT))
    assert features_of(blocks)["square"] > 0.3
    assert features_of(blocks, segment=np.zeros(N, int))["square"] == 0
    for length in (2, 3, 4, 9):
        weights = np.random.default_rng(0).dirichlet(np.ones(length), (2, 3, length))
        found = patterns.map_features(weights, np.arange(length) == 0, np.zeros(length, int))
        assert found.shape == (2, 3, len(FEATURES)) and np.isfinite(found).all()


def test_the_judge_is_scored_on_heads_that_it_has_not_seen(monkeypatch):
    table, _ = patterns.labelled_maps()
    heads = table[["model", "layer", "head"]].astype(str).agg("-".join, axis=1)
    labels, told = table["settled"], np.full(len(table), None)

    def judged(judge, features, given, cv):
        for train, test in cv.split():
            assert not set(heads[train]) & set(heads[test])
            told[test] = judge.fit(features[train], given[train]).predict(features[test])
        return told

    monkeypatch.setattr(patterns, "cross_val_predict", judged)
    patterns.out_of_fold_predictions.cache_clear()
    matrix = patterns.confusion_table().set_index("label")
    for label, guess in product(CLASSES, CLASSES):
        assert matrix.loc[label, guess] == ((labels == label) & (told == guess)).sum()
    trust = patterns.trust_table().set_index("measure")
    assert trust.loc["accuracy", "percent"] == pytest.approx(100 * (labels == told).mean())
    right = np.diag(matrix)
    f1 = 2 * right / (matrix.sum(axis=0).to_numpy() + matrix.sum(axis=1).to_numpy())
    assert trust.loc["macro F1", "percent"] == pytest.approx(100 * f1.mean())
    assert f1.mean() > 0.77
    chance = sum((table["pass1"] == name).mean() * (table["pass2"] == name).mean()
                 for name in CLASSES)  # fmt: skip
    same = (table["pass1"] == table["pass2"]).mean()
    kappa = (same - chance) / (1 - chance)
    assert trust.loc["kappa of the two passes", "percent"] == pytest.approx(100 * kappa)
    assert trust["paper"].dropna().to_dict() == {"macro F1": 86}


@pytest.mark.default_model
def test_committed_features_are_those_of_the_default_model():
    study, (labels, known) = Study(), patterns.labelled_maps()
    encoder = study.encoder
    pairs = [Pair(own.first, own.second, 0) for own in study.segment_corpus().records()]
    longest = {"segment": 128, "task": 64}
    own = labels[(labels["model"] == encoder.name) & labels["source"].isin(longest)]
    for row in own.iloc[::25].itertuples():
        maps = text_maps(encoder, [pairs[row.example]], max_tokens=longest[row.source])
        features = patterns.map_features(*next(maps))[row.layer - 1, row.head - 1]
        np.testing.assert_allclose(features, known[row.Index], atol=0.02)


def test_table_counts_maps_by_head():
    first = np.stack([column(), diagonal()]).reshape(1, 2, N, N)
    second = np.stack([column(), column()]).reshape(1, 2, N, N)
    second[0, 0] = column(7)  # no special token's
    table = patterns.pattern_counts(TextMaps(maps, SPECIAL, SEGMENT) for maps in (first, second))
    columns = ["layer", "head", "maps", "vertical", "diagonal", SPECIAL_COLUMN]
    assert table[columns].to_numpy().tolist() == [[1, 1, 2, 1, 0, 0.5], [1, 2, 2, 0.5, 0.5, 0.5]]
    assert table["pattern"].iloc[0] == "vertical"
    # shares are means over heads
    found = patterns.share_table(table.assign(task="t", weights="w")).set_index("pattern")["share"]
    np.testing.assert_allclose(found[list(CLASSES)], table[list(CLASSES)].mean())
    assert found[ANY_COLUMN] == pytest.approx(found["vertical"] + found["vertical + diagonal"])
    assert found[SPECIAL_COLUMN] == pytest.approx(2 / 3)  # of three maps with a column
    table[patterns.WITH_COLUMN] = table[SPECIAL_COLUMN] = 0.0
    assert np.isnan(patterns.share_table(table.assign(task="t", weights="w"))["share"].iloc[-1])


# The maps that are classified

PAIRS = [
    Pair("The cat sat on the mat.", "It was a lazy cat.", 0),
    Pair("Yes.", None, 1),
    Pair("She doesn't know New York.", None, 0),
]


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_maps_are_those_of_the_example_alone(tiny_encoder, family, monkeypatch):
    monkeypatch.setattr(map_reader, "BATCH_SIZE", 2)
    encoder = tiny_encoder(family)
    found = list(text_maps(encoder, PAIRS, max_tokens=48))
    assert len(found) == len(PAIRS)
    for pair, example in zip(PAIRS, found, strict=True):
        texts = [pair.first] if pair.second is None else [pair.first, pair.second]
        inputs = encoder.tokenizer(*texts, return_tensors="pt")
        maps = encoder.model.base_model(**inputs, output_attentions=True).attentions
        expected = torch.cat(maps).detach().numpy()
        assert np.allclose(example.attention, expected, atol=1e-5)
        ids = inputs["input_ids"][0].tolist()
        assert example.special.tolist() == [i in encoder.tokenizer.all_special_ids for i in ids]
