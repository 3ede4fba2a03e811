"""Is what nobody gives the same however a scenario is written, and does it learn?

    python -m benchmarks.spellings [--quick]

Twelve environments, each written in eight ways: its id with the algorithm by name, as an object and as a class; a file with scenario,
environment and algorithm; a scenario object, of names and of objects; `algorithms` by player, in a command and in an object. All settings
are compared. Then one training each by PPO and by DQN (of Pendulum SAC) with the settings that the rule gives, on one core; only the length
is cut for SAC (20,000 decisions), and games have one response.

Scores are means over 100 episodes of the newest policy, as the scenario plays it; in games, what the response earns against players who
play at random. A bar asks for 80% of the preset's result, or of a stated figure: the best response to random play, or what was measured
when the row was written. Where returns are not counted from 0, it is 80% of the way there from random play.

`--quick`: the settings of all, and CartPole by both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from benchmarks.harness import Bar, Benchmark, Contestant, Medians
from benchmarks.spellings_run import TASKS

_QUICK = ("CartPole",)


def _contestants() -> Iterator[Contestant]:
    for name, task in TASKS.items():
        yield _contestant(f"{name}, settings", name, "--settings", quick=True)
        for algorithm in task.bars:
            yield _contestant(f"{name}, {algorithm}", name, "--algorithm", algorithm, quick=name in _QUICK)


def _contestant(name: str, env: str, *arguments: str, quick: bool) -> Contestant:
    return Contestant(
        name=name,
        module="benchmarks.spellings_run",
        arguments=("--env", env, *arguments),
        seeds=(0,),
        quick_seeds=(0,) if quick else (),
        timeout_s=1800.0,
    )


def _bars() -> Iterator[Bar]:
    for name, task in TASKS.items():
        yield Bar(f"{name}: spellings whose settings differ", "<= 0", _value(f"{name}, settings", "differ"))
        for algorithm, least in task.bars.items():
            bar = _value(f"{name}, {algorithm}", "score")
            yield Bar(f"{name} by {algorithm}: score", f">= {least:g}", bar, quick=name in _QUICK)


def _value(contestant: str, figure: str) -> Callable[[Medians], float]:
    return lambda medians: medians(contestant, figure)


BENCHMARK = Benchmark(name="spellings", contestants=tuple(_contestants()), bars=tuple(_bars()))

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
