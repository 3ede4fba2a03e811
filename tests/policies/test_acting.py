"""The compiled ways to act agree with torch, with the tables of probabilities, and with each other."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ludus.backend.mlp import Layout, Perceptron, Perceptrons, by_policy, tanh
from ludus.core.errors import PolicyError
from ludus.policies.actor_critic import initial_weights
from ludus.policies.actor_critic_policy import ActorCriticPolicy
from ludus.policies.categorical import draw, masked_softmax, one_hot_best, sample
from ludus.policies.specs import mlp_spec


def rows(rng: np.random.Generator, n: int, actions: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    logits = (3 * rng.standard_normal((n, actions))).astype(np.float32)
    mask = rng.random((n, actions)) < 0.6
    mask[np.arange(n), rng.integers(actions, size=n)] = True
    return logits, mask, rng.random((n, 1), dtype=np.float32)


@given(
    n=st.integers(1, 40),
    actions=st.integers(1, 9),
    seed=st.integers(0, 10_000),
    greedy=st.booleans(),
    value=st.booleans(),
)
def test_one_pass_draws_what_the_table_of_probabilities_draws(n, actions, seed, greedy, value):
    logits, mask, noise = rows(np.random.default_rng(seed), n, actions)
    given_logits = np.concatenate([logits, np.full((n, 1), 99, np.float32)], axis=1) if value else logits
    for legal in (mask, None):
        table = np.ones_like(mask) if legal is None else legal
        probs = one_hot_best(logits, table) if greedy else masked_softmax(logits, table)
        action, logp = sample(given_logits, legal, noise, actions=actions, greedy=greedy)
        expected, expected_logp = draw(probs, noise)
        assert action.tolist() == expected.tolist()
        np.testing.assert_allclose(logp, expected_logp, atol=1e-6)


def test_literal_draws():
    logits = np.log(np.array([[1, 5, 3]] * 4, np.float32))
    mask = np.array([[True, False, True]] * 4)
    noise = np.array([[0.0], [0.2499], [0.2501], [0.9999]], np.float32)
    action, logp = sample(logits, mask, noise, actions=3, greedy=False)
    assert action.tolist() == [0, 0, 2, 2]
    assert np.exp(logp).tolist() == pytest.approx([0.25, 0.25, 0.75, 0.75])
    action, logp = sample(logits, mask, noise, actions=3, greedy=True)
    assert (action.tolist(), logp.tolist()) == ([2] * 4, [0.0] * 4)


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_that_cannot_be_drawn_from_are_errors(greedy, wrong):
    logits = np.zeros((3, 2), np.float32)
    logits[1] = wrong
    for first in (0.0, wrong) if wrong == np.inf or np.isnan(wrong) else (wrong,):
        logits[1, 0] = first
        with pytest.raises(PolicyError, match="row 1 of 3 has no action"):
            sample(logits, None, np.zeros((3, 1), np.float32), actions=2, greedy=greedy)


def test_a_mask_of_another_shape_is_an_error():
    with pytest.raises(PolicyError, match=r"mask of shape \(3, 1\) for 3 rows and 2 actions"):
        sample(np.zeros((3, 2)), np.ones((3, 1), bool), np.zeros((3, 1), np.float32), actions=2, greedy=False)


def test_tanh():
    x = np.concatenate([np.linspace(-12, 12, 4001), [0.0, np.inf, -np.inf, 1e30]]).astype(np.float32)
    got = np.array([tanh(v) for v in x])
    np.testing.assert_allclose(got, np.tanh(x.astype(np.float64)), atol=4e-7)
    assert np.abs(got).max() <= 1.0
    assert np.isnan(tanh(np.float32(np.nan)))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("widths", [(5, 3), (5, 64, 3), (126, 64, 64, 8), (3, 7, 5, 11, 2)])
def test_outputs_equal_torchs(activation, widths):
    for n in (0, 1, 5, 9, 300):
        outputs_equal_torchs(activation, widths, n)


def of_torch(layout, flat, x):
    at, h = 0, torch.from_numpy(x)
    for k, (i, o) in enumerate(pairwise(layout.widths)):
        weight, bias = flat[at : at + i * o].reshape(o, i), flat[at + i * o : at + (i + 1) * o]
        h = torch.nn.functional.linear(h, torch.from_numpy(weight), torch.from_numpy(bias))
        h = getattr(torch, layout.activation)(h) if k < len(layout.widths) - 2 else h
        at += (i + 1) * o
    return h.numpy()


def outputs_equal_torchs(activation, widths, n):
    rng = np.random.default_rng(0)
    layout = Layout(widths, activation)
    flats = [rng.normal(0, 0.1, layout.size).astype(np.float32) for _ in range(4)]
    x = (rng.standard_normal((n, widths[0])) * (rng.random((n, widths[0])) < 0.5)).astype(np.float32)
    expected = [of_torch(layout, flat, x) for flat in flats]
    networks = [Perceptron(layout, flat) for flat in flats]
    for network, outputs in zip(networks, expected, strict=True):
        np.testing.assert_allclose(network.outputs(x), outputs, atol=3e-6)
    index = rng.integers(4, size=n).astype(np.int32)
    together = Perceptrons(networks).outputs(x, index)
    np.testing.assert_allclose(together, np.array(expected)[index, np.arange(n)], atol=3e-6)


@pytest.mark.parametrize("n", [1, 40])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_nan_goes_through_every_layer(n, activation):
    layout = Layout((4, 8, 8, 2), activation)
    x = np.zeros((n, 4), np.float32)
    x[0, 1] = np.nan
    out = Perceptron(layout, np.random.default_rng(0).normal(0, 0.5, layout.size).astype(np.float32)).outputs(x)
    assert np.isnan(out[0]).all()
    assert not np.isnan(out[1:]).any()


def test_observations_of_other_types_shapes_and_layouts():
    spec = mlp_spec(inputs=6, actions=3, hidden=[8])
    policy = ActorCriticPolicy(spec, initial_weights(spec, np.random.default_rng(0)))
    x = np.random.default_rng(1).integers(0, 9, (5, 6))
    noise = np.full((5, 1), 0.5, np.float32)
    expected = policy.act(x.astype(np.float32), None, None, noise)
    frozen = x.astype(np.float32)
    frozen.flags.writeable = False
    for other in (
        x,
        x.astype(np.uint8),
        x.astype(np.float64).reshape(5, 2, 3),
        np.asfortranarray(x, np.float32),
        frozen,
    ):
        answer = policy.act(other, None, None, noise)
        assert answer.action.tolist() == expected.action.tolist()
        assert answer.extras["value"].tolist() == expected.extras["value"].tolist()


def test_rows_are_sorted_by_policy_stably():
    order, start = by_policy(np.array([2, 0, 2, 1, 0], np.int32), 4)
    assert order.tolist() == [1, 4, 3, 0, 2]
    assert start.tolist() == [0, 2, 3, 5, 5]
    for wrong in ([0, 4], [-1, 0]):
        with pytest.raises(PolicyError, match="4 are stacked"):
            by_policy(np.array(wrong, np.int32), 4)
