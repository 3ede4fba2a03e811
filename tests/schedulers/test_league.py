"""The league: the contract, and a league of two chunks step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scheduler_tools import answered

from ludus.core.errors import ConfigError, RunError
from ludus.core.types import OpponentFactor, PolicyRef
from ludus.metagame.population.base import View
from ludus.metagame.solvers.nash import Nash
from ludus.schedulers.league import LeagueOptions, LeagueRules, LeagueScheduler
from ludus.schedulers.pbt import TuningRules
from ludus.testing.meta_solver import exact_view
from ludus.testing.scheduler import check_scheduler


def a_league(population: tuple[int, ...] = (0, 0), **options: Any) -> LeagueScheduler:
    return LeagueScheduler(LeagueOptions(**options), population=population)


@pytest.mark.parametrize(("population", "generations"), [((0,), 2), ((0, 0), 2), ((0, 0, 1, 2), 1)], ids=str)
def test_league_satisfies_scheduler_contract(population: tuple[int, ...], generations: int) -> None:
    check_scheduler(lambda: a_league(population, generations=generations), population=population)


def test_league_satisfies_scheduler_contract_with_options() -> None:
    rules = LeagueRules(least=1, most=2, reset=0.5)
    options = {"main": 2, "main_exploiters": 0, "league_exploiters": 1, "rules": rules, "decay": 0.5}
    check_scheduler(
        lambda: a_league((0, 1), generations=2, meta_solver=Nash(), **options),
        population=(0, 1),
        initial=2,
    )
    check_scheduler(lambda: a_league(generations=3, cells="all", **options), population=(0, 0))


def test_a_league_needs_a_main_agent_and_someone_to_begin_with() -> None:
    with pytest.raises(ConfigError, match="main"):
        a_league(main=0)
    with pytest.raises(ConfigError, match="LeagueRules; given a TuningRules"):
        a_league(rules=TuningRules())
    empty = View(((),), exact_view(np.zeros((2, 1, 1)), zero_sum=True, population=(0, 0)))
    with pytest.raises(ConfigError, match="empty"):
        a_league(generations=1).next_tasks(empty, free=9)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"main": 2}, "main: 1, and the options say main: 2"),
        ({"main_exploiters": 0}, "main_exploiters: 1, and the options say main_exploiters: 0"),
        ({"league_exploiters": 3}, "league_exploiters: 2, and the options say league_exploiters: 3"),
        ({"population": (0, 1)}, r"populations: \[0\]"),
    ],
)
def test_a_league_of_other_players_cannot_go_on(changed: dict[str, object], message: str) -> None:
    state = a_league(generations=2).state_dict()
    other = a_league(generations=2, **changed)
    with pytest.raises(RunError, match=message):
        other.load_state_dict(state)
    assert other.state_dict() == a_league(generations=2, **changed).state_dict()


def refs(*names: str) -> tuple[PolicyRef, ...]:
    return tuple(PolicyRef(0, name) for name in names)


def view(row: list[list[float]], *names: str) -> View:
    matrix = np.array(row)
    return View((refs(*names),), exact_view(np.stack([matrix, -matrix]), zero_sum=True, population=(0, 0)))


def test_two_chunks() -> None:
    league = a_league(
        generations=2,
        league_exploiters=0,
        rules=LeagueRules(least=1, most=2),
        start="imitation.safetensors",
        span=(-1, 1),
    )
    assert league.together == 2
    now = view([[0.0]], "first")
    announcement, main, exploiter = league.next_tasks(now, free=3)
    assert announcement.solution.marginals[0].tolist() == [1.0]
    live = PolicyRef(0, "main-0-1", None)
    assert main.opponents.factors[0] == OpponentFactor((0,), (refs("first"), (live,)), (0.5, 0.5))
    assert main.opponents.factors[1].seats == (1,)
    assert exploiter.opponents.factors[0] == OpponentFactor((0,), ((live,),), (1.0,))
    assert (exploiter.id, exploiter.policy, exploiter.length) == ("chunk-0-main_exploiter-0-1", "main_exploiter-0-1", 0)
    assert (main.start, main.continues, main.keep, main.length) == ("imitation.safetensors", None, True, 2)
    # the main agent wins 0.6 against the first one, the exploiter 0.8 against the main agent
    now = view([[0, -0.2, 0], [0.2, 0, -0.6], [0, 0.6, 0]], "first", main.policy, exploiter.policy)
    answered(league, [announcement, main, exploiter], now)
    announcement, main, exploiter = league.next_tasks(now, free=3)
    assert announcement.solution.marginals[0].tolist() == [0.0, 1.0, 0.0]
    assert (main.continues, main.start) == ("chunk-0-main-0-1", None)  # it was not ready, at 0.6
    assert (exploiter.continues, exploiter.start) == (None, "imitation.safetensors")  # it was, and starts anew
    # squared against first and the exploiter's checkpoint: 0.16, 0.64 of 0.8; the latter is below 0.3 and gets the 0.15
    factor = main.opponents.factors[1]
    assert factor.entries == (refs("first"), refs("main_exploiter-0-1"), (PolicyRef(0, "main-0-2", None),))
    np.testing.assert_allclose(factor.probs, [0.1, 0.4 + 0.15, 0.35])


def test_only_what_matchmaking_needs_is_evaluated() -> None:
    league = a_league(generations=3, league_exploiters=1, rules=LeagueRules(least=1, most=1))
    now = view([[0.0]], "first")
    tasks = league.next_tasks(now, free=4)
    names = ["first", *(task.policy for task in tasks[1:])]  # main, main exploiter, league exploiter
    full = exact_view(np.zeros((2, 4, 4)), zero_sum=True, population=(0, 0))
    unknown = type(full)(
        full.mean, full.count, full.m2, np.zeros((4, 4), bool), full.utility_range, full.population, True
    )
    answered(league, tasks, View((refs(*names),), unknown))
    (holes,) = league.next_tasks(View((refs(*names),), unknown), free=4)
    # main against first; main exploiter against main and first (main agents' checkpoint); league exploiter against first
    assert holes.profiles == ((0, 1), (0, 2), (0, 3), (1, 0), (1, 2), (2, 0), (2, 1), (3, 0))


def test_a_meta_solver_needs_the_main_agents_cells_only():
    assert not LeagueOptions(meta_solver="nash").complete
    assert LeagueOptions(meta_solver="nash", cells="all").complete
