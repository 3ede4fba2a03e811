"""One agent's seat: how what its environment shows it becomes a row, and how a row's action becomes what its environment takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from ludus.envs.choices import Choices
from ludus.envs.python_loop import Flaw
from ludus.envs.spaces import Encode
from ludus.types import Array


@dataclass(slots=True, eq=False)
class Seat:
    """observation, action: its own spaces, actions counted from 0. encode: see `spaces.observation_space`.

    keyed: what it is shown is a mapping with "action_mask"; key: the one other entry, None if there are several. masked: masks are
    expected. start: added to actions, if they do not count from 0. bounds: (low, high) that actions are clipped to. pad_to: length of its
    player's observations, 0 if they are its own. legal: bool[n] over its player's actions, False where it has none such; None: has all.
    index: among the spec's agents. choices: of its actions, None of a Box.
    """

    name: str
    observation: spaces.Box
    action: Space[Any]
    encode: Encode | None
    keyed: bool
    key: str | None
    masked: bool
    start: Array | int | None
    bounds: tuple[Array, Array] | None
    pad_to: int = 0
    legal: NDArray[np.bool_] | None = None
    index: int = -1
    choices: Choices | None = None

    def see(self, shown: Any, info: Any) -> tuple[Any, Any]:
        """(observation, mask or None) of what the environment shows and tells it. Raises Flaw for a mask that nobody announced."""
        mask = None
        if self.keyed:
            mask, shown = self._taken_apart(shown)
        elif info and "action_mask" in info:
            mask = info["action_mask"]
            if not self.masked:
                raise Flaw(
                    f"gave agent {self.name!r} an action mask, and none after its first reset; give masks from the beginning, and none "
                    "of a Box"
                )
        if self.encode is not None:
            try:
                shown = self.encode(shown)
            except Exception as error:
                raise Flaw(f"gave agent {self.name!r} an observation that is not of its space: {error}") from error
        if self.pad_to:
            shown = self._padded(shown)
        if self.legal is not None:
            mask = self._widened(mask)
        return shown, mask

    def says_nothing(self, mask: Any) -> bool:
        """Whether a mask that `see` gave leaves nothing to do, as that of an agent who is done may."""
        if self.legal is not None:
            return not mask.any()
        return self.choices is None or self.choices.says_nothing(mask)

    def act(self, action: Any) -> Any:
        """The action as the environment takes it."""
        if self.bounds is not None:
            return np.clip(action, *self.bounds).astype(self.action.dtype, copy=False)
        if isinstance(action, np.ndarray) and action.dtype != self.action.dtype:
            action = action.astype(self.action.dtype)
        return action if self.start is None else action + self.start

    def _taken_apart(self, shown: Any) -> tuple[Any, Any]:
        """(mask, observation)"""
        try:
            if self.key is not None:
                return shown["action_mask"], shown[self.key]
            return shown["action_mask"], {k: v for k, v in shown.items() if k != "action_mask"}
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            given = sorted(map(str, shown)) if isinstance(shown, dict) else type(shown).__name__
            wanted = "action_mask" if self.key is None else f"action_mask and {self.key}"
            raise Flaw(f"gave agent {self.name!r} an observation with {given}; expected {wanted}") from error

    def _padded(self, shown: Any) -> Array:
        own = np.asarray(shown)
        if own.shape != self.observation.shape:
            raise Flaw(
                f"gave agent {self.name!r} an observation of shape {own.shape}; its space has {self.observation.shape}"
            )
        row = np.zeros(self.pad_to, np.float32)
        row[: len(own)] = own
        return row

    def _widened(self, mask: Any) -> NDArray[np.bool_] | None:
        assert self.legal is not None
        if mask is None:
            return self.legal
        own = np.asarray(mask, np.bool_)
        count = int(self.legal.sum())
        if own.shape != (count,):
            raise Flaw(f"gave agent {self.name!r} a mask of shape {own.shape}; it has {count} actions")
        wide = self.legal.copy()
        wide[:count] = own
        return wide


class Seats(dict[Any, Seat]):
    """Seats by agent; asking for one that there is not says so."""

    def __missing__(self, agent: Any) -> Seat:
        raise Flaw(f"named the agent {agent!r}, which is not among its possible_agents ({', '.join(map(str, self))})")
