"""The parts of a scenario, put together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ludus.algorithms.common.base import Learner
from ludus.algorithms.common.registry import COMPUTED, Assignment
from ludus.backend.device import describe_device, gpu_count
from ludus.core.errors import RunWarning
from ludus.core.recorders import Timings
from ludus.core.types import EnvSpec, PolicyRef
from ludus.envs.base import VectorEnv
from ludus.envs.families import closed_on_error
from ludus.envs.game_facts import GameFacts
from ludus.envs.sweep_rules import SweepRules, find_sweep_rules
from ludus.envs.tree.game_tree import find_tree
from ludus.evaluation.background import BackgroundEvaluator, Evaluator, Score
from ludus.evaluation.exact import ExactEvaluator, tree_on
from ludus.evaluation.matches import EarlyMatches, MatchRunner
from ludus.metagame.population.agent_manager import AgentManager
from ludus.policies.agents import FOLDER as AGENT_LOGS
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.replay.episode_server import EpisodeServer
from ludus.replay.sharded import spawn_shards
from ludus.rollout.base import split_envs
from ludus.rollout.host import LocalRollouts, MakeEnv
from ludus.rollout.inference.groups import describe_acting
from ludus.rollout.manager import RolloutManager
from ludus.rollout.rollouts import Rollouts
from ludus.runs.control import Control, StopRequest
from ludus.runs.driver import Driver, History, Interrupted
from ludus.runs.imported_policies import ImportedPolicies, read_imported
from ludus.runs.scenario import Scenario
from ludus.runs.scenario_check import check_vector, check_workers_play, fresh_learner, plays_on_device, require_sendable
from ludus.runs.task_runner import TaskRunner
from ludus.runtime.base import Runtime, known_parts
from ludus.storage.base import Observer, Observers, RunInfo
from ludus.storage.checkpoint import PolicyFiles
from ludus.storage.reader import Reader
from ludus.storage.store import Store
from ludus.training.callbacks import CallbackObserver
from ludus.training.ondevice_collector import DeviceVectors
from ludus.training.remote_trainer import Trainers
from ludus.training.training import TrainingParts


def build_first_shard(scenario: Scenario) -> tuple[VectorEnv, GameFacts]:
    """Return (The environments of the first shard, what their game is): they play, if this is the process to play in."""
    return scenario.env.make_described(num_envs=split_envs(scenario.env.num_envs, scenario.shards)[0].num_envs)


def scored_spec(scenario: Scenario, env: EnvSpec) -> EnvSpec:
    """Return the game as matches count it: rewards that only learners are paid change what returns there are, and whether they sum to
    zero."""
    scored = scenario.env.scored
    if scored is scenario.env:
        return env
    vector = scored.make(num_envs=1)
    vector.close()
    return replace(env, utility_range=vector.spec.utility_range, zero_sum=vector.spec.zero_sum)


def validated_env(scenario: Scenario, *, generation: int = 0) -> tuple[VectorEnv, EnvSpec, GameFacts]:
    """Return (The environments of the first shard, the game as matches count it, what it is) of a scenario that can run, or go on after a
    generation. Raises what the checks raise; then the environments are closed."""
    require_sendable(scenario)
    env, game = build_first_shard(scenario)
    with closed_on_error(env):
        counted = scored_spec(scenario, env.spec)
        scenario.check(env.spec, matches=counted, generation=generation)
        check_vector(scenario, env)
        if not generation:  # a run that has begun so continues
            check_workers_play(scenario, env)
    return env, counted, game


def learner_placements(scenario: Scenario) -> dict[str, str]:
    """Return where each learner will compute, by which backend and why: learners are made and asked. Raises what making them does."""
    env, _ = build_first_shard(scenario)
    with closing(env):
        algorithms = scenario.who_learns(scenario.population(env.spec))
        place_of: dict[str, str] = {}
        for assigned in algorithms.assigned(env.spec):
            learner = fresh_learner(assigned, env.spec, scenario.runtime.device_choice)
            place_of[algorithms.label(assigned.population, assigned.role)] = (
                COMPUTED if learner is None else f"{describe_device(learner)}{_plays(scenario, env, assigned, learner)}"
            )
    return place_of


def _plays(scenario: Scenario, env: VectorEnv, assigned: Assignment, learner: Learner) -> str:
    """Return where a learner's policy would act, behind where it learns; "" where there is no choice."""
    if plays_on_device(scenario, env, assigned, learner):
        return "; games are played there, too, unless an opponent cannot"
    tell = where_acts(scenario, env.spec)
    return "" if tell is None else f"; acts on {tell(build_policy(learner.spec, learner.weights()))}"


