"""From a run directory to its `report.html`."""

from __future__ import annotations

import html
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from plotly.offline import get_plotlyjs

from ludus.core import curves
from ludus.core.errors import RunError
from ludus.core.types import Curve, Match, NamedStatistics
from ludus.population.base import Lineage
from ludus.population.matches import statistics_by_policy
from ludus.population.payoffs import Payoffs
from ludus.storage.base import GenerationRecord, RunInfo, RunSummary
from ludus.storage.reader import Event, Rating, Reader, StoredCurve, StoredPolicy, player_of, run_state
from ludus.storage.run_dirs import find_run
from ludus.view.curves import is_told, learner_name

# --------------------------------------------------------------------------------------------------------------------
# What the report shows, computed from the database alone.

Number = float | None
MAX_POINTS = 600  # along an axis of generations
MAX_LAYERS = 48  # bands of a stacked area
MAX_LEARNERS = 12  # that have a curve
MAX_LEARNED = 300  # points of a curve
MAX_CELLS = 400  # along an axis of a heat map
MAX_MET = 20  # opponents beside whom a policy's statistics are told


@dataclass(frozen=True, slots=True)
class Convergence:
    """One entry per generation. nash_conv: empty if it was never computed. gains: [P][generations]. exact: no entry is a bound."""

    generation: list[int]
    seconds: list[float]
    episodes: list[int]
    nash_conv: list[Number]
    gains: list[list[Number]]
    exact: bool


@dataclass(frozen=True, slots=True)
class Learning:
    """One learner's training over all of its tasks, point by point. over: what it can be drawn over, by name. mean, spread: of the returns.
    metrics: others, by name, those that say most first."""

    learner: str
    over: dict[str, list[Number]]
    mean: list[Number]
    spread: list[Number]
    metrics: dict[str, list[Number]]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Mean return of player `of`; rows and columns are two players' policies, the other players mix by their last meta-strategy."""

    of: int
    row_player: int
    column_player: int
    rows: list[str]
    columns: list[str]
    values: list[list[Number]]


@dataclass(frozen=True, slots=True)
class ReportLayer:
    """Probability per generation of one policy, or of neighbours together. place: its age in [0, 1], for its colour."""

    label: str
    place: float
    values: list[float]


@dataclass(frozen=True, slots=True)
class Strategy:
    player: int
    generation: list[int]
    layers: list[ReportLayer]


@dataclass(frozen=True, slots=True)
class Ranked:
    """mean: return against the last meta-strategy of the other players. start: the policy that it began as a copy of, or "random"."""

    policy: str
    generation: int
    start: str
    mean: Number
    rating: Number
    probability: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """A population, best mean first. players: who draw from it."""

    population: int
    players: list[int]
    rows: list[Ranked]


@dataclass(frozen=True, slots=True)
class CountedRow:
    """means: per episode, by the names of the table. against: whom a policy met, and the means there."""

    policy: str
    episodes: int
    means: list[Number]
    against: list[tuple[str, list[Number]]]


@dataclass(frozen=True, slots=True)
class CountedTable:
    """What the matches of a population's policies counted, by name."""

    population: int
    players: list[int]
    names: list[str]
    rows: list[CountedRow]


@dataclass(frozen=True, slots=True)
class Note:
    time: str
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class ReportData:
    info: RunInfo
    state: str
    summary: RunSummary | None
    convergence: Convergence
    learning: list[Learning]
    learners: int  # those that are left out included
    heat_maps: list[HeatMap]
    strategies: list[Strategy]
    rankings: list[Ranking]
    statistics: list[CountedTable]
    notes: list[Note]


def collect(reader: Reader) -> ReportData:
    """Everything that the report shows. Raises RunError if the database is damaged."""
    info, summary = reader.info(), reader.summary()
    records, policies, payoffs = reader.generations(), reader.policies(), reader.payoffs()
    if records and len(records[-1].marginals) != info.players:
        raise RunError(f"the database of {str(reader.run_dir)!r} holds a generation of another number of players.")
    marginals = _last_marginals(records, payoffs.sizes)
    names = _names(info, policies)
    learners = _learners(reader.curves())
    return ReportData(
        info=info,
        state=run_state(reader.run_dir, summary),
        summary=summary,
        convergence=_convergence(info, records),
        learning=[_learning(name, learners[name]) for name in _most_decided(learners)],
        learners=len(learners),
        heat_maps=_heat_maps(info, payoffs, marginals, names),
        strategies=_strategies(records, names),
        rankings=_rankings(info, policies, payoffs, marginals, reader.ratings()),
        statistics=_statistics(info, policies, reader.counted()),
        notes=[_note(event) for event in reader.events() if event.level != "info"],
    )


