"""Recordings of what an environment renders while it is played.

The rollout worker plays a `RecordingVectorEnv` of one environment, as in an evaluation. It keeps a picture of every state, or the moves
from which OpenSpiel's episodes are replayed.
"""

from __future__ import annotations

import inspect
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.errors import ConfigError, EnvError, LudusError, ScenarioError
from ludus.core.machine import check_place
from ludus.core.packages import require
from ludus.core.parts import ENVIRONMENTS, resolve_name
from ludus.core.types import Array, Mixture, PolicyRef, Timestep
from ludus.envs.base import VectorEnv
from ludus.envs.config import Environment
from ludus.envs.families import FAMILIES, adapter, closed_on_error
from ludus.envs.wrappers.base import Wrapper
from ludus.envs.wrappers.registry import wrap
from ludus.evaluation.policies import META, NamedPlayers
from ludus.policies.base import Policy
from ludus.policies.bots import BotSettings
from ludus.rollout.base import RolloutRequest
from ludus.rollout.bot_process import bot_players
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.opponents import mixture_refs
from ludus.rollout.worker import RolloutWorker
from ludus.storage.stored_run import StoredRun, open_run

# --------------------------------------------------------------------------------------------------------------------
# Arrays kept small: images of thousands of steps, as plain arrays, would fill a machine's memory.

_PACKED = 1 << 14  # bytes from which an array is compressed


class StoredArray:
    """A copy of an array, compressed if it is large. size: in bytes."""

    __slots__ = ("_array", "_like", "size")

    def __init__(self, array: Array) -> None:
        array = array.astype(np.float32) if array.dtype == np.float64 else array.copy()
        self._like = (array.dtype, array.shape)
        large = array.nbytes >= _PACKED
        self._array: Array | bytes = zlib.compress(np.ascontiguousarray(array).data, 1) if large else array
        self.size = len(self._array) if isinstance(self._array, bytes) else array.nbytes

    @property
    def array(self) -> Array:
        """As it was; floats of double precision in single."""
        if not isinstance(self._array, bytes):
            return self._array
        dtype, shape = self._like
        return np.frombuffer(zlib.decompress(self._array), dtype).reshape(shape)


class Pictures(Sequence[NDArray[np.uint8]]):
    """Images uint8[height, width, 3] in order; each is a fresh array when it is asked for."""

    def __init__(self) -> None:
        self.pixels = 0
        self._stored: list[StoredArray] = []

    def append(self, image: NDArray[np.uint8]) -> None:
        self.pixels += image.shape[0] * image.shape[1]
        self._stored.append(StoredArray(image))

    def __len__(self) -> int:
        return len(self._stored)

    @overload
    def __getitem__(self, k: int) -> NDArray[np.uint8]: ...
    @overload
    def __getitem__(self, k: slice) -> list[NDArray[np.uint8]]: ...
    def __getitem__(self, k: int | slice) -> NDArray[np.uint8] | list[NDArray[np.uint8]]:
        if isinstance(k, slice):
            return [self[i] for i in range(*k.indices(len(self)))]
        return self._stored[k].array.copy()


MOST_STEPS = 1000
MOST_PIXELS = 10**9  # of all images together; a GIF takes about a byte of memory for each while it is written


class Film:
    """What an environment shows, in order: images or texts."""

    def __init__(self) -> None:
        self.frames, self.texts = Pictures(), list[str]()

    @property
    def full(self) -> bool:
        """Return whether the images are as many as may be kept."""
        return self.frames.pixels >= MOST_PIXELS

    def take(self, picture: NDArray[np.uint8] | str, heading: str = "") -> None:
        """Keep an image, or a text below its heading."""
        if isinstance(picture, str):
            self.texts.append(f"{heading}\n{picture.rstrip()}\n" if heading else picture)
        else:
            self.frames.append(picture)


_OPENSPIEL = "openspiel/"

