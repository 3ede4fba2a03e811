"""The `ludus` command, whose parts say in which process they are.

    python -m benchmarks.chaos.command FOLDER COMMAND ...

FOLDER gets a file NAME.PID for every part of a runtime, by the name of its class.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ludus.cli.start import script


def main() -> None:
    """Run one command line, and exit with its code."""
    folder = Path(sys.argv[1])
    sys.argv = ["ludus", *sys.argv[2:]]
    if sys.argv[1] in ("train", "resume") and os.environ.get("LUDUS_CHAOS_LIMITED") != "1":
        from benchmarks.faults_run import announce

        announce(folder)
    script()


if __name__ == "__main__":
    main()
