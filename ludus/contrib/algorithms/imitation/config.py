"""Configurations of adversarial imitation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from ludus.algorithms.rewards.base import LearnedReward, LearnedRewardOptions, check_sight
from ludus.core.errors import ConfigError
from ludus.core.parts import resolve_name
from ludus.core.types import EnvSpec
from ludus.policies.specs import Body

if TYPE_CHECKING:
    from ludus.algorithms.common.base import LearnerContext
    from ludus.backend.device import Placement


class Adversarial(LearnedRewardOptions):
    """Base of rewards for acting as was recorded: a discriminator learns to tell a policy's decisions from those of a
    file; see the README beside this file. See `LearnedRewardOptions` for the coefficients.

    Attributes:
        extrinsic: Coefficient of the game's own rewards; 0: only imitation.
        demonstrations: Path of the file, written by `ludus record --trajectories`.
        policies: Policies whose decisions count, as the file names them, or "@…" for a name of any run; (): all.
        episodes: Number of first episodes to use; None: all.
        actions: Whether the discriminator sees actions in addition to observations.
        absorbing: Whether an episode that terminates continues in an absorbing state that is discriminated, too, and
            whose discounted rewards the last decision receives (Kostrikov et al. 2019): the length of episodes is then
            imitated, whatever the rewards' sign.
        normalise_observations: Whether observations are normalised by running mean and deviation of both sides, clipped
            to ±5.
        network: Body of the discriminator: "mlp", "nature", "impala", or a custom module `module:Class`.
        hidden: Widths of the discriminator's hidden layers.
        activation: Nonlinearity of the discriminator.
        gradient_penalty: Weight of (‖∇‖ - 1)² between both sides' decisions (Gulrajani et al. 2017); 0: none.
        spectral: Whether layers are divided by their largest singular value (Miyato et al. 2018).
        epochs: Passes over the rows of a rollout, with as many of the file's.
        batch: Rows of either side per gradient step.
        learning_rate: Step size of Adam; 1e-4 to 1e-3.
        max_gradient_norm: Norm to which the gradient is scaled down; 0: it is not clipped.
    """

    reward_class: ClassVar[str] = ""  # module:Class of what computes rewards

    on_policy: ClassVar[bool] = True

    extrinsic: float = Field(default=0.0, ge=0)

    demonstrations: str
    policies: tuple[str, ...] = ()
    episodes: int | None = Field(default=None, ge=1)
    actions: bool = True
    absorbing: bool = False
    normalise_observations: bool = True

    network: Body = "mlp"
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "tanh"
    gradient_penalty: float = Field(default=0.0, ge=0)
    spectral: bool = False

    epochs: int = Field(default=10, ge=1)
    batch: int = Field(default=256, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    max_gradient_norm: float = Field(default=1.0, ge=0)

    @property
    def discounted(self) -> bool:
        """See the base."""
        return self.absorbing

    def check(self, env: EnvSpec, seats: tuple[int, ...]) -> None:
        """Raise ScenarioError if the network cannot see the seats' observations, ConfigError or DataError for a file
        that does not fit the environment and the seats or cannot be read."""
        from ludus.contrib.algorithms.imitation.expert import expert_steps

        check_sight(self.network, env, seats, what=type(self).__name__)
        expert_steps(Path(self.demonstrations), env, seats, policies=self.policies, episodes=self.episodes)

    def check_recorded(self, settings: Mapping[str, Any]) -> None:
        """Raise ConfigError for a file of an environment with other wrappers or options, as far as it records them;
        DataError for one that cannot be read."""
        from ludus.contrib.algorithms.bc.demonstrations import check_environment
        from ludus.replay.parquet import read_trajectories

        try:
            check_environment(read_trajectories(Path(self.demonstrations)).origin, settings)
        except ConfigError as error:
            raise ConfigError(f"learned_reward.demonstrations {self.demonstrations!r}: {error}") from None

    def build(self, context: LearnerContext, placement: Placement, *, replayed: bool, gamma: float) -> LearnedReward:
        reward: LearnedReward = resolve_name("learned reward", self.reward_class, {})(
            self, context, placement, gamma=gamma
        )
        return reward


class GAIL(Adversarial):
    """Generative adversarial imitation learning (Ho and Ermon 2016): D(s, a) is the probability that a decision is the
    file's. See `Adversarial` for the inherited options.

    Attributes:
        form: Form of rewards: "positive": -log(1 - D), as in the paper; "negative": log D; "logit": log D - log(1 - D).
    """

    reward_class: ClassVar[str] = "ludus.contrib.algorithms.imitation.reward:GAILReward"

    form: Literal["positive", "negative", "logit"] = "positive"


class AIRL(Adversarial):
    """Adversarial inverse reinforcement learning (Fu et al. 2018): D = exp f / (exp f + π(a|s)), where f = g + γ h(s')
    - h(s), with the learner's γ. See `Adversarial` for the inherited options; `actions` is whether g sees them:
    without, it can be a reward in other dynamics, too.

    Attributes:
        form: Form of rewards: "difference": f - log π = log D - log(1 - D), as in the paper; "shaped": f; "unshaped":
            g.
    """

    reward_class: ClassVar[str] = "ludus.contrib.algorithms.imitation.reward:AIRLReward"

    memoryless: ClassVar[bool] = True

    form: Literal["difference", "shaped", "unshaped"] = "difference"
