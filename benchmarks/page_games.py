"""Tables of docs/benchmarks.md about games that have no tree: Goofspiel, hidden boards, connect four."""

from __future__ import annotations

import re

from benchmarks.hidden_boards import TITLES as BOARDS
from benchmarks.page_results import (
    Rows,
    goofspiel_responders,
    goofspiel_runs,
    hidden_board_runs,
    medians,
    number,
    score,
    table,
)


def goofspiel() -> str:
    """Return the population exploitability of each method, by the responders that measured it."""
    medians = goofspiel_runs()
    rows: Rows = [
        (
            "method",
            "population exploitability",
            "at least, whatever the mixture",
            "seeds",
            "responders, their episodes",
            "minutes of training",
        ),
    ]
    for name in medians.names:
        values, responders = medians.values(name, "exploitability"), goofspiel_responders(name)
        interval = ""
        if len(values) == 1:
            low, high = (number(medians(name, end)) for end in ("low", "high"))
            interval = f" [{low}, {high}]"
        rows.append(
            (
                name,
                f"{score(values)}{interval}",
                score(medians.values(name, "floor")),
                str(len(values)),
                f"{responders[0]} × {responders[1]:,}",
                number(medians(name, "seconds") / 60),
            )
        )
    return table(*rows, right=(1, 2, 3, 4, 5))


def hidden_boards() -> str:
    """Return the exact exploitability of each method on hidden boards, a row for each game, budget and method."""
    found = hidden_board_runs()
    rows: Rows = [("game", "method", "moves, M", "exploitability", "seeds", "processor minutes")]
    for name in found.names:
        game, method, budget = re.fullmatch(r"(.*): (.*), (.*) M", name).groups()  # type: ignore[union-attr]
        values = found.values(name, "exploitability")
        minutes = number(found(name, "cpu seconds") / 60)
        rows.append((BOARDS[game], method, budget, score(values), str(len(values)), minutes))
    return table(*rows, right=(2, 3, 4, 5))


def connect_four() -> str:
    """Return the games won on connect four, by search and by networks alone."""
    zero, plain = medians("connect_four_alphazero"), medians("connect_four_mcts")
    rows: Rows = [("player", "against OpenSpiel's MCTS", "games", "won, 95%")]

    def row(player: str, simulations: str, games: float, *shares: float) -> None:
        won, low, high = shares
        rows.append((player, simulations, number(games, 0), f"{won:.3f} [{low:.3f}, {high:.3f}]"))

    for title, key, simulations in (
        ("AlphaZero, 200 simulations", "search against 1000", "1,000"),
        ("AlphaZero, its network alone", "network against 100", "100"),
        ("AlphaZero, its network alone", "network against 1000", "1,000"),
    ):
        shares = (zero("AlphaZero", f"{key}{end}") for end in ("", ": low", ": high"))
        row(title, simulations, zero("AlphaZero", f"{key}: games"), *shares)
    for simulations in ("100", "1000", "10000"):
        ends = (plain("self-play", f"{simulations}: {end}") for end in ("low", "high"))
        won, games = plain("self-play", f"wins against {simulations}"), plain("self-play", f"{simulations}: games")
        row("PPO in self-play, no search", f"{int(simulations):,}", games, won, *ends)
    return table(*rows, right=(1, 2, 3))
