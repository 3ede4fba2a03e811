"""What is played and learned on the learner's device: the same as from memory, on games of all shapes."""

from __future__ import annotations

import gc
import importlib
import weakref
from collections import Counter
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from ludus.algorithms.common.base import CollectConfig, LearnerContext
from ludus.algorithms.common.device_policy import DevicePolicy, acts_on_device
from ludus.algorithms.common.losses import CategoricalDistribution, distribution_of
from ludus.algorithms.mmd.config import MMD, RNaD
from ludus.algorithms.on_policy.config import A2C, IMPALA, Reinforce
from ludus.algorithms.ppo.config import MAPPO, PPO
from ludus.backend.device import Placement
from ludus.contrib.algorithms.mpo.config import VMPO
from ludus.core.errors import ConfigError, TrainingError
from ludus.core.recorders import Timings
from ludus.core.types import DeviceChoice, Mixture, OpponentFactor, PolicyRef, PolicySpec, SegmentEnd, TrainingTask
from ludus.envs.device_vector import DeviceSlots, DeviceTimestep, OffersDevice
from ludus.envs.registry import make_env
from ludus.envs.wrappers.observations import agent_ids
from ludus.envs.wrappers.ondevice import DeviceAgentIds, DeviceJointState
from ludus.envs.wrappers.player_groups import joint_state
from ludus.policies.actor_critic import initial_weights
from ludus.policies.heads import head_of
from ludus.policies.registry import build_policy
from ludus.policies.specs import action_config, actor_critic_spec, body_config, random_spec
from ludus.replay.base import Sample
from ludus.replay.blocks import Block
from ludus.replay.episode_server import EpisodeServer
from ludus.replay.trajectories import Trajectories
from ludus.rollout.base import RolloutRequest
from ludus.rollout.ondevice import DeviceActions, DevicePlay, Networks, PolicyTables, SeatAssignment, thresholds
from ludus.testing.device_env import CopiedEnv
from ludus.testing.fakes import ENDS_OFF_TURN, TEAM, TRUNCATED_OFF_TURN, Frame, ScriptedEnv
from ludus.training.ondevice_collector import DeviceVectors, OnDeviceCollector, select_collector
from ludus.training.trainer import Trainer, TrainerSpec

LEARNER, ONE, OTHER = PolicyRef(0, "0-1", 1), PolicyRef(0, "one"), PolicyRef(0, "other")
THERE = DeviceChoice("cpu", written=False)
HERE = Placement("cpu", False, "float32", "as asked for")


class Watched(CopiedEnv):
    """Keeps what has happened, in memory."""

    def reset(self, seed, *, episodes=None):
        self.seen = []
        return super().reset(seed, episodes=episodes)

    def step(self, actions):
        self.seen[-1] = (self.seen[-1], [a.numpy().copy() for a in actions])
        return super().step(actions)

    def _timestep(self, step):
        copied = type(step)(*map(_copied, step))
        self.seen.append(copied)
        return super()._timestep(step)


def _copied(part):
    if isinstance(part, np.ndarray):
        return part.copy()
    return (
        part
        if part is None
        else (type(part)(*map(_copied, part)) if hasattr(part, "_fields") else tuple(map(_copied, part)))
    )


