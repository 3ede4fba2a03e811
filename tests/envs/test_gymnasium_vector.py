"""Native vectors: what their autoreset modes become, literally; the contract; faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from vector_games import Counting

from ludus.core.errors import EnvError
from ludus.core.seeding import keys
from ludus.core.types import Timestep
from ludus.envs.adapters.native import AsyncNativeVectorEnv, Native, batch_writer, joint_seed, native_env
from ludus.envs.base import VectorEnv
from ludus.envs.spaces import one_agent
from ludus.testing.env import check_env

NEXT, SAME, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
MODES = (NEXT, SAME, DISABLED)
SEEDS = keys(1, "vector", count=2)


def counting(lengths: tuple[int, ...], mode: AutoresetMode, **options: Any) -> VectorEnv:
    return native_env(Counting(lengths, mode, **options), id="counting")


def do(env: VectorEnv, timestep: Timestep, action: int = 1) -> Timestep:
    return env.step((np.full(len(timestep.due[0].slot), action),))


def told(timestep: Timestep) -> dict[str, Any]:
    due, ended = timestep.due[0], timestep.ended[0]
    return {
        "due": due.slot.tolist(),
        "seen": due.observation.tolist(),
        "paid": due.reward.tolist(),
        "first": due.first.tolist(),
        "ended": ended.slot.tolist(),
        "final": ended.observation.tolist(),
        "last": ended.reward.tolist(),
        "terminated": ended.terminated.tolist(),
        "finished": timestep.finished.environment.tolist(),
        "returns": timestep.finished.returns.tolist(),
        "length": timestep.finished.length.tolist(),
    }


ENDS_0 = {
    "ended": [0],
    "final": [[0, 2]],
    "last": [2],
    "terminated": [True],
    "finished": [0],
    "returns": [[4]],
    "length": [2],
}
ENDS_1 = {
    "ended": [1],
    "final": [[0, 3]],
    "last": [2],
    "terminated": [False],
    "finished": [1],
    "returns": [[6]],
    "length": [3],
}


@pytest.mark.parametrize("mode", MODES)
def test_ends_in_each_mode(mode: AutoresetMode) -> None:
    """Environment 0 ends after 2 steps, environment 1 after 3; each step pays 1 + 1."""
    env = counting((2, 3), mode)
    timestep = env.reset(SEEDS)
    assert told(timestep)["seen"] == [[0, 0], [0, 0]]
    assert told(timestep)["first"] == [True, True]
    second = do(env, do(env, timestep))
    if mode is NEXT:  # who ended lists nothing for a step
        assert told(second) == {**ENDS_0, "due": [1], "seen": [[0, 2]], "paid": [2], "first": [False]}
        third = do(env, second)
        assert told(third) == {**ENDS_1, "due": [0], "seen": [[1, 0]], "paid": [0], "first": [True]}
        assert told(do(env, third))["due"] == [0, 1]
    else:
        again = {"due": [0, 1], "seen": [[1, 0], [0, 2]], "paid": [0, 2], "first": [True, False]}
        assert told(second) == {**ENDS_0, **again}
        again = {"due": [0, 1], "seen": [[1, 1], [1, 0]], "paid": [2, 0], "first": [False, True]}
        assert told(do(env, second)) == {**ENDS_1, **again}


@pytest.mark.parametrize("mode", MODES)
def test_somebody_is_always_due(mode: AutoresetMode) -> None:
    """Both end at once: their next episodes begin in the same timestep, whatever the mode."""
    env = counting((1, 1), mode)
    timestep = do(env, env.reset(SEEDS))
    assert timestep.ended[0].observation.tolist() == [[0, 1], [0, 1]]
    assert timestep.ended[0].reward.tolist() == [2, 2]
    assert timestep.due[0].observation.tolist() == [[1, 0], [1, 0]]
    assert timestep.due[0].first.all()
    assert do(env, timestep).finished.length.tolist() == [1, 1]


@pytest.mark.parametrize("mode", MODES)
def test_quota(mode: AutoresetMode) -> None:
    env = counting((2, 3), mode)
    timestep = env.reset(SEEDS, episodes=np.array([0, 2]))
    played = []
    while len(timestep.due[0].slot):
        assert timestep.due[0].slot.tolist() == [1]
        timestep = do(env, timestep)
        played += timestep.finished.returns[:, 0].tolist()
    assert played == [6, 6]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_gymnasium_vectors_satisfy_vector_env_contract(mode: AutoresetMode, masked: bool) -> None:
    check_env(lambda n: counting((2, 3, 5)[:n], mode, masked=masked), num_envs=3, steps=30)


@pytest.mark.parametrize("mode", MODES)
def test_masks_of_final_observations(mode: AutoresetMode) -> None:
    env = counting((2, 3), mode, masked=True)
    timestep = do(env, do(env, env.reset(SEEDS), 2), 2)
    mask, final = timestep.due[0].mask, timestep.ended[0].mask
    assert mask is not None
    assert final is not None
    assert final.tolist() == [[True, True, False]]  # after 2 steps action 2 is illegal
    assert mask[-1].tolist() == [True, True, False]
    with pytest.raises(EnvError, match=r"illegal action 2 in row [01]; legal: \[0, 1\]"):
        do(env, timestep, 2)


@pytest.mark.parametrize("mode", MODES)
def test_gymnasiums_own_vector_with_masks(mode: AutoresetMode) -> None:
    def make(n: int) -> VectorEnv:
        builders = [lambda: gymnasium.make("Taxi-v4", max_episode_steps=5)] * n
        return native_env(SyncVectorEnv(builders, autoreset_mode=mode), id="taxi")

    check_env(make, num_envs=3, steps=15)


class Forgetful(gymnasium.Env[Any, Any]):
    """Cut off after 3 steps. After step t only action t % 3 is legal, which is told at the start and where t is not `silent`."""

    observation_space, action_space = Box(0, 9, (1,), np.float32), Discrete(3)

    def __init__(self, silent: int) -> None:
        self.silent, self.t = silent, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.t = 0
        return np.zeros(1, np.float32), {"action_mask": np.arange(3) == 0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        info = {} if self.t == self.silent else {"action_mask": np.arange(3) == self.t % 3}
        return np.full(1, self.t, np.float32), 0.0, False, self.t == 3, info


@pytest.mark.parametrize("silent", [(1, 2), (2, 2), (3, 9), (3, 3)])
@pytest.mark.parametrize("mode", MODES)
def test_who_is_told_no_mask_may_do_anything(mode: AutoresetMode, silent: tuple[int, int]) -> None:
    """As in single environments: neither an earlier step's mask nor none at all, whether the others are told one or not."""
    builders = [lambda t=t: Forgetful(t) for t in silent]
    env = native_env(SyncVectorEnv(builders, autoreset_mode=mode), id="forgetful")

    def expected(slot: Any, seen: Any) -> list[list[bool]]:
        times = zip(slot.tolist(), seen[:, 0].astype(int).tolist(), strict=True)
        return [[t == silent[e] or a == t % 3 for a in range(3)] for e, t in times]

    timestep = env.reset(SEEDS)
    for _ in range(7):
        due, ended = timestep.due[0], timestep.ended[0]
        assert due.mask is not None
        assert ended.mask is not None
        assert due.mask.tolist() == expected(due.slot, due.observation)
        assert ended.mask.tolist() == expected(ended.slot, ended.observation)
        timestep = env.step((due.mask.argmax(axis=1),))


