"""The seam of rollouts: requests are started, and finished with what was played. `ludus.rollout.host` plays in this process,
`ludus.rollout.manager` on hosts of a runtime."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from ludus.core.recorders import Timings
from ludus.core.types import EnvSpec, PolicyRef
from ludus.policies.base import Policy
from ludus.rollout.base import Rollout, RolloutRequest
from ludus.runtime.base import Ref

Receive: TypeAlias = Callable[[Sequence[Ref]], Sequence[Any]]
"""Takes the trajectories that hosts have left to where they are learned from, and says by what they are known there. Raises PartDied if
some are lost."""
ProgressCallback: TypeAlias = Callable[[int], None]
"""Is told now and then, while a request of whole episodes is played, how many of them have ended. What it raises ends that."""

REPORT_SECONDS = 0.5
"""Seconds between two times that it is told."""
_FAULTS = {
    "env_restarts": "{} processes of environments died, raised or were stuck, and were made again; the episodes that they were in ended as "
    "truncated. `env.restarts` says how often that may be.",
    "bot_restarts": "{} processes of bots died, and were made again; their bots know the open episodes again. `runtime.restarts` says how "
    "often that may be.",
}


def report_faults(counters: Mapping[str, int], tell: Callable[[str], None]) -> None:
    """Tell what was made again while a request was played. counters: of its rollout."""
    for name, text in _FAULTS.items():
        if count := counters.get(name):
            tell(text.format(count))


@dataclass(frozen=True, slots=True, eq=False)
class RemotePolicy:
    """A policy that is with the runtime already. message: a reference to its `PolicyMessage`."""

    message: Ref


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """A request that was started. seconds: that starting it took."""

    request: RolloutRequest
    task_slot: int
    seconds: float


P = TypeVar("P", bound=Pending)


class Rollouts(ABC, Generic[P]):
    """Plays requests in `num_envs` environments.

    Attributes:
        spec: Of the environments.
        num_envs: Number of environments.
        match_slot: The task slot to play matches in.
        profile: Times of rollouts.
    """

    spec: EnvSpec
    num_envs: int
    match_slot: int
    profile: Timings

    def run(self, request: RolloutRequest, policies: Sequence[tuple[PolicyRef, Policy | RemotePolicy]]) -> Rollout:
        """Play a request with exactly the policies that it names, and return its rollout.

        Raises:
            ScenarioError: For a request that is too small for the shards.
            LudusError: As `RolloutWorker.play`.
        """
        return self.finish(self.start(request, policies))

    @property
    @abstractmethod
    def hosts(self) -> int:
        """Number of hosts."""

    @abstractmethod
    def life(self, host: int) -> str:
        """Return a name of the present incarnation of a host, and of its server: the requests of one incarnation are lost together."""

    @abstractmethod
    def playing(self, unit: str, amount: int) -> list[int]:
        """Return the hosts that have a share of such requests: of a few episodes, the first environments play all."""

    @abstractmethod
    def start(
        self,
        request: RolloutRequest,
        policies: Sequence[tuple[PolicyRef, Policy | RemotePolicy]],
        *,
        task_slot: int = 0,
        hosts: Sequence[int] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> P:
        """Start a request without waiting for hosts.

        Args:
            request: What is played.
            policies: All that it names.
            task_slot: Requests of one slot are played in order, and one that carries on continues the slot's open episodes. Each slot has
                environments of its own, so that several tasks can be in progress.
            hosts: That play it; None: all.
            on_progress: Progress callback of rollouts in this process; others call that of `finish`.
        """

    @abstractmethod
    def finish(
        self, pending: P, *, receive: Receive | None = None, on_progress: ProgressCallback | None = None
    ) -> Rollout:
        """Return what was played, in the order of the shards; wait for it.

        Args:
            pending: From `start`.
            receive: Takes what hosts have left.
            on_progress: Progress callback.

        Raises:
            Exception: Whatever `RolloutWorker.play`, `receive` and `on_progress` raise.
        """

    @abstractmethod
    def take(self, pending: P, *, receive: Receive | None = None) -> Rollout | None:
        """Return the result of the only host of a request; None if it or its server died, and was restarted, before it was done, or before
        `receive` had taken what it left."""

    @abstractmethod
    def done(self, pending: Sequence[P], *, at_least: int, timeout: float | None = None) -> list[P]:
        """Return those of these requests, each of which one host plays, that are done once `at_least` are or `timeout` seconds have passed.
        A host that died is done."""

    @abstractmethod
    def cancel(self, pending: P) -> None:
        """Discard the result of this request, which hosts play nevertheless. Nothing happens if it was taken already."""

    @abstractmethod
    def close(self) -> None:
        """Close the environments. Raises EnvError, once all is closed, for environments that could not be closed."""
