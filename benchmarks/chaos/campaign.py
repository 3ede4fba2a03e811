"""Plays cases, several at a time, and keeps what became of each in a file of lines: a campaign that was killed continues."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.chaos.actions import ACTIONS
from benchmarks.chaos.attempt import Attempt, Late, References, Skipped, Verdict, surroundings
from benchmarks.chaos.draw import Case, draw
from benchmarks.chaos.forks import Forks
from benchmarks.chaos.scene import ENDING, PLACE, Scene

Row = dict[str, Any]


def play(case: Case, folder: Path, references: References, *, keep: bool = False) -> Row:
    """Play a case in a folder of its own, which is removed unless a promise was broken (or `keep`), and return its row."""
    scene, begin, attempt = Scene(folder, references.home, references.forks), time.monotonic(), None
    verdict = Verdict()
    try:
        reference = references(case.scenario)
        with surroundings(scene, case.scenario) as cluster:
            attempt = Attempt(case, scene, reference, cluster)
            verdict = attempt.verdict
            ACTIONS[case.harm.action](attempt)
            attempt.close()
        if not verdict.outcome:
            verdict.outcome = "survived"
    except Late as late:
        verdict.outcome, verdict.why = "late", str(late)
    except Skipped as skipped:
        verdict.outcome, verdict.why = "skipped", str(skipped)
    except Exception:  # noqa: BLE001  a fault of the campaign is a row, too
        verdict.outcome, verdict.why = "fault", traceback.format_exc()
    if verdict.broken and verdict.outcome != "fault":
        verdict.outcome = "broken"
    wrong = verdict.outcome in ("broken", "fault")
    row = row_of(case, verdict, seconds=time.monotonic() - begin, slow=attempt.slow if attempt else 1.0)
    scene.log(json.dumps(row))
    scene.close(keep=keep or wrong)
    return row


def row_of(case: Case, verdict: Verdict, *, seconds: float, slow: float) -> Row:
    """Return what is stored of a case."""
    return {
        "case": case.name,
        "harm": case.harm.name,
        "scenario": case.scenario.name,
        "options": dict(case.options),
        "phase": case.phase,
        "fraction": round(case.fraction, 3),
        **asdict(verdict),
        "at": round(time.time(), 1),
        "seconds": round(seconds, 1),
        "slow": round(slow, 2),
        "load": round(os.getloadavg()[0], 1),
    }


def rows(path: Path) -> list[Row]:
    """Return the rows of a file, of a case that was played again the last one; a line that a kill has cut is left out."""
    found: dict[str, Row] = {}
    with suppress(FileNotFoundError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(json.JSONDecodeError):
                row = json.loads(line)
                found[row["case"]] = row
    return list(found.values())


class Campaign:
    """Cases of a seed, until the time is over."""

    def __init__(self, seed: int, folder: Path, path: Path, *, only: Collection[str] = (), keep: bool = False) -> None:
        """folder: of references and of cases that broke a promise. path: of the rows."""
        self.seed, self.folder, self.path, self.only, self.keep = seed, folder, path, only, keep
        self.references = References(folder / "references", Path(PLACE) / "ludus-chaos-home", Forks())
        self._lock = threading.Lock()
        self._done = {row["case"] for row in rows(path)}

    def run(self, *, seconds: float, jobs: int, cases: int | None = None) -> int:
        """Play cases, and return how many were."""
        end, count = time.monotonic() + seconds, 0
        indices = self._indices()

        def work() -> None:
            nonlocal count
            while time.monotonic() < end:
                with self._lock:
                    if cases is not None and count >= cases:
                        return
                    index, count = next(indices), count + 1
                self.one(index)

        with ThreadPoolExecutor(jobs) as pool:
            for future in [pool.submit(work) for _ in range(jobs)]:
                future.result()
        return count

    def close(self) -> None:
        """End the process that commands are forks of."""
        if self.references.forks is not None:
            self.references.forks.close()

    def _indices(self) -> Iterator[int]:
        index = 0
        while True:
            if f"{self.seed}:{index}" not in self._done:
                yield index
            index += 1

    def one(self, index: int) -> Row:
        """Play one case, store its row, and say what became of it."""
        case = draw(self.seed, index, only=self.only)
        with tempfile.TemporaryDirectory(prefix="lc-", dir=PLACE, ignore_cleanup_errors=True) as short:
            place = Path(short) / "c"
            row = play(case, place, self.references, keep=self.keep)
            if place.exists():
                kept = self.folder / "broken" / case.name.replace(":", "-")
                kept.parent.mkdir(parents=True, exist_ok=True)
                with suppress(OSError):
                    shutil.move(place, kept)
        with self._lock:
            if ENDING.is_set():
                return row
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            print(said(row), flush=True)
        return row


def said(row: Row) -> str:
    """Return a row in a line, and what is broken in lines below it."""
    options = ", ".join(f"{value}" for value in row["options"].values())
    text = (
        f"{row['case']:>8} {row['outcome']:8} {row['seconds']:5.0f} s  {row['harm']} ({options}) of {row['scenario']}"
    )
    if row["why"]:
        text += f"  {row['why'].strip().splitlines()[-1][:160]}"
    for promise, flaws in row["broken"].items():
        for flaw in flaws[:3]:
            text += f"\n             {promise}: {flaw[:700]}"
    return text
