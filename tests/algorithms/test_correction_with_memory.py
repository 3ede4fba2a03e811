"""V-trace of networks that remember, and of central critics: as decided one after the other, with unequal bounds, by the weights of now."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from made_up_teams import rollout_of, team_env

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.returns import vtrace
from ludus.algorithms.on_policy.config import A2C, IMPALA
from ludus.algorithms.ppo.config import MAPPO, PPO
from ludus.core.types import SegmentEnd
from ludus.policies.registry import build_policy
from ludus.testing.algorithm import synthetic_rollout

OPTIONS = {"hidden": (6,), "gamma": 0.9, "gae_lambda": 0.8, "normalise_advantages": False, "scale_rewards": False}
BOUNDS = {"correction": "vtrace", "rho_bar": 1.05, "c_bar": 0.8}


def shaken(weights, seed):
    rng = np.random.default_rng(seed)
    return {name: array + 0.4 * rng.standard_normal(array.shape).astype(np.float32) for name, array in weights.items()}


def acted(network, rows):
    """(log-probabilities of the actions, values, values of the tails) float64 of a network, decision by decision."""
    logp, value, tail = np.zeros(rows.num_rows), np.zeros(rows.num_rows), np.zeros(rows.num_segments)

    def look(observation, memory, state):
        with torch.no_grad():
            seen = None if state is None else torch.from_numpy(state)
            return network(torch.from_numpy(observation), memory, None, seen)

    for s in range(rows.num_segments):
        memory = None if rows.memory0 is None else torch.from_numpy(rows.memory0[s : s + 1])
        for t in range(rows.start[s], rows.start[s + 1]):
            state = None if rows.state is None else rows.state[t : t + 1]
            out, worth, memory = look(rows.observation[t : t + 1], memory, state)
            if rows.mask is not None:
                out = out.masked_fill(~torch.from_numpy(rows.mask[t : t + 1]), -torch.inf)
            logp[t], value[t] = float(torch.log_softmax(out, dim=1)[0, rows.action[t]]), float(worth)
        state = None if rows.bootstrap_state is None else rows.bootstrap_state[s : s + 1]
        tail[s] = (
            0.0
            if rows.tail[s] == SegmentEnd.TERMINATED
            else float(look(rows.bootstrap_observation[s : s + 1], memory, state)[1])
        )
    return logp, value, tail


@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
@pytest.mark.parametrize("kind", [A2C, IMPALA, PPO, MAPPO])
def test_rows_of_older_weights_are_corrected_as_they_were_decided(kind, memory, tensors):
    """Fragments that begin with a memory, made by other weights, in sequences of two decisions. What is learned from are V-trace's targets
    (whose numbers `test_returns.py` works by hand), of the values and log-probabilities that the weights of now give step by step."""
    env = team_env() if kind is MAPPO else tensors
    options = {**OPTIONS, **BOUNDS, "memory": memory, "memory_size": 4, "sequence": 2}
    options |= {"normalise_observations": kind is PPO} | ({"normalise_returns": False} if kind is MAPPO else {})
    algorithm = kind(**options, **({"team_rewards": False} if kind is MAPPO else {}))
    fresh = algorithm.learner(LearnerContext(env, (0,), 0))
    statistics = {name: array for name, array in fresh.weights().items() if name.startswith("normaliser")}
    learner, older = (
        algorithm.learner(LearnerContext(env, (0,), 0), shaken(fresh.weights(), seed) | statistics) for seed in (1, 2)
    )
    if kind is MAPPO:
        rows = rollout_of(older, env)
    else:
        policy = build_policy(older.spec, older.weights())
        rows = synthetic_rollout(env, policy, seats=(0,), segments=30, rng=np.random.default_rng(3))
    if memory != "none":
        rows.memory0[:] = np.random.default_rng(4).standard_normal(rows.memory0.shape)
    ((_, columns),) = learner.items(rows)
    batch = learner._batch(columns)
    logp, value, tail = acted(learner.model.module, rows)
    ratio = np.exp(logp - rows.logp)
    assert ratio.min() < 0.8 < 1.05 < ratio.max()
    expected = vtrace(rows.start, rows.reward, value, tail, logp - rows.logp, 0.9, 0.8, 1.05, 0.8)
    for name, column in zip(("target", "advantage", "logp", "value"), (*expected, logp, value), strict=True):
        np.testing.assert_allclose(getattr(batch, name), column, atol=3e-5, err_msg=name)


@pytest.mark.parametrize("kind", [A2C, PPO])
def test_the_critics_step_is_bounded_around_its_values_of_now(kind, tensors):
    """`clip_value` and the explained variance count from what the weights say that learn, not from those when the rows came."""
    learner = kind(**OPTIONS, **BOUNDS, clip_value=0.2).learner(LearnerContext(tensors, (0,), 0))
    policy = build_policy(learner.spec, learner.weights())
    rows = synthetic_rollout(tensors, policy, seats=(0,), segments=30, rng=np.random.default_rng(3))
    ((_, columns),) = learner.items(rows)
    later = kind(**OPTIONS, **BOUNDS).learner(LearnerContext(tensors, (0,), 0), shaken(learner.weights(), 1))
    value = later.items(rows)[0][1]["value"]
    assert np.abs(value - columns["value"]).max() > 0.1
    np.testing.assert_allclose(later._batch(columns).value, value, atol=1e-5)
