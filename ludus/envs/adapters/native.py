"""Vectors that step all of their environments themselves: Gymnasium's own, EnvPool's and ALE's, with one agent each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import Space, spaces
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from ludus.core.arrays import kernel
from ludus.core.errors import EnvError
from ludus.core.process_settings import enter, leave, users_code
from ludus.core.types import Array, Determinism, EnvSpec, Timestep
from ludus.envs.adapters.single import one_agent
from ludus.envs.adapters.step_checks import drawn
from ludus.envs.base import Unsaved, VectorEnv
from ludus.envs.publisher import GOES_ON, TERMINATED, TRUNCATED, Publisher
from ludus.envs.python_vector import check_actions, fits
from ludus.envs.spaces import MASK, Choices, MaskedObservation, action_start, observation_space, truths

# --------------------------------------------------------------------------------------------------------------------
# The compiled parts of vectors that step all of their environments themselves, with one agent each.


@kernel
def hand_out(given, slot, actions, bounds):  # type: ignore[no-untyped-def]
    """actions[slot[i]] = bounds[0] + given[i]. Returns the first row that is not in 0 … bounds[1] - 1, or -1."""
    for i in range(len(given)):
        action = given[i]
        if action < 0 or action >= bounds[1]:
            return i
        actions[slot[i]] = action + bounds[0]
    return -1


@kernel
def hand_out_masked(given, slot, actions, bounds, mask):  # type: ignore[no-untyped-def]
    """As `hand_out`, with mask bool[n, A]."""
    for i in range(len(given)):
        action = given[i]
        if action < 0 or action >= bounds[1] or not mask[i, action]:
            return i
        actions[slot[i]] = action + bounds[0]
    return -1


@kernel
def play(reward, terminated, truncated, rest, idle, resting, due, earned, over):  # type: ignore[no-untyped-def]
    """What a step of all environments means for each. rest: an ended environment takes its next step to restart.

    Writes who is due, what it earned, and how its episode ended. Returns how many are due and how many ended.
    """
    acting = 0
    ended = 0
    for e in range(len(due)):
        due[e] = False
        if idle[e]:
            continue
        if resting[e]:
            resting[e] = False
        else:
            earned[e] += reward[e]
            if terminated[e] or truncated[e]:
                over[e] = TERMINATED if terminated[e] else TRUNCATED
                resting[e] = rest
                ended += 1
                continue
        due[e] = True
        acting += 1
    return acting, ended


@kernel
def play_some(ids, reward, terminated, truncated, rest, idle, resting, due, earned, over):  # type: ignore[no-untyped-def]
    """As `play`, of the environments `ids` alone, whose rewards and ends are given in that order. Nobody else is due."""
    acting = 0
    ended = 0
    due[:] = False
    for i in range(len(ids)):
        e = ids[i]
        if idle[e]:
            continue
        if resting[e]:
            resting[e] = False
        else:
            earned[e] += reward[i]
            if terminated[i] or truncated[i]:
                over[e] = TERMINATED if terminated[i] else TRUNCATED
                resting[e] = rest
                ended += 1
                continue
        due[e] = True
        acting += 1
    return acting, ended


# --------------------------------------------------------------------------------------------------------------------
# Observations of a native vector, in whatever space, written into one array with a row for each environment.

Write = Callable[[Any, Array], None]
"""(batched observations, out [n, *shape]) -> None."""


def batch_writer(space: Space[Any], *, what: str) -> Write:
    """What writes a batch of a space's observations as `ludus.envs.spaces.observation_space` announces them: Boxes as they are,
    everything else flattened, in the order of `gymnasium.spaces.flatten`. It raises ValueError, TypeError or LookupError for what is not
    in the space (Boxes may be left). Raises EnvError for spaces whose batches are no arrays."""
    if isinstance(space, spaces.Box):
        return _copy
    return _flat(space, what)


def _copy(batch: Any, out: Array) -> None:
    values = np.asarray(batch)
    if values.shape != out.shape:
        raise ValueError(f"they are of shape {values.shape}; expected {out.shape}")
    if out.dtype.kind != "f" and values.dtype != out.dtype and not fits(values, out.dtype):
        raise ValueError(f"they have numbers that are no {out.dtype}")
    out[...] = values


def _flat(space: Space[Any], what: str) -> Write:
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return lambda batch, out: np.copyto(out, np.asarray(batch).reshape(out.shape), casting="unsafe")
    if isinstance(space, spaces.Discrete):
        start, count = int(space.start), np.array([space.n])
        return lambda batch, out: _one_hot(np.asarray(batch).reshape(-1, 1) - start, out, count, np.zeros(1, np.int64))
    if isinstance(space, spaces.MultiDiscrete):
        sizes = space.nvec.ravel()
        offset, first = np.concatenate(([0], np.cumsum(sizes)[:-1])), space.start.ravel()
        return lambda batch, out: _one_hot(np.asarray(batch).reshape(len(out), -1) - first, out, sizes, offset)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return _joined([(key, spaces.flatdim(part), _flat(part, what)) for key, part in parts])
    raise EnvError(f"observations of {what} contain {space}, whose batches are not arrays; give vector=python.")


def _one_hot(index: Array, out: Array, sizes: Array, offset: Array) -> None:
    """index: int[n, k] from 0; a one at offset + index in each of the k parts of out's rows."""
    if ((index < 0) | (index >= sizes)).any():
        raise ValueError(f"{index.tolist()} (counted from 0) must be below {sizes.tolist()}")
    out.fill(0)
    np.put_along_axis(out, index + offset, 1, axis=1)