Tell = Callable[[int, int], None]
"""(number of the episode, its steps so far); called after each step."""
Shown = Callable[[bool], None]
"""Called once, before the first step, with whether the environment shows itself as text; it may raise what is wrong with that."""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Recorded episodes, in order.

    Attributes:
        frames: Images uint8[height, width, 3] of the state after each reset and each step; empty if the environment shows itself as text.
        text: What it shows then.
        returns: float64[n, P] of the n complete episodes.
        length: int32[n], their numbers of steps.
        cut: Why the last episode was cut and is not in `returns`; "" if all are complete.
    """

    frames: Sequence[NDArray[np.uint8]]
    text: str
    returns: NDArray[np.float64]
    length: NDArray[np.int32]
    cut: str = ""


class _RecordingFull(Exception):
    """Raised when the recording is as long as wanted or possible; the message gives the reason."""


class RecordingVectorEnv(Wrapper):
    """A vector of one environment that keeps what it shows. steps: of an episode, then `_RecordingFull` is raised."""

    def __init__(self, env: VectorEnv, *, steps: int, tell: Tell | None = None, shown: Shown | None = None) -> None:
        super().__init__(env, env.spec)
        if env.num_envs != 1:
            raise EnvError(f"{env.num_envs} environments were given to be recorded; one is needed.")
        self.film = Film()
        self.episode = 0
        self._replays = env.spec.id.startswith(_OPENSPIEL)
        self._seed = 0
        self._moves: list[int] = []
        self._length, self._max_steps, self._tell, self._on_kind = 0, steps, tell, shown

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`."""
        self._seed, self._moves, self._length = int(seeds[0]), [], 0
        return super().reset(seeds, episodes=episodes)

    def end(self) -> None:
        """An episode is over, or is to be: tell what cannot be shown as it goes."""
        if self._replays:
            from ludus.envs.openspiel.games import replay

            self.film.texts.append(replay(self.spec.id, self._moves, seed=self._seed))
        self.episode += 1

    def _before(self, actions: tuple[Array, ...]) -> tuple[Array, ...]:
        if self._length >= self._max_steps:
            raise _RecordingFull(f"cut after {self._max_steps} steps")
        if self.film.full:
            raise _RecordingFull(f"cut after {len(self.film.frames)} images, which are as many as one file is to have")
        self._length += 1
        if self._replays:
            several = sum(len(choice) > 0 for choice in actions) > 1
            chosen = (int(choice[0]) if len(choice) else -1 for choice in actions)
            self._moves += [action for action in chosen if several or action >= 0]
        return actions

    def _see(self, timestep: Timestep) -> Timestep:
        if not self._replays:
            self.film.take(picture_of(self), f"episode {self.episode}, step {self._length}")
        if self._on_kind is not None:
            self._on_kind(not self.film.frames)
            self._on_kind = None
        if self._tell is not None:
            self._tell(self.episode, self._length)
        return timestep


def picture_of(env: Wrapper) -> NDArray[np.uint8] | str:
    """Return what a vector's first environment shows now: an image uint8[height, width, 3], or text. Raises EnvError if it cannot be
    rendered, or shows something else."""
    try:
        picture: object = env.render(0)
    except LudusError:
        raise
    except Exception as error:
        raise EnvError(f"{env.spec.id} could not be rendered: {type(error).__name__}: {error}") from error
    if isinstance(picture, str):
        return picture
    image = np.asarray(picture)
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise EnvError(
            f"{env.spec.id} rendered {image.dtype}{list(image.shape)}; an image uint8[height, width, 3] or text is needed."
        )
    return image


def record(
    env: VectorEnv,
    players: Mixture | Sequence[Policy],
    policy: Callable[[PolicyRef], Policy] | None = None,
    *,
    episodes: int = 1,
    seed: int = 0,
    steps: int = MOST_STEPS,
    wrappers: Sequence[Mapping[str, object]] = (),
    tell: Tell | None = None,
    shown: Shown | None = None,
) -> Recording:
    """Play episodes in an environment that can render, and keep what it shows. Closes `env` in the end.

    Args:
        env: A vector of one environment.
        players: One policy per player, or a mixture from which each episode's policies are sampled.
        policy: Finds the policies of a mixture by their refs.
        episodes: Number of episodes.
        seed: Seed of the episodes.
        steps: Maximum length of an episode. A longer one is cut and is the last, as is one whose images would exceed `MOST_PIXELS`.
        wrappers: Put around the recorded environment, for policies that were trained with them.
        tell: Called with (episode, step) after each step.
        shown: Called once with whether the environment shows itself as text.

    Returns:
        Images or text, and the returns.

    Raises:
        ScenarioError: For numbers below 1, and for a mixture without `policy`.
        EnvError: If the environment cannot be rendered.
    """
    with closed_on_error(env):
        if episodes < 1 or steps < 1:
            raise ScenarioError(f"episodes={episodes}, steps={steps} were given to be recorded; at least 1 is needed.")
        filmed = RecordingVectorEnv(env, steps=steps, tell=tell, shown=shown)
        mixture, find = policies_of_players(players, policy)
        played = wrap(filmed, wrappers)
    bots = bot_players(BotSettings())
    try:
        worker = RolloutWorker(played, LocalBank(played.spec, played.num_envs), bots=lambda: bots)
        policies = [(ref, find(ref)) for ref in mixture_refs(mixture)]
        returns, length = [], []
        cut = ""
        while filmed.episode < episodes and not cut:
            request = RolloutRequest.evaluation(mixture, 1, seed=episode_key(seed, filmed.episode))
            try:
                results = worker.play(request, policies).episodes
            except _RecordingFull as full:
                cut = str(full)
            else:
                returns.append(results.returns)
                length.append(results.length)
            filmed.end()
    finally:
        bots.close()
        played.close()
    return Recording(
        filmed.film.frames,
        "\n".join(filmed.film.texts),
        np.concatenate(returns) if returns else np.empty((0, played.spec.num_players)),
        np.concatenate(length) if length else np.empty(0, np.int32),
        cut,
    )


