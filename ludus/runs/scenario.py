"""What to run: environment, algorithm, limits, runtime; each kind adds its schedule's options, and makes the scheduler that takes them.
Plain data from a YAML file or Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self

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
from ludus.metagame.solvers.fixed import Last, Uniform
from ludus.metagame.solvers.match_selection import Goal, ResponseGraph
from ludus.policies.specs import Modes, tabulates
from ludus.reporting.trackers import build_tracker, parse_trackers
from ludus.runs.scenario_runtime import ENVS_OF_SHARD, SHARDS, RuntimeChoice
from ludus.schedulers.anytime import (
    AnytimePSROOptions,
    AnytimePSROScheduler,
    SelfPlayPSROOptions,
    SelfPlayPSROScheduler,
)
from ludus.schedulers.base import Scheduler
from ludus.schedulers.config import ScheduleContext, ScheduleOptions
from ludus.schedulers.efficient import EfficientPSROOptions, EfficientPSROScheduler
from ludus.schedulers.fixed_opponents import FixedOpponentsOptions, FixedOpponentsScheduler
from ludus.schedulers.league import LeagueOptions, LeagueScheduler
from ludus.schedulers.neupl import NeuPLOptions, NeuPLScheduler
from ludus.schedulers.odo import ODOOptions, ODOScheduler
from ludus.schedulers.pbt import PBTOptions, PBTScheduler
from ludus.schedulers.pipeline import PipelinePSROOptions, PipelinePSROScheduler
from ludus.schedulers.planning import AdaptiveSelection, AllMissing, MatchSelection
from ludus.schedulers.psro import PSROOptions, PSROScheduler
from ludus.schedulers.self_play import FictitiousSelfPlayOptions, PFSPOptions, SelfPlayOptions, SelfPlayScheduler
from ludus.schedulers.xdo import XDOOptions, XDOScheduler
from ludus.storage.run_dirs import is_run_name
from ludus.training.callbacks import dump_callback, parse_callbacks
from ludus.training.stopping import dump_stopper, parse_stopper


class BackgroundEvaluation(Config):
    """Evaluation of learners while they learn, by a process of its own.

    Attributes:
        every: It plays each `every`-th version against the learner's opponents.
        episodes: Of each evaluation.
        num_envs: Of its own.
        beside: Whether a run in one process (`runtime.kind=inprocess`) also uses a child process; otherwise that run plays the evaluations
            itself, in between.
    """

    every: int = Field(10, ge=1)
    episodes: int = Field(100, ge=2)
    num_envs: int = Field(16, ge=1)
    beside: bool = False


class AdaptivePayoffs(Config):
    """Allocation of matches to where the goal depends on them, until it is reached with `confidence`, or the budget of the generation is
    spent.

    Attributes:
        goal: meta_strategy, whose NashConv in the meta-game is to be at most `tolerance` (0: until the budget is spent); or ranking, in
            which every comparison is to be decided: of two payoffs of a player against the same others, or, where two players share a
            population, of what two policies earn against each other (the response graph, which α-Rank reads).
        budget: Blocks of a generation; a block is one episode in each order of the seats of players who share a population.
        portion: Blocks that a profile gets at a time.
        tolerance: NashConv in the meta-game that ends the evaluation, for `goal` meta_strategy; 0: the budget ends it.
        confidence: Probability with which the goal is to be reached.
        start: Profiles that a new policy is played in at first; null: all.
        batch: Blocks between two decisions on where matches go, at most a sixteenth of the budget.
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
        """Raise ScenarioError where returns have no known bounds, and the goal needs them."""
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
        """Return the goal; None: that of the meta-strategy, which needs the solver."""
        return ResponseGraph(confidence=self.confidence) if self.goal == "ranking" else None


