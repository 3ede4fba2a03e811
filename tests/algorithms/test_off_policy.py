"""Actor-critic algorithms with replay: the contract, what their tables hold, when updates are due, and what they share."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import off_policy_tools
import pytest
import torch
from gymnasium.spaces import Box
from off_policy_tools import AUTOGRAD, SMALL, batch_of, learner_of
from together import assert_ranks_learn_alike

from ludus.algorithms.common.base import LearnerContext, updated_priorities
from ludus.algorithms.common.replay_learner import NetworkEnsemble
from ludus.algorithms.ddpg.config import DDPG, TD3
from ludus.algorithms.off_policy.learner import Critics, regression
from ludus.algorithms.sac.config import SAC, SACDiscrete
from ludus.backend.device import UpdateCost, resolve_placement, scalars_to_host
from ludus.backend.mlp import Layout
from ludus.backend.ranks import SINGLE_RANK
from ludus.contrib.algorithms.mpo.config import MPO
from ludus.core.errors import ConfigError, ScenarioError, TrainingError
from ludus.core.types import CPU, DeviceChoice
from ludus.testing.algorithm import check_algorithm

BOXED = [DDPG, TD3, SAC]


@pytest.fixture
def boxed(tensors):
    return off_policy_tools.boxed(tensors)


@pytest.mark.parametrize(
    "algorithm",
    [
        DDPG(**SMALL, twin=True, activation="tanh", max_gradient_norm=1.0),
        TD3(**SMALL, noise={"start": 0.3, "end": 0.0}, critic_learning_rate=1e-2),
        SAC(**SMALL),
        SAC(**SMALL, twin=False, learn_temperature=False, n_step=3),
        SAC(**SMALL, priority_exponent=0.6),
    ],
    ids=["ddpg-twin-tanh-clipped", "td3-schedules", "sac", "sac-single-fixed-3-step", "sac-prioritised"],
)
def test_off_policy_satisfies_algorithm_contract(algorithm, boxed):
    check_algorithm(algorithm, boxed, seats=(1,), rounds=2)


@pytest.mark.parametrize(
    ("kind", "changes"), [("enumerated", {}), ("tensors", {"twin": False, "learn_temperature": False, "n_step": 3})]
)
def test_off_policy_satisfies_algorithm_contract_with_discrete_actions(kind, changes, request):
    check_algorithm(SACDiscrete(**SMALL, **changes), request.getfixturevalue(kind), seats=(1,), rounds=2)


@pytest.mark.parametrize("cls", [TD3, SACDiscrete, MPO])
def test_off_policy_satisfies_algorithm_contract_with_images(cls, boxed, tensors):
    """Actor and critics see with convolutions of their own, by autograd, where there are no numbers, too."""
    env = tensors if cls is SACDiscrete else boxed
    images = Box(0, 255, (2, 4, 4), np.uint8)
    env = replace(env, agents=tuple(replace(agent, observation=images) for agent in env.agents))
    algorithm = cls(**{**SMALL, "batch": 4, "updates_per_decision": 0.03}, network="off_policy_tools:Sight")
    check_algorithm(algorithm, env, seats=(1,), rounds=2)
    learner, nowhere = (learner_of(algorithm, env, device=device) for device in (CPU, DeviceChoice("meta")))
    why = "mpo's updates are computed by autograd" if cls is MPO else "only perceptrons have CPU kernels"
    assert str(learner.placement) == f"cpu (torch): as asked for; {why}"
    batch = batch_of(learner, env, size=4)
    before = learner.critics.weights()
    assert learner.update(batch).keys() == nowhere.update(batch).keys()
    moved = {name: (array != before[name]).any() for name, array in learner.critics.weights().items()}
    assert moved["bodies.0.module.0.weight"]
    assert all(moved.values())
    with pytest.raises(ScenarioError, match="sees images"):
        cls(network="impala").check(tensors if cls is SACDiscrete else boxed)


def test_settings_that_never_work():
    with pytest.raises(ConfigError, match="start_decisions 50 must be at most the capacity 10"):
        SAC(capacity=10, start_decisions=50)
    with pytest.raises(ConfigError, match="n_step 3 is more than the 1 decisions of a rollout"):
        TD3(n_step=3)


@pytest.mark.parametrize("cls", [*BOXED, MPO])
def test_a_start_from_a_policy_does_not_warm_up(cls, boxed):
    first = learner_of(cls(**SMALL), boxed)
    assert first.weights()["warm_up"] == [1.0]
    second = learner_of(cls(**SMALL), boxed, seed=1, start=first.weights())
    assert second.weights()["warm_up"] == [0.0]
    assert np.array_equal(second.weights()["head.weight"], first.weights()["head.weight"])
    again = learner_of(cls(**SMALL), boxed, seed=1)
    again.load_state_dict(second.state_dict())
    assert again.weights()["warm_up"] == [0.0]


# ------------------------------------------------------------------------------------------ learning


@pytest.mark.parametrize("cls", [*BOXED, SACDiscrete, MPO])
def test_values_of_what_comes_next_are_the_target_networks(cls, boxed, tensors):
    """Moving the target critics moves what the critics are compared with, where something comes next, and not what they say; so does the
    target actor of DDPG, TD3 and MPO. SAC's actor is the newest one (Haarnoja et al. 2018, equation 3)."""
    env = tensors if cls is SACDiscrete else boxed

    def first_update(part, discount):
        learner = learner_of(cls(**SMALL), env)
        batch = batch_of(learner, env)
        state = learner.state_dict()
        if part:
            moved = np.random.default_rng(3).standard_normal(len(state[part]["target"]))
            state[part]["target"] = state[part]["target"] + 0.3 * moved.astype(np.float32)
        learner.load_state_dict(state)
        columns = {**batch.columns, "discount": np.full(16, discount, np.float32)}
        metrics = learner.update(replace(batch, columns=columns))
        return metrics["critic_loss"], metrics["q_mean"]

    loss, value = first_update(None, 0.9)
    for part, matters in (("critics", True), ("actor", cls in (DDPG, TD3, MPO))):
        moved, said = first_update(part, 0.9)
        assert said == value
        assert (moved != loss) == matters
        assert first_update(part, 0.0) == first_update(None, 0.0)


