"""Handles and references of the Ray runtime, and the actors behind them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayError

from ludus.errors import RunError
from ludus.runtime.base import Runtime
from ludus.runtime.ray_host import Host

SMALL = {"num_cpus": 0.1}
"""What a part needs that does not say how many CPUs: little, so that it rarely waits, and not nothing, so that nodes can fill up."""


class Life:
    """One incarnation of a part: an actor. Once it has ended, `why` what it did not answer fails.

    placed: done as soon as its process is there, or failed. until: when it must be there, in `time.monotonic` seconds. process: its id
    where it was seen to be there, otherwise 0.
    """

    __slots__ = ("actor", "actor_id", "part", "placed", "process", "until", "why")

    def __init__(self, part: RayPart, until: float) -> None:
        self.part = part
        host: Any = ray.remote(Host)
        self.actor = host.options(**part.options).remote()
        self.actor_id = self.actor._actor_id.hex()
        self.placed = self.actor.place.remote()
        self.actor.begin.remote(part.order, [os.path.abspath(entry) for entry in sys.path])
        self.until = until
        self.process = 0
        self.why: RunError | None = None

    def look(self) -> bool:
        """Whether it is known by now if its process came."""
        if self.process or not ray.wait([self.placed], timeout=0.0)[0]:
            return self.process > 0
        with contextlib.suppress(RayError):  # it ended before
            self.process = ray.get(self.placed)
        return True


class RayPart:
    """Handle of a spawned part: the order it is made from, its current life and the number of that, and how many restarts are `spent`."""

    __slots__ = ("life", "name", "number", "options", "order", "owner", "restarts", "spent")

    def __init__(self, owner: Runtime, name: str, order: ray.ObjectRef[Any], options: dict[str, Any], restarts: int):
        self.owner = owner
        self.name = name
        self.order = order
        self.options = options
        self.restarts = restarts
        self.number = 0
        self.spent = 0
        self.life: Life


class RayAnswer:
    """Reference to what comes of a call, or to a value; or why nothing can come."""

    __slots__ = ("error", "life", "owner", "ref")

    def __init__(
        self,
        owner: Runtime,
        ref: ray.ObjectRef[Any] | None,
        *,
        life: Life | None = None,
        error: RunError | None = None,
    ) -> None:
        self.owner = owner
        self.ref = ref
        self.life = life
        self.error = error

    def __reduce__(self) -> Any:
        """Inside an argument it arrives as what `fetch` takes."""
        if self.ref is None:
            raise RunError("a reference to something that cannot come any more was passed inside an argument.")
        return _arrived, (self.ref,)


def _arrived(ref: ray.ObjectRef[Any]) -> ray.ObjectRef[Any]:
    return ref


def actor_options(resources: Mapping[str, float]) -> dict[str, Any]:
    """Ray's options for an actor with these resources, spread over nodes. Raises RunError for amounts below 0."""
    known = {name: value for name, value in resources.items() if name in ("num_cpus", "num_gpus", "memory")}
    custom = {name: value for name, value in resources.items() if name not in known}
    bad = [name for name, value in resources.items() if not value >= 0]
    if bad:
        raise RunError(f"resources are amounts of at least 0, unlike {bad[0]!r}: {resources[bad[0]]!r}.")
    return {**SMALL, **known, "resources": custom, "max_restarts": 0, "scheduling_strategy": "SPREAD"}


def words(resources: Mapping[str, Any]) -> str:
    """Amounts, of an actor's options or a cluster, for a message."""
    flat = {**resources, **resources.get("resources", {})}
    shown = {
        name: value
        for name, value in flat.items()
        if isinstance(value, int | float) and name != "max_restarts" and not name.startswith(("node:", "object_store"))
    }
    return ", ".join(f"{name} {value:g}" for name, value in shown.items()) or "nothing"
