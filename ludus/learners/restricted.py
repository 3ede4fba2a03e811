"""Learning which member of a population to play at each decision: any learner of discrete actions, in a restricted game (NXDO).

algorithm, members --InRestrictedGame--> an algorithm whose actions are members and whose policies play the game itself

trajectories (actions of the game, with the extras choice and choice_logp) --as choices--> the learner of the algorithm
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from gymnasium.spaces import Discrete

from ludus.core.device import Placement, placement_of
from ludus.core.types import EnvSpec, Metrics, PolicyRef, PolicySpec, RestrictedGame, State, Weights
from ludus.learners.base import (
    Algorithm,
    Collect,
    Learner,
    LearnerContext,
    Priorities,
    priorities_of,
    sizes_of,
)
from ludus.policies.base import Policy
from ludus.policies.registry import CHOICE, CHOICE_LOGP
from ludus.policies.specs import choice_spec, joined, part_of
from ludus.replay.base import ItemColumns, ItemUnit, Sample, Sizes, TableSpec
from ludus.replay.trajectories import Trajectories


@dataclass(frozen=True, slots=True, eq=False)
class InRestrictedGame:
    """An `Algorithm` that learns what another one would, if playing members[k] were action k. members: each with its mode."""

    algorithm: Algorithm
    members: tuple[tuple[Policy, str], ...]

    @property
    def item(self) -> ItemUnit:
        return self.algorithm.item

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raises ScenarioError if it cannot learn there, with so many actions."""
        self.algorithm.check(self.game(env), seats)

    def collect(self) -> Collect:
        collect = self.algorithm.collect()
        return replace(collect, extras=(*collect.extras, CHOICE, CHOICE_LOGP))

    def tables(self) -> Sequence[TableSpec]:
        return self.algorithm.tables()

    def sizes(self) -> Mapping[str, Sizes]:
        """See `Sized`."""
        return sizes_of(self.algorithm)

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        return choice_spec(self.algorithm.policy(self.game(env), seats), _specs(self.members))

    def learner(self, context: LearnerContext, start: Weights | None = None) -> Learner:
        begin = None if start is None else part_of(start, "chooser")
        inner = self.algorithm.learner(replace(context, env=self.game(context.env)), begin)
        return RestrictedLearner(inner, self.members)

    def game(self, env: EnvSpec) -> EnvSpec:
        """The environment as the algorithm sees it: K actions, all legal, for everybody."""
        agents = tuple(replace(agent, action=Discrete(len(self.members))) for agent in env.agents)
        enumeration = env.enumeration
        if enumeration is not None:
            every = np.ones((len(enumeration.mask), len(self.members)), np.bool_)
            enumeration = replace(enumeration, mask=every)
        return replace(env, agents=agents, enumeration=enumeration)


class RestrictedLearner:
    """Another learner, for which picks are actions."""

    def __init__(self, inner: Learner, members: tuple[tuple[Policy, str], ...]) -> None:
        self._inner = inner
        self._weights = {str(k): member.weights() for k, (member, _) in enumerate(members)}
        self.spec = choice_spec(inner.spec, _specs(members))

    @property
    def placement(self) -> Placement:
        """Where it computes, if it says so."""
        placement: Placement = self._inner.placement  # type: ignore[attr-defined]  # not of those that know the CPU only
        return placement

    def learns_at(self, table: str) -> Placement | None:
        """See `ludus.core.device.placement_of`."""
        return placement_of(self._inner, table)

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Of the picks."""
        extras = trajectories.extras
        picks = replace(trajectories, action=extras[CHOICE], logp=extras[CHOICE_LOGP], mask=None, bootstrap_mask=None)
        return self._inner.items(picks)

    def batches(self) -> Sequence[tuple[str, int]]:
        return self._inner.batches()

    def update(self, batch: Sample) -> Metrics:
        """See `Learner.update`."""
        return self._inner.update(batch)

    def priorities(self) -> Priorities:
        """See `Prioritises`."""
        return priorities_of(self._inner)

    def weights(self) -> Weights:
        return joined({"chooser": self._inner.weights(), **self._weights})

    def state_dict(self) -> State:
        return self._inner.state_dict()

    def load_state_dict(self, state: State) -> None:
        self._inner.load_state_dict(state)


def _specs(members: Sequence[tuple[Policy, str]]) -> list[tuple[PolicySpec, str]]:
    return [(member.spec, mode) for member, mode in members]


def in_restricted_game(
    algorithm: Algorithm, game: RestrictedGame, seats: tuple[int, ...], policy: Callable[[PolicyRef], Policy]
) -> InRestrictedGame:
    """The algorithm of a task that plays `seats` of a restricted game. policy: gives a frozen one."""
    return InRestrictedGame(algorithm, tuple((policy(ref), ref.mode) for ref in game.members[seats[0]]))
