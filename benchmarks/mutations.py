"""Mutation testing: deliberate one-line faults, one at a time, and whether the tests notice.

    python -m benchmarks.mutations [--only FAULT ...] [--stages near package all slow] [--workers N] [--tree PATH --label NAME]

The faults are in `mutations.yaml`: each is a snippet of `ludus/` that stands there once, and what a mistake would make of it. A copy of
the tree gets one fault, and tests are run until the first that fails, in stages: `near`, the test files that the fault names; `package`,
the other fast tests of its package; `all`, the other fast tests; `slow`, the slow tests of its package. A failing test counts only if it
fails again and passes in the same copy without the fault. The next run goes on where the last one stopped (a result file that is removed is
made anew); `--tree` plays the same faults on another checkout, and keeps what came of them under its label.

Prints a table of what was silent, writes benchmarks/results/mutations/LABEL.json after every fault, and prints a line a bar. Exit status 1
if a fault was silent in every stage.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.machine import ROOT, commit, this_machine, today
from benchmarks.results import Outcome

FAULTS = Path(__file__).with_suffix(".yaml")
STAGES = ("near", "package", "all", "slow")
NOW, BEFORE = "now", "before"
LIMIT = 3600.0
"""Seconds for the tests of a stage. A fault by which they hang longer is noticed too."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_PASSED = re.compile(r"^PASSED (.+)$", re.MULTILINE)
_IMPORT = re.compile(r"^\s*(?:from|import) (ludus[\w.]*)(?: import (\([^)]*\)|[^\n]*))?", re.MULTILINE)
_OWN = "test_mutations.py"  # it looks for the snippets, which a fault takes away


@dataclass(frozen=True, slots=True)
class Fault:
    """name: what is wrong. find, replace: the snippet, and what stands there instead; was: the same two as earlier trees have them, where
    names have changed. near: test files to try first."""

    name: str
    package: str
    find: str
    replace: str
    was: tuple[str, str] | None = None
    near: tuple[str, ...] = ()

    def made(self, sources: Mapping[Path, str]) -> tuple[Path, str]:
        """(the source that has the snippet, its text with the fault). Raises LookupError unless one source has it, once."""
        for find, instead in ((self.find, self.replace), *([self.was] if self.was else ())):
            having = [path for path, text in sources.items() if find in text]
            if len(having) == 1 and sources[having[0]].count(find) == 1:
                return having[0], sources[having[0]].replace(find, instead)
        times = sum(text.count(self.find) for text in sources.values())
        raise LookupError(f"the snippet of {self.name!r} must stand in ludus/ once, and stands there {times} times.")


@dataclass(frozen=True, slots=True)
class Faults:
    """folders: by package, the folders of its tests, those of earlier trees too."""

    folders: Mapping[str, tuple[str, ...]]
    faults: tuple[Fault, ...]

    @staticmethod
    def read() -> Faults:
        """The committed list."""
        document = yaml.safe_load(FAULTS.read_text(encoding="utf-8"))
        fields: list[dict[str, Any]] = [
            {key: tuple(v) if isinstance(v, list) else v for key, v in fault.items()} for fault in document["faults"]
        ]
        folders = {package: tuple(names) for package, names in document["folders"].items()}
        return Faults(folders, tuple(Fault(**fault) for fault in fields))


def sources(tree: Path) -> dict[Path, str]:
    """The text of every module of a checkout's `ludus/`."""
    return {path: path.read_text(encoding="utf-8") for path in sorted((tree / "ludus").rglob("*.py"))}


