"""Replays as files and films: RUN/replays/*.json, `.json`, GIF and MP4; and how one is made of a profile, or of what the debugger wrote."""

from __future__ import annotations

import base64
import json
import re
import secrets
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ludus.apps.episodes.schemas import Replay
from ludus.apps.episodes.validation import checked
from ludus.core.errors import ConfigError, RunError
from ludus.core.jsonable import parse_json
from ludus.core.machine import replace_file

if TYPE_CHECKING:
    from ludus.apps.play.run_game import RunGame

FOLDER = "replays"
_ID = re.compile(r"[0-9a-f]{16}")
_MOST_BYTES = 64 * 2**20
_MOST_PIXELS = 3 * 4096**2  # bytes of a picture
_FPS, _FPS_DRAWN = 15, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayLine:
    """A replay in a run's list. created: Unix time. people: [P] whether it was a person. returns: [P]."""

    id: str
    name: str
    created: float
    seats: Sequence[str]
    people: Sequence[bool]
    steps: int
    returns: Sequence[float | None]


def new_id() -> str:
    """Return 16 random hexadecimal digits."""
    return secrets.token_hex(8)


def save_replay(run_dir: Path, replay: bytes, *, id: str = "") -> str:
    """Put a replay, as JSON, beside its run; its id (default: a new one). Raises RunError if it cannot be written."""
    id = id or new_id()
    folder = run_dir / FOLDER
    try:
        folder.mkdir(exist_ok=True)
        replace_file(folder / f"{id}.json", replay)
    except OSError as error:
        raise RunError(f"a replay cannot be kept in {str(folder)!r}: {error}. Make the folder writable.") from error
    return id


def list_replays(run_dir: Path) -> list[ReplayLine]:
    """The replays beside a run, the newest first. What is no replay is left out."""
    lines = []
    with_names = sorted((run_dir / FOLDER).glob("*.json")) if (run_dir / FOLDER).is_dir() else []
    for path in with_names:
        with suppress(RunError, OSError):  # another program's file, or one that has just gone
            stamp = path.stat()
            lines.append(_saved_line(run_dir, path.stem, (stamp.st_ino, stamp.st_mtime_ns, stamp.st_size)))
    return sorted(lines, key=lambda line: line.created, reverse=True)


@lru_cache(maxsize=4096)
def _saved_line(run_dir: Path, id: str, stamp: tuple[int, ...]) -> ReplayLine:
    """Read once for every state of its file: one with pictures has many megabytes. Raises RunError."""
    del stamp  # which only tells one state from another
    return line_of(id, read(run_dir, id))


def is_saved(run_dir: Path, id: str) -> bool:
    """Return whether a run has a replay of this id."""
    path = run_dir / FOLDER / f"{id}.json"
    return _ID.fullmatch(id) is not None and path.is_file() and not path.is_symlink()


def read(run_dir: Path, id: str) -> Mapping[str, Any]:
    """Return a kept replay, as JSON. Raises RunError if there is none of this id, or it is none."""
    path = run_dir / FOLDER / f"{id}.json"
    if not is_saved(run_dir, id):
        raise RunError(f"{run_dir.name} has no replay {id[:32]!r}.")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it is larger than {_MOST_BYTES} bytes")
        replay = parse_json(path.read_bytes())
        json.dumps(replay, ensure_ascii=False, allow_nan=False).encode()  # or it could not be sent to a page
        return checked(replay)
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"replay {id!r} of {run_dir.name} cannot be read: {error}.") from error


def line_of(id: str, replay: Mapping[str, Any]) -> ReplayLine:
    """Of a replay's JSON."""
    seats = [str(seat["name"]) for seat in replay["seats"]]
    last = replay["frames"][-1]
    return ReplayLine(
        id=id,
        name=" against ".join(seats),
        created=float(replay.get("created") or 0.0),
        seats=seats,
        people=[seat.get("person") is True for seat in replay["seats"]],
        steps=len(replay["frames"]) - 1,
        returns=last["returns"],
    )


# --------------------------------------------------------------------------------------------------------------------
# Playing one.


