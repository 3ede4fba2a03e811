"""Configurations of algorithms that learn from tree search, and AlphaZero's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from ludus.algorithms.common.base import AlgorithmInfo, CollectConfig
from ludus.algorithms.common.config import ReplayOptions, Schedule, Scheduled
from ludus.algorithms.common.space_checks import byte_scale, discrete, needs_images, one_space, players_of, reward_scale
from ludus.core.config import is_stored, refuse_unread
from ludus.core.errors import ConfigError, ScenarioError
from ludus.core.types import EnvSpec, PolicySpec
from ludus.envs.rules import build_rules, require_rules, rules_config
from ludus.policies.specs import SEARCH_POLICY, SEARCH_VALUE, Body, actor_critic_spec, body_config, searching_spec
from ludus.replay.base import ItemUnit, Sizes, TableSpec

_SETTINGS = (
    "simulations",
    "leaves",
    "selection",
    "init",
    "base",
    "unvisited",
    "virtual_loss",
    "considered",
    "gumbel_visits",
    "gumbel_scale",
)
"""Options of the search, as `ludus.policies.search.search.SearchSettings` has them."""


class SearchOptions(ReplayOptions):
    """Base of algorithms that learn from their searches and replay decisions. See `ReplayOptions` for replay's options.

    Attributes:
        simulations: Simulations per move in training; 16 to 800.
        play_simulations: Simulations per move in mode "search".
        leaves: Leaves of each tree that are evaluated in one batch; more are faster and search less well.
        virtual_loss: Loss that a pending visit counts as, with several leaves.
        selection: Rule: "puct" (Silver et al. 2018), or "gumbel" (Danihelka et al. 2022), which improves the policy with few
            simulations.
        init: c_init of PUCT: weight of exploration; 1.25 in the paper.
        base: c_base of PUCT: visits at which exploration grows; 19,652 in the paper.
        unvisited: Value of unvisited actions in PUCT: "zero", or that of their "node".
        considered: Gumbel: actions of the root that sequential halving starts with; 16 in the paper.
        gumbel_visits: Gumbel: c_visit; 50 in the paper.
        gumbel_scale: Gumbel: c_scale; 0.1 to 1.
        dirichlet: Concentration of the noise at roots; about 10 / number of legal actions.
        noise: Share of that noise in the prior; 0.25 in the paper.
        rollout: What is collected between two rounds of updates.
        capacity: Decisions in the replay table.
        min_size: Decisions before the first update.
        batch: Decisions per update.
        updates_per_decision: Updates per collected decision.
        reanalyse: Share of the batch whose policy targets come from new searches by the newest weights (Schrittwieser
            et al. 2020).
        value_coefficient: Weight of the value loss.
        l2: Weight of the sum of the weights' squares; 1e-4 in the paper.
        average: Share by which the published weights follow the trained ones per update; 1: they are equal.
        learning_rate: Step size of Adam.
        max_gradient_norm: Norm to which the gradient is scaled down; 0: it is not clipped.
        scale_rewards: Whether rewards are divided by the largest utility, if `utility_range` is finite.
    """

    simulations: int = Field(default=50, ge=1)
    play_simulations: int = Field(default=200, ge=1)
    leaves: int = Field(default=1, ge=1)
    virtual_loss: float = Field(default=1.0, ge=0)
    selection: Literal["puct", "gumbel"] = "puct"
    init: float = Field(default=1.25, ge=0)
    base: float = Field(default=19652.0, gt=0)
    unvisited: Literal["zero", "node"] = "node"
    considered: int = Field(default=16, ge=1)
    gumbel_visits: float = Field(default=50.0, ge=0)
    gumbel_scale: float = Field(default=0.1, gt=0)

    dirichlet: float = Field(default=1.0, gt=0)
    noise: float = Field(default=0.25, ge=0, le=1)

    rollout: int = Field(default=256, ge=1)
    capacity: int = Field(default=200_000, ge=1)
    min_size: int = Field(default=2_000, ge=1)
    batch: int = Field(default=512, ge=1)
    updates_per_decision: float = Field(default=0.01, gt=0)
    reanalyse: float = Field(default=0.0, ge=0, le=1)
    value_coefficient: float = Field(default=1.0, ge=0)
    l2: float = Field(default=1e-4, ge=0)
    average: float = Field(default=1.0, gt=0, le=1)
    learning_rate: Scheduled = Schedule(start=1e-3)
    max_gradient_norm: float = Field(default=0.0, ge=0)
    scale_rewards: bool = True

    @model_validator(mode="after")
    def _check_search(self) -> Self:
        if self.selection == "gumbel" and self.leaves > 1:
            raise ValueError(
                f"selection=gumbel halves the root's actions one simulation at a time; leaves is {self.leaves}, and must be 1"
            )
        if self.min_size > self.capacity:
            raise ValueError(f"min_size {self.min_size} must be at most the capacity {self.capacity}")
        if self.priority_exponent:
            raise ValueError("decisions have no priorities here; leave priority_exponent at 0")
        gumbel = self.selection == "gumbel"
        by_puct = ("init", "base", "unvisited", "dirichlet", "noise", "temperature", "temperature_moves")
        refuse_unread(
            self,
            {
                **{name: (not gumbel, "selection=puct") for name in by_puct if name in type(self).model_fields},
                **{name: (gumbel, "selection=gumbel") for name in ("considered", "gumbel_visits", "gumbel_scale")},
                "virtual_loss": (self.leaves > 1, "several leaves"),
            },
        )
        if self.reanalyse > 0.0 and int(self.reanalyse * self.batch) < 1 and not is_stored():
            raise ValueError(
                f"reanalyse {self.reanalyse:g} of a batch of {self.batch} is less than one row, and none would be searched again; give at "
                "least 1 / batch, or 0"
            )
        for name in ("simulations", "play_simulations"):
            if getattr(self, name) % self.leaves and not is_stored():
                raise ValueError(
                    f"{name} are made {self.leaves} at a time (leaves), and {getattr(self, name)} is no multiple of that"
                )
        return self

    @property
    def search(self) -> dict[str, Any]:
        """Return the options of the search in training, as specs have them."""
        return {name: getattr(self, name) for name in _SETTINGS}

    @property
    def item(self) -> ItemUnit:
        return "decision"

    def collected(self, unit: Literal["episodes", "decisions"]) -> CollectConfig:
        """Return what one iteration collects: play by the search, with its policies and values."""
        return CollectConfig(
            unit,
            self.rollout,
            extras=(SEARCH_POLICY, SEARCH_VALUE),
            modes=(("self_play", 1.0),),
            publish_every=self.publish_every,
            processing=self.processing,
        )

    def tables(self) -> Sequence[TableSpec]:
        return (self.replay_table(capacity=self.capacity, min_size=self.min_size),)

    def sizes(self) -> Mapping[str, Sizes]:
        """Return the batch size; the decisions of an episode are not known."""
        return self.replay_sizes(insert=None, batch=self.batch)


class AlphaZero(SearchOptions):
    """Self-play by tree search, and a network that learns the search's results (Silver et al. 2018); with
    selection=gumbel as Danihelka et al. (2022) search. See the README beside this file. See `SearchOptions` for the
    inherited options.

    Attributes:
        rules: Rules of the game: {kind: in_a_row, …} or `module:Class`; None: by the environment's name.
        temperature: Early moves are sampled ∝ visits^(1 / temperature).
        temperature_moves: Moves of a game (both players') that are sampled so; later ones are the best. 30 in the
            paper.
        network: Body of the network: "mlp", "nature", "impala", or a custom module `module:Class`.
        hidden: Widths of the perceptron's hidden layers.
        activation: Nonlinearity of the perceptron.
        value_lambda: λ of value targets: 1: the game's outcome; 0: the value of the next search.
        symmetries: Whether each position is learned in a random one of the rules' symmetries.
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("discrete",), data="off-policy", recurrent=False, masks=True, paper="Silver et al. 2018"
    )
    learner_class: ClassVar[str] = "ludus.algorithms.alphazero.learner:AlphaZeroLearner"

    rules: dict[str, Any] | None = None
    temperature: float = Field(default=1.0, gt=0)
    temperature_moves: int = Field(default=15, ge=0)

    network: Body = "mlp"
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (128, 128)
    activation: Literal["tanh", "relu"] = "relu"

    value_lambda: float = Field(default=1.0, ge=0, le=1)
    symmetries: bool = True
    gamma: ClassVar[float] = 1.0
    n_step: ClassVar[int] = 1  # values are not of steps: see `value_lambda`

    @field_validator("rules", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        if self.rules is not None:
            build_rules(self.rules)
        return self

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise ScenarioError for a game without known rules, and for a learner that does not play all of its seats."""
        if len(players_of(env, seats)) < env.num_players:
            raise ScenarioError(
                f"AlphaZero's search plays every side with one network, which learns them all; here it would learn the moves of player "
                f"{', '.join(map(str, seats))} of {env.id} alone. Give share=always, or one algorithm to all players."
            )
        self.policy(env, tuple(players_of(env, seats)))

    def collect(self) -> CollectConfig:
        return self.collected("episodes")

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        """Return the spec of the searching policy. Raise ScenarioError if it cannot play there."""
        _, actions = discrete(env, seats, algorithm="AlphaZero")
        observation, _ = one_space(env, seats, algorithm="AlphaZero")
        rules_options = rules_config(env, self.rules)
        try:
            rules = build_rules(rules_options)
        except ConfigError as error:
            raise ScenarioError(f"AlphaZero in {env.id}: {error}") from error
        scale = reward_scale(env, (0, 1)[: env.num_players], enabled=self.scale_rewards)
        require_rules(rules, env, algorithm="AlphaZero", scale=scale)
        shape = tuple(observation.shape or ()) if env.enumeration is None else env.enumeration.observation.shape[1:]
        needs_images(shape, network=self.network, algorithm="AlphaZero", option="network", env_id=env.id)
        network = actor_critic_spec(
            shape=shape,
            action={"kind": "categorical", "actions": actions},
            body=body_config(self.network, self.hidden, self.activation),
            scale=byte_scale(env, observation),
        )
        return searching_spec(
            network,
            rules=rules_options,
            search=self.search,
            play=self.play_simulations,
            noise={
                "concentration": self.dirichlet,
                "share": self.noise,
                "temperature": self.temperature,
                "moves": self.temperature_moves,
            },
        )
