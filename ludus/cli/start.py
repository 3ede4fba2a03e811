"""The console entry point, which also answers where the machine has no room to load the command."""

from __future__ import annotations

import os
import sys


def script() -> None:
    """Run the command line of this process, and exit with its code."""
    if sys.argv[1:3] == [
        "completion",
        "--candidates",
    ]:  # at each press of a key: the rest of the command line takes too long to load
        from ludus.cli.completion.answer import answer

        answer(sys.argv[3:])
        return
    try:
        from ludus.cli.main import script as run
    except (ImportError, MemoryError, OSError, RuntimeError, SystemError) as error:
        text = _shortage(error)
        if text is None:
            raise
        sys.stderr.write(f"error: {text}\n")
        sys.stderr.flush()
        os._exit(5)  # `ludus.cli.main.SHORTAGE`
    run()


def _shortage(error: BaseException) -> str | None:
    """Return what is short; it may be so short that nothing else can be loaded."""
    try:
        from ludus.core.shortages import shortage

        text = shortage(error)
        return None if text is None else f"{text}."
    except (ImportError, MemoryError, OSError, RuntimeError, SystemError):
        return f"there is not enough memory to load Ludus: {error}."
