"""Fetches EPyMARL's source, which is no package, into the environment that runs this, as `benchmarks.harness setup epymarl` does last."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ADDRESS, COMMIT = "https://github.com/uoe-agents/epymarl", "cbc38c09588064eab978501d0f12c2cf58fa7fc2"  # of 2024-09-24
SOURCE = Path(sys.prefix) / "epymarl"


def main() -> None:
    subprocess.run(["git", "clone", "--quiet", ADDRESS, SOURCE], check=True)
    subprocess.run(["git", "-C", SOURCE, "checkout", "--quiet", COMMIT], check=True)


if __name__ == "__main__":
    main()
