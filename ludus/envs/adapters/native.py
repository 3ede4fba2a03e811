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
from ludus.envs.adapters.step_checks import call_renderer
from ludus.envs.base import NoSnapshotMixin, VectorEnv
from ludus.envs.publisher import GOES_ON, TERMINATED, TRUNCATED, Publisher
from ludus.envs.python_vector import check_actions, fits
from ludus.envs.spaces import MASK, Choices, MaskedObservation, action_start, observation_space, one_agent, truths

# --------------------------------------------------------------------------------------------------------------------
# The compiled parts of vectors that step all of their environments themselves, with one agent each.


@kernel
def scatter_actions(due_actions, slot, actions, bounds):  # type: ignore[no-untyped-def]
    """Write actions[slot[i]] = bounds[0] + due_actions[i]. Returns the first row that is not in 0 … bounds[1] - 1, or -1."""
    for i in range(len(due_actions)):
        action = due_actions[i]
        if action < 0 or action >= bounds[1]:
            return i
        actions[slot[i]] = action + bounds[0]
    return -1


@kernel
def scatter_actions_masked(due_actions, slot, actions, bounds, mask):  # type: ignore[no-untyped-def]
    """Do the same as `scatter_actions`, with mask bool[n, A]."""
    for i in range(len(due_actions)):
        action = due_actions[i]
        if action < 0 or action >= bounds[1] or not mask[i, action]:
            return i
        actions[slot[i]] = action + bounds[0]
    return -1


@kernel
def play(reward, terminated, truncated, rest, idle, resting, due, earned, over):  # type: ignore[no-untyped-def]
    """Write what a step of all environments means for each: who is due, what it earned, and how its episode ended.

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
    """Do the same as `play` for the environments `ids` only, whose rewards and ends are in that order. No other environment is due."""
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
    """Return what writes a batch of a space's observations as `ludus.envs.spaces.observation_space` announces them: Boxes as they are,
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
        return _join_writers([(key, spaces.flatdim(part), _flat(part, what)) for key, part in parts])
    raise EnvError(f"observations of {what} contain {space}, whose batches are not arrays; give vector=python.")


def _one_hot(index: Array, out: Array, sizes: Array, offset: Array) -> None:
    """Write a one at offset + index in each of the k parts of out's rows. index: int[n, k], from 0."""
    if ((index < 0) | (index >= sizes)).any():
        raise ValueError(f"{index.tolist()} (counted from 0) must be below {sizes.tolist()}")
    out.fill(0)
    np.put_along_axis(out, index + offset, 1, axis=1)


def _join_writers(parts: list[tuple[Any, int, Write]]) -> Write:
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
    space of the rest.
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


