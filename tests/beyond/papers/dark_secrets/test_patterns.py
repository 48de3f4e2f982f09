"""Patterns: features by hand, made-up maps, and the scores of the classifier."""

import numpy as np
import pytest
import torch
from tolerances import float32_error

from beyond.papers.common.tasks import Pair
from beyond.papers.dark_secrets import maps as map_reader
from beyond.papers.dark_secrets import patterns
from beyond.papers.dark_secrets.maps import TextMaps, shaded, text_maps
from beyond.papers.dark_secrets.patterns import ANY_COLUMN, CLASSES, FEATURES, SPECIAL_COLUMN
from helpers.study import Study

N = 40
SPECIAL = np.isin(np.arange(N), (0, 19, N - 1))
SEGMENT = (np.arange(N) > 19).astype(int)


def normalised(weights):
    return weights / weights.sum(axis=-1, keepdims=True)


def background():
    return np.full((N, N), 0.1 / N)


def column(position=0):
    weights = background()
    weights[:, position] += 0.7
    return normalised(weights)


def diagonal():
    return normalised(background() + np.eye(N, k=-1))


def features_of(weights, special=SPECIAL):
    values = patterns.map_features(weights[None, None], special)[0, 0]
    return dict(zip(FEATURES, values, strict=True))


def pattern_of(weights, special=SPECIAL):
    features = patterns.map_features(weights[None, None], special)
    return patterns.pattern_classifier().predict(features[0])[0]


def only_first_column():
    weights = np.zeros((N, N))
    weights[:, 0] = 1
    return weights


@pytest.mark.parametrize("weights", [column(), column(7), only_first_column()])
def test_pattern_of_a_column_is_vertical(weights):
    assert pattern_of(weights) == "vertical"


@pytest.mark.parametrize("special", [SPECIAL, np.zeros(N, bool)])
def test_pattern_of_a_diagonal_with_and_without_special_tokens(special):
    assert pattern_of(diagonal(), special) == "diagonal"


def test_pattern_of_a_column_and_a_diagonal_is_both():
    assert pattern_of((column() + diagonal()) / 2) == "vertical + diagonal"


def test_pattern_of_noise_and_of_uniform_attention_is_heterogeneous():
    noise = normalised(np.random.default_rng(0).uniform(0.5, 1, (N, N)))
    assert pattern_of(noise) == "heterogeneous"
    assert pattern_of(np.full((N, N), 1 / N)) == "heterogeneous"


def test_map_features_by_hand():
    weights = np.array(
        [
            [0.4, 0.2, 0.1, 0.0, 0.2, 0.1],
            [0.3, 0.2, 0.3, 0.0, 0.1, 0.1],
            [0.2, 0.4, 0.2, 0.0, 0.1, 0.1],
            [0.3, 0.1, 0.1, 0.3, 0.1, 0.1],
            [0.1, 0.1, 0.2, 0.0, 0.3, 0.3],
            [0.5, 0.0, 0.1, 0.0, 0.2, 0.2],
        ]
    )
    words = [1, 2, 4, 5]  # special tokens are before each of the two texts
    features = features_of(weights, ~np.isin(np.arange(6), words))
    assert features["column share"] == pytest.approx(1.8 / 6)
    shades = shaded(weights)  # the darkest colour is 1 here, whatever the map
    assert shades.max() == pytest.approx(0.5**0.7)
    assert features["first column"] == pytest.approx(0.3**0.7)
    # The four words, by diagonal: the largest mean of seven, and the second largest.
    word_shades = shades[np.ix_(words, words)]
    means = sorted(np.diagonal(word_shades, offset).mean() for offset in range(-3, 4))
    assert features["diagonal"] == pytest.approx(means[-1])
    assert features["second diagonal"] == pytest.approx(means[-2])
    assert features["main diagonal"] == pytest.approx(np.trace(word_shades) / 4)
    assert features["far"] == 0  # no words are more than three words apart
    # Neighbours in the same text, and all pairs of different texts.
    inside = [word_shades[0, 1], word_shades[1, 0], word_shades[2, 3], word_shades[3, 2]]
    between = [*word_shades[:2, 2:].flat, *word_shades[2:, :2].flat]
    assert features["square"] == pytest.approx(
        np.mean(inside) - np.mean(between), abs=float32_error(1.0)
    )
    correlation = np.corrcoef(word_shades)
    neighbours = [correlation[0, 1], correlation[1, 2], correlation[2, 3]]
    assert features["rows alike"] == pytest.approx(np.mean(neighbours), abs=1e-5)
    distant = [correlation[0, 2], correlation[1, 3]]
    assert features["far rows alike"] == pytest.approx(np.mean(distant), abs=1e-5)
    assert features["length"] == pytest.approx(np.log(6))


def test_map_features_of_blocks_have_a_square_only_with_two_texts():
    blocks = normalised(background() + (SEGMENT[:, None] == SEGMENT))
    assert features_of(blocks)["square"] > 0.3
    assert features_of(blocks, np.isin(np.arange(N), (0, N - 1)))["square"] == 0


@pytest.mark.parametrize("length", [2, 3, 4, 9])
def test_map_features_of_the_shortest_inputs_are_finite(length):
    weights = np.random.default_rng(0).dirichlet(np.ones(length), (2, 3, length))
    is_first = np.arange(length) == 0
    features = patterns.map_features(weights, is_first)
    assert features.shape == (2, 3, len(FEATURES))
    assert np.isfinite(features).all()