def episode_key(seed: int, episode: int) -> int:
    """Return the seed key of an episode of a recording, counted from 0."""
    return seeding.key(seed, "record", episode)


def policies_of_players(
    players: Mixture | Sequence[Policy], policy: Callable[[PolicyRef], Policy] | None
) -> tuple[Mixture, Callable[[PolicyRef], Policy]]:
    """Return a mixture, and what finds its policies, of what `record` takes. Raises ScenarioError for a mixture without `policy`."""
    if isinstance(players, Mixture):
        if policy is None:
            raise ScenarioError("a mixture was given to be recorded without `policy`, which finds its policies.")
        return players, policy
    known = {PolicyRef(p, f"player_{p}"): player for p, player in enumerate(players)}
    mixture = Mixture.product({ref.population: ([ref], [1.0]) for ref in known})
    return mixture, known.__getitem__


# --------------------------------------------------------------------------------------------------------------------
# Recordings as files: GIF, MP4 or text, written aside and renamed, so that none is ever half there.

Frames = Sequence[NDArray[np.uint8]]


def save(recording: Recording, path: Path, *, fps: int = 15) -> None:
    """Write a recording to a file, replacing a file of that name. The ending of the name selects the format.

    Args:
        recording: The recording.
        path: Output file.
        fps: Images per second, 1 to 100, for GIF and MP4.

    Raises:
        ConfigError: For what `check_target` rejects, for images in a text file, and for text in a film.
        OSError: If the file cannot be written.
    """
    save_film(recording.frames, recording.text, path, fps=fps)


def save_film(frames: Frames, text: str, path: Path, *, fps: int = 15) -> None:
    """Write images, or text where there are none, as `save` does."""
    check_target(path, fps=fps)
    suffix = path.suffix.lower()
    check_kind(path, text=not frames)
    aside = path.with_name(f".{path.stem}.{os.getpid()}.part{suffix}")
    try:
        if suffix == ".txt":
            aside.write_text(text, encoding="utf-8")
        else:
            _WRITERS[suffix](_one_size(frames), aside, fps)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def png(image: NDArray[np.uint8]) -> bytes:
    """Return an image uint8[height, width, 3] as the bytes of a PNG file: no more of the format is needed than its three chunks."""
    height, width, _ = image.shape
    lines = np.zeros((height, 1 + 3 * width), np.uint8)  # the first byte of each: no filter
    lines[:, 1:] = image.reshape(height, -1)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines.tobytes(), 3)), chunk(b"IEND", b""))
    )


