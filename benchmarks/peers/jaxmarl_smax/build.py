"""Fetches JaxMARL's own training, which its wheel does not hold, as `benchmarks.harness setup jaxmarl_smax` does last."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ADDRESS, COMMIT = "https://github.com/FLAIROx/JaxMARL", "c793d095618c6d3edfb5632802348f57b70a4b94"  # of 2026-07-21
SOURCE = Path(sys.prefix) / "jaxmarl"


def main() -> None:
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", ADDRESS, SOURCE], check=True)
    subprocess.run(["git", "-C", SOURCE, "checkout", "--quiet", COMMIT, "--", "baselines"], check=True)


if __name__ == "__main__":
    main()
