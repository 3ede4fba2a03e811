"""Policies that decide for a team together are given whole groups, by whoever asks them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from test_shared_inference import Served, random_due, spec_of

from ludus.core.errors import PolicyError
from ludus.core.types import ActionRequests, Mixture, PolicyOutput, PolicyRef, PolicySpec
from ludus.evaluation.policies import incompatibility
from ludus.policies.base import JointPolicy, Policy, Teams, team_size_of
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference import remote
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker
from ludus.testing.fakes import TEAM, FixedPolicy, ScriptedEnv


class RollCall:
    """Each agent's action says how many of its team act now, and how many of them before it: 10 × all + before + 100 × `name`."""

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")
    noise_width = 1
    memory_shape = None
    takes_ids = False
    team_size = 3

    def __init__(self, spec=None, weights=None, *, name=0, aloud=True):
        """aloud: else all play 0, and the log-probabilities say it."""
        self.spec = spec or PolicySpec("test_joint_policies:RollCall")
        self.name, self.aloud, self.asked = name, aloud, []

    def act(self, observation, mask, memory, noise, *, mode="explore", teams=None):
        if teams is None:
            raise PolicyError("whose are these?")
        self.asked.append(teams)
        new = np.diff(teams.group, prepend=-1) != 0
        first = np.flatnonzero(new)
        of = np.cumsum(new) - 1
        assert len(np.unique(teams.group)) == len(first)  # nobody is apart from the group
        before = np.arange(len(of)) - first[of]
        action = 100 * self.name + 10 * np.bincount(of, minlength=1)[of] + before
        quiet = action * (not self.aloud)
        return PolicyOutput((action - quiet).astype(np.int32), quiet.astype(np.float32))

    def chances(self, observation, mask, action, teams, *, mode="explore"):
        return None

    def tabulate(self, enumeration, player, *, mode="explore"):
        return None

    def weights(self):
        return {}


