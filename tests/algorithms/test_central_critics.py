"""Central critics: what they see, what they change, and that a team learns with one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from hypothesis import given
from hypothesis import strategies as st
from made_up_teams import learner_and_sample, rollout_of, team_env
from test_ranks import compare

from ludus.algorithms.common.base import CollectConfig, LearnerContext
from ludus.algorithms.on_policy.config import A2C, Reinforce
from ludus.algorithms.on_policy.multi_agent import critic_states, team_rewards
from ludus.algorithms.ppo.config import MAPPO, PPO
from ludus.core.errors import ConfigError, PolicyError, ScenarioError
from ludus.core.types import SegmentEnd
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.testing.algorithm import check_algorithm

SMALL = {"batch": 40, "batch_unit": "episodes", "epochs": 2, "hidden": (8,), "memory_size": 5, "sequence": 3}
BOX = Box(-1.0, 2.0, (2,), np.float32)


def make(**options):
    return MAPPO(**{**SMALL, **options})


# ------------------------------------------------------------------------------------------ the contract


@pytest.mark.parametrize(
    ("action", "options"),
    [
        (Discrete(3), {"minibatches": 3, "critic_hidden": (4, 4)}),
        (BOX, {"correction": "vtrace", "normalise_observations": True}),
        (Discrete(3), {"memory": "lstm", "correction": "vtrace", "normalise_observations": True, "minibatches": 2}),
        (
            MultiDiscrete([3, 2]),
            {"memory": "gru", "clip_value": 0.2, "normalise_returns": False, "team_rewards": False},
        ),
    ],
    ids=str,
)
def test_central_critics_satisfy_algorithm_contract(action, options):
    check_algorithm(make(**options), team_env(action=action), rounds=2)


@pytest.mark.parametrize("kind", [A2C, Reinforce])
def test_on_policy_family_satisfies_algorithm_contract_with_central_critics(kind):
    check_algorithm(kind(batch=20, hidden=(8,), value_network="central"), team_env(players=2), seats=(0, 1), rounds=2)


@pytest.mark.parametrize("options", [{}, {"memory": "gru", "normalise_observations": True}], ids=str)
def test_ranks_learn_what_one_learner_does(options):
    compare(make(learning_rate=0.003, **options), team_env(), size=3)


# ------------------------------------------------------------------------------------------ numbers by hand


def one_episode(env, learner, *, state, bootstrap_state, tail=SegmentEnd.TERMINATED):
    """Two decisions of one agent, who sees (1, 0, 0) and is agent 0, with rewards 1 and 0.5."""
    rows = rollout_of(learner, env, segments=1)
    seen = np.array([[1.0, 0.0, 0.0, 1.0, 0.0]], np.float32)
    return replace(
        rows,
        start=np.array([0, 2]),
        observation=np.repeat(seen, 2, axis=0),
        action=np.zeros(2, np.int32),
        logp=np.full(2, -1.0, np.float32),
        reward=np.array([1.0, 0.5], np.float32),
        mask=None,
        t=np.arange(2, dtype=np.int32),
        dt=np.ones(2, np.int32),
        tail=np.array([tail], np.int8),
        bootstrap_observation=seen,
        bootstrap_mask=None,
        state=np.array(state, np.float32),
        bootstrap_state=np.array(bootstrap_state, np.float32),
    )


def by_hand(**options):
    """A critic of no hidden layer: 2 s_0 - s_1 + 0.5 × the first number that is observed + 0.25."""
    options = {"critic_hidden": (), "normalise_returns": False, "scale_rewards": False, "gamma": 0.5, **options}
    algorithm, env = make(**options), team_env(state=(2,))
    learner = algorithm.learner(LearnerContext(env, (0,), 0))
    weights = dict(learner.weights())
    weights["value.weight"] = np.array([[2.0, -1.0, 0.5, 0.0, 0.0, 0.0, 0.0]], np.float32)
    weights["value.bias"] = np.array([0.25], np.float32)
    return algorithm.learner(LearnerContext(env, (0,), 0), weights), env


def test_values_and_targets_by_hand():
    """V = 2 - 0 + 0.5 + 0.25 = 2.75 and 2 × 0.5 - 3 + 0.75 = -1.25. λ = 1: G_1 = 0.5, G_0 = 1 + 0.5 × 0.5 = 1.25 where the episode ends.
    Truncated: what follows is worth 2 × 3 - 2 + 0.75 = 4.75, so G_1 = 0.5 + 2.375 = 2.875 and G_0 = 1 + 1.4375 = 2.4375."""
    for tail, targets in (
        (SegmentEnd.TERMINATED, [1.25, 0.5]),
        (SegmentEnd.TRUNCATED, [2.4375, 2.875]),
        (SegmentEnd.CUT, [2.4375, 2.875]),
    ):
        for memory in ("none", "gru"):
            learner, env = by_hand(gae_lambda=1.0, memory=memory)
            rows = one_episode(env, learner, state=[[1.0, 0.0], [0.5, 3.0]], bootstrap_state=[[3.0, 2.0]], tail=tail)
            ((_, columns),) = learner.items(rows)
            many = (slice(0, 1), slice(0, 2)) if memory == "gru" else slice(0, 2)
            np.testing.assert_allclose(np.ravel(columns["value"][many]), [2.75, -1.25])
            np.testing.assert_allclose(np.ravel(columns["target"][many]), targets)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_the_critic_learns_at_the_state_of_its_own_decision(memory):
    """Values 2.75 and -1.25 beside the targets 1.25 and 0.5 cost (1.5² + 1.75²) / 4 = 1.328125."""
    learner, env = by_hand(gae_lambda=1.0, memory=memory, epochs=1, minibatches=1)
    rows = one_episode(env, learner, state=[[1.0, 0.0], [0.5, 3.0]], bootstrap_state=[[3.0, 2.0]])
    ((_, columns),) = learner.items(rows)
    items = len(columns["version_lo"])
    metrics = learner.update(Sample(columns, np.arange(items), np.ones(items)))
    assert metrics["value_loss"] == pytest.approx(1.328125, rel=1e-6)


def test_both_sides_of_a_symmetric_game_are_told_apart():
    env = team_env(players=2, state=(2,))
    learner = make().learner(LearnerContext(env, (0, 1), 0))
    rows = rollout_of(learner, env, seats=(0, 1), segments=4)
    state, tail = critic_states(rows, (0, 1))
    np.testing.assert_array_equal(state[:, :2], rows.state)
    np.testing.assert_array_equal(tail[:, 2:], [[1, 0], [0, 1], [1, 0], [0, 1]])
    np.testing.assert_array_equal(state[:, 2:], np.repeat(tail[:, 2:], np.diff(rows.start), axis=0))
    assert critic_states(rows, (0,))[0].shape[1] == 2


def test_states_of_bytes_are_fractions():
    env = team_env(state=(2, 1))
    rows = rollout_of(make().learner(LearnerContext(env, (0,), 0)), env, segments=1)
    grey = replace(
        rows, state=np.full((rows.num_rows, 2, 1), 51, np.uint8), bootstrap_state=np.full((1, 2, 1), 255, np.uint8)
    )
    state, tail = critic_states(grey, (0,))
    np.testing.assert_allclose(state, 0.2)
    np.testing.assert_allclose(tail, [[1.0, 1.0]])


def test_team_rewards_by_hand():
    """Two agents decide together at 0 and 1; agent 1 is gone then. At 3 agent 0 alone earns 8, which counts for agent 1's last decision
    too. Another episode, where they take turns, agent 0 at 0 and 2, agent 1 at 1: what agent 1 earns from 1 to the end counts for agent 0's
    decision of time 2, and what agent 0 earns from 0 to 2 for agent 1's. Where nobody counted steps, for those that were made then."""
    env = team_env()
    rows = rollout_of(make().learner(LearnerContext(env, (0,), 0)), env, segments=4)
    turns = replace(
        rows,
        start=np.array([0, 3, 5, 7, 8]),
        reward=np.array([1, 2, 8, 10, 20, 5, 7, 100], np.float32),
        t=np.array([0, 1, 3, 0, 1, 0, 2, 1], np.int32),
        agent=np.array([0, 1, 0, 1], np.int16),
        seat=np.zeros(4, np.int8),
        episode=np.array([4, 4, 9, 9]),
    )
    until = replace(turns, dt=np.array([1, 2, 1, 1, 1, 2, 1, 2], np.int32))
    assert team_rewards(until).tolist() == [11, 22, 8, 11, 30, 5, 107, 112]
    assert team_rewards(replace(turns, dt=None)).tolist() == [11, 22, 8, 11, 30, 105, 7, 107]


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_team_rewards_are_what_a_plain_loop_says(seed, agents):
    rng = np.random.default_rng(seed)
    length = rng.integers(1, 5, 2 * agents)  # two episodes
    rows = int(length.sum())
    t = np.concatenate([np.sort(rng.choice(8, n, replace=False)) for n in length])
    made = SimpleNamespace(
        start=np.append(0, np.cumsum(length)),
        t=t.astype(np.int32),
        reward=rng.integers(-9, 9, rows).astype(np.float32),
        dt=rng.integers(1, 4, rows).astype(np.int32),
        episode=np.repeat([7, 3], agents),
        agent=np.tile(np.arange(agents, dtype=np.int16), 2),
        seat=np.zeros(2 * agents, np.int8),
    )
    of = np.repeat(np.arange(2 * agents), length)
    expected = np.zeros(rows)
    for k in range(rows):
        for mate in np.flatnonzero(made.episode == made.episode[of[k]]):
            earlier = np.flatnonzero((of == mate) & (t < t[k] + made.dt[k]))
            if mate == of[k]:
                expected[k] += made.reward[k]
            elif len(earlier):
                expected[earlier[-1]] += made.reward[k]
    assert team_rewards(made).tolist() == expected.tolist()


