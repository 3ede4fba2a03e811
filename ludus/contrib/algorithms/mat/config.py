"""The settings of MAT and MAT-Dec."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ludus.algorithms.common.base import AlgorithmInfo
from ludus.algorithms.common.config import Schedule, Scheduled
from ludus.algorithms.common.space_checks import action_of, byte_scale, check_team, one_space, players_of, team_size
from ludus.algorithms.on_policy.config import Gradient
from ludus.core.errors import ScenarioError
from ludus.core.types import EnvSpec, PolicySpec
from ludus.policies.specs import Decoder, team_transformer_spec
from ludus.replay.base import ItemUnit

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.algorithms.on_policy.batch import Batch


class MAT(Gradient):
    """The multi-agent transformer (Wen et al. 2022): one network for a team, whose agents act in turn, each given the
    actions of those before it; see the README beside this file.

    Defaults are those of the authors' code for particle environments, except `batch`: theirs is 3,200 environment
    steps. Observations need no agent ids: the network is passed each row's agent. See `Gradient` for the inherited
    options.

    Attributes:
        width: Units of an agent's representation; 64 in the paper.
        layers: Blocks of the encoder, and of the decoder.
        heads: Attention heads; they divide the width.
        layer_norm: Whether each observation is layer-normalised, which removes its mean and scale; False where these
            carry information.
        continuous: Distribution of actions in a box: "gaussian" is clipped to the bounds, "tanh" is squashed into them.
        initial_std: Initial standard deviation of "gaussian", where the bounds are -1 and 1.
        normalise_observations: Whether observations are normalised by running mean and deviation.
        normalise_returns: Whether rewards are divided by the running deviation of discounted returns.
        entropy: Coefficient of the entropy bonus.
        clip: Range ε of the ratio in the surrogate; 0.05 in the authors' code.
        value_coefficient: Weight of the value loss.
        clip_value: Clip of the change of values in the value loss; None: not clipped.
        target_kl: An update ends once the estimated KL divergence exceeds 1.5 × this, in nats; None: no limit.
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("discrete", "multi_discrete", "box"),
        data="on-policy",
        recurrent=False,
        masks=True,
        paper="Wen et al. 2022",
    )
    model_class: ClassVar[str] = "ludus.contrib.algorithms.mat.learner:TeamModel"
    learner_class: ClassVar[str] = "ludus.contrib.algorithms.mat.learner:MATLearner"
    for_teams: ClassVar[bool] = True  # of little use to single agents
    decoder: ClassVar[Decoder] = "autoregressive"
    extra_metrics: ClassVar[tuple[str, ...]] = ("clip_fraction",)
    sequence: ClassVar[int] = 1  # decisions of an agent that are evaluated together

    width: int = Field(default=64, ge=1)
    layers: int = Field(default=1, ge=1)
    heads: int = Field(default=1, ge=1)
    layer_norm: bool = True
    continuous: Literal["gaussian", "tanh"] = "gaussian"
    initial_std: float = Field(default=1.0, ge=0.01, le=7.0)
    normalise_observations: bool = False
    normalise_returns: bool = True

    batch: int = Field(default=3200, ge=1)
    batch_unit: Literal["episodes", "decisions"] = "decisions"
    epochs: int = Field(default=10, ge=1)
    learning_rate: Scheduled = Schedule(start=7e-4)
    entropy: Scheduled = Schedule(start=0.01)
    gamma: float = Field(default=0.99, ge=0, le=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    correction: Literal["none"] = "none"
    clip: float = Field(default=0.05, gt=0)
    value_coefficient: float = Field(default=1.0, ge=0)
    clip_value: float | None = Field(default=None, gt=0)
    max_gradient_norm: float = Field(default=10.0, ge=0)
    target_kl: float | None = Field(default=None, gt=0)
    team_rewards: bool = True

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.width % self.heads:
            raise ValueError(
                f"a width of {self.width} does not fall into {self.heads} heads; give a width that is a multiple of them"
            )
        return self

    @property
    def kl_limit(self) -> float | None:
        return None if self.target_kl is None else 1.5 * self.target_kl

    @property
    def item(self) -> ItemUnit:
        return "joint"

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        """Return the policy's loss of each row [n], from its present log-probabilities."""
        from ludus.algorithms.common.losses import ppo_surrogate

        return ppo_surrogate(logp, batch.logp, batch.advantage, clip=self.clip)

    def metrics(self, logp: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """Return further metrics, each float[n]."""
        return {"clip_fraction": (((logp - batch.logp).exp() - 1.0).abs() > self.clip).to(logp.dtype)}

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise ScenarioError for a compiled game, and if it cannot play a player's actions or see its observations."""
        check_team(env, algorithm=type(self).__name__)
        for player in players_of(env, seats):
            self.policy(env, (player,))

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        """Return the spec of the network. Raise ScenarioError if it cannot play there."""
        name = type(self).__name__
        observation, space = one_space(env, seats, algorithm=name)
        action = action_of(env, space, continuous=self.continuous, algorithm=name)
        shape = tuple(observation.shape or ())
        if self.layer_norm and math.prod(shape) == 1:
            raise ScenarioError(
                f"{name} with layer_norm=true takes the mean from each observation, and of the one number that agents of {env.id} see "
                "nothing is left. Use layer_norm=false."
            )
        statistics = {"observations": self.normalise_observations, "returns": self.normalise_returns}
        return team_transformer_spec(
            team=team_size(env, seats, algorithm=name),
            shape=shape,
            action=action,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            decoder=self.decoder,
            layer_norm=self.layer_norm,
            scale=1.0 if self.normalise_observations else byte_scale(env, observation),
            normalise=[key for key, wanted in statistics.items() if wanted],
        )


class MATDec(MAT):
    """MAT with decentralised actors, perceptrons of what each agent sees; the encoder over all agents is the critic
    (Wen et al. 2022, section 4.2). See `MAT` for the options.

    Attributes:
        decoder: Fixed; the options are those of `MAT`.
    """

    decoder: ClassVar[Decoder] = "decentralised"
