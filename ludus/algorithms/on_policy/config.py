"""What on-policy algorithms share, and what one of one's own says: its networks and its loss. Everything else is here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ludus.algorithms.common.base import ROLLOUTS, AlgorithmInfo, Collect, Learner, LearnerContext
from ludus.algorithms.common.config import CollectOptions
from ludus.algorithms.common.images import needs_images
from ludus.algorithms.common.schedule import Schedule, Scheduled
from ludus.algorithms.common.space_checks import action_of, byte_scale, discrete, one_space, players_of
from ludus.algorithms.common.team_specs import check_state, state_width
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
    from ludus.algorithms.on_policy.model import Model


CAPACITY = 1_000_000
"""Most items waiting, where batches are no larger."""


def rollouts_table(*, rows: int, capacity: int, max_lag: int | None) -> TableSpec:
    """The queue of what waits to be learned from. rows: of an update, about; with the default capacity twice as many fit in."""
    room = max(CAPACITY, 2 * rows) if capacity == CAPACITY else capacity
    return TableSpec(ROLLOUTS, kind="queue", capacity=room, max_lag=max_lag)


class Gradient(CollectOptions):
    """What every on-policy algorithm has: what it collects, and how the rows of a rollout become steps of Adam."""

    model_class: ClassVar[str] = ""  # module:Class of what is trained, made of (algorithm, context, start)
    learner_class: ClassVar[str] = (
        "ludus.algorithms.on_policy.learner:OnPolicyLearner"  # of (algorithm, model, context)
    )

    batch: int = Field(default=500, ge=1)  # what one update learns from, in batch_unit
    batch_unit: Literal["episodes", "decisions"] = "episodes"
    epochs: int = Field(default=1, ge=1)
    minibatches: int = Field(default=1, ge=1)  # per epoch; 1: the whole batch
    max_lag: int | None = Field(default=None, ge=0)
    capacity: int = Field(default=CAPACITY, ge=1)  # most items waiting; by default two batches at least
    learning_rate: Scheduled = Schedule(start=1e-2)
    gamma: float = Field(default=1.0, ge=0, le=1)
    discount: Literal["decision", "step"] = (
        "decision"  # what gamma is of: an own decision, or a step of the environment
    )
    gae_lambda: float = Field(default=1.0, ge=0, le=1)
    correction: Literal["none", "vtrace"] = "vtrace"  # of rows that older weights made
    rho_bar: float = Field(default=1.0, gt=0)  # V-trace's largest weight of a row, and of a step back in time
    c_bar: float = Field(default=1.0, gt=0)
    max_gradient_norm: float = Field(default=0.5, ge=0)  # 0: not clipped
    normalise_advantages: bool = True
    scale_rewards: bool = True  # by the largest utility, where it is known
    team_rewards: bool = False  # every agent of a team learns from the sum of its rewards

    @model_validator(mode="after")
    def _check_discount(self) -> Self:
        if self.discount == "step" and self.correction == "vtrace":
            raise ValueError(
                "V-trace discounts by decisions; with discount=step give correction none (impala has no other; a2c and ppo have)"
            )
        return self

    @property
    def kl_limit(self) -> float | None:
        """The estimated KL divergence from the batch's log-probabilities at which an update ends."""
        return None

    @property
    def step_rows(self) -> int:
        """Of one step, about: an episode counts as ten."""
        return max(1, self.batch * (10 if self.batch_unit == "episodes" else 1) // self.minibatches)

    @property
    def item(self) -> ItemUnit:
        return "decision"

    def collect(self) -> Collect:
        return Collect(self.batch_unit, self.batch, processing=self.processing)

    def model(self, context: LearnerContext, start: Weights | None = None) -> Model:
        """What is trained, and how its gradient is found."""
        model: Model = resolve_name("model", self.model_class, {})(self, context, start)
        return model

    def learner(self, context: LearnerContext, start: Weights | None = None) -> Learner:
        learner: Learner = resolve_name("learner", self.learner_class, {})(self, self.model(context, start), context)
        return learner

    def _require_loss(self, base: type, method: str, says: str) -> None:
        """Raises ScenarioError for a class that has the learner of `base`, and has not written `method`. says: what that is."""
        if all(
            getattr(type(self), name) is getattr(base, name)
            for name in (method, "learner", "learner_class", "model_class")
        ):
            raise ScenarioError(f"{type(self).__name__} has no loss: derive {method}{says}.")

    def tables(self) -> Sequence[TableSpec]:
        rows = self.step_rows * self.minibatches
        return (rollouts_table(rows=rows, capacity=self.capacity, max_lag=self.max_lag),)

    def sizes(self) -> Mapping[str, Sizes]:
        """Of decisions as many as are collected; how many an episode has is not known, but it has one at least."""
        return {ROLLOUTS: Sizes(insert=self.batch, batch=0)}


class OnPolicy(Gradient):
    """Base of on-policy algorithms of your own: derive, give `networks` and `loss`, and add fields as options.

    One iteration collects `batch`, estimates advantages with the network "critic" (Schulman et al. 2016; gae_lambda 1 gives returns minus
    values), and takes `epochs` times `minibatches` steps of Adam on the loss of the rows. Fields of the derived class are part of its
    policies' spec: policies that differ in them do not start from each other.
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("discrete",), data="on-policy", recurrent=False, masks=True, paper="Schulman et al. 2016"
    )
    model_class: ClassVar[str] = "ludus.algorithms.on_policy.autograd_model:OwnModel"
    takes_learned_rewards: ClassVar[bool] = True

    def networks(self, inputs: int, actions: int) -> Mapping[str, nn.Module]:
        """Modules by name: "policy" maps float32[n, inputs] to logits [n, actions], "critic" to values [n] or [n, 1]; others are yours."""
        raise NotImplementedError("say which modules by deriving networks(self, inputs, actions)")

    def loss(self, networks: Mapping[str, nn.Module], batch: Batch) -> Tensor:
        """The scalar to be made small. `ludus.algorithms.common.losses` has the usual terms."""
        raise NotImplementedError("say what is to be made small by deriving loss(self, networks, batch)")

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raises ScenarioError if some player's actions are not discrete, the networks are not as `networks` says, or there is no loss."""
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
    """Networks, action spaces and normalisation of the family, and its loss:

        surrogate - entropy × H(π) + value_coefficient × ½ (V - G)²

    Discrete, multi-discrete and box actions; perceptrons, or convolutions for images (`network`); a GRU or an LSTM behind them (`memory`).
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("discrete", "multi_discrete", "box"),
        data="on-policy",
        recurrent=True,
        masks=True,
        paper="Sutton et al. 2000",
    )
    model_class: ClassVar[str] = "ludus.algorithms.on_policy.autograd_model:make_model"
    takes_learned_rewards: ClassVar[bool] = True
    differs: ClassVar[bool] = (
        True  # from members of its population, if a task says so (`ludus.algorithms.common.behavioral_diversity`)
    )
    extra_metrics: ClassVar[tuple[str, ...]] = ()  # names of what `metrics` answers

    network: Body = "mlp"
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64, 64)  # of the perceptron
    activation: Literal["tanh", "relu"] = "tanh"
    memory: Core = "none"
    memory_size: int = Field(default=64, ge=1)
    sequence: int = Field(default=32, ge=1)  # decisions through which gradients flow back, with a memory
    value_network: Value = "shared"
    critic_hidden: tuple[Annotated[int, Field(ge=1)], ...] | None = None  # of a central critic; none: as `hidden`
    share_weights: bool = True  # among a player's agents; no: a network for each, by the ids of the wrapper agent_ids
    continuous: Literal["gaussian", "tanh"] = "gaussian"  # box actions: clipped to the bounds, or squashed into them
    initial_std: float = Field(default=1.0, ge=0.01, le=7.0)  # of "gaussian", where the bounds are -1 and 1
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
        """The policy's loss of each row [n], from its log-probabilities now."""
        raise NotImplementedError("say what the policy loses by deriving surrogate(self, logp, batch)")

    def metrics(self, logp: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """More metrics, per row [n]."""
        return {}

    @property
    def item(self) -> ItemUnit:
        return "decision" if self.memory == "none" else "segment"

    def sizes(self) -> Mapping[str, Sizes]:
        """As `Gradient.sizes`; decisions become so many sequences at least."""
        if self.item == "decision" or self.batch_unit == "episodes":
            return super().sizes()
        return {ROLLOUTS: Sizes(insert=-(-self.batch // self.sequence), batch=0)}

    def collect(self) -> Collect:
        return replace(super().collect(), state=self.value_network == "central")

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raises ScenarioError if it cannot play some player's actions, or see its observations, or if there is no `surrogate`."""
        says = "(self, logp, batch), which answers the policy's loss of each row, such as -logp * batch.advantage"
        self._require_loss(PolicyGradient, "surrogate", says)
        for player in players_of(env, seats):
            self.policy(env, (player,))

    def check_start(self, env: VectorEnv) -> None:
        """Raises ScenarioError where agents with a network each do not show who they are."""
        if not self.share_weights:
            check_first_ids(env, algorithm=type(self).__name__)

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        """Raises ScenarioError if it cannot play there."""
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
    """What of the network that a spec declares cannot be done by passes that are written out (`ludus.algorithms.on_policy.kernels`), so
    that autograd learns it; "": nothing, they serve."""
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

    Without a value network (the default) the returns of a batch are compared with their mean; `value_network` shared or separate learns a
    baseline. Whole episodes are collected, since only a value could stand in for the rest of one that is cut."""

    about: ClassVar[AlgorithmInfo] = replace(PolicyGradient.about, paper="Williams 1992")

    value_network: Value = "none"
    batch: int = Field(default=100, ge=1)  # what one update learns from, in batch_unit
    batch_unit: Literal["episodes"] = "episodes"
    learning_rate: Scheduled = Schedule(start=3e-3)
    gae_lambda: float = Field(default=1.0, ge=1, le=1)  # returns, not estimates of them
    correction: Literal["none", "vtrace"] = "none"  # of rows that older weights made; vtrace wants a value network

    @model_validator(mode="after")
    def _check(self) -> Reinforce:
        if self.correction == "vtrace" and self.value_network == "none":
            raise ValueError("V-trace corrects values; give value_network shared or separate, or correction none")
        return self

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        from ludus.algorithms.common.losses import policy_gradient

        return policy_gradient(logp, batch.advantage)


class A2C(PolicyGradient):
    """Advantage actor-critic: one step of the policy gradient for each short piece of experience (Mnih et al. 2016, in its synchronous
    form); see the README beside this file."""

    about: ClassVar[AlgorithmInfo] = replace(PolicyGradient.about, paper="Mnih et al. 2016")
    learner_class: ClassVar[str] = "ludus.algorithms.on_policy.a3c:make_learner"

    value_network: Literal["shared", "separate", "central"] = "shared"
    batch: int = Field(default=256, ge=1)  # what one update learns from, in batch_unit
    batch_unit: Literal["episodes", "decisions"] = "decisions"
    learning_rate: Scheduled = Schedule(start=3e-3)
    entropy: Scheduled = Schedule(start=0.01)
    gamma: float = Field(default=0.99, ge=0, le=1)
    correction: Literal["none", "vtrace"] = "none"  # of rows that older weights made
    gradients: Literal["newest", "acting"] = "newest"  # slopes of the newest weights, or of those that acted (A3C)
    normalise_advantages: bool = False

    @model_validator(mode="after")
    def _check_gradients(self) -> Self:
        if self.gradients == "newest":
            return self
        if self.correction != "none":
            raise ValueError(
                "slopes of the weights that acted need no correction; with gradients=acting give correction none"
            )
        if self.epochs * self.minibatches > 1:
            raise ValueError(
                "the weights that acted have one slope; with gradients=acting give epochs 1 and minibatches 1"
            )
        if self.max_lag is None:
            raise ValueError(
                "gradients=acting keeps the weights of the last max_lag versions, and drops rows of older ones; say how many, such as "
                "max_lag=16 (given: none)"
            )
        return self

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        from ludus.algorithms.common.losses import policy_gradient

        return policy_gradient(logp, batch.advantage)


class IMPALA(PolicyGradient):
    """Actor-critic whose targets and advantages are V-trace's (Espeholt et al. 2018): made for workers that do not wait
    (`mode: async`), whose rows older weights have made; see the README beside this file."""

    about: ClassVar[AlgorithmInfo] = replace(PolicyGradient.about, paper="Espeholt et al. 2018")

    value_network: Literal["shared", "separate", "central"] = "shared"
    batch: int = Field(default=512, ge=1)  # what one update learns from, in batch_unit
    batch_unit: Literal["episodes", "decisions"] = "decisions"
    learning_rate: Scheduled = Schedule(start=3e-3)
    entropy: Scheduled = Schedule(start=0.01)
    gamma: float = Field(default=0.99, ge=0, le=1)
    correction: Literal["vtrace"] = "vtrace"
    normalise_advantages: bool = False

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        from ludus.algorithms.common.losses import policy_gradient

        return policy_gradient(logp, batch.advantage)