class Reference:
    """Segments of the learner's decisions, made one decision at a time."""

    def __init__(self, env, request, policy):
        self.env, self.policy, self.together = env, policy, request.together
        self.players = sorted(set(request.seats))
        self.seats = request.seats
        self.open, self.running, self.place, self.ended = {}, {}, 0, Counter()

    def mine(self, player, environment):
        return player in self.seats if self.together else self.seats[environment % len(self.seats)] == player

    def slots(self, player, side):
        agents = len(self.env.spec.agents_of(player))
        for row, slot in enumerate(side.slot.tolist()):
            environment, agent = divmod(slot, agents)
            if self.mine(player, environment):
                yield row, (environment, self.players.index(player), agent)

    def agent(self, player, place):
        """Its number among all players' agents."""
        return sum(len(self.env.spec.agents_of(p)) for p in range(player)) + place

    def number(self, slot):
        """Of the episode."""
        return slot[0] + 100 * self.ended[slot[0]]

    def take(self):
        """Trajectories of what has come since the last time."""
        seen, segments = self.env.seen, []
        for now, then in zip(
            seen[self.place : -1],
            [s if k == len(seen) - 1 else s[0] for k, s in enumerate(seen)][self.place + 1 :],
            strict=True,
        ):
            (step, actions), over = now, then.finished.environment.tolist()
            for p in self.players:
                due, ended = step.due[p], then.ended[p]
                for row, slot in self.slots(p, due):
                    mask = None if due.mask is None else due.mask[row]
                    action, state = actions[p][slot[0], slot[2]], None if step.state is None else step.state[slot[0]]
                    self.open[slot] = (
                        due.observation[row],
                        action,
                        self.logp(p, due.observation[row], mask, action),
                        mask,
                        self.place,
                        state,
                    )
                for row, slot in self.slots(p, ended):
                    if slot in self.open:
                        self.running.setdefault(slot, []).append(
                            (*self.open.pop(slot), ended.reward[row], self.place + 1)
                        )
                        tail = SegmentEnd.TERMINATED if ended.terminated[row] else SegmentEnd.TRUNCATED
                        final = None if then.final_state is None else then.final_state[over.index(slot[0])]
                        segments.append(
                            (slot, self.running.pop(slot), tail, ended.observation[row], final, self.number(slot))
                        )
                for row, slot in self.slots(p, then.due[p]):
                    if slot in self.open:
                        self.running.setdefault(slot, []).append(
                            (*self.open.pop(slot), then.due[p].reward[row], self.place + 1)
                        )
            self.ended.update(over)
            self.place += 1
        last = seen[-1]
        now_due = {
            slot: (last.due[p].observation[row], slot) for p in self.players for row, slot in self.slots(p, last.due[p])
        }
        for slot in list(self.running):
            if slot in self.open:
                after, state = self.open[slot][0], self.open[slot][5]
            else:
                after, state = now_due[slot][0], None if last.state is None else last.state[slot[0]]
            segments.append((slot, self.running.pop(slot), SegmentEnd.CUT, after, state, self.number(slot)))
        segments.sort(key=lambda segment: segment[0])
        return self.trajectories(segments)

    def logp(self, player, observation, mask, action):
        enumeration = self.env.spec.enumeration
        if enumeration is not None:
            return np.log(
                self.policy.tabulate(enumeration, player)[observation - enumeration.offset[player], int(action)]
            )
        mask = np.ones((1, self.policy.actions), np.bool_) if mask is None else mask[None]
        return np.log(self.policy.probabilities(observation[None], mask, mode="explore")[0][0, int(action)])

    def trajectories(self, segments):
        rows = [(slot, *row) for slot, some, *_ in segments for row in some]
        column = lambda k: np.array([row[k] for row in rows])  # noqa: E731
        has_mask = rows[0][4] is not None and self.env.spec.enumeration is None
        has_state = rows[0][6] is not None
        count = len(segments)
        return Trajectories(
            start=np.cumsum([0, *(len(some) for _, some, *_ in segments)]),
            observation=column(1),
            action=column(2).astype(np.int32),
            logp=column(3).astype(np.float32),
            reward=column(7).astype(np.float32),
            mask=column(4) if has_mask else None,
            t=column(5).astype(np.int32),
            dt=(column(8) - column(5)).astype(np.int32),
            tail=np.array([tail for _, _, tail, *_ in segments], np.int8),
            bootstrap_observation=np.array([after for _, _, _, after, *_ in segments]),
            bootstrap_mask=None,
            agent=np.array([self.agent(self.players[slot[1]], slot[2]) for slot, *_ in segments], np.int16),
            seat=np.array([self.players[slot[1]] for slot, *_ in segments], np.int8),
            episode=np.array([number for *_, number in segments], np.int64),
            version_lo=np.zeros(count, np.int32),
            version_hi=np.zeros(count, np.int32),
            policy="0-1",
            state=column(6) if has_state else None,
            bootstrap_state=np.array([state for *_, state, _ in segments]) if has_state else None,
        )


DYING = replace(
    TEAM,
    frames=(
        TEAM.frames[0],
        Frame(due=((0, 20, 0.5),), ended=((1, -1.0, 21),)),  # agent 1 has died, and its decision is closed
        Frame(due=((0, 30, 1.0), (2, 32, -1.0))),
        Frame(ended=((0, 2.0, 40), (2, -2.0, 42))),
    ),
)


class Bytes(ScriptedEnv):
    """Whose states are small images of bytes, and whose observations have other numbers than networks."""

    def __init__(self):
        super().__init__(SCRIPTS, 4, state=True)
        agents = tuple(replace(agent, observation=Box(0, 255, (1,), np.int64)) for agent in self.spec.agents)
        self.spec = replace(self.spec, agents=agents, state=Box(0, 255, (1, 2), np.uint8))

    def _timestep(self, finished):
        step = super()._timestep(finished)
        whole = lambda rows: [each._replace(observation=each.observation.astype(np.int64)) for each in rows]  # noqa: E731
        states = [(50 * state).astype(np.uint8)[:, None] for state in (step.state, step.final_state)]
        return step._replace(
            due=tuple(whole(step.due)), ended=tuple(whole(step.ended)), state=states[0], final_state=states[1]
        )


