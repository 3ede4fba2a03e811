"""The settings of adversarial imitation."""

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
    """Base of rewards for acting as was recorded: a discriminator learns to tell a policy's decisions from those of a file; see the README
    beside this file.

    demonstrations: what `ludus record --trajectories` wrote. policies: whose decisions count, as the file names them, or "@…" for a name of
    any run; none: all. episodes: only the first so many. actions: whether the discriminator sees them beside observations.
    absorbing: an episode that terminates goes on in an absorbing state, of which the discriminator judges too, and whose rewards the last
    decision is paid for all the time to come: how long episodes last is then part of what is imitated, whatever sign rewards have.
    (Kostrikov et al. 2019.)
    """

    reward_class: ClassVar[str] = ""  # module:Class of what computes rewards

    on_policy: ClassVar[bool] = True

    extrinsic: float = Field(default=0.0, ge=0)  # of the game's own rewards

    demonstrations: str  # the file
    policies: tuple[str, ...] = ()
    episodes: int | None = Field(default=None, ge=1)
    actions: bool = True
    absorbing: bool = False  # what comes behind an end is judged and paid too
    normalise_observations: bool = True  # running mean and deviation of both sides, clipped to ±5

    network: Body = "mlp"
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64, 64)  # of the perceptron that judges
    activation: Literal["tanh", "relu"] = "tanh"
    gradient_penalty: float = Field(default=0.0, ge=0)  # weight of (‖∇‖ - 1)² between both sides' decisions
    spectral: bool = False  # layers are divided by their largest singular value

    epochs: int = Field(default=10, ge=1)  # passes over the rows of a rollout, beside as many of the file's
    batch: int = Field(default=256, ge=1)  # rows of either side in a step
    learning_rate: float = Field(default=1e-3, gt=0)
    max_gradient_norm: float = Field(default=1.0, ge=0)  # 0: not clipped

    @property
    def discounted(self) -> bool:
        """See the base."""
        return self.absorbing

    def check(self, env: EnvSpec, seats: tuple[int, ...]) -> None:
        """Raises ScenarioError where the network cannot see what the seats see, ConfigError or DataError for a file that is not of this
        environment and these seats, or cannot be read."""
        from ludus.contrib.algorithms.imitation.expert import expert_steps

        check_sight(self.network, env, seats, what=type(self).__name__)
        expert_steps(Path(self.demonstrations), env, seats, policies=self.policies, episodes=self.episodes)

    def check_recorded(self, settings: Mapping[str, Any]) -> None:
        """Raises ConfigError for a file of an environment with other wrappers or options, as far as it says; DataError for one that cannot
        be read."""
        from ludus.algorithms.bc.demonstrations import check_environment
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
    """Generative adversarial imitation learning (Ho and Ermon 2016): D(s, a) is the probability that a decision is the file's.

    form: of rewards. "positive": -log(1 - D), as in the paper; "negative": log D; "logit": log D - log(1 - D).
    """

    reward_class: ClassVar[str] = "ludus.contrib.algorithms.imitation.reward:GAILReward"

    form: Literal["positive", "negative", "logit"] = "positive"


class AIRL(Adversarial):
    """Adversarial inverse reinforcement learning (Fu et al. 2018): D = exp f / (exp f + π(a|s)), where f = g + γ h(s') - h(s).

    form: of rewards. "difference": f - log π = log D - log(1 - D), as in the paper; "shaped": f; "unshaped": g alone. γ is the learner's.
    actions: whether g sees them; without them it can be a reward elsewhere too.
    """

    reward_class: ClassVar[str] = "ludus.contrib.algorithms.imitation.reward:AIRLReward"

    memoryless: ClassVar[bool] = True

    form: Literal["difference", "shaped", "unshaped"] = "difference"
