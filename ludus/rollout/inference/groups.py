"""Policies that are evaluated: those of one class, configuration and mode as one stack where the class offers it."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.backend import device as devices
from ludus.backend.device import Placement, UpdateCost, resolve_placement, to_device, to_numpy
from ludus.core.arrays import kernel
from ludus.core.errors import PolicyError
from ludus.core.types import CPU, ActionRequests, Array, DeviceChoice, Enumeration, EnvSpec, PolicyOutput, PolicyRef
from ludus.policies.base import Policy, Teams, team_size_of

if TYPE_CHECKING:
    import torch

# --------------------------------------------------------------------------------------------------------------------
# The compiled parts of local inference. bound int32[slots]: the row of the policy that plays each slot of one
# player.


@kernel
def assign(bound, slots, policy, row_of, kind):  # type: ignore[no-untyped-def]
    """bound[slots] = row_of[policy]. Returns the least and the greatest kind among these rows, and whether any slot has another one than
    before."""
    least, most, changed = 127, -128, False
    for i in range(len(slots)):
        row = row_of[policy[i]]
        changed |= bound[slots[i]] != row
        bound[slots[i]] = row
        least = min(least, kind[row])
        most = max(most, kind[row])
    return least, most, changed


@kernel
def common(bound):  # type: ignore[no-untyped-def]
    """Return the row that every slot is bound to, or -1."""
    for row in bound:
        if row != bound[0]:
            return -1
    return bound[0]


@kernel
def families(slot, bound, group_of, index_of, index):  # type: ignore[no-untyped-def]
    """index[i]: place of the policy of slot[i] within its group. Returns the least and the greatest group."""
    least, most = len(group_of), -1
    for i in range(len(slot)):
        row = bound[slot[i]]
        index[i] = index_of[row]
        least = min(least, group_of[row])
        most = max(most, group_of[row])
    return least, most


# --------------------------------------------------------------------------------------------------------------------
# Recurrent memory, by slot, where the networks are that read and write it.


class SlotMemory(Protocol):
    """Of a player's slots, for networks of one shape: what each remembers now, and what its last answer started from. Slots come rising,
    each once: as many as there are, are all."""

    def clear(self, slots: NDArray[np.int32]) -> None:
        """Set the memory of these slots to zero."""
        ...

    def take(self, slots: NDArray[np.int32]) -> Any:
        """Return [n, *shape] that answers for these slots start from now."""
        ...

    def put(self, slots: NDArray[np.int32], memory: Any) -> None:
        """Store what was answered."""
        ...

    def recall(self, slots: NDArray[Any]) -> NDArray[np.float32]:
        """Return [n, *shape], in host memory, that the last answers for these slots started from: a copy."""
        ...


class HostMemory:
    """`SlotMemory` in arrays."""

    def __init__(self, slots: int, shape: tuple[int, ...]) -> None:
        self._now, self._before = np.zeros((2, slots, *shape), np.float32)

    def clear(self, slots: NDArray[np.int32]) -> None:
        self._now[slots] = 0

    def take(self, slots: NDArray[np.int32]) -> NDArray[np.float32]:
        memory: NDArray[np.float32]
        if len(slots) == len(self._now):
            memory = self._now.copy()
            self._before[...] = memory
            return memory
        memory = self._now[slots]
        self._before[slots] = memory
        return memory

    def put(self, slots: NDArray[np.int32], memory: NDArray[np.float32]) -> None:
        self._now[... if len(slots) == len(self._now) else slots] = memory

    def recall(self, slots: NDArray[Any]) -> NDArray[np.float32]:
        memory: NDArray[np.float32] = self._before[slots]
        return memory


class DeviceMemory:
    """`SlotMemory` in tensors, which are never written to, so that one may stand for another: where all slots act, as they do in games of
    simultaneous moves, nothing is copied."""

    def __init__(self, slots: int, shape: tuple[int, ...], device: torch.device) -> None:
        import torch

        self._now = self._before = torch.zeros(slots, *shape, device=device)

    def clear(self, slots: NDArray[np.int32]) -> None:
        if len(slots):
            self._now = self._now.index_fill(0, self._places(slots), 0.0)

    def take(self, slots: NDArray[np.int32]) -> torch.Tensor:
        if len(slots) == len(self._now):
            self._before = self._now
            return self._now
        places = self._places(slots)
        memory = self._now[places]
        self._before = self._before.index_copy(0, places, memory)
        return memory

    def put(self, slots: NDArray[np.int32], memory: torch.Tensor) -> None:
        whole = len(slots) == len(self._now)
        self._now = memory if whole else self._now.index_copy(0, self._places(slots), memory)

    def recall(self, slots: NDArray[Any]) -> NDArray[np.float32]:
        return to_numpy(self._before[self._places(slots)])

    def _places(self, slots: NDArray[Any]) -> torch.Tensor:
        return to_device(slots.astype(np.int64), self._now.device)


# --------------------------------------------------------------------------------------------------------------------
# Which policy plays each slot of each player: what local and shared inference have in common.


class PolicyBindings:
    """Policies live in rows of a table; rows that are neither loaded nor bound are used again.

    refs: by row; None: free. row_of: int32[loaded policies]. bound: per player int32[slots], the row that plays each, or -1.
    """

    def __init__(self, spec: EnvSpec, num_envs: int) -> None:
        slots = [num_envs * len(spec.agents_of(p)) for p in range(spec.num_players)]
        self.refs: list[PolicyRef | None] = []
        self.row_of = np.zeros(0, np.int32)
        self.bound = [np.full(n, -1, np.int32) for n in slots]
        self._memory: list[dict[object, SlotMemory]] = [{} for _ in slots]

    def load(self, refs: Sequence[PolicyRef]) -> tuple[list[int], Collection[int]]:
        """Return (the row of each, those rows that are new). A ref with a version that is in the table already stays where it is. Raises
        PolicyError if one comes twice."""
        if len(set(refs)) != len(refs):
            raise PolicyError("the same policy, version and mode was loaded twice; load each once.")
        known = {ref: row for row, ref in enumerate(self.refs) if ref is not None and ref.version is not None}
        in_use = {known[ref] for ref in refs if ref in known}
        in_use.update(*(self.bound_rows(p).tolist() for p in range(len(self.bound))))
        free = [row for row in range(len(self.refs)) if row not in in_use]
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
        """Unbind all slots."""
        for bound in self.bound:
            bound.fill(-1)

    def bound_rows(self, player: int) -> NDArray[np.int64]:
        """Return the rows that some slot of a player is bound to, rising."""
        bound = np.zeros(len(self.refs) + 1, np.bool_)
        bound[self.bound[player]] = True  # -1 falls on the last one
        return np.flatnonzero(bound[:-1])

    def forget(self, player: int, slots: NDArray[np.int32]) -> None:
        """Set the memory of these slots to zero."""
        for memory in self._memory[player].values():
            memory.clear(slots)

    def begin(self, player: int, due: ActionRequests) -> None:
        """Do `forget`, where an episode begins."""
        for memory in self._memory[player].values():
            memory.clear(due.slot[due.first])

    def memory_for(self, player: int, shape: tuple[int, ...], device: torch.device | None = None) -> SlotMemory:
        """Return the memory that a player's policies of this shape read and write, on a device (None: in host memory)."""
        held, key = self._memory[player], (shape, device)
        if key not in held:
            slots = len(self.bound[player])
            held[key] = HostMemory(slots, shape) if device is None else DeviceMemory(slots, shape, device)
        return held[key]


