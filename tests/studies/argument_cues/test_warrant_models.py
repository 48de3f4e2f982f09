"""The small models learn a planted word, and seeds that train together are as if alone."""

import numpy as np
import pytest
import torch

from helpers.analysis.training import Schedule
from helpers.studies.argument_cues import warrant_models
from helpers.studies.argument_cues.arguments import INPUTS, Argument, adversarial
from helpers.studies.argument_cues.warrant_models import (
    BAG,
    BILSTM,
    ENCODERS,
    HIDDEN,
    Bag,
    BiLSTM,
    prepare,
    train_chooser,
)

WORDS = ["the", "cat", "dog", "sat", "ran", "is", "not", "far", "here", "there", "green", "blue"]
VECTORS = dict(zip(WORDS, np.random.default_rng(0).normal(size=(len(WORDS), 6)), strict=True))


def vectors(words):
    return np.array([VECTORS.get(word, np.zeros(6)) for word in words], np.float32)


def made_up(count, seed, planted=True):
    rng, plain = np.random.default_rng(seed), [word for word in WORDS if word != "not"]
    arguments = []
    for index in range(count):
        label = int(rng.integers(2))
        texts = [list(rng.choice(plain, rng.integers(3, 7))) for _ in range(4)]
        if planted:
            texts[2 + label].insert(int(rng.integers(3)), "not")
        claim, reason, *both = (" ".join(text) for text in texts)
        arguments.append(
            Argument(str(index), claim, reason, *both, label, "x", negated_claim="far")
        )
    return arguments


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    torch.set_num_threads(1)
    schedule = Schedule(epochs=8, learning_rate=1e-2, batch_size=16, min_updates=1)
    monkeypatch.setattr(warrant_models, "SCHEDULES", {BAG: schedule, BILSTM: schedule})


@pytest.fixture(scope="module")
def texts():
    test = made_up(40, 3)
    parts = {"train": made_up(64, 1), "dev": made_up(20, 2), "test": test + adversarial(test)}
    return prepare(parts, vectors)


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("inputs", INPUTS)
def test_the_plant_is_found_and_lost_on_the_counterparts(texts, kind, inputs):
    choices = train_chooser(kind, inputs, texts, seeds=[0, 1])
    right = choices == texts["test"].labels.numpy()
    assert right[:, :40].mean() > 0.9
    assert right[:, 40:].mean() < 0.2
    if "claim" not in INPUTS[inputs]:
        assert (choices[:, :40] == choices[:, 40:]).all()


@pytest.mark.parametrize("kind", ENCODERS)
def test_without_a_plant_there_is_chance(kind):
    parts = {"train": made_up(64, 1, planted=False), "dev": made_up(40, 2, planted=False)}
    parts["test"] = made_up(200, 3, planted=False)
    texts = prepare(parts, vectors)
    right = train_chooser(kind, "all", texts, seeds=[0, 1, 2]) == texts["test"].labels.numpy()
    assert 0.4 < right.mean() < 0.6


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_seed_gives_the_same_beside_others_as_alone(texts, kind):
    together = train_chooser(kind, "all", texts, seeds=[4, 5])
    alone = train_chooser(kind, "all", texts, seeds=[5])
    assert (together[1] == alone[0]).mean() > 0.97  # products of another size round differently
    assert (train_chooser(kind, "all", texts, seeds=[4, 5]) == together).all()
    # Where a word decides, seeds agree; where none does, they do not.
    plain = prepare({name: made_up(40, 9, planted=False) for name in texts}, vectors)
    first, second = train_chooser(kind, "all", plain, seeds=[4, 5])
    assert (first != second).any()


def test_a_bag_is_the_mean_of_its_words():
    x = torch.arange(12.0).view(1, 2, 3, 2)
    real = torch.tensor([[[True, True, False], [False, False, False]]])
    assert Bag(2, [0])(x, real).tolist() == [[[1, 2], [0, 0]]]


def test_a_bilstm_is_torchs_own_with_the_same_weights():
    torch.manual_seed(0)
    own = BiLSTM(6, [3])
    theirs = torch.nn.LSTM(6, HIDDEN, bidirectional=True, batch_first=True)
    with torch.no_grad():
        for direction, suffix in enumerate(("", "_reverse")):
            getattr(theirs, f"weight_ih_l0{suffix}").copy_(own.into[0, direction].T)
            getattr(theirs, f"weight_hh_l0{suffix}").copy_(own.across[0, direction].T)
            getattr(theirs, f"bias_ih_l0{suffix}").copy_(own.bias[0, direction, 0])
            getattr(theirs, f"bias_hh_l0{suffix}").zero_()
        x, lengths = torch.randn(3, 5, 6), [5, 2, 0]
        real = torch.arange(5) < torch.tensor(lengths)[:, None]
        found = own(x[None], real[None])[0]
        for text, length in enumerate(lengths[:2]):
            states = theirs(x[text : text + 1, :length])[0][0]
            torch.testing.assert_close(found[text], states.max(dim=0).values)
        assert not found[2].any()


def test_what_comes_after_a_text_does_not_matter():
    own, x = BiLSTM(6, [0, 1]), torch.randn(2, 3, 4, 6)
    real = torch.tensor([[[True, True, False, False]] * 3] * 2)
    other = torch.where(real[..., None], x, torch.randn_like(x))
    torch.testing.assert_close(own(x, real), own(other, real))


def test_words_without_a_vector_are_left_out():
    (argument,) = made_up(1, 0)
    strange = Argument("s", "Zzz", "yyy the", "xxx", "far", 1, "x")
    texts = prepare({"train": [argument], "test": [strange]}, vectors)["test"]
    assert [int((texts.words[part] > 0).sum()) for part in ("claim", "reason")] == [0, 1]
    assert (texts.words["warrant"] > 0).sum(dim=-1).tolist() == [[0, 1]]
    row = int(texts.words["reason"].max())
    assert texts.vectors[row].tolist() == pytest.approx(VECTORS["the"].tolist())
    assert not texts.vectors[0].any()
