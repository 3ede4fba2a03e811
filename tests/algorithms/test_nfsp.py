"""Neural fictitious self-play: its policy's modes, what goes where, imitation, the contract, and that it learns."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ludus.algorithms.common import losses
from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.nfsp.config import NFSP
from ludus.algorithms.nfsp.kernels import imitation_loss
from ludus.core.errors import ConfigError, PolicyError, ScenarioError
from ludus.policies.registry import build_policy
from ludus.policies.specs import mode_keys, nfsp_spec, sample_modes, tabular_spec
from ludus.testing.algorithm import check_algorithm, synthetic_rollout

T = torch.tensor


def small(**options):
    response = DQN(rollout=40, min_size=50, hidden=(8,), batch=32, target_period=3, **options)
    return NFSP(best_response=response, anticipation=0.3, hidden=(8,), min_size=20, batch=16)


def test_imitation_terms_literal():
    """Three rows in one state, two of them of action 0, under (1/2, 1/2); the third action is not legal."""
    out, mask, gradient = np.zeros((1, 3)), np.array([[True, True, False]]), np.ones((1, 3))
    rows = np.zeros(3, np.int32), np.array([0, 0, 1], np.int32)
    assert imitation_loss(out, mask, *rows, gradient) == pytest.approx(np.log(2))
    np.testing.assert_allclose(gradient, [[0.5 - 2 / 3, 0.5 - 1 / 3, 0.0]])


def test_imitation_terms_are_the_cross_entropy_of_the_rows():
    rng = np.random.default_rng(1)
    mask = rng.random((6, 4)) < 0.6
    mask[:, 2] = True
    state = rng.integers(0, 6, 50).astype(np.int32)
    action = np.array([rng.choice(np.flatnonzero(mask[s])) for s in state], np.int32)
    given = rng.standard_normal((6, 4))
    out = T(given, requires_grad=True)
    index = T(state).long()
    loss = -losses.log_prob(out[index], T(action), T(mask)[index]).mean()
    loss.backward()
    gradient = np.empty((6, 4))
    assert imitation_loss(given, mask, state, action, gradient) == pytest.approx(loss.item(), abs=1e-12)
    np.testing.assert_allclose(gradient, out.grad.numpy(), atol=1e-12)


def test_modes_are_the_two_parts(enumerated):
    enumeration = enumerated.enumeration
    spec = tabular_spec(enumeration, (0, 1))
    tables = [np.where(enumeration.mask, rng.random((14, 3)), 0.0) for rng in map(np.random.default_rng, (0, 1))]
    first, second = (table / table.sum(1, keepdims=True) for table in tables)
    policy = build_policy(nfsp_spec(spec, spec), {"best_response/probs": first, "average/probs": second})
    for mode, expected in (("best_response", first), ("average", second), ("explore", second)):
        np.testing.assert_array_equal(policy.tabulate(enumeration, 1, mode=mode), expected[8:14])
    assert (policy.tabulate(enumeration, 1, mode="greedy").argmax(1) == second[8:14].argmax(1)).all()
    with pytest.raises(PolicyError, match="no mode 'worst'"):
        policy.tabulate(enumeration, 1, mode="worst")
    with pytest.raises(PolicyError, match="weights"):
        build_policy(nfsp_spec(spec, spec), {"average/probs": second})


@pytest.mark.parametrize(
    ("kind", "options"), [("tensors", {}), ("enumerated", {"priority_exponent": 0.6, "dueling": True})]
)
def test_nfsp_satisfies_algorithm_contract(kind, options, request):
    check_algorithm(small(**options), request.getfixturevalue(kind), seats=(0, 1), rounds=2)


@pytest.mark.parametrize("kind", ["enumerated", "tensors"])
def test_the_reservoir_gets_what_the_best_response_decided_and_replay_everything(kind, request):
    env = request.getfixturevalue(kind)
    algorithm = small()
    learner = algorithm.learner(LearnerContext(env, (0, 1), 7))
    policy = build_policy(learner.spec, learner.weights())
    rows = synthetic_rollout(env, policy, seats=(0, 1), segments=60, rng=np.random.default_rng(0))
    items = dict(learner.items(rows))
    assert len(items["replay"]["action"]) == rows.num_rows
    mode = sample_modes(mode_keys(7, 2)[rows.seat], rows.episode, algorithm.collect().modes)
    own = np.repeat(mode == 0, np.diff(rows.start))
    assert 0 < own.sum() < rows.num_rows
    for name in ("observation", "action", *(["mask"] if kind == "tensors" else [])):
        np.testing.assert_array_equal(items["reservoir"][name], getattr(rows, name)[own])


def test_the_best_response_plays_the_anticipated_share_of_the_episodes():
    collect = NFSP(anticipation=0.25).collect()
    assert collect.modes == (("best_response", 0.25), ("average", 0.75))
    mode = sample_modes(mode_keys(3, 1)[np.zeros(4000, np.int64)], np.arange(4000), collect.modes)
    assert (mode == 0).mean() == pytest.approx(0.25, abs=0.03)


def test_decisions_are_kept_in_a_ring_and_a_reservoir():
    """Where a uniform sample of all that came is kept (tests of replay); a ring would keep the newest."""
    specs = NFSP(reservoir=4, min_size=1).tables()
    assert [(spec.name, spec.kind) for spec in specs] == [("replay", "ring"), ("reservoir", "reservoir")]
    assert specs[1].capacity == 4


def test_a_reservoir_that_never_fills_enough_is_refused():
    with pytest.raises(ConfigError, match="min_size 1000 must be at most the reservoir's 999"):
        NFSP(reservoir=999)
    assert NFSP(reservoir=999, min_size=999).reservoir == 999


def test_several_ranks_are_refused(enumerated):
    ranks = type("Two", (), {"rank": 0, "size": 2})()
    with pytest.raises(ScenarioError, match="2 ranks"):
        NFSP().learner(replace(LearnerContext(enumerated, (0,), 0), ranks=ranks))


def test_nfsp_rejects_a_mismatched_learned_reward(tensors):
    with pytest.raises(ScenarioError, match=r"learned_reward\.network=nature sees images"):
        NFSP(best_response=DQN(learned_reward={"kind": "rnd", "network": "nature"})).check(tensors, (0,))
