"""The one environment contract: a vector of environments that lists the decisions that are due.

Turn-based and simultaneous games are the same thing: a turn-based game has fewer decisions due per step.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import EnvError
from ludus.core.types import Array, EnvSpec, Timestep


@runtime_checkable
class VectorEnv(Protocol):
    """E environments that are stepped together, as structures of arrays.

    The same seeds[e] and actions give the same episodes in environment e, whatever else is in the vector, unless `spec.determinism`
    promises less.

    Attributes:
        spec: What is played: agents, players, spaces.
        num_envs: E.
        waited: Optional; seconds spent so far waiting for other processes. 0 where it is missing.
        restarts: Optional; number of environments that have been restarted so far after a fault. 0 where it is missing.
    """

    spec: EnvSpec
    num_envs: int

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """Begin new episodes in all environments.

        Args:
            seeds: uint64[E], one for each environment.
            episodes: Number of episodes that each environment plays before it is idle (nothing is due in it any more): one number for all,
                or int64[E], zeros allowed; None: no limit.

        Returns:
            The first timestep. `ended` and `finished` are empty unless an episode has no decision at all.
        """
        ...

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """Step every environment with a due decision.

        Args:
            actions: By player; actions[p] has one row for each row of the last `due[p]`, in its order.

        Returns:
            The next timestep.

        Raises:
            EnvError: An action is illegal.
        """
        ...

    def snapshot(self) -> bytes | None:
        """Return all that is needed to continue from here, without pickle; None: the vector cannot be resumed inside an episode."""
        ...

    def restore(self, snapshot: bytes) -> Timestep:
        """Continue from a snapshot of an equal vector.

        Args:
            snapshot: Bytes of `snapshot`.

        Returns:
            The last timestep before the snapshot was taken.
        """
        ...

    def close(self) -> None:
        """Release all resources. The vector is not used again."""
        ...


class NoSnapshotMixin:
    """A `VectorEnv` that cannot be resumed inside an episode, since the state of its environments cannot be saved."""

    spec: EnvSpec

    def snapshot(self) -> bytes | None:
        """Return None."""
        return None

    def restore(self, snapshot: bytes) -> Timestep:
        """Raise EnvError: there are no snapshots."""
        raise EnvError(f"{self.spec.id} cannot be resumed inside an episode; there is no snapshot to restore.")


@runtime_checkable
class ExposesGameState(Protocol):
    """A `VectorEnv` whose environments are objects that a bot may read (`ludus.policies.bots.StateBot`)."""

    def game(self, environment: int) -> object:
        """Return the object of one environment, as its author made it, in its present state.

        Args:
            environment: Its number, from 0.
        """
        ...


@runtime_checkable
class SupportsRender(Protocol):
    """A `VectorEnv` that can show itself."""

    def render(self, environment: int) -> NDArray[np.uint8] | str:
        """Return the present state of one environment: an image uint8[height, width, 3], or text.

        Args:
            environment: Its number, from 0.
        """
        ...


@runtime_checkable
class HasColumnNames(Protocol):
    """A `VectorEnv` that names the numbers that it shows and takes."""

    def observation_names(self, player: int) -> Sequence[str]:
        """Return the names of the numbers of the player's observations, which are flat, in order; () without names."""
        ...

    def action_names(self, player: int) -> Sequence[str]:
        """Return the names of the player's actions 0, 1, …; () without names."""
        ...


_RENAMED = {
    "HoldsGames": "ExposesGameState",
    "NamesColumns": "HasColumnNames",
    "Renders": "SupportsRender",
    "Unsaved": "NoSnapshotMixin",
}
"""Names of earlier releases, which still work and warn."""


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{__name__}.{name} is called {_RENAMED[name]} now.", DeprecationWarning, stacklevel=2)
    return globals()[_RENAMED[name]]
