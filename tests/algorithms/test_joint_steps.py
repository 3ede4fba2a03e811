"""Joint steps: what a team earned, what came next, and who is there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Discrete
from team_games import in_two, learner_of, team_env, team_rollout

from ludus.algorithms.common.space_checks import check_state, check_team, state_width, team_size
from ludus.contrib.algorithms.joint_steps import (
    RewardStatistics,
    TeamRewards,
    joint_items,
    left_over,
    team_steps,
    versions,
    views,
    whole,
)
from ludus.contrib.algorithms.qmix.config import QMIX
from ludus.core.errors import ScenarioError
from ludus.core.types import Mixture, PolicyRef
from ludus.replay.trajectories import join
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker
from ludus.testing.fakes import TEAM, FixedPolicy, ScriptedEnv

ME, OTHER = PolicyRef(0, "me"), PolicyRef(1, "other")


def played(script, *requests, action=1):
    """The joint views of player 0's team, of orders of (unit, amount)."""
    env = ScriptedEnv([script], 1, state=True)
    worker = RolloutWorker(env, LocalBank(env.spec, 1))
    worker.bank.load([(ME, FixedPolicy.of(action)), (OTHER, FixedPolicy.of(0))])
    mixture = Mixture.product({1: ([OTHER], [1.0])})
    out = []
    for k, (unit, amount) in enumerate(requests):
        request = RolloutRequest(ME, (0,), mixture, unit, amount, seed=k, carry_on=k > 0, state=True)
        ((_, view),) = views(worker.run(request).trajectories, env.spec, (0,))
        out.append(view)
    return out


def test_an_agent_dies_before_its_team_scores():
    """Agent 1 decides once, and is paid 3 at the end; agent 0 decides at 0, 1 and 2, and is paid 0, 1 and 2."""
    (view,) = played(TEAM, ("episodes", 1))
    items = joint_items(view, gamma=0.5, steps=1)
    assert items["observation"][..., 0].tolist() == [[10, 11], [20, 0], [30, 0]]
    assert items["present"].tolist() == [[True, True], [True, False], [True, False]]
    assert items["reward"].tolist() == [0.0, 1.0, 5.0]
    assert joint_items(replace(view, dt=None), gamma=0.5, steps=1)["reward"].tolist() == [3.0, 1.0, 2.0], (
        "nobody counted"
    )
    assert items["discount"].tolist() == [0.5, 0.5, 0.0]
    assert items["next"][..., 0].tolist() == [[20, 0], [30, 0], [0, 0]]
    assert items["next_present"].tolist() == [[True, False], [True, False], [False, False]]
    assert items["mask"].tolist() == [[[True] * 2] * 2, *[[[True] * 2, [False] * 2]] * 2]
    assert items["next_mask"].tolist() == [*[[[True] * 2, [False] * 2]] * 2, [[False] * 2] * 2]
    assert items["state"].tolist() == [[0, 0], [0, 1], [0, 2]]
    assert items["next_state"].tolist() == [[0, 1], [0, 2], [0, 3]]
    assert items["action"].tolist() == [[1, 1], [1, 0], [1, 0]]


def test_n_steps_sum_the_teams_rewards():
    """Two steps at γ = ½: 0 + ½ and 1 + 5 / 2; the last has one left. The span is what rewards of 1 would sum to."""
    (view,) = played(TEAM, ("episodes", 1))
    reward, discount, following, span = team_steps(view, gamma=0.5, steps=2)
    assert reward.tolist() == [0.5, 3.5, 5.0]
    assert discount.tolist() == [0.25, 0.0, 0.0]
    assert following.tolist() == [2, -1, -1]
    assert span.tolist() == [1.5, 1.5, 1.0]


def test_truncation_bootstraps_from_whoever_is_there():
    (view,) = played(replace(TEAM, terminated=False), ("episodes", 1))
    items = joint_items(view, gamma=0.5, steps=1)
    assert items["discount"].tolist() == [0.5, 0.5, 0.5]
    assert items["next"][-1, :, 0].tolist() == [40, 41]
    assert items["next_present"][-1].tolist() == [True, True]
    assert items["next_mask"][-1].tolist() == [[True] * 2] * 2
    assert items["next_state"][-1].tolist() == [0, 3]


