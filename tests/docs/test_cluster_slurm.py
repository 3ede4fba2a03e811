"""The Slurm script, on two "nodes" of this machine: an srun and a scontrol of our own stand in its way (tests/docs/slurm)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pages
import pytest

from ludus.storage.reader import Reader

SCRIPT = pages.EXAMPLES / "cluster" / "ludus.sbatch"
SHIMS = Path(__file__).parent / "slurm"
RUN = [
    "connect-four",
    "generations=1",
    "response={episodes: 800}",
    "env.num_envs=16",
    "algorithm.batch=64",
    "algorithm.minibatches=1",
    "evaluation.episodes=4",
    "checkpoints.iterations=5",
]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder with a short name, for the sake of Ray's sockets."""
    folder = Path(tempfile.mkdtemp(prefix="sl", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


def submit(
    arguments: list[str], *, job: int, submitted: Path, scratch: Path, nodes: str = "one,two"
) -> subprocess.Popen[str]:
    """What sbatch does on the first of some nodes of one CPU each."""
    binaries = Path(sys.executable).parent
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SLURM_"))},
        "PATH": f"{SHIMS}:{binaries}:{os.environ['PATH']}",
        "PYTHONPATH": str(pages.ROOT),
        "SLURM_SUBMIT_DIR": str(submitted),
        "SLURM_JOB_ID": str(job),
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_CPUS_PER_TASK": "1",
        "LUDUS_SCRATCH": str(scratch),
    }
    return subprocess.Popen(
        ["bash", str(SCRIPT), *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def processes(scratch: Path) -> list[str]:
    """Command lines that name the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(scratch) in line:
                found.append(line)
    return found


@pytest.mark.long
def test_run_on_two_nodes_is_stopped_and_resumed_on_one(tmp_path: Path, scratch: Path) -> None:
    job = os.getpid()  # a port of its own
    first = submit(["try1", *RUN, "--workers", "2"], job=job, submitted=tmp_path, scratch=scratch)
    checkpoints = scratch / f"ludus-{job}" / "runs" / "try1" / "checkpoint"
    until = time.monotonic() + 240
    while first.poll() is None and time.monotonic() < until and not list(checkpoints.glob("000002-*")):
        time.sleep(0.2)
    first.send_signal(signal.SIGTERM)
    said, _ = first.communicate(timeout=240)
    assert "2 nodes, 2 CPUs" in said
    assert "stopped by SIGTERM" in said, "two workers of one CPU each were there, so both nodes were used"
    assert first.returncode == 143, "not complete: `afterok` waits for that"
    assert processes(scratch) == []
    assert list(scratch.iterdir()) == []
    assert {path.name for path in tmp_path.glob("*.out")} == {f"slurm-{job}-ray-{node}.out" for node in ("one", "two")}
    kept = tmp_path / "runs" / "try1"
    assert list((kept / "checkpoint").glob("000002-*"))

    one = ["--workers", "1"]
    second = submit(["try1", *RUN, *one], job=job + 1, submitted=tmp_path, scratch=scratch, nodes="one")
    said, _ = second.communicate(timeout=480)
    assert "1 nodes, 1 CPUs" in said
    assert "the schedule is complete" in said
    assert second.returncode == 0
    assert processes(scratch) == []
    with Reader(kept) as reader:
        policies = reader.policies()
    assert len(policies) == 4, "a first and a trained policy of either player"


@pytest.mark.long
def test_run_that_fails_fails_its_job_and_leaves_nothing(tmp_path: Path, scratch: Path) -> None:
    job = os.getpid() + 2
    failing = submit(["try1", "no-such-preset"], job=job, submitted=tmp_path, scratch=scratch, nodes="one")
    said, _ = failing.communicate(timeout=240)
    assert "no-such-preset" in said
    assert failing.returncode not in (0, None)
    assert processes(scratch) == []
    assert list(scratch.iterdir()) == []


def test_the_script_is_bash() -> None:
    assert subprocess.run(["bash", "-n", str(SCRIPT)], check=False).returncode == 0
    text = SCRIPT.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "#SBATCH --ntasks-per-node=1\n" in text
