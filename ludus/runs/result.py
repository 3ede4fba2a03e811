"""What a run came to, as its directory holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core.jsonable import to_builtins
from ludus.core.types import NamedStatistics
from ludus.evaluation.policies import SampledPolicy
from ludus.evaluation.trained import TrainedPolicy
from ludus.metagame.population.base import PolicyRecord
from ludus.metagame.population.payoffs import Payoffs
from ludus.policies.registry import build_policy
from ludus.runs.scenario import Scenario
from ludus.storage.base import GenerationRecord, RunSummary
from ludus.storage.policy_files import PolicyFiles
from ludus.storage.reader import Reader
from ludus.storage.records import Event

MAX_WARNINGS = 1000
"""That a result lists, the newest ones: a run may lose a worker many times."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Result:
    """Result of a run.

    Attributes:
        run_dir: Of the run.
        scenario: Resolved scenario.
        populations: Policies of each population.
        payoffs: Payoff table.
        meta_strategies: [P] float64[m_p] of the last solved generation; of a joint one, its marginals.
        generations: Records, oldest first.
        nash_conv: Per generation, where it is known.
        episodes: Training episodes.
        seconds: Wall time, summed over sessions.
        stopped_by: Reason, as a sentence.
        report: Path of the report; None if there is none.
        summary: How the last session ended.
        statistics: Of each population, by the places of its policies [n, S], over their matches; None where the environment has none.
        joint: Joint meta-strategy, float64[m_0, …, m_(P-1)]; None where the solver gives marginals.
        warnings: What may not be as it seems, of all sessions, oldest first; each has a kind and a text.
    """

    run_dir: Path
    scenario: Scenario
    populations: tuple[tuple[PolicyRecord, ...], ...]
    payoffs: Payoffs
    meta_strategies: tuple[NDArray[np.float64], ...]
    generations: tuple[GenerationRecord, ...]
    nash_conv: tuple[float, ...]
    episodes: int
    seconds: float
    stopped_by: str
    report: Path | None
    summary: RunSummary
    statistics: tuple[NamedStatistics | None, ...] = ()
    joint: NDArray[np.float64] | None = None
    warnings: tuple[Event, ...] = ()

    def __repr__(self) -> str:
        """Return a short text: the last value of a notebook's cell is printed."""
        last = f", NashConv {self.nash_conv[-1]:.4g}" if self.nash_conv else ""
        return f"<Result of {str(self.run_dir)!r}: {max(0, len(self.generations) - 1)} generations{last}; {self.stopped_by}>"

    def as_json(self) -> dict[str, Any]:
        """Return what `ludus train --json` prints: plain data, null for what is not known. Keys are names of fields of `Result`,
        `RunSummary` and `GenerationRecord`; payoffs stay in the database."""
        return {
            "run_dir": str(self.run_dir),
            "report": None if self.report is None else str(self.report),
            "env": self.scenario.env.id,
            "scenario": self.scenario.name or self.scenario.kind,
            "seed": self.scenario.seed,
            "stopped_by": self.stopped_by,
            "complete": self.summary.complete,
            "failed": self.summary.failed,
            "failures": self.summary.failures,
            "trained": self.summary.trained,
            "episodes": self.episodes,
            "seconds": to_builtins(self.seconds),
            "nash_conv": to_builtins(self.nash_conv),
            "populations": [[member.ref.policy for member in members] for members in self.populations],
            "meta_strategies": to_builtins([strategy.tolist() for strategy in self.meta_strategies]),
            "generations": to_builtins(self.generations),
            "statistics": list(map(_counted, self.statistics, self.populations)),
            "warnings": [{"kind": event.kind, "text": event.text} for event in self.warnings],
        }

    def policy(self, population: int, index: int = -1) -> TrainedPolicy:
        """Return a trained policy, loaded from the run directory.

        Args:
            population: Index of the population.
            index: Place in the population; -1: the newest.
        """
        record = self.populations[population][index]
        policy = build_policy(record.spec, PolicyFiles(self.run_dir).get(record.ref))
        choice = SampledPolicy(record.ref.policy, policy, record.ref.mode, ref=record.ref)
        seats = [[choice] if which == record.ref.population else [] for which in self.payoffs.population]
        return TrainedPolicy(seats, player=self.payoffs.population.index(record.ref.population), env=self.scenario.env)


def _counted(statistics: NamedStatistics | None, members: Sequence[PolicyRecord]) -> dict[str, Any] | None:
    """Return policy -> statistic -> mean of one population."""
    if statistics is None:
        return None
    rows = [dict(zip(statistics.names, to_builtins(statistics.mean[m.index].tolist()), strict=True)) for m in members]
    return {member.ref.policy: row for member, row in zip(members, rows, strict=True)}


def read_result(run_dir: Path, scenario: Scenario, summary: RunSummary, *, stopped_by: str = "") -> Result:
    """Return the result of a session that `summary` describes: what is durable, which an interrupted session goes on from."""
    with Reader(run_dir) as reader:
        generations, payoffs, policies = reader.generations(), reader.payoffs(), reader.policies()
        statistics, warnings = reader.statistics(), reader.last_events(limit=MAX_WARNINGS, levels=("warning",))
    return Result(
        run_dir=run_dir,
        scenario=scenario,
        populations=tuple(
            tuple(p.record for p in policies if p.record.ref.population == population)
            for population in sorted(set(payoffs.population))
        ),
        payoffs=payoffs,
        meta_strategies=tuple(np.array(m) for m in generations[-1].marginals) if generations else (),
        generations=generations,
        nash_conv=tuple(g.nash_conv for g in generations if g.nash_conv is not None),
        episodes=summary.episodes,
        seconds=summary.seconds,
        stopped_by=stopped_by or summary.stopped_by,
        report=summary.report,
        summary=summary,
        statistics=statistics,
        joint=generations[-1].joint if generations else None,
        warnings=warnings,
    )
