"""Environments, rollouts and learned rewards that tests of learned rewards share."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Discrete

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.rewards.base import LearnedRewardOptions, LearnedRows
from ludus.core.types import CPU, AgentSpec, EnvSpec
from ludus.replay.trajectories import Trajectories


def alone(observation=None, action=None):
    """One agent, who sees two numbers and has two actions, unless said otherwise."""
    seen = Box(-np.inf, np.inf, (2,), np.float32) if observation is None else observation
    return EnvSpec(
        id="made up alone",
        agents=(AgentSpec("agent", 0, seen, Discrete(2) if action is None else action),),
        utility_range=((-np.inf, np.inf),),
        symmetry=((0,),),
    )


def context_of(env, *, seed=0, seats=(0,), device=CPU):
    return LearnerContext(env, seats, seed, total=1000, device=device)


def rows_of(observation, action, *, lengths, tail, bootstrap=None, reward=None, episode=None, mask=None):
    """Segments of so many rows; what follows each is zeros, if nothing is said."""
    observation, action = np.asarray(observation), np.asarray(action)
    many = len(lengths)
    empty = np.zeros((many, *observation.shape[1:]), observation.dtype)
    return Trajectories(
        start=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        observation=observation,
        action=action,
        logp=np.full(len(action), -0.5, np.float32),
        reward=np.zeros(len(action), np.float32) if reward is None else np.asarray(reward, np.float32),
        mask=mask,
        t=np.concatenate([np.arange(n) for n in lengths]).astype(np.int32),
        tail=np.array(tail, np.int8),
        bootstrap_observation=empty if bootstrap is None else np.asarray(bootstrap, observation.dtype),
        bootstrap_mask=None if mask is None else mask[:many],
        agent=np.zeros(many, np.int16),
        seat=np.zeros(many, np.int8),
        episode=np.arange(many) if episode is None else np.array(episode),
        version_lo=np.zeros(many, np.int32),
        version_hi=np.zeros(many, np.int32),
        policy="made up",
    )


class Told(LearnedRewardOptions):
    """Says rewards 1, 2, 3 … of rows; in a second stream, advantages 10, 20, 30 …. It counts rollouts, and asks for log-probabilities."""

    second: bool = False

    def build(self, context, placement, *, replayed, gamma):
        return ToldReward(self, replayed)


class ToldReward:
    def __init__(self, options, replayed):
        self.options, self.replayed, self.times, self.logp = options, replayed, 0, None

    def of(self, rows, game, log_prob=None):
        self.times += 1
        number = np.arange(1.0, rows.num_rows + 1)
        if log_prob is not None:
            self.logp = log_prob(rows.observation, rows.action, rows.mask)
        if self.options.second:
            return LearnedRows(game, self.options.extrinsic, 10.0 * number)
        return LearnedRows(self.options.extrinsic * game + self.options.coefficient * number)

    @property
    def metrics(self):
        return {"times": float(self.times)}

    def state_dict(self):
        return {"times": self.times}

    def load_state_dict(self, state):
        self.times = int(state["times"])
