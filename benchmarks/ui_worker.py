"""The worker of `benchmarks.ui`.

python -m benchmarks.ui_worker slow-down --seed 0
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lines import Lines
from benchmarks.machine import ROOT
from benchmarks.synthetic_league import League, write
from benchmarks.ui_viewers import Viewer
from ludus.apps.ui.server.address import STEER, Tokens
from ludus.apps.ui.server.known_runs import id_of
from ludus.storage.base import GenerationRecord
from ludus.storage.store import Store

_COMMAND = "import sys; from ludus.cli.main import script; script()"
_SECRET = b"of this measurement, thirty-two characters or more"
_POLICIES = 1000
_USEFUL = {
    "overview": ("#/run/{run}", "[...document.querySelectorAll('.tiles .value')].some((node) => node.textContent)"),
    "heat map": (
        "#/run/{run}/population",
        "document.querySelector('.heat canvas')?.width > 0 && document.querySelector('.heat .key')?.childElementCount > 0",
    ),
}
"""Page -> (its place, what is true as soon as it says something)."""


@dataclass(frozen=True, slots=True)
class Server:
    """`ludus ui` in a process of its own."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def cookie(self) -> str:
        """What lets a browser in."""
        return f"ludus-{self.port}={Tokens(_SECRET).of(STEER)}"

    def viewers(self, run: Path, count: int) -> list[Viewer]:
        """Of a run."""
        return [Viewer("127.0.0.1", self.port, self.cookie, id_of(run)) for _ in range(count)]

    def status(self, name: str) -> float:
        """In MB, of Linux: "VmRSS" or "VmHWM"."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))

    @property
    def processor(self) -> float:
        """Seconds that it had so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(root: Path, *, cores: set[int]) -> Iterator[Server]:
    """A server of all runs below a folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, "ui", "--no-open", "--root", str(root), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "LUDUS_UI_SECRET": _SECRET.decode()},
        cwd=ROOT,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    try:
        assert process.stdout is not None
        if not (link := process.stdout.readline().decode()):
            raise RuntimeError("the server did not start")
        yield Server(int(link.split(":")[2].partition("/")[0]), process)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


# ---------------------------------------------------------------------------------------------- slow-down


ARMS = ("alone", "another", "watched")


def slow_down(args: argparse.Namespace, lines: Lines) -> None:
    """A run on the first core, three times in each round, in an order that changes: alone; beside another run, a server and ten viewers who
    look at that other one; beside the same, with the viewers looking at it. What the last costs more than the second is what looking does
    to a run; what it costs more than the first holds what sharing a machine's memory and, often, a core's units does, too."""
    cores = sorted(os.sched_getaffinity(0))
    mine, others = {cores[0]}, {*cores[1:]} or {cores[0]}
    seconds = {arm: list[float]() for arm in ARMS}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _run(root / "warm", 1, args.seed, mine)
        for turn in range(args.pairs):
            first = (turn + args.seed) % len(ARMS)
            for arm in (*ARMS[first:], *ARMS[:first]):
                run_dir = root / f"run-{turn}-{arm}"
                with _beside(root, run_dir, arm, others, args) as answers:
                    seconds[arm].append(_run(run_dir, args.generations, args.seed, mine))
                if arm != "alone" and not answers():
                    raise RuntimeError("nobody watched")
                shutil.rmtree(run_dir)
    more = {
        arm: statistics.median(watched / other for watched, other in zip(seconds["watched"], seconds[arm], strict=True))
        for arm in ("alone", "another")
    }
    lines.figures(
        {
            "slow-down in percent": 100 * (more["another"] - 1),
            "slow-down in percent, sharing the machine included": 100 * (more["alone"] - 1),
            **{f"processor seconds, {arm}": statistics.median(seconds[arm]) for arm in ARMS},
        }
    )


@contextmanager
def _beside(
    root: Path, run_dir: Path, arm: str, cores: set[int], args: argparse.Namespace
) -> Iterator[Callable[[], int]]:
    """What an arm has beside its run; how many answers the viewers had."""
    if arm == "alone":
        yield lambda: 0
        return
    other = root / f"{run_dir.name}-other"
    process = _started(other, 100 * args.generations, args.seed, cores)
    try:
        with (
            served(root, cores=cores) as server,
            _watching(server, other if arm == "another" else run_dir, cores) as answers,
        ):
            yield answers
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(other, ignore_errors=True)


def _started(run_dir: Path, generations: int, seed: int, cores: set[int]) -> subprocess.Popen[bytes]:
    line = ["train", "leduc", f"generations={generations}", "--seed", str(seed), "--run-dir", str(run_dir)]
    return subprocess.Popen(
        [sys.executable, "-c", _COMMAND, *line],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )


def _run(run_dir: Path, generations: int, seed: int, cores: set[int]) -> float:
    """Seconds of the processor that a run and all of its processes had."""
    process = _started(run_dir, generations, seed, cores)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError("the run failed")
    return usage.ru_utime + usage.ru_stime


@contextmanager
def _watching(server: Server, run_dir: Path, cores: set[int]) -> Iterator[Callable[[], int]]:
    """Ten viewers, from the run's first moment to its last; how many answers they had."""
    viewers, over = server.viewers(run_dir, 10), threading.Event()
    failures = list[BaseException]()

    async def all_of_them() -> None:
        stop = asyncio.Event()
        looking = asyncio.gather(*(viewer.look(stop) for viewer in viewers))
        while not over.is_set() and not looking.done():
            await asyncio.sleep(0.1)
        stop.set()
        await looking

    def thread() -> None:
        os.sched_setaffinity(0, cores)
        while not over.is_set() and not (run_dir / "ludus.db").exists():
            time.sleep(0.05)
        time.sleep(1.5)  # until the server knows it
        try:
            asyncio.run(all_of_them())
        except Exception as error:  # noqa: BLE001  told below
            failures.append(error)

    watcher = threading.Thread(target=thread)
    watcher.start()
    try:
        yield lambda: sum(viewer.answers for viewer in viewers)
    finally:
        over.set()
        watcher.join()
    if failures:
        raise failures[0]


