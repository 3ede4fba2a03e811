"""Options that actor-critic algorithms with replay share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from ludus.algorithms.common.base import CollectConfig
from ludus.algorithms.common.config import ReplayOptions, Schedule, Scheduled
from ludus.algorithms.common.space_checks import box, byte_scale, needs_images, one_space, players_of
from ludus.core.types import EnvSpec, PolicySpec
from ludus.policies.specs import Body, action_config, actor_critic_spec, body_config
from ludus.replay.base import ItemUnit, Sizes, TableSpec


class OffPolicy(ReplayOptions):
    """Base of actor-critic algorithms that learn from replayed decisions. See `ReplayOptions` for replay's options.

    Attributes:
        hidden: Widths of the hidden layers of the actor and of each critic; two of 256 is usual for continuous control.
        activation: Nonlinearity of the perceptrons.
        gamma: Discount per own decision; 0.95 to 0.999.
        n_step: Own decisions whose rewards a target sums before it bootstraps; fewer at the end of a rollout.
        rollout: What is collected between two rounds of updates, in `rollout_unit`; 1 as in the papers.
        rollout_unit: Unit of `rollout`.
        capacity: Decisions in the replay table; 1e5 to 1e6.
        start_decisions: Decisions before the first update; uniformly random ones unless it starts from a policy.
        batch: Decisions per update; 100 to 512.
        updates_per_decision: Updates per collected decision; 1 as in the papers.
        importance: Exponent of the importance weights, if rows are sampled by priority.
        learning_rate: Step size of Adam for the actor, and for the critics unless `critic_learning_rate` is given; 1e-4
            to 1e-3.
        critic_learning_rate: Step size for the critics; None: `learning_rate`.
        polyak: Share by which target networks move per update; 0.001 to 0.01.
        max_gradient_norm: Norm to which the gradients of each network are scaled down; 0: they are not clipped.
        scale_rewards: Whether rewards are divided by the largest utility, if `utility_range` is finite.
    """

    takes_added: ClassVar[bool] = True
    takes_learned_rewards: ClassVar[bool] = True

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (256, 256)
    activation: Literal["tanh", "relu"] = "relu"
    gamma: float = Field(default=0.99, ge=0, le=1)
    n_step: int = Field(default=1, ge=1)

    rollout: int = Field(default=1, ge=1)
    rollout_unit: Literal["episodes", "decisions"] = "decisions"
    capacity: int = Field(default=1_000_000, ge=1)
    start_decisions: int = Field(default=1000, ge=1)
    batch: int = Field(default=256, ge=1)
    updates_per_decision: float = Field(default=1.0, gt=0)
    importance: Scheduled = Schedule(start=0.4)

    learning_rate: Scheduled = Schedule(start=3e-4)
    critic_learning_rate: Scheduled | None = None
    polyak: float = Field(default=0.005, gt=0, le=1)
    max_gradient_norm: float = Field(default=0.0, ge=0)
    scale_rewards: bool = True

    @model_validator(mode="after")
    def _check(self) -> OffPolicy:
        if self.start_decisions > self.capacity:
            raise ValueError(
                f"start_decisions {self.start_decisions} must be at most the capacity {self.capacity}, or no update is ever due"
            )
        if self.rollout_unit == "decisions" and self.n_step > self.rollout:
            raise ValueError(
                f"n_step {self.n_step} is more than the {self.rollout} decisions of a rollout, where targets end; raise rollout to many "
                "times n_step, for each environment"
            )
        return self

    @property
    def item(self) -> ItemUnit:
        return "decision"

    def collect(self) -> CollectConfig:
        return CollectConfig(
            self.rollout_unit, self.rollout, publish_every=self.publish_every, processing=self.processing
        )

    def tables(self) -> Sequence[TableSpec]:
        return (self.replay_table(capacity=self.capacity, min_size=self.start_decisions),)

    @property
    def warm_up_option(self) -> str:
        """Return the same as `ReplayOptions`."""
        return "start_decisions"

    def sizes(self) -> Mapping[str, Sizes]:
        """Return the sizes: inserts are known where decisions are collected."""
        insert = self.rollout if self.rollout_unit == "decisions" else None
        return self.replay_sizes(insert=insert, batch=self.batch)


class BoxOffPolicy(OffPolicy):
    """Base of `OffPolicy` algorithms whose actions are in a box.

    Attributes:
        network: Body of the actor and of each critic: "mlp", "nature", "impala", or a custom module `module:Class`.
    """

    head: ClassVar[Mapping[str, Any]]  # of the actor; `ludus.policies.heads`

    network: Body = "mlp"

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise ScenarioError if a player's actions are not a box with finite bounds."""
        for player in players_of(env, seats):
            self.policy(env, (player,))

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        return box_policy(self, self.head, env, seats, network=self.network)


def box_policy(
    algorithm: OffPolicy, head: Mapping[str, Any], env: EnvSpec, seats: tuple[int, ...], *, network: Any = "mlp"
) -> PolicySpec:
    """Return the spec of a network with this head for the box of actions of the seats."""
    name = type(algorithm).__name__
    box(env, seats, algorithm=name)
    action = {**action_config(one_space(env, seats, algorithm=name)[1]), **head}
    return seeing_policy(algorithm, action, env, seats, network=network)


def seeing_policy(
    algorithm: OffPolicy, action: Mapping[str, Any], env: EnvSpec, seats: tuple[int, ...], *, network: Any
) -> PolicySpec:
    """Return the spec of a network without a value for the observations of the seats, flattened for perceptrons."""
    name, body = type(algorithm).__name__, body_config(network, algorithm.hidden, algorithm.activation)
    observation, _ = one_space(env, seats, algorithm=name)
    shape = tuple(observation.shape or ()) if env.enumeration is None else env.enumeration.observation.shape[1:]
    if network == "mlp":
        return actor_critic_spec(shape=(math.prod(shape),), action=action, body=body, value="none")
    needs_images(shape, network=network, algorithm=name, option="network", env_id=env.id)
    scale = byte_scale(env, observation)
    return actor_critic_spec(shape=shape, action=action, body=body, value="none", scale=scale)
