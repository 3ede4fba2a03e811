"""Every built-in policy against the shipped contract, and its own literal numbers."""

import numpy as np
import pytest
from torch import nn

from ludus.core.errors import ConfigError, PolicyError, UnknownName
from ludus.core.types import Enumeration, PolicySpec
from ludus.policies.action_value_policy import ActionValuePolicy, action_values
from ludus.policies.action_values import initial_weights as initial_values
from ludus.policies.actor_critic import arrays_of, initial_weights
from ludus.policies.actor_critic_policy import ActorCriticPolicy
from ludus.policies.categorical import TabularPolicy, inverse_cdf, masked_softmax, one_hot_best
from ludus.policies.registry import POLICIES, build_policy
from ludus.policies.specs import QHeadSpec, action_values_spec, body_config, gru_spec, mlp_spec
from ludus.policies.torch_module import make_networks, torch_spec
from ludus.testing.policy import check_policy

INPUTS, ACTIONS = 6, 4


@pytest.fixture
def enumeration():
    rng = np.random.default_rng(3)
    mask = rng.random((20, ACTIONS)) < 0.6
    mask[:, 1] = True
    return Enumeration(
        observation=rng.standard_normal((20, 2, 3)).astype(np.float32),
        mask=mask,
        offset=(0, 12, 20),
        key=tuple(map(str, range(20))),
    )


class Networks:
    """Makes the modules of a `torch` policy."""

    def __init__(self, hidden):
        self.hidden = hidden

    def networks(self, inputs, actions):
        return {"policy": nn.Sequential(nn.Linear(inputs, self.hidden), nn.Tanh(), nn.Linear(self.hidden, actions))}


def make(kind, enumeration, seed=0, **options):
    rng = np.random.default_rng(seed)
    if kind == "tabular":
        probs = rng.random((8, ACTIONS)) * enumeration.mask[12:]
        return build_policy(
            PolicySpec("tabular", {"offset": 12, "actions": ACTIONS}), {"probs": probs / probs.sum(1, keepdims=True)}
        )
    if kind == "random":
        return build_policy(PolicySpec("random", {"actions": ACTIONS}), {})
    if kind == "gru":
        spec = gru_spec(inputs=INPUTS, actions=ACTIONS, hidden=5)
        return build_policy(spec, initial_weights(spec, rng))
    if kind == "torch":
        spec = torch_spec(maker="test_policies:Networks", options={"hidden": 8}, inputs=INPUTS, actions=ACTIONS)
        return build_policy(spec, arrays_of(make_networks(spec, seed=seed)))
    if kind == "action_values":
        given = {key: options.pop(key) for key in ("core", "width", "spread") if key in options}
        body = body_config(hidden=options.pop("hidden", (8,)), activation="relu")
        spec = action_values_spec(shape=(2, 3), actions=ACTIONS, body=body, head=QHeadSpec(**options), **given)
        return build_policy(spec, initial_values(spec, rng, epsilon=0.3))
    spec = mlp_spec(inputs=INPUTS, actions=ACTIONS, hidden=(8, 8), **options)
    return build_policy(spec, scaled(initial_weights(spec, rng)))


def scaled(weights):
    """Weights whose actions are far from uniform, so that a test can tell policies apart."""
    return {name: w * (100.0 if name.startswith("head") else 1.0) for name, w in weights.items()}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("tabular", {}),
        ("random", {}),
        ("gru", {}),
        ("action_values", {}),
        ("action_values", {"dueling": True}),
        ("action_values", {"dueling": True, "noisy": True}),
        ("action_values", {"dueling": True, "distribution": "c51", "atoms": 5, "low": -1.0, "high": 1.0}),
        ("action_values", {"distribution": "quantile", "atoms": 5}),
        ("action_values", {"dueling": True, "noisy": True, "distribution": "implicit", "atoms": 5}),
        ("action_values", {"core": "lstm", "width": 5, "dueling": True}),
        ("action_values", {"core": "gru", "width": 5, "noisy": True}),
        ("action_values", {"spread": 7.0, "noisy": True}),
        ("actor_critic", {"value": "shared"}),
        ("actor_critic", {"value": "separate", "activation": "relu"}),
        ("actor_critic", {"value": "none"}),
        ("torch", {}),
    ],
)
def test_policy_kinds_satisfy_policy_contract(kind, options, enumeration):
    check_policy(make(kind, enumeration, **options), enumeration=enumeration, player=1)


