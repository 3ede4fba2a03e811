"""Learned rewards: the base of their options, and the protocol between them and learners.

    rollout --> rewards of the game, and of a network that learns from the same rows --> what the policy learns from

The network belongs to the learner: one per trained policy, fed by rollouts and saved with the learner. Matches, payoffs
and the figures of a run count the game's rewards (docs/design/decisions/archive/0054), whatever a learner learns from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ludus.algorithms.common.space_checks import needs_images, one_space
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
"""An extra of rows, bool[N]: at the last of a segment, that the next observation is unknown, whatever the bootstrap observation
contains. Where observations are ids, -1 says so."""

LogProb = Callable[[Array, Array, NDArray[np.bool_] | None], Floats]
"""(observation [n, …], action [n, …], mask bool[n, A] or None) -> log π(a | s) float64[n] of the learner's policy as it is."""


@dataclass(frozen=True, slots=True, eq=False)
class LearnedRows:
    """Rewards that a policy learns from, of N rows. The policy follows weight × the learner's own advantage +
    advantage.

    Attributes:
        reward: float64[N], of the learner's own critic.
        weight: Weight of the learner's own advantage.
        advantage: float64[N], of a second stream with its own critic; None: there is one stream.
    """

    reward: Floats
    weight: float = 1.0
    advantage: Floats | None = None


class LearnedReward(Protocol):
    """The reward's networks, normalisers and optimizers. Deterministic given its context and the rows."""

    def of(self, rows: Trajectories, game: Floats, log_prob: LogProb | None = None) -> LearnedRows:
        """Return what to learn from rows, and learn from the rows, too.

        Args:
            rows: The trajectories.
            game: The game's rewards float64[N].
            log_prob: Log-probabilities of the learning policy; None: it has none.

        Raises:
            TrainingError: A number is not finite.
        """
        ...

    @property
    def metrics(self) -> Metrics:
        """Return metrics of the last rows: "game_reward" and "learned_reward", means per decision, and those of the
        kind."""
        ...

    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


class LearnedRewardOptions(Config):
    """Base of the options of learned rewards: fields are options.

    Attributes:
        on_policy: Whether it makes sense only for rows of the newest weights, or nearly.
        memoryless: Whether it needs log-probabilities of single decisions, which a network with memory does not have.
        coefficient: Coefficient of the learned rewards.
        extrinsic: Coefficient of the game's own rewards.
    """

    on_policy: ClassVar[bool] = False
    memoryless: ClassVar[bool] = False

    coefficient: float = Field(default=1.0, ge=0)  # of the learned rewards
    extrinsic: float = Field(default=1.0, ge=0)  # of the game's own

    @property
    def discounted(self) -> bool:
        """Return whether it needs a discount below 1."""
        return False

    @property
    def from_recorded(self) -> bool:
        """Return whether it learns from decisions that were recorded elsewhere: then a subclass overrides
        `check_recorded`."""
        return type(self).check_recorded is not LearnedRewardOptions.check_recorded

    def check(self, env: EnvSpec, seats: tuple[int, ...]) -> None:
        """Raise ScenarioError or ConfigError if it cannot compute rewards for the players `seats` in this environment."""

    def check_recorded(self, settings: Mapping[str, Any]) -> None:
        """Raise ConfigError if recorded decisions are of another environment. settings: id, wrappers and options of the
        `Environment` that is learned in, which no spec has."""

    def build(self, context: LearnerContext, placement: Placement, *, replayed: bool, gamma: float) -> LearnedReward:
        """Return a new reward, from the context's seed, on its learner's device.

        Args:
            context: Context of the learner.
            placement: Its device and backend.
            replayed: Whether rewards are fixed when rows are inserted into a table that is sampled repeatedly, so that
                there is one stream.
            gamma: The learner's discount.
        """
        raise NotImplementedError(f"{type(self).__name__} must say what computes its rewards, in a method `build`.")


def check_sight(network: Body, env: EnvSpec, seats: tuple[int, ...], *, what: str) -> None:
    """Raise ScenarioError if a network cannot see the observations in these seats, or these differ."""
    observation, _ = one_space(env, seats, algorithm=what)
    shape = tuple(observation.shape or ()) if env.enumeration is None else env.enumeration.observation.shape[1:]
    needs_images(shape, network=network, algorithm=what, option="learned_reward.network", env_id=env.id)


def refuse_recorded(algorithm: object, *, why: str) -> None:
    """Raise ScenarioError if an algorithm's learned reward compares decisions with recorded ones, which are the game's
    own. why: what the algorithm observes or decides instead, and what to do, as sentences."""
    learned = getattr(algorithm, "learned_reward", None)
    if learned is not None and learned.from_recorded:
        raise ScenarioError(
            f"learned_reward {qualified_name(learned)} compares decisions with those of a file, whose observations and actions are the "
            f"game's. {why}"
        )