def where_acts(scenario: Scenario, spec: EnvSpec) -> Callable[[Policy], str] | None:
    """Return what says of a policy where it acts in games in memory, and why; None where there is no GPU to choose."""
    runtime = scenario.runtime
    if runtime.device == "cpu" or (runtime.device == "auto" and not gpu_count()):
        return None
    if runtime.shared is not None:
        return lambda _: "cpu, in inference servers" if runtime.acting == "cpu" else "inference servers"
    if runtime.kind != "inprocess" and not runtime.gpus:
        return lambda _: "cpu: its workers have no GPU (runtime.gpus)"
    envs = max(shard.num_envs for shard in split_envs(scenario.env.num_envs, scenario.shards))
    rows = envs * max(len(spec.agents_of(player)) for player in range(spec.num_players))

    def acts(policy: Policy) -> str:
        if spec.enumeration is not None and policy.memory_shape is None:
            return "cpu: it plays from a table"
        if runtime.kind != "inprocess":  # this machine may have none
            return "GPUs of its workers (runtime.gpus)"
        return describe_acting(policy, runtime.acting_choice, rows)

    return acts


def read_opponents(scenario: Scenario, spec: EnvSpec) -> ImportedPolicies | None:
    """Return the policies and bots that a scenario imports, in the game `spec`; None if there are none. Raises as `read_imported`."""
    if not scenario.imported:
        return None
    population, payoffs = scenario.population(spec), scenario.evaluation.payoffs
    instead_of_tree = ["evaluation.payoffs=simulate"] * (payoffs != "simulate") + [
        "an algorithm that learns"
    ] * scenario.computes
    return read_imported(
        scenario.imported,
        spec,
        env=scenario.env,
        population=population,
        scheduler=scenario.scheduler(population),
        deadline=scenario.runtime.bots.deadline,
        why_no_bots=""
        if scenario.meets_bots
        else f"nobody knows how likely a bot's actions are: {scenario.kind} makes games of what its members may do. Leave it out, or use "
        "scenario psro.",
        instead_of_tree=instead_of_tree if scenario.env.enumerated(spec) else (),
    )


def _rollouts(scenario: Scenario, runtime: Runtime | None, make_env: MakeEnv, **options: Any) -> Rollouts[Any]:
    """Return rollouts in this process, or on hosts of a runtime, which ask for, and may do, what the runtime's options say."""
    choice = scenario.runtime
    bots = choice.bots.model_copy(update={"restarts": choice.restarts}) if choice.bots.restarts is None else choice.bots
    if (run_dir := options.pop("run_dir", None)) is not None:
        bots = bots.in_folder(str(run_dir.absolute() / AGENT_LOGS))
    if runtime is None:
        return LocalRollouts(make_env, bots=bots, device=choice.acting_choice, **options)
    options |= {"resources": choice.worker_resources, "restarts": choice.restarts, "deadline": choice.deadline}
    return RolloutManager(runtime, make_env, bots=bots, device=choice.acting_choice, **options)


def _training_rollouts(
    scenario: Scenario,
    runtime: Runtime | None,
    env: VectorEnv,
    run_dir: Path,
    tell: Callable[[str], None],
    warn: Callable[[str], None],
) -> Rollouts[Any]:
    environment, choice, shards = scenario.env, scenario.runtime, scenario.shards
    scored = None if environment.scored is environment else environment.scored.make
    options = {
        "spec": env.spec,
        "num_envs": environment.num_envs,
        "shards": shards,
        "scored": scored,
        "tell": tell,
        "warn": warn,
        "run_dir": run_dir,
    }
    if runtime is None:
        return _rollouts(scenario, None, environment.make, ready=env, **options)
    env.close()
    options |= {"hosts": min(choice.workers, shards), "leave": choice.trainers > 0, "inference": choice.shared}
    return _rollouts(scenario, runtime, environment.make, **options)


