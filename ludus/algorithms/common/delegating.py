"""Algorithms around another one, to which they delegate what they do not override. Restricted: learning which member of a population to
play at each decision, for any learner of discrete actions, in a restricted game (NXDO). Conditioned: one network for several policies, each
of which sees the meta-strategy that it responds to (NeuPL, Liu et al. 2022), for any on-policy learner.

algorithm, members --InRestrictedGame--> an algorithm whose actions are members and whose policies play the game itself
algorithm, conditions --Conditioned--> an algorithm whose network sees the condition after each observation

trajectories (actions of the game, with the extras choice and choice_logp) --as choices--> the learner of the algorithm

Requests play the rows of conditions in turn (`ludus.training.collecting`); the experience is learned from once all rows have come, so that
an update is about all of them and none is forgotten for another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from ludus.algorithms.common.base import (
    Algorithm,
    CollectConfig,
    Learner,
    LearnerContext,
    Priorities,
    batch_sizes,
    notify_version,
    updated_priorities,
)
from ludus.algorithms.common.config import check_learned_reward
from ludus.algorithms.common.space_checks import players_of
from ludus.algorithms.rewards.base import NOTHING_AFTER, refuse_recorded
from ludus.backend.device import Placement, placement_for_table
from ludus.core.errors import ScenarioError
from ludus.core.types import (
    Array,
    Enumeration,
    EnvSpec,
    Metrics,
    PolicyCondition,
    PolicyRef,
    PolicySpec,
    RestrictedGame,
    State,
    Weights,
)
from ludus.policies.base import Policy
from ludus.policies.registry import CHOICE, CHOICE_LOGP, ROW, conditioned
from ludus.policies.specs import choice_spec, conditioned_spec, joined, part_of
from ludus.replay.base import ItemColumns, ItemUnit, Sample, Sizes, TableSpec
from ludus.replay.trajectories import Trajectories


@dataclass(frozen=True, slots=True, eq=False)
class AlgorithmWrapper:
    """Base of an `Algorithm` that wraps another one."""

    algorithm: Algorithm

    @property
    def item(self) -> ItemUnit:
        return self.algorithm.item

    def tables(self) -> Sequence[TableSpec]:
        return self.algorithm.tables()

    def sizes(self) -> Mapping[str, Sizes]:
        return batch_sizes(self.algorithm)


class LearnerWrapper:
    """Base of a `Learner` that wraps another one. A subclass implements items and published weights."""

    def __init__(self, inner: Learner) -> None:
        self._inner = inner

    @property
    def placement(self) -> Placement:
        """Return the inner learner's placement, if it has one."""
        placement: Placement = self._inner.placement  # type: ignore[attr-defined]  # not of those that know the CPU only
        return placement

    def learns_at(self, table: str) -> Placement | None:
        return placement_for_table(self._inner, table)

    def batches(self) -> Sequence[tuple[str, int]]:
        return self._inner.batches()

    def update(self, batch: Sample) -> Metrics:
        return self._inner.update(batch)

    def priorities(self) -> Priorities:
        return updated_priorities(self._inner)

    def on_version_published(self, version: int) -> None:
        notify_version(self._inner, version)

    def state_dict(self) -> State:
        return self._inner.state_dict()

    def load_state_dict(self, state: State) -> None:
        self._inner.load_state_dict(state)


