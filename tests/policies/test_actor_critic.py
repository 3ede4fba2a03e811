"""Actor-critic policies: acting agrees with the network, step by step and unrolled, alone and stacked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from ludus.core.errors import PolicyError
from ludus.policies.actor_critic import Packing, initial_weights, layouts, load_arrays, make_network
from ludus.policies.actor_critic_policy import ActorCriticPolicy
from ludus.policies.file import load_policy, save_policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import action_config, actor_critic_spec, body_config
from ludus.testing.policy import check_policy

SPACES = {
    "discrete": action_config(Discrete(3)),
    "multi": action_config(MultiDiscrete([3, 2])),
    "gaussian": {"kind": "gaussian", "shape": [2], "low": [-1.0, None], "high": [2.0, None]},
    "tanh": action_config(Box(-2.0, 2.0, (2, 1), np.float32), squash=True),
}


def make(action="discrete", *, seed=0, shape=(4,), body=None, **options):
    spec = actor_critic_spec(shape=shape, action=SPACES[action], body=body or body_config(hidden=(8,)), **options)
    rng = np.random.default_rng(seed)
    weights = {
        k: v + 0.3 * rng.standard_normal(v.shape).astype(np.float32) for k, v in initial_weights(spec, rng).items()
    }
    if "normaliser.var" in weights:
        weights["normaliser.var"] = np.abs(weights["normaliser.var"]) + 0.1
    policy = build_policy(spec, weights)
    assert isinstance(policy, ActorCriticPolicy)
    return policy


def network_of(policy):
    """Its network as torch's module."""
    network = make_network(policy.spec)
    load_arrays(network, policy.weights())
    return network.requires_grad_(False)


def rows(policy, n=7, seed=1):
    rng = np.random.default_rng(seed)
    memory = None if policy.memory_shape is None else rng.standard_normal((n, *policy.memory_shape)).astype(np.float32)
    observation = rng.standard_normal((n, *policy.spec.config["shape"])).astype(np.float32)
    return observation, memory, rng.random((n, policy.noise_width), dtype=np.float32)


CORES, VALUES = ("none", "gru", "lstm"), ("shared", "separate", "none")


@pytest.mark.parametrize("core", range(3))
@pytest.mark.parametrize("action", range(4))
def test_actor_critic_satisfies_policy_contract(action, core):
    """Every pair of two choices."""
    action, core, value = list(SPACES)[action], CORES[core], VALUES[(action + core) % 3]
    policy = make(action, core=core, width=5, value=value, normalise=("observations", "returns"))
    mask = np.array([[True, False, True], [False, True, False]] * 3) if action == "discrete" else None
    check_policy(policy, observation=rows(policy, 6)[0], mask=mask)


def test_actor_critic_satisfies_policy_contract_on_an_enumeration(enumerated_game):
    spec = actor_critic_spec(shape=(4,), action=SPACES["discrete"], body=body_config(hidden=(8,)))
    policy = build_policy(spec, initial_weights(spec, np.random.default_rng(0)))
    check_policy(policy, enumeration=enumerated_game, player=0)


@pytest.fixture
def enumerated_game():
    from ludus.core.types import Enumeration

    rng = np.random.default_rng(5)
    mask = rng.random((9, 3)) < 0.7
    mask[:, 0] = True
    return Enumeration(
        rng.standard_normal((9, 4)).astype(np.float32), mask, (0, 5, 9), tuple(f"state {k}" for k in range(9))
    )


@pytest.mark.parametrize(
    ("activation", "normalise"), [("tanh", ()), ("relu", ("observations",)), ("tanh", ("observations",))]
)
@pytest.mark.parametrize(
    ("action", "value"),
    [("discrete", "shared"), ("multi", "separate"), ("gaussian", "none"), ("tanh", "shared")],
)
def test_the_fast_way_is_the_network(action, value, activation, normalise):
    body = body_config(hidden=(8, 6), activation=activation)
    policy = make(action, body=body, value=value, normalise=normalise)
    assert policy.networks[0].module is None
    observation, _, _ = rows(policy)
    out, worth, _ = network_of(policy)(torch.from_numpy(observation))
    answer = policy.evaluate(observation)
    np.testing.assert_allclose(answer.out[:, : policy.head.outputs], out.detach().numpy(), atol=3e-6)
    if value == "shared":
        np.testing.assert_allclose(answer.value, worth.detach().numpy(), atol=3e-6)
    else:
        assert answer.value is None


