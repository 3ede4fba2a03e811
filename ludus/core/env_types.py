"""What an environment is, and the records that it gives at every step; `ludus.core.types` has these names, too.

Shapes: E environments, P players, A actions (the largest legal count of a player), I information states, n rows.
Every array is NumPy on the CPU. The arrays of a `Timestep` are buffers that their environment reuses.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


class SegmentEnd(IntEnum):
    """How a segment ends (invariant 4): a termination is not bootstrapped, a truncation and a cut are."""

    TERMINATED = 0
    TRUNCATED = 1
    CUT = 2  # a fragment's end: the open decision carries on in the next fragment


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """Agent of an environment: one body, controlled by a player.

    Attributes:
        name: Its name, unique within the environment.
        player: Index of the strategic side that controls it.
        observation: Space of its observations.
        action: Space of its actions.
        role: Agents of one role share a network.
    """

    name: str
    player: int
    observation: Space[Any]
    action: Space[Any]
    role: str = "default"


@dataclass(frozen=True, slots=True, eq=False)
class Enumeration:
    """All information states of a game that is small enough to be enumerated. Ids are global, grouped by player.

    Environments with an enumeration put int32 ids into `ActionRequests.observation`; `observation[ids]` and `mask[ids]` decode them.

    Attributes:
        observation: float32[I, *shape], observation of each information state.
        mask: bool[I, A], its legal actions.
        offset: [P + 1]: player p's ids are offset[p] … offset[p + 1] - 1.
        key: [I], the game's own name of the state.
    """

    observation: NDArray[np.float32]
    mask: NDArray[np.bool_]
    offset: tuple[int, ...]
    key: tuple[str, ...]

    def ids(self, player: int) -> slice:
        """Return the ids of one player."""
        return slice(self.offset[player], self.offset[player + 1])


Determinism: TypeAlias = Literal["environment", "vector", "none"]
"""What the same seeds and actions promise: the same episodes in each environment, whatever else is in the vector; the same only in an
equal vector; nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class EnvSpec:
    """Description of what a vector of environments plays.

    Attributes:
        id: Name of the environment.
        agents: All agents, ordered by (player, index within the player).
        utility_range: [P] (least, largest) undiscounted return, bounds or infinities.
        symmetry: Partition of the players; those in one group are interchangeable.
        zero_sum: Whether the players' returns sum to zero, or to a constant.
        state: Space of the global state, for central critics and mixers only; None if there is none.
        enumeration: Information states, where the game is enumerated.
        max_decisions: Most decisions of one player in an episode; None if unknown.
        determinism: What equal seeds and actions guarantee (`Determinism`).
        statistics: [S] names of what is counted for each player in an episode, besides its return.
        no_tree: Why the game is not enumerated.
    """

    id: str
    agents: tuple[AgentSpec, ...]
    utility_range: tuple[tuple[float, float], ...]
    symmetry: tuple[tuple[int, ...], ...]
    zero_sum: bool = False
    state: Space[Any] | None = None
    enumeration: Enumeration | None = None
    max_decisions: int | None = None
    determinism: Determinism = "environment"
    statistics: tuple[str, ...] = ()
    no_tree: str = "tree=off, a wrapper, or not a game of OpenSpiel"

    @property
    def num_players(self) -> int:
        """Number of players."""
        return len(self.utility_range)

    def agents_of(self, player: int) -> tuple[AgentSpec, ...]:
        """Return the agents that one player controls, in slot order."""
        return tuple(a for a in self.agents if a.player == player)

    @property
    def constant_sum(self) -> float | None:
        """Sum of the two players' returns: None unless it is constant, and 0 where their ranges do not determine it (infinite or loose
        ranges)."""
        if self.num_players != 2 or not self.zero_sum:
            return None
        (least, most), (other_least, other_most) = self.utility_range
        is_exact = np.isfinite(self.utility_range).all() and abs(least + other_most - most - other_least) < 1e-6
        return round(least + other_most, 6) if is_exact else 0.0

    @property
    def agent_index(self) -> NDArray[np.int64]:
        """int64[agents]: index of each agent among those of its player."""
        player = np.array([agent.player for agent in self.agents])
        out: NDArray[np.int64] = np.arange(len(player)) - np.searchsorted(player, player)
        return out

    @property
    def constant(self) -> float | None:
        """`constant_sum`, by its former name."""
        warn_renamed("EnvSpec.constant", "constant_sum")
        return self.constant_sum

    @property
    def places(self) -> NDArray[np.int64]:
        """`agent_index`, by its former name."""
        warn_renamed("EnvSpec.places", "agent_index")
        return self.agent_index


class ActionRequests(NamedTuple):
    """Decisions of one player that are due now: n rows in rising slot order.

    Attributes:
        slot: int32[n], environment × (agents of the player) + index of the agent.
        observation: [n, *shape], or int32[n] ids if the environment has an enumeration.
        mask: bool[n, A] legal actions; None if all always are, or if ids determine them.
        reward: float32[n], summed since that slot's last decision; 0 where `first`.
        first: bool[n], the slot's first decision in this episode, or since its agent came back to it.
    """

    slot: NDArray[np.int32]
    observation: Array
    mask: NDArray[np.bool_] | None
    reward: NDArray[np.float32]
    first: NDArray[np.bool_]


class ClosedDecisions(NamedTuple):
    """Slots of one player whose open decision closes in this step, whether it was due or not: n rows in slot order.

    Attributes:
        slot: int32[n], as in `ActionRequests`.
        reward: float32[n], since the slot's last decision.
        terminated: bool[n]; False is a truncation.
        observation: [n, *shape] final observations, or int32[n] ids (-1: the game has no information state at its end).
        mask: Legal actions in the final observation, where a truncation bootstraps; None as in `ActionRequests`.
    """

    slot: NDArray[np.int32]
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    observation: Array
    mask: NDArray[np.bool_] | None = None


class FinishedEpisodes(NamedTuple):
    """Episodes that ended in this step, k rows in rising environment order.

    Attributes:
        environment: int32[k], index in the vector.
        returns: float64[k, P], undiscounted return of each player.
        terminated: bool[k]; False is a truncation.
        length: int32[k], environment steps.
        statistics: float64[k, P, S] by the spec's names, totals of the episode, NaN where unknown; None if there are no names.
    """

    environment: NDArray[np.int32]
    returns: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    length: NDArray[np.int32]
    statistics: NDArray[np.float64] | None = None


class Timestep(NamedTuple):
    """One step of E environments.

    An environment that ends restarts within the same step: its new episode's decisions are in `due`, its old one's in `ended` and
    `finished`. Or it restarts one step later and lists nothing as due in between, as an environment that is still computing (asynchronous)
    does. Some environment always has a decision due. Buffers stay valid until the second-next step.

    Attributes:
        due: [P] decisions that are due, by player.
        ended: [P] decisions that close, by player.
        finished: Episodes that ended.
        state: [E, *shape] global state, where the environment has one.
        final_state: [k, *shape] global state at the end of each episode, rows as in `finished`.
    """

    due: tuple[ActionRequests, ...]
    ended: tuple[ClosedDecisions, ...]
    finished: FinishedEpisodes
    state: Array | None = None
    final_state: Array | None = None


def warn_renamed(former: str, name: str) -> None:
    """Warn that a name has another one now."""
    warnings.warn(f"{former} is called {name} now.", DeprecationWarning, stacklevel=3)
