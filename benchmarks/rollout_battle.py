"""MAgent2's battle through Ludus beside the bare environment: agents' decisions per second, at random and with policies.

Everybody plays the same battle from the same seeds with the same random actions, stepped in turn in one process and on one core, and
every agent's observation, reward and end are fetched in every step. Three bare loops are measured, and "relative" is against the fastest
of each order:

parallel     PettingZoo's loop over `parallel_env`, a dictionary entry per agent: what most people write
grid world   group by group through `magent2.GridWorld`, with its arrays as they come: the fastest way that MAgent2 documents
engine       only the calls into the C library, with addresses of arrays that are made once: nobody's interface, but a lower limit

`worker` is a rollout worker with a 64 × 64 network for either player, whose learner's trajectories are written, without the time inside
of `Policy.act`; its battles are others, since its actions are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from statistics import median
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from benchmarks.rollout_setups import Clock, Player
from ludus.contrib.envs.magent2 import EngineBuffer, engine
from ludus.core.seeding import keys
from ludus.envs.publisher_kernels import episode_seed
from ludus.envs.registry import make_env

ENVS, STEPS, ACTIONS, AGENTS = 4, 100, 21, 162
WARM = 3  # orders that compile and grow the buffers
SEEDS = keys(0, "battle", count=ENVS)


class Loop(Protocol):
    """What is measured."""

    def play(self, steps: int) -> int:
        """So many steps of all environments with random actions, the battles going on from the last call. Returns the decisions."""
        ...


class Vector:
    """Ludus's vector."""

    def __init__(self) -> None:
        self._env = make_env("magent2/battle_v4", num_envs=ENVS)
        self._timestep = self._env.reset(SEEDS)
        self._rng = np.random.default_rng(0)

    def play(self, steps: int) -> int:
        decisions = 0
        for _ in range(steps):
            counts = [len(due.slot) for due in self._timestep.due]
            self._timestep = self._env.step(tuple(_draw(self._rng, n) for n in counts))
            decisions += sum(counts)
        return decisions


class GridWorlds:
    """The engine alone, through `magent2.GridWorld`."""

    def __init__(self) -> None:
        self._envs = _parallel_envs()
        self._episode = [0] * ENVS
        self._frames = [0] * ENVS
        self._counts = np.zeros((len(self._envs[0].handles), ENVS), np.int64)
        self._rng = np.random.default_rng(0)
        for e in range(ENVS):
            self._begin(e)

    def _begin(self, e: int) -> None:
        env = self._envs[e]
        env.seed(_seed(e, self._episode[e]))
        env.env.reset()
        env.generate_map()
        self._frames[e] = 0
        for g, handle in enumerate(env.handles):
            self._counts[g, e] = env.env.get_num(handle)
            self._observe(env, handle)

    def play(self, steps: int) -> int:
        decisions = 0
        for _ in range(steps):
            decisions += int(self._counts.sum())
            actions = [np.split(_draw(self._rng, int(n.sum())), np.cumsum(n)[:-1]) for n in self._counts]
            for e, env in enumerate(self._envs):
                self._step(e, env, [of[e] for of in actions])
        return decisions

    def _step(self, e: int, env: Any, actions: list[Any]) -> None:
        done = self._act(env, actions)
        self._frames[e] += 1
        for g, handle in enumerate(env.handles):
            self._observe(env, handle)
            self._counts[g, e] = self._outcome(env, handle, int(self._counts[g, e]))
        env.env.clear_dead()
        if done or self._frames[e] >= env.max_cycles:
            self._episode[e] += 1
            self._begin(e)

    def _act(self, env: Any, actions: list[Any]) -> bool:
        for handle, chosen in zip(env.handles, actions, strict=True):
            env.env.set_action(handle, chosen)
        return bool(env.env.step())

    def _observe(self, env: Any, handle: Any) -> None:
        env.env.get_observation(handle)

    def _outcome(self, env: Any, handle: Any, count: int) -> int:
        """Fetch rewards and ends of `count` agents; how many live."""
        env.env.get_reward(handle)
        return int(np.count_nonzero(env.env.get_alive(handle)))