class OneAtATime:
    """Two environments, of which the first answers three times in a row: in its episode, cut off, in the next one."""

    def __init__(self) -> None:
        self.answers = iter([0, 1, 2])

    def recv(self) -> tuple[Any, ...]:
        t = next(self.answers)
        info = {"env_id": np.array([0]), "mask": [np.arange(3) == t]}
        return np.full((1, 1), t, np.float32), np.zeros(1), np.array([False]), np.array([t == 1]), info


def test_a_final_mask_stays_when_the_next_episode_is_waited_for() -> None:
    seen, acts = Box(0, 9, (1,), np.float32), Discrete(3)

    def start(_: Any) -> tuple[Any, Any, Any]:
        pool = OneAtATime()
        first, *_, info = pool.recv()
        return pool, first, info

    spec = one_agent("turns", seen, acts)
    native = Native(spec, 2, seen, acts, NEXT, start, mask=lambda _, info: info["mask"])
    env = AsyncNativeVectorEnv(native, send=lambda *_: None)
    timestep = do(env, env.reset(SEEDS), 0)
    due, ended = timestep.due[0], timestep.ended[0]
    assert ended.observation.tolist() == [[1]]
    assert ended.mask is not None
    assert ended.mask.tolist() == [[False, True, False]]
    assert due.observation.tolist() == [[2]]
    assert due.mask is not None
    assert due.mask.tolist() == [[False, False, True]]


