"""Behaviour cloning's parts by hand: which decisions are learned from, as what, in which order, and what is said of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from test_behaviour_cloning import THREE, game, made_up, sides
from torch import nn

from ludus.algorithms.common.information_states import InformationStates
from ludus.algorithms.on_policy.config import A2C, OnPolicy
from ludus.algorithms.ppo.config import PPO
from ludus.contrib.algorithms.bc.clone import Cloning, _Training, clone
from ludus.contrib.algorithms.bc.demonstrations import Demonstrations, demonstrations, split
from ludus.contrib.algorithms.bc.models import model_of
from ludus.core.types import CPU, EnvSpec
from ludus.policies.actor_critic_policy import ActorCriticPolicy
from ludus.policies.categorical import CategoricalPolicy
from ludus.policies.registry import build_policy
from ludus.replay.parquet import Recorded

# ------------------------------------------------------------------------------------------ which decisions


def test_segments_of_several_policies_follow_each_other() -> None:
    """Two episodes of two decisions each; the second policy's begin behind the first one's."""
    rng = np.random.default_rng(0)
    first, second = (
        made_up(rng.random((4, 2), np.float32), np.array(a, np.int32), length=2) for a in ([0, 1, 0, 0], [2, 1, 1, 2])
    )
    other = replace(second.trajectories[0], policy="novice", episode=np.array([7, 8]))
    found, seats = demonstrations(Recorded(first.origin, (first.trajectories[0], other)), THREE)
    assert seats == (0,)
    assert found.start.tolist() == [0, 2, 4, 6, 8]
    assert found.episode.tolist() == [0, 1, 7, 8]
    assert found.action[found.rows(np.array([2, 0]))].tolist() == [2, 1, 0, 1]
    one, _ = demonstrations(Recorded(first.origin, (first.trajectories[0], other)), THREE, policies=["novice"])
    assert one.action.tolist() == [2, 1, 1, 2]


def test_decisions_of_other_players_are_left_out() -> None:
    recorded = made_up(np.zeros((6, 2), np.float32), np.array([0, 1, 2, 0, 1, 2], np.int32), length=2)
    two = replace(recorded.trajectories[0], seat=np.array([0, 1, 0], np.int8))
    env = replace(THREE, agents=(*THREE.agents, replace(THREE.agents[0], name="two", player=1)))
    env = replace(env, utility_range=((-1, 1),) * 2, symmetry=((0, 1),))
    both = Recorded(replace(recorded.origin, seats=(0, 1)), (two,))
    assert demonstrations(both, env)[0].action.tolist() == [0, 1, 2, 0, 1, 2]
    assert demonstrations(both, env, players=[1])[0].action.tolist() == [2, 0]


def test_states_of_a_second_player_are_its_own(enumerated: EnvSpec) -> None:
    """Its ids begin at 8."""
    assert enumerated.enumeration is not None
    found = Demonstrations(
        observation=np.array([13, 8, 10], np.int32),
        action=np.zeros(3, np.int32),
        mask=None,
        logp=np.zeros(3, np.float32),
        start=np.array([0, 3]),
        episode=np.array([0]),
        tail=np.zeros(1, np.int8),
        bootstrap_observation=np.full(1, -1, np.int32),
        states=InformationStates.of(enumerated.enumeration, (1,)),
    )
    model = model_of(PPO(hidden=(4,)).policy(enumerated, (1,)), seed=0)
    x, _, mask = found.tensors(np.array([0, 1, 2]), model, torch.device("cpu"))
    assert mask is not None
    np.testing.assert_array_equal(x, enumerated.enumeration.observation[[13, 8, 10]])
    np.testing.assert_array_equal(mask, enumerated.enumeration.mask[[13, 8, 10]])


# ------------------------------------------------------------------------------------------ what is said of them


def test_the_floor_is_the_surprise_of_those_who_acted() -> None:
    """Of the decisions that are held out, by the log-probabilities that were recorded."""
    recorded = sides(100)
    recorded.trajectories[0].logp[:] = np.log(np.random.default_rng(3).uniform(0.2, 0.9, 100))
    found, _ = demonstrations(recorded, THREE)
    rows = found.rows(split(found, share=0.2, seed=4)[1])
    made = clone(recorded, THREE, PPO(hidden=(4,)).policy, Cloning(epochs=1, held_out=0.2), seed=4)
    assert made.decisions == (80, 20)
    assert made.floor == pytest.approx(-recorded.trajectories[0].logp[rows].mean(), rel=1e-6)


def still(algorithm: Any, recorded: Recorded, **options: Any) -> _Training:
    """Training at a rate that moves nothing."""
    model = model_of(algorithm.policy(THREE, (0,)), seed=1)
    return _Training(model, Cloning(learning_rate=1e-15, **options), demonstrations(recorded, THREE)[0], CPU)


def test_every_decision_counts_alike_in_the_mean_of_an_epoch() -> None:
    """Batches of 64 and 6."""
    rng, segments = np.random.default_rng(0), np.arange(70)
    training = still(A2C(hidden=(16,), activation="relu"), sides(70), batch=64)
    with torch.no_grad():
        for parameter in training._model.module.parameters():
            parameter += 0.5 * torch.from_numpy(rng.standard_normal(parameter.shape).astype(np.float32))
    expected = training.scores(segments)[0]
    assert [training.epoch(segments, seed=seed) for seed in range(2)] == pytest.approx([expected] * 2, rel=1e-5)


def test_whole_segments_make_a_batch() -> None:
    """Segments of 2, 3, no, 4 and 6 decisions, in batches of about six: those of 6; of 2 and 4; and of 3 decisions. Each starts anew."""
    recorded = made_up(np.zeros((15, 2), np.float32), np.zeros(15, np.int32), length=3)
    training = still(A2C(hidden=(4,), memory="gru"), recorded, batch=6)
    training._demos = replace(training._demos, start=np.array([0, 2, 5, 5, 9, 15]))
    parts = list(training._sequences(np.array([4, 2, 0, 3, 1]), 6))
    assert [rows.tolist() for rows, _ in parts] == [[9, 10, 11, 12, 13, 14], [0, 1, 5, 6, 7, 8], [2, 3, 4]]
    assert [start.tolist() for _, start in parts] == [[0, 6], [0, 2, 6], [0, 3]]


def test_decisions_are_shuffled_anew_in_every_epoch() -> None:
    training, rng = still(PPO(hidden=(4,)), sides(64), batch=16), np.random.default_rng(0)
    orders = [np.concatenate([rows for rows, _ in training._batches(np.arange(64), rng)]) for _ in range(2)]
    assert [np.sort(order).tolist() for order in orders] == [list(range(64))] * 2
    assert len({tuple(order) for order in (*orders, np.arange(64))}) == 3


def test_the_order_of_an_epoch_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """And that of the seed."""
    drawn: list[int] = []
    monkeypatch.setattr(_Training, "epoch", lambda self, segments, *, seed: float(drawn.append(seed) or 0))
    for seed in (1, 1, 2):
        clone(sides(20), THREE, PPO(hidden=(4,)).policy, Cloning(epochs=3, held_out=0), seed=seed)
    assert drawn[:3] == drawn[3:6]
    assert len(set(drawn)) == 6


def test_dropout_draws_from_the_seed_of_its_epoch() -> None:
    """And from nobody's stream."""
    losses = []
    for state, seed in ((1, 7), (2, 7), (2, 8)):
        training = still(PPO(hidden=(16,)), sides(64), batch=64)
        training._model.module.register_forward_pre_hook(
            lambda module, args: tuple(torch.nn.functional.dropout(x, 0.5, module.training) for x in args)
        )
        torch.manual_seed(state)
        before = torch.random.get_rng_state()
        losses.append(training.epoch(np.arange(64), seed=seed))
        assert torch.equal(torch.random.get_rng_state(), before)
        assert training.scores(np.arange(64)) == training.scores(np.arange(64))
    assert losses[0] == losses[1] != losses[2]