@pytest.fixture
def predicted(monkeypatch):
    """Predict the labelled maps by hand, and check that folds have different heads."""
    table, _ = patterns.labelled_maps()
    heads = table[["model", "layer", "head"]].astype(str).agg("-".join, axis=1)
    predictions = np.full(len(table), None)

    def predict(classifier, features, labels, cv):
        for train, test in cv.split():
            assert not set(heads[train]) & set(heads[test])
            classifier.fit(features[train], labels[train])
            predictions[test] = classifier.predict(features[test])
        return predictions

    monkeypatch.setattr(patterns, "cross_val_predict", predict)
    patterns.out_of_fold_predictions.cache_clear()
    patterns.out_of_fold_predictions()
    yield predictions
    patterns.out_of_fold_predictions.cache_clear()


def test_trust_table_has_accuracy_and_macro_f1_of_predictions(predicted):
    labels = patterns.labelled_maps()[0]["settled"].to_numpy()
    scores = []
    for name in CLASSES:
        right = ((labels == name) & (predicted == name)).sum()
        scores.append(2 * right / ((labels == name).sum() + (predicted == name).sum()))
    trust = patterns.trust_table().set_index("measure")
    assert trust.loc["accuracy", "percent"] == pytest.approx(100 * (labels == predicted).mean())
    assert trust.loc["macro F1", "percent"] == pytest.approx(100 * np.mean(scores))
    assert np.mean(scores) > 0.77
    assert trust["paper"].dropna().to_dict() == {"macro F1": 86}


def test_trust_table_has_kappa_of_the_two_passes():
    table, _ = patterns.labelled_maps()
    first = table["pass1"]
    second = table["pass2"]
    by_chance = sum((first == name).mean() * (second == name).mean() for name in CLASSES)
    agreement = (first == second).mean()
    kappa = (agreement - by_chance) / (1 - by_chance)
    trust = patterns.trust_table().set_index("measure")
    assert trust.loc["kappa of the two passes", "percent"] == pytest.approx(100 * kappa)


@pytest.mark.default_model
def test_committed_features_agree_with_the_default_model():
    study = Study()
    encoder = study.encoder
    labels, features = patterns.labelled_maps()
    segments = study.segment_corpus().records()
    pairs = [Pair((segment.first, segment.second), 0) for segment in segments]
    max_tokens = {"segment": 128, "task": 64}
    is_of_model = (labels["model"] == encoder.name) & labels["source"].isin(max_tokens)
    for row in labels[is_of_model].iloc[::25].itertuples():
        (maps,) = text_maps(encoder, [pairs[row.example]], max_tokens=max_tokens[row.source])
        computed = patterns.map_features(*maps)[row.layer - 1, row.head - 1]
        np.testing.assert_allclose(computed, features[row.Index], atol=0.02)


@pytest.fixture
def counts():
    """Count the patterns of two heads on two inputs: columns and a diagonal."""
    first = np.stack([column(), diagonal()]).reshape(1, 2, N, N)
    second = np.stack([column(7), column()]).reshape(1, 2, N, N)  # 7 is not a special token
    examples = [TextMaps(maps, SPECIAL) for maps in (first, second)]
    return patterns.pattern_counts(examples)


def test_pattern_counts_are_shares_of_the_maps_of_a_head(counts):
    columns = ["layer", "head", "vertical", "diagonal", SPECIAL_COLUMN]
    assert counts[columns].to_numpy().tolist() == [[1, 1, 1, 0, 0.5], [1, 2, 0.5, 0.5, 0.5]]


def test_share_table_averages_over_heads(counts):
    table = patterns.share_table(counts.assign(task="t", weights="w"))
    shares = table.set_index("pattern")["share"]
    np.testing.assert_allclose(shares[list(CLASSES)], counts[list(CLASSES)].mean())
    assert shares[ANY_COLUMN] == pytest.approx(shares["vertical"] + shares["vertical + diagonal"])
    assert shares[SPECIAL_COLUMN] == pytest.approx(2 / 3)  # of three maps with a column


def test_share_table_without_columns_has_no_share_of_special_columns(counts):
    counts[[*patterns.WITH_COLUMN, SPECIAL_COLUMN]] = 0.0
    table = patterns.share_table(counts.assign(task="t", weights="w"))
    assert np.isnan(table.set_index("pattern").loc[SPECIAL_COLUMN, "share"])


# The maps to classify

PAIRS = [
    Pair(("The cat sat on the mat.", "It was a lazy cat."), 0),
    Pair(("Yes.",), 1),
    Pair(("She doesn't know New York.",), 0),
]


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_text_maps_of_a_batch_equal_those_of_single_inputs(tiny_encoder, family, monkeypatch):
    monkeypatch.setattr(map_reader, "BATCH_SIZE", 2)
    encoder = tiny_encoder(family)
    examples = list(text_maps(encoder, PAIRS, max_tokens=48))
    assert len(examples) == len(PAIRS)
    for pair, example in zip(PAIRS, examples, strict=True):
        inputs = encoder.tokenizer(*pair.texts, return_tensors="pt")
        maps = encoder.model.base_model(**inputs, output_attentions=True).attentions
        expected = torch.cat(maps).detach().numpy()
        assert np.allclose(example.attention, expected, atol=1e-5)
        special_ids = encoder.tokenizer.all_special_ids
        expected_special = [token in special_ids for token in inputs["input_ids"][0].tolist()]
        assert example.special.tolist() == expected_special
