"""MAT: groups of a team's agents as items; values, advantages and losses by plain loops; and what only a joint policy can learn."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from pettingzoo import ParallelEnv
from team_games import batch_of, in_two, learner_of, rollouts, team_env, team_rollout, train
from together import assert_ranks_learn_alike

from ludus.contrib.algorithms.joint_steps import left_at
from ludus.contrib.algorithms.mat.config import MAT, MATDec
from ludus.contrib.algorithms.mat.learner import Groups
from ludus.core.errors import ConfigError, ScenarioError
from ludus.core.types import SegmentEnd
from ludus.policies.base import Teams
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.testing.algorithm import check_algorithm

SMALL = {"width": 8, "batch": 40, "epochs": 2, "minibatches": 2, "learning_rate": 1e-3}
BOX = Box(-1.0, 3.0, (2, 1), np.float32)


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("algorithm", "action"),
    [
        (MAT(**SMALL), Discrete(3)),
        slow(MATDec(**SMALL, normalise_observations=True), Discrete(3)),
        slow(MAT(**SMALL, target_kl=0.01, clip_value=0.2, heads=2, layers=2), BOX),
        slow(MAT(**SMALL, continuous="tanh", batch_unit="episodes", max_lag=1), BOX),
    ],
    ids=["discrete", "decentralised", "box", "squashed"],
)
def test_mat_satisfies_algorithm_contract(algorithm, action):
    env = team_env(action=action, state=0)
    check_algorithm(algorithm, env, rollouts=rollouts(env), rounds=2)


@pytest.mark.slow
def test_mat_satisfies_algorithm_contract_with_both_seats_and_multi_discrete_actions():
    env = team_env(action=MultiDiscrete([2, 3]), state=0)
    check_algorithm(MAT(**SMALL), env, seats=(0, 1), rounds=2)


# ------------------------------------------------------------------ groups


def test_groups():
    """Rows of two episodes at times 0 and 1; of agents 2, 0, 1."""
    groups = Groups.of(np.array([2, 0, 1, 0]), np.array([5, 5, 4, 5]), np.array([0, 0, 1, 1]))
    assert groups.order.tolist() == [2, 1, 0, 3]
    assert groups.start.tolist() == [0, 1, 3, 4]
    assert groups.place.tolist() == [1, 0, 2, 0]
    assert groups.spread(np.array([1.0, 2.0, 3.0, 4.0]), 3).tolist() == [[0, 3, 0], [2, 0, 1], [4, 0, 0]]
    assert team_env(agents=2).agent_index.tolist() == [0, 1, 0, 1]


def test_segments_that_end_together():
    """Agent 0 of episode 7 has segments that end at times 3 and 9, agent 1 one that ends at 9; both go on from there."""
    env = team_env(agents=2, state=0)
    rows = team_rollout(env, learner_of(MAT(**SMALL), env), pieces=3, rng=np.random.default_rng(0))
    rows = replace(
        rows,
        start=np.array([0, 1, 2, 3]),
        t=np.array([3, 9, 9]),
        episode=np.array([7, 7, 7]),
        agent=np.array([0, 1, 0], np.int16),
    )
    assert left_at(replace(rows, dt=None)).tolist() == [1, 0, 0]
    assert left_at(replace(rows, dt=np.array([6, 2, 1], np.int32))).tolist() == [9, 11, 10], (
        "who acts in turn is judged alone"
    )


def stirred(learner):
    """With weights far from the small ones that networks begin with, so that it matters who is there."""
    rng = np.random.default_rng(2)
    for parameter in learner.model.module.parameters():
        parameter.data += torch.from_numpy(0.4 * rng.standard_normal(parameter.shape).astype(np.float32))
    return learner


def expected_values(policy, rows):
    """Values of rows and of bootstrap observations, each group by itself, by lists of who is in it."""
    segment = np.repeat(np.arange(rows.num_segments), np.diff(rows.start))

    def of(observation, members):
        members = sorted(members, key=lambda k: k[1])
        at, place = (np.array(column) for column in zip(*members, strict=True))
        teams = Teams(np.zeros(len(at), np.int32), place.astype(np.int32) % 3)
        return dict(zip(at, policy.values(observation[at], None, None, None, teams=teams).state, strict=True))

    now, later = {}, {}
    for k, s in enumerate(segment):
        now.setdefault((rows.episode[s], rows.t[k]), []).append((k, rows.agent[s]))
    for s in np.flatnonzero(rows.tail != SegmentEnd.TERMINATED):
        later.setdefault(rows.episode[s], []).append((s, rows.agent[s]))
    value = {k: v for group in now.values() for k, v in of(rows.observation, group).items()}
    after = {s: v for group in later.values() for s, v in of(rows.bootstrap_observation, group).items()}
    return value, after


def test_items_by_a_plain_loop():
    """GAE of each agent's own decisions, on values of whom was there; rewards are the team's where they decide together."""
    env, algorithm = (
        team_env(state=0),
        MAT(**SMALL, normalise_returns=False, team_rewards=False, gamma=0.9, gae_lambda=0.7),
    )
    learner = stirred(learner_of(algorithm, env))
    rows = team_rollout(env, learner, pieces=8, rng=np.random.default_rng(3))
    value, after = expected_values(build_policy(learner.spec, learner.weights()), rows)
    ((name, items),) = learner.items(rows)
    assert name == "rollouts"
    groups = {}
    for s in range(rows.num_segments):
        running, following = 0.0, after.get(s, 0.0)
        for k in reversed(range(rows.start[s], rows.start[s + 1])):
            running = rows.reward[k] + 0.9 * following - value[k] + 0.9 * 0.7 * running
            following = value[k]
            groups.setdefault((rows.episode[s], rows.t[k]), {})[rows.agent[s]] = (k, running)
    assert items["present"].shape == (len(groups), 3)
    for g, key in enumerate(sorted(groups)):
        assert np.flatnonzero(items["present"][g]).tolist() == sorted(groups[key])
        for agent, (k, advantage) in groups[key].items():
            np.testing.assert_array_equal(items["observation"][g, agent], rows.observation[k])
            np.testing.assert_array_equal(items["mask"][g, agent], rows.mask[k])
            assert items["action"][g, agent] == rows.action[k]
            assert items["value"][g, agent] == pytest.approx(value[k], abs=1e-5)
            assert items["advantage"][g, agent] == pytest.approx(advantage, abs=1e-5)
            assert items["target"][g, agent] == pytest.approx(advantage + value[k], abs=1e-5)


def test_segments_of_fragments_have_the_same_groups():
    """Cut in two, agents decide beside the same teammates."""
    env, algorithm = team_env(), MAT(**SMALL)
    learner = learner_of(algorithm, env)
    whole = team_rollout(env, learner, pieces=6, rng=np.random.default_rng(4), absent=0.0, tails=(SegmentEnd.CUT,))
    rows = in_two(whole, np.random.default_rng(5), lambda n: np.full(n, SegmentEnd.CUT))
    ((_, one),), ((_, other),) = learner.items(whole), learner_of(algorithm, env).items(rows)
    np.testing.assert_array_equal(one["observation"], other["observation"])
    np.testing.assert_array_equal(one["present"], other["present"])
    np.testing.assert_allclose(one["value"], other["value"], atol=1e-6)


def test_bootstrap_values_use_teammates_of_the_same_step():
    """Of segments that an agent has in an episode, the last ones go on together, and those before them."""
    env, rng = team_env(), np.random.default_rng(4)
    learner = stirred(learner_of(MAT(**SMALL), env))
    whole = team_rollout(env, learner, pieces=9, rng=rng, absent=0.4, tails=(SegmentEnd.CUT,))
    rows = in_two(whole, rng, lambda n: np.full(n, SegmentEnd.CUT))
    seen = rng.standard_normal(rows.bootstrap_observation.shape).astype(np.float32)
    rows = replace(rows, bootstrap_observation=seen)
    beside = {}
    for episode, agent in {*zip(rows.episode.tolist(), rows.agent.tolist(), strict=True)}:
        its = [s for s in range(rows.num_segments) if (rows.episode[s], rows.agent[s]) == (episode, agent)]
        for k, s in enumerate(sorted(its, key=lambda s: -rows.t[rows.start[s]])):
            beside.setdefault((episode, k), []).append((agent, s))
    policy, after = (
        build_policy(learner.spec, learner.weights()),
        learner._items.estimate_values(rows, None, None).after,
    )
    for group in beside.values():
        place, which = np.array(sorted(group)).T
        teams = Teams(np.zeros(len(place), np.int32), place.astype(np.int32))
        expected = policy.values(seen[which], None, None, None, teams=teams).state
        np.testing.assert_allclose(after[which], expected, atol=1e-5)
    assert {len(group) for group in beside.values()} >= {2, 3}


def test_the_loss_by_hand():
    """One step on all rows: PPO's clipped loss of each agent's own probability, given those before it."""
    algorithm = MAT(**{**SMALL, "epochs": 1, "minibatches": 1}, normalise_returns=False, clip=0.1)
    env = team_env(state=0)
    learner = stirred(learner_of(algorithm, env))
    sample = batch_of(learner, env)
    policy = build_policy(learner.spec, learner.weights())
    items, logp, chance, value = sample.columns, [], [], []
    for g in range(len(items["present"])):
        place = np.flatnonzero(items["present"][g]).astype(np.int32)
        teams = Teams(np.zeros(len(place), np.int32), place)
        x, mask, action = (items[name][g][place] for name in ("observation", "mask", "action"))
        chances = policy.chances(x, mask, action, teams)
        chance += [row[row > 0] for row in chances]
        logp += np.log(chances[np.arange(len(place)), action]).tolist()
        value += policy.values(x, mask, None, None, teams=teams).state.tolist()
    there = items["present"]
    advantage, old, target = (items[name][there].astype(np.float64) for name in ("advantage", "logp", "target"))
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = np.exp(np.array(logp) - old)
    surrogate = -np.minimum(ratio * advantage, np.clip(ratio, 0.9, 1.1) * advantage).mean()
    told = learner.update(sample)
    assert told["rows"] == there.sum()
    assert told["policy_loss"] == pytest.approx(surrogate, rel=1e-4, abs=1e-6)
    assert told["value_loss"] == pytest.approx(0.5 * np.square(np.array(value) - target).mean(), rel=1e-4)
    assert told["entropy"] == pytest.approx(np.mean([-(p * np.log(p)).sum() for p in chance]), rel=1e-4)
    assert told["clip_fraction"] == pytest.approx((np.abs(ratio - 1) > 0.1).mean(), rel=1e-4)


def test_minibatches_are_of_whole_groups():
    """With one step a group: as many as there are groups, of sizes that differ."""
    algorithm = MAT(**{**SMALL, "epochs": 1, "minibatches": 1000})
    env = team_env(state=0)
    learner = learner_of(algorithm, env)
    sample = batch_of(learner, env, size=12)
    batch, _ = learner._items.batch(sample.columns)
    assert batch.units == 12
    part = batch.part(np.array([3, 0]))
    assert part.start.tolist() == [0, *np.cumsum(sample.columns["present"][[3, 0]].sum(1))]
    assert part.place.tolist() == [
        *np.flatnonzero(sample.columns["present"][3]),
        *np.flatnonzero(sample.columns["present"][0]),
    ]
    rows = np.concatenate([sample.columns["observation"][g][sample.columns["present"][g]] for g in (3, 0)])
    np.testing.assert_array_equal(part.x, rows)
    before = learner.weights()
    learner.update(Sample(sample.columns, np.arange(12), np.ones(12)))
    assert any((array != before[name]).any() for name, array in learner.weights().items())


def test_ranks_share_whole_groups():
    """And learn what one learner does with all of them."""
    env, algorithm = team_env(state=0), MAT(**{**SMALL, "max_gradient_norm": 0.0})
    batches = [batch_of(learner_of(algorithm, env), env, number=k, size=31) for k in range(2)]
    assert_ranks_learn_alike(2, lambda ranks: learner_of(algorithm, env, ranks=ranks), batches)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("options", "env", "message"),
    [
        ({}, {"width": 1}, "of the one number that agents"),
        ({"continuous": "tanh"}, {"high": np.inf}, "finite bounds"),
        ({}, {"enumerated": True}, "is a compiled game"),
    ],
)
def test_where_it_cannot_learn(options, env, message, request):
    spec = team_env(state=0)
    if env.get("enumerated"):
        spec = request.getfixturevalue("enumerated")
    if "high" in env:
        spec = team_env(action=Box(-1.0, np.inf, (2,), np.float32), state=0)
    if "width" in env:
        one = Box(-1.0, 1.0, (1,), np.float32)
        spec = replace(spec, agents=tuple(replace(agent, observation=one) for agent in spec.agents))
    with pytest.raises(ScenarioError, match=message):
        MAT(**options).check(spec)


def test_heads_share_the_width():
    with pytest.raises(ConfigError, match="a width of 64 does not fall into 3 heads"):
        MAT(heads=3)


@pytest.mark.parametrize("kind", ["rnd", "icm", "gail", "airl"])
def test_rewards_are_the_games(kind):
    """A learned one may ask how likely a decision was, which here hangs on those beside it."""
    options = {"kind": kind} | ({"demonstrations": "some.parquet"} if kind in ("gail", "airl") else {})
    for cls in (MAT, MATDec):
        with pytest.raises(ConfigError, match=f"{cls.__name__} learns from the game's rewards only"):
            cls(learned_reward=options)


# ------------------------------------------------------------------ what only a joint policy can learn


class Apart(ParallelEnv):
    """Two agents, who see nothing but a constant, must do different things; once."""

    metadata: ClassVar = {"name": "apart"}
    possible_agents: ClassVar = ["agent_0", "agent_1"]

    def observation_space(self, agent):
        return Box(0.0, 1.0, (2,), np.float32)

    def action_space(self, agent):
        return Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return dict.fromkeys(self.agents, np.array([0.0, 1.0], np.float32)), {name: {} for name in self.agents}

    def step(self, actions):
        agents, self.agents = self.agents, []
        reward = float(actions["agent_0"] != actions["agent_1"]) / 2
        seen = dict.fromkeys(agents, np.array([0.0, 1.0], np.float32))
        return seen, dict.fromkeys(agents, reward), dict.fromkeys(agents, True), dict.fromkeys(agents, False), {}


GAME = {"width": 16, "batch": 100, "epochs": 8, "clip": 0.2, "learning_rate": 5e-3, "normalise_returns": False,
        "normalise_advantages": False, "gae_lambda": 1.0}  # fmt: skip


SLOWLY = {**GAME, "batch": 200, "learning_rate": {"start": 4e-3, "end": 1e-3}}


def played(policy, n=4000):
    """(share of pairs that differ, share of ones that the first agent plays), as it explores."""
    rng = np.random.default_rng(9)
    seen = np.tile(np.array([[0.0, 1.0]], np.float32), (2 * n, 1))
    act = policy.act(seen, None, None, rng.random((2 * n, 1), dtype=np.float32), teams=Teams.whole(2 * n, 2))
    first, second = act.action.reshape(n, 2).T
    return float((first != second).mean()), float(first.mean())


@pytest.mark.long
def test_agents_who_look_at_each_other_act_apart_and_stay_unpredictable():
    """With a price on entropy the first agent plays both actions, and the second the other one. Agents who act by themselves either agree
    on who does what, or meet: whoever plays 1 with p and q differs with p + q - 2pq, at most 0.8 where the first has p = 1/5."""
    apart, alone = [], []
    for seed in range(2):
        for cls, into in ((MAT, apart), (MATDec, alone)):
            _, learner = train(
                cls(**SLOWLY, entropy=0.12), "test_mat:Apart", num_envs=50, total=4500, seed=seed, teams="one"
            )
            into.append(played(build_policy(learner.spec, learner.weights())))
    for differ, first in apart:
        assert differ > 0.95
        assert 0.2 < first < 0.8
    for differ, first in alone:
        assert differ < 0.85 or not 0.2 < first < 0.8


@pytest.mark.slow
def test_both_learn_who_does_what_by_their_places():
    for cls in (MAT, MATDec):
        returns, _ = train(cls(**GAME, entropy=0.0), "test_mat:Apart", num_envs=50, total=800, teams="one")
        assert returns > 0.95
