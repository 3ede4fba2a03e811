"""Masks of actions that are several numbers at once: literal ones, in every adapter that takes them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from masked_choices import Bits, Lock, Locks, Pair, Told, legal

import ludus
from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.ppo.config import PPO
from ludus.core.errors import ConfigError, EnvError, PolicyError
from ludus.core.seeding import keys
from ludus.core.types import Timestep
from ludus.envs import wrappers as w
from ludus.envs.adapters.agent_seats import Sides
from ludus.envs.adapters.native import native_env
from ludus.envs.adapters.pettingzoo_vector import zoo_vector
from ludus.envs.adapters.single import single_env
from ludus.envs.base import VectorEnv
from ludus.envs.registry import make_env
from ludus.envs.spaces import Choices, one_agent
from ludus.evaluation.policies import incompatibility
from ludus.policies.registry import build_policy
from ludus.policies.specs import random_spec
from ludus.rollout.bot_players import LegalMoves
from ludus.testing.env import check_env

SEEDS = keys(1, "locks", count=2)


def locks(n: int, kind: str = "flat", restarts: int = 0) -> VectorEnv:
    return single_env(lambda: Lock(kind), n, id="lock", restarts=restarts)


# ------------------------------------------------------------------------------------------ what a mask says


def choices_of(space: Any) -> Choices:
    found = Choices.of(space)
    assert found is not None
    return found


def test_the_numbers_of_an_action_lie_side_by_side() -> None:
    choices = choices_of(MultiDiscrete([3, 2]))
    assert (choices.counts.tolist(), choices.starts.tolist(), choices.width) == ([3, 2], [0, 3], 5)
    mask = np.array([[1, 0, 1, 0, 1], [0, 1, 0, 0, 0], [0, 0, 0, 1, 1]], bool)
    assert choices.possible(mask).tolist() == [True, False, False]
    assert choices.legal(mask, np.array([[2, 1], [1, 0], [0, 1]])).tolist() == [
        [True, True],
        [True, False],
        [False, True],
    ]
    assert choices.first(mask).tolist() == [[0, 1], [1, 0], [0, 0]]
    assert choices.values(mask[0]) == [[0, 2], [1]]


def test_a_mask_may_come_in_parts_and_parts_of_other_lengths_are_none() -> None:
    choices = choices_of(MultiDiscrete([3, 2]))
    for mask in (
        np.array([1, 0, 1, 0, 1]),
        [1, 0, 1, 0, 1],
        (np.array([1, 0, 1]), np.array([0, 1])),
        [[1, 0, 1], [0, 1]],
    ):
        assert choices.flat(mask).tolist() == [1, 0, 1, 0, 1]
        assert not choices.says_nothing(mask)
    wrong: dict[str, Any] = {
        r"^a mask \(\[0, 1\], \[1, 0, 1\]\); it has numbers with \[3, 2\] values, concatenated$": ([0, 1], [1, 0, 1]),
        "^a mask .*None.*; it has numbers": ([1, 0, 1], None),
        r"^a mask of shape \(2, 3\); it has numbers": np.ones((2, 3)),
        "^a mask 1; it has numbers": 1,
    }
    for message, mask in wrong.items():
        with pytest.raises(ValueError, match=message):
            choices.flat(mask)
        assert not choices.says_nothing(mask)  # it says something that is wrong
    for mask in ([], (), np.zeros(5), [1, 1, 1, 0, 0], ([0, 0, 0], [1, 1])):
        assert choices.says_nothing(mask)


def test_choices_of_spaces() -> None:
    assert choices_of(Discrete(4)).counts.tolist() == [4]
    assert choices_of(MultiBinary(3)).counts.tolist() == [2, 2, 2]
    assert choices_of(MultiDiscrete([[2, 3], [4, 5]])).counts.tolist() == [2, 3, 4, 5]
    assert Choices.of(Box(0, 1, (2,))) is None


# ------------------------------------------------------------------------------------------ adapters

VECTORS: dict[str, Callable[[int], VectorEnv]] = {
    "flat": locks,
    "parts": lambda n: locks(n, "parts"),
    "bits": lambda n: single_env(Bits, n, id="bits"),
    "restarts": lambda n: locks(n, restarts=1),
    "pettingzoo": lambda n: zoo_vector(Pair, n, id="pair", sides=Sides()),
    "pettingzoo, parts": lambda n: zoo_vector(Told, n, id="told", sides=Sides()),
    "wrapped": lambda n: w.mask_actions(locks(n), "test_choice_masks:second_is_1"),
}


def second_is_1(observation: np.ndarray) -> np.ndarray:
    return np.tile([True, True, True, False, True], (len(observation), 1))


@pytest.mark.parametrize("name", VECTORS)
def test_masked_choices_satisfy_vector_env_contract(name: str) -> None:
    check_env(VECTORS[name], num_envs=3, steps=20)


def plays_locks(env: VectorEnv) -> Timestep:
    """The end of two locks' first episodes, after the masks of every step were looked at."""
    timestep = env.reset(SEEDS)
    for t in range(4):
        mask = timestep.due[0].mask
        assert mask is not None
        assert mask.tolist() == [[bool(a) for part in legal(t) for a in part]] * 2
        timestep = env.step((np.array([[(t + 1) % 3, 1]] * 2),))
    final = timestep.ended[0].mask  # step 4: the first may not be 1
    assert final is not None
    assert final.tolist() == [[True, False, True, True, True]] * 2
    return timestep


