"""The family of policy gradients: the shipped contract on every action space and kind of network, and literal losses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from test_ranks import compare

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.config import A2C, IMPALA, PolicyGradient, Reinforce
from ludus.algorithms.on_policy.learner import ActorCriticModel
from ludus.algorithms.ppo.config import PPO
from ludus.algorithms.ppo.kernels import KernelPPO
from ludus.algorithms.ppo.learner import PPOModel
from ludus.core.errors import ScenarioError
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.testing.algorithm import check_algorithm, synthetic_rollout

ACTIONS = {
    "discrete": Discrete(3),
    "multi": MultiDiscrete([3, 2]),
    "binary": MultiBinary(3),
    "box": Box(-1.0, 2.0, (2,), np.float32),
    "unbounded": Box(-np.inf, np.inf, (2,), np.float32),
}
SMALL = {"batch": 40, "hidden": (8,), "memory_size": 5, "sequence": 3}
FAMILY = {"reinforce": Reinforce, "a2c": A2C, "ppo": PPO, "impala": IMPALA}


def with_actions(env, action):
    return replace(env, agents=tuple(replace(agent, action=action) for agent in env.agents))


def make(name, **options):
    more = {"epochs": 2} if name == "ppo" else {}
    return FAMILY[name](**{**SMALL, **more, **options})


@pytest.mark.parametrize(
    ("name", "action", "memory"),
    [
        ("reinforce", "box", "none"),
        ("reinforce", "discrete", "gru"),
        ("a2c", "binary", "none"),
        ("a2c", "multi", "gru"),
        ("impala", "discrete", "none"),
        ("impala", "box", "gru"),
        ("ppo", "multi", "none"),
        ("ppo", "box", "lstm"),
    ],
)
def test_policy_gradients_satisfy_algorithm_contract(name, action, memory, tensors):
    """Each algorithm without a memory and with one, and each kind of actions; what PPO's options add is below."""
    check_algorithm(make(name, memory=memory), with_actions(tensors, ACTIONS[action]), rounds=2)


@pytest.mark.parametrize(
    "options",
    [
        {"memory": "lstm", "value_network": "separate", "minibatches": 3},
        {"memory": "gru", "correction": "vtrace", "target_kl": 1e-3},
        {"normalise_observations": True, "normalise_returns": True, "clip_value": 0.2},
        {"continuous": "tanh", "normalise_returns": True, "max_lag": 1, "entropy": 0.1},
    ],
    ids=str,
)
def test_policy_gradients_satisfy_algorithm_contract_with_options(options, tensors):
    action = ACTIONS["box"] if "continuous" in options else ACTIONS["discrete"]
    check_algorithm(make("ppo", **options), with_actions(tensors, action), rounds=2)


@pytest.mark.parametrize(("name", "memory"), [("a2c", "none"), ("impala", "lstm")])
def test_policy_gradients_satisfy_algorithm_contract_on_an_enumerated_game(name, memory, enumerated):
    check_algorithm(make(name, memory=memory), enumerated, seats=(1,), rounds=2)


def test_policy_gradients_satisfy_algorithm_contract_with_images(tensors):
    image = Box(0.0, 1.0, (1, 12, 12), np.float32)
    env = replace(tensors, agents=tuple(replace(agent, observation=image) for agent in tensors.agents))
    check_algorithm(A2C(batch=8, network="impala"), env, rounds=2)


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        (61, {"normalise_observations": True}),
        (61, {"memory": "gru", "minibatches": 3, "normalise_returns": True}),
        (2, {"memory": "gru", "normalise_observations": True}),
        (61, {"memory": "lstm", "correction": "vtrace"}),
    ],
    ids=str,
)
def test_ranks_learn_what_one_learner_does(rows, options, tensors):
    algorithm = make("ppo", learning_rate=0.003, **options)
    compare(algorithm, tensors, size=3, rows=rows)


def learner_and_sample(algorithm, env, *, seed=0, segments=30, start=None):
    learner = algorithm.learner(LearnerContext(env, (0,), seed), start)
    policy = build_policy(learner.spec, learner.weights())
    rollout = synthetic_rollout(env, policy, seats=(0,), segments=segments, rng=np.random.default_rng(1))
    ((_, columns),) = learner.items(rollout)
    n = len(columns["version_lo"])
    return learner, Sample(columns, np.arange(n), np.ones(n)), rollout