def require_mode(ref: PolicyRef, modes: Sequence[str]) -> None:
    """Raise PolicyError unless the mode is one of those that the policy has."""
    if ref.mode not in modes:
        raise PolicyError(f"policy {ref.policy!r} has no mode {ref.mode!r}; it has {', '.join(modes)}.")


class StackedPolicies(Protocol):
    """What a policy class's `stack(policies)` returns: `Policy.act` where row i is played by policy index[i], int32[n]; of a `JointPolicy`
    with `teams` behind the mode.

    A class whose networks torch can evaluate on a device has `stack_on(policies, placement)` too, whose memory is a tensor there or an
    array, and comes back as it came; and policies say their `multiplications` of a row (0: they cannot), by which `acting_placement`
    decides.
    """

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        index: NDArray[np.int32],
        mode: str = "explore",
    ) -> PolicyOutput: ...


class Group:
    """Policies of one class, configuration and mode, evaluated together. `index` of a row is its policy's place among them."""

    def __init__(self, policies: Sequence[Policy], mode: str, placement: Placement | None = None) -> None:
        """placement: where they compute (None: as policies do, on the CPU); see `acting_placement`. Memory of rows is a tensor there, or an
        array."""
        self.policies = tuple(policies)
        self.mode = mode
        self.noise_width = policies[0].noise_width
        self.memory_shape = policies[0].memory_shape
        self.takes_ids = policies[0].takes_ids
        self.team_size = team_size_of(policies[0])
        self.placement = placement
        self.device = None if placement is None else placement.torch
        self._stacks = placement is not None or getattr(type(policies[0]), "stack", None) is not None
        kind: Any = type(policies[0])
        self._stacked: StackedPolicies | None = None if placement is None else kind.stack_on(policies, placement)

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        index: NDArray[np.int32],
        teams: Teams | None = None,
    ) -> PolicyOutput:
        """Return rows sorted as they come: one call of the stack where the class offers one, else one for each policy that has rows. teams:
        whose they are, where policies have a `team_size`; a group is one policy's."""
        if len(self.policies) == 1 and self.placement is None:
            return self.act_alone(0, observation, mask, memory, noise, teams)
        noise = noise if noise.shape[1] == self.noise_width else noise[:, : self.noise_width]
        if self._stacks:
            if self._stacked is None:
                kind: Any = type(self.policies[0])
                self._stacked = kind.stack(self.policies)
            return self._stacked.act(observation, mask, memory, noise, index, self.mode, **_of(teams))
        counts = np.bincount(index, minlength=len(self.policies))
        present = np.flatnonzero(counts)
        if len(present) == 1:
            return self.act_alone(int(present[0]), observation, mask, memory, noise, teams)
        order = np.argsort(index, kind="stable")
        ends = np.cumsum(counts)
        parts = []
        for k in present.tolist():
            rows = order[ends[k] - counts[k] : ends[k]]
            act = self.policies[k].act(
                observation[rows],
                None if mask is None else mask[rows],
                None if memory is None else memory[rows],
                noise[rows],
                mode=self.mode,
                **_of(None if teams is None else teams.take(rows)),
            )
            parts.append((rows, act))
        return merge(parts, len(index))

    def act_alone(
        self,
        policy: int,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        teams: Teams | None = None,
    ) -> PolicyOutput:
        """Return as `act`, where all rows are played by one policy, at this place in the group."""
        if self.placement is not None:
            index = np.full(len(noise), policy, np.int32)
            return self.act(observation, mask, memory, noise, index=index, teams=teams)
        noise = noise if noise.shape[1] == self.noise_width else noise[:, : self.noise_width]
        return self.policies[policy].act(observation, mask, memory, noise, mode=self.mode, **_of(teams))