@dataclass(frozen=True, slots=True, eq=False)
class InRestrictedGame(AlgorithmWrapper):
    """An `Algorithm` that learns what another one would, if playing members[k] were action k. members: each with its
    mode."""

    members: tuple[tuple[Policy, str], ...]

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise ScenarioError if the algorithm cannot learn there, with this number of actions."""
        self.algorithm.check(self.game(env), seats)

    def collect(self) -> CollectConfig:
        collect = self.algorithm.collect()
        return replace(collect, extras=(*collect.extras, CHOICE, CHOICE_LOGP))

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        return choice_spec(self.algorithm.policy(self.game(env), seats), _specs(self.members))

    def learner(self, context: LearnerContext, start: Weights | None = None) -> Learner:
        begin = None if start is None else part_of(start, "chooser")
        inner = self.algorithm.learner(replace(context, env=self.game(context.env)), begin)
        return RestrictedLearner(inner, self.members)

    def game(self, env: EnvSpec) -> EnvSpec:
        """Return the environment as the algorithm sees it: K actions, all legal, for every agent."""
        agents = tuple(replace(agent, action=Discrete(len(self.members))) for agent in env.agents)
        enumeration = env.enumeration
        if enumeration is not None:
            every = np.ones((len(enumeration.mask), len(self.members)), np.bool_)
            enumeration = replace(enumeration, mask=every)
        return replace(env, agents=agents, enumeration=enumeration)


class RestrictedLearner(LearnerWrapper):
    """Wraps a learner whose actions are members."""

    def __init__(self, inner: Learner, members: tuple[tuple[Policy, str], ...]) -> None:
        super().__init__(inner)
        self._weights = {str(k): member.weights() for k, (member, _) in enumerate(members)}
        self.spec = choice_spec(inner.spec, _specs(members))

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Return the items of the chosen members."""
        extras = trajectories.extras
        picks = replace(trajectories, action=extras[CHOICE], logp=extras[CHOICE_LOGP], mask=None, bootstrap_mask=None)
        return self._inner.items(picks)

    def weights(self) -> Weights:
        members = {k: {name: array.copy() for name, array in weights.items()} for k, weights in self._weights.items()}
        return joined({"chooser": self._inner.weights(), **members})


def _specs(members: Sequence[tuple[Policy, str]]) -> list[tuple[PolicySpec, str]]:
    return [(member.spec, mode) for member, mode in members]


def in_restricted_game(
    algorithm: Algorithm, game: RestrictedGame, seats: tuple[int, ...], policy: Callable[[PolicyRef], Policy]
) -> InRestrictedGame:
    """Return the algorithm of a task that plays `seats` of a restricted game. policy: returns a frozen one."""
    return InRestrictedGame(algorithm, tuple((policy(ref), ref.mode) for ref in game.members[seats[0]]))


