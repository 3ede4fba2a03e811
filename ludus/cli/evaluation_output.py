"""Tables and facts that `ludus evaluate` prints; `evaluate.py` has its options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ludus.cli.output import facts, mean_cells, rating_cell, rating_column, statistics_table, table, write

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ludus.evaluation.evaluate import EvaluationReport, HeadToHead
    from ludus.evaluation.exact_exploitability import ExactReport
    from ludus.evaluation.exploiters import Exploiters, PopulationExploiters
    from ludus.evaluation.population_exploitability import PopulationReport
    from ludus.evaluation.run_ratings import RunRatings
    from ludus.metagame.population.ratings.base import RatingTable
    from ludus.tournament.cross_play import CrossPlayResult

_LEAST = 5e-5  # of a mixture, that four digits show


def show_population(report: PopulationReport) -> None:
    """The least exploitable mixtures, computed."""
    from ludus.apps.common.progress import number, signed

    title = (
        f"{report.env} after generation {report.generation}: the least exploitable mixture of each player's policies"
    )
    _show_mixtures(title, report.names, report.least_exploitable.mixtures)
    pairs = [
        ("NashConv", number(report.least_exploitable.nash_conv)),
        ("exploitability", number(report.exploitability)),
    ]
    pairs += [
        (f"player {p} earns at least", signed(value, 4)) for p, value in enumerate(report.least_exploitable.guaranteed)
    ]
    facts("Populations", pairs)


def show_exact(report: ExactReport) -> None:
    """Exploitability that was computed, and what best responses earn."""
    from ludus.apps.common.progress import number, signed

    write(f"{report.env} after generation {report.generation}, computed")
    pairs = [("NashConv", number(report.nash_conv))]
    if len(report.best) == 2:
        pairs.append(("exploitability", number(report.nash_conv / 2)))
    earned = enumerate(zip(report.best.tolist(), report.value.tolist(), strict=True))
    pairs += [
        (f"best response of player {p} earns", f"{signed(best, 4)}, its policies {signed(value, 4)}")
        for p, (best, value) in earned
    ]
    queries = f", and {report.query_seconds:.1f} of asking policies" if report.query_seconds else ""
    pairs.append(("seconds", f"{report.seconds:.1f}{queries}"))
    facts(_whose(report.of), pairs)


def show_responders(result: PopulationExploiters) -> None:
    """The least exploitable mixtures that were found, and what trained responders gain against them."""
    from ludus.apps.common.progress import number, signed

    title = (
        f"{result.env} after generation {result.generation}: the mixtures that lose least to {result.rounds} responders, trained for "
        f"{result.trained:,} episodes each, measured in {result.episodes:,}"
    )
    _show_mixtures(title, result.names, result.mixtures)
    low, high = result.interval
    pairs = [
        (
            "exploitability, 95%",
            f"{number(result.exploitability)} [{low:.4f}, {high:.4f}] (a better responder gains more)",
        ),
        ("no mixture has less than", f"{number(result.floor)} (95%)"),
    ]
    gains = enumerate(zip(result.gain, result.half_width, strict=True))
    pairs += [(f"responder for player {p} gains, 95%", f"{signed(gain, 4)} ±{half:.4f}") for p, (gain, half) in gains]
    pairs += [("training stopped early", failure) for failure in result.failures]
    facts("Populations", pairs)


def show_against(result: CrossPlayResult) -> None:
    """Whose population is the better one, and the mixtures that say so."""
    from ludus.apps.common.progress import signed

    how = "computed" if result.exact else f"{result.deals:,} deals of each meeting"
    split = len(result.names[0])
    first, second = (
        [run.name for run in result.runs] if result.runs[0].name != result.runs[1].name else map(str, result.runs)
    )
    rows = []
    for seat, game in enumerate(result.seats):
        for side, (places, mixture) in enumerate(zip((game.first, game.second), game.mixtures, strict=True)):
            plays = f"player {abs(seat - side)}" if len(result.seats) > 1 else "either"
            best = [k for k in (-mixture).argsort(kind="stable").tolist() if mixture[k] >= _LEAST]
            rows += [
                [(first, second)[side], plays, result.names[side][places[k] - side * split], f"{mixture[k]:.4f}"]
                for k in best
            ]
    title = f"{result.env}: {first} against {second}, {how}; the best mixtures of their policies"
    table(["run", "as", "policy", "weight"], rows, title=title, left=(0, 1, 2))
    value_text = (
        signed(result.value, 4) if result.exact else f"{signed(result.value, 4)} ±{result.half_width:.4f} (95%)"
    )
    pairs = [("relative population performance", value_text)]
    if len(result.seats) > 1:
        pairs += [(f"of {first} as player {p}", signed(game.value, 4)) for p, game in enumerate(result.seats)]
    facts(f"Above 0, {first} is the better population", pairs)


def _show_mixtures(title: str, names: Sequence[Sequence[str]], mixtures: Sequence[NDArray[np.float64]]) -> None:
    rows = []
    for player, (own, mixture) in enumerate(zip(names, mixtures, strict=True)):
        best = (-mixture).argsort(kind="stable").tolist()
        rows += [[f"player {player}", own[k], f"{mixture[k]:.4f}"] for k in best if mixture[k] >= _LEAST]
    table(["mixture of", "policy", "weight"], rows, title=title, left=(0, 1))


def show_exploiters(result: Exploiters) -> None:
    """What policies gain that were trained against meta-strategies."""
    from ludus.apps.common.progress import number, signed

    title = (
        f"{result.env} after generation {result.generation}: exploiters trained for {result.trained:,} episodes, measured in "
        f"{result.episodes:,}"
    )
    rows = [
        [f"player {p}", f"{signed(value, 4)}", f"{signed(gain, 4)} ±{half:.4f}"]
        for p, (value, gain, half) in enumerate(zip(result.value, result.gain, result.half_width, strict=True))
    ]
    table(
        ["in the seat of", f"{'meta-strategy' if result.of == '@meta' else result.of} earns", "exploiter gains, 95%"],
        rows,
        title=title,
        left=[0],
    )
    pairs = [("NashConv", f"{number(result.nash_conv)} (at least, 95%)")]
    if len(result.gain) == 2:
        pairs.append(("exploitability", f"{number(result.nash_conv / 2)} (at least, 95%)"))
    pairs += [("training stopped early", failure) for failure in result.failures]
    facts(_whose(result.of), pairs)


def show_ratings(result: RunRatings) -> None:
    """A table for each population, the best of the first rating first."""
    tables = list(result.tables.items())
    columns = ["policy", *(rating_column(name, t.low.tolist()) for name, t in tables)]
    by = f"{result.matches:,} matches" if result.matches else "computed payoffs"
    write(f"{result.env} after generation {result.generation}, rated by {by}; ordered by {tables[0][0]}")
    start = 0
    for population, (names, counted) in enumerate(zip(result.names, result.statistics, strict=True)):
        cells = [[rating_cell(t.unit, *row) for row in _rows_of(t, start, len(names))] for _, t in tables]
        best = [k - start for k in tables[0][1].ranking().tolist() if start <= k < start + len(names)]
        rows = [[names[k], *(column[k] for column in cells), *mean_cells(counted, k)] for k in best]
        counts = () if counted is None else counted.names
        table([*columns, *counts], rows, title=f"population {population}" if len(result.names) > 1 else "")
        start += len(names)
    for name, t in tables:
        for note in t.notes:
            write(f"note: {name}: {note}")
    if result.unplayed:
        write(f"note: {result.unplayed} policies without any payoff are left out")


def _rows_of(ratings: RatingTable, start: int, count: int) -> Iterator[tuple[float, float, float]]:
    part = slice(start, start + count)
    return zip(ratings.rating[part].tolist(), ratings.low[part].tolist(), ratings.high[part].tolist(), strict=True)


def show_matches(report: EvaluationReport) -> None:
    """The matches, and NashConv where it was computed."""
    players = len(report.matches[0].policies)
    who = [f"player {p}" for p in range(players)]
    means = [f"return {p}, 95%" for p in range(players)]
    exact = any(match.exact is not None for match in report.matches)
    columns = [*who, *means, *([f"exact {p}" for p in range(players)] if exact else []), "player 0 won/drawn/lost"]
    if players == 1:  # nobody to win against
        columns.pop()
    title = f"{report.env} after generation {report.generation}, {report.matches[0].episodes:,} episodes per match"
    rows = [_row(match, exact=exact)[: len(columns)] for match in report.matches]
    table(columns, rows, title=title, left=range(players), spare=[len(columns) - 1] if players > 1 else [])
    _show_statistics(report)
    exploitability = report.exploitability
    if exploitability is None:
        return
    from ludus.apps.common.progress import number

    bound = "" if exploitability.exact else " (at least)"
    pairs = [("NashConv", f"{number(exploitability.nash_conv)}{bound}")]
    if players == 2:
        pairs.append(("exploitability", f"{number(exploitability.nash_conv / 2)}{bound}"))
    pairs += [(f"gain of player {p}", number(round(gain, 9) + 0.0)) for p, gain in enumerate(exploitability.gain)]
    facts(_whose(report.of), pairs)


def _show_statistics(report: EvaluationReport) -> None:
    counted = next((match.statistics for match in report.matches if match.statistics is not None), None)
    if counted is None:
        return
    rows = [
        [str(p), match.policies[p], " ".join(other for q, other in enumerate(match.policies) if q != p), *cells]
        for match in report.matches
        for p in range(len(match.policies))
        if (cells := mean_cells(match.statistics, p))
    ]
    statistics_table(
        ("player", "policy", "beside"), rows, counted.names, title="Statistics, means per episode", left=(0, 1, 2)
    )


def _whose(of: str) -> str:
    return "Meta-strategies" if of == "@meta" else of


def _row(match: HeadToHead, *, exact: bool) -> list[str]:
    from ludus.apps.common.progress import signed

    row = [*match.policies, *(f"{signed(m, 4)} ±{h:.4f}" for m, h in zip(match.mean, match.half_width, strict=True))]
    if exact:
        row += ["-"] * len(match.policies) if match.exact is None else [signed(value, 4) for value in match.exact]
    row.append("/".join(str(count) for count in match.wins[0]) if match.wins else "-")
    return row
