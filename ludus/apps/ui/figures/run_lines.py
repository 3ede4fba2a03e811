"""A run as a line of the list of runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ludus.apps.ui.figures.base import Number, finite
from ludus.apps.ui.figures.overview import run_progress, run_state
from ludus.storage.reader import Reader


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run in a list. state: as `Reader.state`, or "paused". began: Unix time of its first policy. return_: of the newest learners
    in their last rollouts. last_note: its newest warning or error."""

    id: str
    name: str
    group: str | None
    state: str
    game: str
    algorithm: str
    scenario: str
    seed: int
    players: int
    policies: int
    generation: int
    generations: int | None
    fraction: Number
    doing: str
    seconds: float
    seconds_left: Number
    episodes: int
    began: Number
    nash_conv: Number
    exact: bool
    return_: Number
    warnings: int
    errors: int
    last_note: str


def run_line(reader: Reader, id: str, name: str, group: str | None) -> RunLine:
    """id, name, group: what the list calls the run, and the experiment that it belongs to. Raises RunError as `Reader`."""
    with reader.moment():
        info, summary, last = reader.info(), reader.summary(), reader.last_generation()
        counted, policies, first = reader.event_counts(), reader.policy_counts(), reader.any_policy()
        newest = reader.last_events(limit=1, levels=("warning", "error"))
        returns = [reader.metrics(f"response/{which}/return", "generations").value for which in policies]
    state, status = run_state(reader)
    progress = run_progress(reader, info, last, summary, status)
    last_returns = [values[-1] for values in returns if len(values)]
    return RunLine(
        id=id,
        name=name,
        group=group,
        state=state,
        game=info.env,
        algorithm=info.algorithm,
        scenario=info.scenario,
        seed=info.seed,
        players=info.players,
        policies=sum(policies.values()),
        generation=progress.generation,
        generations=info.generations,
        fraction=progress.fraction,
        doing=progress.doing,
        seconds=progress.seconds,
        seconds_left=progress.seconds_left,
        episodes=last.episodes if last else 0,
        began=None if first is None else first.created,
        nash_conv=finite(last.nash_conv) if last else None,
        exact=last is None or last.exact,
        return_=finite(float(np.mean(last_returns))) if last_returns else None,
        warnings=counted.get("warning", 0),
        errors=counted.get("error", 0),
        last_note=newest[-1].text if newest else "",
    )
