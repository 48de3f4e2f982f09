import numpy as np
import pandas as pd
import pytest

from helpers.analysis.averages import Sums, combine, example_sums, from_table, head_table, to_table
from helpers.analysis.head_distance import DistanceKernel
from helpers.errors import MapError
from helpers.store.store import Example

SPECIAL = {"cls": "[CLS]", "sep": "[SEP]"}


def example(index, n=6, seed=0, tokens=None):
    maps = np.random.default_rng(seed).dirichlet(np.ones(n), size=(2, 3, n)).astype(np.float16)
    return Example(
        index, maps, {"tokens": tokens or ["[CLS]", "a", ".", "[SEP]", "b", "[SEP]"][:n]}
    )


def test_averages_are_over_examples():
    examples = [example(i, seed=i) for i in range(3)]
    table = head_table(example_sums(examples, SPECIAL, None), ["previous", "sep"])
    maps = [e.attention.astype(float) for e in examples]
    previous = np.mean([[m[1, 2, i, i - 1] for i in range(1, 6)] for m in maps], axis=0).sum() / 6
    row = table[(table["layer"] == 2) & (table["head"] == 3)].iloc[0]
    assert row["previous"] == pytest.approx(previous, rel=1e-5)
    sep = np.mean([m[1, 2][:, [3, 5]].sum() / 6 for m in maps])
    assert row["sep"] == pytest.approx(sep, rel=1e-5)


def test_sums_of_shards_add_up_to_the_sum_of_the_whole():
    examples = [example(i, seed=i) for i in range(5)]
    kernel = DistanceKernel(compiled=False)
    whole = example_sums(examples, SPECIAL, kernel)
    parts = combine(example_sums(part, SPECIAL, kernel) for part in (examples[:2], examples[2:]))
    for name in whole.totals:
        np.testing.assert_allclose(parts.mean(name), whole.mean(name), rtol=1e-12)
    assert whole.totals["distance"].shape == (6, 6)


def test_a_table_of_sums_comes_back_whole(tmp_path):
    sums = example_sums([example(0)], {"cls": None, "sep": "[SEP]"}, DistanceKernel(compiled=False))
    path = tmp_path / "sums.csv"
    to_table(sums).to_csv(path, index=False)
    back = from_table(pd.read_csv(path))
    for name in sums.totals:
        np.testing.assert_array_equal(back.mean(name), sums.mean(name))


def test_a_missing_token_is_nan_and_an_absent_one_in_an_example_is_left_out():
    without = head_table(
        example_sums([example(0)], {"cls": None, "sep": None}, None), ["cls", "sep"]
    )
    assert without[["cls", "sep"]].isna().all(axis=None)
    plain = example(1, tokens=["[CLS]", "a", "b", "c", "d", "e"])
    both = example_sums([example(0), plain], SPECIAL, None)
    alone = example_sums([example(0)], SPECIAL, None)
    np.testing.assert_array_equal(both.mean("sep_to_sep"), alone.mean("sep_to_sep"))


@pytest.mark.parametrize(
    ("value", "message"),
    [(np.nan, "NaN"), (np.inf, "summing"), (-0.5, "negative"), (0.9, "summing")],
)
def test_a_map_that_is_none_is_refused_with_its_index(value, message):
    broken = example(17)
    broken.attention[1, 0, 2, 3] = value
    with pytest.raises(MapError, match=rf"example 17: .*{message}"):
        example_sums([example(0), broken], SPECIAL, None)


def test_one_token_and_empty_sums():
    single = Example(0, np.ones((1, 1, 1, 1), np.float16), {"tokens": ["[CLS]"]})
    table = head_table(example_sums([single], SPECIAL, None), ["previous", "current", "entropy"])
    assert table[["previous", "current", "entropy"]].to_numpy().tolist() == [[0.0, 1.0, 0.0]]
    assert Sums().totals == {}