def _joined(parts: list[tuple[Any, int, Write]]) -> Write:
    def write(batch: Any, out: Array) -> None:
        begin = 0
        for key, width, part in parts:
            part(batch[key], out[:, begin : begin + width])
            begin += width

    return write


# --------------------------------------------------------------------------------------------------------------------
# What vectors that step their environments themselves have in common: Gymnasium's, EnvPool's, ALE's, with one agent
# each.

Seeds: TypeAlias = NDArray[np.uint64]


def _show(vector: Any, environment: int, _: Array) -> Any:
    frames = vector.render() if getattr(vector, "render_mode", None) else None
    return None if frames is None else frames[environment]


@dataclass(frozen=True, slots=True)
class Native:
    """What there is to know about a native vector.

    observation, action: its spaces, of one environment. mode: when it restarts what ended. fresh: each step returns new arrays, which
    may be kept. start: makes or reseeds it: seeds uint64[E] -> it, first observations, info.
    mask: (observations, info) -> legal actions bool[E, A], A as in `Choices`. beside: of observations with masks; `observation` is then the
    space of what is seen beside them.
    show: (vector, environment, observations [E, …]) -> an image, text, or None.
    cut: (terminated, info) -> bool[n], which of these ends are those of a time limit.
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
    cut: Callable[[Array, Mapping[str, Any]], Array] | None = None
    beside: MaskedObservation | None = None


class NativeBase(Unsaved):
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
        if isinstance(self._add, np.ndarray) and not isinstance(space, Box):
            self._default = self._add.reshape(space.shape)
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
            with users_code():
                self._vector, seen, info = self._native.start(self._pub.seeds)
        except EnvError:
            raise
        except (Exception, SystemExit) as error:
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
            rows = given + self._add if np.any(self._add) else given
            self._actions[due.slot] = rows.reshape(len(rows), *self._actions.shape[1:])
            return
        if due.mask is None:
            wrong = hand_out(given, due.slot, self._actions, bounds)
        else:
            wrong = hand_out_masked(given, due.slot, self._actions, bounds, due.mask)
        if wrong >= 0:
            check_actions(self._space, given, mask=due.mask, what=f"player 0 of {self.spec.id}")

    def _see(self, seen: Any, info: Mapping[str, Any], *, told: Array | None = None) -> None:
        """Put observations and masks of all environments into the publisher. told: bool[E], whom the info is about (None: all)."""
        pub = self._pub
        masks = None if self._native.mask is None else self._native.mask(seen, info)
        seen = self._beside_masks(seen)[1]
        if not self._boxes or getattr(seen, "shape", None) != self._shape:
            self._copy(seen, pub.observation[0])
        elif self._keeps and seen.dtype == self._dtype and seen.flags.c_contiguous:
            pub.observation[0] = seen
        elif seen.dtype == self._dtype or self._dtype.kind == "f":
            pub.observation[0][...] = seen
        else:
            self._copy(seen, pub.observation[0])
        self._shown = pub.observation[0]
        if self._native.mask is not None:
            self._see_masks(masks, None if self._native.beside else info.get(f"_{MASK}"), told)

    def _beside_masks(self, seen: Any) -> tuple[Any, Any]:
        """(masks beside observations, or None; the observations), of one or of a batch."""
        if self._native.beside is None:
            return None, seen
        try:
            return self._native.beside.parts(seen)
        except ValueError as error:
            raise self._broken(f"gave {error}") from error

    def _see_masks(self, given: Any, present: Array | None, told: Array | None) -> None:
        """present: bool[E], whose masks these are. Whom the info is about and who has none may do anything."""
        legal = self._pub.mask[0]
        assert legal is not None
        if given is None or present is not None:
            legal[... if told is None else told] = True
        if given is not None:
            self._put_masks(given, present, legal)
        self._idle_actions(legal)

    def _put_masks(self, given: Any, present: Array | None, legal: NDArray[np.bool_]) -> None:
        given = self._laid(given, present)
        if given.shape != legal.shape:
            raise self._broken(
                f"gave masks of shape {given.shape}; expected {legal.shape}, an entry for each value of each number, side by side"
            )
        np.copyto(legal, given, where=True if present is None else present[:, None])

    def _laid(self, given: Any, present: Array | None) -> NDArray[np.bool_]:
        """Masks as an array, of whoever gave none everything; of environments that give one mask for each number, those of each environment
        side by side."""
        try:
            if isinstance(given, tuple):  # a batch of each number's
                given = np.concatenate(given, axis=1)
            array: Array = np.asarray(given)
            if array.dtype != object or array.shape != (self.num_envs,):
                if present is None or array.shape[:1] != present.shape:
                    return truths(array)
                truths(array[present])
                return np.asarray(array != 0)
            assert self._choices is not None
            rows = np.ones((len(array), self._choices.width), np.bool_)
            for e in range(len(array)) if present is None else np.flatnonzero(present):
                rows[e] = truths(self._choices.flat(array[e]))
        except ValueError as error:
            raise self._broken(f"gave {error}") from None
        return rows

    def _open_finals(self, legal: NDArray[np.bool_]) -> None:
        """A mask without a legal action says nothing of an episode's end."""
        assert self._choices is not None
        over = np.flatnonzero(self._pub.over)
        legal[over[~self._choices.possible(legal[over])]] = True

    def _idle_actions(self, legal: NDArray[np.bool_]) -> None:
        """Legal ones, for those that nobody decides for."""
        assert self._choices is not None
        self._actions[...] = (self._choices.first(legal) + self._add).reshape(self._actions.shape)

    def _copy(self, seen: Any, out: Array) -> None:
        try:
            self._write(seen, out)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise self._broken(f"gave observations that are not in its space: {error}") from error

    def _ends(self, terminated: Array, truncated: Array, info: Mapping[str, Any]) -> tuple[Array, Array]:
        """Both, with those that are a time limit's as truncated."""
        if self._native.cut is None:
            return terminated, truncated
        late = self._native.cut(terminated, info)
        return terminated & ~late, truncated | late

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


