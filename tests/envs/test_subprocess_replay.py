"""Vectors in subprocesses that die at any point: what is reported is what would have happened without that, only cut short."""

from __future__ import annotations

import os
import signal
import threading
import time
import zlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import subprocess_games as games

from ludus.core.seeding import keys
from ludus.core.types import Array, Timestep
from ludus.envs.base import VectorEnv
from ludus.envs.processes.vector import SubprocessVectorEnv
from ludus.envs.publisher_kernels import episode_seed
from ludus.runtime.child_process import ChildProcess
from ludus.testing.ledger import Row, Trace, record

pytestmark = pytest.mark.slow

ENVS, WORKERS = 5, 3  # subprocess 0 has environments 0 and 1, subprocess 1 has 2 and 3, subprocess 2 has 4
SEEDS = keys(2, "replay", count=ENVS)
STEPS = 60
DEADLINE = 5.0  # seconds; a step takes less than a thousandth of that
Episode: TypeAlias = list[Row]


# ------------------------------------------------------------------------------------------ playing


def actions(timestep: Timestep) -> tuple[Array, ...]:
    """A function of what is seen, so that an episode is one of its seed, whatever was played before it."""
    chosen = []
    for due in timestep.due:
        rows = [zlib.crc32(row.tobytes()) for row in due.observation]
        mask = np.ones((len(rows), 3), np.bool_) if due.mask is None else due.mask
        legal = [np.flatnonzero(m) for m in mask]
        chosen.append(np.array([m[r % len(m)] for r, m in zip(rows, legal, strict=True)], np.int64))
    return tuple(chosen)


def played(env: VectorEnv, seeds: Any, more: Callable[[int], bool]) -> list[list[Episode]]:
    """The episodes of each environment, in order; the last one is open. `more` is asked before each step."""
    trace: Trace = [[] for _ in seeds]
    timestep = env.reset(seeds)
    record(env.spec, timestep, trace)
    steps = 0
    while more(steps):
        timestep = env.step(actions(timestep))
        record(env.spec, timestep, trace)
        steps += 1
    return [episodes(rows) for rows in trace]


def episodes(rows: Episode) -> list[Episode]:
    out: list[Episode] = [[]]
    for row in rows:
        out[-1].append(row)
        if row[0] == "finished":
            out.append([])
    return out


def stream(environment: int, first: int) -> np.uint64:
    """The seed that an environment goes on with when its episode before number `first` was cut."""
    seed = SEEDS[environment]
    return np.uint64(seed if first == 0 else episode_seed(seed, np.uint64(first)))


def seed(environment: int, number: int, *, first: int = 0) -> int:
    """The seed of an episode that is number `number` in the stream that began with `first`."""
    return int(episode_seed(stream(environment, first), np.uint64(number)) & np.uint64(0x7FFFFFFF))


@cache
def undisturbed(environment: int, first: int, count: int) -> list[Episode]:
    """Alone, in this process."""
    env = games.walks(1, deaths=games.Deaths(""))
    return played(env, np.array([stream(environment, first)], np.uint64), lambda t: t < count)[0]


def cuts(disturbed: list[list[Episode]], count: int) -> list[list[int]]:
    """Numbers of the episodes that were cut, of each environment. All others are those of an undisturbed run."""
    out: list[list[int]] = [[] for _ in disturbed]
    for e, mine in enumerate(disturbed):
        first = 0
        for k, episode in enumerate(mine):
            original = undisturbed(e, first, count)[k - first]
            if k == len(mine) - 1:  # still open
                assert episode == original[: len(episode)]
            elif episode != original:
                check_cut(episode, original)
                out[e].append(k)
                first = k + 1
    return out


def check_cut(episode: Episode, original: Episode) -> None:
    """It is the original's beginning, then ended, with what was seen last."""
    rows = [row for row in episode if row[0] == "due"]
    assert rows == original[: len(rows)]
    assert len(rows) < len(original)
    last = {row[1]: row for row in rows}
    ended = [("ended", player, 0, 0.0, False, last[player][3]) for player in sorted(last)]  # type: ignore[type-var]
    returns = tuple(float(sum(row[5] for row in rows if row[1] == player)) for player in (0, 1))  # type: ignore[misc]
    assert episode == [*rows, *ended, ("finished", returns, False, len(rows))]


# ------------------------------------------------------------------------------------------ at a given point


def run(
    deaths: games.Deaths, *, restarts: int, deadline: float | None = None, workers: int = WORKERS
) -> tuple[list[list[int]], int]:
    """What was cut, and how many restarts there were."""
    make = partial(games.walks, deaths=deaths)
    env = SubprocessVectorEnv(make, ENVS, workers=workers, deadline=deadline, restarts=restarts)
    try:
        disturbed = played(env, SEEDS, lambda t: t < STEPS)
        assert all(len(mine) > 4 for mine in disturbed)
        return cuts(disturbed, STEPS), env.restarts
    finally:
        env.close()


@pytest.mark.parametrize("kind", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)])
def test_in_a_step_that_goes_on(kind: signal.Signals, tmp_path: Path) -> None:
    deaths = games.Deaths(str(tmp_path), at=((seed(2, 2), 1),), kind=kind)
    cut, restarts = run(deaths, restarts=5, deadline=DEADLINE if kind == signal.SIGSTOP else None)
    assert restarts == 1
    assert cut[2] == [2]
    assert len(cut[3]) == 1  # its neighbour
    assert cut[:2] + cut[4:] == [[]] * 3


