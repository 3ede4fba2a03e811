"""Gymnasium spaces as Ludus plays them, and masks of actions that are numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import shorten
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete
from numpy.typing import NDArray

from ludus.core.errors import EnvError
from ludus.core.types import AgentSpec, Array, Determinism, EnvSpec

# --------------------------------------------------------------------------------------------------------------------
# Gymnasium spaces as Ludus plays them: observations are one array of a fixed shape, actions numbers or vectors of
# them.

Encode = Callable[[Any], Array]


def observation_space(space: Space[Any], *, what: str) -> tuple[spaces.Box, Encode | None]:
    """Return the Box that observations of a space are given in, and a function that encodes one.

    Boxes keep their shape, and integers such as images their dtype; floats become float32. Discrete becomes one-hot, other spaces that
    Gymnasium can flatten become one float32 vector.

    Args:
        space: Gymnasium's.
        what: Whose space it is, for the message.

    Returns:
        (box, encode); encode is None where observations are such arrays already.

    Raises:
        EnvError: The space has no fixed size or no number.
    """
    if isinstance(space, spaces.Box):
        _refuse_empty(space, "observations", what)
        if np.issubdtype(space.dtype, np.floating) and space.dtype != np.float32:
            with np.errstate(over="ignore"):
                low, high = space.low.astype(np.float32), space.high.astype(np.float32)
            return spaces.Box(low, high, space.shape, np.float32), None
        return space, None
    if not isinstance(space, Space):
        raise _no_space(space, "observations", what)
    if not space.is_np_flattenable:
        raise EnvError(
            f"observations of {what} are in {space}, which has no fixed size; expected a space that Gymnasium can flatten. Wrap the "
            "environment so that it gives arrays."
        )
    if spaces.flatdim(space) == 0:
        raise _empty(space, "observations", what)
    flat = spaces.flatten_space(space)
    assert isinstance(flat, spaces.Box)
    with np.errstate(over="ignore"):
        box = spaces.Box(flat.low.astype(np.float32), flat.high.astype(np.float32), flat.shape, np.float32)
    return box, partial(_encoded, space, list(_leaves(space)), box.shape)


def _no_space(space: object, whats: str, what: str) -> EnvError:
    if type(space).__module__.partition(".")[0] == "gym":
        return EnvError(
            f"{whats} of {what} are in {space!r}, a space of the package gym, which Gymnasium has replaced. Write "
            "`import gymnasium as gym` in the environment, or wrap it in shimmy.GymV26CompatibilityV0 (GymV21CompatibilityV0 if its steps "
            "return four values)."
        )
    return EnvError(f"{whats} of {what} are in {space!r}, which is no Gymnasium space; expected a Box, say.")


def _refuse_empty(space: spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary, whats: str, what: str) -> None:
    if 0 in space.shape:
        raise _empty(space, whats, what)


def _empty(space: Space[Any], whats: str, what: str) -> EnvError:
    return EnvError(
        f"{whats} of {what} are in {space}, which holds no number; expected at least one. Wrap the environment so that there is one, "
        "0 if it says nothing."
    )


Put = Callable[[Any, Array], None]
"""(a value in a leaf of a space, out float32[n]) -> None. Raises ValueError, TypeError or LookupError for a value that is not in it."""


def _encoded(space: Space[Any], leaves: list[tuple[tuple[Any, ...], Put]], shape: tuple[int, ...], value: Any) -> Array:
    """Return float32[n], in the order of `gymnasium.spaces.flatten`. Raises ValueError for a value that is not in the space; Boxes may
    be left."""
    out = np.zeros(shape, np.float32)
    try:
        for path, put in leaves:
            part = value
            for key in path:
                part = part[key]
            put(part, out)
    except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise ValueError(f"the observation {shorten(repr(value), 200)} is not in {space}") from error
    return out


def _leaves(space: Space[Any], path: tuple[Any, ...] = (), begin: int = 0) -> Iterator[tuple[tuple[Any, ...], Put]]:
    """Return the parts of nested spaces: where to find each in a value, and what writes it from entry `begin` on."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces):
            yield from _leaves(part, (*path, key), begin)
            begin += spaces.flatdim(part)
    elif isinstance(space, spaces.Discrete):
        yield path, partial(_put_one, begin, int(space.n), int(space.start))
    elif isinstance(space, spaces.MultiDiscrete):
        sizes = space.nvec.ravel()
        offsets = np.concatenate(([0], np.cumsum(sizes)[:-1])) + begin
        yield path, partial(_put_ones, offsets, sizes, space.start.ravel())
    else:
        flat = None if isinstance(space, spaces.Box | spaces.MultiBinary) else space
        yield path, partial(_put_array, begin, spaces.flatdim(space), flat)


