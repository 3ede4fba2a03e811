"""Inference for many workers in one part: their rows together, each policy evaluated once."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, NamedTuple

from ludus.rollout.inference.batches import Batches
from ludus.rollout.inference.shelf import Answer, Held, Rows, Shelf
from ludus.runtime.base import Ref
from ludus.types import PolicyRef


@dataclass(frozen=True, slots=True, eq=False)
class ServerSpec:
    """fetch: gives the value of a reference, where the server is. callers: how many may ask at the same time. max_wait: seconds that a
    request waits for others. max_batch: rows that are evaluated together. kept: bytes of policies that stay when nobody holds them."""

    fetch: Callable[[Ref], Any]
    callers: int
    max_wait: float = 0.002
    max_batch: int = 4096
    kept: int = 256 << 20


class Loaded(NamedTuple):
    """server: which incarnation holds the policies."""

    server: str
    held: list[Held]


class InferenceServer:
    """A part that is asked by many at the same time (`concurrency` of its `callers`, and one). It keeps policies and nothing else: slots,
    memory and random numbers are the clients'."""

    def __init__(self, spec: ServerSpec) -> None:
        self._name = secrets.token_hex(8)
        self._shelf = Shelf(spec.fetch, kept=spec.kept)
        self._loading = threading.Lock()
        self._extras: dict[str, tuple[str, ...]] = {}
        self._busy = {"loading": 0.0, "evaluating": 0.0}  # since when, in `time.monotonic` seconds; 0: it is not
        self._batches: Batches[tuple[Sequence[Rows], Sequence[str]], list[Answer]] = Batches(
            self._answer, max_wait=spec.max_wait, max_batch=spec.max_batch, callers=spec.callers
        )

    def ready(self) -> None:
        """Answered as soon as the server is made."""

    def load(
        self,
        client: str,
        server: str,
        keep: Sequence[int],
        wanted: Sequence[tuple[PolicyRef, Ref]],
        extras: Sequence[str],
    ) -> Loaded | None:
        """From now on a client holds what it `keep`s of what it held on this incarnation, and the `wanted`; and asks for these extras.
        None, and nothing is done, if it did not hold what it wants to keep. Raises PolicyError for a policy that lacks its mode."""
        with self._loading, self._counted("loading"):
            if keep and (server != self._name or not self._shelf.holds(client, keep)):
                return None
            held = self._shelf.load(client, keep, wanted)
            self._extras[client] = tuple(extras)
            return Loaded(self._name, held)

    def act(self, client: str, *parts: Rows) -> list[Answer]:
        """One answer for each part. Raises what a policy raised, and RunError once the server is closed."""
        request = parts, self._extras.get(client, ())
        return self._batches.ask(client, request, size=sum(len(rows.noise) for rows in parts))

    def pulse(self) -> float:
        """Seconds that the evaluation or the loading in progress has taken so far."""
        now = monotonic()
        return max(now - begun if begun else 0.0 for begun in self._busy.values())

    def counters(self) -> Mapping[str, int]:
        """requests, rows and batches that were answered, policies that were fetched."""
        done = self._batches
        return {
            "requests": done.requests,
            "rows": done.rows,
            "batches": done.batches,
            "fetched": self._shelf.fetched,
        }

    def close(self) -> None:
        """Requests that wait, and later ones, fail with RunError."""
        self._batches.close()

    def _answer(self, requests: Sequence[tuple[Sequence[Rows], Sequence[str]]]) -> list[list[Answer]]:
        with self._counted("evaluating"):
            return self._shelf.answer(requests)

    @contextmanager
    def _counted(self, what: str) -> Iterator[None]:
        self._busy[what] = monotonic()
        try:
            yield
        finally:
            self._busy[what] = 0.0
