"""Random games, played in fragments of random sizes, against a bookkeeper that is too simple to be wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.core.errors import DataError
from ludus.core.types import Mixture, PolicyRef
from ludus.replay.trajectories import Trajectories, joint
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker
from ludus.testing.env import check_env
from ludus.testing.fakes import TEAM, FixedPolicy, Frame, Script, ScriptedEnv

OTHER = PolicyRef(1, "other")


@st.composite
def scripts(draw) -> Script:
    """Two agents of player 0 and one of player 1; somebody is due at each time; rewards are small integers."""
    length = draw(st.integers(1, 6))
    frames, open_agents = [], set()
    for t in range(length):
        due = draw(st.sets(st.integers(0, 2), min_size=1))
        rewards = [draw(st.integers(-3, 3)) if a in open_agents else 0 for a in sorted(due)]
        frames.append(Frame(due=tuple((a, 10 * t + a, r) for a, r in zip(sorted(due), rewards, strict=True))))
        open_agents |= due
    ended = tuple((a, draw(st.integers(-3, 3)), 100 + a) for a in sorted(open_agents))
    return Script(
        player=(0, 0, 1),
        frames=(*frames, Frame(ended=ended)),
        returns=(0.0, 0.0),
        terminated=draw(st.booleans()),
    )


def expected(script: Script, agent: int) -> list[tuple[int, float, float]]:
    """(t, observation, reward) of one agent's decisions in one episode."""
    rows: list[tuple[int, float, float]] = []
    for t, frame in enumerate(script.frames):
        for a, observation, reward in frame.due:
            if a == agent:
                if rows:
                    rows[-1] = (*rows[-1][:2], reward)
                rows.append((t, observation, 0.0))
        for a, reward, _ in frame.ended:
            if a == agent and rows:
                rows[-1] = (*rows[-1][:2], reward)
    return rows


def tail_time(script: Script, rows: Trajectories, segment: int) -> int:
    """When the segment's tail is: at the game's end, or, where it is cut, when the agent's next decision is due."""
    if rows.tail[segment] != 2:
        return len(script.frames) - 1
    last = rows.t[rows.start[segment + 1] - 1]
    agent = int(rows.agent[segment])
    return next(t for t, frame in enumerate(script.frames) if t > last and any(a == agent for a, _, _ in frame.due))


@given(
    games=st.lists(scripts(), min_size=1, max_size=3),
    amounts=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    num_envs=st.integers(1, 4),
    seat=st.integers(0, 1),
)
def test_fragments_put_together_are_the_episodes(games, amounts, num_envs, seat):
    mine = (0, 1) if seat == 0 else (2,)
    # Every script must give the learner something to do, or a request for decisions has no end.
    games = [g for g in games if any(a in mine for frame in g.frames for a, _, _ in frame.due)]
    if not games:
        return
    env = ScriptedEnv(games, num_envs, state=True)
    worker = RolloutWorker(env, LocalBank(env.spec, num_envs))
    got: dict[tuple[int, int], list[tuple[int, float, float]]] = {}
    ends: dict[tuple[int, int], list[tuple[int, float]]] = {}
    finished: set[int] = set()
    for k, amount in enumerate(amounts):
        me = PolicyRef(0, "me", k)
        worker.bank.load([(me, FixedPolicy.of(k % 2, logp=-float(k))), (OTHER, FixedPolicy.of(0))])
        mixture = Mixture.product({1 - seat: ([OTHER], [1.0])})
        rollout = worker.run(
            RolloutRequest(me, (seat,), mixture, "decisions", amount, seed=k, carry_on=k > 0, state=True)
        )
        rows = rollout.trajectories
        assert rows is not None
        assert rows.num_rows >= amount
        finished |= set(rollout.episodes.index.tolist())
        for s in range(rows.num_segments):
            key = int(rows.episode[s]), int(rows.agent[s])
            span = slice(rows.start[s], rows.start[s + 1])
            assert rows.start[s + 1] > rows.start[s]
            columns = rows.t[span], rows.observation[span, 0], rows.reward[span]
            environment = key[0] % num_envs
            assert rows.state[span].tolist() == [[environment, t] for t in rows.t[span].tolist()]
            script = games[environment % len(games)]
            assert rows.bootstrap_state[s].tolist() == [environment, tail_time(script, rows, s)]
            got.setdefault(key, []).extend(zip(*(c.tolist() for c in columns), strict=True))
            ends.setdefault(key, []).append((int(rows.tail[s]), float(rows.bootstrap_observation[s, 0])))
            acted = -rows.logp[span]  # version v answers logp -v
            assert (acted.min(), acted.max()) == (rows.version_lo[s], rows.version_hi[s])
    for episode in finished:
        script = games[(episode % num_envs) % len(games)]
        for agent in mine:
            assert got.get((episode, agent), []) == expected(script, agent)
            if (episode, agent) in ends:
                *cuts, last = ends[episode, agent]
                assert last == (0 if script.terminated else 1, 100 + agent)
                assert all(tail == 2 for tail, _ in cuts)
    for key, rows_of in got.items():  # a cut's tail is the observation of the decision that comes next
        script = games[(key[0] % num_envs) % len(games)]
        whole = expected(script, key[1])
        assert rows_of == whole[: len(rows_of)]


