"""Learning curves as people see them: whose they are, their newest numbers, and a picture made of letters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ludus.core.recorders import FIXED, STATISTICS, last, per_second, spread
from ludus.core.types import Curve, TrainingTask

_EPISODES = 100  # that the newest return is a mean of, if a training has so many
_OVER = 2.0  # seconds that its speed is a mean over
_PACE = 10.0  # seconds that the time left is judged by
_TOLD = 4  # statistics that a line has room for
_DOTS = np.array([[0x40, 0x04, 0x02, 0x01], [0x80, 0x20, 0x10, 0x08]])  # of a Braille letter, by column, from below


def learner_key(task: TrainingTask) -> str:
    """`learner_name` of whom it trains."""
    return learner_name(task.population, task.policy, task.generation)


@lru_cache(1024)
def learner_name(population: int, policy: str, generation: int) -> str:
    """Whose curve it is: the name of the policy without its generation, which is the same for all tasks of one learner."""
    head, separator, label = policy.rpartition(f"-{generation}")
    name = head + label if separator and head and label[:1] in ("", "-") else policy
    return f"population {population}" if name == str(population) else f"population {population}, {name}"


def newest(curve: Curve) -> dict[str, float]:
    """Return what a training came to last: the return over the newest episodes, its spread, their length and statistics, the learner's
    metrics of the newest point that has them, environment steps per second. What is not known is left out."""
    recent = last(curve, episodes=_EPISODES)
    values = {
        "return": recent["mean"][0],
        "return_spread": spread(recent)[0],
        "return_low": recent["low"][0],
        "return_high": recent["high"][0],
        "episode_length": recent["length"][0],
        "steps_per_second": per_second(curve, over=_OVER),
    }
    learned = np.flatnonzero(curve["learned"])
    if len(learned):
        values |= dict(zip(curve.columns[len(FIXED) :], curve.values[learned[-1], len(FIXED) :], strict=True))
    values |= {name: recent[name][0] for name in curve.columns if name.startswith(STATISTICS)}
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}


def seconds_left(curve: Curve, fraction: float | None) -> float | None:
    """Return the seconds that a training still takes at its newest pace: the first iteration may have compiled kernels. None if that cannot
    be said. fraction: share that is done."""
    if fraction is None or not 0 < fraction < 1 or len(curve) < 2:
        return None
    left = curve["env_steps"][-1] * (1 - fraction) / fraction / per_second(curve, over=_PACE)
    return float(left) if math.isfinite(left) else None


def is_shown_metric(metric: str) -> bool:
    """Return whether a learner's metric is among those that say how it learns; settings and sizes are not."""
    return metric.endswith(("loss", "entropy", "explained_variance")) or metric in (
        "kl",
        "epsilon",
        "value",
        "td_error",
    )


def format_newest(numbers: dict[str, float]) -> list[str]:
    """`newest` in words, what matters most first."""
    parts = []
    if "return" in numbers:
        apart = numbers.get("return_spread")
        parts.append(f"return {short(numbers['return'])}" + ("" if apart is None else f" ± {short(apart)}"))
    if "episode_length" in numbers:
        parts.append(f"length {short(numbers['episode_length'])}")
    counted = [name for name in numbers if name.startswith(STATISTICS)]
    parts += [f"{name.removeprefix(STATISTICS).replace('_', ' ')} {short(numbers[name])}" for name in counted[:_TOLD]]
    if "steps_per_second" in numbers:
        parts.append(f"{compact(numbers['steps_per_second'])} steps/s")
    return parts + [
        f"{name.replace('_', ' ')} {short(value)}" for name, value in numbers.items() if is_shown_metric(name)
    ]


def picture(curve: Curve, *, width: int, height: int) -> list[str]:
    """Return the mean return over decisions as lines of Braille letters, `width` wide with the numbers at its left; nothing where there are
    not two episodes' worth to draw."""
    known = curve["n"] > 0
    decisions, n, mean = curve["decisions"][known], curve["n"][known], curve["mean"][known]
    if len(mean) < 2:
        return []
    columns, rows = 2 * (width - 10), 4 * height
    place = np.minimum((decisions / decisions[-1] * columns).astype(int), columns - 1)
    total = np.bincount(place, n, columns)
    with np.errstate(invalid="ignore"):
        level = np.bincount(place, n * mean, columns) / total
    occupied = np.flatnonzero(total)
    level = np.interp(np.arange(columns), occupied, level[occupied])
    low, high = float(level.min()), float(level.max())
    dots = ((level - low) / (high - low or 1.0) * (rows - 1)).round().astype(int)
    dots[: occupied[0]] = -1  # before the first episode has ended
    marks = ["" for _ in range(height)]
    marks[0], marks[-1] = short(high), short(low)
    return [f"{mark:>8} │{line}" for mark, line in zip(marks, _braille(dots, height), strict=True)]


def _braille(dots: NDArray[np.int64], height: int) -> Sequence[str]:
    """dots: [2 w] the height of the line at each column of dots, from below; -1: nothing there. Steps are joined."""
    before = np.where(np.append(-1, dots[:-1]) < 0, dots, np.append(-1, dots[:-1]))
    at = np.arange(4 * height)[:, None]
    on = (dots >= 0) & ((at == dots) | ((at > before) & (at < dots)) | ((at < before) & (at > dots)))  # [4 height, 2 w]
    cells = on.reshape(height, 4, -1, 2)
    letters = (cells * _DOTS.T[None, :, None, :]).sum(axis=(1, 3)) + 0x2800
    return ["".join(map(chr, row)).replace("\u2800", " ").rstrip() for row in letters[::-1]]


def short(value: float) -> str:
    """Return a number with at most four significant digits: 187.3, 0.0213, -13, 1.2e-05."""
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e5):
        return f"{value:.1e}"
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    return f"{round(value, digits) + 0.0:.{digits}f}"


def compact(value: float) -> str:
    """Return a count in short: 1234567 is 1.23M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g}{unit}"
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.1f}"
