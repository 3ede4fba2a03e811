"""α-Rank's masses by iteration against the exact ones, and cycles of weighted graphs."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.metagame.analysis.cycles import LONGEST, strongest_cycles
from ludus.metagame.analysis.profile_masses import SETTLED, iterated_masses, iterated_policy_masses
from ludus.metagame.analysis.response_graph import alpha_rank_masses, better_replies, strong_components
from ludus.metagame.solvers.alpha_rank import multi_population


@pytest.mark.parametrize("sizes", [(3, 4, 3), (12, 15)])
@pytest.mark.parametrize("values", [1000, 4])  # few values: many ties
def test_iterated_masses_are_alpha_rank_s(sizes: tuple[int, ...], values: int) -> None:
    mean = np.random.default_rng(values).integers(0, values, (len(sizes), *sizes)).astype(float)
    mean[-1] = -mean[:-1].sum(axis=0)
    components = strong_components(*better_replies(mean, 0.0), mean[0].size)
    assert components.sink.sum() == 1
    moves = multi_population(mean)
    exact = alpha_rank_masses(moves.source, moves.target, moves.gain, moves.states, 0.0)
    masses = iterated_masses(mean, 0.0, np.flatnonzero(components.sink[components.label]))
    assert exact is not None
    assert masses is not None
    assert masses.sum() == pytest.approx(1.0)
    assert np.abs(masses - exact).sum() < 10 * SETTLED


def test_iterated_masses_of_policies_are_alpha_rank_s() -> None:
    rng = np.random.default_rng(0)
    gain = np.triu(rng.integers(-3, 4, (40, 40)).astype(float), 1)  # with ties
    gain -= gain.T
    components = strong_components(*np.nonzero(gain >= 0.0), 40)
    source, target = np.nonzero(~np.eye(40, dtype=np.bool_))
    exact = alpha_rank_masses(source, target, gain[source, target], 40, 0.0)
    masses = iterated_policy_masses(gain, 0.0, np.flatnonzero(components.sink[components.label]))
    assert exact is not None
    assert masses is not None
    assert np.abs(masses - exact).sum() < 10 * SETTLED
    alone = iterated_policy_masses(gain, 0.0, np.array([7]))
    assert alone is not None
    assert alone.argmax() == 7


def test_a_sink_of_one_profile_has_all_mass() -> None:
    mean = np.stack([np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[0.0, 1.0], [0.0, 1.0]])])
    masses = iterated_masses(mean, 0.0, np.array([3]))
    assert masses is not None
    assert masses.tolist() == [0.0, 0.0, 0.0, 1.0]


def test_a_cycle_s_weakest_edge_counts_not_its_length() -> None:
    gain = np.full((5, 5), np.nan)
    gain[0, 1] = gain[1, 2] = gain[2, 0] = 0.3
    gain[2, 3] = gain[3, 4] = gain[4, 2] = 0.5
    gain[1, 0] = 0.1  # the shortest, but weak
    assert sorted(strongest_cycles(gain, 1)[0]) == [2, 3, 4]
    assert strongest_cycles(np.full((2, 2), np.nan), 1) == []
    ring = np.full((LONGEST + 1, LONGEST + 1), np.nan)
    ring[np.arange(LONGEST + 1), (np.arange(LONGEST + 1) + 1) % (LONGEST + 1)] = 1.0
    assert strongest_cycles(ring, 1) == []  # too long
    ring[3, 0] = 0.5
    assert strongest_cycles(ring, 1) == [[0, 1, 2, 3]]


def test_the_strongest_cycles_come_first() -> None:
    weight = np.full((7, 7), np.nan)
    weak, strong = [0, 1, 2], [3, 4, 5, 6]
    weight[weak, [*weak[1:], weak[0]]] = 1.0
    weight[strong, [*strong[1:], strong[0]]] = 2.0
    assert [sorted(cycle) for cycle in strongest_cycles(weight, 5)] == [strong, weak]
    assert [sorted(cycle) for cycle in strongest_cycles(weight, 1)] == [strong]
    weight[4, 3] = 1.5  # closes a cycle whose vertices are known
    assert [sorted(cycle) for cycle in strongest_cycles(weight, 5)] == [strong, weak]
    assert strongest_cycles(np.triu(np.ones((4, 4)), 1), 3) == []
    cycle = strongest_cycles(weight, 1)[0]
    assert all(weight[a, b] == 2.0 for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
