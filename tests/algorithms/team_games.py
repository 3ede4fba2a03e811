"""Small games of teams, and made-up rollouts of teams whose agents come and go."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

from ludus.algorithms.base import LearnerContext
from ludus.data.table import build_table
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy
from ludus.rollout.base import RolloutOrder
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker
from ludus.types import Mixture, PolicyRef


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
        order = RolloutOrder(
            ref,
            (0,),
            Mixture(()),
            *(collect.unit, collect.amount),
            seed=1000 * seed + k,
            carry_on=goes_on,
            state=collect.state,
        )
        for name, items in learner.items(worker.play(order, [(ref, policy)]).trajectories):
            assert tables[name].try_insert(items)
        for name, count in learner.batches():
            batch = tables[name].try_sample(count, rng)
            if batch is not None:
                learner.update(batch)
    ref = PolicyRef(0, "learner", k + 1, "greedy")
    order = RolloutOrder(ref, (0,), Mixture(()), "episodes", episodes, seed=77)
    returns = worker.play(order, [(ref, build_policy(learner.spec, learner.weights()))]).episodes.returns[:, 0]
    worker.close()
    return float(returns.mean()), learner
