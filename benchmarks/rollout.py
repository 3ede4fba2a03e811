"""What the rollout loop costs beside the environment and the network; speeds of the families; opponents by the dozen; memory.

    python -m benchmarks.rollout [--quick]

`share` of an environment: the part of the time that is neither the environment's own step nor the policy call (forward pass, sampling,
log-probability, value), with a learner whose trajectories are written and an opponent in every other seat. Orders with clocks around the
bare environment's methods and around `Policy.act` take turns with orders without, whose wall time counts. `floor share` is the same of a
bare loop with the same promises (`benchmarks.rollout_floor`), in the same process: the limit of a bar that is short. OpenSpiel's calls
are too short for a clock: there the environment's time is, per decision, that of a plain loop with nothing but the calls that a vector of
games needs (`calls`), in the same process. `adapter` is the part of the share that lies in `VectorEnv.step`. `general`: decisions per
second of OpenSpiel's general path without the policies' time. `fifty`: throughput against fifty opponents relative to one. `memory`:
resident size after ten times as many decisions. `timers`: what reading the clock for the profile costs. Everything runs on one core;
figures are medians over the orders of a process.
"""

from __future__ import annotations

import sys

from benchmarks.harness import Bar, Benchmark, Contestant

_MODULE = "benchmarks.rollout_worker"
SHARES = ("cartpole", "mpe2", "connect_four", "pettingzoo", "pong")
GENERAL = ("connect_four", "phantom_ttt")
SHARE, SECOND = "share", "decisions per second"


def _contestant(*arguments: str, seeds: tuple[int, ...] = (0, 1, 2)) -> Contestant:
    return Contestant(
        name=" ".join(arguments),
        module=_MODULE,
        arguments=arguments,
        quick_arguments=("--quick",),
        seeds=seeds,
    )


BENCHMARK = Benchmark(
    name="rollout",
    contestants=(
        *(_contestant("share", kind) for kind in SHARES),
        *(_contestant("general", game) for game in GENERAL),
        _contestant("fifty", "leduc"),
        _contestant("fifty", "connect_four"),
        _contestant("sampling"),
        _contestant("battle"),
        _contestant("memory", seeds=(0,)),
        _contestant("timers"),
    ),
    bars=(
        *(
            Bar(f"the loop's own cost, {kind}", "<= 0.15", lambda medians, kind=kind: medians(f"share {kind}", SHARE))
            for kind in SHARES
        ),
        *(
            Bar(
                f"{game}, general path",
                ">= 250000",
                lambda medians, game=game: medians(f"general {game}", SECOND),
                unit="/s",
            )
            for game in GENERAL
        ),
        *(
            Bar(
                f"{game}, times OpenSpiel's rl_environment",
                ">= 3",
                lambda medians, game=game: (
                    medians(f"general {game}", SECOND) / medians(f"general {game}", "rl_environment per second")
                ),
                unit="×",
            )
            for game in GENERAL
        ),
        *(
            Bar(f"fifty opponents, {kind}", ">= 0.7", lambda medians, kind=kind: medians(f"fifty {kind}", "relative"))
            for kind in ("leduc", "connect_four")
        ),
        Bar(
            "sampling 64 rows, relative to compiled torch",
            "<= 1",
            lambda medians: medians("sampling", "ludus microseconds") / medians("sampling", "compiled microseconds"),
        ),
        Bar(
            "MAgent2 battle, relative to the bare environment", ">= 0.9", lambda medians: medians("battle", "relative")
        ),
        Bar(
            "resident size, 10M decisions relative to 1M",
            "<= 1.01",
            lambda medians: medians("memory", "relative"),
            quick=False,
        ),
        Bar("the profile's timers, of the wall time", "<= 0.02", lambda medians: medians("timers", "share")),
    ),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