def _of(teams: Teams | None) -> dict[str, Any]:
    """Return an argument for those policies that take it."""
    return {} if teams is None else {"teams": teams}


def acting_placement(policy: Policy, device: DeviceChoice, rows: int) -> Placement | None:
    """Return where policies like this one compute for so many rows at a time, if that is not the way of CPUs; None, too, for kinds without
    a network that torch evaluates (`stack_on`): tables, bots, random ones. Raises ConfigError for a GPU that is not there."""
    place = _acting_placement(policy, device, rows)
    return None if isinstance(place, str) or (place.device == "cpu" and device.written) else place


def describe_acting(policy: Policy, device: DeviceChoice, rows: int) -> str:
    """Return where policies like this one compute for this number of rows at a time, and why, in words. Raises as `acting_placement`."""
    place = _acting_placement(policy, device, rows)
    return f"cpu: {place}" if isinstance(place, str) else f"{place.device}: {place.why}"


def _acting_placement(policy: Policy, device: DeviceChoice, rows: int) -> Placement | str:
    """Return the placement, or why there is none."""
    if device == CPU:
        return "as asked for"
    if device.device == "auto" and not devices.gpu_count():
        return "there is no GPU"
    size: int = getattr(policy, "multiplications", 0) if hasattr(type(policy), "multiplications") else 0
    if not size:
        return f"policies of kind {policy.spec.kind!r} act there only"
    # A precision of GPUs is refused on a CPU, where these may stay while learners do not.
    work = UpdateCost(size, rows, has_cpu_kernel=True, kind="acting")
    place = resolve_placement(replace(device, precision="float32"), work)
    return replace(place, precision=device.precision)


def group_key(policy: Policy, mode: str) -> tuple[Any, ...]:
    """Return a key that is equal for policies that may share a group: class, configuration, mode."""
    return type(policy), policy.spec.kind, json.dumps(policy.spec.config, sort_keys=True, default=str), mode


def decode(
    enumeration: Enumeration, ids: Array, mask: NDArray[np.bool_] | None, *, takes_ids: bool
) -> tuple[Array, NDArray[np.bool_] | None]:
    """Return (observation, mask) that a policy wants for the information states `ids`."""
    legal = enumeration.mask.take(ids, axis=0) if mask is None else mask
    return (ids if takes_ids else enumeration.observation.take(ids, axis=0)), legal


def next_memory(act: PolicyOutput) -> Array:
    """Raises PolicyError if a recurrent policy's answer has none."""
    if act.memory is None:
        raise PolicyError("a recurrent policy answered without its next memory; `PolicyOutput.memory` must hold it.")
    return act.memory


def merge(parts: Sequence[tuple[NDArray[np.int64], PolicyOutput]], n: int) -> PolicyOutput:
    """Return one answer for n rows from answers for some rows each. Extras that only some of them have are 0 elsewhere. Memory stays with
    the parts. Raises PolicyError if their actions have different shapes."""
    if len(parts) == 1 and len(parts[0][0]) == n:
        return parts[0][1]
    shapes = {act.action.shape[1:] for _, act in parts}
    if len(shapes) > 1:
        raise PolicyError(f"policies of one player gave actions of shapes {sorted(shapes)}; expected one shape.")
    first = parts[0][1]
    action = np.empty((n, *first.action.shape[1:]), np.result_type(*(act.action.dtype for _, act in parts)))
    logp = np.empty(n, np.float32)
    extras: dict[str, Array] = {}
    memory = None if first.memory is None else np.zeros((n, *first.memory.shape[1:]), first.memory.dtype)
    for rows, act in parts:
        action[rows] = act.action
        logp[rows] = act.logp
        if memory is not None and act.memory is not None:
            memory[rows] = act.memory
        for name, values in act.extras.items():
            if name not in extras:
                extras[name] = np.zeros((n, *values.shape[1:]), values.dtype)
            extras[name][rows] = values
    return PolicyOutput(action, logp, memory, extras)