def test_an_agent_that_terminated_is_gone_where_another_was_truncated():
    (view,) = played(replace(TEAM, terminated=False), ("episodes", 1))
    dead = replace(view, tail=np.array([[1, 0]], np.int8))
    items = joint_items(dead, gamma=0.5, steps=1)
    assert items["discount"].tolist() == [0.5, 0.5, 0.5]
    assert items["next"][-1, :, 0].tolist() == [40, 0]
    assert items["next_present"][-1].tolist() == [True, False]
    never = replace(view, tail=np.array([[0, -1]], np.int8))  # the other has nothing in this piece
    assert left_over(never).tolist() == [[False, False]]
    assert joint_items(never, gamma=0.5, steps=1)["discount"].tolist() == [0.5, 0.5, 0.0]


def test_who_was_truncated_alone_does_not_come_back():
    """Agent 1 was truncated at step 2, when agent 0 went on to the end of the episode, at 4."""
    (view,) = played(replace(TEAM, terminated=False), ("episodes", 1))
    ended = replace(view, tail=np.array([[0, 1]], np.int8), when=np.array([[4, 2]]))
    assert not left_over(ended).any()
    assert joint_items(ended, gamma=0.5, steps=1)["discount"].tolist() == [0.5, 0.5, 0.0]
    both = replace(ended, tail=np.array([[1, 1]], np.int8))
    assert left_over(both).tolist() == [[True, False]]
    assert left_over(replace(ended, when=None)).tolist() == [[False, True]], "nobody recorded it"


def test_later_rewards_do_not_count_earlier():
    """They act in turn: agent 1 at 0, 2 and 4, agent 0 at 1 and 3, whose decisions bring each of them 1 and 2."""
    (view,) = played(TEAM, ("episodes", 1))
    first, mine = np.arange(5) % 2 == 0, np.arange(5) % 2 == 1
    turns = replace(
        view,
        start=np.array([0, 5]),
        t=np.arange(5, dtype=np.int32),
        present=np.stack([mine, first], axis=1),
        reward=np.array([[0, 1], [1, 0], [0, 2], [2, 0], [0, 0]], np.float32),
        dt=np.array([[0, 2], [2, 0], [0, 2], [2, 0], [0, 1]], np.int32),
    )
    assert TeamRewards.of(turns).reward.tolist() == [0.0, 1.0, 1.0, 2.0, 2.0]


def test_agents_that_act_in_turn_bootstrap_from_whoever_is_next():
    """Within a piece as after a cut: agent 1, whose decision at 1 is the last that is there, decides at 3, and agent 0 at 4."""
    (view,) = played(replace(TEAM, terminated=False), ("episodes", 1))
    cut = replace(view, tail=np.array([[2, 2]], np.int8), when=np.array([[4, 3]]))
    assert left_over(cut).tolist() == [[False, True]]
    assert joint_items(cut, gamma=0.5, steps=1)["next_present"][-1].tolist() == [False, True]
    assert left_over(replace(cut, when=np.array([[4, 4]]))).tolist() == [[True, True]]
    assert left_over(replace(cut, when=None)).tolist() == [[True, True]], "nobody recorded it"
    other = replace(cut, tail=np.array([[2, 1]], np.int8))
    assert left_over(other).tolist() == [[True, False]], "nor who was truncated while the team goes on"
    one = replace(cut, tail=np.array([[2, 0]], np.int8))
    assert left_over(one).tolist() == [[True, False]], "who is gone is not waited for"


