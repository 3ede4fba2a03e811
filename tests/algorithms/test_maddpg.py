"""MADDPG: sampling and gradients by hand and against autograd, what critics are given, and learning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from off_policy_tools import acting, adam_step, assert_updated, columns_of, leaves_of, valued
from team_games import batch_of, learner_of, rollouts, team_env, team_rollout, train
from together import assert_ranks_learn_alike

from ludus.contrib.algorithms.maddpg.config import MADDPG
from ludus.contrib.algorithms.maddpg.learner import OneHotActions
from ludus.core.errors import ScenarioError, TrainingError
from ludus.policies.registry import build_policy
from ludus.testing.algorithm import check_algorithm

SMALL = {"rollout": 40, "start_decisions": 50, "hidden": (8,), "batch": 24, "updates_per_decision": 0.1}
POINTS = Box(-1.0, 3.0, (2, 1), np.float32)


def games(kind, **options):
    return team_env(action=POINTS if kind == "box" else None, **options)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("box", {"critic": "state", "twin": True, "n_step": 3, "normalise_rewards": "none", "noise": 0.3}),
        ("discrete", {}),
    ],
)
def test_maddpg_satisfies_algorithm_contract(kind, options):
    env = games(kind)
    check_algorithm(MADDPG(**SMALL, **options), env, rollouts=rollouts(env), rounds=2)


def test_a_player_of_one_agent_will_do(tensors):
    check_algorithm(MADDPG(**SMALL), tensors, rounds=2)
    assert (MADDPG().collect().state, MADDPG(critic="state").collect().state) == (False, True)


# ------------------------------------------------------------------ terms


def choices(temperature=1.0):
    """Of three actions."""
    return OneHotActions(MADDPG(**SMALL).policy(team_env(), (0,)), temperature=temperature)


def test_choices_by_hand():
    """log 1, log 2, log 3 and no noise: the third; the second, where that is illegal, or has much noise."""
    logits, nothing = torch.tensor([[1.0, 2.0, 3.0]]).log(), torch.zeros(1, 3)
    for gumbel, legal, expected in (
        (nothing, None, [0, 0, 1]),
        (nothing, [True, True, False], [0, 1, 0]),
        (nothing, [False, False, False], [0, 0, 0]),
        (torch.tensor([[1.0, 5.0, 1.0]]), None, [0, 1, 0]),
    ):
        mask = None if legal is None else torch.tensor([legal])
        np.testing.assert_allclose(choices().sample(logits, gumbel, mask), [expected], atol=1e-6)


def test_choices_are_draws_from_the_softmax():
    logits = torch.tensor([[1.0, 2.0, 5.0]]).log().repeat(20_000, 1)
    gumbel = torch.from_numpy(np.random.default_rng(0).gumbel(size=logits.shape)).float()
    share = choices(0.3).sample(logits, gumbel, None).mean(dim=0)
    np.testing.assert_allclose(share, [0.125, 0.25, 0.625], atol=0.015)


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_gradients_of_choices_are_those_of_the_softmax(temperature):
    rng = np.random.default_rng(0)
    values, gumbel, slope = (torch.from_numpy(rng.standard_normal((5, 3))) for _ in range(3))
    mask = torch.from_numpy(rng.random((5, 3)) < 0.7)
    mask[:, 0] = True
    logits, plain = values.clone().requires_grad_(True), values.clone().requires_grad_(True)
    (choices(temperature).sample(logits, gumbel, mask) * slope).sum().backward()
    soft = torch.softmax(((plain + gumbel) / temperature).masked_fill(~mask, -torch.inf), dim=1)
    (soft * slope).sum().backward()
    np.testing.assert_allclose(logits.grad, plain.grad, atol=1e-12)


# ------------------------------------------------------------------ an update


def scattered(ensemble):
    """Moves the targets away from the networks that they follow; their parameters."""
    flat = ensemble.target.flat
    flat[:] += 0.3 * np.random.default_rng(6).standard_normal(len(flat)).astype(np.float32)
    return {k: v.clone() for k, v in ensemble.target.module.named_parameters()}


@pytest.mark.parametrize(
    ("kind", "critic", "twin"),
    [
        ("box", "observations", True),
        ("box", "state", False),
        ("discrete", "observations", False),
        ("discrete", "state", True),
    ],
)
def test_one_update_is_autograds(kind, critic, twin, monkeypatch):
    """The first update of critics and actor, agent by agent, beside one written with autograd and torch's Adam; targets are others."""
    config = {"critic": critic, "twin": twin, "normalise_rewards": "none", "max_gradient_norm": 0.0, "gamma": 0.9}
    learner = learner_of(MADDPG(**SMALL, **config), games(kind))
    batch = batch_of(learner, games(kind), size=20)
    gumbel = np.random.default_rng(3).gumbel(size=(2, 20, 3, 3)).astype(np.float32)
    monkeypatch.setattr(learner, "_gumbel", lambda rows: gumbel if kind == "discrete" else np.zeros((2, 0), np.float32))
    critics, actor = leaves_of(learner.critics), leaves_of(learner.actor)
    later_critics, later_actor = (scattered(ensemble) for ensemble in (learner.critics, learner.actor))
    c = columns_of(batch)

    def act(out, noise, legal):
        if kind == "box":
            return out.tanh()
        soft = torch.softmax((out + noise).masked_fill(~legal, -1e9), dim=-1)
        hard = torch.nn.functional.one_hot(soft.argmax(dim=-1), 3).float()
        return hard + soft - soft.detach()

    def acts(parameters, seen, legal, which):
        noise = torch.from_numpy(gumbel[which]) if kind == "discrete" else None
        return act(acting(parameters, c[seen]), noise, c.get(legal))

    def q(parameters, seen, state, present, actions):
        sees = c[state] if critic == "state" else c[seen].flatten(1)
        x = torch.cat([sees, c[present].float(), (actions * c[present][..., None]).flatten(1)], dim=1)
        return [valued(parameters, k, x)[:, 0] for k in range(1 + twin)]

    with torch.no_grad():
        actions = acts(later_actor, "next", "next_mask", 0)
        after = q(later_critics, "next", "next_state", "next_present", actions)
        target = c["reward"] + c["discount"] * torch.stack(after).min(dim=0).values
    given = c["action"] if kind == "box" else torch.nn.functional.one_hot(c["action"].long(), 3).float()
    loss = sum(0.5 * (one - target).square().mean() for one in q(critics, "observation", "state", "present", given))
    norms = [adam_step(critics, loss)]
    own, out = acts(actor, "observation", "mask", 1), acting(actor, c["observation"])
    total = 0.0
    for agent in range(3):
        actions = given.clone()
        actions[:, agent] = own[:, agent]
        value = q(critics, "observation", "state", "present", actions)[0]
        penalty = 1e-3 * out[:, agent].square().mean(dim=1)
        total = total + ((penalty - value) * c["present"][:, agent]).sum() / (20 * 3)
    norms.append(adam_step(actor, total))
    metrics = learner.update(batch)
    assert learner.acting.width == (2 if kind == "box" else 3)
    assert_updated(learner, metrics, critics=critics, actor=actor, losses=(loss / (1 + twin), total), norms=norms)
    for before, ensemble in ((later_critics, learner.critics), (later_actor, learner.actor)):
        for key, after in ensemble.target.module.named_parameters():
            np.testing.assert_allclose(after, 0.99 * before[key].numpy() + 0.01 * ensemble.weights()[key], atol=1e-6)


