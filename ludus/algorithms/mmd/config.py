"""Configurations of magnetic mirror descent and R-NaD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ludus.algorithms.common.base import ROLLOUTS, AlgorithmInfo, CollectConfig
from ludus.algorithms.common.config import CollectOptions, Schedule, Scheduled
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
    """Magnetic mirror descent (Sokota et al. 2023) as a policy gradient, with masked discrete actions; see the README
    beside this file.

    In self-play it needs no population: its last policy approaches an equilibrium as `alpha` falls.

    Attributes:
        network: Policy: "mlp", or "table", one row per information state of an enumerated game, with closed-form steps.
        hidden: Widths of the hidden layers.
        activation: Nonlinearity of the perceptron.
        value_network: Where values come from: "shared", one more output of the policy's network; "separate", a network.
        batch: What one update learns from, in `batch_unit`.
        batch_unit: Unit of `batch`.
        epochs: Passes over the batch in one update.
        minibatches: Gradient steps per epoch; 1: the whole batch.
        max_lag: Rows that are older than this number of weight versions are dropped; None: none are.
        capacity: Most rows that wait; by default at least two batches.
        alpha: α, strength of the magnet: weight of KL(π ‖ magnet). 0.05 falling to 0.005; the equilibrium found is that
            of the game regularised by it.
        eta: η, step size: KL(π ‖ policy before the update) has weight 1 / η; 0: no weight. 0.1 to 10.
        magnet: Policy μ: "uniform"; "moving", which follows the policy; "policy", copied every `magnet_period` updates.
        magnet_rate: Share by which a moving magnet approaches the policy per update.
        magnet_period: Updates between copies of "policy".
        regularise: Whether the magnet is a term of the "loss", or a cost in the "reward" (R-NaD).
        policy_loss: For "mlp": the importance-weighted "surrogate", or "neurd" (Hennes et al. 2020).
        logit_threshold: β of NeuRD: distance from their state's mean beyond which logits are not pushed.
        advantage_clip: Largest advantage of an action in NeuRD.
        announce: Which policy is published for evaluation: "newest", "magnet", or the running "average". The newest one
            plays and learns.
        average_rate: Share by which the average approaches the newest policy per update.
        learning_rate: Step size of Adam.
        gamma: Discount per own decision; 1: the rules end every episode.
        gae_lambda: λ of generalised advantage estimation.
        clip: Range ε of the ratio in the surrogate; None: not clipped.
        value_coefficient: Weight of the value loss.
        max_gradient_norm: Norm to which the gradient is scaled down; 0: it is not clipped.
        scale_rewards: Whether rewards are divided by the largest utility, if `utility_range` is finite.
        bound: For "table": largest magnitude of advantage / probability.
        explore: For "table" that publishes its magnet or average: share of uniform play of the acting policy.
        value_rate: For "table": share by which one row moves its state's value.
    """

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

    network: Literal["mlp", "table"] = "mlp"
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "relu"
    value_network: Literal["shared", "separate"] = "shared"

    batch: int = Field(default=1000, ge=1)
    batch_unit: Literal["episodes", "decisions"] = "episodes"
    epochs: int = Field(default=10, ge=1)
    minibatches: int = Field(default=1, ge=1)
    max_lag: int | None = Field(default=None, ge=0)
    capacity: int = Field(default=CAPACITY, ge=1)

    alpha: Scheduled = Schedule(start=0.05, end=0.005, shape="exponential")
    eta: Scheduled = Schedule(start=10.0)
    magnet: Literal["uniform", "moving", "policy"] = "uniform"
    magnet_rate: Scheduled = Schedule(start=0.01)
    magnet_period: int = Field(default=100, ge=1)
    regularise: Literal["loss", "reward"] = "loss"
    policy_loss: Literal["surrogate", "neurd"] = "surrogate"
    logit_threshold: float = Field(default=2.0, gt=0)
    advantage_clip: float = Field(default=10_000.0, gt=0)
    announce: Literal["newest", "magnet", "average"] = "newest"
    average_rate: Scheduled = Schedule(start=0.01)

    learning_rate: Scheduled = Schedule(start=1e-3)
    gamma: float = Field(default=1.0, ge=0, le=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    clip: float | None = Field(default=None, gt=0)
    value_coefficient: float = Field(default=1.0, ge=0)
    max_gradient_norm: float = Field(default=0.0, ge=0)
    scale_rewards: bool = True

    bound: float = Field(default=3.0, gt=0)
    explore: float = Field(default=0.0, ge=0, lt=1)
    value_rate: float = Field(default=0.02, gt=0, le=1)

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
        """Return the rows of one gradient step, approximately: an episode counts as ten."""
        return max(1, self.batch * (10 if self.batch_unit == "episodes" else 1) // self.minibatches)

    @property
    def item(self) -> ItemUnit:
        return "decision"

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise ScenarioError if a player's actions are not discrete, or network=table and the game is not enumerated."""
        for player in players_of(env, seats):
            discrete(env, (player,), algorithm=type(self).__name__)
        if self.network == "table" and env.enumeration is None:
            raise ScenarioError(
                f"network=table needs a game that is compiled to a tree, and {env.id} is not: {env.no_tree}. Use network=mlp."
            )

    def collect(self) -> CollectConfig:
        modes = (("newest", 1.0),) if self.announce != "newest" else ()
        return CollectConfig(self.batch_unit, self.batch, modes=modes, processing=self.processing)

    def tables(self) -> Sequence[TableSpec]:
        rows = self.step_rows * self.minibatches
        return (rollouts_table(rows=rows, capacity=self.capacity, max_lag=self.max_lag),)

    def sizes(self) -> Mapping[str, Sizes]:
        """Return the sizes: inserts are known where decisions are collected."""
        return {ROLLOUTS: Sizes(insert=self.batch, batch=0)} if self.batch_unit == "decisions" else {}

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        spec = self.plain_policy(env, seats)
        return averaged_spec(spec) if self.announce != "newest" else spec

    def plain_policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        """Return the spec of a single policy, the newest or the magnet."""
        if self.network == "table":
            self.check(env, seats)
            assert env.enumeration is not None
            return tabular_spec(env.enumeration, seats)
        inputs, actions = discrete(env, seats, algorithm=type(self).__name__)
        return mlp_spec(
            inputs=inputs, actions=actions, hidden=self.hidden, activation=self.activation, value=self.value_network
        )


class RNaD(MMD):
    """Regularised Nash dynamics (Perolat et al. 2021, 2022): mirror descent whose rewards are regularised towards an
    earlier policy of its own. That policy is replaced repeatedly, so that no regularisation is left in the limit. See
    `MMD` for the options.

    Attributes:
        eta: η, step size; 0: no KL to the policy before the update; a table needs a positive value.
        magnet_period: Updates between copies; with fewer, or a smaller alpha, policies cycle and do not settle between two
            magnets.
    """

    about: ClassVar[AlgorithmInfo] = _about("Perolat et al. 2022")

    batch: int = Field(default=250, ge=1)
    epochs: int = Field(default=1, ge=1)
    alpha: Scheduled = Schedule(start=0.05)
    eta: Scheduled = Schedule(start=0.0)
    magnet: Literal["uniform", "moving", "policy"] = "policy"
    magnet_period: int = Field(default=800, ge=1)
    regularise: Literal["loss", "reward"] = "reward"
    policy_loss: Literal["surrogate", "neurd"] = "neurd"
