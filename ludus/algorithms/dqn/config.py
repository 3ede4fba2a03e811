"""Configurations of action-value learning: the shared base, DQN, and its best known variants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ludus.algorithms.common.base import AlgorithmInfo, CollectConfig
from ludus.algorithms.common.config import (
    BEST,
    NO_PRIORITIES,
    TAKEN,
    InitialPriority,
    ReplayOptions,
    Schedule,
    Scheduled,
)
from ludus.algorithms.common.space_checks import byte_scale, discrete, needs_images, one_space, players_of, reward_scale
from ludus.algorithms.on_policy.multi_agent import check_first_ids, separate_networks
from ludus.core.config import is_stored, refuse_unread
from ludus.core.errors import ScenarioError
from ludus.core.types import EnvSpec, PolicySpec
from ludus.envs.base import VectorEnv
from ludus.policies.specs import Body, Distribution, QHeadSpec, action_values_spec, body_config
from ludus.replay.base import ItemUnit, Sizes, TableSpec
from ludus.replay.processing import RewardClip, RewardScale


class QLearning(ReplayOptions):
    """Base of algorithms that learn action values: collection, replay, optimizer, exploration and target network. See
    `ReplayOptions` for replay's options.

    Attributes:
        body: Body of the network: "mlp", the convolutions "nature" or "impala" for images, or a custom module
            `module:Class`.
        hidden: Widths of the perceptron's hidden layers; 64 to 256.
        activation: Nonlinearity of the perceptron.
        share_weights: Whether the agents of a team share one network; False: one each, told apart by the wrapper
            `agent_ids`.
        double: Whether the online network chooses the next action (van Hasselt et al. 2016), against overestimation.
        dueling: Whether the head has a state's value and advantages (Wang et al. 2016).
        n_step: Own decisions whose rewards a target sums before it bootstraps; 1 to 10. More spread rewards faster,
            off-policy.
        gamma: Discount per own decision. 1: the rules end every episode; 0.99 elsewhere.
        rollout: What is collected between two rounds of updates, in `rollout_unit`.
        rollout_unit: Unit of `rollout`.
        capacity: Items in the replay table; 1e5 to 1e6.
        min_size: Decisions before the first update.
        batch: Items per update; 32 to 512.
        updates_per_decision: Updates per collected decision; 0.02 to 1.
        learning_rate: Step size of Adam; 1e-2 falling to 5e-4 suits small games, 1e-4 to 1e-3 elsewhere.
        epsilon: Chance of a uniform legal action. It falls to 0 by default, so that the trained policy is greedy.
        epsilon_spread: Environment i of N explores with epsilon^(1 + epsilon_spread i / (N - 1)) (Horgan et al. 2018);
            0: all with epsilon.
        target_period: Updates between copies into the target network; 50 to 10,000.
        polyak: Share by which the target network moves per update, in place of copies; None: copies.
        huber_delta: Error beyond which Huber's loss is linear.
        max_gradient_norm: Gradients are scaled down to this norm; 0: they are not clipped.
        scale_rewards: Whether rewards are divided by the largest utility, if `utility_range` is finite.
    """

    takes_learned_rewards: ClassVar[bool] = True

    body: Body = "mlp"
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "relu"
    share_weights: bool = True
    double: bool = True
    dueling: bool = False
    n_step: int = Field(default=1, ge=1)
    gamma: float = Field(default=1.0, ge=0, le=1)

    rollout: int = Field(default=500, ge=1)
    rollout_unit: Literal["episodes", "decisions"] = "episodes"
    capacity: int = Field(default=100_000, ge=1)
    min_size: int = Field(default=1000, ge=1)
    batch: int = Field(default=512, ge=1)
    updates_per_decision: float = Field(default=0.02, gt=0)

    learning_rate: Scheduled = Schedule(start=1e-2, end=5e-4)
    epsilon: Scheduled = Schedule(start=1.0, end=0.0)
    epsilon_spread: float = Field(default=0.0, ge=0)
    target_period: int = Field(default=50, ge=1)
    polyak: float | None = Field(default=None, gt=0, le=1)
    huber_delta: float = Field(default=1.0, gt=0)
    max_gradient_norm: float = Field(default=10.0, ge=0)
    scale_rewards: bool = True

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
        """Raise ScenarioError if a player's actions are not discrete, or its observations do not fit the body."""
        for player in players_of(env, seats):
            self._inputs(env, (player,))

    def check_start(self, env: VectorEnv) -> None:
        """Raise ScenarioError if agents with a network each do not show their ids in the first observations."""
        if not self.share_weights:
            check_first_ids(env, algorithm=type(self).__name__)

    def collect(self) -> CollectConfig:
        return CollectConfig(
            self.rollout_unit,
            self.rollout,
            publish_every=self.publish_every,
            processing=self.processing,
            place=self.epsilon_spread > 0,
        )

    def tables(self) -> Sequence[TableSpec]:
        return (self.replay_table(capacity=self.capacity),)

    def sizes(self) -> Mapping[str, Sizes]:
        """Return the batch size; the items of a rollout are not known."""
        return self.replay_sizes(insert=None, batch=self.batch)

    def _networks(self, env: EnvSpec, seats: tuple[int, ...]) -> int:
        """Return the number of networks of a player's agents. Raise ScenarioError if agents cannot be told apart."""
        return 1 if self.share_weights else separate_networks(env, seats, algorithm=type(self).__name__)

    def _inputs(self, env: EnvSpec, seats: tuple[int, ...]) -> Mapping[str, Any]:
        """Return the parts of a policy's spec that describe spaces and body. Raise ScenarioError for unsupported ones."""
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
    """Deep Q-learning (Mnih et al. 2015). Every part of Rainbow is a switch, as are quantiles (QR-DQN, IQN) and
    Munchausen rewards; see the README beside it. See `QLearning` for the inherited options.

    Attributes:
        noisy: Whether the layers after the body have parametric noise, which explores (Fortunato et al. 2018); then set
            `epsilon` to 0.
        noise_scale: Initial size of that noise; 0.5 in the paper.
        distribution: What is learned of returns: means ("none"), probabilities of fixed values ("c51"), quantiles
            ("quantile"), or the quantile function ("implicit").
        atoms: Number of values or quantiles, or of levels sampled per update; 51 for c51, 32 for implicit.
        v_min: Least value of c51, in the environment's rewards; None: the game's least utility.
        v_max: Largest value of c51; None: the game's largest utility.
        munchausen: Whether the log-probability of a soft policy is added to rewards, and the maximum becomes the mean
            under it (Vieillard et al. 2020).
        munchausen_weight: α of that bonus; 0.9 in the paper.
        munchausen_temperature: τ of the soft policy, in scaled rewards; 0.03 in the paper.
        munchausen_least: l₀: lower bound of τ log π.
        initial_priority: Priority of new rows: "largest" so far, or their "error", computed by the workers (Ape-X).
    """

    takes_added: ClassVar[bool] = True

    about: ClassVar[AlgorithmInfo] = _about("Mnih et al. 2015")
    learner_class: ClassVar[str] = "ludus.algorithms.dqn.learner:make_learner"

    noisy: bool = False
    noise_scale: float = Field(default=0.5, gt=0)
    distribution: Distribution = "none"
    atoms: int = Field(default=51, ge=2)
    v_min: float | None = None
    v_max: float | None = None
    munchausen: bool = False
    munchausen_weight: float = Field(default=0.9, ge=0, le=1)
    munchausen_temperature: float = Field(default=0.03, gt=0)
    munchausen_least: float = Field(default=-1.0, le=0)
    initial_priority: InitialPriority = "largest"

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
        """Raise ScenarioError as `QLearning.check` does, and if c51 does not know the range of returns."""
        super().check(env, seats)
        for player in players_of(env, seats):
            self._head(env, (player,))
            self._networks(env, (player,))

    def collect(self) -> CollectConfig:
        collect = super().collect()
        if self.initial_priority == "largest":
            return collect
        return replace(collect, extras=(TAKEN, BEST), bootstrap_value=BEST)

    def tables(self) -> Sequence[TableSpec]:
        return (self.replay_table(capacity=self.capacity, min_size=self.min_size),)

    def sizes(self) -> Mapping[str, Sizes]:
        """Return the sizes: inserts are known where decisions are collected."""
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
        """Return the range of scaled returns: the options', or else the utilities'. Raise ScenarioError if it is
        unknown."""
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
    """DQN with double and dueling 3-step targets, prioritised replay, noisy layers and C51 (Hessel et al. 2018). See
    `DQN` for the options; defaults are the paper's, except epsilon, which is 0, and the learning rate 1e-3 for small
    networks.

    Attributes:
        dueling: Whether the head has a state's value and advantages; True.
        n_step: Own decisions whose rewards a target sums; 3.
        priority_exponent: Exponent of errors in replay's priorities; 0.5.
        noisy: Whether layers have parametric noise, which explores; True.
        distribution: What is learned of returns; "c51".
        epsilon: Chance of a uniform legal action; 0: the noise explores.
        learning_rate: Step size of Adam; constant 1e-3, for small networks.
    """

    about: ClassVar[AlgorithmInfo] = _about("Hessel et al. 2018")

    dueling: bool = True
    n_step: int = Field(default=3, ge=1)
    priority_exponent: float = Field(default=0.5, ge=0, le=1)
    noisy: bool = True
    distribution: Distribution = "c51"
    epsilon: Scheduled = Schedule(start=0.0)
    learning_rate: Scheduled = Schedule(start=1e-3)


