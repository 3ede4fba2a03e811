"""The mixers of QPLEX and of weighted QMIX, by hand and over all joint actions; and the matrix game that QMIX cannot express."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from team_games import train

from ludus.contrib.algorithms.qmix.config import CWQMIX, OWQMIX, QMIX, QPLEX, VDN
from ludus.contrib.algorithms.qmix.mixers import (
    TeamActions,
    central_weights,
    duplex,
    make_mixer,
    optimistic_weights,
)


def test_the_duplex_mixer_by_hand():
    """q = (1, 2), v = (3, 2), w = (2, ½), b = 1, λ = (3, 5): Σ w v = 7, and the first agent's advantage 2 (1 - 3) counts three times:
    7 + 1 - 12 = -4. Agents learn from Σ w q alone, λ from w (q - v)."""
    chosen, attention = (torch.tensor([row], requires_grad=True) for row in ([1.0, 2.0], [3.0, 5.0]))
    best, weight, bias = (torch.tensor(row) for row in ([[3.0, 2.0]], [[2.0, 0.5]], [1.0]))
    out = duplex(chosen, best, weight, bias, attention)
    assert out.tolist() == [-4.0]
    out.backward()
    assert chosen.grad.tolist() == [[2.0, 0.5]]
    assert attention.grad.tolist() == [[-4.0, 0.0]]


def test_weights_by_hand():
    """The team did its best; something else, with a target above that of its best; with the same target."""
    target, of_greedy = torch.tensor([0.0, 2.0, 1.0]), torch.ones(3)
    best = torch.tensor([True, False, False])
    assert central_weights(best, target, of_greedy, least=0.25).tolist() == [1.0, 1.0, 0.25]
    value = torch.tensor([-1.0, 2.0, 3.0])
    assert optimistic_weights(value, target, least=0.25).tolist() == [1.0, 0.25, 0.25]


@pytest.mark.parametrize("cls", [QMIX, QPLEX])
def test_the_best_joint_action_is_the_agents_best(cls):
    """Individual-global-max (Son et al. 2019): over all joint actions of random values and networks, and where an agent is absent."""
    agents, actions, states = 3, 3, 4
    joint = torch.tensor(list(product(range(actions), repeat=agents)))
    for seed in range(20):
        torch.manual_seed(seed)
        mixer = make_mixer(cls(mixing_hidden=seed % 2 * 6), agents=agents, actions=actions, state=states, seed=seed)
        mixer = mixer.double().requires_grad_(False)
        for parameter in mixer.parameters():
            parameter.mul_(2.0)
        q, state = torch.randn(agents, actions).double(), torch.randn(1, states).double().expand(len(joint), -1)
        present = torch.ones(len(joint), agents, dtype=torch.bool)
        present[:, 2] = seed % 3 > 0
        chosen, best = q[range(agents), joint] * present, q.amax(dim=1) * present
        out = mixer(TeamActions(chosen, best, joint, present, state))
        top = out.amax()
        for of, row in zip(out, joint, strict=True):
            if (row == q.argmax(dim=1))[present[0]].all():
                assert of.item() == pytest.approx(top.item(), abs=1e-9)
            else:
                assert of < top


def test_the_duplex_mixer_ranks_joint_actions_as_no_monotonic_one_can():
    """λ sees what all do: whether agent 0's second action is the better one of its worse ones depends on what agent 1 does."""
    torch.manual_seed(0)
    q = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    joint = torch.tensor(list(product(range(3), repeat=2)))
    chosen, best = q[range(2), joint], q.amax(dim=1).expand(9, 2)
    present, state = torch.ones(9, 2, dtype=torch.bool), torch.ones(9, 1)
    orders = {}
    for cls in (QMIX, QPLEX):
        mixer = make_mixer(cls(), agents=2, actions=3, state=1, seed=1)
        for parameter in mixer.parameters():
            parameter.data.mul_(6.0)
        out = mixer(TeamActions(chosen, best, joint, present, state)).view(3, 3)
        orders[cls] = {(out[1] > out[2] + 1e-4)[b].item() for b in range(3)}  # QMIX: equal on paper
    assert orders == {QMIX: {False}, QPLEX: {False, True}}


# ------------------------------------------------------------------ the matrix game of weighted QMIX

GAME = {
    "rollout": 32, "min_size": 200, "batch": 64, "updates_per_decision": 0.25, "learning_rate": 3e-3, "target_period": 50,
    "epsilon": 1.0, "normalise_rewards": "none", "huber_delta": 20.0, "hidden": (32,), "mixing_width": 8, "central_width": 64,
}  # fmt: skip
NOISY = {"batch": 8, "learning_rate": 1e-2, "mixing_heads": 10, "updates_per_decision": 0.4}
"""What QPLEX wants here: while λ grows, agents come so near to the edge that noise takes them over it."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "earned"),
    [
        (VDN(**GAME), 0.0),
        (QMIX(**GAME), 0.0),
        (CWQMIX(**GAME), 8.0),
        pytest.param(OWQMIX(**GAME), 8.0, marks=pytest.mark.long),
        (QPLEX(**{**GAME, **NOISY}), 8.0),
    ],
    ids=["vdn", "qmix", "cw_qmix", "ow_qmix", "qplex"],
)
def test_the_matrix_game(algorithm, earned):
    """Rashid et al. 2020, weighted QMIX: with uniform exploration the best joint action is not the best of any sum, nor of a monotonic
    function that is fitted to all joint actions alike; weights, or QPLEX's mixer, find it."""
    env = {"wrappers": ["agent_ids"], "teams": "one", "state": True}
    total = 2000 if algorithm.mixer == "duplex" else 1200
    assert train(algorithm, "team_games:Climb", num_envs=32, total=total, episodes=8, **env)[0] == pytest.approx(earned)
