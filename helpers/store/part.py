"""A part of a source: ``store[100:120]``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from helpers.store.format import Level, StoreKey


@dataclass(frozen=True)
class Part:
    """Some examples of a source, numbered from 0 here; it reads as the source does."""

    source: Any = field(repr=False)  # a Source; that module imports this one
    indices: range

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int | slice) -> Any:
        """Return one example, or a part of this part."""
        if isinstance(index, slice):
            return Part(self.source, self.indices[index])
        if not 0 <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        return replace(self.source[self.indices[index]], index=index)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def record(self, index: int) -> dict[str, Any]:
        """Return one example's line of ``examples.jsonl``."""
        return self.source.record(self.indices[index])

    def records(self, indices: range | None = None) -> Iterator[dict[str, Any]]:
        """Yield the records of examples (all of them: None), in order."""
        return map(self.record, range(len(self)) if indices is None else indices)

    @property
    def spec(self) -> StoreKey:
        """What determines the maps."""
        return self.source.spec

    @property
    def level(self) -> Level:
        """``token`` or ``word``."""
        return self.source.level

    @property
    def layers(self) -> int:
        """Number of layers of the model."""
        return self.source.layers

    @property
    def heads(self) -> int:
        """Number of heads in each layer of the model."""
        return self.source.heads

    @property
    def special_tokens(self) -> dict[str, str | None]:
        """The tokens in the parts of [CLS] and [SEP]; None where the model has none."""
        return self.source.special_tokens
