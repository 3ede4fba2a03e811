"""How well simple_speaker_listener can be played at all: the listener's best path to the landmark, by beam search.

In MPE2 an agent moves by the velocity that it had before its action; in the particle environments that it comes from, by the one after it;
we take EPyMARL's figures to be of those. A path is one step shorter there, and returns are better, whoever plays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

Floats = NDArray[np.float64]

STEPS, AGENTS = 25, 2  # the team's return counts the distance for each agent
_DT, _KEPT = 0.1, 0.75  # seconds of a step; share of a velocity that damping leaves
_PUSH = 0.5 * np.array(
    [[0.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]]
)  # what each action adds to the velocity


def best_returns(start: Floats, *, idle: int = 0, before: bool = True, steps: int = STEPS, beam: int = 100) -> Floats:
    """Returns float64[n] of the team, of listeners that begin at start float64[n, 2] from their landmark and know it, but do nothing for
    `idle` steps. before: positions move by the velocities before the action, as in MPE2. At most the optimum, and near it."""
    n = len(start)
    place, velocity, cost = start[:, None, :].copy(), np.zeros((n, 1, 2)), np.zeros((n, 1))
    for t in range(steps):
        pushes = _PUSH[:1] if t < idle else _PUSH
        now = velocity[:, :, None]
        faster = (now * _KEPT + pushes).reshape(n, -1, 2)
        moved = np.broadcast_to(now, (n, now.shape[1], len(pushes), 2)).reshape(n, -1, 2) if before else faster
        there = np.repeat(place, len(pushes), axis=1) + _DT * moved
        spent = np.repeat(cost, len(pushes), axis=1) + np.square(there).sum(axis=2)
        ahead = np.square(there + 3 * _DT * faster).sum(axis=2) * min(1.0, (steps - 1 - t) / 4)
        if spent.shape[1] > beam:
            kept = np.argpartition(spent + 3 * ahead, beam, axis=1)[:, :beam]
            row = np.arange(n)[:, None]
            there, faster, spent = there[row, kept], faster[row, kept], spent[row, kept]
        place, velocity, cost = there, faster, spent
    return np.asarray(-AGENTS * cost.min(axis=1))


def table(episodes: int, *, seed: int = 0) -> Table:
    """Mean best returns over so many random beginnings, with standard errors."""
    rng = np.random.default_rng(seed)
    start = rng.uniform(-1, 1, (episodes, 2)) - rng.uniform(-1, 1, (episodes, 2))
    out = Table(title=f"simple_speaker_listener: best return of the team, {episodes:,} episodes")
    for column in ("", "knows the landmark at once", "does nothing in the first step, as it was told nothing"):
        out.add_column(column)
    for name, before in (("MPE2", True), ("positions after velocities", False)):
        found = [best_returns(start, idle=idle, before=before) for idle in (0, 1)]
        out.add_row(name, *(f"{r.mean():.2f} ± {r.std() / np.sqrt(episodes):.2f}" for r in found))
    return out
