"""Later notebooks say what they leave out for a model."""

import pytest

from beyond.papers.left_out import CHECKS, left_out, print_left_out, require, skip_if_unsupported
from helpers.errors import InputError, ModelError


def test_left_out_is_empty_for_a_masked_language_model_of_bert(tiny_encoder):
    encoder = tiny_encoder("bert")
    assert not left_out(encoder, *CHECKS)


def test_print_left_out_prints_a_line_for_a_measure_that_is_missing(tiny_encoder, capsys):
    encoder = tiny_encoder("albert")
    measure = "one value of one token changed"
    print_left_out(encoder, "edges cut", measure)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"left out: {measure}, because ")
    with pytest.raises(ModelError):
        require(encoder, measure)
    require(encoder, "edges cut")


def test_skip_if_unsupported_prints_one_line_and_goes_on(capsys):
    for error in (InputError, ModelError):
        with skip_if_unsupported():
            raise error("no value projection")
    assert capsys.readouterr().out.splitlines() == 2 * ["Left out: no value projection"]
