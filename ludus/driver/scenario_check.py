"""Whether the parts of a scenario, each fine alone, fit together and to their environment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from ludus.core.errors import ConfigError, DataError, ScenarioError, SolverError, article, either
from ludus.core.parts import kind_of
from ludus.core.types import EnvSpec, PolicySpec
from ludus.learners.base import Algorithm, ComputedOracle, sizes_of
from ludus.learners.on_policy.teams import check_ids
from ludus.learners.registry import ALGORITHMS, check_fits
from ludus.policies.file import load_policy
from ludus.policies.specs import tabulates
from ludus.population.payoffs import Payoffs
from ludus.replay.kinds import build_table
from ludus.replay.table import BoundedTable
from ludus.schedulers.chunked import Chunked
from ludus.schedulers.diversity import check_diversity
from ludus.schedulers.registry import RESPONSES
from ludus.schedulers.responses import ResponseRule
from ludus.solvers.base import MetaSolver
from ludus.solvers.registry import META_SOLVERS
from ludus.training.stopping import COUNTERS, RESPONSE, RUN, out_of_reach

if TYPE_CHECKING:
    from ludus.driver.scenario import Scenario
    from ludus.envs.base import VectorEnv

_SOLVERS = "Use cce, alpha_rank, projected_replicator_dynamics or fictitious_play."


def check(scenario: Scenario, env: EnvSpec) -> None:
    """Raises ScenarioError or ConfigError: what does not fit, and what would."""
    _protocol("oracle", scenario.oracle, (Algorithm, ComputedOracle), ALGORITHMS)
    check_fits(scenario.oracle, env)
    _policies(scenario, env)  # what serves each player may not serve several of them with one policy
    if solver := getattr(scenario, "meta_solver", None):
        _protocol("meta-solver", solver, (MetaSolver,), META_SOLVERS)
        _check_solver(scenario, solver, env)
    _check_schedule(scenario, env)
    _check_diversity(scenario, env)
    _check_responses(scenario, env)
    _check_evaluation(scenario, env)
    _check_stoppers(scenario, env)
    _check_storage(scenario)
    check_warm_up(scenario, env)
    _check_warm_start(scenario, env)
    _check_seats(scenario, env)


def check_first_observations(scenario: Scenario, env: VectorEnv) -> None:
    """What no spec of an environment says: that agents with a network each show who they are. Resets it. Raises ScenarioError."""
    from ludus.learners.dqn.options import QLearning
    from ludus.learners.on_policy.options import PolicyGradient

    oracle = getattr(scenario.oracle, "best_response", scenario.oracle)
    if isinstance(oracle, QLearning | PolicyGradient) and not oracle.share_weights:
        first = env.reset(np.arange(env.num_envs, dtype=np.uint64))
        check_ids(env.spec, first.due, algorithm=type(oracle).__name__)


def _protocol(what: str, part: object, protocols: tuple[type, ...], table: Mapping[str, str]) -> None:
    if not isinstance(part, protocols):
        names = " or ".join(f"{p.__module__}.{p.__name__}" for p in protocols)
        raise ConfigError(f"{kind_of(part, table)!r} is not {article(what)}: it lacks methods of {names}.")


def _check_solver(scenario: Scenario, solver: MetaSolver, env: EnvSpec) -> None:
    needs, name = solver.needs, kind_of(solver, META_SOLVERS)
    if "two_player" in needs and env.num_players != 2:
        raise ScenarioError(
            f"meta-solver {name!r} solves two-player games; {env.id} has {env.num_players} players. {_SOLVERS}"
        )
    if "zero_sum" in needs and not env.zero_sum:
        raise ScenarioError(f"meta-solver {name!r} solves zero-sum games; {env.id} is general-sum. {_SOLVERS}")
    if "symmetric" in needs and len(set(scenario.population(env))) > 1:
        raise ScenarioError(
            f"meta-solver {name!r} needs one population that all players share; in {env.id} they do not. {_SOLVERS}"
        )


def _check_schedule(scenario: Scenario, env: EnvSpec) -> None:
    """That there is a scheduler for it, and policies that it can start from."""
    if scenario.needs_learner and isinstance(scenario.oracle, ComputedOracle):
        raise ScenarioError(
            f"in {article(scenario.kind)} scenario policies meet others that still learn, or go on learning; the oracle "
            f"{kind_of(scenario.oracle, ALGORITHMS)!r} computes each at once. Use one that learns, such as ppo."
        )
    population = scenario.population(env)
    scenario.scheduler(population)
    start = getattr(scenario, "start", None)
    if start is not None:
        _check_file("start", start, scenario, env)


def _check_diversity(scenario: Scenario, env: EnvSpec) -> None:
    rule = getattr(scenario, "diversity", None)
    if rule is not None:
        moved = getattr(scenario, "moves_opponents", False)
        check_diversity(rule, scenario.oracle, _policies(scenario, env), moved=moved)


def _check_responses(scenario: Scenario, env: EnvSpec) -> None:
    rule = getattr(scenario, "responses", None)
    if rule is None:
        return
    _protocol("response rule", rule, (ResponseRule,), RESPONSES)
    solver = getattr(scenario, "meta_solver", None)
    if "joint" in rule.needs and solver is not None and not _gives_joint(solver, env, scenario.population(env)):
        raise ScenarioError(
            f"responses {kind_of(rule, RESPONSES)!r} need a meta-solver that gives a joint distribution; "
            f"{kind_of(solver, META_SOLVERS)!r} gives one for each player. Use ce or cce, or responses: best."
        )
    if "two_player" in rule.needs and env.num_players != 2:
        raise ScenarioError(
            f"responses {kind_of(rule, RESPONSES)!r} are for two players; {env.id} has {env.num_players}. Use best or recommended."
        )


def _gives_joint(solver: MetaSolver, env: EnvSpec, population: tuple[int, ...]) -> bool:
    """Whether it answers with a joint distribution, or will say for itself what it lacks: asked about one policy per player."""
    shape = (1,) * env.num_players
    per_player = np.zeros((env.num_players, *shape))
    counts = np.ones(shape, np.int64)
    alone = Payoffs(
        per_player, counts, per_player, counts.astype(np.bool_), env.utility_range, population, bool(env.zero_sum)
    )
    try:
        return solver.solve(alone, rng=np.random.default_rng(0)).joint is not None
    except SolverError:
        return True


def _check_evaluation(scenario: Scenario, env: EnvSpec) -> None:
    exact = [k for k in ("payoffs", "exploitability") if getattr(scenario.evaluation, k) == "exact"]
    if exact and env.enumeration is None:
        raise ScenarioError(
            f"evaluation.{exact[0]}=exact needs a game that can be enumerated; {env.id} is not (tree={scenario.env.tree}, "
            f"node_limit={scenario.env.node_limit}). Use auto, or raise env.node_limit."
        )
    _check_tables(scenario, env)
    adaptive = scenario.evaluation.adaptive
    if adaptive is None or np.isfinite(env.utility_range).all():
        return
    if adaptive.goal == "ranking":
        raise ScenarioError(
            f"evaluation.adaptive.goal=ranking needs returns between known limits, or no comparison is ever decided, and {env.id} has "
            f"{env.utility_range}. Give the environment a utility_range if it takes one, or use goal=meta_strategy."
        )
    if adaptive.tolerance > 0:
        raise ScenarioError(
            f"evaluation.adaptive.tolerance={adaptive.tolerance} needs returns between known limits, and {env.id} has {env.utility_range}. "
            "Set it to 0, so that the budget alone ends the evaluation."
        )


def _check_tables(scenario: Scenario, env: EnvSpec) -> None:
    """That policies can be evaluated exactly where they will be."""
    chosen = {key: getattr(scenario.evaluation, key) for key in ("payoffs", "exploitability")}
    exact = ", ".join(f"evaluation.{key}={how}" for key, how in chosen.items() if how not in ("simulate", "off"))
    if env.enumeration is None or not exact:
        return
    for spec in _policies(scenario, env):
        for mode in sorted({scenario.mode, getattr(scenario, "new_mode", scenario.mode)}):
            if not tabulates(spec, mode=mode):
                other = " Or set mode=greedy." if tabulates(spec, mode="greedy") else ""
                raise ScenarioError(
                    f"{exact}: {env.id} has a game tree, on which that is computed exactly, and the oracle "
                    f"{kind_of(scenario.oracle, ALGORITHMS)!r} trains policies of kind {spec.kind!r}, which in mode {mode} depend on more "
                    "than the information state (memory, or noise that lasts). Set evaluation.payoffs=simulate and "
                    f"evaluation.exploitability=off.{other}"
                )


def _policies(scenario: Scenario, env: EnvSpec) -> list[PolicySpec]:
    """What the oracle trains for each population."""
    return [scenario.oracle.policy(env, seats) for seats in scenario.seats(env)]


def _check_stoppers(scenario: Scenario, env: EnvSpec) -> None:
    learns = not isinstance(scenario.oracle, ComputedOracle)
    if learns:
        if scenario.response is None:
            raise ScenarioError("an oracle that learns needs `response`: when to stop, such as {episodes: 20000}.")
        if field := out_of_reach(scenario.response, RESPONSE):
            raise ScenarioError(
                f"response: the stopper waits for {field}, which does not change during one response, so it would go on for ever. "
                "Use episodes, decisions, steps, samples, updates, seconds, win_rate or no_improvement of scores."
            )
    if scenario.stop is None:
        return
    exploitability = env.enumeration is not None and scenario.evaluation.exploitability != "off"
    grows = RUN | (COUNTERS if learns else set()) | ({"nash_conv"} if exploitability else set())
    if field := out_of_reach(scenario.stop, grows):
        raise ScenarioError(
            f"stop: the stopper waits for {field}, which this run does not have, so it could never fire. Leave it out."
        )


def _check_storage(scenario: Scenario) -> None:
    """That what the oracle collects at once fits into its tables, as far as that is known before."""
    oracle = scenario.oracle
    if isinstance(oracle, ComputedOracle):
        return
    sizes = sizes_of(oracle)
    for spec in oracle.tables():
        try:
            with closing(build_table(spec)) as table:
                if (size := sizes.get(spec.name)) and isinstance(table, BoundedTable):
                    table.check_sizes(insert=size.insert, batch=size.batch, vary=size.vary)
        except DataError as error:
            raise ScenarioError(f"the oracle {kind_of(oracle, ALGORITHMS)!r}, table {spec.name!r}: {error}") from error


def _check_warm_start(scenario: Scenario, env: EnvSpec) -> None:
    for rule in getattr(scenario, "warm_start", ()):
        if rule.path is not None:
            _check_file("warm_start", rule.path, scenario, env)


def _check_file(key: str, path: str, scenario: Scenario, env: EnvSpec) -> None:
    """That a file holds a policy which learners of every population can start from."""
    found = load_policy(path).spec
    for seats in scenario.seats(env):
        wanted = scenario.oracle.policy(env, seats)
        if differing := _differences(found, wanted):
            raise ScenarioError(
                f"{key}: {path!r} holds a policy of kind {found.kind!r}, with another network than the oracle trains for players "
                f"{', '.join(map(str, seats))}: {differing}. Give the oracle the same, or a policy that was trained or cloned for these "
                "players."
            )


def _differences(found: PolicySpec, wanted: PolicySpec) -> str:
    """What differs, with both values; "" if nothing does."""
    if found.kind != wanted.kind:
        return f"kind {found.kind!r} in the file, {wanted.kind!r} here"
    theirs, ours = _entries(found), _entries(wanted)
    names = [name for name in dict.fromkeys([*ours, *theirs]) if ours.get(name, ...) != theirs.get(name, ...)]
    return "; ".join(f"{name} {_shown(theirs, name)} in the file, {_shown(ours, name)} here" for name in names)


def _shown(entries: Mapping[str, Any], name: str) -> str:
    return repr(entries[name]) if name in entries else "none"


def _entries(spec: PolicySpec) -> dict[str, Any]:
    """The entries of a policy's config; those of mappings in it are named as `body.hidden`."""
    out: dict[str, Any] = {}
    for key, value in spec.config.items():
        nested = isinstance(value, Mapping) and value
        out.update({f"{key}.{name}": inner for name, inner in value.items()} if nested else {key: value})
    return out


