"""Where parts live: in this process, or as actors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

Handle: TypeAlias = Any
Ref: TypeAlias = Any


@runtime_checkable
class Runtime(Protocol):
    """`call` never blocks; `get` raises what the call raised. A closed runtime refuses everything with RunError."""

    def spawn(
        self,
        factory: Callable[[Any], Any],
        spec: Any,
        *,
        resources: Mapping[str, float] | None = None,
        restarts: int = 0,
    ) -> Handle:
        """Make a part, `factory(spec)`."""
        ...

    def call(self, handle: Handle, method: str, *args: Any) -> Ref:
        """Ask for `part.method(*args)`; calls of one part run in the order they were made."""
        ...

    def wait(
        self, refs: Sequence[Ref], *, at_least: int = 1, timeout: float | None = None
    ) -> tuple[list[Ref], list[Ref]]:
        """(done, pending), in the order given; returns once `at_least` are done or `timeout` seconds have passed."""
        ...

    def put(self, value: Any) -> Ref:
        """A reference to a value, to be passed on without its payload. Nobody may write to what arrives."""
        ...

    def get(self, ref: Ref, *, timeout: float | None = None) -> Any:
        """The value; raises what the call raised, TimeoutError after `timeout` seconds, RunError if the part was stopped."""
        ...

    def stop(self, handle: Handle) -> None:
        """End a part. Stopping twice is harmless."""
        ...

    def close(self) -> None:
        """End all parts. Closing twice is harmless."""
        ...
