"""One network for several policies, each conditioned on the meta-strategy that it responds to (NeuPL, Liu et al. 2022),
for any on-policy learner.

    algorithm, conditions --Conditioned--> an algorithm whose network sees the condition after each observation

Requests play the rows in turn (`ludus.training.collecting`); the experience is learned from once all rows have
come, so that an update is about all of them and none is forgotten for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ludus.algorithms.common.base import Algorithm, CollectConfig, Learner, LearnerContext
from ludus.algorithms.common.config import check_learned_reward
from ludus.algorithms.common.delegating import AlgorithmWrapper, LearnerWrapper
from ludus.algorithms.common.space_checks import players_of
from ludus.algorithms.rewards.base import NOTHING_AFTER, refuse_recorded
from ludus.core.errors import ScenarioError
from ludus.core.types import Array, Enumeration, EnvSpec, PolicyCondition, PolicySpec, State, Weights
from ludus.policies.registry import ROW, conditioned
from ludus.policies.specs import conditioned_spec, joined, part_of
from ludus.replay.base import ItemColumns
from ludus.replay.trajectories import Trajectories


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
        """Return nothing before all rows have come."""
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
