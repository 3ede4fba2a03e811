"""MPO: weights, divergences and multipliers by hand, against SciPy and torch.distributions; and updates beside plain ones."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from off_policy_tools import SMALL, acting, adam_step, batch_of, boxed, columns_of, learner_of, leaves_of, valued
from scipy.optimize import minimize_scalar
from together import assert_ranks_learn_alike
from torch.distributions import Categorical, kl_divergence
from torch.distributions import Normal as TorchNormal

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.losses import Normal
from ludus.contrib.algorithms.mpo.config import MPO
from ludus.contrib.algorithms.mpo.losses import (
    Multipliers,
    cross_entropy,
    fit_loss,
    improved,
    inverse_softplus,
    moved,
    multiplier_loss,
    penalty,
)
from ludus.core.errors import ScenarioError
from ludus.testing.algorithm import check_algorithm

MINE = {**SMALL, "samples": 6, "target_samples": 3, "alpha_std": 10.0, "epsilon_std": 1e-3}


def double(*shape, seed=0):
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape))


# ------------------------------------------------------------------ the E-step


def test_weights_by_hand():
    """Priors ½ and ½, values η log 3 and 0: ¾ and ¼. What is illegal has none, however much it is worth."""
    prior = torch.tensor([[math.log(0.5), -torch.inf, math.log(0.5)]])
    found = improved(torch.tensor([[2.0 * math.log(3.0), 99.0, 0.0]]), prior, torch.tensor(2.0))
    torch.testing.assert_close(found.exp(), torch.tensor([[0.75, 0.0, 0.25]]))
    assert float(moved(found, prior)) == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5))


def dual(q, eta, epsilon):
    """g(η) = η ε + η mean log mean exp(Q / η) of samples."""
    most = q.max(axis=1, keepdims=True)
    return eta * epsilon + (most[:, 0] + eta * np.log(np.exp((q - most) / eta).mean(axis=1))).mean()


@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.5])
def test_the_best_temperature_is_scipys_and_keeps_the_bound(epsilon):
    """At the least of the dual the weights are ε nats from the prior, on average over the states."""
    q, prior = 30.0 * double(7, 20), torch.full((7, 20), -math.log(20), dtype=torch.float64)
    best = minimize_scalar(lambda x: dual(q.numpy(), math.exp(x), epsilon), bounds=(0.0, 8.0), method="bounded")
    found = improved(q, prior, torch.tensor(math.exp(best.x)))
    assert float(moved(found, prior).mean()) == pytest.approx(epsilon, rel=1e-3)


def test_its_slope_is_that_of_the_dual_and_steps_go_to_the_least():
    """From far above and from far below."""
    q, prior = 30.0 * double(7, 20), torch.full((7, 20), -math.log(20), dtype=torch.float64)

    def loss(eta):
        away = moved(improved(q, prior, eta), prior)
        return multiplier_loss(eta, away[:, None], 0.1).mean()

    eta = torch.tensor([25.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(loss(eta), eta)
    sides = [dual(q.numpy(), 25.0 + step, 0.1) for step in (1e-4, -1e-4)]
    assert float(slope) == pytest.approx((sides[0] - sides[1]) / 2e-4, rel=1e-6)
    for start in (500.0, 5.0):
        multipliers = Multipliers({"temperature": (start, 1)}).double()
        optimizer = torch.optim.Adam(multipliers.parameters(), lr=3.0)
        for _ in range(400):
            optimizer.zero_grad()
            loss(multipliers()["temperature"]).backward()
            optimizer.step()
        away = moved(improved(q, prior, multipliers()["temperature"].detach()), prior)
        assert float(away.mean()) == pytest.approx(0.1, rel=0.02)


# ------------------------------------------------------------------ the M-step


def test_divergences_by_hand():
    """From N(1, 2²): the mean at 0 costs ½ (1/2)², the standard deviation 4 costs log 2 + ½ (¼ - 1)."""
    old, new = (Normal(torch.tensor([[m]]), torch.tensor([[math.log(s)]])) for m, s in ((1.0, 2.0), (0.0, 4.0)))
    assert float(old.of_mean(new)) == pytest.approx(0.125)
    assert float(old.of_std(new)) == pytest.approx(math.log(2.0) - 0.375)


def test_divergences_are_torchs_with_the_other_part_held():
    old, new = (Normal(double(5, 2, seed=k), 0.3 * double(5, 2, seed=k + 2)) for k in range(2))
    before = TorchNormal(old.mean, old.log_std.exp())
    torch.testing.assert_close(old.of_mean(new), kl_divergence(before, TorchNormal(new.mean, old.log_std.exp())))
    torch.testing.assert_close(old.of_std(new), kl_divergence(before, TorchNormal(old.mean, new.log_std.exp())))


def test_samples_are_fitted_by_mean_and_deviation_apart():
    """The slopes are those of torch's log-densities, where each keeps the other as it was."""
    z, weight = double(4, 6, 2), torch.softmax(double(4, 6, seed=1), dim=1)
    old = Normal(double(4, 2, seed=2), 0.3 * double(4, 2, seed=3))
    new = Normal(double(4, 2, seed=4).requires_grad_(), (0.3 * double(4, 2, seed=5)).requires_grad_())
    by_mean = TorchNormal(new.mean[:, None], old.log_std.exp()[:, None]).log_prob(z)
    by_std = TorchNormal(old.mean[:, None], new.log_std.exp()[:, None]).log_prob(z)
    plain = -(weight[..., None] * (by_mean + by_std)).sum()
    wanted, found = (torch.autograd.grad(loss, new) for loss in (plain, fit_loss(z, weight, old, new).sum()))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_are_finite_differences():
    z, weight = double(3, 4, 2), torch.softmax(double(3, 4, seed=1), dim=1)
    old, alpha = Normal(double(3, 2, seed=2), 0.3 * double(3, 2, seed=3)), torch.tensor([0.7, 2.0]).double()
    mean, log_std = double(3, 2, seed=4).requires_grad_(), (0.3 * double(3, 2, seed=5)).requires_grad_()

    def actor(mean, log_std):
        new = Normal(mean, log_std)
        return fit_loss(z, weight, old, new) + penalty(alpha, old.of_mean(new)) + penalty(alpha, old.of_std(new))

    assert torch.autograd.gradcheck(actor, (mean, log_std))
    logits = double(3, 4, seed=6).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: cross_entropy(weight, torch.log_softmax(x, dim=1)), (logits,))