def shaken(algorithm, env):
    """Weights that are not nearly uniform."""
    rng = np.random.default_rng(4)
    weights = algorithm.learner(LearnerContext(env, (0,), 0)).weights()
    return {
        k: v if k.startswith("normaliser") else v + 0.4 * rng.standard_normal(v.shape).astype(np.float32)
        for k, v in weights.items()
    }


# ------------------------------------------------------------------ which learner


def test_ppo_keeps_its_compiled_learner_where_it_serves(tensors, enumerated):
    for env in (tensors, enumerated):
        assert isinstance(PPO().model(LearnerContext(env, (0,), 0)), KernelPPO)
    for other in ({"memory": "gru"}, {"normalise_observations": True}, {"normalise_returns": True}):
        assert not isinstance(PPO(**other).model(LearnerContext(tensors, (0,), 0)), KernelPPO)
    box = with_actions(tensors, ACTIONS["box"])
    assert not isinstance(PPO().model(LearnerContext(box, (0,), 0)), KernelPPO)


class PPOWithoutClip(PPO):
    def surrogate(self, logp, batch):
        return -(logp - batch.logp).exp() * batch.advantage


class PPOWithRatio(PPO):
    extra_metrics = ("ratio",)

    def metrics(self, logp, batch):
        return {"ratio": (logp - batch.logp).exp()}


def test_a_custom_surrogate_or_metric_of_ppo_is_trained_by_autograd(tensors):
    context = LearnerContext(tensors, (0,), 0)
    names = PPO().model(context).names
    custom = PPOWithoutClip().model(context)
    assert not isinstance(custom, KernelPPO)
    assert custom.names == names == ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction")
    assert PPOWithRatio().model(context).names == (*names[:4], "ratio")


class PPOBySurrogate(PPO):
    """PPO, by the family's loss with PPO's surrogate."""

    def surrogate(self, logp, batch):
        return super().surrogate(logp, batch)


