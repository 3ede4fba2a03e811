"""What one environment of a `PythonVectorEnv` brought, checked and written into the dense arrays of its publisher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np

from ludus.envs.choices import Choices
from ludus.envs.publisher import GOES_ON, Publisher
from ludus.envs.publisher_kernels import NOT_FINITE, put_row
from ludus.types import Array, EnvSpec

_COMPILED = "?bBhHiIlLqQfd"  # the types of observations and masks that kernels take
_NOT_NUMBERS = "an observation that is not finite; expected numbers"
_NO_ACTION = "a mask without a legal action; expected at least one"


class Flaw(Exception):
    """An environment broke its word; the message is a sentence about it, without the environment's name and the full stop."""


@dataclass(slots=True)
class Happened:
    """What a reset or a step of one environment brought. Agents are named by their index in the spec's `agents`.

    due: (agent, observation, mask or None) of whoever must act now. reward: (agent, reward) earned in this step.
    gone: (agent, final observation, TERMINATED or TRUNCATED) of whoever left; no longer due. over: how the episode ended, or GOES_ON;
    then `gone` lists every agent that had not left before. final_mask: (agent, mask) of those who left with something illegal at the end.
    state: of the whole environment, where the spec has a state space.
    """

    due: list[tuple[int, Any, Any]] = field(default_factory=list)
    reward: list[tuple[int, float]] = field(default_factory=list)
    gone: list[tuple[int, Any, int]] = field(default_factory=list)
    final_mask: list[tuple[int, Any]] = field(default_factory=list)
    over: int = GOES_ON
    state: Any = None


