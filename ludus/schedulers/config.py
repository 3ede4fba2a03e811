"""What the options of all schedules have in common, and what they are checked against before a run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from ludus.algorithms.common.registry import Algorithms
from ludus.core.config import Config
from ludus.core.errors import ConfigError, ScenarioError
from ludus.core.parts import build_part, dump_part, registered_name, require
from ludus.core.types import EnvSpec, MetaSolution, PolicySpec
from ludus.metagame.population.base import Payoffs, seats_of
from ludus.metagame.solvers.base import MetaSolver
from ludus.metagame.solvers.registry import META_SOLVERS, solve
from ludus.policies.agents import AGENTS, agent_text
from ludus.policies.file import load_policy

Solver = Annotated[
    Any,
    BeforeValidator(lambda v: build_part("meta-solver", v, META_SOLVERS, (MetaSolver,))),
    PlainSerializer(lambda part: dump_part(part, META_SOLVERS)),
]
"""A field that holds a meta-solver."""


class ScheduleContext:
    """What the options of a schedule are checked against.

    Attributes:
        env: The environment.
        population: [P] index of each player's population.
        seats: Players of each population.
        assigned: Which algorithm trains which population and role.
        generation: Last generation that a resumed run has finished.
    """

    def __init__(self, env: EnvSpec, algorithms: Algorithms, *, generation: int = 0) -> None:
        """Raise ScenarioError if one policy of an algorithm cannot serve all the players of its population.

        Args:
            env: The environment.
            algorithms: What does its training tasks.
            generation: Last generation that a resumed run has finished.
        """
        self.generation = generation
        self.env, self.population = env, algorithms.population
        self.seats = seats_of(self.population)
        self.assigned = algorithms.assigned(env)

    def of_role(self, role: str) -> ScheduleContext:
        """Return the context of one role of the schedule only."""
        other = copy(self)
        other.assigned = tuple(assignment for assignment in self.assigned if assignment.role == role)
        return other

    def check_file(self, key: str, path: str) -> None:
        """Raise ScenarioError unless the file holds a policy that learners of every population can start from. key: the option that names
        it."""
        stored = load_policy(path).spec
        for assignment in self.assigned:
            seats = assignment.seats
            if differing := _differences(stored, assignment.policy):
                raise ScenarioError(
                    f"{key}: {path!r} holds a policy of kind {stored.kind!r}, with another network than the algorithm trains for players "
                    f"{', '.join(map(str, seats))}: {differing}. Give the algorithm the same, or a policy that was trained or cloned for "
                    "these players."
                )

    def check_zero_sum(self, what: str, others: str) -> None:
        """Raise ScenarioError for a general-sum game.

        Args:
            what: Begin of the message, "psro solves", say.
            others: Sentence that names alternatives.
        """
        if not self.env.zero_sum:
            raise ScenarioError(
                f"{what} zero-sum games; {self.env.id} is general-sum. {others} If its returns always have the same sum, and only nobody "
                "has said so, give env.options.zero_sum=true (a vector of your own: zero_sum=True in its spec)."
            )

    def check_solver(self, solver: object) -> None:
        """Raise ConfigError if it is no meta-solver, ScenarioError or SolverError if it cannot solve this game."""
        require(solver, "meta-solver", (MetaSolver,), META_SOLVERS)
        assert isinstance(solver, MetaSolver)
        env, needs, name = self.env, solver.needs, registered_name(solver, META_SOLVERS)
        others = "Use cce, alpha_rank, projected_replicator_dynamics or fictitious_play."
        if "two_player" in needs and env.num_players != 2:
            raise ScenarioError(
                f"meta-solver {name!r} solves two-player games; {env.id} has {env.num_players} players. {others}"
            )
        if "zero_sum" in needs:
            self.check_zero_sum(f"meta-solver {name!r} solves", others)
        if "symmetric" in needs and len(self.seats) > 1:
            raise ScenarioError(
                f"meta-solver {name!r} needs one population that all players share; in {env.id} they do not. {others}"
            )
        if name in META_SOLVERS:  # one of the user's own is asked when there is something to solve
            self.answer(solver)

    def answer(self, solver: MetaSolver) -> MetaSolution:
        """Return its solution where each player has one policy and all payoffs are 0. Raises SolverError if it has none."""
        env, shape = self.env, (1,) * self.env.num_players
        nothing, counts, known = np.zeros((env.num_players, *shape)), np.ones(shape, np.int64), np.ones(shape, np.bool_)
        alone = Payoffs(nothing, counts, nothing, known, env.utility_range, self.population, bool(env.zero_sum))
        return solve(solver, alone, rng=np.random.default_rng(0))


class Opponent(Config):
    """Opponent from elsewhere.

    Attributes:
        policy: As `ludus tournament` names participants: policies of runs, FILE.safetensors, random, bot:NAME, module:Class, a custom
            bot or Policy, or SCHEME:WHAT, an agent from elsewhere; that also as a mapping, {command: ./agent.py, timeout: 2}.
        weight: Relative frequency, where a schedule uses weights (fixed_opponents).
    """

    policy: str = Field(min_length=1)
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)


def _opponents(value: Any) -> Any:
    entries = value if isinstance(value, list | tuple) else (value,)
    entries = tuple({"policy": entry} if isinstance(entry, str) else _named(entry) for entry in entries)
    if wrong := [entry for entry in entries if not isinstance(entry, Mapping | Opponent)]:
        raise ConfigError(
            f"{wrong[0]!r} was given; an opponent is a name, as `ludus tournament` takes it, or {{policy: NAME, weight: NUMBER}}."
        )
    return entries


def _named(entry: Any) -> Any:
    """Return an entry whose policy is a name where it was given as an agent's mapping."""
    if not isinstance(entry, Mapping):
        return entry
    if isinstance(entry.get("policy"), Mapping):
        return {**entry, "policy": agent_text(entry["policy"])}
    if "policy" in entry or not any(isinstance(key, str) and key in AGENTS for key in entry):
        return entry
    agent = {key: value for key, value in entry.items() if key != "weight"}
    return {"policy": agent_text(agent), **({"weight": entry["weight"]} if "weight" in entry else {})}