class Evaluation(Config):
    """How payoffs and exploitability are evaluated.

    Attributes:
        payoffs: exact where the game tree allows (auto), or by play.
        episodes: Per profile, in play.
        adaptive: Play goes where it matters instead; exact payoffs need none.
        exploitability: Exact where the game tree allows (auto), exact by sweeps, too, in games without a tree that
            `ludus.envs.sweep_rules` knows, or off.
        background: Evaluation of learners while they train, or none.
        workers: Processes that play matches of existing members while others train; results stay the same. Of a run in one process
            (`runtime.kind=inprocess`) they are children.
    """

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
        """Return what decides which matches are played. solver: whose solutions it looks at."""
        if self.adaptive is None:
            return AllMissing()
        options = {**self.adaptive.model_dump(), "goal": self.adaptive.build_goal()}
        return AdaptiveSelection(solver=solver, episodes=self.episodes, seed=seed, **options)

    def check(self, context: ScheduleContext, schedule: ScheduleOptions, env: Environment) -> None:
        """Raise ScenarioError for what cannot be computed of this game, or of what the algorithm trains. Whether sweeps know it, only its
        vector says."""
        spec = context.env
        exact = [k for k in ("payoffs", "exploitability") if getattr(self, k) == "exact"]
        if self.payoffs == "exact" and spec.enumeration is None:
            raise ScenarioError(
                f"evaluation.payoffs=exact needs a game that can be enumerated; {spec.id} is not (tree={env.tree}, "
                f"node_limit={env.node_limit}): {spec.no_tree}. Use evaluation.payoffs=auto."
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
        """Check that policies can be evaluated exactly where they will be."""
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
    """When checkpoints are written. They are part of the schedule: a run without a kill has the same barriers.

    Attributes:
        generations: At the start of every `generations`-th generation.
        iterations: Every so many training iterations inside a response, and after evaluation that has played so many matches.
        horizon: Whether one inside a response, which ends open episodes, does not come before the longest episode can have ended since the
            last one, where the environment specifies how long that is. False for stored runs that began before this rule.
        keep: Complete checkpoints left on disk.
    """

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
    BeforeValidator(lambda v: build_part("algorithm", v, ALGORITHMS, (Algorithm, ComputedOracle))),
    PlainSerializer(lambda part: dump_part(part, ALGORITHMS)),
]


def _by_name(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"players or roles with their algorithms were expected, {{1: dqn}} say; given {value!r}.")
    algorithms = {}
    for name, part in value.items():
        try:
            algorithms[str(name)] = build_part("algorithm", part, ALGORITHMS, (Algorithm, ComputedOracle))
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
    PlainSerializer(dump_stopper, when_used="unless-none"),
]


CallbackList = Annotated[
    tuple[Any, ...],
    BeforeValidator(lambda value: () if value == () else parse_callbacks(value)),
    PlainSerializer(lambda callbacks: [dump_callback(callback) for callback in callbacks]),
]


def _trackers(value: Any) -> tuple[dict[str, Any], ...]:
    trackers = parse_trackers(value)
    for options in () if is_stored() else trackers:
        build_tracker(options)
    return trackers


def _default_trackers() -> tuple[dict[str, Any], ...]:
    """Return none; for stored runs that began before there was a choice TensorBoard's files, which these always had."""
    return ({"kind": "tensorboard", "history": False},) if is_stored() else ()


Trackers = Annotated[tuple[dict[str, Any], ...], BeforeValidator(_trackers)]


