"""What a decision costs in PettingZoo's and similar environments through Ludus, and in a plain loop as their documentation writes it.

    python -m benchmarks.zoo

Random legal actions, drawn off the clock; process time of one thread, both in turns in one process, the least of several repetitions.
The plain loops read what an agent is shown (`last`, or a step's mappings), step, and reset.
"""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np

from ludus.core.seeding import keys
from ludus.envs.registry import make_env
from ludus.testing.ledger import Actor

ENVS = 8
DECISIONS = 2000
REPETITIONS = 5
Play = Callable[[int], float]  # decisions -> microseconds per decision


def ours(id: str, **options: Any) -> Play:
    """Through Ludus, `ENVS` environments."""
    env = make_env(id, num_envs=ENVS, **options)
    seeds = keys(0, "zoo", count=ENVS)
    actor = Actor(env.spec, seeds)
    timestep = [env.reset(seeds)]

    def play(decisions: int) -> float:
        spent, made = 0.0, 0
        while made < decisions:
            actions = actor.actions(timestep[0])
            made += sum(map(len, actions))
            start = time.process_time()
            timestep[0] = env.step(actions)
            spent += time.process_time() - start
        return spent / made * 1e6

    return play


def turns(make: Callable[[], Any]) -> Play:
    """A plain loop over an AEC environment."""
    envs, rng = _several(make), np.random.default_rng(0)

    def play(decisions: int) -> float:
        spent, made = 0.0, 0
        while made < decisions:
            env = next(envs)
            start = time.process_time()
            if not env.agents:
                env.reset(seed=made)
            seen, _, terminated, truncated, info = env.last()
            spent += time.process_time() - start
            mask = seen.get("action_mask") if isinstance(seen, dict) else info.get("action_mask")
            if terminated or truncated:
                action = None
            elif mask is None:
                action = env.action_space(env.agent_selection).sample()
            else:
                action = int(rng.choice(np.flatnonzero(mask)))
            start = time.process_time()
            env.step(action)
            spent += time.process_time() - start
            made += action is not None
        return spent / made * 1e6

    return play


def together(make: Callable[[], Any]) -> Play:
    """A plain loop over a parallel environment."""
    envs = _several(make)

    def play(decisions: int) -> float:
        spent, made = 0.0, 0
        while made < decisions:
            env = next(envs)
            actions = {agent: env.action_space(agent).sample() for agent in env.agents}
            made += len(actions)
            start = time.process_time()
            env.step(actions)
            if not env.agents:
                env.reset(seed=made)
            spent += time.process_time() - start
        return spent / made * 1e6

    return play


def tuples(make: Callable[[], Any]) -> Play:
    """A plain loop over an environment with tuples of spaces."""
    envs = _several(make)

    def play(decisions: int) -> float:
        spent, made = 0.0, 0
        while made < decisions:
            env = next(envs)
            actions = env.action_space.sample()
            made += len(actions)
            start = time.process_time()
            _, _, terminated, truncated, _ = env.step(actions)
            if terminated or truncated:
                env.reset(seed=made)
            spent += time.process_time() - start
        return spent / made * 1e6

    return play


def cases() -> list[tuple[str, Play]]:
    """(id, its plain loop)"""
    import gymnasium
    import lbforaging  # noqa: F401  registers its environments
    import rware  # noqa: F401  registers its environments
    from pettingzoo import make

    def registered(id: str) -> Callable[[], Any]:
        return lambda: gymnasium.make(id, disable_env_checker=True).unwrapped

    out = []
    for game in ("classic/connect_four-v3", "classic/tictactoe-v3", "classic/leduc_holdem-v4", "classic/chess-v6"):
        out.append((_named(game), turns(lambda game=game: make("aec", game))))  # type: ignore[misc]
    for game in ("sisl/multiwalker-v9", "butterfly/knights_archers_zombies-v11"):
        out.append((_named(game), together(lambda game=game: make("parallel", game))))  # type: ignore[misc]
    for name in ("simple_spread_v3", "simple_tag_v3", "simple_speaker_listener_v4"):
        module = importlib.import_module(f"mpe2.{name}")
        out.append((f"mpe2/{name}", together(module.parallel_env)))
    for id in ("Foraging-8x8-2p-3f-v3", "rware-tiny-2ag-v2"):
        out.append((f"{'rware' if id.startswith('rware') else 'lbf'}/{id}", tuples(registered(id))))
    return out


def _several(make: Callable[[], Any]) -> Iterator[Any]:
    """As many environments as the vector has, in turn, each with an episode of its own."""
    envs = [make() for _ in range(ENVS)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    return cycle(envs)


def _named(game: str) -> str:
    return "pettingzoo/" + game.rpartition("/")[2].replace("-v", "_v")


def main() -> None:
    """Print a table."""
    warnings.simplefilter("ignore")
    print(f"{'id':42}{'plain µs':>10}{'Ludus µs':>10}{'decisions/s':>13}")
    for id, plain in cases():
        through = ours(id)
        best = [float("inf"), float("inf")]
        for _ in range(REPETITIONS):
            best = [min(old, play(DECISIONS)) for old, play in zip(best, (plain, through), strict=True)]
        print(f"{id:42}{best[0]:>10.1f}{best[1]:>10.1f}{1e6 / best[1]:>13,.0f}", flush=True)


if __name__ == "__main__":
    main()
