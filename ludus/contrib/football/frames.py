"""The engine's own pictures, from a subprocess: a second engine there, which draws, is put into the state of a match and looks at it.

Without a display the engine draws off screen, through EGL; where it cannot draw at all it ends its process, which must not be the player's.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.football.scenarios import Controls, Formation, engine, engine_config
from ludus.core.errors import EnvError
from ludus.runtime.child_process import ChildLost, ChildProcess, ChildRaised

__all__ = ["HEIGHT", "PIXELS", "WIDTH", "Frames", "small"]

WIDTH, HEIGHT = 640, 360
PIXELS = (72, 96, 3)
"""Of an observation, as the package's `pixels` has them."""
_PATIENCE = 300.0  # seconds: the first picture waits for textures and shaders, half a minute of a busy core where software draws


def small(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Resize to uint8[*PIXELS] by means over areas, as the package's `pixels`."""
    import cv2

    height, width, _ = PIXELS
    return np.asarray(cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


class Frames:
    """The pictures of one vector's matches. The subprocess starts with the first picture, and again after `close`."""

    def __init__(self, id: str) -> None:
        self._id = id
        self._child: ChildProcess | None = None

    def frame(
        self, formation: Formation, control: Controls, *, seed: int, reverse: bool, state: bytes
    ) -> NDArray[np.uint8]:
        """Draw uint8[HEIGHT, WIDTH, 3] of an engine's state, in a match with this configuration. Raises EnvError where it cannot be
        drawn."""
        if self._child is None:
            self._child = ChildProcess(FrameWorker, f"{self._id} is")
        try:
            self._child.send("frame", formation, control, seed, reverse, state)
            picture: NDArray[np.uint8] = self._child.receive(time.perf_counter() + _PATIENCE)
        except (ChildLost, ChildRaised) as error:
            self.close()
            raise EnvError(
                f"the engine cannot draw {self._id} here: its subprocess {error}. It needs a display, or EGL (libEGL and a driver, such as "
                "Mesa's) to draw off screen. Leave out render=engine, and observations of pixels: the pitch can be drawn anywhere."
            ) from error
        return picture

    def close(self) -> None:
        """End the subprocess."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()


class FrameWorker:
    """What runs in the subprocess."""

    def __init__(self) -> None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)  # the engine says on standard output where it draws
        os.close(nothing)
        self._engine: Any = None
        self._match: tuple[Any, ...] = ()

    def frame(
        self, formation: Formation, control: Controls, seed: int, reverse: bool, state: bytes
    ) -> NDArray[np.uint8]:
        """Draw as `Frames.frame` describes."""
        if self._engine is None:
            self._engine = _start_renderer()
        match = (formation, control, seed, reverse)
        begins = match != self._match
        if begins:
            self._engine.reset(engine_config(formation, control, seed=seed, reverse=reverse), False)
            self._match = match
        self._engine.set_state(state)
        for _ in range(1 + begins):  # the camera of a match's first picture has not found its place
            self._engine.render(True)
        # The engine gives a picture as rows of columns from below, its three colours concatenated.
        raw = np.frombuffer(self._engine.get_frame(), np.uint8).reshape(WIDTH * HEIGHT, 3)
        return np.ascontiguousarray(raw.T.reshape(3, HEIGHT, WIDTH).transpose(1, 2, 0)[::-1])

    def close(self) -> None:
        """Do nothing: the process ends."""


def _start_renderer() -> Any:
    lib = engine()
    game = lib.GameEnv()
    game.game_config.render = True
    game.game_config.render_resolution_x, game.game_config.render_resolution_y = WIDTH, HEIGHT
    game.start_game()
    game.state = lib.GameState.game_running
    return game
