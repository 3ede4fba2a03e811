"""Whole steps that a GPU repeats as CUDA graphs: what a graph would do, done by a fake that runs a step again in the same memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from pydantic import PrivateAttr
from test_devices import Case, assert_learn_alike, taught

from ludus.algorithms.ppo.config import PPO
from ludus.backend import device
from ludus.backend.device import Graphs
from ludus.core.errors import TrainingError
from ludus.core.types import DeviceChoice
from ludus.testing.cuda_graphs import FakeGraphs

TORCH = DeviceChoice("cpu", written=False)
CPU = torch.device("cpu")


@pytest.fixture
def kept(monkeypatch):
    """How often each graph ran."""
    fake = FakeGraphs()
    monkeypatch.setattr(device, "captured", fake.capture)
    monkeypatch.setattr(device, "repeats", lambda place: True)
    return fake.runs


@pytest.mark.parametrize(
    "name", ["ppo", "a2c, of many", "dqn", "dqn, states, double", "rainbow", "iqn", "sac", "sac, states", "ddpg, twin"]
)
def test_steps_that_are_kept_learn_alike(name, request, kept, monkeypatch):
    """With rates that fall, targets that follow, and numbers that are read in between."""
    case = Case(name, request)
    repeated = case.learner(TORCH)
    monkeypatch.setattr(device, "repeats", lambda place: False)
    plain = case.learner(TORCH)
    assert (plain.placement.graphs, repeated.placement.graphs.failed) == (None, "")
    assert_learn_alike(case, plain, repeated, updates=6, sizes=2)
    assert not repeated.placement.graphs.failed
    assert sum(kept) > 1


def test_an_update_of_two_turns_is_two_graphs(request, kept):
    """TD3's actor moves in every second update."""
    case = Case("td3", request)
    learner = case.learner(TORCH)
    for number in range(8):
        taught(learner, case.experience(learner, 0))
        assert len(kept) == sum(number >= first for first in (4, 5))
    assert kept == [2, 2]


@pytest.mark.parametrize("name", ["ppo, by agent", "vmpo", "happo", "mpo"])
def test_steps_that_know_more_than_they_are_given_are_not_kept(name, request, kept):
    case = Case(name, request)
    learner = case.learner(TORCH)
    for _ in range(4):
        taught(learner, case.experience(learner, 0))
    assert kept == []


class OwnLoss(PPO):
    """One that keeps a coefficient."""

    _times: float = PrivateAttr(default=0.0)

    def surrogate(self, logp, batch):
        self._times += 1.0
        return self._times * super().surrogate(logp, batch)


def test_a_loss_of_ones_own_is_not_kept(request, kept):
    case = Case("ppo", request)
    for cls, graphs in ((PPO, True), (OwnLoss, False)):
        case.algorithm = cls(batch=8, hidden=(4,), epochs=3)
        learner = case.learner(TORCH)
        for _ in range(3):
            taught(learner, case.experience(learner, 0))
        assert bool(kept) == graphs
        kept.clear()


@dataclass(frozen=True, slots=True)
class Pair:
    one: torch.Tensor
    other: torch.Tensor | None


class Adds:
    """A step that keeps a sum."""

    def __init__(self):
        self.total, self.graphs = torch.zeros(()), Graphs()
        self.step = self.graphs.of(Adds.add, CPU)

    def add(self, pair, factor, name):
        if name == "wrong":
            raise ValueError("no\n\nmore")
        self.total += factor * pair.one.sum() + (0.0 if pair.other is None else pair.other.sum())
        return (self.total.clone(), {"name": self.total * 2.0})