@settings(max_examples=20)
@given(games=st.lists(scripts(), min_size=1, max_size=3), amount=st.integers(1, 7))
def test_joint_view_has_every_row_once(games, amount):
    env = ScriptedEnv(games, 2, state=True)
    worker = RolloutWorker(env, LocalBank(env.spec, 2))
    me = PolicyRef(0, "me")
    worker.bank.load([(me, FixedPolicy.of(1)), (OTHER, FixedPolicy.of(0))])
    mixture = Mixture.product({1: ([OTHER], [1.0])})
    rows = worker.run(RolloutRequest(me, (0,), mixture, "episodes", amount, seed=0, state=True)).trajectories
    if rows is None:
        return
    view = joint(rows, env.spec, player=0)
    assert sorted(view.row[view.present].tolist()) == list(range(rows.num_rows))
    assert np.array_equal(view.observation[view.present], rows.observation[view.row[view.present]])
    assert (view.observation[~view.present] == 0).all()
    keys = list(zip(view.episode.tolist(), view.t.tolist(), strict=True))
    assert keys == sorted(set(keys))
    assert view.start[-1] == len(keys)
    assert view.state.tolist() == [[episode % 2, t] for episode, t in keys]
    for b, episode in enumerate(view.episode[view.start[:-1]].tolist()):
        assert view.bootstrap_state[b].tolist() == [episode % 2, len(games[episode % 2 % len(games)].frames) - 1]
    assert [len(set(view.episode[a:b].tolist())) for a, b in zip(view.start[:-1], view.start[1:], strict=True)] == [
        1
    ] * (len(view.start) - 1)


def test_joint_view_refuses_a_player_that_is_not_there():
    env = ScriptedEnv([TEAM], 1)
    worker = RolloutWorker(env, LocalBank(env.spec, 1))
    me = PolicyRef(0, "me")
    worker.bank.load([(me, FixedPolicy.of(1)), (OTHER, FixedPolicy.of(0))])
    request = RolloutRequest(me, (0,), Mixture.product({1: ([OTHER], [1.0])}), "episodes", 1, seed=0)
    with pytest.raises(DataError, match="player 1"):
        joint(worker.run(request).trajectories, env.spec, player=1)


@settings(max_examples=15)
@given(game=scripts())
def test_random_scripts_keep_the_contract(game):
    by_agent = {a: sum(r for _, _, r in expected(game, a)) for a in range(3)}
    fair = Script(game.player, game.frames, (by_agent[0] + by_agent[1], by_agent[2]), game.terminated)
    check_env(lambda n: ScriptedEnv([fair], n), steps=8, team="split", early_rewards=True)