def test_a_broken_bound_raises_its_multiplier_and_a_kept_one_lowers_it():
    """In each entry by its own; ones that are positive begin where they are told to."""
    multipliers = Multipliers({"mean": (3.0, 2), "std": (1000.0, 1)})
    with torch.no_grad():
        values = multipliers()
    values["mean"].requires_grad_()
    torch.testing.assert_close(values["mean"].detach(), torch.tensor([3.0, 3.0]))
    assert float(values["std"]) == pytest.approx(1000.0)
    assert math.log1p(math.exp(inverse_softplus(1e-3))) == pytest.approx(1e-3)
    loss = multiplier_loss(values["mean"], torch.tensor([[0.3, 0.0], [0.1, 0.1]]), 0.1).mean()
    (slope,) = torch.autograd.grad(loss, values["mean"])
    torch.testing.assert_close(slope, torch.tensor([-0.1, 0.05]))


# ------------------------------------------------------------------ updates


CASES = {
    "box": ("box", {}),
    "box, twin, three steps": (
        "box",
        {"twin": True, "n_step": 3, "target_period": 0, "polyak": 0.1, "per_dimension": False},
    ),
    "box, prioritised": ("box", {"priority_exponent": 0.6, "target_period": 2}),
    "tensors": ("tensors", {"twin": True, "target_period": 3}),
    "enumerated": ("enumerated", {"n_step": 3, "activation": "tanh"}),
}


def env_of(kind, request):
    return boxed(request.getfixturevalue("tensors")) if kind == "box" else request.getfixturevalue(kind)


@pytest.mark.parametrize("name", CASES)
def test_mpo_satisfies_algorithm_contract(name, request):
    kind, changes = CASES[name]
    check_algorithm(
        MPO(**{**MINE, "updates_per_decision": 0.05, **changes}), env_of(kind, request), seats=(1,), rounds=2
    )


def apart(learner):
    """With targets that are not the newest networks."""
    state = learner.state_dict()
    for k, part in enumerate(("actor", "critics")):
        moved = np.random.default_rng(k).standard_normal(len(state[part]["target"])).astype(np.float32)
        state[part]["target"] = state[part]["target"] + 0.3 * moved
    learner.load_state_dict(state)
    return tuple(dict(getattr(learner, part).target.module.named_parameters()) for part in ("actor", "critics"))


def assert_moved(learner, metrics, *, actor, critics, losses, norms, multipliers):
    assert metrics["critic_loss"] == pytest.approx(float(losses[0].detach()), rel=1e-4)
    found = [metrics["critic_gradient_norm"], metrics["actor_gradient_norm"]]
    assert found == pytest.approx(norms, rel=1e-3)
    for parameters, mine in ((critics, learner.critics.weights()), (actor, learner.actor.weights())):
        for name, parameter in parameters.items():
            np.testing.assert_allclose(mine[name], parameter.detach(), atol=5e-5)
    for name, value in learner.multipliers.online.module().items():
        np.testing.assert_allclose(value.detach(), multipliers[name], rtol=1e-5, err_msg=name)


