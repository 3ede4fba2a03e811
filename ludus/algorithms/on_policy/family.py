"""The family of policy gradients: REINFORCE, A2C, PPO and IMPALA differ in a surrogate and in defaults, and share all else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ludus.algorithms.base import About, Collect, Learner, LearnerContext
from ludus.algorithms.images import needs_images
from ludus.algorithms.on_policy.config import TABLE, Gradient
from ludus.algorithms.on_policy.teams import separate_networks
from ludus.algorithms.schedule import Schedule, Scheduled
from ludus.algorithms.spaces import byte_scale, one_space
from ludus.algorithms.team_states import check_state, state_width
from ludus.data.base import ItemUnit, Sizes
from ludus.errors import PolicyError, ScenarioError
from ludus.policies.specs import Body, Core, Value, action_config, actor_critic_spec, body_config
from ludus.types import EnvSpec, PolicySpec, Weights

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.algorithms.on_policy.batch import Batch


class PolicyGradient(Gradient):
    """Networks, action spaces and normalisation of the family, and its loss:

        surrogate - entropy × H(π) + value_coefficient × ½ (V - G)²

    Discrete, multi-discrete and box actions; perceptrons, or convolutions for images (`network`); a GRU or an LSTM behind them (`memory`).
    """

    about: ClassVar[About] = About(
        actions=("discrete", "multi_discrete", "box"),
        data="on-policy",
        recurrent=True,
        masks=True,
        paper="Sutton et al. 2000",
    )
    differs: ClassVar[bool] = True  # from members of its population, if a task says so (`ludus.algorithms.diversity`)
    extra_terms: ClassVar[tuple[str, ...]] = ()  # names of what `terms` answers

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
    def _check_critic(self) -> Self:
        if self.value_network == "central" and self.network != "mlp":
            raise ValueError(
                f"a central critic is a perceptron; give network mlp (given: {self.network}), or value_network shared (of ppo: MAPPO has "
                "none)"
            )
        if self.critic_hidden is not None and self.value_network != "central":
            raise ValueError(f"critic_hidden is a central critic's; value_network is {self.value_network}")
        return self

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        """The policy's loss of each row [n], from its log-probabilities now."""
        raise NotImplementedError("say what the policy loses by deriving surrogate(self, logp, batch)")

    def terms(self, logp: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """More metrics, per row [n]."""
        return {}

    @property
    def item(self) -> ItemUnit:
        return "decision" if self.memory == "none" else "segment"

    def sizes(self) -> Mapping[str, Sizes]:
        """As `Gradient.sizes`; decisions become so many sequences at least."""
        if self.item == "decision" or self.batch_unit == "episodes":
            return super().sizes()
        return {TABLE: Sizes(insert=-(-self.batch // self.sequence), batch=0)}

    def collect(self) -> Collect:
        return replace(super().collect(), state=self.value_network == "central")

    def check(self, env: EnvSpec) -> None:
        """Raises ScenarioError if it cannot play some player's actions, or see its observations, or if there is no `surrogate`."""
        says = "(self, logp, batch), which answers the policy's loss of each row, such as -logp * batch.advantage"
        self._require_loss(PolicyGradient, "surrogate", says)
        for player in range(env.num_players):
            self.policy(env, (player,))

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        """Raises ScenarioError if it cannot play there."""
        name = type(self).__name__
        observation, space = one_space(env, seats, algorithm=name)
        try:
            action = action_config(space, squash=self.continuous == "tanh")
        except PolicyError as error:
            raise ScenarioError(f"{name} cannot play {env.id}: {error}") from error
        if action["kind"] == "tanh" and None in (*action["low"], *action["high"]):
            raise ScenarioError(
                f"{name} with continuous=tanh needs actions with finite bounds; {env.id} has {space}. Use continuous=gaussian."
            )
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
        kept = {"observations": self.normalise_observations, "returns": self.normalise_returns}
        return actor_critic_spec(
            shape=shape,
            action=action,
            body=body_config(self.network, self.hidden, self.activation),
            core=self.memory,
            width=self.memory_size,
            value=self.value_network,
            scale=1.0 if self.normalise_observations else byte_scale(env, observation),
            normalise=[key for key, wanted in kept.items() if wanted],
            state=state_width(env, seats) if central else 0,
            critic=body_config(hidden=judging, activation=self.activation) if central else None,
            agents=1 if self.share_weights else separate_networks(env, seats, algorithm=name),
        )

    def learner(self, context: LearnerContext, start: Weights | None = None) -> Learner:
        from ludus.algorithms.on_policy.actor_critic import FamilyModel
        from ludus.algorithms.on_policy.learner import OnPolicyLearner

        return OnPolicyLearner(self, FamilyModel(self, context, start), context)
