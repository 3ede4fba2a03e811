"""A tournament on a compiled game tree, computed instead of played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ludus.envs.game_tree import GameTree
from ludus.errors import ConfigError
from ludus.evaluation.tournament.field import Entrant, Field
from ludus.evaluation.tournament.meetings import Meeting, meetings_of
from ludus.evaluation.tournament.report import TournamentReport, report_of
from ludus.evaluation.tournament.results import Result
from ludus.evaluation.tournament.store import Order
from ludus.population.ratings.base import Rater

_NOTHING = np.zeros(0)


def computable(field: Field) -> bool:
    """Whether the game is a compiled tree, and what everybody does is a function of its states."""
    enumeration = field.spec.enumeration
    return enumeration is not None and all(
        who.policy is not None and who.policy.tabulate(enumeration, p, mode=who.mode) is not None
        for entrant in field.entrants
        for p, seat in enumerate(entrant.seats)
        if seat is not None
        for who in seat.players
    )


def exact_tournament(
    field: Field, *, raters: Mapping[str, Rater] | None = None, camps: Mapping[str, int] | None = None
) -> TournamentReport:
    """Expected returns of all meetings. raters: as `report_of` takes them. camps: as `meetings_of` does.

    Raises ConfigError for a game without a tree, and for an entrant that cannot be tabulated (a bot, or a policy with memory); what the
    raters raise.
    """
    env = field.settings.make(num_envs=1)
    tree = getattr(env, "tree", None)
    env.close()
    if not isinstance(tree, GameTree):
        raise ConfigError(
            f"{field.spec.id} is not compiled into a tree, so nothing can be computed; leave out --exact."
        )
    able = {e.name: [seat is not None for seat in e.seats] for e in field.entrants}
    meetings = meetings_of(able, field.spec.symmetry, camps)
    place: list[dict[str, int]] = [{} for _ in range(tree.num_players)]
    stacks = []
    for p in range(tree.num_players):
        here = [e for e in field.entrants if e.seats[p] is not None]
        place[p] = {e.name: k for k, e in enumerate(here)}
        stacks.append(np.array([_plan(tree, e, p) for e in here]))
    by_profile = np.ascontiguousarray(np.moveaxis(tree.payoffs(stacks), 0, -1))
    results = [_result(meeting, by_profile, place) for meeting in meetings]
    return report_of(results, folder=None, spec=field.spec, seats=able, raters=raters)


def _plan(tree: GameTree, entrant: Entrant, player: int) -> NDArray[np.float64]:
    """float64[S_p]: of the mixture that an entrant sends to this seat."""
    seat = entrant.seats[player]
    assert seat is not None
    plan = np.zeros(tree.num_sequences(player))
    for who, prob in zip(seat.players, seat.probs, strict=True):
        table = None if who.policy is None else who.policy.tabulate(tree.enumeration, player, mode=who.mode)
        if table is None:
            raise ConfigError(
                f"{entrant.name!r} is a bot, or has memory: its returns can be played, not computed. Leave out --exact."
            )
        plan += prob * tree.realisation(player, table)
    return plan


def _result(meeting: Meeting, by_profile: NDArray[np.float64], place: Sequence[dict[str, int]]) -> Result:
    """by_profile: float64[n_0, …, P]."""
    orders = []
    total, count = dict.fromkeys(meeting.entrants, 0.0), dict.fromkeys(meeting.entrants, 0)
    for seats in meeting.orders:
        values = by_profile[tuple(place[p][name] for p, name in enumerate(seats))]
        orders.append(Order(seats, 0, values, _NOTHING, ()))
        for name, value in zip(seats, values.tolist(), strict=True):
            total[name] += value
            count[name] += 1
    mean = np.array([total[name] / count[name] for name in meeting.entrants])
    return Result(meeting, 0, mean, np.zeros_like(mean), tuple(orders), exact=True)