class Engines(GridWorlds):
    """The C library alone."""

    def __init__(self) -> None:
        self._lib = engine()
        self._views = EngineBuffer(AGENTS * 13 * 13 * 5, np.float32)
        self._features = EngineBuffer(AGENTS * 34, np.float32)
        self._targets = EngineBuffer(2, np.uintp)
        self._targets.array[:] = self._views.address, self._features.address
        self._rewards, self._alive, self._done = (
            EngineBuffer(AGENTS, kind) for kind in (np.float32, np.bool_, np.int32)
        )
        super().__init__()

    def _act(self, env: Any, actions: list[Any]) -> bool:
        for handle, chosen in zip(env.handles, actions, strict=True):
            self._lib.env_set_action(env.env.game.value, handle.value, chosen.ctypes.data)
        self._lib.env_step(env.env.game.value, self._done.address)
        return bool(self._done.array[0])

    def _observe(self, env: Any, handle: Any) -> None:
        self._lib.env_get_observation(env.env.game.value, handle.value, self._targets.address)

    def _outcome(self, env: Any, handle: Any, count: int) -> int:
        self._lib.env_get_reward(env.env.game.value, handle.value, self._rewards.address)
        self._lib.env_get_info(env.env.game.value, handle.value, b"alive", self._alive.address)
        return int(np.count_nonzero(self._alive.array[:count]))


class Parallel:
    """PettingZoo's loop."""

    def __init__(self) -> None:
        self._envs = _parallel_envs()
        self._episode = [0] * ENVS
        self._rng = np.random.default_rng(0)
        for e in range(ENVS):
            self._begin(e)

    def _begin(self, e: int) -> None:
        self._envs[e].reset(seed=_seed(e, self._episode[e]))

    def play(self, steps: int) -> int:
        decisions = 0
        for _ in range(steps):
            for e, env in enumerate(self._envs):
                agents = env.agents
                decisions += len(agents)
                env.step(dict(zip(agents, _draw(self._rng, len(agents)).tolist(), strict=True)))
                if not env.agents:
                    self._episode[e] += 1
                    self._begin(e)
        return decisions


class Worker:
    """A rollout worker that goes on with its battles, order by order."""

    def __init__(self) -> None:
        self._policy = Clock()
        self._policy.around_named("ludus.policies.actor_critic_policy:ActorCriticPolicy", "act")
        env = make_env("magent2/battle_v4", num_envs=ENVS)
        self._player = Player(env, decisions=STEPS * ENVS * AGENTS // 2)

    def rate(self) -> float:
        """Decisions of both players per second of one order, without the policies' time."""
        self._policy.clear()
        begun = perf_counter()
        decisions = self._player.play().counters["decisions"]
        return decisions / (perf_counter() - begun - self._policy.seconds)

    def close(self) -> None:
        self._player.worker.close()


def _parallel_envs() -> list[Any]:
    from magent2.environments import battle_v4

    return [battle_v4.parallel_env() for _ in range(ENVS)]


def _seed(e: int, episode: int) -> int:
    """As Ludus seeds an episode."""
    return int(episode_seed(SEEDS[e], np.uint64(episode)) & np.uint64(0x7FFFFFFF))


def _draw(rng: np.random.Generator, n: int) -> Any:
    return rng.integers(ACTIONS, size=n, dtype=np.int32)


def figures(orders: int) -> dict[str, float]:
    """Decisions per second, medians over the orders, in which all loops take turns. "relative" and "worker relative": to the fastest bare
    loop of the same order."""
    bare: dict[str, Loop] = {"parallel": Parallel(), "grid world": GridWorlds(), "engine": Engines()}
    loops: dict[str, Loop] = {"ludus": Vector(), **bare}
    worker = Worker()
    rates: dict[str, list[float]] = {name: [] for name in (*loops, "worker")}
    for number in range(-WARM, orders):
        found, played = {"worker": worker.rate()}, {}
        for name, loop in loops.items():
            begun = perf_counter()
            played[name] = loop.play(STEPS)
            found[name] = played[name] / (perf_counter() - begun)
        if not played["ludus"] == played["grid world"] == played["engine"]:
            raise AssertionError(f"the battles are not the same: {played}")
        if number >= 0:
            for name, rate in found.items():
                rates[name].append(rate)
    worker.close()
    fastest = [max(order) for order in zip(*(rates[name] for name in bare), strict=True)]
    return {
        "relative": _relative(rates["ludus"], fastest),
        "worker relative": _relative(rates["worker"], fastest),
        **{f"relative to {name}": _relative(rates["ludus"], rates[name]) for name in bare},
        **{f"{name}, decisions per second": median(of) for name, of in rates.items()},
    }


def _relative(ours: Iterable[float], theirs: Iterable[float]) -> float:
    return median(a / b for a, b in zip(ours, theirs, strict=True))


def main() -> int:
    import torch

    from benchmarks.lines import Lines

    torch.set_num_threads(1)
    Lines(("ludus", "magent2", "numpy", "torch")).figures(figures(9))
    return 0


if __name__ == "__main__":
    sys.exit(main())
