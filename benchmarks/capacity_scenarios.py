"""The constants of the model of `benchmarks.capacity`, the measured runs that it must repeat, and the runs that it foretells.

Constants are medians of committed result files; `SOURCES` names the command behind each. What is assumed says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from benchmarks.capacity_costs import WORKERS
from benchmarks.capacity_model import Costs, Outcome, Run, Setup, Work
from benchmarks.page_results import medians

TOLERANCE = 0.15
SOURCES = {
    "a request to a worker, an answer, a byte of it, a policy that a request names, a look at an answer that is owed": "capacity_costs",
    "bookkeeping of an asynchronous iteration, by pairs of workers; a generation without work": "capacity_costs",
    "a step of waiting environments, an inference server's request": "inference",
    "a decision in connect four and CartPole, alone and in whole runs": "rollout, distributed",
    "a step of football": "football_steps",
    "an epoch of PPO over a decision, 64 × 64": "kernel_speed",
    "a byte of new weights, a row from a shard of tables": "data_plane",
}
"""Constant -> its command."""

NOTED = {"one process": 24_200.0, "1": 16_200.0, "4": 26_100.0, "8": 32_800.0}
LEARNING = {"1": 0.58, "4": 0.99, "8": 1.01}
"""Decisions per second, and the share of its core that the learner had, by workers: one run each of `ludus train connect-four-self-play
generations=1 --runtime processes --mode async --workers N` on 16 cores (Intel Xeon) at commit 3bb4b792, 2026-11-28, noted by hand."""


def costs() -> Costs:
    """Return the measured constants."""
    own, plane, inference = medians("capacity_costs"), medians("data_plane"), medians("inference")
    few, many = WORKERS[1], WORKERS[-1]
    each = {n: own("bookkeeping", f"{n} workers, seconds an iteration") / n for n in (few, many)}
    pair = (each[many] - each[few]) / (many - few)
    here = each[few] - pair * few  # of a worker, beyond what its messages take
    arrived = plane("weights", "new version, seconds") - plane("weights", "unchanged, seconds")
    return Costs(
        call=own("ray", "a call") + here / 2,
        named=own("ray", "a named policy"),
        answer=own("ray", "an answer") + here / 2,
        byte=own("ray", "a byte"),
        look=own("ray", "a look at an answer"),
        pair=pair,
        trip=own("ray", "a trip"),
        load=arrived / (16 * 10 * 2**20),  # 16 workers, 10 MB
        generation=own("generation", "a generation"),
        serve=8 / inference("server 16 still", "64x64 decisions per second"),  # requests of 8 rows
        sample=1 / plane("shards", "2 shards, 1 KB/ring, samples per second"),
    )


def epoch() -> float:
    """Return a learner's seconds for a decision in an epoch of PPO, 64 × 64 units: the update measured has 2,048 and 4 epochs."""
    return medians("kernel_speed")("ppo, CartPole", "kernels seconds") / (2048 * 4)


def acting(width: int, rows: int = 8) -> float:
    """Return seconds of a core for a row of so many."""
    return medians("inference")("rows", f"{width}x{width} µs a row of {rows}") * 1e-6


def loop() -> float:
    """Return seconds of a worker's step of 8 environments besides what these wait: its loop and a policy of 64 × 64 units."""
    return medians("inference")("local 1 waiting", "64x64 request ms") / 1e3


# --------------------------------------------------------------------------------------------------------------------
# What was measured.


@dataclass(frozen=True, slots=True)
class Case:
    """A measured figure, and what the model says in its place."""

    name: str
    measured: float
    model: Callable[[Costs], float]


def cases() -> Iterator[Case]:
    """Yield what the model has to repeat. Two hardware threads of one core did the work of one: `local 2 still` of `benchmarks.inference`
    is no faster than `local 1 still`. So the machine of these runs has one core."""
    found = medians("distributed")
    for mode in ("sync", "async"):
        for n in (1, 2, 4, 8, 16):
            share = found(f"{mode} {n}", "of what the waits allow")
            yield Case(f"waiting environments, {mode}, {n} workers: share of the ideal", share, _share(mode, n))
        rates = [found(f"{mode} 16{end}", "decisions per second") for end in (", straggler", "")]
        yield Case(f"a straggler of 16 workers, {mode}: what is left", rates[0] / rates[1], _left(mode))
    for case, title in (("cartpole", "CartPole"), ("connect_four", "connect four")):
        one, ray = (found(f"{case}, {where}", "env steps per second") for where in ("in one process", "on Ray"))
        yield Case(f"{title}, one worker on Ray, times one process", ray / one, _relative(case, one, workers=1))
    rates = [found(f"computing {n}", "env steps per second") for n in (1, 2)]
    one = found("connect_four, in one process", "env steps per second")
    two, alone = (_relative("connect_four", one, workers=n) for n in (2, 1))
    yield Case(
        "connect four, two workers on Ray, times one", rates[1] / rates[0], lambda costs: two(costs) / alone(costs)
    )
    for n in (2, 8):
        more, less = (found(f"psro {k}", "generations per minute") for k in (n, 1))
        yield Case(f"PSRO on waiting environments, {n} workers, times one", more / less, _generations(n))
    for name, rate in NOTED.items():
        if name != "one process":
            yield Case(
                f"connect four on 16 cores, {name} workers, times one process",
                rate / NOTED["one process"],
                _sixteen(int(name)),
            )