class NativeBase(NoSnapshotMixin):
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
        self._done = np.zeros(native.num_envs, np.bool_)
        self._last_observation = self._pub.observation[0]
        self._last: Timestep | None = None

    # ------------------------------------------------------------------------------------------ the contract

    def render(self, environment: int) -> NDArray[np.uint8] | str:
        """Render as `SupportsRender.render` describes. Raises EnvError if it was not made to render, or was not reset."""
        if self._last is None:
            raise EnvError(f"{self.spec.id} has not been reset yet; there is nothing to render.")
        show = self._native.show
        frame: NDArray[np.uint8] | str | None = call_renderer(
            self.spec.id, lambda: show(self._vector, environment, self._last_observation)
        )
        if frame is None:
            raise EnvError(f"{self.spec.id} has nothing to show; make it with render=True.")
        return frame

    def close(self) -> None:
        """Close the vector."""
        vector, self._vector, self._last = self._vector, None, None
        if vector is not None:
            vector.close()

    # ------------------------------------------------------------------------------------------ parts of a step

    def _start(self, seeds: Seeds, episodes: int | NDArray[np.int64] | None) -> tuple[Any, Mapping[str, Any]]:
        """Seed the vector. Returns its first observations and info."""
        self._pub.reset(seeds, episodes)
        self._resting.fill(False)
        self._actions[...] = self._default
        try:
            with users_code():
                self._vector, observation, info = self._native.start(self._pub.seeds)
        except EnvError:
            raise
        except (Exception, SystemExit) as error:
            raise self._broken(f"raised {type(error).__name__} in reset: {error}") from error
        return observation, info

    def _scatter_actions(self, actions: tuple[Array, ...]) -> None:
        """Write the actions of due environments into the dense array. Raises EnvError for illegal ones."""
        if self._last is None:
            raise EnvError("step was called before reset; reset the environment first.")
        due, due_actions = self._last.due[0], np.asarray(actions[0])
        if len(due_actions) != len(due.slot):
            raise EnvError(
                f"player 0 was given {len(due_actions)} actions for {len(due.slot)} due decisions; one each."
            )
        bounds = self._bounds
        if bounds is None or due_actions.ndim != 1 or due_actions.dtype.kind not in "iu":
            check_actions(self._space, due_actions, mask=due.mask, what=f"player 0 of {self.spec.id}")
            rows = due_actions + self._add if np.any(self._add) else due_actions
            self._actions[due.slot] = rows.reshape(len(rows), *self._actions.shape[1:])
            return
        if due.mask is None:
            wrong = scatter_actions(due_actions, due.slot, self._actions, bounds)
        else:
            wrong = scatter_actions_masked(due_actions, due.slot, self._actions, bounds, due.mask)
        if wrong >= 0:
            check_actions(self._space, due_actions, mask=due.mask, what=f"player 0 of {self.spec.id}")

    def _write_observation(self, observation: Any, info: Mapping[str, Any], *, subset: Array | None = None) -> None:
        """Write observations and masks of all environments into the publisher. subset: bool[E], the environments that the info is about
        (None: all)."""
        pub = self._pub
        masks = None if self._native.mask is None else self._native.mask(observation, info)
        observation = self._split_masks(observation)[1]
        if not self._boxes or getattr(observation, "shape", None) != self._shape:
            self._copy(observation, pub.observation[0])
        elif self._keeps and observation.dtype == self._dtype and observation.flags.c_contiguous:
            pub.observation[0] = observation
        elif observation.dtype == self._dtype or self._dtype.kind == "f":
            pub.observation[0][...] = observation
        else:
            self._copy(observation, pub.observation[0])
        self._last_observation = pub.observation[0]
        if self._native.mask is not None:
            self._write_masks(masks, None if self._native.beside else info.get(f"_{MASK}"), subset)

    def _split_masks(self, observation: Any) -> tuple[Any, Any]:
        """Return (masks, or None; the rest of the observations), of one observation or of a batch."""
        if self._native.beside is None:
            return None, observation
        try:
            return self._native.beside.parts(observation)
        except ValueError as error:
            raise self._broken(f"gave {error}") from error

    def _write_masks(self, masks: Any, present: Array | None, subset: Array | None) -> None:
        """Write masks. present: bool[E], the environments that these masks are of. In those that the info is about and that have none,
        every action is legal."""
        legal = self._pub.mask[0]
        assert legal is not None
        if masks is None or present is not None:
            legal[... if subset is None else subset] = True
        if masks is not None:
            self._copy_masks(masks, present, legal)
        self._idle_actions(legal)

    def _copy_masks(self, masks: Any, present: Array | None, legal: NDArray[np.bool_]) -> None:
        masks = self._mask_array(masks, present)
        if masks.shape != legal.shape:
            raise self._broken(
                f"gave masks of shape {masks.shape}; expected {legal.shape}, an entry for each value of each number, concatenated"
            )
        np.copyto(legal, masks, where=True if present is None else present[:, None])

    def _mask_array(self, masks: Any, present: Array | None) -> NDArray[np.bool_]:
        """Return masks as one array, all True for environments that gave none. Of environments with one mask for each number, the masks
        of each environment are concatenated."""
        try:
            if isinstance(masks, tuple):  # a batch of each number's
                masks = np.concatenate(masks, axis=1)
            array: Array = np.asarray(masks)
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
        """Set final masks without a legal action to True: they do not say anything."""
        assert self._choices is not None
        over = np.flatnonzero(self._pub.over)
        legal[over[~self._choices.possible(legal[over])]] = True

    def _idle_actions(self, legal: NDArray[np.bool_]) -> None:
        """Set legal actions, for the environments that no decision is made for."""
        assert self._choices is not None
        self._actions[...] = (self._choices.first(legal) + self._add).reshape(self._actions.shape)

    def _copy(self, observation: Any, out: Array) -> None:
        try:
            self._write(observation, out)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise self._broken(f"gave observations that are not in its space: {error}") from error

    def _ends(self, terminated: Array, truncated: Array, info: Mapping[str, Any]) -> tuple[Array, Array]:
        """Return (terminated, truncated), where the ends of a time limit are truncations."""
        if self._native.cut is None:
            return terminated, truncated
        late = self._native.cut(terminated, info)
        return terminated & ~late, truncated | late

    def _columns(self, n: int, *arrays: Any) -> list[Array]:
        """Return rewards, terminated and truncated as arrays of n entries."""
        columns = [np.asarray(values) for values in arrays]
        for column, what in zip(columns, ("rewards", "terminated", "truncated"), strict=True):
            if column.shape != (n,):
                raise self._broken(f"gave {what} of shape {column.shape}; expected ({n},)")
            if column.dtype.kind not in ("biuf" if what == "rewards" else "biu"):
                raise self._broken(
                    f"gave {what} of type {column.dtype}; expected {'numbers' if what == 'rewards' else 'truth values'}"
                )
        return columns

    def _broken(self, sentence: str) -> EnvError:
        """Return an error of the whole vector: which environment it is about is not known."""
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
#     actions -> dense array -> the vector's step -> who is due | earned | ended -> (restarts of those that ended) -> publish


