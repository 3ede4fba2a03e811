"""Do two commits compute the same numbers? Records small runs of every algorithm on both, on this machine, and compares the bits.

    make traces BASE=COMMIT [ONLY="ppo dqn"]
    python -m benchmarks.traces BASE [--only ALGORITHM ...] [--again]

Every algorithm of `traces.yaml` × {CPU kernels, autograd} × {one process, two processes, killed and resumed}. Compared are the weights of
every policy, metrics and curves without clocks, payoff tables, the match log with its statistics, and what the schedule did (generations,
tasks, opponents, ratings). A commit is checked out into a temporary folder; its recording is kept below `build/traces/`, under the hash of
its package, this machine and these settings, until --again. With changes of the package that are not committed, the present tree is
recorded as it stands. Bits are compared between two programs, on one machine, because both are meant to be the same program: after a
rename, a move, a split.

Prints what differs and what does not exist. Exit status: 0 all equal, 1 a difference or a run that failed, 2 when it could not start.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.machine import ROOT, this_machine

SETTINGS = Path(__file__).with_suffix(".yaml")
WORKER = Path(__file__).with_name("traces_worker.py")
CACHE = ROOT / "build" / "traces"
BACKENDS, WAYS = ("kernels", "autograd"), ("one", "two", "killed")
CHILDREN = 2
LIMIT = 900.0  # seconds for one algorithm
LIST = """
import sys
from importlib.metadata import entry_points
sys.argv[:] = ["ludus", "list", "algorithms"]
entry_points(group="console_scripts", name="ludus")["ludus"].load()()
"""  # the command, of the tree that comes first on PYTHONPATH
LIBRARIES = ("torch", "numba", "numpy", "scipy", "gymnasium")

Cell = dict[str, Any]
Recording = dict[str, Cell]
"""cell, ALGORITHM/ROAD/WAY -> what the worker says of it."""


# ------------------------------------------------------------------------------------------ what is run


def merged(*mappings: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings as one: later values win, and mappings within are merged likewise."""
    out: dict[str, Any] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            old = out.get(key)
            out[key] = merged(old, value) if isinstance(value, dict) and isinstance(old, dict) else value
    return out


def cells_of(name: str, settings: Mapping[str, Any]) -> list[Cell]:
    """What is run of one algorithm, those without a kill first."""
    entry = settings["algorithms"][name]
    algorithm = {"algorithm": {"kind": name, **entry["settings"]}}
    base = merged(settings["everywhere"], settings["tasks"][entry["task"]], algorithm)
    two = {"runtime": {"kind": "processes", "workers": 2}}
    backends = (entry["only"],) if "only" in entry else BACKENDS
    cells = []
    for backend in backends:
        lower = {"runtime": {"precision": "bf16"}} if backend == "autograd" and len(backends) > 1 else {}
        for way in WAYS:
            scenario = merged(base, lower, two if way == "two" else {})
            cells.append(
                {"name": f"{name}/{backend}/{way}", "way": way, "whole": f"{name}/{backend}/one", "scenario": scenario}
            )
    return cells


def absent(settings: Mapping[str, Any]) -> dict[str, str]:
    """ALGORITHM/ROAD -> why there is none."""
    out = {}
    for name, entry in settings["algorithms"].items():
        if "only" in entry:
            (other,) = set(BACKENDS) - {entry["only"]}
            out[f"{name}/{other}"] = entry["because"]
    return out


# ------------------------------------------------------------------------------------------ recording


def record(tree: Path, names: Sequence[str], settings: Mapping[str, Any], what: str) -> Recording:
    """Runs the cells of these algorithms on a tree, two algorithms at a time."""
    there = registered(tree)
    cells: Recording = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(CHILDREN) as pool:
        begin = time.monotonic()
        present = [name for name in names if name in there]
        jobs = [pool.submit(record_algorithm, tree, name, cells_of(name, settings), Path(folder)) for name in present]
        for at, (name, job) in enumerate(zip(present, jobs, strict=True), 1):
            answers = job.result()
            cells |= answers
            failed = sum("error" in cell for cell in answers.values())
            note = f", {failed} failed" if failed else ""
            print(
                f"{what}: {at}/{len(present)} {name}: {len(answers)} runs{note} ({time.monotonic() - begin:.0f} s)",
                flush=True,
            )
    for name in set(names) - there:
        cells |= {cell["name"]: {"absent": f"{what} has no algorithm {name}"} for cell in cells_of(name, settings)}
    return cells


