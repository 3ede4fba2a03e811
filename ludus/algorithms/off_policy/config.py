"""Settings that actor-critic algorithms with replay share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from ludus.algorithms.common.base import Collect
from ludus.algorithms.common.config import ReplayOptions
from ludus.algorithms.common.images import needs_images
from ludus.algorithms.common.schedule import Schedule, Scheduled
from ludus.algorithms.common.space_checks import box, byte_scale, one_space, players_of
from ludus.core.types import EnvSpec, PolicySpec
from ludus.policies.specs import Body, action_config, actor_critic_spec, body_config
from ludus.replay.base import ItemUnit, Sizes, TableSpec


class OffPolicy(ReplayOptions):
    """Base of actor-critic algorithms that learn from replayed decisions."""

    takes_added: ClassVar[bool] = True
    takes_learned_rewards: ClassVar[bool] = True

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (256, 256)  # of the actor and of each critic
    activation: Literal["tanh", "relu"] = "relu"
    gamma: float = Field(default=0.99, ge=0, le=1)
    n_step: int = Field(default=1, ge=1)  # own decisions that a target sums rewards over; fewer at the end of a rollout

    rollout: int = Field(default=1, ge=1)  # what is collected between two rounds of updates, in rollout_unit
    rollout_unit: Literal["episodes", "decisions"] = "decisions"
    capacity: int = Field(default=1_000_000, ge=1)  # decisions in the replay table
    start_decisions: int = Field(
        default=1000, ge=1
    )  # decisions before the first update; uniform ones, unless it starts from a policy
    batch: int = Field(default=256, ge=1)  # decisions per update
    updates_per_decision: float = Field(default=1.0, gt=0)
    importance: Scheduled = Schedule(start=0.4)  # of rows that are drawn by priority

    learning_rate: Scheduled = Schedule(start=3e-4)
    critic_learning_rate: Scheduled | None = None  # None: the same
    polyak: float = Field(default=0.005, gt=0, le=1)  # share by which target networks move per update
    max_gradient_norm: float = Field(default=0.0, ge=0)  # of each network; 0: not clipped
    scale_rewards: bool = True  # by the largest utility, where it is known

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

    def collect(self) -> Collect:
        return Collect(self.rollout_unit, self.rollout, publish_every=self.publish_every, processing=self.processing)

    def tables(self) -> Sequence[TableSpec]:
        return (self.replay_table(capacity=self.capacity, min_size=self.start_decisions),)

    @property
    def warm_up_option(self) -> str:
        """See `ReplayOptions`."""
        return "start_decisions"

    def sizes(self) -> Mapping[str, Sizes]:
        """Known where decisions are collected; how many an episode has is not."""
        insert = self.rollout if self.rollout_unit == "decisions" else None
        return self.replay_sizes(insert=insert, batch=self.batch)


class BoxOffPolicy(OffPolicy):
    """Base of those whose actions are the points of a box."""

    head: ClassVar[Mapping[str, Any]]  # of the actor; `ludus.policies.heads`

    network: Body = "mlp"  # what the actor, and each critic, sees with

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raises ScenarioError if some player's actions are not a box with finite bounds."""
        for player in players_of(env, seats):
            self.policy(env, (player,))

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        return box_policy(self, self.head, env, seats, network=self.network)


def box_policy(
    algorithm: OffPolicy, head: Mapping[str, Any], env: EnvSpec, seats: tuple[int, ...], *, network: Any = "mlp"
) -> PolicySpec:
    """A network with a head of this kind, for the seats' box of actions."""
    name = type(algorithm).__name__
    box(env, seats, algorithm=name)
    action = {**action_config(one_space(env, seats, algorithm=name)[1]), **head}
    return seeing_policy(algorithm, action, env, seats, network=network)


def seeing_policy(
    algorithm: OffPolicy, action: Mapping[str, Any], env: EnvSpec, seats: tuple[int, ...], *, network: Any
) -> PolicySpec:
    """A network without a value that sees the seats' observations, flat unless it is one for images, or anybody's own."""
    name, body = type(algorithm).__name__, body_config(network, algorithm.hidden, algorithm.activation)
    observation, _ = one_space(env, seats, algorithm=name)
    shape = tuple(observation.shape or ()) if env.enumeration is None else env.enumeration.observation.shape[1:]
    if network == "mlp":
        return actor_critic_spec(shape=(math.prod(shape),), action=action, body=body, value="none")
    needs_images(shape, network=network, algorithm=name, option="network", env_id=env.id)
    scale = byte_scale(env, observation)
    return actor_critic_spec(shape=shape, action=action, body=body, value="none", scale=scale)
