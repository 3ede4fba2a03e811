"""Where learners compute; and that inside an update none reads a number back from its device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from made_up_teams import rollout_of, team_env
from torch import nn

from ludus.core import device
from ludus.core.device import Work, parse_device, placed
from ludus.core.errors import ConfigError
from ludus.core.types import DeviceChoice
from ludus.learners.base import LearnerContext
from ludus.learners.dqn.options import DQN, IQN, MunchausenDQN, Rainbow
from ludus.learners.mmd.options import RNaD
from ludus.learners.network import FlatModule
from ludus.learners.on_policy.options import A2C, IMPALA, Reinforce
from ludus.learners.optimizer import ModuleAdam
from ludus.learners.ppo.options import MAPPO, PPO
from ludus.learners.r2d2.options import R2D2
from ludus.replay.base import Sample

# ------------------------------------------------------------------ which device, and which road

SMALL, LARGE = Work(5_000, 750, written=True), Work(2_000_000, 2_048, written=False, because="it sees images")


@pytest.mark.parametrize(
    ("choice", "work", "cards", "expected"),
    [
        (DeviceChoice("auto"), SMALL, 0, "cpu (passes written out): there is no card"),
        (DeviceChoice("auto"), LARGE, 0, "cpu (torch): there is no card; it sees images"),
        (
            DeviceChoice("auto"),
            SMALL,
            1,
            "cpu (passes written out): 4e+06 multiplications a step are too few for a card",
        ),
        (DeviceChoice("auto"), LARGE, 1, "cuda:0 (torch): 4e+09 multiplications a step"),
        (DeviceChoice("cuda"), SMALL, 2, "cuda:0 (torch): as asked for"),
        (DeviceChoice("cuda:1"), SMALL, 2, "cuda:1 (torch): as asked for"),
        (DeviceChoice("cpu", written=False), SMALL, 2, "cpu (torch): as asked for"),
    ],
)
def test_one_function_decides(monkeypatch, choice, work, cards, expected):
    monkeypatch.setattr(device, "cards", lambda: cards)
    assert str(placed(choice, work)).startswith(expected)


@pytest.mark.parametrize(
    ("choice", "cards", "message"),
    [
        (DeviceChoice("cuda"), 0, "was built for CPUs only. Install one"),
        (DeviceChoice("cuda:1"), 1, "there is one card, cuda:0. Name"),
        (DeviceChoice("cuda:4"), 3, "there are 3 cards, cuda:0 to cuda:2. Name"),
        (DeviceChoice("cpu", precision="tf32"), 0, "precision is tf32, which is a card's"),
    ],
)
def test_what_is_not_there_is_refused(monkeypatch, choice, cards, message):
    monkeypatch.setattr(device, "cards", lambda: cards)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(ConfigError, match=message):
        placed(choice, LARGE)


@pytest.mark.parametrize("name", ["mps", "rocm:0", "cuda:", "CPU", "", "gpu"])
def test_names_that_are_no_devices(name):
    with pytest.raises(ConfigError, match="expected auto, cpu, cuda"):
        parse_device(name)


# ------------------------------------------------------------------ what updates are made of


def test_the_fused_optimizer_is_the_compiled_one_and_steps_over_what_is_no_number():
    torch.manual_seed(0)
    modules = [nn.Linear(5, 3), nn.Linear(5, 3)]
    modules[1].load_state_dict(modules[0].state_dict())
    here, there = map(FlatModule, modules)
    compiled, fused = ModuleAdam(here), ModuleAdam(there, fused=True)
    for step in range(4):
        here.slopes.copy_(torch.randn(18) if step != 2 else torch.full((18,), torch.nan))
        there.slopes.copy_(here.slopes)
        held = torch.tensor(step == 1)
        norms = [adam.step(rate=0.01, max_norm=0.5, held=held) for adam in (compiled, fused)]
        np.testing.assert_allclose(*norms, rtol=1e-6)
    torch.testing.assert_close(here.values, there.values)
    kept = fused.state_dict()
    assert kept["steps"] == compiled.state_dict()["steps"] == 2
    np.testing.assert_allclose(kept["m"], compiled.state_dict()["m"], rtol=1e-5)
    ModuleAdam(there, fused=True).load_state_dict(compiled.state_dict())


# ------------------------------------------------------------------ no number is read back

SPACES = {"discrete": Discrete(3), "multi": MultiDiscrete([2, 3]), "box": Box(-1, 1, (2,), np.float32)}
LEARNERS = {
    "reinforce": (Reinforce(batch=20), "discrete"),
    "a2c": (A2C(batch=20, normalise_observations=True), "multi"),
    "impala": (IMPALA(batch=20, memory="lstm", memory_size=4, sequence=2), "discrete"),
    "ppo": (PPO(batch=20, epochs=2, minibatches=2, memory="gru", memory_size=4, target_kl=0.1), "discrete"),
    "mappo": (MAPPO(batch=20, epochs=1), "discrete"),
    "dqn": (DQN(hidden=(8,), dueling=True), "discrete"),
    "dqn-by-agent": (MunchausenDQN(hidden=(8,), share_weights=False), "discrete"),
    "rainbow": (Rainbow(hidden=(8,), atoms=5), "discrete"),
    "iqn": (IQN(hidden=(8,), atoms=4), "discrete"),
    "r2d2": (R2D2(hidden=(8,), memory=4, length=3, period=3, burn_in=2), "discrete"),
    "ppo, a perceptron": (PPO(batch=20, epochs=2, target_kl=0.1), "discrete"),
    "rnad": (RNaD(batch=20, epochs=2, announce="magnet"), "discrete"),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_an_update_reads_nothing_back(name):
    """Where tensors have no numbers, whatever wants one raises."""
    algorithm, space = LEARNERS[name]
    env = team_env(action=SPACES[space])
    rows = rollout_of(algorithm.learner(LearnerContext(env, (0,), 1)), env)
    learner = algorithm.learner(LearnerContext(env, (0,), 1, device=DeviceChoice("meta")))
    assert learner.placement.device == "meta"
    (_, items), *_ = learner.items(rows)
    index = np.arange(len(next(iter(items.values()))))
    metrics = learner.update(Sample(items, index, np.ones(len(index))))
    assert set(metrics) >= {"loss", "gradient_norm"}
    assert learner.state_dict()["adam"]["m"].any() == False  # noqa: E712  zeros, of the right size


def test_bf16_multiplies_so_and_keeps_parameters_in_float32():
    env = team_env()
    told = {}
    for precision in ("float32", "bf16"):
        learner = A2C(batch=20).learner(LearnerContext(env, (0,), 1, device=DeviceChoice("cpu", precision)))
        (_, items), *_ = learner.items(rollout_of(learner, env))
        told[precision] = learner.update(Sample(items, np.arange(len(items["action"])), np.ones(len(items["action"]))))
        assert {array.dtype for array in learner.weights().values()} == {np.dtype(np.float32)}
    assert told["bf16"]["loss"] != told["float32"]["loss"]
    assert told["bf16"]["loss"] == pytest.approx(told["float32"]["loss"], abs=0.02)
