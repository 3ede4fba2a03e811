"""The vectors of functional environments: on the host, with NumPy's views of what JAX computed, and on a device, with torch's.

actions -> one compiled call steps all environments and begins the next episodes -> rows -> publish
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from ludus.contrib.envs.functional.game import BatchedStep, Program, split_seeds
from ludus.core import seeding
from ludus.core.errors import EnvError
from ludus.core.types import ActionRequests, Array, ClosedDecisions, EnvSpec, FinishedEpisodes, Timestep
from ludus.envs.base import NoSnapshotMixin
from ludus.envs.device_vector import DeviceSlots, DeviceTimestep, DeviceVectorEnv
from ludus.envs.publisher import GOES_ON, TERMINATED, Publisher
from ludus.envs.python_vector import check_actions

_FIRST = "step was called before reset; reset the environment first."

# --------------------------------------------------------------------------------------------------------------------
# On the host. What JAX computes on the CPU is in memory that NumPy reads without a copy; it is not written to, and stays as long as
# it is referenced.


class JaxVectorEnv(NoSnapshotMixin):
    """`VectorEnv` over a program, on the CPU. All of episode k in environment e comes from (seeds[e], k)."""

    def __init__(self, program: Program, num_envs: int) -> None:
        self.spec, self.num_envs = program.spec, num_envs
        self._program = program
        self._pub = Publisher(self.spec, num_envs, masked=program.masked)
        self._actions = [
            no_actions(self.spec.agents_of(p)[0].action, num_envs, agents) for p, agents in enumerate(program.agents)
        ]
        self._cpu = jax.local_devices(backend="cpu")[0]
        self._carry: Any = None
        self._last: Timestep | None = None
        self._alone = _Accounts(self.spec, num_envs)

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """Reset as `VectorEnv.reset` describes."""
        self._pub.reset(seeds, episodes)
        with jax.default_device(self._cpu):
            self._carry, batch = self._program.begin(split_seeds(seeds))
        self._show(batch)
        return self._publish(batch)

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """Step as `VectorEnv.step` describes. Raises EnvError for wrong actions, and for non-finite numbers of the environment."""
        last, pub = self._last, self._pub
        if last is None:
            raise EnvError(_FIRST)
        for p, due in enumerate(last.due):
            rows = np.asarray(actions[p])
            if len(rows) != len(due.slot):
                raise EnvError(f"player {p} was given {len(rows)} actions for {len(due.slot)} due decisions; one each.")
            check_actions(self.spec.agents_of(p)[0].action, rows, mask=due.mask, what=f"player {p} of {self.spec.id}")
            dense = self._actions[p]
            dense.fill(0)
            dense.reshape(-1, *dense.shape[2:])[due.slot] = rows
        with jax.default_device(self._cpu):
            self._carry, batch = self._program.step(self._carry, tuple(self._actions))
        pub.over[:] = batch.over
        pub.over[pub.idle] = GOES_ON
        going = ~pub.idle
        for p, agents in enumerate(pub.agents):
            pub.reward[p].reshape(-1, agents)[:] = np.asarray(batch.reward[p]).reshape(-1, agents) * going[:, None]
        if pub.over.any():
            pub.begin_next()
        self._show(batch)
        return self._publish(batch)

    # Some environments alone, while the others wait (`PartialVector` of ludus.apps.interfaces.partial_vectors). The compiled call steps
    # all, and what it made of the others is dropped.

    def begin(self, environments: NDArray[np.int64], seeds: NDArray[np.uint64]) -> Timestep:
        """Begin one episode in each of some environments, and list these alone.

        Args:
            environments: int64[n].
            seeds: uint64[n].
        """
        chosen, everyone = np.zeros(self.num_envs, np.bool_), np.zeros(self.num_envs, np.uint64)
        chosen[environments], everyone[environments] = True, seeds
        with jax.default_device(self._cpu):
            carry, batch = self._program.begin(split_seeds(everyone))
            self._carry = carry if self._carry is None else _keep(chosen, carry, self._carry)
        self._alone.begin(chosen)
        return self._alone.timestep(batch, chosen)

    def put(self, player: int, slots: NDArray[np.int32], actions: Array) -> None:
        """Note legal actions [n, …] of a player in these slots, for `go`."""
        dense = self._actions[player]
        dense.reshape(-1, *dense.shape[2:])[slots] = actions

    def go(self, environments: NDArray[np.int64]) -> Timestep:
        """Step some environments, int64[n], by the actions of `put`, and list these alone."""
        chosen = np.zeros(self.num_envs, np.bool_)
        chosen[environments] = True
        with jax.default_device(self._cpu):
            carry, batch = self._program.step(self._carry, tuple(self._actions))
            self._carry = _keep(chosen, carry, self._carry)
        self._alone.length[environments] += 1
        return self._alone.timestep(batch, chosen)

    def on_device(self, device: torch.device, *, num_envs: int) -> DeviceVectorEnv:
        """Make the environments on a device as `OffersDevice` describes. Raises EnvError where JAX does not see the device."""
        return JaxDeviceEnv(self._program, num_envs, device)

    def close(self) -> None:
        """Release the environments."""
        self._last = self._carry = None

    def _show(self, batch: BatchedStep) -> None:
        """Put what JAX computed in the place of the rows, and who is due."""
        pub, going = self._pub, ~self._pub.idle
        for p, agents in enumerate(pub.agents):
            pub.observation[p], pub.final[p] = np.asarray(batch.observation[p]), np.asarray(batch.final[p])
            if pub.mask[p] is not None:
                pub.mask[p], pub.final_mask[p] = np.asarray(batch.mask[p]), np.asarray(batch.final_mask[p])
            due = np.asarray(batch.due[p]).reshape(-1, agents)
            np.logical_and(due, going[:, None], out=pub.due[p].reshape(-1, agents))

    def _publish(self, batch: BatchedStep) -> Timestep:
        pub = self._pub
        if pub.state is not None and pub.final_state is not None:
            pub.state[:] = batch.state
            if pub.over.any():
                pub.final_state[:] = batch.final_state
        self._last = pub.publish()
        return self._last


@jax.jit
def _keep(chosen: Any, new: Any, old: Any) -> Any:
    """Return the new leaves [E, …] of the chosen environments, bool[E], and the old ones of the others."""
    return jax.tree.map(lambda a, b: jax.numpy.where(chosen.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old)


class _Accounts:
    """Open decisions, rewards and returns of environments that are stepped apart. length: int32[E], of the present episodes."""

    def __init__(self, spec: EnvSpec, num_envs: int) -> None:
        self._agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        self._earned = [np.zeros(num_envs * n) for n in self._agents]
        self._open = [np.zeros(num_envs * n, np.bool_) for n in self._agents]
        self._returns = np.zeros((num_envs, spec.num_players))
        self.length = np.zeros(num_envs, np.int32)

    def begin(self, chosen: NDArray[np.bool_]) -> None:
        """Forget the episodes of the chosen environments, bool[E]."""
        self._returns[chosen], self.length[chosen] = 0, 0
        for p, agents in enumerate(self._agents):
            slots = np.repeat(chosen, agents)
            self._earned[p][slots], self._open[p][slots] = 0, False

    def timestep(self, batch: BatchedStep, chosen: NDArray[np.bool_]) -> Timestep:
        """Return what is due and what has ended in the chosen environments."""
        over = np.where(chosen, np.asarray(batch.over), GOES_ON)
        rows = [self._rows(p, batch, chosen, over) for p in range(len(self._agents))]
        ended = np.flatnonzero(over != GOES_ON)
        finished = FinishedEpisodes(
            ended.astype(np.int32), self._returns[ended], over[ended] == TERMINATED, self.length[ended]
        )
        return Timestep(tuple(due for due, _ in rows), tuple(closed for _, closed in rows), finished)

    def _rows(
        self, player: int, batch: BatchedStep, chosen: NDArray[np.bool_], over: NDArray[np.uint8]
    ) -> tuple[ActionRequests, ClosedDecisions]:
        agents, earned, is_open = self._agents[player], self._earned[player], self._open[player]
        reward = np.asarray(batch.reward[player], np.float64) * np.repeat(chosen, agents)
        earned += reward
        self._returns[:, player] += reward.reshape(-1, agents).sum(axis=1)
        going = np.repeat(chosen & (over == GOES_ON), agents)
        due = np.flatnonzero(np.asarray(batch.due[player]) & going).astype(np.int32)
        closed = np.flatnonzero(is_open & np.repeat(over != GOES_ON, agents)).astype(np.int32)
        mask, final_mask = batch.mask[player], batch.final_mask[player]
        requests = ActionRequests(
            due,
            np.asarray(batch.observation[player])[due],
            None if mask is None else np.asarray(mask)[due],
            np.where(is_open[due], earned[due], 0.0).astype(np.float32),
            ~is_open[due],
        )
        decisions = ClosedDecisions(
            closed,
            earned[closed].astype(np.float32),
            over[closed // agents] == TERMINATED,
            np.asarray(batch.final[player])[closed],
            None if final_mask is None else np.asarray(final_mask)[closed],
        )
        is_open[closed], is_open[due] = False, True
        earned[closed], earned[due] = 0.0, 0.0
        return requests, decisions


def no_actions(space: Any, num_envs: int, agents: int) -> Array:
    """Return [E, n, *shape] zeros, as JAX takes a player's actions."""
    return np.zeros((num_envs, agents, *(space.shape or ())), np.float32 if isinstance(space, spaces.Box) else np.int32)


