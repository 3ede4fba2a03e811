"""Recordings as files: GIF, MP4 or text, written aside and renamed, so that none is ever half there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError, EnvError
from ludus.recording.film import Recording

Frames = Sequence[NDArray[np.uint8]]


def save(recording: Recording, path: Path, *, fps: int = 15) -> None:
    """Write a recording, in the place of a file of that name; its end says how. fps: images a second, 1 to 100, for GIF and MP4.

    Raises ConfigError for what `check_target` refuses, and for images in a text file or text in a film; OSError if the file cannot be
    written.
    """
    check_target(path, fps=fps)
    suffix = path.suffix.lower()
    check_kind(path, text=not recording.frames)
    aside = path.with_name(f".{path.stem}.{os.getpid()}.part{suffix}")
    try:
        if suffix == ".txt":
            aside.write_text(recording.text, encoding="utf-8")
        else:
            _WRITERS[suffix](_one_size(recording.frames), aside, fps)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def check_target(path: Path, *, fps: int = 15) -> None:
    """What can be known before anything is played. Raises ConfigError for a name whose end says nothing about how to write it, a folder
    that there is not, a folder instead of a file, another number of images a second than 1 to 100, and a missing package."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigError(f"{str(path)!r} was given; a name that ends in {', '.join(SUFFIXES[:-1])} or .txt is needed.")
    if not path.parent.is_dir():
        raise ConfigError(f"{str(path)!r} was given; there is no folder {str(path.parent)!r}.")
    if path.is_dir():
        raise ConfigError(f"{str(path)!r} was given, which is a folder; name a file.")
    if not 1 <= fps <= _MOST_FPS:
        raise ConfigError(f"{fps} images a second were given; 1 to {_MOST_FPS} can be shown.")
    if suffix in _PACKAGES:
        _package(*_PACKAGES[suffix])


def check_kind(path: Path, *, text: bool) -> None:
    """Raises ConfigError for images in a text file, and for text in a film."""
    if not text and path.suffix.lower() == ".txt":
        raise ConfigError(f"{str(path)!r} was given for images; name a .gif or .mp4 file.")
    if text and path.suffix.lower() != ".txt":
        raise ConfigError(
            f"{str(path)!r} was given for text, which this environment shows itself as; name a .txt file."
        )


def _one_size(frames: Frames) -> Iterator[NDArray[np.uint8]]:
    """Even sides, as MP4 needs them, and all alike; black at the right and below where there is less."""
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
    image = _package(*_PACKAGES[".gif"])
    first = image.fromarray(next(frames))
    rest = (image.fromarray(frame) for frame in frames)
    first.save(path, save_all=True, append_images=rest, duration=1000 / fps, loop=0)


def _write_mp4(frames: Iterator[NDArray[np.uint8]], path: Path, fps: int) -> None:
    cv2 = _package(*_PACKAGES[".mp4"])
    first = next(frames)
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), fps, first.shape[1::-1])
    try:
        if not writer.isOpened():
            raise EnvError("OpenCV cannot write MP4 on this machine; name a .gif file.")
        for frame in chain([first], frames):
            writer.write(cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
    finally:
        writer.release()


def _package(module: str, name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"films need {name}, which cannot be imported ({error}); `pip install 'ludus[video]'` brings it."
        ) from error


_MOST_FPS = 100  # a GIF counts hundredths of a second
_PACKAGES = {".gif": ("PIL.Image", "Pillow"), ".mp4": ("cv2", "OpenCV")}
_WRITERS: Mapping[str, Callable[[Iterator[NDArray[np.uint8]], Path, int], None]] = {
    ".gif": _write_gif,
    ".mp4": _write_mp4,
}
SUFFIXES = (*_WRITERS, ".txt")
