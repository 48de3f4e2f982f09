"""Later notebooks say what they leave out for a model."""

import pytest

from beyond.papers.left_out import CHECKS, left_out, print_left_out, require, skip_if_unsupported
from helpers.errors import ModelError


def test_measures_that_a_model_lacks_are_printed_with_the_reason(tiny_encoder, capsys):
    assert not left_out(tiny_encoder("bert"), *CHECKS)
    encoder = tiny_encoder("albert")
    measure = "one value of one token changed"
    print_left_out(encoder, "edges cut", measure)
    with pytest.raises(ModelError):
        require(encoder, measure)
    require(encoder, "edges cut")
    with skip_if_unsupported():
        raise ModelError("no value projection")
    measure_line, cell_line = capsys.readouterr().out.splitlines()
    assert measure in measure_line and "no value projection" in cell_line
