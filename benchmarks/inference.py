"""Policy copies in each worker against a server that they share: decisions per second, and memory, by workers and size of the network.

    python -m benchmarks.inference [--quick]

Workers on Ray with eight environments each, which cost nothing (`still`) or wait ten milliseconds a step, as a simulator might (`waiting`);
everything runs on the cores that there are, unpinned. The last table is the server's throughput relative to local copies.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.contestants import Contestant
from benchmarks.harness import Benchmark
from benchmarks.machine import ROOT
from benchmarks.results import result_path

WORKERS = (1, 2, 4, 8, 16)
QUICK = (1, 2, 4)
KINDS = ("local", "server")
WAITS = {"still": 0.0, "waiting": 10.0}
NETWORKS = ("64x64", "512x512", "2048x2048")
SECOND = "decisions per second"


def _contestant(kind: str, workers: int, wait: str) -> Contestant:
    arguments = (kind, str(workers), "--milliseconds", str(WAITS[wait]))
    return Contestant(
        name=f"{kind} {workers} {wait}",
        module="benchmarks.inference_worker",
        arguments=arguments,
        quick_arguments=("--quick",),
        seeds=(0,),
        quick_seeds=(0,) if workers in QUICK and wait == "still" else (),
        pinned=False,
    )


BENCHMARK = Benchmark(
    name="inference",
    contestants=(
        Contestant(name="rows", module="benchmarks.inference_worker", arguments=("rows",), seeds=(0, 1, 2)),
        *(_contestant(kind, workers, wait) for wait in WAITS for workers in WORKERS for kind in KINDS),
    ),
    bars=(),
)


def relative(figures: dict[str, dict[str, float]]) -> Table:
    """Rows by environment and network; columns by workers; the crossover where the server is first as fast as copies."""
    table = Table(
        "environment", "network", *map(str, WORKERS), "crossover", title="server relative to local copies, by workers"
    )
    for wait in WAITS:
        for network in NETWORKS:
            name = f"{network} {SECOND}"
            found = {
                workers: figures[f"server {workers} {wait}"][name] / figures[f"local {workers} {wait}"][name]
                for workers in WORKERS
                if all(name in figures.get(f"{kind} {workers} {wait}", {}) for kind in KINDS)
            }
            crossover = next((str(workers) for workers, value in found.items() if value >= 1), "none")
            shown = [f"{found[workers]:.2f}" if workers in found else "-" for workers in WORKERS]
            if found:
                table.add_row(wait, network, *shown, crossover)
    return table


def _medians(path: Path) -> dict[str, dict[str, float]]:
    """Median figures by contestant."""
    measured = json.loads(path.read_text(encoding="utf-8"))["measured"]
    return {
        contestant: {
            name: median(r["figures"][name] for r in many if name in r["figures"])
            for name in {name for r in many for name in r["figures"] if r["figures"][name] is not None}
        }
        for contestant, many in measured.items()
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    given = sys.argv[1:] if argv is None else argv
    status = BENCHMARK.main(argv)
    folder = Path(given[given.index("--results") + 1]) if "--results" in given else ROOT / "benchmarks" / "results"
    path = result_path("inference", part="--quick" in given or "--only" in given, folder=folder)
    if path.exists() and status != 2:
        Console().print(relative(_medians(path)))
    return status


if __name__ == "__main__":
    sys.exit(main())