@pytest.mark.parametrize("kind", ["flat", "parts"])
def test_masks_are_those_of_the_environment(kind: str) -> None:
    assert plays_locks(locks(2, kind)).finished.returns.tolist() == [[4.0], [4.0]]


@pytest.mark.slow
def test_masks_come_from_subprocesses_too() -> None:
    env = make_env("masked_choices:Lock", num_envs=2, workers=1)
    plays_locks(env)
    with pytest.raises(EnvError, match=r"illegal action \[0 0\] in row 0; legal: \[\[1, 2\], \[0, 1\]\]"):
        env.step((np.array([[0, 0], [0, 0]]),))
    env.close()


def test_an_illegal_number_is_refused_by_name() -> None:
    env = locks(2)
    env.reset(SEEDS)
    with pytest.raises(EnvError, match=r"illegal action \[0 1\] in row 1; legal: \[\[1, 2\], \[0, 1\]\]"):
        env.step((np.array([[1, 0], [0, 1]]),))


def test_native_vectors_take_legal_actions_for_those_that_rest() -> None:
    env = native_env(Locks(), id="locks")
    timestep = env.reset(SEEDS)
    for _ in range(9):
        (due,) = timestep.due
        assert due.mask is not None
        timestep = env.step((choices_of(env.spec.agents[0].action).first(due.mask),))


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_native_vectors_take_masks_in_parts(mode: AutoresetMode) -> None:
    made = [lambda: Lock("parts")] * 2
    plays_locks(native_env(SyncVectorEnv(made, autoreset_mode=mode), id="locks"))


def play_one(env: VectorEnv) -> None:
    env.reset(SEEDS[:1])
    env.step((np.array([[1, 1]]),))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("none of the second", "a mask without a legal action"),
        ("one too few", r"a mask of shape \(4,\); it has numbers with \[3, 2\] values, concatenated"),
    ],
)
def test_masks_that_are_none(kind: str, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        play_one(locks(1, kind))


def test_a_list_cannot_say_which_of_several_numbers_it_means() -> None:
    with pytest.raises(
        ConfigError, match=r"allowed=\[1\] was given for actions of 2 numbers; a function .* bool\[n, 5\]"
    ):
        w.mask_actions(locks(1), [1])


# ------------------------------------------------------------------------------------------ policies and learners


def test_random_play_is_uniform_over_what_is_legal() -> None:
    policy = build_policy(random_spec(MultiDiscrete([3, 2])), {})
    mask = np.tile([False, True, True, False, True], (4, 1))
    noise = np.array([[0.0, 0.9], [0.49, 0.0], [0.51, 0.5], [0.99, 0.1]], np.float32)
    act = policy.act(np.zeros((4, 1), np.float32), mask, None, noise)
    assert act.action.tolist() == [[1, 1], [1, 1], [2, 1], [2, 1]]
    np.testing.assert_allclose(act.logp, [np.log(0.5)] * 4, rtol=1e-6)


@pytest.mark.parametrize("space", [MultiDiscrete([3, 2]), MultiBinary(3), Discrete(4), Box(-1, 1, (2,))], ids=str)
def test_policies_of_all_actions_fit(space: Any) -> None:
    """They are asked once with a mask as wide as the action's choices."""
    spec = one_agent("made up", Box(0, 1, (3,), np.float32), space)
    for made in (random_spec(space), PPO().policy(spec, (0,))):
        weights = {} if made.kind == "random" else PPO().learner(LearnerContext(spec, (0,), 0)).weights()
        assert incompatibility(build_policy(made, weights), spec, 0, "explore") == ""


def test_a_bot_is_held_to_the_mask_of_its_only_number() -> None:
    spec = one_agent("made up", Box(0, 1, (3,), np.float32), MultiDiscrete([5]))
    moves, mask = LegalMoves(spec, 0), np.array([[1, 0, 0, 1, 0]], np.bool_)
    assert moves.checked([np.array([3])], mask, ["stubborn"]).tolist() == [[3]]
    with pytest.raises(PolicyError, match=r"'stubborn' answered .*3.* as player 0; legal are \[\[0\]\]"):
        moves.checked([np.array([3])], mask & (np.arange(5) < 3), ["stubborn"])


@pytest.mark.parametrize("memory", ["none", pytest.param("gru", marks=pytest.mark.slow)])
def test_learning_keeps_to_masks(memory: str, tmp_path: Path) -> None:
    """An illegal action raises. Random play is paid in a quarter of the even steps and in half of the odd ones: 1.5 of 4."""
    short: dict[str, Any] = {"batch_unit": "decisions", "gamma": 0.0, "gae_lambda": 0.0}  # each step is paid for itself
    short |= {"minibatches": 1, "activation": "relu", "value_network": "shared", "clip": 0.3, "max_gradient_norm": 0.2}
    learner = PPO(batch=256, epochs=4, learning_rate=0.01, entropy=0.03, memory=memory, **short)
    env = {"id": "masked_choices:Lock", "num_envs": 8}
    limits: dict[str, Any] = {
        "generations": 1,
        "response": {"decisions": 4_000},
        "meta_solver": "last",
        "mode": "explore",
        "seed": 0,
    }
    ludus.run(ludus.PSRO(env=env, algorithm=learner, **limits), run_dir=tmp_path, report=False)
    names = [f"@0/0-{k}" for k in range(2)]
    first, last = (ludus.evaluate_run(tmp_path, episodes=100, policies=[name]).matches[0].mean[0] for name in names)
    assert first == pytest.approx(1.5, abs=0.3)
    assert last >= 3.8
