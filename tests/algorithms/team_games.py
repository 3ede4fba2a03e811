"""Small games of teams, and made-up rollouts of teams whose agents come and go."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

from ludus.algorithms.common.base import LearnerContext
from ludus.backend.ranks import SINGLE_RANK
from ludus.core.types import CPU, AgentSpec, EnvSpec, Mixture, PolicyRef
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.replay.kinds import build_table
from ludus.replay.trajectories import Trajectories
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker


class TwoStep(ParallelEnv):
    """The two-step game of Rashid et al. 2018, §5: agent 0's first action leads to a game where all earn 7, or to one where they earn 8 if
    both play 1, 0 if both play 0, and 1 otherwise. Both see which of the three states it is."""

    metadata: ClassVar = {"name": "two_step"}
    possible_agents: ClassVar = ["agent_0", "agent_1"]

    def observation_space(self, agent):
        return Box(0.0, 1.0, (3,), np.float32)

    def action_space(self, agent):
        return Discrete(2)

    def state(self):
        return np.eye(3, dtype=np.float32)[self._state]

    @property
    def state_space(self):
        return Box(0.0, 1.0, (3,), np.float32)

    def _seen(self):
        return dict.fromkeys(self.agents, self.state())

    def reset(self, seed=None, options=None):
        self.agents, self._state = list(self.possible_agents), 0
        return self._seen(), {name: {} for name in self.agents}

    def step(self, actions):
        agents, over = self.agents, self._state > 0
        reward = 0.0
        if self._state == 1:
            reward = 7.0
        elif self._state == 2:
            reward = ((0.0, 1.0), (1.0, 8.0))[actions["agent_0"]][actions["agent_1"]]
        else:
            self._state = 1 + int(actions["agent_0"])
        seen = self._seen()
        if over:
            self.agents = []
        each = dict.fromkeys(agents, reward / 2)  # the team's is the sum
        return seen, each, dict.fromkeys(agents, over), dict.fromkeys(agents, False), {name: {} for name in agents}


class Climb(ParallelEnv):
    """The one-step matrix game of Rashid et al. 2020, "Weighted QMIX": both earn 8 by 0 and 0, lose 12 if only one plays 0, and else get
    nothing."""

    metadata: ClassVar = {"name": "climb"}
    possible_agents: ClassVar = ["agent_0", "agent_1"]
    state_space: ClassVar = Box(0.0, 1.0, (1,), np.float32)

    def observation_space(self, agent):
        return self.state_space

    def action_space(self, agent):
        return Discrete(3)

    def state(self):
        return np.ones(1, np.float32)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return dict.fromkeys(self.agents, self.state()), {name: {} for name in self.agents}

    def step(self, actions):
        agents, self.agents = self.agents, []
        zeros = sum(int(action) == 0 for action in actions.values())
        each = dict.fromkeys(agents, (0.0, -6.0, 4.0)[zeros])  # the team's is the sum
        seen = dict.fromkeys(agents, self.state())
        return seen, each, dict.fromkeys(agents, True), dict.fromkeys(agents, False), {name: {} for name in agents}


class Carry(ParallelEnv):
    """Two agents see a load in [-1, 1], eight times anew, and what they do must add up to it: each costs (sum of actions - load)². One that
    cannot tell who it is does half of it. discrete: actions are 0, 1 and 2, loads 0 … 4, and each load that is met earns 1."""

    metadata: ClassVar = {"name": "carry"}
    possible_agents: ClassVar = ["agent_0", "agent_1"]

    def __init__(self, discrete=False):
        self._discrete = discrete

    def observation_space(self, agent):
        return Box(0.0, 1.0, (5,), np.float32) if self._discrete else Box(-1.0, 1.0, (1,), np.float32)

    def action_space(self, agent):
        return Discrete(3) if self._discrete else Box(-1.0, 1.0, (1,), np.float32)

    def _seen(self):
        if self._discrete:
            self._load = int(self._rng.integers(5))
            seen = np.eye(5, dtype=np.float32)[self._load]
        else:
            self._load = float(self._rng.uniform(-1, 1))
            seen = np.array([self._load], np.float32)
        return dict.fromkeys(self.agents, seen)

    def reset(self, seed=None, options=None):
        self._rng = np.random.default_rng(seed)
        self.agents, self._t = list(self.possible_agents), 0
        return self._seen(), {name: {} for name in self.agents}

    def step(self, actions):
        agents, self._t = self.agents, self._t + 1
        total = float(np.sum([actions[name] for name in agents]))
        reward = float(total == self._load) if self._discrete else -((total - self._load) ** 2)
        over = self._t == 8
        seen = self._seen()
        if over:
            self.agents = []
        each = dict.fromkeys(agents, reward / 2)
        return seen, each, dict.fromkeys(agents, False), dict.fromkeys(agents, over), {name: {} for name in agents}


def team_env(*, agents=3, state=5, action=None, players=2, ids=True):
    """Teams of `agents`, who see four numbers and their ids, and a state of so many numbers (0: none). ids: whether bounds say so."""
    low, high = (np.array([bound] * 4 + [end] * agents, np.float32) for bound, end in ((-np.inf, 0), (np.inf, 1)))
    seen = Box(low, high, dtype=np.float32) if ids else Box(-np.inf, np.inf, low.shape, np.float32)
    action = Discrete(3) if action is None else action
    return EnvSpec(
        id="made up teams",
        agents=tuple(AgentSpec(f"{p}-{i}", p, seen, action) for p in range(players) for i in range(agents)),
        utility_range=((-np.inf, np.inf),) * players,
        symmetry=(tuple(range(players)),),
        state=Box(-np.inf, np.inf, (state,), np.float32) if state else None,
    )


def team_rollout(env, learner, *, pieces, rng, seats=(0,), longest=6, tails=(0, 1, 2), absent=0.3, version=0):
    """Random observations, rewards, ends and legal actions of agents each of which is absent from a share of the joint steps."""
    memory = build_policy(learner.spec, learner.weights()).memory_shape
    columns = {name: [] for name in ("observation", "action", "mask", "t", "state")}
    length, owner = [], []
    for piece in range(pieces):
        seat = seats[piece % len(seats)]
        agents = [a for a, spec in enumerate(env.agents) if spec.player == seat]
        steps = int(rng.integers(1, longest + 1))
        here = rng.random((steps, len(agents))) >= absent
        here[np.arange(steps), rng.integers(len(agents), size=steps)] = True  # a joint step has somebody
        states = rng.standard_normal((steps, *(env.state.shape if env.state else (0,)))).astype(np.float32)
        for i, agent in enumerate(agents):
            mine = np.flatnonzero(here[:, i])
            if not len(mine):
                continue
            legal, seen, action = looks(env, agent, i, len(mine), rng)
            for name, rows in zip(columns, (seen, action, legal, mine, states[mine]), strict=True):
                columns[name].append(rows)
            length.append(len(mine))
            owner.append((piece, agent, seat))
    rows = {name: np.concatenate(parts) for name, parts in columns.items()}
    many, (episode, agent, seat) = len(owner), np.array(owner).T
    ends = [looks(env, a, [b for b, o in enumerate(env.agents) if o.player == s].index(a), 1, rng) for _, a, s in owner]
    discrete = isinstance(env.agents[0].action, Discrete)
    return Trajectories(
        start=np.concatenate([[0], np.cumsum(length)]).astype(np.int64),
        observation=rows["observation"],
        action=rows["action"],
        logp=np.zeros(len(rows["t"]), np.float32),
        reward=rng.standard_normal(len(rows["t"])).astype(np.float32),
        mask=rows["mask"] if discrete else None,
        t=rows["t"].astype(np.int32),
        tail=rng.choice(np.array(tails, np.int8), many),
        bootstrap_observation=np.concatenate([seen for _, seen, _ in ends]),
        bootstrap_mask=np.concatenate([legal for legal, _, _ in ends]) if discrete else None,
        agent=agent.astype(np.int16),
        seat=seat.astype(np.int8),
        episode=episode.astype(np.int64),
        version_lo=np.full(many, version, np.int32),
        version_hi=np.full(many, version, np.int32),
        policy="made up",
        memory0=None if memory is None else rng.standard_normal((many, *memory)).astype(np.float32),
        state=rows["state"] if env.state else None,
        bootstrap_state=rng.standard_normal((many, *env.state.shape)).astype(np.float32) if env.state else None,
    )


def in_two(rows, rng, between):
    """Every segment of several rows falls into two, in any order; `between(n)` says how first parts end. Second ones remember nothing."""
    many, length = rows.num_segments, np.diff(rows.start)
    cut = np.where(length > 1, rng.integers(1, np.maximum(length, 2)), 0)
    pieces = [
        (s, rows.start[s] + a, rows.start[s] + b) for s in range(many) for a, b in ((0, cut[s]), (cut[s], length[s]))
    ]
    pieces = [pieces[k] for k in rng.permutation(2 * many) if pieces[k][1] < pieces[k][2]]
    of, begin, end = np.array(pieces).T
    row = np.concatenate([np.arange(a, b) for _, a, b in pieces])
    last, first = end == rows.start[of + 1], begin == rows.start[of]
    names = ("observation", "action", "logp", "reward", "mask", "t", "state")
    ends = (
        "bootstrap_observation",
        "bootstrap_mask",
        "bootstrap_state",
        "agent",
        "seat",
        "episode",
        "version_lo",
        "version_hi",
    )
    return replace(
        rows,
        start=np.append(0, np.cumsum(end - begin)),
        tail=np.where(last, rows.tail[of], between(len(of))).astype(np.int8),
        memory0=None if rows.memory0 is None else rows.memory0[of] * first.reshape(-1, *[1] * (rows.memory0.ndim - 1)),
        **{name: getattr(rows, name)[row] for name in names},
        **{name: getattr(rows, name)[of] for name in ends},
    )


def looks(env, agent, place, rows, rng):
    """(legal actions, observations that end in the agent's id, actions)"""
    spec = env.agents[agent]
    seen = rng.standard_normal((rows, *spec.observation.shape)).astype(np.float32)
    seen[:, 4:] = np.arange(seen.shape[1] - 4) == place
    if not isinstance(spec.action, Discrete):
        return np.ones((rows, 1), np.bool_), seen, rng.uniform(-1, 3, (rows, *spec.action.shape)).astype(np.float32)
    legal = rng.random((rows, int(spec.action.n))) < 0.7
    action = rng.integers(spec.action.n, size=rows)
    legal[np.arange(rows), action] = True
    return legal, seen, action.astype(np.int32)


def learner_of(algorithm, env, *, seed=0, start=None, seats=(0,), ranks=SINGLE_RANK, device=CPU):
    return algorithm.learner(LearnerContext(env, seats, seed, total=1000, ranks=ranks, device=device), start)


def batch_of(learner, env, *, number=3, size=16, **options):
    """Its items of a made-up rollout, as a sample."""
    rows = team_rollout(env, learner, pieces=40, rng=np.random.default_rng([number, 5]), **options)
    ((_, items),) = learner.items(rows)
    return Sample({name: column[:size] for name, column in items.items()}, np.arange(size), np.full(size, 0.1))


def rollouts(env):
    """What `check_algorithm` takes."""
    return lambda learner, number: team_rollout(
        env, learner, pieces=30, rng=np.random.default_rng([number, 11]), version=number
    )


def train(algorithm, env, *, num_envs, total, seed=0, episodes=100, **options):
    """(mean return of `episodes` greedy episodes of the final weights, the learner). total: training's, in the unit that it collects."""
    vector = make_env(env, num_envs=num_envs, **options)
    algorithm.check(vector.spec)
    worker, collect = RolloutWorker(vector, LocalBank(vector.spec, num_envs)), algorithm.collect()
    learner = algorithm.learner(LearnerContext(vector.spec, (0,), seed, total=total))
    tables = {spec.name: build_table(spec) for spec in algorithm.tables()}
    rng = np.random.default_rng(seed)
    for k in range(-(-total // collect.amount)):
        ref, goes_on = PolicyRef(0, "learner", k), k > 0 and collect.unit == "decisions"
        policy = build_policy(learner.spec, learner.weights())
        request = RolloutRequest(
            ref,
            (0,),
            Mixture(()),
            *(collect.unit, collect.amount),
            seed=1000 * seed + k,
            carry_on=goes_on,
            state=collect.state,
        )
        for name, items in learner.items(worker.play(request, [(ref, policy)]).trajectories):
            assert tables[name].try_insert(items)
        for name, count in learner.batches():
            batch = tables[name].try_sample(count, rng)
            if batch is not None:
                learner.update(batch)
    ref = PolicyRef(0, "learner", k + 1, "greedy")
    request = RolloutRequest(ref, (0,), Mixture(()), "episodes", episodes, seed=77)
    returns = worker.play(request, [(ref, build_policy(learner.spec, learner.weights()))]).episodes.returns[:, 0]
    worker.close()
    return float(returns.mean()), learner
