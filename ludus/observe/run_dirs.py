"""Run directories by name or path."""

from __future__ import annotations

from pathlib import Path

from ludus.errors import RunError, nearest
from ludus.observe.schema import FILE

RUNS = Path("runs")


def find_run(text: str) -> Path:
    """The directory that a user means by a path or by a name below ./runs. Raises RunError with the nearest names."""
    if not text:
        raise RunError("'' was given, a run's name or directory was expected. `ludus list runs` shows the runs.")
    for candidate in (Path(text), RUNS / text):
        if (candidate / FILE).is_file():
            return candidate
    if Path(text).is_dir():
        raise RunError(f"{text!r} is not a run: it has no {FILE}. `ludus list runs` shows the runs.")
    known = [path.name for path in run_dirs()]
    hint = nearest(text, known) if known else f"; there are no runs in ./{RUNS}"
    raise RunError(f"there is no run {text!r}{hint}")


def run_dirs(root: Path | None = None) -> list[Path]:
    """Directories below `root` (default ./runs) that hold a run, by name."""
    root = root or RUNS
    return sorted(path.parent for path in root.glob(f"*/{FILE}") if path.is_file()) if root.is_dir() else []
