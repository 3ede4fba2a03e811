"""Files of games, `.nfg` and `.efg`: OpenSpiel's parsers end the process for some texts, so a child reads a file first."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import time
import warnings
from functools import lru_cache
from pathlib import Path

from ludus.core.errors import ConfigError

_FILE = re.compile(r"filename=([^,)]*)")
_SECONDS = 30.0
_TURNS = 1000  # of one game that the child plays


def check_game_file(text: str) -> None:
    """Read the files that a game's text names in a child process.

    Args:
        text: Of the game, such as `nfg_game(filename=game.nfg)`.

    Raises:
        ConfigError: The child crashed, or did not end within 30 seconds.
    """
    names = _FILE.findall(text)
    stamps = [_stamp(name.strip()) for name in names]
    if any(stamps) and (why := _ending(text, os.getcwd(), tuple(stamps))):
        raise ConfigError(
            f"OpenSpiel cannot load {text!r}: its parser {why}. Mend the file; it is not as such files are written."
        )


def _stamp(name: str) -> tuple[int, ...]:
    try:
        status = Path(name).stat()
    except (OSError, ValueError):
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size


@lru_cache(maxsize=64)
def _ending(text: str, folder: str, stamps: tuple[tuple[int, ...], ...]) -> str:
    """Return how a child ended that read the files as they are now: "" if it came to its end, also by an error of OpenSpiel."""
    del folder, stamps  # which tell one content from another
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, which the child does not use
        child = os.fork()
    if not child:
        _read(text)
    begin = time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return f"is ended by {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else ""
        if time.monotonic() - begin > _SECONDS:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return f"needs more than {_SECONDS:g} seconds"
        time.sleep(0.001)


def _read(text: str) -> None:
    """Load the game and play it once by first actions, then leave."""
    import pyspiel

    try:
        faulthandler.disable()  # a crash is an answer here
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        state = pyspiel.load_game(text).new_initial_state()
        for _ in range(_TURNS):
            if state.is_terminal():
                break
            if state.is_simultaneous_node():
                state.apply_actions([state.legal_actions(player)[0] for player in range(state.num_players())])
            else:
                state.apply_action(state.legal_actions()[0])
        str(state.returns())
    finally:  # what it raises is raised, and said, where the game is loaded
        os._exit(0)
