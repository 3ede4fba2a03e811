"""Costs: pauses of single steps, memory that grows with episodes, descriptions that do not reach other processes."""

from __future__ import annotations

import gc
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ludus.testing.detector.finding import Finding
from ludus.testing.detector.recording import Recording
from ludus.testing.detector.session import Session
from ludus.testing.ledger import Actor

PAUSES, MEMORY, PROCESSES = "pauses", "memory", "descriptions"
_LONG = 1.0  # seconds of a step
_TIMES = 100  # the median step
_PARTS, _FIRST = 8, 3  # of the play in which memory is read; those that are not counted
_EACH = 64 << 10  # bytes in each part
_THOUSAND = 8 << 20  # bytes in a thousand episodes
_PAGE = os.sysconf("SC_PAGE_SIZE")


def pauses(recording: Recording) -> Iterator[Finding]:
    """Yield a finding where a step takes seconds and others do not."""
    seconds = np.array(recording.seconds[5:])  # compilers and caches
    if len(seconds) < 20:
        return
    median, k = float(np.median(seconds)), int(seconds.argmax())
    if seconds[k] >= _LONG and seconds[k] >= _TIMES * median:
        yield Finding(
            PAUSES,
            "note",
            f"a step took {seconds[k]:.2g} s, the median is {median:.2g} s.",
            "With several environments in one process all wait for it; `workers` takes it to others.",
            {"step of the vector": k + 5, "seconds": float(seconds[k])},
        )


def memory(session: Session) -> Iterator[Finding]:
    """Yield a finding where this process grows with the number of episodes: in each of several parts of a play, after the first ones."""
    if not session.ends:
        return
    seeds = session.seeds("memory")
    actor = Actor(session.spec, seeds)
    timestep = session.env.reset(seeds)
    clock = session.budget.clock
    share = (session.until - clock()) / _PARTS
    sizes, counts, episodes = [], [], 0
    for part in range(_PARTS):
        until = session.until - share * (_PARTS - 1 - part)
        most = session.budget.episodes * (part + 1) // _PARTS
        while clock() < until and episodes < most:
            timestep = session.env.step(actor.actions(timestep))
            episodes += len(timestep.finished.environment)
        gc.collect()
        sizes.append(_resident())
        counts.append(episodes)
    growth, played = np.diff(sizes[_FIRST - 1 :]), counts[-1] - counts[_FIRST - 1]
    if played < 2 * len(growth) or (growth < _EACH).any():
        return
    rate = float(growth.sum()) / played * 1000
    if rate >= _THOUSAND:
        yield Finding(
            MEMORY,
            "warning",
            f"memory grew by {rate / 2**20:.3g} MiB per thousand episodes, in each of {len(growth)} parts of the play.",
            "See what `reset` and `step` append to and never clear.",
            {"episodes": played, "MiB": float(growth.sum()) / 2**20},
        )


def _resident() -> int:
    """Return the bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE


def descriptions(session: Session) -> Iterator[Finding]:
    """Yield a finding where the description, or what other processes may want of an object, cannot be pickled."""
    try:
        pickle.dumps(session.spec)
    except Exception as error:  # noqa: BLE001  whatever objects raise when they are pickled
        yield Finding(
            PROCESSES,
            "error",
            f"its description cannot be sent to another process: {' '.join(str(error).split())}",
            "Use spaces of Gymnasium's own classes, and no functions, locks or open files in them.",
            {"part": "spec"},
        )
    session.env.reset(session.seeds("descriptions"))
    game: Any = session.game()
    for name in ("metadata", "observation_space", "action_space", "observation_spaces", "action_spaces"):
        value = getattr(game, name, None)
        if value is None or callable(value):
            continue
        try:
            pickle.dumps(value)
        except Exception as error:  # noqa: BLE001  as above
            yield Finding(
                PROCESSES,
                "warning",
                f"its {name} cannot be sent to another process: {' '.join(str(error).split())}",
                f"Leave functions, locks and open files out of {name}.",
                {"part": name},
            )