class Uniform:
    """Opponents that are all uniform (`Opponent`)."""

    def __init__(self, spec):
        self.spec = spec

    def table(self, ref, player):
        mask = self.spec.enumeration.mask[self.spec.enumeration.ids(player)]
        return mask / mask.sum(1, keepdims=True)

    def acts(self, ref):
        policy = build_policy(PolicySpec("random", {"actions": int(self.spec.agents[0].action.n)}), {})
        return DevicePolicy(policy, ref.mode, HERE)


def learner_of(algorithm, env, seats, device=THERE):
    return algorithm.learner(LearnerContext(env=env.spec, seats=seats, seed=3, total=1000, device=device))


def request_of(env, seats, unit, amount, *, together=False, **more):
    refs = {p: ([ONE, OTHER], [0.25, 0.75]) for p in range(env.spec.num_players)}
    mixture = Mixture.product({p: of for p, of in refs.items() if not together or p not in seats})
    return RolloutRequest(LEARNER, seats, mixture, unit, amount, seed=7, together=together, **more)


def played(env, learner, request):
    players = (
        PolicyTables(env.spec, learner, Uniform(env.spec), request.seats)
        if env.spec.enumeration
        else Networks(learner, Uniform(env.spec))
    )
    return DevicePlay(env, players)


def assert_told(rollout, env, seats, together):
    """That the episodes, or their sums, are those of the newest request."""
    count = rollout.counters["episodes"]
    assert (rollout.sums is None) == (len(rollout.episodes.index) > 0 or not count)
    finished = [s[0].finished if isinstance(s, tuple) and not hasattr(s, "due") else s.finished for s in env.seen]
    told = (
        [(e, r, n) for f in finished for e, r, n in zip(f.environment, f.returns, f.length, strict=True)][-count:]
        if count
        else []
    )
    seat = [seats[0] if together else seats[e % len(seats)] for e, _, _ in told]
    mine = np.array([r[s] for (_, r, _), s in zip(told, seat, strict=True)])
    if rollout.sums is None:
        assert sorted(rollout.episodes.returns.tolist()) == sorted(r.tolist() for _, r, _ in told)
        assert sorted(rollout.episodes.seat.tolist()) == sorted(seat)
        assert len(set(rollout.episodes.index.tolist())) == count
        assert rollout.episodes.index.max(initial=0) < rollout.next_episode
    elif count:
        best = [max(np.delete(r, s), default=0.0) for (_, r, _), s in zip(told, seat, strict=True)]
        numbers = [count, mean := mine.mean(), np.square(mine - mean).sum(), mine.min(), mine.max()]
        numbers += [np.mean([n for *_, n in told]), np.mean(mine > best)]
        assert list(astuple(rollout.sums)) == pytest.approx(numbers)


def zero_sum(env):
    env.spec = replace(env.spec, zero_sum=True)
    return env


SMALL = {"hidden": (8,), "gamma": 0.9, "gae_lambda": 0.8, "learning_rate": 1e-2}
REGULARISED = {**SMALL, "magnet": "uniform", "alpha": 1.0, "learning_rate": 0.1}
KUHN, THREE, TOE = "openspiel/kuhn_poker", "openspiel/kuhn_poker(players=3)", "openspiel/tic_tac_toe"
SCRIPTS = (ENDS_OFF_TURN, TRUNCATED_OFF_TURN)
GAMES = {
    "kuhn": (lambda: make_env(KUHN, num_envs=12), PPO(**SMALL, epochs=2), (0, 1), "episodes", False),
    "kuhn, cut": (lambda: make_env(KUHN, num_envs=7), PPO(**SMALL, epochs=2), (0, 1), "decisions", False),
    "kuhn of three": (lambda: make_env(THREE, num_envs=9), MMD(**SMALL, epochs=2), (0, 2), "decisions", False),
    "kuhn, all seats": (lambda: make_env(KUHN, num_envs=5), A2C(**SMALL), (0, 1), "decisions", True),
    "regularised": (lambda: make_env(KUHN, num_envs=6), RNaD(**REGULARISED), (0, 1), "decisions", True),
    "regularised, by turns": (lambda: make_env(KUHN, num_envs=6), RNaD(**REGULARISED), (0, 1), "decisions", False),
    "tensors": (lambda: make_env(KUHN, num_envs=6, tree="off"), IMPALA(**SMALL), (0, 1), "decisions", False),
    "better half": (lambda: make_env(KUHN, num_envs=6, tree="off"), VMPO(**SMALL, epochs=2, minibatches=1), (0, 1), "decisions", False),
    "one environment": (lambda: make_env(KUHN, num_envs=1, tree="off"), A2C(**SMALL), (0, 1), "decisions", False),
    "masks": (lambda: make_env(TOE, num_envs=4, tree="off"), MMD(**SMALL, magnet="moving"), (1,), "decisions", False),
    "whole episodes": (lambda: make_env(TOE, num_envs=6, tree="off"), Reinforce(hidden=(8,)), (0, 1), "episodes", False),
    "off turn": (lambda: ScriptedEnv(SCRIPTS, 5), PPO(**SMALL, normalise_returns=True), (0, 1), "decisions", False),
    "truncated": (lambda: ScriptedEnv([TRUNCATED_OFF_TURN, ENDS_OFF_TURN], 4), PPO(**SMALL, minibatches=2), (1,), "decisions", False),
    "team": (lambda: ScriptedEnv([TEAM], 3), PPO(**SMALL, normalise_observations=True, team_rewards=True), (0,), "decisions", False),
    "team, all seats": (lambda: ScriptedEnv([TEAM], 3), PPO(**SMALL, team_rewards=True), (0, 1), "episodes", True),
    "regularised, a team": (lambda: zero_sum(ScriptedEnv([TEAM], 3)), RNaD(**REGULARISED), (0, 1), "episodes", True),
    "dying": (lambda: ScriptedEnv([DYING], 3), PPO(**SMALL, team_rewards=True), (0,), "episodes", False),
    "dying, cut": (lambda: ScriptedEnv([TEAM, DYING], 3), A2C(**SMALL, team_rewards=True), (0,), "decisions", False),
    "side": (lambda: ScriptedEnv([TEAM], 3), PPO(**SMALL), (1,), "episodes", False),
    "state": (lambda: joint_state(ScriptedEnv(SCRIPTS, 4)), MAPPO(**SMALL, team_rewards=False), (0,), "decisions", False),
    "bytes": (Bytes, MAPPO(**SMALL, team_rewards=False), (0,), "decisions", False),
    "whole numbers": (Bytes, MMD(**SMALL, magnet="moving"), (0,), "decisions", False),
}  # fmt: skip


