"""VDN, QMIX and those that build on them: mixers, targets, memory and switches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from team_games import batch_of, learner_of, rollouts, team_env
from value_twins import Moment, judged, loss_of, perceptron, weights_of

from ludus.contrib.algorithms.qmix.config import CDSQMIX, CWQMIX, OWQMIX, QMIX, QPLEX, VDN
from ludus.contrib.algorithms.qmix.mixers import TeamActions, make_mixer, monotonic, team_values
from ludus.core.errors import ScenarioError
from ludus.testing.algorithm import check_algorithm

SMALL = {"rollout": 40, "min_size": 50, "hidden": (8,), "batch": 24, "target_period": 3, "mixing_width": 3}
GRU = {"core": "gru", "memory": 5, "length": 3, "period": 2, "burn_in": 1, "batch": 8}


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (VDN, {}),
        (QMIX, {"mixing_hidden": 0, "n_step": 3, "dueling": True, "double": False, "polyak": 0.1, "normalise_rewards": "none"}),
        (QMIX, GRU),
        (VDN, {**GRU, "core": "lstm", "burn_in": 0, "priority_exponent": 0.6, "dueling": True, "normalise_rewards": "standardise"}),
        (QPLEX, {}),
        (CWQMIX, {**GRU, "core": "lstm"}),
        (OWQMIX, {"mixer": "sum", "double": False}),
        (CDSQMIX, {"predictor_width": 5}),
        (CDSQMIX, {**GRU, "predictor_width": 5, "mixer": "duplex"}),
    ],
    ids=["steps", "switched", "gru", "lstm", "qplex", "cw_qmix-lstm", "ow_qmix", "cds_qmix", "cds_qmix-gru"],
)  # fmt: skip
def test_qmix_satisfies_algorithm_contract(cls, options):
    env = team_env()
    check_algorithm(cls(**{**SMALL, **options}), env, rollouts=rollouts(env), rounds=2)


def test_a_player_of_one_agent_will_do(tensors):
    env = replace(tensors, state=Box(-np.inf, np.inf, (5,), np.float32))
    check_algorithm(VDN(**SMALL), tensors, rounds=2)
    one = team_env(agents=1)
    for cls in (QMIX, CDSQMIX):
        check_algorithm(cls(**SMALL), one, rollouts=rollouts(one), rounds=2)
    QMIX().check(env)


def test_without_a_state_another_mixer_is_advised():
    for cls in (QMIX, VDN):
        with pytest.raises(
            ScenarioError, match=rf"{cls.__name__} sees .*; or use mixer=sum \(vdn\), which needs none\."
        ):
            cls(mixer="monotonic").check(team_env(state=0))
        cls(mixer="sum").check(team_env(state=0))
    with pytest.raises(ScenarioError, match=r"use mixer=sum and weighting=none \(vdn\), which needs none\."):
        OWQMIX(mixer="sum").check(team_env(state=0))


def test_vdn_is_qmix_with_another_mixer():
    assert VDN(mixer="monotonic").model_dump() == QMIX().model_dump()
    assert VDN(mixer="duplex").model_dump() == QPLEX().model_dump()
    assert QMIX(weighting="central").model_dump() == CWQMIX().model_dump()
    assert QMIX(weighting="optimistic").model_dump() == OWQMIX().model_dump()
    assert QMIX().collect().state
    assert not VDN().collect().state


# ------------------------------------------------------------------ mixers


def test_the_mixer_by_hand():
    """Two agents, one unit. q = (2, -1), |w₁| = (½, 3), b₁ = 1: ½·2 - 3·1 + 1 = -1, elu(-1) = e⁻¹ - 1; times |w₂| = 2, plus b₂ = ¼.
    With q = (4, 0): ½·4 + 1 = 3; 3 · 2 + ¼."""
    values = torch.tensor([[2.0, -1.0], [4.0, 0.0]], dtype=torch.float64)
    first = torch.tensor([[[-0.5], [3.0]]] * 2, dtype=torch.float64)
    one, two = torch.ones(2, 1, dtype=torch.float64), torch.full((2, 1), -2.0, dtype=torch.float64)
    out = monotonic(values, first, one, two, torch.full((2,), 0.25, dtype=torch.float64))
    np.testing.assert_allclose(out, [2 * (np.exp(-1) - 1) + 0.25, 6.25], rtol=1e-15)


@given(st.data())
def test_the_mixer_rises_with_every_agents_value(data):
    agents, width = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    numbers = st.floats(-3, 3)

    def some(*shape):
        return torch.from_numpy(data.draw(arrays(np.float64, shape, elements=numbers)))

    values, first, bias, second, last = some(1, agents), some(1, agents, width), some(1, width), some(1, width), some(1)
    before = monotonic(values, first, bias, second, last)
    for agent in range(agents):
        more = values.clone()
        more[:, agent] += data.draw(st.floats(0, 5))
        assert monotonic(more, first, bias, second, last) >= before - 1e-12


def test_gradients_of_the_mixer():
    torch.manual_seed(0)
    shapes = ((3, 2), (3, 2, 4), (3, 4), (3, 4), (3,))
    assert torch.autograd.gradcheck(
        monotonic, [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    )


@pytest.mark.parametrize("hidden", [0, 7])
def test_weights_are_made_from_the_state(hidden):
    options, shape = QMIX(mixing_width=4, mixing_hidden=hidden), {"agents": 2, "actions": 3, "state": 3}
    mixer, again = (make_mixer(options, **shape, seed=5) for _ in range(2))
    values, state, action = torch.randn(6, 2), torch.randn(6, 3), torch.zeros(6, 2, dtype=torch.long)
    here = TeamActions(values, values, action, action == 0, state)
    assert torch.equal(mixer(here), again(here))
    assert not torch.allclose(mixer(here), mixer(here._replace(state=state + 1)))
    assert sum(isinstance(part, torch.nn.Linear) for part in mixer.modules()) == (5 if not hidden else 7)


def test_absent_agents_are_zero_whatever_is_said_of_them():
    values = team_values(torch.tensor([[1.0, np.nan], [2.0, 3.0]]), torch.tensor([[True, False], [True, True]]))
    assert values.tolist() == [[1.0, 0.0], [2.0, 3.0]]


# ------------------------------------------------------------------ targets


def by_hand(learner, item):
    """What is compared of one joint step: agent by agent, in plain NumPy and float64."""
    online, target = weights_of(learner._online), weights_of(learner._target)
    networks = {"online": (online, "q"), "target": (target, "q")}
    if learner.config.weighting != "none":
        networks |= {"central": (online, "central.q"), "central target": (target, "central.q")}

    def values(weights, name, x):
        hidden = np.maximum(perceptron(weights, f"{name}.body.1", x.astype(np.float64)), 0)
        return perceptron(weights, f"{name}.head.advantage", hidden)

    def moment(seen, mask, present, state):
        q = {name: np.array([values(*of, x) for x in item[seen]]) for name, of in networks.items()}
        return Moment(q, item[mask], item[present], item.get(state))

    now, after = moment("observation", "mask", "present", "state"), moment("next", *NEXT)
    return judged(
        learner.config,
        online,
        target,
        now,
        after,
        action=item["action"],
        reward=item["reward"],
        discount=item["discount"],
    )


NEXT = "next_mask", "next_present", "next_state"


def scattered(learner):
    """With a target network of its own."""
    flat = learner.networks.target.flat
    flat[:] += np.random.default_rng(4).standard_normal(len(flat)).astype(np.float32) * 0.3
    return learner


@pytest.mark.parametrize("cls", [VDN, QMIX, QPLEX, CWQMIX, OWQMIX])
@pytest.mark.parametrize("double", [True, False])
def test_targets_agent_by_agent(cls, double):
    hidden = 5 if double else 0
    algorithm = cls(**SMALL, double=double, mixing_hidden=hidden, normalise_rewards="none", huber_delta=0.3, gamma=0.9)
    learner = scattered(learner_of(algorithm, team_env()))
    batch = batch_of(learner, learner._env, size=30)
    steps = [by_hand(learner, {k: v[i] for k, v in batch.columns.items()}) for i in range(30)]
    value, target, central, weight = np.array(steps, np.float64).T
    seen = learner.team_targets(learner.local_columns(batch.columns, 30))
    close = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(seen.value.detach()[:, 0], value, **close)
    np.testing.assert_allclose(seen.target[:, 0], target, **close)
    if algorithm.weighting != "none":
        np.testing.assert_allclose(seen.central.detach()[:, 0], central, **close)
        assert seen.weight[:, 0].tolist() == pytest.approx(weight)
        assert len(set(weight)) == 2 or not double
    found = learner._gradient(batch.columns, 30, None)
    assert found.loss == pytest.approx(loss_of(steps, delta=0.3), rel=1e-4)
    assert found.value == pytest.approx(value.mean(), rel=1e-4, abs=1e-6)
    assert found.error == pytest.approx(np.abs(value - target).mean(), rel=1e-4)


@pytest.mark.parametrize(("cls", "options"), [(QMIX, {}), (QMIX, GRU), (OWQMIX, {})], ids=["steps", "gru", "weighted"])
def test_the_gradient_is_the_losss_slope(cls, options):
    learner = learner_of(cls(**{**SMALL, **options}, activation="tanh"), team_env())
    columns = batch_of(learner, learner._env, size=12).columns
    learner._gradient(columns, 12, None)
    flat, gradient = learner.networks.online.flat, learner.networks.online.gradient.copy()
    rng = np.random.default_rng(0)
    direction = rng.standard_normal(len(flat)).astype(np.float32)
    start, losses = flat.copy(), []
    was = learner.team_targets(learner.local_columns(columns, 12))

    def fixed(columns, compared=learner.team_targets):
        return compared(columns)._replace(target=was.target, weight=was.weight)

    learner.team_targets = fixed
    for step in (1e-2, -1e-2):
        flat[:] = start + step * direction / np.linalg.norm(direction)
        losses.append(learner._gradient(columns, 12, None).loss)
    slope = float(gradient @ direction) / np.linalg.norm(direction)
    assert (losses[0] - losses[1]) / 2e-2 == pytest.approx(slope, rel=2e-2, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"double": False}, ("value",)),
        ({"normalise_rewards": "scale"}, ("value",)),
        ({"normalise_rewards": "standardise"}, ("value",)),
        ({"huber_delta": 0.01}, ("value", "target")),
        ({"mixer": "sum"}, ()),
        ({"weighting": "central"}, ("value",)),
    ],
)
@pytest.mark.parametrize("options", [{}, GRU], ids=["steps", "gru"])
def test_a_switch_changes_what_it_should(change, same, options):
    plain, other = (
        scattered(learner_of(QMIX(**{**SMALL, "normalise_rewards": "none", **options, **c}), team_env()))
        for c in ({}, change)
    )
    if change != {"mixer": "sum"}:
        size = len(plain.networks.target.flat)  # the agents' networks and the mixer come first
        other.networks.target.flat[:size] = plain.networks.target.flat
    assert plain.spec == other.spec
    first, second = (
        learner.team_targets(learner.local_columns(batch_of(learner, team_env()).columns, 16))
        for learner in (plain, other)
    )
    for name in ("value", "target"):
        equal = torch.equal(getattr(first, name)[first.there], getattr(second, name)[second.there])
        assert equal == (name in same), name
    losses = [learner._gradient(batch_of(learner, team_env()).columns, 16, None).loss for learner in (plain, other)]
    assert losses[0] != losses[1]


def test_observations_of_absent_agents_change_nothing():
    for cls, options in ((QMIX, {}), (QMIX, GRU), (QPLEX, {}), (CWQMIX, {})):
        learner = learner_of(cls(**{**SMALL, **options}), team_env())
        columns = batch_of(learner, learner._env).columns
        found = learner._gradient(columns, 16, None)
        gradient = learner.networks.online.gradient.copy()
        noise = {name: column.copy() for name, column in columns.items()}
        noise["observation"][~noise["present"]] = 7.0
        if not options:
            noise["next"][~noise["next_present"]] = 7.0
        again = learner._gradient(noise, 16, None)
        assert again.loss == pytest.approx(float(found.loss), rel=1e-6)
        np.testing.assert_allclose(learner.networks.online.gradient, gradient, atol=1e-7)
