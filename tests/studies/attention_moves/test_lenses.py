"""Lenses on a map made by hand, and against loops over stored maps."""

import numpy as np
import pytest
import tiny_models
from store_tools import many_segments

from helpers.data.records import roles
from helpers.errors import ModelError
from helpers.model.forward import norm_maps
from helpers.settings import Settings
from helpers.store.extract import extract, stream
from helpers.studies.attention_moves import lenses
from helpers.studies.attention_moves.lenses import LENSES, Kept, sizes, where_possible

# One layer, one head, three tokens: [CLS] cat . - half of all attention is on [CLS], whose value
# vector is a tenth of the others'.
ATTENTION = np.array([[[[0.8, 0.1, 0.1], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]]]])
NORMS = np.array([[[0.1, 1.0, 1.0]]])
ROLES = roles(["[CLS]", "cat", "."], {"cls": "[CLS]", "sep": "[SEP]"})


def test_shares_values_and_the_token_that_moves_most():
    moved = norm_maps(ATTENTION, NORMS)
    values = lenses.lens_values({"attention": ATTENTION, "norm": moved}, NORMS, ROLES)
    found = {name: value.item() for name, value in values.items()}
    assert found["attention_cls"] == pytest.approx(0.5)
    assert found["norm_cls"] == pytest.approx((0.08 / 0.28 + 0.05 / 0.55 + 0.02 / 0.82) / 3)
    assert found["attention_punctuation"] == pytest.approx(0.3)
    for lens in LENSES:
        shares = [found[f"{lens}_{kind}"] for kind in ("cls", "punctuation", "other")]
        assert sum(shares) == pytest.approx(1)
        assert found[f"{lens}_sep"] == 0, "there is [SEP] in the model, none in the text"
    assert found["value_cls"] == pytest.approx(0.1 / 0.7)
    assert np.isnan(found["value_sep"])
    # [CLS] is looked at most by itself and by "cat"; by size it never wins: only "." agrees.
    assert found["same_token"] == pytest.approx(1 / 3)


def test_sinks_against_loops():
    generator = np.random.default_rng(0)
    layers, heads, n, width = 2, 3, 5, 4
    attention = generator.dirichlet(np.ones(n), (layers, heads, n))
    norms, states = generator.random((layers, heads, n)), generator.normal(size=(layers, n, width))
    both = {"attention": attention, "norm": norm_maps(attention, norms)}
    found = lenses.sink_values(both, norms, states)
    assert all(value.shape == (layers, 1) for value in found.values())
    for layer in range(layers):
        size = [np.sqrt(sum(x * x for x in vector)) for vector in states[layer]]
        middle = np.median([abs(x) for vector in states[layer] for x in vector])
        ratios = [norms[layer, h, 0] / np.mean(norms[layer, h, 1:]) for h in range(heads)]
        expected = {
            "attention_first": np.mean([attention[layer, h, :, 0].mean() for h in range(heads)]),
            "uniform": 1 / n,
            "value_first": np.mean(ratios),
            "state_first": size[0] / np.mean(size[1:]),
            "peak_first": max(abs(states[layer, 0])) / middle,
            "peak_others": np.mean([max(abs(vector)) for vector in states[layer, 1:]]) / middle,
        }
        for name, value in expected.items():
            assert found[name][layer, 0] == pytest.approx(value), name


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_shares_are_those_of_the_maps_that_stores_have(tiny_encoder, family):
    encoder = tiny_encoder(family)
    corpus = many_segments(9)
    stores = {lens: extract(encoder, corpus, lens=lens, max_tokens=60) for lens in LENSES}
    sums = lenses.lens_sums(encoder, list(stores["attention"].records()))
    special = encoder.special_tokens["sep"]
    for lens, store in stores.items():
        shares = []
        for example in store:
            own = [token == special for token in example.record["tokens"]]
            shares.append(example.attention.astype(float)[..., own].sum(-1).mean(-1))
        if special is None:
            assert np.isnan(sums.mean(f"{lens}_sep")).all()
        else:
            np.testing.assert_allclose(sums.mean(f"{lens}_sep"), np.mean(shares, 0), atol=2e-3)
    assert np.isfinite(sums.mean("norm_other")).all()


@pytest.mark.parametrize("family", ["bert", "t5", "gpt2"])
def test_special_tokens_are_added_up_and_compared(tiny_encoder, family):
    encoder = tiny_encoder(family)
    sums = lenses.lens_sums(
        encoder, list(stream(encoder, many_segments(8), max_tokens=60).records())
    )
    table = lenses.special_table(sums).set_index("layer")
    assert list(table.index) == ["1", "2", "3", "all"]
    kinds = [kind for kind in ("cls", "sep") if encoder.special_tokens[kind] is not None]
    if not kinds:
        assert table["ratio"].isna().all() and table["value_ratio"].isna().all()
        return
    both = ([sums.mean(f"{lens}_{kind}") for kind in kinds] for lens in LENSES)
    attention, norm = (np.sum(own, axis=0).mean(axis=1) for own in both)
    np.testing.assert_allclose(table["attention"], [*attention, attention.mean()])
    np.testing.assert_allclose(table["ratio"], [*norm / attention, norm.mean() / attention.mean()])
    values = np.mean([sums.mean(f"value_{kind}") for kind in kinds], axis=0)
    expected = values[0].mean() / sums.mean("value_other")[0].mean()
    assert table.loc["1", "value_ratio"] == pytest.approx(expected)
    assert table["ratio"].between(table["ratio_low"], table["ratio_high"]).all()


def test_the_tables_of_a_source(tiny_encoder):
    encoder = tiny_encoder("bert")
    source = stream(encoder, many_segments(8), max_tokens=60)
    tables = lenses.lens_tables(encoder, source, 5)
    assert list(tables) == ["lens_shares", "sinks", "special_tokens", "value_norms"]
    assert len(tables["lens_shares"]) == 12 and list(tables["sinks"]["layer"]) == [1, 2, 3]


def test_sizes_are_within_the_run_and_smaller_for_many_heads(monkeypatch):
    assert sizes(Settings(), 72).segments == sizes(Settings(segments=0), 72).segments == 300
    assert sizes(Settings(segments=50), 72).segments == 50
    few, many = sizes(Settings(), 72), sizes(Settings(), 144)
    assert many.segments == few.segments and many.attributed < few.attributed
    monkeypatch.setenv("ATTENTION_PROFILE", "small")
    assert sizes(Settings(), 144).segments < many.segments


def test_what_cannot_be_had_is_said_in_a_line(capsys):
    with where_possible():
        Kept()["sinks"]
        pytest.fail("there is no such table")
    with where_possible():
        raise ModelError("no value projection")
    assert capsys.readouterr().out.splitlines() == [
        "Left out: there is no sinks.csv (see above)",
        "Left out: no value projection",
    ]
