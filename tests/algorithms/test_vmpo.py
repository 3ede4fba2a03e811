"""V-MPO: the better half, its loss beside a plain one, and what the family has."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from test_policy_gradients import ACTIONS, learner_and_sample, shaken, with_actions
from test_ranks import compare
from torch.distributions import Categorical, Normal, kl_divergence

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.losses import distribution_of
from ludus.contrib.algorithms.mpo.config import VMPO
from ludus.contrib.algorithms.mpo.losses import inverse_softplus
from ludus.contrib.algorithms.mpo.vmpo import better
from ludus.policies.specs import action_config
from ludus.testing.algorithm import check_algorithm

SMALL = {"batch": 40, "hidden": (8,), "memory_size": 5, "sequence": 3, "epochs": 2, "minibatches": 2}


@pytest.mark.parametrize(
    ("advantage", "share", "best", "chosen"),
    [
        ([3.0, 1.0, -2.0, 0.0, 5.0], 0.5, [5.0, 3.0], [3.0, -math.inf, -math.inf, -math.inf, 5.0]),
        ([3.0, 1.0], 1.0, [3.0, 1.0], [3.0, 1.0]),
        ([-1.0], 0.5, [-1.0], [-1.0]),
        ([2.0, 2.0, 2.0, 2.0], 0.5, [2.0, 2.0], None),
    ],
)
def test_the_better_half(advantage, share, best, chosen):
    """Of five the two best, of one that one, and of equal ones just so many."""
    found, rest = better(torch.tensor(advantage), share)
    assert found.tolist() == best
    assert rest.tolist() == chosen if chosen else int(rest.isfinite().sum()) == 2


def test_divergences_of_boxes():
    """Of boxes by mean and by deviation, whether clipped or squashed."""
    rng = np.random.default_rng(0)
    old, new = (torch.tensor(rng.standard_normal((6, 5))) for _ in range(2))
    for squash in (True, False):
        box = distribution_of(action_config(Box(-1.0, 2.0, (2,), np.float32), squash=squash))
        (m, s), (mean, std) = ((out[:, :2], out[:, 2:4].exp()) for out in (old, new))
        wanted = [kl_divergence(Normal(m, s), other).sum(dim=1) for other in (Normal(mean, s), Normal(m, std))]
        for one, other in zip(box.divergences(old, new), wanted, strict=True):
            torch.testing.assert_close(one, other)


# ------------------------------------------------------------------ updates


def plain_steps(learner, sample, config, steps):
    """The same with loops, torch's Adam and torch's distributions: the weights that come out, and the losses of the last step."""
    module, (batch, _) = copy.deepcopy(learner.model.module), learner._items.batch(sample.columns)
    raw = {"eta": config.temperature, "alpha": config.alpha_policy}
    raw = {name: torch.tensor(inverse_softplus(value), requires_grad=True) for name, value in raw.items()}
    optimizer = torch.optim.Adam([*module.parameters(), *raw.values()], lr=config.learning_rate.start, eps=1e-5)
    old, told = None, {}
    advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std(correction=0) + 1e-8)
    half = sorted(range(len(advantage)), key=lambda k: -float(advantage[k]))[: len(advantage) // 2]
    for _ in range(steps):
        out, value, _ = module.unroll(batch.x, None, None, None)
        policy = Categorical(logits=out.masked_fill(~batch.mask, -1e9))
        old = old or Categorical(logits=policy.logits.detach())
        eta, alpha = (torch.nn.functional.softplus(x) + 1e-8 for x in raw.values())
        weights = [math.exp(float(advantage[k] / eta.detach())) for k in half]
        psi = [weight / sum(weights) for weight in weights]
        fit = -sum(weight * policy.log_prob(batch.action)[k] for weight, k in zip(psi, half, strict=True))
        kl = kl_divergence(old, policy).mean()
        dual = eta * config.epsilon + eta * torch.log(sum((advantage[k] / eta).exp() for k in half) / len(half))
        worth = 0.5 * (value - batch.target).square().mean()
        loss = fit + worth + dual + alpha * (config.epsilon_policy - kl.detach()) + alpha.detach() * kl
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([*module.parameters(), *raw.values()], 0.5)
        optimizer.step()
        told = {"policy_loss": fit, "value_loss": worth, "kl_policy": kl, "temperature": eta, "alpha_policy": alpha}
    return module, {name: float(number.detach()) for name, number in told.items()}


@pytest.mark.parametrize("kind", ["tensors", "enumerated"])
def test_an_update_beside_a_plain_one(kind, request):
    env = request.getfixturevalue(kind)
    options = {"temperature": 0.4, "alpha_policy": 0.7, "learning_rate": 0.02}
    config = VMPO(**{**SMALL, "epochs": 3, "minibatches": 1, **options})
    learner, sample, _ = learner_and_sample(config, env, start=shaken(config, env))
    module, wanted = plain_steps(learner, sample, config, 3)
    metrics = learner.update(sample)
    found = learner.weights()
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(found[name], parameter.detach(), atol=2e-5, err_msg=name)
    assert {name: metrics[name] for name in wanted} == pytest.approx(wanted, rel=1e-3)
    assert metrics["kl_policy"] > 1e-3


def test_minibatches_weigh_rows_as_the_whole_batch_does(tensors):
    """With a rate of nothing, losses of the parts are the loss of the whole, on average."""
    config = VMPO(**{**SMALL, "epochs": 1, "minibatches": 1})
    learner, sample, _ = learner_and_sample(config, tensors, start=shaken(config, tensors))
    model, (batch, _) = learner.model, learner._items.batch(sample.columns)
    with model.learning(batch, 0) as rows, torch.no_grad():
        whole = model.loss(rows, (0.0,))[1][0]
        parts = [rows.part(slice(k, k + 5)) for k in range(0, len(rows), 5)]
        mean = sum(model.loss(part, (0.0,))[1][0] * len(part) for part in parts) / len(rows)
    assert float(mean) == pytest.approx(float(whole), rel=1e-5)


# ------------------------------------------------------------------ what the family has


@pytest.mark.parametrize(
    ("action", "options"),
    [
        ("discrete", {"memory": "gru"}),
        ("multi", {"normalise_observations": True, "value_network": "separate"}),
        ("box", {"memory": "lstm", "normalise_returns": True}),
        ("box", {"continuous": "tanh", "entropy": 0.1, "top": 0.2}),
    ],
    ids=str,
)
def test_vmpo_satisfies_algorithm_contract(action, options, tensors):
    check_algorithm(VMPO(**SMALL, **options), with_actions(tensors, ACTIONS[action]), rounds=2)


def test_vmpo_satisfies_algorithm_contract_on_an_enumerated_game(enumerated):
    check_algorithm(VMPO(**SMALL), enumerated, seats=(1,), rounds=2)


@pytest.mark.parametrize(("rows", "options"), [(61, {}), (2, {}), (61, {"memory": "gru"})], ids=str)
def test_ranks_learn_what_one_learner_does(rows, options, tensors):
    compare(VMPO(**SMALL, learning_rate=0.003, **options), tensors, size=3, rows=rows)


def test_acting_policy_has_no_multipliers(tensors):
    """They are the learner's, and stay within reach."""
    config = VMPO(**SMALL, learning_rate=30.0, max_gradient_norm=0.0, epsilon_policy=100.0)
    learner, sample, _ = learner_and_sample(config, tensors)
    learner.update(sample)
    assert learner.weights().keys() == config.learner(LearnerContext(tensors, (0,), 0)).weights().keys()
    kept = learner.state_dict()["multipliers"]
    assert kept["raw.policy"] == -18.0
