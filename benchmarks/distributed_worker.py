"""The measurements of `benchmarks.distributed`, one per process.

python -m benchmarks.distributed_worker scaling --mode async --workers 8
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.lines import Lines
from ludus.core.types import Metrics, Task, TrainingTask
from ludus.runs.runner import run
from ludus.runs.scenario_files import load_scenario
from ludus.storage.base import GenerationRecord, NullObserver
from ludus.storage.reader import Reader

PACKAGES = ("ludus", "numpy", "numba", "torch", "open-spiel", "gymnasium", "ray")
WAITING, LIGHT = "benchmarks.distributed_envs:Waiting", "benchmarks.distributed_envs:Steps"
SLOTS, MILLISECONDS, STEPS = 8, 10.0, 100
"""Environments of a worker, what a step of them takes, and steps that a worker's order takes at least."""

_BATCHES = [
    "algorithm.batch=2048",
    "algorithm.epochs=10",
    "algorithm.minibatches=32",
    "algorithm.value_coefficient=0.5",
]
OVERHEAD = {
    "cartpole": ("cartpole", ["env.num_envs=64", "warm_start=last", *_BATCHES]),
    "connect_four": ("connect-four", ["env.fast=off", "meta_solver=last"]),
}


@dataclass
class Watch(NullObserver):
    """When things happened, in seconds since it was made: generations by number, and (seconds, share that is done) of training."""

    begun: float = field(default_factory=time.perf_counter)
    generations: dict[int, float] = field(default_factory=dict)
    shares: list[tuple[float, float]] = field(default_factory=list)
    training: bool = False

    def task_started(self, task: Task) -> None:
        self.training = isinstance(task, TrainingTask)

    def task_progress(self, fraction: float | None, metrics: Metrics) -> None:
        if self.training and fraction is not None:
            self.shares.append((self.now, fraction))

    def generation_done(self, record: GenerationRecord) -> None:
        self.generations[record.number] = self.now

    @property
    def now(self) -> float:
        return time.perf_counter() - self.begun


def watched(preset: str, overrides: Sequence[str], folder: Path, seed: int) -> Watch:
    """A whole run into `folder`."""
    scenario = load_scenario(preset, list(overrides), seed)
    watch = Watch()
    run(scenario, run_dir=folder, observer=watch, report=False)
    return watch


def overhead(case: str, kind: str, *, tasks: int, quick: bool, seed: int) -> dict[str, float]:
    """Environment steps per second, learning, evaluation and checkpoints included, of all generations but the first two, in which
    processes start and code is compiled. The runs of all kinds are equal to the bit, so they are the same work."""
    preset, overrides = OVERHEAD[case]
    last = 2 if quick else 4
    size = {"cartpole": "response={decisions: 40960}", "connect_four": "response={episodes: 4096}"}[case]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        options = [f"generations={last}", size, f"runtime.kind={kind}", "runtime.shards=1", f"runtime.tasks={tasks}"]
        watch = watched(preset, [*overrides, *options], folder, seed)
        steps = env_steps(folder)
    seconds = watch.generations[last] - watch.generations[1]
    return {
        "env steps per second": sum(steps[g] for g in range(2, last + 1)) / seconds,
        "seconds": seconds,
        "seconds to start": watch.generations[0],
    }


def env_steps(folder: Path) -> dict[int, float]:
    """By generation, those of training and of evaluation."""
    with closing(Reader(folder)) as reader:
        series = reader.metrics("rollout/env_steps", "generations")
    return dict(zip(series.step.tolist(), series.value.tolist(), strict=True))


