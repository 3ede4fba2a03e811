"""Shared state of the routes of one server."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

from ludus.apps.ui.server.access import Access
from ludus.apps.ui.server.known_runs import KnownRuns
from ludus.apps.ui.server.watcher import Watcher

P = ParamSpec("P")
T = TypeVar("T")

PLAYERS = 4
"""Threads in which policies play."""


@dataclass(slots=True)
class State:
    """people: the database of games with people, if it is not the usual one."""

    access: Access
    runs: KnownRuns
    watcher: Watcher
    people: Path | None = None
    _players: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(PLAYERS, "play"))
    _closers: list[Callable[[], None]] = field(default_factory=list)

    async def play(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call what takes long (it may load PyTorch) in a thread beside those that answer who watches."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._players, functools.partial(function, *args, **kwargs))

    def at_end(self, close: Callable[[], None]) -> None:
        """To be called when the server ends."""
        self._closers.append(close)

    async def close(self) -> None:
        """End streams, threads and what `at_end` was given."""
        await self.watcher.close()
        for close in self._closers:
            close()
        self._players.shutdown(wait=False, cancel_futures=True)
