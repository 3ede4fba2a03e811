"""Which matches are asked for before a meta-game is solved: by hand, and under the contract of schedulers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from ludus.core.errors import ConfigError
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers.fixed import Uniform
from ludus.metagame.solvers.nash import Nash
from ludus.schedulers.anytime import AnytimePSROOptions, AnytimePSROScheduler
from ludus.schedulers.league import LeagueOptions, LeagueScheduler
from ludus.schedulers.pipeline import PipelinePSROOptions, PipelinePSROScheduler
from ludus.schedulers.planning import AdaptiveSelection, AllMissing, MatchSelection
from ludus.schedulers.psro import PSROOptions, PSROScheduler
from ludus.schedulers.self_play import SelfPlayOptions, SelfPlayScheduler
from ludus.testing.scheduler import check_scheduler


def view(count: Any, *, exact: Any = False, population: tuple[int, ...] = (0, 1)) -> Payoffs:
    """Payoffs of 0 with a spread of 1, counted so often; NaN in holes."""
    count = np.array(count)
    exact = np.broadcast_to(exact, count.shape).copy()
    mean = np.where(exact | (count > 0), 0.0, np.nan)[None].repeat(count.ndim, axis=0)
    m2 = np.maximum(count - 1.0, 0.0)[None].repeat(count.ndim, axis=0)
    return Payoffs(mean, count, m2, exact, ((-1.0, 1.0),) * count.ndim, population, True)


def adaptive(**options: Any) -> AdaptiveSelection:
    return AdaptiveSelection(**{"solver": Nash(), "budget": 200, "portion": 10, "episodes": 30, "seed": 0, **options})


def test_every_hole_once() -> None:
    rule, known = AllMissing(), view([[0, 5, 0], [0, 0, 5]], exact=[[True, False, False], [False] * 3])
    game = {0: [0, 1], 1: [1, 2]}
    assert rule.next_profiles(known, game=game, needed=[(1, 0), (0, 0)]) == ((0, 2), (1, 0), (1, 1))
    assert rule.next_profiles(known, game=game) == (), "asked for once"
    rule.begin()
    assert rule.next_profiles(known, game=None, needed=[(1, 0), (1, 0)]) == ((1, 0),)
    assert rule.completed(known) is known


def test_needed_cells_get_their_episodes_in_portions_and_every_order() -> None:
    rule, known = adaptive(), view([[0, 15, 0], [15, 0, 30], [0, 30, 0]], population=(0, 0))
    found = Counter(rule.next_profiles(known, game=None, needed=[(0, 1), (1, 2), (2, 0)]))
    assert found == {(0, 1): 2, (1, 0): 2, (0, 2): 3, (2, 0): 3}, "15 more of 30 are two portions of 10, 30 are three"
    assert rule.next_profiles(known, game=None, needed=[(0, 1)]) == (), "asked for once"


def test_the_game_is_a_part_of_the_table() -> None:
    """Policies 1 and 3 against 0 and 2; all other cells are nobody's business."""
    rule, game = adaptive(start=None, budget=800), {0: [1, 3], 1: [0, 2]}
    first = rule.next_profiles(view(np.zeros((4, 3), int)), game=game)
    assert sorted(first) == [(1, 0), (1, 2), (3, 0), (3, 2)]
    count = np.zeros((4, 3), int)
    count[np.ix_([1, 3], [0, 2])] = 10
    more = rule.next_profiles(view(count), game=game)
    assert set(more) <= set(first)
    assert len(more) > 4, "several portions at a time"


def test_nothing_where_all_that_counts_is_exact() -> None:
    exact = np.ones((2, 2), bool)
    assert adaptive().next_profiles(view(np.zeros((2, 2), int), exact=exact), game={0: [0, 1], 1: [0, 1]}) == ()
    exact[1] = False
    assert adaptive().next_profiles(view(np.zeros((2, 2), int), exact=exact), game={0: [0], 1: [0, 1]}) == ()


def test_nobody_has_a_choice() -> None:
    rule, game = adaptive(), {0: [0], 1: [0]}
    assert rule.next_profiles(view([[0]]), game=game) == ((0, 0),), "solvers need a payoff"
    assert rule.next_profiles(view([[10]]), game=game) == ()


def played(
    rule: MatchSelection, sizes: tuple[int, ...], *, stop: int = 100
) -> tuple[list[tuple[Any, ...]], np.ndarray]:
    """What it asks for until it wants nothing or has asked `stop` times, and the counts in the end."""
    count, asked = np.zeros(sizes, int), []
    game = {p: range(n) for p, n in enumerate(sizes)}
    while len(asked) < stop and (profiles := rule.next_profiles(view(count), game=game)):
        asked.append(profiles)
        np.add.at(count, tuple(np.array(profiles).T), 10)
    return asked, count


def test_the_budget_is_of_one_meta_game() -> None:
    rule = adaptive(budget=400, batch=100, start=2)
    first, count = played(rule, (4, 4))
    assert 350 <= count.sum() <= 400
    assert len(first) > 2, "it looks again after each batch"
    assert not np.isnan(rule.completed(view(count)).mean).any()
    assert rule.next_profiles(view(count), game={0: range(4), 1: range(4)}) == ()
    rule.begin()
    again, _ = played(rule, (4, 4))
    assert again != first, "the next meta-game begins with other profiles"


def test_it_goes_on_from_its_state() -> None:
    whole, _ = played(adaptive(batch=50, start=2), (4, 4))
    rule, count = adaptive(batch=50, start=2), np.zeros((4, 4), int)
    for k, expected in enumerate(whole):
        state = rule.state_dict()
        rule = adaptive(batch=50, start=2)
        rule.load_state_dict(state)
        found = rule.next_profiles(view(count), game={0: range(4), 1: range(4)})
        assert found == expected, f"step {k}"
        np.add.at(count, tuple(np.array(found).T), 10)


def test_numbers_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="portion 0"):
        adaptive(portion=0)


def check(make: Any, options: Any, population: tuple[int, ...], *, solver: Any = None, **chosen: Any) -> None:
    """The contract of a scheduler of two generations, or fewer, that samples adaptively with its own solver."""
    solver = solver or Uniform()

    def made() -> Any:
        selection = adaptive(solver=solver, budget=20, portion=5, episodes=10, batch=10, start=1)
        return make(
            options(**{"meta_solver": solver, "generations": 2, **chosen}), population=population, selection=selection
        )

    check_scheduler(made, population=population)


def test_adaptive_evaluation_keeps_psro_scheduler_contract() -> None:
    check(PSROScheduler, PSROOptions, (0, 0), solver=Nash(), generations=1)
    check(PSROScheduler, PSROOptions, (0, 1, 1), generations=1)
    check(PSROScheduler, PSROOptions, (0, 1), generations=1, order="sequential")


@pytest.mark.slow
def test_adaptive_evaluation_keeps_other_scheduler_contracts() -> None:
    check(AnytimePSROScheduler, AnytimePSROOptions, (0, 1), generations=1)
    check(PipelinePSROScheduler, PipelinePSROOptions, (0, 1), generations=1, most=1)
    check(LeagueScheduler, LeagueOptions, (0, 0), generations=1)
    check(SelfPlayScheduler, SelfPlayOptions, (0, 1), generations=1, cells="all")
