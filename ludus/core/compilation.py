"""What torch compiles in this process: how long that takes, and who hears of it. Numba says it of its own kernels (`numba.core.event`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any


class Compilation:
    """Counts the seconds for which torch has compiled, wherever that was asked for, and tells listeners when it begins."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._what, self._depth, self._since = "kernels", 0, 0.0
        self._listeners: list[Callable[[str], None]] = []

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Call what is compiled inside of the block `what`. A version of torch that does not say when it compiles is not counted."""
        self._watch()
        before, self._what = self._what, what
        try:
            yield
        finally:
            self._what = before

    @contextmanager
    def heard_by(self, listener: Callable[[str], None]) -> Iterator[None]:
        """Call a function with what is compiled, each time that torch begins."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def _watch(self) -> None:
        if "torch._dynamo" not in sys.modules:  # its compiler takes a second to load, and is not asked for yet
            return
        try:
            from torch._dynamo.callback import callback_handler

            if self._begin not in callback_handler.start_callbacks:  # `torch.compiler.reset` forgets them
                callback_handler.register_start_callback(self._begin)
                callback_handler.register_end_callback(self._end)
        except (ImportError, AttributeError):  # of torch's own parts, which change
            return

    def _begin(self, *_: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            self._since = perf_counter()
            for listener in tuple(self._listeners):
                listener(self._what)

    def _end(self, *_: Any) -> None:
        if self._depth:
            self._depth -= 1
            self.seconds += 0.0 if self._depth else perf_counter() - self._since


COMPILATION = Compilation()
"""Of this process."""