def raised(start, slope, *, rate=1e-2):
    """A multiplier after Adam's first step of what softplus makes it from."""
    return math.log1p(math.exp(inverse_softplus(start) - rate * math.copysign(1.0, slope)))


def test_one_update_of_a_box_beside_a_plain_one(tensors):
    """Of all three: critics, actor, and the multipliers, whose first steps tell the signs of their slopes."""
    env = boxed(tensors)
    learner = learner_of(
        MPO(**{**MINE, "samples": 4, "target_samples": 2, "learning_rate": 1e-3, "temperature": 0.5}), env
    )
    batch, (old_actor, old_critics) = batch_of(learner, env), apart(learner)
    noise = torch.Generator()
    noise.set_state(learner._noise.get_state())
    deviates = torch.randn(6, 16, 2, generator=noise)
    c, critics, actor = columns_of(batch), leaves_of(learner.critics), leaves_of(learner.actor)

    def normal(parameters, x):
        mean, log_std = acting(parameters, x)[:, :4].chunk(2, dim=1)
        return TorchNormal(mean, log_std.clamp(-10.0, 2.0).exp())

    def q(parameters, x, action):
        return valued(parameters, 0, torch.cat([x, action], dim=1))[:, 0]

    with torch.no_grad():
        old, after = normal(old_actor, c["observation"]), normal(old_actor, c["next"])
        z = [old.mean + old.stddev * deviate for deviate in deviates[:4]]
        worth = torch.stack([q(old_critics, c["observation"], each.tanh()) for each in z])
        weight = torch.softmax(worth / 0.5, dim=0)
        following = [q(old_critics, c["next"], (after.mean + after.stddev * each).tanh()) for each in deviates[4:]]
        target = c["reward"] + c["discount"] * torch.stack(following).mean(dim=0)
        away = (weight * (weight * 4.0).log()).sum(dim=0).mean()
        new = normal(actor, c["observation"])
        divergences = [
            kl_divergence(old, TorchNormal(new.mean, old.stddev)).mean(dim=0),
            kl_divergence(old, TorchNormal(old.mean, new.stddev)).mean(dim=0),
        ]
    loss = 0.5 * (q(critics, c["observation"], c["action"]) - target).square().mean()
    norms = [adam_step(critics, loss)]
    new = normal(actor, c["observation"])
    parts = TorchNormal(new.mean, old.stddev), TorchNormal(old.mean, new.stddev)
    fit = -sum(
        (w[:, None] * (parts[0].log_prob(x) + parts[1].log_prob(x))).sum() for w, x in zip(weight, z, strict=True)
    )
    held = 10.0 * (kl_divergence(old, parts[0]) + kl_divergence(old, parts[1])).sum()
    norms.append(adam_step(actor, (fit + held) / 16))
    bounds = (2.5e-3, 1e-3)
    alphas = [
        [raised(10.0, float(bound - kl)) for kl in found] for bound, found in zip(bounds, divergences, strict=True)
    ]
    metrics = learner.update(batch)
    multipliers = {"temperature": raised(0.5, float(0.1 - away)), "mean": alphas[0], "std": alphas[1]}
    assert_moved(learner, metrics, actor=actor, critics=critics, losses=(loss,), norms=norms, multipliers=multipliers)
    assert metrics["kl_improved"] == pytest.approx(float(away), rel=1e-3)
    assert metrics["kl_mean"] == pytest.approx(float(divergences[0].sum()), rel=1e-3)
    assert metrics["std"] == pytest.approx(float(old.stddev.mean()), rel=1e-4)