@pytest.mark.parametrize(
    ("cls", "column"),
    [(DDPG, "reward"), (TD3, "observation"), (SAC, "reward"), (SACDiscrete, "observation"), (MPO, "reward")],
)
def test_nonfinite_rows_change_no_weight(cls, column, boxed, tensors):
    env = tensors if cls is SACDiscrete else boxed
    learner = learner_of(cls(**SMALL), env)
    batch = batch_of(learner, env)
    learner.update(batch)
    before, weights = learner.critics.state_dict()["weights"], learner.weights()
    broken = np.array(batch.columns[column])
    broken[3] = np.nan
    with pytest.raises(TrainingError, match=f"{cls.__name__} update 2: .* became NaN or infinite"):
        learner.update(replace(batch, columns={**batch.columns, column: broken}))
    assert np.array_equal(learner.critics.state_dict()["weights"], before)
    assert all(np.array_equal(weights[name], array) for name, array in learner.weights().items())


@pytest.mark.parametrize("cls", [*BOXED, SACDiscrete])
def test_each_setting_matters(cls, boxed, tensors):
    """By much more than rounding: in some weight of the critics no two settings come within a thousandth of what one update moves it."""
    env = tensors if cls is SACDiscrete else boxed
    rate = 1e-2
    changes = [
        {},
        {"polyak": 0.5},
        {"learning_rate": rate / 10},
        {"critic_learning_rate": rate / 10},
        {"max_gradient_norm": 0.01},
    ]
    changes += [{"activation": "tanh"}, {"twin": cls is DDPG}]
    if cls in (DDPG, TD3):
        changes += [{"target_noise": 0.7}, {"policy_delay": 3}]
        changes += [{"target_clip": 0.05}] if cls is TD3 else []
    else:
        changes += [
            {"temperature": 0.1},
            {"learn_temperature": False},
            {"target_entropy": 1.0 if cls is SACDiscrete else 5.0},
        ]
    ends = []
    for change in changes:
        learner = learner_of(cls(**{**SMALL, "learning_rate": rate, **change}), env)
        batch = batch_of(learner, env)
        for _ in range(20):
            learner.update(batch)
        ends.append((change, learner.state_dict()["critics"]["weights"]))
    for (one, ours), (other, theirs) in combinations(ends, 2):
        if len(ours) == len(theirs):  # a twin has more
            assert np.abs(ours - theirs).max() > rate / 1000, (one, other)


