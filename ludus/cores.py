"""The processor's cores."""

from __future__ import annotations

import os


def cores() -> int:
    """On how many this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