def native_env(
    vector: gymnasium.vector.VectorEnv[Any, Any, Any],
    *,
    id: str,
    determinism: Determinism = "vector",
    max_decisions: int | None = None,
) -> VectorEnv:
    """Return any `gymnasium.vector.VectorEnv` with one agent, whatever its autoreset mode. id: what to call it in messages.

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
    observation, action = vector.single_observation_space, vector.single_action_space
    beside = MaskedObservation.of(observation, action, what=id)
    observation = observation if beside is None else beside.space
    spec = one_agent(id, observation, action, determinism=determinism, max_decisions=max_decisions)

    def start(seeds: Seeds) -> tuple[Any, Any, Mapping[str, Any]]:
        return (vector, *vector.reset(seed=joint_seed(seeds)))

    try:
        _, info = vector.reset(seed=0)
    except (Exception, SystemExit) as error:
        raise EnvError(f"{id} raised {type(error).__name__} in its first reset: {error}.") from error
    mask: Callable[[Any, Mapping[str, Any]], Any] | None = None
    if beside is not None:
        mask = lambda batch, _: beside.parts(batch)[0]  # noqa: E731
    elif MASK in info and not isinstance(action, Box):
        mask = lambda _, info: info.get(MASK)  # noqa: E731
    native = Native(spec, vector.num_envs, observation, action, mode, start, mask=mask, beside=beside)
    return NativeVectorEnv(native, first=vector)


def _refuse_same(vector: object, name: str) -> None:
    """Raise EnvError for a vector, such as Gymnasium's SyncVectorEnv, two of whose environments are one object."""
    envs = getattr(vector, "envs", None)
    games = [getattr(env, "unwrapped", env) for env in envs] if isinstance(envs, list | tuple) else []
    if len({id(game) for game in games}) < len(games):
        raise EnvError(
            f"{name} holds the same object twice among its {len(games)} environments, and they would share one state. Let each function "
            "make a new one."
        )


def joint_seed(seeds: Seeds) -> int:
    """Return one seed of 31 bits made of all seeds, in order."""
    state = np.random.SeedSequence(seeds.tolist()).generate_state(1)
    return int(state[0] & 0x7FFFFFFF)


_REWARDS, _FLAG = (np.dtype(np.float64), np.dtype(np.float32)), np.dtype(np.bool_)
"""Types of rewards and of ends that need no second look."""


