"""Configurations of on-policy algorithms: their shared base, the base of custom ones (networks and a loss), and the
policy-gradient family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ludus.algorithms.common.base import ROLLOUTS, AlgorithmInfo, CollectConfig, Learner, LearnerContext
from ludus.algorithms.common.config import CollectOptions, Schedule, Scheduled
from ludus.algorithms.common.space_checks import (
    action_of,
    byte_scale,
    check_state,
    discrete,
    needs_images,
    one_space,
    players_of,
    state_width,
)
from ludus.algorithms.on_policy.multi_agent import check_first_ids, separate_networks
from ludus.core.config import refuse_unread
from ludus.core.errors import PolicyError, ScenarioError
from ludus.core.parts import resolve_name
from ludus.core.types import EnvSpec, PolicySpec, Weights
from ludus.envs.base import VectorEnv
from ludus.policies.specs import Body, Core, Value, actor_critic_spec, body_config
from ludus.replay.base import ItemUnit, Sizes, TableSpec

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ludus.algorithms.on_policy.batch import Batch


CAPACITY = 1_000_000
"""Most items waiting, where batches are no larger."""


def rollouts_table(*, rows: int, capacity: int, max_lag: int | None) -> TableSpec:
    """Return the spec of the queue of items that wait to be learned from.

    Args:
        rows: Rows of one update, approximately.
        capacity: Most items that wait; with the default value at least two updates fit in.
        max_lag: Oldest weights whose items are kept, in versions before the newest; None: no limit.
    """
    room = max(CAPACITY, 2 * rows) if capacity == CAPACITY else capacity
    return TableSpec(ROLLOUTS, kind="queue", capacity=room, max_lag=max_lag)


class Gradient(CollectOptions):
    """Base of all on-policy algorithms: how much is collected, and how the rows of a rollout become steps of Adam.

    Attributes:
        batch: What one update learns from, in `batch_unit`. Larger batches have less noise and take fewer updates per
            budget; 200 to 1,000 episodes of small games, 256 to 4,096 decisions elsewhere.
        batch_unit: Unit of `batch`. Whole episodes suit games that end; "decisions" bounds the time of a round, and an
            open episode continues in the next.
        epochs: Passes over the batch in one update. 1 for a plain policy gradient, 4 to 30 for clipped surrogates.
        minibatches: Gradient steps per epoch; 1: the whole batch is one step. Usually such that a step has 64 to 512
            rows.
        max_lag: Rows that are older than this number of weight versions are dropped; None: none are.
        capacity: Most items that wait in the queue; the default grows to two batches where they are more.
        learning_rate: Step size of Adam. 1e-2 suits whole-batch gradients of small games, which have little noise; 3e-4
            to 3e-3 elsewhere.
        gamma: Discount of future rewards. 1 where the rules end every episode; 0.99 elsewhere.
        discount: What `gamma` discounts: each own decision, or each step of the environment between two own decisions.
        gae_lambda: λ of generalised advantage estimation (Schulman et al. 2016): 1 is unbiased with more variance; 0.9
            to 0.98 is usual.
        correction: How rows of older weights are corrected: "vtrace" (Espeholt et al. 2018), or "none".
        rho_bar: V-trace's clip ρ̄ of importance weights; 1 makes the present policy the fixed point.
        c_bar: V-trace's clip c̄ of the traces back in time; at most `rho_bar` is usual.
        max_gradient_norm: Gradients are scaled down to this norm; 0: they are not clipped.
        normalise_advantages: Whether advantages of a batch are shifted and scaled to mean 0 and variance 1, which makes
            the step size independent of the rewards' scale.
        scale_rewards: Whether rewards are divided by the largest utility, if `utility_range` is finite, so that returns
            are in [-1, 1].
        team_rewards: Whether every agent of a team learns from the sum of the team's rewards.
    """

    model_class: ClassVar[str] = ""  # module:Class of what is trained, made of (algorithm, context, start)
    learner_class: ClassVar[str] = (
        "ludus.algorithms.on_policy.learner:OnPolicyLearner"  # of (algorithm, model, context)
    )

    batch: int = Field(default=500, ge=1)
    batch_unit: Literal["episodes", "decisions"] = "episodes"
    epochs: int = Field(default=1, ge=1)
    minibatches: int = Field(default=1, ge=1)
    max_lag: int | None = Field(default=None, ge=0)
    capacity: int = Field(default=CAPACITY, ge=1)
    learning_rate: Scheduled = Schedule(start=1e-2)
    gamma: float = Field(default=1.0, ge=0, le=1)
    discount: Literal["decision", "step"] = "decision"
    gae_lambda: float = Field(default=1.0, ge=0, le=1)
    correction: Literal["none", "vtrace"] = "vtrace"
    rho_bar: float = Field(default=1.0, gt=0)
    c_bar: float = Field(default=1.0, gt=0)
    max_gradient_norm: float = Field(default=0.5, ge=0)
    normalise_advantages: bool = True
    scale_rewards: bool = True
    team_rewards: bool = False

    @model_validator(mode="after")
    def _check_discount(self) -> Self:
        if self.discount == "step" and self.correction == "vtrace":
            raise ValueError(
                "V-trace discounts by decisions; with discount=step give correction none (impala has no other; a2c and ppo have)"
            )
        return self

    @property
    def kl_limit(self) -> float | None:
        """Return the estimated KL divergence from the batch's log-probabilities, in nats, above which an update ends;
        None: no limit."""
        return None

    @property
    def step_rows(self) -> int:
        """Return the rows of one gradient step, approximately: an episode counts as ten."""
        return max(1, self.batch * (10 if self.batch_unit == "episodes" else 1) // self.minibatches)

    @property
    def item(self) -> ItemUnit:
        return "decision"

    def collect(self) -> CollectConfig:
        return CollectConfig(self.batch_unit, self.batch, processing=self.processing)

    def model(self, context: LearnerContext, start: Weights | None = None) -> Any:
        """Return what is trained, a `ludus.algorithms.on_policy.model.Model`."""
        return resolve_name("model", self.model_class, {})(self, context, start)

    def learner(self, context: LearnerContext, start: Weights | None = None) -> Learner:
        learner: Learner = resolve_name("learner", self.learner_class, {})(self, self.model(context, start), context)
        return learner

    def _require_loss(self, base: type, method: str, says: str) -> None:
        """Raise ScenarioError for a class that uses the learner of `base` and does not override `method`. says: what
        the method returns."""
        if all(
            getattr(type(self), name) is getattr(base, name)
            for name in (method, "learner", "learner_class", "model_class")
        ):
            raise ScenarioError(f"{type(self).__name__} has no loss: derive {method}{says}.")

    def tables(self) -> Sequence[TableSpec]:
        rows = self.step_rows * self.minibatches
        return (rollouts_table(rows=rows, capacity=self.capacity, max_lag=self.max_lag),)

    def sizes(self) -> Mapping[str, Sizes]:
        """Return the sizes of inserts and batches: known of decisions; an episode has at least one decision."""
        return {ROLLOUTS: Sizes(insert=self.batch, batch=0)}


class OnPolicy(Gradient):
    """Base of custom on-policy algorithms: derive, implement `networks` and `loss`, and add fields as options.

    One iteration collects `batch`, estimates advantages with the network "critic" (Schulman et al. 2016; gae_lambda 1
    gives returns minus values), and takes `epochs` times `minibatches` steps of Adam on the loss of the rows. Fields of
    the derived class are part of its policies' spec: policies that differ in them do not start from each other. See
    `Gradient` for the inherited options.
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("discrete",), data="on-policy", recurrent=False, masks=True, paper="Schulman et al. 2016"
    )
    model_class: ClassVar[str] = "ludus.algorithms.on_policy.autograd_model:CustomModel"
    takes_learned_rewards: ClassVar[bool] = True

    def networks(self, inputs: int, actions: int) -> Mapping[str, nn.Module]:
        """Return the modules of the algorithm by name.

        Args:
            inputs: Entries of one observation, flattened.
            actions: Number of discrete actions, A.

        Returns:
            "policy", which maps float32[n, inputs] to logits [n, A]; "critic", which maps them to values [n] or [n, 1];
            and any others that the loss uses. They are initialised as torch does, from the task's seed.
        """
        raise NotImplementedError("say which modules by deriving networks(self, inputs, actions)")

    def loss(self, networks: Mapping[str, nn.Module], batch: Batch) -> Tensor:
        """Return the scalar loss that one gradient step minimises: a mean over the rows of the batch.

        Args:
            networks: The modules of `networks`, by name.
            batch: n rows; see `Batch`. `ludus.algorithms.common.losses` has the usual terms.
        """
        raise NotImplementedError("say what is to be made small by deriving loss(self, networks, batch)")

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise ScenarioError if a player's actions are not discrete, the networks are not as `networks` documents, or
        there is no loss."""
        self._require_loss(OnPolicy, "loss", "(self, networks, batch), which answers the scalar to be made small")
        for player in players_of(env, seats):
            spec = self.policy(env, (player,))
            try:
                resolve_name("function", "ludus.policies.torch_module:check_modules", {})(spec)
            except PolicyError as error:
                raise ScenarioError(f"{type(self).__name__} cannot play {env.id}: {error}") from error

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        from ludus.policies.torch_module import torch_spec

        inputs, actions = discrete(env, seats, algorithm=type(self).__name__)
        own: dict[str, Any] = {k: v for k, v in self.model_dump(mode="json").items() if k not in OnPolicy.model_fields}
        cls = type(self)
        return torch_spec(maker=f"{cls.__module__}:{cls.__qualname__}", options=own, inputs=inputs, actions=actions)


# --------------------------------------------------------------------------------------------------------------------
# The family of policy gradients: REINFORCE, A2C, PPO and IMPALA differ in a surrogate and in defaults, and share
# all else.


class PolicyGradient(Gradient):
    """Networks, action spaces and normalisation of the policy-gradient family (Sutton et al. 2000), and its loss:

        surrogate - entropy × H(π) + value_coefficient × ½ (V - G)²

    REINFORCE, A2C, PPO and IMPALA differ in the surrogate and in defaults. Actions may be discrete, multi-discrete or a
    box. See `Gradient` for the inherited options.

    Attributes:
        network: Body of the network: "mlp", the convolutions "nature" or "impala" for images [C, H, W], or a custom
            module `module:Class`.
        hidden: Widths of the perceptron's hidden layers. Two of 64 suffice for small games and control; 128 to 256 for
            larger ones.
        activation: Nonlinearity of the perceptron. tanh is usual for continuous control, relu for games.
        memory: Recurrent core behind the body: "none", "gru" or "lstm".
        memory_size: Units of the recurrent core.
        sequence: Decisions of one segment through which gradients are backpropagated, with a memory.
        value_network: Where values come from: "shared" (one more output of the policy's network), "separate" (a network
            of its own), "central" (a perceptron that also sees the environment's state; Yu et al. 2022), "none" (REINFORCE, COMA).
        critic_hidden: Widths of a central critic; None: as `hidden`.
        share_weights: Whether the agents of a player share one network; False: one each, told apart by the wrapper
            `agent_ids`.
        continuous: Distribution of actions in a box: "gaussian" is clipped to the bounds, "tanh" is squashed into them.
        initial_std: Initial standard deviation of "gaussian", where the bounds are -1 and 1.
        normalise_observations: Whether observations are normalised by running mean and deviation, clipped to ±10. For
            observations whose entries have different scales, such as those of robots.
        normalise_returns: Whether rewards are divided by the running deviation of discounted returns (Engstrom et al.
            2020).
        entropy: Coefficient of the entropy bonus, in scaled rewards per nat. 0 to 0.05; it may fall to 0 by a schedule.
        value_coefficient: Weight of the value loss. It matters where the value shares the policy's network; 0.5 to 1 is
            usual.
        clip_value: Clip of the change of values in the value loss (Engstrom et al. 2020); None: not clipped.
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("discrete", "multi_discrete", "box"),
        data="on-policy",
        recurrent=True,
        masks=True,
        paper="Sutton et al. 2000",
    )
    model_class: ClassVar[str] = "ludus.algorithms.on_policy.learner:make_model"
    takes_learned_rewards: ClassVar[bool] = True
    differs: ClassVar[bool] = (
        True  # from members of its population, if a task says so (`ludus.algorithms.common.behavioral_diversity`)
    )
    extra_metrics: ClassVar[tuple[str, ...]] = ()  # names of what `metrics` answers

    network: Body = "mlp"
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "tanh"
    memory: Core = "none"
    memory_size: int = Field(default=64, ge=1)
    sequence: int = Field(default=32, ge=1)
    value_network: Value = "shared"
    critic_hidden: tuple[Annotated[int, Field(ge=1)], ...] | None = None
    share_weights: bool = True
    continuous: Literal["gaussian", "tanh"] = "gaussian"
    initial_std: float = Field(default=1.0, ge=0.01, le=7.0)
    normalise_observations: bool = False
    normalise_returns: bool = False
    entropy: Scheduled = Schedule(start=0.0)
    value_coefficient: float = Field(default=0.5, ge=0)
    clip_value: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _check_memory(self) -> Self:
        learned = self.learned_reward
        if learned is not None and learned.memoryless and self.memory != "none":
            raise ValueError(
                f"learned_reward {type(learned).__name__} asks for log-probabilities of single decisions, and a policy with memory "
                f"{self.memory} has those of whole episodes; use gail, or memory none"
            )
        return self

    @model_validator(mode="after")
    def _check_critic(self) -> Self:
        if self.value_network == "central" and self.network != "mlp":
            raise ValueError(
                f"a central critic is a perceptron; give network mlp (given: {self.network}), or value_network shared (of ppo: MAPPO has "
                "none)"
            )
        if self.critic_hidden is not None and self.value_network != "central":
            raise ValueError(f"critic_hidden is a central critic's; value_network is {self.value_network}")
        return self

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        learned = self.value_network != "none"
        refuse_unread(self, dict.fromkeys(("clip_value", "value_coefficient"), (learned, "policies with a value")))
        return self

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        """Return the policy's loss of each row.

        Args:
            logp: Log-probabilities [n] of the batch's actions under the present weights, with gradients.
            batch: The rows; `batch.logp` are the log-probabilities before the update, `batch.advantage` the advantages.

        Returns:
            float[n]; the loss is its mean over rows.
        """
        raise NotImplementedError("say what the policy loses by deriving surrogate(self, logp, batch)")

    def metrics(self, logp: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """Return further metrics, each float[n], by the names in `extra_metrics`; reported are their means over rows."""
        return {}

    @property
    def item(self) -> ItemUnit:
        return "decision" if self.memory == "none" else "segment"

    def sizes(self) -> Mapping[str, Sizes]:
        """Return the sizes of inserts and batches; with a memory, decisions become at least batch / sequence sequences."""
        if self.item == "decision" or self.batch_unit == "episodes":
            return super().sizes()
        return {ROLLOUTS: Sizes(insert=-(-self.batch // self.sequence), batch=0)}

    def collect(self) -> CollectConfig:
        return replace(super().collect(), state=self.value_network == "central")

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise ScenarioError if it cannot play a player's actions or see its observations, or if there is no
        `surrogate`."""
        says = "(self, logp, batch), which answers the policy's loss of each row, such as -logp * batch.advantage"
        self._require_loss(PolicyGradient, "surrogate", says)
        for player in players_of(env, seats):
            self.policy(env, (player,))

    def check_start(self, env: VectorEnv) -> None:
        """Raise ScenarioError if agents with a network each do not show their ids in the first observations."""
        if not self.share_weights:
            check_first_ids(env, algorithm=type(self).__name__)

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        """Return the spec of the network. Raise ScenarioError if it cannot play these seats."""
        name = type(self).__name__
        observation, space = one_space(env, seats, algorithm=name)
        action = action_of(env, space, continuous=self.continuous, algorithm=name)
        shape = tuple(observation.shape or ())
        if env.enumeration is not None:
            shape, action = env.enumeration.observation.shape[1:], {**action, "actions": env.enumeration.mask.shape[1]}
        needs_images(shape, network=self.network, algorithm=name, option="network", env_id=env.id)
        central = self.value_network == "central"
        if central:
            only = type(self).model_fields["value_network"].default == "central"  # as MAPPO, which has no other
            instead = "ppo, which needs none" if only else "value_network=shared or separate, which need none"
            check_state(env, algorithm=f"{name}'s critic", instead=instead)
        judging = self.hidden if self.critic_hidden is None else self.critic_hidden
        statistics = {"observations": self.normalise_observations, "returns": self.normalise_returns}
        return actor_critic_spec(
            shape=shape,
            action=action,
            body=body_config(self.network, self.hidden, self.activation),
            core=self.memory,
            width=self.memory_size,
            value=self.value_network,
            scale=1.0 if self.normalise_observations else byte_scale(env, observation),
            normalise=[key for key, wanted in statistics.items() if wanted],
            state=state_width(env, seats) if central else 0,
            critic=body_config(hidden=judging, activation=self.activation) if central else None,
            agents=1 if self.share_weights else separate_networks(env, seats, algorithm=name),
        )


def needs_autograd(spec: PolicySpec) -> str:
    """Return what in a network rules out the CPU kernels (`ludus.algorithms.on_policy.kernels`), so that autograd
    trains it; "": nothing does."""
    config = spec.config
    why = {
        f"a body of kind {config['body']['kind']!r}": config["body"]["kind"] != "mlp",
        f"a memory ({config['core']})": config["core"] != "none",
        f"actions of kind {config['action']['kind']!r}": config["action"]["kind"] != "categorical",
        "a central critic": config["value"] == "central",
        "normalisation": bool(config["normalise"]),
        "observations of bytes": config["scale"] != 1.0,
        "a network for each agent": "agents" in config,
    }
    return ", ".join(reason for reason, there in why.items() if there)


class Reinforce(PolicyGradient):
    """Monte Carlo policy gradient (Williams 1992); see the README beside this file.

    Without a value network (the default) the returns of a batch are compared with their mean; `value_network` "shared"
    or "separate" learns a baseline. Whole episodes are collected, since only a value could stand in for the rest of an
    episode that is cut. See `PolicyGradient` and `Gradient` for the inherited options.

    Attributes:
        batch: Episodes per update; 16 to 200.
        learning_rate: Step size of Adam: gradients of whole episodes are noisier than those of actor-critic methods.
        gae_lambda: λ of advantage estimates; 1: returns are not estimated.
        correction: How rows of older weights are corrected: "none", or "vtrace", which needs a value network.
    """

    about: ClassVar[AlgorithmInfo] = replace(PolicyGradient.about, paper="Williams 1992")

    value_network: Value = "none"
    batch: int = Field(default=100, ge=1)
    batch_unit: Literal["episodes"] = "episodes"
    learning_rate: Scheduled = Schedule(start=3e-3)
    gae_lambda: float = Field(default=1.0, ge=1, le=1)
    correction: Literal["none", "vtrace"] = "none"

    @model_validator(mode="after")
    def _check(self) -> Reinforce:
        if self.correction == "vtrace" and self.value_network == "none":
            raise ValueError("V-trace corrects values; give value_network shared or separate, or correction none")
        return self

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        return -logp * batch.advantage.detach()


class A2C(PolicyGradient):
    """Advantage actor-critic: one policy-gradient step for each short piece of experience (Mnih et al. 2016, in its
    synchronous form); see the README beside this file. See `PolicyGradient` and `Gradient` for the inherited options.

    Attributes:
        batch: Decisions per update; 80 to 1,024. Small batches are what lets one step per batch learn quickly.
        gradients: Weights at which gradients are taken: the "newest", or those that were "acting" when a row was
            collected (A3C's asynchronous updates; needs `max_lag`).
        entropy: Coefficient of the entropy bonus, against premature convergence; 0.01 in the paper.
        normalise_advantages: Whether advantages get mean 0 and variance 1; not in the paper.
    """

    about: ClassVar[AlgorithmInfo] = replace(PolicyGradient.about, paper="Mnih et al. 2016")
    learner_class: ClassVar[str] = "ludus.algorithms.on_policy.a3c:make_learner"

    value_network: Literal["shared", "separate", "central"] = "shared"
    batch: int = Field(default=256, ge=1)
    batch_unit: Literal["episodes", "decisions"] = "decisions"
    learning_rate: Scheduled = Schedule(start=3e-3)
    entropy: Scheduled = Schedule(start=0.01)
    gamma: float = Field(default=0.99, ge=0, le=1)
    correction: Literal["none", "vtrace"] = "none"
    gradients: Literal["newest", "acting"] = "newest"
    normalise_advantages: bool = False

    @model_validator(mode="after")
    def _check_gradients(self) -> Self:
        if self.gradients == "newest":
            return self
        if self.correction != "none":
            raise ValueError(
                "gradients at the weights that acted need no correction; with gradients=acting give correction none"
            )
        if self.epochs * self.minibatches > 1:
            raise ValueError(
                "the weights that acted have one gradient; with gradients=acting give epochs 1 and minibatches 1"
            )
        if self.max_lag is None:
            raise ValueError(
                "gradients=acting keeps the weights of the last max_lag versions, and drops rows of older ones; say how many, such as "
                "max_lag=16 (given: none)"
            )
        return self

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        return -logp * batch.advantage.detach()


class IMPALA(PolicyGradient):
    """Actor-critic whose targets and advantages are V-trace's (Espeholt et al. 2018), for asynchronous workers (`mode:
    async`) whose rows older weights have collected; see the README beside this file. See `PolicyGradient` and
    `Gradient` for the inherited options.

    Attributes:
        batch: Decisions per update; 512 to 4,096.
        correction: How rows of older weights are corrected: "vtrace", which is what makes it IMPALA.
        entropy: Coefficient of the entropy bonus; 5e-5 to 1e-2 in the paper.
    """

    about: ClassVar[AlgorithmInfo] = replace(PolicyGradient.about, paper="Espeholt et al. 2018")

    value_network: Literal["shared", "separate", "central"] = "shared"
    batch: int = Field(default=512, ge=1)
    batch_unit: Literal["episodes", "decisions"] = "decisions"
    learning_rate: Scheduled = Schedule(start=3e-3)
    entropy: Scheduled = Schedule(start=0.01)
    gamma: float = Field(default=0.99, ge=0, le=1)
    correction: Literal["vtrace"] = "vtrace"
    normalise_advantages: bool = False

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        return -logp * batch.advantage.detach()