ELSEWHERE = {
    "actor_values", "bot", "averaged", "choice", "conditioned", "muzero", "nfsp", "searching", "team_transformer",
    "football_built_in", "football_script",
}  # fmt: skip
"""Checked in `test_apex.py` (it plays in boxes), `test_nfsp.py` (they are two policies), `test_choice_policy.py` (it is several),
`test_conditioned_policy.py` (it is told what it is), `test_search.py` and `test_muzero.py` (they search), `test_team_transformer.py` (it
plays teams), `test_bots.py` (it only stands for a bot) and `test_football_sides.py`."""


def test_every_registered_kind_is_checked(enumeration):
    for kind in POLICIES.keys() - ELSEWHERE:
        assert make(kind, enumeration).spec.kind == kind


def test_inverse_cdf_takes_the_first_action_whose_cumulative_probability_exceeds_the_noise():
    probs = np.array([[0.25, 0.0, 0.5, 0.25]] * 6)
    noise = np.array([0.0, 0.2499, 0.25, 0.7499, 0.75, 0.9999], np.float32)
    action, logp = inverse_cdf(probs, noise)
    assert action.tolist() == [0, 0, 2, 2, 3, 3]
    assert np.exp(logp).tolist() == pytest.approx([0.25, 0.25, 0.5, 0.5, 0.25, 0.25])


def test_masked_softmax_literal():
    out = masked_softmax(np.array([[np.log(1.0), 50.0, np.log(3.0)]]), np.array([[True, False, True]]))
    assert out[0].tolist() == pytest.approx([0.25, 0.0, 0.75])


def test_masked_softmax_ignores_the_extra_value_column_and_large_logits():
    out = masked_softmax(np.array([[1000.0, 1000.0, 5.0]], np.float32), np.array([[True, True]]))
    assert out.tolist() == [[0.5, 0.5]]


def test_one_hot_best_takes_the_first_of_ties_among_legal():
    scores = np.array([[9.0, 2.0, 2.0], [1.0, 5.0, 5.0]])
    mask = np.array([[False, True, True], [True, True, True]])
    assert one_hot_best(scores, mask).tolist() == [[0, 1, 0], [0, 1, 0]]


def test_dueling_values_literal():
    out = np.array([[1.0, 4.0, 100.0, 10.0]])
    mask = np.array([[True, True, False]])
    # mean legal advantage 2.5, value 10
    assert action_values(out, mask).tolist() == [[8.5, 11.5, 0.0]]
    assert action_values(out[:, :3], mask).tolist() == [[1.0, 4.0, 0.0]]


def test_epsilon_travels_with_the_weights(enumeration):
    policy = make("action_values", enumeration)
    table = policy.tabulate(enumeration, 1)
    legal = enumeration.mask[12:].sum(1)
    assert table.max(axis=1) == pytest.approx(0.7 + 0.3 / legal)
    weights = {**policy.weights(), "epsilon": np.array([0.0], np.float32)}
    assert set(np.unique(ActionValuePolicy(policy.spec, weights).tabulate(enumeration, 1))) == {0.0, 1.0}


def test_a_row_without_a_legal_action_is_an_error(enumeration):
    policy = make("actor_critic", enumeration)
    mask = np.ones((2, ACTIONS), bool)
    mask[1] = False
    with pytest.raises(PolicyError, match="row 1 of 2 has no action"):
        policy.act(np.zeros((2, INPUTS), np.float32), mask, None, np.zeros((2, 1), np.float32))


