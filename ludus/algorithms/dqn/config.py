"""The settings that learners of action values share, DQN's, and those of its best known variants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ludus.algorithms.common.base import AlgorithmInfo, Collect
from ludus.algorithms.common.config import BEST, NO_PRIORITIES, TAKEN, InitialPriority, ReplayOptions
from ludus.algorithms.common.images import needs_images
from ludus.algorithms.common.schedule import Schedule, Scheduled
from ludus.algorithms.common.space_checks import byte_scale, discrete, one_space, players_of, reward_scale
from ludus.algorithms.on_policy.multi_agent import check_first_ids, separate_networks
from ludus.core.config import is_stored, refuse_unread
from ludus.core.errors import ScenarioError
from ludus.core.types import EnvSpec, PolicySpec
from ludus.envs.base import VectorEnv
from ludus.policies.specs import Body, Distribution, QHeadSpec, action_values_spec, body_config
from ludus.replay.base import ItemUnit, Sizes, TableSpec
from ludus.replay.processing import RewardClip, RewardScale


class QLearning(ReplayOptions):
    """Base of the settings: what is collected and replayed, the optimizer, exploration and the target network."""

    takes_learned_rewards: ClassVar[bool] = True

    body: Body = "mlp"
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64, 64)  # of the body "mlp", as its activation
    activation: Literal["tanh", "relu"] = "relu"
    share_weights: bool = True  # one network for all agents of a team; False: one for each, told apart by agent_ids
    double: bool = True
    dueling: bool = False
    n_step: int = Field(default=1, ge=1)
    gamma: float = Field(default=1.0, ge=0, le=1)

    rollout: int = Field(default=500, ge=1)  # what is collected between two rounds of updates, in rollout_unit
    rollout_unit: Literal["episodes", "decisions"] = "episodes"
    capacity: int = Field(default=100_000, ge=1)  # items in the replay table
    min_size: int = Field(default=1000, ge=1)  # decisions before the first update
    batch: int = Field(default=512, ge=1)  # items per update
    updates_per_decision: float = Field(default=0.02, gt=0)

    learning_rate: Scheduled = Schedule(start=1e-2, end=5e-4)
    epsilon: Scheduled = Schedule(start=1.0, end=0.0)
    epsilon_spread: float = Field(
        default=0.0, ge=0
    )  # environment i of N explores with epsilon^(1 + epsilon_spread i / (N - 1)); 0: all alike
    target_period: int = Field(default=50, ge=1)  # updates between copies into the target network
    polyak: float | None = Field(default=None, gt=0, le=1)  # instead: moves the target by this share per update
    huber_delta: float = Field(default=1.0, gt=0)
    max_gradient_norm: float = Field(default=10.0, ge=0)  # 0: not clipped
    scale_rewards: bool = True  # by the largest utility, where it is known

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        if self.rollout_unit == "decisions" and self.n_step > self.rollout:
            raise ValueError(
                f"n_step {self.n_step} is more than the {self.rollout} decisions of a rollout, where targets end; raise rollout to many "
                "times n_step, for each environment"
            )
        if (largest := self.epsilon.largest) > 1.0:
            raise ValueError(f"epsilon is a probability; its start and end must be at most 1 (given: {largest:g})")
        return self

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raises ScenarioError if some player's actions are not discrete, or their observations do not fit the body."""
        for player in players_of(env, seats):
            self._inputs(env, (player,))

    def check_start(self, env: VectorEnv) -> None:
        """Raises ScenarioError where agents with a network each do not show who they are."""
        if not self.share_weights:
            check_first_ids(env, algorithm=type(self).__name__)

    def collect(self) -> Collect:
        return Collect(
            self.rollout_unit,
            self.rollout,
            publish_every=self.publish_every,
            processing=self.processing,
            place=self.epsilon_spread > 0,
        )

    def tables(self) -> Sequence[TableSpec]:
        return (self.replay_table(capacity=self.capacity),)

    def sizes(self) -> Mapping[str, Sizes]:
        """How many items a rollout has is not known."""
        return self.replay_sizes(insert=None, batch=self.batch)

    def _networks(self, env: EnvSpec, seats: tuple[int, ...]) -> int:
        """How many the agents of a player have between them. Raises ScenarioError if they cannot be told apart."""
        return 1 if self.share_weights else separate_networks(env, seats, algorithm=type(self).__name__)

    def _inputs(self, env: EnvSpec, seats: tuple[int, ...]) -> Mapping[str, Any]:
        """What specs of policies say about the spaces and the body. Raises ScenarioError."""
        name = type(self).__name__
        _, actions = discrete(env, seats, algorithm=name)
        observation, _ = one_space(env, seats, algorithm=name)
        shape = tuple(observation.shape or ())
        if env.enumeration is not None:
            shape = env.enumeration.observation.shape[1:]
        body = body_config(self.body, self.hidden, self.activation)
        needs_images(shape, network=self.body, algorithm=name, option="body", env_id=env.id)
        scale = byte_scale(env, observation)
        return {"shape": shape, "actions": actions, "body": body, "scale": scale, "spread": self.epsilon_spread}


