"""What travels from environments and policies into the columns, and the memory that this takes."""

from __future__ import annotations

import gc
import tracemalloc
from typing import ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from rollout_streams import StreamEnv

from ludus.core.types import Mixture, PolicyOutput, PolicyRef, PolicySpec
from ludus.policies.registry import build_policy
from ludus.policies.specs import random_spec
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker, UniformStream

ME, OTHER = PolicyRef(0, "me", 1), PolicyRef(1, "other")


class Vectors:
    """Answers vectors of actions made of what it sees, and says of which type its observations were."""

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")
    noise_width = 1
    memory_shape = None
    takes_ids = False
    seen: ClassVar[set[str]] = set()

    def __init__(self, action: type, width: int) -> None:
        self.spec = PolicySpec("vectors", {"action": action.__name__, "width": width})
        self._action, self._width = action, width

    def act(self, observation, mask, memory, noise, *, mode="explore"):
        self.seen.add(str(observation.dtype))
        flat = observation.reshape(len(observation), -1)
        action = (flat[:, :1].astype(self._action) + np.arange(self._width) / 4).astype(self._action)
        return PolicyOutput(action, np.zeros(len(flat), np.float32))

    def tabulate(self, *args, **kwargs):
        return None

    def weights(self):
        return {}


def run(env: StreamEnv, policies: dict, *, amount: int = 12, seats=(0,)):
    worker = RolloutWorker(env, LocalBank(env.spec, env.num_envs))
    worker.bank.load(list(policies.items()))
    mixture = Mixture.product(
        {p: ([OTHER], [1.0]) for p in range(env.spec.num_players) if p not in seats[:1] or len(seats) > 1}
    )
    return worker.run(RolloutRequest(ME, seats, mixture, "decisions", amount, seed=0))


@pytest.mark.parametrize("seats", [(0,), (0, 1)])
def test_images_stay_bytes_and_continuous_actions_floats(seats):
    Vectors.seen.clear()
    box = Box(-1, 1, (3,), np.float32)
    env = StreamEnv(["dde", "d.E", "ddde"], players=2, actions=(box,), shape=(2, 4, 4), dtype=np.uint8)
    got = run(env, {ME: Vectors(np.float32, 3), OTHER: Vectors(np.float32, 3)}, seats=seats).trajectories
    assert Vectors.seen == {"uint8"}
    assert got.observation.dtype == got.bootstrap_observation.dtype == np.uint8
    assert got.observation.shape[1:] == got.bootstrap_observation.shape[1:] == (2, 4, 4)
    assert got.action.dtype == np.float32
    assert got.action.tolist() == [[e, e + 0.25, e + 0.5] for e in got.observation[:, 0, 0, 0].tolist()]
    assert all(action.shape[1:] == (3,) for _, _, actions in env.given for action in actions)


def test_vectors_of_choices_stay_integers():
    env = StreamEnv(["dde", "d.E"], actions=(MultiDiscrete([5, 5]),))
    got = run(env, {ME: Vectors(np.int32, 2)}).trajectories
    assert got.action.dtype == np.int32
    assert got.action.tolist() == [[int(e)] * 2 for e in got.observation[:, 0]]


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (Box(-1, 1, (3, 2)), (0, 3, 2), np.float32),
        (MultiDiscrete([5, 5]), (0, 2), np.int32),
        (Discrete(4), (0,), np.int32),
    ],
)
def test_a_player_with_nothing_to_decide_gives_no_actions_of_its_kind(space, shape, dtype):
    class Alone(StreamEnv):
        """Player 1 never has to act."""

        def _advance(self):
            timestep = super()._advance()
            none = timestep.due[1]
            empty = type(none)(none.slot[:0], none.observation[:0], None, none.reward[:0], none.first[:0])
            closed = timestep.ended[1]
            nobody = type(closed)(closed.slot[:0], closed.reward[:0], closed.terminated[:0], closed.observation[:0])
            return type(timestep)((timestep.due[0], empty), (timestep.ended[0], nobody), timestep.finished)

    env = Alone(["dde"], players=2, actions=(Discrete(2), space))
    run(env, {ME: build_policy(random_spec(Discrete(2)), {}), OTHER: build_policy(random_spec(space), {})})
    assert {(actions[1].shape, actions[1].dtype) for _, _, actions in env.given} == {(shape, np.dtype(dtype))}


def test_random_play_of_every_space():
    for space in (Box(-2, 3, (2, 2)), MultiDiscrete([3, 7]), Discrete(5)):
        env = StreamEnv(["dde", "d.E"], actions=(space,))
        got = run(env, {ME: build_policy(random_spec(space), {})}, amount=50).trajectories
        assert all(space.contains(action.astype(space.dtype)) for action in got.action)


def test_noise_in_blocks_is_the_stream_one_by_one():
    whole = np.random.default_rng(3).random(30_000, dtype=np.float32)
    noise = UniformStream()
    for _ in range(2):
        noise.restart(np.random.default_rng(3))
        at = 0
        for rows, width in [(1, 1), (64, 1), (4000, 1), (64, 3), (1, 7), (9000, 1), (5, 2), (9001, 1), (3, 1)]:
            got = noise.take(rows, width)
            assert got.shape == (rows, width)
            assert np.array_equal(got.ravel(), whole[at : at + rows * width])
            at += rows * width


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["decisions", pytest.param("episodes", marks=pytest.mark.slow)])
def test_many_requests_take_no_more_memory_than_a_few(unit):
    env = StreamEnv(["dde", "d.E", "ddddde"] * 4, players=2)
    policies = [(ref, build_policy(random_spec(Discrete(2)), {})) for ref in (ME, OTHER)]
    worker = RolloutWorker(env, LocalBank(env.spec, env.num_envs))
    mixture = Mixture.product({1: ([OTHER], [1.0])})

    def play(requests: int) -> int:
        for k in range(requests):
            worker.play(
                RolloutRequest(ME, (0,), mixture, unit, 20, seed=k, carry_on=unit == "decisions" and k > 0), policies
            )
            env.given.clear()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        few = play(3)
        buffers = [
            id(array) for columns in (worker._writer._rows, worker._writer._segments) for array in columns.values()
        ]
        many = play(30)
    finally:
        tracemalloc.stop()
    assert many - few < 16_384
    assert buffers == [
        id(array) for columns in (worker._writer._rows, worker._writer._segments) for array in columns.values()
    ]
