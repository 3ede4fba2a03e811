"""Outcomes: zero sums, symmetry, ranges of returns, players who cannot win.

Symmetry is a statistical claim. Under one random policy for all, the returns of interchangeable players are exchangeable, so the difference
d of two of them is distributed symmetrically about 0. With the magnitudes fixed, signs are then fair coins, and by Hoeffding's inequality
P(|Σ d| ≥ t (Σ d²)^½) ≤ 2 exp(−t²/2), whatever the distribution and the number of episodes. t is such that all tests together accuse a
symmetric game with probability 1e-6 at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import log, sqrt

import numpy as np

from ludus.testing.detector.finding import Finding
from ludus.testing.detector.recording import Recording

SUMS, SYMMETRY, RANGE, WINNERS = "zero sum", "symmetry", "utility range", "winners"
ERROR_RATE = 1e-6
"""Probability at most with which a symmetric game is called asymmetric."""
_MONEY = 1e-4  # rewards are float32
_DECIDED = (
    200  # decided episodes; a player who wins a twentieth of them is called a loser with probability 0.95 ** 200 = 4e-5
)


def zero_sum(recording: Recording) -> Iterator[Finding]:
    """Yield a finding where returns should sum to a constant and do not, or do and are not said to."""
    spec, returns = recording.spec, recording.returns()
    if spec.num_players < 2 or len(returns) < 2:
        return
    sums = returns.sum(axis=1)
    spread = float(np.ptp(sums))
    size = 1 + float(np.abs(returns).max())
    low, high = int(sums.argmin()), int(sums.argmax())
    episode = recording.terminated[high]
    if spec.zero_sum and spread > _MONEY * size:
        yield Finding(
            SUMS,
            "error",
            f"it is declared zero-sum, and returns sum to {sums[low]:g} in one episode and to {sums[high]:g} in another.",
            "Leave out `zero_sum`, or correct the rewards.",
            {**episode.place(), "returns": returns[high].tolist(), "others": returns[low].tolist()},
        )
        return
    constant = spec.constant_sum
    if spec.zero_sum and constant is not None and abs(float(sums[0]) - constant) > _MONEY * size:
        yield Finding(
            SUMS,
            "error",
            f"returns sum to {sums[0]:g}, and by its utility range to {constant:g}.",
            "Correct `utility_range`: the least of one player and the largest of the other are of one outcome.",
            {**episode.place(), "returns": returns[high].tolist()},
        )
    varied = float(np.ptp(returns, axis=0).max()) > _MONEY * size
    if not spec.zero_sum and spread <= _MONEY * size and varied and len(returns) >= 50:
        yield Finding(
            SUMS,
            "note",
            f"returns summed to {sums[0]:g} in all of {len(returns)} episodes, and it is not declared zero-sum.",
            "Where its rules say so, declare it (`zero_sum`): solvers and reports then use it.",
            {"episodes": len(returns)},
        )


def symmetry(recording: Recording) -> Iterator[Finding]:
    """Yield a finding where interchangeable players earn differently under one random policy."""
    returns = recording.returns()
    pairs = [pair for group in recording.spec.symmetry for pair in combinations(group, 2)]
    if not pairs or len(returns) < 2:
        return
    threshold = sqrt(2 * log(4 * len(pairs) / ERROR_RATE))
    for i, j in pairs:
        d = returns[:, i] - returns[:, j]
        for what, values in (("earns", d), ("is ahead", np.sign(np.where(np.abs(d) > _MONEY, d, 0.0)))):
            norm = float(np.sqrt((values**2).sum()))
            if norm == 0 or abs(float(values.sum())) < threshold * norm:
                continue
            yield Finding(
                SYMMETRY,
                "error",
                f"players {i} and {j} are declared interchangeable; under one random policy player {i} {what} "
                f"{'more' if values.sum() > 0 else 'less'}{' often' if what != 'earns' else ''} than player {j}: by "
                f"{values.mean():.4g} in the mean of {len(values)} episodes.",
                f"Correct `symmetry` (a symmetric game is accused with probability {ERROR_RATE:g} at most), or what favours one.",
                {
                    "episodes": len(values),
                    "mean": returns.mean(axis=0).tolist(),
                    "deviations": float(abs(values.sum())) / norm,
                },
            )
            return


def utility_range(recording: Recording) -> Iterator[Finding]:
    """Yield a finding where a return lies outside of the declared range."""
    low, high = np.array(recording.spec.utility_range).T
    for episode in recording.episodes:
        returns = np.array(episode.returns)
        slack = _MONEY * (1 + np.abs(returns))
        wrong = np.flatnonzero((returns < low - slack) | (returns > high + slack))
        if len(wrong):
            p = int(wrong[0])
            yield Finding(
                RANGE,
                "error",
                f"player {p} earned {returns[p]:g}; its utility range is {recording.spec.utility_range[p]}.",
                "Give a `utility_range` that holds, or infinities: tables and intervals trust it.",
                {**episode.place(), "returns": returns.tolist(), "length": episode.length},
            )
            return


def winners(recording: Recording) -> Iterator[Finding]:
    """Yield a finding where a player is never ahead of the others, or all episodes have one and the same result."""
    returns = recording.returns()
    if len(returns) < 50:
        return
    if float(np.ptp(returns, axis=0).max()) <= _MONEY:
        yield Finding(
            WINNERS,
            "note",
            f"all of {len(returns)} random episodes had the result {returns[0].tolist()}.",
            "If play should matter, see whether rewards arrive; random play may be too poor to reach any.",
            {"episodes": len(returns)},
        )
        return
    if recording.spec.num_players < 2:
        return
    best = returns.max(axis=1)
    decided = returns[best - returns.min(axis=1) > _MONEY]
    if len(decided) < 50:
        return
    ahead = (decided >= decided.max(axis=1, keepdims=True) - _MONEY).sum(axis=0)
    for p in np.flatnonzero(ahead == 0).tolist():
        sure = recording.spec.zero_sum and len(decided) >= _DECIDED
        yield Finding(
            WINNERS,
            "warning" if sure else "note",
            f"player {p} was not ahead in any of {len(decided)} decided random episodes.",
            "If it should be able to win, see how its win is paid.",
            {"episodes": len(decided), "ahead": ahead.tolist(), "mean": returns.mean(axis=0).tolist()},
        )