@pytest.mark.parametrize("cls", [*BOXED, SACDiscrete, MPO])
def test_numbers_are_read_once_in_a_round(cls, boxed, tensors, monkeypatch):
    """Of three updates that are due, in the last: a reward that is no number is met there, and nothing has moved since."""
    env, reads = tensors if cls is SACDiscrete else boxed, []
    algorithm = cls(**{**SMALL, "updates_per_decision": 1.0})
    learner = learner_of(algorithm, env, device=AUTOGRAD)
    batch = batch_of(learner, env)
    learner._inserted = learner.config.start_decisions + 3
    monkeypatch.setattr(
        "ludus.backend.network.scalars_to_host", lambda given: reads.append(1) or scalars_to_host(given)
    )
    due = learner.batches()
    told = [learner.update(batch) for _ in due]
    assert (len(due), len(reads)) == (3, 1)
    assert set(told[0]) < set(told[2])
    learner._inserted += 3
    learner.batches()
    before = learner.state_dict()
    reward = np.full_like(batch.columns["reward"], np.nan)
    learner.update(replace(batch, columns={**batch.columns, "reward": reward}))
    learner.update(batch)
    with pytest.raises(TrainingError, match="became NaN or infinite"):
        learner.update(batch)
    for part in ("actor", "critics"):
        assert np.array_equal(learner.state_dict()[part]["weights"], before[part]["weights"])
    learner.update(batch)


# ------------------------------------------------------------------------------------------ parts


def test_regression_by_hand():
    """Errors 0.5 and -2 of the outputs 1 and 0: ½ (0.25 + 4)/2 = 1.0625, and a mean Q of (1.5 + 1)/2."""
    q, gradient = np.array([[9.0, 1.5], [1.0, 7.0]]), np.ones((2, 2))
    found = regression(q, np.array([1, 0], np.int32), np.array([1.0, 3.0]), gradient, 2)
    assert found == (1.0625, 1.25)
    assert gradient.tolist() == [[0.0, 0.25], [-1.0, 0.0]]


@pytest.mark.parametrize("device", [CPU, AUTOGRAD], ids=["written", "autograd"])
@pytest.mark.parametrize("cls", [DDPG, SAC, SACDiscrete])
def test_rows_that_are_drawn_more_often_weigh_less(cls, device, boxed, tensors):
    """With an importance of 1 a row of chance p weighs (least p) / p, in the critics' losses; their mean error is its priority."""
    env = tensors if cls is SACDiscrete else boxed
    config = cls(**SMALL, priority_exponent=0.6, importance=1.0, twin=False)
    learner = learner_of(config, env, device=device)
    batch = batch_of(learner, env)
    assert list(updated_priorities(learner)) == []
    chance = np.where(np.arange(16) % 2, 0.04, 0.01)
    metrics = learner.update(replace(batch, probability=chance))
    ((table, index, priority),) = updated_priorities(learner)
    assert (table, index.tolist()) == ("replay", list(range(16)))
    error = priority - 1e-6
    assert metrics["critic_loss"] == pytest.approx(
        (np.where(np.arange(16) % 2, 0.25, 1.0) * 0.5 * error**2).mean(), rel=1e-4
    )
    assert config.tables()[0].kind == "prioritised"


