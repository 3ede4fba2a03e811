"""What plays one player."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import PolicyError
from ludus.core.types import Array, Enumeration, PolicyOutput, PolicySpec, Weights


@runtime_checkable
class Policy(Protocol):
    """Plays flat batches of decisions of one player, whatever environment or seat each row came from.

    Rows come sorted by (environment, agent index). `act` is pure: the same arguments give the same answer.
    """

    spec: PolicySpec
    modes: ClassVar[tuple[str, ...]]  # published modes; "explore" and "greedy" at least
    noise_width: int  # uniforms per row that `act` wants
    memory_shape: tuple[int, ...] | None  # per-slot recurrent memory (float32), zeros at episode starts; None: none
    takes_ids: bool  # True: observations are int32 ids of an enumeration; False: decoded tensors

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> PolicyOutput:
        """observation [n, …], mask bool[n, A], memory float32[n, *memory_shape], noise float32[n, noise_width]: uniforms in [0, 1). Where
        an algorithm asks for `place`, the first of them is where the row's environment is among all, in [0, 1]."""
        ...

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Action probabilities float64[I_p, A] on all information states of `player` (zero where illegal, rows summing to 1);
        None: this policy cannot (it has memory, say). Must agree with `act`."""
        ...

    def weights(self) -> Weights:
        """Arrays that `build_policy(spec, weights)` makes an equal policy from."""
        ...


class Teams(NamedTuple):
    """Whose decisions n rows are, for policies that decide for a team together. Rows of one group, the agents of one team that act at one
    moment, lie side by side.

    group: int32[n], rising. place: int32[n], which of its team's agents, from 0, rising within a group; who is missing does not act now.
    """

    group: NDArray[np.int32]
    place: NDArray[np.int32]

    @staticmethod
    def of(slot: NDArray[np.int32], agents: int) -> Teams:
        """Of slots, environment × agents + place, int32[n] rising."""
        return Teams(slot // np.int32(agents), slot % np.int32(agents))

    @staticmethod
    def whole(rows: int, agents: int) -> Teams:
        """Of teams of which everybody acts, one after the other. Raises PolicyError for rows that are no such teams."""
        if rows % agents:
            raise PolicyError(
                f"a policy that plays teams of {agents} agents was given {rows} observations; give those of whole teams, agent after agent."
            )
        return Teams.of(np.arange(rows, dtype=np.int32), agents)

    @staticmethod
    def joined(parts: Sequence[Teams]) -> Teams:
        """One after the other; groups of different parts are different ones."""
        sizes = [int(part.group[-1]) + 1 if len(part.group) else 0 for part in parts]
        before = np.cumsum([0, *sizes[:-1]], dtype=np.int32)
        groups = [part.group + first for part, first in zip(parts, before, strict=True)]
        return Teams(np.concatenate(groups), np.concatenate([part.place for part in parts]))

    def take(self, rows: NDArray[np.int64]) -> Teams:
        """Those of some rows, of whole groups."""
        return Teams(self.group[rows], self.place[rows])


@runtime_checkable
class JointPolicy(Policy, Protocol):
    """A `Policy` that decides for several agents of a team together, of whose rows it is given whole groups: all agents that act at one
    moment. Agents act in the order of their places, and may look at what those before them do now, and at what all of them see.

    Whoever asks a policy with a `team_size` says whose the rows are.
    """

    team_size: int  # agents of a team, at the most

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
        teams: Teams | None = None,
    ) -> PolicyOutput:
        """As `Policy.act`. logp: of each agent's action, given those of the agents before it. Raises PolicyError without `teams`."""
        ...

    def chances(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        action: Array,
        teams: Teams,
        *,
        mode: str = "explore",
    ) -> NDArray[np.float64] | None:
        """float64[n, A]: how likely each action was of each row, given what the agents before it did, `action` [n, …]; None where actions
        are vectors, or an agent before another has not acted yet (-1)."""
        ...


def team_size_of(policy: Policy) -> int:
    """`JointPolicy.team_size`; 0 of a policy that decides row by row."""
    return int(getattr(policy, "team_size", 0))


def teams_for(policy: Policy, place: NDArray[np.int32]) -> dict[str, Teams]:
    """What a policy is asked with beside the rows of the agents `place` int32[n] of one team, if it is a `JointPolicy`; else nothing."""
    return {"teams": Teams(np.zeros(len(place), np.int32), place)} if team_size_of(policy) else {}


class Values(NamedTuple):
    """What n decisions are worth, in the units that the learner scaled rewards to. state: float32[n], by a critic, or of the best legal
    action; None: nothing says it. actions: float32[n, A] of all actions; None without."""

    state: NDArray[np.float32] | None = None
    actions: NDArray[np.float32] | None = None


@runtime_checkable
class HasValues(Protocol):
    """A `Policy` that can say what decisions are worth. It is asked by people who look at it, not by those who play."""

    def values(
        self, observation: Array, mask: NDArray[np.bool_] | None, memory: Array | None, state: Array | None
    ) -> Values:
        """Rows as `Policy.act` takes them; of a `JointPolicy`, with `teams`. state: float32[n, S], what a central critic sees; None if
        there is none."""
        ...
