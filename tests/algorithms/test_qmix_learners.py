"""VDN and QMIX: networks that remember, learners, refusals, and the two-step game."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from team_games import batch_of, in_two, learner_of, team_env, team_rollout, train
from test_qmix import GRU, SMALL, scattered
from together import assert_ranks_learn_alike
from value_twins import Moment, judged, weights_of

from ludus.contrib.algorithms.joint_steps import views
from ludus.contrib.algorithms.qmix.config import CWQMIX, OWQMIX, QMIX, QPLEX, VDN
from ludus.core.errors import ConfigError, ScenarioError
from ludus.core.types import SegmentEnd
from ludus.policies.registry import build_policy

# ------------------------------------------------------------------ memory


@pytest.mark.parametrize("core", ["gru", "lstm"])
@pytest.mark.parametrize("absent", [0.0, 0.4])
def test_a_sequence_has_the_values_that_a_whole_episode_gives(core, absent):
    """Each agent's rows, unrolled by themselves from the memory that its worker had, say the same as the sequences of its team."""
    env = team_env()
    learner = learner_of(VDN(**{**SMALL, **GRU, "core": core}), env)
    rows = team_rollout(env, learner, pieces=30, rng=np.random.default_rng(1), absent=absent, longest=9)
    ((_, columns),) = learner.items(rows)
    batch = learner.batch(learner.local_columns(columns, len(columns["count"])))
    assert batch.unbroken == (absent == 0.0)
    with torch.no_grad():
        q, _ = learner._values(learner._online, batch)
    ((_, view),) = views(rows, env, (0,))
    found = {}
    for piece in range(len(view.tail)):  # the sequences of each piece lie one after the other, every 2 steps
        steps = view.start[piece + 1] - view.start[piece]
        found[piece] = [2 * k for k in range(1 + max(0, -(-(int(steps) - 3) // 2)))]
    sequences = [(piece, first) for piece, first_of_orbit in found.items() for first in first_of_orbit]
    assert len(sequences) == len(columns["count"])
    module = learner._online.q
    for m, (piece, first) in enumerate(sequences):
        for agent in range(3):
            here = view.present[view.start[piece] : view.start[piece + 1], agent]
            if not here.any():
                continue
            mine = view.row[view.start[piece] : view.start[piece + 1], agent][here]
            with torch.no_grad():
                features = module.body(torch.from_numpy(rows.observation[mine]))[:, None]
                states = module.unroll(features, torch.from_numpy(view.memory0[piece, agent][None]))[:, 0]
                whole = module.values(states, torch.from_numpy(rows.mask[mine]))
            place = np.cumsum(here) - 1
            for t in range(int(columns["count"][m])):
                if here[first + t]:
                    torch.testing.assert_close(q[m, t, agent], whole[place[first + t]], atol=1e-5, rtol=1e-4)


def test_an_agent_that_was_gone_remembers_nothing():
    """As its worker has it; parts of an episode that fragments cut go on with what they remember."""
    env, rng = team_env(), np.random.default_rng(3)
    learner = learner_of(VDN(**{**SMALL, **GRU, "burn_in": 1}), env)
    whole = team_rollout(env, learner, pieces=30, rng=rng, longest=9)
    cut, gone = (
        in_two(whole, rng, lambda n, tail=tail: np.full(n, tail)) for tail in (SegmentEnd.CUT, SegmentEnd.TERMINATED)
    )
    ((_, expected),), ((_, found),) = learner.items(whole), learner.items(cut)
    for name, column in expected.items():
        np.testing.assert_array_equal(column, found[name], err_msg=name)
    ((_, columns),), ((_, view),) = learner.items(gone), views(gone, env, (0,))
    module, values = learner._online.q, {}
    with torch.no_grad():
        rows = learner.local_columns(columns, len(columns["count"]))
        q = learner._values(learner._online, learner.batch(rows))[0].numpy()
        for k, (a, b) in enumerate(pairwise(gone.start)):  # each part by itself
            features = module.body(torch.from_numpy(gone.observation[a:b]))[:, None]
            states = module.unroll(features, torch.from_numpy(gone.memory0[k][None]))[:, 0]
            of = int(gone.episode[k]), int(gone.agent[k])
            each = module.values(states, torch.from_numpy(gone.mask[a:b])).numpy()
            values |= {(*of, int(t)): each[i] for i, t in enumerate(gone.t[a:b])}
    assert columns["anew"].any()
    m, compared = 0, 0
    for a, b in pairwise(view.start):
        for first in range(0, max(1, b - a - 1), 2):
            for t in range(int(columns["count"][m])):
                for agent in np.flatnonzero(view.present[a + first + t]):
                    own = values[int(view.episode[a]), int(agent), int(view.t[a + first + t])]
                    np.testing.assert_allclose(q[m, t, agent], own, atol=1e-5, rtol=1e-4)
                    compared += 1
            m += 1
    assert m == len(columns["count"])
    assert compared > 100


def test_sequences_bootstrap_from_the_step_after_them():
    """The last item of each piece bootstraps in the slot after its steps, where those are present who are left over."""
    env = team_env()
    learner = learner_of(QMIX(**{**SMALL, **GRU}), env)
    rows = team_rollout(env, learner, pieces=20, rng=np.random.default_rng(2))
    ((_, columns),) = learner.items(rows)
    ((_, view),) = views(rows, env, (0,))
    left = (view.tail > 0).any(axis=1)
    last, m = -1, 0
    for piece, here in enumerate(left):
        steps = int(view.start[piece + 1] - view.start[piece])
        last += 1 + max(0, -(-(steps - 3) // 2))
        count = int(columns["count"][last])
        assert (columns["discount"][last, count - 1] > 0) == here
        assert columns["place"][last, count - 1] == count
        assert columns["present"][last, 1 + count].tolist() == (view.tail[piece] > 0).tolist()
        assert columns["state"][last, count].tolist() == view.bootstrap_state[piece].tolist()
        m += count
    assert m > 0
    assert last == len(columns["count"]) - 1


@pytest.mark.parametrize("cls", [VDN, QMIX, QPLEX, CWQMIX, OWQMIX])
@pytest.mark.parametrize("double", [True, False])
def test_targets_of_sequences_agent_by_agent(cls, double):
    """Values and targets are mixed at the state of their own joint step, targets by the target mixer."""
    plain = {"n_step": 2, "mixing_hidden": 0, "normalise_rewards": "none", "scale_rewards": False}
    env, config = team_env(), cls(**{**SMALL, **GRU, **plain, "double": double})
    learner = scattered(learner_of(config, env))
    rows = team_rollout(env, learner, pieces=20, rng=np.random.default_rng(5), absent=0.3, longest=9)
    ((_, columns),) = learner.items(rows)
    mine = learner.local_columns(columns, len(columns["count"]))
    batch, seen = learner.batch(mine), learner.team_targets(mine)
    teams = {"online": learner._online, "target": learner._target}
    if config.weighting != "none":
        teams |= {"central": learner._online.central, "central target": learner._target.central}
    with torch.no_grad():
        q = {name: learner._values(team, batch)[0].numpy().astype(np.float64) for name, team in teams.items()}
    weights = weights_of(learner._online), weights_of(learner._target)
    states, compared = columns.get("state"), set()

    def moment(m, t):
        here = columns["present"][m, config.burn_in + t], None if states is None else states[m, t].astype(np.float64)
        return Moment({name: of[m, t] for name, of in q.items()}, columns["mask"][m, t], *here)

    for m, t in zip(*seen.there.numpy().nonzero(), strict=True):
        at, discount = int(columns["place"][m, t]), columns["discount"][m, t]
        step = {"action": columns["action"][m, t], "reward": columns["reward"][m, t], "discount": discount}
        found = judged(config, *weights, moment(m, t), moment(m, at), **step)
        told = seen.value, seen.target, seen.central, seen.weight
        for expected, got in zip(found, told, strict=True):
            assert got is None or got[m, t].item() == pytest.approx(expected, abs=1e-4)
        compared.add((at - t, bool(discount)))
    assert len(compared) > 2


def test_central_network_memory_starts_with_each_sequence():
    """Q*'s network is none that workers have: with the agents' weights it remembers what they do who begin without memory."""
    env = team_env()
    learner = learner_of(CWQMIX(**{**SMALL, **GRU}), env)
    learner._online.central.q.load_state_dict(learner._online.q.state_dict())
    rows = team_rollout(env, learner, pieces=30, rng=np.random.default_rng(3), longest=9)
    ((_, columns),) = learner.items(rows)
    assert not np.array_equal(columns["memory"], columns["central_memory"])
    ((_, fresh),) = learner.items(replace(rows, memory0=np.zeros_like(rows.memory0)))
    assert fresh["central_memory"].any()
    for name in ("memory", "central_memory"):
        np.testing.assert_array_equal(fresh[name], columns["central_memory"])


# ------------------------------------------------------------------ learners


@pytest.mark.parametrize(
    ("cls", "options", "rows"),
    [(QMIX, {}, 2), (QMIX, GRU, 25), (QMIX, {"priority_exponent": 0.6}, 25), (CWQMIX, {}, 25)],
    ids=["steps", "gru", "prioritised", "weighted"],
)
def test_ranks_learn_what_one_learner_does(cls, options, rows):
    algorithm, env = cls(**{**SMALL, **options}), team_env()
    batch = batch_of(learner_of(algorithm, env), env, size=rows)
    assert_ranks_learn_alike(3, lambda ranks: learner_of(algorithm, env, ranks=ranks), [batch] * 4)


@pytest.mark.parametrize("options", [{}, GRU], ids=["steps", "gru"])
def test_each_item_counts_by_its_weight(options):
    """Loss and gradient are sums over the items, each times its importance weight."""
    env = team_env()
    learner = learner_of(QMIX(**{**SMALL, **options, "priority_exponent": 0.6}), env)
    columns = batch_of(learner, env, size=12).columns

    def found(weight):
        loss = learner._gradient(columns, 12, weight).loss
        return np.append(learner.networks.online.gradient, loss)

    weight = np.linspace(0.1, 1.0, 12)
    each = np.array([found(one) for one in np.eye(12)])
    assert (np.abs(each).max(axis=1) > 0).all()
    np.testing.assert_allclose(found(weight), weight @ each, atol=1e-6)
    assert not np.allclose(found(weight), found(np.ones(12)))


def test_a_warm_start_takes_the_agents_and_a_new_mixer():
    env = team_env()
    learner = learner_of(QMIX(**SMALL), env)
    batch = batch_of(learner, env)
    for _ in range(3):
        learner.update(batch)
    warm = learner_of(QMIX(**SMALL), env, start=learner.weights())
    fresh = learner_of(QMIX(**SMALL), env)
    assert all(np.array_equal(a, learner.weights()[k]) for k, a in warm.weights().items() if k != "epsilon")
    for ours, theirs in zip(warm._online.mixer.parameters(), fresh._online.mixer.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    policy = build_policy(learner.spec, learner.weights())
    assert policy.spec.kind == "action_values"
    assert not any("mixer" in name for name in learner.weights())


def test_qmix_learners_reject_unsupported_settings():
    env = team_env()
    with pytest.raises(ScenarioError, match="VDN with body=impala sees images"):
        VDN(body="impala").check(env)
    with pytest.raises(ConfigError, match="period 9 is longer than the length 8"):
        VDN(core="gru", length=8, period=9)
    uneven = replace(env, agents=env.agents[:-1])
    with pytest.raises(ScenarioError, match="QMIX learns for teams of one size"):
        QMIX().policy(uneven, (0, 1))


# ------------------------------------------------------------------ learning

TWO_STEP = {
    "rollout": 32, "min_size": 200, "batch": 64, "updates_per_decision": 0.1, "learning_rate": 3e-3, "target_period": 50,
    "epsilon": 1.0, "normalise_rewards": "none", "huber_delta": 10.0, "hidden": (32,), "mixing_width": 8,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "earned"),
    [
        (QMIX(**TWO_STEP), 8.0),
        (VDN(**TWO_STEP), 7.0),
        pytest.param(QMIX(**TWO_STEP, core="gru", memory=16, length=2, period=2), 8.0, marks=pytest.mark.long),
    ],
    ids=["qmix", "vdn", "qmix-gru"],
)
def test_the_two_step_game(algorithm, earned):
    """Rashid et al. 2018, §5 and table 1: QMIX finds the 8, VDN settles for the 7."""
    env = {"wrappers": ["agent_ids"], "teams": "one", "state": True}
    assert train(algorithm, "team_games:TwoStep", num_envs=32, total=2000, **env)[0] == pytest.approx(earned)
