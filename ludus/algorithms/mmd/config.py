"""Settings of magnetic mirror descent and R-NaD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ludus.algorithms.common.base import ROLLOUTS, AlgorithmInfo, Collect
from ludus.algorithms.common.config import CollectOptions
from ludus.algorithms.common.schedule import Schedule, Scheduled
from ludus.algorithms.common.space_checks import discrete, players_of
from ludus.algorithms.on_policy.config import CAPACITY, rollouts_table
from ludus.core.config import refuse_unread
from ludus.core.errors import ScenarioError
from ludus.core.types import EnvSpec, PolicySpec
from ludus.policies.specs import averaged_spec, mlp_spec, tabular_spec
from ludus.replay.base import ItemUnit, Sizes, TableSpec


def _about(paper: str) -> AlgorithmInfo:
    return AlgorithmInfo(actions=("discrete",), data="on-policy", recurrent=False, masks=True, paper=paper)


_OF_NETWORKS = (
    "hidden", "activation", "value_network", "epochs", "minibatches", "policy_loss",
    "learning_rate", "clip", "value_coefficient", "max_gradient_norm",
)  # fmt: skip
"""Options that a table does without."""


class MMD(CollectOptions):
    """Magnetic mirror descent (Sokota et al. 2023) as a policy gradient, with masked discrete actions; see the README beside this file.

    In self-play it needs no population: its last policy approaches an equilibrium as `alpha` falls."""

    about: ClassVar[AlgorithmInfo] = _about("Sokota et al. 2023")
    learner_class: ClassVar[str] = "ludus.algorithms.mmd.learner:make_learner"
    # what the learner of on-policy algorithms asks of them, and this one does not have
    correction: ClassVar[str] = "none"
    discount: ClassVar[str] = "decision"
    rho_bar: ClassVar[float] = 1.0
    c_bar: ClassVar[float] = 1.0
    normalise_advantages: ClassVar[bool] = False
    team_rewards: ClassVar[bool] = False
    kl_limit: ClassVar[float | None] = None
    clip_value: ClassVar[float | None] = None

    network: Literal["mlp", "table"] = (
        "mlp"  # table: a row per information state of an enumerated game, and steps in closed form
    )
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "relu"
    value_network: Literal["shared", "separate"] = "shared"

    batch: int = Field(default=1000, ge=1)  # what one update learns from, in batch_unit
    batch_unit: Literal["episodes", "decisions"] = "episodes"
    epochs: int = Field(default=10, ge=1)
    minibatches: int = Field(default=1, ge=1)  # per epoch; 1: the whole batch
    max_lag: int | None = Field(default=None, ge=0)
    capacity: int = Field(default=CAPACITY, ge=1)  # most rows waiting; by default two batches at least

    alpha: Scheduled = Schedule(start=0.05, end=0.005, shape="exponential")  # strength of the magnet
    eta: Scheduled = Schedule(start=10.0)  # step size: KL to the policy before the update weighs 1 / eta; 0: nothing
    magnet: Literal["uniform", "moving", "policy"] = "uniform"
    magnet_rate: Scheduled = Schedule(
        start=0.01
    )  # of "moving": how far it goes towards the policy per update, at most 1
    magnet_period: int = Field(default=100, ge=1)  # of "policy": updates between copies
    regularise: Literal["loss", "reward"] = "loss"
    policy_loss: Literal["surrogate", "neurd"] = "surrogate"  # of mlp: the ratio times the advantage; or NeuRD's
    logit_threshold: float = Field(default=2.0, gt=0)  # of "neurd": how far from their mean logits are pushed
    advantage_clip: float = Field(default=10_000.0, gt=0)  # and the most that an action's advantage counts
    announce: Literal["newest", "magnet", "average"] = "newest"  # who is evaluated; the newest one plays and learns
    average_rate: Scheduled = Schedule(start=0.01)  # of "average": how far it goes towards the newest per update

    learning_rate: Scheduled = Schedule(start=1e-3)
    gamma: float = Field(default=1.0, ge=0, le=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    clip: float | None = Field(default=None, gt=0)
    value_coefficient: float = Field(default=1.0, ge=0)
    max_gradient_norm: float = Field(default=0.0, ge=0)  # 0: not clipped
    scale_rewards: bool = True  # by the largest utility, where it is known

    bound: float = Field(default=3.0, gt=0)  # of "table": most that an advantage, over its action's probability, counts
    explore: float = Field(
        default=0.0, ge=0, lt=1
    )  # of "table" that announces its magnet or average: share of uniform play in what plays
    value_rate: float = Field(default=0.02, gt=0, le=1)  # of "table": how far a row moves its state's value

    @model_validator(mode="after")
    def _check(self) -> MMD:
        if self.regularise == "reward" and self.alpha.start == 0.0 and not self.alpha.end:
            raise ValueError("regularise=reward with alpha=0 regularises nothing; give alpha, or regularise=loss")
        for name in ("magnet_rate", "average_rate"):
            if (largest := getattr(self, name).largest) > 1.0:
                raise ValueError(
                    f"{name} is the share of the way to the policy; its start and end must be at most 1 (given: {largest:g})"
                )
        if self.explore > 0.0 and (self.network != "table" or self.announce == "newest"):
            raise ValueError(
                "explore is for network=table that announces its magnet or average, which are evaluated without it"
            )
        if self.policy_loss == "neurd" and self.clip is not None:
            raise ValueError(
                "clip is of the ratio, which policy_loss=neurd has not; give policy_loss=surrogate, or no clip"
            )
        self._check_read()
        if self.announce == "magnet" and self.magnet == "uniform":
            raise ValueError("announce=magnet would announce the uniform policy; give magnet=moving")
        if (
            self.network == "table"
            and min(self.eta.start, self.eta.start if self.eta.end is None else self.eta.end) <= 0.0
        ):
            raise ValueError("network=table takes steps of size eta, which must be above 0 from start to end")
        return self

    def _check_read(self) -> None:
        table = self.network == "table"
        neurd = self.policy_loss == "neurd" and not table
        refuse_unread(
            self,
            {
                "average_rate": (self.announce == "average", "announce=average"),
                "magnet_rate": (self.magnet == "moving", "magnet=moving"),
                "magnet_period": (self.magnet == "policy", "magnet=policy"),
                "logit_threshold": (neurd, "policy_loss=neurd with network=mlp"),
                "advantage_clip": (neurd, "policy_loss=neurd with network=mlp"),
                **{name: (not table, "network=mlp") for name in _OF_NETWORKS},
                **{name: (table, "network=table") for name in ("bound", "value_rate")},
            },
        )

    @property
    def step_rows(self) -> int:
        """As `Gradient.step_rows`."""
        return max(1, self.batch * (10 if self.batch_unit == "episodes" else 1) // self.minibatches)

    @property
    def item(self) -> ItemUnit:
        return "decision"

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raises ScenarioError if some player's actions are not discrete, or it is to have a table and the game is not enumerated."""
        for player in players_of(env, seats):
            discrete(env, (player,), algorithm=type(self).__name__)
        if self.network == "table" and env.enumeration is None:
            raise ScenarioError(
                f"network=table needs a game that is compiled to a tree, and {env.id} is not; use network=mlp."
            )

    def collect(self) -> Collect:
        modes = (("newest", 1.0),) if self.announce != "newest" else ()
        return Collect(self.batch_unit, self.batch, modes=modes, processing=self.processing)

    def tables(self) -> Sequence[TableSpec]:
        rows = self.step_rows * self.minibatches
        return (rollouts_table(rows=rows, capacity=self.capacity, max_lag=self.max_lag),)

    def sizes(self) -> Mapping[str, Sizes]:
        """Known where decisions are collected; how many an episode has is not."""
        return {ROLLOUTS: Sizes(insert=self.batch, batch=0)} if self.batch_unit == "decisions" else {}

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        spec = self.plain_policy(env, seats)
        return averaged_spec(spec) if self.announce != "newest" else spec

    def plain_policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        """The spec of one policy, be it the newest or the magnet."""
        if self.network == "table":
            self.check(env, seats)
            assert env.enumeration is not None
            return tabular_spec(env.enumeration, seats)
        inputs, actions = discrete(env, seats, algorithm=type(self).__name__)
        return mlp_spec(
            inputs=inputs, actions=actions, hidden=self.hidden, activation=self.activation, value=self.value_network
        )


class RNaD(MMD):
    """Regularised Nash dynamics (Perolat et al. 2021, 2022): the same learner, whose rewards are regularised towards an earlier policy of
    its own. That policy is replaced again and again, so that no regularisation is left in what it converges to."""

    about: ClassVar[AlgorithmInfo] = _about("Perolat et al. 2022")

    batch: int = Field(default=250, ge=1)  # what one update learns from, in batch_unit
    epochs: int = Field(default=1, ge=1)
    alpha: Scheduled = Schedule(start=0.05)
    eta: Scheduled = Schedule(start=0.0)  # a table needs some
    magnet: Literal["uniform", "moving", "policy"] = "policy"
    magnet_period: int = Field(
        default=800, ge=1
    )  # with fewer, or less alpha, policies cycle and do not settle between two magnets
    regularise: Literal["loss", "reward"] = "reward"
    policy_loss: Literal["surrogate", "neurd"] = "neurd"
