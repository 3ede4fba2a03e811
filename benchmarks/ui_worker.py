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

import numpy as np

from benchmarks.lines import Lines
from benchmarks.machine import ROOT
from benchmarks.synthetic_league import League, rematch, write
from benchmarks.ui_viewers import Viewer
from ludus.apps.ui.server.address import STEER, Tokens
from ludus.apps.ui.server.known_runs import id_of
from ludus.storage.base import GenerationRecord
from ludus.storage.reader import Reader
from ludus.storage.store import Store

_COMMAND = "import sys; from ludus.cli.main import script; script()"
_SECRET = b"of this measurement, thirty-two characters or more"
_POLICIES = 1000
_CHANGE = 10.0  # seconds between two changes of a league
_SAYS = "[...document.querySelectorAll('.five .verdict')].some((node) => node.textContent)"
_DRAWN = (
    "document.querySelector('.heat canvas')?.width > 0 && document.querySelector('.heat .key')?.childElementCount > 0"
)
_WHOLE = (
    "document.documentElement.dataset.ready === 'yes' && !document.querySelector('main .loading') && "
    "document.querySelectorAll('main .card').length > 0 && "
    "[...document.querySelectorAll('main .card .stage-canvas')].every((node) => node.style.height)"
)
_PAGES = {
    "overview": ("#/run/{run}", _SAYS),
    "heat map": ("#/run/{run}/population", _DRAWN),
    "every panel, overview": ("#/run/{run}", _WHOLE),
    "every panel, population": ("#/run/{run}/population", _WHOLE),
    "every panel, learning": ("#/run/{run}/learning", _WHOLE),
    "every panel, log": ("#/run/{run}/log", _WHOLE),
}
"""What is waited for -> (its place, what is true as soon as it is there). Nothing is scrolled."""


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


ARMS = ("another", "watched")


def slow_down(args: argparse.Namespace, lines: Lines) -> None:
    """A run on the first core, twice in each pair, in an order that changes: beside another run, a server and ten viewers who look at
    that other one; beside the same, with the viewers looking at it. What the second costs more than the first is what looking does to a
    run: both share the machine's memory with the same processes."""
    cores = sorted(os.sched_getaffinity(0))
    own, others = {cores[0]}, {*cores[1:]} or {cores[0]}
    seconds = {arm: list[float]() for arm in ARMS}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _run(root / "warm", 1, args.seed, own)
        for turn in range(args.pairs):
            for arm in ARMS if turn % 2 else ARMS[::-1]:
                run_dir = root / f"run-{turn}-{arm}"
                with _beside(root, run_dir, arm, others, args) as answers:
                    seconds[arm].append(_run(run_dir, args.generations, args.seed + turn, own))
                if not answers():
                    raise RuntimeError("nobody watched")
                shutil.rmtree(run_dir)
    more = [100 * (watched / other - 1) for watched, other in zip(seconds["watched"], seconds["another"], strict=True)]
    lines.figures(
        {
            "slow-down in percent": statistics.median(more),
            "slow-down in percent, least": min(more),
            "slow-down in percent, most": max(more),
            "pairs": float(len(more)),
            **{f"processor seconds, {arm}": statistics.median(seconds[arm]) for arm in ARMS},
        }
    )


@contextmanager
def _beside(
    root: Path, run_dir: Path, arm: str, cores: set[int], args: argparse.Namespace
) -> Iterator[Callable[[], int]]:
    """What an arm has beside its run; how many answers the viewers had."""
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
        run_dirs = {title: write(Path(folder) / title, league) for title, league in _leagues(args.seed).items()}
        browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
        for title, run_dir in run_dirs.items():
            with served(Path(folder), cores=cores) as server:
                run = id_of(run_dir)
                for name, (place, useful) in _PAGES.items():
                    seconds = [_visit(browser, server, place.format(run=run), useful) for _ in range(args.visits + 1)]
                    figures[f"{title}, seconds to {name}, first of all"] = seconds[0]
                    figures[f"{title}, seconds to {name}"] = statistics.median(seconds[1:])
                figures[f"{title}, MB of the server"] = server.status("VmRSS")
                figures[f"{title}, MB of the server at most"] = server.status("VmHWM")
        browser.close()
    lines.figures(figures)


