"""NFSP's average policy: when its steps are due, how far they go, and what becomes of one that fails."""

import numpy as np
import pytest

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.nfsp.config import NFSP
from ludus.core.errors import TrainingError
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.testing.algorithm import synthetic_rollout


def collected(env, *, total=None, start=None, **options):
    """A learner that was given 60 segments, what went to its reservoir, and how many decisions there were."""
    algorithm = NFSP(
        best_response=DQN(rollout=40, min_size=100_000, hidden=(8,)), anticipation=0.3, hidden=(8,), **options
    )
    learner = algorithm.learner(LearnerContext(env, (0, 1), 7, total=total), start)
    policy = build_policy(learner.spec, learner.weights())
    rows = synthetic_rollout(env, policy, seats=(0, 1), segments=60, rng=np.random.default_rng(0))
    columns = dict(learner.items(rows))["reservoir"]
    size = len(columns["action"])
    return learner, Sample(columns, np.arange(size), np.ones(size)), rows.num_rows


def average(learner):
    return learner.state_dict()["average"]


@pytest.mark.parametrize("kind", ["enumerated", "tensors"])
def test_steps_are_due_by_the_decisions_once_the_reservoir_has_enough(kind, request):
    env = request.getfixturevalue(kind)
    _, batch, decisions = collected(env)
    kept, steps = len(batch.index), int(0.1 * decisions)
    assert kept < decisions
    assert steps > 2
    options = {"updates_per_decision": 0.1, "batch": 16}
    assert not collected(env, min_size=kept + 1, **options)[0].batches()
    learner, batch, _ = collected(env, min_size=kept, **options)
    assert learner.batches() == [("reservoir", 16)] * steps
    learner.update(batch)
    assert learner.batches() == [("reservoir", 16)] * (steps - 1)


@pytest.mark.parametrize(("total", "rate"), [(None, 0.01), (1, 0.0)])
def test_the_rate_follows_its_schedule(total, rate, enumerated):
    """Adam's first step goes as far as its rate, in every weight that counts."""
    learner, batch, _ = collected(enumerated, total=total, learning_rate={"start": 0.01, "end": 0.0})
    before = average(learner)
    metrics = learner.update(batch)
    assert metrics["imitation_learning_rate"] == rate
    assert np.abs(average(learner) - before).max() == pytest.approx(rate, rel=0.05)


def test_the_gradient_is_scaled_down_to_its_bound(tensors):
    """Adam's first moment after a step is a tenth of the gradient."""
    norms = []
    for bound in (0.0, 0.001):
        learner, batch, _ = collected(tensors, max_gradient_norm=bound)
        norms.append(learner.update(batch)["imitation_gradient_norm"])
        expected = 0.1 * (norms[0] if bound == 0 else bound)
        assert np.linalg.norm(learner.state_dict()["adam"]["m"]) == pytest.approx(expected, rel=1e-3)
    assert norms[0] == norms[1] > 0.01


def test_a_step_to_infinity_is_not_made(enumerated):
    """The last layer's biases, which end the parameters, are alike and as low as can be: policies are what they were, and a step further
    down leaves float32."""
    learner, batch, _ = collected(enumerated, learning_rate=3e38)
    state = learner.state_dict()
    state["average"][-3:] = -3e38
    learner.load_state_dict(state)
    before, batches = learner.state_dict(), learner.batches()
    with pytest.raises(TrainingError, match="NFSP, step 1 of imitation: the weights became NaN or infinite"):
        learner.update(batch)
    after = learner.state_dict()
    np.testing.assert_array_equal(after["average"], before["average"])
    np.testing.assert_array_equal(after["adam"]["m"], before["adam"]["m"])
    assert learner.batches() == batches


def test_a_warm_start_takes_both_parts(enumerated):
    first, batch, _ = collected(enumerated, learning_rate=0.05)
    fresh = first.weights()
    first.update(batch)
    weights = first.weights()
    assert any(np.abs(array - fresh[name]).max() > 0.01 for name, array in weights.items())
    second, _, _ = collected(enumerated, start=weights)
    for name, array in second.weights().items():
        if name in weights and "epsilon" not in name:
            np.testing.assert_array_equal(array, weights[name], err_msg=name)