@pytest.mark.parametrize("core", ["none", "gru", "lstm"])
@pytest.mark.parametrize("action", ["discrete", "gaussian"])
def test_a_stack_answers_what_each_policy_does(core, action):
    policies = [make(action, seed=k, core=core, width=5, normalise=("observations",)) for k in range(4)]
    observation, memory, noise = rows(policies[0], 20)
    index = np.random.default_rng(2).integers(0, 3, 20).astype(np.int32)  # one of them has no row
    together = ActorCriticPolicy.stack(policies).act(observation, None, memory, noise, index)
    for k, policy in enumerate(policies):
        mine = index == k
        alone = policy.act(observation[mine], None, None if memory is None else memory[mine], noise[mine])
        np.testing.assert_allclose(together.action[mine], alone.action, atol=1e-5)
        np.testing.assert_allclose(together.logp[mine], alone.logp, atol=1e-5)
        np.testing.assert_allclose(together.extras["value"][mine], alone.extras["value"], atol=1e-5)
        if memory is not None:
            np.testing.assert_allclose(together.memory[mine], alone.memory, atol=1e-5)


@pytest.mark.parametrize(("core", "value"), [("gru", "separate"), ("lstm", "shared")])
def test_an_unroll_is_acting_step_by_step(core, value):
    """Segments of unequal lengths, from memories that are not zero."""
    policy = make("tanh", core=core, width=5, value=value, normalise=("observations",))
    start = np.array([0, 2, 7, 8, 12])
    observation, _, _ = rows(policy, 12)
    before = np.random.default_rng(3).standard_normal((4, *policy.memory_shape)).astype(np.float32)
    out, worth, after = network_of(policy)(
        torch.from_numpy(observation), torch.from_numpy(before), Packing.of(start, torch.device("cpu"))
    )
    for s in range(4):
        memory = before[s : s + 1]
        for t in range(start[s], start[s + 1]):
            answer = policy.evaluate(observation[t : t + 1], memory)
            np.testing.assert_allclose(out[t].numpy(), answer.out[0, : policy.head.outputs], atol=1e-5)
            if value == "shared":
                np.testing.assert_allclose(float(worth[t]), answer.value[0], atol=1e-5)
            memory = answer.memory
        np.testing.assert_allclose(after[s].numpy(), memory[0], atol=1e-5)


@pytest.mark.parametrize("core", ["gru", "lstm"])
def test_the_cells_are_torchs(core):
    policy = make(core=core, width=5)
    observation, memory, _ = rows(policy, 3)
    tower = network_of(policy).actor
    state = torch.from_numpy(memory)[None]
    state = state if core == "gru" else tuple(p.contiguous() for p in state.chunk(2, dim=2))
    out, _ = tower.core(tower.body(torch.from_numpy(observation))[None], state)
    expected = network_of(policy).head(out[0])
    np.testing.assert_allclose(policy.evaluate(observation, memory).out[:, :3], expected.numpy(), atol=2e-6)


@pytest.mark.parametrize("core", ["none", "gru"])
@pytest.mark.parametrize("body", ["nature", "impala"])
def test_images(body, core, tmp_path):
    policy = make(shape=(1, 36, 36), body=body_config(body), core=core, width=6, scale=1 / 255)
    images = np.random.default_rng(0).integers(0, 256, (4, 1, 36, 36), dtype=np.uint8)
    check_policy(policy, observation=images)
    save_policy(tmp_path / "p", policy.spec, policy.weights())
    again = load_policy(tmp_path / "p")
    _, memory, noise = rows(policy, 4)
    assert np.array_equal(again.act(images, None, memory, noise).logp, policy.act(images, None, memory, noise).logp)


def test_perceptrons_are_known_without_a_module():
    """By the names and shapes that the module has, which a layer that scales moves by one."""
    options = {"shape": (2, 3), "action": SPACES["discrete"], "body": body_config(hidden=(8, 5))}
    for value in ("shared", "separate", "none"):
        spec = actor_critic_spec(**options, value=value, scale=0.5)
        found = layouts(spec)
        shapes = {name: shape for layout in found.values() for name, shape in layout.shapes().items()}
        assert shapes == {name: tuple(p.shape) for name, p in make_network(spec).named_parameters()}
        assert found["policy"].widths == (6, 8, 5, 4 if value == "shared" else 3)
        assert "actor.body.2.weight" in shapes
    for other in ({"core": "gru"}, {"agents": 2}, {"body": body_config("impala"), "shape": (1, 9, 9)}):
        assert layouts(actor_critic_spec(**{**options, **other})) == {}


