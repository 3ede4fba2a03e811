"""What specs say of tables is what policies do."""

from __future__ import annotations

from typing import Any

import pytest

from ludus.algorithms.common.base import Algorithm, LearnerContext
from ludus.algorithms.common.registry import ALGORITHMS
from ludus.core.parts import build_part
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy
from ludus.policies.specs import actor_critic_spec, body_config, tabulates

BODY = body_config(hidden=(4,))
ORACLES: list[dict[str, Any]] = [
    *(
        {"kind": name}
        for name in ("a2c", "dqn", "iqn", "mmd", "nfsp", "ppo", "qr_dqn", "rainbow", "rnad", "sac_discrete")
    ),
    {"kind": "r2d2", "core": "gru"},
    {"kind": "ppo", "memory": "gru"},
    {"kind": "reinforce", "memory": "lstm"},
    {"kind": "dqn", "noisy": True},
    {"kind": "nfsp", "best_response": {"noisy": True}},
    {"kind": "tabular_q"},
]


@pytest.mark.parametrize("options", ORACLES, ids=str)
def test_of_what_learners_train(options: dict[str, Any]) -> None:
    env = make_env("openspiel/kuhn_poker", num_envs=2).spec
    assert env.enumeration is not None
    algorithm = build_part("algorithm", options, ALGORITHMS)
    assert isinstance(algorithm, Algorithm)
    spec = algorithm.policy(env, (0,))
    weights = algorithm.learner(LearnerContext(env=env, seats=(0,), seed=0)).weights()
    policy = build_policy(spec, weights)
    for mode in policy.modes:
        assert tabulates(spec, mode=mode) == (policy.tabulate(env.enumeration, 0, mode=mode) is not None), mode


@pytest.mark.parametrize(
    "action",
    [
        {"kind": "multi_categorical", "choices": [2, 2]},
        {"kind": "gaussian", "shape": [1], "low": [-1.0], "high": [1.0]},
        {"kind": "point", "shape": [1], "low": [-1.0], "high": [1.0]},
    ],
    ids=str,
)
def test_vectors_of_actions_have_no_table(action: dict[str, Any]) -> None:
    assert not tabulates(actor_critic_spec(shape=(3,), action=action, body=BODY), mode="greedy")