# ---------------------------------------------------------------------------------------------- paint


def paint(args: argparse.Namespace, lines: Lines) -> None:
    """Server and browser share the cores of this process."""
    from playwright.sync_api import sync_playwright

    cores = os.sched_getaffinity(0)
    figures = dict[str, float]()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        run_dir = _league(Path(folder) / "league", args.seed)
        browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
        with served(Path(folder), cores=cores) as server:
            for name, (place, useful) in _USEFUL.items():
                seconds = [
                    _visit(browser, server, place.format(run=id_of(run_dir)), useful) for _ in range(args.visits + 1)
                ]
                figures[f"seconds to {name}, first of all"] = seconds[0]
                figures[f"seconds to {name}"] = statistics.median(seconds[1:])
            figures["MB of the server"] = server.status("VmRSS")
            figures["MB of the server at most"] = server.status("VmHWM")
        browser.close()
    lines.figures(figures)


def _league(run_dir: Path, seed: int) -> Path:
    return write(run_dir, League(policies=_POLICIES, seed=seed))


def _chromium() -> str:
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if found is None:
        raise RuntimeError("there is no Chromium; install one")
    return found


def _visit(browser: Any, server: Server, place: str, useful: str) -> float:
    """Seconds from the beginning of the navigation to the first frame after the page says something, in a new browser context."""
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        context.add_init_script(
            "const look = () => ("
            + useful
            + ") ? requestAnimationFrame(() => setTimeout(() => { window.useful = performance.now(); }))"
            " : requestAnimationFrame(look); requestAnimationFrame(look);"
        )
        name, _, value = server.cookie.partition("=")
        context.add_cookies([{"name": name, "value": value, "url": server.address}])
        page = context.new_page()
        page.goto(f"{server.address}/{place}")
        end = time.monotonic() + 120
        while not (useful_at := page.evaluate("window.useful ?? 0")):
            if time.monotonic() > end:
                raise RuntimeError(f"{place} says nothing")
            page.wait_for_timeout(100)
        return float(useful_at) / 1000


# ---------------------------------------------------------------------------------------------- viewers


def viewers(args: argparse.Namespace, lines: Lines) -> None:
    """All on the cores of this process."""
    from ludus.runs.runner import run

    with tempfile.TemporaryDirectory() as folder:
        run_dir = run("kuhn", run_dir=Path(folder) / "run", report=False).run_dir
        with served(Path(folder), cores=os.sched_getaffinity(0)) as server:
            everybody = server.viewers(run_dir, args.viewers)
            begun, spent = time.perf_counter(), server.processor
            committed = asyncio.run(_grow(run_dir, everybody, args.changes))
            seconds, spent = time.perf_counter() - begun, server.processor - spent
            knew = [sum(any(came >= when for came, _ in viewer.told) for when in committed) for viewer in everybody]
            delays = [
                max(next((came for came, _ in viewer.told if came >= when), float("inf")) for viewer in everybody)
                - when
                for when in committed
            ]
            lines.figures(
                {
                    "viewers who knew all": float(sum(count == len(committed) for count in knew)),
                    "seconds until the last knew": statistics.median(delays),
                    "at most": max(delays),
                    "answers a second": sum(viewer.answers for viewer in everybody) / seconds,
                    "server's share of the processor in percent": 100 * spent / seconds,
                    "MB of the server": server.status("VmRSS"),
                    "MB of the server at most": server.status("VmHWM"),
                }
            )


async def _grow(run_dir: Path, everybody: Sequence[Viewer], changes: int) -> list[float]:
    """A commit each half second; when they were made."""
    stop, committed = asyncio.Event(), list[float]()
    looking = asyncio.gather(*(viewer.look(stop) for viewer in everybody))
    await asyncio.sleep(5.0)  # until all have come
    with Store.open(run_dir) as store:
        for number in range(1000, 1000 + changes):
            store.generation_done(_generation(number))
            store.commit(f"more-{number}")
            committed.append(time.perf_counter())
            await asyncio.sleep(0.5)
    await asyncio.sleep(3.0)
    stop.set()
    await looking
    return committed


def _generation(number: int) -> GenerationRecord:
    return GenerationRecord(
        number=number,
        seconds=float(number),
        episodes=0,
        nash_conv=1 / number,
        gains=(0.0, 0.0),
        values=(0.0, 0.0),
        marginals=((1.0,), (1.0,)),
        solver_gap=0.0,
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("slow-down", "paint", "viewers"))
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--generations", type=int, default=30)
    parser.add_argument("--visits", type=int, default=9)
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--changes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    lines = Lines(("ludus", "numpy", "fastapi", "uvicorn", "playwright"))
    {"slow-down": slow_down, "paint": paint, "viewers": viewers}[args.what](args, lines)


if __name__ == "__main__":
    main()
