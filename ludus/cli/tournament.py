"""ludus tournament"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from ludus.backend.device import parse_device
from ludus.cli.command import (
    Command,
    add_device,
    add_rating,
    folder,
    positive_number,
    probability,
    seconds,
    whole_number,
)
from ludus.cli.output import mean_cells, rating_cell, rating_column, statistics_table, stream, table, write, write_json
from ludus.cli.progress_line import EpisodesProgress
from ludus.core.errors import ConfigError
from ludus.storage.run_dirs import find_run

if TYPE_CHECKING:
    from ludus.core.types import NamedStatistics
    from ludus.tournament.ranking_decisions import RankingDecisions
    from ludus.tournament.tournament_report import EntrantStanding, TournamentReport

TOURNAMENTS = Path("tournaments")
_ENVS = 64  # of a game that no run plays, where stepping many together gains little
_EPISODES, _CONFIDENCE = 100, 0.95
_OF_PLAY = ("episodes", "dir", "seed", "num-envs", "workers", "runtime")
_UNDECIDED = 10  # more undecided orders make no list that anybody reads
_CROSS = 12  # more entrants make no table that fits a screen


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "entrants",
        metavar="ENTRANT",
        nargs="+",
        help="RUN (its final result), RUN@meta, RUN@12, RUN@best, RUN@strongest, RUN@newest, RUN@PLAYER/POLICY, FILE.safetensors, random, "
        "bot:mcts,simulations=100 (bot:NAME,key=value…), a custom bot, module:Class,key=value…, or an agent from elsewhere, "
        "command:PROGRAM, sb3:FILE.zip, onnx:FILE, http://…",
    )
    parser.add_argument(
        "--episodes",
        type=positive_number,
        help=f"deals per meeting, each played in every seating; with five or more players, in some of them (default: {_EPISODES})",
    )
    parser.add_argument(
        "--budget",
        type=positive_number,
        metavar="N",
        help="adaptive: spend at most N episodes, on pairs whose ranking is not yet statistically decided",
    )
    parser.add_argument(
        "--confidence",
        type=probability,
        metavar="P",
        help=f"with --budget: probability that no decided ranking is wrong (default: {_CONFIDENCE})",
    )
    parser.add_argument("--seed", type=whole_number, help="seed of all deals and samples (default: 0)")
    parser.add_argument(
        "--dir",
        type=folder,
        help=f"directory of the results; the same command continues there (default: ./{TOURNAMENTS}/GAME)",
    )
    parser.add_argument("--env", metavar="ID", help="environment id, if no entrant belongs to a run")
    parser.add_argument("--num-envs", type=positive_number, metavar="N", help="number of environments stepped together")
    parser.add_argument(
        "--workers",
        type=positive_number,
        metavar="N",
        help="number of processes for bots, and with --runtime ray for policies too (default: 1)",
    )
    parser.add_argument(
        "--runtime",
        metavar="KIND",
        help="where policies run: inprocess (default), processes, ray, or module:Class",
    )
    parser.add_argument(
        "--deadline",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="bot time limit in seconds, for start-up (at least 10) and for each move (default: 60)",
    )
    parser.add_argument(
        "--exact", action="store_true", help="compute exact results instead of playing; nothing is stored"
    )
    add_device(parser, what="for --exact")
    add_rating(
        parser, "default for two players: bradley_terry, which orders it only if returns are wins, draws and losses"
    )
    parser.add_argument(
        "--cross", action="store_true", help=f"print the cross-table even for more than {_CROSS} entrants"
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--json", action="store_true", help="print the results as JSON")
    chosen.add_argument("--csv", action="store_true", help="print one row per entrant as CSV")


def _execute(options: argparse.Namespace) -> int:
    from ludus.apps.common.same_games import with_differences
    from ludus.envs.config import Environment
    from ludus.evaluation.run_ratings import parse_ratings
    from ludus.tournament.entrants import read_field
    from ludus.tournament.run import Options, run_tournament

    _check_budget(options)
    if options.device is not None and not options.exact:
        raise ConfigError(
            f"--device {options.device} says where --exact computes; what is played is played on the CPU. Leave it out."
        )
    raters = parse_ratings(options.rating)
    env = None if options.env is None else Environment(id=options.env, num_envs=_ENVS)
    try:
        field = read_field(options.entrants, env=env, find_run=find_run, deadline=options.deadline)
    except ConfigError as error:
        raise with_differences(error) from error
    if options.exact:
        from ludus.tournament.run import exact_tournament

        report = exact_tournament(field, raters=raters, device=parse_device(options.device or "auto"))
    else:
        where = options.dir or TOURNAMENTS / _folder_name(field.spec.id)
        settings = Options(
            episodes=options.episodes or _EPISODES,
            budget=options.budget,
            confidence=options.confidence or _CONFIDENCE,
            seed=options.seed or 0,
            deadline=options.deadline,
            workers=options.workers or 1,
            runtime=options.runtime or "inprocess",
            num_envs=options.num_envs,
        )
        with closing(EpisodesProgress()) as progress:
            report = run_tournament(field, where, settings, progress, raters=raters)
    if options.json:
        write_json(as_json(report))
    elif options.csv:
        csv.writer(stream(), lineterminator="\n").writerows(as_rows(report))
    else:
        _show(report, cross=options.cross)
    return 0


def _check_budget(options: argparse.Namespace) -> None:
    if options.budget is None and options.confidence is not None:
        raise ConfigError(
            "--confidence says when a --budget need not be spent; give a budget too, such as --budget 10000."
        )
    other = "--episodes" if options.episodes is not None else "--exact" if options.exact else None
    if options.budget is not None and other is not None:
        raise ConfigError(f"--budget and {other} were given; each says what is played by itself. Give one of them.")
    unused = [name for name in _OF_PLAY if getattr(options, name.replace("-", "_")) is not None]
    if options.exact and unused:
        raise ConfigError(
            f"--exact and --{unused[0]} were given; nothing is played or stored where results are computed. Leave one out."
        )


def _folder_name(game: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.=,-]+", "-", game.removeprefix("openspiel/")).strip("-")


def _show(report: TournamentReport, *, cross: bool) -> None:
    played = report.episodes > 0
    rated = [rating_column(name, ratings.low.tolist()) for name, ratings in report.ratings.items()]
    columns = ["", "entrant", *rated, "mean return, 95%" if played else "mean return"]
    columns += ["won/drawn/lost", "episodes"] if played and report.players > 1 else ["episodes"] if played else []
    how = f"{report.episodes:,} episodes" if played else "computed"
    title = f"{report.env}, {len(report.standings)} entrants, {how}; ordered by {report.order}"
    rows = [_row(report, k, standing) for k, standing in enumerate(report.standings)]
    table(columns, rows, title=title, left=(1,), spare=(len(columns) - 1,) if played else ())
    if (counted := report.statistics) is not None:
        rows = [[str(k + 1), s.name, *mean_cells(counted, k)] for k, s in enumerate(report.standings)]
        statistics_table(("", "entrant"), rows, counted.names, title="statistics, means per episode", left=(1,))
    if report.players > 1 and len(report.standings) > 2 and (cross or len(report.standings) <= _CROSS):
        _show_cross(report)
    if report.orders is not None:
        _show_orders(report.orders, report.episodes)
    for note in report.notes:
        write(f"note: {note}")
    if report.folder is not None:
        write(f"results: {report.folder}")


def _row(report: TournamentReport, k: int, standing: EntrantStanding) -> list[str]:
    played = report.episodes > 0
    row = [str(k + 1), standing.name]
    row += [rating_cell(r.unit, float(r.rating[k]), float(r.low[k]), float(r.high[k])) for r in report.ratings.values()]
    row.append(_interval(standing.mean, standing.half_width if played else 0.0))
    if played and report.players > 1:
        row.append(f"{standing.won}/{standing.drawn}/{standing.lost}")
    return [*row, f"{standing.episodes:,}"] if played else row


def _interval(mean: float, half: float) -> str:
    from ludus.apps.common.progress import signed

    if math.isnan(mean):
        return "-"
    return signed(mean, 4) if not half > 0 else f"{signed(mean, 4)} ±{half:.4f}"


def _show_cross(report: TournamentReport) -> None:
    n = len(report.standings)
    rows = [
        [
            str(i + 1),
            report.standings[i].name,
            *(_interval(report.cross[i, j], report.cross_half[i, j]) for j in range(n)),
        ]
        for i in range(n)
    ]
    title = "mean return of the row's entrant against the column's, over all seats"
    table(["", "entrant", *(str(j + 1) for j in range(n))], rows, title=title, left=(1,))


def _show_orders(orders: RankingDecisions, episodes: int) -> None:
    decided = orders.number - len(orders.undecided)
    write(
        f"orders: {decided:,} of {orders.number:,} decided with confidence {orders.confidence:g}, "
        f"by {episodes:,} episodes of {orders.budget:,}"
    )
    for one in orders.undecided[:_UNDECIDED]:
        beside = f", with {' and '.join(one.company)}" if one.company else ""
        write(f"undecided: {' or '.join(one.entrants)}{beside}")
    if (more := len(orders.undecided) - _UNDECIDED) > 0:
        write(f"undecided: and {more:,} more, which --json lists")


def as_rows(report: TournamentReport) -> list[list[object]]:
    """Return the standings as rows of CSV, with a heading; what is unknown is empty."""
    counted, fixed = (
        report.statistics,
        ("entrant", "mean", "half_width", "rating", "low", "high", "won", "drawn", "lost"),
    )
    rows: list[list[object]] = [["place", *fixed, *(() if counted is None else counted.names)]]
    for k, s in enumerate(report.standings):
        numbers = _numbers([s.mean, s.half_width, s.rating, s.low, s.high])
        means = [] if counted is None else _numbers(counted.mean[k].tolist())
        counts = (s.won, s.drawn, s.lost) if report.episodes else (None,) * 3  # nothing was played of what is computed
        rows.append([k + 1, s.name, *numbers, *counts, *means])
    return rows


def as_json(report: TournamentReport) -> dict[str, object]:
    """Return the results as JSON values; what is unknown is null."""
    return {
        "env": report.env,
        "folder": None if report.folder is None else str(report.folder),
        "rating": report.rating or None,
        "order": report.order,
        "episodes": report.episodes,
        "orders": None if report.orders is None else dataclasses.asdict(report.orders),
        "standings": [
            {
                "entrant": s.name,
                "mean": _number(s.mean),
                "half_width": _number(s.half_width),
                "rating": _number(s.rating),
                "low": _number(s.low),
                "high": _number(s.high),
                "ratings": {
                    name: {"rating": _number(r.rating[k]), "low": _number(r.low[k]), "high": _number(r.high[k])}
                    for name, r in report.ratings.items()
                },
                "won": s.won if report.episodes else None,
                "drawn": s.drawn if report.episodes else None,
                "lost": s.lost if report.episodes else None,
                **({} if report.statistics is None else {"statistics": _counted(report.statistics, k)}),
            }
            for k, s in enumerate(report.standings)
        ],
        "meetings": [
            {
                "entrants": list(result.pairing.entrants),
                "deals": result.n,
                "mean": _numbers(result.mean.tolist()),
                "half_width": _numbers(result.half_width.tolist()),
                "orders": [
                    {
                        "seats": [ref.policy for ref in match.seats],
                        "mean": _numbers(match.mean.tolist()),
                        "wins": [list(w) for w in match.wins],
                        **({} if match.statistics is None else {"statistics": _by_seat(match.statistics)}),
                    }
                    for match in result.matches
                ],
            }
            for result in report.results
        ],
    }


def _counted(statistics: NamedStatistics, row: int) -> dict[str, float | None]:
    """Return the means of a row by name."""
    return dict(zip(statistics.names, _numbers(statistics.mean[row].tolist()), strict=True))


def _by_seat(statistics: NamedStatistics) -> list[dict[str, float | None]]:
    return [_counted(statistics, player) for player in range(len(statistics.mean))]


def _numbers(values: Sequence[float]) -> list[float | None]:
    return [_number(value) for value in values]


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


COMMAND = Command(
    name="tournament",
    summary="Run a round-robin tournament of policies, files and bots: intervals, ratings, cross-table.",
    examples=(
        ("ludus tournament try1 try2 bot:random", "the final results of two runs, and a random player"),
        (
            "ludus tournament try1@best try1@0/0-12 bot:ismcts,simulations=1000 --workers 2",
            "two policies and a search bot",
        ),
        (
            "ludus tournament try1 try2 bot:random --budget 20000",
            "adaptive: play the pairs whose ranking is undecided",
        ),
        (
            "ludus tournament try1 try2 bot:random --rating elo,nash_average",
            "with two ratings; the first one orders the table",
        ),
        ("ludus tournament bot:mcts my.players:Cautious --env openspiel/connect_four", "a custom bot"),
        (
            "ludus tournament try1 command:./agent.py sb3:ppo.zip",
            "a program that speaks JSON lines, a file of Stable-Baselines3",
        ),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
    trusts=True,
)
