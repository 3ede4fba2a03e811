"""Whether the parts of a scenario, each fine alone, fit together and to their environment: each is asked what it needs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING

from ludus.algorithms.common.base import Algorithm, ChecksStart, HasWarmup, Learner, LearnerContext, batch_sizes
from ludus.algorithms.common.config import Schedule
from ludus.algorithms.common.device_policy import on_device_learner
from ludus.algorithms.common.registry import ALGORITHMS, Assignment
from ludus.backend.device import HasPlacement, gpu_count
from ludus.core.errors import ConfigError, DataError, ScenarioError, article, join_or, one_line
from ludus.core.parts import registered_name
from ludus.core.types import CPU, DeviceChoice, EnvSpec
from ludus.core.user_code import qualified_name
from ludus.envs.families import UserEnvObject
from ludus.envs.sweep_rules import find_sweep_rules
from ludus.envs.tree.game_tree import find_tree
from ludus.policies.specs import searches, tabulates
from ludus.replay.episode_server import HandOver
from ludus.replay.kinds import build_table
from ludus.replay.table import BoundedTable
from ludus.schedulers.config import ScheduleContext
from ludus.schedulers.planning import ChunkedScheduler
from ludus.training.ondevice_collector import ELSEWHERE, refused, why_not_on_device
from ludus.training.stopping import check_response, check_stop, limit_in_unit, training_budget

if TYPE_CHECKING:
    from ludus.envs.base import VectorEnv
    from ludus.runs.scenario import Scenario
    from ludus.schedulers.base import Scheduler


def check(scenario: Scenario, env: EnvSpec, *, matches: EnvSpec, generation: int = 0) -> None:
    """Raise ScenarioError or ConfigError: what does not fit, and what would. matches: the game as matches count it. generation: the last
    one that a run has behind it."""
    scenario.runtime.check()
    context = ScheduleContext(env, scenario.who_learns(scenario.population(env)))
    computed = next((assignment for assignment in context.assigned if assignment.computed), None)
    if scenario.needs_learner and computed is not None:
        raise ScenarioError(
            f"in {article(scenario.kind)} scenario policies meet others that still learn, or go on learning; the algorithm "
            f"{computed.name!r} computes each at once. Use one that learns, such as ppo."
        )
    if computed is not None and scenario.env.wrappers and env.enumeration is not None:
        raise ScenarioError(
            f"the algorithm {computed.name!r} computes on the tree of {env.id}, which is no longer the game where that is wrapped. Leave "
            "out env.wrappers, or use one that learns, such as ppo."
        )
    if scenario.evaluation.adaptive is not None and not scenario.reads_payoffs:
        raise ScenarioError(
            f"{scenario.kind} plays no match for payoffs, so that evaluation.adaptive would do nothing. Leave it out, or use scenario psro."
        )
    _check_workers(scenario, env)
    scheduler = scenario.scheduler(context.population)
    if isinstance(scenario.env.source, UserEnvObject) and max(scenario.runtime.task_slots, scheduler.together) > 1:
        raise ScenarioError(
            f"several learners of this {scenario.kind} run play at the same time, and {env.id} was given as one object. Give a function "
            "that makes an environment: env=lambda: …"
        )
    counted = ScheduleContext(matches, scenario.who_learns(context.population), generation=generation)
    scenario.check_schedule(counted)
    scenario.evaluation.check(counted, scenario, scenario.env)
    chosen = scenario.evaluation.exploitability
    exploitability = chosen == "exact" or (scenario.env.enumerated(env) and chosen != "off")
    _check_device(scenario.runtime.device_choice, context)
    _check_modes(scenario, context)
    learners = [a.algorithm for a in context.assigned if isinstance(a.algorithm, Algorithm)]
    if learners:
        check_response(scenario.response)
    check_stop(scenario.stop, learns=bool(learners), exploitability=exploitability)
    for algorithm in learners:
        _check_storage(algorithm)
        _check_recorded(scenario, algorithm)
        _check_warm_up(scenario, env, algorithm, scheduler)
        _check_seats(scenario, context, algorithm)
        _check_both_sides(scenario, env, algorithm)


def _check_workers(scenario: Scenario, env: EnvSpec) -> None:
    """Check that processes that play matches while others train have some to play, and play them as others would."""
    workers, runtime = scenario.evaluation.workers, scenario.runtime
    if not workers:
        return
    option = f"evaluation.workers={workers} play matches while others train"
    if not scenario.reads_payoffs:
        raise ScenarioError(
            f"{option}, and {scenario.kind} plays none for payoffs. Leave it out, or use scenario psro."
        )
    if scenario.env.enumerated(env) and scenario.evaluation.payoffs != "simulate":
        raise ScenarioError(
            f"{option}, and the payoffs of {env.id} are computed from its tree. Leave it out, or set evaluation.payoffs=simulate."
        )
    if not scenario.asks_for_all:
        instead = ", or set cells=all" if hasattr(scenario, "cells") else ""
        raise ScenarioError(
            f"{option}, of all members, and {scenario.kind} asks for few of them. Leave it out{instead}."
        )
    acting = runtime.acting_choice
    on_gpu = acting.device.startswith("cuda") or (acting.device == "auto" and gpu_count())
    may = "may " if acting.device == "auto" or acting.if_large else ""  # large networks do
    if scenario.has_children and on_gpu:
        raise ScenarioError(
            f"{option}, on the CPU beside this process, and with runtime.device={runtime.device} policies {may}act on a GPU, where "
            "results differ in their last bits. Leave it out, give runtime.acting=cpu, or use --runtime processes or ray, whose workers "
            "act on the CPU."
        )


def require_sendable(scenario: Scenario) -> None:
    """Raise ScenarioError for an environment that was given as an object, where other processes need it and cannot have it."""
    source, kind = scenario.env.source, "processes" if scenario.has_children else scenario.runtime.kind
    if source is None or kind == "inprocess":
        return
    workers = scenario.evaluation.workers
    child = f"evaluation.workers={workers}" if workers else "evaluation.background.beside=true"
    option = child if scenario.has_children else f"runtime.kind={kind}"
    try:
        if isinstance(source, UserEnvObject):
            raise TypeError("it is one object, and each of them needs its own")
        import_module({"ray": "ray.cloudpickle", "processes": "cloudpickle"}.get(kind, "pickle")).dumps(source)
    except Exception as error:
        raise ScenarioError(
            f"{option}, and the environment {scenario.env.id} cannot be sent to its workers: {one_line(error)}. Give a function "
            "that makes it, best one in a module of its own, named module:function."
        ) from error


def check_vector(scenario: Scenario, env: VectorEnv) -> None:
    """What no spec of an environment says; it may be reset for that. Raises ScenarioError or ConfigError."""
    _check_tree(scenario, env)
    for algorithm in (scenario.algorithm, *scenario.algorithms.values()):
        if isinstance(algorithm, ChecksStart):
            algorithm.check_start(env)
    if scenario.runtime.environments == "device":
        _check_played_there(scenario, env)


def _check_tree(scenario: Scenario, env: VectorEnv) -> None:
    """Check that there is a tree where a game is compiled, and where something is computed: a list of information states is none. Where a
    game is not compiled, sweeps compute exploitability alone."""
    if env.spec.enumeration is None and scenario.evaluation.exploitability == "exact":
        _check_sweeps(scenario, env)
    if env.spec.enumeration is None or find_tree(env) is not None:
        return
    if scenario.computes or "exact" in (scenario.evaluation.payoffs, scenario.evaluation.exploitability):
        part = "an algorithm" if scenario.computes else "evaluation"
        raise ScenarioError(
            f"{part} that computes was asked for, which needs a game's tree, and {scenario.env.id} has none here: trees are of "
            "OpenSpiel's games. Take an algorithm that learns, such as ppo, and play payoffs."
        )
    check_stop(scenario.stop, learns=scenario.learns, exploitability=False)


def _check_sweeps(scenario: Scenario, env: VectorEnv) -> None:
    """Check that sweeps know the game, that it is not too large for them, and that policies can be asked without playing."""
    from ludus.evaluation.sweep_exploitability import GAMES, check_size  # few runs need its kernels

    option, rules = "evaluation.exploitability=exact", find_sweep_rules(env)
    if rules is None:
        raise ScenarioError(
            f"{option} needs a game that can be enumerated, or one that sweeps know ({GAMES}, with fast=auto); {env.spec.id} is neither "
            f"(tree={scenario.env.tree}, node_limit={scenario.env.node_limit}): {env.spec.no_tree}. Use evaluation.exploitability=auto."
        )
    try:
        check_size(rules)
    except ScenarioError as error:
        raise ScenarioError(f"{option}: {error}") from error
    for assignment in scenario.who_learns(scenario.population(env.spec)).assigned(env.spec):
        for mode in sorted(scenario.modes):
            if not tabulates(assignment.policy, mode=mode):
                raise ScenarioError(
                    f"{option} needs policies that depend on what they see alone, and the algorithm {assignment.name!r} trains policies of "
                    f"kind {assignment.policy.kind!r}, which in mode {mode} depend on more (memory, or noise that lasts). Set "
                    "evaluation.exploitability=off."
                )


def _check_played_there(scenario: Scenario, env: VectorEnv) -> None:
    """Check that games can be played on the learner's device, as far as that is known before there are opponents."""
    runtime, algorithms = scenario.runtime, scenario.who_learns(scenario.population(env.spec))
    for assigned in algorithms.assigned(env.spec):
        if not isinstance(assigned.algorithm, Algorithm):
            continue
        on_device = (
            ELSEWHERE
            if runtime.trainers
            else on_device_learner(fresh_learner(assigned, env.spec, runtime.device_choice))
        )
        why = why_not_on_device(env, assigned.algorithm.collect(), asynchronous=runtime.async_limits is not None)
        if why := why or (on_device if isinstance(on_device, str) else ""):
            raise refused(algorithms.label(assigned.population, assigned.role), why)


