"""Configurations of MPO and V-MPO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from gymnasium.spaces import Discrete
from pydantic import Field, model_validator

from ludus.algorithms.common.base import AlgorithmInfo
from ludus.algorithms.common.config import Schedule, Scheduled
from ludus.algorithms.common.space_checks import discrete, one_space, players_of
from ludus.algorithms.off_policy.config import OffPolicy, box_policy, seeing_policy
from ludus.algorithms.on_policy.config import PolicyGradient
from ludus.core.config import refuse_unread
from ludus.core.types import EnvSpec, PolicySpec
from ludus.policies.specs import Body

if TYPE_CHECKING:
    pass


class MPO(OffPolicy):
    """Maximum a posteriori policy optimisation (Abdolmaleki et al. 2018) with decoupled trust regions (Abdolmaleki et
    al. 2018, "Relative entropy regularized policy iteration"); see the README beside it. See `OffPolicy` for the
    inherited options.

    Attributes:
        network: Body of the actor and of each critic: "mlp", "nature", "impala", or a custom module `module:Class`.
        twin: Whether there are two critics, whose minimum is used.
        samples: Actions in a box that the E-step compares per state; 20 in the paper.
        target_samples: Actions that estimate the next state's value.
        target_period: Updates between copies into the target networks; 0: they follow by `polyak`.
        epsilon: KL bound of the E-step in nats; 0.1 in the paper.
        epsilon_mean: KL bound of the actor by means only, in nats per entry of an action.
        epsilon_std: KL bound of the actor by standard deviations only.
        epsilon_policy: KL bound of a discrete policy.
        per_dimension: Whether each entry of an action has its own bound and multiplier; False: one for their sum.
        temperature: Initial multiplier of `epsilon`.
        alpha_mean: Initial multiplier of `epsilon_mean`.
        alpha_std: Initial multiplier of `epsilon_std`.
        alpha_policy: Initial multiplier of `epsilon_policy`.
        dual_learning_rate: Step size of Adam for the multipliers.
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("box", "discrete"), data="off-policy", recurrent=False, masks=True, paper="Abdolmaleki et al. 2018"
    )
    learner_class: ClassVar[str] = "ludus.contrib.algorithms.mpo.learner:make_learner"
    head: ClassVar[Mapping[str, Any]] = {"kind": "tanh", "log_std": [-10.0, 2.0], "warm_up": True}  # in a box

    network: Body = "mlp"
    twin: bool = False
    samples: int = Field(default=20, ge=2)
    target_samples: int = Field(default=5, ge=1)
    target_period: int = Field(default=100, ge=0)

    epsilon: float = Field(default=0.1, gt=0)
    epsilon_mean: float = Field(default=2.5e-3, gt=0)
    epsilon_std: float = Field(default=1e-6, gt=0)
    epsilon_policy: float = Field(default=2.5e-3, gt=0)
    per_dimension: bool = True

    temperature: float = Field(default=10.0, gt=0)
    alpha_mean: float = Field(default=10.0, gt=0)
    alpha_std: float = Field(default=1000.0, gt=0)
    alpha_policy: float = Field(default=3.0, gt=0)
    dual_learning_rate: Scheduled = Schedule(start=1e-2)

    @model_validator(mode="after")
    def _check_read(self) -> Self:
        refuse_unread(self, {"polyak": (self.target_period == 0, "target_period=0")})
        return self

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise ScenarioError if a player's actions are neither discrete nor a box with finite bounds."""
        for player in players_of(env, seats):
            self.policy(env, (player,))

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        name = type(self).__name__
        if env.enumeration is None and not isinstance(one_space(env, seats, algorithm=name)[1], Discrete):
            return box_policy(self, self.head, env, seats, network=self.network)
        _, actions = discrete(env, seats, algorithm=name)
        return seeing_policy(self, {"kind": "categorical", "actions": actions}, env, seats, network=self.network)


class VMPO(PolicyGradient):
    """On-policy maximum a posteriori policy optimisation (Song et al. 2020): the policy is fitted to the better half of
    the batch, each action weighted by its advantage, within a trust region; see the README beside it. See
    `PolicyGradient` and `Gradient` for the inherited options.

    Attributes:
        learning_rate: Step size of Adam, also for the multipliers.
        correction: How rows of older weights are corrected: they are not.
        top: Share of a batch's rows, by advantage, that the policy is fitted to; 0.5 in the paper.
        epsilon: KL bound of the rows' weights from uniform ones, in nats; 0.01 in the paper.
        epsilon_policy: KL bound of the policy from the one that acted.
        epsilon_mean: KL bound by means only, for actions in a box.
        epsilon_std: KL bound by standard deviations only.
        temperature: Initial multiplier of `epsilon`.
        alpha_policy: Initial multiplier of `epsilon_policy`.
        alpha_mean: Initial multiplier of `epsilon_mean`.
        alpha_std: Initial multiplier of `epsilon_std`.
    """

    about: ClassVar[AlgorithmInfo] = replace(PolicyGradient.about, paper="Song et al. 2020")
    model_class: ClassVar[str] = "ludus.contrib.algorithms.mpo.vmpo:VMPOModel"

    value_network: Literal["shared", "separate", "central"] = "shared"
    batch: int = Field(default=2048, ge=1)
    batch_unit: Literal["episodes", "decisions"] = "decisions"
    epochs: int = Field(default=10, ge=1)
    minibatches: int = Field(default=8, ge=1)
    learning_rate: Scheduled = Schedule(start=1e-3)
    gamma: float = Field(default=0.99, ge=0, le=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    value_coefficient: float = Field(default=1.0, ge=0)
    correction: Literal["none"] = "none"

    top: float = Field(default=0.5, gt=0, le=1)
    epsilon: float = Field(default=0.01, gt=0)
    epsilon_policy: float = Field(default=0.01, gt=0)
    epsilon_mean: float = Field(default=0.01, gt=0)
    epsilon_std: float = Field(default=5e-5, gt=0)
    temperature: float = Field(default=1.0, gt=0)
    alpha_policy: float = Field(default=5.0, gt=0)
    alpha_mean: float = Field(default=5.0, gt=0)
    alpha_std: float = Field(default=5.0, gt=0)

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise ScenarioError if it cannot play a player's actions or see its observations."""
        for player in players_of(env, seats):
            self.policy(env, (player,))
