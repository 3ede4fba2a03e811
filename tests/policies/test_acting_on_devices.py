"""Every kind of policy with networks, by torch on a device: it plays what its compiled way does, and reads nothing back but its answer."""

import numpy as np
import pytest
from torch import nn

from ludus.backend import device
from ludus.backend.device import UpdateCost, gpu_count, resolve_placement, to_device
from ludus.core.errors import ConfigError
from ludus.core.types import CPU, DeviceChoice, PolicyRef, PolicySpec
from ludus.policies import action_values, actor_critic, stacks, torch_module
from ludus.policies.registry import build_policy
from ludus.policies.specs import (
    QHeadSpec,
    action_values_spec,
    actor_critic_spec,
    averaged_spec,
    body_config,
    joined,
    nfsp_spec,
    spec_of,
)
from ludus.policies.stacks import bucket
from ludus.policies.torch_module import torch_spec
from ludus.rollout.inference.groups import acting_placement, describe_acting
from ludus.rollout.inference.policy_cache import PolicyCache, RequestRows

ACTION = {"kind": "categorical", "actions": 5}
BOX = {"shape": [2], "low": [-1.0, -1.0], "high": [1.0, 1.0]}
MLP = body_config(hidden=(8, 8))
OWN = body_config("ludus.policies.connect_four:FourInRow")


class Logits:
    """Makes networks of an algorithm of its own."""

    def networks(self, inputs, actions):
        return {
            "policy": nn.Sequential(nn.Linear(inputs, 6), nn.ReLU(), nn.Linear(6, actions)),
            "critic": nn.Linear(inputs, 1),
        }


def critic(**given):
    return actor_critic_spec(**{"shape": (7,), "action": ACTION, "body": MLP, **given})


def values(head=None, **given):
    return action_values_spec(**{"shape": (7,), "actions": 5, "body": MLP, "head": head and QHeadSpec(**head), **given})


SPECS = {
    "shared": critic(),
    "separate": critic(value="separate"),
    "normalised": critic(action={"kind": "gaussian", **BOX}, normalise=["observations"]),
    "warm": critic(action={"kind": "tanh", **BOX, "warm_up": True}, value="none"),
    "point": critic(action={"kind": "point", **BOX}, value="none"),
    "choices": critic(action={"kind": "multi_categorical", "choices": [2, 3]}),
    "gru": critic(core="gru", width=6),
    "lstm": critic(core="lstm", width=6, value="separate"),
    "images": critic(shape=(3, 20, 20), body=body_config("impala"), scale=1 / 255),
    "team": critic(agents=2),
    "own": critic(shape=(126,), body=OWN),
    "q": values(),
    "q, dueling": values({"dueling": True}),
    "q, rainbow": values({"dueling": True, "noisy": True, "distribution": "c51", "atoms": 7, "low": -1.0, "high": 2.0}),
    "q, quantiles": values({"distribution": "quantile", "atoms": 4}),
    "q, implicit": values({"distribution": "implicit", "atoms": 4}),
    "q, gru": values({"dueling": True}, core="gru", width=6),
    "q, lstm, noisy": values({"noisy": True}, core="lstm", width=6),
    "q, images": values({"dueling": True}, shape=(3, 20, 20), body=body_config("impala"), scale=1 / 255),
    "q, team": values(agents=2, core="gru", width=6),
    "q, individual": values({"dueling": True}, individual=2),
    "q, individual lstm": values(individual=2, core="lstm", width=6),
    "nfsp": nfsp_spec(values({"dueling": True}), critic(value="none")),
    "averaged": averaged_spec(critic(value="none")),
    "torch": torch_spec(maker=f"{__name__}:Logits", options={}, inputs=7, actions=5),
}  # fmt: skip


def weights_of(spec, rng):
    if spec.kind in ("nfsp", "averaged"):
        return joined({part: weights_of(spec_of(spec, part), rng) for part in spec.config})
    if spec.kind == "torch":
        return actor_critic.arrays_of(torch_module.make_networks(spec, seed=int(rng.integers(99))))
    if spec.kind == "action_values":
        return action_values.initial_weights(spec, rng, epsilon=float(rng.random()))
    if "agents" not in spec.config:
        return actor_critic.initial_weights(spec, rng)
    own = actor_critic.member_spec(spec)
    return {f"members.{k}.{n}": a for k in range(2) for n, a in actor_critic.initial_weights(own, rng).items()}


