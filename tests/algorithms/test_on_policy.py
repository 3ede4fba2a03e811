"""Algorithms that are written as networks and a loss, by autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.losses import entropy, log_prob, policy_gradient, value_loss
from ludus.algorithms.on_policy.config import OnPolicy
from ludus.core.errors import PolicyError, ScenarioError, TrainingError
from ludus.policies.registry import build_policy
from ludus.policies.torch_module import make_networks
from ludus.replay.base import Sample
from ludus.testing.algorithm import check_algorithm, synthetic_rollout


class ActorCritic(OnPolicy):
    hidden: int = 8
    normaliser: bool = False

    def networks(self, inputs, actions):
        middle = [nn.BatchNorm1d(self.hidden)] if self.normaliser else []
        return {
            "policy": nn.Sequential(
                nn.Linear(inputs, self.hidden), *middle, nn.Tanh(), nn.Linear(self.hidden, actions)
            ),
            "critic": nn.Linear(inputs, 1),
        }

    def loss(self, networks, batch):
        logits, value = networks["policy"](batch.x), networks["critic"](batch.x)[:, 0]
        actor = policy_gradient(log_prob(logits, batch.action, batch.mask), batch.advantage)
        return (actor + value_loss(value, batch.target) - 0.01 * entropy(logits, batch.mask)).mean()


class NoLoss(OnPolicy):
    networks = ActorCritic.networks


class NoCritic(ActorCritic):
    def networks(self, inputs, actions):
        return {"policy": nn.Linear(inputs, actions)}


class NoPolicy(ActorCritic):
    def networks(self, inputs, actions):
        return {"critic": nn.Linear(inputs, 1)}


class WrongWidth(ActorCritic):
    def networks(self, inputs, actions):
        return {"policy": nn.Linear(inputs, actions + 1), "critic": nn.Linear(inputs, 1)}


class WideCritic(ActorCritic):
    def networks(self, inputs, actions):
        return {"policy": nn.Linear(inputs, actions), "critic": nn.Linear(inputs, 3)}


class OtherInputs(ActorCritic):
    def networks(self, inputs, actions):
        return {"policy": nn.Linear(inputs + 1, actions), "critic": nn.Linear(inputs, 1)}


class OneModule(ActorCritic):
    def networks(self, inputs, actions):
        return nn.Linear(inputs, actions)


class NoModule(ActorCritic):
    def networks(self, inputs, actions):
        return {"policy": nn.Linear(inputs, actions), "critic": torch.zeros(inputs)}


class TakesNoActions(ActorCritic):
    def networks(self, inputs):
        return {}


class Transposed(nn.Module):
    """Its weight's gradient comes out of autograd transposed."""

    def __init__(self, inputs, actions):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(actions, inputs))

    def forward(self, x):
        return (x[:, :, None] * self.weight.T).sum(dim=1)


class Unusual(ActorCritic):
    def networks(self, inputs, actions):
        return {
            "policy": nn.Sequential(nn.Dropout(0.5), Transposed(inputs, actions)),
            "critic": nn.Linear(inputs, 1),
        }


class Explodes(ActorCritic):
    def loss(self, networks, batch):
        return super().loss(networks, batch) / 0.0


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("tensors", {}),
        ("enumerated", {"epochs": 3, "gae_lambda": 0.9}),
        ("tensors", {"normaliser": True}),
        ("enumerated", {"batch_unit": "decisions", "normalise_advantages": False}),
        ("tensors", {"discount": "step", "correction": "none", "gamma": 0.9}),
    ],
    ids=str,
)
def test_on_policy_satisfies_algorithm_contract(kind, options, request):
    check_algorithm(ActorCritic(batch=40, **options), request.getfixturevalue(kind), seats=(1,), rounds=2)


def learner_and_batch(algorithm, env, *, seed=0):
    learner = algorithm.learner(LearnerContext(env, (0,), seed))
    policy = build_policy(learner.spec, learner.weights())
    rollout = synthetic_rollout(env, policy, seats=(0,), segments=30, rng=np.random.default_rng(1))
    ((_, columns),) = learner.items(rollout)
    n = len(columns["action"])
    return learner, Sample(columns, np.arange(n), np.ones(n))


def test_one_step_is_adams_on_the_gradient_of_the_loss(tensors):
    """With autograd and torch's own optimizer, from the same weights and rows."""
    algorithm = ActorCritic(normalise_advantages=False, max_gradient_norm=0.0, learning_rate=0.05)
    learner, sample = learner_and_batch(algorithm, tensors)
    networks = make_networks(learner.spec)
    networks.load_state_dict({k: torch.from_numpy(v) for k, v in learner.weights().items()})
    c = {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in sample.columns.items()}
    logits, value = networks["policy"](c["observation"]), networks["critic"](c["observation"])[:, 0]
    actor = policy_gradient(log_prob(logits, c["action"], c["mask"]), c["advantage"])
    loss = (actor + value_loss(value, c["target"]) - 0.01 * entropy(logits, c["mask"])).mean()
    adam = torch.optim.Adam(networks.parameters(), lr=0.05, eps=1e-5)
    loss.backward()
    adam.step()
    metrics = learner.update(sample)
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    for name, tensor in networks.state_dict().items():
        np.testing.assert_allclose(learner.weights()[name], tensor.numpy(), atol=2e-5)


