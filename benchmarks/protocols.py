"""The protocols of a run as state machines, explored exhaustively: every state within bounds, every order of events, every kill.

    python -m benchmarks.protocols [--small]

Machines: asynchronous collection (`benchmarks.protocols_pacing`), synchronous requests (`benchmarks.protocols_rounds`), and barriers,
commits and resumes (`benchmarks.protocols_commits`). Every state is checked against the invariants, and from every state every path
without further harm must come to its end. Then each fault of `benchmarks.protocols_faults` is planted, and must be found. The fast tests
explore the small bounds, and replay traces of the real driver against the machines (tests/protocols).

Prints two tables, writes benchmarks/results/protocols.json (protocols.quick.json with --small) and a line a bar. Exit status 1 if a machine
has a flaw or a fault was not found. The large bounds take about a minute of one core and 0.6 GB.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.contestants import Repetition
from benchmarks.machine import ROOT
from benchmarks.protocols_commits import Commits
from benchmarks.protocols_explorer import Exploration, Machine, explore
from benchmarks.protocols_faults import COMMITS, PACING, ROUNDS, Fault
from benchmarks.protocols_pacing import Pacing
from benchmarks.protocols_rounds import Rounds
from benchmarks.results import Outcome, result_path, write

SMALL: Mapping[str, Machine[Any]] = {
    "pacing: 2 workers": Pacing(),
    "pacing: 2 tasks share a worker, killed": Pacing(hosts=1, tasks=2, total=2, barrier=1, kills=1),
    "pacing: 2 requests each, no limit of lag": Pacing(in_flight=2, total=2, max_lag=None),
    "pacing: published every 2nd iteration": Pacing(publish=2, least=2),
    "rounds: 3 workers": Rounds(),
    "commits: 3 units, a power cut": Commits(total=3),
    "commits: 2 power cuts": Commits(kills=2),
    "commits: a second driver": Commits(rivals=1, power=False),
    "commits: a damaged checkpoint": Commits(total=3, damages=1, power=False),
    "commits: copied meanwhile": Commits(copies=1, power=False),
}
"""In the fast tests."""
LARGE: Mapping[str, Machine[Any]] = {
    "pacing: 3 workers": Pacing(hosts=3),
    "pacing: 2 requests each": Pacing(in_flight=2, total=4),
    "pacing: 2 tasks, killed": Pacing(tasks=2, total=2, barrier=1, kills=1),
    "pacing: killed twice, 2 restarts": Pacing(kills=2, restarts=2, barrier=1),
    "pacing: published every 2nd iteration": Pacing(in_flight=2, publish=2, least=2, total=4),
    "rounds: 4 workers": Rounds(hosts=4),
    "commits: 4 units, 2 power cuts": Commits(total=4, kills=2),
    "commits: 2 rivals, 2 kills": Commits(total=3, rivals=2, kills=2),
    "commits: 2 damaged checkpoints, 3 kept": Commits(total=4, keep=3, damages=2, power=False),
    "commits: copied twice, killed": Commits(total=3, keep=1, copies=2, kills=1),
}
"""In this command."""


def judge(fault: Fault) -> tuple[Exploration, bool]:
    """Return what was explored with a fault in a rule, and whether it was found."""
    exploration = explore(fault.machine)
    return exploration, exploration.flaw.startswith(fault.flaw)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.protocols")
    parser.add_argument("--small", action="store_true", help="the bounds of the fast tests")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results", help="folder of result files")
    args = parser.parse_args(argv)
    console, bounds = Console(), SMALL if args.small else LARGE
    explored = Table("machine", "states", "steps", "depth", "seconds", "flaw", title="explored")
    measured, sound = {}, 0
    for name, machine in bounds.items():
        begun = time.perf_counter()
        result = explore(machine)
        seconds = time.perf_counter() - begun
        explored.add_row(
            name, f"{result.states:,}", f"{result.steps:,}", str(result.depth), f"{seconds:.1f}", result.flaw or "none"
        )
        counts = {"states": result.states, "steps": result.steps, "depth": result.depth}
        measured[name] = [Repetition(0, {key: float(value) for key, value in counts.items()})]
        sound += not result.flaw
        for label in result.path:
            print(" ", *label)
    console.print(explored)
    planted = Table("planted fault", "states", "steps to it", "what is said", title="planted")
    faults, found = {**PACING, **ROUNDS, **COMMITS}, 0
    for name, fault in faults.items():
        result, is_seen = judge(fault)
        planted.add_row(name, f"{result.states:,}", str(len(result.path)), result.flaw if is_seen else "not found")
        found += is_seen
    console.print(planted)
    outcomes = [
        _outcome("machines without a flaw", sound, len(bounds)),
        _outcome("planted faults that are found", found, len(faults)),
    ]
    path = result_path("protocols", part=args.small, folder=args.results)
    write(path, name="protocols", quick=args.small, measured=measured, carried={}, outcomes=outcomes)
    for outcome in outcomes:
        print(outcome.line())
    return int(any(outcome.verdict != "met" for outcome in outcomes))


def _outcome(name: str, value: int, wanted: int) -> Outcome:
    return Outcome(name, str(wanted), "", float(value), "met" if value == wanted else "short")


if __name__ == "__main__":
    sys.exit(main())