def _names(info: RunInfo, policies: Sequence[StoredPolicy]) -> list[list[str]]:
    """[P][policies of the player] ids."""
    return [
        [stored.record.ref.policy for stored in policies if stored.record.ref.population == population]
        for population in info.population
    ]


def _last_marginals(records: Sequence[GenerationRecord], sizes: tuple[int, ...]) -> list[NDArray[np.float64]]:
    """Padded with zeros for policies that came after the last generation was solved; zeros if there was none."""
    last = [np.zeros(size) for size in sizes]
    if records:
        for row, marginal in zip(last, records[-1].marginals, strict=True):
            row[: len(marginal)] = marginal[: len(row)]
    return last


def _convergence(info: RunInfo, records: Sequence[GenerationRecord]) -> Convergence:
    kept = thin(records, MAX_POINTS)
    known = any(record.nash_conv is not None for record in kept)
    gains = [
        [_finite(record.gains[player]) if player < len(record.gains) else None for record in kept]
        for player in range(info.players)
    ]
    return Convergence(
        generation=[record.number for record in kept],
        seconds=[round(record.seconds, 3) for record in kept],
        episodes=[record.episodes for record in kept],
        nash_conv=[_finite(record.nash_conv) for record in kept] if known else [],
        gains=gains if known else [],
        exact=all(record.exact for record in kept),
    )


def _learners(stored: Sequence[StoredCurve]) -> dict[str, Curve]:
    """Each learner's tasks as one curve."""
    tasks: dict[str, list[Curve]] = {}
    for one in stored:
        tasks.setdefault(learner_name(one.population, one.policy, one.generation), []).append(one.curve)
    return {name: curves.joined(parts) for name, parts in sorted(tasks.items())}


def _most_decided(learners: Mapping[str, Curve]) -> list[str]:
    most = sorted(learners, key=lambda name: -learners[name]["decisions"][-1])[:MAX_LEARNERS]
    return [name for name in learners if name in most]


def _learning(learner: str, curve: Curve) -> Learning:
    curve = curves.thinned(curve, MAX_LEARNED)
    steps, seconds = np.diff(curve["env_steps"], prepend=0), np.diff(curve.seconds, prepend=0)
    with np.errstate(all="ignore"):
        speed = np.where(seconds > 0, steps / seconds, np.nan)
    names = curve.columns[len(curves.FIXED) :]
    series = {name: curve[name] for name in names if is_told(name)}
    series |= {name: curve[name] for name in names if name.startswith(curves.STATISTICS)}
    series |= {"episode_length": curve["length"], "steps_per_second": speed, **{name: curve[name] for name in names}}
    return Learning(
        learner=learner,
        over={name: _all_finite(curve[name]) for name in ("decisions", "episodes", "updates", "seconds")},
        mean=_all_finite(curve["mean"]),
        spread=_all_finite(curves.spread(curve)),
        metrics={name.replace("_", " "): _all_finite(values) for name, values in series.items()},
    )


def _all_finite(values: NDArray[np.float64]) -> list[Number]:
    return [_finite(value) for value in values.tolist()]


def _heat_maps(
    info: RunInfo, payoffs: Payoffs, marginals: Sequence[NDArray[np.float64]], names: list[list[str]]
) -> list[HeatMap]:
    if min(payoffs.sizes, default=0) == 0:
        return []
    maps = []
    for row, column in combinations(range(info.players), 2):
        owners = (row,) if info.zero_sum and info.players == 2 else (row, column)
        for of in owners:
            keep = (slice(-MAX_CELLS, None),) * 2  # the newest, if there are too many
            values = against(payoffs.mean[of], marginals, keep=(row, column))[keep]
            label = (names[row][keep[0]], names[column][keep[1]])
            maps.append(HeatMap(of, row, column, *label, [[_finite(cell) for cell in line] for line in values]))
    return maps