class NativeVectorEnv(NativeBase):
    """`VectorEnv` over a vector that steps all of its environments together."""

    def reset(self, seeds: Seeds, *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """Reset as `VectorEnv.reset` describes. Raises EnvError if the vector cannot be made or reset."""
        observation, info = self._start(seeds, episodes)
        self._resting.fill(True)  # what comes next begins an episode, as after one that has ended
        ends = np.zeros(self.num_envs, np.bool_)
        if (timestep := self._publish_plain(observation, np.zeros(self.num_envs), ends, ends)) is not None:
            return timestep
        self._resting.fill(False)
        self._write_observation(observation, info)
        np.logical_not(self._pub.idle, out=self._pub.due[0])
        return self._publish()

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """Step as `VectorEnv.step` describes. Raises EnvError for illegal actions and for whatever the vector raises or breaks."""
        self._scatter_actions(actions)
        observation, reward, terminated, truncated, info = self._reply()
        if (timestep := self._publish_plain(observation, reward, terminated, truncated)) is not None:
            return timestep
        self._write_observation(observation, info)
        acting, ended = self._play(reward, terminated, truncated)
        if ended:
            more = self._pub.begin_next()
            if self._rest:
                self._keep_finals(shared=acting > 0 or not len(more))
                if not acting and len(more):  # an environment must be due
                    observation, reward, terminated, truncated, info = self._reply()
                    self._write_observation(observation, info)
                    self._play(reward, terminated, truncated)
            else:
                self._restart(more, info)
        elif self._disabled and self._done.any():  # those that have played their quota continue unseen
            self._reset_done()
        return self._publish()

    def _publish_plain(self, observation: Any, reward: Array, terminated: Array, truncated: Array) -> Timestep | None:
        """Publish in one pass; None, with nothing changed, where `Publisher.publish_one` does not do that."""
        if not self._plain or type(observation) is not np.ndarray:
            return None
        if observation.shape != self._shape or observation.dtype != self._dtype:
            return None
        timestep = self._pub.publish_one(observation, reward, terminated, truncated, self._resting)
        if timestep is not None:
            self._last, self._last_observation = timestep, observation
        return timestep

    def _reply(self) -> tuple[Any, Array, Array, Array, Mapping[str, Any]]:
        """Step the vector. Returns observations, rewards, terminated, truncated, info."""
        before = enter()
        try:
            observation, reward, terminated, truncated, info = self._vector.step(self._actions)
        except (Exception, SystemExit) as error:
            raise self._broken(f"raised {type(error).__name__}: {error}") from error
        finally:
            leave(before)
        usual = type(reward) is type(terminated) is type(truncated) is np.ndarray and (
            reward.dtype in _REWARDS and terminated.dtype is truncated.dtype is _FLAG
        )
        if not usual or not reward.shape == terminated.shape == truncated.shape == (self.num_envs,):
            reward, terminated, truncated = self._columns(self.num_envs, reward, terminated, truncated)
        if self._native.cut is not None:
            terminated, truncated = self._ends(terminated, truncated, info)
        return observation, reward, terminated, truncated, info

    def _play(self, reward: Array, terminated: Array, truncated: Array) -> tuple[int, int]:
        """Note what a step means for each environment. Returns the numbers of those that are due and of those that ended."""
        pub = self._pub
        if self._disabled:
            self._done = terminated | truncated
        counts: tuple[int, int] = play(
            reward, terminated, truncated, self._rest, pub.idle, self._resting, pub.due[0], pub.reward[0], pub.over
        )
        return counts

    def _keep_finals(self, *, shared: bool) -> None:
        """Take the observations of this step as the final ones of episodes that ended. shared: they are not overwritten before they are
        published."""
        pub = self._pub
        pub.final[0] = pub.observation[0] if shared or self._keeps else pub.observation[0].copy()
        legal = pub.mask[0]
        if legal is not None:
            final = pub.final_mask[0] = legal if shared else legal.copy()
            self._open_finals(final)

    def _restart(self, more: NDArray[np.int64], info: Mapping[str, Any]) -> None:
        """Begin new episodes within the same step."""
        pub = self._pub
        if self._native.mode is AutoresetMode.SAME_STEP:
            self._write_finals(info)
        else:
            self._keep_finals(shared=False)
            self._reset_done()
        pub.due[0][more] = True

    def _reset_done(self) -> None:
        """Reset the environments that ended, of a vector that does not restart them itself."""
        before = enter()
        try:
            observation, info = self._vector.reset(options={"reset_mask": self._done})
        except (Exception, SystemExit) as error:
            raise self._broken(f"raised {type(error).__name__} in reset: {error}") from error
        finally:
            leave(before)
        self._write_observation(observation, info, subset=self._done)

    def _write_finals(self, info: Mapping[str, Any]) -> None:
        """Write the final observations of a vector that shows the next episodes' first ones already."""
        pub, finals = self._pub, info.get("final_obs")
        if finals is None:
            raise self._broken(
                'ended an episode without info["final_obs"]; vectors that restart in the same step give it'
            )
        final = info.get("final_info", {})
        masks, present = final.get(MASK), final.get(f"_{MASK}")
        if isinstance(finals, np.ndarray) and finals.dtype == object:
            beside = self._write_final_rows(finals)
            if self._native.beside is not None:
                masks, present = beside, pub.over != GOES_ON
        else:
            beside, observation = self._split_masks(finals)
            if self._native.beside is not None:
                masks, present = beside, None
            self._copy(observation, pub.final[0])
        legal = pub.final_mask[0]
        if legal is not None:
            legal[...] = True if masks is None else self._mask_array(masks, present)
            self._open_finals(legal)

    def _write_final_rows(self, finals: Array) -> Array:
        """Write final observations that are given one by one, object[E]. Returns the masks in them, object[E]."""
        pub, masks = self._pub, np.empty(self.num_envs, object)
        _, encode = observation_space(self._native.observation, what=self.spec.id)
        for e in np.flatnonzero(pub.over).tolist():
            masks[e], observation = self._split_masks(finals[e])
            try:
                pub.final[0][e] = observation if encode is None else encode(observation)
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

    Environments that have played their quota continue unseen, since a batch may have to wait for them.
    """

    def __init__(self, native: Native, *, send: Send) -> None:
        super().__init__(native)
        self._send = send
        self._ids: NDArray[np.int64] = np.empty(0, np.int64)  # the last batch

    def reset(self, seeds: Seeds, *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """Reset as `VectorEnv.reset` describes. Raises EnvError if the vector cannot be made or reset."""
        observation, info = self._start(seeds, episodes)
        self._resting.fill(True)
        n = len(info["env_id"])
        acting, _ = self._take(observation, np.zeros(n), np.zeros(n, np.bool_), np.zeros(n, np.bool_), info)
        return self._until_due(acting)

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """Step as `VectorEnv.step` describes. Raises EnvError for illegal actions and for whatever the vector raises or breaks."""
        self._scatter_actions(actions)
        return self._until_due(self._advance())

    def _until_due(self, acting: int) -> Timestep:
        """Wait for batches until an environment is due or all are idle."""
        while not acting and not self._pub.idle.all():
            acting = self._advance()
        return self._publish()

    def _advance(self) -> int:
        """Send the actions of the last batch and receive the next batch. Returns the number of environments that are due."""
        try:
            self._send(self._vector, self._actions[self._ids], self._ids)
            observation, reward, terminated, truncated, info = self._vector.recv()
        except (Exception, SystemExit) as error:
            raise self._broken(f"raised {type(error).__name__}: {error}") from error
        n = len(info["env_id"])
        reward, terminated, truncated = self._columns(n, reward, terminated, truncated)
        terminated, truncated = self._ends(terminated, truncated, info)
        acting, ended = self._take(observation, reward, terminated, truncated, info)
        if ended:
            self._pub.begin_next()
        return acting

    def _take(
        self, observation: Any, reward: Array, terminated: Array, truncated: Array, info: Mapping[str, Any]
    ) -> tuple[int, int]:
        """Note what a batch means. Returns the numbers of environments that are due and that ended."""
        pub = self._pub
        ids = self._ids = np.asarray(info["env_id"]).astype(np.int64)
        rows = np.empty((len(ids), *self._shape[1:]), self._dtype)
        self._copy(observation, rows)
        pub.observation[0][ids] = rows
        self._last_observation = pub.observation[0]
        legal, final_legal = pub.mask[0], pub.final_mask[0]
        done = terminated | truncated
        if self._native.mask is not None and legal is not None and final_legal is not None:
            mask = truths(np.asarray(self._native.mask(observation, info)))
            legal[ids], final_legal[ids[done]] = mask, mask[done]
            self._idle_actions(legal)
        counts: tuple[int, int] = play_some(
            ids, reward, terminated, truncated, True, pub.idle, self._resting, pub.due[0], pub.reward[0], pub.over
        )
        if counts[1]:
            pub.final[0][ids[done]] = rows[done]
            if final_legal is not None:
                self._open_finals(final_legal)
        return counts
