"""Parts of the Ray runtime as other parts see them."""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from ludus.errors import PartDied, RunError
from ludus.runtime.base import CLOSED
from ludus.runtime.ray_errors import RemoteTraceback, is_death, reason, translate
from ludus.runtime.ray_parts import Life, RayAnswer


class RayPeer:
    """A `Peer` that calls an actor directly. It travels in what Ray pickles."""

    __slots__ = ("_actor", "_actor_id", "_made", "_name")

    def __init__(self, life: Life) -> None:
        self._actor = life.actor
        self._actor_id = life.actor_id
        self._name = life.part.name
        self._made: ray.ObjectRef[Any] | None = life.made

    def ask(self, method: str, *args: Any) -> Any:
        """See `Peer.ask`."""
        return self.send(method, *args).result()

    def send(self, method: str, *args: Any) -> RayReply:
        """See `Peer.send`. Waits until the part is made, the first time. Raises RunError if an argument cannot be pickled."""
        if not ray.is_initialized():  # Ray would start another by itself
            raise RunError(CLOSED)
        self._await_made()
        values = [_value(argument) for argument in args]
        try:
            return RayReply(self, self._actor.call.remote(method, *values))
        except (TypeError, ValueError, AttributeError) as error:
            raise RunError(
                f"an argument of {method!r} of {self._name} cannot be sent to another process: {error}"
            ) from error

    def failure(self, error: RayError) -> Exception:
        """What to raise instead of an exception of Ray's."""
        if not is_death(error, self._actor_id):
            return translate(error)
        died = PartDied(f"{self._name}, which was asked for something, died before it had answered ({reason(error)}).")
        died.__cause__ = RemoteTraceback(str(error))
        return died

    def _await_made(self) -> None:
        """The part is made before anybody asks it: calls of other callers than the driver are not in line with its."""
        if self._made is None:
            return
        try:
            ray.get(self._made)
        except RayError:
            return  # it is dead, which the call will tell
        self._made = None


class RayReply:
    """A `Reply`."""

    __slots__ = ("_peer", "_ref")

    def __init__(self, peer: RayPeer, ref: ray.ObjectRef[Any]) -> None:
        self._peer = peer
        self._ref = ref

    def result(self, timeout: float | None = None) -> Any:
        """See `Reply.result`."""
        try:
            return ray.get(self._ref, timeout=timeout)
        except GetTimeoutError:
            raise TimeoutError(f"no answer within {timeout:g} seconds.") from None
        except RayError as error:
            raise self._peer.failure(error)  # noqa: B904  its cause is the remote traceback


def _value(argument: Any) -> Any:
    """What stands for a reference: Ray's own."""
    if not isinstance(argument, RayAnswer):
        return argument
    if argument.ref is None:
        raise argument.error or RunError("a reference to something that cannot come any more was passed.")
    return argument.ref