def test_numbers_change_and_forms_have_a_graph_each(kept):
    adds, wanted = Adds(), 0.0
    for number in range(5):
        for rows in (2, 3):
            wanted += (0.5 + number) * rows
            total, told = adds.step(adds, Pair(torch.ones(rows), None), 0.5 + number, "a")
            assert (float(total), float(told["name"])) == (wanted, 2 * wanted)
    assert kept == [3, 3]
    adds.step(adds, Pair(torch.ones(2), torch.ones(1)), 1.0, "a")  # a third form, which runs as it is at first
    adds.step(adds, Pair(torch.ones(2), None), 1.0, "b")
    assert (kept, float(adds.total)) == ([3, 3], wanted + 5.0)
    assert adds.graphs.failed == ""


def test_the_forms_that_came_last_are_kept(kept):
    """Of more, none comes often enough before it must go."""
    adds = Adds()
    for _ in range(4):
        for rows in range(1, 12):
            adds.step(adds, Pair(torch.ones(rows), None), 1.0, "a")
    assert (kept, float(adds.total)) == ([], 4 * 66.0)
    for _ in range(4):
        adds.step(adds, Pair(torch.ones(30), None), 1.0, "a")
    assert (kept, float(adds.total)) == ([2], 4 * 66.0 + 120.0)


def test_a_true_one_is_no_number_one(kept):
    graphs = Graphs()
    step = graphs.of(lambda x, which: x.sum() + (100 if which is True else which), CPU)
    for _ in range(4):
        assert [float(step(torch.ones(2), which)) for which in (1, True, 2)] == [3.0, 102.0, 4.0]


def test_failed_graph_capture_runs_eagerly_with_reason(kept, monkeypatch):
    adds = Adds()

    def fails(step, place, pool):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(device, "captured", fails)
    for _ in range(4):
        adds.step(adds, Pair(torch.ones(2), None), 1.0, "a")
    assert float(adds.total) == 8.0
    assert adds.graphs.failed == "operation not permitted when stream is capturing more"
    with pytest.raises(ValueError, match="no"):
        adds.step(adds, Pair(torch.ones(2), None), 1.0, "wrong")


def test_numbers_in_memory_are_refused(kept):
    """They would stay what they were."""
    for given in (np.zeros(2), np.float32(2)):
        with pytest.raises(TypeError, match="a graph takes nothing from memory, and was given a "):
            Graphs().of(lambda given: given, CPU)(given)


@pytest.mark.parametrize("name", ["ppo", "dqn", "sac"])
def test_nonfinite_step_in_a_graph_changes_nothing(name, request, kept):
    """As without graphs: all is as it was, and learning goes on."""
    case = Case(name, request)
    learner = case.learner(TORCH)
    rows = case.experience(learner, 0)
    for _ in range(4):
        taught(learner, rows)
    assert sum(kept)
    before = learner.state_dict()
    rows.reward[:] = np.nan
    with pytest.raises(TrainingError, match="NaN"):
        taught(learner, rows)
    after = case.learner(TORCH)
    after.load_state_dict(before)
    if name == "ppo":  # whose weights go back; those of others do after a round
        for mine, kept_then in zip(learner.weights().values(), after.weights().values(), strict=True):
            np.testing.assert_array_equal(mine, kept_then)


@pytest.mark.parametrize("minibatches", [1, 2, 3])
def test_an_update_of_many_steps_is_one_graph(minibatches, request, kept, monkeypatch):
    """Also of minibatches, of unequal sizes."""
    case = Case("ppo", request)
    case.algorithm = PPO(batch=8, hidden=(4,), epochs=3, minibatches=minibatches, learning_rate=0.01)
    learner = case.learner(TORCH)
    monkeypatch.setattr(device, "repeats", lambda place: False)
    plain = case.learner(TORCH)
    rows = case.experience(plain, 0)
    for _ in range(4):
        assert taught(learner, rows) == pytest.approx(taught(plain, rows), rel=2e-3, abs=2e-5)
    assert kept == [2], "two updates as they are, and two by the graph"
    for name, array in learner.weights().items():
        np.testing.assert_allclose(array, plain.weights()[name], rtol=2e-3, atol=2e-5, err_msg=name)