def test_normalised_observations_are_clipped_and_statistics_travel():
    policy = make(normalise=("observations",))
    weights = dict(policy.weights())
    weights["normaliser.mean"], weights["normaliser.var"] = np.full(4, 3.0, np.float32), np.full(4, 4.0, np.float32)
    one = build_policy(policy.spec, weights)
    observation = np.array([[3.0, 5.0, 1.0, 1e6]], np.float32)
    (x,) = one.networks[0].network_inputs(observation)
    np.testing.assert_allclose(x, [[0.0, 1.0, -1.0, 10.0]], atol=1e-6)
    learned = network_of(one).normaliser(torch.from_numpy(observation))
    np.testing.assert_allclose(learned, [[0.0, 1.0, -1.0, 10.0]], atol=1e-6)
    assert np.array_equal(one.weights()["normaliser.mean"], weights["normaliser.mean"])


def test_fresh_weights():
    spec = actor_critic_spec(
        shape=(4,), action=SPACES["gaussian"], body=body_config(hidden=(8,)), core="lstm", width=6, value="separate"
    )
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first, again, other = (make_network(spec, seed=s, initial_std=0.5) for s in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first.head.weight, again.head.weight)
    assert not torch.equal(first.head.weight, other.head.weight)
    assert torch.allclose(first.log_std.exp(), torch.tensor(0.5))
    gram = first.head.weight @ first.head.weight.T
    assert torch.allclose(gram, 1e-4 * torch.eye(2), atol=1e-6)
    load_arrays(other, {k: v.numpy() for k, v in first.state_dict().items()})
    assert torch.equal(first.head.weight, other.head.weight)


def test_actor_critic_rejects_invalid_specs():
    policy = make(core="gru", width=5)
    observation, memory, noise = rows(policy, 3)
    with pytest.raises(PolicyError, match=r"wants memory of shape \(3, 5\); it was given none"):
        policy.act(observation, None, None, noise)
    with pytest.raises(PolicyError, match=r"observations of shape \(3,\); its spec says \(4,\)"):
        policy.act(observation[:, :3], None, memory, noise)
    with pytest.raises(PolicyError, match="it remembers, or plays vectors"):
        policy.probabilities(observation, np.ones((3, 3), np.bool_), mode="explore")
    with pytest.raises(PolicyError, match="missing"):
        build_policy(policy.spec, {})
    multi = make("multi")
    with pytest.raises(PolicyError, match=r"a mask of shape \(3, 4\).*expected \(3, 5\)"):
        multi.act(observation, np.ones((3, 4), np.bool_), None, rows(multi, 3)[2])
    gaussian = make("gaussian")
    with pytest.raises(PolicyError, match="row 1 of 3 has no action: the policy's outputs are"):
        gaussian.act(np.array([[0] * 4, [np.nan] * 4, [0] * 4], np.float32), None, None, rows(gaussian, 3)[2])


@pytest.mark.parametrize(
    ("core", "shape"), [("none", (4,)), ("gru", (4,)), ("none", (1, 36, 36)), ("lstm", (1, 36, 36))]
)
def test_normalized_bytes_are_not_scaled(core, shape):
    """The answers of the network, and of what acts, are those of a policy without a scale."""
    body = body_config("nature") if len(shape) == 3 else None
    scaled, plain = (
        make(shape=shape, body=body, core=core, width=5, normalise=("observations",), scale=scale)
        for scale in (1 / 255, 1.0)
    )
    observation = np.random.default_rng(0).integers(0, 4, (3, *shape), dtype=np.uint8)
    memory = rows(plain, 3)[1]
    answer, expected = scaled.evaluate(observation, memory), plain.evaluate(observation, memory)
    assert np.array_equal(answer.out, expected.out)
    x, before = torch.from_numpy(observation).float(), None if memory is None else torch.from_numpy(memory)
    np.testing.assert_allclose(
        answer.out[:, : scaled.head.outputs], network_of(scaled)(x, before)[0].numpy(), atol=1e-5
    )
    if core == "none":
        np.testing.assert_allclose(answer.value, network_of(scaled).value_of(x).numpy(), atol=1e-5)
