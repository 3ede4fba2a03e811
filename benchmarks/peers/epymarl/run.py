"""EPyMARL, trained with its own settings on a team of MPE2 or of level-based foraging, and its mean return over 100 episodes.

python -m benchmarks.peers.epymarl.run --algorithm qmix --env mpe2/simple_spread_v3 --steps 1000000

Its main loop, runners, replay, controllers, learners and mixers, with default.yaml, envs/gymma.yaml and the algorithm's file. Ours are the
environments (`environments.py`) and, in its favour, the processes that are none: its parallel runner's environments are stepped one after
the other, which on one core costs less than pipes. It tests every `--every` steps and, here, once more at the end; the clock stands still
then. As in its own tests, values are played greedily, and policies by chance.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
import yaml

from benchmarks.lines import Lines
from benchmarks.peers.epymarl.environments import Team

SOURCE = Path(sys.prefix) / "epymarl" / "src"
EPISODES = 100
_FRESH = 1_000_000  # added to the seed of the last test's environments


def settings(algorithm: str, env: str, *, steps: int, every: int, seed: int) -> dict[str, Any]:
    """What its main.py reads, and what a user says on its command line."""
    found: dict[str, Any] = {}
    for name in ("default", "envs/gymma", f"algs/{algorithm}"):
        found |= yaml.safe_load((SOURCE / "config" / f"{name}.yaml").read_text(encoding="utf-8"))
    asked = {"env": "team", "env_args": {"id": env, "seed": seed}, "seed": seed, "t_max": steps, "use_cuda": False}
    tests = {"test_nepisode": EPISODES, "test_interval": every, "log_interval": every}
    return {**found, **asked, **tests, "device": "cpu", "unique_token": algorithm}


class Logged:
    """Its logger's place: prints what tests came to."""

    def __init__(self, lines: Lines) -> None:
        self.console_logger = logging.getLogger("epymarl")
        self.last: dict[str, float] = {}
        self._lines = lines

    def log_stat(self, key: str, value: Any, t: int) -> None:
        self.last[key] = float(value)
        if key == "test_return_mean":
            self._lines.point(steps=t, score=float(value))

    def print_recent_stats(self) -> None:
        """Nothing more."""


class Here:
    """Both ends of its parallel runner's pipe to an environment, which is stepped at once."""

    def __init__(self) -> None:
        self.env: Any = None
        self._answers: list[Any] = []

    def send(self, message: tuple[str, Any]) -> None:
        command, data = message
        if command == "step":
            _, reward, terminated, truncated, info = self.env.step(data)
            self._answers.append(
                {**self._seen(), "reward": reward, "terminated": terminated or truncated, "info": info}
            )
        elif command == "reset":
            self.env.reset()
            self._answers.append(self._seen())
        elif command in ("get_env_info", "get_stats"):
            self._answers.append(getattr(self.env, command)())

    def recv(self) -> Any:
        return self._answers.pop(0)

    def _seen(self) -> dict[str, Any]:
        env = self.env
        return {"state": env.get_state(), "avail_actions": env.get_avail_actions(), "obs": env.get_obs()}


class NoProcess:
    """Its process's place: makes the environment."""

    def __init__(self, target: Any, args: tuple[Here, Any]) -> None:
        here, made = args
        here.env = made.x()
        self.daemon = True

    def start(self) -> None:
        """Nothing runs beside."""


def load() -> ModuleType:
    """Its `run`, which finds our environments where it looks for its own."""
    sys.path.insert(0, str(SOURCE))
    envs: Any = ModuleType("envs")
    envs.REGISTRY = {"team": Team}
    envs.register_smac = envs.register_smacv2 = None
    sys.modules["envs"] = envs
    import run
    import runners.parallel_runner as parallel

    def pipe() -> tuple[Here, Here]:
        here = Here()
        return here, here

    parallel.Pipe, parallel.Process = pipe, NoProcess
    return run


def with_last_test(runner: type[Any], lines: Lines, *, seed: int) -> type[Any]:
    """A runner that tests beside the clock, and once more when its main loop is over, in environments begun anew."""

    class Runner(runner):  # type: ignore[misc]
        def run(self, test_mode: bool = False) -> Any:
            with lines.aside() if test_mode else nullcontext():
                return super().run(test_mode)

        def close_env(self) -> None:
            envs = [pipe.env for pipe in self.parent_conns] if hasattr(self, "parent_conns") else [self.env]
            for k, env in enumerate(envs):
                env.seed(seed + _FRESH + k)
            self.test_returns.clear()
            for _ in range(EPISODES // self.batch_size):
                self.run(test_mode=True)
            super().close_env()

    return Runner


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", required=True, help="a file of its config/algs: qmix, vdn, iql, mappo, coma …")
    parser.add_argument("--env", required=True, help="mpe2/ID or lbf/ID")
    parser.add_argument("--steps", type=int, required=True, help="of the environment")
    parser.add_argument("--every", type=int, default=250_000, help="steps between two tests")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "Using a non-tuple sequence", UserWarning)
    np.random.seed(args.seed)  # noqa: NPY002 (it draws from the global generators)
    torch.manual_seed(args.seed)
    epymarl = load()
    config = settings(args.algorithm, args.env, steps=args.steps, every=args.every, seed=args.seed)
    registry = epymarl.r_REGISTRY
    lines = Lines(("torch", "gymnasium", "mpe2", "lbforaging", "numpy"))
    registry[config["runner"]] = with_last_test(registry[config["runner"]], lines, seed=args.seed)
    logged = Logged(lines)
    epymarl.run_sequential(SimpleNamespace(**config), logged)
    lines.figures({"seconds": lines.seconds, "env_steps": args.steps, "score": logged.last["test_return_mean"]})
    half = 1.96 * logged.last["test_return_std"] / EPISODES**0.5
    lines.figures({"half width": half, "evaluation episodes": EPISODES})


if __name__ == "__main__":
    main()