def test_fresh_weights_come_from_the_seed_and_leave_torchs_stream(enumerated):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first, again, other = (ActorCritic().learner(LearnerContext(enumerated, (0,), s)).weights() for s in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert all(np.array_equal(first[k], again[k]) for k in first)
    assert any(not np.array_equal(first[k], other[k]) for k in first)


def test_normaliser_statistics_travel_with_the_weights(tensors):
    """Invariant 8, for buffers of torch modules."""
    learner, sample = learner_and_batch(ActorCritic(normaliser=True), tensors)
    before = learner.weights()["policy.1.running_mean"]
    learner.update(sample)
    after = learner.weights()["policy.1.running_mean"]
    assert not np.array_equal(before, after)
    np.testing.assert_array_equal(
        build_policy(learner.spec, learner.weights()).weights()["policy.1.running_mean"], after
    )


def test_minibatches_are_shuffled_anew_in_every_epoch_and_update(tensors, monkeypatch):
    loss, parts = ActorCritic.loss, []

    def seen(self, networks, batch):
        parts.append(batch.target.tolist())
        return loss(self, networks, batch)

    monkeypatch.setattr(ActorCritic, "loss", seen)
    learner, sample = learner_and_batch(ActorCritic(epochs=2, minibatches=2, correction="none"), tensors)
    for _ in range(2):
        learner.update(sample)
    passes = [first + second for first, second in zip(parts[::2], parts[1::2], strict=True)]
    assert [sorted(rows) for rows in passes] == [sorted(sample.columns["target"].tolist())] * 4
    assert len({tuple(rows) for rows in passes}) == 4


def test_dropout_and_transposed_gradients_learn_alike_under_a_seed(tensors):
    ends = []
    for state in (1, 2):
        torch.manual_seed(state)
        learner, sample = learner_and_batch(Unusual(epochs=3), tensors)
        learner.update(sample)
        ends.append(learner.weights()["policy.1.weight"])
    assert np.abs(ends[0]).max() > 0
    np.testing.assert_array_equal(*ends)


def test_a_loss_that_is_no_number_keeps_the_weights(enumerated):
    learner, sample = learner_and_batch(Explodes(), enumerated)
    good = learner.weights()
    with pytest.raises(TrainingError, match="Explodes update 1: the loss became NaN or infinite in epoch 1, at a rate"):
        learner.update(sample)
    assert all(good[k].tobytes() == v.tobytes() for k, v in learner.weights().items())


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            lambda networks, batch: networks["critic"](batch.x)[:, 0],
            r"of 60 rows answers shape \(60,\); expected a scalar",
        ),
        (lambda networks, batch: 0.5, "rows answers float; expected a scalar"),
        (lambda networks, batch: batch.target.mean(), "depends on no network"),
        (
            lambda networks, batch: batch.targets,
            r"raised AttributeError: .*'targets' \(.*test_on_policy.py, line \d+\)",
        ),
        (
            lambda networks, batch: value_loss(networks["critic"](batch.x), batch.target).mean(),
            r"values of shape \[60, 1\] and targets of shape \[60\]",
        ),
    ],
    ids=["rows", "float", "detached", "raises", "broadcast"],
)
def test_losses_that_are_wrong_are_refused(loss, message, tensors, monkeypatch):
    monkeypatch.setattr(ActorCritic, "loss", lambda self, networks, batch: loss(networks, batch))
    learner, sample = learner_and_batch(ActorCritic(), tensors)
    rows = {name: column[:60] for name, column in sample.columns.items()}
    with pytest.raises(PolicyError, match=message):
        learner.update(Sample(rows, np.arange(60), np.ones(60)))


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (NoCritic, "test_on_policy:NoCritic: networks.. made no 'critic'"),
        (NoPolicy, r"made \['critic'\]; one must be called 'policy'"),
        (WrongWidth, r"'policy' answers \[2, 4\] for 2 observations; expected \[2, 3\]"),
        (WideCritic, r"'critic' answers \[2, 3\] for 2 observations; expected \[2\] or \[2, 1\]"),
        (OtherInputs, r"'policy' raised RuntimeError for observations float32\[2, 4\]"),
        (OneModule, "made Linear; expected modules by name"),
        (NoModule, r"made \['critic'\], which are no torch.nn.Module"),
        (TakesNoActions, r"networks\(4, 3\) raised TypeError: .*takes 2 positional arguments"),
    ],
)
def test_networks_that_are_wrong_are_refused_before_anything_starts(algorithm, message, enumerated):
    with pytest.raises(ScenarioError, match=f"{algorithm.__name__} cannot play made up: .*{message}"):
        algorithm().check(enumerated)


def test_without_a_loss_nothing_starts(tensors):
    with pytest.raises(
        ScenarioError, match=r"NoLoss has no loss: derive loss\(self, networks, batch\), which answers the scalar"
    ):
        NoLoss().check(tensors)


def test_the_spec_holds_what_shapes_the_networks_and_no_learning_rate(enumerated):
    one, other = (ActorCritic(learning_rate=rate).policy(enumerated, (0,)) for rate in (0.1, 0.2))
    assert one == other
    assert one.config["options"] == {"hidden": 8, "normaliser": False}
    assert one.config["maker"] == "test_on_policy:ActorCritic"
