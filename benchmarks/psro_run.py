"""The worker of Ludus's PSRO benchmarks: one whole run as a user's (`ludus train PRESET key=value …`), database, policy files and
checkpoints included, on a clock that starts after imports and compilation. The report is not written.

    python -m benchmarks.psro_run --preset leduc-exact [--set key=value …] --seed 0
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.lines import Lines
from ludus.runs.runner import run
from ludus.runs.scenario_files import load_scenario
from ludus.storage.base import GenerationRecord, NullObserver

PACKAGES = ("ludus", "numpy", "numba", "scipy", "torch", "open-spiel")


class _Curve(NullObserver):
    """Prints a point per generation."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def generation_done(self, record: GenerationRecord) -> None:
        self._lines.point(nash_conv=record.nash_conv or 0.0, generation=record.number, episodes=record.episodes)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        # Another game, so that compiling Leduc's tree counts and compiling machine code does not.
        small = ["env.id=openspiel/kuhn_poker", "generations=2", "response={episodes: 2000}", "stop=null"]
        run(load_scenario(args.preset, [*args.set, *small], args.seed), run_dir=Path(folder) / "warm-up", report=False)
        scenario = load_scenario(args.preset, args.set, args.seed)
        lines = Lines(PACKAGES)
        result = run(scenario, run_dir=Path(folder) / "run", observer=_Curve(lines), report=False)
        last = result.nash_conv[-1]
        lines.figures(
            {
                "seconds": lines.seconds,
                "nash_conv": last,
                "exploitability": last / 2,
                "best exploitability": min(result.nash_conv) / 2,
                "generations": len(result.nash_conv) - 1,
                "episodes": result.episodes,
            }
        )


if __name__ == "__main__":
    main()
