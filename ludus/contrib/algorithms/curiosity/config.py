"""Configurations of intrinsic rewards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from ludus.algorithms.rewards.base import LearnedReward, LearnedRewardOptions, check_sight
from ludus.core.parts import resolve_name
from ludus.core.types import EnvSpec
from ludus.policies.specs import Body

if TYPE_CHECKING:
    from ludus.algorithms.common.base import LearnerContext
    from ludus.backend.device import Placement


class Curiosity(LearnedRewardOptions):
    """Base of rewards for novel observations; see the README beside this file. See `LearnedRewardOptions` for the
    coefficients.

    Attributes:
        streams: With "two" intrinsic rewards have a critic and a discount, and do not end with an episode; with "one"
            they are added to the game's.
        gamma: Discount of intrinsic returns; 0.99 in the paper.
        gae_lambda: λ of the second stream.
        episodic: Whether intrinsic returns end with an episode.
        normalise_observations: Whether observations are normalised by running mean and deviation, clipped to ±5.
        network: Body of the networks: "mlp", "nature", "impala", or a custom module `module:Class`.
        hidden: Widths of the perceptrons' hidden layers.
        activation: Nonlinearity of the perceptrons.
        features: Features whose prediction errors are rewards.
        epochs: Passes over the rows of a rollout.
        batch: Rows per gradient step.
        learning_rate: Step size of Adam; 1e-4 to 1e-3.
        max_gradient_norm: Norm to which the gradient is scaled down; 0: it is not clipped.
        critic_epochs: Passes of the second stream's critic.
        critic_learning_rate: Step size of Adam for that critic.
        share: Share of the rows that the predictor learns from; less keeps rewards alive with many environments.
    """

    reward_class: ClassVar[str] = ""  # module:Class of what computes rewards

    streams: Literal["one", "two"] = "two"
    gamma: float = Field(default=0.99, ge=0, lt=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    episodic: bool = False
    normalise_observations: bool = True

    network: Body = "mlp"
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "relu"
    features: int = Field(default=64, ge=1)

    epochs: int = Field(default=1, ge=1)
    batch: int = Field(default=256, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    max_gradient_norm: float = Field(default=1.0, ge=0)
    critic_epochs: int = Field(default=4, ge=1)
    critic_learning_rate: float = Field(default=1e-3, gt=0)
    share: float = Field(default=1.0, gt=0, le=1)

    def check(self, env: EnvSpec, seats: tuple[int, ...]) -> None:
        """Raise ScenarioError if the network cannot see the seats' observations."""
        check_sight(self.network, env, seats, what=type(self).__name__)

    def build(self, context: LearnerContext, placement: Placement, *, replayed: bool, gamma: float) -> LearnedReward:
        reward: LearnedReward = resolve_name("learned reward", self.reward_class, {})(
            self, context, placement, joined=gamma if replayed else None
        )
        return reward


class RND(Curiosity):
    """Random network distillation (Burda et al. 2019): the error with which a trained network predicts the output of a
    fixed random one for the next observation. See `Curiosity` for the options."""

    reward_class: ClassVar[str] = "ludus.contrib.algorithms.curiosity.rnd:make_reward"


class ICM(Curiosity):
    """The intrinsic curiosity module (Pathak et al. 2017): the error with which the next observation's features are
    predicted from the action, in features from which the action can be inferred. See `Curiosity` for the inherited
    options.

    Attributes:
        forward_share: β: weight of the forward model's loss; 0.2 in the paper. The rest is the inverse model's.
    """

    reward_class: ClassVar[str] = "ludus.contrib.algorithms.curiosity.icm:make_reward"

    forward_share: float = Field(default=0.2, ge=0, le=1)