def test_fragments_bootstrap_from_the_decision_that_carries_on():
    """Cut at the second step: agent 0 sees 20 next. Agent 1's decision is open until the end, and so comes with the last fragment."""
    first, last = played(TEAM, ("decisions", 1), ("decisions", 2))
    items = joint_items(first, gamma=0.5, steps=1)
    assert first.t.tolist() == [0]
    assert items["discount"].tolist() == [0.5]
    assert items["next"][0, 0].tolist() == [20]
    assert items["next_present"][0, 0]
    assert items["next_state"].tolist() == [[0, 1]]
    rest = joint_items(last, gamma=0.5, steps=1)
    assert items["reward"].sum() + rest["reward"].sum() == 6.0
    assert rest["discount"][last.start[1] - 1] == 0.0


def test_rows_are_all_there_once():
    env = team_env()
    learner = learner_of(QMIX(hidden=(4,)), env)
    rows = team_rollout(env, learner, pieces=50, rng=np.random.default_rng(0), version=3)
    ((_, view),) = views(rows, env, (0,))
    items = joint_items(view, gamma=0.9, steps=1)
    assert items["reward"].sum() == pytest.approx(rows.reward.sum(), abs=1e-4)
    assert not items["observation"][~items["present"]].any()
    assert not items["next"][~items["next_present"]].any()
    assert items["mask"].any(axis=2).tolist() == items["present"].tolist()
    assert items["next_mask"].any(axis=2).tolist() == items["next_present"].tolist()
    assert ((items["discount"] > 0) == items["next_present"].any(axis=1)).all()
    assert versions(rows, view).tolist() == [3] * len(view.t)


def test_the_oldest_weights_of_a_joint_step_count():
    env = team_env()
    rows = team_rollout(env, learner_of(QMIX(hidden=(4,)), env), pieces=9, rng=np.random.default_rng(0))
    rows = replace(rows, version_lo=rows.agent.astype(np.int32) + 5)
    ((_, view),) = views(rows, env, (0,))
    assert versions(rows, view).tolist() == [5 + int(here.argmax()) for here in view.present]


def test_fragments_of_one_episode_are_put_one_after_the_other():
    env = ScriptedEnv([TEAM], 1, state=True)
    worker = RolloutWorker(env, LocalBank(env.spec, 1))
    worker.bank.load([(ME, FixedPolicy.of(1)), (OTHER, FixedPolicy.of(0))])
    mixture = Mixture.product({1: ([OTHER], [1.0])})
    orders = [RolloutRequest(ME, (0,), mixture, "decisions", 2, seed=k, carry_on=k > 0, state=True) for k in range(3)]
    fragments = [worker.run(order).trajectories for order in orders]
    both = join(fragments)
    rows = whole(both)
    assert rows.num_rows == both.num_rows
    assert rows.num_segments < both.num_segments
    learner = learner_of(QMIX(hidden=(4,)), env.spec)
    ((_, items),) = learner.items(both)
    seen = items["observation"][..., 0]
    assert sorted(seen[seen > 0].tolist()) == sorted(both.observation[:, 0].tolist())
    assert whole(fragments[0]) is fragments[0]


@pytest.mark.parametrize("seed", range(3))
def test_agents_that_come_back_are_beside_the_others_again(seed):
    """Every agent's segment falls into two, in any order, as where it leaves and comes back, or fragments meet: the view stays."""
    env, rng = team_env(), np.random.default_rng(seed)
    rows = team_rollout(env, learner_of(QMIX(hidden=(4,)), env), pieces=20, rng=rng, longest=8)
    broken = in_two(rows, rng, lambda n: rng.choice(3, n))
    ((_, expected),), ((_, found),) = views(rows, env, (0,)), views(broken, env, (0,))
    for name in (
        "start",
        "t",
        "present",
        "observation",
        "action",
        "reward",
        "mask",
        "state",
        "tail",
        "bootstrap_observation",
        "bootstrap_mask",
    ):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