@dataclass(frozen=True, slots=True, eq=False)
class Conditioned(AlgorithmWrapper):
    """An `Algorithm` that learns what another one would, in a game whose observations end in a condition. condition:
    float32[R, D]."""

    condition: NDArray[np.float32]

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise ScenarioError where the algorithm cannot learn; for one that collects decisions (an episode would
        change its row) or replays; for a reward that is learned from a file, whose observations have no condition; and
        for networks that identify agents by the end of observations, where a condition is here, or that play a team
        together."""
        collect = self.algorithm.collect()
        if collect.unit != "episodes" or collect.modes:
            what = "collects decisions" if collect.unit != "episodes" else "plays in modes of its own"
            raise ScenarioError(
                f"a network that plays several policies has an algorithm that collects whole episodes, and {type(self.algorithm).__name__} "
                f"{what}. Use ppo with batch_unit=episodes."
            )
        about = getattr(self.algorithm, "about", None)
        if about is not None and about.data != "on-policy":
            raise ScenarioError(
                f"a network that plays several policies learns from what all of them do now, and {type(self.algorithm).__name__} replays "
                "what they did against what others were. Use an on-policy algorithm, such as ppo with batch_unit=episodes."
            )
        refuse_recorded(
            self.algorithm,
            why="A network that plays several policies also sees which one, behind its observation, and no file has that. Leave it out, or "
            "use another scenario, such as psro.",
        )
        game = self.game(env)
        for player in players_of(env, seats):
            if why := _unfit(self.algorithm.policy(env, (player,))):
                name = type(self.algorithm).__name__
                raise ScenarioError(
                    f"a network that plays several policies reads the policy's condition at the end of its observation, and that of "
                    f"{name} {why}"
                )
        self.algorithm.check(game, seats)
        check_learned_reward(self.algorithm, game, seats or tuple(range(env.num_players)))

    def collect(self) -> CollectConfig:
        collect = self.algorithm.collect()
        return replace(collect, extras=(*collect.extras, ROW), publish_every=len(self.condition))

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        return conditioned_spec(self.algorithm.policy(self.game(env), seats))

    def learner(self, context: LearnerContext, start: Weights | None = None) -> Learner:
        begin = None if start is None else part_of(start, "network")
        inner = self.algorithm.learner(replace(context, env=self.game(context.env)), begin)
        return ConditionedLearner(inner, self.condition, context.env.enumeration)

    def game(self, env: EnvSpec) -> EnvSpec:
        """Return the environment as the algorithm sees it: flat observations with a condition, and no enumerated
        information states."""
        width = self.condition.shape[1]
        agents = tuple(replace(agent, observation=_wider(agent.observation, width)) for agent in env.agents)
        return replace(env, agents=agents, enumeration=None)


def _unfit(spec: PolicySpec) -> str:
    """Return why a network cannot be conditioned, and what to do; "": it can."""
    if spec.kind == "team_transformer":
        return "plays a team together, agent after agent. Use mappo with batch_unit=episodes, whose agents decide by themselves."
    if "agents" in spec.config:
        return "tells agents apart by the ids that observations end in. Use share_weights=true."
    return ""


def _wider(space: Any, width: int) -> Box:
    """Return the space with a condition. Raise ScenarioError for observations that are no vector of numbers."""
    if not isinstance(space, Box) or space.dtype.kind != "f":
        raise ScenarioError(
            f"a network that plays several policies reads the policy's condition at the end of its observation, a Box of "
            f"floats; given {space}. Put the wrapper "
            "scale_observation or flatten_observation around the environment."
        )
    low, high = (np.append(side.ravel(), np.full(width, end)) for side, end in ((space.low, 0.0), (space.high, 1.0)))
    return Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)


class ConditionedLearner(LearnerWrapper):
    """Wraps a learner whose observations have conditions."""

    def __init__(self, inner: Learner, condition: NDArray[np.float32], enumeration: Enumeration | None) -> None:
        super().__init__(inner)
        self._condition, self._enumeration = condition, enumeration
        self._came = np.zeros(len(condition), np.bool_)  # rows, since the last updates
        self.spec = conditioned_spec(inner.spec)

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Return items with conditions; of an enumerated game, whose ids are decoded here, with flags where the next
        observation is unknown."""
        rows = np.asarray(trajectories.extras[ROW])
        self._came[rows] = True
        first = rows[np.minimum(trajectories.start[:-1], max(0, len(rows) - 1))]  # of each segment
        observation, mask = self._decoded(trajectories.observation, trajectories.mask)
        after, after_mask = self._decoded(trajectories.bootstrap_observation, trajectories.bootstrap_mask)
        extras = dict(trajectories.extras)
        if self._enumeration is not None:
            unknown = (trajectories.bootstrap_observation < 0) & (np.diff(trajectories.start) > 0)
            extras[NOTHING_AFTER] = np.zeros(len(rows), np.bool_)
            extras[NOTHING_AFTER][trajectories.start[1:][unknown] - 1] = True
        return self._inner.items(
            replace(
                trajectories,
                extras=extras,
                observation=conditioned(observation, self._condition[rows]),
                mask=mask,
                bootstrap_observation=conditioned(after, self._condition[first]),
                bootstrap_mask=after_mask,
            )
        )

    def _decoded(self, observation: Array, mask: NDArray[np.bool_] | None) -> tuple[Array, NDArray[np.bool_] | None]:
        """Return tensors and masks of ids of information states; zeros, and everything legal, for -1."""
        if self._enumeration is None:
            return observation, mask
        known = observation >= 0
        ids = np.where(known, observation, 0)
        x = self._enumeration.observation[ids] * known.reshape(-1, *(1,) * (self._enumeration.observation.ndim - 1))
        return x, self._enumeration.mask[ids] | ~known[:, None]

    def batches(self) -> Sequence[tuple[str, int]]:
        """Return the batches that rows suffice for; none before all have come."""
        if not self._came.all():
            return ()
        self._came[:] = False
        return super().batches()

    def weights(self) -> Weights:
        return {"condition": self._condition.copy(), **joined({"network": self._inner.weights()})}

    def state_dict(self) -> State:
        return {"inner": self._inner.state_dict(), "came": self._came.copy()}

    def load_state_dict(self, state: State) -> None:
        """Restore a state, also of a learner with other rows or another number of them: then all of them are still to
        come."""
        self._inner.load_state_dict(state["inner"])
        came = np.array(state["came"], np.bool_)
        self._came = came if len(came) == len(self._condition) else np.zeros(len(self._condition), np.bool_)


def on_rows(algorithm: Algorithm, rows: Sequence[PolicyCondition]) -> Conditioned:
    """Return the algorithm of a task that trains one network to play these rows."""
    return Conditioned(algorithm, np.array([row.condition for row in rows], np.float32))