def policies_of(name, count):
    spec, rng = SPECS[name], np.random.default_rng(0)
    made = [weights_of(spec, rng) for _ in range(count)]
    for weights in made:  # apart from each other, and so that something is large
        for key, array in weights.items():
            if array.ndim == 2 or key.endswith("warm_up"):
                array += (0.01 if "images" in name else 0.3) * rng.standard_normal(array.shape).astype(np.float32)
    return [build_policy(spec, weights) for weights in made]


def rows_of(policy, n):
    spec, rng = policy.spec, np.random.default_rng(1)
    while "shape" not in spec.config and spec.kind != "torch":
        spec = spec_of(spec, "average")
    shape = (n, *spec.config.get("shape", (7,)))
    x = rng.integers(0, 255, shape).astype(np.uint8) if len(shape) > 2 else rng.standard_normal(shape, np.float32)
    if "agents" in spec.config or "individual" in spec.config:
        x[:, -2:] = np.eye(2)[rng.integers(0, 2, n)]
    actions = getattr(policy, "actions", 5)
    mask = None
    if actions:
        mask = rng.random((n, actions)) < 0.6
        mask[np.arange(n), rng.integers(actions, size=n)] = True
    memory = policy.memory_shape and rng.standard_normal((n, *policy.memory_shape), np.float32)
    return x, mask, memory, rng.random((n, policy.noise_width), np.float32)


def one_by_one(policies, index, rows, mode):
    """What the policies themselves answer."""
    out = {}
    for k in np.unique(index):
        picked = np.flatnonzero(index == k)
        act = policies[k].act(*(None if one is None else one[picked] for one in rows), mode=mode)
        told = {"action": act.action, "logp": act.logp, "memory": act.memory, **act.extras}
        for key, found in told.items():
            if found is not None:
                out.setdefault(key, np.zeros((len(index), *found.shape[1:]), found.dtype))[picked] = found
    return out


def at(place):
    return resolve_placement(DeviceChoice(place, written=False), UpdateCost(1, 1, has_cpu_kernel=True))


FEW = [2, 0, 2, 2, 2, 0, 2, 2, 2, 2, 2]  # policy 1 gets no row
MANY = [*[2] * 90, *[0, 1] * 2]  # whose rows are cut in two


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", SPECS)
def test_a_device_plays_what_the_cpu_plays(name):
    policies = policies_of(name, 3)
    places = ["meta", "cpu", *["cuda"][: gpu_count()]]
    stacked = [type(policies[0]).stack_on(policies, at(place)) for place in places]
    assigned = [FEW] if "images" in name or name == "own" else [FEW, FEW[::-1], MANY, [1] * 3, FEW]
    for index in (np.array(one, np.int32) for one in assigned):
        rows = rows_of(policies[0], len(index))
        for mode in policies[0].modes[1:3] if len(index) == 3 else ["explore"]:
            expected = one_by_one(policies, index, rows, mode)
            for place, stack in zip(places, stacked, strict=True):
                found = stack.act(*rows, index, mode)
                told = {"action": found.action, "logp": found.logp, "memory": found.memory, **found.extras}
                assert {k for k, v in told.items() if v is not None} == set(expected)
                close = {"meta": 1e12, "cpu": 1e-4, "cuda": 5e-3}[place]  # no numbers; rounding; narrow convolutions
                for key, values in expected.items():
                    assert told[key].shape == values.shape
                    np.testing.assert_allclose(
                        told[key], values, atol=close, err_msg=f"{key} {mode} {len(index)} {place}"
                    )


@pytest.mark.parametrize("name", ["lstm", "q, rainbow", "nfsp", "torch"])
def test_weights_that_are_there_are_not_brought_again(name, monkeypatch):
    policies = policies_of(name, 3)
    kind = type(policies[0])
    first, brought = kind.stack_on(policies[:2], at("cpu")), []
    monkeypatch.setattr(stacks, "to_device", lambda array, device: brought.append(1) or to_device(array, device))
    second = kind.stack_on([policies[2], policies[0]], at("cpu"))
    networks = 2 if name == "nfsp" else 1
    assert len(brought) == networks  # those of policy 2
    del first
    kind.stack_on([policies[0], policies[1]], at("cpu"))
    assert len(brought) == 2 * networks  # nobody has those of policy 1 any more
    del second


@pytest.mark.parametrize("name", ["lstm", "q, rainbow", "torch"])
def test_narrow_products_move_answers_by_about_a_hundredth(name):
    policies, index = policies_of(name, 3), np.array(FEW, np.int32)
    rows, kind = rows_of(policies[0], len(index)), type(policies[0])
    expected, found = (
        kind.stack_on(
            policies,
            resolve_placement(DeviceChoice("cpu", precision, written=False), UpdateCost(1, 1, has_cpu_kernel=True)),
        ).act(*rows, index, "greedy")
        for precision in ("float32", "bf16")
    )
    assert np.mean(found.action == expected.action) > 0.7
    if expected.memory is not None:
        assert found.memory.dtype == np.float32
        assert not np.array_equal(found.memory, expected.memory)
        np.testing.assert_allclose(found.memory, expected.memory, atol=0.05)


