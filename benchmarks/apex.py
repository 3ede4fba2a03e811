"""Ape-X by actors: how long CartPole takes where steps wait, as for a simulator or a network, and do not compute.

    python -m benchmarks.apex [--quick]

CartPole-v1 whose steps take 20 ms, in `mode: async` with 1, 2, 4 and 8 workers of 4 environments each; runs of 40,000 decisions. Settings
are the same for all, updates for each decision included, so that time can only be won by what workers collect beside each other. The clock
runs from when the first worker has brought something. Two times are told:

    seconds            until all decisions are collected, and learned from
    seconds to solve   until the newest policy, played greedily, has a mean of 475, which Gymnasium calls solved, in 20 episodes of an
                       environment that does not wait; a run in which none has it counts as infinite

The first says what actors are worth and hardly depends on chance. The second is Ape-X's own question, and has luck in it: in decisions,
whoever brings them, seeds differ by a factor of two, so its bars compare medians of three. Versions are judged every 1,000 decisions; by
the clock, slow runs would have more tries. Judging counts, for all alike.

Of 8 actors 1,600 decisions a second come, for which 800 updates are due. The learner must keep up beside the workers, or it, not they, is
measured. So its network is not large: with 256 units a layer it would want more than a core. Nobody else may need the
machine's cores. `--quick`: 1 and 8 workers, one seed, 8,000 decisions, by which nothing is solved.
"""

from __future__ import annotations

import sys

from benchmarks.harness import Bar, Benchmark, Contestant, Medians

ACTORS = (1, 2, 4, 8)
SECONDS, SOLVED = "seconds", "seconds to solve"


def name(actors: int) -> str:
    """Of a contestant."""
    return f"{actors} actor{'s' * (actors > 1)}"


def _times_as_fast(actors: int, figure: str, what: str, *, quick: bool) -> Bar:
    def value(medians: Medians) -> float:
        return medians(name(1), figure) / medians(name(actors), figure)

    return Bar(f"{name(actors)}: {what}, times as fast as one", f">= {actors / 2:g}", value, quick=quick)


BENCHMARK = Benchmark(
    name="apex",
    contestants=tuple(
        Contestant(
            name=name(actors),
            module="benchmarks.apex_worker",
            arguments=("--actors", str(actors)),
            seeds=(0, 1, 2),
            quick_seeds=(0,) if actors in (1, 8) else (),
            quick_arguments=("--decisions", "8000"),
            timeout_s=900.0,
            pinned=False,
        )
        for actors in ACTORS
    ),
    bars=(
        *(_times_as_fast(n, SECONDS, "all decisions", quick=n == ACTORS[-1]) for n in ACTORS[1:]),
        *(_times_as_fast(n, SOLVED, "solved", quick=False) for n in ACTORS[1:]),
    ),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
