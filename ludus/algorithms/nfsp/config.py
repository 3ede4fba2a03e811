"""Configuration of neural fictitious self-play."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from ludus.algorithms.common.base import RESERVOIR, AlgorithmInfo, CollectConfig, Learner, LearnerContext, Warmup
from ludus.algorithms.common.config import Schedule, Scheduled, check_learned_reward
from ludus.algorithms.common.space_checks import byte_scale, discrete, one_space, players_of
from ludus.algorithms.dqn.config import DQN
from ludus.core.config import Config
from ludus.core.errors import ScenarioError
from ludus.core.parts import resolve_name
from ludus.core.types import EnvSpec, PolicySpec, Weights
from ludus.envs.base import VectorEnv
from ludus.policies.specs import mlp_spec, nfsp_spec
from ludus.replay.base import ItemUnit, Sizes, TableSpec


def _best_response() -> DQN:
    return DQN(
        capacity=200_000,
        epsilon=Schedule(start=0.06, end=0.0),
        learning_rate=Schedule(start=3e-3, end=5e-4),
        target_period=200,
    )


class NFSP(Config):
    """Neural fictitious self-play (Heinrich and Silver 2016): a best response to the others' average play, by
    Q-learning, and the average of past best responses, by imitation. See the README beside this file.

    Attributes:
        best_response: Options of `DQN`, which also determine how much is collected and replayed. Those that are left
            out differ from DQN's defaults: epsilon from 0.06, since the reservoir must hold no random play.
        anticipation: η: share of the episodes in which the best response plays; 0.1 in the paper.
        hidden: Widths of the hidden layers of the average policy.
        activation: Nonlinearity of the average policy.
        reservoir: Capacity of the reservoir, a uniform sample of all decisions of the best response; 2e6 in the paper.
        min_size: Decisions in the reservoir before the first imitation step.
        batch: Decisions per imitation step.
        updates_per_decision: Imitation steps per collected decision.
        learning_rate: Step size of Adam for imitation.
        max_gradient_norm: Norm to which the gradient is scaled down; 0: it is not clipped.
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("discrete",), data="off-policy", recurrent=False, masks=True, paper="Heinrich and Silver 2016"
    )
    learner_class: ClassVar[str] = "ludus.algorithms.nfsp.learner:NFSPLearner"

    best_response: DQN = Field(default_factory=_best_response)
    anticipation: float = Field(default=0.1, gt=0, le=1)

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "relu"
    reservoir: int = Field(default=2_000_000, ge=1)
    min_size: int = Field(default=1000, ge=1)
    batch: int = Field(default=2048, ge=1)
    updates_per_decision: float = Field(default=0.02, gt=0)
    learning_rate: Scheduled = Schedule(start=2e-3, end=2e-4)
    max_gradient_norm: float = Field(default=0.0, ge=0)

    @field_validator("best_response", mode="before")
    @classmethod
    def _filled(cls, value: Any) -> Any:
        """Return complete DQN's options: its own defaults are for learning alone, and their epsilon of 1 would fill the
        reservoir with random play."""
        if not isinstance(value, Mapping):
            return value
        usual = _best_response()
        part = DQN(**{**{key: getattr(usual, key) for key in usual.model_fields_set}, **value})
        part.model_fields_set.intersection_update(value)  # the rest was not given
        return part

    @model_validator(mode="after")
    def _check_sizes(self) -> NFSP:
        if self.best_response.initial_priority != "largest":
            raise ValueError(
                "rows of NFSP's best response come without priorities, since most of them are the average policy's; leave "
                "best_response.initial_priority at largest"
            )
        if self.best_response.epsilon_spread > 0.0:
            raise ValueError(
                f"best_response.epsilon_spread is {self.best_response.epsilon_spread:g}, and most of NFSP's episodes are played by the "
                "average policy, which does not explore; leave best_response.epsilon_spread at 0"
            )
        if self.min_size > self.reservoir:
            raise ValueError(f"min_size {self.min_size} must be at most the reservoir's {self.reservoir}")
        return self

    @property
    def item(self) -> ItemUnit:
        return "decision"

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise ScenarioError if a player's actions are not discrete, or it sees bytes, which only the best response
        would scale."""
        for player in players_of(env, seats):
            discrete(env, (player,), algorithm="NFSP")
            observation, _ = one_space(env, (player,), algorithm="NFSP")
            if byte_scale(env, observation) != 1.0:
                raise ScenarioError(
                    f"NFSP imitates from observations as they are; in {env.id} player {player} sees {observation}. Put the wrapper "
                    "scale_observation around it."
                )
        self.best_response.check(env, seats)
        check_learned_reward(self.best_response, env, seats or tuple(range(env.num_players)))

    def check_start(self, env: VectorEnv) -> None:
        """Raise ScenarioError if the best response cannot start."""
        self.best_response.check_start(env)

    def collect(self) -> CollectConfig:
        modes = (("best_response", self.anticipation), ("average", 1.0 - self.anticipation))
        return replace(self.best_response.collect(), modes=modes)

    def warm_up(self) -> Warmup:
        """Return the best response's warm-up: what it plays is what the average imitates."""
        return replace(self.best_response.warm_up(), part="best_response")

    def tables(self) -> Sequence[TableSpec]:
        limiter = {"min_size": self.min_size}
        return (
            *self.best_response.tables(),
            TableSpec(RESERVOIR, "reservoir", capacity=self.reservoir, limiter=limiter),
        )

    def sizes(self) -> Mapping[str, Sizes]:
        """Return the sizes of the replay table; how many decisions are the best response's is random."""
        return self.best_response.sizes()

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        inputs, actions = discrete(env, seats, algorithm="NFSP")
        average = mlp_spec(inputs=inputs, actions=actions, hidden=self.hidden, activation=self.activation, value="none")
        return nfsp_spec(self.best_response.policy(env, seats), average)

    def learner(self, context: LearnerContext, start: Weights | None = None) -> Learner:
        if context.ranks.size > 1:
            raise ScenarioError(
                f"NFSP was given {context.ranks.size} ranks, and learns with one; leave runtime.trainers out, or use mmd."
            )
        learner: Learner = resolve_name("learner", self.learner_class, {})(self, context, start)
        return learner