class ApeX(DQN):
    """Prioritised double dueling DQN with 3-step targets whose environments explore differently and whose rows arrive
    with priorities (Horgan et al. 2018). Meant for `mode: async`; see the README beside it. See `DQN` for the options;
    epsilon 0.4, spread 7 and priority exponent 0.6 are the paper's.

    Attributes:
        dueling: Whether the head has a state's value and advantages; True.
        n_step: Own decisions whose rewards a target sums; 3.
        gamma: Discount per own decision.
        rollout: Decisions between two rounds of updates.
        rollout_unit: Unit of `rollout`.
        priority_exponent: Exponent of errors in replay's priorities.
        importance: Exponent of the weights that make up for sampling by priority; constant.
        initial_priority: Priority of new rows: the "largest" so far, or their "error", computed by the workers.
        epsilon: Chance of a uniform legal action, of the environment that explores most.
        epsilon_spread: How much the environments' epsilons differ; see `QLearning`.
        learning_rate: Step size of Adam; constant 1e-3, for small networks.
        max_gradient_norm: Gradients are scaled down to this norm.
    """

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
    """DQN that learns quantiles of the return (Dabney et al. 2018, "Distributional reinforcement learning with quantile
    regression"). See `DQN` for the options; `atoms` is the number of quantiles.

    Attributes:
        double: Whether the online network chooses the next action.
        distribution: What is learned of returns; the other options are those of `DQN`.
        learning_rate: Step size of Adam; constant 1e-3, for small networks.
    """

    about: ClassVar[AlgorithmInfo] = _about("Dabney et al. 2018, quantile regression")

    double: bool = False
    distribution: Distribution = "quantile"
    learning_rate: Scheduled = Schedule(start=1e-3)


