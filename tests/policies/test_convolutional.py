"""Policies that look at images, against the plain torch network."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ludus.errors import PolicyError
from ludus.policies.convolutional import CNNPolicy, initial_weights, make_network
from ludus.policies.registry import build_policy
from ludus.policies.specs import cnn_spec
from ludus.testing.policy import check_policy
from ludus.types import PolicySpec


def make(kind: str = "nature", shape: tuple[int, int, int] = (4, 36, 44), seed: int = 0) -> CNNPolicy:
    spec = cnn_spec(shape=shape, actions=5, kind=kind)
    policy = build_policy(spec, initial_weights(spec, np.random.default_rng(seed)))
    assert isinstance(policy, CNNPolicy)
    return policy


def images(n: int, shape: tuple[int, ...] = (4, 36, 44)) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, (n, *shape), dtype=np.uint8)


@pytest.mark.parametrize("kind", ["nature", "impala"])
def test_contract(kind):
    policy = make(kind)
    check_policy(policy, observation=images(6), mask=np.random.default_rng(0).random((6, 5)) < 2)
    check_policy(policy, observation=(images(6) / 255).astype(np.float32))


@pytest.mark.parametrize("kind", ["nature", "impala"])
@pytest.mark.parametrize("shape", [(4, 36, 44), (1, 40, 36)])
def test_it_plays_the_network_that_its_weights_describe(kind, shape):
    policy = make(kind, shape)
    network = make_network(policy.spec)
    network.load_state_dict({name: torch.from_numpy(array) for name, array in policy.weights().items()})
    for n in (9, 3):  # fewer rows after more: the buffer is larger than what is asked
        seen = images(n, shape)
        with torch.no_grad():
            expected = network(torch.from_numpy(seen).to(torch.float32) / 255.0).numpy()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(policy.outputs(seen), expected, atol=1e-5 * scale)
        np.testing.assert_allclose(policy.outputs((seen / 255.0).astype(np.float32)), expected, atol=1e-5 * scale)
        answer = policy.act(seen, None, None, np.full((n, 1), 0.5, np.float32))
        np.testing.assert_allclose(answer.extras["value"], expected[:, -1], atol=1e-5 * scale)


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
    assert make().outputs(seen).tolist() == make().outputs(seen).tolist()
    assert make(seed=1).outputs(seen).tolist() != make().outputs(seen).tolist()


def test_the_size_of_the_nature_network():
    spec = cnn_spec(shape=(4, 84, 84), actions=6)
    sizes = {name: tensor.numel() for name, tensor in make_network(spec).named_parameters()}
    assert sizes["hidden.weight"] == 3136 * 512
    assert sum(sizes.values()) == 8224 + 32832 + 36928 + 3136 * 512 + 512 + 513 * 7


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"actions": 2}, "lacks 'shape'"),
        ({"shape": [84, 84], "actions": 2}, r"shape is \[84, 84\]; expected \[channels, height, width\]"),
        ({"shape": [4, 84, 84], "actions": 2, "network": "resnet"}, "expected one of 'nature', 'impala'"),
        ({"shape": [4, 20, 20], "actions": 2}, "too small for the 'nature' network"),
    ],
)
def test_specs_that_are_wrong_are_refused(config, message):
    with pytest.raises(PolicyError, match=message):
        build_policy(PolicySpec("cnn", config), {})


def test_images_of_another_shape_are_refused():
    with pytest.raises(PolicyError, match=r"of shape \(36, 44, 4\); its spec says \(4, 36, 44\)"):
        make().act(np.zeros((2, 36, 44, 4), np.uint8), None, None, np.zeros((2, 1), np.float32))
