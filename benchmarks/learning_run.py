"""The worker of `benchmarks.learning`: one task, one seed, and what the trained policy scores in episodes that training never saw.

python -m benchmarks.learning_run --task cartpole-ppo --seed 0
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import numpy as np

from benchmarks.learning_imitation import cloned, recorded
from benchmarks.learning_task import LearningTask, point_of
from benchmarks.learning_tasks import TASKS, scenario
from benchmarks.lines import Lines
from benchmarks.machine import ROOT
from benchmarks.results import in_full
from ludus.core.config import to_yaml
from ludus.core.errors import RunError
from ludus.core.types import MetaSolution, Metrics
from ludus.envs.config import Environment
from ludus.envs.tree.vector import TreeVectorEnv
from ludus.evaluation.evaluate import RunEvaluator, evaluate_run
from ludus.evaluation.exact import ExactEvaluator
from ludus.runs.runner import Result, resume, run
from ludus.storage.base import GenerationRecord, NullObserver, Observer, RunSummary
from ludus.storage.database import FILE
from ludus.storage.reader import Reader

PACKAGES = ("ludus", "numpy", "numba", "torch", "gymnasium", "ale-py", "Box2D", "mujoco", "jaxmarl", "open-spiel")
KEPT = ROOT / "runs" / "benchmarks" / "learning"
_POINTS = 50  # of the curve of a training task


class Curve(NullObserver):
    """Prints points of a run's curve: of NashConv (`exact`), or of returns in training. One that goes on prints its own part."""

    def __init__(self, lines: Lines, *, exact: bool) -> None:
        self._lines = lines
        self._exact = exact
        self._next = 0.0
        self.counters: dict[str, int] = {}

    def task_progress(self, fraction: float | None, metrics: Metrics) -> None:
        if self._exact or fraction is None or fraction < self._next or "return" not in metrics:
            return
        self._next = fraction + 1 / _POINTS
        self._lines.point(share=fraction, training_return=metrics["return"])

    def generation_done(self, record: GenerationRecord) -> None:
        if record.nash_conv is not None:
            self._lines.point(nash_conv=record.nash_conv, episodes=record.episodes)

    def run_finished(self, summary: RunSummary) -> None:
        self.counters = dict(summary.counters)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", required=True, choices=TASKS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0)
    args = parser.parse_args(argv)
    task = TASKS[args.task]
    text = to_yaml(scenario(task, args.seed, share=args.share))
    with (
        place(task, args.seed, text, share=args.share) as folder,
        expert(task, args.seed, folder, share=args.share) as found,
    ):
        lines = Lines(PACKAGES)
        lines.figures(found)
        if task.cloned:
            lines.figures({**cloned(task, args.seed), "seconds": lines.seconds})
            return
        curve = Curve(lines, exact=task.score == "exploitability" and not task.at_end)
        result = trained(text, folder, curve)
        seconds = lines.seconds
        lines.figures({"seconds": max(seconds, run_seconds(folder)), **curve.counters})
        if task.at_end:
            lines.figures(exploitability(task, folder))
        elif task.score == "exploitability":
            lines.figures({"score": result.nash_conv[-1] / 2, "best": min(result.nash_conv) / 2})
        else:
            lines.figures({**evaluated(task, folder), **on_the_way(task, folder, share=args.share)})
        lines.figures({"evaluation seconds": lines.seconds - seconds})


def expert(task: LearningTask, seed: int, folder: Path, *, share: float) -> AbstractContextManager[dict[str, float]]:
    """`recorded`, of a task that has an expert; of others, nothing."""
    return recorded(task, seed, folder.parent, share=share) if task.expert else nullcontext({})


@contextmanager
def place(task: LearningTask, seed: int, text: str, *, share: float = 1.0, root: Path = KEPT) -> Iterator[Path]:
    """Where a run is kept until it is over: of a task with `barriers`, under `root`, where it is found again if it was stopped, unless its
    scenario (`text`) was another."""
    if task.barriers is None or share < 1:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / "run"
        return
    kept = root / f"{task.name}-{seed}"
    told = kept / "scenario.yaml"
    if kept.exists() and (not told.is_file() or told.read_text(encoding="utf-8") != text):
        shutil.rmtree(kept)
    kept.mkdir(parents=True, exist_ok=True)
    told.write_text(text, encoding="utf-8")
    yield kept / "run"
    shutil.rmtree(kept)


def trained(text: str, folder: Path, observer: Observer) -> Result:
    """Trains, or goes on. Raises SystemExit where it was stopped before its end: what it has then is no result."""
    if (folder / FILE).is_file():
        result = resume(folder, observer=observer, report=False)
    else:
        result = run(in_full(text), run_dir=folder, observer=observer, report=False)
    if not result.summary.complete:
        raise SystemExit(
            f"{folder}: {result.stopped_by}, before its end. The same command goes on with it, where it is kept."
        )
    return result


def run_seconds(folder: Path) -> float:
    """Of the whole run, over all of its processes."""
    with Reader(folder) as reader:
        last = reader.last_generation()
    return 0.0 if last is None else last.seconds


def evaluated(task: LearningTask, folder: Path) -> dict[str, float]:
    """Mean return of the newest policy of a run, alone in its environment, and half its 95% interval over the episodes."""
    (match,) = evaluate_run(folder, episodes=task.episodes, policies=["@newest"]).matches
    figures = {"score": float(match.mean[0]), "half width": float(match.half_width[0])}
    return {**figures, "evaluation episodes": float(match.episodes)}


def exploitability(task: LearningTask, folder: Path) -> dict[str, float]:
    """Of the newest policy of a run, in every seat, on the tree of its game: half of what the best responses gain."""
    env = Environment(**{**task.keys["env"], "num_envs": 1, "tree": "on", "options": {}}).make()
    assert isinstance(env, TreeVectorEnv)
    with RunEvaluator(folder) as run:
        newest = list(run.stored.records)[-1]
        exact = ExactEvaluator(env.tree, (newest.population,) * env.spec.num_players)
        exact.add(newest, run.policy(newest))
    found = exact.exploitability(MetaSolution((np.ones(1),) * env.spec.num_players, 0.0))
    if found is None:
        raise RunError(f"{task.name}: its policies have no table in mode {newest.mode}, and no exact exploitability.")
    return {"score": found.nash_conv / 2}


def on_the_way(task: LearningTask, folder: Path, *, share: float = 1.0) -> dict[str, float]:
    """What versions scored beside training, of the points that the task names."""
    found: dict[int, float] = {}
    with Reader(folder) as reader:
        for name, counter in reader.metric_names():
            if task.points and counter == "versions" and name.endswith("/return"):
                scores = reader.metrics(name, counter)
                found = dict(zip(scores.step.tolist(), scores.value.tolist(), strict=True))
    first = min(found, default=0)
    versions = {point: first * point // task.points[0] for point in task.points}
    return {point_of(int(point * share)): found[version] for point, version in versions.items() if version in found}


if __name__ == "__main__":
    main()