# --------------------------------------------------------------------------------------------------------------------
# On a device. Arrays go from JAX to torch and back without a copy (DLPack).


class JaxDeviceEnv:
    """`DeviceVectorEnv` over a program. Each environment's episodes come from a seed of its own, made of the one that is given."""

    def __init__(self, program: Program, num_envs: int, device: torch.device) -> None:
        self.spec, self.num_envs, self.device = program.spec, num_envs, torch.device(device)
        self._program = program
        self._place = _jax_device(self.device)
        self._whole = [not isinstance(self.spec.agents_of(p)[0].action, spaces.Box) for p in range(len(program.agents))]
        self._carry: Any = None
        self._quota: int | None = None
        self._num_finished = self._length = self._returns = torch.empty(0)
        self._pending: list[Tensor] = []

    def reset(self, seed: int, *, episodes: int | None = None) -> DeviceTimestep:
        """Reset as `DeviceVectorEnv.reset` describes."""
        if episodes is not None and episodes < 1:
            raise EnvError(f"episodes is {episodes}; expected at least 1, or None for no limit.")
        seeds = np.array([seeding.key(seed, e) for e in range(self.num_envs)], np.uint64)
        with jax.default_device(self._place):
            self._carry, batch = self._program.begin(split_seeds(seeds))
        self._quota = episodes
        self._num_finished = self._length = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        self._returns = torch.zeros(self.num_envs, self.spec.num_players, dtype=torch.float64, device=self.device)
        self._pending = [torch.zeros(self.num_envs, n, device=self.device) for n in self._program.agents]
        never = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        return self._timestep(batch, never, never, ~never)

    def step(self, actions: tuple[Tensor, ...]) -> DeviceTimestep:
        """Step as `DeviceVectorEnv.step` describes."""
        if self._carry is None:
            raise EnvError(_FIRST)
        jax_actions = tuple(
            jax.dlpack.from_dlpack(action.to(torch.int32 if whole else torch.float32).contiguous())
            for action, whole in zip(actions, self._whole, strict=True)
        )
        with jax.default_device(self._place):
            self._carry, batch = self._program.step(self._carry, jax_actions)
        playing = (
            torch.ones_like(self._num_finished, dtype=torch.bool)
            if self._quota is None
            else self._num_finished < self._quota
        )
        how = _torch(batch.over)
        over = (how != GOES_ON) & playing
        self._num_finished, self._length = self._num_finished + over, self._length + playing
        goes_on = playing if self._quota is None else self._num_finished < self._quota
        earned = [_torch(reward).reshape(self.num_envs, -1) for reward in batch.reward]
        self._pending = [before + now for before, now in zip(self._pending, earned, strict=True)]
        self._returns = self._returns + torch.stack([reward.double().sum(1) for reward in earned], dim=1)
        timestep = self._timestep(batch, over, over & (how == TERMINATED), goes_on)
        self._length, self._returns = torch.where(over, 0, self._length), torch.where(over[:, None], 0.0, self._returns)
        closed = [slots.due | slots.ended for slots in timestep.slots]
        self._pending = [torch.where(c, 0.0, before) for c, before in zip(closed, self._pending, strict=True)]
        return timestep

    def close(self) -> None:
        """Close as `DeviceVectorEnv.close` describes."""
        self._carry = None

    def _timestep(self, batch: BatchedStep, over: Tensor, terminated: Tensor, goes_on: Tensor) -> DeviceTimestep:
        slots = []
        for p, agents in enumerate(self._program.agents):
            mask = batch.mask[p]
            slots.append(
                DeviceSlots(
                    observation=self._dense(batch.observation[p], agents),
                    mask=None if mask is None else self._dense(mask, agents),
                    due=_torch(batch.due[p]).reshape(-1, agents) & goes_on[:, None],
                    reward=self._pending[p],
                    ended=over[:, None].expand(-1, agents),
                    terminated=terminated[:, None].expand(-1, agents),
                    final=self._dense(batch.final[p], agents),
                )
            )
        state, final = batch.state, batch.final_state
        return DeviceTimestep(
            tuple(slots),
            over,
            self._returns,
            terminated,
            self._length,
            None if state is None else _torch(state),
            None if final is None else _torch(final),
        )

    def _dense(self, rows: Any, agents: int) -> Tensor:
        tensor = _torch(rows)
        return tensor.reshape(self.num_envs, agents, *tensor.shape[1:])


def _torch(array: Any) -> Tensor:
    """Return the same memory."""
    tensor: Tensor = from_dlpack(array)
    return tensor


def _jax_device(device: torch.device) -> Any:
    kind = "cpu" if device.type == "cpu" else "cuda"
    try:
        devices: Sequence[Any] = jax.local_devices(backend=kind)
        return devices[device.index or 0]
    except (RuntimeError, IndexError) as error:
        raise EnvError(
            f"JAX {jax.__version__} sees no device {device}, where torch computes; `pip install 'jax[cuda12]'` installs one that sees GPUs "
            "(its CUDA must fit the driver). Or collect on the CPU."
        ) from error
