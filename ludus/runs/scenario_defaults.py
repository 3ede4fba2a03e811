"""What a scenario's settings are where nobody gives them: they follow from the environment, and from who learns there.

load_scenario, run, `ludus config`, experiments and sweeps ──► complete(scenario) ──► one environment is made, to see what it is

The rule is one for all spellings: an id, a preset, a file, an object; an algorithm by name, as an object, for one player or for one role.
What was given (pydantic's `model_fields_set`) stays. The classes' own defaults suit a game whose tree is in memory; the table says what
holds elsewhere; `ludus.algorithms.common.defaults` has the algorithms' part. What a run stores is complete, so that nothing is derived
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ludus.algorithms.common.base import Algorithm, ComputedOracle
from ludus.algorithms.common.defaults import complete_algorithm, kind_of_env, missing_options
from ludus.algorithms.common.registry import ALGORITHMS
from ludus.core.config import Config
from ludus.core.errors import ConfigError, EnvError
from ludus.core.parts import registered_name, require
from ludus.core.player_names import PlayerNames
from ludus.core.types import EnvSpec
from ludus.envs.config import Environment
from ludus.envs.families import UserEnvObject
from ludus.metagame.solvers.nash import Nash
from ludus.schedulers.config import ScheduleOptions
from ludus.schedulers.psro import ResponseOptions

if TYPE_CHECKING:
    from ludus.runs.scenario import Scenario

AnyScenario = TypeVar("AnyScenario", bound="Scenario")

_KEYS: Final = ("generations", "meta_solver", "mode", "response", "stop")
"""Of a scenario, where its kind has them."""
_COMPUTED: Final = ("generations", "meta_solver", "mode", "stop")
"""The same where policies are computed, and nothing is collected."""
_INSIDE: Final = (
    ("env", "num_envs"),
    ("env", "tree"),
    ("evaluation", "episodes"),
    ("checkpoints", "iterations"),
)
"""Of its parts."""


def missing_settings(scenario: Scenario) -> list[tuple[str, ...]]:
    """Return the paths of the settings that follow from the environment and are still to be filled in."""
    return list(_missing(scenario))


def _missing(scenario: Scenario) -> Iterator[tuple[str, ...]]:
    yield from ((key,) for key in _keys(scenario) if key not in scenario.model_fields_set)
    yield from ((part, key) for part, key in _inside(scenario) if key not in getattr(scenario, part).model_fields_set)
    yield from (("algorithm", *path) for path in missing_options(scenario.algorithm))
    for name, algorithm in scenario.algorithms.items():
        yield from (("algorithms", name, *path) for path in missing_options(algorithm))


def _keys(scenario: Scenario) -> tuple[str, ...]:
    """Those of `_KEYS` that it has, but for defaults of a class of the user's own. A meta-solver that does not solve for an equilibrium
    (self-play's newest snapshots) is part of what the schedule is."""
    fields = type(scenario).model_fields
    base = next((cls for cls in type(scenario).__mro__ if ":" not in getattr(cls, "kind", ":")), type(scenario))
    known: Mapping[str, Any] = getattr(base, "model_fields", {})
    own = {key for key in known if fields[key].default != known[key].default}
    own_keys = own if "meta_solver" in fields and fields["meta_solver"].default == "nash" else {*own, "meta_solver"}
    return tuple(key for key in (_KEYS if scenario.learns else _COMPUTED) if key in fields and key not in own_keys)


def _inside(scenario: Scenario) -> tuple[tuple[str, str], ...]:
    if not scenario.learns:
        return ()
    return _INSIDE if scenario.env.id.startswith("openspiel/") else tuple(x for x in _INSIDE if x != ("env", "tree"))


def complete(scenario: AnyScenario, env: EnvSpec | None = None) -> AnyScenario:
    """Fill in what was not given.

    Args:
        scenario: Any, from wherever it comes. One that says all that follows from the environment is answered as it is.
        env: Its environment, if it is known; else one is made, to see what it is.

    Returns:
        The scenario in full.

    Raises:
        LudusError: What making the environment raises, and what does not go together.
    """
    if not (missing_settings(scenario) or names_players(scenario)):
        return scenario
    for part in (scenario.algorithm, *scenario.algorithms.values()):
        require(part, "algorithm", (Algorithm, ComputedOracle), ALGORITHMS)
    env = env_spec(scenario.env) if env is None else env
    if names_players(scenario):
        scenario = changed(scenario, numbered(scenario, PlayerNames.of(env), scenario.population(env)))
    parts = _algorithms(scenario, env)
    settings = _settings(scenario.model_copy(update=parts), env)
    for part, key in _inside(scenario):
        config: Config = parts.get(part, getattr(scenario, part))
        if key not in config.model_fields_set:
            parts[part] = config.model_copy(update={key: settings.get(f"{part}.{key}", getattr(config, key))})
    keys = [key for key in _keys(scenario) if key not in scenario.model_fields_set]
    return changed(scenario, {**parts, **{key: settings.get(key, getattr(scenario, key)) for key in keys}})


def _algorithms(scenario: Scenario, env: EnvSpec) -> dict[str, Any]:
    """`algorithm` and `algorithms` in full. Players for whom the first one's settings would not do, as they see or do other things, are
    named."""
    seats, everybody = scenario.seats(env), tuple(range(env.num_players))
    whose = {str(player): seat_players for seat_players in seats for player in seat_players}
    named = {
        name: complete_algorithm(part, env, whose.get(name, everybody)) for name, part in scenario.algorithms.items()
    }
    rest = [seat_players for seat_players in seats if not any(str(player) in named for player in seat_players)]
    usual = complete_algorithm(scenario.algorithm, env, rest[0] if rest else everybody)
    for seat_players in rest[1:]:
        if (part := complete_algorithm(scenario.algorithm, env, seat_players)) != usual:
            named |= {str(player): part for player in seat_players}
    return {"algorithm": usual, "algorithms": named}


def changed(scenario: AnyScenario, values: Mapping[str, Any]) -> AnyScenario:
    """Return the scenario with other values of these keys. What was not given stays so."""
    explicit = {key: getattr(scenario, key) for key in scenario.model_fields_set}
    return type(scenario)(**{**explicit, **values})


def env_spec(environment: Environment) -> EnvSpec:
    """Return what the environment is: one of it is made. Raises what making it raises."""
    if isinstance(environment.source, UserEnvObject):  # which is as many environments as it is
        env = environment.make()
    else:
        one = environment.model_copy(update={"workers": 0, "deadline": None, "restarts": 0})
        env = one.make(num_envs=1)
    try:
        return env.spec
    finally:
        with suppress(EnvError):  # a run's own environments say what is wrong with that
            env.close()


# --------------------------------------------------------------------------------------------------------------------
# The table: by key, or part.key, what is not the class's own default.

_NUM_ENVS: Final[Mapping[str, int]] = {"apex": 8, "apex_ddpg": 8, "muzero": 16, "r2d2": 8}
"""Of one agent, for algorithms that replay and want several: others have one, and those that do not replay eight."""


def _settings(scenario: Scenario, env: EnvSpec) -> dict[str, Any]:
    used = _used(scenario, env)
    learners = [part for part in used if isinstance(part, Algorithm)]
    out = _of_game(scenario, env, computes=not learners and any(isinstance(part, ComputedOracle) for part in used))
    if not learners:
        return out
    kinds = {kind_of_env(env, part) for part in learners}
    if kinds == {"tree"}:
        return out
    if env.num_players == 1:
        return out | _of_one_player(learners, teams=len(env.agents) > 1)
    return out | _of_players(scenario, learners, board="board" in kinds, tree=env.enumeration is not None)


def _used(scenario: Scenario, env: EnvSpec) -> list[Any]:
    """Return the algorithms of the players who learn, and of the roles of the schedule."""
    named, learners = scenario.algorithms, getattr(scenario, "learners", ())
    chosen = learners if isinstance(learners, tuple) else ()
    population = scenario.population(env)
    players = [p for p, number in enumerate(population) if not chosen or number in chosen]
    parts = [named.get(str(player), scenario.algorithm) for player in players]
    return [*parts, *(named[role] for role in scenario.roles if role in named)]


def _of_game(scenario: Scenario, env: EnvSpec, *, computes: bool) -> dict[str, Any]:
    """Meta-solver and length. computes: policies are computed, so that the solver's tolerance is all that is left of NashConv."""
    if env.num_players == 1:
        several = len(env.agents) > 1  # whose likeliest actions can wait for each other, or walk in circles, for ever
        return {"generations": 1, "mode": "explore" if several else "greedy", "meta_solver": "last"}
    if env.num_players > 2 or not env.zero_sum:
        return {"meta_solver": "projected_replicator_dynamics"}
    if not (computes and _seeks_equilibrium(scenario)):
        return {}
    return {
        "meta_solver": {"kind": "nash", "tolerance": 1e-9},
        **({"generations": 40} if _counts_generations(scenario) else {}),
        **({"stop": {"nash_conv": 1e-6}} if scenario.evaluation.exploitability != "off" else {}),
    }


def _seeks_equilibrium(options: ScheduleOptions) -> bool:
    """Return whether its population is to come to one, as of double oracles."""
    solver = getattr(options, "meta_solver", None)  # XDO and ODO have none to choose
    return isinstance(options, ResponseOptions) and (solver is None or isinstance(solver, Nash))


def _counts_generations(scenario: Scenario) -> bool:
    """Return whether its kind has the number of generations that schedules have in common, and not one of its own."""
    return bool(
        type(scenario).model_fields["generations"].default == ScheduleOptions.model_fields["generations"].default
    )


def _of_one_player(learners: Sequence[Algorithm], *, teams: bool) -> dict[str, Any]:
    replays = all(_replays(learner) for learner in learners)
    several = max(_NUM_ENVS.get(registered_name(learner, ALGORITHMS), 1) for learner in learners)
    decisions = (200_000 if replays else 400_000) if teams else (50_000 if replays else 200_000)
    return {
        "env.num_envs": (8 if replays else 16) if teams else max(several, 1 if replays else 8),
        "response": _response(learners, decisions=decisions, episodes=5_000 if teams else 2_000),
        "evaluation.episodes": 100,
        "checkpoints.iterations": 1000,  # open episodes end there
    }


def _of_players(scenario: Scenario, learners: Sequence[Algorithm], *, board: bool, tree: bool) -> dict[str, Any]:
    """tree: there is one, on which what somebody learns is no table."""
    length = {"generations": 10} if _counts_generations(scenario) else {}
    if not board:
        response = _response(learners, decisions=100_000, episodes=2_000)
        return {**length, "env.num_envs": 16, "response": response, "evaluation.episodes": 100}
    evaluation = scenario.evaluation
    is_exact = evaluation.payoffs == "exact" or evaluation.exploitability == "exact"
    unused = evaluation.payoffs == "simulate" and evaluation.exploitability == "off"
    return {
        **length,
        "env.num_envs": 256,
        **({} if is_exact or (tree and unused) else {"env.tree": "off"}),  # no process looks for one again
        "response": {"episodes": 10_000},
        "evaluation.episodes": 400,
    }


def _response(learners: Sequence[Algorithm], **amounts: int) -> dict[str, int]:
    """In what the learners collect, which their schedules follow."""
    units = {learner.collect().unit for learner in learners}
    return {unit: amount for unit, amount in amounts.items() if unit in units}


def _replays(learner: Algorithm) -> bool:
    about = getattr(learner, "about", None)
    return about is not None and about.data == "off-policy"


# --------------------------------------------------------------------------------------------------------------------
# Numbers in place of the names that a scenario has for players: `algorithms: {adversary_0: dqn}`, `learners: [adversary]`.


def names_players(scenario: Scenario) -> bool:
    """Return whether it names players otherwise than by number."""
    return any(_named(scenario)) or any(isinstance(one, str) for one in _learners(scenario))


def numbered(scenario: Scenario, names: PlayerNames, population: Sequence[int]) -> dict[str, Any]:
    """Return the keys of a scenario that name players, with numbers in their place: of players in `algorithms`, of populations in
    `learners`.

    Args:
        scenario: As somebody wrote it.
        names: Of its environment's players.
        population: int[P], of each player.

    Returns:
        Keys and their new values; nothing where no key names a player.

    Raises:
        ConfigError: For a name that nobody has, with the nearest; for a player of whom two things are said.
    """
    changes: dict[str, Any] = {}
    if named := _named(scenario):
        algorithms: dict[str, Any] = {}
        for name, part in scenario.algorithms.items():
            for number in map(str, _players(name, names, scenario)) if name in named else [name]:
                if number in algorithms:
                    raise ConfigError(f"algorithms: {name!r} is player {number}, who was named before. Name each once.")
                algorithms[number] = part
        changes["algorithms"] = algorithms
    learners = _learners(scenario)
    if any(isinstance(one, str) for one in learners):
        chosen = [
            number
            for one in learners
            for number in (
                [one] if isinstance(one, int) else [population[p] for p in names.players([one], what="learners")]
            )
        ]
        changes["learners"] = tuple(dict.fromkeys(chosen))
    return changes


def numbered_overrides(overrides: Sequence[str], scenario: Scenario, names: Callable[[], PlayerNames]) -> list[str]:
    """Changes of a stored scenario, whose players have numbers: `algorithms.adversary=dqn` as one for each player of that name.

    Args:
        overrides: `key=value`, as the user wrote them.
        scenario: As it is stored.
        names: Makes those of its players; called where one is named.

    Returns:
        The same changes by number.

    Raises:
        ConfigError: For a name that nobody has, with the nearest.
    """
    changes: list[str] = []
    for text in overrides:
        key, equals, value = text.partition("=")
        part, _, rest = key.partition(".")
        name, dot, option = rest.partition(".")
        if part != "algorithms" or not name or name.isdecimal() or name in scenario.roles:
            changes.append(text)
        else:
            players = _players(name, names(), scenario)
            changes += [f"algorithms.{player}{dot}{option}{equals}{value}" for player in players]
    return changes


def _named(scenario: Scenario) -> list[str]:
    return [name for name in scenario.algorithms if not name.isdecimal() and name not in scenario.roles]


def _learners(scenario: Scenario) -> tuple[int | str, ...]:
    learners = getattr(scenario, "learners", ())
    return learners if isinstance(learners, tuple) else ()


def _players(name: str, names: PlayerNames, scenario: Scenario) -> list[int]:
    return names.players([name], what="algorithms", others=scenario.roles)