PlayMode: TypeAlias = Literal["explore", "greedy", "search"]
"""How members are played: sampled, by their likeliest actions, or, of algorithms that search, by a search."""


class ScheduleOptions(Config):
    """Options that all schedules have.

    Attributes:
        by_weight: Whether opponents are played by their weights.
        generations: Tasks per population, in sequence.
        mode: How the members of a population are played. Against a fixed mixture some best response is deterministic, so greedy loses
            nothing; search is for members that can.
        seed: Of all random draws.
        opponents: Imported policies and bots (`Opponent`): they are members of the populations from the start and never train; the schedule
            decides how often each is played.
    """

    by_weight: ClassVar[bool] = False

    generations: int = Field(20, ge=0)
    mode: PlayMode = "greedy"
    seed: int = Field(0, ge=0)
    opponents: Annotated[tuple[Opponent, ...], BeforeValidator(_opponents)] = ()

    model_config = ConfigDict(validate_default=True, defer_build=True)  # of the kinds, a run uses one

    @model_validator(mode="after")
    def _opponents_once(self) -> Self:
        names = [opponent.policy for opponent in self.opponents]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(
                f"opponents: {twice[0]!r} was given twice; give it once{', with a weight' * self.by_weight}."
            )
        if not self.by_weight and (weighed := [each for each in self.opponents if each.weight != 1.0]):
            raise ConfigError(
                f"opponents: a weight was given for {weighed[0].policy!r}; here the schedule says how often each is met. Leave it out, or "
                "use scenario fixed_opponents."
            )
        return self

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles of its learners, where they differ: an algorithm can be given for each."""
        return ()

    @property
    def needs_learner(self) -> bool:
        """Whether its policies play against others that still learn, or continue learning: then an algorithm that computes them cannot be
        used."""
        return False

    @property
    def reads_payoffs(self) -> bool:
        """Whether it requests matches and reads their results."""
        return True

    @property
    def asks_for_all(self) -> bool:
        """Whether these are matches of new members against all members, and not against a few."""
        return True

    def meets_first(self, population: Sequence[int]) -> bool:
        """Return whether it evaluates announced meta-strategies against the first members, who play at random. population: [P] index of
        each player's population."""
        return self.reads_payoffs

    @property
    def modes(self) -> frozenset[str]:
        """Modes in which its members are played."""
        return frozenset({self.mode})

    @property
    def meets_bots(self) -> bool:
        """Whether imported opponents may be bots."""
        return True

    @property
    def imported(self) -> Sequence[tuple[str, float]]:
        """Imported policies and bots, as (name, weight): they are read when a run begins, and members from then on. A scheduler that plays
        against them by weight receives them as members (`ludus.schedulers.base.TakesOpponents`)."""
        return [(opponent.policy, opponent.weight) for opponent in self.opponents]

    @property
    def given(self) -> Sequence[tuple[str, float]]:
        """`imported`, by its former name."""
        warnings.warn("ScheduleOptions.given is called imported now.", DeprecationWarning, stacklevel=2)
        return self.imported

    def check_schedule(self, context: ScheduleContext) -> None:
        """Raise ScenarioError or ConfigError for options that do not fit their context. The scheduler itself refuses what does not fit the
        populations."""


# --------------------------------------------------------------------------------------------------------------------
# How the policy of a file differs from those that are trained.


def _differences(stored: PolicySpec, wanted: PolicySpec) -> str:
    """Return what differs, with both values; "" if nothing does."""
    if stored.kind != wanted.kind:
        return f"kind {stored.kind!r} in the file, {wanted.kind!r} here"
    stored_entries, wanted_entries = _entries(stored), _entries(wanted)
    names = [
        name
        for name in dict.fromkeys([*wanted_entries, *stored_entries])
        if wanted_entries.get(name, ...) != stored_entries.get(name, ...)
    ]
    return "; ".join(
        f"{name} {_shown(stored_entries, name)} in the file, {_shown(wanted_entries, name)} here" for name in names
    )


def _shown(entries: Mapping[str, Any], name: str) -> str:
    return repr(entries[name]) if name in entries else "none"


def _entries(spec: PolicySpec) -> dict[str, Any]:
    """Return the entries of a policy's config; those of mappings in it are named as `body.hidden`."""
    out: dict[str, Any] = {}
    for key, value in spec.config.items():
        nested = isinstance(value, Mapping) and value
        out.update({f"{key}.{name}": inner for name, inner in value.items()} if nested else {key: value})
    return out
