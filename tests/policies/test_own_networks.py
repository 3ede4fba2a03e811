"""Networks of one's own in the policies and learners of both families."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import own_networks
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from ludus.algorithms.common.base import Algorithm
from ludus.algorithms.dqn.config import DQN, Rainbow
from ludus.algorithms.ppo.config import PPO
from ludus.algorithms.r2d2.config import R2D2
from ludus.core.errors import ConfigError, PolicyError, ScenarioError
from ludus.core.parts import build_part, dump_part
from ludus.core.types import PolicySpec
from ludus.envs.tree.game_tree import compile_tree
from ludus.policies.actor_critic import initial_weights, make_network
from ludus.policies.bodies import OwnBody, make_body
from ludus.policies.file import load_policy, save_policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import actor_critic_spec, body_config, parse_body
from ludus.testing.algorithm import check_algorithm
from ludus.testing.network import check_network
from ludus.testing.policy import check_policy

SKIP = {"kind": "own_networks:Skip", "width": 3}
CATEGORICAL = {"kind": "categorical", "actions": 2}


def spec(network: Any = SKIP, *, shape: tuple[int, ...] = (4,), **options: Any) -> PolicySpec:
    return actor_critic_spec(shape=shape, action=CATEGORICAL, body=body_config(network), **options)


# ---------------------------------------------------------------------------------------------- as an option


def test_as_data() -> None:
    for given in ("mlp", "own_networks:Skip", SKIP):
        assert parse_body(given) == given
        algorithm = build_part(
            "algorithm", {"kind": "ppo", "network": given}, {"ppo": "ludus.algorithms.ppo.config:PPO"}
        )
        assert build_part("algorithm", dump_part(algorithm, {}), {}) == algorithm
    assert parse_body({"kind": "own_networks:Skip"}) == "own_networks:Skip"
    assert parse_body({"kind": "impala"}) == "impala"
    assert body_config(SKIP) == {"kind": "own_networks:Skip", "options": {"width": 3}}
    assert body_config("own_networks:bare") == {"kind": "own_networks:bare", "options": {}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("natrue", "unknown network 'natrue'; did you mean 'nature'.*module:Class"),
        ("own_networks:Skpi", "did you mean 'Skip'"),
        ("own_network:Skip", "did you mean 'own_networks'"),
        ({"width": 3}, "a network was expected"),
        (3, "a network was expected"),
        ({"kind": "mlp", "hidden": [3]}, "'mlp' has no option 'hidden' there"),
        ({"kind": "own_networks:Skip", "width": np.int64(3)}, "cannot be written down"),
    ],
)
@pytest.mark.parametrize("make", [lambda network: PPO(network=network), lambda network: DQN(body=network)])
def test_own_networks_reject_invalid_specs(make: Any, given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("own_networks:raises", "raised ZeroDivisionError when it was made .* no width"),
        ({"kind": "own_networks:Skip", "wdith": 3}, "unexpected keyword argument 'wdith'"),
        ("own_networks:no_module", "made int; expected a torch.nn.Module"),
        ("own_networks:pooled", r"raised IndexError|raised RuntimeError"),
        ("own_networks:three", r"answers float32\[2, 1, \d+\].*expected features"),
    ],
)
@pytest.mark.parametrize("make", [lambda network: PPO(network=network), lambda network: DQN(body=network)])
def test_custom_network_that_does_not_fit_is_rejected_by_name(make: Any, given: Any, message: str) -> None:
    env = compile_tree("kuhn_poker").spec
    with pytest.raises(ScenarioError, match=f"cannot see .*kuhn_poker.*(network|body)=.*{message}"):
        make(given).check(env)


# ---------------------------------------------------------------------------------------------- in policies


def test_custom_network_outputs_by_hand() -> None:
    """Of an actor-critic whose head is set by hand: logits are W [x, tanh(V x + 0.25)]."""
    network = make_network(spec(value="none"), seed=1)
    body = network.actor.body
    assert isinstance(body, OwnBody)
    assert isinstance(body.module, own_networks.Skip)
    assert network.actor.features == 4 + 3
    np.testing.assert_array_equal(body.module.layer.bias.detach().numpy(), np.full(3, 0.25, np.float32))  # its own
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    v, w = body.module.layer.weight.detach().numpy(), network.head.weight.detach().numpy()
    expected = np.concatenate([x, np.tanh(x @ v.T + 0.25)], axis=1) @ w.T
    weights = {name: t.numpy().copy() for name, t in network.state_dict().items()}
    policy = build_policy(spec(value="none"), weights)
    np.testing.assert_allclose(policy.evaluate(x, None).out, expected, rtol=1e-5, atol=1e-6)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("network", "shape", "core"),
    [
        (SKIP, (4,), "gru"),
        ("own_networks:bare", (4,), "none"),
        ("own_networks:pooled", (2, 9, 9), "gru"),
        ("own_networks:Skip", (2, 3, 3), "none"),
    ],
)
def test_policies_keep_their_contract(network: Any, shape: tuple[int, ...], core: Any) -> None:
    made = spec(network, shape=shape, core=core, value="separate", width=5)
    rng = np.random.default_rng(0)
    policy = build_policy(made, initial_weights(made, rng))
    observation = rng.normal(size=(6, *shape)).astype(np.float32)
    check_policy(policy, observation=observation, mask=np.ones((6, 2), bool))


def test_images_are_scaled() -> None:
    body, features = make_body(body_config("own_networks:pooled"), (2, 9, 9), scale=1 / 255)
    assert features == 4
    images = torch.randint(0, 256, (3, 2, 9, 9)).float()
    assert isinstance(body, OwnBody)
    torch.testing.assert_close(body(images), body.module(images / 255))


def test_it_stays_in_evaluation_mode() -> None:
    body, _ = make_body(body_config("own_networks:normalised"), (3,))
    x = torch.arange(6.0).reshape(2, 3)
    before = body(x)
    body.train()
    torch.testing.assert_close(body(x), before)
    assert isinstance(body, OwnBody)
    assert not body.module.training


def test_a_file_rebuilds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = spec(normalise=["observations"])
    policy = build_policy(made, initial_weights(made, np.random.default_rng(0)))
    save_policy(tmp_path / "policy.safetensors", made, policy.weights())
    again = load_policy(tmp_path / "policy.safetensors")
    assert again.spec == made
    observation = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(
        again.act(observation, None, None, np.full((3, 1), 0.5, np.float32)).logp,
        policy.act(observation, None, None, np.full((3, 1), 0.5, np.float32)).logp,
    )
    monkeypatch.delattr(own_networks, "Skip")
    with pytest.raises(PolicyError, match="module 'own_networks' has no 'Skip'"):
        load_policy(tmp_path / "policy.safetensors")


def test_weights_of_another_width_do_not_fit() -> None:
    weights = initial_weights(spec(), np.random.default_rng(0))
    with pytest.raises(PolicyError):
        build_policy(spec({"kind": "own_networks:Skip", "width": 4}), weights)


# ---------------------------------------------------------------------------------------------- in learners

SMALL = {"batch": 20, "epochs": 1}
REPLAY = {"rollout": 40, "rollout_unit": "decisions", "min_size": 40, "batch": 16, "updates_per_decision": 0.1}


@pytest.mark.parametrize(
    "algorithm",
    [
        PPO(network=SKIP, memory="gru", memory_size=4, value_network="separate", **SMALL),
        Rainbow(body="own_networks:bare", **REPLAY),
        R2D2(body=SKIP, memory=4, **{**REPLAY, "batch": 4}),
    ],
    ids=["recurrent", "rainbow", "r2d2"],
)
def test_algorithms_keep_their_contract(algorithm: Algorithm) -> None:
    check_algorithm(algorithm, compile_tree("kuhn_poker").spec, rounds=2)


# ---------------------------------------------------------------------------------------------- the check


@pytest.mark.parametrize(
    ("network", "shape"), [(SKIP, (4,)), ("own_networks:bare", (3,)), ("own_networks:pooled", (2, 9, 9))]
)
def test_the_check_passes_what_is_right(network: Any, shape: tuple[int, ...]) -> None:
    before = torch.get_rng_state()
    check_network(network, shape)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("three", "expected features"),
        ("normalised", "is a BatchNorm1d, and what plays is another network"),
        ("OverRows", "depend on the rows beside it"),
        ("Random", "otherwise when it is asked again"),
        ("Counts", "calls changes when it is asked|module.calls is another"),
        ("Unused", "other.weight takes no part"),
        ("InPlace", "changes its input"),
        ("no_module", "expected a torch.nn.Module"),
    ],
)
def test_the_check_finds_what_is_wrong(name: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_network(f"own_networks:{name}", (4,))


def test_other_spaces_are_served() -> None:
    """Vectors of actions, and bytes."""
    from ludus.policies.specs import action_config

    action = action_config(Box(-1, 1, (2,), np.float32))
    made = actor_critic_spec(shape=(3,), action=action, body=body_config(SKIP))
    policy = build_policy(made, initial_weights(made, np.random.default_rng(0)))
    answer = policy.act(np.ones((2, 3), np.float32), None, None, np.full((2, 2), 0.3, np.float32))
    assert answer.action.shape == (2, 2)
    assert action_config(Discrete(2)) == CATEGORICAL