@pytest.mark.parametrize("case", GAMES)
def test_rows_are_those_of_the_host_and_are_learned_from_alike(case):
    make, algorithm, seats, unit, together = GAMES[case]
    env = Watched(make())
    there, here = (learner_of(algorithm, env, seats) for _ in range(2))
    assert there.on_device_unsupported_reason() == ""
    amount = {"off turn": 4, "state": 5}.get(case, 10)
    request = request_of(
        env,
        seats,
        unit,
        amount if unit == "decisions" else env.num_envs,
        together=together,
        state=bool(there.model.state),
    )
    play = played(env, there, request)
    total = Counter()
    reference = Reference(env, request, build_policy(there.spec, there.weights()))
    for k in range(4 if unit == "decisions" else 1):
        rollout = play.play(replace(request, carry_on=k > 0), each=k == 1)
        reference.policy = build_policy(there.spec, there.weights())
        rows = reference.take()
        total.update(rollout.counters)
        assert_told(rollout, env, seats, together)
        (block,) = rollout.left
        assert block.num_rows == rows.num_rows > 0
        assert rollout.counters["learner_decisions"] >= (amount if unit == "decisions" else 1)
        ((_, columns),) = here.items(rows)
        told, expected = (
            there.learn(block),
            here.update(Sample(columns, np.arange(rows.num_rows), np.ones(rows.num_rows))),
        )
        assert {name: told[name] for name in told} == pytest.approx(
            {name: expected[name] for name in told}, rel=2e-4, abs=2e-5
        )
        for name, array in there.weights().items():
            np.testing.assert_allclose(array, here.weights()[name], rtol=1e-4, atol=2e-6, err_msg=name)
    assert there._budget.collected == here._budget.collected
    finished = [s[0] if k < len(env.seen) - 1 else s for k, s in enumerate(env.seen)]
    assert total["episodes"] == sum(len(s.finished.environment) for s in finished)
    assert total["decisions"] == sum(len(due.slot) for s in finished[:-1] for due in s.due)


def test_the_joint_state_of_a_device_is_that_of_the_host():
    """Of a team one of whose agents dies, and of players that take turns."""
    for scripts in ([TEAM], SCRIPTS):
        host = Watched(joint_state(ScriptedEnv(scripts, 3)))
        there = DeviceJointState(CopiedEnv(ScriptedEnv(scripts, 3)), host.spec, tuple(range(host.spec.num_players)))
        steps = [(host.reset(0, episodes=2), there.reset(0, episodes=2))]
        steps += [
            (host.step(actions), there.step(actions))
            for actions in [tuple(torch.zeros(3, len(host.spec.agents_of(p)), dtype=torch.int64) for p in range(2))] * 8
        ]
        for expected, told in steps:
            over = expected.over
            assert torch.equal(told.state, expected.state)
            assert torch.equal(told.final_state[over], expected.final_state[over])
        assert sum(int(expected.over.sum()) for expected, _ in steps) == 6


