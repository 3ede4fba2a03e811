"""Stacks that torch evaluates on a device answer what the CPU's do, and read nothing back before their answer."""

import numpy as np
import pytest

from ludus.core.device import Work, placed
from ludus.core.types import CPU, DeviceChoice, PolicyRef
from ludus.policies.actor_critic import initial_weights, member_spec
from ludus.policies.registry import build_policy
from ludus.policies.specs import actor_critic_spec, body_config
from ludus.rollout.inference.policy_cache import PolicyCache, RequestRows

ACTION = {"kind": "categorical", "actions": 5}
BOX = {"kind": "gaussian", "shape": [2], "low": [-1.0, -1.0], "high": [1.0, 1.0]}
PLAIN = {"shape": (7,), "action": ACTION, "body": body_config(hidden=(8, 8))}
SPECS = {
    "shared": PLAIN,
    "separate": {**PLAIN, "value": "separate"},
    "normalised": {**PLAIN, "action": BOX, "normalise": ["observations"]},
    "gru": {**PLAIN, "core": "gru", "width": 6},
    "lstm": {**PLAIN, "core": "lstm", "width": 6, "value": "separate"},
    "images": {"shape": (3, 20, 20), "action": ACTION, "body": body_config("impala"), "scale": 1 / 255},
    "team": {**PLAIN, "agents": 2},
    "own": {**PLAIN, "shape": (126,), "body": body_config("ludus.policies.connect_four:FourInRow")},
}


def policies_of(name, count):
    spec, rng = actor_critic_spec(**SPECS[name]), np.random.default_rng(0)
    if name != "team":
        return [build_policy(spec, initial_weights(spec, rng)) for _ in range(count)]
    own = member_spec(spec)
    return [
        build_policy(spec, {f"members.{k}.{n}": a for k in range(2) for n, a in initial_weights(own, rng).items()})
        for _ in range(count)
    ]


@pytest.mark.parametrize("name", SPECS)
def test_the_answer_is_the_same(name):
    policies, rng = policies_of(name, 3), np.random.default_rng(1)
    shape = (11, *policies[0].spec.config["shape"])
    x = rng.integers(0, 255, shape).astype(np.uint8) if len(shape) > 2 else rng.standard_normal(shape, np.float32)
    if name == "team":
        x[:, -2:] = np.eye(2)[rng.integers(0, 2, 11)]
    memory = policies[0].memory_shape and rng.standard_normal((11, *policies[0].memory_shape), np.float32)
    noise = rng.random((11, policies[0].noise_width), np.float32)
    index = np.array([2, 0, 2, 2, 2, 0, 2, 2, 2, 2, 2], np.int32)  # policy 1 gets no row
    expected, found = (
        stacked.act(x, None, memory, noise, index)
        for stacked in (type(policies[0]).stack(policies), type(policies[0]).stack_on(policies, at("cpu")))
    )
    np.testing.assert_allclose(found.action, expected.action, atol=1e-6)
    np.testing.assert_allclose(found.logp, expected.logp, atol=1e-5)
    assert (found.memory is None) == (memory is None)
    if memory is not None:
        np.testing.assert_allclose(found.memory, expected.memory, atol=1e-5)
    assert set(found.extras) == set(expected.extras)
    for key, values in expected.extras.items():
        np.testing.assert_allclose(found.extras[key], values, atol=1e-4)
    type(policies[0]).stack_on(policies, at("meta")).act(x, None, memory, noise, index)


def at(device):
    return placed(DeviceChoice(device, written=False), Work(1, 1, written=True))


def test_a_server_asks_where_each_group_computes():
    """One that was asked to compute elsewhere answers what one on the CPU does."""
    policies, answers = policies_of("shared", 2), []
    rng = np.random.default_rng(2)
    x, noise = rng.standard_normal((9, 7), np.float32), rng.random((9, 1), np.float32)
    for device in (CPU, DeviceChoice("cpu", written=False)):
        cache = PolicyCache(lambda k: Message(policies[k]), kept=0, device=device)
        keys = [held.key for held in cache.load("me", (), [(PolicyRef(0, str(k)), k) for k in range(2)])]
        parts = [RequestRows(keys[0], x, None, None, noise), RequestRows(np.repeat(keys, [4, 5]), x, None, None, noise)]
        answers.append(cache.answer([(parts, ("value",))])[0])
        assert {group.placement is None for group in cache._groups._groups} == {device == CPU}
    for one, other in zip(*answers, strict=True):
        assert np.array_equal(one.action, other.action)
        np.testing.assert_allclose(one.extras["value"], other.extras["value"], atol=1e-5)


class Message:
    size = 1

    def __init__(self, policy):
        self.policy = policy