def record_algorithm(tree: Path, name: str, cells: Sequence[Cell], folder: Path) -> Recording:
    """Runs the cells of one algorithm in a process with the tree's Ludus; raises RuntimeError where it cannot be started."""
    own = folder / name
    own.mkdir()
    order = {"tree": str(tree), "folder": str(own), "cells": cells}
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(WORKER)],
            input=json.dumps(order), text=True, capture_output=True, timeout=LIMIT, cwd=own, env=environment(tree), check=False,
        )  # fmt: skip
        out, error = done.stdout, done.stderr.strip()
    except subprocess.TimeoutExpired as late:
        out, error = _text(late.stdout), f"it was not done after {LIMIT:.0f} s"
    answers = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    answered = {answer.pop("name"): answer for answer in answers}
    last = error.splitlines()[-1] if error else "it ended without a word"
    shutil.rmtree(own, ignore_errors=True)
    return {cell["name"]: {"order": order_of(cell), **answered.get(cell["name"], {"error": last})} for cell in cells}


def order_of(cell: Cell) -> str:
    """A hash of what a run is asked to do."""
    return hashlib.sha256(json.dumps(cell, sort_keys=True).encode()).hexdigest()[:12]


def _text(output: bytes | str | None) -> str:
    return output.decode() if isinstance(output, bytes) else output or ""


def environment(tree: Path) -> dict[str, str]:
    """One thread a process, and the tree's own package."""
    rest = {key: value for key, value in os.environ.items() if not key.startswith("LUDUS_")}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**rest, **threads, "PYTHONPATH": str(tree), "CUDA_VISIBLE_DEVICES": ""}


def registered(tree: Path) -> set[str]:
    """The algorithms that a tree has, as its command line lists them."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", LIST], capture_output=True, text=True, env=environment(tree), check=False
    )
    if done.returncode:
        raise SystemExit(f"`ludus list algorithms` of {tree} failed: {done.stderr.strip()[-400:]}")
    lines = done.stdout.splitlines()
    rule = next(at for at, line in enumerate(lines) if "─" in line)
    return {line.split()[0] for line in lines[rule + 1 :] if line.strip()}


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A temporary worktree of a commit, with the compiled kernels of modules that are the same here."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git("worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            warm(tree)
            yield tree
        finally:
            git("worktree", "remove", "--force", str(tree))


def warm(tree: Path) -> None:
    """Copies numba's files beside modules that are equal; they are valid for the time at which the source was changed."""
    for source in (ROOT / "ludus").rglob("*.py"):
        other = tree / source.relative_to(ROOT)
        compiled = [*(source.parent / "__pycache__").glob(f"{source.stem}.*.nb[ic]")]
        if compiled and other.is_file() and other.read_bytes() == source.read_bytes():
            when = source.stat()
            os.utime(other, ns=(when.st_atime_ns, when.st_mtime_ns))
            (other.parent / "__pycache__").mkdir(exist_ok=True)
            for file in compiled:
                shutil.copy2(file, other.parent / "__pycache__")


