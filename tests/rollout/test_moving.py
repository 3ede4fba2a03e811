"""A task's opponents from request to request: live refs, moved probabilities, averages, and going on from a state."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.core.types import AdaptiveMixture, Mixture, OpponentFactor, PolicyRef
from ludus.rollout.base import EpisodeResults
from ludus.rollout.opponents import AdaptiveOpponents, live_refs, opponent_results

A, B, C = (PolicyRef(0, name) for name in "abc")
LIVE = PolicyRef(0, "me", None)


def episodes(returns: list[list[float]], *, seat: list[int], entry: list[list[int]]) -> EpisodeResults:
    n = len(returns)
    return EpisodeResults(
        np.array(returns, float).reshape(n, -1),
        np.ones(n, np.int32),
        np.ones(n, bool),
        np.array(seat, np.int8),
        np.array(entry, np.int32),
        np.arange(n),
    )


def nobody(ref: PolicyRef) -> PolicyRef:
    raise AssertionError


def test_win_rates_of_entries_from_episodes() -> None:
    played = episodes(
        [[1.0, -1.0], [-2.0, 2.0], [0.0, 0.0], [3.0, -3.0]],
        seat=[0, 1, 0, 1],
        entry=[[-1, 1], [0, -1], [-1, 1], [2, -1]],
    )
    seen = opponent_results(played, [(0,), (1,)], [0, 1], 3)
    assert seen.played.tolist() == [1, 2, 1]
    np.testing.assert_allclose(seen.value, [-2.0, -0.5, 3.0])  # the entry's own: returns of seats 0, (1, 1), 0
    np.testing.assert_allclose(seen.won, [1.0, 1.5, 0.0])  # of the learner; the draw counts half


def test_a_joint_entry_is_worth_the_mean_of_its_seats_without_the_learner() -> None:
    played = episodes([[1.0, 2.0, 6.0], [5.0, 5.0, 0.0]], seat=[0, 2], entry=[[0], [1]])
    seen = opponent_results(played, [(0, 1, 2)], [0], 3)
    np.testing.assert_allclose(seen.value, [4.0, 5.0, np.nan])
    assert seen.played.tolist() == [1, 1, 0]


def test_live_refs_become_versions_and_the_rest_stays() -> None:
    mixture = Mixture((OpponentFactor((1,), ((LIVE,), (A,)), (0.8, 0.2)),))
    moving = AdaptiveOpponents(mixture)
    assert live_refs(mixture) == (LIVE,)
    now = moving.mixture(lambda ref: ref._replace(version=7))
    assert now == Mixture((OpponentFactor((1,), ((PolicyRef(0, "me", 7),), (A,)), (0.8, 0.2)),))
    moving.learn(episodes([[1.0, 0.0]], seat=[0], entry=[[1]]))
    assert moving.average is None


@pytest.mark.parametrize(("explore", "met"), [(0.0, [0.4, 0.6, 0.0, 0.0]), (0.3, [0.4, 0.48, 0.06, 0.06])])
def test_a_rule_moves_all_but_live_entries_and_factors_with_the_same_entries_as_one(
    explore: float, met: list[float]
) -> None:
    """What it explores is met, and no part of the mean."""
    entries = ((LIVE,), (A,), (B,), (C,))
    start = Mixture(tuple(OpponentFactor((seat,), entries, (0.4, 0.2, 0.2, 0.2)) for seat in (0, 1)))
    moving = AdaptiveOpponents(AdaptiveMixture(start, "regret_matching_plus", {"explore": explore}))
    # The learner in seat 0 meets a (whose own return is 2), in seat 1 b (1) and c (0); what seat 0 has seen counts in seat 1 too.
    moving.learn(
        episodes(
            [[-2.0, 2.0], [1.0, -1.0], [0.0, 0.0], [9.0, -9.0]],
            seat=[0, 1, 1, 1],
            entry=[[-1, 1], [2, -1], [3, -1], [0, -1]],
        )
    )
    for factor in moving.mixture(lambda ref: ref._replace(version=1)).factors:
        np.testing.assert_allclose(factor.probs, met)  # regrets 1, 0, -1
    assert moving.average is not None
    np.testing.assert_allclose(
        moving.average.factors[1].probs, [0.4, 0.2, 0.2, 0.2]
    )  # that of the one round that was played
    moving.learn(episodes([[-2.0, 2.0]], seat=[0], entry=[[-1, 1]]))
    np.testing.assert_allclose(moving.average.factors[1].probs, [0.4, 0.4, 0.1, 0.1])


def test_one_entry_stays_what_it_is() -> None:
    moving = AdaptiveOpponents(AdaptiveMixture(Mixture.product({1: ([A], [1.0])}), "hedge"))
    moving.learn(episodes([[1.0, -1.0]], seat=[0], entry=[[0]]))
    assert moving.mixture(nobody).factors[0].probs == (1.0,)
    assert moving.average is not None
    assert moving.average.factors[0].probs == (1.0,)


@pytest.mark.parametrize("rule", ["hedge", "regret_matching_plus", "pfsp", "quality"])
def test_it_goes_on_from_a_state(rule: str) -> None:
    rng = np.random.default_rng(3)
    opponents = AdaptiveMixture(Mixture.product({1: ([A, B, C], [0.5, 0.25, 0.25])}), rule)

    def some() -> EpisodeResults:
        won = rng.normal(size=20)
        return episodes(
            np.stack([won, -won], axis=1).tolist(), seat=[0] * 20, entry=rng.integers(3, size=(20, 1)).tolist()
        )

    one = AdaptiveOpponents(opponents)
    one.learn(some())
    other = AdaptiveOpponents(opponents)
    other.load_state_dict(state := one.state_dict())
    before = repr(state)
    for _ in range(3):
        seen = some()
        one.learn(seen)
        other.learn(seen)
    assert one.mixture(nobody) == other.mixture(nobody)
    assert one.average == other.average
    assert repr(state) == before, "it may be written later"
