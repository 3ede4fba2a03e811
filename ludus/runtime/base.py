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

    def call(self, handle: Handle, method: str, *args: Any) -> Ref: ...

    def wait(
        self, refs: Sequence[Ref], *, at_least: int = 1, timeout: float | None = None
    ) -> tuple[list[Ref], list[Ref]]:
        """(done, pending), in the order given; returns once `at_least` are done or `timeout` seconds have passed."""
        ...

    def put(self, value: Any) -> Ref: ...

    def get(self, ref: Ref, *, timeout: float | None = None) -> Any: ...

    def stop(self, handle: Handle) -> None: ...

    def close(self) -> None: ...
