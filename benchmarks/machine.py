"""What a result file says about where it was made: kind of processor, cores, memory, commit. No host names, no paths."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Machine:
    """A kind of machine. `cpu` names the processor with family and model, since hypervisors shorten its name."""

    cpu: str
    cores: int
    memory_gb: int
    system: str
    python: str

    def same_kind(self, other: Machine) -> bool:
        """Whether times of one core can be compared: cores and memory may differ, the processor may not."""
        return (self.cpu, self.system) == (other.cpu, other.system)

    def as_json(self) -> dict[str, str | int]:
        return asdict(self)


def this_machine() -> Machine:
    """The machine that runs this."""
    return Machine(
        cpu=_cpu(),
        cores=os.cpu_count() or 1,
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    fields: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    if "model name" not in fields:
        return platform.processor() or "unknown"
    return f"{fields['model name']} (family {fields.get('cpu family', '?')}, model {fields.get('model', '?')})"


def commit(checkout: Path | None = None) -> str:
    """The commit of this checkout, or of another, with `+changes` when tracked files other than results differ from it; `unknown` without
    git."""
    try:
        folder = checkout or ROOT
        revision = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
        return revision + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def today() -> str:
    """The date in UTC."""
    return datetime.now(UTC).date().isoformat()