def _waiting() -> Work:
    return Work(8, 0.01, 0, loop(), 100, 4 * epoch(), 72, 20_000, updates=16, iterations=20)


def _rate(costs: Costs, work: Work, setup: Setup) -> float:
    return Run(costs, work, setup).outcome(warm=4, cool=4).rate  # the middle, as it was measured


def _share(mode: str, workers: int) -> Callable[[Costs], float]:
    setup = Setup(workers, mode, cores=1)  # type: ignore[arg-type]
    return lambda costs: _rate(costs, _waiting(), setup) / (workers * 800)


def _left(mode: str) -> Callable[[Costs], float]:
    setup = Setup(16, mode, cores=1)  # type: ignore[arg-type]
    return lambda costs: _rate(costs, _waiting(), replace(setup, slower=10)) / _rate(costs, _waiting(), setup)


def _relative(case: str, one: float, *, workers: int) -> Callable[[Costs], float]:
    """Whole runs in step on one core: a decision takes 1 / `one` in one process, playing included."""
    play = 1 / medians("rollout")(f"share {case}", "decisions per second")
    environments, rows, size = {"cartpole": (64, 2048, 72), "connect_four": (256, 12_800, 290)}[case]
    work = Work(
        rows=environments / workers,
        wait=0,
        play=environments / workers * play,
        act=0,
        steps=rows / environments,
        learn=1 / one - play,
        row_bytes=size,
        weights=200_000,
        iterations=12,
    )
    return lambda costs: _rate(costs, work, Setup(workers, "sync", cores=1)) / one


def _generations(workers: int) -> Callable[[Costs], float]:
    """Two players; 64 environments in 8 shards, which a worker steps in turn; 640 episodes an iteration of 3 decisions."""

    def rate(costs: Costs, n: int) -> float:
        shards = 8 / n
        work = Work(
            rows=64 / n,
            wait=0.01 * shards,
            play=0,
            act=2 * loop() * shards,  # of both players
            steps=30,
            learn=4 * epoch(),
            row_bytes=200,
            weights=40_000,
            iterations=4,
            matches=6,  # 5 and 7 of the two generations
            match_steps=2 * 3 * n,  # 128 episodes in 64 environments, divided by the workers again
            split=n,
        )
        return Run(costs, work, Setup(n, "sync", tasks=2, cores=1)).outcome().rate

    return lambda costs: rate(costs, workers) / rate(costs, 1)


def _sixteen(workers: int) -> Callable[[Costs], float]:
    """The learner's seconds are the mean of what its share of a core says, messages included; a worker's are those of the only one, which
    kept the learner waiting."""
    learn = sum(share / NOTED[n] for n, share in LEARNING.items()) / len(LEARNING)
    rows = 5_000 / workers  # 256 episodes an iteration
    work = Work(1, 0, 1 / NOTED["1"], 0, rows, learn, 0, 0, iterations=20)
    free = {"call": 0.0, "named": 0.0, "answer": 0.0, "look": 0.0, "pair": 0.0}
    return lambda costs: _rate(replace(costs, **free), work, Setup(workers, cores=16)) / NOTED["one process"]


# --------------------------------------------------------------------------------------------------------------------
# What was not.

SIZES, SIZE = (1, 10, 100, 1_000, 10_000), 1_000
"""Workers; those with which options are compared."""
RESPONSE = 1_600_000
"""Decisions of a best response in PSRO."""
PYTHON_STEP = 45e-6
"""Seconds of a step of a game in Python, as of `benchmarks.two_cores`."""


def scenarios() -> dict[str, tuple[Work, Setup]]:
    """Return the work of each, and how it is run but for the number of workers."""
    wide = (
        epoch() * acting(512, 128) / acting(64, 128)
    )  # assumed: an update grows with the network as a forward pass does
    step = 1 / medians("football_steps")("11-a-side", "ludus")
    game = Work(
        rows=4,
        wait=0,
        play=8 * PYTHON_STEP,
        act=loop(),
        steps=200,
        learn=4 * epoch(),
        row_bytes=300,
        weights=40_000,
    )
    return {
        "PSRO with PPO": (
            replace(game, matches=41, match_steps=400 * 30 / 8, split=50),
            Setup(1, tasks=2),
        ),
        "a slow game": (
            Work(4, 0, 4 * step, 4 * acting(512), 200, 4 * wide, 600, 2_600_000),
            Setup(1),
        ),
        "a league of 1,000 policies": (replace(game, named=1000), Setup(1, tasks=4)),
    }


OPTIONS: dict[str, dict[str, object]] = {
    "as it is": {},
    "runtime.trainers=8": {"trainers": 8},
    "runtime.table_shards=2": {"table_shards": 2},
    "runtime.inference=server": {"servers": True},
    "evaluation.workers=16": {"evaluators": 16},
    "runtime.tasks=1": {"tasks": 1},
    "runtime.mode=sync": {"mode": "sync"},
    "weights sent as a tree": {"tree": True},
}
"""What is changed of a setup."""


def foretold(costs: Costs, name: str, option: str, workers: int) -> Outcome:
    """Run a scenario with an option."""
    work, setup = scenarios()[name]
    setup = replace(setup, workers=workers, **OPTIONS[option])  # type: ignore[arg-type]
    if work.matches:  # a whole generation
        return Run(
            costs, replace(work, iterations=max(1, round(RESPONSE / (work.rows * work.steps * workers)))), setup
        ).outcome()
    return Run(costs, replace(work, iterations=5), setup).outcome(warm=2, cool=1)
