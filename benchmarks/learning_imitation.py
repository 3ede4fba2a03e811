"""Imitation in `benchmarks.learning`: an expert is trained, its decisions are recorded, and policies learn from some episodes of them.

The expert is that of a preset, trained as the preset says. `ludus record` writes its episodes, played greedily; GAIL and AIRL train as
their task's scenario says, in the expert's environment, whose rewards they do not see; behaviour cloning is `ludus clone` of the same
network.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.learning_task import EXPERT_FILE, LearningTask
from ludus.apps.episodes.trajectory_export import record_run_trajectories
from ludus.contrib.algorithms.bc.clone import Cloning, clone
from ludus.evaluation.evaluate import evaluate_run
from ludus.policies.file import save_policy
from ludus.replay.parquet import read_trajectories
from ludus.runs.runner import run
from ludus.runs.scenario_files import load_scenario

_SEED = 1000  # of experts: not those of who imitates them
_FEW = 10  # episodes, with fewer than which none is held out


@contextlib.contextmanager
def recorded(task: LearningTask, seed: int, folder: Path, *, share: float = 1.0) -> Iterator[dict[str, float]]:
    """While this is open, the working directory is `folder`, and has the task's file. What the expert scores."""
    before = Path.cwd()
    expert = folder / "expert"
    shorter = [] if share == 1.0 else [f"response.decisions={int(share * task.budget)}"]
    run(load_scenario(task.expert, [f"seed={_SEED + seed}", *shorter]), run_dir=expert, report=False)
    record_run_trajectories(
        expert, folder / EXPERT_FILE, policies=["@newest"], episodes=task.demonstrations, seed=_SEED + seed
    )
    (match,) = evaluate_run(expert, episodes=task.episodes, policies=["@newest"]).matches
    os.chdir(folder)
    try:
        yield {"expert score": float(match.mean[0])}
    finally:
        os.chdir(before)


def cloned(task: LearningTask, seed: int) -> dict[str, float]:
    """What the clone scores, in the expert's environment."""
    scenario = load_scenario(task.expert, [f"seed={seed}"])
    few = {"held_out": 0.0} if task.demonstrations < _FEW else {}
    env = scenario.env.make(num_envs=1)
    try:
        made = clone(
            read_trajectories(Path(EXPERT_FILE)),
            env.spec,
            scenario.algorithm.policy,
            Cloning(epochs=1000, patience=20, **few),
            seed=seed,
        )
    finally:
        env.close()
    save_policy(Path("cloned.safetensors"), made.spec, made.weights)
    (match,) = evaluate_run(Path("expert"), episodes=task.episodes, policies=["cloned.safetensors"]).matches
    figures = {"score": float(match.mean[0]), "half width": float(match.half_width[0])}
    return {**figures, "evaluation episodes": float(match.episodes)}
