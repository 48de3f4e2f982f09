"""What notebook 10 looks at, and what it says where it cannot."""

import pytest

from helpers.errors import InputError, ModelError
from helpers.settings import Settings
from helpers.studies.attention_moves.settings import Kept, sizes, start, where_possible


def test_sizes_are_within_the_run_and_smaller_for_many_heads(monkeypatch):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    assert sizes(Settings(), 72).segments == sizes(Settings(segments=0), 72).segments == 300
    assert sizes(Settings(segments=50), 72).segments == 50
    few, many = sizes(Settings(), 72), sizes(Settings(), 144)
    assert many.segments == few.segments and many.attributed < few.attributed
    monkeypatch.setenv("ATTENTION_PROFILE", "small")
    assert sizes(Settings(), 144).segments < many.segments


def test_what_cannot_be_had_is_said_in_a_line(capsys):
    tables = Kept()
    with where_possible():
        start(Settings(parts="1"), 2)
        pytest.fail("part 2 has begun")
    with where_possible():
        start(Settings(parts="1"), 1)
        tables["sinks"]
        pytest.fail("there is no such table")
    with where_possible():
        raise ModelError("no value projection")
    assert capsys.readouterr().out.splitlines() == [
        "Left out: part 2 is not among --parts 1",
        "Left out: there is no sinks.csv (see above)",
        "Left out: no value projection",
    ]


def test_parts_that_are_not_there_are_refused():
    with pytest.raises(InputError, match="--parts 4: notebook 10 has parts 1 and 2"):
        Settings(parts="4")
