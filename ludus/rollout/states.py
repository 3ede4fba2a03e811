"""The states of the environments, as a timestep has them: for central critics and mixers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.errors import EnvError
from ludus.types import Array, Timestep


class States(NamedTuple):
    """now [E, *shape]. final [k, *shape]: of the episodes that ended in this step, in the environments `over` int[k], rising."""

    now: Array
    over: NDArray[np.int32]
    final: Array | None

    @staticmethod
    def of(timestep: Timestep, env_id: str) -> States:
        """Raises EnvError if an environment whose spec has a state leaves it out."""
        over = timestep.finished.environment
        if timestep.state is None or (len(over) and timestep.final_state is None):
            left_out = "state" if timestep.state is None else "final_state"
            raise EnvError(f"{env_id} has a state in its spec, and a timestep has no `{left_out}`; it must have one.")
        return States(timestep.state, over, timestep.final_state)

    def after(self, environments: NDArray[np.int64]) -> Array:
        """[n, *shape] of the last moment of decisions that close now: the final one, where the whole episode ended."""
        out: Array = self.now[environments]
        if self.final is not None and len(self.over):
            place = np.minimum(np.searchsorted(self.over, environments), len(self.over) - 1)
            ended = self.over[place] == environments
            out[ended] = self.final[place[ended]]
        return out