def test_the_state_after_a_piece_is_of_an_agent_that_goes_on():
    """The one that decides last dies by it, or both end; else it is the last that counts."""
    env = team_env(agents=2, players=1)
    rows = team_rollout(env, learner_of(QMIX(hidden=(4,)), env), pieces=1, rng=np.random.default_rng(0), absent=0.0)
    longer, shorter = rows.num_rows // 2, rows.num_rows // 2 - 1
    kept = np.append(np.arange(longer), longer + np.arange(shorter))
    columns = {
        name: getattr(rows, name)[kept] for name in ("observation", "action", "logp", "reward", "mask", "t", "state")
    }
    rows = replace(rows, start=np.array([0, longer, longer + shorter]), **columns)
    for tail, expected in (((0, 2), 1), ((0, 1), 1), ((0, 0), 0), ((2, 2), 0), ((2, 0), 0)):
        ((_, view),) = views(replace(rows, tail=np.array(tail, np.int8)), env, (0,))
        assert view.bootstrap_state[0].tolist() == rows.bootstrap_state[expected].tolist()


def test_sides_of_a_symmetric_game_are_told_apart_in_the_state():
    env = team_env(state=2)
    learner = learner_of(QMIX(hidden=(4,)), env, seats=(0, 1))
    rows = team_rollout(env, learner, pieces=10, rng=np.random.default_rng(0), seats=(0, 1))
    (_, first), (_, second) = views(rows, env, (0, 1))
    assert first.state[:, 2:].tolist() == [[1, 0]] * len(first.t)
    assert second.bootstrap_state[:, 2:].tolist() == [[0, 1]] * len(second.tail)
    assert (state_width(env, (0, 1)), state_width(env, (1,)), state_width(team_env(state=0), (0, 1))) == (4, 2, 0)
    assert [name for name, _ in learner.items(rows)] == ["replay", "replay"]
    only = team_rollout(env, learner, pieces=10, rng=np.random.default_rng(0), seats=(1,))
    assert len(views(only, env, (0, 1))) == 1


def test_bytes_are_scaled():
    env = team_env(state=2)
    rows = team_rollout(env, learner_of(QMIX(hidden=(4,)), env), pieces=3, rng=np.random.default_rng(0))
    image = np.full((rows.num_rows, 2), 51, np.uint8)
    ((_, view),) = views(replace(rows, state=image), env, (0,))
    np.testing.assert_allclose(view.state, 0.2)


def test_normalised_rewards_by_hand():
    """TEAM's rewards 3, 1, 2, where nobody counted steps: mean 2, variance ⅔. What it still receives at γ = ½: 4, 2, 2, of variance 8/9."""
    (view,) = (replace(each, dt=None) for each in played(TEAM, ("episodes", 1)))
    reward, span = np.array([3.0, 4.0]), np.array([1.0, 1.5])
    for kind, expected in (
        ("none", reward * 0.25),
        ("scale", reward / np.sqrt(8 / 9)),
        ("standardise", (reward - 2 * span) / np.sqrt(2 / 3)),
    ):
        statistics = RewardStatistics(kind, gamma=0.5, scale=0.25)
        np.testing.assert_allclose(statistics.normalize(reward, span), reward * 0.25)  # nothing is known
        statistics.add(view)
        np.testing.assert_allclose(statistics.normalize(reward, span), expected, rtol=1e-6)
        again = RewardStatistics(kind, gamma=0.5, scale=0.25)
        again.load_state_dict(statistics.state_dict())
        assert again.normalize(reward, span).tobytes() == statistics.normalize(reward, span).tobytes()


def test_joint_steps_reject_unsupported_settings(enumerated):
    with pytest.raises(ScenarioError, match="made up is a compiled game of single agents"):
        check_team(enumerated, algorithm="X")
    with pytest.raises(ScenarioError, match=r"made up teams has none. Ask for it \(env.options.state=true\), or put"):
        check_state(team_env(state=0), algorithm="X", instead="Y")
    check_team(team_env(state=0), algorithm="X")
    with pytest.raises(ScenarioError, match=r"a Box of numbers; that of made up teams is Discrete\(3\)"):
        check_state(replace(team_env(), state=Discrete(3)), algorithm="X", instead="Y")
    uneven = team_env()
    uneven = replace(uneven, agents=uneven.agents[:-1])
    with pytest.raises(ScenarioError, match=r"the seats \(0, 1\) of made up teams have \[2, 3\] agents"):
        team_size(uneven, (0, 1), algorithm="X")
