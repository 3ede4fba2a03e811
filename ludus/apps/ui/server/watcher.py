"""Sees what changes in the runs that somebody looks at, once for all who look.

    stat() of the database and status.json, twice a second --(another)--> which panels? --> a stream for each browser

A database is opened for reading, and closed again at once: even an idle connection would forbid the driver to leave its write-ahead log
at the end. Nothing here waits for a browser, and no run waits for anything here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fastapi import HTTPException

from ludus.apps.ui.figures import panels as figures
from ludus.apps.ui.server.answer_cache import AnswerCache, Body
from ludus.apps.ui.server.known_runs import (
    KnownRun,
    KnownRuns,
    Stamp,
    database_stamp,
    file_stamp,
    notes_stamp,
    status_stamp,
)
from ludus.apps.ui.server.live_status import LiveStatus, read_live
from ludus.apps.ui.server.streams import Stream, StreamCount, encode
from ludus.core.errors import LudusError, RunError
from ludus.core.jsonable import to_json
from ludus.storage.database import FILE
from ludus.storage.reader import Memory, Position, Reader
from ludus.storage.run_dirs import EXPERIMENT, is_running

LOOK = 0.5
"""Seconds between two looks at a run."""
LIST = 2.0
"""Seconds between two looks at the list of runs."""
SIGNS = 5.0
"""Seconds between two times that a page is told of a part that it was seen."""
MANY = 200
"""Policies of a run that is read before somebody asks for it."""
REMEMBERED = 4
"""Runs of which it is remembered what was read."""
FIRST, NEXT = "overview", ("payoffs", "responses")
"""The panel that a page of a run begins with, and those that take longest where it is large: made while the first is looked at."""
PAUSE = 1.0
"""Seconds before they are begun, so that the other panels of the first page do not wait for them."""
IDLE = 60.0
"""Seconds after which a run that nobody has asked for is not known any more."""

_LOG = logging.getLogger("uvicorn.error")  # which a server's terminal shows


@dataclass(slots=True, eq=False)
class WatchedRun:
    """Last observed state of a run. counts: of each panel, the number of its changes. memory: of what was read for panels. page_opened:
    whether its page has been opened. checked_at, requested_at: on the monotonic clock."""

    run: KnownRun
    database: Stamp | None = None
    status: Stamp = ()
    running: bool | None = None
    version: Position | None = None
    live: LiveStatus | None = None
    counts: dict[str, int] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    page_opened: bool = False
    checked_at: float = -1e9
    requested_at: float = 0.0


@dataclass(frozen=True, slots=True)
class UnreadableRun:
    """A run that the list cannot tell of. why: a sentence."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class RunUpdate:
    """Changes of a run since the last look. panels: that changed. status: whether the driver's word did. gone: whether the run is not
    there any more."""

    panels: frozenset[str] = frozenset()
    status: bool = False
    gone: bool = False


