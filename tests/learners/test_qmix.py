"""VDN and QMIX: mixers, targets, memory and switches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from team_games import batch_of, learner_of, rollouts, team_env

from ludus.core.errors import ScenarioError
from ludus.learners.qmix.learner import make_mixer, monotonic, team_values
from ludus.learners.qmix.options import QMIX, VDN
from ludus.testing.algorithm import check_algorithm

SMALL = {"rollout": 40, "min_size": 50, "hidden": (8,), "batch": 24, "target_period": 3, "mixing_width": 3}
GRU = {"core": "gru", "memory": 5, "length": 3, "period": 2, "burn_in": 1, "batch": 8}


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (VDN, {}),
        (
            QMIX,
            {
                "mixing_hidden": 0,
                "n_step": 3,
                "dueling": True,
                "double": False,
                "polyak": 0.1,
                "normalise_rewards": "none",
            },
        ),
        (QMIX, {"priority_exponent": 0.6, "normalise_rewards": "standardise"}),
        (QMIX, GRU),
        (VDN, {**GRU, "core": "lstm", "burn_in": 0, "priority_exponent": 0.6, "dueling": True}),
    ],
    ids=["steps", "switched", "prioritised", "gru", "lstm"],
)
def test_contract(cls, options):
    env = team_env()
    check_algorithm(cls(**{**SMALL, **options}), env, rollouts=rollouts(env), rounds=2)


def test_a_player_of_one_agent_will_do(tensors):
    env = replace(tensors, state=Box(-np.inf, np.inf, (5,), np.float32))
    check_algorithm(VDN(**SMALL), tensors, rounds=2)
    one = team_env(agents=1)
    check_algorithm(QMIX(**SMALL), one, rollouts=rollouts(one), rounds=2)
    QMIX().check(env)


def test_without_a_state_another_mixer_is_advised():
    for cls in (QMIX, VDN):
        with pytest.raises(
            ScenarioError, match=rf"{cls.__name__} sees .*; or use mixer=sum \(vdn\), which needs none\."
        ):
            cls(mixer="monotonic").check(team_env(state=0))
        cls(mixer="sum").check(team_env(state=0))


def test_vdn_is_qmix_with_another_mixer():
    assert VDN(mixer="monotonic").model_dump() == QMIX().model_dump()
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


@settings(max_examples=50, deadline=None)
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
    mixer = make_mixer(QMIX(mixing_width=4, mixing_hidden=hidden), agents=2, state=3, seed=5)
    again = make_mixer(QMIX(mixing_width=4, mixing_hidden=hidden), agents=2, state=3, seed=5)
    values, state = torch.randn(6, 2), torch.randn(6, 3)
    assert torch.equal(mixer(values, state), again(values, state))
    assert not torch.allclose(mixer(values, state), mixer(values, state + 1))
    assert sum(isinstance(part, torch.nn.Linear) for part in mixer.modules()) == (5 if not hidden else 7)


def test_absent_agents_are_zero_whatever_is_said_of_them():
    values = team_values(torch.tensor([[1.0, np.nan], [2.0, 3.0]]), torch.tensor([[True, False], [True, True]]))
    assert values.tolist() == [[1.0, 0.0], [2.0, 3.0]]


# ------------------------------------------------------------------ targets


def mixed(config, weights, values, state):
    """The team's value of its agents' [n], by the mixer in `weights`, in plain NumPy and float64."""
    if config.mixer == "sum":
        return values.sum()

    def layer(name, x):
        return weights[f"mixer.{name}.weight"] @ x + weights[f"mixer.{name}.bias"]

    first = np.abs(layer("first", state).reshape(len(values), -1))
    hidden = values @ first + layer("bias", state)
    hidden = np.where(hidden > 0, hidden, np.exp(hidden) - 1)
    return hidden @ np.abs(layer("second", state)) + layer("last.2", np.maximum(layer("last.0", state), 0))[0]


def by_hand(learner, item):
    """(the team's value, target) of one item, agent by agent, in plain NumPy and float64."""
    config, team = learner.config, learner._online
    by_target = {name: t.numpy().astype(np.float64) for name, t in learner._target.state_dict().items()}
    online = {name: t.detach().numpy().astype(np.float64) for name, t in team.state_dict().items()}

    def q(weights, x):
        hidden = np.maximum(weights["q.body.1.weight"] @ x + weights["q.body.1.bias"], 0)
        return weights["q.head.advantage.weight"] @ hidden + weights["q.head.advantage.bias"]

    now = [q(online, x)[a] if here else 0.0 for x, a, here in zip(*(item[k] for k in NOW), strict=True)]
    after = []
    for x, here, legal in zip(*(item[k] for k in AFTER), strict=True):
        best = np.where(legal, q(online if config.double else by_target, x), -np.inf).argmax()
        after.append(q(by_target, x)[best] if here else 0.0)
    value = mixed(config, online, np.array(now), item.get("state"))
    following = mixed(config, by_target, np.array(after), item.get("next_state"))
    return value, item["reward"] + item["discount"] * following


NOW, AFTER = ("observation", "action", "present"), ("next", "next_present", "next_mask")


def scattered(learner):
    """With a target network of its own."""
    flat = learner.networks.target.flat
    flat[:] += np.random.default_rng(4).standard_normal(len(flat)).astype(np.float32) * 0.3
    return learner


@pytest.mark.parametrize("cls", [VDN, QMIX])
@pytest.mark.parametrize("double", [True, False])
def test_targets_agent_by_agent(cls, double):
    algorithm = cls(**SMALL, double=double, mixing_hidden=0, normalise_rewards="none", huber_delta=1000.0, gamma=0.9)
    learner = scattered(learner_of(algorithm, team_env()))
    batch = batch_of(learner, learner._env, size=30)
    pairs = [by_hand(learner, {k: v[i] for k, v in batch.columns.items()}) for i in range(30)]
    seen = learner.compared(learner.mine(batch.columns, 30))
    value, target = np.array(pairs).T
    np.testing.assert_allclose(seen.value.detach()[:, 0], value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(seen.target[:, 0], target, rtol=1e-4, atol=1e-5)
    found = learner._gradient(batch.columns, 30, None)
    assert found.loss == pytest.approx(0.5 * np.square(value - target).mean(), rel=1e-4)
    assert found.value == pytest.approx(value.mean(), rel=1e-4, abs=1e-6)
    assert found.error == pytest.approx(np.abs(value - target).mean(), rel=1e-4)


@pytest.mark.parametrize("options", [{}, GRU], ids=["steps", "gru"])
def test_the_gradient_is_the_losss_slope(options):
    learner = learner_of(QMIX(**{**SMALL, **options}, activation="tanh"), team_env())
    columns = batch_of(learner, learner._env, size=12).columns
    learner._gradient(columns, 12, None)
    flat, gradient = learner.networks.online.flat, learner.networks.online.gradient.copy()
    rng = np.random.default_rng(0)
    direction = rng.standard_normal(len(flat)).astype(np.float32)
    start, losses = flat.copy(), []
    target = learner.compared(learner.mine(columns, 12)).target

    def fixed(columns, compared=learner.compared):
        return compared(columns)._replace(target=target)

    learner.compared = fixed
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
    ],
)
@pytest.mark.parametrize("options", [{}, GRU], ids=["steps", "gru"])
def test_a_switch_changes_what_it_should(change, same, options):
    plain, other = (
        scattered(learner_of(QMIX(**{**SMALL, "normalise_rewards": "none", **options, **c}), team_env()))
        for c in ({}, change)
    )
    if change != {"mixer": "sum"}:
        other.networks.target.flat[:] = plain.networks.target.flat
    assert plain.spec == other.spec
    first, second = (
        learner.compared(learner.mine(batch_of(learner, team_env()).columns, 16)) for learner in (plain, other)
    )
    for name in ("value", "target"):
        equal = torch.equal(getattr(first, name)[first.there], getattr(second, name)[second.there])
        assert equal == (name in same), name
    losses = [learner._gradient(batch_of(learner, team_env()).columns, 16, None).loss for learner in (plain, other)]
    assert losses[0] != losses[1]


def test_what_absent_agents_see_changes_nothing():
    for options in ({}, GRU):
        learner = learner_of(QMIX(**{**SMALL, **options}), team_env())
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
