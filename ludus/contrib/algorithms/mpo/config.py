"""Settings of MPO and V-MPO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from gymnasium.spaces import Discrete
from pydantic import Field, model_validator

from ludus.algorithms.common.base import AlgorithmInfo
from ludus.algorithms.common.schedule import Schedule, Scheduled
from ludus.algorithms.common.space_checks import discrete, one_space, players_of
from ludus.algorithms.off_policy.config import OffPolicy, box_policy, seeing_policy
from ludus.algorithms.on_policy.config import PolicyGradient
from ludus.core.config import refuse_unread
from ludus.core.types import EnvSpec, PolicySpec
from ludus.policies.specs import Body

if TYPE_CHECKING:
    pass


class MPO(OffPolicy):
    """Maximum a posteriori policy optimisation (Abdolmaleki et al. 2018) with decoupled trust regions (Abdolmaleki et al. 2018, "Relative
    entropy regularized policy iteration"); see the README beside it."""

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("box", "discrete"), data="off-policy", recurrent=False, masks=True, paper="Abdolmaleki et al. 2018"
    )
    learner_class: ClassVar[str] = "ludus.contrib.algorithms.mpo.learner:make_learner"
    head: ClassVar[Mapping[str, Any]] = {"kind": "tanh", "log_std": [-10.0, 2.0], "warm_up": True}  # in a box

    network: Body = "mlp"  # what the actor, and each critic, sees with
    twin: bool = False  # two critics, of which the lesser counts
    samples: int = Field(default=20, ge=2)  # actions in a box that the E-step compares in each state
    target_samples: int = Field(default=5, ge=1)  # and those that stand for the next state's value
    target_period: int = Field(default=100, ge=0)  # updates between copies of the targets; 0: they follow by polyak

    epsilon: float = Field(default=0.1, gt=0)  # nats by which the E-step's policy may differ from the target policy
    epsilon_mean: float = Field(default=2.5e-3, gt=0)  # and the actor's, by means alone, per entry of an action
    epsilon_std: float = Field(default=1e-6, gt=0)  # by standard deviations alone
    epsilon_policy: float = Field(default=2.5e-3, gt=0)  # of discrete actions, by all
    per_dimension: bool = True  # a bound and a multiplier for each entry of an action; no: one for their sum

    temperature: float = Field(default=10.0, gt=0)  # the multiplier of epsilon, at first
    alpha_mean: float = Field(default=10.0, gt=0)  # those of the other three
    alpha_std: float = Field(default=1000.0, gt=0)
    alpha_policy: float = Field(default=3.0, gt=0)
    dual_learning_rate: Scheduled = Schedule(start=1e-2)  # of the multipliers

    @model_validator(mode="after")
    def _check_read(self) -> Self:
        refuse_unread(self, {"polyak": (self.target_period == 0, "target_period=0")})
        return self

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raises ScenarioError if some player's actions are neither discrete nor a box with finite bounds."""
        for player in players_of(env, seats):
            self.policy(env, (player,))

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        name = type(self).__name__
        if env.enumeration is None and not isinstance(one_space(env, seats, algorithm=name)[1], Discrete):
            return box_policy(self, self.head, env, seats, network=self.network)
        _, actions = discrete(env, seats, algorithm=name)
        return seeing_policy(self, {"kind": "categorical", "actions": actions}, env, seats, network=self.network)


class VMPO(PolicyGradient):
    """On-policy maximum a posteriori policy optimisation (Song et al. 2020): the policy is fitted to the better half of what it did, each
    action weighted by its advantage, within a trust region; see the README beside it."""

    about: ClassVar[AlgorithmInfo] = replace(PolicyGradient.about, paper="Song et al. 2020")
    model_class: ClassVar[str] = "ludus.contrib.algorithms.mpo.vmpo:VMPOModel"

    value_network: Literal["shared", "separate", "central"] = "shared"
    batch: int = Field(default=2048, ge=1)  # what one update learns from, in batch_unit
    batch_unit: Literal["episodes", "decisions"] = "decisions"
    epochs: int = Field(default=10, ge=1)
    minibatches: int = Field(default=8, ge=1)
    learning_rate: Scheduled = Schedule(start=1e-3)  # of the multipliers, too
    gamma: float = Field(default=0.99, ge=0, le=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    value_coefficient: float = Field(default=1.0, ge=0)
    correction: Literal["none"] = "none"  # rows of older weights count as they are

    top: float = Field(default=0.5, gt=0, le=1)  # share of a batch's rows, by advantage, that the policy is fitted to
    epsilon: float = Field(default=0.01, gt=0)  # nats by which their weights may differ from equal ones
    epsilon_policy: float = Field(default=0.01, gt=0)  # and the policy from the one that acted
    epsilon_mean: float = Field(default=0.01, gt=0)  # of actions in a box, by means alone
    epsilon_std: float = Field(default=5e-5, gt=0)  # and by standard deviations alone
    temperature: float = Field(default=1.0, gt=0)  # the multiplier of epsilon, at first
    alpha_policy: float = Field(default=5.0, gt=0)  # those of the other three
    alpha_mean: float = Field(default=5.0, gt=0)
    alpha_std: float = Field(default=5.0, gt=0)

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raises ScenarioError if it cannot play some player's actions, or see its observations."""
        for player in players_of(env, seats):
            self.policy(env, (player,))