def users(module: Path, texts: Mapping[Path, str], tree: Path) -> set[Path]:
    """The module, and those that import it, directly or through others."""
    names = {".".join(path.relative_to(tree).with_suffix("").parts): path for path in texts}
    imports = {}
    for path, text in texts.items():
        found = _IMPORT.findall(text)
        imports[path] = {
            names.get(name)
            for package, what in found
            for name in (package, *(f"{package}.{n}" for n in re.findall(r"\w+", what)))
        }
    known, new = set[Path](), {module}
    while new:
        known |= new
        new = {path for path, used in imports.items() if used & new} - known
    return known


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a fault so far. commit: of the checkout. near: as the fault had them. stages: those that were played. by: the first
    failing test of the last of them, `timeout`, or `no start` where pytest itself could not work; empty: none noticed it."""

    name: str
    package: str
    commit: str = ""
    near: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    by: str = ""
    seconds: float = 0.0

    @property
    def silent(self) -> bool:
        """Whether no stage noticed it."""
        return not self.by and self.stages == STAGES


class Log:
    """The verdicts on one tree, by name of the fault, and the tests that fail there without one or now and then (`spoilt`); kept in a file.
    passed: tests that have passed there since the start."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self.verdicts: dict[str, Verdict] = {}
        self.spoilt: list[str] = []
        self.passed: set[str] = set()
        if path.exists():
            document = json.loads(path.read_text(encoding="utf-8"))
            self.spoilt = document["spoilt"]
            lists = ("near", "stages")
            known = (Verdict(**{**v, **{key: tuple(v[key]) for key in lists}}) for v in document["verdicts"])
            self.verdicts = {verdict.name: verdict for verdict in known}

    def write(self, verdict: Verdict) -> None:
        """Keep a verdict."""
        with self._lock:
            self.verdicts[verdict.name] = verdict
            document = {
                "benchmark": "mutations",
                "date": today(),
                "machine": this_machine().as_json(),
                "spoilt": list(self.spoilt),
                "verdicts": [asdict(verdict) for verdict in self.verdicts.values()],
            }
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


