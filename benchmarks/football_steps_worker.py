"""Steps per second of one football scenario through Ludus, and of the package's own environment, in the same matches, on one core.

    python -m benchmarks.football_steps_worker 5_vs_5 --steps 1000 [--options '{"sides": "both"}'] --seed 0

Both play the same matches: the same luck of the engine, and the random legal actions that Ludus's masks allow, drawn off the clock. Ludus's
steps have observations (`features`), masks, the central state, rewards and statistics; the package's are its raw observations, which cost
it least. Blocks of steps take turns; resets are on the clock. Times are of the processor.

Figures: `ludus` and `bare`, steps per second; `memory MB` that the process has grown by in the second half.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.lines import Lines
from ludus.contrib.football.match import MatchSeed
from ludus.core.seeding import keys
from ludus.core.types import Timestep
from ludus.envs.publisher_kernels import episode_seed
from ludus.envs.registry import make_env
from ludus.testing.ledger import Actor

BLOCK = 50


def resident() -> float:
    """Megabytes that this process has in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def package(name: str, left: int, right: int) -> Any:
    """The package's own environment."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gfootball.env  # type: ignore[import-untyped]

        return gfootball.env.create_environment(
            env_name=name,
            representation="raw",
            number_of_left_players_agent_controls=left,
            number_of_right_players_agent_controls=right,
        )


class Bare:
    """The package's environment in the matches that environment 0 of a vector of Ludus's plays under `seed`."""

    def __init__(self, made: Any, seed: np.uint64) -> None:
        self._made, self._seed, self._episode = made, seed, 0
        self._config = made.unwrapped._config

    def reset(self) -> None:
        seed = int(episode_seed(self._seed, np.uint64(self._episode)) & np.uint64(0x7FFFFFFF))
        luck = MatchSeed.of(seed, random_sides=False)
        self._episode += 1
        self._config["game_engine_random_seed"] = luck.seed
        self._config["reverse_team_processing"] = luck.reverse
        self._config["episode_number"] = 1 - luck.kick_off
        self._made.reset()

    def step(self, actions: list[int]) -> bool:
        """Whether the match is over; then the next begins."""
        over = bool(self._made.step(actions)[2])
        if over:
            self.reset()
        return over


def timed(play: Callable[[list[Any]], list[bool]], actions: list[Any]) -> tuple[float, list[bool]]:
    """Seconds, and what `play` says."""
    begun = time.process_time()
    said = play(actions)
    return time.process_time() - begun, said


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    env = make_env(f"football/{args.name}", num_envs=1, **args.options)
    counts = [sum(agent.name.startswith(side) for agent in env.spec.agents) for side in ("left", "right")]
    seeds = keys(args.seed, "football", count=1)
    actor = Actor(env.spec, seeds)
    bare = Bare(package(args.name, *counts), seeds[0])
    timestep: list[Timestep] = [env.reset(seeds)]
    bare.reset()
    lines = Lines(("gfootball", "ludus", "numpy"))
    spent, grown, blocks = [0.0, 0.0], 0.0, args.steps // BLOCK
    for block in range(blocks):
        chosen: list[list[int]] = []
        overs: list[bool] = []
        for _ in range(BLOCK):
            actions = actor.actions(timestep[0])
            chosen.append([int(a) for own in actions for a in own])
            begun = time.process_time()
            timestep[0] = env.step(actions)
            spent[0] += time.process_time() - begun
            overs.append(len(timestep[0].finished.environment) > 0)
        seconds, said = timed(lambda several: [bare.step(one) for one in several], chosen)
        spent[1] += seconds
        if said != overs:
            raise RuntimeError(f"the matches are not the same in block {block}")
        if block == blocks // 2:
            grown = resident()
    steps = blocks * BLOCK
    lines.figures({"ludus": steps / spent[0], "bare": steps / spent[1], "memory MB": resident() - grown})


if __name__ == "__main__":
    main()