def test_team_rewards_keep_sides_apart():
    env = team_env(players=2)
    rows = rollout_of(make().learner(LearnerContext(env, (0,), 0)), env, segments=2)
    sides = replace(
        rows,
        start=np.array([0, 1, 2]),
        reward=np.array([1, 2], np.float32),
        t=np.zeros(2, np.int32),
        agent=np.array([0, 2], np.int16),
        seat=np.array([0, 1], np.int8),
        episode=np.array([5, 5]),
        dt=np.ones(2, np.int32),
    )
    assert team_rewards(sides).tolist() == [1, 2]
    assert team_rewards(replace(sides, seat=np.zeros(2, np.int8))).tolist() == [3, 3]


@pytest.mark.parametrize("cls", [A2C, PPO])
def test_who_wants_team_rewards_learns_from_them(cls):
    """Also the learner whose passes are written out."""
    env = team_env()
    plain, team = (
        cls(hidden=(8,), team_rewards=wanted).learner(LearnerContext(env, (0,), 0)) for wanted in (False, True)
    )
    rows = rollout_of(plain, env)
    paid = replace(rows, reward=team_rewards(rows).astype(np.float32))
    own, shared, wanted = (
        learner.items(given_)[0][1]["target"] for learner, given_ in ((plain, rows), (team, rows), (plain, paid))
    )
    np.testing.assert_allclose(shared, wanted, atol=1e-5)
    assert np.abs(own - shared).max() > 0.1


