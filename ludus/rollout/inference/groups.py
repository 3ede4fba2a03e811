"""Policies that are evaluated: those of one class, configuration and mode as one stack where the class offers it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.errors import PolicyError
from ludus.policies.base import Policy
from ludus.types import Act, Array, Enumeration


class Stacked(Protocol):
    """What a policy class's `stack(policies)` returns: `Policy.act` where row i is played by policy index[i], int32[n]."""

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        index: NDArray[np.int32],
        mode: str = "explore",
    ) -> Act: ...


class Group:
    """Policies of one class, configuration and mode, evaluated together. `index` of a row is its policy's place among them."""

    def __init__(self, policies: Sequence[Policy], mode: str) -> None:
        self.policies = tuple(policies)
        self.mode = mode
        self.noise_width = policies[0].noise_width
        self.memory_shape = policies[0].memory_shape
        self.takes_ids = policies[0].takes_ids
        self._stack: Callable[[Sequence[Policy]], Stacked] | None = getattr(type(policies[0]), "stack", None)
        self._stacked: Stacked | None = None

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        index: NDArray[np.int32],
    ) -> Act:
        """Rows sorted as they come: one call of the stack where the class offers one, else one for each policy that has rows."""
        if len(self.policies) == 1:
            return self.act_alone(0, observation, mask, memory, noise)
        noise = noise if noise.shape[1] == self.noise_width else noise[:, : self.noise_width]
        if self._stack is not None:
            if self._stacked is None:
                self._stacked = self._stack(self.policies)
            return self._stacked.act(observation, mask, memory, noise, index, self.mode)
        counts = np.bincount(index, minlength=len(self.policies))
        present = np.flatnonzero(counts)
        if len(present) == 1:
            return self.act_alone(int(present[0]), observation, mask, memory, noise)
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
    ) -> Act:
        """As `act`, where all rows are played by one policy, at this place in the group."""
        noise = noise if noise.shape[1] == self.noise_width else noise[:, : self.noise_width]
        return self.policies[policy].act(observation, mask, memory, noise, mode=self.mode)


def group_key(policy: Policy, mode: str) -> tuple[Any, ...]:
    """Equal for policies that may share a group: class, configuration, mode."""
    return type(policy), policy.spec.kind, json.dumps(policy.spec.config, sort_keys=True, default=str), mode


def decode(
    enumeration: Enumeration, ids: Array, mask: NDArray[np.bool_] | None, *, takes_ids: bool
) -> tuple[Array, NDArray[np.bool_] | None]:
    """(observation, mask) that a policy wants for the information states `ids`."""
    legal = enumeration.mask.take(ids, axis=0) if mask is None else mask
    return (ids if takes_ids else enumeration.observation.take(ids, axis=0)), legal


def next_memory(act: Act) -> Array:
    """Raises PolicyError if a recurrent policy's answer has none."""
    if act.memory is None:
        raise PolicyError("a recurrent policy answered without its next memory; `Act.memory` must hold it.")
    return act.memory


def merge(parts: Sequence[tuple[NDArray[np.int64], Act]], n: int) -> Act:
    """One answer for n rows from answers for some rows each. Extras that only some of them have are 0 elsewhere. Memory stays with the
    parts. Raises PolicyError if their actions have different shapes."""
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
    return Act(action, logp, memory, extras)
