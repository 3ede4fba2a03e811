"""Runs: build the parts of a scenario, drive them, and leave a run directory behind.

run(scenario)   = check -> create the directory -> initial policies -> drive -> report
resume(run_dir) = open -> rewind to the last barrier -> restore -> drive -> report
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ludus import __version__
from ludus.algorithms.base import ComputedOracle
from ludus.algorithms.spaces import discrete
from ludus.data.episode_server import EpisodeServer
from ludus.data.policy_server import PolicyServer
from ludus.envs.base import VectorEnv
from ludus.envs.game_tree import GameTree
from ludus.envs.registry import make_env
from ludus.errors import RunError
from ludus.evaluation.exact import ExactEvaluator
from ludus.evaluation.matches import MatchPlayer
from ludus.execution import checkpoint
from ludus.execution.driver import Driver, History
from ludus.execution.interrupt import StopRequest
from ludus.execution.policy_files import PolicyFiles
from ludus.execution.threads import single_threaded
from ludus.observe.base import GenerationRecord, Observer, Observers, RunInfo, RunSummary, Silent
from ludus.observe.reader import Reader
from ludus.observe.store import Store
from ludus.observe.tensorboard import TensorBoardWriter
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.population.agent_manager import AgentManager
from ludus.population.base import PolicyRecord
from ludus.population.payoffs import Payoffs
from ludus.report import write_report
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker
from ludus.scenario import Scenario, parse_scenario
from ludus.schedulers.psro import PSROScheduler
from ludus.training.training import Parts
from ludus.types import PolicyRef, PolicySpec

RUNS = Path("runs")


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What a run came to. nash_conv: per generation, where it is known. meta_strategies: [P] of the last solved generation."""

    run_dir: Path
    scenario: Scenario
    populations: tuple[tuple[PolicyRecord, ...], ...]
    payoffs: Payoffs
    meta_strategies: tuple[NDArray[np.float64], ...]
    generations: tuple[GenerationRecord, ...]
    nash_conv: tuple[float, ...]
    episodes: int
    seconds: float
    stopped_by: str
    report: Path | None

    def policy(self, population: int, index: int = -1) -> Policy:
        """A trained policy, loaded from the run directory."""
        record = self.populations[population][index]
        return build_policy(record.spec, PolicyFiles(self.run_dir).get(record.ref))


def run(
    scenario: Scenario,
    *,
    run_dir: Path | str | None = None,
    name: str | None = None,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
) -> Result:
    """Run a scenario from its start. Raises LudusError before anything is written if its parts do not fit together."""
    env = _environment(scenario)
    scenario.check(env.spec)
    folder = _folder(scenario, run_dir, name)
    info = _info(scenario, env, folder)
    files = PolicyFiles(folder)
    with _threads(scenario), Store.create(folder, info, locate=files.locate) as store:
        (folder / "scenario.yaml").write_text(scenario.to_yaml(), encoding="utf-8")
        driver = _driver(scenario, env, store, files, observer or Silent(), stop or StopRequest())
        driver.observer.run_started(info)
        _first_policies(driver)
        return _finish(driver, driver.run())


def resume(
    run_dir: Path | str,
    overrides: Sequence[str] = (),
    *,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
) -> Result:
    """Go on from the last barrier; `overrides` extend the run (generations=40). Raises RunError if it cannot be resumed."""
    folder = Path(run_dir)
    with Reader(folder) as reader:
        checkpoints, policies = reader.checkpoints(), reader.policies()
    scenario = _stored_scenario(folder, overrides)
    env = _environment(scenario)
    scenario.check(env.spec)
    info = _info(scenario, env, folder)
    files = PolicyFiles(folder, {p.record.ref: p.sha256 for p in policies})
    with _threads(scenario), Store.open(folder, locate=files.locate) as store:
        driver = _driver(scenario, env, store, files, observer or Silent(), stop or StopRequest())
        named = checkpoints[-1].id if checkpoints else None
        if named is not None:
            driver.restore(named)
        store.rewind(named)
        files.remove_unknown()
        if overrides:
            store.set_info(info)
            checkpoint.replace(folder / "scenario.yaml", scenario.to_yaml().encode())
        driver.observer.run_started(info, generation=driver.history.generations)
        if named is None:
            _first_policies(driver)
        return _finish(driver, driver.run())


# ---------------------------------------------------------------------------------------------- parts


def _threads(scenario: Scenario) -> AbstractContextManager[None]:
    return single_threaded(torch_too=not isinstance(scenario.oracle, ComputedOracle))


def _environment(scenario: Scenario) -> VectorEnv:
    env = scenario.env
    return make_env(env.id, num_envs=env.num_envs, tree=env.tree, node_limit=env.node_limit, **env.options)


def _driver(
    scenario: Scenario, env: VectorEnv, store: Store, files: PolicyFiles, observer: Observer, stop: StopRequest
) -> Driver:
    spec = env.spec
    population = scenario.population(spec)
    manager = AgentManager(
        utility_range=spec.utility_range, population=population, zero_sum=spec.zero_sum, recorder=store, store=files
    )
    bank = LocalBank(spec, env.num_envs)
    worker = RolloutWorker(env, bank)
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
        parts=Parts(worker, bank, EpisodeServer(scenario.seed), PolicyServer(), policy, scenario.seed),
        exact=exact,
        matches=MatchPlayer(worker, bank, policy, seed=scenario.seed),
        store=store,
        files=files,
        observer=Observers(observer, TensorBoardWriter(files.run_dir)),
        stop=stop,
        stopper=scenario.stop,
        history=History(values=[0.0] * spec.num_players, responses=[float("nan")] * spec.num_players),
    )


def _first_policies(driver: Driver) -> None:
    """Generation 0: every population starts with the policy that plays uniformly at random."""
    env = driver.parts.worker.env.spec
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
        name = f"{stem}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = RUNS / name
    if folder.exists():
        raise RunError(
            f"{str(folder)!r} is there already. Continue it with `ludus resume {folder}`, or give another --name."
        )
    return folder


def _stored_scenario(folder: Path, overrides: Sequence[str]) -> Scenario:
    try:
        text = (folder / "scenario.yaml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(
            f"{str(folder / 'scenario.yaml')!r} cannot be read ({error}); the run cannot be resumed."
        ) from error
    return parse_scenario(text, list(overrides))


def _finish(driver: Driver, reason: str) -> Result:
    """A last barrier, unless a stop was asked for (then the run goes on from the one before); summary, report and result."""
    complete = not driver.stop.requested
    folder = driver.files.run_dir
    if complete:
        driver.checkpoint(None)
    history, table = driver.history, driver.manager.table
    driver.parts.episodes.shutdown()
    driver.parts.worker.env.close()
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
    report = write_report(folder) if complete else None
    driver.observer.run_finished(replace(summary, report=report))
    with Reader(folder) as reader:
        generations = reader.generations()
    strategies = generations[-1].marginals if generations else ()
    return Result(
        run_dir=folder,
        scenario=driver.scenario,
        populations=tuple(tuple(driver.manager.record_of(ref) for ref in refs) for refs in driver.manager.populations),
        payoffs=table.view(),
        meta_strategies=tuple(np.array(m) for m in strategies),
        generations=generations,
        nash_conv=tuple(history.nash_conv),
        episodes=history.counters["episodes"],
        seconds=summary.seconds,
        stopped_by=reason,
        report=report,
    )
