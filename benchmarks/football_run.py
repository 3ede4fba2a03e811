"""The worker of `benchmarks.football`: one cell, one seed. It goes on with what an earlier process left.

python -m benchmarks.football_run --cell empty-goal --seed 0
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.football_cells import CELLS, CURVE, EPISODES, KEPT, points, read_curve, scenario, slope
from benchmarks.learning_run import run_seconds, trained
from benchmarks.lines import Lines
from benchmarks.results import same_scenario
from ludus.evaluation.evaluate import FRESH, RunEvaluator
from ludus.storage.base import NullObserver

PACKAGES = ("ludus", "numpy", "torch", "gfootball")
_QUICK = ("response.decisions=6400", "evaluation.episodes=8", "algorithm.batch=1600", "env.num_envs=8")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", required=True, choices=CELLS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    text = scenario(args.cell, args.seed, changes=_QUICK if args.quick else ())
    with place(f"{args.cell}-{args.seed}", text, keep=not args.quick) as folder:
        lines = Lines(PACKAGES)
        trained(text, folder, NullObserver())
        seconds = max(lines.seconds, run_seconds(folder))
        curve = read_curve(folder / CURVE)
        for steps, scored in points(curve).tolist():
            lines.point(steps=steps, scored=scored)
        figures = {"seconds": seconds, "env steps": float(curve[-1, 0]), "episodes": float(curve[:, 1].sum())}
        rises = slope(curve)
        lines.figures(figures | ({} if np.isnan(rises) else {"slope": rises}))
        lines.figures(evaluated(folder, 20 if args.quick else EPISODES))


@contextmanager
def place(name: str, text: str, *, keep: bool, root: Path = KEPT) -> Iterator[Path]:
    """Where a run is kept until its result is told, so that it goes on if it was stopped, unless its scenario (`text`) was another."""
    if not keep:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / "run"
        return
    kept, told = root / name, root / name / "scenario.yaml"
    if kept.exists() and not (told.is_file() and same_scenario(told.read_text(encoding="utf-8"), text)):
        shutil.rmtree(kept)
    kept.mkdir(parents=True, exist_ok=True)
    told.write_text(text, encoding="utf-8")
    yield kept / "run"


def evaluated(folder: Path, episodes: int) -> dict[str, float]:
    """The share of new episodes in which a run's newest policy scores, and half its 95% interval."""
    with RunEvaluator(folder) as played:
        (profile,) = played.named.profiles(["@newest"])
        returns = played.player.returns(played.named.mixture(profile), episodes, block=FRESH)[:, 0]
    scored = float((returns > 0).mean())  # goals alone are paid for in what is played after training
    half = 1.96 * float(np.sqrt(scored * (1 - scored) / episodes))
    return {"scored": scored, "half width": half, "evaluation episodes": float(episodes)}


if __name__ == "__main__":
    main()
