"""What to run: environment, algorithm, limits, runtime; each kind adds its schedule's options. Plain data from a YAML file or Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from ludus.algorithms.common.base import Algorithm, ComputedOracle
from ludus.algorithms.common.registry import ALGORITHMS, Algorithms
from ludus.core.config import Config, is_stored, to_yaml
from ludus.core.errors import ConfigError, ScenarioError, UnknownName
from ludus.core.parts import build_part, dump_part, resolve_name
from ludus.core.types import EnvSpec
from ludus.envs.config import Environment, Switch, with_import
from ludus.metagame.population.base import populations_of, seats_of
from ludus.metagame.solvers.base import MetaSolver
from ludus.metagame.solvers.match_selection import Goal, ResponseGraph
from ludus.policies.specs import tabulates
from ludus.runs.scenario_runtime import SHARDS, RuntimeChoice
from ludus.schedulers.base import Scheduler
from ludus.schedulers.config import ScheduleContext, ScheduleOptions
from ludus.schedulers.payoff_tasks import AdaptiveSelection, AllMissing, MatchSelection
from ludus.storage.run_dirs import is_run_name
from ludus.training.callbacks import dump_callback, parse_callbacks
from ludus.training.stopping import dump_stopper, parse_stopper


class BackgroundEvaluation(Config):
    """A process that plays every `every`-th version of a learner against its opponents while it learns. num_envs: of its own. beside: also
    of a run in one process (`runtime.kind=inprocess`), by a child of it; else that run plays them itself, in between."""

    every: int = Field(10, ge=1)
    episodes: int = Field(100, ge=2)
    num_envs: int = Field(16, ge=1)
    beside: bool = False


class AdaptivePayoffs(Config):
    """Matches go where the goal depends on them, until it is reached with `confidence`, or the budget of the generation is spent.

    goal: meta_strategy, whose NashConv in the meta-game is to be at most `tolerance` (0: until the budget is spent); or ranking, in which
    every comparison is to be decided: of two payoffs of a player against the same others, or, where two players share a population, of what
    two policies earn when they meet (the response graph, which α-Rank reads).

    budget: blocks of a generation; a block is one episode in each order of the seats of players who share a population. portion: blocks
    that a profile gets at a time. start: profiles that a new policy is played in at first (null: all). batch: blocks that are given out
    before it is looked again at what matters, at most a sixteenth of the budget.
    """

    goal: Literal["meta_strategy", "ranking"] = "meta_strategy"
    budget: int = Field(20_000, ge=1)
    portion: int = Field(100, ge=1)
    tolerance: float = Field(0.0, ge=0)
    confidence: float = Field(0.95, gt=0, lt=1)
    start: int | None = Field(10, ge=1)
    batch: int = Field(1000, ge=1)

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.budget < self.portion:
            raise ConfigError(f"a budget of {self.budget} is less than one portion of {self.portion}.")
        if self.goal == "ranking" and self.tolerance > 0.0:
            raise ConfigError(
                f"tolerance={self.tolerance} is a NashConv, and goal=ranking asks for none: its matches end when every comparison is "
                "decided with `confidence`. Leave one of them out."
            )
        return self

    def check(self, env: EnvSpec) -> None:
        """Raises ScenarioError where returns have no known limits, and what is asked for needs them."""
        if np.isfinite(env.utility_range).all():
            return
        if self.goal == "ranking":
            raise ScenarioError(
                f"evaluation.adaptive.goal=ranking needs returns between known limits, or no comparison is ever decided, and {env.id} has "
                f"{env.utility_range}. Give the environment a utility_range if it takes one, or use goal=meta_strategy."
            )
        if self.tolerance > 0:
            raise ScenarioError(
                f"evaluation.adaptive.tolerance={self.tolerance} needs returns between known limits, and {env.id} has {env.utility_range}. "
                "Set it to 0, so that the budget alone ends the evaluation."
            )

    def build_goal(self) -> Goal | None:
        """The goal; None: that of the meta-strategy, which needs to know the rest."""
        return ResponseGraph(confidence=self.confidence) if self.goal == "ranking" else None


class Evaluation(Config):
    """payoffs: exact where the game tree allows (auto), or by play with `episodes` per profile. adaptive: play goes where it matters
    instead; exact payoffs need none. exploitability: likewise exact, or off. background: scores of learners while they train, or none.
    workers: processes that play the matches of members which are there already while others train; results stay the same. Of a run in one
    process (`runtime.kind=inprocess`) they are children."""

    payoffs: Literal["auto", "exact", "simulate"] = "auto"
    episodes: int = Field(1000, ge=2)
    adaptive: AdaptivePayoffs | None = None
    exploitability: Annotated[Literal["auto", "exact", "off"], Switch] = "auto"
    background: BackgroundEvaluation | None = None
    workers: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _sampled(self) -> Self:
        if self.workers and (self.adaptive is not None or self.payoffs == "exact"):
            why = (
                "adaptive evaluation decides as it goes what is played"
                if self.adaptive
                else "exact payoffs need no matches"
            )
            raise ConfigError(f"workers={self.workers} play matches ahead, and {why}. Leave one of them out.")
        if self.adaptive is not None and self.payoffs == "exact":
            raise ConfigError(
                "exact payoffs need no matches: leave `adaptive` out, or give payoffs: simulate (or auto)."
            )
        return self

    @property
    def portion(self) -> int:
        """Episodes that a profile plays at a time."""
        return self.episodes if self.adaptive is None else self.adaptive.portion

    def selection(self, solver: MetaSolver, seed: int) -> MatchSelection:
        """What decides which matches are played. solver: whose solutions it looks at."""
        if self.adaptive is None:
            return AllMissing()
        options = {**self.adaptive.model_dump(), "goal": self.adaptive.build_goal()}
        return AdaptiveSelection(solver=solver, episodes=self.episodes, seed=seed, **options)

    def check(self, context: ScheduleContext, schedule: ScheduleOptions, env: Environment) -> None:
        """Raises ScenarioError for what cannot be computed of this game, or of what the algorithm trains."""
        spec = context.env
        exact = [k for k in ("payoffs", "exploitability") if getattr(self, k) == "exact"]
        if exact and spec.enumeration is None:
            raise ScenarioError(
                f"evaluation.{exact[0]}=exact needs a game that can be enumerated; {spec.id} is not (tree={env.tree}, "
                f"node_limit={env.node_limit}). Use auto, or raise env.node_limit."
            )
        if exact and env.wrappers:
            raise ScenarioError(
                f"evaluation.{exact[0]}=exact was given, and a wrapped {spec.id} is no longer the game of its tree. Leave it out, or "
                "env.wrappers."
            )
        if env.enumerated(spec):
            self._check_tables(context, schedule)
        if self.adaptive is not None:
            self.adaptive.check(spec)

    def _check_tables(self, context: ScheduleContext, schedule: ScheduleOptions) -> None:
        """That policies can be evaluated exactly where they will be."""
        chosen = {"payoffs": self.payoffs, "exploitability": self.exploitability}
        exact = ", ".join(f"evaluation.{key}={how}" for key, how in chosen.items() if how not in ("simulate", "off"))
        if not exact:
            return
        for assignment in context.assigned:
            spec = assignment.policy
            for mode in sorted(schedule.modes):
                if not tabulates(spec, mode=mode):
                    other = " Or set mode=greedy." if tabulates(spec, mode="greedy") else ""
                    raise ScenarioError(
                        f"{exact}: {context.env.id} has a game tree, on which that is computed exactly, and the algorithm "
                        f"{assignment.name!r} trains policies of kind {spec.kind!r}, which in mode {mode} depend on "
                        "more than the information state (memory, or noise that lasts). Set evaluation.payoffs=simulate and "
                        f"evaluation.exploitability=off.{other}"
                    )


class Checkpoints(Config):
    """Barriers: at the start of every `generations`-th generation, every `iterations` training iterations inside a response, and after
    evaluation that has played so many matches. They are part of the schedule: a run without a kill passes them too. horizon: one inside a
    response, which ends open episodes, does not come before the longest episode can have ended since the last one, where the environment
    says how long that is; false as it is read from a run that was begun before there was this rule. keep: complete checkpoints left on
    disk."""

    generations: int = Field(1, ge=1)
    iterations: int = Field(200, ge=1)
    horizon: bool = Field(default_factory=lambda: not is_stored())
    keep: int = Field(2, ge=1)


def _name(value: str) -> str:
    if value and not is_run_name(value):
        raise ConfigError(f"{value!r} was given; use letters, digits, - _ and ., a letter or digit first.")
    return value


def _runtime(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


AlgorithmChoice = Annotated[
    Any,
    BeforeValidator(lambda v: build_part("algorithm", v, ALGORITHMS)),
    PlainSerializer(lambda part: dump_part(part, ALGORITHMS)),
]


def _by_name(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"players or roles with their algorithms were expected, {{1: dqn}} say; given {value!r}.")
    algorithms = {}
    for name, part in value.items():
        try:
            algorithms[str(name)] = build_part("algorithm", part, ALGORITHMS)
        except UnknownName:
            raise
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
    return algorithms


AlgorithmsByName = Annotated[
    dict[str, Any],
    BeforeValidator(_by_name),
    PlainSerializer(lambda parts: {name: dump_part(part, ALGORITHMS) for name, part in parts.items()}),
]
Stop = Annotated[
    Any,
    BeforeValidator(lambda v: None if v is None else parse_stopper(v)),
    PlainSerializer(lambda stop: None if stop is None else dump_stopper(stop)),
]


CallbackList = Annotated[
    tuple[Any, ...],
    BeforeValidator(parse_callbacks),
    PlainSerializer(lambda callbacks: [dump_callback(callback) for callback in callbacks]),
]


class Scenario(ScheduleOptions):
    """What every kind of scenario has; a kind adds the options of its schedule, and `scheduler`.

    env: an id, an `Environment`, or what its `source` takes. algorithm: what trains or computes a policy, a registered name or
    `module:Class` with options. algorithms: another one for some, by player or by role in a league, {1: dqn, main_exploiter: ppo} say; a
    role goes before a player. response: when a training task stops, {episodes: 20000} say; a computed oracle needs none. stop: ends the run
    earlier. share: one population for interchangeable players (auto: where the environment says that they are), or for all players
    (always). callbacks: code of one's own that the run calls. Generation 0 plays uniformly at random. generations, mode, seed: see
    `ScheduleOptions`.

    kind: how a file names it, `module:Class` unless the class was given a name (`class PSRO(PSROOptions, Scenario, kind="psro")`).
    """

    kind: ClassVar[str]

    env: Annotated[Environment, BeforeValidator(Environment.of)]
    algorithm: AlgorithmChoice = "ppo"
    algorithms: AlgorithmsByName = Field(default_factory=dict)
    response: Stop = Field(default_factory=lambda: {"episodes": 20_000})
    stop: Stop = None
    share: Literal["auto", "never", "always"] = "auto"
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()
    runtime: Annotated[RuntimeChoice, BeforeValidator(_runtime)] = RuntimeChoice()
    callbacks: CallbackList = ()
    name: Annotated[str, AfterValidator(_name)] = ""

    @model_validator(mode="before")
    @classmethod
    def _imported(cls, values: Any) -> Any:
        """import: a module that registers the environment, which every process then imports; kept in the environment's id."""
        if not isinstance(values, Mapping) or values.get("import") is None:
            return values
        rest = {key: value for key, value in values.items() if key != "import"}
        return {**rest, "env": with_import(values.get("env"), values["import"])}

    def __init_subclass__(cls, *, kind: str = "", **settings: Any) -> None:
        super().__init_subclass__(**settings)
        cls.kind = kind or f"{cls.__module__}:{cls.__qualname__}"

    def scheduler(self, population: tuple[int, ...]) -> Scheduler:
        """What decides which tasks come next. population: [P] index of each player's population. Raises ConfigError for options that do
        not fit these populations."""
        raise NotImplementedError(f"{type(self).__name__} must say which scheduler it uses, in a method `scheduler`.")

    def to_yaml(self) -> str:
        """The scenario as YAML; `load_scenario` of it gives an equal one. In full if `load_scenario` or a run completed it; else without
        what follows from the environment."""
        missing_settings = resolve_name(
            "function", "ludus.runs.scenario_defaults:missing_settings", {}
        )  # which knows all kinds

        data = self.model_dump(mode="json")
        for *parents, key in missing_settings(self):
            part = data
            for name in parents:
                part = part[name]
            del part[key]
        return to_yaml({"scenario": self.kind, **data})

    @property
    def shards(self) -> int:
        """Pieces that the environments are cut into: never a question of workers, or results would be one. By default each has an
        environment and a decision to collect at least."""
        if self.runtime.shards or self.runtime.kind == "inprocess":
            return self.runtime.shards or 1
        collected = [
            part.collect() for part in (self.algorithm, *self.algorithms.values()) if isinstance(part, Algorithm)
        ]
        decisions = [collect.amount for collect in collected if collect.unit == "decisions"]
        return min(SHARDS, self.env.num_envs, *decisions)

    @property
    def has_children(self) -> bool:
        """Whether a run in one process has others beside it."""
        background = self.evaluation.background
        needs_processes = self.evaluation.workers > 0 or (self.learns and background is not None and background.beside)
        return self.runtime.kind == "inprocess" and needs_processes

    def with_shards(self) -> Self:
        """With the number of shards written out, so that a run keeps it when it goes on with other workers. Raises ScenarioError for
        workers that would have nothing to play."""
        workers = self.runtime.workers
        if self.runtime.kind != "inprocess" and workers > self.shards:
            envs = f" and env.num_envs={workers} or more" if self.env.num_envs < workers else ""
            raise ScenarioError(
                f"runtime.workers={workers} was given, and the environments are cut into {self.shards} shards, so that {self.shards} "
                f"workers at most have something to play. Give runtime.shards={workers}{envs}: results depend on the number of shards, "
                "and never on that of workers."
            )
        return self.model_copy(update={"runtime": self.runtime.model_copy(update={"shards": self.shards})})

    def population(self, env: EnvSpec) -> tuple[int, ...]:
        """[P] index of each player's population."""
        if self.share == "always":
            return (0,) * env.num_players
        return populations_of(env, share=self.share == "auto")

    def seats(self, env: EnvSpec) -> list[tuple[int, ...]]:
        """The players of each population."""
        return seats_of(self.population(env))

    def who_learns(self, population: tuple[int, ...]) -> Algorithms:
        """Which algorithm trains whom. population: as `population` gives it. Raises ConfigError for names that nobody has."""
        return Algorithms(self.algorithm, self.algorithms, population, self.roles)

    @property
    def computes(self) -> bool:
        """Whether some policies are computed, and not learned."""
        return any(isinstance(part, ComputedOracle) for part in (self.algorithm, *self.algorithms.values()))

    @property
    def learns(self) -> bool:
        """Whether some policies are learned."""
        return not all(isinstance(part, ComputedOracle) for part in (self.algorithm, *self.algorithms.values()))

    def check(self, env: EnvSpec, *, matches: EnvSpec | None = None, generation: int = 0) -> None:
        """Raises ScenarioError where parts that are fine alone do not fit together. matches: the game as matches count it, where learners
        are paid otherwise. generation: the last one that a run has behind it: what only earlier ones need is not looked for."""
        check = resolve_name("function", "ludus.runs.scenario_check:check", {})  # which loads what a scenario runs on
        check(self, env, matches=matches or env, generation=generation)
