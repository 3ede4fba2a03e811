"""COMA: counterfactual advantages and TD(λ) targets by hand, what its critic sees, and that a team learns."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from team_games import in_two, learner_of, rollouts, team_env, team_rollout, train
from together import assert_ranks_learn_alike
from value_twins import perceptron

from ludus.algorithms.on_policy.batch import SegmentPieces
from ludus.contrib.algorithms.coma.config import COMA
from ludus.contrib.algorithms.coma.learner import JointStepIndex, counterfactual, joint_inputs, same, sample_actions
from ludus.core import seeding
from ludus.core.errors import ConfigError, ScenarioError, TrainingError
from ludus.core.types import SegmentEnd
from ludus.replay.base import Sample
from ludus.testing.algorithm import check_algorithm

SMALL = {"batch": 30, "hidden": (8,), "critic_hidden": (6,), "target_period": 2, "critic_steps": 3}
GRU = {"memory": "gru", "memory_size": 4, "sequence": 2}


@pytest.mark.parametrize(
    "options",
    [
        {"normalise_returns": True, "polyak": 0.1},
        {**GRU, "normalise_observations": True, "normalise_advantages": True},
        {"share_weights": False, "batch_unit": "decisions"},
    ],
    ids=["plain", "gru", "separate"],
)
def test_coma_satisfies_algorithm_contract(options):
    env = team_env()
    check_algorithm(COMA(**{**SMALL, **options}), env, rollouts=rollouts(env), rounds=2)


def test_teams_of_both_sides_do_not_see_each_other():
    """A learner of two seats: what the other side does at the same moment of an episode is nothing to the critic."""
    env, algorithm = team_env(), COMA(**SMALL)
    learner = learner_of(algorithm, env, seats=(0, 1))
    rows = team_rollout(env, learner, pieces=12, rng=np.random.default_rng(3), seats=(0, 1))
    sides = replace(rows, episode=rows.episode // 2)  # both play in one
    ((_, apart),), ((_, columns),) = learner.items(rows), learner.items(sides)
    np.testing.assert_array_equal(apart["state"], columns["state"])
    assert set(columns["state"][:, 5:7].argmax(axis=1)) == {0, 1}


# ------------------------------------------------------------------ by hand


def test_advantages_by_hand():
    """Q = (1, 5, 2), π = (½, ¼, ¼): on average 2¼. Done: the second, 2¾ better; the third, ¼ worse."""
    q, probability = torch.tensor([[1.0, 5.0, 2.0]] * 2), torch.tensor([[0.5, 0.25, 0.25]] * 2)
    assert counterfactual(q, probability, torch.tensor([1, 2])).tolist() == [2.75, -0.25]


def test_other_agents_actions_by_hand():
    """Agents 1 and 0 of two decide together, and then agent 1 by itself."""
    assert same(np.array([7, 7, 7]), np.array([0, 0, 1])).tolist() == [0, 0, 1]
    places = JointStepIndex(np.array([0, 0, 1]), np.array([1, 0, 1]))
    seen = joint_inputs(places, np.array([0, 1, 1]), agents=2, actions=2)
    assert seen.tolist() == [[0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 1, 0], [0, 0, 0, 0, 0, 1]]


def test_draws_by_hand():
    """Of ½, 0, ½; of what sums to less than 1 by rounding, the last."""
    probability = np.array([[0.5, 0.0, 0.5]] * 3 + [[0.2, 0.3, 0.0]])
    assert sample_actions(probability, np.array([0.0, 0.499, 0.5, 0.99])).tolist() == [0, 0, 2, 1]


def critic_of(flat):
    return {name: t.detach().numpy().astype(np.float64) for name, t in flat.module.state_dict().items()}


def q_of(weights, x):
    return perceptron(weights, "head", np.maximum(perceptron(weights, "body.1", x.astype(np.float64)), 0))


def set_apart(learner):
    flat = learner.model.critic.target.flat
    flat[:] += np.random.default_rng(4).standard_normal(len(flat)).astype(np.float32) * 0.3
    return learner


def seen_by_the_critic(state, did, agent, observation):
    """did: actions by agent, of those who decide at that moment."""
    joint = np.zeros((3, 3))
    for other, action in did.items():
        joint[other, action] = other != agent
    return np.concatenate([state, joint.ravel(), np.eye(3)[agent], observation])


def what_comes_after(learner, rows):
    """(policies of segments that go on [A], by number; what all who do in an episode draw, by agent)."""
    on, memory = np.flatnonzero(rows.tail != SegmentEnd.TERMINATED), None
    if learner.model.memory:
        pieces = SegmentPieces.of(rows.start, learner.config.sequence)
        memory = torch.from_numpy(learner._items._walk(rows, pieces, None)[2])[on]
    with torch.no_grad():
        out = learner.model.module.unroll(torch.from_numpy(rows.bootstrap_observation[on]), memory, None, None)[0]
    chance, policies, draws = seeding.generator(0, "coma", "after", 0).random(len(on)), {}, {}
    for k, s in enumerate(on):
        legal = np.exp(out[k].double().numpy()) * rows.bootstrap_mask[s]
        policies[s] = legal / legal.sum()
        draw = int(np.searchsorted(np.cumsum(policies[s]), chance[k], side="right"))
        draws.setdefault(int(rows.episode[s]), {})[int(rows.agent[s])] = draw
    return policies, draws


@pytest.mark.parametrize("options", [{}, GRU], ids=["plain", "gru"])
def test_targets_step_by_step(options):
    """In plain NumPy: what an agent's next decision, and those of the others then, are worth by the critic's target."""
    env, plain = team_env(), {"gae_lambda": 0.6, "gamma": 0.9, "scale_rewards": False, "team_rewards": False}
    learner = set_apart(learner_of(COMA(**SMALL, **plain, **options), env))
    rows = team_rollout(env, learner, pieces=25, rng=np.random.default_rng(1), absent=0.4)
    ((_, columns),) = learner.items(rows)
    weights, did = critic_of(learner.model.critic.target), {}
    for s, (a, b) in enumerate(pairwise(rows.start)):
        for t, action in zip(rows.t[a:b], rows.action[a:b], strict=True):
            did.setdefault((int(rows.episode[s]), int(t)), {})[int(rows.agent[s])] = int(action)
    policies, draws = what_comes_after(learner, rows)
    expected = np.zeros(rows.num_rows)
    for s, (a, b) in enumerate(pairwise(rows.start)):
        agent, episode, g, q_next = int(rows.agent[s]), int(rows.episode[s]), 0.0, 0.0
        if s in policies:
            x = seen_by_the_critic(rows.bootstrap_state[s], draws[episode], agent, rows.bootstrap_observation[s])
            g = q_next = policies[s] @ q_of(weights, x)
        for row in reversed(range(a, b)):
            g = rows.reward[row] + 0.9 * (0.4 * q_next + 0.6 * g)
            expected[row] = g
            now = did[episode, int(rows.t[row])]
            x = seen_by_the_critic(rows.state[row], now, agent, rows.observation[row])
            q_next = q_of(weights, x)[rows.action[row]]
    found = columns["target"]
    if options:
        found = found[np.arange(2) < columns["length"][:, None]]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_an_agent_does_one_thing_after_each_fragment(monkeypatch):
    """Of fragments of an episode that come together, each goes on from its own end: nobody does two things at one moment."""
    learner, env = learner_of(COMA(**SMALL), team_env()), team_env()
    whole = team_rollout(env, learner, pieces=6, rng=np.random.default_rng(4), absent=0.0, tails=(SegmentEnd.CUT,))
    rows = in_two(whole, np.random.default_rng(5), lambda n: np.full(n, SegmentEnd.CUT))
    asked, plainly = [], learner._items._joint
    monkeypatch.setattr(learner._items, "_joint", lambda *given: asked.append(given[0]) or plainly(*given))
    learner.items(rows)
    after = np.stack(asked[1])
    assert after.shape[1] == rows.num_segments > whole.num_segments
    assert np.unique(after, axis=1).shape == after.shape


def sample_of(learner, rows):
    ((_, columns),) = learner.items(rows)
    n = len(columns["version_lo"])
    return Sample(columns, np.arange(n), np.ones(n))


def test_advantages_are_of_the_critic_that_has_learned():
    """Of each row by the critic after its steps, in plain NumPy; what the policy does on average has none."""
    learner = learner_of(COMA(**SMALL), team_env())
    sample = sample_of(learner, team_rollout(team_env(), learner, pieces=20, rng=np.random.default_rng(2)))
    before = learner.model.critic.online.flat.copy()
    batch = learner._batch(sample.columns)
    assert not np.array_equal(before, learner.model.critic.online.flat)
    weights = critic_of(learner.model.critic.online)
    with torch.no_grad():
        out = learner.model.outputs(batch.x).numpy().astype(np.float64)
    for k, (x, state, legal, action) in enumerate(
        zip(*(getattr(batch, name).numpy() for name in ("x", "state", "mask", "action")), strict=True)
    ):
        chance = np.exp(out[k]) * legal
        chance /= chance.sum()
        q = q_of(weights, np.concatenate([state, x]))
        assert batch.advantage[k].item() == pytest.approx(q[action] - chance @ q, abs=1e-5)
        assert batch.value[k].item() == pytest.approx(q[action], abs=1e-5)


def test_the_critics_loss_by_hand():
    """½ (Q - y)² of the rows of one step."""
    learner = learner_of(COMA(**{**SMALL, "critic_steps": 1}), team_env())
    sample = sample_of(learner, team_rollout(team_env(), learner, pieces=20, rng=np.random.default_rng(2)))
    batch, weights = learner._items.batch(sample.columns)[0], critic_of(learner.model.critic.online)
    q = [q_of(weights, np.concatenate([s, x]))[a] for s, x, a in zip(batch.state, batch.x, batch.action, strict=True)]
    expected = np.mean(0.5 * np.square(np.array(q) - sample.columns["target"]))
    assert learner.update(sample)["value_loss"] == pytest.approx(expected, rel=1e-5)


def test_the_target_follows_every_so_many_updates():
    learner = learner_of(COMA(**SMALL), team_env())
    sample = sample_of(learner, team_rollout(team_env(), learner, pieces=20, rng=np.random.default_rng(2)))
    critic, equal = learner.model.critic, []
    for _ in range(4):
        learner.update(sample)
        equal.append(np.array_equal(critic.target.flat, critic.online.flat))
    assert equal == [False, True, False, True]


def test_a_critic_that_fails_leaves_all_as_it_was():
    learner = learner_of(COMA(**SMALL), team_env())
    sample = sample_of(learner, team_rollout(team_env(), learner, pieces=20, rng=np.random.default_rng(2)))
    before = learner.model.critic.online.flat.copy(), learner.model.flat.copy()
    state = sample.columns["state"].copy()
    state[3] = np.nan
    with pytest.raises(TrainingError, match="COMA update 1: the critic's loss or its gradient became NaN"):
        learner.update(replace(sample, columns={**sample.columns, "state": state}))
    for kept, now in zip(before, (learner.model.critic.online.flat, learner.model.flat), strict=True):
        np.testing.assert_array_equal(kept, now)


@pytest.mark.parametrize("options", [{}, {**GRU, "normalise_observations": True}], ids=["plain", "gru"])
def test_ranks_learn_what_one_learner_does(options):
    algorithm, env = COMA(**{**SMALL, **options}, learning_rate=0.003), team_env()
    learner = learner_of(algorithm, env)
    batches = [
        sample_of(learner, team_rollout(env, learner, pieces=8, rng=np.random.default_rng([k, 3]))) for k in range(4)
    ]
    assert_ranks_learn_alike(3, lambda ranks: learner_of(algorithm, env, ranks=ranks), batches)


def test_coma_rejects_unsupported_settings(enumerated):
    env = team_env()
    with pytest.raises(ScenarioError, match="COMA learns how the agents of a team act together"):
        COMA().check(enumerated)
    with pytest.raises(ScenarioError, match=r"COMA's critic sees .* use ppo with team_rewards=true"):
        COMA().check(team_env(state=0))
    with pytest.raises(ScenarioError, match="discrete"):
        COMA().check(team_env(action=Box(-1.0, 1.0, (2,), np.float32)))
    with pytest.raises(ConfigError, match="nothing corrects rows of older weights"):
        COMA(max_lag=3)
    with pytest.raises(ConfigError, match=r"nothing reads clip_value \(of policies with a value\)"):
        COMA(clip_value=0.2)
    COMA().check(env)


@pytest.mark.slow
def test_a_team_learns_to_carry():
    """Each load that is met earns 1, of eight; a random pair meets about two."""
    algorithm = COMA(batch=32, hidden=(32,), critic_hidden=(32,), learning_rate=3e-3, critic_rate=3e-3, gamma=0.0)
    env = {"wrappers": ["joint_state", "agent_ids"], "teams": "one", "discrete": True}
    assert train(algorithm, "team_games:Carry", num_envs=32, total=3200, **env)[0] > 7.5
