"""How every benchmark measures, by the conventions of the project's benchmarks.

A benchmark is a module with a `Benchmark`; its contestants (Ludus, peers, bare limits) run turn by turn as processes
pinned to one core with one thread. Every repetition goes to `benchmarks/results/NAME.json`; medians are compared; and
the last lines say, bar by bar, whether what was asked for is reached:

    bar NAME: VALUE (wanted CONDITION) met|short|unjudged [(committed result: PEER of DATE)|: WHY]

where the end is there if a figure that it needs was not measured in this run, or if it is known why there is none.

    python -m benchmarks.NAME                 the whole measurement
    python -m benchmarks.NAME --quick         about a minute, slow peers from the committed results
    python -m benchmarks.harness setup PEER   builds benchmarks/peers/PEER/.venv

Exit status: 0 when everything ran (bars may be short), 1 when a worker failed, 2 when it could not start.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import operator
import os
import re
import shutil
import statistics
import subprocess
import sys
import venv
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.contestants import Contestant, Repetition, measure, seconds_to
from benchmarks.machine import ROOT, this_machine
from benchmarks.results import Outcome, Verdict, committed, result_path, write

__all__ = ["Bar", "Benchmark", "Contestant", "Medians", "Missing", "python_of", "ratio", "seconds_to", "setup"]

PEERS = ROOT / "benchmarks" / "peers"
COMPARISONS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


class Missing(LookupError):
    """A figure that was neither measured nor committed for this kind of machine."""


class Medians:
    """Median figures over repetitions, by contestant and figure name. committed: of contestants that were not measured in this run, the
    date of the committed result. read: the contestants whose figures were asked for."""

    def __init__(
        self, repetitions: Mapping[str, Sequence[Repetition]], *, committed: Mapping[str, str] | None = None
    ) -> None:
        self._repetitions, self.committed = repetitions, committed or {}
        self.read: set[str] = set()

    @property
    def names(self) -> list[str]:
        """The contestants."""
        return list(self._repetitions)

    def values(self, contestant: str, figure: str) -> list[float]:
        """The figure of every repetition; raises `Missing` if there is none or one of them lacks it."""
        self.read.add(contestant)
        found = [r.figures.get(figure) for r in self._repetitions.get(contestant, ())]
        values = [value for value in found if value is not None]
        if not values or len(values) < len(found):
            raise Missing(f"no {figure!r} of {contestant!r}")
        return values

    def repetitions(self, contestant: str) -> Sequence[Repetition]:
        """Every repetition of a contestant."""
        return self._repetitions[contestant]

    def __call__(self, contestant: str, figure: str) -> float:
        """The median; raises `Missing`."""
        return statistics.median(self.values(contestant, figure))


def ratio(*, slow: str, fast: str, figure: str) -> Callable[[Medians], float]:
    """How many times faster `fast` is than `slow`, by median seconds."""
    return lambda medians: medians(slow, figure) / medians(fast, figure)


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that was asked for: `value` of the medians compared with `wanted`, such as ">= 150".

    quick: whether the smaller version of `--quick` can judge it. why: why it is not judged, where that is known.
    """

    name: str
    wanted: str
    value: Callable[[Medians], float]
    unit: str = ""
    quick: bool = True
    why: str = ""

    def __post_init__(self) -> None:
        _condition(self.wanted)

    def judge(self, medians: Medians, *, quick: bool = False) -> Outcome:
        """The bar's outcome: unjudged where a figure is missing or the value is not finite."""
        value = math.nan
        medians.read.clear()
        if self.quick or not quick:
            with contextlib.suppress(Missing):
                value = self.value(medians)
        if not math.isfinite(value):
            return Outcome(self.name, self.wanted, self.unit, None, "unjudged", why=self.why)
        comparison, limit = _condition(self.wanted)
        verdict: Verdict = "met" if comparison(value, limit) else "short"
        carried = tuple(f"{name} of {date}" for name, date in medians.committed.items() if name in medians.read)
        return Outcome(self.name, self.wanted, self.unit, value, verdict, carried)