def test_few_sizes_are_seen():
    assert [bucket(n) for n in (1, 2, 7, 9, 64, 65, 100, 1000, 4096)] == [1, 2, 7, 10, 64, 80, 112, 1024, 4096]
    assert len({bucket(n) for n in range(64, 4097)}) == 25


@pytest.mark.parametrize("name", ["shared", "nfsp"])
def test_a_server_asks_where_each_group_computes(name):
    """One that was asked to compute elsewhere answers what one on the CPU does; tables and their like stay."""
    policies, answers = [*policies_of(name, 2), build_policy(PolicySpec("random", {"actions": 5}), {})], []
    x, mask, _, noise = rows_of(policies[0], 9)
    for choice in (CPU, DeviceChoice("cpu", written=False)):
        cache = PolicyCache(lambda k: Message(policies[k]), cache_bytes=0, device=choice)
        keys = [held.key for held in cache.load("me", (), [(PolicyRef(0, str(k)), k) for k in range(3)])]
        parts = [RequestRows(keys[0], x, mask, None, noise), RequestRows(np.repeat(keys, 3), x, mask, None, noise)]
        answers.append(cache.answer([(parts, ("value",))])[0])
        placed_there = [group.placement is not None for group in cache._groups._groups]
        assert placed_there == [choice != CPU, False]
    for one, other in zip(*answers, strict=True):
        assert np.array_equal(one.action, other.action)
        assert set(one.extras) == set(other.extras)
        for key, found in other.extras.items():
            np.testing.assert_allclose(one.extras[key], found, atol=1e-5)


@pytest.mark.parametrize(
    ("asked", "width", "expected"),
    [
        ("auto", 8, None),
        ("auto", 48, None),
        ("auto", 64, "cuda:0"),
        ("cuda:1", 8, "cuda:1"),
        ("cpu", 128, None),
        ("meta", 8, "meta"),
    ],
)
def test_small_networks_stay_where_they_are_faster(asked, width, expected, monkeypatch):
    """Of 7 × 64, 64 × 64 and 64 × 6 multiplications a row, and 4,096 rows, 2.01e7; from 2e7 on, a GPU takes them."""
    monkeypatch.setattr(device, "gpu_count", lambda: 2)
    spec = critic(body=body_config(hidden=(width, width)))
    policy = build_policy(spec, weights_of(spec, np.random.default_rng(0)))
    place = acting_placement(policy, DeviceChoice(asked), 4096)
    assert (place and place.device) == expected
    if asked == "auto":  # learners may be on the GPU that this is asked for
        place = acting_placement(policy, DeviceChoice(asked, "tf32"), 4096)
        assert (place and (place.device, place.precision)) == (expected and (expected, "tf32"))
    monkeypatch.setattr(device, "gpu_count", lambda: 0)
    assert acting_placement(policy, DeviceChoice("auto", "bf16"), 4096) is None  # a CPU plays in float32


def test_a_gpu_that_is_named_may_be_for_large_networks_alone(monkeypatch):
    """Which is how learners are there and policies of few rows are not."""
    monkeypatch.setattr(device, "gpu_count", lambda: 2)
    spec = critic(body=body_config(hidden=(128, 128)))
    policy = build_policy(spec, weights_of(spec, np.random.default_rng(0)))
    choice = DeviceChoice("cuda:1", if_large=True)
    assert acting_placement(policy, choice, 8) is None
    assert describe_acting(policy, choice, 8) == (
        "cpu: 1.4e+05 multiplications for all answers of a step are too few for a GPU (from 2e+07)"
    )
    place = acting_placement(policy, choice, 4096)
    assert place is not None
    assert place.device == "cuda:1"
    assert describe_acting(policy, choice, 4096) == "cuda:1: 7.4e+07 multiplications for all answers of a step"
    assert describe_acting(build_policy(PolicySpec("random", {"actions": 5}), {}), choice, 4096) == (
        "cpu: policies of kind 'random' act there only"
    )
    with pytest.raises(ConfigError, match="there are 2 GPUs, cuda:0 to cuda:1"):
        acting_placement(policy, DeviceChoice("cuda:2", if_large=True), 8)


class Message:
    size = 1

    def __init__(self, policy):
        self.policy = policy