def _about(paper: str) -> AlgorithmInfo:
    return AlgorithmInfo(actions=("discrete",), data="off-policy", recurrent=False, masks=True, paper=paper)


class DQN(QLearning):
    """Deep Q-learning (Mnih et al. 2015). Every part of Rainbow is a switch of its own, and so are quantiles (QR-DQN, IQN) and Munchausen
    rewards; see the README beside it."""

    takes_added: ClassVar[bool] = True

    about: ClassVar[AlgorithmInfo] = _about("Mnih et al. 2015")
    learner_class: ClassVar[str] = "ludus.algorithms.dqn.learner:make_learner"

    noisy: bool = False  # the layers after the body have parametric noise, which explores
    noise_scale: float = Field(default=0.5, gt=0)  # its initial size
    distribution: Distribution = (
        "none"  # what is learned of returns: means, chances of values, quantiles, quantile function
    )
    atoms: int = Field(default=51, ge=2)  # values, quantiles, or levels drawn per update
    v_min: float | None = None  # range of c51's values, in the environment's rewards; None: the game's utilities
    v_max: float | None = None
    munchausen: bool = (
        False  # rewards are helped by the log-probability of a soft policy, which also takes the maximum's place
    )
    munchausen_weight: float = Field(default=0.9, ge=0, le=1)
    munchausen_temperature: float = Field(default=0.03, gt=0)  # in scaled rewards
    munchausen_least: float = Field(default=-1.0, le=0)  # the log-probability times temperature counts no less
    initial_priority: InitialPriority = (
        "largest"  # of new rows: the largest so far, or their errors where they are made
    )

    @model_validator(mode="after")
    def _check_switches(self) -> DQN:
        if self.initial_priority == "error" and not self.prioritised:
            raise ValueError(NO_PRIORITIES)
        if self.min_size > self.capacity:
            raise ValueError(f"min_size {self.min_size} must be at most the capacity {self.capacity}")
        if self.munchausen and self.double:
            raise ValueError(
                "munchausen takes the mean over its soft policy and has no maximum for double to choose; set double=false"
            )
        if self.munchausen and self.n_step > 1:
            raise ValueError(f"munchausen helps the reward of one step; n_step is {self.n_step}, and must be 1")
        if self.v_min is not None and self.v_max is not None and self.v_min >= self.v_max:
            raise ValueError(f"v_min {self.v_min} must be below v_max {self.v_max}")
        beyond = "learned rewards" if self.learned_reward is not None else "munchausen's" if self.munchausen else ""
        for each in self.processing:
            if not (isinstance(each, RewardClip) or (isinstance(each, RewardScale) and each.factor <= 1.0)):
                beyond = beyond or f"rewards that {type(each).__name__} makes"
        if beyond and self.distribution == "c51" and None in (self.v_min, self.v_max) and not is_stored():
            raise ValueError(
                f"c51's values lie between the game's least and largest utility, and {beyond} may go beyond; give v_min and v_max, or "
                "distribution=quantile"
            )
        refuse_unread(
            self,
            {
                "noise_scale": (self.noisy, "noisy=true"),
                **{name: (self.distribution == "c51", "distribution=c51") for name in ("v_min", "v_max")},
                **{
                    f"munchausen_{name}": (self.munchausen, "munchausen=true")
                    for name in ("weight", "temperature", "least")
                },
            },
        )
        return self

    @property
    def item(self) -> ItemUnit:
        return "decision"

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """As `QLearning.check`; and raises ScenarioError if c51 does not know between which values returns lie."""
        super().check(env, seats)
        for player in players_of(env, seats):
            self._head(env, (player,))
            self._networks(env, (player,))

    def collect(self) -> Collect:
        collect = super().collect()
        if self.initial_priority == "largest":
            return collect
        return replace(collect, extras=(TAKEN, BEST), bootstrap_value=BEST)

    def tables(self) -> Sequence[TableSpec]:
        return (self.replay_table(capacity=self.capacity, min_size=self.min_size),)

    def sizes(self) -> Mapping[str, Sizes]:
        """Known where decisions are collected; how many an episode has is not."""
        insert = self.rollout if self.rollout_unit == "decisions" else None
        return self.replay_sizes(insert=insert, batch=self.batch)

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        agents = self._networks(env, seats)
        return action_values_spec(**self._inputs(env, seats), head=self._head(env, seats), agents=agents)

    def _head(self, env: EnvSpec, seats: tuple[int, ...]) -> QHeadSpec:
        noise_scale = self.noise_scale if self.noisy else 0.0
        head = QHeadSpec(
            dueling=self.dueling, noisy=self.noisy, noise_scale=noise_scale, distribution=self.distribution
        )
        if self.distribution == "none":
            return head
        low, high = self._value_range(env, seats) if self.distribution == "c51" else (0.0, 0.0)
        return replace(head, atoms=self.atoms, low=low, high=high)

    def _value_range(self, env: EnvSpec, seats: tuple[int, ...]) -> tuple[float, float]:
        """Of scaled returns: the options', or else the utilities'. Raises ScenarioError if they are unknown."""
        ranges = [env.utility_range[seat] for seat in seats]
        low = min(low for low, _ in ranges) if self.v_min is None else self.v_min
        high = max(high for _, high in ranges) if self.v_max is None else self.v_max
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ScenarioError(
                f"{type(self).__name__}: c51 spreads {self.atoms} values over the range of returns, {low:g} to {high:g} in {env.id}. Give "
                "v_min and v_max, in the environment's rewards, or use distribution=quantile, which needs no range."
            )
        scale = reward_scale(env, seats, enabled=self.scale_rewards)
        return low * scale, high * scale


