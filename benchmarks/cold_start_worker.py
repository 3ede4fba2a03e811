"""The worker of `benchmarks.cold_start`: a command line twice on a copy of the package that has no caches, each time in a new process.

python -m benchmarks.cold_start_worker --preset leduc --seed 0
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.lines import Lines
from benchmarks.machine import ROOT

OVERRIDES = {"leduc": ("generations=1",), "cartpole": ("generations=1", "response.decisions=2000")}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", required=True, choices=OVERRIDES)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    lines = Lines(("ludus", "numpy", "numba", "torch"))
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "ludus", Path(folder, "ludus"), ignore=shutil.ignore_patterns("__pycache__"))
        command = ["train", args.preset, *OVERRIDES[args.preset], "--seed", str(args.seed)]
        first, later = (_seconds([*command, "--run-dir", f"{folder}/{k}"], Path(folder)) for k in ("first", "later"))
    lines.figures({"first": first, "later": later})


def _seconds(command: list[str], folder: Path) -> float:
    """Of one command line, on the package in `folder`. Raises CalledProcessError if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", "from ludus.cli.main import script; script()", *command],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(folder)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
