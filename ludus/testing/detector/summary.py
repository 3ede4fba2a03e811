"""What was played, and what came of it, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ludus.testing.detector.finding import SEVERITIES, Finding
from ludus.testing.detector.recording import Recording
from ludus.testing.env import Check


def summarize(recording: Recording) -> dict[str, Any]:
    """Return players, agents, numbers of episodes and steps, lengths, and seconds of a step of one environment."""
    spec, lengths = recording.spec, [one.length for one in recording.episodes]
    seconds = recording.seconds[3:]
    return {
        "players": spec.num_players,
        "agents": len(spec.agents),
        "episodes": len(lengths),
        "terminated": len(recording.terminated),
        "steps": recording.steps,
        "length": [min(lengths), float(np.mean(lengths)), max(lengths)] if lengths else None,
        "microseconds": float(np.median(seconds)) * 1e6 * len(recording.seconds) / max(1, recording.steps)
        if seconds
        else None,
    }


def finding_data(one: Finding) -> dict[str, Any]:
    """Return a finding as JSON has it."""
    return {
        "check": one.check,
        "severity": one.severity,
        "sentence": one.sentence,
        "advice": one.advice,
        "evidence": dict(one.evidence),
    }


def check_data(check: Check) -> dict[str, Any]:
    """Return a check of the contract as JSON has it."""
    result = "failed" if check.failure is not None else "left out" if check.skipped else "passed"
    return {"check": check.name, "result": result, "sentence": check.failure or check.note, "advice": check.advice}


def count(findings: Sequence[Finding]) -> dict[str, int]:
    """Return the number of findings of each severity."""
    return {severity: sum(one.severity == severity for one in findings) for severity in SEVERITIES}
