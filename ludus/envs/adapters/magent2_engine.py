"""MAgent2's engine as `MAgentVectorEnv` uses it: its groups, its functions, and rows that it writes to."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from ludus.types import Array


@dataclass(frozen=True, slots=True)
class Group:
    """Agents of one kind: the engine's handle, their player, and where they begin among the player's agents. `tail`: how
    many of the engine's features, from the last back, are appended to each cell of the view; None: all."""

    name: str
    handle: int
    player: int
    base: int
    count: int
    view: tuple[int, int, int]
    features: int
    tail: int | None


def engine() -> ctypes.CDLL:
    """MAgent2's library under a handle of our own, so that addresses can be passed as numbers. It runs in one thread: the wheels are built
    without OpenMP."""
    from magent2.c_lib import _LIB

    lib = ctypes.CDLL(_LIB._name)
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    for name, kinds in (
        ("env_set_action", (pointer, number, pointer)),
        ("env_step", (pointer, pointer)),
        ("env_get_reward", (pointer, number, pointer)),
        ("env_get_observation", (pointer, number, pointer)),
        ("env_get_info", (pointer, number, ctypes.c_char_p, pointer)),
        ("gridworld_clear_dead", (pointer,)),
    ):
        getattr(lib, name).argtypes = kinds
    return lib


class Rows:
    """One player's rows of one side, and the addresses that the engine writes them to. at: rows so far. ended: (slot, reward, terminated,
    observation) of those that are closed."""

    def __init__(self, slots: int, shape: tuple[int, ...]) -> None:
        self.observation = np.zeros((slots, *shape), np.float32)
        self.reward = np.zeros(slots, np.float32)
        self.at = 0
        self.ended: list[tuple[Array, ...]] = []
        self._stride = self.observation.strides[0]
        self._observation, self._reward = self.observation.ctypes.data, self.reward.ctypes.data

    @property
    def next_observation(self) -> int:
        """Address of the next row."""
        return self._observation + self._stride * self.at

    @property
    def next_reward(self) -> int:
        return self._reward + 4 * self.at

    def clear(self) -> None:
        """No rows. What earlier timesteps hold of `ended` is theirs."""
        self.at = 0
        self.ended = []


class Scratch:
    """An array that the engine writes to, and its address."""

    def __init__(self, size: int, dtype: type[np.generic]) -> None:
        self.array: Array = np.zeros(size, dtype)
        self.address: int = self.array.ctypes.data
