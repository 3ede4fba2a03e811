"""What the adapters of native vectors, of compiled environments and of loops over single ones cost above the bare calls.

    python -m benchmarks.adapters [--only gymnax/CartPole-v1 …] [--quick]

Both play the same actions in the same process with one thread, in turn; times are process times per step of the vector in microseconds,
the least of several repetitions. The last lines are bars: what a step costs through Ludus, as a multiple of the bare one, at most 1.10;
rows without one say why. The results go to benchmarks/results/adapters.json, of a part of the rows or with `--quick` (a tenth of the steps)
to adapters.quick.json. Rows whose package is not installed are left out, which is said, and their bars are unjudged.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from benchmarks.contestants import Repetition
from benchmarks.harness import Bar, Medians
from benchmarks.lines import versions
from benchmarks.machine import ROOT
from benchmarks.results import result_path, write
from ludus.core.errors import ConfigError
from ludus.core.seeding import keys
from ludus.envs.publisher_kernels import episode_seed
from ludus.envs.registry import make_env

Step = Callable[[], None]
Steps = tuple[Step, Step]
"""The bare one, and ours."""

BARE, OURS = "bare microseconds", "Ludus microseconds"
CHEAP = "a bare step takes less than 10 µs an environment, about as long as Ludus checks and sorts what it answers"


@dataclass(frozen=True, slots=True)
class Case:
    """A row. package: whose version is told. calls: of one repetition. make: raises ImportError or ConfigError where something is not
    installed. no_bar: why its cost is not judged; "": it is."""

    label: str
    num_envs: int
    package: str
    calls: int
    make: Callable[[], Steps]
    no_bar: str = ""

    @property
    def bar(self) -> Bar:
        """Our step as a multiple of the bare one."""
        return Bar(f"{self.label} cost", "<= 1.10", lambda m: m(self.label, OURS) / m(self.label, BARE))


# --------------------------------------------------------------------------------------------------------------------
# Steps, bare and ours.


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
        last[0] = env.step(tuple(own[k][: len(due.slot)] for own, due in zip(batches, last[0].due, strict=True)))

    return step, batches


def first_seeds(num_envs: int) -> list[int]:
    """Those of the first episodes of our vectors: what moves a body costs more or less, as it lies or runs."""
    return [int(episode_seed(key, np.uint64(0))) & 0x7FFFFFFF for key in keys(0, "adapters", count=num_envs)]


def bare_tasks(domain: str, task: str, num_envs: int, batches: list[Any]) -> Step:
    """A loop over tasks of the Control Suite, as anybody would write it; the suite itself puts observations side by side."""
    from ludus.contrib.envs.dmc import _suite

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


# --------------------------------------------------------------------------------------------------------------------
# The rows.


def vector_rows() -> list[Case]:
    """Native vectors, and loops over single environments."""

    def native(id: str, num_envs: int, vector: Callable[[], Any], **options: Any) -> Steps:
        step, batches = ours(id, num_envs, **options)
        return bare(vector(), batches), step

    def pool(id: str, num_envs: int) -> Steps:
        return native(id, num_envs, lambda: _envpool(id, num_envs), threads=1)

    def cart_poles() -> Any:
        return gymnasium.make_vec("CartPole-v1", 64, "vector_entry_point")

    def atari() -> Any:
        from ale_py.vector_env import AtariVectorEnv

        return AtariVectorEnv("pong", 8, num_threads=1)

    def loop(name: str) -> Steps:
        step, batches = ours(f"gymnasium/{name}", 8, vector="python")
        return singles(name, 8, batches), step

    rows = [
        Case(id := "gymnasium/CartPole-v1", 64, "gymnasium", 1000, partial(native, id, 64, cart_poles), CHEAP),
        Case(id := "envpool/CartPole-v1", 64, "envpool", 1000, partial(pool, id, 64), CHEAP),
        Case(id := "envpool/Pong-v5", 8, "envpool", 20, partial(pool, id, 8)),
        Case(id := "envpool/Ant-v5", 8, "envpool", 100, partial(pool, id, 8)),
        Case(id := "ale/pong", 8, "ale-py", 20, partial(native, id, 8, atari, threads=1)),
    ]
    for name, why in (("CartPole-v1", CHEAP), ("FrozenLake-v1", CHEAP), ("Pendulum-v1", CHEAP), ("Acrobot-v1", "")):
        rows.append(Case(f"gymnasium/{name} (python)", 8, "gymnasium", 300, partial(loop, name), why))
    return rows


def body_rows() -> list[Case]:
    """The Control Suite and Multi-agent MuJoCo."""

    def tasks(id: str, domain: str, task: str) -> Steps:
        step, batches = ours(id, 32)
        return bare_tasks(domain, task, 32, batches), step

    def bodies(id: str, body: str, parts: str) -> Steps:
        step, teams = our_teams(id, 32)
        return bare_bodies(body, parts, 32, teams), step

    rows = []
    for domain, task in (("cheetah", "run"), ("humanoid", "walk")):
        id = f"dmc/{domain}-{task}"
        rows.append(Case(id, 32, "dm-control", 25, partial(tasks, id, domain, task)))
    for body, parts in (("HalfCheetah", "2x3"), ("Ant", "2x4")):
        id = f"mamujoco/{body}-{parts}"
        rows.append(Case(id, 32, "gymnasium-robotics", 25, partial(bodies, id, body, parts)))
    return rows


def pool_rows() -> list[Case]:
    """EnvPool's games of several players, in turn and at once."""

    def board(id: str) -> Steps:
        return bare_board(_envpool(id, 64)), our_board(id, 64, threads=1)

    def at_once(id: str) -> Steps:
        step, teams = our_teams(id, 64, threads=1)
        return bare_pool(_envpool(id, 64), teams), step

    return [
        Case(id := "envpool/ConnectFour-v1", 64, "envpool", 300, partial(board, id), CHEAP),
        Case(id := "envpool/LeducHoldem-v1", 64, "envpool", 300, partial(board, id), CHEAP),
        Case(id := "envpool/intersection-multi-agent-v1", 64, "envpool", 50, partial(at_once, id)),
    ]


