"""What the page costs and how soon it is there.

slow-down   a run on one core, and on the others another run, a server and ten viewers, who ask for all that a page shows whenever it has
            changed: the processor's seconds of the run's own processes while they look at it, and while they look at the other one.
paint       Chromium and the server on one core, leagues of 1,000 policies and of 500 × 500 of two populations: from the click to a page
            that says something, and to a page all of whose panels are painted, without scrolling, of a browser that has nothing in its
            cache; first of a server that has just been started, then again and again.
memory      ten viewers of a league of 1,000 policies that changes every ten seconds: the server's memory over some minutes, and whether it
            grows. `python -m benchmarks.ui_worker memory --minutes 60` looks for an hour.
viewers     a hundred of them at once on one core, on a run that grows every half second: how long it takes until the last of them knows;
            the server's memory and processor.

    python -m benchmarks.ui [--quick]
"""

from __future__ import annotations

import sys

from benchmarks.harness import Bar, Benchmark, Contestant, Medians

LEAGUES = ("1,000", "500 × 500")
TABS = ("overview", "population", "learning", "log")


def _slowest(medians: Medians, league: str) -> float:
    """Return the seconds of the tab that takes longest until all of its panels are painted."""
    return max(medians("paint", f"{league}, seconds to every panel, {tab}") for tab in TABS)


BENCHMARK = Benchmark(
    name="ui",
    contestants=(
        Contestant(
            name="slow-down",
            module="benchmarks.ui_worker",
            arguments=("slow-down",),
            seeds=(0,),
            quick_arguments=("--pairs", "1", "--generations", "8"),
            pinned=False,  # the run is, the others have what is left
        ),
        Contestant(
            name="paint",
            module="benchmarks.ui_worker",
            arguments=("paint",),
            seeds=(0, 1),
            quick_arguments=("--visits", "1"),
        ),
        Contestant(
            name="memory",
            module="benchmarks.ui_worker",
            arguments=("memory",),
            seeds=(0,),
            quick_arguments=("--minutes", "0.4"),
        ),
        Contestant(
            name="viewers",
            module="benchmarks.ui_worker",
            arguments=("viewers",),
            seeds=(0, 1),
            quick_arguments=("--changes", "6"),
        ),
    ),
    bars=(
        Bar(
            "slow-down of a run with ten viewers, median of 12 pairs",
            "<= 1",
            lambda medians: medians("slow-down", "slow-down in percent"),
            unit="%",
            quick=False,  # which one short round cannot tell from nothing
        ),
        Bar(
            "first useful paint, overview, 1,000 policies",
            "<= 0.5",
            lambda medians: medians("paint", "1,000, seconds to overview"),
            unit="s",
        ),
        Bar(
            "first useful paint, heat map, 1,000 policies",
            "<= 1",
            lambda medians: medians("paint", "1,000, seconds to heat map"),
            unit="s",
        ),
        *(
            Bar(
                f"every panel of a tab, {league} policies",
                "<= 2",
                lambda m, league=league: _slowest(m, league),
                unit="s",
            )
            for league in LEAGUES
        ),
        Bar(
            "server's memory, ten viewers of 1,000 policies",
            "<= 250",
            lambda medians: medians("memory", "MB of the server at most"),
            unit="MB",
        ),
        Bar(
            "server's memory, growth between halves",
            "<= 10",
            lambda medians: medians("memory", "MB more in the second half than in the first"),
            unit="MB",
            quick=False,  # its halves are a few changes long
        ),
        Bar("viewers at once", ">= 100", lambda medians: medians("viewers", "viewers who knew all")),
    ),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