def _leagues(seed: int) -> dict[str, League]:
    """Return what is looked at, by title."""
    return {
        f"{_POLICIES:,}": League(policies=_POLICIES, seed=seed),
        f"{_POLICIES // 2:,} × {_POLICIES // 2:,}": League(policies=_POLICIES // 2, shared=False, seed=seed),
    }


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
        end = time.monotonic() + 60
        while not (useful_at := page.evaluate("window.useful ?? 0")):
            if time.monotonic() > end:
                raise RuntimeError(f"{place} says nothing")
            page.wait_for_timeout(100)
        return float(useful_at) / 1000


# ---------------------------------------------------------------------------------------------- memory


def memory(args: argparse.Namespace, lines: Lines) -> None:
    """Ten viewers, who ask for all panels of a league that changes every ten seconds: new matches of policies that are there, and a
    generation. Each has what a page without scrolling shows, whenever it has changed. All on the cores of this process."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = write(Path(folder) / "league", League(policies=_POLICIES, seed=args.seed, running=True))
        with served(Path(folder), cores=os.sched_getaffinity(0)) as server:
            viewers = server.viewers(run_dir, 10)
            begun, spent = time.perf_counter(), server.processor
            samples = asyncio.run(_sampled(run_dir, server, viewers, seconds=60.0 * args.minutes))
            seconds, spent = time.perf_counter() - begun, server.processor - spent
            minutes, megabytes = np.array(samples).T
            late = minutes >= minutes[-1] / 2
            slope = np.polyfit(minutes[late], megabytes[late], 1)[0]
            lines.figures(
                {
                    "minutes": float(minutes[-1]),
                    "MB of the server": float(np.median(megabytes[late])),
                    "MB of the server at most": server.status("VmHWM"),
                    "MB a minute, second half": float(slope),
                    "MB more in the second half than in the first": float(
                        np.median(megabytes[late]) - np.median(megabytes[~late])
                    ),
                    "answers a second": sum(viewer.answers for viewer in viewers) / seconds,
                    "server's share of the processor in percent": 100 * spent / seconds,
                }
            )


async def _sampled(
    run_dir: Path, server: Server, viewers: Sequence[Viewer], *, seconds: float
) -> list[tuple[float, float]]:
    """Return the minutes since the beginning and the server's MB, twice a second, while a league changes and is looked at."""
    stop, samples, begun = asyncio.Event(), list[tuple[float, float]](), time.perf_counter()
    looking = asyncio.gather(*(viewer.look(stop) for viewer in viewers))
    rng, changed, number = np.random.default_rng(0), begun, _POLICIES
    with Reader(run_dir) as reader:
        last = reader.last_generation()
    assert last is not None
    with Store.open(run_dir) as store:
        while (now := time.perf_counter()) - begun < seconds and not looking.done():
            if now - changed >= _CHANGE:
                changed = now
                rematch(store, last, rng, number=number)
                number += 1
            samples.append(((now - begun) / 60, server.status("VmRSS")))
            await asyncio.sleep(0.5)
    stop.set()
    await looking
    return samples


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
    measures = {"slow-down": slow_down, "paint": paint, "memory": memory, "viewers": viewers}
    parser.add_argument("what", choices=measures)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--generations", type=int, default=15)
    parser.add_argument("--visits", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=2.5, help="of the server's memory; 60: the whole hour")
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--changes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    lines = Lines(("ludus", "numpy", "fastapi", "uvicorn", "playwright"))
    measures[args.what](args, lines)


if __name__ == "__main__":
    main()
