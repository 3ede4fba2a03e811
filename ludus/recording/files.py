"""Recordings as files: GIF, MP4 or text, written aside and renamed, so that none is ever half there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError, EnvError
from ludus.recording.film import Recording

Frames = Sequence[NDArray[np.uint8]]


def save(recording: Recording, path: Path, *, fps: int = 15) -> None:
    """Write a recording; the name's end says how. fps: images a second, for GIF and MP4.

    Raises ConfigError for another end than `SUFFIXES`, for images in a text file or text in a film, and if a package is missing; OSError
    if the file cannot be written.
    """
    check_suffix(path)
    if path.suffix == ".txt" and recording.frames:
        raise ConfigError(f"{str(path)!r} was given for images; name a .gif or .mp4 file.")
    if path.suffix != ".txt" and not recording.frames:
        raise ConfigError(
            f"{str(path)!r} was given for text, which this environment shows itself as; name a .txt file."
        )
    aside = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        if path.suffix == ".txt":
            aside.write_text(recording.text, encoding="utf-8")
        else:
            _WRITERS[path.suffix](_one_size(recording.frames), aside, fps)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def check_suffix(path: Path) -> None:
    """Raises ConfigError for a name whose end says nothing about how to write it."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"{str(path)!r} was given; a name that ends in {', '.join(SUFFIXES[:-1])} or .txt is needed.")


def _one_size(frames: Frames) -> Frames:
    """Even sides, as MP4 needs them, and all alike; black at the right and below where there is less."""
    sides = np.array([frame.shape[:2] for frame in frames])
    height, width = (int(n) for n in sides.max(axis=0) + sides.max(axis=0) % 2)
    if (sides == (height, width)).all():
        return frames
    out = []
    for frame in frames:
        padded = np.zeros((height, width, 3), np.uint8)
        padded[: frame.shape[0], : frame.shape[1]] = frame
        out.append(padded)
    return out


def _write_gif(frames: Frames, path: Path, fps: int) -> None:
    imageio: Any = _package("imageio.v3", "imageio")
    imageio.imwrite(path, np.stack(frames), duration=1000 / fps, loop=0)


def _write_mp4(frames: Frames, path: Path, fps: int) -> None:
    cv2: Any = _package("cv2", "OpenCV")
    height, width = frames[0].shape[:2]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), fps, (width, height))
    try:
        if not writer.isOpened():
            raise EnvError(f"OpenCV cannot write {str(path)!r} as MP4 on this machine; name a .gif file.")
        for frame in frames:
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


_WRITERS: Mapping[str, Callable[[Frames, Path, int], None]] = {".gif": _write_gif, ".mp4": _write_mp4}
SUFFIXES = (*_WRITERS, ".txt")