# ------------------------------------------------------------------------------------------ what it changes


def is_actors(name):
    return name.split(".")[0] in ("actor", "head", "log_std")


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_the_actors_gradient_does_not_depend_on_the_state(memory):
    algorithm = make(memory=memory, max_gradient_norm=0.0, epochs=1)
    ends = []
    for shift in (0.0, 3.0):
        learner, sample, _ = learner_and_sample(algorithm, team_env())
        sample.columns["state"] = sample.columns["state"] + np.float32(shift)
        learner.update(sample)
        ends.append(learner.weights())
    for name in ends[0]:
        same = np.array_equal(ends[0][name], ends[1][name])
        assert (
            same == (is_actors(name) or name == "value.bias" or name.startswith("returns")) or name == "value.bias"
        ), name


def test_the_switch_changes_the_critic_alone():
    """From the same actor and advantages, the actor of a separate critic takes the same step."""
    central = make(max_gradient_norm=0.0, normalise_returns=False)
    learner, sample, rollout = learner_and_sample(central, team_env())
    before = learner.weights()
    separate = PPO(**{**central.model_dump(), "value_network": "separate", "normalise_observations": True})
    other = separate.learner(
        LearnerContext(team_env(), (0,), 0)
    )  # statistics, so that autograd learns; none are seen yet
    start = {name: before.get(name, array) if is_actors(name) else array for name, array in other.weights().items()}
    other, theirs, _ = learner_and_sample(separate, team_env(), start=start, rollout=rollout)
    theirs.columns["advantage"] = sample.columns["advantage"]
    learner.update(sample)
    other.update(theirs)
    moved = 0
    for name, array in learner.weights().items():
        if is_actors(name):
            np.testing.assert_allclose(other.weights()[name], array, atol=1e-6)
            moved += int(not np.array_equal(array, before[name]))
    assert moved


