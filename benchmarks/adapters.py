"""What the adapters of native vectors and of Gymnasium's single environments cost above the bare calls.

    python -m benchmarks.adapters

Both play the same random actions in the same process with one thread; times are process times per step of the vector in microseconds, the
least of several repetitions. The last lines are bars: what a step costs through Ludus, as a multiple of the bare one, both taken in turn.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from ludus.core.seeding import keys
from ludus.envs.publisher_kernels import episode_seed
from ludus.envs.registry import make_env

Step = Callable[[], None]


def least(step: Step, calls: int, *, repetitions: int = 7) -> float:
    """Microseconds per call."""
    step()
    best = float("inf")
    for _ in range(repetitions):
        start = time.process_time()
        for _ in range(calls):
            step()
        best = min(best, time.process_time() - start)
    return best / calls * 1e6


def ours(id: str, num_envs: int, **options: Any) -> tuple[Step, list[Any]]:
    """A step of the adapter, and the action batches that it repeats."""
    env = make_env(id, num_envs=num_envs, **options)
    last = [env.reset(keys(0, "adapters", count=num_envs))]
    space = env.spec.agents[0].action
    space.seed(0)
    batches = [np.stack([space.sample() for _ in range(num_envs)]) for _ in range(16)]
    count = [0]

    def step() -> None:
        count[0] += 1
        last[0] = env.step((batches[count[0] % 16][: len(last[0].due[0].slot)],))

    return step, batches


def our_team(id: str, num_envs: int, action: int | None, **options: Any) -> tuple[Step, list[Any]]:
    """A step of one team, and the action batches that it repeats: random ones, or always the same."""
    env = make_env(id, num_envs=num_envs, **options)
    last = [env.reset(keys(0, "adapters", count=num_envs))]
    space, rows = env.spec.agents[0].action, num_envs * len(env.spec.agents)
    space.seed(0)
    batches = [np.array([space.sample() if action is None else action for _ in range(rows)]) for _ in range(16)]
    count = [0]

    def step() -> None:
        count[0] += 1
        last[0] = env.step((batches[count[0] % 16][last[0].due[0].slot],))

    return step, batches


def bare(vector: Any, batches: list[Any]) -> Step:
    """A step of the vector itself."""
    vector.reset()
    count = [0]

    def step() -> None:
        count[0] += 1
        vector.step(batches[count[0] % 16])

    return step


def singles(id: str, num_envs: int, batches: list[Any]) -> Step:
    """A loop over single environments, with resets, as anybody would write it."""
    envs = [gymnasium.make(id, disable_env_checker=True) for _ in range(num_envs)]
    count = [0]
    for k, env in enumerate(envs):
        env.reset(seed=k)

    def step() -> None:
        count[0] += 1
        for env, action in zip(envs, batches[count[0] % 16].tolist(), strict=True):
            _, _, terminated, truncated, _ = env.step(np.asarray(action) if isinstance(action, list) else action)
            if terminated or truncated:
                env.reset(seed=count[0])

    return step


def our_board(id: str, num_envs: int, **options: Any) -> Step:
    """A step of a game of several players in which everybody makes the first legal move."""
    env = make_env(id, num_envs=num_envs, **options)
    last = [env.reset(keys(0, "adapters", count=num_envs))]

    def step() -> None:
        last[0] = env.step(tuple(due.mask.argmax(axis=1) for due in last[0].due))  # type: ignore[union-attr]

    return step


def bare_board(pool: Any) -> Step:
    """The same with EnvPool itself. The order of its rows is left as it is: the pool has one thread."""
    info = [pool.reset()[1]]

    def step() -> None:
        info[0] = pool.step(info[0]["legal_action_mask"].argmax(axis=1))[-1]

    return step


def our_teams(id: str, num_envs: int, **options: Any) -> tuple[Step, list[list[Any]]]:
    """A step of several agents that all act at once, and each player's action batches [E × its agents, …]."""
    env = make_env(id, num_envs=num_envs, **options)
    last = [env.reset(keys(0, "adapters", count=num_envs))]
    batches = []
    for p in range(env.spec.num_players):
        agents = env.spec.agents_of(p)
        space = agents[0].action
        space.seed(p)
        batches.append([np.stack([space.sample() for _ in range(num_envs * len(agents))]) for _ in range(16)])
    count = [0]

    def step() -> None:
        count[0] += 1
        k = count[0] % 16
        last[0] = env.step(
            tuple(own[k][: len(due.slot)] for own, due in zip(batches, last[0].due, strict=True))  # type: ignore[arg-type]
        )

    return step, batches


