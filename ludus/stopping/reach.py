"""Which stoppers could ever fire where they stand: one that cannot would let a response go on for ever (invariant 10)."""

from __future__ import annotations

from collections.abc import Collection

from ludus.stopping import stoppers
from ludus.stopping.stoppers import Stopper

COUNTERS = frozenset({"env_steps", "decisions", "episodes", "samples", "updates"})
RESPONSE = COUNTERS | {"seconds", "scores", "win_rates"}
"""The fields of `Progress` that grow during a training task."""
RUN = frozenset({"seconds", "generations", "gains"})
"""Those that grow during every run; counters too if its oracle learns, nash_conv too where exploitability is computed."""


def out_of_reach(stopper: Stopper, grows: Collection[str]) -> str | None:
    """The field of `Progress` that the stopper waits for and that does not grow here; None if it can fire, or is of a kind that we do
    not know."""
    if isinstance(stopper, stoppers.AnyOf):
        missing = [out_of_reach(one, grows) for one in stopper.of]
        return None if None in missing else missing[0]
    if isinstance(stopper, stoppers.AllOf):
        return next((field for one in stopper.of if (field := out_of_reach(one, grows))), None)
    field = _reads(stopper)
    return None if field is None or field in grows else field


def _reads(stopper: Stopper) -> str | None:
    if isinstance(stopper, stoppers.NoImprovement):
        return stopper.of
    known: dict[type, str] = {
        stoppers.Seconds: "seconds",
        stoppers.NashConv: "nash_conv",
        stoppers.WinRate: "win_rates",
        stoppers.BestResponseGain: "gains",
    }
    return known.get(type(stopper)) or getattr(type(stopper), "counter", None)
