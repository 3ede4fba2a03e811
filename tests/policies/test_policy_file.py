"""The policy file: round trips, and every kind of damage."""

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
