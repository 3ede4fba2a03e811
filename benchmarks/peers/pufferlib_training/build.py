"""Builds PufferLib 3.0.0 into the environment that runs this; `python -m benchmarks.harness setup pufferlib_training` does, last.

From its source distribution, without the graphics GPU's kernel and of its C environments CartPole alone: its own installation loads
libraries of other environments from the network, and its switch against that, NO_OCEAN, does not work in this version.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "3.0.0"
PIP = (sys.executable, "-m", "pip")
ALONE = ("--no-deps", "--no-build-isolation", "--quiet")


def source(folder: Path) -> Path:
    """Its source, unpacked. pip also asks the package what it is, which is what fails (see above), and leaves what it has unpacked."""
    command = [*PIP, "download", *ALONE, "--no-clean", "--no-binary=:all:", f"pufferlib=={VERSION}", "-d", str(folder)]
    subprocess.run(
        command, env={**os.environ, "TMPDIR": str(folder), "NO_OCEAN": "1"}, capture_output=True, check=False
    )
    found = next(folder.glob("pip-*/*/pufferlib/__init__.py"), None)
    if found is None:
        raise SystemExit(f"the source of pufferlib {VERSION} could not be loaded; try: {' '.join(command)}")
    return found.parent.parent


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        package = source(Path(name))
        for library in ("raylib-5.5_webassembly", "box2d-web", "box2d-linux-amd64"):
            (package / library).mkdir(exist_ok=True)  # so that they are not loaded
        for binding in (package / "pufferlib" / "ocean").glob("*/binding.c"):
            if binding.parent.name != "cartpole":
                binding.unlink()
        start = package / "pufferlib" / "__init__.py"  # which leaves a link wherever it is imported
        start.write_text(start.read_text().replace("os.symlink(link_to, 'resources')", "pass"))
        # Without a compiler for graphics GPUs in the path: torch is the processor's.
        subprocess.run([*PIP, "install", *ALONE, str(package)], env={**os.environ, "PATH": "/usr/bin:/bin"}, check=True)


if __name__ == "__main__":
    main()
