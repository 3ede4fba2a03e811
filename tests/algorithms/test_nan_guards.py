"""Where a number is none, nothing moves, and weights of before are kept: on a CPU at once, on a device when it is read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.nfsp.config import NFSP
from ludus.algorithms.ppo.config import PPO
from ludus.algorithms.sac.config import SACDiscrete
from ludus.backend.device import gpu_count
from ludus.backend.network import ModuleAdam
from ludus.core.errors import TrainingError
from ludus.core.types import DeviceChoice
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.testing.algorithm import synthetic_rollout

SMALL = {"hidden": (8,), "learning_rate": 0.01}
SHELLS = {
    "on-policy": (PPO(epochs=3, minibatches=2, target_kl=0.5, **SMALL), "PPO update 4: the policy loss became NaN"),
    "replay": (DQN(min_size=1, batch=20, updates_per_decision=1.0, **SMALL), "DQN update 6: .* became NaN"),
    "actor and critics": (SACDiscrete(start_decisions=1, batch=20, **SMALL), "SACDiscrete update 6: .* became NaN"),
    "two networks": (NFSP(min_size=1, batch=20, **SMALL), "NFSP, step 6 of imitation: .* became NaN"),
}
"""One learner of each, and the error of a round whose first of three updates (on-policy: whose one) has a number that is none."""


def as_on_a_gpu(learner):
    """On this CPU by what is done elsewhere: steps by torch's kernel, of which none is looked at before a round ends."""
    model, guarded = getattr(learner, "model", None), getattr(learner, "_adam", None)
    if model is not None:
        model.placement = replace(model.placement, device="cpu:0")
    if guarded is not None:
        guarded.on_cpu = False
    for part in (model, guarded, *(getattr(learner, name, None) for name in ("actor", "critics"))):
        if part is not None:
            part.adam = ModuleAdam(part.adam.module, epsilon=part.adam._epsilon, fused=True)
    return learner


def batch_of(learner, env):
    policy = build_policy(learner.spec, learner.weights())
    rollout = synthetic_rollout(env, policy, seats=(0,), segments=30, rng=np.random.default_rng(3))
    columns = {name: column[:20] for name, column in learner.items(rollout)[-1][1].items()}
    return Sample(columns, np.arange(20), np.full(20, 0.05))


def round_of(learner, *batches):
    for name in ("_unread", "_due"):  # how many updates are to come
        if hasattr(learner, name):
            setattr(learner, name, len(batches))
    for batch in batches:
        learner.update(batch)


@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_moves_by_what_is_no_number(shell, tensors):
    (algorithm, message), ends = SHELLS[shell], []
    for backend in ("cpu", "as on a GPU", *["cuda"][: gpu_count()]):
        device = DeviceChoice("cuda" if backend == "cuda" else "cpu", written=False)
        learner = algorithm.learner(LearnerContext(tensors, (0,), 0, total=1000, device=device))
        if backend == "as on a GPU":
            as_on_a_gpu(learner)
        elif backend == "cpu" and shell in ("replay", "two networks"):  # which look at every update there
            message = message.replace("6", "[46]")
        good = batch_of(learner, tensors)
        round_of(learner, good, good, good)
        ends.append(learner.weights())
        broken = np.array(good.columns["observation"], np.float32)
        broken[-1] = np.nan
        bad = replace(good, columns={**good.columns, "observation": broken})
        with pytest.raises(TrainingError, match=message):
            round_of(learner, *([bad] if shell == "on-policy" else [bad, good, good]))
        assert all(ends[-1][name].tobytes() == array.tobytes() for name, array in learner.weights().items())
        round_of(learner, good)
        assert any(ends[-1][name].tobytes() != array.tobytes() for name, array in learner.weights().items())
    for other in ends[1:]:
        for name, array in ends[0].items():
            np.testing.assert_allclose(array, other[name], atol=1e-4, err_msg=name)
