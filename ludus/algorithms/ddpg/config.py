"""Configurations of DDPG, TD3 and Ape-X DDPG."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field, model_validator

from ludus.algorithms.common.base import AlgorithmInfo, CollectConfig
from ludus.algorithms.common.config import BEST, NO_PRIORITIES, TAKEN, InitialPriority, Schedule, Scheduled
from ludus.algorithms.off_policy.config import BoxOffPolicy, box_policy
from ludus.core.types import EnvSpec, PolicySpec
from ludus.policies.specs import actor_values_spec


class DDPG(BoxOffPolicy):
    """Deep deterministic policy gradient (Lillicrap et al. 2016), with TD3's parts as switches; see the README beside
    it. See `BoxOffPolicy` and `OffPolicy` for the inherited options.

    Attributes:
        learning_rate: Step size of Adam; 1e-3 in the authors' TD3 code, for both networks.
        noise: Standard deviation of Gaussian exploration noise, for actions in [-1, 1]; 0.1 to 0.3.
        twin: Whether there are two critics, whose minimum targets use.
        policy_delay: Updates of the critics per update of the actor and of the targets.
        target_noise: Standard deviation of the noise that smooths target actions; 0: none.
        target_clip: Largest magnitude of that noise.
        noise_spread: Environment i of N explores with noise^(1 + noise_spread i / (N - 1)); 0: all with `noise`.
        initial_priority: Priority of new rows: "largest" so far, or their "error", computed by the workers (Ape-X).
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("box",), data="off-policy", recurrent=False, masks=False, paper="Lillicrap et al. 2016"
    )
    learner_class: ClassVar[str] = "ludus.algorithms.ddpg.learner:DDPGLearner"

    head: ClassVar[Mapping[str, Any]] = {"kind": "point"}

    learning_rate: Scheduled = Schedule(start=1e-3)
    noise: Scheduled = Schedule(start=0.1)
    twin: bool = False
    policy_delay: int = Field(default=1, ge=1)
    target_noise: float = Field(default=0.0, ge=0)
    target_clip: float = Field(default=0.5, gt=0)
    noise_spread: float = Field(default=0.0, ge=0)
    initial_priority: InitialPriority = "largest"

    @model_validator(mode="after")
    def _check_actors(self) -> DDPG:
        if self.noise_spread and self.noise.largest > 1.0:
            raise ValueError(
                f"noise_spread raises the noise to powers from 1 on, and the noise goes up to {self.noise.largest:g}; give 1 at most"
            )
        if self.initial_priority == "error" and not self.prioritised:
            raise ValueError(NO_PRIORITIES)
        if self.initial_priority == "error" and self.network != "mlp":
            raise ValueError(
                "with initial_priority=error workers evaluate the critics, which they can where these are perceptrons; leave network at mlp"
            )
        return self

    def collect(self) -> CollectConfig:
        collect = replace(super().collect(), place=self.noise_spread > 0)
        if self.initial_priority == "largest":
            return collect
        return replace(collect, extras=(TAKEN, BEST), bootstrap_value=BEST)

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        actor = self.actor(env, seats)
        if self.initial_priority == "largest":
            return actor
        return actor_values_spec(actor, hidden=self.hidden, activation=self.activation, critics=1 + self.twin)

    def actor(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        """Return the spec of the acting network, without critics."""
        spread = {"spread": self.noise_spread} if self.noise_spread else {}
        return box_policy(self, {**self.head, **spread}, env, seats, network=self.network)


class TD3(DDPG):
    """Twin delayed DDPG (Fujimoto, van Hoof and Meger 2018): DDPG with all its switches on, at the paper's values. See
    `DDPG` for the options.

    Attributes:
        twin: Whether there are two critics; True.
        policy_delay: Updates of the critics per update of the actor.
        target_noise: Standard deviation of the noise of target actions; the others are those of `DDPG`.
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("box",), data="off-policy", recurrent=False, masks=False, paper="Fujimoto et al. 2018"
    )

    twin: bool = True
    policy_delay: int = Field(default=2, ge=1)
    target_noise: float = Field(default=0.2, ge=0)


class ApeXDDPG(DDPG):
    """Prioritised DDPG with 5-step targets whose environments explore with different noise and whose rows arrive with
    priorities (Horgan et al. 2018, section 4.2). Meant for `mode: async`. See `DDPG` for the options.

    Attributes:
        n_step: Own decisions whose rewards a target sums; 5.
        rollout: What is collected between two rounds of updates.
        priority_exponent: Exponent of errors in replay's priorities.
        initial_priority: Priority of new rows: the "largest" so far, or their "error", computed by the workers.
        noise: Standard deviation, of the environment that explores most.
        noise_spread: How much the environments' noises differ; the others are those of `DDPG`.
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("box",), data="off-policy", recurrent=False, masks=False, paper="Horgan et al. 2018"
    )

    n_step: int = Field(default=5, ge=1)
    rollout: int = Field(default=400, ge=1)
    priority_exponent: float = Field(default=0.6, ge=0, le=1)
    initial_priority: InitialPriority = "error"
    noise: Scheduled = Schedule(start=0.4)
    noise_spread: float = Field(default=7.0, ge=0)
