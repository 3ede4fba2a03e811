"""The one environment contract: a vector of environments that lists the decisions that are due.

Turn-based and simultaneous games are the same thing: a turn-based game has fewer decisions due per step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import EnvError
from ludus.core.types import Array, EnvSpec, Timestep


@runtime_checkable
class VectorEnv(Protocol):
    """E environments stepped together, as structures of arrays.

    The same seeds[e] and actions give the same episodes in environment e, whatever else is in the vector, unless `spec.determinism` says
    that it promises less.

    Optional attributes, taken for 0 where they are missing: `waited`, seconds spent so far waiting for other processes; `restarts`, how
    many environments have been restarted so far after a fault.
    """

    spec: EnvSpec
    num_envs: int

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """Start anew, with seeds uint64[E]. Each environment plays `episodes` episodes (one number for all, or int64[E], zeros
        allowed) and is idle (nothing due) after that; None: for ever. `ended` and `finished` are empty in the answer unless an
        episode has no decisions at all."""
        ...

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """actions[p]: one row per row of the last `due[p]`, in its order. Raises EnvError on an illegal action."""
        ...

    def snapshot(self) -> bytes | None:
        """Everything needed to go on from here, without pickle; None: cannot be resumed inside an episode."""
        ...

    def restore(self, snapshot: bytes) -> Timestep:
        """Go on from a snapshot of an equal environment; the answer equals the last timestep before it was taken."""
        ...

    def close(self) -> None:
        """Free what it holds; it is not used again."""
        ...


@contextmanager
def closed_on_error(env: Any) -> Iterator[None]:
    """Closes an environment, of any interface, if what is done with it raises: it may hold processes, a port or a window."""
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the first error is what is told
            env.close()
        raise


class Unsaved:
    """A `VectorEnv` that cannot be resumed inside an episode, since what goes on in its environments cannot be saved."""

    spec: EnvSpec

    def snapshot(self) -> bytes | None:
        """None."""
        return None

    def restore(self, snapshot: bytes) -> Timestep:
        """Raises EnvError: there are no snapshots."""
        raise EnvError(f"{self.spec.id} cannot be resumed inside an episode; there is no snapshot to restore.")


@runtime_checkable
class HoldsGames(Protocol):
    """A `VectorEnv` whose environments are objects that a bot may read (`ludus.policies.bots.StateBot`)."""

    def game(self, environment: int) -> object:
        """The object of one environment, as its author made it, in its present state."""
        ...


@runtime_checkable
class Renders(Protocol):
    """A `VectorEnv` that can show itself."""

    def render(self, environment: int) -> NDArray[np.uint8] | str:
        """The present state of one environment: an image uint8[height, width, 3], or text."""
        ...


@runtime_checkable
class NamesColumns(Protocol):
    """A `VectorEnv` that names the numbers that it shows and takes."""

    def observation_names(self, player: int) -> Sequence[str]:
        """Of the numbers of the player's observations, which are flat, in order; () if they have no names."""
        ...

    def action_names(self, player: int) -> Sequence[str]:
        """Of the player's actions 0, 1, …; () if they have no names."""
        ...
