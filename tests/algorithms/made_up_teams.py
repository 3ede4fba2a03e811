"""Specs of teams with a state, rollouts of them, and a small game whose hidden bit only the state tells."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

from ludus.algorithms.common.base import LearnerContext
from ludus.core.types import AgentSpec, EnvSpec
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.testing.algorithm import synthetic_rollout

SIZE = 3  # of what an agent sees beside its id


def team_env(*, agents=2, players=1, action=None, state=(3,)):
    """Every player has so many agents, whose observations end in their ids."""
    low, high = np.full(SIZE + agents, -np.inf, np.float32), np.full(SIZE + agents, np.inf, np.float32)
    low[SIZE:], high[SIZE:] = 0, 1
    space = Box(low, high, (SIZE + agents,), np.float32)
    return EnvSpec(
        id="made up",
        agents=tuple(
            AgentSpec(f"{p}_{a}", p, space, action or Discrete(3)) for p in range(players) for a in range(agents)
        ),
        utility_range=((-2.0, 2.0),) * players,
        symmetry=(tuple(range(players)),),
        state=None if state is None else Box(-np.inf, np.inf, state, np.float32),
    )


class _Identified:
    """A policy that is shown the agents' ids: segment s is played by agent s mod agents."""

    def __init__(self, policy, agents):
        self._policy, self._agents = policy, agents
        self.memory_shape, self.noise_width, self.takes_ids = policy.memory_shape, policy.noise_width, policy.takes_ids

    def act(self, observation, *args, **options):
        identify(observation, np.arange(len(observation)) % self._agents, self._agents)
        return self._policy.act(observation, *args, **options)


def identify(observation, agent, agents):
    """Writes ids int[n] to the end of observations [n, …], in place."""
    observation[:, -agents:] = np.arange(agents) == agent[:, None]


def rollout_of(learner, env, *, seats=(0,), segments=30, seed=1):
    agents = len(env.agents_of(0))
    policy = _Identified(build_policy(learner.spec, learner.weights()), agents)
    rows = synthetic_rollout(env, policy, seats=seats, segments=segments, rng=np.random.default_rng([seed, 17]))
    agent = np.arange(segments) % agents
    identify(rows.bootstrap_observation, agent, agents)
    return replace(rows, agent=agent.astype(np.int16), episode=np.arange(segments, dtype=np.int64) // agents)


def learner_and_sample(algorithm, env, *, seats=(0,), start=None, rollout=None):
    learner = algorithm.learner(LearnerContext(env, seats, 0), start)
    rollout = rollout_of(learner, env, seats=seats) if rollout is None else rollout
    ((_, columns),) = learner.items(rollout)
    n = len(columns["version_lo"])
    return learner, Sample(columns, np.arange(n), np.ones(n)), rollout


class HiddenBit(ParallelEnv):
    """Two agents are shown a bit each and earn 1/2 for playing it, for three steps; agent_1 is gone after two where the hidden bit is 1.
    Each step then pays 4 to agent_0, or takes it, whatever they do: the state tells which, observations do not."""

    metadata: ClassVar = {"name": "hidden_bit"}
    possible_agents: ClassVar = ["agent_0", "agent_1"]

    def observation_space(self, agent):
        return Box(0.0, 1.0, (2,), np.float32)

    def action_space(self, agent):
        return Discrete(2)

    @property
    def state_space(self):
        return Box(0.0, 1.0, (2,), np.float32)

    def state(self):
        return np.array([self._hidden, self._time / 3], np.float32)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents, self._time, self._hidden = list(self.possible_agents), 0, int(self._rng.integers(2))
        return self._show(), {name: {} for name in self.agents}

    def _show(self):
        self._bits = {name: int(self._rng.integers(2)) for name in self.possible_agents}
        return {name: np.eye(2, dtype=np.float32)[bit] for name, bit in self._bits.items() if name in self.agents}

    def step(self, actions):
        acting, self._time = self.agents, self._time + 1
        reward = {name: 0.5 * (actions[name] == self._bits[name]) for name in acting}
        reward["agent_0"] += 4.0 if self._hidden else -4.0
        gone = {
            name: self._time == 3 or (name == "agent_1" and self._hidden == 1 and self._time == 2) for name in acting
        }
        seen = {name: view for name, view in self._show().items() if name in acting}
        self.agents = [name for name in acting if not gone[name]]
        return seen, reward, gone, dict.fromkeys(acting, False), {name: {} for name in acting}


class Coins(ParallelEnv):
    """Two teams of two, twice: each agent is shown a coin of its own, and scores for its team by repeating it. Each agent is paid half of
    its team's score minus the other's."""

    metadata: ClassVar = {"name": "coins"}
    possible_agents: ClassVar = ["a_0", "a_1", "b_0", "b_1"]

    def observation_space(self, agent):
        return Box(0.0, 1.0, (2,), np.float32)

    def action_space(self, agent):
        return Discrete(2)

    @property
    def state_space(self):
        return Box(0.0, 1.0, (4,), np.float32)

    def state(self):
        return self._coins.astype(np.float32)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents, self._time = list(self.possible_agents), 0
        return self._show(), {name: {} for name in self.agents}

    def _show(self):
        self._coins = self._rng.integers(2, size=4)
        return {name: np.eye(2, dtype=np.float32)[coin] for name, coin in zip(self.agents, self._coins, strict=True)}

    def step(self, actions):
        acting, self._time = self.agents, self._time + 1
        right = np.array([actions[name] for name in acting]) == self._coins
        lead = 0.5 * (int(right[:2].sum()) - int(right[2:].sum()))
        reward = {name: lead if name.startswith("a") else -lead for name in acting}
        over = dict.fromkeys(acting, self._time == 2)
        seen = self._show()
        if self._time == 2:
            self.agents = []
        return seen, reward, over, dict.fromkeys(acting, False), {name: {} for name in acting}
