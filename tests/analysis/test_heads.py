import numpy as np
import pytest

from helpers.analysis.heads import head_label, head_labels, head_rows, parse_head
from helpers.errors import InputError


def test_labels_count_from_one():
    assert head_label(7, 9) == "8-10"
    assert head_labels(2, 3) == ["1-1", "1-2", "1-3", "2-1", "2-2", "2-3"]


def test_parsing_undoes_labelling():
    assert [parse_head(label) for label in head_labels(2, 2)] == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("label", ["", "8", "8-", "0-1", "1-0", "a-b", "1-2-3", "-1-2", "1.5-2"])
def test_what_is_no_head_is_refused(label):
    with pytest.raises(InputError, match="layer-head"):
        parse_head(label)


def test_rows_are_in_the_order_of_the_labels():
    table = head_rows(2, 3, value=np.arange(6).reshape(2, 3))
    assert list(table.columns) == ["layer", "head", "value"]
    labels = [f"{row.layer}-{row.head}" for row in table.itertuples()]
    assert labels == head_labels(2, 3) and table["value"].tolist() == list(range(6))