def test_agrees_with_a_plain_loop() -> None:
    """CartPole of 3: every reward, observation and end, against the vector itself, stepped by hand."""
    bare = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="vector_entry_point")
    env = native_env(gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="vector_entry_point"), id="cartpole")
    rng, seeds = np.random.default_rng(0), keys(2, "loop", count=3)
    seen, _ = bare.reset(seed=joint_seed(seeds))
    timestep = env.reset(seeds)
    resting, ends = np.zeros(3, bool), 0
    for _ in range(200):
        playing = np.flatnonzero(~resting)
        acted = rng.integers(0, 2, 3)
        assert timestep.due[0].slot.tolist() == playing.tolist()
        np.testing.assert_array_equal(timestep.due[0].observation, seen[playing])
        timestep = env.step((acted[playing],))
        seen, reward, terminated, truncated, _ = bare.step(acted)
        over = (terminated | truncated) & ~resting
        assert timestep.ended[0].slot.tolist() == np.flatnonzero(over).tolist()
        np.testing.assert_array_equal(timestep.ended[0].observation, seen[over])
        np.testing.assert_array_equal(timestep.ended[0].reward, reward[over])
        if over[playing].all() and not resting.any():
            seen, *_ = bare.step(acted)
            over[:] = False
            ends += 1
        resting = over
        ends += int(over.sum())
    assert ends > 5


# ------------------------------------------------------------------------------------------ faults


def spoiled(spoil: Callable[[list[Any]], None], mode: AutoresetMode) -> VectorEnv:
    """Its second step gives what `spoil` makes of observations, reward, terminated, truncated and info."""

    class Spoiled(Counting):
        steps = 0

        def step(self, actions: Any) -> Any:
            reply = list(super().step(actions))
            self.steps += 1
            if self.steps == 2:
                spoil(reply)
            return tuple(reply)

    return native_env(Spoiled((2, 3), mode), id="spoiled")


def put(index: int, value: Any) -> Callable[[list[Any]], None]:
    return lambda reply: reply.__setitem__(index, value)


def raises(reply: list[Any]) -> None:
    raise RuntimeError("out of fuel")


FAULTS: dict[str, tuple[Callable[[list[Any]], None], str]] = {
    "raises": (
        raises,
        "spoiled raised RuntimeError: out of fuel; a vector of 2, seeds from .*, environment 0 in episode 0, step 2",
    ),
    "reward": (put(1, np.array([1, np.nan])), "'agent' the reward nan; .* environment 1 of 2, .* step 2"),
    "rewards": (put(1, np.zeros(3)), r"gave rewards of shape \(3,\); expected \(2,\)"),
    "words": (put(2, np.array(["no", "yes"])), r"gave terminated of type <U3; expected truth values"),
    "nothing": (put(1, np.array([None, 1.0])), r"gave rewards of type object; expected numbers"),
    "shape": (
        put(0, np.zeros((2, 3))),
        r"observations that are not in its space: they are of shape \(2, 3\); expected \(2, 2\)",
    ),
    "nan": (put(0, np.array([[0, 0], [np.nan, 0]])), "an observation that is not finite; .* environment 1 of 2"),
    "no finals": (put(4, {}), 'without info\\["final_obs"\\]'),
    "finals": (
        put(4, {"final_obs": np.array([np.zeros(5), None], object)}),
        "a final observation that is not in its space",
    ),
    "nan final": (
        put(4, {"final_obs": np.full((2, 2), np.nan)}),
        "an observation that is not finite; .* environment 0 of 2",
    ),
}


@pytest.mark.parametrize(
    ("fault", "mode"),
    [(fault, mode) for fault in FAULTS for mode in (SAME, NEXT) if mode is SAME or "final" not in fault],
)
def test_a_fault_is_one_clear_error(fault: str, mode: AutoresetMode) -> None:
    spoil, sentence = FAULTS[fault]
    env = spoiled(spoil, mode)
    timestep = do(env, env.reset(SEEDS))
    with pytest.raises(EnvError, match=sentence):
        do(env, timestep)


def test_a_vector_must_say_its_mode() -> None:
    vector = Counting((2, 3), SAME)
    vector.metadata = {}
    with pytest.raises(EnvError, match="does not say when it restarts"):
        native_env(vector, id="silent")


def test_wrong_actions_are_refused() -> None:
    env = counting((2, 3), SAME)
    with pytest.raises(EnvError, match="step was called before reset"):
        env.step((np.zeros(2, np.int64),))
    env.reset(SEEDS)
    with pytest.raises(EnvError, match="given 1 actions for 2 due decisions"):
        env.step((np.zeros(1, np.int64),))
    with pytest.raises(EnvError, match="illegal action 3 in row 1; legal: 0 to 2"):
        env.step((np.array([0, 3]),))


@pytest.mark.parametrize("shown", [0.75, -1.0, 300.0])
def test_numbers_that_an_integer_space_lacks_are_refused(shown: float) -> None:
    """Assigned, they would be 0, 255 and 44."""
    out = np.zeros((1, 2), np.uint8)
    write = batch_writer(Box(0, 255, (2,), np.uint8), what="it")
    write(np.full((1, 2), 7.0), out)
    assert out.tolist() == [[7, 7]]
    with pytest.raises(ValueError, match="numbers that are no uint8"):
        write(np.full((1, 2), shown), out)
