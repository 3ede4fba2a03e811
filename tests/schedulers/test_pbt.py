"""Population based training: exploit and explore by hand, the contract, and literal tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scheduler_tools import answered

from ludus.core.errors import ConfigError, RunError
from ludus.core.types import OpponentFactor, PolicyRef
from ludus.metagame.population.base import View
from ludus.schedulers.league import LeagueRules
from ludus.schedulers.pbt import (
    PBTOptions,
    PBTScheduler,
    Range,
    TuningRules,
    copies,
    matched,
    perturb,
    sample_hyperparameters,
)
from ludus.schedulers.planning import pack_task, unpack_task
from ludus.testing.meta_solver import exact_view
from ludus.testing.scheduler import check_scheduler

RANGES = {"learning_rate": Range(low=1e-4, high=1e-2), "entropy": Range(low=0.0, high=0.1, log=False)}
RULES = TuningRules(fraction=0.5, spread=None)


def pbt(population: tuple[int, ...] = (0, 0), **options: Any) -> PBTScheduler:
    options = {"ranges": RANGES, "learners": 2, **options}
    return PBTScheduler(PBTOptions(**options), population=population)


@pytest.mark.parametrize("population", [(0,), (0, 0), (0, 1, 1)], ids=str)
def test_pbt_satisfies_scheduler_contract(population: tuple[int, ...]) -> None:
    check_scheduler(
        lambda: pbt(population, generations=3, rules=RULES),
        population=population,
        everywhere=population == (0, 0),
    )


def test_pbt_satisfies_scheduler_contract_with_options() -> None:
    rules = TuningRules(every=2, resample=1.0)
    check_scheduler(
        lambda: pbt((0, 1), generations=3, learners=3, rules=rules, cells="all"),
        initial=(2, 1),
    )


def test_ranges() -> None:
    rng = np.random.default_rng(0)
    draws = np.array([Range(low=1e-4, high=1e-2).draw(rng) for _ in range(4000)])
    assert draws.min() >= 1e-4
    assert draws.max() <= 1e-2
    assert np.median(draws) == pytest.approx(1e-3, rel=0.1)  # alike on the logarithmic scale
    linear = np.array([Range(low=-1.0, high=3.0, log=False).draw(rng) for _ in range(4000)])
    assert np.median(linear) == pytest.approx(1.0, abs=0.1)
    for low, high, log in ((2.0, 1.0, False), (0.0, 1.0, True)):
        with pytest.raises(ConfigError, match="low to high"):
            Range(low=low, high=high, log=log)
    with pytest.raises(ConfigError, match="fraction"):
        TuningRules(fraction=0.6)
    with pytest.raises(ConfigError, match="spread is 0, expected above 0"):
        TuningRules(spread=0)


def test_exploring_perturbs_inside_the_range_or_draws_anew() -> None:
    hyper = {"learning_rate": 5e-3, "entropy": 0.05}
    rng = np.random.default_rng(0)
    seen = [perturb(hyper, RANGES, TuningRules(resample=0.0), rng) for _ in range(50)]
    assert {round(s["learning_rate"], 9) for s in seen} == {4e-3, 6e-3}
    assert {round(s["entropy"], 9) for s in seen} == {0.04, 0.06}
    wide = TuningRules(resample=0.0, factors=(0.001, 1000.0))
    assert {s["entropy"] for s in (perturb(hyper, RANGES, wide, rng) for _ in range(50))} == {5e-05, 0.1}
    anew = perturb(hyper, RANGES, TuningRules(resample=1.0), rng)
    assert anew["entropy"] not in (0.04, 0.05, 0.06)


def test_the_worst_copy_the_best() -> None:
    ratings = np.array([0.3, 0.9, 0.1, 0.7, 0.5])
    rng = np.random.default_rng(0)
    assert copies(ratings, TuningRules(fraction=0.2), rng) == {2: 1}
    seen = [copies(ratings, TuningRules(fraction=0.4), rng) for _ in range(50)]
    assert {tuple(sorted(s)) for s in seen} == {(0, 2)}
    assert {s[0] for s in seen} == {1, 3}
    assert copies(ratings, TuningRules(fraction=0.1), rng) == {2: 1}  # at least one
    assert copies(ratings, TuningRules(fraction=0.0), rng) == {}
    assert copies(ratings[:2], TuningRules(), rng) == {0: 1}
    assert copies(ratings[:1], TuningRules(), rng) == {}  # nobody to copy
    assert copies(np.zeros(2), TuningRules(fraction=0.5), rng) == {1: 0}


def test_even_games_are_looked_for() -> None:
    # (1/3)² / (2 / 36) = 2: exp(-2) against 1
    np.testing.assert_allclose(matched(np.array([0.5, 5 / 6]), 1 / 6), np.array([1, np.exp(-2)]) / (1 + np.exp(-2)))
    np.testing.assert_allclose(matched(np.array([0.5, 1.0]), None), [0.5, 0.5])


@pytest.mark.parametrize("extended", [False, True])
def test_the_loser_goes_on_as_a_copy_of_the_winner(extended: bool) -> None:
    """Also where the run was over, and is to go on."""
    rules = TuningRules(fraction=0.5, resample=0.0)
    scheduler = pbt(generations=1 if extended else 2, rules=rules, span=(-1, 1))
    assert scheduler.together == 2
    first = (PolicyRef(0, "first"),)
    now = View((first,), exact_view(np.zeros((2, 1, 1)), zero_sum=True, population=(0, 0)))
    announcement, one, two = scheduler.next_tasks(now, free=3)
    assert (one.id, one.policy, one.keep, one.length) == ("chunk-0-0-1", "0-0-1", True, 1 if extended else 2)
    assert one.overrides != two.overrides
    assert unpack_task(pack_task(one)) == one
    assert one.opponents.factors[0] == OpponentFactor((0,), ((PolicyRef(0, "0-1-1", None),),), (1.0,))
    row = np.array([[0, 0, 0], [0, 0, -0.5], [0, 0.5, 0]])  # the second learner beats the first
    refs = (*first, PolicyRef(0, "0-0-1"), PolicyRef(0, "0-1-1"))
    now = View((refs,), exact_view(np.stack([row, -row]), zero_sum=True, population=(0, 0)))
    answered(scheduler, [announcement, one, two], now)
    announcement, *goes_on = scheduler.next_tasks(now, free=3)
    if extended:
        answered(scheduler, [announcement], now)
        over, scheduler = scheduler, pbt(generations=2, rules=rules, span=(-1, 1))
        assert over.next_tasks(now, free=3) == goes_on == []
        scheduler.load_state_dict(over.state_dict())
        goes_on = scheduler.next_tasks(now, free=3)
    loser, winner = goes_on
    assert announcement.solution.marginals[0].tolist() == [0.0, 0.0, 1.0]
    assert (loser.continues, winner.continues) == ("chunk-0-1-1", "chunk-0-1-1")
    assert winner.overrides == two.overrides
    ratio = loser.overrides["learning_rate"] / winner.overrides["learning_rate"]
    assert min(abs(ratio - 0.8), abs(ratio - 1.2)) < 1e-9 or loser.overrides["learning_rate"] in (1e-4, 1e-2)


def test_opponents_that_were_given_are_rivals() -> None:
    """As members, from place 1 on, beside the other learner, live; all alike while nothing is known of them."""
    scheduler = pbt(generations=1, span=(-1, 1))
    refs = (PolicyRef(0, "0-0"), PolicyRef(0, "bot.a"), PolicyRef(0, "bot.b"))
    payoffs = exact_view(np.zeros((2, 3, 3)), zero_sum=True, population=(0, 0))
    _, one, _ = scheduler.next_tasks(View((refs,), payoffs, initial=(3,)), free=3)
    entries = ((PolicyRef(0, "0-1-1", None),), *((ref,) for ref in refs[1:]))
    assert one.opponents.factors[0] == OpponentFactor((0,), entries, (1 / 3, 1 / 3, 1 / 3))


def test_two_learners_at_least() -> None:
    with pytest.raises(ConfigError, match=r"learners: .* greater than or equal to 2"):
        pbt(learners=1)
    with pytest.raises(ConfigError, match="TuningRules; given a LeagueRules"):
        pbt(rules=LeagueRules())
    assert sample_hyperparameters({}, np.random.default_rng(0)) == {}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"learners": 3}, "learners: 2, and the options say learners: 3"),
        ({"ranges": {"entropy": RANGES["entropy"]}}, r"ranges: \['entropy', 'learning_rate'\]"),
        ({"ranges": {**RANGES, "discount": Range(low=0.9, high=0.99)}}, r"say ranges: \['discount', "),
        ({"population": (0, 1)}, r"populations: \[0\]"),
    ],
)
def test_other_learners_and_other_options_cannot_go_on(changed: dict[str, object], message: str) -> None:
    state = pbt(generations=2).state_dict()
    other = pbt(generations=2, **changed)
    with pytest.raises(RunError, match=message):
        other.load_state_dict(state)
    assert other.state_dict() == pbt(generations=2, **changed).state_dict()
    elsewhere = pbt(generations=2, ranges={**RANGES, "entropy": Range(low=0.0, high=1.0, log=False)})
    elsewhere.load_state_dict(state)
    assert elsewhere.state_dict() == state