def against(
    mean: NDArray[np.float64], marginals: Sequence[NDArray[np.float64]], *, keep: tuple[int, ...]
) -> NDArray[np.float64]:
    """Expectation of `mean` [n_0, …] over the marginals of all axes but `keep` (in rising order). NaN where a hole has weight."""
    result = mean
    for axis in reversed(range(mean.ndim)):
        if axis in keep:
            continue
        support = np.flatnonzero(marginals[axis])
        if len(support) == 0:
            return np.full([n for k, n in enumerate(mean.shape) if k in keep], np.nan)
        result = np.tensordot(result.take(support, axis=axis), marginals[axis][support], axes=(axis, 0))
    return result


def _strategies(records: Sequence[GenerationRecord], names: list[list[str]]) -> list[Strategy]:
    kept = thin(records, MAX_POINTS)
    if not kept:
        return []
    generation = [record.number for record in kept]
    return [Strategy(player, generation, _layers(kept, player, names[player])) for player in range(len(names))]


def _layers(records: Sequence[GenerationRecord], player: int, names: list[str]) -> list[ReportLayer]:
    size = max(len(record.marginals[player]) for record in records)
    mass = np.zeros((len(records), size))
    for k, record in enumerate(records):
        mass[k, : len(record.marginals[player])] = record.marginals[player]
    labels = [names[k] if k < len(names) else f"#{k}" for k in range(size)]
    layers = []
    for first, last in bands(mass.sum(axis=0), MAX_LAYERS):
        label = labels[first] if first == last else f"{labels[first]} … {labels[last]}"
        values = np.round(mass[:, first : last + 1].sum(axis=1), 6).tolist()
        layers.append(ReportLayer(label, (first + last) / 2 / max(1, size - 1), values))
    return layers


def bands(total: NDArray[np.float64], limit: int) -> list[tuple[int, int]]:
    """At most `limit` ranges (first, last) of neighbouring policies, of about equal mass; each policy with mass is in one."""
    shown = np.flatnonzero(total > 0)
    if len(shown) <= limit:
        return [(int(k), int(k)) for k in shown]
    middle = np.cumsum(total[shown]) - total[shown] / 2
    band = np.minimum((middle / total.sum() * limit).astype(int), limit - 1)
    groups = [shown[band == k] for k in np.unique(band)]
    return [(int(group[0]), int(group[-1])) for group in groups]


def _rankings(
    info: RunInfo,
    policies: Sequence[StoredPolicy],
    payoffs: Payoffs,
    marginals: Sequence[NDArray[np.float64]],
    ratings: Sequence[Rating],
) -> list[Ranking]:
    # Later generations come last in the database, so the newest rating of a policy wins.
    rating = {
        (entry.population, entry.policy): entry.rating for entry in sorted(ratings, key=lambda entry: entry.generation)
    }
    return [
        _ranking(population, info, policies, payoffs, marginals, rating) for population in sorted(set(info.population))
    ]


def _ranking(
    population: int,
    info: RunInfo,
    policies: Sequence[StoredPolicy],
    payoffs: Payoffs,
    marginals: Sequence[NDArray[np.float64]],
    rating: dict[tuple[int, str], float],
) -> Ranking:
    players = [player for player, own in enumerate(info.population) if own == population]
    members = [stored.record for stored in policies if stored.record.ref.population == population]
    mean = np.mean([against(payoffs.mean[p], marginals, keep=(p,)) for p in players], axis=0) if members else []
    probability = np.mean([marginals[p] for p in players], axis=0)
    rows = [
        Ranked(
            policy=member.ref.policy,
            generation=member.lineage.generation,
            start=_start(member.lineage),
            mean=_finite(mean[k]),
            rating=_finite(rating.get((population, member.ref.policy))),
            probability=float(probability[k]),
        )
        for k, member in enumerate(members)
    ]
    # By the digits that are shown: near an equilibrium all that matter earn the same, and then the likelier comes first.
    rows.sort(key=lambda row: (-np.inf if row.mean is None else round(row.mean, 4), row.probability), reverse=True)
    return Ranking(population, players, rows)