class Copy:
    """A copy of a checkout, for one process of tests at a time."""

    def __init__(self, checkout: Path, folder: Path, folders: Mapping[str, tuple[str, ...]], log: Log) -> None:
        self._tree, self._caches, self._temporary = folder / "tree", folder / "caches", folder / "t"
        self._folders, self._log, self._commit = folders, log, commit(checkout)
        listed = ["git", "-C", str(checkout), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0"):
            if name and (checkout / name).is_file():
                (self._tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(checkout / name, self._tree / name)

    def play(self, fault: Fault, verdict: Verdict, stages: Sequence[str]) -> Verdict:
        """The verdict after those of `stages`, in order, that were not played before on the same checkout."""
        begun = time.monotonic()
        if (verdict.commit, verdict.near) != (self._commit, fault.near):
            verdict = Verdict(fault.name, fault.package, self._commit, fault.near)
        for stage in (stage for stage in STAGES if stage in stages and stage not in verdict.stages):
            by = self._first_failure(fault, self._files(fault, stage), slow=stage == "slow")
            verdict = replace(verdict, stages=(*verdict.stages, stage), by=by)
            if by:
                break
        return replace(verdict, seconds=round(verdict.seconds + time.monotonic() - begun, 1))

    def _files(self, fault: Fault, stage: str) -> list[str]:
        """Test files: each in one of the fast stages."""
        tests = self._tree / "tests"
        every = [path for path in sorted(tests.rglob("test_*.py")) if path.name != _OWN]
        near = [path for name in fault.near for path in every if path.name == name]
        own = {tests / name for name in self._folders[fault.package]}
        package = [path for path in every if own & {path, *path.parents}]
        chosen = {
            "near": near,
            "package": [path for path in package if path not in near],
            "all": [path for path in every if path not in near and path not in package],
            "slow": [*near, *(path for path in package if path not in near)],
        }
        return [str(path.relative_to(self._tree)) for path in chosen[stage]]

    def _first_failure(self, fault: Fault, files: Sequence[str], *, slow: bool) -> str:
        """The first test that fails with the fault and passes without; empty: none."""
        while files:
            spoilt = [f"--deselect={test}" for test in self._log.spoilt]
            with self._faulty(fault) as caches:
                failed = self._pytest([*files, *spoilt], slow=slow, caches=caches)
            if failed in ("", "timeout", "no start"):
                return failed
            if self._passes(failed, slow=slow) and self._fails(fault, failed, slow=slow):
                return failed
            if failed in self._log.spoilt or "::" not in failed:
                raise SystemExit(f"{failed} fails without the fault too, or now and then, and cannot be left out.")
            self._log.spoilt.append(failed)
        return ""

    def _passes(self, test: str, *, slow: bool) -> bool:
        """Whether it passes without a fault; of a file that it can be collected. One that has passed beside some fault does."""
        arguments = [test] if "::" in test else [test, "--collect-only"]
        return test in self._log.passed or not self._pytest(arguments, slow=slow, caches=self._caches)

    def _fails(self, fault: Fault, test: str, *, slow: bool) -> bool:
        """Whether it fails again: one that fails now and then has noticed nothing."""
        with self._faulty(fault) as caches:
            return bool(self._pytest([test], slow=slow, caches=caches))

    @contextmanager
    def _faulty(self, fault: Fault) -> Iterator[Path]:
        """The tree with the fault; answers the folder of compiled kernels. Numba does not see that a kernel calls another one that has
        changed, so what was compiled with the changed module is left out, and is not kept afterwards."""
        texts = sources(self._tree)
        path, faulty = fault.made(texts)
        changed = [f"{m.parent.name}_*/{m.stem}.*" for m in users(path, texts, self._tree)]
        stat, caches = path.stat(), self._caches.with_name("faulty")
        self._caches.mkdir(exist_ok=True)
        shutil.copytree(self._caches, caches)
        _remove(caches, changed)
        path.write_text(faulty, encoding="utf-8")
        try:
            yield caches
        finally:
            path.write_text(texts[path], encoding="utf-8")
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # Python and Numba compile again what is newer
            _remove(caches, changed)
            shutil.copytree(caches, self._caches, dirs_exist_ok=True)
            shutil.rmtree(caches)

    def _pytest(self, arguments: Sequence[str], *, slow: bool, caches: Path) -> str:
        """The first failing test; `timeout`; `no start`; empty: none. Tells the log what passes."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "slow" if slow else "not slow", "--no-header"]
        command += ["-p", "no:cacheprovider", "-p", "no:xdist", "-rfEp", "--tb=no", f"--basetemp={self._temporary}"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(self._tree),
            "NUMBA_CACHE_DIR": str(caches),
            "OMP_NUM_THREADS": "1",
        }
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out:
            process = subprocess.Popen(
                [*command, *arguments],
                cwd=self._tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                return "timeout"
            finally:
                with suppress(ProcessLookupError):  # what a test has left is ended too
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                shutil.rmtree(self._temporary, ignore_errors=True)
            out.seek(0)
            shown = out.read()
        failed = _FAILED.search(shown)
        self._log.passed.update(_PASSED.findall(shown))
        if status in (0, 5):  # all passed; none was there
            return ""
        return failed[1] if failed else "no start"


def _remove(folder: Path, patterns: Sequence[str]) -> None:
    for pattern in patterns:
        for path in folder.glob(pattern):
            path.unlink()


def play(
    faults: Faults, chosen: Sequence[Fault], *, checkout: Path, log: Log, stages: Sequence[str], workers: int
) -> None:
    """Play faults on copies of a checkout."""
    console = Console(stderr=True)
    folder = Path(tempfile.mkdtemp(prefix="lm-", dir="/tmp"))  # short: Ray's sockets lie below
    copies: SimpleQueue[Copy] = SimpleQueue()

    def one(fault: Fault) -> None:
        before = log.verdicts.get(fault.name, Verdict(fault.name, fault.package))
        if before.by or before.silent:
            return
        copy = copies.get()
        try:
            verdict = copy.play(fault, before, stages)
        finally:
            copies.put(copy)
        log.write(verdict)
        console.print(
            f"{fault.package}: {fault.name}: {verdict.by or 'silent'} ({verdict.seconds:.0f} s)",
            markup=False,
            soft_wrap=True,
        )

    try:
        for k in range(workers):
            copies.put(Copy(checkout, folder / str(k), faults.folders, log))
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(one, chosen))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def outcomes(faults: Sequence[Fault], now: Log, before: Log) -> list[Outcome]:
    """The bars: nothing is silent; and of the faults that have a verdict on both trees, as many are caught as before."""
    judged = [_judged(fault, now) for fault in faults]
    both = [(a, b) for a, b in zip(judged, (_judged(f, before) for f in faults), strict=True) if a and b]
    silent = float(sum(v.silent for v in judged if v)) if all(judged) else None
    caught = float(sum(bool(a.by) for a, _ in both) - sum(bool(b.by) for _, b in both)) if both else None
    return [
        Outcome("faults that no test notices", "<= 0", "", silent, _met(silent is None, silent == 0)),
        Outcome("faults noticed, more than before", ">= 0", "", caught, _met(caught is None, (caught or 0) >= 0)),
    ]


def _judged(fault: Fault, log: Log) -> Verdict | None:
    verdict = log.verdicts.get(fault.name)
    return verdict if verdict and (verdict.by or verdict.silent) else None


def _met(unjudged: bool, met: bool) -> Literal["met", "short", "unjudged"]:
    return "unjudged" if unjudged else "met" if met else "short"


def table(faults: Faults, logs: Mapping[str, Log]) -> Table:
    """A row a package and tree: how many faults there are, and which stage noticed them."""
    shown = Table("package", "tree", "faults", *STAGES, "silent", "not decided", title="mutations")
    for package in [*faults.folders, "all"]:
        listed = [fault for fault in faults.faults if package in (fault.package, "all")]
        for label, log in logs.items():
            if not log.verdicts:
                continue
            verdicts = [verdict for fault in listed if (verdict := log.verdicts.get(fault.name))]
            noticed = [sum(bool(v.by) and v.stages[-1] == stage for v in verdicts) for stage in STAGES]
            silent = sum(v.silent for v in verdicts)
            numbers = (len(listed), *noticed, silent, len(listed) - sum(noticed) - silent)
            shown.add_row(package, label, *map(str, numbers))
    return shown


def main(argv: Sequence[str] | None = None) -> int:
    faults = Faults.read()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutations")
    parser.add_argument("--only", nargs="+", default=(), metavar="FAULT", help="names of faults, or of packages")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES, help="default: all of them, in order")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--tree", type=Path, default=ROOT, help="another checkout to play on")
    parser.add_argument("--label", default=NOW, help=f"whose results these are: {NOW!r}, or {BEFORE!r} with --tree")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results" / "mutations", help="folder")
    args = parser.parse_args(argv)
    chosen = [f for f in faults.faults if not args.only or f.name in args.only or f.package in args.only]
    if unknown := set(args.only) - {f.name for f in chosen} - {f.package for f in chosen}:
        parser.error(f"unknown fault or package {min(unknown)!r}")
    logs = {label: Log(args.results / f"{label}.json") for label in dict.fromkeys((NOW, BEFORE, args.label))}
    play(faults, chosen, checkout=args.tree, log=logs[args.label], stages=args.stages, workers=args.workers)
    Console().print(table(faults, logs))
    for fault in faults.faults:
        for label, log in logs.items():
            if fault.name in log.verdicts and log.verdicts[fault.name].silent:
                print(f"silent {label}: {fault.package}: {fault.name}")
    for outcome in outcomes(faults.faults, logs[NOW], logs[BEFORE]):
        print(outcome.line())
    return int(any(v.silent for f in chosen if (v := logs[args.label].verdicts.get(f.name))))


if __name__ == "__main__":
    sys.exit(main())