def test_one_update_of_discrete_actions_beside_a_plain_one(tensors):
    """Expectations are sums over the legal actions."""
    learner = learner_of(MPO(**MINE, twin=True, learning_rate=1e-3, temperature=0.2), tensors)
    batch, (old_actor, old_critics) = batch_of(learner, tensors), apart(learner)
    c, critics, actor = columns_of(batch), leaves_of(learner.critics), leaves_of(learner.actor)

    def q(parameters, x):
        return torch.stack([valued(parameters, k, x) for k in range(2)])

    def policy(parameters, x, mask):
        return Categorical(logits=acting(parameters, x).masked_fill(~mask, -1e9))

    with torch.no_grad():
        old, after = policy(old_actor, c["observation"], c["mask"]), policy(old_actor, c["next"], c["next_mask"])
        worth = q(old_critics, c["observation"]).amin(dim=0)
        better = Categorical(logits=old.logits + (worth / 0.2).masked_fill(~c["mask"], 0.0))
        following = (after.probs * q(old_critics, c["next"]).amin(dim=0)).sum(dim=1)
        target = c["reward"] + c["discount"] * following
        away = kl_divergence(better, old).mean()
        kl = kl_divergence(old, policy(actor, c["observation"], c["mask"])).mean()
    chosen = q(critics, c["observation"])[:, torch.arange(16), c["action"].long()]
    loss = 0.5 * (chosen - target).square().mean(dim=1).sum()
    norms = [adam_step(critics, loss)]
    new = policy(actor, c["observation"], c["mask"])
    norms.append(adam_step(actor, (-(better.probs * new.logits).sum(dim=1) + 3.0 * kl_divergence(old, new)).mean()))
    metrics = learner.update(batch)
    multipliers = {"temperature": raised(0.2, float(0.1 - away)), "policy": raised(3.0, float(2.5e-3 - kl))}
    assert_moved(
        learner, metrics, actor=actor, critics=critics, losses=(loss / 2,), norms=norms, multipliers=multipliers
    )
    assert metrics["kl_improved"] == pytest.approx(float(away), rel=1e-3)
    assert metrics["kl_policy"] == pytest.approx(float(kl), rel=1e-3)
    assert metrics["entropy"] == pytest.approx(float(old.entropy().mean()), rel=1e-3)


@pytest.mark.parametrize("kind", ["box", "enumerated"])
def test_targets_are_copied_in_whole_every_so_many_updates(kind, request):
    env = env_of(kind, request)
    learner = learner_of(MPO(**MINE, target_period=3, learning_rate=1e-2), env)
    batch = batch_of(learner, env)
    same = []
    for _ in range(6):
        learner.update(batch)
        parts = learner.state_dict()["actor"], learner.state_dict()["critics"]
        same.append([np.array_equal(part["weights"], part["target"]) for part in parts])
    assert same == [[k % 3 == 0] * 2 for k in range(1, 7)]


@pytest.mark.parametrize("kind", ["box", "tensors"])
def test_ranks_learn_what_one_learner_does(kind, request):
    env, config = env_of(kind, request), MPO(**MINE, target_period=2)
    batches = [batch_of(learner_of(config, env), env, number) for number in range(3)]
    assert_ranks_learn_alike(3, lambda ranks: config.learner(LearnerContext(env, (0,), 0, ranks=ranks)), batches)


BASE = {"temperature": 0.1, "target_period": 4, "learning_rate": 1e-2, "dual_learning_rate": 0.3}
BOXED = [
    {"samples": 7}, {"target_samples": 4}, {"epsilon_mean": 1e-4}, {"epsilon_std": 1e-5}, {"alpha_mean": 1.0}, {"alpha_std": 1.0},
    {"per_dimension": False},
]  # fmt: skip
EVERY = [
    {},
    {"target_period": 2},
    {"target_period": 0},
    {"epsilon": 1e-6},
    {"temperature": 1.0},
    {"dual_learning_rate": 0.1},
]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [("box", EVERY + BOXED), ("tensors", [*EVERY, {"epsilon_policy": 0.1}, {"alpha_policy": 0.5}])],
)
def test_each_setting_matters(kind, changes, request):
    """In some weight of the actor no two come within a thousandth of what one update moves it."""
    env, ends = env_of(kind, request), []
    for change in changes:
        learner = learner_of(MPO(**{**MINE, **BASE, **change}), env)
        batch = batch_of(learner, env)
        for _ in range(6):
            learner.update(batch)
        ends.append((change, learner.state_dict()["actor"]["weights"]))
    for (one, ours), (other, theirs) in combinations(ends, 2):
        assert np.abs(ours - theirs).max() > 1e-5, (one, other)


def test_multipliers_stay_within_reach(tensors):
    """However long their bounds are kept."""
    learner = learner_of(MPO(**MINE, dual_learning_rate=50.0, epsilon_policy=100.0), tensors)
    learner.update(batch_of(learner, tensors))
    raw = learner.multipliers.online.values
    assert raw.min() == -18.0
    assert float(learner.multipliers.online.module()["policy"].detach()) == pytest.approx(
        math.log1p(math.exp(-18.0)) + 1e-8, rel=1e-3
    )


def test_mpo_rejects_unsupported_action_spaces(tensors):
    from gymnasium.spaces import MultiDiscrete

    several = replace(tensors, agents=tuple(replace(a, action=MultiDiscrete([2, 3])) for a in tensors.agents))
    with pytest.raises(ScenarioError, match="MPO needs continuous actions"):
        MPO().check(several)