def test_ids_of_agents_on_a_device_are_those_of_the_host():
    """Of a team one of whose agents dies, and of one whose episodes are truncated: what is due, and final observations."""
    for scripts in ([TEAM], [replace(TEAM, terminated=False)]):
        host = Watched(agent_ids(ScriptedEnv(scripts, 3)))
        there = DeviceAgentIds(CopiedEnv(ScriptedEnv(scripts, 3)), host.spec, (0,))
        steps = [(host.reset(0, episodes=2), there.reset(0, episodes=2))]
        steps += [
            (host.step(actions), there.step(actions))
            for actions in [tuple(torch.zeros(3, len(host.spec.agents_of(p)), dtype=torch.int64) for p in range(2))] * 8
        ]
        cut = 0
        for expected, told in steps:
            for ours, theirs in zip(told.slots, expected.slots, strict=True):
                assert ours.observation.shape == theirs.observation.shape
                assert torch.equal(ours.observation[theirs.due], theirs.observation[theirs.due])
                where = theirs.ended & ~theirs.terminated
                assert torch.equal(ours.final[where], theirs.final[where])
                cut += int(where.sum())
        assert (cut > 0) == (not scripts[0].terminated)


class TeamForDevices(ScriptedEnv):
    def on_device(self, device, *, num_envs):
        return CopiedEnv(ScriptedEnv([TEAM], num_envs), device)


def test_ids_of_agents_go_to_a_device_with_a_vector_that_can_live_there():
    there = agent_ids(TeamForDevices([TEAM], 3)).on_device(torch.device("cpu"), num_envs=5)
    assert (type(there), there.num_envs) == (DeviceAgentIds, 5)
    assert [a.observation.shape for a in there.spec.agents] == [(3,), (3,), (1,)]
    assert not isinstance(agent_ids(ScriptedEnv([TEAM], 3)), OffersDevice)


# ------------------------------------------------------------------ who plays, and how


