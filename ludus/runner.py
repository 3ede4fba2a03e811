"""Runs: build the parts of a scenario, drive them, and leave a run directory behind.

run(scenario)   = check -> create the directory -> initial policies -> drive -> report
resume(run_dir) = read and check -> restore -> rewind to the last barrier -> drive -> report
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path

from ludus import __version__
from ludus.algorithms.base import ComputedOracle
from ludus.algorithms.spaces import discrete
from ludus.data.episode_server import EpisodeServer
from ludus.data.policy_server import PolicyServer
from ludus.envs.base import VectorEnv
from ludus.envs.game_tree import GameTree
from ludus.errors import RunError
from ludus.evaluation.beside import Beside, Score
from ludus.evaluation.exact import ExactEvaluator
from ludus.evaluation.matches import MatchPlayer
from ludus.execution import live
from ludus.execution.control import Control
from ludus.execution.driver import Driver
from ludus.execution.history import History
from ludus.execution.interrupt import StopRequest
from ludus.execution.stored_run import SCENARIO, StoredRun, read_run
from ludus.execution.threads import single_threaded
from ludus.files import replace_file
from ludus.observe.base import Observer, Observers, RunInfo, RunSummary, Silent
from ludus.observe.policy_files import PolicyFiles
from ludus.observe.store import Store
from ludus.observe.tensorboard import TensorBoardWriter
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.population.agent_manager import AgentManager
from ludus.profile import Profile
from ludus.report import write_report
from ludus.result import Result, read_result
from ludus.rollout.manager import RolloutManager
from ludus.rollout.shards import shards_of
from ludus.runtime.base import Runtime
from ludus.runtime.inprocess import InProcess
from ludus.scenario import Scenario
from ludus.schedulers.psro import PSROScheduler
from ludus.training.remote import Trainers
from ludus.training.training import Parts
from ludus.types import EnvSpec, PolicyRef, PolicySpec

RUNS = Path("runs")


def run(
    scenario: Scenario,
    *,
    run_dir: Path | str | None = None,
    name: str | None = None,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    report: bool = True,
) -> Result:
    """Run a scenario from its start; `report`: write one at the end. Raises LudusError, before anything is written, if its parts do
    not fit together."""
    scenario, env = scenario.with_shards(), _first_shard(scenario)
    scenario.check(env.spec)
    folder = _folder(scenario, run_dir, name)
    info = _info(scenario, env, folder)
    files = PolicyFiles(folder)
    stop, observer = stop or StopRequest(), observer or Silent()
    with (
        _session(scenario, folder, observer) as (tensorboard, runtime),
        Store.create(folder, info, locate=files.locate) as store,
        closing(Control(folder, stop, observer=observer, event=store.event)) as control,
    ):
        replace_file(folder / SCENARIO, info.text.encode())
        observers = Observers(observer, tensorboard, control)
        driver = _driver(scenario, runtime, env, store, files, observers, stop, control)
        driver.observer.run_started(info)
        _first_policies(driver)
        return _finish(driver, driver.run(), report=report)


def resume(
    run_dir: Path | str,
    overrides: Sequence[str] = (),
    *,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    report: bool = True,
) -> Result:
    """Go on from the last barrier; `overrides` extend the run (generations=40). A finished run that is not extended is left as it is.
    Raises LudusError, before anything is changed, if it cannot be resumed."""
    stored = read_run(Path(run_dir), overrides)
    if stored.finished and not stored.changed:
        return _finished(stored, report=report)
    scenario, files = stored.scenario, stored.files
    env = _first_shard(scenario)
    scenario.check(env.spec)
    info = _info(scenario, env, stored.folder)
    stop, observer = stop or StopRequest(), observer or Silent()
    with (
        _session(scenario, stored.folder, observer) as (tensorboard, runtime),
        Store.open(stored.folder, locate=files.locate) as store,
        closing(Control(stored.folder, stop, observer=observer, event=store.event)) as control,
    ):
        stored.still_last()
        observers = Observers(observer, tensorboard, control)
        driver = _driver(scenario, runtime, env, store, files, observers, stop, control)
        driver.named.extend(stored.named)
        if stored.state is not None:
            driver.restore(stored.state)
        store.rewind(stored.named[-1] if stored.named else None)
        files.remove_unknown()
        driver.clean()
        stored.restore_scenario()
        if stored.changed:
            stored.change_scenario(store, info)
        driver.observer.run_started(info, generation=driver.history.generations)
        for warning in stored.warnings:
            store.event("checkpoint", warning, level="warning")
            driver.observer.message(warning)
        if stored.state is None:
            _first_policies(driver)
        return _finish(driver, driver.run(), report=report)


# ---------------------------------------------------------------------------------------------- parts


@contextmanager
def _session(scenario: Scenario, folder: Path, observer: Observer) -> Iterator[tuple[TensorBoardWriter, Runtime]]:
    """One thread, a writer of events and a runtime, which are closed whatever happens. A disk that is full or taken away ends the run in
    one line; what was committed stays."""
    torch_too = not isinstance(scenario.oracle, ComputedOracle)
    if scenario.runtime.kind != "inprocess":  # takes seconds, in which nothing else could be shown
        observer.message(f"starting {scenario.runtime.kind}")
    try:
        with (
            single_threaded(torch_too=torch_too),
            closing(TensorBoardWriter(folder)) as tensorboard,
            closing(scenario.runtime.build()) as runtime,
        ):
            yield tensorboard, runtime
    except BrokenPipeError:  # of whoever watches
        raise
    except OSError as error:
        raise RunError(
            f"run {str(folder)!r} stopped: {error.strerror or error}. What was committed is kept; `ludus resume` goes on from there."
        ) from error


def _first_shard(scenario: Scenario) -> VectorEnv:
    """The environments of the first shard: they say what the game is, and play, if this is the process to play in."""
    return scenario.env.make(num_envs=shards_of(scenario.env.num_envs, scenario.runtime.pieces)[0].num_envs)


def _rollouts(scenario: Scenario, runtime: Runtime, env: VectorEnv) -> RolloutManager:
    here = isinstance(runtime, InProcess)
    if not here:
        env.close()
    return RolloutManager(
        runtime,
        scenario.env.make,
        spec=env.spec,
        num_envs=scenario.env.num_envs,
        shards=scenario.runtime.pieces,
        hosts=1 if here else min(scenario.runtime.workers, scenario.runtime.pieces),
        resources={} if here else scenario.runtime.resources,
        restarts=scenario.runtime.restarts,
        deadline=scenario.runtime.deadline,
        leave=scenario.runtime.trainers > 0,
        inference=scenario.runtime.shared,
        ready=env if here else None,
    )


def _beside(scenario: Scenario, runtime: Runtime, env: EnvSpec, store: Store) -> Beside | None:
    choice = scenario.evaluation.beside
    if choice is None or isinstance(scenario.oracle, ComputedOracle):
        return None

    def record(score: Score) -> None:
        values = {"return": score.mean, "return_error": score.error, "episodes": float(score.episodes)}
        store.metrics_recorded("versions", score.version, {f"{score.task}/{name}": v for name, v in values.items()})

    rollouts = RolloutManager(
        runtime,
        scenario.env.make,
        spec=env,
        num_envs=choice.num_envs,
        resources={} if isinstance(runtime, InProcess) else scenario.runtime.resources,
        restarts=scenario.runtime.restarts,
        deadline=scenario.runtime.deadline,
        leave=True,  # nobody wants the trajectories
    )
    return Beside(rollouts, every=choice.every, episodes=choice.episodes, seed=scenario.seed, record=record)


def _trainers(scenario: Scenario, runtime: Runtime, profile: Profile) -> Trainers | None:
    choice = scenario.runtime
    if not choice.trainers or isinstance(scenario.oracle, ComputedOracle):
        return None
    return Trainers(runtime, choice.trainers, seed=scenario.seed, profile=profile, resources=choice.trainer_resources)


def _driver(
    scenario: Scenario,
    runtime: Runtime,
    env: VectorEnv,
    store: Store,
    files: PolicyFiles,
    observer: Observer,
    stop: StopRequest,
    control: Control,
) -> Driver:
    spec = env.spec
    population = scenario.population(spec)
    manager = AgentManager(
        utility_range=spec.utility_range, population=population, zero_sum=spec.zero_sum, recorder=store, store=files
    )
    rollouts = _rollouts(scenario, runtime, env)
    members: dict[PolicyRef, Policy] = {}

    def policy(ref: PolicyRef) -> Policy:
        if ref not in members:
            members[ref] = build_policy(*manager.weights_of(ref))
        return members[ref]

    tree = getattr(env, "tree", None)
    wanted = (scenario.evaluation.payoffs, scenario.evaluation.exploitability) != ("simulate", "off")
    computed = isinstance(scenario.oracle, ComputedOracle)  # reads its opponents' plans from the evaluator
    exact = ExactEvaluator(tree, population) if isinstance(tree, GameTree) and (wanted or computed) else None
    return Driver(
        scenario=scenario,
        scheduler=PSROScheduler(
            solver=scenario.meta_solver,
            generations=scenario.generations,
            population=population,
            seed=scenario.seed,
            warm_start=scenario.warm_start,
            mode=scenario.mode,
        ),
        manager=manager,
        parts=Parts(
            rollouts,
            EpisodeServer(scenario.seed),
            PolicyServer(),
            policy,
            scenario.seed,
            trainers=_trainers(scenario, runtime, rollouts.profile),
            beside=_beside(scenario, runtime, spec, store),
            clock=control.clock,
        ),
        exact=exact,
        matches=MatchPlayer(rollouts, policy, seed=scenario.seed),
        store=store,
        files=files,
        observer=observer,
        stop=stop,
        control=control,
        stopper=scenario.stop,
        history=History.of(spec.num_players),
        lanes=scenario.runtime.lanes,
        pace=scenario.runtime.pace,
    )


def _first_policies(driver: Driver) -> None:
    """Generation 0: every population starts with the policy that plays uniformly at random."""
    env = driver.parts.rollouts.spec
    table = driver.manager.table
    for population in range(len(table.population_sizes)):
        seat = table.population.index(population)
        spec = PolicySpec("random", {"actions": discrete(env, (seat,), algorithm="the first policy")[1]})
        ref = driver.manager.add(population, f"{population}-0", spec, {})
        driver.admit(ref)


def _info(scenario: Scenario, env: VectorEnv, folder: Path) -> RunInfo:
    spec = env.spec
    return RunInfo(
        name=folder.name,
        run_dir=folder,
        scenario=scenario.name or "psro",
        env=scenario.env.id,
        algorithm=type(scenario.oracle).__name__,
        seed=scenario.seed,
        version=f"ludus {__version__}, Python {platform.python_version()}",
        population=scenario.population(spec),
        utility_range=spec.utility_range,
        zero_sum=spec.zero_sum,
        generations=scenario.generations,
        text=scenario.to_yaml(),
    )


def _folder(scenario: Scenario, run_dir: Path | str | None, name: str | None) -> Path:
    if run_dir is not None:
        return Path(run_dir)
    if name is None:
        stem = scenario.name or scenario.env.id.rpartition("/")[2].partition("(")[0].replace(":", "-")
        return _unused(f"{stem}-{datetime.now():%Y%m%d-%H%M%S}")
    return RUNS / name


def _unused(name: str) -> Path:
    """Makes the folder ./runs/<name>, or with -2, -3 … where runs of the same second have it. Whoever makes it owns it."""
    for k in count(1):
        folder = RUNS / (name if k == 1 else f"{name}-{k}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:
            pass  # the store says why
        return folder
    raise AssertionError


def _finish(driver: Driver, reason: str, *, report: bool) -> Result:
    """A last barrier, unless a stop was asked for (then the run goes on from the one before); summary, report and result."""
    complete = not driver.stop.requested
    folder, history = driver.files.run_dir, driver.history
    if complete:
        driver.finish()
    driver.parts.episodes.shutdown()
    driver.parts.rollouts.close()
    if driver.parts.trainers is not None:
        driver.parts.trainers.close()
    if driver.parts.beside is not None:
        driver.parts.beside.close()
    summary = RunSummary(
        run_dir=folder,
        generations=history.generations,
        seconds=driver.seconds,
        episodes=history.counters["episodes"],
        nash_conv=history.nash_conv[-1] if history.nash_conv else None,
        stopped_by=reason,
        complete=complete,
        counters=dict(history.counters),
    )
    driver.store.run_finished(summary)
    summary = replace(summary, report=write_report(folder) if report else None)
    driver.observer.run_finished(summary)
    return read_result(folder, driver.scenario, summary)


def _finished(stored: StoredRun, *, report: bool) -> Result:
    """What a finished run came to. Nothing is changed, but for a report that a kill has prevented, and what it has left of live control."""
    assert stored.summary is not None
    live.remove(stored.folder)
    path = stored.folder / "report.html"
    if report and not path.exists():
        write_report(stored.folder)
    how = f"{stored.summary.stopped_by}; it was finished before, and nothing was done (a higher generations=N, or another stop, extends it)"
    summary = replace(stored.summary, report=path if path.exists() else None)
    return read_result(stored.folder, stored.scenario, summary, stopped_by=how)