def _background(
    scenario: Scenario,
    runtime: Runtime | None,
    beside: Runtime | None,
    env: EnvSpec,
    store: Store,
    observer: Observer,
    on_progress: Callable[[], None],
) -> BackgroundEvaluator | None:
    choice = scenario.evaluation.background
    if choice is None or not scenario.learns:
        return None

    def record(score: Score) -> None:
        values = {"return": score.mean, "return_error": score.error, "episodes": float(score.episodes)}
        store.metrics_recorded("versions", score.version, {f"{score.task}/{name}": v for name, v in values.items()})

    def scored(task: str) -> frozenset[int]:
        with Reader(store.run_dir, check=False) as reader:
            return frozenset(reader.metrics(f"{task}/return", "versions").step.tolist())

    def tell(text: str) -> None:
        store.event("evaluation", text, level="warning")
        observer.message(text)

    population = scenario.population(env)
    seats = max(population.count(which) for which in population)
    num_envs = -(-choice.num_envs // seats) * seats  # as many in one seat as in another
    where = beside if choice.beside else runtime
    options: dict[str, Any] = {} if where is None else {"leave": True}  # nobody wants the trajectories
    options["run_dir"] = store.run_dir
    rollouts = _rollouts(
        scenario, where, scenario.env.scored.make, spec=env, num_envs=num_envs, kind=Evaluator, **options
    )
    return BackgroundEvaluator(
        rollouts,
        every=choice.every,
        episodes=choice.episodes,
        seed=scenario.seed,
        record=record,
        scored=scored,
        tell=tell,
        on_progress=on_progress,
    )


def _early(
    scenario: Scenario,
    runtime: Runtime | None,
    env: EnvSpec,
    policy: Callable[[PolicyRef], Policy],
    *,
    run_dir: Path,
    tell: Callable[[str], None],
) -> EarlyMatches | None:
    if not scenario.evaluation.workers:
        return None
    players = [
        MatchRunner(
            _rollouts(
                scenario,
                runtime,
                scenario.env.scored.make,
                spec=env,
                num_envs=scenario.env.num_envs,  # and as many shards as elsewhere: a match is then the same to the bit
                shards=scenario.shards,
                kind=Evaluator,
                tell=tell,
                run_dir=run_dir,
            ),
            policy,
            seed=scenario.seed,
        )
        for _ in range(scenario.evaluation.workers)
    ]
    return EarlyMatches(players, scenario.evaluation.portion, tell=tell)


def _learning(scenario: Scenario, runtime: Runtime | None, profile: Timings) -> tuple[EpisodeServer, Trainers | None]:
    """Return the tables of learners that live here, and the trainers elsewhere, if any."""
    if runtime is None:
        return EpisodeServer(scenario.seed), None
    choice = scenario.runtime
    shards = spawn_shards(runtime, choice.table_shards, resources={"num_cpus": 1}) if choice.table_shards else ()
    if not choice.trainers or not scenario.learns:
        return EpisodeServer(scenario.seed, shards), None
    trainers = Trainers(
        runtime,
        choice.trainers,
        seed=scenario.seed,
        profile=profile,
        resources=choice.trainer_resources,
        shards=shards,
        feed=choice.feed,
        threads=choice.threads,
        deadline=choice.deadline,
    )
    return EpisodeServer(scenario.seed), trainers


_ON_A_GPU = 4
"""Training tasks in progress, where whole games of a tree may be played on a GPU: each on a stream of its own."""


def _task_slots(scenario: Scenario, vectors: DeviceVectors | None) -> int:
    """Return how many training tasks are in progress at a time. vectors: of `_vectors`."""
    on_gpu = vectors is not None and vectors.env.spec.enumeration is not None
    return _ON_A_GPU if on_gpu and scenario.runtime.tasks is None else scenario.runtime.task_slots


def _vectors(scenario: Scenario, env: VectorEnv) -> DeviceVectors | None:
    """Return the vectors on devices, where games may be played on one; None: they are played in memory."""
    where = scenario.runtime.plays_on
    if where == "host" or (where == "auto" and not (scenario.learns and gpu_count())):
        return None
    return DeviceVectors(where, env, scenario.env.num_envs)


def _exact(
    scenario: Scenario, env: VectorEnv, population: tuple[int, ...], tell: Callable[[str], None]
) -> ExactEvaluator | None:
    """Where the game has a tree, and somebody asks for what can be computed on it."""
    tree = None if env.spec.enumeration is None else find_tree(env)
    wanted = (scenario.evaluation.payoffs, scenario.evaluation.exploitability) != ("simulate", "off")
    wanted = wanted or scenario.computes  # which reads its opponents' plans from the evaluator
    if tree is None or not wanted:
        return None
    device = scenario.runtime.device
    if device.startswith("cuda") and scenario.runtime.trainers and not gpu_count():  # theirs are on other machines
        tell(
            f"runtime.device={device}: the driver's machine has no GPU, so its CPU computes exact payoffs and exploitability."
        )
        device = "cpu"
    return ExactEvaluator(tree_on(tree, device), population)


def _loader(manager: AgentManager) -> Callable[[PolicyRef], Policy]:
    """Return what builds a member's policy, once."""
    members: dict[PolicyRef, Policy] = {}

    def policy(ref: PolicyRef) -> Policy:
        if ref not in members:
            members[ref] = build_policy(*manager.weights_of(ref))
        return members[ref]

    return policy


def _sweep_rules(scenario: Scenario, env: VectorEnv) -> SweepRules | None:
    """Return the rules of a game whose exploitability sweeps compute, where that was asked for."""
    return find_sweep_rules(env) if scenario.evaluation.exploitability == "exact" else None


def _look(control: Control, stop: StopRequest) -> None:
    """Do what the control file asks for. Raises Interrupted once the run is to stop."""
    control.look()
    if stop.requested:
        raise Interrupted


def build_driver(
    scenario: Scenario,
    runtime: Runtime | None,
    env: VectorEnv,
    info: RunInfo,
    store: Store,
    files: PolicyFiles,
    observers: Sequence[Observer],
    stop: StopRequest,
    control: Control,
    *,
    beside: Runtime | None,
) -> Driver:
    """runtime: None: all is in this process. observers: of the run, before its callbacks. beside: where those live who play matches while
    others train."""
    callbacks = CallbackObserver(scenario.callbacks) if scenario.callbacks else None
    observer = Observers(*observers, *([] if callbacks is None else [callbacks]))
    spec, population = env.spec, scenario.population(env.spec)
    manager = AgentManager(
        utility_range=info.utility_range,
        population=population,
        zero_sum=info.zero_sum,
        recorder=store,
        store=files,
        archive=store,
    )
    scheduler = scenario.scheduler(population)

    def tell(text: str) -> None:
        store.event("worker", text, level="warning")
        observer.message(text)

    def warn(text: str) -> None:
        """At once, since the run may never be over."""
        store.event("endless", text, level="warning")
        observer.message(f"warning: {text}")
        warnings.warn(f"run {store.run_dir.name}: {text}", RunWarning, stacklevel=2)

    if runtimes := {id(one): one for one in (runtime, beside) if one is not None}:
        for one in runtimes.values():
            one.tell = tell
        control.watch(lambda: [part for one in runtimes.values() for part in known_parts(one)])
    rollouts = _training_rollouts(scenario, runtime, env, store.run_dir, tell, warn)
    episodes, trainers = _learning(scenario, runtime, rollouts.profile)
    policy, choice = _loader(manager), scenario.runtime
    early = _early(scenario, beside, spec, policy, run_dir=store.run_dir, tell=tell)
    vectors = _vectors(scenario, env)
    task_slots = _task_slots(scenario, vectors)
    return Driver(
        scheduler=scheduler,
        work=TaskRunner(
            choice,
            scenario.response,
            scenario.evaluation,
            scenario.checkpoints,
            scenario.who_learns(population),
            manager,
            TrainingParts(
                rollouts,
                episodes,
                policy,
                scenario.seed,
                trainers=trainers,
                feed=choice.feed,
                device=choice.device_choice,
                where_acts=where_acts(scenario, spec),
                vectors=vectors,
                background=_background(scenario, runtime, beside, spec, store, observer, partial(_look, control, stop)),
                callbacks=callbacks,
                observer=observer,
                clock=control.clock,
            ),
            _exact(scenario, env, population, tell),
            lambda: MatchRunner(rollouts, policy, seed=scenario.seed, early=early),
            early,
            sweep_rules=_sweep_rules(scenario, env),
            task_slots=max(task_slots, scheduler.together),
            concurrent=task_slots > 1,
        ),
        store=store,
        files=files,
        observer=observer,
        stop=stop,
        control=control,
        stopper=scenario.stop,
        generations=scenario.generations,
        sequential=getattr(scenario, "order", None) == "sequential",
        history=History.of(spec.num_players),
    )
