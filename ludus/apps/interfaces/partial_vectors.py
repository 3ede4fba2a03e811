"""Vectors of which some environments are stepped while the others wait.

`VectorEnv.step` moves every environment that has a decision due. An environment of one player must not: it waits for that player's action
while others still move. So here the actions are put down as they come, and `go` says which environments move.

    begin(environments, seeds) -> [ put(player, slots, actions)* -> go(environments) ]* -> the episode is finished, and is idle
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ludus.apps.episodes.recording import one_environment
from ludus.core.arrays import kernel
from ludus.core.errors import EnvError
from ludus.core.types import ActionRequests, Array, ClosedDecisions, EnvSpec, FinishedEpisodes, Timestep
from ludus.envs.base import SupportsRender, VectorEnv
from ludus.envs.config import Environment
from ludus.envs.families import closed_on_error
from ludus.envs.tree.game_tree import GameTree
from ludus.envs.tree.vector import IDLE, TreeVectorEnv, advance, start
from ludus.envs.wrappers.registry import wrap
from ludus.policies.bots import OPENSPIEL
from ludus.rollout.bot_players import CopiedGames, FollowedGames

Rows = NDArray[np.int32]


@runtime_checkable
class PartialVector(Protocol):
    """E environments that play one episode at a time, each begun by `begin`.

    A timestep lists the environments that were begun or moved, and no others. Its buffers are valid until the second-next one.

    Attributes:
        spec: What is played.
        num_envs: E.
    """

    spec: EnvSpec
    num_envs: int

    def begin(self, environments: NDArray[np.int64], seeds: NDArray[np.uint64]) -> Timestep:
        """Begin an episode in some environments, whatever was played in them.

        Args:
            environments: int64[n], rising.
            seeds: uint64[n]; the same seed and actions give the same episode, if `spec.determinism` promises it.

        Returns:
            The first decisions.
        """
        ...

    def put(self, player: int, slots: Rows, actions: Array) -> None:
        """Note actions of due decisions, which are made by `go`.

        Args:
            player: Index of the player.
            slots: int32[n], rising.
            actions: [n, …].

        Raises:
            EnvError: An action is illegal.
        """
        ...

    def go(self, environments: NDArray[np.int64]) -> Timestep:
        """Step some environments, all due decisions of which have their actions.

        Args:
            environments: int64[n], rising.

        Returns:
            What is due and what has ended in them.
        """
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


# --------------------------------------------------------------------------------------------------------------------
# Compiled trees.


@kernel
def _land(node, rank, at, environments, action, landing):  # type: ignore[no-untyped-def]
    """Write the nodes that the actions int64[P, E] lead to into `landing`, IDLE elsewhere. Returns an environment with an illegal action,
    or -1. node int32[N, 4]: columns of `Board.node`."""
    landing[:] = IDLE
    for e in environments:
        x = np.int64(at[e])
        for _ in range(node[x, 3]):
            a = action[node[x, 2], e]
            step = rank[node[x, 1], a] if 0 <= a < rank.shape[1] else -1
            if step < 0:
                return e
            x = node[x, 0] + step
        landing[e] = x
    return -1


class PartialTreeVector(TreeVectorEnv):
    """`PartialVector` of a compiled tree."""

    def __init__(self, tree: GameTree, num_envs: int) -> None:
        super().__init__(tree, num_envs)
        self._started = True

    def begin(self, environments: NDArray[np.int64], seeds: NDArray[np.uint64]) -> Timestep:
        """Begin as `PartialVector.begin` describes."""
        games, nodes = self._games, self._games.node.copy()
        games.seed[environments] = seeds
        games.quota.fill(0)
        games.quota[environments] = 1
        start(self._board, games, self._next_buffers())
        nodes[environments] = games.node[environments]
        games.node[:] = nodes
        games.quota.fill(1)
        return self._timestep()

    def put(self, player: int, slots: Rows, actions: Array) -> None:
        """Put as `PartialVector.put` describes; what is illegal is found by `go`."""
        self._action[player, slots] = actions

    def go(self, environments: NDArray[np.int64]) -> Timestep:
        """Step as `PartialVector.go` describes."""
        board, games = self._board, self._games
        wrong = _land(board.node, board.rank, games.node, environments, self._action, games.landing)
        if wrong >= 0:
            raise EnvError(f"an illegal action was chosen in environment {wrong} of {self.spec.id}.")
        advance(board, games, self._next_buffers())
        return self._timestep()


# --------------------------------------------------------------------------------------------------------------------
# Any environment, as E vectors of one.


class SeparateVectors:
    """`PartialVector` of E vectors of one environment each. They are stepped in turn, which is as fast as anything where an
    environment is an object of Python.

    Args:
        make: Makes a vector of one environment.
        num_envs: E.
    """

    def __init__(self, make: Callable[[], VectorEnv], num_envs: int) -> None:
        self.vectors: list[VectorEnv] = []
        try:
            self.vectors += [make() for _ in range(num_envs)]
        except BaseException:
            self.close()
            raise
        self.spec, self.num_envs = self.vectors[0].spec, num_envs
        self._agents = [len(self.spec.agents_of(p)) for p in range(self.spec.num_players)]
        self._actions = [self._empty(p, num_envs * n) for p, n in enumerate(self._agents)]
        self._due: list[tuple[ActionRequests, ...]] = [()] * num_envs

    def begin(self, environments: NDArray[np.int64], seeds: NDArray[np.uint64]) -> Timestep:
        """Begin as `PartialVector.begin` describes."""
        chosen = environments.tolist()
        return self._joined(chosen, [self.vectors[e].reset(seeds[k : k + 1], episodes=1) for k, e in enumerate(chosen)])

    def put(self, player: int, slots: Rows, actions: Array) -> None:
        """Put as `PartialVector.put` describes."""
        self._actions[player][slots] = actions

    def go(self, environments: NDArray[np.int64]) -> Timestep:
        """Step as `PartialVector.go` describes."""
        chosen = environments.tolist()
        return self._joined(chosen, [self.vectors[e].step(self._actions_of(e)) for e in chosen])

    def render(self, environment: int) -> NDArray[np.uint8] | str:
        """Render as `SupportsRender.render` describes. Raises EnvError if the environment cannot."""
        vector = self.vectors[environment]
        if not isinstance(vector, SupportsRender):
            raise EnvError(f"{self.spec.id} cannot be rendered; its vector has no `render`.")
        return vector.render(0)

    def close(self) -> None:
        """Close all vectors, whatever some of them raise."""
        errors = []
        for vector in self.vectors:
            try:
                vector.close()
            except Exception as error:  # noqa: BLE001  the others must be closed too
                errors.append(error)
        self.vectors = []
        if errors:
            raise errors[0]

    def _empty(self, player: int, slots: int) -> Array:
        space = self.spec.agents_of(player)[0].action
        dtype = np.float32 if isinstance(space, Box) and space.dtype.kind == "f" else np.int32
        return np.zeros((slots, *(space.shape or ())), dtype)

    def _actions_of(self, environment: int) -> tuple[Array, ...]:
        return tuple(
            self._actions[p][environment * self._agents[p] + due.slot] for p, due in enumerate(self._due[environment])
        )

    def _joined(self, chosen: Sequence[int], parts: Sequence[Timestep]) -> Timestep:
        for e, part in zip(chosen, parts, strict=True):
            # Buffers are reused after two steps, and what is due may wait for longer.
            self._due[e] = tuple(due._replace(slot=due.slot.copy()) for due in part.due)
        if len(chosen) == 1 and chosen[0] == 0:
            return parts[0]
        players = range(self.spec.num_players)
        due = tuple(self._joined_due(chosen, [part.due[p] for part in parts], self._agents[p]) for p in players)
        ended = tuple(self._joined_ended(chosen, [part.ended[p] for part in parts], self._agents[p]) for p in players)
        return Timestep(due, ended, _joined_finished(chosen, [part.finished for part in parts]))

    def _joined_due(self, chosen: Sequence[int], parts: Sequence[ActionRequests], agents: int) -> ActionRequests:
        slot = [part.slot + e * agents for e, part in zip(chosen, parts, strict=True)]
        first, reward = [part.first for part in parts], [part.reward for part in parts]
        masks = [part.mask for part in parts if part.mask is not None]
        return ActionRequests(
            np.concatenate(slot).astype(np.int32),
            np.concatenate([part.observation for part in parts]),
            np.concatenate(masks) if len(masks) == len(parts) else None,
            np.concatenate(reward),
            np.concatenate(first),
        )

    def _joined_ended(self, chosen: Sequence[int], parts: Sequence[ClosedDecisions], agents: int) -> ClosedDecisions:
        slot = [part.slot + e * agents for e, part in zip(chosen, parts, strict=True)]
        masks = [part.mask for part in parts if part.mask is not None]
        return ClosedDecisions(
            np.concatenate(slot).astype(np.int32),
            np.concatenate([part.reward for part in parts]),
            np.concatenate([part.terminated for part in parts]),
            np.concatenate([part.observation for part in parts]),
            np.concatenate(masks) if len(masks) == len(parts) else None,
        )


def _joined_finished(chosen: Sequence[int], parts: Sequence[FinishedEpisodes]) -> FinishedEpisodes:
    environment = [part.environment + e for e, part in zip(chosen, parts, strict=True)]
    return FinishedEpisodes(
        np.concatenate(environment).astype(np.int32),
        np.concatenate([part.returns for part in parts]),
        np.concatenate([part.terminated for part in parts]),
        np.concatenate([part.length for part in parts]),
    )


# --------------------------------------------------------------------------------------------------------------------
# Which one plays an environment.


class _OneEpisode(FollowedGames):
    """States of games of OpenSpiel for a vector that plays one episode after each reset; the last state stays."""

    def _see(self, timestep: Timestep) -> Timestep:
        self._due = timestep.due
        return timestep

    def render(self, environment: int) -> str:
        """Return the state as OpenSpiel's text."""
        return str(self.state(environment))