class Scenario(ScheduleOptions):
    """Base of scenarios; each kind adds the options of its schedule, and `scheduler`. Generation 0 plays uniformly at random.

    Attributes:
        kind: Name in a file, `module:Class` unless the class has a name (`class PSRO(PSROOptions, Scenario, kind="psro")`).
        env: An id, an `Environment`, or what its `source` takes.
        algorithm: What trains or computes a policy, a registered name or `module:Class` with options.
        algorithms: Other algorithms, by player or by role in a league, {1: dqn, main_exploiter: ppo} say; a role takes precedence over a
            player.
        response: When a training task stops, {episodes: 20000} say; a computed oracle needs none.
        stop: Ends the run earlier.
        share: One population for interchangeable players (auto: where the environment says that they are), or for all players (always).
        evaluation: Of payoffs and exploitability.
        checkpoints: When they are written.
        runtime: Processes and devices.
        callbacks: User code that the run calls.
        track: Trackers that get its records, [mlflow, {kind: wandb, project: leduc}] say.
        name: Of the run.
        generations: See `ScheduleOptions`; likewise mode and seed.
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
    track: Trackers = Field(default_factory=_default_trackers)
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
        """Return the scheduler, which decides which tasks come next.

        Args:
            population: [P] index of each player's population.

        Raises:
            ConfigError: For options that do not fit these populations.
        """
        raise NotImplementedError(f"{type(self).__name__} must say which scheduler it uses, in a method `scheduler`.")

    def to_yaml(self) -> str:
        """Return the scenario as YAML, from which `load_scenario` makes an equal one. It is in full if `load_scenario` or a run completed
        it; otherwise without what follows from the environment."""
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
        """Number of pieces that the environments are split into. A step and a forward pass of one environment cost nearly as much as
        those of four, so by default a piece has four or more, unless there are more workers than such pieces. Workers that collect in
        step have up to 8 pieces, so that up to as many workers give the same numbers; asynchronous results depend on who is first
        anyway, so there each worker has one. Each piece has at least an environment and a decision to collect."""
        if self.runtime.shards or self.runtime.kind == "inprocess":
            return self.runtime.shards or 1
        pieces = 1 if self.runtime.mode == "async" else min(SHARDS, self.env.num_envs // ENVS_OF_SHARD)
        most = max(pieces, self.runtime.workers)
        collected = [
            part.collect() for part in (self.algorithm, *self.algorithms.values()) if isinstance(part, Algorithm)
        ]
        decisions = [collect.amount for collect in collected if collect.unit == "decisions"]
        return min(most, self.env.num_envs, *decisions)

    @property
    def idle_workers(self) -> int:
        """Number of workers that have no shard to play."""
        return 0 if self.runtime.kind == "inprocess" else max(0, self.runtime.workers - self.shards)

    @property
    def has_children(self) -> bool:
        """Whether a run in one process has child processes."""
        background = self.evaluation.background
        needs_processes = self.evaluation.workers > 0 or (self.learns and background is not None and background.beside)
        return self.runtime.kind == "inprocess" and needs_processes

    def with_shards(self) -> Self:
        """Return the scenario with an explicit number of shards, so that a run keeps it when it continues with other workers. Raises
        ScenarioError for workers without a share."""
        workers = self.runtime.workers
        if self.idle_workers:
            envs = f" and env.num_envs={workers} or more" if self.env.num_envs < workers else ""
            raise ScenarioError(
                f"runtime.workers={workers} was given, and the environments are cut into {self.shards} shards, so that {self.shards} "
                f"workers at most have something to play. Give runtime.shards={workers}{envs}: results depend on the number of shards, "
                "and in sync never on that of workers."
            )
        return self.model_copy(update={"runtime": self.runtime.model_copy(update={"shards": self.shards})})

    def population(self, env: EnvSpec) -> tuple[int, ...]:
        """Return the index of each player's population, [P]."""
        if self.share == "always":
            return (0,) * env.num_players
        return populations_of(env, share=self.share == "auto")

    def seats(self, env: EnvSpec) -> list[tuple[int, ...]]:
        """Return the players of each population."""
        return seats_of(self.population(env))

    def who_learns(self, population: tuple[int, ...]) -> Algorithms:
        """Return which algorithm trains which population.

        Args:
            population: As `population` returns it.

        Raises:
            ConfigError: For names of no player or role.
        """
        return Algorithms(self.algorithm, self.algorithms, population, self.roles)

    def _selection(self, solver: MetaSolver) -> MatchSelection:
        """Return what decides which matches are played. solver: whose solutions it looks at."""
        return self.evaluation.selection(solver, self.seed)

    def _learner_modes(self, population: tuple[int, ...]) -> list[Modes]:
        """Return the modes in which the newest weights of each population are played: those that its learner plays in."""
        algorithms = self.who_learns(population)
        learners = [algorithms.of(k) for k in sorted(set(population))]
        return [learner.collect().modes if isinstance(learner, Algorithm) else () for learner in learners]

    @property
    def computes(self) -> bool:
        """Whether some policies are computed, and not learned."""
        return any(isinstance(part, ComputedOracle) for part in (self.algorithm, *self.algorithms.values()))

    @property
    def learns(self) -> bool:
        """Whether some policies are learned."""
        return not all(isinstance(part, ComputedOracle) for part in (self.algorithm, *self.algorithms.values()))

    def check(self, env: EnvSpec, *, matches: EnvSpec | None = None, generation: int = 0) -> None:
        """Raise ScenarioError where parts do not fit together.

        Args:
            env: The environment.
            matches: The game as matches count it, where learners get other rewards.
            generation: Last generation that a resumed run has finished: what only earlier ones need is not checked.
        """
        check = resolve_name("function", "ludus.runs.scenario_check:check", {})  # which loads what a scenario runs on
        check(self, env, matches=matches or env, generation=generation)


class PSRO(PSROOptions, Scenario, kind="psro"):
    """Policy-Space Response Oracles and their family; see `PSROOptions`.

    Attributes:
        meta_solver, responses, order: See `PSROOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> PSROScheduler:
        return PSROScheduler(self, population=population, selection=self._selection(self.meta_solver))


class AnytimePSRO(AnytimePSROOptions, Scenario, kind="anytime_psro"):
    """PSRO whose opponents adapt while a response trains; see `AnytimePSROOptions`.

    Attributes:
        rule, rule_options, begin: See `MovedMixtureOptions`; those of `PSROOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> AnytimePSROScheduler:
        return AnytimePSROScheduler(self, population=population, selection=self._selection(self.meta_solver))


class SelfPlayPSRO(SelfPlayPSROOptions, Scenario, kind="self_play_psro"):
    """Anytime PSRO with a new strategy that trains against the response; see `SelfPlayPSROOptions`.

    Attributes:
        share_of_new, new_mode: See `SelfPlayPSROOptions`; those of `AnytimePSROOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> SelfPlayPSROScheduler:
        return SelfPlayPSROScheduler(self, population=population, selection=self._selection(self.meta_solver))