def _check_seats(scenario: Scenario, env: EnvSpec) -> None:
    """Episodes that stay open from one rollout to the next keep their seats, so there must be an environment for each seat."""
    if isinstance(scenario.oracle, ComputedOracle) or scenario.oracle.collect().unit != "decisions":
        return
    population = scenario.population(env)
    most = max(population.count(which) for which in population)
    if scenario.env.num_envs < most:
        raise ScenarioError(
            f"env.num_envs={scenario.env.num_envs}, and {most} players of {env.id} share one population, each of whose policies learns "
            f"to play every seat; give num_envs={most} or a multiple, or share=never."
        )


# --------------------------------------------------------------------------------------------------------------------
# Whether learners that replay make an update before their policies are done.

WARM_UPS = ("start_decisions", "min_size")
"""Options of oracles: decisions before the first update."""


def check_warm_up(scenario: Scenario, env: EnvSpec) -> None:
    """That the first update comes before a policy is done, as far as that is known: where decisions are what is collected and limited.
    Raises ScenarioError: what delays it, and what would not."""
    oracle = scenario.oracle
    limit = None if scenario.response is None else scenario.response.limit("decisions")
    if isinstance(oracle, ComputedOracle) or limit is None or scenario.runtime.async_limits is not None:
        return
    learns = getattr(oracle, "best_response", oracle)  # NFSP's imitates what this one plays
    option = next((name for name in WARM_UPS if isinstance(getattr(learns, name, None), int)), None)
    collect, scheduler = oracle.collect(), scenario.scheduler(scenario.population(env))
    if option is None or collect.unit != "decisions":
        return
    tasks = scheduler.chunks if isinstance(scheduler, Chunked) else 1  # whose learners go on
    over = collect.amount + 2 * scenario.env.num_envs * len(env.agents)  # the last rollout's, with what is open then
    size, share = getattr(learns, option), getattr(learns, "updates_per_decision", None)
    more = 0 if share is None else _decisions(share)
    if tasks * (limit + over) >= size + more:
        return
    open_ = scenario.env.num_envs * max(len(env.agents_of(player)) for player in range(env.num_players))
    inner = "" if learns is oracle else "best_response."
    delay = f"{inner}{option}={size}" + (f", and {more} more at {inner}updates_per_decision={share:g}" if more else "")
    changes = [f"decisions: {math.ceil((size + more) / tasks) + open_} or more"]
    if (least := tasks * (limit - open_) - size) > 0 and more > 1:
        changes.append(f"oracle.{inner}updates_per_decision={math.ceil(1000 / least) / 1000:g} or more")
    if (most := tasks * (limit - open_) - more) > 0:
        changes.append(f"oracle.{inner}{option}={most} or less")
    raise ScenarioError(
        f"response: {limit} decisions{'' if tasks == 1 else f' in each of {tasks} tasks'} are fewer than the oracle "
        f"{kind_of(oracle, ALGORITHMS)!r} collects before the first update{'' if learns is oracle else ' of its best response'} "
        f"({size + more}: {delay}), so that its policies would stay as they begin. Up to {open_} are still open at the "
        f"end and count for nothing: give {either(changes)}."
    )


def _decisions(share: float) -> int:
    """After how many decisions an update is due, at `share` updates for each: of 0.02 after 50."""
    count = math.ceil(1.0 / share)
    return count if int(count * share) >= 1 else count + 1  # which is how learners count, in floats
