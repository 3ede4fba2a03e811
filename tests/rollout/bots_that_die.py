"""A bot that remembers its episode, and whose process can be killed in the midst of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np


class Remembers:
    """Plays by all that it has seen in the episode. Its process dies once for each file of the folder BOT_KILLS."""

    def __init__(self) -> None:
        self.folder = os.environ.get("BOT_KILLS", "")

    def restart(self, player, seed):
        self.rng, self.seen = np.random.default_rng(seed), 0.0

    def act(self, observation, mask):
        self.seen += float(np.sum(observation * np.arange(len(observation))))
        files = sorted(Path(self.folder).iterdir()) if self.folder else []
        if files and int(self.seen) % 7 == 0:
            files[0].unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        legal = np.flatnonzero(mask)
        return legal[(int(self.seen) + self.rng.integers(len(legal))) % len(legal)]


class Always:
    """A bot whose process dies whenever it is asked."""

    def restart(self, player, seed):
        pass

    def act(self, observation, mask):
        os.kill(os.getpid(), signal.SIGKILL)
