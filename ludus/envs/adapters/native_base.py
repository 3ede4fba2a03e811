"""What vectors that step their environments themselves have in common: Gymnasium's, EnvPool's, ALE's, with one agent each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from ludus.envs.adapters import native_kernels as kernels
from ludus.envs.adapters.batches import batch_writer
from ludus.envs.adapters.drawing import drawn
from ludus.envs.adapters.single import MASK
from ludus.envs.choices import Choices
from ludus.envs.publisher import Publisher
from ludus.envs.python_loop import check_actions
from ludus.envs.spaces import action_start
from ludus.errors import EnvError
from ludus.types import Array, EnvSpec, Timestep

Seeds: TypeAlias = NDArray[np.uint64]


def _show(vector: Any, environment: int, _: Array) -> Any:
    frames = vector.render() if getattr(vector, "render_mode", None) else None
    return None if frames is None else frames[environment]


@dataclass(frozen=True, slots=True)
class Native:
    """What there is to know about a native vector.

    observation, action: its spaces, of one environment. mode: when it restarts what ended. fresh: each step returns new arrays, which
    may be kept. start: makes or reseeds it: seeds uint64[E] -> it, first observations, info.
    mask: (observations, info) -> legal actions bool[E, A], A as in `Choices`.
    show: (vector, environment, observations [E, …]) -> an image, text, or None.
    """

    spec: EnvSpec
    num_envs: int
    observation: Space[Any]
    action: Space[Any]
    mode: AutoresetMode
    start: Callable[[Seeds], tuple[Any, Any, Mapping[str, Any]]]
    fresh: bool = False
    mask: Callable[[Any, Mapping[str, Any]], Any] | None = None
    show: Callable[[Any, int, Array], Any] = _show


class NativeBase:
    """What synchronous and asynchronous vectors share: actions, masks, observations, errors. See `Native`; first: the vector, if it is
    made already."""

    def __init__(self, native: Native, *, first: Any = None) -> None:
        self.spec = native.spec
        self.num_envs = native.num_envs
        self._native = native
        self._vector: Any = first
        self._pub = Publisher(native.spec, native.num_envs, masked=(native.mask is not None,))
        self._write = batch_writer(native.observation, what=native.spec.id)
        self._resting = np.zeros(native.num_envs, np.bool_)
        self._rest = native.mode is AutoresetMode.NEXT_STEP
        self._disabled = native.mode is AutoresetMode.DISABLED
        space = native.action
        self._space = native.spec.agents[0].action
        self._actions = np.zeros((native.num_envs, *(space.shape or ())), space.dtype)
        self._add = action_start(space)
        self._choices = Choices.of(space)
        self._default: Any = np.clip(0, space.low, space.high) if isinstance(space, Box) else self._add
        self._bounds = np.array([self._add, space.n], np.int64) if isinstance(space, Discrete) else None
        self._dtype = self._pub.observation[0].dtype
        self._shape = self._pub.observation[0].shape
        self._boxes = isinstance(native.observation, Box)
        self._keeps = native.fresh and self._boxes
        flat = len(self._shape) == 2 and np.issubdtype(self._dtype, np.floating)
        self._plain = self._rest and flat and native.mask is None  # what `Publisher.publish_one` does
        self._fits = ((native.num_envs,),) * 3
        self._done = np.zeros(native.num_envs, np.bool_)
        self._shown = self._pub.observation[0]
        self._last: Timestep | None = None

    # ------------------------------------------------------------------------------------------ the contract

    def snapshot(self) -> bytes | None:
        """None: what goes on inside the vector cannot be saved."""
        return None

    def restore(self, snapshot: bytes) -> Timestep:
        """Raises EnvError: there are no snapshots."""
        raise EnvError(f"{self.spec.id} cannot be resumed inside an episode; there is no snapshot to restore.")

    def render(self, environment: int) -> NDArray[np.uint8] | str:
        """See `Renders.render`. Raises EnvError if it was not made to render, or was not reset."""
        if self._last is None:
            raise EnvError(f"{self.spec.id} has not been reset yet; there is nothing to render.")
        show = self._native.show
        shown: NDArray[np.uint8] | str | None = drawn(
            self.spec.id, lambda: show(self._vector, environment, self._shown)
        )
        if shown is None:
            raise EnvError(f"{self.spec.id} has nothing to show; make it with render=True.")
        return shown

    def close(self) -> None:
        """Close the vector."""
        vector, self._vector, self._last = self._vector, None, None
        if vector is not None:
            vector.close()

    # ------------------------------------------------------------------------------------------ parts of a step

    def _start(self, seeds: Seeds, episodes: int | NDArray[np.int64] | None) -> tuple[Any, Mapping[str, Any]]:
        """Seeds the vector; its first observations and info."""
        self._pub.reset(seeds, episodes)
        self._resting.fill(False)
        self._actions[...] = self._default
        try:
            self._vector, seen, info = self._native.start(self._pub.seeds)
        except EnvError:
            raise
        except Exception as error:
            raise self._broken(f"raised {type(error).__name__} in reset: {error}") from error
        return seen, info

    def _hand_out(self, actions: tuple[Array, ...]) -> None:
        """Put the actions of whoever is due into the dense array. Raises EnvError for illegal ones."""
        if self._last is None:
            raise EnvError("step was called before reset; reset the environment first.")
        due, given = self._last.due[0], np.asarray(actions[0])
        if len(given) != len(due.slot):
            raise EnvError(f"player 0 was given {len(given)} actions for {len(due.slot)} due decisions; one each.")
        bounds = self._bounds
        if bounds is None or given.ndim != 1 or given.dtype.kind not in "iu":
            check_actions(self._space, given, mask=due.mask, what=f"player 0 of {self.spec.id}")
            self._actions[due.slot] = given + self._add if np.any(self._add) else given
            return
        if due.mask is None:
            wrong = kernels.hand_out(given, due.slot, self._actions, bounds)
        else:
            wrong = kernels.hand_out_masked(given, due.slot, self._actions, bounds, due.mask)
        if wrong >= 0:
            check_actions(self._space, given, mask=due.mask, what=f"player 0 of {self.spec.id}")

    def _see(self, seen: Any, info: Mapping[str, Any]) -> None:
        """Put observations and masks of all environments into the publisher."""
        pub = self._pub
        if not self._boxes or getattr(seen, "shape", None) != self._shape:
            self._copy(seen, pub.observation[0])
        elif self._keeps and seen.dtype == self._dtype and seen.flags.c_contiguous:
            pub.observation[0] = seen
        else:
            pub.observation[0][...] = seen
        self._shown = pub.observation[0]
        if self._native.mask is not None:
            self._see_masks(self._native.mask(seen, info), info.get(f"_{MASK}"))

    def _see_masks(self, given: Any, present: Array | None) -> None:
        """present: bool[E], whose masks these are; after a partial reset only of those that were reset."""
        legal = self._pub.mask[0]
        assert legal is not None
        given = self._laid(given, present)
        if given.shape != legal.shape:
            raise self._broken(
                f"gave masks of shape {given.shape}; expected {legal.shape}, an entry for each value of each number, side by side"
            )
        np.copyto(legal, given, where=True if present is None else present[:, None], casting="unsafe")
        self._idle_actions(legal)

    def _laid(self, given: Any, present: Array | None) -> Array:
        """Masks as an array; of environments that give one mask for each number, those of each environment side by side."""
        array: Array = np.asarray(given)
        if array.dtype != object or array.shape != (self.num_envs,):
            return array
        assert self._choices is not None
        rows = np.ones((len(array), self._choices.width), np.bool_)
        try:
            for e in range(len(array)) if present is None else np.flatnonzero(present):
                rows[e] = self._choices.flat(array[e])
        except ValueError as error:
            raise self._broken(f"gave {error}") from None
        return rows

    def _idle_actions(self, legal: NDArray[np.bool_]) -> None:
        """Legal ones, for those that nobody decides for."""
        assert self._choices is not None
        first = self._choices.first(legal).reshape(self._actions.shape)
        np.add(first, self._add, out=self._actions, casting="unsafe")

    def _copy(self, seen: Any, out: Array) -> None:
        try:
            self._write(seen, out)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise self._broken(f"gave observations that are not in its space: {error}") from error

    def _columns(self, n: int, *given: Any) -> list[Array]:
        """Rewards, terminated and truncated as arrays of n entries."""
        columns = [np.asarray(values) for values in given]
        for column, what in zip(columns, ("rewards", "terminated", "truncated"), strict=True):
            if column.shape != (n,):
                raise self._broken(f"gave {what} of shape {column.shape}; expected ({n},)")
            if column.dtype.kind not in ("biuf" if what == "rewards" else "biu"):
                raise self._broken(
                    f"gave {what} of type {column.dtype}; expected {'numbers' if what == 'rewards' else 'truth values'}"
                )
        return columns

    def _broken(self, sentence: str) -> EnvError:
        """An error of the whole vector: nobody knows which environment."""
        pub = self._pub
        return EnvError(
            f"{self.spec.id} {sentence}; a vector of {self.num_envs}, seeds from {pub.seeds[0]}, environment 0 in episode "
            f"{pub.episode[0]}, step {pub.length[0]}."
        )

    def _publish(self) -> Timestep:
        self._last = self._pub.publish()
        return self._last