def check_target(path: Path, *, fps: int = 15) -> None:
    """What can be known before anything is played. Raises ConfigError for a name whose end says nothing about how to write it, a folder
    that there is not or that cannot be written, a folder instead of a file, another number of images a second than 1 to 100, and a missing
    package."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigError(f"{str(path)!r} was given; a name that ends in {', '.join(SUFFIXES[:-1])} or .txt is needed.")
    check_place(path)
    if not 1 <= fps <= _MOST_FPS:
        raise ConfigError(f"{fps} images a second were given; 1 to {_MOST_FPS} can be shown.")
    if suffix in _PACKAGES:
        require(_PACKAGES[suffix], "a film", extra="video")


def check_kind(path: Path, *, text: bool) -> None:
    """Raise ConfigError for images in a text file, and for text in a film."""
    if not text and path.suffix.lower() == ".txt":
        raise ConfigError(f"{str(path)!r} was given for images; name a .gif or .mp4 file.")
    if text and path.suffix.lower() != ".txt":
        raise ConfigError(
            f"{str(path)!r} was given for text, which this environment shows itself as; name a .txt file."
        )


def _one_size(frames: Frames) -> Iterator[NDArray[np.uint8]]:
    """Yield even sides, as MP4 needs them, and all alike; black at the right and below where there is less."""
    sides = np.array([frame.shape[:2] for frame in frames])
    height, width = (int(n) for n in sides.max(axis=0) + sides.max(axis=0) % 2)
    for frame in frames:
        if frame.shape[:2] == (height, width):
            yield frame
            continue
        padded = np.zeros((height, width, 3), np.uint8)
        padded[: frame.shape[0], : frame.shape[1]] = frame
        yield padded


def _write_gif(frames: Iterator[NDArray[np.uint8]], path: Path, fps: int) -> None:
    image = require(_PACKAGES[".gif"], "a film", extra="video")
    first = image.fromarray(next(frames))
    rest = (image.fromarray(frame) for frame in frames)
    first.save(path, save_all=True, append_images=rest, duration=1000 / fps, loop=0)


def _write_mp4(frames: Iterator[NDArray[np.uint8]], path: Path, fps: int) -> None:
    cv2 = require(_PACKAGES[".mp4"], "a film", extra="video")
    first = next(frames)
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), fps, first.shape[1::-1])
    try:
        if not writer.isOpened():
            raise EnvError("OpenCV cannot write MP4 on this machine; name a .gif file.")
        for frame in chain([first], frames):
            writer.write(cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
    finally:
        writer.release()


_MOST_FPS = 100  # a GIF counts hundredths of a second
_PACKAGES = {".gif": "PIL.Image", ".mp4": "cv2"}
_WRITERS: Mapping[str, Callable[[Iterator[NDArray[np.uint8]], Path, int], None]] = {
    ".gif": _write_gif,
    ".mp4": _write_mp4,
}
SUFFIXES = (*_WRITERS, ".txt")


# --------------------------------------------------------------------------------------------------------------------
# Recordings of a run's policies.


def record_run(
    run_dir: Path | str,
    *,
    policies: Sequence[str] = (),
    episodes: int = 1,
    seed: int = 0,
    steps: int = MOST_STEPS,
    tell: Tell | None = None,
    shown: Shown | None = None,
) -> Recording:
    """Play episodes with a run's policies and keep what the environment shows. Nothing is written.

    Args:
        run_dir: Directory of the run.
        policies: One name per player, or one for all, such as "@0/0-12" or "RUN@best" (see `ludus.evaluation.policies`); default: "@meta",
            the last meta-strategy.
        episodes: Number of episodes.
        seed: Seed of the episodes.
        steps: Maximum length of an episode.
        tell: As in `record`.
        shown: As in `record`.

    Returns:
        Images or text, and the returns.

    Raises:
        ConfigError: For unknown names (with the nearest one), or another number of them.
        RunError: If the run cannot be read.
        EnvError: If the environment cannot be rendered.
    """
    stored = open_run(run_dir)
    settings = stored.env.played
    env = one_environment(settings, rendering=True)
    named, strategies = strategies_of(stored, policies, wrap(env, settings.wrappers))
    return record(
        env,
        strategies,
        named.policy,
        episodes=episodes,
        seed=seed,
        steps=steps,
        wrappers=settings.wrappers,
        tell=tell,
        shown=shown,
    )


def strategies_of(stored: StoredRun, policies: Sequence[str], env: VectorEnv) -> tuple[NamedPlayers, Mixture]:
    """Return who plays: one name per player, or one for all, default "@meta"; and what they stand for in `env`, in the run's wrappers;
    closed where that is an error. Raises ConfigError for unknown names, with the nearest, or another number of them."""
    try:
        named = NamedPlayers(stored, env.spec)
        names = list(policies) or [f"@{META}"]
        return named, named.mixture(names * len(stored.population) if len(names) == 1 else names)
    except LudusError:
        env.close()
        raise


def one_environment(settings: Environment, *, rendering: bool) -> VectorEnv:
    """Return a vector of one environment, in this process and without wrappers. rendering: able to show itself, where it can."""
    alone = settings.model_copy(update={"wrappers": (), "workers": 0, "deadline": None, "restarts": 0})
    return alone.make(num_envs=1, **(_rendering(settings) if rendering else {}))


def _rendering(settings: Environment) -> dict[str, object]:
    """Return the option that makes an environment able to show itself, where its family or its class has one."""
    family, slash, _ = settings.id.partition("/")
    if slash:
        make = adapter(family).make if family in FAMILIES else None
    else:
        make = resolve_name("environment", settings.id, {}, expected=ENVIRONMENTS, functions=True)
    known = inspect.signature(make).parameters if callable(make) else {}
    if "render" in known and "render" not in settings.options:
        return {"render": True}
    if (
        "render_mode" in known and not slash and "render_mode" not in settings.options
    ):  # Gymnasium's and PettingZoo's word
        return {"render_mode": _mode(make)}
    return {}


def _mode(target: object) -> str:
    metadata = getattr(target, "metadata", {})
    modes = metadata.get("render_modes", ()) if isinstance(metadata, dict) else ()
    return "ansi" if "ansi" in modes and "rgb_array" not in modes else "rgb_array"