def test_every_step_is_of_its_own_batch() -> None:
    """With batches of one, the last step's gradient is that of the last decision."""
    training = still(PPO(hidden=(4,)), sides(3), batch=1)
    training.epoch(np.arange(3), seed=0)
    found, order = training._parameters.gradient.copy(), np.random.default_rng(0).permutation(3)
    training.epoch(order[2:], seed=0)
    assert np.abs(found).max() > 0.01
    np.testing.assert_allclose(training._parameters.gradient, found, rtol=1e-5, atol=1e-8)


def test_the_rate_is_the_one_that_is_given() -> None:
    """Adam's first step moves what moves by its rate."""
    start = clone(sides(32), THREE, PPO(hidden=(4,)).policy, Cloning(epochs=1, held_out=0, learning_rate=1e-15)).weights
    ends = clone(sides(32), THREE, PPO(hidden=(4,)).policy, Cloning(epochs=1, held_out=0, learning_rate=0.02)).weights
    assert max(np.abs(ends[name] - start[name]).max() for name in start) == pytest.approx(0.02, rel=0.01)


# ------------------------------------------------------------------------------------------ models


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("value", ["shared", "separate"])
def test_a_perceptron_is_trained_as_it_plays(activation: str, value: str) -> None:
    """What is trained answers what the policy with its weights does; what makes values of it stays as it was."""
    policy, rng = PPO(hidden=(16, 8), activation=activation, value_network=value).policy, np.random.default_rng(0)
    spec = policy(THREE, (0,))
    fresh = model_of(spec, seed=0).weights()
    start = {name: array + 0.3 * rng.standard_normal(array.shape).astype(np.float32) for name, array in fresh.items()}
    x = rng.standard_normal((9, 2)).astype(np.float32)
    with torch.no_grad():
        outputs = model_of(spec, seed=0, start=start).outputs(torch.from_numpy(x), np.arange(10))
    np.testing.assert_allclose(outputs, ActorCriticPolicy(spec, start).evaluate(x).out[:, :3], atol=1e-5)
    ends = clone(sides(64), THREE, policy, Cloning(epochs=1, held_out=0), start=start).weights
    for name, array in start.items():
        assert np.array_equal(array, ends[name]) == name.startswith(("value", "critic")), name