def test_opponents_are_drawn_by_the_mixture_and_stay_for_their_episode():
    joint = OpponentFactor((0, 1), ((ONE, OTHER), (OTHER, ONE), (LEARNER, ONE)), (0.5, 0.3, 0.2))
    third = OpponentFactor((2,), ((ONE,), (OTHER,)), (0.1, 0.9))
    request = RolloutRequest(LEARNER, (0, 2), Mixture((joint, third)), "episodes", 20_000, seed=1)
    seats = SeatAssignment(request, num_envs=20_000, num_players=3, device=torch.device("cpu"))
    assert seats.refs == (ONE, OTHER)  # the learner plays seat 0 itself, where it is drawn for it
    assert set(seats.plays) == {(1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (2, 2)}  # nobody plays where it cannot
    generator = torch.Generator().manual_seed(0)
    seats.draw(seats.uniforms(generator))
    policy, entry = seats.policy.clone(), seats.entry.clone()
    even = np.arange(0, 20_000, 2)
    assert set(policy[even, 0].tolist()) == {0} == set(policy[even + 1, 2].tolist())
    assert set(entry[even + 1, 1].tolist()) == {-1}  # the learner's own seat
    name = [LEARNER, *seats.refs]
    shares = Counter((name[a], name[b]) for a, b in policy[even + 1][:, :2].tolist())
    for pair, prob in zip(joint.entries, joint.probs, strict=True):
        assert shares[pair] / len(even) == pytest.approx(prob, abs=0.02)
    strange = replace(request, opponents=Mixture((joint, OpponentFactor((2,), ((LEARNER,),), (1.0,)))), seats=(0, 1))
    elsewhere = SeatAssignment(strange, num_envs=2, num_players=3, device=torch.device("cpu"))
    assert (3, 2) in elsewhere.plays, "in a seat that it does not learn to play, it is somebody else"
    assert np.mean([name[k] == OTHER for k in policy[even, 2].tolist()]) == pytest.approx(0.9, abs=0.02)
    over = torch.zeros(20_000, dtype=torch.bool)
    over[:100] = True
    seats.draw(seats.uniforms(generator), over)
    assert torch.equal(seats.policy[100:], policy[100:])
    assert torch.equal(seats.entry[100:], entry[100:])
    assert not torch.equal(seats.policy[:100], policy[:100])


class Watching:
    """Plays 0, and remembers who sat where, and which episodes had just ended (`Players`)."""

    def __init__(self):
        self.over, self.policy = [], []

    def load(self, seats):
        pass

    def act(self, timestep, seats, generator):
        self.over.append(timestep.over.clone())
        self.policy.append(seats.policy.clone())
        nothing = [torch.zeros(side.due.shape, dtype=torch.int64) for side in timestep.slots]
        return DeviceActions(tuple(nothing), {p: zeros.float() for p, zeros in enumerate(nothing)})


def test_who_was_drawn_stays_until_the_episode_is_over():
    env, players = CopiedEnv(ScriptedEnv(SCRIPTS, 40)), Watching()
    DevicePlay(env, players).play(request_of(env, (0, 1), "decisions", 400))
    over, policy = torch.stack(players.over)[1:], torch.stack(players.policy)
    changed = (policy[1:] != policy[:-1]).any(2)
    assert changed.any()
    assert not (changed & ~over).any()


class Fixed:
    """Plays one action (`Acts`)."""

    def __init__(self, action):
        self.action = action

    def act(self, x, mask, generator):
        return torch.full((len(x),), self.action)


class FixedLearner(Fixed):
    def act(self, x, mask, generator):
        return super().act(x, mask, generator), torch.zeros(len(x))


def test_each_seat_is_played_by_whom_it_was_drawn_for():
    """Of networks, whose rows are chosen among, and of tables, which lie one behind the other."""
    env = CopiedEnv(ScriptedEnv(SCRIPTS, 40))
    request = request_of(env, (0, 1), "episodes", 40)
    seats = SeatAssignment(request, num_envs=40, num_players=2, device=torch.device("cpu"))
    seats.draw(seats.uniforms(torch.Generator().manual_seed(0)))
    players = Networks(FixedLearner(7), type("Named", (), {"acts": lambda self, ref: Fixed(8 if ref == ONE else 9)})())
    players.load(seats)
    answer = players.act(env.reset(0), seats, None)
    expected = torch.tensor([7, *(8 if ref == ONE else 9 for ref in seats.refs)])[seats.policy]
    assert torch.equal(torch.cat(answer.actions, 1), expected)

    env = CopiedEnv(make_env(KUHN, num_envs=40))
    learner = type("Table", (), {"table": lambda self: torch.tensor([[-np.inf, 0.0]]).expand(12, -1)})()
    pure = {ONE: np.eye(2)[np.zeros(6, int)], OTHER: np.eye(2)[[0, 0, 0, 1, 1, 1]]}
    tables = PolicyTables(env.spec, learner, type("Pure", (), {"table": lambda self, ref, player: pure[ref]})(), (0, 1))
    tables.load(seats)
    timestep = env.reset(0)
    answer = tables.act(timestep, seats, torch.Generator().manual_seed(0))
    ids = torch.cat([side.observation for side in timestep.slots], 1) - torch.tensor([0, 6])
    name = [LEARNER, *seats.refs]
    for e in range(40):
        for p in range(2):
            ref, state = name[seats.policy[e, p]], int(ids[e, p])
            assert int(answer.actions[p][e, 0]) == (1 if ref == LEARNER else pure[ref][state].argmax())


def test_actions_are_drawn_by_their_probabilities():
    probs = torch.tensor([[0.0, 0.2, 0.5, 0.3, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    below, u = thresholds(probs), ((torch.arange(1000) + 0.5) / 1000)[:, None]
    assert Counter((u >= below[0]).sum(1).tolist()) == {1: 200, 2: 500, 3: 300}
    assert set((u >= below[1]).sum(1).tolist()) == {0}
    torch.manual_seed(0)
    mask = torch.tensor([True, True, False]).expand(20_000, -1)
    drawn_ = CategoricalDistribution().sample(torch.tensor([1.0, 0.0, 5.0]).expand(20_000, -1), mask, None)
    assert Counter(drawn_.tolist())[0] / 20_000 == pytest.approx(1 / (1 + np.exp(-1)), abs=0.01)
    assert int(drawn_.max()) == 1
    greedy = CategoricalDistribution().sample(torch.tensor([[1.0, 2.0, 5.0]]), mask[:1], None, greedy=True)
    assert greedy.tolist() == [1]
    for kind in ("gaussian", "tanh"):
        box = distribution_of({"kind": kind, "low": [-1.0, 0.0], "high": [3.0, 1.0], "shape": [2]})
        out = torch.tensor([[0.1, -0.4, -1.0, -0.5]]).expand(20_000, -1)
        actions = box.sample(out, None, None)
        assert bool((actions >= torch.tensor([-1.0, 0.0])).all() and (actions <= torch.tensor([3.0, 1.0])).all())
        head = head_of({"kind": kind, "low": [-1.0, 0.0], "high": [3.0, 1.0], "shape": [2]})
        noise = np.random.default_rng(0).random((20_000, 2), dtype=np.float32)
        played_, _ = head.act(out.numpy(), None, noise, greedy=False)
        np.testing.assert_allclose(actions.mean(0), played_.mean(0), atol=0.02)
        np.testing.assert_allclose(actions.std(0), played_.std(0), atol=0.02)


ACTIONS = {
    "masked": Discrete(3),
    "many": MultiDiscrete([2, 3]),
    "box": Box(-1.0, np.array([1.0, 3.0], np.float32), (2,), np.float32),
}


@pytest.mark.parametrize("kind", ACTIONS)
def test_opponents_act_there_as_they_do_in_memory(kind):
    space, rng = ACTIONS[kind], np.random.default_rng(0)
    observation = rng.standard_normal((50, 4)).astype(np.float32)
    mask = None if kind == "box" else np.concatenate([rng.random((50, 3 if kind == "masked" else 5)) < 0.6], 1)
    if mask is not None:
        mask[:, 0] = mask[:, -1] = True
    spec = actor_critic_spec(shape=(4,), action=action_config(space), body=body_config(hidden=(8,)))
    policy = build_policy(spec, initial_weights(spec, rng))
    assert acts_on_device(policy, "greedy")
    legal = None if mask is None else torch.from_numpy(mask)
    expected = policy.act(observation, mask, None, np.full((50, policy.noise_width), 0.5, np.float32), mode="greedy")
    told = DevicePolicy(policy, "greedy", HERE).act(torch.from_numpy(observation), legal, None)
    np.testing.assert_allclose(told.numpy(), expected.action, atol=1e-6)
    if kind == "box":
        rounded = DevicePolicy(policy, "greedy", replace(HERE, precision="bf16")).act(
            torch.from_numpy(observation), None, None
        )
        assert 1e-6 < float((rounded - told).abs().max()) < 0.1, "opponents multiply as the learner does"
    uniform = build_policy(random_spec(space), {})
    assert acts_on_device(uniform, "explore")
    torch.manual_seed(0)
    x, every = torch.zeros(6000, 4), None if legal is None else legal[:1].expand(6000, -1)
    drawn_ = DevicePolicy(uniform, "explore", HERE).act(x, every, None)
    if mask is None:
        low, high = drawn_.amin(0), drawn_.amax(0)
        np.testing.assert_allclose(np.stack([low, high]), [[-1, -1], [1, 3]], atol=0.01)
        np.testing.assert_allclose(drawn_.mean(0), [0, 1], atol=0.05)
        return
    first = drawn_ if kind == "masked" else drawn_[:, 0]
    shares = Counter(first.tolist())
    allowed = np.flatnonzero(mask[0] if kind == "masked" else mask[0, :2])
    assert sorted(shares) == allowed.tolist()
    assert all(share / 6000 == pytest.approx(1 / len(allowed), abs=0.03) for share in shares.values())


def test_unbounded_mixtures_are_sampled_on_the_host():
    uniform = build_policy(random_spec(Box(-np.inf, 1.0, (2,), np.float32)), {})
    assert not acts_on_device(uniform, "explore")


# ------------------------------------------------------------------ nothing is read back in another way


@pytest.mark.parametrize("tree", ["auto", "off"])
def test_playing_and_learning_read_nothing_back_but_by_name(tree):
    """On the device "meta" `item()`, `bool()`, `cpu()` and `numpy()` raise."""
    host = make_env(KUHN, num_envs=4, tree=tree)
    learner = learner_of(PPO(**SMALL, epochs=2, minibatches=2), host, (0, 1), DeviceChoice("meta", written=False))
    meta = torch.device("meta")
    rows = torch.zeros(4, 1, 11, device=meta) if tree == "off" else torch.zeros(4, 1, dtype=torch.int64, device=meta)
    no, number = torch.zeros(4, 1, dtype=torch.bool, device=meta), torch.zeros(4, 1, device=meta)
    legal = torch.ones(4, 1, 2, dtype=torch.bool, device=meta) if tree == "off" else None
    side = DeviceSlots(rows, legal, no, number, no, no, rows)
    step = DeviceTimestep((side, side), no[:, 0], torch.zeros(4, 2, device=meta), no[:, 0], number[:, 0])
    env = type("Still", (), {"spec": host.spec, "num_envs": 4, "device": meta})()
    env.reset, env.step = lambda seed, episodes=None: step, lambda actions: step
    for unit in ("episodes", "decisions"):
        request = request_of(env, (0, 1), unit, 4)
        rollout = played(env, learner, request).play(request)
        assert rollout.left == ()  # there are no numbers, and so no rows
    k, c = 3, 8
    flag = torch.zeros(k, c, dtype=torch.bool, device=meta)
    shape = (k, c, 11) if tree == "off" else (k, c)
    observation = torch.zeros(shape, dtype=torch.float32 if tree == "off" else torch.int64, device=meta)
    whole, real = torch.zeros(k, c, dtype=torch.int64, device=meta), torch.zeros(k, c, device=meta)
    mask = torch.ones(k, c, 2, dtype=torch.bool, device=meta) if tree == "off" else None
    block = Block(
        flag, observation, mask, whole, real, real, flag, flag, whole, whole, observation, observation[0], (0,), 12, 2, 4, fresh=True
    )  # fmt: skip
    assert learner.learn(block)["rows"] == 12.0


# ------------------------------------------------------------------ when


def test_one_function_decides_and_says_why():
    env = make_env(KUHN, num_envs=4)
    frozen = build_policy(PolicySpec("random", {"actions": 2}), {})
    task = TrainingTask("task", 1, 0, (0,), "0-1", Mixture.product({1: ([ONE], [1.0])}))
    learner = learner_of(PPO(hidden=(4,)), env, (0,))

    def decided(asked="auto", device="cuda:0", found=learner, vector=None, extras=()):
        vector = vector or type("There", (), {"spec": env.spec, "on_device": print})()
        trainer = type("Trains", (), {"placement": replace(learner.placement, device=device), "in_place": found})()
        collect = CollectConfig("episodes", 10, extras=extras)
        return select_collector(
            DeviceVectors(asked, vector, 4), trainer, task, collect, frozen=[(ONE, frozen)], asynchronous=False
        )

    assert decided() is learner is decided("device", "cpu")
    assert decided("host") == decided(device="cpu") == ""
    assert decided(found="its network remembers") == "its network remembers"
    assert decided(extras=("value",)) == "its algorithm records more than actions and log-probabilities"
    still = type("Here", (), {"spec": env.spec})()
    assert decided(vector=still).startswith("openspiel/kuhn_poker is stepped in memory only")
    with pytest.raises(
        ConfigError, match=r"environments=device was given, and task task .*: openspiel/kuhn_poker is stepped in memory"
    ):
        decided("device", vector=still)


def test_a_policy_that_may_act_otherwise_than_its_network_plays_in_memory(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    algorithm = importlib.import_module("own_policy").TremblingA2C()  # whose hand trembles
    told = learner_of(algorithm, make_env(KUHN, num_envs=4), (0,)).on_device_unsupported_reason()
    assert told == "policies of kind 'own_policy:Trembling' may act otherwise than their network"


class Full(CopiedEnv):
    """A device without memory for a second step."""

    def step(self, actions):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")


def collector_of(vector_of):
    host = make_env(KUHN, num_envs=4)
    vector = type(
        "Offers", (), {"spec": host.spec, "on_device": lambda self, device, *, num_envs: vector_of(host, device)}
    )()
    request = request_of(host, (0, 1), "episodes", 4)
    frozen = [(ref, build_policy(PolicySpec("random", {"actions": 2}), {})) for ref in (ONE, OTHER)]
    return OnDeviceCollector(
        DeviceVectors("device", vector, 4),
        learner_of(PPO(hidden=(4,)), host, (0, 1)),
        lambda **asked: (request, frozen),
        CollectConfig("episodes", 4),
        task_slot=0,
        profile=Timings(),
        each=False,
    )


def test_a_device_without_memory_for_the_games_fails_the_task():
    with pytest.raises(
        TrainingError, match=r"memory to play 4 episodes at once on cpu: CUDA out .* or runtime\.environments=host"
    ):
        collector_of(Full).take()


def test_weights_that_became_none_fail_the_task_and_older_ones_are_kept(monkeypatch):
    """They are read back when somebody asks for them, perhaps long after the update."""
    env = make_env(KUHN, num_envs=4)
    spec = TrainerSpec("task", PPO(hidden=(4,)), LearnerContext(env.spec, (0, 1), 0, device=THERE))
    trainer = Trainer(spec, EpisodeServer(0))
    before = trainer.weights

    def learn(block):
        monkeypatch.setattr(
            trainer._learner, "weights", lambda: {k: np.full_like(v, np.nan) for k, v in before.items()}
        )
        raise TrainingError("the loss became NaN")

    monkeypatch.setattr(trainer._learner, "learn", learn)
    (block,) = collector_of(CopiedEnv).take().rollouts[0].left
    assert trainer.learn_in_place(lambda: trainer._learner.learn(block), 4).failure == "the loss became NaN"
    assert trainer.weights is before
    monkeypatch.setattr(trainer._learner, "learn", lambda block: {})
    assert trainer.learn_in_place(lambda: trainer._learner.learn(block), 4).failure is None, (
        "statistics beside the loss went wrong, say"
    )
    with pytest.raises(TrainingError, match="became NaN or infinite; those from before are kept"):
        _ = trainer.weights
    assert trainer.weights is before


def test_played_blocks_are_freed_at_once():
    """Without a search for circles, in which a device's memory would wait."""
    gc.collect()
    gc.disable()
    try:
        collector = collector_of(CopiedEnv)
        played_ = weakref.ref(collector.take().rollouts[0].left[0])
        held = weakref.ref(collector._play)
        assert played_() is None
        del collector
        assert held() is None
    finally:
        gc.enable()
