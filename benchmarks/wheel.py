"""Builds a wheel and uses it as a stranger would: installs it into an empty environment, trains CartPole there with the core alone, adds an
extra, and trains a game with it. Prints sizes and seconds. Needs a package index; `--pip` hands options on to pip.

    python -m benchmarks.wheel            or: make wheel-check
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONTENTS = ("ludus/py.typed", "ludus/runs/presets/kuhn.yaml", "ludus/apps/ui/page/index.html")
"""What is no Python and must be in the wheel."""
CARTPOLE = ("train", "gymnasium/CartPole-v1", "--algorithm", "ppo", "generations=1", "response.episodes=300")
KUHN = ("train", "kuhn")


def build(folder: Path) -> Path:
    """The wheel of the files that git knows, as they are now; a folder `build` of an earlier one would be packed with it."""
    source = folder / "source"
    source.mkdir()
    files = subprocess.run(
        ["git", "ls-files", "-z", "--", "ludus", "*.toml", "README.md", "LICENSE"], **_IN_ROOT
    ).stdout
    packed = subprocess.run(["tar", "--create", "--null", "--files-from", "-"], input=files, **_IN_ROOT).stdout
    subprocess.run(["tar", "--extract", "--directory", source], input=packed, check=True)
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, source], check=True)
    return next(folder.glob("ludus_rl-*.whl"))


_IN_ROOT = {"cwd": ROOT, "check": True, "stdout": subprocess.PIPE}


def megabytes(folder: Path) -> float:
    """Of all files below a folder, in 10^6 bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


class Environment:
    """A virtual environment that begins with nothing but pip."""

    def __init__(self, folder: Path, options: list[str]) -> None:
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        self._folder = folder
        self._bin = folder / "venv" / "bin"
        self._options = options
        self.site = next((folder / "venv" / "lib").glob("python3.*/site-packages"))

    def install(self, what: str) -> None:
        """Show what installing takes, in seconds and in megabytes of site-packages."""
        before, start = megabytes(self.site), time.perf_counter()
        pip = [self._bin / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *self._options]
        subprocess.run([*pip, "-c", ROOT / "constraints.txt", what], check=True)
        seconds, size = time.perf_counter() - start, megabytes(self.site)
        print(f"pip install {Path(what).name}: {seconds:.0f} s, +{size - before:.0f} MB, site-packages {size:.0f} MB")

    def show_largest(self, count: int = 6) -> None:
        """The largest packages."""
        sizes = sorted(((megabytes(path), path.name) for path in self.site.iterdir() if path.is_dir()), reverse=True)
        print("  largest: " + ", ".join(f"{name} {size:.0f} MB" for size, name in sizes[:count]))

    def ludus(self, *words: str) -> None:
        """Show how long a command takes, and the last lines that it says."""
        start = time.perf_counter()
        done = subprocess.run(
            [self._bin / "ludus", *words], cwd=self._folder, capture_output=True, text=True, check=False
        )
        print(f"ludus {' '.join(words)}: {time.perf_counter() - start:.0f} s")
        if done.returncode:
            sys.exit(f"it ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        print("\n".join(f"  {line}" for line in (done.stderr + done.stdout).splitlines()[-12:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--pip", action="append", default=[], help="an option for pip install, such as --pip=--no-index"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ludus-wheel-") as name:
        folder = Path(name)
        start = time.perf_counter()
        wheel = build(folder)
        print(f"{wheel.name}: built in {time.perf_counter() - start:.0f} s, {wheel.stat().st_size / 1e6:.2f} MB")
        members = zipfile.ZipFile(wheel).namelist()
        if lacking := set(CONTENTS) - set(members):
            sys.exit(f"the wheel lacks {', '.join(sorted(lacking))}")
        print(f"  {len(members)} files, {sum(member.endswith('.py') for member in members)} of them Python")
        environment = Environment(folder, options.pip)
        environment.install(str(wheel))
        environment.show_largest()
        environment.ludus(*CARTPOLE)
        environment.install(f"{wheel}[openspiel]")
        environment.ludus(*KUHN)


if __name__ == "__main__":
    main()
