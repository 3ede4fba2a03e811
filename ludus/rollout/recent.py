"""A bounded memory of what was used last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """Values by key, of `limit` bytes together; `trim` forgets those that were not used for longest."""

    def __init__(self, limit: int) -> None:
        self.size = 0
        self._limit = limit
        self._values: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def find(self, key: Hashable) -> T | None:
        """The value, which counts as used now; None if it was never kept, or forgotten."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key][0]

    def keep(self, key: Hashable, value: T, size: int) -> None:
        """size: bytes."""
        if key in self._values:
            self.size -= self._values.pop(key)[1]
        self._values[key] = value, size
        self.size += size

    def trim(self, needed: int) -> None:
        """Back to the limit, but for the `needed` values that were used last."""
        while self.size > self._limit and len(self._values) > needed:
            _, (_, size) = self._values.popitem(last=False)
            self.size -= size
