"""ludus evaluate"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ludus.cli.command import Command, positive_number
from ludus.cli.output import facts, table
from ludus.errors import ConfigError
from ludus.observe.run_dirs import find_run

if TYPE_CHECKING:  # these imports take a second, which only an evaluation should pay
    from ludus.evaluation.evaluate import EvaluationReport, HeadToHead
    from ludus.exploit import Exploiters

_QUIET, _EVERY = 2.0, 5.0  # seconds before progress is worth a line, and between two


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's name below ./runs, or its directory; it may be going on")
    parser.add_argument("--episodes", type=positive_number, default=10_000, help="per match (default: 10000)")
    parser.add_argument(
        "--policies",
        metavar="NAME",
        nargs="+",
        default=[],
        help="after RUN: who plays, every combination of one per player; `meta` is the last meta-strategy (default: meta and the newest)",
    )
    parser.add_argument(
        "--exploit",
        metavar="EPISODES",
        type=positive_number,
        help="train a policy of each population against the last meta-strategies, for so many episodes, and show what it gains: a lower "
        "bound of their exploitability, for games of any size",
    )
    parser.add_argument("--seed", type=int, default=0, help="of --exploit (default: 0)")


def _execute(options: argparse.Namespace) -> int:
    run_dir = find_run(options.run)
    if options.exploit is not None:
        if options.policies:
            raise ConfigError(
                "--policies was given with --exploit, which is about the last meta-strategies; leave one out."
            )
        from ludus.exploit import exploit_run

        tell = _Progress()
        _show_exploiters(
            exploit_run(run_dir, budget=options.exploit, episodes=options.episodes, seed=options.seed, tell=tell)
        )
        return 0
    from ludus.evaluation.evaluate import evaluate_run

    _show(evaluate_run(run_dir, episodes=options.episodes, policies=options.policies))
    return 0


class _Progress:
    """A line every five seconds on standard error, with the time left for the present population."""

    def __init__(self) -> None:
        self._population = -1
        self._begun = self._next = time.monotonic()

    def __call__(self, population: int, share: float | None) -> None:
        now = time.monotonic()
        if population != self._population:
            self._population, self._begun, self._next = population, now, now + _QUIET
        if now < self._next or not share:
            return
        self._next = now + _EVERY
        from ludus.observe.progress import duration

        left = duration((now - self._begun) * (1 - share) / share)
        with suppress(OSError, ValueError):  # nobody need listen
            sys.stderr.write(f"exploiting, population {population}: {share:.0%}, {left} left\n")


def _show_exploiters(found: Exploiters) -> None:
    from ludus.observe.progress import number, signed

    title = (
        f"{found.env} after generation {found.generation}: exploiters trained for {found.trained:,} episodes, measured in "
        f"{found.episodes:,}"
    )
    rows = [
        [f"player {p}", f"{signed(value, 4)}", f"{signed(gain, 4)} ±{half:.4f}"]
        for p, (value, gain, half) in enumerate(zip(found.value, found.gain, found.half_width, strict=True))
    ]
    table(["in the seat of", "meta-strategy earns", "exploiter gains, 95%"], rows, title=title, left=[0])
    pairs = [("NashConv", f"{number(found.nash_conv)} (at least, 95%)")]
    if len(found.gain) == 2:
        pairs.append(("exploitability", f"{number(found.nash_conv / 2)} (at least, 95%)"))
    pairs += [("training stopped early", failure) for failure in found.failures]
    facts("Meta-strategies", pairs)


def _show(report: EvaluationReport) -> None:
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
    found = report.exploitability
    if found is None:
        return
    from ludus.observe.progress import number

    bound = "" if found.exact else " (at least)"
    pairs = [("NashConv", f"{number(found.nash_conv)}{bound}")]
    if players == 2:
        pairs.append(("exploitability", f"{number(found.nash_conv / 2)}{bound}"))
    pairs += [(f"gain of player {p}", number(gain)) for p, gain in enumerate(found.gain)]
    facts("Meta-strategies", pairs)


def _row(match: HeadToHead, *, exact: bool) -> list[str]:
    from ludus.observe.progress import signed

    row = [*match.policies, *(f"{signed(m, 4)} ±{h:.4f}" for m, h in zip(match.mean, match.half_width, strict=True))]
    if exact:
        row += ["-"] * len(match.policies) if match.exact is None else [signed(value, 4) for value in match.exact]
    row.append("/".join(str(count) for count in match.wins[0]) if match.wins else "-")
    return row


COMMAND = Command(
    name="evaluate",
    summary="Play a run's policies against each other, with confidence intervals, and NashConv where it can be computed.",
    examples=(
        ("ludus evaluate leduc-20261120-120000", "the meta-strategies and the newest policies"),
        ("ludus evaluate runs/try1 --episodes 100000 --policies meta 0-3 1-7", "these against each other"),
        ("ludus evaluate runs/try1 --exploit 200000", "how much a policy trained against them gains"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)
