"""What runs in a subprocess of `SubprocessVectorEnv`: one vector of environments, which fills its rows of memory shared with the parent."""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import EnvError
from ludus.core.types import Array, EnvSpec, Timestep
from ludus.envs.base import SupportsRender, VectorEnv
from ludus.envs.game_facts import difference, player_facts
from ludus.envs.processes.memory import Memory, PlayerRows, SideRows

RowCounts: TypeAlias = tuple[int, bool, int, bool]
"""Of one player: due rows, whether they have masks; closed rows, whether they have masks."""
WriteCounts: TypeAlias = tuple[tuple[RowCounts, ...], int]
"""What a subprocess wrote into a side: rows of each player, finished episodes."""


class EnvironmentWorker:
    """Answers the parent's calls (`ludus.runtime.child_process.Served`)."""

    def __init__(self) -> None:
        self._make: Callable[..., VectorEnv] | None = None
        self._num_envs = 0
        self._first = 0  # number of the first environment, in the whole vector
        self._env: VectorEnv | None = None
        self._memory: Memory | None = None

    def make(self, make: Callable[..., VectorEnv], first: int, num_envs: int, with_spec: bool) -> EnvSpec | None:
        """Make the vector; its spec, if asked for."""
        self._make, self._first, self._num_envs = make, first, num_envs
        env = self._get_env()
        return env.spec if with_spec else None

    def map(self, spec: EnvSpec, num_envs: int, descriptor: int) -> None:
        """Map the memory behind the descriptor; it is of the whole vector, which plays `spec`. Raises EnvError if this one does not."""
        self._memory = Memory(spec, num_envs, descriptor)
        os.close(descriptor)
        self._agree(spec)

    def reset(self, side: int, seeds: NDArray[np.uint64], episodes: NDArray[np.int64] | None) -> WriteCounts:
        """Begin new episodes, after a fault in a new vector."""
        return self._try(side, lambda env: env.reset(seeds, episodes=episodes))

    def step(
        self, side: int, starts: list[int], counts: list[int], kinds: list[tuple[str, tuple[int, ...]]]
    ) -> WriteCounts:
        """Take `counts[p]` actions of dtype and shape `kinds[p]` from row `starts[p]` on."""
        assert self._memory is not None
        actions: list[Array] = []
        for column, start, count, (dtype, shape) in zip(self._memory.actions, starts, counts, kinds, strict=True):
            width = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            raw = column.reshape(-1)[start * width : (start + count) * width]
            actions.append(raw.view(dtype).reshape(count, *shape).copy())
        return self._try(side, lambda env: env.step(tuple(actions)))

    def render(self, environment: int) -> Any:
        env = self._get_env()
        if not isinstance(env, SupportsRender):
            raise EnvError(f"{env.spec.id} cannot show itself.")
        return env.render(environment)

    def close(self) -> None:
        """Close the vector, whatever it raises."""
        env, self._env = self._env, None
        if env is not None:
            try:
                env.close()
            except Exception:  # noqa: BLE001
                traceback.print_exc()

    def _agree(self, spec: EnvSpec) -> None:
        """List the agents as `spec` does: names may come in another order in each process, as those of a set do."""
        assert self._make is not None
        names, own = ([agent.name for agent in described.agents] for described in (spec, self._get_env().spec))
        if names != own and sorted(names) == sorted(own):
            self.close()
            self._make = partial(self._make, agent_order=names)
        if wrong := difference(
            player_facts(spec), player_facts(self._get_env().spec), "the first subprocess", bounds=True
        ):
            raise EnvError(
                f"{spec.id} is another game in this subprocess than in the first one: {wrong} It has to be the same whenever it is made."
            )

    def _get_env(self) -> VectorEnv:
        if self._env is None:
            assert self._make is not None
            self._env = self._make(num_envs=self._num_envs)
        return self._env

    def _try(self, side: int, act: Callable[[VectorEnv], Timestep]) -> WriteCounts:
        """Act and write the timestep; a vector that raised is discarded."""
        env = self._get_env()
        try:
            timestep = act(env)
            assert self._memory is not None
            return write(self._memory.sides[side], timestep, self._first, self._num_envs)
        except BaseException:
            self.close()
            del env
            gc.collect()  # what the old vector holds is given back before a new one is made
            raise


def write(side: SideRows, timestep: Timestep, first: int, num_envs: int) -> WriteCounts:
    """Copy a timestep of environments `first` … into their rows of the whole vector's side."""
    rows = tuple(_write_player(views, timestep, p, first * views.agents) for p, views in enumerate(side.players))
    finished = timestep.finished
    n = len(finished.environment)
    if n:
        at = slice(first, first + n)
        side.environment[at] = finished.environment + first
        side.returns[at] = finished.returns
        side.terminated[at] = finished.terminated
        side.length[at] = finished.length
        if side.statistics is not None and finished.statistics is not None:
            side.statistics[at] = finished.statistics
    if side.state is not None and timestep.state is not None:
        side.state[first : first + num_envs] = timestep.state
    if n and side.final_state is not None and timestep.final_state is not None:
        side.final_state[first : first + n] = timestep.final_state
    return rows, n


def _write_player(views: PlayerRows, timestep: Timestep, player: int, base: int) -> RowCounts:
    due, ended = timestep.due[player], timestep.ended[player]
    n, m = len(due.slot), len(ended.slot)
    if n:
        at = slice(base, base + n)
        np.add(due.slot, base, out=views.slot[at])
        views.observation[at] = due.observation
        views.reward[at] = due.reward
        views.first[at] = due.first
        if due.mask is not None and views.mask is not None:
            views.mask[at] = due.mask
    if m:
        at = slice(base, base + m)
        np.add(ended.slot, base, out=views.end_slot[at])
        views.end_reward[at] = ended.reward
        views.end_terminated[at] = ended.terminated
        views.end_observation[at] = ended.observation
        if ended.mask is not None and views.end_mask is not None:
            views.end_mask[at] = ended.mask
    return n, due.mask is not None, m, ended.mask is not None