def functional_rows() -> list[Case]:
    """Environments that JAX compiles."""

    def connect_four(num_envs: int) -> Steps:
        from benchmarks.jax_bare import bare_pgx

        return bare_pgx("connect_four", num_envs), our_board("pgx/connect_four", num_envs)

    def cart_poles(id: str) -> Steps:
        from benchmarks.jax_bare import bare_gymnax

        step, batches = ours(id, 256)
        return bare_gymnax("CartPole-v1", 256, batches), step

    def marl(name: str, action: int | None, **options: Any) -> Steps:
        from benchmarks.jax_bare import bare_jaxmarl

        step, batches = our_team(f"jaxmarl/{name}", 64, action, teams="one", **options)
        return bare_jaxmarl(name, 64, batches, options), step

    def jumanji(name: str) -> Steps:
        from benchmarks.jax_bare import bare_jumanji

        step, batches = our_team(f"jumanji/{name}", 64, 0, teams="one")  # 0: nobody moves, which is always legal
        return bare_jumanji(name, 64, batches), step

    rows = [
        Case(f"pgx/connect_four, {num_envs}", num_envs, "pgx", 300, partial(connect_four, num_envs))
        for num_envs in (64, 256)
    ]
    rows.append(Case(id := "gymnax/CartPole-v1", 256, "gymnax", 300, partial(cart_poles, id)))
    marls: tuple[tuple[str, int, int | None, dict[str, str]], ...] = (
        ("MPE_simple_spread_v3", 200, None, {}),
        ("overcooked", 200, None, {"layout": "cramped_room"}),
        ("SMAX", 50, 4, {"scenario": "3m"}),
        ("HeuristicEnemySMAX", 10, 4, {"scenario": "3m"}),
    )
    for name, calls, action, options in marls:
        rows.append(Case(f"jaxmarl/{name}", 64, "jaxmarl", calls, partial(marl, name, action, **options)))
    for name in ("RobotWarehouse-v0", "LevelBasedForaging-v0"):
        rows.append(Case(f"jumanji/{name}", 64, "jumanji", 100, partial(jumanji, name)))
    return rows


def _envpool(id: str, num_envs: int) -> Any:
    import envpool

    return envpool.make(id.partition("/")[2], env_type="gymnasium", num_envs=num_envs, num_threads=1)


CASES = tuple(case for rows in (vector_rows, pool_rows, body_rows, functional_rows) for case in rows())


# --------------------------------------------------------------------------------------------------------------------
# Measuring.


def in_turn(plain: Step, mine: Step, calls: int, *, repetitions: int = 9) -> tuple[float, float]:
    """Microseconds per call of each, the least of the repetitions."""
    best = [float("inf")] * 2
    for _ in range(repetitions):
        for k, step in enumerate((plain, mine)):
            best[k] = min(best[k], _per_call(step, calls))
    return best[0], best[1]


def _per_call(step: Step, calls: int) -> float:
    """Microseconds, after one call that is not counted."""
    step()
    start = time.process_time()
    for _ in range(calls):
        step()
    return (time.process_time() - start) / calls * 1e6


def measured(case: Case, *, quick: bool) -> Repetition:
    """A row; without figures, and with what is missing, where its package is not installed."""
    try:
        plain, mine = case.make()
    except (ImportError, ConfigError) as error:
        return Repetition(0, {}, error=str(error))
    bare_step, our_step = in_turn(plain, mine, max(1, case.calls // 10) if quick else case.calls)
    return Repetition(0, {BARE: bare_step, OURS: our_step}, versions=versions((case.package,)))


def main(argv: Sequence[str] | None = None, *, cases: Sequence[Case] = CASES) -> int:
    """Prints a table and the bars, and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[case.label for case in cases], default=(), metavar="ROW")
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results", help="folder of result files")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    chosen = [case for case in cases if not args.only or case.label in args.only]
    found: dict[str, list[Repetition]] = {}
    print(f"{'row':38}{'of':>4}{'bare µs':>10}{'adapter µs':>12}{'above µs':>10}{'steps/s':>12}")
    for case in chosen:
        repetition = measured(case, quick=args.quick)
        found[case.label] = [repetition]
        print(row(case, repetition), flush=True)
    outcomes = [case.bar.judge(Medians(found)) for case in chosen if not case.no_bar]
    path = result_path("adapters", part=args.quick or bool(args.only), folder=args.results)
    write(path, name="adapters", quick=args.quick, measured=found, carried={}, outcomes=outcomes)
    for case in chosen:
        if case.no_bar:
            print(f"no bar {case.label}: {case.no_bar}")
    for outcome in outcomes:
        print(outcome.line())
    return 0


def row(case: Case, repetition: Repetition) -> str:
    """A line of the table; times in microseconds."""
    if repetition.error:
        return f"{case.label}: left out: {repetition.error}"
    bare_step, our_step = repetition.figures[BARE], repetition.figures[OURS]
    above, speed = our_step - bare_step, case.num_envs / our_step * 1e6
    return f"{case.label:38}{case.num_envs:>4}{bare_step:>10.1f}{our_step:>12.1f}{above:>10.1f}{speed:>12,.0f}"


if __name__ == "__main__":
    sys.exit(main())