def _statistics(info: RunInfo, policies: Sequence[StoredPolicy], counted: Sequence[Match]) -> list[CountedTable]:
    played = [([player_of(ref) for ref in match.seats], match.statistics) for match in counted]
    met: dict[tuple[int, str], dict[str, list[tuple[list[str], NamedStatistics | None]]]] = {}
    for seats, found in played:
        for player, who in enumerate(seats):
            others = ", ".join(policy for q, (_, policy) in enumerate(seats) if q != player)
            mine = ["" if q != player else "me" for q in range(len(seats))]
            met.setdefault(who, {}).setdefault(others, []).append((mine, found))
    tables = []
    for population in sorted(set(info.population)):
        members = [stored.record.ref for stored in policies if stored.record.ref.population == population]
        total = statistics_by_policy(played, [player_of(ref) for ref in members])
        if total is None:
            continue
        rows = [
            CountedRow(
                ref.policy, int(total.n[k].max()), _all_finite(total.mean[k]), _against(met.get(player_of(ref), {}))
            )
            for k, ref in enumerate(members)
        ]
        players = [player for player, own in enumerate(info.population) if own == population]
        tables.append(CountedTable(population, players, list(total.names), [row for row in rows if row.episodes]))
    return tables


def _against(met: Mapping[str, Sequence[tuple[list[str], NamedStatistics | None]]]) -> list[tuple[str, list[Number]]]:
    """The newest that a policy met."""
    found = [(others, statistics_by_policy(parts, ["me"])) for others, parts in list(met.items())[-MAX_MET:] if others]
    return [(others, _all_finite(mine.mean[0])) for others, mine in found if mine is not None]


def _start(lineage: Lineage) -> str:
    """The policy that it began as a copy of, or where else its first weights came from."""
    return lineage.start if lineage.parent is None else lineage.parent.policy


def thin(records: Sequence[GenerationRecord], limit: int) -> list[GenerationRecord]:
    """At most `limit` of them, evenly spread, first and last included."""
    if len(records) <= limit:
        return list(records)
    return [records[k] for k in np.unique(np.linspace(0, len(records) - 1, limit).round().astype(int))]


def _note(event: Event) -> Note:
    return Note(time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(event.time)), event.level, f"{event.kind}: {event.text}")


def _finite(value: float | None) -> Number:
    return None if value is None or not np.isfinite(value) else float(f"{value:.6g}")


FILE = "report.html"


def write_report(run_dir: Path | str) -> Path:
    """Writes `report.html` (aside, then renamed) into a run's directory, from its database, and returns its path. Works while the run goes
    on. run_dir: that directory, or the run's name below ./runs.

    Raises RunError if the directory holds no readable run or cannot be written.
    """
    folder = find_run(run_dir, zoo=False)
    with Reader(folder) as reader:
        page = render(collect(reader))
    return put_page(folder / FILE, page)


def put_page(target: Path, page: str) -> Path:
    """Writes a page (aside, then renamed). Raises RunError if it cannot be written."""
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        aside.write_text(page, encoding="utf-8", errors="replace")  # a folder's name need not be UTF-8
        aside.replace(target)
    except OSError as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise RunError(f"the report {str(target)!r} cannot be written: {error.strerror}.") from error
    return target


def render(data: ReportData) -> str:
    """The whole page: styles, script, Plotly and data inline; nothing is fetched when it is opened."""
    return fill("report.html", "page.js", title=f"{data.info.name} · Ludus report", data=_facts(data))


def fill(template: str, script: str, *, title: str, data: Mapping[str, Any]) -> str:
    """A page of `assets`, with all that it needs inline."""
    assets = resources.files("ludus.view") / "assets"
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    parts = {
        "title": html.escape(title),
        "style": (assets / "report.css").read_text(encoding="utf-8"),
        "plotly": get_plotlyjs(),
        "data": text.replace("<", "\\u003c"),  # so that no text of a run can end the script element
        "script": "\n".join((assets / name).read_text(encoding="utf-8") for name in ("charts.js", script)),
    }
    page = (assets / template).read_text(encoding="utf-8")
    pieces = []
    for piece in page.split("{{"):  # one pass, so that what is filled in is never looked at again
        name, closing, rest = piece.partition("}}")
        pieces.append(parts[name] + rest if closing else piece)
    return "".join(pieces)


def _facts(data: ReportData) -> dict[str, Any]:
    facts = asdict(data)
    facts["info"]["run_dir"] = data.info.run_dir.name
    facts["info"]["utility_range"] = []  # may be infinite, which JSON has no word for; not shown
    if data.summary is not None:
        facts["summary"] |= {"run_dir": "", "report": "", "places": data.summary.learned_on}
    return facts
