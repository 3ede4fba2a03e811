"""Online double oracle: its rule by hand, its regret against the bound, the contract, and literal tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scheduler_tools import answered

from ludus.core.errors import ConfigError
from ludus.core.types import EvaluationTask, PolicyRef
from ludus.metagame.population.base import View
from ludus.schedulers.odo import ODOOptions, ODOScheduler, OnlinePlayer
from ludus.testing.meta_solver import exact_view
from ludus.testing.scheduler import check_scheduler

RPS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def odo(population: tuple[int, ...] = (0, 1), **options: Any) -> ODOScheduler:
    return ODOScheduler(ODOOptions(**{"generations": 3, "seed": 0, **options}), population=population)


@pytest.mark.parametrize(
    ("population", "initial", "options"),
    [
        ((0, 0), 1, {"begin": "last"}),
        ((0, 1), 1, {"average": "window"}),
        ((0, 1), (1, 2), {"improvement": 0.05}),
    ],
    ids=str,
)
def test_odo_satisfies_scheduler_contract(
    population: tuple[int, ...], initial: int | tuple[int, ...], options: dict[str, Any]
) -> None:
    check_scheduler(
        lambda: odo(population, rounds=5, **options), population=population, initial=initial, everywhere=initial != 1
    )


# ---------------------------------------------------------------------------------------------- the rule


def test_two_rounds_by_hand() -> None:
    """Rock, paper and scissors against rock: after one round they would have earned 0, 1, -1 of a unit of 2, at rate sqrt(4 ln 3)."""
    player, rock = OnlinePlayer.of(3, 3), np.array([1.0, 0.0, 0.0])
    first = player.strategy(2.0)
    assert first.tolist() == [1 / 3] * 3
    player.observe(first, rock, RPS @ rock)
    raised = np.exp(np.sqrt(4 * np.log(3)) / 2)
    np.testing.assert_allclose(player.strategy(2.0), np.array([1, raised, 1 / raised]) / (1 + raised + 1 / raised))
    player.observe(player.strategy(2.0), np.array([0.0, 1.0, 0.0]), RPS @ [0, 1, 0])
    assert player.mean_met().tolist() == [0.5, 0.5, 0.0]
    assert player.gains.tolist() == [-1.0, 1.0, 0.0]


def test_a_new_strategy_begins_a_window() -> None:
    player = OnlinePlayer.of(2, 1)
    player.observe(np.array([0.25, 0.75]), np.ones(1), np.array([1.0, 2.0]))
    player.resize(4, 2)
    player.grow(3, begin="last")
    assert player.effective == [0, 1, 3]
    np.testing.assert_allclose(player.strategy(1.0), [1 / 6, 0.5, 0.0, 1 / 3])
    assert (player.rounds, player.met.tolist(), player.past.tolist()) == (0, [0, 0], [0.25, 0.75, 0, 0])
    player.observe(np.array([0.0, 0.0, 0.0, 1.0]), np.array([0.0, 1.0]), np.zeros(4))
    assert player.mean_played(all_windows=False).tolist() == [0, 0, 0, 1]
    assert player.mean_played(all_windows=True).tolist() == [0.125, 0.375, 0, 0.5]
    uniform = OnlinePlayer.of(2, 1)
    uniform.resize(3, 1)
    uniform.grow(2, begin="uniform")
    np.testing.assert_allclose(uniform.strategy(1.0), 1 / 3)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rounds", [10, 100, 1000])
def test_regret_is_within_the_bound(rounds: int, seed: int) -> None:
    """Against the opponent that answers best to what is about to be played, and one that plays anything."""
    rng, player = np.random.default_rng(seed), OnlinePlayer.of(3, 3)
    earned, gains = 0.0, np.zeros(3)
    for _ in range(rounds):
        mine = player.strategy(2.0)
        worst = np.eye(3)[np.argmin(mine @ RPS)]
        other = worst if seed == 0 else rng.dirichlet(np.full(3, 0.1))
        player.observe(mine, other, RPS @ other)
        earned += mine @ RPS @ other
        gains += RPS @ other
    regret = (gains.max() - earned) / 2.0  # in units of payoffs between 0 and 1
    assert regret <= np.sqrt(2 * rounds * np.log(3)) + np.sqrt(np.log(3) / 8)


def exact_rounds(generations: int, rounds: int, seat: float = 0.0) -> list[float]:
    """NashConv of the announced means in rock, paper, scissors, whose players begin with rock alone, and answer exactly. seat: what the
    first player is paid for being it."""
    scheduler = odo(generations=generations, rounds=rounds)
    held, found = [[0], [0]], []
    while True:
        names = tuple(tuple(PolicyRef(k, f"{k}-{i}") for i in range(len(some))) for k, some in enumerate(held))
        table = RPS[np.ix_(*held)]
        now = View(names, exact_view(np.stack([table + seat, -table - seat]), zero_sum=True))
        tasks = scheduler.next_tasks(now, free=3)
        if not tasks:
            return found
        means = [np.bincount(some, m, 3) for some, m in zip(held, tasks[0].solution.marginals, strict=True)]
        found.append(float((RPS @ means[1]).max() + (-means[0] @ RPS).max()))
        for task in tasks[1:]:
            other = task.opponents.factors[1 - task.population]
            met = np.zeros(3)
            for (ref,), prob in zip(other.entries, other.probs, strict=True):
                met[held[ref.population][int(ref.policy[2:])]] += prob
            held[task.population].append(int(np.argmax(RPS @ met)))  # symmetric: the same for both
        answered(scheduler, tasks, now)


def test_average_exploitability_falls_and_only_better_responses_play() -> None:
    found = exact_rounds(40, 25)
    assert found[0] == pytest.approx(2.0)
    assert found[40] < found[20] < found[10] < found[3] < 1.0
    bound = 2 * 2 * (np.sqrt(2 * 3 * 41 * 25 * np.log(3)) + 3 * np.sqrt(np.log(3) / 8) + 3 * 25) / (41 * 25)
    assert found[40] <= bound


# ---------------------------------------------------------------------------------------------- tasks


def view(table: list[list[float]], *, of: tuple[int, int] | None = None) -> View:
    """Of payoffs of player 0."""
    payoff = np.array(table)
    names = tuple(tuple(PolicyRef(k, f"{k}-{i}") for i in range(n)) for k, n in enumerate(payoff.shape))
    return View(names, exact_view(np.stack([payoff, -payoff]), zero_sum=True))


def test_constant_seat_payoffs_change_nothing() -> None:
    np.testing.assert_allclose(exact_rounds(4, 50, seat=10.0), exact_rounds(4, 50), atol=1e-9)


def test_responses_are_to_what_was_met_in_the_window() -> None:
    scheduler = odo(rounds=1)
    now = view([[0.0]])
    announced, *responses = scheduler.next_tasks(now, free=3)
    assert isinstance(announced, EvaluationTask)
    answered(scheduler, [announced, *responses], now)
    # player 0's new policy beats what there was, player 1's does not
    now = view([[0.0, 0.0], [1.0, 0.5]])
    announced, first, second = scheduler.next_tasks(now, free=3)
    assert [m.tolist() for m in announced.solution.marginals] == [[0.75, 0.25], [1.0, 0.0]]
    # player 1 has met (1, 0) and then (0.5, 0.5); player 0, in its new window, (1, 0)
    assert [factor.probs for factor in first.opponents.factors] == [(0.75, 0.25), (1.0,)]
    assert first.opponents == second.opponents
    answered(scheduler, [announced, first, second], now)
    # who does not play is not evaluated any more: player 1's policy 1
    known = np.array([[0.0, 0.0, np.nan], [1.0, 0.5, np.nan], [np.nan] * 3])
    refs = tuple(tuple(PolicyRef(k, f"{k}-{i}") for i in range(3)) for k in range(2))
    payoffs = exact_view(np.stack([known, -known]), zero_sum=True)
    (task,) = scheduler.next_tasks(View(refs, replace(payoffs, exact=~np.isnan(known))), free=3)
    assert task.profiles == ((0, 2), (1, 2), (2, 0), (2, 2))


def test_odo_rejects_invalid_settings() -> None:
    with pytest.raises(ConfigError, match="odo is for two players; this game has 3"):
        odo((0, 1, 2))
    with pytest.raises(ConfigError, match="warm_start best compares payoffs"):
        ODOOptions(warm_start="best")
