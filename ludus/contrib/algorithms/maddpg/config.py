"""MADDPG's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from gymnasium.spaces import Box, Discrete
from pydantic import Field

from ludus.algorithms.common.base import AlgorithmInfo, CollectConfig
from ludus.algorithms.common.config import Schedule, Scheduled
from ludus.algorithms.common.space_checks import (
    NormalizeRewards,
    UnsupportedSpace,
    check_state,
    check_team,
    discrete,
    one_space,
    players_of,
    team_size,
)
from ludus.algorithms.off_policy.config import OffPolicy, box_policy
from ludus.core.types import EnvSpec, PolicySpec
from ludus.policies.specs import mlp_spec
from ludus.replay.base import ItemUnit, Sizes, TableSpec


class MADDPG(OffPolicy):
    """Decentralised actors with a central critic of the team (Lowe et al. 2017); see the README beside it. See
    `OffPolicy` for the inherited options.

    Attributes:
        critic: What the critic sees in addition to all agents' actions: all "observations", or the environment's
            "state".
        noise: Standard deviation of exploration noise for actions in a box, in [-1, 1].
        temperature: Temperature of the Gumbel-softmax through which gradients of discrete actions flow; 0.5 to 1.
        output_penalty: Weight of the mean square of the actor's outputs, as in the authors' code.
        twin: Whether there are two critics, whose minimum targets use, as in TD3.
        normalise_rewards: How: "standardise" subtracts the mean and divides by the deviation; "scale" or "none" where
            actions determine the length of episodes.
        capacity: Joint steps in the replay table.
        batch: Joint steps per update.
        polyak: Share by which target networks move per update; 0.01 in the paper.
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("box", "discrete"), data="off-policy", recurrent=False, masks=True, paper="Lowe et al. 2017"
    )
    learner_class: ClassVar[str] = "ludus.contrib.algorithms.maddpg.learner:MADDPGLearner"
    takes_added: ClassVar[bool] = False
    for_teams: ClassVar[bool] = True  # of little use to single agents

    critic: Literal["observations", "state"] = "observations"
    noise: Scheduled = Schedule(start=0.1)
    temperature: float = Field(default=1.0, gt=0)
    output_penalty: float = Field(default=1e-3, ge=0)
    twin: bool = False
    normalise_rewards: NormalizeRewards = "standardise"

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (128, 128)
    gamma: float = Field(default=0.95, ge=0, le=1)
    rollout: int = Field(default=100, ge=1)
    capacity: int = Field(default=200_000, ge=1)
    batch: int = Field(default=512, ge=1)
    updates_per_decision: float = Field(default=0.02, gt=0)
    learning_rate: Scheduled = Schedule(start=1e-3)
    polyak: float = Field(default=0.01, gt=0, le=1)
    max_gradient_norm: float = Field(default=0.5, ge=0)

    @property
    def item(self) -> ItemUnit:
        return "joint"

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise ScenarioError if a player's actions are neither discrete nor a box with finite bounds, if the game is
        compiled, and if the critic needs a state that the environment does not have."""
        name = type(self).__name__
        check_team(env, algorithm=name)
        for player in players_of(env, seats):
            self.policy(env, (player,))
        if self.critic == "state":
            check_state(env, algorithm=name, instead="critic=observations, which needs none")

    def collect(self) -> CollectConfig:
        return replace(super().collect(), state=self.critic == "state")

    def tables(self) -> Sequence[TableSpec]:
        return (self.replay_table(capacity=self.capacity),)

    def sizes(self) -> Mapping[str, Sizes]:
        """Return the batch size; the joint steps of a rollout are not known."""
        return self.replay_sizes(insert=None, batch=self.batch)

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        name = type(self).__name__
        team_size(env, seats, algorithm=name)
        observation, action = one_space(env, seats, algorithm=name)
        if isinstance(action, Discrete):
            inputs, actions = discrete(env, seats, algorithm=name)
            return mlp_spec(
                inputs=inputs, actions=actions, hidden=self.hidden, activation=self.activation, value="none"
            )
        if not isinstance(action, Box) or action.dtype.kind != "f":
            raise UnsupportedSpace(
                f"{name} needs discrete actions, or continuous ones (a Box of floats); {env.id} has {observation} -> {action}."
            )
        return box_policy(self, {"kind": "point"}, env, seats)
