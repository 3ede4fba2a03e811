"""What on-policy algorithms share, and what one of one's own says: its networks and its loss. Everything else is here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from ludus.algorithms.base import About, Collect, Learner, LearnerContext
from ludus.algorithms.schedule import Schedule, Scheduled
from ludus.algorithms.spaces import discrete
from ludus.config import Config
from ludus.data.base import ItemUnit, Sizes, TableSpec
from ludus.errors import PolicyError, ScenarioError
from ludus.types import EnvSpec, PolicySpec, Weights

if TYPE_CHECKING:  # a scenario can be read without loading torch
    from torch import Tensor, nn

    from ludus.algorithms.on_policy.batch import Batch

TABLE = "rollouts"


class Gradient(Config):
    """What every on-policy algorithm has: what it collects, and how the rows of a rollout become steps of Adam."""

    batch: int = Field(default=500, ge=1)  # what one update learns from, in batch_unit
    batch_unit: Literal["episodes", "decisions"] = "episodes"
    epochs: int = Field(default=1, ge=1)
    minibatches: int = Field(default=1, ge=1)  # per epoch; 1: the whole batch
    max_lag: int | None = Field(default=None, ge=0)
    capacity: int = Field(default=1_000_000, ge=1)  # most items waiting
    learning_rate: Scheduled = Schedule(start=1e-2)
    gamma: float = Field(default=1.0, ge=0, le=1)
    gae_lambda: float = Field(default=1.0, ge=0, le=1)
    correction: Literal["none", "vtrace"] = "vtrace"  # of rows that older weights made
    rho_bar: float = Field(default=1.0, gt=0)  # V-trace's largest weight of a row, and of a step back in time
    c_bar: float = Field(default=1.0, gt=0)
    max_gradient_norm: float = Field(default=0.5, ge=0)  # 0: not clipped
    normalise_advantages: bool = True
    scale_rewards: bool = True  # by the largest utility, where it is known
    team_rewards: bool = False  # every agent of a team learns from the sum of its rewards

    @property
    def kl_limit(self) -> float | None:
        """The estimated KL divergence from the batch's log-probabilities at which an update ends."""
        return None

    @property
    def item(self) -> ItemUnit:
        return "decision"

    def collect(self) -> Collect:
        return Collect(self.batch_unit, self.batch)

    def _require_loss(self, base: type, method: str, says: str) -> None:
        """Raises ScenarioError for a class that has the learner of `base`, and has not written `method`. says: what that is."""
        if all(getattr(type(self), name) is getattr(base, name) for name in (method, "learner")):
            raise ScenarioError(f"{type(self).__name__} has no loss: derive {method}{says}.")

    def tables(self) -> Sequence[TableSpec]:
        return (TableSpec(TABLE, kind="queue", capacity=self.capacity, max_lag=self.max_lag),)

    def sizes(self) -> Mapping[str, Sizes]:
        """Of decisions as many as are collected; how many an episode has is not known, but it has one at least."""
        return {TABLE: Sizes(insert=self.batch, batch=0)}


class OnPolicy(Gradient):
    """Base of on-policy algorithms of your own: derive, give `networks` and `loss`, and add fields as options.

    One iteration collects `batch`, estimates advantages with the network "critic" (Schulman et al. 2016; gae_lambda 1 gives returns minus
    values), and takes `epochs` times `minibatches` steps of Adam on the loss of the rows. Fields of the derived class are part of its
    policies' spec: policies that differ in them do not start from each other.
    """

    about: ClassVar[About] = About(
        actions=("discrete",), data="on-policy", recurrent=False, masks=True, paper="Schulman et al. 2016"
    )

    def networks(self, inputs: int, actions: int) -> Mapping[str, nn.Module]:
        """Modules by name: "policy" maps float32[n, inputs] to logits [n, actions], "critic" to values [n] or [n, 1]; others are yours."""
        raise NotImplementedError("say which modules by deriving networks(self, inputs, actions)")

    def loss(self, networks: Mapping[str, nn.Module], batch: Batch) -> Tensor:
        """The scalar to be made small. `ludus.algorithms.losses` has the usual terms."""
        raise NotImplementedError("say what is to be made small by deriving loss(self, networks, batch)")

    def check(self, env: EnvSpec) -> None:
        """Raises ScenarioError if some player's actions are not discrete, the networks are not as `networks` says, or there is no loss."""
        from ludus.algorithms.on_policy.models import check_modules

        self._require_loss(OnPolicy, "loss", "(self, networks, batch), which answers the scalar to be made small")
        for player in range(env.num_players):
            spec = self.policy(env, (player,))
            try:
                check_modules(spec)
            except PolicyError as error:
                raise ScenarioError(f"{type(self).__name__} cannot play {env.id}: {error}") from error

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        from ludus.policies.torch_module import torch_spec

        inputs, actions = discrete(env, seats, algorithm=type(self).__name__)
        own: dict[str, Any] = {k: v for k, v in self.model_dump(mode="json").items() if k not in OnPolicy.model_fields}
        cls = type(self)
        return torch_spec(maker=f"{cls.__module__}:{cls.__qualname__}", options=own, inputs=inputs, actions=actions)

    def learner(self, context: LearnerContext, start: Weights | None = None) -> Learner:
        from ludus.algorithms.on_policy.learner import OnPolicyLearner
        from ludus.algorithms.on_policy.models import OwnModel

        return OnPolicyLearner(self, OwnModel(self, context, start), context)
