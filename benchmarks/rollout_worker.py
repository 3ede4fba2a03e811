"""The measurements of `benchmarks.rollout`, one per process.

python -m benchmarks.rollout_worker share cartpole
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from statistics import median

import torch

from benchmarks.lines import Lines
from benchmarks.rollout_floor import GAMES, BareLoop
from benchmarks.rollout_setups import SETUPS, Clock, Player, Setup

PACKAGES = ("ludus", "numpy", "numba", "torch", "open-spiel", "gymnasium", "pettingzoo", "mpe2", "envpool", "magent2")
POLICY = "ludus.policies.actor_critic_policy:ActorCriticPolicy"
MEGABYTE = 1 << 20


def share(kind: str, *, orders: int) -> dict[str, float]:
    """What is neither the environment's step nor the policy call, of the wall time; of a bare loop with the same promises, too (`floor`).
    Orders with clocks around these take turns with orders without, whose wall time counts."""
    setup = SETUPS[kind]
    environment, policy = Clock(), Clock()
    setup.clock_environment(environment)
    policy.around_named(POLICY, "act")
    clocks = environment, policy
    player = Player(setup.make(), decisions=setup.decisions)
    loops: dict[str, Callable[[], int]] = {"": lambda: player.play().counters["decisions"]}
    if kind in GAMES:
        loops["floor "] = BareLoop(GAMES[kind](setup.num_envs), player.policies, setup.decisions).play
    per_decision = _bare_seconds(setup) if setup.openspiel else 0.0
    parts: dict[str, list[tuple[float, float, float]]] = {name: [] for name in loops}
    for number in range(2 * orders + 1):
        for name, play in loops.items():
            plain = _timed(play, clocks, on=False)
            clocked = _timed(play, clocks, on=True)
            if number:  # the first one compiles, and grows the buffers
                parts[name].append((plain[0], per_decision + clocked[1], clocked[2]))
    for clock in clocks:
        clock.turn(on=False)
    out: dict[str, float] = {}
    for name, found in parts.items():
        wall, outside, inside = (median(column) for column in zip(*found, strict=True))
        out |= {f"{name}share": (wall - outside - inside) / wall, f"{name}decisions per second": 1 / wall}
        if not name:
            vector = _vector_seconds(player, orders)
            out |= {"environment": outside / wall, "policy": inside / wall, "adapter": (vector - outside) / wall}
    player.worker.close()
    return out


def _timed(play: Callable[[], int], clocks: tuple[Clock, Clock], *, on: bool) -> tuple[float, float, float]:
    """Return seconds per decision: in all, and inside of what each clock is around."""
    for clock in clocks:
        clock.turn(on=on)
        clock.clear()
    begun = time.perf_counter()
    decisions = play()
    wall = time.perf_counter() - begun
    environment, policy = (clock.seconds / decisions for clock in clocks)
    return wall / decisions, environment, policy


def _vector_seconds(player: Player, orders: int) -> float:
    """Seconds per decision in `VectorEnv.step`, adapter included."""
    clock, found = Clock(), []
    clock.around(type(player.worker.env), "step")
    for _ in range(orders):
        clock.clear()
        decisions = player.play().counters["decisions"]
        found.append(clock.seconds / decisions)
    clock.turn(on=False)
    return median(found)


def _bare_seconds(setup: Setup) -> float:
    """Seconds per decision of the calls to OpenSpiel that a vector of games needs."""
    from benchmarks.rollout_openspiel import calls

    play = calls(setup.openspiel, setup.num_envs)
    play(20)
    return median(play(200) for _ in range(9))


def general(game: str, *, orders: int) -> dict[str, float]:
    """Decisions per second of the general path without the policies' time, beside loops over OpenSpiel's API."""
    from benchmarks.rollout_openspiel import bare, calls, rl_environment

    policy = Clock()
    policy.around_named(POLICY, "act")
    setup = Setup(f"openspiel/{game}", 1024, 100_000, options=(("tree", "off"), ("fast", "off")))
    player = Player(setup.make(), decisions=setup.decisions)
    rates = []
    for number in range(orders + 1):
        policy.clear()
        begun = time.perf_counter()
        decisions = player.play().counters["decisions"]
        if number:
            rates.append(decisions / (time.perf_counter() - begun - policy.seconds))
    out = {"decisions per second": median(rates)}
    for name, loop in (("bare loop per second", bare(game)), ("rl_environment per second", rl_environment(game))):
        loop(50)
        out[name] = median(_rate(loop) for _ in range(orders))
    out["calls alone, per second"] = 1 / median(calls(game, 1024)(30) for _ in range(3))
    return out


def _rate(loop: Callable[[int], int]) -> float:
    begun = time.perf_counter()
    decisions = loop(1000)
    return decisions / (time.perf_counter() - begun)


def fifty(kind: str, *, orders: int) -> dict[str, float]:
    """Decisions per second against fifty opponents of one architecture, drawn uniformly per episode, and against one."""
    setup = {
        "leduc": Setup("openspiel/leduc_poker", 512, 100_000),
        "connect_four": Setup("openspiel/connect_four", 64, 30_000, options=(("tree", "off"), ("fast", "off"))),
    }[kind]
    players = {
        count: Player(setup.make(), decisions=setup.decisions, opponents=count, tabulate=False) for count in (1, 50)
    }
    rates: dict[int, list[float]] = {1: [], 50: []}
    for number in range(orders + 1):
        for count, player in players.items():
            begun = time.perf_counter()
            decisions = player.play().counters["decisions"]
            if number:
                rates[count].append(decisions / (time.perf_counter() - begun))
    one, many = median(rates[1]), median(rates[50])
    return {"relative": many / one, "one, decisions per second": one, "fifty, decisions per second": many}


def memory(*, quick: bool) -> dict[str, float]:
    """Resident megabytes after a million decisions and after ten million, on CartPole."""
    setup = SETUPS["cartpole"]
    player = Player(setup.make(), decisions=setup.decisions)
    first, last = (100_000, 1_000_000) if quick else (1_000_000, 10_000_000)
    decisions, sizes = 0, []
    for limit in (first, last):
        while decisions < limit:
            decisions += player.play().counters["decisions"]
        sizes.append(_resident())
    return {"relative": sizes[1] / sizes[0], "MB after a tenth": sizes[0], "MB after all": sizes[1]}


def timers(*, orders: int) -> dict[str, float]:
    """What the timers of a profile cost, of the wall time: readings of the clock on CartPole, times what one of them takes."""
    from ludus.rollout import worker

    setup = SETUPS["cartpole"]
    player = Player(setup.make(), decisions=setup.decisions)
    walls, read = [], worker.perf_counter
    for _ in range(orders + 1):
        begun = time.perf_counter()
        player.play()
        walls.append(time.perf_counter() - begun)
    cost, calls = _reading_cost(), 0

    def counting() -> float:
        nonlocal calls
        calls += 1
        return read()

    worker.perf_counter = counting
    player.play()
    worker.perf_counter = read
    wall = median(walls[1:])
    return {"share": calls * cost / wall, "readings": calls, "nanoseconds each": cost * 1e9, "milliseconds": wall * 1e3}


def _reading_cost(readings: int = 200_000) -> float:
    """Seconds of one reading of the clock with the addition that goes with it."""
    total, begun = 0.0, time.perf_counter()
    for _ in range(readings):
        total += time.perf_counter() - begun
    return (time.perf_counter() - begun) / readings


def _resident() -> float:
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("share", "general", "fifty", "sampling", "battle", "memory", "timers"))
    parser.add_argument("kind", nargs="?", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_intermixed_args(argv)
    torch.set_num_threads(1)
    orders = 3 if args.quick else 9
    lines = Lines(PACKAGES)
    if args.what == "sampling":
        from benchmarks.rollout_sampling import figures

        lines.figures(figures())
    elif args.what == "battle":
        from benchmarks.rollout_battle import figures as battle_figures

        lines.figures(battle_figures(orders))
    elif args.what == "memory":
        lines.figures(memory(quick=args.quick))
    elif args.what == "timers":
        lines.figures(timers(orders=orders))
    else:
        lines.figures({"share": share, "general": general, "fifty": fifty}[args.what](args.kind, orders=orders))
    return 0


if __name__ == "__main__":
    sys.exit(main())
