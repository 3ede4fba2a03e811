"""The policy file: round trips, and every kind of damage."""

import json
import os

import numpy as np
import pytest
from gymnasium.spaces import Discrete
from safetensors.numpy import save

from ludus.core.errors import PolicyError
from ludus.core.types import PolicySpec
from ludus.policies.actor_critic import initial_weights
from ludus.policies.file import load_policy, save_policy
from ludus.policies.specs import action_config, actor_critic_spec, body_config, mlp_spec

SPEC = mlp_spec(inputs=3, actions=2, hidden=(4,))


@pytest.fixture
def weights():
    return initial_weights(SPEC, np.random.default_rng(0))


def test_round_trip_is_equal_to_the_bit_and_equal_policies_give_equal_bytes(tmp_path, weights):
    digest = save_policy(tmp_path / "a.safetensors", SPEC, weights)
    assert digest == save_policy(tmp_path / "b.safetensors", SPEC, dict(reversed(weights.items())))
    policy = load_policy(tmp_path / "a.safetensors", digest)
    assert policy.spec == SPEC
    assert {k: v.tobytes() for k, v in policy.weights().items()} == {k: v.tobytes() for k, v in weights.items()}


def test_policies_without_weights_and_in_float64_are_kept(tmp_path):
    save_policy(tmp_path / "r", PolicySpec("random", {"actions": 3}), {})
    assert load_policy(tmp_path / "r").spec.kind == "random"
    probs = np.array([[1 / 3, 2 / 3]])
    save_policy(tmp_path / "t", PolicySpec("tabular", {"offset": 0, "actions": 2}), {"probs": probs})
    loaded = load_policy(tmp_path / "t").weights()["probs"]
    assert loaded.dtype == np.float64
    assert np.array_equal(loaded, probs)


def test_arrays_without_axes_are_kept(tmp_path):
    """Counts of a normaliser are: NumPy makes one axis of none where it is asked for contiguous memory."""
    spec = actor_critic_spec(
        shape=(3,),
        action=action_config(Discrete(2)),
        body=body_config(hidden=(4,)),
        normalise=["observations", "returns"],
    )
    weights = initial_weights(spec, np.random.default_rng(1))
    assert [name for name, array in weights.items() if array.ndim == 0]
    save_policy(tmp_path / "p", spec, weights)
    loaded = load_policy(tmp_path / "p").weights()
    assert {k: (v.shape, v.tobytes()) for k, v in loaded.items()} == {
        k: (v.shape, v.tobytes()) for k, v in weights.items()
    }


@pytest.mark.parametrize("at", [0, 9, 100, -1])
def test_one_changed_byte_is_noticed(tmp_path, weights, at):
    path = tmp_path / "p"
    digest = save_policy(path, SPEC, weights)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(PolicyError, match="changed or damaged"):
        load_policy(path, digest)


def test_every_truncation_is_refused_without_a_digest(tmp_path, weights):
    path = tmp_path / "p"
    save_policy(path, SPEC, weights)
    data = path.read_bytes()
    for length in range(0, len(data), 37):
        path.write_bytes(data[:length])
        with pytest.raises(PolicyError, match="not a policy that can be loaded"):
            load_policy(path)


def test_foreign_files_are_refused(tmp_path):
    (tmp_path / "foreign").write_bytes(save({"x": np.zeros(2)}))
    with pytest.raises(PolicyError, match="no 'ludus' entry"):
        load_policy(tmp_path / "foreign")
    (tmp_path / "old").write_bytes(save({"x": np.zeros(2)}, metadata={"ludus": '{"format": 99}'}))
    with pytest.raises(PolicyError, match="this version reads 1"):
        load_policy(tmp_path / "old")
    (tmp_path / "list").write_bytes(save({"x": np.zeros(2)}, metadata={"ludus": "[]"}))
    with pytest.raises(PolicyError, match="not a policy that can be loaded"):
        load_policy(tmp_path / "list")
    with pytest.raises(PolicyError, match="cannot be read"):
        load_policy(tmp_path / "nothing")


