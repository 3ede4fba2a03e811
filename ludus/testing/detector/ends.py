"""Ends: limits that look like ends, random play that is over at once, episodes that do not end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from ludus.testing.detector.finding import Finding
from ludus.testing.detector.recording import Decision, Episode, Recording

LIMITS, AT_ONCE, ENDLESS = "limits", "ends at once", "endless episodes"
_EPISODES = 20  # that ended, from which on lengths say something
_SHORT = 10  # steps: limits are longer, rounds of a game may be as short
_SHARE = 0.2  # of all episodes that end with the largest length, before which ends are rare
_VISIBLE = 0.95  # share of the variance of the step's number that observations explain
_WIDTH = 512  # numbers of an observation that are used for that, at most

_Matrix = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def limits(recording: Recording) -> Iterator[Finding]:
    """Yield a finding where episodes are terminated at one and the same length, which observations do not show."""
    ended = recording.episodes
    if len(ended) < _EPISODES or not all(one.terminated for one in ended):
        return
    length = max(one.length for one in ended)
    last = [one for one in ended if one.length == length]
    if length < 2 or len(last) < max(5, _SHARE * len(ended)) or _hazard(ended, length) > _SHARE:
        return
    names = [name for name, value in recording.attributes.items() if value == length]
    evidence = {**last[0].place(), "length": length, "episodes": f"{len(last)} of {len(ended)}"}
    always = len(last) == len(ended)
    what = f"{'every episode' if always else f'{len(last)} of {len(ended)} episodes'} ended after {length} steps, as terminated"
    if shows_time(recording, ended, last):
        if always:
            yield Finding(LIMITS, "note", f"{what}; observations show the number of the step.", "", evidence)
        return
    advice = (
        "An end by a limit of steps is a truncation (`truncated=True`), which is bootstrapped; or show the time that is left in "
        "observations."
    )
    if names:
        yield Finding(
            LIMITS,
            "error",
            f"{what}; that is its own {names[0]}={length}, and observations do not show the time.",
            advice,
            {**evidence, "attribute": names[0]},
        )
    elif length >= _SHORT:
        yield Finding(
            LIMITS,
            "warning",
            f"{what}, and observations do not show the time: it looks like a limit.",
            advice,
            evidence,
        )
    elif always and length > 1:
        yield Finding(LIMITS, "note", f"{what}, and observations do not show the time.", advice, evidence)


def _hazard(ended: Sequence[Episode], length: int) -> float:
    """Return the share of the steps before the last one in which episodes end, of those that come so far: in the last third."""
    begin = length * 2 // 3
    steps = sum(min(one.length, length - 1) - begin for one in ended if one.length > begin)
    ends = sum(begin < one.length < length for one in ended)
    return ends / steps if steps > 0 else 0.0


def shows_time(recording: Recording, ended: Sequence[Episode], last: Sequence[Episode]) -> bool:
    """Return whether observations show the number of the step: those of last steps never occur before, and others repeat; or a linear
    function of their numbers explains it, in episodes that it was not fitted to.

    Args:
        recording: Of these episodes.
        ended: All that ended.
        last: Those that ended at the largest length.
    """
    final = {one.code for episode in last for one in episode.decisions if one.step == episode.length - 1}
    length = last[0].length
    before = Counter(one.code for episode in ended for one in episode.decisions if one.step < length - 1)
    repeats = sum(before.values()) > 2 * len(before)
    if repeats and not final & before.keys():
        return True
    players = {(one.player, one.agent) for episode in last for one in episode.decisions if one.step == length - 1}
    return any(_explained(recording, ended, p, a) > _VISIBLE for p, a in players)


def _explained(recording: Recording, ended: Sequence[Episode], player: int, agent: int) -> float:
    """Return R² of the step's number as a linear function of an agent's observations, on every third episode, fitted on the others."""
    parts: tuple[list[Decision], list[Decision]] = ([], [])
    for k, episode in enumerate(ended):
        parts[k % 3 == 0].extend(
            one
            for one in episode.decisions
            if (one.player, one.agent) == (player, agent) and one.observation is not None
        )
    if min(map(len, parts)) < 10:
        return 0.0
    (x, y), (test, steps) = (
        (_features(recording, part), np.array([one.step for one in part], float)) for part in parts
    )
    if np.ptp(steps) == 0:
        return 0.0
    columns = _correlated(x, y, min(_WIDTH, len(y) // 3))
    weights = np.linalg.lstsq(x[:, columns], y, rcond=None)[0]
    return 1.0 - float(np.var(steps - test[:, columns] @ weights) / np.var(steps))


def _correlated(x: _Matrix, y: _Matrix, width: int) -> np.ndarray[tuple[int, ...], np.dtype[np.intp]]:
    """Return intp[<= width + 1]: the last column, which is one, and those of the others that correlate most with `y`.

    Observations may have thousands of numbers of which few count time, so columns are not drawn without a look at them.
    """
    centred, steps = x - x.mean(axis=0), y - y.mean()
    scale = np.sqrt((centred**2).sum(axis=0) * (steps**2).sum())
    strength = np.abs(centred.T @ steps) / np.where(scale > 0, scale, np.inf)
    return np.append(np.argsort(-strength[:-1], kind="stable")[: max(1, width)], x.shape[1] - 1)


def _features(recording: Recording, decisions: Sequence[Decision]) -> _Matrix:
    """Return float64[n, k]: numbers of observations and masks; their sums, sums of magnitudes, non-zeros; one."""
    enumeration = recording.spec.enumeration
    rows = np.stack([np.asarray(one.observation) for one in decisions])
    if enumeration is not None:
        rows = enumeration.observation[rows]
    parts = [rows.reshape(len(decisions), -1)]
    if all(one.mask is not None for one in decisions):
        parts.append(np.stack([np.asarray(one.mask) for one in decisions]))
    parts = [np.nan_to_num(part.astype(np.float64), posinf=0, neginf=0) for part in parts]
    sums = [
        column for part in parts for column in (part.sum(axis=1), np.abs(part).sum(axis=1), (part != 0).sum(axis=1))
    ]
    return np.column_stack([*parts, *sums, np.ones(len(decisions))])


def ends_at_once(recording: Recording) -> Iterator[Finding]:
    """Yield a finding where most random episodes are over after one step, and others are not."""
    ended = recording.episodes
    short = [one for one in ended if one.length <= 1]
    longest = max((one.length for one in [*ended, *recording.open]), default=0)
    if len(ended) < _EPISODES or len(short) < len(ended) / 2:
        return
    evidence = {**short[0].place(), "episodes": f"{len(short)} of {len(ended)}", "longest": longest}
    if len(short) == len(ended):
        yield Finding(
            AT_ONCE,
            "note",
            "every episode is one step.",
            "If it should be longer, see what its first step ends with.",
            evidence,
        )
    elif longest >= 5:
        yield Finding(
            AT_ONCE,
            "warning",
            f"{len(short)} of {len(ended)} random episodes are over after one step; the longest took {longest}.",
            "If illegal actions end it, give masks, and check that they arrive (`masks`).",
            evidence,
        )


def endless(recording: Recording, *, longest: int) -> Iterator[Finding]:
    """Yield a finding where no random episode ends.

    Args:
        recording: Of random play.
        longest: Steps from which on that is a warning.
    """
    steps = max((one.length for one in recording.open), default=0)
    if recording.episodes or recording.fault is not None or not steps:
        return
    evidence = {**recording.open[0].place(), "steps": steps}
    if steps >= longest:
        yield Finding(
            ENDLESS,
            "warning",
            f"no episode ended within {steps:,} steps of random play.",
            "Give it a limit, as a truncation (Gymnasium: `TimeLimit`; Ludus: the wrapper time_limit).",
            evidence,
        )
    else:
        yield Finding(
            ENDLESS,
            "note",
            f"no episode ended within {steps:,} steps, so ends and returns were not checked.",
            "Give it more --seconds.",
            evidence,
        )


def too_many_decisions(recording: Recording) -> Iterator[Finding]:
    """Yield a finding where an agent decides more often than the description says is possible."""
    most = recording.spec.max_decisions
    if most is None:
        return
    for episode in [*recording.episodes, *recording.open]:
        counts = Counter((one.player, one.agent) for one in episode.decisions)
        if not counts:
            continue
        (p, a), count = counts.most_common(1)[0]
        if count > most:
            yield Finding(
                ENDLESS,
                "error",
                f"an agent decided {count} times in an episode; its description allows {most} (`max_decisions`, or its own limit).",
                "Let the limit end episodes, or correct the description.",
                {**episode.place(), "agent": recording.name(p, a)},
            )
            return
