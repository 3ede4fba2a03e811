"""The owner's side of one table's shards: asks them, and knows how full they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ludus.data.shard import Key, Report
from ludus.errors import PartDied, RunError
from ludus.runtime.base import Peer, Reply

_ANSWER = 300.0  # seconds that a shard may take to answer
_AHEAD = 4  # calls that a shard may have before it and nobody waits for


class ShardClient:
    """sizes int64[k], mass float64[k], top: how the shards are once they have done what was sent. A shard runs calls in the order in which
    they were sent, so nothing needs to wait but for numbers that cannot be foretold.

    Once one shard is dead, or they have come apart, everything raises PartDied.
    """

    def __init__(self, peers: Sequence[Peer], key: Key) -> None:
        self._peers, self._key = tuple(peers), key
        self._sent: list[deque[Reply]] = [deque() for _ in peers]
        self._uncertain = False
        self._dead = ""
        self.sizes = np.zeros(len(peers), np.int64)
        self.mass = np.zeros(len(peers))
        self.top = 1.0

    def __len__(self) -> int:
        return len(self._peers)

    def require_alive(self) -> None:
        """Raises PartDied if they are not."""
        if self._dead:
            raise PartDied(self._dead)

    def send(self, shard: int, method: str, *args: Any, foretold: bool) -> None:
        """A call that is answered by a Report, which is not waited for. foretold: whether the caller sets `sizes` and `top` himself."""
        sent = self._sent[shard]
        if len(sent) == _AHEAD:
            self._done(sent.popleft())
        sent.append(self._peers[shard].send(method, self._key, *args))
        self._uncertain |= not foretold

    def settle(self, *, only_uncertain: bool = False) -> None:
        """Wait for what was sent. only_uncertain: unless everything was foretold."""
        if only_uncertain and not self._uncertain:
            return
        for shard, sent in enumerate(self._sent):
            while sent:
                report = self._done(sent.popleft())
                if not sent:  # earlier ones tell how it was before what came after them
                    self.learn(shard, report)
        self._uncertain = False

    def learn(self, shard: int, report: Report) -> None:
        """How a shard is."""
        self.sizes[shard], self.mass[shard] = report.size, report.mass
        self.top = max(self.top, report.top)

    def ask(self, method: str, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Ask shards at the same time: (shard, arguments …) each. Raises the first of their errors, once all have answered."""
        self.settle()
        replies = [(shard, self._peers[shard].send(method, self._key, *args)) for shard, *args in calls]
        found, errors = [], []
        for shard, reply in replies:
            try:
                found.append(self._answer(shard, reply) if method == "insert_remote" else self._result(reply))
            except Exception as error:  # noqa: BLE001  (raised below)
                errors.append(error)
        if not errors:
            return found
        if found and method in _CHANGES:
            self._dead = (
                f"shards of table {self._key[1]!r} have come apart, since one of them failed in {method!r}: {errors[0]}"
            )
        raise errors[0]

    def ask_all(self, method: str, *args: Any) -> list[Any]:
        """Ask every shard the same."""
        return self.ask(method, [(shard, *args) for shard in range(len(self))])

    def ping(self) -> None:
        """Raises PartDied if one is dead."""
        self.ask_all("ready")

    def forget(self) -> None:
        """Have the table dropped, where there is still somebody to do it."""
        for peer in self._peers:
            with suppress(Exception):
                peer.send("drop", self._key)
        self._sent = [deque() for _ in self._peers]

    def _done(self, reply: Reply) -> Any:
        """What was sent had been checked, so whatever goes wrong with it leaves shards that are not as they are believed to be."""
        try:
            return self._result(reply)
        except PartDied:
            raise
        except Exception as error:
            self._dead = (
                f"a shard of table {self._key[1]!r} could not do what it had to: {type(error).__name__}: {error}"
            )
            raise PartDied(self._dead) from error

    def _answer(self, shard: int, reply: Reply) -> Any:
        """To a call with a reference. Who was to make its value may be dead, and the shard live on."""
        try:
            return reply.result(_ANSWER)
        except PartDied:
            self._result(self._peers[shard].send("ready"))
            raise

    def _result(self, reply: Reply) -> Any:
        try:
            return reply.result(_ANSWER)
        except PartDied as error:
            self._dead = self._dead or (
                f"a shard of table {self._key[1]!r} is dead, and its items with it; resume from the last checkpoint. {error}"
            )
            raise PartDied(self._dead) from error
        except TimeoutError as error:
            self._dead = f"a shard of table {self._key[1]!r} has not answered for {_ANSWER:g} seconds."
            raise PartDied(self._dead) from error
        except RunError as error:
            self._dead = f"the shards of table {self._key[1]!r} cannot be reached any more: {error}"
            raise PartDied(self._dead) from error


_CHANGES = ("announce", "commit", "draw", "insert_remote", "reset")
