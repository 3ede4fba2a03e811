"""Central critics by hand: normalised states, a critic for each agent, states of minibatches, and what rewards become before them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from made_up_teams import learner_and_sample, rollout_of, team_env
from test_central_critics import SMALL, by_hand, make, one_episode

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.on_policy.batch import Batch, unpadded
from ludus.algorithms.on_policy.multi_agent import team_rewards
from ludus.policies.actor_critic import agents_of, make_network, member_spec
from ludus.replay.base import Sample


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_states_are_normalised_by_hand(memory):
    """Means (1, 2) and variances (4, 1): the states (3, 1) and (1, 2) are seen as (1, -1) and (0, 0). V = 2 + 1 + 0.75 = 3.75 and 0.75;
    beside the returns 1.25 and 0.5 they cost (2.5² + 0.25²) / 4 = 1.578125."""
    options = {"memory": memory, "normalise_observations": True, "gae_lambda": 1.0, "epochs": 1, "minibatches": 1}
    learner, env = by_hand(**options)
    weights = dict(learner.weights())
    weights["state_normaliser.mean"] = np.array([1.0, 2.0], np.float32)
    weights["state_normaliser.var"] = np.array([4.0, 1.0], np.float32)
    weights["state_normaliser.count"] = np.array(10.0, np.float32)
    learner = learner.config.learner(LearnerContext(env, (0,), 0), weights)
    rows = one_episode(env, learner, state=[[3.0, 1.0], [1.0, 2.0]], bootstrap_state=[[0.0, 0.0]])
    ((_, columns),) = learner.items(rows)
    many = (slice(0, 1), slice(0, 2)) if memory == "gru" else slice(0, 2)
    np.testing.assert_allclose(np.ravel(columns["value"][many]), [3.75, 0.75], rtol=1e-6)
    np.testing.assert_allclose(np.ravel(columns["target"][many]), [1.25, 0.5], rtol=1e-6)
    items = len(columns["version_lo"])
    metrics = learner.update(Sample(columns, np.arange(items), np.ones(items)))
    assert metrics["value_loss"] == pytest.approx(1.578125, rel=1e-6)


def shaken(weights):
    rng = np.random.default_rng(2)
    return {
        name: array + 0.4 * rng.standard_normal(array.shape).astype(np.float32) * (not name.startswith("returns"))
        for name, array in weights.items()
    }


@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_each_agents_critic_sees_the_states_of_its_own_decisions(memory):
    """With a network for each agent, its decisions are judged by its own, row by row; what is learned from them is as well."""
    env, algorithm = team_env(agents=3), make(share_weights=False, memory=memory, normalise_returns=False, epochs=1)
    start = shaken(algorithm.learner(LearnerContext(env, (0,), 0)).weights())
    learner, sample, rows = learner_and_sample(algorithm, env, start=start)
    columns = unpadded(sample.columns)[0] if memory != "none" else sample.columns
    agent, values = agents_of(rows.observation, 3), np.zeros(rows.num_rows)
    logits = np.zeros((rows.num_rows, 3))
    for k in range(3):
        network = make_network(member_spec(learner.spec))
        network.load_state_dict({n.split(".", 2)[2]: torch.tensor(a) for n, a in start.items() if f"members.{k}." in n})
        for s in np.flatnonzero(agent[rows.start[:-1]] == k):
            before = None if memory == "none" else torch.from_numpy(rows.memory0[s : s + 1])
            for t in range(rows.start[s], rows.start[s + 1]):
                x, state = (torch.from_numpy(a[t : t + 1]) for a in (rows.observation, rows.state))
                with torch.no_grad():
                    out, value, before = network(x, before, None, state)
                values[t], logits[t] = float(value), out[0].numpy()
    assert len(np.unique(agent)) == 3
    np.testing.assert_allclose(columns["value"], values, atol=1e-5)
    error = values - columns["target"]
    metrics = learner.update(sample)
    assert metrics["value_loss"] == pytest.approx(0.5 * np.square(error).mean(), rel=1e-4)
    chance = np.where(rows.mask, np.exp(logits), 0.0) if rows.mask is not None else np.exp(logits)
    chance /= chance.sum(axis=1, keepdims=True)
    entropy = -(chance * np.log(np.where(chance > 0, chance, 1.0))).sum(axis=1).mean()
    assert metrics["entropy"] == pytest.approx(entropy, rel=1e-4)


def test_every_network_of_a_team_has_the_statistics_of_all_rows():
    learner, sample, rows = learner_and_sample(
        make(share_weights=False, normalise_observations=True), team_env(agents=3)
    )
    learner.update(sample)
    weights = learner.weights()
    for k in range(3):
        for name, seen in (("normaliser", rows.observation), ("state_normaliser", rows.state)):
            np.testing.assert_allclose(weights[f"members.{k}.{name}.mean"], seen.mean(axis=0), atol=1e-6)
            np.testing.assert_allclose(weights[f"members.{k}.{name}.var"], seen.var(axis=0), atol=1e-5)
            assert weights[f"members.{k}.{name}.count"] == rows.num_rows
        assert weights[f"members.{k}.returns.count"] == rows.num_rows
        assert weights[f"members.{k}.returns.var"] == weights["members.0.returns.var"] != 1.0


def test_parts_of_a_batch_keep_their_states_and_memories():
    """Three sequences of 2, 1 and 3 rows; the third, and then the second."""
    columns = {name: torch.arange(6.0) for name in ("action", "logp", "advantage", "target", "value")}
    state, memory = torch.arange(12.0).reshape(6, 2), torch.tensor([[10.0], [20.0], [30.0]])
    batch = Batch(torch.arange(6.0)[:, None], None, **columns, start=np.array([0, 2, 3, 6]), memory=memory, state=state)
    part = batch.part(np.array([2, 1]))
    assert part.start.tolist() == [0, 3, 4]
    assert part.memory.tolist() == [[30.0], [20.0]]
    for column in (part.x[:, 0], part.action, part.logp, part.advantage, part.target, part.value):
        assert column.tolist() == [3.0, 4.0, 5.0, 2.0]
    assert part.state[:, 0].tolist() == [6.0, 8.0, 10.0, 4.0]
    rows = replace(batch, start=None, memory=None).part(np.array([4, 1]))
    assert rows.state.tolist() == [[8.0, 9.0], [2.0, 3.0]]


@pytest.mark.parametrize("correction", ["none", "vtrace"])
def test_a_team_learns_from_its_normalised_rewards(correction):
    """Sums of the team's rewards, divided by the deviation of R_t = r_t + γ R_{t-1} at γ = ½; V-trace is given the same ones."""
    env = team_env()
    options = {**SMALL, "gamma": 0.5, "gae_lambda": 1.0, "scale_rewards": False, "correction": correction}
    learner = make(**options).learner(LearnerContext(env, (0,), 0))
    rows = rollout_of(learner, env)
    rows = replace(rows, tail=np.zeros_like(rows.tail))
    received, so_far = team_rewards(rows), []
    for first, end in zip(rows.start, rows.start[1:], strict=False):
        running = 0.0
        for t in range(first, end):
            running = received[t] + 0.5 * running
            so_far.append(running)
    ((_, columns),) = learner.items(rows)
    assert learner.weights()["returns.var"] == pytest.approx(np.var(so_far), rel=1e-5)
    expected = np.zeros(rows.num_rows)
    for first, end in zip(rows.start, rows.start[1:], strict=False):
        running = 0.0
        for t in range(end - 1, first - 1, -1):
            expected[t] = running = received[t] / np.std(so_far) + 0.5 * running
    np.testing.assert_allclose(columns["target"], expected, atol=1e-5)
    assert ("reward" in columns) == (correction == "vtrace")
    if correction == "vtrace":
        np.testing.assert_allclose(columns["reward"], received / np.std(so_far), rtol=1e-6)
