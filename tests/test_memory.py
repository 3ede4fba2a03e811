"""Learning from images keeps the memory that it frees."""

from __future__ import annotations

import subprocess
import sys

import pytest

_UPDATES = """
import resource, sys, torch
from ludus.memory import keep_freed_memory
from ludus.policies import bodies

if sys.argv[1] == "plain":
    bodies.keep_freed_memory = lambda: True
print(bodies.keep_freed_memory())
torch.set_num_threads(1)
body, _ = bodies.make_body({"kind": "nature"}, (4, 84, 84), scale=1 / 255)
pixels = torch.zeros(256, 4, 84, 84, dtype=torch.uint8)

def update(times):
    for _ in range(times):
        body(pixels.float()).square().mean().backward()

update(2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
update(8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """Pages that the system had to give in eight updates."""
    done = subprocess.run(
        [sys.executable, "-c", _UPDATES, how], capture_output=True, text=True, timeout=120, check=True
    )
    kept, count = done.stdout.splitlines()
    if kept != "True":
        pytest.skip("the C library is not glibc, and keeps what it keeps")
    return int(count)


def test_buffers_are_not_asked_for_again() -> None:
    assert faults("keep") < 0.1 * faults("plain")