def test_acting_never_needs_the_state():
    learner, _, rollout = learner_and_sample(make(), team_env())
    weights = dict(learner.weights())
    noise = np.full((rollout.num_rows, 1), 0.3, np.float32)
    first = build_policy(learner.spec, weights).act(rollout.observation, rollout.mask, None, noise)
    assert dict(first.extras) == {}
    weights |= {name: array + 1 for name, array in weights.items() if not is_actors(name)}
    second = build_policy(learner.spec, weights).act(rollout.observation, rollout.mask, None, noise)
    assert first.action.tobytes() == second.action.tobytes()
    assert first.logp.tobytes() == second.logp.tobytes()


def test_statistics_of_states_travel_with_the_weights():
    algorithm = make(normalise_observations=True)
    learner, sample, _ = learner_and_sample(algorithm, team_env())
    assert learner.weights()["state_normaliser.count"] == 0
    learner.update(sample)
    weights, state = learner.weights(), sample.columns["state"]
    np.testing.assert_allclose(weights["state_normaliser.mean"], state.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(weights["state_normaliser.var"], state.var(axis=0), atol=1e-5)
    again = algorithm.learner(LearnerContext(team_env(), (0,), 1), weights)
    x, s = torch.zeros(2, 5), torch.ones(2, 3)
    assert again.model.values(x, None, None, s)[0].tolist() == learner.model.values(x, None, None, s)[0].tolist()


# ------------------------------------------------------------------------------------------ what is refused


def test_it_asks_for_states():
    assert MAPPO().collect() == CollectConfig("decisions", 3200, state=True)
    assert not PPO().collect().state
    learner, _, rollout = learner_and_sample(make(), team_env())
    with pytest.raises(PolicyError, match=r"without states; they must be collected with CollectConfig\(state=True\)"):
        learner.items(replace(rollout, state=None, bootstrap_state=None))


def test_central_critics_reject_unsupported_settings(enumerated):
    with pytest.raises(
        ScenarioError,
        match=r"MAPPO's critic sees .* made up has none\. Ask for it \(env.options.state=true\), or .*joint_state",
    ):
        MAPPO().check(team_env(state=None))
    with pytest.raises(ScenarioError, match="or use ppo, which needs none"):
        MAPPO().check(team_env(state=None))
    for algorithm in (PPO(value_network="central"), A2C(value_network="central")):
        with pytest.raises(ScenarioError, match="or use value_network=shared or separate, which need none"):
            algorithm.check(team_env(state=None))
    with pytest.raises(ScenarioError, match="compiled games have neither"):
        A2C(value_network="central").check(enumerated)
    with pytest.raises(ScenarioError, match=r"states that are a Box of numbers; that of made up is Discrete\(3\)"):
        MAPPO().check(replace(team_env(), state=Discrete(3)))
    two = team_env(players=2)
    longer = Box(-1.0, 1.0, (9,), np.float32)
    unlike = replace(two, agents=(*two.agents[:2], *(replace(a, observation=longer) for a in two.agents[2:])))
    with pytest.raises(ScenarioError, match="one shape of observations in all its seats"):
        MAPPO().policy(unlike, (0, 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": "nature"}, "a central critic is a perceptron; give network mlp"),
        ({"value_network": "shared"}, "value_network"),
    ],
)
def test_settings_that_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        MAPPO(**options)
    with pytest.raises(ConfigError, match="critic_hidden is a central critic's; value_network is shared"):
        PPO(critic_hidden=(8,))
