"""Policies that look at images, against the plain torch network."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ludus.core.errors import PolicyError
from ludus.policies.actor_critic import initial_weights, load_arrays, make_network
from ludus.policies.actor_critic_policy import ActorCriticPolicy
from ludus.policies.registry import build_policy
from ludus.policies.specs import actor_critic_spec, body_config, cnn_spec
from ludus.testing.policy import check_policy


def make(kind: str = "nature", shape: tuple[int, int, int] = (4, 36, 44), seed: int = 0) -> ActorCriticPolicy:
    spec = cnn_spec(shape=shape, actions=5, kind=kind)
    policy = build_policy(spec, initial_weights(spec, np.random.default_rng(seed)))
    assert isinstance(policy, ActorCriticPolicy)
    assert policy.networks[0].sight
    return policy


def images(n: int, shape: tuple[int, ...] = (4, 36, 44)) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, (n, *shape), dtype=np.uint8)


@pytest.mark.parametrize("kind", ["nature", "impala"])
def test_image_policies_satisfy_policy_contract(kind):
    policy = make(kind)
    check_policy(policy, observation=images(6), mask=np.random.default_rng(0).random((6, 5)) < 2)


@pytest.mark.parametrize("kind", ["nature", "impala"])
@pytest.mark.parametrize("shape", [(4, 36, 44), (1, 40, 36)])
def test_it_plays_the_network_that_its_weights_describe(kind, shape):
    policy = make(kind, shape)
    network = make_network(policy.spec)
    load_arrays(network, policy.weights())
    network.double()  # the rounding of one side only: how much that is depends on the processor
    for n in (9, 3):  # fewer rows after more: the buffer is larger than what is asked
        seen = images(n, shape)
        with torch.no_grad():
            expected, value, _ = network(torch.from_numpy(seen).to(torch.float64))
        scale = float(value.abs().max())
        for given in (seen, seen.astype(np.float32)):
            answer = policy.evaluate(given)
            np.testing.assert_allclose(answer.out[:, :5], expected.numpy(), atol=3e-5 * scale)
            np.testing.assert_allclose(answer.value, value.numpy(), atol=3e-5 * scale)
        act = policy.act(seen, None, None, np.full((n, 1), 0.5, np.float32))
        np.testing.assert_allclose(act.extras["value"], value.numpy(), atol=3e-5 * scale)


@pytest.mark.parametrize(("core", "value"), [("gru", "shared"), ("lstm", "separate")])
def test_recurrent_image_policies_equal_their_network_stepwise(core, value):
    """Alone, step by step, and in a stack, as the network does."""
    action = {"kind": "categorical", "actions": 3}
    spec = actor_critic_spec(
        shape=(1, 36, 36), action=action, body=body_config("nature"), core=core, width=4, value=value, scale=1 / 255
    )
    policies = [build_policy(spec, initial_weights(spec, np.random.default_rng(k))) for k in range(2)]
    assert len(policies[0].networks[0].sight) == (2 if value == "separate" else 1)
    seen, index = images(5, (1, 36, 36)), np.array([1, 0, 0, 1, 1], np.int32)
    memory = np.random.default_rng(0).standard_normal((5, *policies[0].memory_shape)).astype(np.float32)
    noise = np.full((5, 1), 0.5, np.float32)
    together = ActorCriticPolicy.stack(policies).act(seen, None, memory, noise, index)
    for k, policy in enumerate(policies):
        mine = index == k
        out, _, after = policy.networks[0].module(torch.from_numpy(seen[mine]).float(), torch.from_numpy(memory[mine]))
        answer = policy.evaluate(seen[mine], memory[mine])
        np.testing.assert_allclose(answer.out[:, :3], out.numpy(), atol=1e-5)
        np.testing.assert_allclose(answer.memory, after.numpy(), atol=1e-5)
        np.testing.assert_allclose(together.memory[mine], answer.memory, atol=1e-5)


def test_an_answer_is_not_overwritten_by_the_next():
    policy = make()
    first = policy.act(images(4), None, None, np.zeros((4, 1), np.float32))
    value = first.extras["value"].copy()
    policy.act(images(5), None, None, np.zeros((5, 1), np.float32))
    assert first.extras["value"].tolist() == value.tolist()


def test_fresh_weights_are_nearly_uniform_and_the_seeds_own():
    seen, noise = images(8), np.zeros((8, 1), np.float32)
    answer = make().act(seen, None, None, noise)
    assert np.exp(answer.logp) == pytest.approx([0.2] * 8, abs=0.02)
    assert make().evaluate(seen).out.tolist() == make().evaluate(seen).out.tolist()
    assert make(seed=1).evaluate(seen).out.tolist() != make().evaluate(seen).out.tolist()


def test_the_size_of_the_nature_network():
    spec = cnn_spec(shape=(4, 84, 84), actions=6)
    sizes = {name: tensor.numel() for name, tensor in make_network(spec).named_parameters()}
    assert sizes["actor.body.3.weight"] == 3136 * 512
    assert sum(sizes.values()) == 8224 + 32832 + 36928 + 3136 * 512 + 512 + 513 * 7


def test_images_of_another_shape_are_refused():
    with pytest.raises(PolicyError, match=r"of shape \(36, 44, 4\); its spec says \(4, 36, 44\)"):
        make().act(np.zeros((2, 36, 44, 4), np.uint8), None, None, np.zeros((2, 1), np.float32))
