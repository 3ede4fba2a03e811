"""What a task of `benchmarks.learning` is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

EXPERT_FILE = "expert.parquet"
"""An expert's decisions, as scenarios name the file: in the folder where a run's worker works."""
SHORT_SEEDS, LONG_SEEDS = (0, 1, 2, 3, 4), (0, 1, 2)


@dataclass(frozen=True, slots=True)
class Peer:
    """Another system, trained here under the same budget and seeds. name: in tables. folder: under benchmarks/peers, with its `run`.
    algorithm: as it calls it. unit, budget: as it counts."""

    name: str
    folder: str
    algorithm: str
    unit: Literal["decisions", "steps", "episodes"]
    budget: int

    @staticmethod
    def openspiel(algorithm: str, *, episodes: int) -> Peer:
        """OpenSpiel."""
        return Peer("OpenSpiel", f"openspiel_{algorithm}", algorithm, "episodes", episodes)

    @staticmethod
    def sb3(algorithm: str, *, decisions: int) -> Peer:
        """Stable-Baselines3."""
        return Peer("SB3", "sb3_learning", algorithm, "decisions", decisions)

    @staticmethod
    def epymarl(algorithm: str, *, steps: int) -> Peer:
        """EPyMARL. steps: of the environment, in which all agents act."""
        return Peer("EPyMARL", "epymarl", algorithm, "steps", steps)


@dataclass(frozen=True, slots=True)
class LearningTask:
    """keys: of the scenario, beside those that all have. budget: in `unit`; every training counts. wanted: of the mean score over the
    seeds; empty: none. published: the peer's score, from `source`. length: S(hort) or L(ong). episodes: of the evaluation.
    score: "return" (mean of the evaluation), "right" (share of right choices, likewise) or "exploitability" (NashConv / 2 of what is
    announced, computed exactly). points: budgets, the first of which divides the others, at which the newest policy is scored as well,
    beside training: of learners that collect whole batches of decisions. barriers: after so many iterations each a run of hours can go on
    if it is stopped; they end open episodes, and others have none. peer: whose runs are made as well; then `wanted` is of the ratio of both
    means, of whose interval the upper end is meant (the lower is wanted at 0.9). at_end: exploitability is that of the newest policy when
    training is over, in the scenario's mode; the game may be played otherwise, without a tree, say. Else it is computed after each
    generation.

    expert: the preset of who is imitated; it is trained and recorded before. demonstrations: episodes of it. cloned: nobody plays to learn;
    `ludus clone` does it."""

    name: str
    keys: Mapping[str, Any]
    budget: int
    wanted: str = ""
    unit: Literal["decisions", "episodes"] = "decisions"
    score: Literal["return", "right", "exploitability"] = "return"
    published: float | None = None
    source: str = ""
    length: Literal["S", "L"] = "S"
    episodes: int = 100
    points: tuple[int, ...] = ()
    barriers: int | None = None
    peer: Peer | None = None
    at_end: bool = False
    expert: str = ""
    demonstrations: int = 0
    cloned: bool = False

    @property
    def seeds(self) -> tuple[int, ...]:
        """Those that are measured if no others are asked for, and that a bar needs."""
        return SHORT_SEEDS if self.length == "S" else LONG_SEEDS

    @property
    def timeout_s(self) -> float:
        """After which a run is given up; several times what it should take."""
        return 3600.0 * (3 if self.length == "S" else 24)


def point_of(budget: int) -> str:
    """How results name the score after so much of the budget."""
    return f"score after {budget}"