def plays_on_device(scenario: Scenario, env: VectorEnv, assigned: Assignment, learner: Learner) -> bool:
    """Return whether training games of a learner are played where it computes, as far as that is known before there are opponents."""
    runtime, placement = scenario.runtime, getattr(learner, "placement", None)
    if runtime.trainers or runtime.plays_on == "host" or not isinstance(assigned.algorithm, Algorithm):
        return False
    if placement is None or (placement.device == "cpu" and runtime.plays_on == "auto"):
        return False
    why = why_not_on_device(env, assigned.algorithm.collect(), asynchronous=runtime.async_limits is not None)
    return not why and not isinstance(on_device_learner(learner), str)


def check_workers_play(scenario: Scenario, env: VectorEnv) -> None:
    """Raise ConfigError for workers in processes of their own that would have nothing to play: training games are played on the learner's
    device, and payoffs are computed."""
    runtime, evaluation = scenario.runtime, scenario.evaluation
    others = runtime.trainers or runtime.table_shards or evaluation.background is not None or scenario.imported
    exact = env.spec.enumeration is not None and evaluation.payoffs != "simulate"
    if runtime.kind == "inprocess" or others or not exact or not scenario.learns:
        return
    if runtime.plays_on == "host" or (runtime.plays_on == "auto" and not gpu_count()):
        return
    for assigned in scenario.who_learns(scenario.population(env.spec)).assigned(env.spec):
        learner = fresh_learner(assigned, env.spec, runtime.device_choice)
        if learner is None:  # what is computed plays nothing
            continue
        whole = isinstance(assigned.algorithm, Algorithm) and assigned.algorithm.collect().unit == "episodes"
        if not whole or not plays_on_device(scenario, env, assigned, learner):
            return
    raise ConfigError(
        f"runtime.kind={runtime.kind} was given, and its workers would have nothing to play: training games are played where the learner "
        "computes (runtime.environments), and payoffs come from the game's tree. Leave it out, or give runtime.environments=host."
    )