def first_seeds(num_envs: int) -> list[int]:
    """Those of the first episodes of our vectors: what moves a body costs more or less, as it lies or runs."""
    return [int(episode_seed(key, np.uint64(0))) & 0x7FFFFFFF for key in keys(0, "adapters", count=num_envs)]


def bare_tasks(domain: str, task: str, num_envs: int, batches: list[Any]) -> Step:
    """A loop over tasks of the Control Suite, as anybody would write it; the suite itself puts observations side by side."""
    from ludus.envs.adapters.dmc import _suite

    flat = {"flat_observation": True}
    tasks = [
        _suite().load(domain, task, task_kwargs={"random": seed}, environment_kwargs=flat)
        for seed in first_seeds(num_envs)
    ]
    count = [0]
    for one in tasks:
        one.reset()

    def step() -> None:
        count[0] += 1
        for one, action in zip(tasks, batches[count[0] % 16], strict=True):
            if one.step(action).last():
                one.reset()

    return step


def bare_bodies(body: str, partition: str, num_envs: int, batches: list[list[Any]]) -> Step:
    """PettingZoo's parallel loop over the bodies of Multi-agent MuJoCo."""
    from gymnasium_robotics import mamujoco_v1

    bodies = [mamujoco_v1.parallel_env(body, partition) for _ in range(num_envs)]
    count = [0]
    for seed, one in zip(first_seeds(num_envs), bodies, strict=True):
        one.reset(seed=seed)

    def step() -> None:
        count[0] += 1
        rows = iter(batches[0][count[0] % 16])
        for one in bodies:
            one.step({agent: next(rows) for agent in one.agents})
            if not one.agents:
                one.reset(seed=count[0])

    return step


def bare_pool(pool: Any, batches: list[list[Any]]) -> Step:
    """EnvPool itself, of agents that act at once."""
    pool.reset()
    count = [0]

    def step() -> None:
        count[0] += 1
        k = count[0] % 16
        pool.step(np.stack([own[k] for own in batches], axis=1).astype(np.int32).ravel())

    return step


def in_turn(plain: Step, mine: Step, calls: int, *, repetitions: int = 9) -> tuple[float, float]:
    """Microseconds per call of each."""
    best = [float("inf")] * 2
    for _ in range(repetitions):
        for k, step in enumerate((plain, mine)):
            best[k] = min(best[k], least(step, calls, repetitions=1))
    return best[0], best[1]


def newer(pool: dict[str, Any]) -> list[str]:
    """Rows of the Control Suite, Multi-agent MuJoCo and agents that act at once; their bars."""
    import envpool

    bars = []
    rows: list[tuple[str, int, int, Step, Step]] = []
    for domain, task in (("cheetah", "run"), ("humanoid", "walk")):
        id = f"dmc/{domain}-{task}"
        step, batches = ours(id, 32)
        rows.append((id, 32, 25, bare_tasks(domain, task, 32, batches), step))
    for body, partition in (("HalfCheetah", "2x3"), ("Ant", "2x4")):
        id = f"mamujoco/{body}-{partition}"
        step, teams = our_teams(id, 32)
        rows.append((id, 32, 25, bare_bodies(body, partition, 32, teams), step))
    id = "envpool/intersection-multi-agent-v1"
    step, teams = our_teams(id, 64, threads=1)
    rows.append((id, 64, 50, bare_pool(envpool.make(id.partition("/")[2], num_envs=64, **pool), teams), step))
    for id, num_envs, calls, plain, step in rows:
        theirs, mine = in_turn(plain, step, calls)
        show(id, num_envs, theirs, mine)
        ratio = mine / theirs
        bars.append(f"bar {id} cost: {ratio:.3f} (wanted <= 1.10) {'met' if ratio <= 1.1 else 'short'}")
    return bars