def _put_one(begin: int, n: int, start: int, value: Any, out: Array) -> None:
    if not 0 <= value - start < n:
        raise ValueError
    out[begin + (value - start)] = 1


def _put_ones(offsets: Array, sizes: Array, start: Array, value: Any, out: Array) -> None:
    index = np.asarray(value).reshape(sizes.shape) - start
    if index.min() < 0 or (index >= sizes).any():
        raise ValueError
    out[offsets + index] = 1


def _put_array(begin: int, width: int, flat: Space[Any] | None, value: Any, out: Array) -> None:
    out[begin : begin + width] = np.asarray(value if flat is None else spaces.flatten(flat, value)).reshape(width)


def channels_last(shape: tuple[int, ...]) -> bool:
    """Whether an array of three numbers' shape is taken for an image [height, width, channels]: the last number is the least, and at most 4
    or after a square."""
    first, second, last = shape
    return last < min(first, second) and (last <= 4 or first == second)


def action_space(space: Space[Any], *, what: str) -> Space[Any]:
    """Return the space itself, if policies can act in it.

    Args:
        space: Gymnasium's.
        what: Whose space it is, for the message.

    Raises:
        EnvError: The space is empty, a Dict, a Tuple or another that Ludus does not play.
    """
    if isinstance(space, spaces.Discrete):
        return space
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        _refuse_empty(space, "actions", what)
        return space
    if not isinstance(space, Space):
        raise _no_space(space, "actions", what)
    raise EnvError(
        f"actions of {what} are in {space}; Ludus plays Discrete, Box, MultiDiscrete and MultiBinary. Wrap the environment so that it "
        "takes one of these."
    )


def action_start(space: Space[Any]) -> Array | int:
    """Return what is added to an action that counts from 0, flat: `start` of a (Multi)Discrete space, the least numbers of a Box of few
    whole ones, otherwise 0."""
    if isinstance(space, spaces.Discrete):
        return int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(space.start).ravel()
    if isinstance(space, spaces.Box) and _counts(space) is not None:
        return space.low.ravel().astype(np.int64)
    return 0


def from_zero(space: Space[Any]) -> Space[Any]:
    """Return the space with its actions flat and counted from 0, as policies answer. A Box of few whole numbers is a MultiDiscrete."""
    if isinstance(space, spaces.Discrete) and space.start:
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete) and (np.any(space.start) or space.nvec.ndim > 1):
        return spaces.MultiDiscrete(space.nvec.ravel())
    if isinstance(space, spaces.MultiBinary) and len(space.shape) > 1:
        return spaces.MultiBinary(int(np.prod(space.shape)))
    if isinstance(space, spaces.Box) and (counts := _counts(space)) is not None:
        return spaces.MultiDiscrete(counts)
    return space


_MOST = 1 << 12  # values of a number that are choices: each has an output of a network


def _counts(space: spaces.Box) -> NDArray[np.int64] | None:
    """Return int64[n]: how many values each number of a Box of whole numbers has; None of others, and where they are too many to choose
    from."""
    if space.dtype.kind not in "iu":
        return None
    counts = (space.high.astype(np.float64) - space.low + 1).ravel()
    return counts.astype(np.int64) if len(counts) and counts.max() <= _MOST else None


