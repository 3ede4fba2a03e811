"""What agents see, changed: flat vectors, numbers between 0 and 1, ids of agents, grey and small images, the last k observations as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ludus.core.arrays import kernel
from ludus.core.errors import ConfigError
from ludus.core.packages import require
from ludus.core.types import Array, Timestep
from ludus.envs.base import VectorEnv
from ludus.envs.device_vector import DeviceVectorEnv, OffersDevice
from ludus.envs.spaces import channels_last
from ludus.envs.wrappers.base import RowWrapper, Wrapper, boxes, close, show, whole, with_observations

if TYPE_CHECKING:
    import torch

# --------------------------------------------------------------------------------------------------------------------
# The compiled parts of wrappers.


@kernel
def push(slot, first, zeros, frames, ring, head):  # type: ignore[no-untyped-def]
    """Write frames [n, F] into the rings [S, k, F] of their slots; head int32[S] is where the next one goes, the oldest's place. A slot's
    first frame fills its ring, or follows zeros."""
    k, size = ring.shape[1], ring.shape[2]
    for i in range(len(slot)):
        s = slot[i]
        if first[i]:
            for j in range(k):
                for f in range(size):
                    ring[s, j, f] = 0 if zeros else frames[i, f]
        h = head[s]
        for f in range(size):
            ring[s, h, f] = frames[i, f]
        head[s] = (h + 1) % k


@kernel
def show_stack(slot, ring, head, out):  # type: ignore[no-untyped-def]
    """Copy the rings of slots to out [n, k, F], the oldest frame first."""
    k, size = ring.shape[1], ring.shape[2]
    for i in range(len(slot)):
        s = slot[i]
        for j in range(k):
            place = (head[s] + j) % k
            for f in range(size):
                out[i, j, f] = ring[s, place, f]


@kernel
def show_final_stack(slot, frames, ring, head, out):  # type: ignore[no-untyped-def]
    """Write the stacks as if frames [n, F] had been pushed; the rings do not change."""
    k, size = ring.shape[1], ring.shape[2]
    for i in range(len(slot)):
        s = slot[i]
        for j in range(1, k):
            place = (head[s] + j) % k
            for f in range(size):
                out[i, j - 1, f] = ring[s, place, f]
        for f in range(size):
            out[i, k - 1, f] = frames[i, f]


@kernel
def luminance(images, out):  # type: ignore[no-untyped-def]
    """Convert uint8[pixels, 3] to uint8[pixels]: 0.299 R + 0.587 G + 0.114 B in 14-bit fixed point, rounded (ITU-R BT.601, as OpenCV
    does it)."""
    for i in range(len(out)):
        r, g, b = np.int32(images[i, 0]), np.int32(images[i, 1]), np.int32(images[i, 2])
        out[i] = (4899 * r + 9617 * g + 1868 * b + 8192) >> 14


# --------------------------------------------------------------------------------------------------------------------
# Observations as flat vectors, between 0 and 1, and which agent of the team it is that sees them.

_UNBOUNDED = float(np.finfo(np.float32).max) / 4
"""Bounds this far apart say that there are none."""


def flatten_observation(env: VectorEnv, *, players: Sequence[int] | None = None) -> VectorEnv:
    """Flatten observations of any shape to vectors, in row order, without a copy.

    Args:
        env: The vector.
        players: Whose observations are flattened; None: all players'.

    Returns:
        The wrapped vector.

    Raises:
        ConfigError: The game is compiled.
    """
    spaces = {
        p: Box(box.low.ravel(), box.high.ravel(), (box.low.size,), box.dtype)
        for p, box in boxes(env, players, "flatten_observation").items()
    }
    return RowWrapper(env, spaces, lambda _player, _slot, rows, out: rows.reshape(out.shape))


def scale_observation(env: VectorEnv, *, players: Sequence[int] | None = None) -> VectorEnv:
    """Scale bounded observations, such as bytes, to float32 in [0, 1]: (x - low) / (high - low).

    Args:
        env: The vector.
        players: Whose observations are scaled; None: all players'.

    Returns:
        The wrapped vector.

    Raises:
        ConfigError: Bounds are infinite, or about the largest float32; or the game is compiled.
    """
    spaces, bounds = {}, {}
    for p, box in boxes(env, players, "scale_observation").items():
        low, high = box.low.astype(np.float64), box.high.astype(np.float64)
        if not (high - low < _UNBOUNDED).all():
            raise ConfigError(
                f"scale_observation needs finite bounds, far below the largest number; player {p} of {env.spec.id} sees {box}. "
                "Algorithms with normalise_observations take such observations as they are."
            )
        bounds[p] = low.astype(np.float32), np.where(high > low, high - low, 1.0).astype(np.float32)
        spaces[p] = Box(0.0, 1.0, box.shape, np.float32)

    def change(player: int, _slot: NDArray[np.int32], rows: Array, out: Array) -> Array:
        low, span = bounds[player]
        return np.divide(np.subtract(rows, low, out=out), span, out=out)

    return RowWrapper(env, spaces, change)


class _AgentIdsOnDevices(RowWrapper):
    """Of a vector that can live on a device."""

    env: Any

    def on_device(self, device: torch.device, *, num_envs: int) -> DeviceVectorEnv:
        """Make the environments on a device as `OffersDevice` describes."""
        from ludus.envs.wrappers.ondevice import DeviceAgentIds  # loads torch

        return DeviceAgentIds(self.env.on_device(device, num_envs=num_envs), self.spec, self._players)


def agent_ids(env: VectorEnv, *, players: Sequence[int] | None = None) -> VectorEnv:
    """Append the agent's one-hot id to flat observations [n], which become [n + agents of the player].

    For a network that a team shares: its agents have one role then, whatever their names say.

    Args:
        env: The vector.
        players: Whose observations get ids; None: those of players with several agents.

    Returns:
        The wrapped vector.

    Raises:
        ConfigError: No player has several agents, or observations are not flat.
    """
    if players is None:
        players = [p for p in range(env.spec.num_players) if len(env.spec.agents_of(p)) > 1]
        if not players:
            raise ConfigError(
                f"agent_ids: no player of {env.spec.id} has several agents. Put them under one player with group_players first."
            )
    old = boxes(env, players, "agent_ids")
    for p, box in old.items():
        if len(box.shape) != 1:
            raise ConfigError(
                f"agent_ids takes flat observations; player {p} of {env.spec.id} sees arrays of shape {box.shape}. "
                "Put flatten_observation before it."
            )
        if box.dtype == np.uint8 and int(box.high.max(initial=0)) > 1:
            raise ConfigError(
                f"agent_ids appends ones to what agents see; player {p} of {env.spec.id} sees bytes up to {box.high.max()}, which "
                "networks scale by 1/255, ids with them. Put scale_observation before it."
            )
    agents = {p: len(env.spec.agents_of(p)) for p in old}

    def change(player: int, slot: NDArray[np.int32], rows: Array, out: Array) -> Array:
        size = rows.shape[1]
        out[:, :size] = rows
        out[:, size:] = 0
        out[np.arange(len(slot)), size + slot % agents[player]] = 1
        return out

    cls = _AgentIdsOnDevices if isinstance(env, OffersDevice) else RowWrapper
    wrapper = cls(env, {p: _longer(box, agents[p]) for p, box in old.items()}, change)
    one_role = (replace(a, role="default") if a.player in old else a for a in wrapper.spec.agents)
    wrapper.spec = replace(wrapper.spec, agents=tuple(one_role))
    return wrapper


def _longer(box: Box, agents: int) -> Box:
    low, high = np.zeros(agents, box.dtype), np.ones(agents, box.dtype)
    size = box.shape[0] + agents
    return Box(np.concatenate([box.low, low]), np.concatenate([box.high, high]), (size,), box.dtype)


# --------------------------------------------------------------------------------------------------------------------
# Images: grey, and smaller (Mnih et al. 2015 play Atari on 84 × 84 grey ones).


def grayscale(env: VectorEnv, *, players: Sequence[int] | None = None) -> VectorEnv:
    """Convert images uint8[height, width, 3] (red, green, blue) to their luminance uint8[height, width] (ITU-R BT.601). Images of one
    channel lose that axis.

    Args:
        env: The vector.
        players: Whose observations are converted; None: all players'.

    Returns:
        The wrapped vector.

    Raises:
        ConfigError: Observations have another shape or dtype.
    """
    old = boxes(env, players, "grayscale")
    for p, box in old.items():
        if box.dtype != np.uint8 or len(box.shape) != 3 or box.shape[2] not in (1, 3):
            raise ConfigError(
                f"grayscale takes images uint8[height, width, 3 or 1]; player {p} of {env.spec.id} sees {_brief(box)}. "
                "Choose others with `players`."
            )
    return RowWrapper(env, {p: Box(0, 255, box.shape[:2], np.uint8) for p, box in old.items()}, _grey)


def _grey(_player: int, _slot: NDArray[np.int32], rows: Array, out: Array) -> Array:
    if rows.shape[3] == 1:
        return rows[..., 0]
    luminance(np.ascontiguousarray(rows).reshape(-1, 3), out.reshape(-1))
    return out


def channels_first(env: VectorEnv, *, players: Sequence[int] | None = None) -> VectorEnv:
    """Move the channels of images [height, width, channels] to the front, [channels, height, width], as networks for images take them. Of k
    images (`frame_stack`) the result is [k × channels, height, width], the oldest first.

    Args:
        env: The vector.
        players: Whose observations are converted; None: all players'.

    Returns:
        The wrapped vector.

    Raises:
        ConfigError: Observations have another shape.
    """
    old = boxes(env, players, "channels_first")
    for p, box in old.items():
        if len(box.shape) not in (3, 4) or not channels_last(box.shape[-3:]):
            raise ConfigError(
                f"channels_first takes images [height, width, channels], or k of them; player {p} of {env.spec.id} sees {_brief(box)}. "
                "Choose others with `players`."
            )

    def change(_player: int, _slot: NDArray[np.int32], rows: Array, out: Array) -> Array:
        moved = np.moveaxis(rows, -1, -3)
        out.reshape(moved.shape)[...] = moved
        return out

    return RowWrapper(env, {p: _first(box) for p, box in old.items()}, change)


def _first(box: Box) -> Box:
    low, high = (np.moveaxis(bound, -1, -3).reshape(-1, *box.shape[-3:-1]) for bound in (box.low, box.high))
    return Box(low, high, low.shape, box.dtype)


_CHANNELS = 4
"""Of an image that OpenCV resizes."""


def resize(env: VectorEnv, height: int = 84, width: int = 84, *, players: Sequence[int] | None = None) -> VectorEnv:
    """Resize images [h, w] or [h, w, channels] of uint8 or float32 to [height, width, …]. Each pixel is the mean of the area that it covers
    (OpenCV's INTER_AREA).

    Args:
        env: The vector.
        height: Rows, at least 1.
        width: Columns, at least 1.
        players: Whose observations are resized; None: all players'.

    Returns:
        The wrapped vector.

    Raises:
        ConfigError: Observations have another form (channels or frames first, say), or OpenCV is not installed.
    """
    whole(height, least=1, what="resize: height")
    whole(width, least=1, what="resize: width")
    old = boxes(env, players, "resize")
    for p, box in old.items():
        if box.dtype not in (np.uint8, np.float32) or len(box.shape) not in (2, 3):
            raise ConfigError(
                f"resize takes images [height, width] or [height, width, channels] of uint8 or float32; player {p} of "
                f"{env.spec.id} sees {_brief(box)}. Choose others with `players`."
            )
        if len(box.shape) == 3 and box.shape[2] > min(box.shape[:2]):
            raise ConfigError(
                f"resize takes channels last; player {p} of {env.spec.id} sees {_brief(box)}, which has something else there. "
                "Put resize before frame_stack."
            )
        if len(box.shape) == 3 and box.shape[2] > _CHANNELS:
            raise ConfigError(
                f"resize takes up to {_CHANNELS} channels, as OpenCV does; player {p} of {env.spec.id} sees {_brief(box)}. "
                "Put resize before frame_stack."
            )
    cv2 = require("cv2", "resize", extra="video")

    def change(_player: int, _slot: NDArray[np.int32], rows: Array, out: Array) -> Array:
        for row, small in zip(rows, out, strict=True):  # OpenCV takes one image at a time
            cv2.resize(row, (width, height), dst=small, interpolation=cv2.INTER_AREA)
        return out

    return RowWrapper(env, {p: _resized(box, height, width) for p, box in old.items()}, change)


def _resized(box: Box, height: int, width: int) -> Box:
    shape = (height, width, *box.shape[2:])
    axes = (0, 1)  # bounds of a mean: the widest of its channel
    low, high = box.low.min(axis=axes), box.high.max(axis=axes)
    return Box(np.broadcast_to(low, shape).copy(), np.broadcast_to(high, shape).copy(), shape, box.dtype)


def _brief(box: Box) -> str:
    return f"{box.dtype}{list(box.shape)}"


# --------------------------------------------------------------------------------------------------------------------
# The last k observations of a slot as one.


def frame_stack(
    env: VectorEnv, k: int, *, pad: Literal["first", "zeros"] = "first", players: Sequence[int] | None = None
) -> VectorEnv:
    """Stack the observations [*shape] of a slot's last k decisions in the episode to [k, *shape], the newest last. A final observation is
    stacked on the k - 1 before it.

    Args:
        env: The vector.
        k: Number of observations, at least 1.
        pad: What fills the stack before an agent's k-th decision: copies of its first observation ("first"), or "zeros".
        players: Whose observations are stacked; None: all players'.

    Returns:
        The wrapped vector.

    Raises:
        ConfigError: A value is not allowed, or the game is compiled.
    """
    whole(k, least=1, what="frame_stack: k")
    if pad not in ("first", "zeros"):
        raise ConfigError(f"frame_stack: pad={pad!r} was given; allowed: first, zeros.")
    return _FrameStack(env, k, zeros=pad == "zeros", old=boxes(env, players, "frame_stack"))


class _FrameStack(Wrapper):
    def __init__(self, env: VectorEnv, k: int, *, zeros: bool, old: Mapping[int, Box]) -> None:
        super().__init__(env, with_observations(env.spec, {p: _stacked(box, k, zeros) for p, box in old.items()}))
        self._zeros = zeros
        rows = {p: env.num_envs * len(env.spec.agents_of(p)) for p in old}
        self._shape = {p: (k, *box.shape) for p, box in old.items()}
        self._ring = {p: np.zeros((rows[p], k, int(np.prod(box.shape))), box.dtype) for p, box in old.items()}
        self._head = {p: np.zeros(n, np.int32) for p, n in rows.items()}
        self._sides = [{p: np.empty_like(ring) for p, ring in self._ring.items()} for _ in range(2)]
        self._now = 0
        self._final: dict[int, Array] = {}

    def _see(self, timestep: Timestep) -> Timestep:
        for p in self._ring:
            self._final[p] = self._close(p, timestep)
        for p, ring in self._ring.items():
            due = timestep.due[p]
            push(due.slot, due.first, self._zeros, self._frames(p, due.observation), ring, self._head[p])
        return self._with_stacks(timestep)

    def _with_stacks(self, timestep: Timestep) -> Timestep:
        """Return the timestep with the stacks as they stand, and the final ones that were kept."""
        due, ended = list(timestep.due), list(timestep.ended)
        side = self._sides[self._now]
        self._now ^= 1
        for p, ring in self._ring.items():
            slot = due[p].slot
            out = side[p][: len(slot)]
            show_stack(slot, ring, self._head[p], out)
            due[p] = show(due[p], out.reshape(len(slot), *self._shape[p]))
            ended[p] = close(ended[p], self._final[p])
        return Timestep(tuple(due), tuple(ended), timestep.finished, timestep.state, timestep.final_state)

    def _close(self, p: int, timestep: Timestep) -> Array:
        ended, ring = timestep.ended[p], self._ring[p]
        out = np.empty((len(ended.slot), *ring.shape[1:]), ring.dtype)
        if len(out):
            show_final_stack(ended.slot, self._frames(p, ended.observation), ring, self._head[p], out)
        return out.reshape(len(out), *self._shape[p])

    def _frames(self, p: int, observation: Array) -> Array:
        return np.ascontiguousarray(observation).reshape(len(observation), self._ring[p].shape[2])

    def _forget(self) -> None:
        self._final = {p: np.empty((0, *shape), self._ring[p].dtype) for p, shape in self._shape.items()}

    def _columns(self) -> Mapping[str, Array]:
        if not self._final:
            self._forget()
        kinds: dict[str, dict[int, Array]] = {"ring": self._ring, "head": self._head, "final": self._final}
        return {f"{name}.{p}": array for name, arrays in kinds.items() for p, array in arrays.items()}

    def _restored(self, timestep: Timestep, columns: Mapping[str, Array]) -> Timestep:
        for p in self._ring:
            self._ring[p][:] = columns[f"ring.{p}"]
            self._head[p][:] = columns[f"head.{p}"]
            self._final[p] = columns[f"final.{p}"]
        return self._with_stacks(timestep)


def _stacked(box: Box, k: int, zeros: bool) -> Box:
    low, high = (np.broadcast_to(bound, (k, *box.shape)) for bound in (box.low, box.high))
    if zeros:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    return Box(low.astype(box.dtype), high.astype(box.dtype), (k, *box.shape), box.dtype)