def make_partial(settings: Environment, num_envs: int, *, states: bool, rendering: bool) -> PartialVector:
    """Make environments that can be stepped one without the other.

    Args:
        settings: What is played.
        num_envs: Number of environments.
        states: Whether bots read the games' states.
        rendering: Whether they are to be rendered.

    Raises:
        LudusError: As `ludus.make_env`.
    """
    if states or rendering:
        return SeparateVectors(lambda: env_with_states(settings, rendering=rendering), num_envs)
    probe = settings.make(num_envs=1)
    if isinstance(probe, TreeVectorEnv):
        return PartialTreeVector(probe.tree, num_envs)
    if isinstance(probe, PartialVector):
        vector = settings.make(num_envs=num_envs)
        assert isinstance(vector, PartialVector)
        return vector
    ready = [probe]
    return SeparateVectors(lambda: ready.pop() if ready else settings.make(num_envs=1), num_envs)


def env_with_states(settings: Environment, *, rendering: bool) -> VectorEnv:
    """Return a vector of one environment that shows its states, or itself."""
    openspiel = settings.id.startswith(OPENSPIEL)
    if rendering and not openspiel:
        env = one_environment(settings, rendering=True)
        with closed_on_error(env):
            return wrap(env, settings.wrappers)
    env = settings.make(num_envs=1)
    with closed_on_error(env):
        return _OneEpisode(env) if openspiel else CopiedGames(env)