class RowWriter:
    """Writes into `pub`. starts[p]: index of player p's first agent."""

    def __init__(self, spec: EnvSpec, pub: Publisher, starts: Sequence[int]) -> None:
        self.spec = spec
        self._pub = pub
        self._starts, counts = starts, pub.agents
        self._player = [agent.player for agent in spec.agents]
        self._stride = [counts[agent.player] for agent in spec.agents]
        self._offset = [i - self._starts[agent.player] for i, agent in enumerate(spec.agents)]
        self._shape = [agent.observation.shape for agent in spec.agents]
        self._choices = [Choices.of(agent.action) for agent in spec.agents]
        self._starts_of = [None if some is None else some.starts for some in self._choices]
        self._all_legal = [np.ones(0 if some is None else some.width, np.bool_) for some in self._choices]
        self._masked = [pub.mask[agent.player] is not None for agent in spec.agents]
        self._dtype = [np.dtype(agent.observation.dtype) for agent in spec.agents]
        known = [
            d.char in _COMPILED and d == pub.observation[p].dtype
            for d, p in zip(self._dtype, self._player, strict=True)
        ]
        self._tables = [pub.tables(p) if k else None for k, p in zip(known, self._player, strict=True)]

    def put(self, e: int, happened: Happened) -> None:
        """Write what happened into the publisher's rows of environment `e`."""
        pub, player, stride, offset = self._pub, self._player, self._stride, self._offset
        for i, value in happened.reward:
            self.check_reward(i, value)
            pub.reward[player[i]][e * stride[i] + offset[i]] += value
        for i, seen, how in happened.gone:
            p, slot = player[i], e * stride[i] + offset[i]
            pub.gone[p][slot] = how
            if seen is not None:
                pub.final[p][slot] = self.checked(i, seen)
            final_mask = pub.final_mask[p]
            if final_mask is not None:
                final_mask[slot] = True
        for i, mask in happened.final_mask:
            final_mask = pub.final_mask[player[i]]
            if final_mask is not None:
                final_mask[e * stride[i] + offset[i]] = self._checked_mask(i, mask)
        for i, seen, mask in happened.due:
            self._put_due(i, e * stride[i] + offset[i], seen, mask)
        self._finish(e, happened)

    def check_reward(self, agent: int, value: Any) -> None:
        """Raise Flaw for what is no finite number."""
        if not _is_number(value):
            raise self._flaw(agent, f"the reward {value}; expected a finite number")

    def _put_due(self, i: int, slot: int, seen: Any, mask: Any) -> None:
        """What agent `i` must act on; after a flaw, the old observation is still there."""
        dtype, tables = self._dtype[i], self._tables[i]
        given = self._shaped_mask(i, mask) if self._masked[i] else None
        if type(seen) is not np.ndarray or seen.dtype is not dtype or seen.shape != self._shape[i]:
            seen = self.checked(i, seen).astype(dtype)
        if tables is None:
            self._put_slowly(i, slot, self.checked(i, seen), given)
        elif flaw := put_row(seen, given, self._starts_of[i], slot, tables[self._pub.side]):
            raise self._flaw(i, _NOT_NUMBERS if flaw == NOT_FINITE else _NO_ACTION)

    def _put_slowly(self, i: int, slot: int, seen: Array, mask: Array | None) -> None:
        """Of a type that kernels do not know."""
        pub, p = self._pub, self._player[i]
        legal = pub.mask[p]
        if legal is not None:
            legal[slot] = self._checked_mask(i, mask)
        pub.observation[p][slot] = seen
        pub.due[p][slot] = True

    def _finish(self, e: int, happened: Happened) -> None:
        pub = self._pub
        if happened.over:
            pub.over[e] = happened.over
            for p, agents in enumerate(pub.agents):
                pub.due[p][e * agents : (e + 1) * agents] = False
        elif not happened.due:
            raise Flaw("listed nobody as having to act, and its episode is not over; expected at least one agent")
        if pub.state is not None and pub.final_state is not None and happened.state is not None:
            if not np.isfinite(happened.state).all():
                raise Flaw("gave a state that is not finite; expected numbers")
            (pub.final_state if happened.over else pub.state)[e] = happened.state

    def checked(self, agent: int, seen: Any) -> Array:
        """The observation as an array. Raise Flaw unless it has the shape that was announced, and holds numbers of the space's kind."""
        array: Array = np.asarray(seen)
        if array.shape != self._shape[agent]:
            raise self._flaw(agent, f"an observation of shape {array.shape}; its space has {self._shape[agent]}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise self._flaw(agent, _NOT_NUMBERS)
        dtype = self._dtype[agent]
        if dtype.kind != "f" and array.dtype is not dtype and not _fits(array, dtype):
            raise self._flaw(agent, f"an observation with numbers that are no {dtype}, as its space says")
        return array

    def _shaped_mask(self, agent: int, mask: Any) -> Array:
        """The mask as an array, if it has a place for each action, or each value of its numbers; None: all are legal."""
        choices = self._choices[agent]
        if mask is None or choices is None:
            return self._all_legal[agent]
        array: Array = mask
        if mask.__class__ is not np.ndarray or mask.shape != self._all_legal[agent].shape:
            try:
                array = choices.flat(mask)
            except ValueError as error:
                raise self._flaw(agent, str(error)) from None
        return array if array.dtype.char in _COMPILED else array.astype(np.bool_)

    def _checked_mask(self, agent: int, mask: Any) -> Array:
        """`_shaped_mask`, if an action is legal."""
        array, choices = self._shaped_mask(agent, mask), self._choices[agent]
        if choices is not None and not choices.possible(array[None]).all():
            raise self._flaw(agent, _NO_ACTION)
        return array

    def _flaw(self, agent: int, given: str) -> Flaw:
        return Flaw(f"gave agent {self.spec.agents[agent].name!r} {given}")


def _fits(array: Array, whole: np.dtype[Any]) -> bool:
    with np.errstate(invalid="ignore"):
        return np.array_equal(array.astype(whole), array)


def _is_number(value: Any) -> bool:
    try:
        return isfinite(value)
    except (TypeError, ValueError):  # None, text, several numbers
        return False
