"""The panels of a run, by name: what a page asks for, from the run's database alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ludus.apps.ui.figures.answers import answers
from ludus.apps.ui.figures.embedding import embedding
from ludus.apps.ui.figures.learning_curves import learning, throughput
from ludus.apps.ui.figures.lineage import lineage, policy
from ludus.apps.ui.figures.meta_strategies import strategies
from ludus.apps.ui.figures.overview import convergence, events, overview, parts
from ludus.apps.ui.figures.payoff_heat_map import payoffs
from ludus.apps.ui.figures.ranking import alpha_rank, diversity, ranking, statistics
from ludus.apps.ui.figures.response_panel import responses
from ludus.apps.ui.figures.run_lines import experiment_lines, listing, run_line, settings_of
from ludus.storage.reader import Position, Reader

__all__ = ["PANELS", "changed", "experiment_lines", "listing", "run_line", "settings_of", "version"]

PANELS: Final[Mapping[str, Callable[..., Any]]] = {
    "overview": overview,
    "answers": answers,
    "convergence": convergence,
    "strategies": strategies,
    "learning": learning,
    "throughput": throughput,
    "parts": parts,
    "events": events,
    "ranking": ranking,
    "alpha_rank": alpha_rank,
    "payoffs": payoffs,
    "lineage": lineage,
    "responses": responses,
    "embedding": embedding,
    "diversity": diversity,
    "statistics": statistics,
    "policy": policy,
}
"""name -> panel(reader, **query) -> a record, or a list of records, for `ludus.core.jsonable.to_json`. Each raises ConfigError for a query
that it does not understand, and RunError as `Reader`."""

_OF_PAYOFFS = frozenset(
    {"answers", "ranking", "alpha_rank", "payoffs", "responses", "embedding", "diversity", "lineage", "policy"}
)
_OF_BARRIERS = frozenset({"answers", "overview", "learning", "throughput", "policy"})
_OF_GENERATIONS = frozenset({"convergence", "strategies"}) | _OF_PAYOFFS
_OF_EVENTS = frozenset({"events", "parts", "overview"})


def version(reader: Reader) -> Position:
    """Return how far the run is: to be compared with a later one."""
    return reader.position()


def changed(before: Position, after: Position) -> frozenset[str]:
    """Return the panels that may say something else now."""
    if before == after:
        return frozenset()
    every = frozenset(PANELS)
    rewound = any(
        getattr(after, name) < getattr(before, name)
        for name in ("barrier", "policies", "matches", "payoffs", "generations", "events")
    )
    if rewound or before.facts != after.facts:
        return every
    out = _OF_BARRIERS if before.barrier != after.barrier else frozenset()
    if before.events != after.events:
        out |= _OF_EVENTS
    if before.generations != after.generations:
        out |= _OF_GENERATIONS
    if (before.matches, before.payoffs, before.policies) != (after.matches, after.payoffs, after.policies):
        out |= _OF_PAYOFFS | {"statistics", "overview"}
    return out & every
