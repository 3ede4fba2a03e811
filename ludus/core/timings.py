"""Where a run's time goes: wall seconds by part, and what was counted meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

from ludus.core.types import State

PARTS: Mapping[str, str] = {
    "environment": "stepping and resetting environments",
    "inference": "policies: forward passes, sampling, log-probabilities",
    "writing": "trajectories and results of episodes",
    "waiting": "for environments in other processes",
    "rollout": "the rest of the rollout loop: drawing opponents, loading policies",
    "learning": "updates of the learners",
    "meta-solver": "solving the meta-game, scheduling",
    "evaluation": "exact payoffs and best responses",
    "checkpoints": "barriers: checkpoints and database",
}


class Timings:
    """Adds up seconds by part and counts by name. `pop_metrics` gives what came since its last call, and
    `seconds_since_last` the seconds since its own last call."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._counts: dict[str, int] = {}
        self._stretch: dict[str, float] = {}
        self.rollout_seconds = 0.0
        """Seconds that rollout workers have said they played in this session: the mean over them, whoever waited for it."""

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time what happens inside; `name` is one of `PARTS`."""
        begun = perf_counter()
        try:
            yield
        finally:
            self._add(name, perf_counter() - begun)

    def rollout(self, wall: float, seconds: Mapping[str, float], counters: Mapping[str, int]) -> None:
        """Add a rollout that took `wall` seconds, of which it says where it spent `seconds`."""
        for name, value in seconds.items():
            self._add(name, value)
        self.rollout_seconds += sum(seconds.values())
        self._add("rollout", max(0.0, wall - sum(seconds.values())))
        for name, count in counters.items():
            self._counts[name] = self._counts.get(name, 0) + count
            self._stretch[name] = self._stretch.get(name, 0.0) + count

    def _add(self, part: str, seconds: float) -> None:
        self._seconds[part] += seconds
        self._stretch[f"seconds/{part}"] = self._stretch.get(f"seconds/{part}", 0.0) + seconds

    def seconds_since_last(self) -> dict[str, float]:
        """`seconds/<part>` and `<counter>` since the last call, or since the session began. No part of the state."""
        out, self._stretch = self._stretch, {}
        return out

    def state_dict(self) -> State:
        return {"seconds": dict(self._seconds), "counts": dict(self._counts)}

    def load_state_dict(self, state: State) -> None:
        self._seconds, self._counts = dict(state["seconds"]), dict(state["counts"])

    def pop_metrics(self) -> dict[str, float]:
        """`seconds/<part>` and `rollout/<counter>` since the last call, those that are not 0."""
        out = {f"seconds/{name}": value for name, value in self._seconds.items() if value}
        out.update((f"rollout/{name}", float(count)) for name, count in self._counts.items() if count)
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._counts = {}
        return out