class Watcher:
    """Watches runs from the event loop's thread; what opens files runs in a thread of its own."""

    def __init__(
        self, runs: KnownRuns, count: StreamCount | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.runs = runs
        self.streams = count or StreamCount()
        self.answers = AnswerCache()
        self.version = 1  # of the list
        self._clock = clock
        self._watched: dict[str, WatchedRun] = {}
        self._viewers: dict[Stream, frozenset[str]] = {}
        self._thread = ThreadPoolExecutor(1, "watcher")
        self._looking: dict[str, asyncio.Future[None]] = {}
        self._remembered: list[WatchedRun] = []
        self._listed = -1e9
        self._listing: asyncio.Future[None] | None = None  # the look at the list that is under way
        self._stamps: dict[str, tuple[Stamp | None, Stamp, Stamp, bool]] = {}
        self._experiments: dict[str, tuple[Stamp, bool]] = {}
        self._kept_settings: dict[str, tuple[Hashable, Any]] = {}  # run -> (what they were read of, settings)
        self._kept_lines: dict[str, tuple[Any, Any]] = {}  # run -> (stamps, line), for the one thread that makes them
        self._task: asyncio.Task[None] | None = None
        self._listed_before = False
        self._tasks: set[asyncio.Future[None]] = set()

    # ------------------------------------------------------------------------------------------ beginning and end

    def start(self) -> None:
        """Begin to look, once there is an event loop."""
        self._task = asyncio.ensure_future(self._look_for_ever())

    async def close(self) -> None:
        """End all streams and threads."""
        self.streams.close()
        for task in [*self._tasks]:
            task.cancel()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._thread.shutdown(wait=False, cancel_futures=True)
        self.answers.close()

    # ------------------------------------------------------------------------------------------ answers

    async def panel(self, run_id: str, name: str, query: Mapping[str, str]) -> Body:
        """A panel of a run as it is now. Raises HTTPException, LudusError."""
        run = self.runs.run(run_id)
        if name not in figures.PANELS:
            raise HTTPException(404, f"there is no panel {name!r}. There are: {', '.join(sorted(figures.PANELS))}.")
        if "reader" in query:
            raise HTTPException(400, f"the panel {name} was asked with 'reader', which it does not know.")
        watched = await self._fresh(run)
        self._remember(watched)
        if name == FIRST and not watched.page_opened:
            watched.page_opened = True
            self._soon(run_id)
        key, state = (run_id, name, tuple(sorted(query.items()))), watched.counts.get(name, 0)

        def compute() -> bytes:
            with Reader(run.folder, check=False, memory=watched.memory) as reader:
                try:
                    return to_json(figures.PANELS[name](reader, **query))
                except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                    _LOG.exception("the panel %s of %s could not be made", name, run.name)
                    raise RunError(
                        f"what the database holds is not what a run writes, so that {name} cannot be shown: {type(error).__name__} "
                        f"({error}). Restore {FILE} from a copy; the server's terminal says more."
                    ) from error

        try:
            return await self.answers.get(key, run_id, compute, state=state)
        except RunError as error:
            if database_stamp(run.folder) is None:
                self._forget(run_id)
                raise HTTPException(404, "the run has been deleted. Go back to the list of runs.") from error
            raise HTTPException(409, run.without_paths(str(error))) from error
        except LudusError as error:
            raise HTTPException(400, run.without_paths(str(error))) from error

    def _soon(self, run_id: str) -> None:
        """Have the panels made that will be asked for."""

        async def run_quietly() -> None:
            await asyncio.sleep(PAUSE)
            with suppress(HTTPException):  # who asks is told
                for name in NEXT:
                    await self.panel(run_id, name, {})

        task = asyncio.ensure_future(run_quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def comparison(self, run_ids: Sequence[str], *, metric: str, apart: bool) -> Body:
        """Several runs beside each other. Raises HTTPException, LudusError."""
        runs = [self.runs.run(run_id) for run_id in dict.fromkeys(run_ids)]
        stamps = tuple([(await self._fresh(run)).database for run in runs])
        key = ("compare", tuple(run.id for run in runs), metric, apart)

        def compute() -> bytes:
            from ludus.apps.ui.comparison import as_json, compare
            from ludus.apps.ui.run_metrics import grouped

            groups = grouped([(run.group, run.name, run.folder) for run in runs], apart=apart)
            return to_json(as_json(compare(groups, metric=metric or None)))

        try:
            return await self.answers.get(key, "", compute, state=stamps)
        except LudusError as error:
            text = str(error)
            for run in runs:
                text = run.without_paths(text)
            raise HTTPException(400, text) from error

    async def experiment(self, run_ids: Sequence[str]) -> Body:
        """Runs of an experiment, over their seeds. Raises HTTPException, LudusError."""
        runs = [self.runs.run(run_id) for run_id in dict.fromkeys(run_ids)]
        stamps = tuple([(await self._fresh(run)).database for run in runs])

        def compute() -> bytes:
            from ludus.apps.ui.figures.experiment import experiment

            with ExitStack() as stack:
                readers = [stack.enter_context(Reader(run.folder, check=False)) for run in runs]
                return to_json(experiment([(run.id, run.name, own) for run, own in zip(runs, readers, strict=True)]))

        try:
            return await self.answers.get(("experiment", *(run.id for run in runs)), "", compute, state=stamps)
        except LudusError as error:
            text = str(error)
            for run in runs:
                text = run.without_paths(text)
            raise HTTPException(400, text) from error

    def _remember(self, watched: WatchedRun) -> None:
        """Of the runs whose panels were asked for last: what was read of one with 1,000 policies takes some 100 MB."""
        if watched in self._remembered:
            self._remembered.remove(watched)
        self._remembered.append(watched)
        for old in self._remembered[:-REMEMBERED]:
            old.memory = Memory()
        del self._remembered[:-REMEMBERED]

    async def lines(self) -> Body:
        """The list of runs."""
        await self._fresh_list()
        version = self.version
        lines = await self.answers.get(("",), "", lambda: self._lines(version), state=version)
        if not self._listed_before:
            self._listed_before = True
            self._read_ahead()
        return lines

    def _read_ahead(self) -> None:
        """Who looks at the list may soon look at the largest run, whose matches take a second to be pooled."""
        lines = {run_id: line for run_id, (_, line) in self._kept_lines.items()}
        sizes = {run_id: line.policies for run_id, line in lines.items() if not isinstance(line, UnreadableRun)}
        largest = max(sizes, key=sizes.__getitem__, default="")
        if sizes.get(largest, 0) >= MANY:
            self._soon(largest)

    def stream(self, run_ids: Iterable[str]) -> Stream:
        """Return a stream that tells a browser what changes: in the list, and in these runs."""
        known = {run_id: self.runs.get(run_id) for run_id in frozenset(run_ids)}
        wanted = {run_id: run for run_id, run in known.items() if run is not None}
        stream = Stream(self.streams, closed=lambda: self._stream_closed(stream))
        self._viewers[stream] = frozenset(wanted)
        stream.put("runs", {"version": self.version})
        for run_id in known.keys() - wanted.keys():
            stream.put("gone", {"run": run_id}, key=run_id)
        for run_id, run in wanted.items():
            watched = self._of(run)
            stream.put("status", {"run": run_id, "status": watched.live and asdict(watched.live)}, key=run_id)
        return stream

    def _stream_closed(self, stream: Stream) -> None:
        self._viewers.pop(stream, None)

    # ------------------------------------------------------------------------------------------ looking

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self._look_at_all()
            except Exception:  # noqa: BLE001  nobody would look any more
                _LOG.exception("a look at the runs failed; the next one may not")

    async def _look_at_all(self) -> None:
        wanted = frozenset().union(*self._viewers.values())
        for run_id in wanted:
            run = self.runs.get(run_id)
            if run is None:
                self._forget(run_id)
            else:
                await self._fresh(run)
        if self._viewers:
            await self._fresh_list()
        self._forget_idle(wanted)

    def _of(self, run: KnownRun) -> WatchedRun:
        watched = self._watched.setdefault(run.id, WatchedRun(run))
        watched.requested_at = self._clock()
        return watched

    async def _fresh(self, run: KnownRun) -> WatchedRun:
        """Return what is known of it, not older than a look."""
        watched = self._of(run)
        if self._clock() - watched.checked_at < 0.8 * LOOK:
            return watched
        if run.id not in self._looking:
            self._looking[run.id] = asyncio.ensure_future(self._look(watched))
        await asyncio.shield(self._looking[run.id])
        return watched

    async def _look(self, watched: WatchedRun) -> None:
        try:
            news = await asyncio.get_running_loop().run_in_executor(self._thread, look, watched)
        finally:
            del self._looking[watched.run.id]
        watched.checked_at = self._clock()
        run_id = watched.run.id
        if news.gone:
            self._forget(run_id)
            return
        for name in news.panels:
            watched.counts[name] = watched.counts.get(name, 0) + 1
        viewers = [stream for stream, wanted in self._viewers.items() if run_id in wanted]
        if news.panels:
            data = {"run": run_id, "version": sum(watched.counts.values()), "panels": sorted(news.panels)}
            for stream in viewers:
                stream.put("changed", data, key=run_id, merge=_both)
        if news.status:
            message = encode({"run": run_id, "status": watched.live and asdict(watched.live)})
            for stream in viewers:
                stream.put("status", message, key=run_id)

    def _forget(self, run_id: str) -> None:
        """The run is gone: those who look at it are told once."""
        self._watched.pop(run_id, None)
        self._forget_answers(run_id)
        for stream, wanted in self._viewers.items():
            if run_id in wanted:
                self._viewers[stream] = wanted - {run_id}
                stream.put("gone", {"run": run_id}, key=run_id)
        self._listed = -1e9

    def _forget_answers(self, run_id: str) -> None:
        self.answers.forget(lambda key: isinstance(key, tuple) and key[0] == run_id)

    def _forget_idle(self, wanted: frozenset[str]) -> None:
        old = self._clock() - IDLE
        self._remembered = [watched for watched in self._remembered if watched.requested_at >= old]
        for run_id in [k for k, watched in self._watched.items() if watched.requested_at < old and k not in wanted]:
            del self._watched[run_id]
            self._forget_answers(run_id)

    # ------------------------------------------------------------------------------------------ the list

    async def _fresh_list(self) -> None:
        while self._listing is not None:
            await asyncio.shield(self._listing)
        if self._clock() - self._listed < LIST:
            return
        self._listed = self._clock()
        self._listing = asyncio.ensure_future(self._list())
        await asyncio.shield(self._listing)

    async def _list(self) -> None:
        try:
            changed = await asyncio.get_running_loop().run_in_executor(self._thread, self._look_at_list)
        finally:
            self._listing = None
        if changed:
            self.answers.forget(lambda key: key == ("", self.version))
            self.version += 1
            for stream in self._viewers:
                stream.put("runs", {"version": self.version})

    def _look_at_list(self) -> bool:
        changed = self.runs.refresh()
        stamps = {
            run.id: (
                database_stamp(run.folder),
                status_stamp(run.folder),
                notes_stamp(run.folder),
                is_running(run.folder),
            )
            for run in self.runs.all()
        }
        experiments = {
            name: (file_stamp(folder / EXPERIMENT), is_running(folder))
            for name, folder in self._experiment_folders().items()
        }
        changed |= (stamps, experiments) != (self._stamps, self._experiments)
        self._stamps, self._experiments = stamps, experiments
        return changed

    def _experiment_folders(self) -> dict[str, Path]:
        return {run.group: run.folder.parent for run in self.runs.all() if run.group is not None}

    def _lines(self, version: int) -> bytes:
        stamps, before = self._stamps, self._kept_lines
        self._kept_lines = {}
        for run in self.runs.all():
            stamp = stamps.get(run.id)
            previous = before.get(run.id)
            line = (
                previous[1] if previous is not None and stamp is not None and previous[0] == stamp else self._line(run)
            )
            self._kept_lines[run.id] = (stamp, line)
        lines = [line for _, line in self._kept_lines.values()]
        unreadable = [line for line in lines if isinstance(line, UnreadableRun)]
        runs = [line for line in lines if not isinstance(line, UnreadableRun)]
        folders = self._experiment_folders()
        experiments = figures.experiment_lines(
            runs, {name: figures.listing(folder) for name, folder in folders.items()}
        )
        return to_json({"version": version, "runs": runs, "experiments": experiments, "unreadable": unreadable})

    def expire_list(self) -> None:
        """Have the list looked at again when it is asked for next: a file of a run is another one."""
        self._listed = -1e9

    async def settings(self) -> Body:
        """The settings of each run of the list. They are read again where a scenario is another one, not where a run has got on."""
        await self.lines()
        lines = {run_id: line for run_id, (_, line) in self._kept_lines.items() if not isinstance(line, UnreadableRun)}
        wanted = {run_id: (line.setup, line.seed) for run_id, line in lines.items()}
        state = tuple(wanted.items())
        return await self.answers.get(("settings",), "", lambda: self._settings(wanted), state=state)

    def _settings(self, wanted: Mapping[str, Hashable]) -> bytes:
        before = self._kept_settings
        same = {run_id: before[run_id] for run_id, key in wanted.items() if before.get(run_id, (None,))[0] == key}
        read = {run.id: (wanted[run.id], _settings(run)) for run in self.runs.all() if run.id in wanted.keys() - same}
        self._kept_settings = same | read
        return to_json({run_id: settings for run_id, (_, settings) in self._kept_settings.items()})

    def _line(self, run: KnownRun) -> Any:
        try:
            with Reader(run.folder, check=False) as reader:
                line = figures.run_line(reader, run.id, run.name, run.group)
            to_json(line)
        except LudusError as error:
            return UnreadableRun(run.name, run.without_paths(str(error)))
        except Exception as error:  # noqa: BLE001  one run whose database holds nonsense must not hide all others
            return UnreadableRun(run.name, f"its database is damaged: {type(error).__name__} ({error}).")
        return line


def _settings(run: KnownRun) -> Mapping[str, Any]:
    try:
        with Reader(run.folder, check=False) as reader:
            return figures.settings_of(reader.info().text)
    except LudusError:  # the list says why
        return {}


def look(watched: WatchedRun) -> RunUpdate:
    """Return what is new of a run since the last look, which is written down. In a thread of its own."""
    folder = watched.run.folder
    database, status = database_stamp(folder), status_stamp(folder)
    if database is None or (watched.database is not None and database[:2] != watched.database[:2]):
        return RunUpdate(gone=True)
    panels: frozenset[str] = frozenset()
    if database != watched.database:
        try:
            with Reader(folder, check=False) as reader:
                version = figures.version(reader)
        except RunError:  # in the middle of something; the next look tells
            return RunUpdate()
        panels = frozenset() if watched.version is None else figures.changed(watched.version, version)
        watched.version, watched.database = version, database
    running = is_running(folder)
    if watched.running is not None and running != watched.running:
        panels |= {"overview", "events"}
    live = read_live(folder) if status != watched.status or running != watched.running or watched.live else None
    news = live != watched.live
    if _signs(live) != _signs(watched.live):
        panels |= {"parts"}
    watched.running, watched.status, watched.live = running, status, live
    return RunUpdate(panels & frozenset(figures.PANELS), news)


def _signs(status: LiveStatus | None) -> list[tuple[object, ...]]:
    """Of parts, what a page tells of them: when they were seen not to the second."""
    parts = status.parts if status is not None else []
    return [(p["name"], p["state"], p["pid"], p["restarts"], (p["seen"] or 0.0) // SIGNS) for p in parts]


def _both(waiting: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    return {**data, "panels": sorted({*waiting["panels"], *data["panels"]})}