def action_form(space: Space[Any]) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Return shape and dtype that an action gets before its environment has it, where `from_zero` has others; None: it is as it should
    be."""
    flat = from_zero(space)
    if isinstance(space, spaces.Discrete) or (flat.shape == space.shape and type(flat) is type(space)):
        return None
    return tuple(space.shape or ()), np.dtype(space.dtype)


def one_agent(
    id: str,
    observation: Space[Any],
    action: Space[Any],
    *,
    determinism: Determinism = "environment",
    max_decisions: int | None = None,
    statistics: Sequence[str] = (),
) -> EnvSpec:
    """Return the spec of one player with one agent, whose spaces are as policies see them. Raises EnvError for spaces that they cannot
    play."""
    box, _ = observation_space(observation, what=id)
    agent = AgentSpec("agent", 0, box, from_zero(action_space(action, what=id)))
    return EnvSpec(
        id=id,
        agents=(agent,),
        utility_range=((float("-inf"), float("inf")),),
        symmetry=((0,),),
        max_decisions=max_decisions,
        determinism=determinism,
        statistics=tuple(statistics),
    )


# --------------------------------------------------------------------------------------------------------------------
# Legal actions within observations, as PettingZoo has them.

MASK = "action_mask"  # what holds an agent's legal actions, in its observation or its `info`


@dataclass(frozen=True, slots=True, eq=False)
class MaskedObservation:
    """Observations that are mappings with "action_mask".

    Attributes:
        space: Of the other entries.
        key: The one other entry, which is used as it is; None: there are several.
    """

    space: Space[Any]
    key: str | None

    @staticmethod
    def of(space: Space[Any], action: Space[Any], *, what: str) -> MaskedObservation | None:
        """Return that of the spaces of observations and of actions; None: without a mask. what: whose spaces they are, for the message.
        Raises EnvError for a mask alone, and for one of actions that have none."""
        if not isinstance(space, spaces.Dict) or MASK not in space.spaces:
            return None
        rest = {name: part for name, part in space.spaces.items() if name != MASK}
        if not rest:
            raise EnvError(f"observations of {what} hold nothing but {MASK!r}; expected other entries too.")
        if isinstance(action, spaces.Box):
            raise EnvError(f"{what} has action masks and the action space {action}; masks go with whole numbers only.")
        key = next(iter(rest)) if len(rest) == 1 else None
        return MaskedObservation(spaces.Dict(rest) if key is None else rest[key], key)

    def parts(self, observation: Any) -> tuple[Any, Any]:
        """Return (mask, the other entries) of one observation, or of a batch. Raises ValueError, which says what it is, for any
        other."""
        try:
            if self.key is not None:
                return observation[MASK], observation[self.key]
            return observation[MASK], {name: part for name, part in observation.items() if name != MASK}
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            entries = sorted(map(str, observation)) if isinstance(observation, dict) else type(observation).__name__
            wanted = MASK if self.key is None else f"{MASK} and {self.key}"
            raise ValueError(f"an observation with {entries}; expected {wanted}") from error


# --------------------------------------------------------------------------------------------------------------------
# Masks of actions that are one number of several (Discrete), or several such numbers (MultiDiscrete,
# MultiBinary).


def truths(mask: Array) -> NDArray[np.bool_]:
    """Return bool[…]: which entries of masks, of any dtype, are legal. Raises ValueError, which says what one is, for numbers other than
    0 and 1, as masks are that are to be added to logits, and for what is not a number."""
    kind = mask.dtype.kind
    if kind == "b":
        return mask
    if kind in "iuf":
        known = (mask == 0) | (mask == 1)
    else:
        known = np.reshape(
            [isinstance(entry_value, _TRUTHS) and entry_value in (0, 1) for entry_value in mask.ravel().tolist()],
            mask.shape,
        )
    if not known.all():
        wrong = mask[~known].ravel()[0]
        entry = repr(wrong.item() if isinstance(wrong, np.generic) else wrong)
        raise ValueError(
            f"a mask with the entry {entry}; expected 1 or True for a legal action, 0 or False for an illegal one"
        )
    return mask.astype(np.bool_)


_TRUTHS = (bool, int, float, np.bool_, np.number)


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """The numbers of an action and their values.

    Masks bool[n, width] have an entry for each value of each number, concatenated: whether a value is legal does not depend on the other
    numbers of the same action.

    Attributes:
        counts: int64[numbers], number of values of each (of MultiBinary 2: 0 and 1).
        starts: int64[numbers], where the values of each begin in a mask.
        width: Entries of a mask.
    """

    counts: NDArray[np.int64]
    starts: NDArray[np.int64]
    width: int

    @staticmethod
    def of(space: Space[Any]) -> Choices | None:
        """Return the choices of an action space; None: its actions are not such numbers, and have no masks."""
        if isinstance(space, Discrete):
            counts = np.array([space.n], np.int64)
        elif isinstance(space, MultiDiscrete):
            counts = space.nvec.ravel().astype(np.int64)
        elif isinstance(space, MultiBinary):
            counts = np.full(int(np.prod(space.shape)), 2, np.int64)
        else:
            return None
        starts = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64)
        return Choices(counts, starts, int(counts.sum()))

    def flat(self, mask: Any) -> Array:
        """Return one row's mask, [width]; also of one mask for each number, as Gymnasium's MultiDiscrete takes them. Raises ValueError,
        which says what it is and should be, for any other."""
        try:
            if len(mask) == len(self.counts) and [np.shape(part) for part in mask] == [(n,) for n in self.counts]:
                return np.concatenate([np.asarray(part) for part in mask])
            array = np.asarray(mask)
        except (TypeError, ValueError):  # no length, or parts that are no array together
            raise ValueError(f"a mask {shorten(repr(mask), 100)}; {self._wanted()}") from None
        if array.shape != (self.width,):
            raise ValueError(f"a mask of shape {array.shape}; {self._wanted()}")
        return array

    def _wanted(self) -> str:
        counts = self.counts.tolist()
        return (
            f"it has {counts[0]} actions" if len(counts) == 1 else f"it has numbers with {counts} values, concatenated"
        )

    def says_nothing(self, mask: Any) -> bool:
        """Whether it leaves a number without a legal value, or is empty, as masks are that are shown to agents who will not act. False of
        what has a wrong form."""
        try:
            return len(mask) == 0 or not self.possible(self.flat(mask)[None]).all()
        except (TypeError, ValueError):
            return False

    def possible(self, mask: Array) -> NDArray[np.bool_]:
        """Return bool[n]: whether each row of a mask [n, width] has a legal value of every number."""
        if len(self.starts) == 1:
            return np.asarray(mask.any(axis=1), np.bool_)
        any_legal: NDArray[np.bool_] = np.logical_or.reduceat(mask, self.starts, axis=1)
        return np.asarray(any_legal.all(axis=1))

    def legal(
        self, mask: NDArray[np.bool_], actions: Array, rows: NDArray[np.integer[Any]] | None = None
    ) -> NDArray[np.bool_]:
        """Return which numbers of actions [n, …], each within its count, are legal, in the same shape. rows [n]: of the mask that limits
        each; None: one of each."""
        at = self.starts + actions.reshape(len(actions), -1).astype(np.int64)
        of = np.arange(len(mask)) if rows is None else rows
        result: NDArray[np.bool_] = mask[of[:, None], at].reshape(actions.shape)
        return result

    def first(self, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return int64[n, numbers]: the first legal value of each number, 0 where there is none."""
        ends = self.starts + self.counts
        parts = [mask[:, a:b].argmax(axis=1) for a, b in zip(self.starts, ends, strict=True)]
        return np.stack(parts, axis=1)

    def values(self, mask: NDArray[np.bool_]) -> list[list[int]]:
        """Return the legal values of each number, of one row bool[width]."""
        return [np.flatnonzero(part).tolist() for part in np.split(mask, self.starts[1:])]