def called(slot, agents, name=0):
    """What `RollCall` answers, agent by agent."""
    team = [s // agents for s in slot]
    return [100 * name + 10 * team.count(t) + team[:k].count(t) for k, t in enumerate(team)]


def test_joint_policy_detection():
    assert isinstance(RollCall(), JointPolicy)
    assert not isinstance(FixedPolicy.of(0), JointPolicy)
    assert isinstance(FixedPolicy.of(0), Policy)
    assert (team_size_of(RollCall()), team_size_of(FixedPolicy.of(0))) == (3, 0)


def test_teams():
    one, other = Teams.of(np.array([0, 2, 3], np.int32), 3), Teams.of(np.array([1, 2, 5], np.int32), 3)
    assert one.group.tolist() == [0, 0, 1]
    assert one.place.tolist() == [0, 2, 0]
    both = Teams.joined([one, other, Teams.of(np.zeros(0, np.int32), 3), one])
    assert both.group.tolist() == [0, 0, 1, 2, 2, 3, 4, 4, 5]
    assert both.place.tolist() == [0, 2, 0, 1, 2, 2, 0, 2, 0]
    assert both.take(np.array([3, 4])).place.tolist() == [1, 2]
    assert Teams.whole(4, 2).group.tolist() == [0, 0, 1, 1]
    with pytest.raises(PolicyError, match="teams of 3 agents was given 4 observations"):
        Teams.whole(4, 3)


@pytest.mark.parametrize("inline", [100, 90_000])
def test_groups_are_whole_locally_and_on_a_server(inline, monkeypatch):
    """Of several clients, in requests that are cut, for teams that are not all there, beside policies that decide row by row."""
    monkeypatch.setattr(remote, "INLINE", inline)
    monkeypatch.setattr(remote, "SHARED", 10**9)
    rng, agents, num_envs = np.random.default_rng(0), (2, 3), 7
    spec, served = spec_of(agents), Served()
    policies = [(PolicyRef(0, str(k)), RollCall(name=k)) for k in range(2)] + [(PolicyRef(0, "f"), FixedPolicy.of(7))]
    banks = [LocalBank(spec, num_envs), *(served.bank(spec, num_envs, client) for client in "ab")]
    for bank in banks:
        bank.load(policies if isinstance(bank, LocalBank) else served.sent(policies))
    who = [rng.integers(3, size=num_envs) for _ in agents]
    for bank in banks:
        for p, n in enumerate(agents):
            bank.bind(p, np.arange(num_envs * n, dtype=np.int32), np.repeat(who[p], n).astype(np.int32))
    for _ in range(3):
        for p, n in enumerate(agents):
            due = random_due(rng, num_envs * n, masked=False)
            expected = [
                7 if who[p][slot // n] == 2 else called(due.slot.tolist(), n, int(who[p][slot // n]))[k]
                for k, slot in enumerate(due.slot.tolist())
            ]
            for bank in banks:
                act = bank.act(p, due, np.zeros((len(due.slot), 1), np.float32))
                assert act.action.tolist() == expected


def test_two_clients_of_a_server_have_groups_of_their_own():
    """Their slots have the same numbers, and their rows are evaluated in one call."""
    served, spec = Served(), spec_of((3,))
    policy = RollCall()
    bank = served.bank(spec, 2)
    bank.load(served.sent([(PolicyRef(0, "a"), policy)]))
    bank.bind(0, np.arange(6, dtype=np.int32), np.zeros(6, np.int32))
    rows = [random_due(np.random.default_rng(k), 6, masked=False) for k in range(2)]
    acts = bank.act_all([(0, due, np.zeros((len(due.slot), 1), np.float32)) for due in rows])
    for act, due in zip(acts, rows, strict=True):
        assert act.action.tolist() == called(due.slot.tolist(), 3)
    assert len(policy.asked) == 1


def test_a_worker_asks_for_those_who_are_there():
    """Of the scripted team agent 1 has died in the second frame; player 1 is a team of one, of a joint opponent. What each agent answered
    is recorded with its own row."""
    learner, other = RollCall(name=1, aloud=False), RollCall(name=2, aloud=False)
    env = ScriptedEnv([TEAM], 2)
    worker = RolloutWorker(env, LocalBank(env.spec, 2))
    mine, its = PolicyRef(0, "me", 3), PolicyRef(1, "it")
    request = RolloutRequest(mine, (0,), Mixture.product({1: ([its], [1.0])}), "episodes", 2, seed=0)
    rows = worker.play(request, [(mine, learner), (its, other)]).trajectories
    assert rows.logp[rows.agent.repeat(np.diff(rows.start)) == 0].tolist() == [120, 110, 110] * 2
    assert rows.logp[rows.agent.repeat(np.diff(rows.start)) == 1].tolist() == [121] * 2
    assert_array_equal(np.concatenate([teams.place for teams in learner.asked]), [0, 1, 0, 1, 0, 0, 0, 0])


def test_one_that_is_not_told_whose_rows_these_are_says_so():
    with pytest.raises(PolicyError, match="whose"):
        RollCall().act(np.zeros((2, 1), np.float32), None, None, np.zeros((2, 1), np.float32))


def test_a_larger_team_is_refused():
    assert incompatibility(RollCall(), spec_of((3,)), 0, "explore") == ""
    assert "teams of up to 3 agents, and this player has 4" in incompatibility(RollCall(), spec_of((4,)), 0, "explore")


def test_rows_without_an_agent():
    bank = LocalBank(spec_of((3,)), 1)
    bank.load([(PolicyRef(0, "a"), RollCall())])
    bank.bind(0, np.arange(3, dtype=np.int32), np.zeros(3, np.int32))
    none = ActionRequests(*(np.zeros((0, *shape), dtype) for shape, dtype in (((), np.int32), ((3,), np.float32))), None,
               np.zeros(0, np.float32), np.zeros(0, np.bool_))  # fmt: skip
    assert len(bank.act(0, none, np.zeros((0, 1), np.float32)).action) == 0