def git(*arguments: str) -> str:
    """What git answers; ends the program where it refuses."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def conditions() -> str:
    """A hash of what a recording depends on, beside the commit and the settings."""
    machine = [str(this_machine()), sys.version, *(f"{name} {version(name)}" for name in LIBRARIES)]
    return hashlib.sha256("\n".join(machine).encode() + WORKER.read_bytes()).hexdigest()[:12]


def load_or_record(commit: str, names: Sequence[str], settings: Mapping[str, Any], *, again: bool) -> Recording:
    """The recording of a commit: the one in the folder, with what it lacks of these algorithms."""
    file = CACHE / f"{package_of(commit)}-{conditions()}.json"
    known: Recording = json.loads(file.read_text()) if file.is_file() and not again else {}
    missing = [name for name in names if not complete(name, known, settings)]
    if not missing:
        print(f"{commit[:8]}: as it was recorded before", flush=True)
    else:
        with checkout(commit) as tree:
            known |= record(tree, missing, settings, commit[:8])
        CACHE.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(known, indent=1, sort_keys=True))
    return {cell["name"]: known[cell["name"]] for name in names for cell in cells_of(name, settings)}


def package_of(commit: str) -> str:
    """The hash of the package in a commit, which others share that change only tests or pages."""
    return git("rev-parse", f"{commit}:ludus")


def complete(name: str, known: Recording, settings: Mapping[str, Any]) -> bool:
    """Whether a recording has every run of an algorithm as it is asked for now, and none that failed."""
    cells = ((known.get(cell["name"], {}), cell) for cell in cells_of(name, settings))
    return all("error" not in has and ("absent" in has or has.get("order") == order_of(cell)) for has, cell in cells)


def record_here(base: str, names: Sequence[str], settings: Mapping[str, Any]) -> Recording:
    """The recording of the present tree: of its commit where nothing else was changed. Always anew where its package is that of BASE."""
    head = git("rev-parse", "HEAD")
    if git("status", "--porcelain", "--", "ludus") or package_of(head) == package_of(base):
        return record(ROOT, names, settings, "here")
    return load_or_record(head, names, settings, again=False)


# ------------------------------------------------------------------------------------------ comparing


def differences(base: Cell, head: Cell) -> dict[str, list[str]]:
    """group -> the parts of it that differ, or that only one has; {} where all is equal. A run that failed, or is not there in one of them,
    is a difference, too."""
    for cell, what in ((base, "base"), (head, "here")):
        for why in ("error", "absent"):
            if why in cell:
                return {} if "absent" in base and "absent" in head else {what: [cell[why].strip().splitlines()[-1]]}
    groups = sorted(base["hashes"].keys() | head["hashes"].keys())
    pairs = {group: (base["hashes"].get(group, {}), head["hashes"].get(group, {})) for group in groups}
    parts = {
        group: sorted(part for part in one.keys() | other.keys() if one.get(part) != other.get(part))
        for group, (one, other) in pairs.items()
    }
    return {group: own for group, own in parts.items() if own}


def compare(base: Recording, head: Recording, names: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """cell -> `differences`, of every cell of these algorithms."""
    cells = sorted(cell for cell in base.keys() | head.keys() if cell.partition("/")[0] in names)
    nothing: Cell = {"error": "it was not recorded"}
    return {cell: differences(base.get(cell, nothing), head.get(cell, nothing)) for cell in cells}


def disagreements(recording: Recording) -> list[str]:
    """Cells whose ways should be equal to the bit within one commit, and are not: one process, two, and a kill."""
    out = []
    for cell, answer in sorted(recording.items()):
        whole = recording.get(f"{cell.rpartition('/')[0]}/one", {})
        if "hashes" in answer and "hashes" in whole and (groups := differences(whole, answer)):
            out.append(f"{cell}: {', '.join(groups)}")
    return out


def same_backend(recording: Recording) -> list[str]:
    """Algorithms of which `traces.yaml` says that they learn by kernels and by autograd, and that learned in the same place by both."""
    places = {cell: answer.get("places") for cell, answer in recording.items()}
    both = sorted({cell.partition("/")[0] for cell in places if "/autograd/one" in cell})
    pairs = ((name, places.get(f"{name}/kernels/one"), places[f"{name}/autograd/one"]) for name in both)
    return [name for name, kernels, autograd in pairs if kernels and kernels == autograd]


def report(
    result: Mapping[str, Mapping[str, Sequence[str]]], settings: Mapping[str, Any], names: Sequence[str]
) -> None:
    """Prints a line for each algorithm and backend, and then what differs."""
    console, table = Console(width=150, highlight=False), Table("algorithm", "by", *WAYS)
    for name in names:
        for backend in BACKENDS:
            why = absent(settings).get(f"{name}/{backend}")
            cells = [result.get(f"{name}/{backend}/{way}") for way in WAYS]
            words = ["-" if cell is None else ", ".join(cell) or "equal" for cell in cells]
            table.add_row(name, backend, *([f"none: {why}", "", ""] if why else words))
    console.print(table)
    for cell, groups in result.items():
        for group, parts in groups.items():
            more = f" and {len(parts) - 5} more" if len(parts) > 5 else ""
            console.print(f"{cell}: {group}: {'; '.join(parts[:5])}{more}", markup=False, soft_wrap=True)


# ------------------------------------------------------------------------------------------ the command


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.traces", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("base", metavar="BASE", help="a commit")
    parser.add_argument("--only", nargs="+", metavar="ALGORITHM", help="by registered names")
    parser.add_argument("--again", action="store_true", help="record BASE again, although it was recorded before")
    options = parser.parse_args(argv)
    settings = yaml.safe_load(SETTINGS.read_text())
    names = options.only or sorted(settings["algorithms"])
    for name in names:
        if name not in settings["algorithms"]:
            parser.error(f"{name!r} is no algorithm of {SETTINGS.name}; these are: {', '.join(settings['algorithms'])}")
    if unknown := registered(ROOT) - settings["algorithms"].keys():
        parser.error(f"{SETTINGS.name} has no settings of {', '.join(sorted(unknown))}; add them")
    commit = git("rev-parse", "--verify", f"{options.base}^{{commit}}")
    base = load_or_record(commit, names, settings, again=options.again)
    head = record_here(commit, names, settings)
    result = compare(base, head, names)
    report(result, settings, names)
    for line in disagreements(head):
        print(f"here, not as in one process: {line}")
    for name in same_backend(head):
        print(f"here, {name} learns by the same backend with precision=bf16: say `only` in {SETTINGS.name}")
    different = sum(map(bool, result.values()))
    print(f"{len(result)} runs, {len(result) - different} equal to {commit[:8]}, {different} not")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
