"""What teams' updates are told of each other, by hand: three agents, one of whom may be dead."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ludus.algorithms.common.returns import gae
from ludus.contrib.algorithms.sequential.learner import Team
from ludus.contrib.algorithms.sequential.losses import (
    compound_ratios,
    happo_surrogate,
    joint_surrogate,
    order_clip,
    others_of,
    preceding_advantages,
    trust_region_surrogate,
)
from ludus.contrib.algorithms.sequential.team_rows import TeamRows


def logs(*ratios):
    return torch.tensor([math.log(ratio) for ratio in ratios], dtype=torch.float64)


def test_compound_ratios_of_three_agents():
    """Step 0: 2, 1/2 and 3 make 3. Step 1: agent 1 is dead, and 1/2 and 4 make 2. Rows of one agent follow each other."""
    step = torch.tensor([0, 1, 0, 0, 1])
    ratios = logs(2.0, 0.5, 0.5, 3.0, 4.0)
    np.testing.assert_allclose(compound_ratios(ratios, step, steps=2).exp(), [3.0, 2.0])
    np.testing.assert_allclose(others_of(ratios, step, steps=2), [1.5, 4.0, 6.0, 1.0, 0.5])


def test_a_teammate_that_has_not_been_updated_counts_one():
    """M^{1:m}: before the third turn that of the first two, 2 × 1/2 and, where agent 1 is dead, 1/2; before the second the first's."""
    step = torch.tensor([0, 1, 0, 0, 1])
    for moved, expected in ((1, [2.0, 2.0, 0.5]), (2, [2.0, 1.0, 0.5])):
        ratios = torch.where(torch.tensor([0, 0, 1, 2, 2]) < moved, logs(2.0, 0.5, 0.5, 3.0, 4.0), 0.0)
        found = others_of(ratios, step, steps=2)
        np.testing.assert_allclose(found[[2, 3, 4]], expected, err_msg=str(moved))


@pytest.mark.parametrize(
    ("ratio", "advantage", "others", "expected"),
    [
        (1.5, 2.0, 3.0, -7.2),  # min(3, 1.2 × 2) = 2.4
        (1.5, -2.0, 3.0, 9.0),  # min(-3, -2.4)
        (0.5, 1.0, 0.5, -0.25),
        (1.0, 1.0, 1.0, -1.0),
    ],
)
def test_happo_by_hand(ratio, advantage, others, expected):
    given = torch.tensor([math.log(ratio), 0.0, advantage, others])[:, None]
    assert happo_surrogate(*given, clip=0.2).item() == pytest.approx(expected, rel=1e-5)
    assert trust_region_surrogate(*given).item() == pytest.approx(-ratio * advantage * others, rel=1e-5)


@pytest.mark.parametrize(
    ("ratio", "advantage", "others", "expected"),
    [
        (1.5, 1.0, 1.5, -1.2),  # 1.5 × 1.1 = 1.65, and at most 1.2
        (1.5, -1.0, 1.5, 1.65),
        (0.5, 1.0, 0.5, -0.45),  # 0.5 × 0.9
        (0.5, -1.0, 0.5, 0.8),
        (1.1, 1.0, 1.05, -1.155),  # within both
    ],
)
def test_the_joint_ratio_is_clipped_twice(ratio, advantage, others, expected):
    given = torch.tensor([math.log(ratio), 0.0, advantage, others])[:, None]
    assert joint_surrogate(*given, clip=0.2, others_clip=0.1).item() == pytest.approx(expected, rel=1e-5)
    clip = torch.tensor([0.2])
    assert joint_surrogate(*given, clip=clip, others_clip=0.5 * clip).item() == pytest.approx(expected, rel=1e-5)


def test_teammates_ratios_have_no_slope_of_their_own():
    """Of r M A with respect to log r: r M A."""
    logp = torch.tensor([math.log(1.1)], requires_grad=True)
    joint_surrogate(logp, torch.zeros(1), torch.ones(1), torch.tensor([1.05]), clip=0.2, others_clip=0.1).backward()
    assert logp.grad.item() == pytest.approx(-1.155, rel=1e-5)


def test_clip_ranges_grow_along_the_order():
    """0.2 (0.5 + 0.5 k / 3)."""
    found = [order_clip(0.2, base=0.5, place=place, agents=3) for place in (1, 2, 3)]
    np.testing.assert_allclose(found, [0.4 / 3, 0.5 / 3, 0.2])
    assert order_clip(0.3, base=1.0, place=1, agents=4) == pytest.approx(0.3)