# --------------------------------------------------------------------------------------------------------------------
# Vectors that step all of their environments together: Gymnasium's own, whatever their autoreset mode.
#
#     actions -> dense array -> the vector's step -> who is due | earned | ended -> (restarts of whoever ended) -> publish


def native_env(
    vector: gymnasium.vector.VectorEnv[Any, Any, Any],
    *,
    id: str,
    determinism: Determinism = "vector",
    max_decisions: int | None = None,
) -> VectorEnv:
    """Any `gymnasium.vector.VectorEnv` with one agent, whatever its autoreset mode. id: what to call it in messages.

    It is seeded by one number, made of all seeds. Legal actions in info["action_mask"], [E, A] (see `Choices`; not of a Box), become
    masks if a first reset, with seed 0, gives them. Raises EnvError for spaces that policies cannot play and for a vector that does not
    say its mode.
    """
    metadata = getattr(vector, "metadata", None)
    mode = metadata.get("autoreset_mode") if isinstance(metadata, Mapping) else None
    try:
        mode = AutoresetMode(mode)
    except ValueError:
        wrong = "" if mode is None else f" (it says {mode!r})"
        raise EnvError(
            f'{id} does not say when it restarts ended episodes{wrong}; set metadata["autoreset_mode"] to a '
            "gymnasium.vector.AutoresetMode: NEXT_STEP if an ended one takes its next step to restart, SAME_STEP if it restarts at once."
        ) from None
    _refuse_same(vector, id)
    seen, action = vector.single_observation_space, vector.single_action_space
    beside = MaskedObservation.of(seen, action, what=id)
    seen = seen if beside is None else beside.space
    spec = one_agent(id, seen, action, determinism=determinism, max_decisions=max_decisions)

    def start(seeds: Seeds) -> tuple[Any, Any, Mapping[str, Any]]:
        return (vector, *vector.reset(seed=joint_seed(seeds)))

    try:
        _, info = vector.reset(seed=0)
    except (Exception, SystemExit) as error:
        raise EnvError(f"{id} raised {type(error).__name__} in its first reset: {error}.") from error
    mask: Callable[[Any, Mapping[str, Any]], Any] | None = None
    if beside is not None:
        mask = lambda shown, _: beside.parts(shown)[0]  # noqa: E731
    elif MASK in info and not isinstance(action, Box):
        mask = lambda _, info: info.get(MASK)  # noqa: E731
    native = Native(spec, vector.num_envs, seen, action, mode, start, mask=mask, beside=beside)
    return NativeVectorEnv(native, first=vector)


