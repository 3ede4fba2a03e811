"""Shared state of the routes of games: runs that are open to be played, tables, replays that were just made, people's results.

Nothing of it loads a policy, or PyTorch, before somebody asks for a game; then it is done in the threads of `State.play`.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fastapi import HTTPException, Response

from ludus.apps.play.people import FILE, People
from ludus.apps.ui.server.known_runs import KnownRun, Stamp, database_stamp
from ludus.apps.ui.server.state import State
from ludus.core.errors import (
    ConfigError,
    LudusError,
    PlayError,
    RunError,
    ScenarioError,
    TooManySessionsError,
    WrongTurnError,
)
from ludus.core.jsonable import to_json
from ludus.core.machine import redact_paths
from ludus.storage.run_dirs import RUNS

if TYPE_CHECKING:
    from ludus.apps.play.episodes import EpisodeCache
    from ludus.apps.play.game_sessions import GameSession, GameSessions
    from ludus.apps.play.run_game import RunGame
    from ludus.apps.play.trees import TreeExplorer

P = ParamSpec("P")
T = TypeVar("T")

MOST_OPEN = 4
"""Runs that are kept open between requests."""
MOST_TREES = 8
MOST_WAITING = 24
"""Requests to play something that are served or wait, at a time."""
FRESH = 5.0
"""Seconds for which a run that goes on is not looked at again."""
_REPLAY_BYTES = 64 * 2**20  # bytes


@dataclass(slots=True)
class _Open:
    """A run that is open. lock: held by who uses its policies, which are not made for several threads."""

    game: RunGame
    stamp: Stamp | None
    opened: float
    lock: threading.Lock = field(default_factory=threading.Lock)


class OpenGames:
    """Runs' games, the ones that were used last."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._trees: OrderedDict[tuple[str, Stamp | None, tuple[str, ...]], TreeExplorer] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def use(self, run: KnownRun) -> Iterator[RunGame]:
        """A run's game, for one thread at a time. Raises RunError for a run that cannot be played."""
        entry = self._get(run)
        with entry.lock:
            yield entry.game

    def _get(self, run: KnownRun) -> _Open:
        from ludus.apps.play.run_game import RunGame

        with self._lock:
            stamp = database_stamp(run.folder)
            entry = self._open.get(run.id)
            if entry is None or (entry.stamp != stamp and time.monotonic() - entry.opened > FRESH):
                entry = _Open(RunGame(run.folder, name=run.name), stamp, time.monotonic())
            self._open[run.id] = entry
            self._open.move_to_end(run.id)
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
            return entry

    def stamp(self, run: KnownRun) -> Stamp | None:
        """Return which state of a run is open; None of one that is not."""
        entry = self._open.get(run.id)
        return None if entry is None else entry.stamp

    def tree(self, run: KnownRun, who: Sequence[str]) -> TreeExplorer:
        """The tree of a run's game under a profile. Raises as `TreeExplorer`."""
        from ludus.apps.play.trees import TreeExplorer

        with self.use(run) as game:
            key = run.id, self.stamp(run), tuple(who)
            explorer = self._trees.get(key) or TreeExplorer(game, who)
            with self._lock:  # other runs' trees are kept by other threads
                self._trees[key] = explorer
                self._trees.move_to_end(key)
                while len(self._trees) > MOST_TREES:
                    self._trees.popitem(last=False)
            return explorer


class ReplayCache:
    """Replays that were made here, as JSON, until newer ones need the room."""

    def __init__(self, most: int = _REPLAY_BYTES) -> None:
        self._max_bytes, self._size = most, 0
        self._replays: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, id: str, run: str, replay: bytes) -> None:
        """run: its id."""
        with self._lock:
            self._replays[id] = run, replay
            self._size += len(replay)
            while self._size > self._max_bytes and len(self._replays) > 1:
                _, (_, old) = self._replays.popitem(last=False)
                self._size -= len(old)

    def get(self, id: str, run: str | None = None) -> bytes | None:
        """Return None for one that is not here, or of another run."""
        entry = self._replays.get(id)
        return None if entry is None or run not in (None, entry[0]) else entry[1]


class PlayRoom:
    """Everything of one server that has to do with games. filming: held while a film is made; one at a time."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.open, self.replays = OpenGames(), ReplayCache()
        self._episodes: EpisodeCache | None = None
        self.people = People(state.people or Path(RUNS) / FILE)
        self._tables: GameSessions | None = None
        self.filming = threading.Lock()
        self._waiting = 0
        state.at_end(self.close)

    @property
    def sessions(self) -> GameSessions:
        """Made when the first one is laid, in a thread of `play`."""
        if self._tables is None:
            from ludus.apps.play.game_sessions import GameSessions

            self._tables = GameSessions()
        return self._tables

    @property
    def episodes(self) -> EpisodeCache:
        """How episodes of profiles ended; made when it is first asked for, in a thread of `play`."""
        if self._episodes is None:
            from ludus.apps.play.episodes import EpisodeCache

            self._episodes = EpisodeCache()
        return self._episodes

    def session(self, id: str) -> GameSession | None:
        """Return None for one that there is not (any more). Loads nothing, and waits for nobody."""
        return None if self._tables is None else self._tables.get(id)

    def sweep(self) -> None:
        """Close the tables that nobody uses."""
        if self._tables is not None:
            self._tables.sweep()

    def close(self) -> None:
        """Close the tables."""
        if self._tables is not None:
            self._tables.close()

    async def play(self, run: KnownRun | None, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call what plays, in a thread for that. Raises HTTPException for what it raises, and if too many wait."""
        if self._waiting >= MOST_WAITING:
            raise HTTPException(429, "too many games are being played at a time. Wait a moment, then try again.")
        self._waiting += 1
        try:
            return await self.state.play(function, *args, **kwargs)
        except LudusError as error:
            raise refused(error, run) from error
        finally:
            self._waiting -= 1


_STATUS: Sequence[tuple[type[LudusError], int]] = (
    (WrongTurnError, 409),
    (TooManySessionsError, 429),
    (PlayError, 422),
    (ConfigError, 422),
    (ScenarioError, 422),
    (RunError, 409),
)


def refused(error: LudusError, run: KnownRun | None = None) -> HTTPException:
    """Return what a request is answered that could not be granted."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 400)
    return HTTPException(status, redact_paths(str(error) if run is None else run.without_paths(str(error))))


def json_response(content: bytes | Any) -> Response:
    """content: JSON as bytes, or what `to_json` takes."""
    return Response(content if isinstance(content, bytes) else to_json(content), media_type="application/json")
