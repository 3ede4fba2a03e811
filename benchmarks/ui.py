"""What the page costs and how soon it is there.

slow-down   a run on one core, and on the others another run, a server and ten viewers, who ask for all that a page shows whenever it has
            changed: the processor's seconds of the run's own processes while they look at it, and while they look at the other one.
paint       Chromium and the server on one core, a league of 1,000 policies: from the click to a page that says something, of a browser
            that has nothing in its cache; first of a server that has just been started, then again and again.
viewers     a hundred of them at once on one core, on a run that grows every half second: how long it takes until the last of them knows;
            the server's memory and processor.

    python -m benchmarks.ui [--quick]
"""

from __future__ import annotations

import sys

from benchmarks.harness import Bar, Benchmark, Contestant

BENCHMARK = Benchmark(
    name="ui",
    contestants=(
        Contestant(
            name="slow-down",
            module="benchmarks.ui_worker",
            arguments=("slow-down", "--pairs", "2"),
            seeds=(0, 1, 2, 3, 4),
            quick_arguments=("--pairs", "1", "--generations", "8"),
            pinned=False,  # the run is, the others have what is left
        ),
        Contestant(
            name="paint",
            module="benchmarks.ui_worker",
            arguments=("paint",),
            seeds=(0, 1, 2),
            quick_arguments=("--visits", "3"),
        ),
        Contestant(
            name="viewers",
            module="benchmarks.ui_worker",
            arguments=("viewers",),
            seeds=(0, 1, 2),
            quick_arguments=("--changes", "6"),
        ),
    ),
    bars=(
        Bar(
            "slow-down of a run with ten viewers",
            "<= 1",
            lambda medians: medians("slow-down", "slow-down in percent"),
            unit="%",
            quick=False,  # which one short round cannot tell from nothing
        ),
        Bar("first useful paint, overview", "<= 1", lambda medians: medians("paint", "seconds to overview"), unit="s"),
        Bar("first useful paint, heat map", "<= 1", lambda medians: medians("paint", "seconds to heat map"), unit="s"),
        Bar("viewers at once", ">= 100", lambda medians: medians("viewers", "viewers who knew all")),
    ),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