def _refuse_same(vector: object, name: str) -> None:
    """Raises EnvError for a vector, such as Gymnasium's SyncVectorEnv, two of whose environments are one object."""
    envs = getattr(vector, "envs", None)
    games = [getattr(env, "unwrapped", env) for env in envs] if isinstance(envs, list | tuple) else []
    if len({id(game) for game in games}) < len(games):
        raise EnvError(
            f"{name} holds the same object twice among its {len(games)} environments, and they would share one state. Let each function "
            "make a new one."
        )


def joint_seed(seeds: Seeds) -> int:
    """One seed of 31 bits made of all seeds, in order."""
    state = np.random.SeedSequence(seeds.tolist()).generate_state(1)
    return int(state[0] & 0x7FFFFFFF)


_NUMBERS = frozenset(reward + 2 * flag for reward in "fiu" for flag in "biu")
"""Kinds of the types of rewards, terminated and truncated that need no second look."""


class NativeVectorEnv(NativeBase):
    """`VectorEnv` over a vector that steps all of its environments together."""

    def reset(self, seeds: Seeds, *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`. Raises EnvError if the vector cannot be made or reset."""
        self._see(*self._start(seeds, episodes))
        np.logical_not(self._pub.idle, out=self._pub.due[0])
        return self._publish()

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """See `VectorEnv.step`. Raises EnvError for illegal actions and for whatever the vector raises or breaks."""
        self._hand_out(actions)
        seen, reward, terminated, truncated, info = self._reply()
        if self._plain and type(seen) is np.ndarray and seen.shape == self._shape and seen.dtype == self._dtype:
            timestep = self._pub.publish_one(seen, reward, terminated, truncated, self._resting)
            if timestep is not None:
                self._last, self._shown = timestep, seen
                return timestep
        self._see(seen, info)
        acting, ended = self._play(reward, terminated, truncated)
        if ended:
            more = self._pub.begin_next()
            if self._rest:
                self._keep_finals(shared=acting > 0 or not len(more))
                if not acting and len(more):  # somebody must have something due
                    seen, reward, terminated, truncated, info = self._reply()
                    self._see(seen, info)
                    self._play(reward, terminated, truncated)
            else:
                self._restart(more, info)
        elif self._disabled and self._done.any():  # those that have played their quota go on unseen
            self._reset_done()
        return self._publish()

    def _reply(self) -> tuple[Any, Array, Array, Array, Mapping[str, Any]]:
        """One step of the vector: observations, rewards, terminated, truncated, info."""
        before = enter()
        try:
            seen, reward, terminated, truncated, info = self._vector.step(self._actions)
        except (Exception, SystemExit) as error:
            raise self._broken(f"raised {type(error).__name__}: {error}") from error
        finally:
            leave(before)
        shapes = getattr(reward, "shape", None), getattr(terminated, "shape", None), getattr(truncated, "shape", None)
        if shapes != self._fits or reward.dtype.kind + terminated.dtype.kind + truncated.dtype.kind not in _NUMBERS:
            reward, terminated, truncated = self._columns(self.num_envs, reward, terminated, truncated)
        terminated, truncated = self._ends(terminated, truncated, info)
        return seen, reward, terminated, truncated, info

    def _play(self, reward: Array, terminated: Array, truncated: Array) -> tuple[int, int]:
        """What a step means for each environment. How many are due, how many ended."""
        pub = self._pub
        if self._disabled:
            self._done = terminated | truncated
        counts: tuple[int, int] = play(
            reward, terminated, truncated, self._rest, pub.idle, self._resting, pub.due[0], pub.reward[0], pub.over
        )
        return counts

    def _keep_finals(self, *, shared: bool) -> None:
        """The observations of this step are the final ones of whoever ended; shared: nobody overwrites them before they are published."""
        pub = self._pub
        pub.final[0] = pub.observation[0] if shared or self._keeps else pub.observation[0].copy()
        legal = pub.mask[0]
        if legal is not None:
            final = pub.final_mask[0] = legal if shared else legal.copy()
            self._open_finals(final)

    def _restart(self, more: NDArray[np.int64], info: Mapping[str, Any]) -> None:
        """New episodes within the same step."""
        pub = self._pub
        if self._native.mode is AutoresetMode.SAME_STEP:
            self._see_finals(info)
        else:
            self._keep_finals(shared=False)
            self._reset_done()
        pub.due[0][more] = True

    def _reset_done(self) -> None:
        """Of a vector that restarts nothing itself."""
        before = enter()
        try:
            seen, info = self._vector.reset(options={"reset_mask": self._done})
        except (Exception, SystemExit) as error:
            raise self._broken(f"raised {type(error).__name__} in reset: {error}") from error
        finally:
            leave(before)
        self._see(seen, info, told=self._done)

    def _see_finals(self, info: Mapping[str, Any]) -> None:
        """Final observations of a vector that shows the next episodes' first ones already."""
        pub, finals = self._pub, info.get("final_obs")
        if finals is None:
            raise self._broken(
                'ended an episode without info["final_obs"]; vectors that restart in the same step give it'
            )
        final = info.get("final_info", {})
        masks, present = final.get(MASK), final.get(f"_{MASK}")
        if isinstance(finals, np.ndarray) and finals.dtype == object:
            beside = self._see_final_rows(finals)
            if self._native.beside is not None:
                masks, present = beside, pub.over != GOES_ON
        else:
            beside, seen = self._beside_masks(finals)
            if self._native.beside is not None:
                masks, present = beside, None
            self._copy(seen, pub.final[0])
        legal = pub.final_mask[0]
        if legal is not None:
            legal[...] = True if masks is None else self._laid(masks, present)
            self._open_finals(legal)

    def _see_final_rows(self, finals: Array) -> Array:
        """Final observations that are given one by one, object[E]; the masks beside them, object[E] likewise."""
        pub, masks = self._pub, np.empty(self.num_envs, object)
        _, encode = observation_space(self._native.observation, what=self.spec.id)
        for e in np.flatnonzero(pub.over).tolist():
            masks[e], seen = self._beside_masks(finals[e])
            try:
                pub.final[0][e] = seen if encode is None else encode(seen)
            except (ValueError, TypeError, KeyError, IndexError) as error:
                raise pub.error(e, f"gave a final observation that is not in its space: {error}") from error
        return masks


# --------------------------------------------------------------------------------------------------------------------
# Vectors whose environments work at their own speed: EnvPool's and ALE's with a `batch_size` below their number of
# environments.
#
#     actions of a batch -> send -> the batch that is ready first -> who of it is due | ended -> publish
#
# The others list nothing.

Send: TypeAlias = Callable[[Any, Array, NDArray[np.int64]], None]
"""(vector, actions [n, …], environments int64[n]) -> None."""


class AsyncNativeVectorEnv(NativeBase):
    """`VectorEnv` over a vector that answers with a batch of environments at a time, numbered by info["env_id"], and restarts an ended
    one with its next action. `native.start` gives the first batch; those outside of it are restarting.

    Environments that have played their quota go on unseen, since a batch may have to wait for them.
    """

    def __init__(self, native: Native, *, send: Send) -> None:
        super().__init__(native)
        self._send = send
        self._ids: NDArray[np.int64] = np.empty(0, np.int64)  # the last batch

    def reset(self, seeds: Seeds, *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`. Raises EnvError if the vector cannot be made or reset."""
        seen, info = self._start(seeds, episodes)
        self._resting.fill(True)
        n = len(info["env_id"])
        acting, _ = self._take(seen, np.zeros(n), np.zeros(n, np.bool_), np.zeros(n, np.bool_), info)
        return self._until_due(acting)

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """See `VectorEnv.step`. Raises EnvError for illegal actions and for whatever the vector raises or breaks."""
        self._hand_out(actions)
        return self._until_due(self._advance())

    def _until_due(self, acting: int) -> Timestep:
        """Wait for batches until somebody must act, or everybody is idle."""
        while not acting and not self._pub.idle.all():
            acting = self._advance()
        return self._publish()

    def _advance(self) -> int:
        """Send the last batch off and take the next. How many are due."""
        try:
            self._send(self._vector, self._actions[self._ids], self._ids)
            seen, reward, terminated, truncated, info = self._vector.recv()
        except (Exception, SystemExit) as error:
            raise self._broken(f"raised {type(error).__name__}: {error}") from error
        n = len(info["env_id"])
        reward, terminated, truncated = self._columns(n, reward, terminated, truncated)
        terminated, truncated = self._ends(terminated, truncated, info)
        acting, ended = self._take(seen, reward, terminated, truncated, info)
        if ended:
            self._pub.begin_next()
        return acting

    def _take(
        self, seen: Any, reward: Array, terminated: Array, truncated: Array, info: Mapping[str, Any]
    ) -> tuple[int, int]:
        """What a batch means. How many are due and how many ended."""
        pub = self._pub
        ids = self._ids = np.asarray(info["env_id"]).astype(np.int64)
        rows = np.empty((len(ids), *self._shape[1:]), self._dtype)
        self._copy(seen, rows)
        pub.observation[0][ids] = rows
        self._shown = pub.observation[0]
        legal, final_legal = pub.mask[0], pub.final_mask[0]
        done = terminated | truncated
        if self._native.mask is not None and legal is not None and final_legal is not None:
            given = truths(np.asarray(self._native.mask(seen, info)))
            legal[ids], final_legal[ids[done]] = given, given[done]
            self._idle_actions(legal)
        counts: tuple[int, int] = play_some(
            ids, reward, terminated, truncated, True, pub.idle, self._resting, pub.due[0], pub.reward[0], pub.over
        )
        if counts[1]:
            pub.final[0][ids[done]] = rows[done]
            if final_legal is not None:
                self._open_finals(final_legal)
        return counts