@pytest.mark.parametrize(
    ("kind", "options", "rows"),
    [
        ("actor_critic", {}, 200),
        ("actor_critic", {"activation": "relu"}, 7),
        ("action_values", {}, 7),
        ("action_values", {"dueling": True}, 200),
        ("action_values", {"core": "gru", "width": 5, "dueling": True}, 20),
        ("action_values", {"core": "lstm", "width": 5, "noisy": True}, 20),
    ],
)
def test_stacked_policies_equal_separate_calls(kind, options, rows, enumeration):
    policies = [make(kind, enumeration, seed=seed, **options) for seed in range(5)]
    if kind == "action_values":
        policies[1] = ActionValuePolicy(
            policies[1].spec, {**policies[1].weights(), "epsilon": np.array([0.9], np.float32)}
        )
    rng = np.random.default_rng(1)
    index = rng.choice([0, 1, 3, 4], size=rows, p=[0.6, 0.1, 0.1, 0.2]).astype(np.int32)  # policy 2 gets no row
    ids = rng.integers(12, 20, rows)
    observation, mask = enumeration.observation[ids], enumeration.mask[ids]
    noise = rng.random((rows, policies[0].noise_width), dtype=np.float32)
    memory = None
    if policies[0].memory_shape:
        memory = rng.standard_normal((rows, *policies[0].memory_shape)).astype(np.float32)
    stacked = type(policies[0]).stack(policies)
    for mode in ActorCriticPolicy.modes:
        answer = stacked.act(observation, mask, memory, noise, index, mode)
        for k, policy in enumerate(policies):
            mine = index == k
            before = None if memory is None else memory[mine]
            alone = policy.act(observation[mine], mask[mine], before, noise[mine], mode=mode)
            assert np.array_equal(answer.action[mine], alone.action)
            assert answer.logp[mine] == pytest.approx(alone.logp, abs=1e-5)
            assert memory is None or answer.memory[mine] == pytest.approx(alone.memory, abs=1e-5)
            for name, values in alone.extras.items():
                assert answer.extras[name][mine] == pytest.approx(values, abs=1e-5)


def test_policies_of_two_specs_do_not_stack(enumeration):
    with pytest.raises(PolicyError, match="one spec"):
        ActorCriticPolicy.stack(
            [make("actor_critic", enumeration), make("actor_critic", enumeration, activation="relu")]
        )


def test_stack_refuses_an_index_outside(enumeration):
    stacked = ActorCriticPolicy.stack([make("actor_critic", enumeration)])
    with pytest.raises(PolicyError, match="1 are stacked"):
        stacked.act(np.zeros((1, INPUTS)), None, None, np.zeros((1, 1), np.float32), np.array([1], np.int32))


def test_tabular_covers_its_ids_only(enumeration):
    policy = make("tabular", enumeration)
    assert isinstance(policy, TabularPolicy)
    with pytest.raises(PolicyError, match="covers ids 12 to 19"):
        policy.tabulate(enumeration, 0)
    with pytest.raises(PolicyError, match="covers ids 12 to 19"):
        policy.act(np.array([11], np.int32), None, None, np.zeros((1, 1), np.float32))


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("actor_critic", {"actor.body.1.weight": np.zeros((2, 2), np.float32)}, "has shape"),
        ("actor_critic", {"actor.body.1.bias": np.full(8, np.inf, np.float32)}, "not a finite number"),
        ("actor_critic", {"actor.body.1.bias": np.full(8, 1e39)}, "not a finite number of float32"),
        ("actor_critic", {"other": np.zeros(1, np.float32)}, "not expected \\['other'\\]"),
        ("action_values", {"epsilon": np.array([1.5], np.float32)}, "expected a probability"),
        ("tabular", {"probs": np.full((8, ACTIONS), 0.3)}, "summing to 1"),
        ("tabular", {"probs": np.array(1.0)}, "has shape"),
    ],
)
def test_weights_that_do_not_fit_are_refused(kind, change, message, enumeration):
    policy = make(kind, enumeration)
    with pytest.raises(PolicyError, match=message):
        build_policy(policy.spec, {**policy.weights(), **change})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "lacks 'shape'"),
        ({"shape": [0]}, r"shape is \[0\]"),
        ({"value": "half"}, "value is 'half'; expected one of 'shared'"),
        ({"action": {"kind": "categorical"}}, "lacks 'actions'"),
        ({"agents": 1}, "agents is 1; expected a whole number of at least 2"),
    ],
)
def test_specs_that_are_wrong_are_refused(config, message):
    with pytest.raises(PolicyError, match=message):
        build_policy(
            PolicySpec("actor_critic", {**mlp_spec(inputs=3, actions=2, hidden=()).config, **config} if config else {}),
            {},
        )


def test_unknown_kind_names_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'tabular'"):
        build_policy(PolicySpec("tabluar", {}), {})
    with pytest.raises(ConfigError, match="'os' belongs to Python"):
        build_policy(PolicySpec("os:getcwd", {}), {})
    with pytest.raises(ConfigError, match=r"is not a policy: it lacks act\(\)"):
        build_policy(PolicySpec("gymnasium:Env", {}), {})
