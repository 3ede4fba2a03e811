"""CDS: values that agents add to a shared network, and what they are paid for differing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from team_games import batch_of, learner_of, team_env, train
from test_qmix import GRU, SMALL
from together import assert_ranks_learn_alike
from value_twins import perceptron, weights_of

from ludus.contrib.algorithms.qmix.cds import action_divergence, mean_of, squared_error
from ludus.contrib.algorithms.qmix.config import CDSQMIX, QMIX, VDN
from ludus.core.errors import ConfigError, ScenarioError
from ludus.policies.action_value_policy import ActionValuePolicy
from ludus.policies.action_values import initial_weights, make_network
from ludus.policies.registry import build_policy
from ludus.testing.policy import check_policy

CDS = {**SMALL, "predictor_width": 5, "normalise_rewards": "none", "scale_rewards": False}


# ------------------------------------------------------------------ the network


def seen_by(rng, agents):
    """Observations of agents int[n], who see four numbers and an id."""
    x = rng.standard_normal((len(agents), 7)).astype(np.float32)
    x[:, 4:] = np.eye(3)[agents]
    return x


def test_values_of_its_own_in_plain_numpy():
    """Shared values see no id; each agent adds a linear function of the same features."""
    spec = CDSQMIX(**CDS).policy(team_env(), (0,))
    network = make_network(spec, seed=3)
    weights = {name: t.numpy().astype(np.float64) for name, t in network.state_dict().items()}
    agents = np.array([2, 0, 1, 2])
    x = seen_by(np.random.default_rng(0), agents)
    with torch.no_grad():
        q = network(torch.from_numpy(x), None)[..., 0].numpy()
        all_q = network.values_of_all(network.body(torch.from_numpy(x)), None).numpy()
        own_q = network.own_values(network.body(torch.from_numpy(x))).numpy()
    for row, agent in enumerate(agents):
        features = np.maximum(perceptron(weights, "body.body.1", x[row, :4].astype(np.float64)), 0)
        shared = perceptron(weights, "head.advantage", features)
        own = perceptron(weights, "own", features).reshape(3, 3)
        np.testing.assert_allclose(q[row], shared + own[agent], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(all_q[row], shared + own, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(own_q[row], own[agent], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("core", ["none", "gru", "lstm"])
def test_acting_is_what_learning_sees(core):
    """One step at a time, in a stack of policies, and unrolled."""
    algorithm = CDSQMIX(**{**CDS, **({} if core == "none" else {**GRU, "core": core})}, dueling=True)
    spec, rng = algorithm.policy(team_env(), (0,)), np.random.default_rng(1)
    policies = [build_policy(spec, initial_weights(spec, rng, epsilon=0.0)) for _ in range(2)]
    steps = [seen_by(rng, np.array([1, 0, 2])) for _ in range(3)]
    policy, memory = policies[1], None if core == "none" else np.zeros((3, *policies[1].memory_shape), np.float32)
    stack, index, also = ActionValuePolicy.stack(policies), np.ones(3, np.int32), memory
    network = policy.members[0]
    with torch.no_grad():
        features = network.body(torch.from_numpy(np.concatenate(steps))).view(3, 3, -1)
        states = features if memory is None else network.unroll(features, torch.from_numpy(memory))
    for x, state in zip(steps, states, strict=True):
        noise = rng.random((3, 1), dtype=np.float32)
        act, other = policy.act(x, None, memory, noise), stack.act(x, None, also, noise, index)
        with torch.no_grad():
            best = network.values(state, None).argmax(dim=1)
        assert act.action.tolist() == other.action.tolist() == best.tolist()
        memory, also = act.memory, other.memory


def test_the_contract_of_its_policy():
    env = team_env()
    for options in ({}, GRU):
        spec = CDSQMIX(**{**CDS, **options}).policy(env, (0,))
        policy = build_policy(spec, initial_weights(spec, np.random.default_rng(0)))
        rows = seen_by(np.random.default_rng(1), np.arange(6) % 3)
        check_policy(policy, observation=rows, mask=np.arange(18).reshape(6, 3) % 4 > 0)


# ------------------------------------------------------------------ the intrinsic reward


def test_how_actions_differ_by_hand():
    """softmax(½ · (2 ln 3, 0)) = (¾, ¼) beside the mean of (9/10, 1/10) and (1/10, 9/10), which is (½, ½): ¾ ln 3/2 + ¼ ln 1/2; an action
    that is illegal counts for nothing."""
    own, two = 2.0 * np.log(3.0), np.log(9.0)
    values, of_all = torch.tensor([[own, 0.0, 9.0]]), torch.tensor([[[two, 0.0, 9.0], [0.0, two, 9.0]]])
    legal = torch.tensor([[True, True, False]])
    expected = 0.75 * np.log(1.5) + 0.25 * np.log(0.5)
    assert action_divergence(values, of_all, legal, scale=0.5).tolist() == pytest.approx([expected], rel=1e-5)


def test_misses_and_means_by_hand():
    assert squared_error(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 4.0]])).tolist() == [5.0]
    there = torch.tensor([True, False, False, False])
    assert mean_of(torch.tensor([3.0, 9.0, 9.0, 9.0]), there, (2, 1, 2)).tolist() == [[3.0], [0.0]]


def test_intrinsic_rewards_per_agent():
    """In plain NumPy, by the predictors' targets; and what everything loses."""
    config = CDSQMIX(**CDS, diversity=0.7, diversity_actions=0.3, individual_cost=0.4)
    learner = learner_of(config, team_env())
    flat = learner.networks.target.flat
    flat[:] += np.random.default_rng(4).standard_normal(len(flat)).astype(np.float32) * 0.3
    batch = batch_of(learner, learner._env, size=20)
    seen = learner.team_targets(learner.local_columns(batch.columns, 20))
    unpaid = learner_of(CDSQMIX(**CDS, diversity=0.0), team_env())
    unpaid.networks.online.flat[:] = learner.networks.online.flat[: len(unpaid.networks.online.flat)]
    unpaid.networks.target.flat[:] = flat[: len(unpaid.networks.target.flat)]
    plain = unpaid.team_targets(unpaid.local_columns(batch.columns, 20))
    online, target = weights_of(learner._online), weights_of(learner._target)
    paid, lost = zip(*(of_one_step(batch.columns, k, online, target, 0.3) for k in range(20)), strict=True)
    np.testing.assert_allclose((seen.target - plain.target)[:, 0], 0.7 * np.array(paid), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(seen.beside.detach()[:, 0], lost, rtol=1e-3, atol=1e-4)
    assert torch.equal(seen.value, plain.value)


def softmax(x, legal):
    weight = np.where(legal, np.exp(np.where(legal, x, 0.0)), 0.0)
    return weight / weight.sum()


def of_one_step(columns, k, online, target, weight):
    """(what is paid, what the predictors and the agents' own values lose)."""
    item = {name: column[k] for name, column in columns.items()}
    seen, differs, lost, size = [], [], [], []
    for i in np.flatnonzero(item["present"]):
        features = np.maximum(perceptron(online, "q.body.body.1", item["observation"][i, :4].astype(np.float64)), 0)
        own = perceptron(online, "q.own", features).reshape(3, 3)
        values, legal = perceptron(online, "q.head.advantage", features) + own, item["mask"][i]
        mean = np.mean([softmax(each, legal) for each in values], axis=0)
        mine = softmax(0.5 * values[i], legal)
        differs.append(sum(p * np.log(p / mean[a]) for a, p in enumerate(mine) if p > 0))
        size.append(np.abs(own[i]).mean())
        if item["next_present"][i]:
            given = np.concatenate([item["observation"][i, :4], np.eye(3)[item["action"][i]]])
            informed, following = np.concatenate([given, np.eye(3)[i]]), item["next"][i, :4]

            def missed(weights, name, x, following=following):
                return np.square(perceptron(weights, f"predictors.{name}", x) - following).sum()

            seen.append(missed(target, "anyone", given) - 0.5 * missed(target, "agent", informed))
            lost.append(missed(online, "anyone", given) + missed(online, "agent", informed))
    paid = (np.mean(seen) if seen else 0.0) + weight * np.mean(differs)
    return paid, (np.mean(lost) if lost else 0.0) + 0.4 * np.mean(size)


def test_sequences_predict_the_slot_that_follows():
    """What each agent sees at the next slot of its sequence, by what it remembers now."""
    learner = learner_of(CDSQMIX(**{**CDS, **GRU}), team_env())
    columns = batch_of(learner, learner._env, size=10).columns
    batch = learner.batch(learner.local_columns(columns, 10))
    answers = learner.answers(learner._online, batch)
    there = learner._experience(batch, answers)
    seen, present = columns["observation"][:, 1:], columns["present"][:, 1:]  # behind the slot that refreshes
    k = 0
    for m in range(10):
        for t in range(3):
            for agent in range(3):
                assert there.observation[k].tolist() == seen[m, t, agent, :4].tolist()
                assert there.following[k].tolist() == seen[m, t + 1, agent, :4].tolist()
                if present[m, t, agent]:
                    assert there.features[k, -3:].tolist() == np.eye(3)[agent].tolist()
                if t < columns["count"][m]:
                    assert bool(there.goes_on[k]) == (present[m, t, agent] and present[m, t + 1, agent])
                k += 1
    torch.testing.assert_close(learner._online.q.values(answers.features, None).view(10, 3, 3, 3), answers.now)


def test_ranks_learn_what_one_learner_does():
    algorithm, env = CDSQMIX(**CDS), team_env()
    batch = batch_of(learner_of(algorithm, env), env, size=25)
    assert_ranks_learn_alike(3, lambda ranks: learner_of(algorithm, env, ranks=ranks), [batch] * 4)


def test_agent_diversity_rejects_unsupported_settings():
    with pytest.raises(ScenarioError, match=r"CDSQMIX with individual=true .* do not end in an agent's id"):
        CDSQMIX().check(team_env(ids=False))
    with pytest.raises(ConfigError, match="it needs individual=true"):
        QMIX(diversity=0.1)
    with pytest.raises(ConfigError, match="n_step is 3, and must be 1"):
        CDSQMIX(n_step=3)
    with pytest.raises(ConfigError, match="leave share_weights true"):
        VDN(individual=True, share_weights=False)


@pytest.mark.slow
def test_agents_that_share_a_network_learn_to_differ():
    """`Carry`: loads of 1 and 3 want agents that do different things. The shared part sees no id, so that this is each one's own."""
    algorithm = CDSQMIX(
        rollout=64, rollout_unit="decisions", min_size=500, hidden=(32,), batch=128, updates_per_decision=0.1, gamma=0.0,
        learning_rate=3e-3, normalise_rewards="none", individual_cost=0.01, mixing_width=8,
    )  # fmt: skip
    env = {"wrappers": ["joint_state", "agent_ids"], "teams": "one", "discrete": True}
    assert train(algorithm, "team_games:Carry", num_envs=8, total=5000, **env)[0] > 7.0