class Rainbow(DQN):
    """DQN with double, dueling and 3-step targets, prioritised replay, noisy layers and C51 (Hessel et al. 2018)."""

    about: ClassVar[AlgorithmInfo] = _about("Hessel et al. 2018")

    dueling: bool = True
    n_step: int = Field(default=3, ge=1)
    priority_exponent: float = Field(default=0.5, ge=0, le=1)
    noisy: bool = True
    distribution: Distribution = "c51"
    epsilon: Scheduled = Schedule(start=0.0)
    learning_rate: Scheduled = Schedule(start=1e-3)


class ApeX(DQN):
    """Many environments that explore differently, and rows that bring their priorities with them (Horgan et al. 2018): prioritised, double,
    dueling DQN with 3-step targets. Meant for `mode: async`; see the README beside it."""

    about: ClassVar[AlgorithmInfo] = _about("Horgan et al. 2018")

    dueling: bool = True
    n_step: int = Field(default=3, ge=1)
    gamma: float = Field(default=0.99, ge=0, le=1)
    rollout: int = Field(default=400, ge=1)
    rollout_unit: Literal["episodes", "decisions"] = "decisions"
    priority_exponent: float = Field(default=0.6, ge=0, le=1)
    importance: Scheduled = Schedule(start=0.4)
    initial_priority: InitialPriority = "error"
    epsilon: Scheduled = Schedule(start=0.4)
    epsilon_spread: float = Field(default=7.0, ge=0)
    learning_rate: Scheduled = Schedule(start=1e-3)
    max_gradient_norm: float = Field(default=40.0, ge=0)


class QRDQN(DQN):
    """DQN that learns quantiles of the return (Dabney et al. 2018, "Distributional reinforcement learning with quantile regression")."""

    about: ClassVar[AlgorithmInfo] = _about("Dabney et al. 2018, quantile regression")

    double: bool = False
    distribution: Distribution = "quantile"
    learning_rate: Scheduled = Schedule(start=1e-3)


class IQN(DQN):
    """DQN that learns the return's quantile function (Dabney et al. 2018, "Implicit quantile networks")."""

    about: ClassVar[AlgorithmInfo] = _about("Dabney et al. 2018, implicit quantile networks")

    double: bool = False
    distribution: Distribution = "implicit"
    atoms: int = Field(default=32, ge=2)
    learning_rate: Scheduled = Schedule(start=1e-3)


class MunchausenDQN(DQN):
    """DQN with rewards that the log-probability of a soft policy helps (Vieillard et al. 2020)."""

    about: ClassVar[AlgorithmInfo] = _about("Vieillard et al. 2020")

    double: bool = False
    munchausen: bool = True
    learning_rate: Scheduled = Schedule(start=1e-3)