class EfficientPSRO(EfficientPSROOptions, Scenario, kind="efficient_psro"):
    """PSRO without payoffs; see `EfficientPSROOptions`.

    Attributes:
        levels, rule, rule_options, begin: See `EfficientPSROOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> EfficientPSROScheduler:
        return EfficientPSROScheduler(self, population=population)


class PipelinePSRO(PipelinePSROOptions, Scenario, kind="pipeline_psro"):
    """PSRO whose generations train at the same time; see `PipelinePSROOptions`.

    Attributes:
        meta_solver, levels, least, most, improvement, start, diversity: See `PipelinePSROOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> PipelinePSROScheduler:
        return PipelinePSROScheduler(self, population=population, selection=self._selection(self.meta_solver))


class NeuPL(NeuPLOptions, Scenario, kind="neupl"):
    """One network for a whole population; see `NeuPLOptions`.

    Attributes:
        policies, meta_solver, cells: See `NeuPLOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> NeuPLScheduler:
        return NeuPLScheduler(self, population=population, selection=self._selection(self.meta_solver))


class ODO(ODOOptions, Scenario, kind="odo"):
    """Online double oracle; see `ODOOptions`.

    Attributes:
        rounds, average, begin, improvement: See `ODOOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> ODOScheduler:
        return ODOScheduler(self, population=population, selection=self._selection(Uniform()))


class XDO(XDOOptions, Scenario, kind="xdo"):
    """Extensive-form double oracle; see `XDOOptions`.

    Attributes:
        tolerance, fall, iterations, cells: See `XDOOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> XDOScheduler:
        return XDOScheduler(self, population=population, selection=self._selection(Last()))


class SelfPlay(SelfPlayOptions, Scenario, kind="self_play"):
    """Self-play; see `SelfPlayOptions`.

    Attributes:
        latest, every_seat, past, meta_solver, cells, span, start: See `SelfPlayOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> SelfPlayScheduler:
        return SelfPlayScheduler(
            self,
            population=population,
            selection=self._selection(self.meta_solver),
            modes=self._learner_modes(population),
        )


class FictitiousSelfPlay(FictitiousSelfPlayOptions, Scenario, kind="fictitious_self_play"):
    """Fictitious self-play over snapshots; see `FictitiousSelfPlayOptions`.

    Attributes:
        meta_solver, cells, span, start: See `FictitiousSelfPlayOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> SelfPlayScheduler:
        return SelfPlayScheduler(self, population=population, selection=self._selection(self.meta_solver))


class PFSP(PFSPOptions, Scenario, kind="pfsp"):
    """Prioritised fictitious self-play; see `PFSPOptions`.

    Attributes:
        latest, weighting, meta_solver, cells, span, start: See `PFSPOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> SelfPlayScheduler:
        return SelfPlayScheduler(
            self,
            population=population,
            selection=self._selection(self.meta_solver),
            modes=self._learner_modes(population),
        )


class FixedOpponents(FixedOpponentsOptions, Scenario, kind="fixed_opponents"):
    """Plain (multi-agent) reinforcement learning; see `FixedOpponentsOptions`.

    Attributes:
        learners, opponents, start: See `FixedOpponentsOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> FixedOpponentsScheduler:
        return FixedOpponentsScheduler(self, population=population, selection=self._selection(Last()))


class League(LeagueOptions, Scenario, kind="league"):
    """A league of main agents and exploiters; see `LeagueOptions`.

    Attributes:
        main, main_exploiters, league_exploiters, rules, decay, meta_solver, start: See `LeagueOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> LeagueScheduler:
        return LeagueScheduler(self, population=population, selection=self._selection(self.meta_solver or Last()))


class PBT(PBTOptions, Scenario, kind="pbt"):
    """Population based training; see `PBTOptions`.

    Attributes:
        learners, ranges, rules: See `PBTOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> PBTScheduler:
        return PBTScheduler(self, population=population, selection=self._selection(Last()))


_KINDS: tuple[type[Scenario], ...] = (
    AnytimePSRO,
    EfficientPSRO,
    FictitiousSelfPlay,
    FixedOpponents,
    League,
    NeuPL,
    ODO,
    PBT,
    PFSP,
    PipelinePSRO,
    PSRO,
    SelfPlay,
    SelfPlayPSRO,
    XDO,
)
SCENARIOS: Final[dict[str, str]] = {kind.kind: f"{kind.__module__}:{kind.__qualname__}" for kind in _KINDS}
"""name -> `module:Class`; each class is a `Scenario`, and its fields are the keys of the file."""
