"""What each side did in a match, in numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.football.events import Events, Follower
from ludus.contrib.football.view import LEFT, NOBODY, OWN, THEIR, Mode, SideView

__all__ = ["NAMES", "MatchStatistics"]

NAMES = (
    "goals",
    "own_goals",
    "shots",
    "shots_on_target",
    "saves",
    "possession",
    "passes",
    "passes_completed",
    "interceptions",
    "tackles",
    "run_with_ball",
    "out_of_play",
    "corners",
    "fouls",
    "off_sides",
    "yellow_cards",
    "red_cards",
)
"""Counts of a side in one match, with two exceptions: possession is the share of the steps with an owner in which the side had the ball
(0.5 where it never had an owner), run_with_ball the metres that the ball moved at its bodies' feet.

goals: what the score says. own_goals: put into the own goal. shots, shots_on_target, saves, passes (with an end, received or not),
passes_completed, interceptions, tackles, fouls, off_sides: as `Events` defines them. out_of_play: how often the side put the ball out.
corners: taken by it. yellow_cards, red_cards: of its bodies; the second yellow card is a red one.
"""
_COLUMN = {name: column for column, name in enumerate(NAMES)}


class MatchStatistics:
    """Adds up one match from one side's views: `begin` with the first, then `see` each step once."""

    def __init__(self) -> None:
        self._follower = Follower()
        self._side = LEFT
        self._counts: list[list[float]] = []
        self._owned = [0, 0]

    def begin(self, view: SideView) -> None:
        """Begin a match."""
        self._follower.begin(view)
        self._side = view.side
        self._counts = [[0.0] * len(NAMES), [0.0] * len(NAMES)]
        self._owned = [0, 0]

    def see(self, before: SideView, after: SideView) -> None:
        """Add what happened from one step to the next."""
        if after.ball_side != NOBODY:
            self._owned[after.ball_side] += 1
        self._count(self._follower.see(before, after))
        self._cards(before, after)

    def totals(self) -> NDArray[np.float64]:
        """Return float64[2, S]: of the left side and of the right, columns in the order of `NAMES`."""
        totals = np.array(self._counts)
        owned = sum(self._owned)
        totals[:, _COLUMN["possession"]] = [count / owned if owned else 0.5 for count in self._owned]
        return totals if self._side == LEFT else totals[::-1].copy()

    def _count(self, events: Events) -> None:
        if events.goal != NOBODY:
            self._add("goals", events.goal)
            if events.own_goal:
                self._add("own_goals", 1 - events.goal)
        self._add("shots", events.shot.side)
        self._add("shots_on_target", events.on_target)
        self._add("saves", events.saved)
        self._add("passes", events.passed)
        if events.completed is not None:
            self._add("passes_completed", events.completed[0].side)
        self._add("interceptions", events.intercepted.side)
        self._add("tackles", events.tackled.side)
        self._add("run_with_ball", events.carried.side, events.metres)
        self._add("out_of_play", events.out)
        if events.restart == Mode.CORNER:
            self._add("corners", 1 - events.out)
        self._add("fouls", events.foul)
        self._add("off_sides", events.off_side)

    def _cards(self, before: SideView, after: SideView) -> None:
        for side, yellow, active, yellows, actives in (
            (OWN, before.own_yellow, before.own_active, after.own_yellow, after.own_active),
            (THEIR, before.their_yellow, before.their_active, after.their_yellow, after.their_active),
        ):
            self._add("yellow_cards", side, float((yellows & ~yellow).sum()))
            self._add("red_cards", side, float((active & ~actives).sum()))

    def _add(self, name: str, side: int, amount: float = 1.0) -> None:
        if side != NOBODY:
            self._counts[side][_COLUMN[name]] += amount
