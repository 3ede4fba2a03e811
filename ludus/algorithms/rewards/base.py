"""Rewards that a network computes: the base of their options, and what learners ask of them.

    rollout --> rewards of the game, and of a network that learns from the same rows --> what the policy learns from

The network belongs to the learner: one for each policy that is trained, made of rollouts and saved with the learner. Matches, payoffs and
the figures of a run count what the game pays (docs/decisions/0054), whatever a learner is paid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ludus.algorithms.common.images import needs_images
from ludus.algorithms.common.space_checks import one_space
from ludus.core.config import Config
from ludus.core.errors import ScenarioError
from ludus.core.types import Array, EnvSpec, Metrics, State
from ludus.core.user_code import qualified_name
from ludus.policies.specs import Body
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.algorithms.common.base import LearnerContext
    from ludus.backend.device import Placement

Floats = NDArray[np.float64]

NOTHING_AFTER = "nothing_after"
"""An extra of rows, bool[N]: at the last of a segment, that nobody saw what came after it, whatever its bootstrap observation shows. Where
observations are ids, -1 says so."""

LogProb = Callable[[Array, Array, NDArray[np.bool_] | None], Floats]
"""(observation [n, …], action [n, …], mask bool[n, A] or None) -> log π(a | s) float64[n] of the learner's policy as it is."""


@dataclass(frozen=True, slots=True, eq=False)
class LearnedRows:
    """What a policy learns from, of N rows.

    reward float64[N]: of the learner's own critic. advantage float64[N]: of a second stream, whose critic is the reward's own; None: there
    is one stream. What the policy follows is weight × the learner's own advantage + advantage.
    """

    reward: Floats
    weight: float = 1.0
    advantage: Floats | None = None


class LearnedReward(Protocol):
    """Owns the reward's networks, normalisers and optimizers. Deterministic given its context and the rows."""

    def of(self, rows: Trajectories, game: Floats, log_prob: LogProb | None = None) -> LearnedRows:
        """What to learn from rows, of the game's rewards float64[N] and of learned ones; learns from the rows too. log_prob: of the policy
        that learns; None: it has none. Raises TrainingError where something is no number."""
        ...

    @property
    def metrics(self) -> Metrics:
        """Of the last rows: "game_reward" and "learned_reward", means per decision, and what the kind says."""
        ...

    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


class LearnedRewardOptions(Config):
    """Base of the options of learned rewards: fields are options.

    on_policy: whether it makes sense only where rows come from the newest weights, or nearly. memoryless: whether it asks for
    log-probabilities of single decisions, which a network with memory does not have. discounted: whether it asks for a discount below 1.
    """

    on_policy: ClassVar[bool] = False
    memoryless: ClassVar[bool] = False

    coefficient: float = Field(default=1.0, ge=0)  # of the learned rewards
    extrinsic: float = Field(default=1.0, ge=0)  # of the game's own

    @property
    def discounted(self) -> bool:
        """See the class."""
        return False

    @property
    def from_recorded(self) -> bool:
        """Whether it learns from decisions that were recorded elsewhere: then a subclass has its own `check_recorded`."""
        return type(self).check_recorded is not LearnedRewardOptions.check_recorded

    def check(self, env: EnvSpec, seats: tuple[int, ...]) -> None:
        """Raises ScenarioError or ConfigError if it cannot say rewards of what the players `seats` do in this environment."""

    def check_recorded(self, settings: Mapping[str, Any]) -> None:
        """Raises ConfigError if it learns from what was recorded elsewhere. settings: id, wrappers and options of the `Environment` that is
        learned in, which no spec tells."""

    def build(self, context: LearnerContext, placement: Placement, *, replayed: bool, gamma: float) -> LearnedReward:
        """A new one, from the context's seed, which computes where its learner does. replayed: rewards are fixed when rows are inserted
        into a table, from which they are sampled again and again, so that there is one stream. gamma: the learner's discount."""
        raise NotImplementedError(f"{type(self).__name__} must say what computes its rewards, in a method `build`.")


def check_sight(network: Body, env: EnvSpec, seats: tuple[int, ...], *, what: str) -> None:
    """Raises ScenarioError where a network cannot see what the agents in these seats do, or these differ."""
    observation, _ = one_space(env, seats, algorithm=what)
    shape = tuple(observation.shape or ()) if env.enumeration is None else env.enumeration.observation.shape[1:]
    needs_images(shape, network=network, algorithm=what, option="learned_reward.network", env_id=env.id)


def refuse_recorded(algorithm: object, *, why: str) -> None:
    """Raises ScenarioError where an algorithm's learned reward compares decisions with recorded ones, which are the game's own. why: what
    the algorithm is shown or decides instead, and what to do, as sentences."""
    learned = getattr(algorithm, "learned_reward", None)
    if learned is not None and learned.from_recorded:
        raise ScenarioError(
            f"learned_reward {qualified_name(learned)} compares decisions with those of a file, whose observations and actions are the "
            f"game's. {why}"
        )
