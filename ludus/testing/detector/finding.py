"""What a detector says: how severe it is, what it is, where it was observed, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning", "note"]
"""error: results of runs would be wrong. warning: probably a fault; the environment's author knows. note: a fact that explains results."""
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault, or a fact to know.

    Attributes:
        check: Name of the detector.
        severity: One of `SEVERITIES`.
        sentence: What is so.
        advice: What to do.
        evidence: Where it was observed: seed, environment, episode, step, agent, values; numbers and texts.
    """

    check: str
    severity: Severity
    sentence: str
    advice: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def place(self) -> str:
        """Return the evidence as one line; "" without."""
        return ", ".join(f"{name} {_text(value)}" for name, value in self.evidence.items())


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        text = ", ".join(_text(one) for one in value[:8])
        return f"[{text}{', …' if len(value) > 8 else ''}]"
    return str(value)


def worst(findings: Sequence[Finding]) -> Severity | None:
    """Return the gravest severity among findings; None without findings."""
    return next((severity for severity in SEVERITIES if any(one.severity == severity for one in findings)), None)
