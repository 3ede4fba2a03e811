"""Losses, schedules, and the compiled PPO and DQN terms against the rows they compress."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ludus.algorithms.common import losses
from ludus.algorithms.common.config import Schedule
from ludus.algorithms.dqn.kernels import next_values, q_loss
from ludus.algorithms.on_policy.kernels import (
    CompressedRows,
    clipped_value_loss,
    compress,
    compress_distinct,
    squared_value_loss,
)
from ludus.algorithms.ppo.kernels import policy_losses
from ludus.core.errors import ConfigError
from ludus.policies.action_value_policy import action_values

T = torch.tensor


def test_ppo_surrogate_literal():
    logp = torch.log(T([1.5, 1.5, 0.5, 0.5, 1.1]))
    found = losses.ppo_surrogate(logp, torch.zeros(5), T([2.0, -2.0, 2.0, -2.0, 3.0]), clip=0.2)
    # gains are capped at 1.2 and losses held at 0.8; the other two sides are not clipped
    assert found.tolist() == pytest.approx([-2.4, 3.0, -1.0, 1.6, -3.3])


def test_value_loss_literal():
    value, target, old = T([2.0, 2.0]), T([1.0, 4.0]), T([1.0, 1.0])
    assert losses.value_loss(value, target).tolist() == [0.5, 2.0]
    # clipped to 1.5: max(.5, .125), max(2, 3.125)
    assert losses.value_loss(value, target, old_value=old, clip=0.5).tolist() == [0.5, 3.125]


def test_entropy_literal():
    logits = torch.zeros(2, 4)
    mask = T([[True, True, False, False], [False, True, False, False]])
    assert losses.entropy(logits, mask).tolist() == pytest.approx([np.log(2.0), 0.0])
    assert losses.entropy(logits).tolist() == pytest.approx([np.log(4.0)] * 2)


def test_entropy_of_masked_logits_has_finite_gradients():
    logits = torch.zeros(1, 3, requires_grad=True)
    losses.entropy(logits, T([[True, True, False]])).sum().backward()
    assert torch.isfinite(logits.grad).all()


def test_huber_and_kl_literal():
    assert losses.huber(T([0.5, -1.0, 3.0])).tolist() == [0.125, 0.5, 2.5]
    assert losses.huber(T([3.0]), delta=2.0).tolist() == [4.0]
    assert losses.approximate_kl(torch.log(T([2.0, 1.0])), torch.zeros(2)).tolist() == pytest.approx(
        [1 - np.log(2.0), 0]
    )


def test_policy_gradient_and_log_prob_literal():
    logits = torch.log(T([[1.0, 3.0]]))
    logp = losses.log_prob(logits, T([1]))
    assert logp.exp().tolist() == pytest.approx([0.75])
    assert losses.policy_gradient(logp, T([2.0])).tolist() == pytest.approx([-2.0 * np.log(0.75)])


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("linear", [4.0, 2.5, 1.0, 1.0]),
        ("exponential", [4.0, 2.0, 1.0, 1.0]),
        ("cosine", [4.0, 2.5, 1.0, 1.0]),
        ("step", [4, 4, 1, 1]),
    ],
)
def test_schedules_literal(shape, expected):
    schedule = Schedule(start=4.0, end=1.0, shape=shape, over=0.5)
    assert [schedule.at(x) for x in (0.0, 0.25, 0.5, 1.0)] == pytest.approx(expected)
    assert Schedule(start=3.0).at(0.7) == 3.0


def test_schedule_refuses_what_cannot_be():
    with pytest.raises(ConfigError, match=r"exponential schedule needs a positive .* \(given: 1 to 0\)"):
        Schedule(start=1.0, end=0.0, shape="exponential")
    with pytest.raises(ConfigError, match="over"):
        Schedule(start=1.0, end=0.0, over=0.0)
    with pytest.raises(ConfigError, match=r"nothing reads shape \(of an end\), over \(of an end\)"):
        Schedule(start=1.0, shape="cosine", over=0.5)


# ------------------------------------------------------------------ compressed terms are those of the rows


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, states, actions = draw(st.integers(1, 80)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    mask = rng.random((states, actions)) < 0.7
    mask[np.arange(states), rng.integers(0, actions, states)] = True
    old_logits = rng.standard_normal((2, states, actions))  # two behaviours
    several = draw(st.booleans())
    behaviour = rng.integers(0, 2, n) if several else np.zeros(n, int)
    state = rng.integers(0, states, n).astype(np.int32)
    action = np.array([rng.choice(np.flatnonzero(mask[s])) for s in state], np.int32)
    table = torch.stack([losses.masked_log_softmax(T(x), T(mask)) for x in old_logits]).numpy()
    return {
        "mask": mask,
        "state": state,
        "action": action,
        "logp": table[behaviour, state, action],
        "advantage": rng.standard_normal(n),
        "target": rng.standard_normal(n),
        "old": rng.standard_normal(n),
        "out": rng.standard_normal((states, actions + 1)) * draw(st.sampled_from([0.1, 1.0, 4.0])),
        "clip": draw(st.sampled_from([0.05, 0.2])),
        "bonus": draw(st.sampled_from([0.0, 0.3])),
    }


def reference(p, *, clip_value):
    """Loss and gradient of the network outputs, row by row, by autograd."""
    out = T(p["out"], requires_grad=True)
    index, actions = T(p["state"]).long(), p["mask"].shape[1]
    rows, mask = out[index], T(p["mask"])[index]
    logp = losses.log_prob(rows[:, :actions], T(p["action"]), mask)
    surrogate = losses.ppo_surrogate(logp, T(p["logp"]), T(p["advantage"]), clip=p["clip"]).mean()
    entropy = losses.entropy(rows[:, :actions], mask).mean()
    value = losses.value_loss(rows[:, -1], T(p["target"]), old_value=T(p["old"]), clip=clip_value).mean()
    (surrogate - p["bonus"] * entropy + 0.7 * value).backward()
    kl = losses.approximate_kl(logp, T(p["logp"])).mean()
    found_losses = [float(x.detach()) for x in (surrogate, entropy, kl, value)]
    return found_losses, out.grad.numpy()


@given(problems(), st.sampled_from([None, 0.3]))
def test_cells_have_the_loss_and_gradient_of_the_rows(p, clip_value):
    states, actions = p["mask"].shape
    compressed = compress(
        p["state"], p["action"], p["logp"], p["advantage"], p["target"], states=states, actions=actions
    )
    gradient = np.full_like(p["out"], np.nan)
    found_losses = policy_losses(p["out"], p["mask"], compressed, clip=p["clip"], entropy=p["bonus"], gradient=gradient)
    if clip_value is None:
        value = squared_value_loss(p["out"], compressed, scale=0.7, gradient=gradient)
    else:
        value = clipped_value_loss(
            p["out"], p["state"], p["target"], p["old"], clip=clip_value, scale=0.7, gradient=gradient
        )
    expected, expected_gradient = reference(p, clip_value=clip_value)
    assert [found_losses.surrogate, found_losses.entropy, found_losses.kl, value] == pytest.approx(expected, abs=1e-9)
    assert gradient == pytest.approx(expected_gradient, abs=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_value_clipping_changes_nothing_while_values_stay_near(dtype):
    rng = np.random.default_rng(0)
    out = rng.standard_normal((300, 4)).astype(dtype)
    target, state = rng.standard_normal(300).astype(dtype), np.arange(300, dtype=np.int32)
    old = out[:, -1] + rng.uniform(-0.1, 0.1, 300).astype(dtype)
    gradient = np.zeros_like(out)
    loss = clipped_value_loss(out, state, target, old, clip=0.2, scale=1.0, gradient=gradient)
    error = out[:, -1].astype(np.float64) - target
    assert loss == pytest.approx(0.5 * np.mean(error**2), rel=1e-6)
    np.testing.assert_allclose(gradient[:, -1], error / 300, rtol=1e-4)


def test_cells_are_as_few_as_there_are_states_and_actions():
    state, action = np.array([0, 0, 1, 0], np.int32), np.array([1, 1, 0, 0], np.int32)
    advantage, target = np.array([2.0, -1.0, 3.0, 0.5]), np.array([1.0, 2.0, 3.0, 4.0])
    compressed = compress(state, action, np.full(4, -0.5), advantage, target, states=2, actions=2)
    assert compressed.rows == 4
    assert list(
        zip(compressed.state, compressed.action, compressed.up, compressed.down, compressed.weight, strict=True)
    ) == [
        (0, 1, 2.0, -1.0, 2.0),
        (1, 0, 3.0, 0.0, 1.0),
        (0, 0, 0.5, 0.0, 1.0),
    ]
    assert compressed.count.tolist() == [3.0, 1.0]
    assert compressed.total.tolist() == [7.0, 3.0]
    assert compressed.square.tolist() == [21.0, 9.0]


def test_rows_of_two_behaviours_are_not_merged():
    compressed = compress(
        np.zeros(2, np.int32),
        np.zeros(2, np.int32),
        np.array([-0.5, -0.7]),
        np.ones(2),
        np.ones(2),
        states=1,
        actions=2,
    )
    assert compressed.logp.tolist() == [-0.5, -0.7]


@given(problems(), st.booleans(), st.booleans())
def test_q_terms_have_the_loss_and_gradient_of_the_rows(p, dueling, weighted):
    actions = p["mask"].shape[1]
    raw = p["out"] if dueling else p["out"][:, :actions].copy()
    out = T(raw, requires_grad=True)
    q = out[:, :actions]
    if dueling:
        mask = T(p["mask"])
        q = q + (out[:, -1:] - (q * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True))
    rows = len(p["state"])
    weight = np.linspace(0.1, 1.0, rows) if weighted else np.ones(rows)
    chosen = q[T(p["state"]).long(), T(p["action"]).long()]
    loss = (T(weight) * losses.huber(chosen - T(p["target"]), delta=0.5)).mean()
    loss.backward()
    gradient = np.empty_like(raw)
    compiled = action_values(raw, p["mask"])
    found, value, error = q_loss(compiled, p["mask"], p["state"], p["action"], p["target"], weight, 0.5, gradient, rows)
    assert found == pytest.approx(loss.item(), abs=1e-12)
    assert error == pytest.approx((chosen - T(p["target"])).abs().detach().numpy(), abs=1e-12)
    assert value == pytest.approx(chosen.mean().item(), abs=1e-12)
    assert gradient == pytest.approx(out.grad.numpy(), abs=1e-12)


def test_next_values_literal():
    online, target = np.array([[5.0, 9.0, 1.0]]), np.array([[2.0, 3.0, 4.0]])
    mask, index = np.array([[True, False, True]]), np.array([0, -1], np.int32)
    assert next_values(online, target, mask, index).tolist() == [
        2.0,
        0.0,
    ]  # double: the online network chooses action 0
    assert next_values(target, target, mask, index).tolist() == [4.0, 0.0]


def test_the_squared_error_of_large_returns_is_not_less_than_nothing():
    """Squares of float32 would differ by more than the error; of rows whose states all differ, and of rows of one state."""
    rng = np.random.default_rng(0)
    target = (100 + rng.standard_normal(256)).astype(np.float32)
    zeros, action, states = np.zeros(256, np.float32), np.zeros(256, np.int32), np.arange(256, dtype=np.int32)
    distinct = CompressedRows(256, states, *compress_distinct(action, zeros, zeros, target))
    together = compress(states, action, zeros, zeros, target, states=256, actions=1)
    for apart in (0.0, 1e-4):
        value = (target + apart * rng.standard_normal(256)).astype(np.float32)
        expected = 0.5 * np.mean((value.astype(np.float64) - target) ** 2)
        for compressed in (distinct, together):
            found = squared_value_loss(value[:, None], compressed, scale=1.0, gradient=np.zeros((256, 1), np.float32))
            assert found >= 0.0
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-12)