@pytest.mark.parametrize("clip_value", [None, 0.1])
def test_ppo_has_the_familys_loss_with_its_own_surrogate(clip_value, tensors):
    options = {
        "clip_value": clip_value,
        "clip": 0.05,
        "entropy": 0.1,
        "hidden": (8,),
        "memory": "gru",
        "memory_size": 4,
    }
    context, start = LearnerContext(tensors, (0,), 0), shaken(PPO(**options), tensors)
    own, family = (make(**options).learner(context, start) for make in (PPO, PPOBySurrogate))
    assert (type(own.model), type(family.model)) == (PPOModel, ActorCriticModel)
    policy = build_policy(own.spec, start)
    rollout = synthetic_rollout(tensors, policy, seats=(0,), segments=30, rng=np.random.default_rng(1))
    metrics = []
    for learner in (own, family):
        ((_, columns),) = learner.items(rollout)
        count = len(columns["length"])
        metrics.append(learner.update(Sample(columns, np.arange(count), np.ones(count))))
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-4, abs=1e-6)
    assert metrics[0]["clip_fraction"] > 0.0
    for name, weights in own.weights().items():
        np.testing.assert_allclose(weights, family.weights()[name], rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------ losses


def batch_of(logp, advantage):
    n = len(logp)
    zeros = torch.zeros(n)
    return Batch(torch.zeros(n, 1), None, torch.zeros(n), torch.tensor(logp), torch.tensor(advantage), zeros, zeros)


def test_surrogates():
    """Ratios of 2 and ½ with clip 0.3: -min(2·1, 1.3·1), -min(½·(-1), 0.7·(-1)) and the unclipped sides; policy gradients: -A log π."""
    before = [math.log(0.25)] * 4
    now = torch.tensor([math.log(0.5), math.log(0.125), math.log(0.5), math.log(0.125)])
    batch = batch_of(before, [1.0, -1.0, -1.0, 1.0])
    np.testing.assert_allclose(PPO().surrogate(now, batch), [-1.3, 0.7, 2.0, -0.5], rtol=1e-6)
    assert PPO().metrics(now, batch)["clip_fraction"].tolist() == [1.0] * 4
    for algorithm in (Reinforce(), A2C(), IMPALA()):
        np.testing.assert_allclose(algorithm.surrogate(now, batch), [0.6931472, -2.0794415, -0.6931472, 2.0794415])


class NoSurrogate(PolicyGradient):
    pass


def test_without_a_surrogate_nothing_starts(tensors):
    with pytest.raises(
        ScenarioError,
        match=r"NoSurrogate has no loss: derive surrogate\(self, logp, batch\), which answers the policy's",
    ):
        NoSurrogate().check(tensors)


class OwnLearner(PolicyGradient):
    def learner(self, context, start=None):
        return A2C().learner(context, start)


def test_who_has_a_learner_of_its_own_needs_no_surrogate(tensors):
    OwnLearner().check(tensors)


def test_reinforce_without_a_value_learns_from_returns(tensors):
    algorithm = Reinforce(batch=10, hidden=(8,), gamma=0.5, normalise_advantages=False, scale_rewards=False)
    _, sample, rollout = learner_and_sample(algorithm, tensors)
    for s in range(rollout.num_segments):
        rows = slice(rollout.start[s], rollout.start[s + 1])
        total, expected = 0.0, []
        for reward in rollout.reward[rows][::-1]:
            total = reward + 0.5 * total
            expected.append(total)
        np.testing.assert_allclose(sample.columns["advantage"][rows], expected[::-1], rtol=1e-5)


@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
def test_the_first_ratio_is_one(memory, tensors):
    """What the learner unrolls has the log-probabilities that were recorded while acting, also from the middle of a segment."""
    for action in ("discrete", "multi", "box"):
        algorithm = make("ppo", memory=memory, learning_rate=0.0, normalise_observations=True)
        env = with_actions(tensors, ACTIONS[action])
        learner, sample, _ = learner_and_sample(algorithm, env, start=shaken(algorithm, env))
        assert learner.update(sample)["kl"] == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize(("memory", "value"), [("gru", "separate"), ("lstm", "shared")])
def test_sequences_have_the_memory_and_values_of_acting(memory, value, tensors):
    algorithm = make("a2c", memory=memory, value_network=value)
    learner, sample, rollout = learner_and_sample(algorithm, tensors)
    network = learner.model.module
    items, q = sample.columns, 0
    for s in range(rollout.num_segments):
        state = torch.zeros(1, network.memory)
        for t in range(rollout.start[s], rollout.start[s + 1]):
            place = t - rollout.start[s]
            if place % 3 == 0:
                np.testing.assert_allclose(items["memory0"][q], state[0].numpy(), atol=1e-5)
                assert items["length"][q] == min(3, rollout.start[s + 1] - t)
                q += 1
            with torch.no_grad():
                _, worth, state = network(torch.from_numpy(rollout.observation[t : t + 1]), state)
            assert items["value"][q - 1, place % 3] == pytest.approx(float(worth), abs=1e-5)
            assert items["observation"][q - 1, place % 3].tobytes() == rollout.observation[t].tobytes()
        if rollout.tail[s]:
            with torch.no_grad():
                _, after, _ = network(torch.from_numpy(rollout.bootstrap_observation[s : s + 1]), state)
            last = rollout.start[s + 1] - 1
            expected = rollout.reward[last] * 0.5 + 0.99 * float(after)  # rewards are scaled by the largest utility, 2
        else:
            last, expected = rollout.start[s + 1] - 1, rollout.reward[rollout.start[s + 1] - 1] * 0.5
        place = last - rollout.start[s]
        assert items["target"][q - 1, place % 3] == pytest.approx(expected, abs=1e-5)


def test_gradients_flow_back_through_a_sequence_and_no_further(tensors):
    """With sequences of one row a core's recurrent weights still learn, from the memory that was stored; longer ones learn otherwise."""
    ends = {}
    for length in (1, 5):
        algorithm = make("a2c", memory="gru", sequence=length, learning_rate=0.01)
        learner, sample, _ = learner_and_sample(algorithm, tensors)
        learner.update(sample)
        ends[length] = learner.weights()["actor.core.weight_hh_l0"]
    assert not np.array_equal(ends[1], ends[5])