def play(game: RunGame, who: Sequence[str], *, seed: int | None = None, steps: int | None = None) -> Replay:
    """One game of these players now. who: [P] names, or one for all. seed: default: a new one. Raises as
    `RunGame.episode`."""
    from ludus.apps.play.run_game import MOST_STEPS
    from ludus.apps.play.views import View

    chosen = secrets.randbits(31) if seed is None else seed
    with game.episode(who, seed=chosen, steps=steps or MOST_STEPS) as episode:
        view = View(episode, list(episode.episode.policy), action_name=game.action_name)
        return view.replay(run=game.name, seed=chosen, created=time.time(), discount=game.discount)


# --------------------------------------------------------------------------------------------------------------------
# Films.

_PREFIX = "data:image/png;base64,"


def film(replay: Mapping[str, Any], suffix: str, fps: int | None = None) -> bytes:
    """Return a replay as .gif or .mp4. fps: positions a second; default: 15 of pictures, 1 of boards, which are drawn. Raises ConfigError
    for another suffix, and a missing package."""
    from ludus.apps.episodes.drawing import BoardDrawer
    from ludus.apps.episodes.recording import Pictures, save_film

    frames, drawer = Pictures(), BoardDrawer()
    names = [str(seat["name"]) for seat in replay["seats"]]
    for frame in replay["frames"]:
        image = frame["board"].get("image", "") if frame["board"]["kind"] == "frame" else ""
        if image.startswith(_PREFIX):
            frames.append(_pixels(_decoded(image)))
        elif frame["board"]["kind"] != "frame":
            frames.append(drawer.draw(frame["board"], _caption(frame, names)))
    if not frames:
        raise ConfigError("this replay has no pictures of which a film could be made. Save it as .html or .json.")
    is_board = replay["frames"][0]["board"]["kind"] != "frame"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"replay{suffix}"
        save_film(frames, "", path, fps=fps or (_FPS_DRAWN if is_board else _FPS))
        return path.read_bytes()


def _caption(frame: Mapping[str, Any], names: Sequence[str]) -> str:
    if frame["over"]:
        returns = zip(names, frame["returns"], strict=True)
        return ", ".join(f"{name} {0.0 if value is None else value:+g}" for name, value in returns)
    return ", ".join(f"{names[move['player']]}: {move['label']}" for move in frame["last"])


def _decoded(image: str) -> bytes:
    try:
        return base64.b64decode(image.removeprefix(_PREFIX), validate=True)
    except ValueError as error:
        raise ConfigError("a picture of this replay is damaged. Play the game again.") from error


def _pixels(data: bytes) -> NDArray[np.uint8]:
    """Return an image that `views.png` wrote: three chunks, no filter. Raises ConfigError for another."""
    if data[:8] != b"\x89PNG\r\n\x1a\n" or data[24:26] != b"\x08\x02":
        raise ConfigError("a picture of this replay is no PNG of 8-bit colours. Play the game again.")
    width, height = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    length, size = int.from_bytes(data[33:37]), height * (1 + 3 * width)
    if size > _MOST_PIXELS:
        raise ConfigError(f"a picture of this replay has {width} × {height} pixels, which is too large for a film.")
    try:
        unpacked = zlib.decompressobj().decompress(data[41 : 41 + length], size or 1)
        lines = np.frombuffer(unpacked, np.uint8).reshape(height, 1 + 3 * width)
    except (zlib.error, ValueError) as error:
        raise ConfigError("a picture of this replay is damaged. Play the game again.") from error
    if lines[:, 0].any():
        raise ConfigError("a picture of this replay has filters. Play the game again.")
    return lines[:, 1:].reshape(height, width, 3).copy()


def title_of(replay: Mapping[str, Any]) -> str:
    """Of a replay's page."""
    id = str(replay["game"])
    game = (id.partition("/")[2] or id).partition("(")[0].rpartition(":")[2]
    return f"{game.replace('_', ' ')}: {' against '.join(str(seat['name']) for seat in replay['seats'])}"


def safe_name(replay: Mapping[str, Any]) -> str:
    """Return a file's name for a download."""
    text = "-".join([str(replay.get("game", "game")), *(str(seat.get("name", "")) for seat in replay["seats"])])
    return re.sub(r"[^A-Za-z0-9_]+", "-", text).strip("-")[:80] or "replay"