class Bytes(OnPolicy):
    """An algorithm of one's own, with one layer."""

    def networks(self, inputs: int, actions: int) -> dict[str, nn.Module]:
        return {"policy": nn.Linear(inputs, actions)}


@pytest.mark.parametrize(("shape", "most"), [((2,), 255), ((1, 3, 2), 255), ((1, 3, 2), 1)])
@pytest.mark.parametrize("algorithm", [PPO(hidden=(4,)), A2C(hidden=(4,)), Bytes()])
def test_bytes_are_seen_as_the_policy_sees_them_when_it_acts(algorithm: Any, shape: tuple[int, ...], most: int) -> None:
    """Vectors, images, and zeros and ones, that go into perceptrons: the written out, the family's and one's own."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, most + 1, (40, *shape)).astype(np.uint8)
    seen = Box(0, most, shape, np.uint8)
    recorded = made_up(x, rng.integers(0, 3, 40).astype(np.int32))
    recorded = Recorded(replace(recorded.origin, observation=seen), recorded.trajectories)
    made = clone(recorded, game(seen, Discrete(3)), algorithm.policy, Cloning(epochs=1))
    policy = build_policy(made.spec, made.weights)
    assert isinstance(policy, CategoricalPolicy)
    probs = policy.probabilities(x, np.ones((40, 3), np.bool_), mode="explore")[0]
    model = model_of(made.spec, seed=0, start=made.weights)
    with torch.no_grad():
        outputs = model.outputs(torch.from_numpy(model.rows(x)), np.arange(41))
    np.testing.assert_allclose(outputs.softmax(dim=1), probs, atol=1e-5)


def test_statistics_that_it_starts_with_stay() -> None:
    """The network was trained with them."""
    policy = PPO(hidden=(4,), normalise_observations=True).policy
    first = clone(sides(200), THREE, policy, Cloning(epochs=1))
    second = clone(sides(100, seed=5), THREE, policy, Cloning(epochs=1), start=first.weights)
    fresh = clone(sides(100, seed=5), THREE, policy, Cloning(epochs=1))
    for name in ("normaliser.mean", "normaliser.var", "normaliser.count"):
        assert np.array_equal(first.weights[name], second.weights[name])
        assert not np.array_equal(first.weights[name], fresh.weights[name])
    assert math.isfinite(second.best.held)