@pytest.mark.parametrize("kind", ["box", "discrete"])
def test_absent_agents_do_not_change_the_update(kind):
    learner, other = (learner_of(MADDPG(**SMALL), games(kind)) for _ in range(2))
    batch, _ = (batch_of(one, games(kind)) for one in (learner, other))
    absent, gone = ~batch.columns["present"], ~batch.columns["next_present"]
    noise = {name: column.copy() for name, column in batch.columns.items()}
    noise["action"][absent] = 1
    metrics = learner.update(batch)
    again = other.update(replace(batch, columns=noise))
    assert absent.any()
    assert gone.any()
    assert metrics == pytest.approx(again, rel=1e-6)
    assert all(np.array_equal(v, other.weights()[k]) for k, v in learner.weights().items())


@pytest.mark.parametrize(
    "change", [{"twin": True}, {"critic": "state"}, {"output_penalty": 1.0}, {"normalise_rewards": "none"}]
)
def test_a_switch_changes_the_update(change):
    env = games("discrete")
    plain, other = (learner_of(MADDPG(**SMALL, **c), env) for c in ({}, change))
    assert plain.spec == other.spec
    first, second = (learner.update(batch_of(learner, env)) for learner in (plain, other))
    assert (first["critic_loss"] == second["critic_loss"]) == ("output_penalty" in change)
    assert first["actor_loss"] != second["actor_loss"]