def test_both_backends_and_all_ranks_weigh_alike(boxed):
    config = TD3(**SMALL, priority_exponent=0.6)
    batch = replace(batch_of(learner_of(config, boxed), boxed), probability=np.linspace(0.01, 0.1, 16))
    ends = []
    for device in (CPU, AUTOGRAD):
        learner = learner_of(config, boxed, device=device)
        learner.update(batch)
        ends.append((learner.critics.weights(), updated_priorities(learner)[0][2]))
    for name, array in ends[0][0].items():
        np.testing.assert_allclose(array, ends[1][0][name], atol=2e-5)
    np.testing.assert_allclose(ends[0][1], ends[1][1], rtol=1e-4)
    assert_ranks_learn_alike(
        2, lambda ranks: config.learner(LearnerContext(boxed, (0,), 0, ranks=ranks)), [batch] * 2, atol=2e-5
    )


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_gradients_of_an_ensemble_are_autograds(activation):
    layout = Layout((5, 16, 12, 2), activation)
    module = Critics(layout, seed=0, count=2)
    placement = resolve_placement(CPU, UpdateCost(1, 1, has_cpu_kernel=True))
    ensemble = NetworkEnsemble(module, ranks=SINGLE_RANK, placement=placement, layouts=[layout] * 2)
    x = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    rng = np.random.default_rng(1)
    for out, gradient in zip(ensemble.forward(x), ensemble.gradients, strict=True):
        gradient[:] = rng.standard_normal(out.shape)
    inputs = x.clone().requires_grad_()
    answers = ensemble(inputs)
    for ours, theirs in zip(ensemble.outputs, answers, strict=True):
        np.testing.assert_allclose(ours, theirs.detach(), atol=1e-5)
    total = sum((h * torch.from_numpy(g)).sum() for h, g in zip(answers, ensemble.gradients, strict=True))
    wanted = torch.autograd.grad(total, [inputs, *ensemble.online.module.parameters()])
    slopes = ensemble.input_gradient(slice(3, None))
    np.testing.assert_allclose(slopes, wanted[0][:, 3:], atol=1e-5)
    ensemble.forward(x)
    ensemble.backward(x)
    flat = np.concatenate([g.numpy().ravel() for g in wanted[1:]])
    np.testing.assert_allclose(ensemble.online.gradient, flat, atol=1e-5)


@pytest.mark.parametrize(
    ("cls", "rows", "device"),
    [
        (DDPG, 16, CPU),
        (TD3, 2, CPU),
        (SAC, 2, CPU),
        (SACDiscrete, 16, CPU),
        (TD3, 16, AUTOGRAD),
        (SACDiscrete, 2, AUTOGRAD),
    ],
)
def test_ranks_learn_what_one_learner_does(cls, rows, device, boxed, tensors):
    env = tensors if cls is SACDiscrete else boxed
    batch = batch_of(learner_of(cls(**SMALL), env), env, size=rows)
    assert_ranks_learn_alike(
        3,
        lambda ranks: cls(**SMALL).learner(LearnerContext(env, (0,), 0, ranks=ranks, device=device)),
        [batch] * 4,
        atol=2e-5,
    )


def test_networks_begin_uniform_by_fan_in(boxed):
    """Within ±1/√inputs, biases and last layers too, and as wide as that: TD3's authors, and Stable-Baselines3, have it so."""
    learner = learner_of(TD3(hidden=(400, 300)), boxed)
    inputs, actions = learner.inputs, learner.box.size
    limits = {
        "actor.body.1": inputs, "actor.body.3": 400, "head": 300,
        "members.0.0": inputs + actions, "members.1.2": 400, "members.1.4": 300,
    }  # fmt: skip
    weights = {**learner.actor.weights(), **learner.critics.weights()}
    for name, fan_in in limits.items():
        for part in ("weight", "bias"):
            reach = np.abs(weights[f"{name}.{part}"]).max() * np.sqrt(fan_in)
            assert reach <= 1.0 + 1e-6, name
            assert reach > (0.9 if weights[f"{name}.{part}"].size > 50 else 0.1), name
    assert not np.array_equal(weights["members.0.2.weight"], weights["members.1.2.weight"])
