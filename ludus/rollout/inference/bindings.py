"""Which policy plays each slot of each player, and the slots' recurrent memory: what local and shared inference have in common."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from ludus.errors import PolicyError
from ludus.rollout.inference import kernels
from ludus.types import Due, EnvSpec, PolicyRef


class Bindings:
    """Policies live in rows of a table; rows that are neither loaded nor bound are used again.

    refs: by row; None: free. row_of: int32[loaded policies]. bound: per player int32[slots], the row that plays each, or -1.
    """

    def __init__(self, spec: EnvSpec, num_envs: int) -> None:
        slots = [num_envs * len(spec.agents_of(p)) for p in range(spec.num_players)]
        self.refs: list[PolicyRef | None] = []
        self.row_of = np.zeros(0, np.int32)
        self.bound = [np.full(n, -1, np.int32) for n in slots]
        self._memory: list[dict[tuple[int, ...], NDArray[np.float32]]] = [{} for _ in slots]

    def load(self, refs: Sequence[PolicyRef]) -> tuple[list[int], Collection[int]]:
        """(the row of each, those rows that are new). A ref with a version that is in the table already stays where it is. Raises
        PolicyError if one comes twice."""
        if len(set(refs)) != len(refs):
            raise PolicyError("the same policy, version and mode was loaded twice; load each once.")
        known = {ref: row for row, ref in enumerate(self.refs) if ref is not None and ref.version is not None}
        kept = {known[ref] for ref in refs if ref in known}
        kept.update(*(self.bound_rows(p).tolist() for p in range(len(self.bound))))
        free = [row for row in range(len(self.refs)) if row not in kept]
        for row in free:
            self.refs[row] = None
        free.reverse()
        rows, fresh = [], set()
        for ref in refs:
            row = known.get(ref, -1)
            if row < 0:
                row = free.pop() if free else len(self.refs)
                self.refs[row : row + 1] = [ref]
                fresh.add(row)
            rows.append(row)
        self.row_of = np.array(rows, np.int32)
        return rows, fresh

    def release(self) -> None:
        """No slot is bound any more."""
        for bound in self.bound:
            bound.fill(-1)

    def bound_rows(self, player: int) -> NDArray[np.int64]:
        """The rows that some slot of a player is bound to, rising."""
        return np.flatnonzero(kernels.present(self.bound[player], len(self.refs)))

    def forget(self, player: int, slots: NDArray[np.int32]) -> None:
        """The memory of these slots starts at zero."""
        for memory in self._memory[player].values():
            memory[slots] = 0

    def begin(self, player: int, due: Due) -> None:
        """As `forget`, where an episode begins."""
        for memory in self._memory[player].values():
            memory[due.slot[due.first]] = 0

    def memory_of(self, player: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """The memory float32[slots, *shape] that a player's policies of this shape read and write."""
        held = self._memory[player]
        if shape not in held:
            held[shape] = np.zeros((len(self.bound[player]), *shape), np.float32)
        return held[shape]


def require_mode(ref: PolicyRef, modes: Sequence[str]) -> None:
    """Raises PolicyError unless the mode is one of those that the policy has."""
    if ref.mode not in modes:
        raise PolicyError(f"policy {ref.policy!r} has no mode {ref.mode!r}; it has {', '.join(modes)}.")