def test_temperature_moves_slopes_and_not_draws():
    env = games("discrete")
    losses, norms = [], []
    for temperature in (1.0, 0.2):
        learner = learner_of(MADDPG(**SMALL, temperature=temperature), env)
        metrics = learner.update(batch_of(learner, env))
        losses.append(metrics["actor_loss"])
        norms.append(metrics["actor_gradient_norm"])
    assert losses[0] == losses[1]
    assert norms[0] != norms[1]


def test_exploration_travels_with_the_weights():
    learner = learner_of(MADDPG(**SMALL, noise=0.25), games("box"))
    assert learner.weights()["noise"].tolist() == [0.25]
    assert learner.weights()["warm_up"].tolist() == [1.0]
    learner.items(team_rollout(games("box"), learner, pieces=40, rng=np.random.default_rng(0)))
    assert learner.weights()["warm_up"].tolist() == [0.0]
    warm = learner_of(MADDPG(**SMALL), games("box"), start=learner.weights())
    assert warm.weights()["warm_up"].tolist() == [0.0]
    assert build_policy(learner.spec, learner.weights()).head.bounds.low.tolist() == [-1.0, -1.0]


@pytest.mark.parametrize(("kind", "rows"), [("box", 25), ("discrete", 2)])
def test_ranks_learn_what_one_learner_does(kind, rows):
    algorithm, env = MADDPG(**SMALL, twin=True), games(kind)
    batch = batch_of(learner_of(algorithm, env), env, size=rows)
    assert_ranks_learn_alike(3, lambda ranks: learner_of(algorithm, env, ranks=ranks), [batch] * 4)


def test_not_a_number_is_met_before_the_step():
    learner = learner_of(MADDPG(**SMALL), games("box"))
    batch = batch_of(learner, games("box"))
    batch.columns["observation"][0] = np.nan
    good = learner.weights()
    with pytest.raises(TrainingError, match="MADDPG update 1: a loss or its gradient became NaN or infinite"):
        learner.update(batch)
    assert all(np.array_equal(good[k], v) for k, v in learner.weights().items())


def test_maddpg_rejects_unsupported_settings():
    with pytest.raises(
        ScenarioError, match=r"MADDPG sees .* and made up teams has none\..* or use critic=observations, which"
    ):
        MADDPG(critic="state").check(team_env(state=0))
    MADDPG().check(team_env(state=0))
    uneven = team_env()
    with pytest.raises(ScenarioError, match="MADDPG learns for teams of one size"):
        MADDPG().policy(replace(uneven, agents=uneven.agents[:-1]), (0, 1))


# ------------------------------------------------------------------ learning


@pytest.mark.slow
@pytest.mark.parametrize(("discrete", "least"), [(False, -0.1), (True, 5.5)], ids=["box", "discrete"])
def test_agents_that_must_add_up(discrete, least):
    """`Carry`: 0 is best in a box, of about -4.5 at random; 8 with discrete actions, of 1.6."""
    algorithm = MADDPG(
        rollout=64, start_decisions=500, hidden=(32,), batch=128, updates_per_decision=0.1, learning_rate=3e-3, gamma=0.5, noise=0.3
    )  # fmt: skip
    options = {"wrappers": ["agent_ids"], "teams": "one", "discrete": discrete}
    assert train(algorithm, "team_games:Carry", num_envs=8, total=10_000, **options)[0] > least