def test_nothing_is_written_for_weights_that_do_not_fit(tmp_path, weights):
    bad = {**weights, "actor.body.1.bias": np.full(4, np.nan, np.float32)}
    with pytest.raises(PolicyError, match="not a finite number"):
        save_policy(tmp_path / "p", SPEC, bad)
    assert list(tmp_path.iterdir()) == []


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, weights, monkeypatch):
    path = tmp_path / "p"
    digest = save_policy(path, SPEC, weights)

    def crash(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", crash)
    with pytest.raises(OSError, match="disk full"):
        save_policy(path, SPEC, {**weights, "actor.body.1.bias": np.ones(4, np.float32)})
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["p"]
    load_policy(path, digest)


# ------------------------------------------------------------------ format 1, whose perceptrons had weights [in, out]

X = np.array([[1.0, -2.0, 0.5], [0.0, 1.0, 3.0]], np.float32)
SEEN = {"inputs": 3, "hidden": [2], "activation": "relu"}


def old_file(path, kind, config, arrays):
    header = json.dumps({"format": 1, "kind": kind, "config": config})
    path.write_bytes(save(arrays, metadata={"ludus": header}))
    return load_policy(path)


def old_layers(name, outputs, rng=None):
    rng = np.random.default_rng(0) if rng is None else rng
    shapes = {
        f"{name}.0.weight": (3, 2),
        f"{name}.0.bias": (2,),
        f"{name}.1.weight": (2, outputs),
        f"{name}.1.bias": (outputs,),
    }
    return {key: rng.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}


def through(arrays, name):
    hidden = np.maximum(X @ arrays[f"{name}.0.weight"] + arrays[f"{name}.0.bias"], 0.0)
    return hidden @ arrays[f"{name}.1.weight"] + arrays[f"{name}.1.bias"]


@pytest.mark.parametrize("value", ["shared", "separate", "none"])
def test_a_perceptron_of_format_1_plays_as_it_did(tmp_path, value):
    arrays = old_layers("policy", 4 + (value == "shared"))
    given = {**arrays, **(old_layers("value", 1) if value == "separate" else {})}
    policy = old_file(tmp_path / "p", "mlp", {**SEEN, "actions": 4, "value": value}, given)
    assert policy.spec == mlp_spec(inputs=3, actions=4, hidden=(2,), activation="relu", value=value)
    np.testing.assert_allclose(policy.evaluate(X).out[:, :4], through(arrays, "policy")[:, :4], rtol=1e-5)
    if value == "shared":
        np.testing.assert_allclose(policy.evaluate(X).value, through(arrays, "policy")[:, 4], rtol=1e-5)


def test_action_values_of_format_1_play_as_they_did(tmp_path):
    config, arrays = {**SEEN, "actions": 4, "dueling": True}, old_layers("q", 5)
    policy = old_file(tmp_path / "p", "q_network", config, {**arrays, "epsilon": np.array([0.1], np.float32)})
    out, mask = through(arrays, "q"), np.array([[True, True, False, True], [True, False, True, True]])
    best = np.where(mask, out[:, :4], -np.inf).argmax(axis=1)
    assert np.array_equal(policy.act(X, mask, None, np.zeros((2, 1), np.float32), mode="greedy").action, best)
    assert policy.weights()["epsilon"] == np.float32(0.1)


@pytest.mark.parametrize("kind", ["deterministic", "squashed_gaussian"])
def test_actors_of_format_1_play_as_they_did(tmp_path, kind):
    arrays = old_layers("actor", 2 * (1 + (kind != "deterministic")))
    numbers = {name: np.zeros(1, np.float32) for name in ("warm_up", *(["noise"] if kind == "deterministic" else []))}
    bounds = {"shape": [2], "low": [-1.0, 0.0], "high": [1.0, 4.0]}
    policy = old_file(tmp_path / "p", kind, {**SEEN, **bounds}, {**arrays, **numbers})
    unit = np.tanh(through(arrays, "actor")[:, :2])
    found = policy.act(X, None, None, np.full((2, 2), 0.5, np.float32), mode="greedy").action
    np.testing.assert_allclose(found, np.stack([unit[:, 0], 2.0 + 2.0 * unit[:, 1]], axis=1), rtol=1e-5, atol=1e-6)


def test_policies_of_two_of_format_1_have_both_parts_turned(tmp_path):
    parts = {
        "best_response": ("q_network", {**SEEN, "actions": 4, "dueling": False}, "q"),
        "average": ("mlp", {**SEEN, "actions": 4, "value": "none"}, "policy"),
    }
    arrays = {
        f"{part}/{name}": array for part, (_, _, own) in parts.items() for name, array in old_layers(own, 4).items()
    }
    config = {part: {"kind": kind, "config": config} for part, (kind, config, _) in parts.items()}
    policy = old_file(tmp_path / "p", "nfsp", config, {**arrays, "best_response/epsilon": np.zeros(1, np.float32)})
    assert [policy.spec.config[part]["kind"] for part in parts] == ["action_values", "actor_critic"]
    assert set(policy.weights()) >= {
        "best_response/head.advantage.weight",
        "average/actor.body.1.weight",
        "average/head.bias",
    }


def test_a_file_of_a_format_to_come_is_refused(tmp_path):
    header = json.dumps({"format": 3, "kind": "random", "config": {"actions": 2}})
    (tmp_path / "p").write_bytes(save({"x": np.zeros(1)}, metadata={"ludus": header}))
    with pytest.raises(PolicyError, match="its format is 3; this version reads 1 to 2"):
        load_policy(tmp_path / "p")
