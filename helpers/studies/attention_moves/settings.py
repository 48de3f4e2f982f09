"""How much text each part of notebook 10 looks at, and what it says where a part cannot be had."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pandas as pd

from helpers.data.records import Record
from helpers.errors import InputError, ModelError
from helpers.settings import Settings
from helpers.store.store import Store

MANY_HEADS = 100  # 12 layers of 12 heads take 16 times as long as 6 of half the width


@dataclass(frozen=True)
class Sizes:
    """Numbers of examples."""

    segments: int = 300  # for shares, value norms and sinks
    control_segments: int = 100  # the same, for the model with random weights
    attributed: int = 32  # pairs whose tokens are left out one at a time


def sizes(settings: Settings, heads: int) -> Sizes:
    """Return the sizes of a run: no more segments than it has, less for a model of many heads."""
    most = min(settings.segments or Sizes.segments, Sizes.segments)
    if settings.small:
        return Sizes(min(most, 8), control_segments=4, attributed=2)
    if heads > MANY_HEADS:
        return Sizes(most, attributed=12)
    return Sizes(most)


def spread(source: Store, count: int) -> list[Record]:
    """Return at most ``count`` records of a source, spread evenly over it."""
    places = np.unique(np.linspace(0, len(source) - 1, min(count, len(source))).astype(int))
    return [source.record(int(place)) for place in places]


class Kept(dict[str, pd.DataFrame]):
    """The notebook's tables; to ask for one that could not be had is an `InputError`."""

    def __missing__(self, name: str) -> pd.DataFrame:
        raise InputError(f"there is no {name}.csv (see above)")


@contextmanager
def where_possible() -> Iterator[None]:
    """Print in a line what a cell cannot have, and go on after it.

    That is what needs something of the model that it does not have, or more text, or a part that
    ``--parts`` leaves out (`start`).  What is damaged stays an error.
    """
    try:
        yield
    except InputError as error:
        if type(error) not in (InputError, ModelError):
            raise
        print(f"Left out: {error}")


def start(settings: Settings, part: int) -> None:
    """Begin a part of the notebook, unless ``--parts`` leaves it out (`InputError`)."""
    if str(part) not in settings.parts.split(","):
        raise InputError(f"part {part} is not among --parts {settings.parts}")
