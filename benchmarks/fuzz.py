"""Mutated inputs: what becomes of files, command lines and requests that are not as Ludus, or its user, writes them.

    python -m benchmarks.fuzz --minutes M --seed N     10,000 inputs of each kind through its parser, 500 through commands
    python -m benchmarks.fuzz --only policy,parquet    some kinds
    python -m benchmarks.fuzz --case policy:17         one input again, with what became of it

Right is an answer, or an error of Ludus in one line without control characters. A fault is a traceback, a hang, a death, a file outside of
the run, or memory taken on a header's word: address space beyond 192 MiB and 64 bytes for each byte of the input.

Prints a table, writes benchmarks/results/fuzz.json (fuzz.quick.json for a part) and prints a line a bar. Exit status 1 for a fault.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from benchmarks.contestants import Repetition
from benchmarks.machine import ROOT
from benchmarks.results import Outcome, result_path, write

PARSED, COMMANDS, APART = 10_000, 500, 2
"""Inputs of each kind through its parser, through commands in a child, and through processes."""
STUCK = 300.0
"""Seconds without another input after which a worker is stuck; its imports are among them."""
RESULTS = ROOT / "benchmarks" / "results"
ROUNDS = (0.05, 0.3, 1.0)
"""Shares of the inputs after which the next kind comes."""
WAYS = ("parser", "command", "process")
FAULTS = ("traceback", "hang", "died", "memory", "outside", "message", "wrong")


@dataclass(slots=True)
class Count:
    """Verdicts on the inputs of a kind in one way, and examples of faults."""

    verdicts: Counter[str] = field(default_factory=Counter)
    faults: dict[str, list[int]] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, other: Count) -> None:
        """Add what became of further inputs."""
        self.verdicts += other.verdicts
        self.seconds += other.seconds
        for verdict, cases in other.faults.items():
            self.faults.setdefault(verdict, []).extend(cases)

    @property
    def inputs(self) -> int:
        return sum(self.verdicts.values())

    @property
    def wrong(self) -> int:
        return sum(self.verdicts[name] for name in FAULTS)


# --------------------------------------------------------------------------------------------------------------------
# In a process of its own: many inputs, a line each.


def work(name: str, way: str, first: int, last: int, home: Path) -> None:
    """Judge the inputs `first` to `last` - 1 of a kind, and write a line for each into the folder."""
    from benchmarks import fuzz_commands
    from benchmarks.fuzz_judge import Verdict, judge, own_temporary_files
    from benchmarks.fuzz_kinds import KINDS, case, fill, remember_seeds

    kind, box, aside = remember_seeds(KINDS[name]), home / "box", home / "work"
    aside.mkdir(exist_ok=True)
    fill(box)
    os.chdir(box)
    own_temporary_files(box)
    for seed in kind.seeds()[:5]:  # what is imported, compiled or started by the first input is no input's memory
        kind.place(seed, box)
        with suppress(Exception):
            kind.parse(box)
    with (home / "verdicts").open("a", encoding="utf-8") as out:

        def note(number: int, verdict: Verdict) -> None:
            out.write(f"{number}\t{verdict.kind}\t{verdict.detail!r}\n")
            out.flush()

        if name == "request" and way != "parser":
            fuzz_commands.serve_and_ask([(k, case(kind, k, aside)) for k in range(first, last)], box, note)
            return
        for number in range(first, last):
            (home / "current").write_text(str(number), encoding="ascii")
            data = case(kind, number, aside)
            if way == "parser":
                kind.place(data, box)
                note(
                    number,
                    judge(
                        lambda: kind.parse(box),
                        len(data),
                        box,
                        stranger=kind.stranger,
                        allowance=kind.allowance,
                    ),
                )
                continue
            words = fuzz_commands.line_of(kind, data, Random(f"line:{number}"))
            run = fuzz_commands.run_forked if way == "command" else fuzz_commands.run_apart
            note(number, Verdict("refused", "not run") if words is None else run(kind, data, words, box))


# --------------------------------------------------------------------------------------------------------------------
# The campaign.


def examine(name: str, way: str, first: int, last: int, until: float, details: dict[str, str]) -> Count:
    """Return the verdicts on inputs, from processes that are begun again after one that died or was stuck. details: is added the detail of
    each fault, by KIND:NUMBER."""
    count, begin = Count(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as folder:
        home, number = Path(folder), first
        while number < last and time.monotonic() < until:
            number = _one_process(name, way, number, last, home, until)
        for line in _lines(home):
            case, verdict, detail = line.split("\t", 2)
            count.verdicts[verdict] += 1
            if verdict in FAULTS:
                count.faults.setdefault(verdict, []).append(int(case))
                details[f"{name}:{case}"] = f"{way}: {verdict}: {detail}"
        for path in home.rglob("*"):  # what an input forbade
            with suppress(OSError):
                path.chmod(0o700)
        shutil.rmtree(home / "box", ignore_errors=True)
    count.seconds = time.monotonic() - begin
    return count


def _lines(home: Path) -> Iterator[str]:
    path = home / "verdicts"
    return iter(path.read_text(encoding="utf-8").splitlines()) if path.exists() else iter(())


def _in_child(name: str, way: str, first: int, last: int, home: Path) -> None:
    code = 1
    try:
        os.setsid()
        log = os.open(home / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        work(name, way, first, last, home)
        code = 0
    except BaseException:  # noqa: BLE001  the log says what
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _one_process(name: str, way: str, first: int, last: int, home: Path, until: float) -> int:
    """Run one process; return the number of the input to go on with."""
    child = os.fork()  # of a process in which everything is imported
    if not child:
        _in_child(name, way, first, last, home)
    seen, changed, verdict, status = -1, time.monotonic(), "", 0
    while not verdict:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.1)
        size = (home / "verdicts").stat().st_size if (home / "verdicts").exists() else 0
        if size != seen:
            seen, changed = size, time.monotonic()
        if time.monotonic() - changed > STUCK:
            verdict = "hang"
        elif time.monotonic() > until:
            verdict = "over"
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    if verdict:
        os.waitpid(child, 0)
    judged = max((int(line.partition("\t")[0]) for line in _lines(home)), default=first - 1)
    if verdict == "over" or (not verdict and status == 0):
        return last
    said = (home / "log").read_text(encoding="utf-8", errors="replace").strip()[-300:]
    with (home / "verdicts").open("a", encoding="utf-8") as out:
        out.write(f"{judged + 1}\t{verdict or 'died'}\t{f'status {status}: {said}'!r}\n")
    return judged + 2


def show(name: str, number: int) -> int:
    """Print an input, and what becomes of it in each way."""
    from benchmarks.fuzz_kinds import KINDS, case

    with tempfile.TemporaryDirectory() as folder:
        data = case(KINDS[name], number, Path(folder))
    print(f"{len(data)} bytes: {data[:2000]!r}", flush=True)
    wrong = 0
    for way in WAYS[:2]:
        details: dict[str, str] = {}
        count = examine(name, way, number, number + 1, time.monotonic() + 600, details)
        wrong += count.wrong
        print(f"{way}: {', '.join(count.verdicts)} {' '.join(details.values())}", flush=True)
    return 1 if wrong else 0


def campaign(
    kinds: Sequence[str], seed: int, minutes: float, counts: tuple[int, int, int]
) -> dict[str, dict[str, Count]]:
    """Return verdicts by kind and way, in rounds, so that each kind has its share of the minutes."""
    until, out, details = time.monotonic() + 60 * minutes, dict[str, dict[str, Count]](), dict[str, str]()
    parts = [
        (name, way, most) for name in kinds for way, most in zip(WAYS, counts, strict=True) if _has(name, way) and most
    ]
    for before, share in pairwise((0.0, *ROUNDS)):
        for name, way, most in parts:
            first, last = (seed * 1_000_000 + math.ceil(part * most) for part in (before, share))
            if first < last and time.monotonic() < until:
                count = examine(name, way, first, last, until, details)
                out.setdefault(name, {}).setdefault(way, Count()).add(count)
                print(f"{name}: {way}: {dict(count.verdicts)} in {count.seconds:.0f} s", flush=True)
    for case, detail in details.items():
        print(f"fault {case}: {detail[:600]}", flush=True)
    return out


def _has(name: str, way: str) -> bool:
    from benchmarks.fuzz_kinds import KINDS

    return way == "parser" or (bool(KINDS[name].commands) and not (name == "request" and way == "process"))


def outcomes(counted: dict[str, dict[str, Count]], counts: tuple[int, int, int]) -> list[Outcome]:
    """Return the bars: no faults, and as many inputs as were wanted."""
    every = [count for ways in counted.values() for count in ways.values()]
    faults = sum(count.wrong for count in every)
    least = {way: [ways[way].inputs for ways in counted.values() if way in ways] for way in WAYS}
    bars = [Outcome("fuzz faults", "<= 0", "", float(faults), "met" if not faults else "short")]
    for way, wanted in zip(WAYS[:2], counts, strict=False):
        value = min(least[way], default=0)
        bars.append(
            Outcome(
                f"fuzz inputs of a kind, {way}", f">= {wanted}", "", float(value), "met" if value >= wanted else "short"
            )
        )
    return bars


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign, one input, or a worker of it."""
    from benchmarks.fuzz_kinds import KINDS, warm

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after these")
    parser.add_argument("--seed", type=int, default=0, help="other inputs for another number")
    parser.add_argument("--only", metavar="KIND,…", help=f"of {', '.join(KINDS)}")
    parser.add_argument(
        "--inputs",
        type=int,
        nargs=3,
        default=(PARSED, COMMANDS, APART),
        metavar="N",
        help="through parser, command, process",
    )
    parser.add_argument("--case", metavar="KIND:NUMBER", help="one input again")
    options = parser.parse_args(argv)
    os.environ["OMP_NUM_THREADS"] = "1"
    warm()
    if options.case:
        name, _, number = options.case.partition(":")
        return show(name, int(number))
    kinds, counts = options.only.split(",") if options.only else list(KINDS), tuple(options.inputs)
    counted = campaign(kinds, options.seed, options.minutes, counts)
    judged = outcomes(counted, (PARSED, COMMANDS, APART))
    table = Table("kind", "way", "inputs", "answers", "refused", "faults", "seconds")
    for name, ways in counted.items():
        for way, count in ways.items():
            numbers = (
                count.inputs,
                count.verdicts["answer"],
                count.verdicts["refused"],
                count.wrong,
                round(count.seconds),
            )
            table.add_row(name, way, *map(str, numbers))
    Console().print(table)
    measured = {
        f"{name}: {way}": [
            Repetition(
                options.seed,
                {
                    "inputs": c.inputs,
                    "answers": c.verdicts["answer"],
                    "refused": c.verdicts["refused"],
                    "faults": c.wrong,
                    "seconds": c.seconds,
                },
            )
        ]
        for name, ways in counted.items()
        for way, c in ways.items()
    }
    part = options.only is not None
    write(
        result_path("fuzz", part=part, folder=RESULTS),
        name="fuzz",
        quick=part,
        measured=measured,
        carried={},
        outcomes=judged,
    )
    for outcome in judged:
        print(outcome.line(), flush=True)
    return 1 if any(count.wrong for ways in counted.values() for count in ways.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