def _condition(wanted: str) -> tuple[Callable[[float, float], bool], float]:
    parts = re.fullmatch(r"(>=|<=|>|<) ?(-?[\d.]+(?:e-?\d+)?)", wanted)
    if parts is None:
        raise ValueError(f"a bar wants {wanted!r}; expected a comparison with a number, such as '>= 150'")
    return COMPARISONS[parts[1]], float(parts[2])


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A measurement: who is measured, and what was asked for."""

    name: str
    contestants: tuple[Contestant, ...]
    bars: tuple[Bar, ...]

    def main(self, argv: Sequence[str] | None = None) -> int:
        """The command: measures, prints, writes the result file; returns the exit status."""
        args = _parser(self).parse_args(argv)
        # Part of a measurement never replaces the whole one's result file.
        part = args.quick or bool(args.only)
        console = Console(stderr=True)
        measured = {c.name: _seeds(c, quick=args.quick, only=args.only) for c in self.contestants}
        pythons = {c.name: interpreter(c, args.peer_python) for c in self.contestants}
        absent = [c for c in self.contestants if measured[c.name] and not pythons[c.name].exists()]
        for contestant in absent:
            console.print(
                f"{contestant.name}: no environment; build it: python -m benchmarks.harness setup {contestant.peer}"
            )
            measured[contestant.name] = ()
        if absent and not part:
            return 2
        repetitions = self._measure(measured, pythons, quick=args.quick, core=args.core, console=console)
        date, stored = committed(self.name, this_machine(), folder=args.results) if part else ("", {})
        carried = {name: stored[name] for name, seeds in measured.items() if not seeds and name in stored}
        medians = Medians({**repetitions, **carried}, committed=dict.fromkeys(carried, date))
        outcomes = [bar.judge(medians, quick=args.quick) for bar in self.bars]
        path = result_path(self.name, part=part, folder=args.results)
        write(path, name=self.name, quick=args.quick, measured=repetitions, carried=carried, outcomes=outcomes)
        Console().print(figures_table(self.name, self.contestants, {**repetitions, **carried}, carried=set(carried)))
        for outcome in outcomes:
            print(outcome.line())
        return 1 if any(r.error and not r.figures for many in repetitions.values() for r in many) else 0

    def _measure(
        self,
        seeds: Mapping[str, Sequence[int]],
        pythons: Mapping[str, Path],
        *,
        quick: bool,
        core: int,
        console: Console,
    ) -> dict[str, list[Repetition]]:
        """Every repetition, turn by turn: each contestant's first, then each one's second, and so on."""
        done: dict[str, list[Repetition]] = {name: [] for name, wanted in seeds.items() if wanted}
        for turn in range(max(map(len, seeds.values()), default=0)):
            for contestant in self.contestants:
                if turn >= len(seeds[contestant.name]):
                    continue
                seed = seeds[contestant.name][turn]
                repetition = measure(contestant, python=pythons[contestant.name], core=core, seed=seed, quick=quick)
                done[contestant.name].append(repetition)
                wall = repetition.figures.get("wall seconds", math.nan)
                console.print(f"{contestant.name}, seed {seed}: {wall:.1f} s {repetition.error or ''}")
        return done


def _parser(benchmark: Benchmark) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{benchmark.name}")
    parser.add_argument("--quick", action="store_true", help="a smaller version, about a minute")
    names = [c.name for c in benchmark.contestants]
    parser.add_argument("--only", nargs="+", choices=names, default=(), help="measure these; others as committed")
    parser.add_argument(
        "--peer-python", action="append", default=[], metavar="[PEER=]PATH", help="a peer's interpreter"
    )
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core that workers run on")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results", help="folder of result files")
    return parser


def _seeds(contestant: Contestant, *, quick: bool, only: Sequence[str]) -> tuple[int, ...]:
    if only and contestant.name not in only:
        return ()
    return contestant.quick_seeds if quick else contestant.seeds


def interpreter(contestant: Contestant, given: Sequence[str]) -> Path:
    """The last fitting `--peer-python`, otherwise the peer's own environment; this interpreter where there is no peer."""
    for entry in reversed(given) if contestant.peer else ():
        peer, found, path = entry.rpartition("=")
        if not found or peer == contestant.peer:
            return Path(path).absolute()
    return python_of(contestant.peer)


def python_of(peer: str | None) -> Path:
    """The interpreter of a peer's environment, built or not; this one where there is no peer."""
    return PEERS / peer / ".venv" / "bin" / "python" if peer else Path(sys.executable)


def figures_table(
    title: str,
    contestants: Sequence[Contestant],
    repetitions: Mapping[str, Sequence[Repetition]],
    *,
    carried: Collection[str] = (),
) -> Table:
    """Every figure of every contestant, with its median and spread."""
    table = Table("contestant", "figure", "median", "least", "most", "runs", title=title)
    for contestant in contestants:
        many = repetitions.get(contestant.name, ())
        name = contestant.name + (" (committed)" if contestant.name in carried else "")
        for figure in dict.fromkeys(figure for r in many for figure in r.figures):
            values = [r.figures[figure] for r in many if figure in r.figures]
            numbers = (f"{v:.4g}" for v in (statistics.median(values), min(values), max(values)))
            table.add_row(name, figure, *numbers, str(len(values)))
            name = ""
    return table


def setup(peer: str) -> None:
    """Builds the environment of a peer in benchmarks/peers/PEER/.venv: its requirements.txt, where there is an NVIDIA GPU its
    requirements-cuda.txt, and its build.py, if it has them."""
    folder = PEERS / peer
    venv.create(folder / ".venv", with_pip=True, clear=True)
    python = folder / ".venv" / "bin" / "python"
    files = [folder / "requirements.txt"]
    if (folder / "requirements-cuda.txt").exists() and shutil.which("nvidia-smi"):
        files.append(folder / "requirements-cuda.txt")
    for file in files:
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", file], check=True)
    if (folder / "build.py").exists():
        subprocess.run([python, folder / "build.py"], check=True)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m benchmarks.harness setup PEER [PEER ...]`."""
    known = sorted(path.parent.name for path in PEERS.glob("*/requirements.txt"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harness")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("setup", help="build the environment of peers")
    command.add_argument("peers", nargs="+", choices=known)
    for peer in parser.parse_args(argv).peers:
        setup(peer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