class IQN(DQN):
    """DQN that learns the return's quantile function (Dabney et al. 2018, "Implicit quantile networks"). See `DQN` for
    the options; `atoms` is the number of levels that are sampled, 32 as in the paper.

    Attributes:
        double: Whether the online network chooses the next action.
        distribution: What is learned of returns; the other options are those of `DQN`.
        atoms: Levels that are sampled per update.
        learning_rate: Step size of Adam; constant 1e-3, for small networks.
    """

    about: ClassVar[AlgorithmInfo] = _about("Dabney et al. 2018, implicit quantile networks")

    double: bool = False
    distribution: Distribution = "implicit"
    atoms: int = Field(default=32, ge=2)
    learning_rate: Scheduled = Schedule(start=1e-3)


class MunchausenDQN(DQN):
    """DQN whose rewards include the scaled log-probability of a soft policy (Vieillard et al. 2020). See `DQN` for the
    options.

    Attributes:
        double: Whether the online network chooses the next action; the mean over a soft policy has no maximum to choose.
        munchausen: Whether rewards include the soft policy's log-probability; the other options are those of `DQN`.
        learning_rate: Step size of Adam; constant 1e-3, for small networks.
    """

    about: ClassVar[AlgorithmInfo] = _about("Vieillard et al. 2020")

    double: bool = False
    munchausen: bool = True
    learning_rate: Scheduled = Schedule(start=1e-3)
