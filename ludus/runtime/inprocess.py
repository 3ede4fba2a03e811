"""Everything in this process: no servers, no set-up. The default runtime, and the one to set a breakpoint in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ludus.errors import RunError
from ludus.registry import load
from ludus.runtime.base import Runtime

RUNTIMES: Mapping[str, str] = {"inprocess": "ludus.runtime.inprocess:InProcess"}


def build_runtime(name: str, **options: Any) -> Runtime:
    """A registered runtime, or `module:Class`. Raises UnknownName."""
    runtime: Runtime = load("runtime", name, RUNTIMES)(**options)
    return runtime


class Part:
    """Handle of a spawned part; without one, `why` calls fail."""

    __slots__ = ("owner", "value", "why")

    def __init__(self, owner: object, value: Any, why: Exception | None) -> None:
        self.owner = owner
        self.value = value
        self.why = why


class Answer:
    """Reference to a value, or to the exception that came instead."""

    __slots__ = ("error", "owner", "value")

    def __init__(self, owner: object, value: Any = None, error: Exception | None = None) -> None:
        self.owner = owner
        self.value = value
        self.error = error


class InProcess:
    """A `Runtime` whose calls are done when `call` returns, in the order they were made.

    - `spawn` and `call` raise nothing that the part raises: `get` does, with the original exception. KeyboardInterrupt and SystemExit
      are not answers; they go straight up.
    - Values are passed, not copied: `get(put(x)) is x`. On Ray arrays arrive read-only, so nobody may write to what `get` or an argument
      brought, here either (the contract suite in `ludus.testing` shows parts that keep to it).
    - `restarts` is accepted and never needed: a part lives as long as this process, and a method that raises does not end it.
    - `resources` are ignored.
    """

    def __init__(self) -> None:
        self._closed = False

    def spawn(
        self,
        factory: Callable[[Any], Any],
        spec: Any,
        *,
        resources: Mapping[str, float] | None = None,
        restarts: int = 0,
    ) -> Part:
        """Make `factory(spec)` now. If it raises, `get` of every call to the part raises that."""
        self._require_open()
        try:
            return Part(self, factory(spec), None)
        except Exception as error:  # noqa: BLE001 (held for `get`)
            return Part(self, None, error)

    def call(self, handle: Part, method: str, *args: Any) -> Answer:
        """Run `method` now and hold its result or exception."""
        self._require_open()
        self._require_mine(handle, Part)
        if handle.why is not None:
            return Answer(self, error=handle.why)
        try:
            return Answer(self, getattr(handle.value, method)(*args))
        except Exception as error:  # noqa: BLE001 (held for `get`)
            return Answer(self, error=error)

    def wait(
        self, refs: Sequence[Answer], *, at_least: int = 1, timeout: float | None = None
    ) -> tuple[list[Answer], list[Answer]]:
        """(all of them, none): everything is done already. Raises RunError if `at_least` is more than there are."""
        self._require_open()
        for ref in refs:
            self._require_mine(ref, Answer)
        if at_least > len(refs):
            raise RunError(
                f"wait for at least {at_least} of {len(refs)} references can never end; ask for {len(refs)} or fewer."
            )
        return list(refs), []

    def put(self, value: Any) -> Answer:
        """A reference to this very object."""
        self._require_open()
        return Answer(self, value)

    def get(self, ref: Answer, *, timeout: float | None = None) -> Any:
        """The value; raises what the call raised."""
        self._require_open()
        self._require_mine(ref, Answer)
        if ref.error is not None:
            raise ref.error
        return ref.value

    def stop(self, handle: Part) -> None:
        """Let go of the part; `get` of later calls to it raises RunError. Stopping twice is harmless."""
        self._require_open()
        self._require_mine(handle, Part)
        handle.value = None
        handle.why = RunError("this part was stopped; spawn it again before calling it.")

    def close(self) -> None:
        """Refuse everything from now on. Closing twice is harmless."""
        self._closed = True

    def _require_open(self) -> None:
        if self._closed:
            raise RunError("this runtime is closed; make a new one.")

    def _require_mine(self, thing: Any, kind: type) -> None:
        if not isinstance(thing, kind) or thing.owner is not self:  # type: ignore[attr-defined]
            raise RunError(
                f"{thing!r} is not a {kind.__name__.lower()} of this runtime; pass what its own spawn, call or put gave."
            )