def test_in_the_first_and_in_the_last_step_of_an_episode(tmp_path: Path) -> None:
    final = len([row for row in undisturbed(4, 0, STEPS)[1] if row[0] == "due"]) - 1
    cut, restarts = run(games.Deaths(str(tmp_path), at=((seed(4, 1), final), (seed(4, 1, first=2), 0))), restarts=5)
    assert (cut, restarts) == ([[], [], [], [], [1, 3]], 2)


def test_in_the_first_reset_nothing_is_cut(tmp_path: Path) -> None:
    """Twice: the second time in the reset that was to repair it."""
    assert run(games.Deaths(str(tmp_path), at=((seed(4, 0), -1),), times=2), restarts=5) == ([[]] * 5, 2)


def test_in_the_reset_within_a_step_the_episode_that_ended_unheard_is_cut(tmp_path: Path) -> None:
    """Then in the reset that was to repair it, which begins the same episode again."""
    deaths = games.Deaths(str(tmp_path), at=((seed(4, 2), -1), (seed(4, 0, first=2), -1)), times=2)
    assert run(deaths, restarts=5) == ([[], [], [], [], [1]], 3)


@pytest.mark.long
def test_several_at_once(tmp_path: Path) -> None:
    cut, restarts = run(games.Deaths(str(tmp_path), at=tuple((seed(e, 0), 1) for e in range(ENVS))), restarts=5)
    assert (cut, restarts) == ([[0]] * 5, 3)


@pytest.mark.parametrize(
    "column",
    [
        ("due", "observation"),
        *(pytest.param(c, marks=pytest.mark.long) for c in (("ended", "slot"), ("finished", "length"))),
    ],
)
def test_while_it_writes(column: tuple[str, str], tmp_path: Path) -> None:
    cut, restarts = run(games.Deaths(str(tmp_path), column=column), restarts=5, workers=1)
    assert restarts == 1
    assert [len(numbers) for numbers in cut] == [1] * ENVS


@pytest.mark.parametrize("read", [False, pytest.param(True, marks=pytest.mark.long)])
def test_after_it_answered(read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the answer is read, or after that: it counts, and the next step is the one that is lost."""
    env = SubprocessVectorEnv(
        partial(games.walks, deaths=games.Deaths(str(tmp_path))), ENVS, workers=WORKERS, restarts=5
    )
    timestep = env.reset(SEEDS)
    victim, receive = env._processes[1], ChildProcess.receive

    def watched(process: ChildProcess, until: float | None = None) -> Any:
        answer = receive(process, until) if read else None
        if process is victim:
            assert read or process._readable.poll()  # waits until it has answered
            os.kill(process.pid, signal.SIGKILL)
            process._popen.wait()
        return answer if read else receive(process, until)

    with monkeypatch.context() as patch:
        patch.setattr(ChildProcess, "receive", watched)
        timestep = env.step(actions(timestep))
    assert env.restarts == 0
    assert timestep.finished.environment.tolist() == []
    timestep = env.step(actions(timestep))
    assert env.restarts == 1
    assert timestep.finished.environment.tolist() == [2, 3]
    assert timestep.finished.length.tolist() == [2, 2]
    env.close()


# ------------------------------------------------------------------------------------------ at any point


class Killer:
    """Sends one subprocess after the other a signal, at a random time within a few steps and so in the midst of whatever it does then;
    every second SIGKILL is followed by one for what takes its place, which may still be starting."""

    def __init__(self, env: SubprocessVectorEnv, kind: signal.Signals, *, strikes: int) -> None:
        self._env, self._kind, self._strikes = env, kind, strikes
        self._rng = np.random.default_rng(0)
        self._threads: list[threading.Thread] = []
        self.steps = self.kills = 0

    def __call__(self, step: int) -> bool:
        """Whether to go on: until all signals are sent and each was noticed."""
        self.steps = step
        struck = len(self._threads)
        if any(thread.is_alive() for thread in self._threads) or self._env.restarts < self.kills:
            return True
        if step % 100 == 99 and struck < self._strikes:
            again = (
                self._kind == signal.SIGKILL and struck % 2 == 1
            )  # a stop would be seen after more than a minute only
            thread = threading.Thread(target=self._strike, args=(struck % WORKERS, again, *self._rng.random(2)))
            self._threads.append(thread)
            thread.start()
        return struck < self._strikes or step % 100 != 99

    def _strike(self, w: int, again: bool, soon: float, later: float) -> None:
        pid = self._env._processes[w].pid
        time.sleep(soon * 0.003)
        self._send(pid)
        if again:
            while self._env._processes[w].pid == pid:
                time.sleep(0.001)
            time.sleep(later)  # it takes about half a second to start
            self._send(self._env._processes[w].pid)

    def _send(self, pid: int) -> None:
        self.kills += 1
        os.kill(pid, self._kind)


@pytest.mark.parametrize(
    ("kind", "strikes", "kills"), [(signal.SIGKILL, 4, 6), pytest.param(signal.SIGSTOP, 2, 2, marks=pytest.mark.long)]
)
def test_at_random(kind: signal.Signals, strikes: int, kills: int) -> None:
    make = partial(games.walks, deaths=games.Deaths(""))
    deadline = DEADLINE if kind == signal.SIGSTOP else None
    env = SubprocessVectorEnv(make, ENVS, workers=WORKERS, deadline=deadline, restarts=50)
    killer = Killer(env, kind, strikes=strikes)
    disturbed = played(env, SEEDS, killer)
    env.close()
    cut = cuts(disturbed, killer.steps)
    assert env.restarts == killer.kills == kills
    assert 0 < sum(map(len, cut)) <= 2 * kills
