"""What is said where an environment cannot draw itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ludus.envs.families import missing_package
from ludus.errors import EnvError, LudusError

_SCREEN = re.compile(r"display|screen|window|opengl|egl|glx|x server|gl context", re.IGNORECASE)
_VIRTUAL = " Without a screen, run the command under `xvfb-run -a`, which brings a virtual one."
_MUJOCO = " Without a screen, MuJoCo draws with MUJOCO_GL=egl in the environment of the command."


def drawn(id: str, draw: Callable[[], Any]) -> Any:
    """What `draw` gives. Raises EnvError with advice where there is no screen, ConfigError with what to install for a missing package."""
    try:
        return draw()
    except LudusError:
        raise
    except Exception as error:
        if _missing(error):
            raise missing_package(f"drawing {id}", error) from error
        said = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(".")
        advice = "" if not _SCREEN.search(said) else _MUJOCO if "mjr_" in said else _VIRTUAL
        raise EnvError(f"{id} cannot be drawn: {said}.{advice}") from error


def _missing(error: BaseException | None) -> bool:
    """Whether a module was missing, whatever was made of that."""
    while error is not None:
        if isinstance(error, ImportError):
            return True
        error = error.__cause__
    return False