def plain(reward, value, after, ratio, *, gamma, lam):
    """The corrected advantages of Wang et al. 2023, of one segment: after is what its end is worth."""
    following = [*value[1:], after]
    delta = [r + gamma * v - u for r, v, u in zip(reward, following, value, strict=True)]
    out = []
    for t in range(len(reward)):
        total, weight = delta[t], 1.0
        for k in range(t + 1, len(reward)):
            weight *= gamma * lam * min(1.0, ratio[k])
            total += weight * delta[k]
        out.append(total)
    return out


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.5, 1.0]))
def test_corrected_advantages_are_those_of_a_plain_loop(seed, lam):
    """Three agents in two episodes; agent 0's rows are corrected for what 1 and 2 have become, where they decided."""
    rng = np.random.default_rng(seed)
    lengths, gamma = rng.integers(1, 7, 2), 0.9
    agent, step, log_ratio, ends, ratios = [], [], [], [], [[], []]
    joint = np.repeat([0, 1], lengths), np.arange(lengths.sum())
    there = np.stack([np.ones(lengths.sum(), bool), *(rng.random((2, lengths.sum())) < 0.7)])
    change = np.where(there, rng.normal(0, 0.5, there.shape), 0.0)
    change[0] = 0.0  # whose turn it is
    for k in range(3):
        for episode in range(2):
            mine = [j for e, j in zip(*joint, strict=True) if e == episode and there[k, j]]
            agent += [k] * len(mine)
            step += mine
            log_ratio += change[k, mine].tolist()
            ends += [False] * (len(mine) - 1) + [True] * (len(mine) > 0)
            if k == 0:
                ratios[episode] = np.exp(change.sum(axis=0)[mine]).tolist()
    start = np.concatenate([[0], np.cumsum(lengths)])
    reward, value, after = rng.normal(size=start[-1]), rng.normal(size=start[-1]), rng.normal(size=2)
    expected = [
        plain(reward[a:b], value[a:b], after[e], ratios[e], gamma=gamma, lam=lam)
        for e, (a, b) in enumerate(pairwise(start))
    ]
    rows = TeamRows(*map(np.array, (agent, step, step, step, ends)), int(lengths.sum()))
    team = Team(None, rows, torch.tensor(log_ratio, dtype=torch.float64), torch.tensor(step))
    mine = slice(0, int(start[-1]))
    advantage = torch.from_numpy(gae(start, reward, value, after, gamma, lam)[0])
    given = (advantage, team.trace()[mine], torch.from_numpy(rows.ends[mine]))
    found = preceding_advantages(*given, decay=gamma * lam, longest=int(lengths.max()))
    np.testing.assert_allclose(found, np.concatenate(expected), atol=1e-9)


def test_nothing_is_corrected_before_anybody_has_moved():
    advantage = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    ends = torch.tensor([False, True, False, True])
    found = preceding_advantages(advantage, torch.zeros(4), ends, decay=0.72)
    np.testing.assert_allclose(found, advantage)


def test_teammate_actions_between_two_decisions_count():
    """Agent 0 decides at steps 0 and 3, agent 1 at 1 and 2, where it has become half and a third as probable: A_0 = δ_0 + γ λ / 6 A_1.
    γ λ = 1/2; GAE of δ = (1, 3) is (2.5, 3): corrected, 1 + 3 / 12 = 1.25. At agent 1's own row nothing lies in between."""
    rows = TeamRows(
        np.array([0, 0, 1, 1]),
        np.zeros(4),
        np.array([0, 3, 1, 2]),
        np.array([0, 3, 1, 2]),
        np.array([False, True, False, True]),
        4,
    )
    team = Team(None, rows, logs(1.0, 1.0, 0.5, 1 / 3), torch.tensor([0, 3, 1, 2]))
    advantage = torch.tensor([2.5, 3.0, 0.0, 0.0], dtype=torch.float64)
    found = preceding_advantages(advantage, team.trace(), torch.from_numpy(rows.ends), decay=0.5)
    np.testing.assert_allclose(found[:2], [1.25, 3.0])


def test_ratios_above_one_are_cut():
    """5 counts as 1, so that 1/2 after it still counts as 1/2."""
    rows = TeamRows(np.zeros(3), np.zeros(3), np.arange(3), np.arange(3), np.array([False, False, True]), 3)
    team = Team(None, rows, logs(1.0, 5.0, 0.5), torch.arange(3))
    np.testing.assert_allclose(team.trace().exp(), [1.0, 1.0, 0.5])
