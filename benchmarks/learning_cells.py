"""Measured runs of `benchmarks.learning`: one file for each task, seed and contestant, made once."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.contestants import Contestant, Repetition, measure
from benchmarks.harness import python_of
from benchmarks.learning_task import LearningTask
from benchmarks.learning_tasks import TASKS, scenario
from benchmarks.machine import ROOT
from benchmarks.results import same_scenario, write_cell

RESULTS = ROOT / "benchmarks" / "results" / "learning"
_IMITATED = ("expert", "demonstrations", "cloned")
"""What a task is imitated from, beside its scenario."""
QUICK = 0.05
"""Share of the budget that `--quick` trains for."""


@dataclass(frozen=True, slots=True)
class Run:
    """One to be measured. peer: by the task's peer instead of Ludus."""

    task: str
    seed: int
    peer: bool = False

    @property
    def contestant(self) -> str:
        """As tables and bars name it."""
        return peer_of(self.task) if self.peer else self.task

    @property
    def path(self) -> Path:
        """Where its result lies, below the folder of results."""
        peer = TASKS[self.task].peer if self.peer else None
        return Path(self.task) / f"{peer.name.lower() + '-' if peer else ''}{self.seed}.json"


def peer_of(task: str) -> str:
    """The name of the peer's runs of a task."""
    peer = TASKS[task].peer
    return f"{task}, {peer.name if peer else 'peer'}"


def wanted(names: Iterable[str], seeds: Iterable[int] | None = None) -> list[Run]:
    """The runs of these tasks, the first seed of every task first. seeds: None for those of each task."""
    chosen = {name: TASKS[name].seeds if seeds is None else tuple(dict.fromkeys(seeds)) for name in names}
    turns = max(map(len, chosen.values()), default=0)
    some = [(name, many[turn]) for turn in range(turns) for name, many in chosen.items() if turn < len(many)]
    return [Run(n, seed, peer) for n, seed in some for peer in ((False, True) if TASKS[n].peer else (False,))]


def settings(run: Run) -> dict[str, Any]:
    """What a result depends on, as its file holds it: the result of other settings is no result of this run."""
    task = TASKS[run.task]
    if run.peer and task.peer:
        return {"algorithm": task.peer.algorithm, "env": task.keys["env"]["id"], task.peer.unit: task.peer.budget}
    imitated = {key: getattr(task, key) for key in _IMITATED}
    return {**scenario(task, run.seed), **(imitated if task.expert else {})}


def stored(run: Run, folder: Path) -> Repetition | None:
    """What was measured of a run; None if nothing was, or with other settings, which is said. Exits with a sentence for a damaged file."""
    path = folder / run.path
    if not path.exists():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        with_settings, repetition = document["settings"], Repetition(**document["repetition"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(
            f"{path} is no result of a run ({type(error).__name__}: {error}). Restore it from git, or delete it to measure anew."
        ) from error
    today = json.loads(json.dumps(settings(run)))
    if with_settings != today and ((run.peer and TASKS[run.task].peer) or not _same(with_settings, today)):
        print(f"{run.contestant}, seed {run.seed}: measured with other settings, which do not count", file=sys.stderr)
        return None
    return repetition


def _same(settings: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether they are one: what is left out of a scenario counts as the class's default."""
    beside = [{key: each.get(key) for key in (*_IMITATED, "seed")} for each in (settings, others)]
    texts = [json.dumps({key: each[key] for key in each if key not in beside[0]}) for each in (settings, others)]
    return beside[0] == beside[1] and _same_scenario(*texts)


@cache
def _same_scenario(text: str, other: str) -> bool:
    """Whether two scenarios, as JSON without their seed, are one: of a task's seeds only the first is read."""
    return text == other or same_scenario(text, other)


def write(run: Run, repetition: Repetition, folder: Path) -> None:
    """Writes a result, as a whole or not at all."""
    write_cell(folder / run.path, repetition, settings=settings(run))


def python(run: Run) -> Path:
    """The interpreter of its worker."""
    peer = TASKS[run.task].peer if run.peer else None
    return python_of(peer.folder if peer else None)


def play(run: Run, *, core: int, quick: bool) -> Repetition:
    """Measures a run in a process of its own."""
    task = TASKS[run.task]
    share = QUICK if quick else 1.0
    return measure(
        contestant(task, peer=run.peer, share=share), python=python(run), core=core, seed=run.seed, quick=False
    )


def contestant(task: LearningTask, *, peer: bool, share: float = 1.0) -> Contestant:
    """The worker of a task. share: of the budget."""
    if peer and task.peer:
        budget, env = str(int(task.peer.budget * share)), task.keys["env"]["id"].removeprefix("gymnasium/")
        theirs = ("--algorithm", task.peer.algorithm, "--env", env, f"--{task.peer.unit}", budget)
        module, folder = f"benchmarks.peers.{task.peer.folder}.run", task.peer.folder
        return Contestant(peer_of(task.name), module, arguments=theirs, peer=folder, timeout_s=task.timeout_s)
    ours = ("--task", task.name, "--share", str(share))
    return Contestant(task.name, "benchmarks.learning_run", arguments=ours, timeout_s=task.timeout_s)


def time_left(left: Iterable[Run], measured: Iterable[tuple[Run, Repetition]]) -> str:
    """In words, from what runs of the same contestant took."""
    walls: dict[str, list[float]] = {}
    for run, repetition in measured:
        if not repetition.error:
            walls.setdefault(run.contestant, []).append(repetition.figures["wall seconds"])
    left = list(left)
    unknown = sum(run.contestant not in walls for run in left)
    minutes = sum(mean(walls[run.contestant]) for run in left if run.contestant in walls) / 60
    return f"{minutes:.0f} min left" + (f" and {unknown} runs of unknown length" if unknown else "")


def all_runs(runs: Iterable[Run], *, core: int, quick: bool, folder: Path) -> Iterator[tuple[Run, Repetition]]:
    """What each run came to: as stored, or measured now and stored. A failed one is not stored, and so is tried again next time."""
    runs = list(runs)
    done = [] if quick else [(run, found) for run in runs if (found := stored(run, folder))]
    yield from done
    missing = [run for run in runs if run not in {run for run, _ in done}]
    for k, run in enumerate(missing):
        repetition = play(run, core=core, quick=quick)
        done.append((run, repetition))
        if not quick and not repetition.error:
            write(run, repetition, folder)
        figures = repetition.figures
        said = repetition.error or f"{figures['score']:.4g} after {figures['wall seconds']:.0f} s"
        left = time_left(missing[k + 1 :], done)
        print(f"{run.contestant}, seed {run.seed}: {said}; {left}", file=sys.stderr, flush=True)
        yield run, repetition
