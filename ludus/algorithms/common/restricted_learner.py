"""Learning which member of a population to play at each decision: any learner of discrete actions, in a restricted game
(NXDO).

algorithm, members --InRestrictedGame--> an algorithm whose actions are members and whose policies play the game itself

trajectories (actions of the game, with the extras choice and choice_logp) --as choices--> the learner of the algorithm
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from gymnasium.spaces import Discrete

from ludus.algorithms.common.base import (
    Algorithm,
    CollectConfig,
    Learner,
    LearnerContext,
)
from ludus.algorithms.common.delegating import AlgorithmWrapper, LearnerWrapper
from ludus.core.types import EnvSpec, PolicyRef, PolicySpec, RestrictedGame, Weights
from ludus.policies.base import Policy
from ludus.policies.registry import CHOICE, CHOICE_LOGP
from ludus.policies.specs import choice_spec, joined, part_of
from ludus.replay.base import ItemColumns
from ludus.replay.trajectories import Trajectories


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
