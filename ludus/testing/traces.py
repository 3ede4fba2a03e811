"""What happens in each environment of a vector, as rows that can be compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.envs.base import VectorEnv
from ludus.testing.actor import Actor
from ludus.types import Array, EnvSpec, Timestep

Row: TypeAlias = tuple[object, ...]
Trace: TypeAlias = list[list[Row]]
"""[environment][event]"""


def play(
    env: VectorEnv, seeds: NDArray[np.uint64], steps: int, *, watch: Callable[[Timestep], None] | None = None
) -> Trace:
    """Random legal actions for so many steps. `watch` sees each timestep before the next step."""
    actor = Actor(env.spec, seeds)
    timestep = env.reset(seeds)
    trace: Trace = [[] for _ in seeds]
    for _ in range(steps):
        if watch is not None:
            watch(timestep)
        record(env.spec, timestep, trace)
        timestep = env.step(actor.actions(timestep))
    return trace


def record(spec: EnvSpec, timestep: Timestep, trace: Sequence[list[Row]]) -> None:
    """Append what a timestep says about each environment."""
    for p, ended in enumerate(timestep.ended):
        agents = len(spec.agents_of(p))
        for i, slot in enumerate(ended.slot.tolist()):
            paid, how = float(ended.reward[i]), bool(ended.terminated[i])
            trace[slot // agents].append(("ended", p, slot % agents, paid, how, _bytes(ended.observation[i])))
    finished = timestep.finished
    for i, e in enumerate(finished.environment.tolist()):
        returns = tuple(finished.returns[i].tolist())
        trace[e].append(("finished", returns, bool(finished.terminated[i]), int(finished.length[i])))
    for p, due in enumerate(timestep.due):
        agents = len(spec.agents_of(p))
        for i, slot in enumerate(due.slot.tolist()):
            shown = _bytes(due.observation[i]), b"" if due.mask is None else _bytes(due.mask[i])
            trace[slot // agents].append(("due", p, slot % agents, *shown, float(due.reward[i]), bool(due.first[i])))


def same(one: Trace, other: Trace, what: str, *, whole: bool = True) -> None:
    """Raises AssertionError where two traces part; `what` names the other. whole: neither may be longer."""
    for e, (a, b) in enumerate(zip(one, other, strict=True)):
        where = f" in environment {e}" if len(one) > 1 else ""
        for i, (x, y) in enumerate(zip(a, b, strict=False)):
            assert x == y, f"{what} went another way{where}, event {i}: {_difference(x, y)}."
        assert len(a) == len(b) or not whole, f"{what} went another way{where}: {len(a)} and {len(b)} events."


_FIELDS = {
    "due": ("", "", "observation", "mask", "reward", "`first`"),
    "ended": ("", "", "last reward", "`terminated`", "final observation"),
    "finished": ("returns", "`terminated`", "length"),
}


def _difference(x: Row, y: Row) -> str:
    """What two rows differ in, in words."""
    kind, *values = x
    other, *others = y
    k = next((k for k, (a, b) in enumerate(zip(values, others, strict=False)) if a != b), 0)
    if kind != other or not (field := _FIELDS[str(kind)][k]):
        return f"{_who(x)}, and {_who(y)}"
    seen = "" if isinstance(values[k], bytes) else f", {values[k]} and {others[k]}"
    return f"{_who(x)}, and the {field} differs{seen}"


def _who(row: Row) -> str:
    kind, player, agent, *_ = row
    return "the episode is finished" if kind == "finished" else f"agent {agent} of player {player} is {kind}"


def _bytes(values: Array) -> bytes:
    return np.ascontiguousarray(values).tobytes()
