"""A stopper of your own: ends a run when NashConv has fallen to a share of where it started.

python examples/own_stopper.py
PYTHONPATH=examples ludus train kuhn 'stop={"own_stopper:Reduced": 0.1}'
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

import ludus
from ludus.core.config import Config
from ludus.training.stopping import Progress


class Reduced(Config):
    """Stops when the newest NashConv is at most `share` of the first one."""

    setting: ClassVar[str] = "share"  # the field that a plain value sets
    share: float = Field(gt=0, lt=1)

    def reason(self, progress: Progress) -> str | None:
        """Why to stop, as a sentence; None: go on. A pure function of the progress record."""
        known = progress.nash_conv
        if len(known) < 2 or not known[-1] <= self.share * known[0]:
            return None
        return f"NashConv fell from {known[0]:.4g} to {known[-1]:.4g}"

    def fraction(self, progress: Progress) -> float | None:
        """Nothing can be said in advance about how much is done."""
        return None

    def limit(self, unit: str) -> int | None:
        """It bounds no counter."""
        return None


def main() -> None:
    scenario = ludus.PSRO(
        env="openspiel/kuhn_poker",
        algorithm="exact",
        generations=100,
        stop={"own_stopper:Reduced": 0.1},
    )
    result = ludus.run(scenario)
    print(result.stopped_by)


if __name__ == "__main__":
    main()