def main() -> None:
    """Print a table, and the bars."""
    import envpool
    from ale_py.vector_env import AtariVectorEnv

    warnings.simplefilter("ignore")
    pool = dict(env_type="gymnasium", num_threads=1)
    cases: list[tuple[str, int, int, dict[str, Any], Callable[[list[Any]], Step]]] = [
        (
            "gymnasium/CartPole-v1",
            64,
            1000,
            {},
            lambda b: bare(gymnasium.make_vec("CartPole-v1", 64, "vector_entry_point"), b),
        ),
        (
            "envpool/CartPole-v1",
            64,
            1000,
            {"threads": 1},
            lambda b: bare(envpool.make("CartPole-v1", num_envs=64, **pool), b),
        ),
        ("envpool/Pong-v5", 8, 20, {"threads": 1}, lambda b: bare(envpool.make("Pong-v5", num_envs=8, **pool), b)),
        ("envpool/Ant-v5", 8, 100, {"threads": 1}, lambda b: bare(envpool.make("Ant-v5", num_envs=8, **pool), b)),
        ("ale/pong", 8, 20, {"threads": 1}, lambda b: bare(AtariVectorEnv("pong", 8, num_threads=1), b)),
    ]
    for name in ("CartPole-v1", "FrozenLake-v1", "Pendulum-v1", "Acrobot-v1"):
        cases.append((f"gymnasium/{name}", 8, 300, {"vector": "python"}, lambda b, name=name: singles(name, 8, b)))  # type: ignore[misc]
    print(f"{'id':34}{'of':>4}{'bare µs':>10}{'adapter µs':>12}{'above µs':>10}{'steps/s':>12}")
    for id, num_envs, calls, options, other in cases:
        step, batches = ours(id, num_envs, **options)
        plain = other(batches)
        label = id + (" (python)" if options.get("vector") else "")
        show(label, num_envs, least(plain, calls), least(step, calls))
    for name in ("ConnectFour-v1", "LeducHoldem-v1"):
        board = bare_board(envpool.make(name, num_envs=64, **pool))
        id = f"envpool/{name}"
        show(id, 64, least(board, 300), least(our_board(id, 64, threads=1), 300))
    print(*newer(pool), sep="\n")
    functional()
    print(*newer(pool), sep="\n")


def functional() -> None:
    """The rows of environments that JAX compiles; they are left out where it is not installed."""
    try:
        from benchmarks.jax_bare import bare_gymnax, bare_jaxmarl, bare_pgx
    except ImportError as error:
        print(f"functional environments are left out: {error}")
        return
    for num_envs in (64, 256):
        id = "pgx/connect_four"
        show(id, num_envs, least(bare_pgx("connect_four", num_envs), 300), least(our_board(id, num_envs), 300))
    step, batches = ours("gymnax/CartPole-v1", 256)
    show("gymnax/CartPole-v1", 256, least(bare_gymnax("CartPole-v1", 256, batches), 300), least(step, 300))
    for name, num_envs, calls, action, options in (
        ("MPE_simple_spread_v3", 64, 200, None, {}),
        ("overcooked", 64, 200, None, {"layout": "cramped_room"}),
        ("SMAX", 64, 50, 4, {"scenario": "3m"}),
        ("HeuristicEnemySMAX", 64, 10, 4, {"scenario": "3m"}),
    ):
        step, batches = our_team(f"jaxmarl/{name}", num_envs, action, teams="one", **options)
        plain = bare_jaxmarl(name, num_envs, batches, options)
        show(f"jaxmarl/{name}", num_envs, least(plain, calls), least(step, calls))


def show(label: str, num_envs: int, theirs: float, mine: float) -> None:
    """A row of the table; times in microseconds."""
    print(f"{label:34}{num_envs:>4}{theirs:>10.1f}{mine:>12.1f}{mine - theirs:>10.1f}{num_envs / mine * 1e6:>12,.0f}")


if __name__ == "__main__":
    main()