def fresh_learner(assigned: Assignment, env: EnvSpec, device: DeviceChoice) -> Learner | None:
    """Return a fresh learner; None of what computes."""
    if not isinstance(assigned.algorithm, Algorithm):
        return None
    return assigned.algorithm.learner(LearnerContext(env, assigned.seats, 0, device=device))


def _check_device(choice: DeviceChoice, context: ScheduleContext) -> None:
    """Check that learners can use a requested device or precision. Whether a GPU is there, `RuntimeChoice` checks."""
    device = choice.device not in ("auto", "cpu")
    if not device and choice.precision == "float32":
        return
    for assigned in context.assigned:
        learner = fresh_learner(assigned, context.env, CPU)
        if learner is not None and not isinstance(learner, HasPlacement):
            option = f"device={choice.device}" if device else f"precision={choice.precision}"
            raise ConfigError(
                f"runtime.{option} was given, and {qualified_name(assigned.algorithm)} computes on the CPU, in float32, only. Leave it out."
            )


def _check_modes(scenario: Scenario, context: ScheduleContext) -> None:
    """Check that members can be played in the schedule's modes."""
    for assigned in context.assigned:
        if "search" in scenario.modes and not searches(assigned.policy):
            raise ScenarioError(
                f"mode=search was given, and the algorithm {assigned.name!r} trains policies of kind {assigned.policy.kind!r}, which do "
                "not search. Use mode=greedy, or the algorithm alphazero."
            )


def _check_storage(algorithm: Algorithm) -> None:
    """Check that what an iteration collects fits into the tables, as far as that is known before."""
    sizes = batch_sizes(algorithm)
    for spec in algorithm.tables():
        size = sizes.get(spec.name)
        if size and not size.batch and HandOver.replaces(spec, insert=size.insert):
            continue  # a plain queue that all of an iteration fits into
        try:
            with closing(build_table(spec)) as table:
                if size and isinstance(table, BoundedTable):
                    table.check_sizes(insert=size.insert, batch=size.batch, vary=size.vary)
        except DataError as error:
            raise ScenarioError(
                f"the algorithm {registered_name(algorithm, ALGORITHMS)!r}, table {spec.name!r}: {error}"
            ) from error


