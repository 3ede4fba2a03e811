"""Tiny Gymnasium tasks, and a driver's loop for one learner alone in an environment."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from ludus.algorithms.common.base import LearnerContext, updated_priorities
from ludus.core.types import Mixture, PolicyRef
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy
from ludus.replay.kinds import build_table
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker


class Cue(gymnasium.Env):
    """A cue of ±1 is seen at first, nothing for `delay` steps, and then a bell: the choice made at it is right (1) or wrong (0)."""

    def __init__(self, delay=20):
        self.observation_space = Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = Discrete(2)
        self._delay = delay

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._cue, self._t = int(self.np_random.integers(2)), 0
        return np.array([2 * self._cue - 1, 0], np.float32), {}

    def step(self, action):
        self._t += 1
        over = self._t > self._delay
        reward = float(over and action == self._cue)
        return np.array([0, self._t == self._delay], np.float32), reward, over, False, {}


class Spot(gymnasium.Env):
    """An image of one bright square in one of four corners, in noise; the action that names the corner is right."""

    def __init__(self):
        self.observation_space = Box(0, 255, (1, 36, 36), np.uint8)
        self.action_space = Discrete(4)

    def _look(self):
        self._corner = int(self.np_random.integers(4))
        image = self.np_random.integers(0, 64, (1, 36, 36), dtype=np.uint8)
        y, x = 18 * (self._corner // 2), 18 * (self._corner % 2)
        image[0, y + 6 : y + 12, x + 6 : x + 12] = 255
        return image

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._t = 0
        return self._look(), {}

    def step(self, action):
        self._t += 1
        reward = float(action == self._corner)
        return self._look(), reward, self._t == 8, False, {}


class Reach(gymnasium.Env):
    """A point on a plane is moved by at most 0.2 in each direction, 16 times; it costs its distance from the middle, which is 0.77 at
    first on average."""

    def __init__(self):
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = Box(-0.2, 0.2, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._at, self._t = self.np_random.uniform(-1, 1, 2), 0
        return self._at.astype(np.float32), {}

    def step(self, action):
        self._at, self._t = self._at + np.clip(action, -0.2, 0.2), self._t + 1
        return self._at.astype(np.float32), -float(np.linalg.norm(self._at)), False, self._t == 16, {}


def train(algorithm, env, *, num_envs, decisions, seed=0, mode="greedy", episodes=100, **options):
    """(mean return of `episodes` episodes of the final weights, the learner)."""
    vector = make_env(env, num_envs=num_envs, **options)
    algorithm.check(vector.spec)
    worker, collect = RolloutWorker(vector, LocalBank(vector.spec, num_envs)), algorithm.collect()
    total = decisions if collect.unit == "decisions" else None
    learner = algorithm.learner(LearnerContext(vector.spec, (0,), seed, total=total))
    tables = {spec.name: build_table(spec) for spec in algorithm.tables()}
    rng, done, k = np.random.default_rng(seed), 0, 0
    while done < decisions:
        ref = PolicyRef(0, "learner", k)
        goes_on = k > 0 and collect.unit == "decisions"
        request = RolloutRequest(
            ref, (0,), Mixture(()), collect.unit, collect.amount, seed=1000 * seed + k, carry_on=goes_on
        )
        rollout = worker.play(request, [(ref, build_policy(learner.spec, learner.weights()))])
        done, k = done + rollout.trajectories.num_rows, k + 1
        for name, items in learner.items(rollout.trajectories):
            assert tables[name].try_insert(items)
        for name, count in learner.batches():
            batch = tables[name].try_sample(count, rng)
            if batch is not None:
                learner.update(batch)
                for table, index, priority in updated_priorities(learner):
                    tables[table].update_priorities(index, priority)
    ref = PolicyRef(0, "learner", k, mode)
    request = RolloutRequest(ref, (0,), Mixture(()), "episodes", episodes, seed=77)
    returns = worker.play(request, [(ref, build_policy(learner.spec, learner.weights()))]).episodes.returns[:, 0]
    worker.close()
    return float(returns.mean()), learner