def scaling(mode: str, workers: int, *, straggler: bool, quick: bool, seed: int) -> dict[str, float]:
    """Decisions per second that the learner has learned from, in the middle of a training task: `WAITING` environments, `SLOTS` of them for
    each worker, and a batch of as many decisions for each."""
    batch = SLOTS * STEPS * workers
    total = batch * (12 if quick or (straggler and mode == "sync") else 20)
    with tempfile.TemporaryDirectory() as name:
        options = [f"game: {LIGHT!r}, milliseconds: {MILLISECONDS}"]
        if straggler:
            options.append(f"straggler: {name}/straggler")
        overrides = [
            f"env={{id: {WAITING!r}, num_envs: {SLOTS * workers}, options: {{{', '.join(options)}}}}}",
            f"algorithm={{kind: ppo, batch: {batch}, batch_unit: decisions, epochs: 4, minibatches: 4, hidden: [64, 64]}}",
            f"response={{decisions: {total}}}",
            "meta_solver=last",
            "generations=1",
            "evaluation={episodes: 2, exploitability: 'off'}",
            f"runtime={{kind: ray, shards: {workers}}}",
            f"runtime.workers={workers}",
            f"runtime.mode={mode}",
        ]
        watch = watched("cartpole", overrides, Path(name) / "run", seed)
    middle = [(seconds, share) for seconds, share in watch.shares if 0.2 <= share <= 0.8]
    (first, low), (last, high) = middle[0], middle[-1]
    return {
        "decisions per second": total * (high - low) / (last - first),
        "of what the waits allow": total * (high - low) / (last - first) / (workers * SLOTS / MILLISECONDS * 1e3),
        "iterations": len(middle) - 1,
        "seconds to start": watch.generations[0],
    }


def computing(mode: str, workers: int, kind: str, *, quick: bool, seed: int) -> dict[str, float]:
    """Environment steps per second of connect four, which computes, with two shards however many workers carry them."""
    last = 2 if quick else 4
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        overrides = [
            "meta_solver=last",
            f"generations={last}",
            "response={episodes: 8192}",
            f"runtime={{kind: {kind}, shards: 2}}",
            f"runtime.workers={workers}",
            f"runtime.mode={mode}",
        ]
        watch = watched("connect-four", overrides, folder, seed)
        steps = env_steps(folder)
    seconds = watch.generations[last] - watch.generations[1]
    return {
        "env steps per second": sum(steps[g] for g in range(2, last + 1)) / seconds,
        "seconds to start": watch.generations[0],
    }


def psro(workers: int, *, quick: bool, seed: int) -> dict[str, float]:
    """Generations per minute of PSRO on a game of two players whose steps wait: both players' responses at once, several profiles at once,
    several environments per profile. The first 52 bits of a digest of all policies say whether populations are equal."""
    last = 2 if quick else 3
    game = "openspiel/goofspiel(imp_info=True,num_cards=4,points_order=descending)"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        overrides = [
            f"env={{id: {WAITING!r}, num_envs: 64, options: {{game: '{game}', milliseconds: {MILLISECONDS}}}}}",
            "algorithm={kind: ppo, batch: 640, epochs: 4, hidden: [64, 64]}",
            "meta_solver=nash",
            f"generations={last}",
            f"response={{episodes: {640 * (2 if quick else 4)}}}",
            "evaluation={episodes: 128, exploitability: 'off'}",
            "runtime={kind: ray, shards: 8}",
            f"runtime.workers={workers}",
        ]
        watch = watched("connect-four", overrides, folder, seed)
        digest = populations(folder)
    seconds = watch.generations[last] - watch.generations[1]
    return {
        "generations per minute": 60 * (last - 1) / seconds,
        "populations": float(digest),
        "seconds to start": watch.generations[0],
    }


def populations(folder: Path) -> int:
    """A number that stands for the weights of every policy of a run."""
    digest = hashlib.sha256()
    files = sorted((folder / "policies").rglob("*.safetensors"))
    assert len(files) > 2, "policies were trained"
    for file in files:
        digest.update(file.name.encode() + file.read_bytes())
    return int.from_bytes(digest.digest()[:8], "big") >> 12


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("overhead", "scaling", "computing", "psro"))
    parser.add_argument("--case", choices=tuple(OVERHEAD), default="cartpole")
    parser.add_argument("--kind", choices=("inprocess", "processes", "ray"), default="ray")
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--mode", choices=("sync", "async"), default="sync")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--straggler", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    lines = Lines(PACKAGES)
    common = {"quick": args.quick, "seed": args.seed}
    if args.what == "overhead":
        lines.figures(overhead(args.case, args.kind, tasks=args.tasks, **common))
    elif args.what == "scaling":
        lines.figures(scaling(args.mode, args.workers, straggler=args.straggler, **common))
    elif args.what == "computing":
        lines.figures(computing(args.mode, args.workers, args.kind, **common))
    else:
        lines.figures(psro(args.workers, **common))
    return 0


if __name__ == "__main__":
    sys.exit(main())