def _check_recorded(scenario: Scenario, algorithm: Algorithm) -> None:
    """Check that what rewards are learned from was recorded in this environment."""
    learned = getattr(algorithm, "learned_reward", None)
    if learned is not None:
        learned.check_recorded(scenario.env.played.model_dump(mode="json"))


def unscheduled_warnings(scenario: Scenario) -> Iterator[str]:
    """Yield numbers that are to change over a training, and will not, since nothing says how long it is in the unit that they follow."""
    checked = list[Algorithm]()
    for algorithm in (scenario.algorithm, *scenario.algorithms.values()):
        if not isinstance(algorithm, Algorithm) or algorithm in checked:
            continue
        checked.append(algorithm)
        unit = algorithm.collect().unit
        if training_budget(scenario.response, unit)[0] is not None:
            continue
        values = {key: getattr(algorithm, key) for key in getattr(type(algorithm), "model_fields", ())}
        changing = {k: v.start for k, v in values.items() if isinstance(v, Schedule) and v.end not in (None, v.start)}
        if changing:
            starts = ", ".join(f"algorithm.{key} at {start:g}" for key, start in changing.items())
            yield (
                f"these stay at their start: {starts}. They change over the {unit} of a training, and `response` limits neither "
                f"decisions nor episodes. Add `response.{unit}`, or write plain numbers."
            )


def _check_warm_up(scenario: Scenario, env: EnvSpec, algorithm: Algorithm, scheduler: Scheduler) -> None:
    """Check that the first update comes before a policy is done, as far as that is known: where decisions are what is collected and
    limited."""
    limit, collect = limit_in_unit(scenario.response, "decisions"), algorithm.collect()
    if limit is None or scenario.runtime.async_limits is not None or collect.unit != "decisions":
        return
    if not isinstance(algorithm, HasWarmup):
        return
    warm_up, num_envs = algorithm.warm_up(), scenario.env.num_envs
    tasks = scheduler.options.chunks if isinstance(scheduler, ChunkedScheduler) else 1  # whose learners go on
    over = collect.amount + 2 * num_envs * len(env.agents)  # the last rollout's, with what is open then
    if tasks * (limit + over) >= warm_up.total:
        return
    open_ = num_envs * max(len(env.agents_of(player)) for player in range(env.num_players))
    whose = f" of its {warm_up.part.replace('_', ' ')}" if warm_up.part else ""
    changes = [
        f"decisions: {math.ceil(warm_up.total / tasks) + open_} or more",
        *warm_up.changes(tasks * (int(limit) - open_)),
    ]
    raise ScenarioError(
        f"response: {limit} decisions{'' if tasks == 1 else f' in each of {tasks} tasks'} are fewer than the algorithm "
        f"{registered_name(algorithm, ALGORITHMS)!r} collects before the first update{whose} ({warm_up.total}: {warm_up}), so "
        f"that its policies "
        f"would stay as they begin. Up to {open_} are still open at the end and count for nothing: give {join_or(changes)}."
    )


def _check_seats(scenario: Scenario, context: ScheduleContext, algorithm: Algorithm) -> None:
    """Check that there is an environment for each seat: episodes that stay open from one rollout to the next keep their seats."""
    most = max(len(seats) for seats in context.seats)
    if algorithm.collect().unit == "decisions" and scenario.env.num_envs < most:
        raise ScenarioError(
            f"env.num_envs={scenario.env.num_envs}, and {most} players of {context.env.id} share one population, each of whose policies "
            f"learns to play every seat; give num_envs={most} or a multiple, or share=never."
        )


def _check_both_sides(scenario: Scenario, env: EnvSpec, algorithm: Algorithm) -> None:
    """Check that an algorithm that learns from both players' moves gets them. Scenarios of one's own are left alone: the learner looks,
    too."""
    if env.num_players == 1 or not getattr(algorithm, "learns_both_sides", False) or ":" in scenario.kind:
        return
    if not getattr(scenario, "every_seat", False) or getattr(scenario, "latest", 1.0) != 1.0:
        raise ScenarioError(
            f"the algorithm {registered_name(algorithm, ALGORITHMS)!r} learns games of two players from both players' moves, and this "
            f"{scenario.kind} scenario has games of which it records one player's alone. Use scenario self_play with share=always, "
            "every_seat=true and latest=1."
        )
