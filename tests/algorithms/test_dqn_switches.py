"""DQN's switches: each changes what it should and nothing else; every variant keeps the learners' contract."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from ludus.algorithms.common.base import LearnerContext, updated_priorities
from ludus.algorithms.dqn.config import DQN, IQN, QRDQN, MunchausenDQN, Rainbow
from ludus.algorithms.dqn.learner import KernelDQNLearner, TorchDQNLearner
from ludus.backend.network import FlatModule
from ludus.core.errors import ConfigError, PolicyError, ScenarioError, TrainingError
from ludus.core.types import DeviceChoice
from ludus.policies.action_value_policy import scaled_normals
from ludus.policies.action_values import ActionValues, make_network
from ludus.policies.registry import build_policy
from ludus.policies.specs import QHeadSpec, action_values_spec, body_config
from ludus.replay.base import Sample
from ludus.testing.algorithm import check_algorithm, synthetic_rollout

AUTOGRAD = DeviceChoice("cpu", written=False)
SMALL = {"rollout": 40, "min_size": 50, "hidden": (8,), "batch": 32, "target_period": 3}
VARIANTS = {
    "noisy": ("enumerated", DQN(noisy=True, **SMALL)),
    "rainbow": ("tensors", Rainbow(atoms=11, **SMALL)),
    "rainbow-without-noise": ("enumerated", Rainbow(noisy=False, epsilon=0.1, atoms=11, **SMALL)),
    "c51": ("tensors", DQN(distribution="c51", atoms=5, polyak=0.1, **SMALL)),
    "quantile": ("enumerated", QRDQN(double=True, dueling=True, n_step=2, atoms=7, **SMALL)),
    "implicit": ("tensors", IQN(atoms=5, **SMALL)),
    "munchausen": ("enumerated", MunchausenDQN(**SMALL)),
    "munchausen-iqn": (
        "enumerated",
        IQN(munchausen=True, noisy=True, dueling=True, priority_exponent=0.5, atoms=4, **SMALL),
    ),
    "munchausen-c51": (
        "tensors",
        DQN(munchausen=True, double=False, distribution="c51", atoms=5, v_min=-3, v_max=1, **SMALL),
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_dqn_switches_satisfy_algorithm_contract(name, request):
    kind, algorithm = VARIANTS[name]
    check_algorithm(algorithm, request.getfixturevalue(kind), seats=(1,), rounds=2)


def image_env(env, dtype=np.uint8):
    box = Box(0, 255, (1, 36, 36), dtype)
    return replace(env, agents=tuple(replace(agent, observation=box) for agent in env.agents))


def test_dqn_switches_satisfy_algorithm_contract_with_images(tensors):
    algorithm = DQN(body="nature", rollout=4, min_size=4, batch=4, target_period=1, updates_per_decision=0.1)
    check_algorithm(algorithm, image_env(tensors), rounds=2)


# ------------------------------------------------------------------ one switch at a time


def learner_of(env, **options):
    return DQN(hidden=(8,), min_size=10, batch=16, **options).learner(LearnerContext(env, (0,), 3))


def columns_of(env, algorithm=None):
    learner = (algorithm or DQN(hidden=(8,))).learner(LearnerContext(env, (0,), 0))
    policy = build_policy(learner.spec, learner.weights())
    rollout = synthetic_rollout(env, policy, seats=(0,), segments=40, rng=np.random.default_rng(1))
    ((_, columns),) = learner.items(rollout)
    return columns


def sample_of(columns):
    rows = len(columns["action"])
    return Sample(columns, np.arange(rows), np.full(rows, 1.0 / rows))


def targets_of(learner, columns):
    rows = learner._rows(
        learner._step_inputs(learner.local_columns(columns, len(columns["action"])), len(columns["action"]), None)
    )
    return rows, learner._targets(rows)


def test_which_learner(tensors):
    assert type(learner_of(tensors, dueling=True, n_step=3, priority_exponent=0.5)) is KernelDQNLearner
    assert type(learner_of(tensors, noisy=True)) is TorchDQNLearner


def modular(env, **options):
    learner = DQN(hidden=(8,), **options).learner(LearnerContext(env, (0,), 3, device=AUTOGRAD))
    rng = np.random.default_rng(9)
    learner.networks.target.flat[:] = rng.standard_normal(len(learner.networks.target.flat))
    learner.networks.online.flat[:] = rng.standard_normal(len(learner.networks.online.flat))
    return learner


def test_where_numbers_are_read_once_a_round_an_error_comes_at_its_end(tensors):
    learner, columns = modular(tensors), columns_of(tensors)
    learner._adam.on_cpu, good = False, sample_of(columns)
    bad = sample_of({**columns, "reward": np.full_like(columns["reward"], np.nan)})

    def round_of(*samples):
        learner._unread = len(samples)
        return [learner.update(sample) for sample in samples]

    before = learner.weights()
    first, second, last = round_of(good, good, good)
    assert "loss" not in first | second
    assert last["loss"] > 0
    after = learner.weights()
    assert not np.array_equal(after["body.1.weight"], before["body.1.weight"])
    with pytest.raises(TrainingError, match="a loss or its gradient became NaN"):
        round_of(good, bad, good)
    assert all(np.array_equal(array, after[name]) for name, array in learner.weights().items())
    assert round_of(good)[0]["loss"] > 0


def test_double_changes_who_chooses_and_nothing_else(tensors):
    columns = columns_of(tensors)
    plain, double = modular(tensors, double=False), modular(tensors, double=True)
    rows, target = targets_of(plain, columns)
    _, changed = targets_of(double, columns)
    with torch.no_grad():
        online = plain._online(rows.after, rows.legal_after)[..., 0].masked_fill(~rows.legal_after, -torch.inf)
        by_target = plain._target(rows.after, rows.legal_after)[..., 0].masked_fill(~rows.legal_after, -torch.inf)
    agree = (online.argmax(1) == by_target.argmax(1)) | (rows.discount == 0)
    assert 0 < int(agree.sum()) < len(agree)
    assert torch.equal(target[agree], changed[agree])
    assert (changed[~agree] < target[~agree]).all()  # the target network's own choice is the best for it
    assert double.spec == plain.spec


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"dueling": True}, {"dueling"}),
        ({"noisy": True}, {"noisy", "noise_scale"}),
        ({"distribution": "quantile"}, {"distribution", "atoms"}),
        ({"priority_exponent": 0.5}, set()),
        ({"double": False}, set()),
        ({"n_step": 2}, set()),
        ({"double": False, "munchausen": True}, set()),
    ],
)
def test_each_switch_changes_the_network(options, changed, tensors):
    plain = DQN().policy(tensors, (0,)).config
    other = DQN(**options).policy(tensors, (0,)).config
    assert {key for key in plain if key != "head" and plain[key] != other[key]} == set()
    assert {key for key in plain["head"] if plain["head"][key] != other["head"][key]} == changed


def test_priorities_are_off_where_the_switch_is(tensors):
    columns = columns_of(tensors)
    for algorithm in (QRDQN(hidden=(8,)), QRDQN(hidden=(8,), priority_exponent=0.5)):
        learner = algorithm.learner(LearnerContext(tensors, (0,), 0))
        metrics = learner.update(sample_of(columns))
        found = updated_priorities(learner)
        assert bool(found) == algorithm.prioritised
        if found:
            assert found[0][2].mean() == pytest.approx(metrics["td_error"], rel=1e-4)


def test_munchausen_without_weight_at_a_low_temperature_is_dqn(tensors):
    """Its soft policy is then the best action, and its penalty 0."""
    columns = columns_of(tensors)
    plain = modular(tensors, double=False)
    soft = modular(tensors, double=False, munchausen=True, munchausen_weight=0.0, munchausen_temperature=1e-6)
    np.testing.assert_allclose(targets_of(soft, columns)[1], targets_of(plain, columns)[1], rtol=1e-4, atol=1e-4)
    helped = modular(tensors, double=False, munchausen=True, munchausen_weight=0.5, munchausen_temperature=1e-6)
    bonus = (targets_of(helped, columns)[1] - targets_of(soft, columns)[1]).numpy()
    assert (bonus <= 1e-6).all()
    assert (bonus >= -0.5 - 1e-6).all()  # clipped at -1
    assert bonus.min() < -0.49
    assert bonus.max() > -0.01


def test_termination_is_not_bootstrapped_in_any_kind(tensors):
    columns = {**columns_of(tensors)}
    columns["discount"] = np.zeros_like(columns["discount"])
    for options in ({}, {"distribution": "quantile"}, {"distribution": "implicit"}, {"distribution": "c51"}):
        learner = modular(tensors, **options)
        rows, target = targets_of(learner, columns)
        if options.get("distribution") == "c51":
            means = target @ learner._online.head.support
            expected = rows.reward.clamp(-1.0, 1.0)
        else:
            means, expected = target.mean(dim=1), rows.reward
        np.testing.assert_allclose(means, expected, atol=1e-5)


# ------------------------------------------------------------------ noise and levels


def test_noise_is_in_exploration_and_not_in_greedy_play(tensors):
    spec = Rainbow(hidden=(8,), distribution="none").policy(tensors, (0,))
    weights = {k: v.detach().numpy() for k, v in make_network(spec, seed=1).state_dict().items()}
    policy = build_policy(spec, {**weights, "epsilon": np.zeros(1, np.float32)})
    observation = np.repeat(np.random.default_rng(0).standard_normal((1, 4)).astype(np.float32), 500, axis=0)
    noise = np.random.default_rng(1).random((500, 2), dtype=np.float32)
    explore = policy.act(observation, None, None, noise).action
    greedy = policy.act(observation, None, None, noise, mode="greedy").action
    assert len(set(greedy.tolist())) == 1
    assert len(set(explore.tolist())) > 1
    louder = {k: v * (100.0 if k.endswith("_noise") else 1.0) for k, v in policy.weights().items()}
    silent = {k: v * (0.0 if k.endswith("_noise") else 1.0) for k, v in policy.weights().items()}
    loud, quiet = (build_policy(spec, w).act(observation, None, None, noise).action for w in (louder, silent))
    assert (loud != greedy).mean() > 0.3  # how loud it is travels with the weights
    assert (quiet == greedy).all()


def test_rows_have_noise_of_their_own_that_only_their_uniform_decides():
    noise = np.random.default_rng(0).random(2000, dtype=np.float32)
    made = scaled_normals(noise, 7)
    assert np.array_equal(made[:9], scaled_normals(noise[:9], 7))
    normal = np.sign(made) * made.astype(np.float64) ** 2
    assert np.abs(normal.mean(axis=0)).max() < 0.1
    assert np.abs(normal.std(axis=0) - 1.0).max() < 0.1
    assert np.abs(np.corrcoef(normal.T) - np.eye(7)).max() < 0.1


def test_factorised_noise_is_that_of_a_layer_with_a_noisy_matrix():
    """Equations 10 and 11: weights W + V f(ε_out) f(ε_in)ᵀ, biases b + c f(ε_out)."""
    spec = action_values_spec(shape=(4,), actions=3, body=body_config(hidden=()), head=QHeadSpec(noisy=True))
    head = make_network(spec, seed=2).head
    before, after = torch.randn(4), torch.randn(3)
    layer = head.advantage
    weight = layer.weight + layer.weight_noise * torch.outer(after, before)
    x = torch.randn(5, 4)
    expected = x @ weight.T + layer.bias + layer.bias_noise * after
    out = head(x, None, torch.cat([before, after]))[..., 0]
    torch.testing.assert_close(out, expected)


def test_every_update_draws_noise_and_levels_of_its_own_from_the_seed(tensors):
    for options in ({"noisy": True}, {"distribution": "implicit", "atoms": 4}):
        learner, again, other = (
            DQN(hidden=(8,), **options).learner(LearnerContext(tensors, (0,), seed)) for seed in (1, 1, 2)
        )
        which = 1 if "noisy" in options else 0
        first, same, else_ = (each._chance(6)[which] for each in (learner, again, other))
        learner.updates += 1
        assert torch.equal(first, same)
        assert not torch.equal(first[0], else_[0])
        assert not torch.equal(first[0], learner._chance(6)[which][0])
        assert not torch.equal(first[0], first[1])


def test_levels_ask_for_quantiles_that_rise_when_the_network_has_learned_them(tensors):
    """Targets spread evenly over [0, 1]: the function of levels is the identity."""
    learner = IQN(hidden=(16,), atoms=16, huber_delta=0.01, learning_rate=1e-2).learner(
        LearnerContext(tensors, (0,), 0)
    )
    columns, rng = columns_of(tensors, IQN(hidden=(16,), gamma=0.0)), np.random.default_rng(0)
    rows = len(columns["action"])
    columns = {**columns, "observation": np.ones_like(columns["observation"]), "mask": np.ones_like(columns["mask"])}
    for _ in range(150):
        columns["reward"] = rng.random(rows).astype(np.float32)
        columns["discount"] = np.zeros(rows, np.float32)
        learner.update(sample_of(columns))
    levels = torch.tensor([[0.1, 0.5, 0.9]])
    with torch.no_grad():
        out = learner._online(torch.ones(1, 4), None, None, levels)[0, int(columns["action"][0])]
    assert out.tolist() == pytest.approx([0.1, 0.5, 0.9], abs=0.12)


# ------------------------------------------------------------------ what is refused


def test_c51_wants_a_range(tensors):
    endless = replace(tensors, utility_range=((-np.inf, np.inf),) * 2)
    with pytest.raises(ScenarioError, match="Rainbow: c51 spreads 51 values over the range of returns, -inf to inf"):
        Rainbow().check(endless)
    with pytest.raises(ScenarioError, match=r"\. Give v_min and v_max"):
        Rainbow(v_max=3.0).check(endless)
    Rainbow(v_min=-1.0, v_max=3.0).check(endless)
    QRDQN().check(endless)
    assert Rainbow().policy(tensors, (0,)).config["head"]["low"] == -1.0  # utilities ±2, scaled
    assert Rainbow(v_max=1.0).policy(tensors, (0,)).config["head"]["high"] == 0.5
    assert Rainbow(v_max=1.0, scale_rewards=False).policy(tensors, (0,)).config["head"]["high"] == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"munchausen": True}, "set double=false"),
        ({"munchausen": True, "double": False, "n_step": 3}, "n_step is 3, and must be 1"),
        ({"v_min": 1.0, "v_max": 1.0}, "v_min 1.0 must be below v_max 1.0"),
        ({"distribution": "c52"}, "distribution"),
        ({"min_size": 11, "capacity": 10}, "min_size 11 must be at most the capacity 10"),
        ({"dueling_": True}, "did you mean 'dueling'"),
        (
            {"rollout": 2, "rollout_unit": "decisions", "n_step": 3},
            "n_step 3 is more than the 2 decisions of a rollout",
        ),
        ({"epsilon": {"start": 0.5, "end": 1.5}}, r"^DQN: epsilon is a probability; .* at most 1 \(given: 1.5\)$"),
        ({"importance": 2.0}, r"^DQN: importance is an exponent from 0 to 1; .* at most 1 \(given: 2\)$"),
        ({"learning_rate": "fast"}, r"^learning_rate: a number was expected, or a schedule .* \(given: 'fast'\)$"),
        ({"learning_rate": True}, r"learning_rate: a number was expected, or a schedule"),
    ],
)
def test_settings_that_do_not_go_together(options, message):
    with pytest.raises(ConfigError, match=message):
        DQN(**options)


def test_a_body_for_images_wants_images(tensors):
    with pytest.raises(ScenarioError, match=r"DQN with body=nature sees images .* have shape \[4\]. Use body=mlp"):
        DQN(body="nature").check(tensors)
    assert DQN(body="nature").policy(image_env(tensors), (0,)).config["scale"] == 1 / 255
    assert DQN(body="nature").policy(image_env(tensors, np.float32), (0,)).config["scale"] == 1


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ({"distribution": "c51", "atoms": 1}, "expected two or more, low < high"),
        ({"distribution": "other"}, "there is no distribution 'other'"),
        ({"size": 3}, "expected the entries of a QHeadSpec"),
    ],
)
def test_heads_that_are_none(head, message):
    spec = action_values_spec(shape=(4,), actions=2, body=body_config(hidden=(4,)))
    with pytest.raises(PolicyError, match=message):
        ActionValues(replace(spec, config={**spec.config, "head": head}))


def test_parameters_and_gradients_are_views_of_two_vectors():
    module = torch.nn.Linear(3, 2)
    expected = module(torch.ones(1, 3)).detach()
    flat = FlatModule(module, sums=2)
    assert torch.equal(module(torch.ones(1, 3)), expected)
    module(torch.ones(1, 3)).sum().backward()
    assert flat.gradient.tolist() == [1.0] * 8
    assert len(flat.joint) == 10
    flat.flat[:] = 0.0
    assert module(torch.ones(1, 3)).tolist() == [[0.0, 0.0]]
