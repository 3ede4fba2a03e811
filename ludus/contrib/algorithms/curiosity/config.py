"""The settings of intrinsic rewards."""

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
    """Base of rewards for what a learner has not seen yet; see the README beside this file.

    streams: "two": intrinsic rewards have a critic and a discount of their own, and do not end with an episode; "one": they are added to
    the game's.
    """

    reward_class: ClassVar[str] = ""  # module:Class of what computes rewards

    streams: Literal["one", "two"] = "two"
    gamma: float = Field(default=0.99, ge=0, lt=1)  # of intrinsic returns
    gae_lambda: float = Field(default=0.95, ge=0, le=1)  # of the second stream
    episodic: bool = False  # whether intrinsic returns end with an episode
    normalise_observations: bool = True  # running mean and deviation, clipped to ±5

    network: Body = "mlp"
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64, 64)  # of perceptrons
    activation: Literal["tanh", "relu"] = "relu"
    features: int = Field(default=64, ge=1)  # that errors are taken of

    epochs: int = Field(default=1, ge=1)  # passes over the rows of a rollout
    batch: int = Field(default=256, ge=1)  # rows of a step
    learning_rate: float = Field(default=1e-3, gt=0)
    max_gradient_norm: float = Field(default=1.0, ge=0)  # 0: not clipped
    critic_epochs: int = Field(default=4, ge=1)  # of the second stream's critic
    critic_learning_rate: float = Field(default=1e-3, gt=0)
    share: float = Field(default=1.0, gt=0, le=1)  # of the rows, that the predictor learns from

    def check(self, env: EnvSpec, seats: tuple[int, ...]) -> None:
        """Raises ScenarioError where the network cannot see what the seats see."""
        check_sight(self.network, env, seats, what=type(self).__name__)

    def build(self, context: LearnerContext, placement: Placement, *, replayed: bool, gamma: float) -> LearnedReward:
        reward: LearnedReward = resolve_name("learned reward", self.reward_class, {})(
            self, context, placement, joined=gamma if replayed else None
        )
        return reward


class RND(Curiosity):
    """Random network distillation (Burda et al. 2019): the error of a network that learns to say what a fixed random one says of the next
    observation."""

    reward_class: ClassVar[str] = "ludus.contrib.algorithms.curiosity.rnd:make_reward"


class ICM(Curiosity):
    """The intrinsic curiosity module (Pathak et al. 2017): the error with which the next observation's features are foretold from the
    action, in features that tell which action was taken."""

    reward_class: ClassVar[str] = "ludus.contrib.algorithms.curiosity.icm:make_reward"

    forward_share: float = Field(
        default=0.2, ge=0, le=1
    )  # of the forward model's loss; the rest is the inverse model's
