"""Wrappers keep the contract, and their numbers are right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from python_games import Turns, spec
from wrapped_games import SEEDS, Screen, Wrap, acts, goofspiel, poker, screens, teams, three, turns

from ludus.core.errors import ConfigError, EnvError
from ludus.core.types import AgentSpec, EnvSpec
from ludus.envs import wrappers as w
from ludus.envs.base import VectorEnv
from ludus.envs.python_vector import EnvStepResult, PythonVectorEnv
from ludus.envs.registry import make_env
from ludus.testing.env import check_env

# ------------------------------------------------------------------------------------------ the contract

WRAPS: dict[str, Wrap] = {
    "stack": lambda env: w.frame_stack(env, 3),
    "stack zeros": lambda env: w.frame_stack(env, 2, pad="zeros", players=[0]),
    "flat stack": lambda env: w.flatten_observation(w.frame_stack(env, 2)),
    "scale": lambda env: w.scale_reward(env, -0.5),
    "clip": lambda env: w.clip_reward(env, -0.5, 1.5),
    "sign": w.sign_reward,
    "mask": lambda env: w.mask_actions(env, [0, 1]),
}


@pytest.mark.parametrize(
    ("name", "make"),
    [
        *((name, teams) for name in ("stack", "clip", "mask")),
        *((name, turns) for name in ("stack zeros", "scale")),
        *((name, poker) for name in ("stack zeros", "mask")),
        *((name, goofspiel) for name in ("flat stack", "sign")),
    ],
)
def test_wrappers_satisfy_vector_env_contract(make: Callable[[int], VectorEnv], name: str) -> None:
    check_env(lambda n: WRAPS[name](make(n)), num_envs=3, steps=20, team="split", early_rewards=True)


@pytest.mark.parametrize(
    ("make", "wrap"),
    [
        (screens, lambda env: w.frame_stack(w.resize(w.grayscale(env), 2, 3), 4)),
        (screens, lambda env: w.channels_first(w.frame_stack(env, 2))),
        (screens, lambda env: w.flatten_observation(w.resize(env, 2, 2))),
        (screens, lambda env: w.frame_stack(w.scale_observation(env), 2)),
        (screens, lambda env: w.time_limit(env, 2)),
        (turns, lambda env: w.frame_stack(w.time_limit(env, 3), 2)),
        (teams, lambda env: w.time_limit(env, 3)),
        (teams, lambda env: w.agent_ids(env)),
        (teams, lambda env: w.joint_state(env)),
        (turns, lambda env: w.frame_stack(w.joint_state(w.group_players(env, {"*": 0})), 2)),
        (screens, lambda env: w.joint_state(env)),
        (goofspiel, lambda env: w.joint_state(env, players=[1])),
        (teams, lambda env: w.agent_ids(w.group_players(env, {"agent_*": 0}))),
        (turns, lambda env: w.group_players(env, {"agent_1": 1, "*": 0})),
        (turns, lambda env: w.group_players(env, {"*": 0})),
        (three, lambda env: w.group_players(env, {"*_1": 1, "*": 0})),
        (goofspiel, lambda env: w.group_players(env, {"*": 0})),
        (poker, lambda env: w.time_limit(w.mask_actions(env, [0, 1, 2]), 3)),
    ],
)
def test_combined_wrappers_satisfy_vector_env_contract(make: Callable[[int], VectorEnv], wrap: Wrap) -> None:
    if make is poker:
        with pytest.raises(ConfigError, match="cannot end an episode early"):
            wrap(make(2))
        return
    check_env(lambda n: wrap(make(n)), num_envs=3, steps=20, team="split", early_rewards=True)


@pytest.mark.parametrize("name", ["scale", "clip", "sign"])
def test_reward_wrappers_take_compiled_games(name: str) -> None:
    check_env(lambda n: WRAPS[name](make_env("openspiel/kuhn_poker", num_envs=n)), num_envs=3, steps=20)


# ------------------------------------------------------------------------------------------ observations


def test_stacks_begin_with_copies_and_end_with_the_final_observation() -> None:
    env = w.frame_stack(turns(1), 3)
    timestep = env.reset(SEEDS[:1])
    seen = [timestep.due[0].observation[0, :, 0].tolist()]
    final = None
    for _ in range(5):
        timestep = acts(env, timestep)
        seen += [due.observation[0, :, 0].tolist() for due in timestep.due if len(due.slot)]
        final = timestep.ended
    # Player 0 sees steps 0, 2, 4, player 1 steps 1, 3; the final observation is 9; then the next episode begins.
    assert seen == [[0, 0, 0], [1, 1, 1], [0, 0, 2], [1, 1, 3], [0, 2, 4], [0, 0, 0]]
    assert final is not None
    assert final[0].observation[0, :, 0].tolist() == [2, 4, 9]
    assert final[1].observation[0, :, 0].tolist() == [1, 3, 9]


def test_stacks_may_begin_with_zeros_and_begin_anew_when_an_agent_comes_back() -> None:
    env = w.frame_stack(teams(1), 2, pad="zeros")
    timestep = env.reset(SEEDS[:1])
    seen = [timestep.due[0].observation[:, :, 1].tolist()]
    for _ in range(4):
        timestep = acts(env, timestep)
        seen.append(timestep.due[0].observation[:, :, 1].tolist())
    # Agent 0 of player 0 is away in steps 2 and 3 and comes back in step 4.
    assert seen == [[[0, 0], [0, 0]], [[0, 1], [0, 1]], [[1, 2]], [[2, 3]], [[0, 4], [3, 4]]]
    assert timestep.due[0].first.tolist() == [True, False]


def test_grey_images_are_opencv_s() -> None:
    import cv2

    env = w.grayscale(screens(2))
    inner = screens(2)
    grey, colour = env.reset(SEEDS), inner.reset(SEEDS)
    for _ in range(3):
        image = colour.due[0].observation[1]
        assert np.array_equal(grey.due[0].observation[1], cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))
        assert grey.due[0].observation[1, 0, 0] == 19  # 0.299·10 + 0.587·20 + 0.114·40 = 19.29
        grey, colour = acts(env, grey), acts(inner, colour)
    assert np.array_equal(
        grey.ended[0].observation[0], cv2.cvtColor(colour.ended[0].observation[0], cv2.COLOR_RGB2GRAY)
    )


def test_channels_come_first_those_of_older_images_before() -> None:
    env, stacked, inner = w.channels_first(screens(2)), w.channels_first(w.frame_stack(screens(2), 2)), screens(2)
    assert env.spec.agents[0].observation == Box(0, 255, (3, 4, 6), np.uint8)
    assert stacked.spec.agents[0].observation == Box(0, 255, (6, 4, 6), np.uint8)
    first, both, colour = env.reset(SEEDS), stacked.reset(SEEDS), inner.reset(SEEDS)
    assert first.due[0].observation[0, :, 0, 0].tolist() == [10, 20, 40]
    before = colour.due[0].observation.copy()
    first, both, colour = acts(env, first), acts(stacked, both), acts(inner, colour)
    now = colour.due[0].observation
    np.testing.assert_array_equal(first.due[0].observation, now.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(both.due[0].observation[:, :3], before.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(both.due[0].observation[:, 3:], now.transpose(0, 3, 1, 2))


class Grey(Screen):
    def seen(self) -> Any:
        return np.arange(9, dtype=np.uint8).reshape(3, 3, 1)


def test_one_channel_is_grey_as_it_is() -> None:
    agent = AgentSpec("eye", 0, Box(0, 255, (3, 3, 1), np.uint8), Discrete(2))
    env = PythonVectorEnv(Grey, 2, spec=EnvSpec("tests/grey", (agent,), ((0, 6),), ((0,),)), masked=(False,))
    assert w.channels_first(env).spec.agents[0].observation.shape == (1, 3, 3)
    grey = w.grayscale(env)
    timestep = grey.reset(SEEDS)
    assert grey.spec.agents[0].observation == Box(0, 255, (3, 3), np.uint8)
    assert timestep.due[0].observation.tolist() == [np.arange(9).reshape(3, 3).tolist()] * 2


def test_channel_wrapper_rejects_non_images() -> None:
    for env in (teams(1), w.flatten_observation(screens(1))):
        with pytest.raises(ConfigError, match=r"channels_first takes images \[height, width, channels\], or k of them"):
            w.channels_first(env)
    with pytest.raises(ConfigError, match=r"sees uint8\[3, 4, 6\]\. Choose others"):  # they come first already
        w.channels_first(w.channels_first(screens(1)))


def test_small_images_are_means_of_areas() -> None:
    env = w.resize(w.grayscale(screens(1)), 2, 3)
    timestep = env.reset(SEEDS[:1])
    assert timestep.due[0].observation.tolist() == [[[5, 0, 0], [0, 0, 0]]]  # 19 / 4 = 4.75
    assert env.spec.agents[0].observation == Box(0, 255, (2, 3), np.uint8)
    timestep = acts(env, timestep)
    # 0.299 · 80 = 23.92 -> 24; (3 · 24 + 19) / 4 = 22.75
    assert timestep.due[0].observation.tolist() == [[[23, 24, 24], [24, 24, 24]]]


def test_agents_of_a_team_know_which_they_are() -> None:
    env = w.agent_ids(teams(2))
    timestep = env.reset(SEEDS)
    assert timestep.due[0].observation.tolist() == [[0, 0, 1, 0], [1, 0, 0, 1]] * 2
    assert timestep.due[1].observation.tolist() == [[2, 0]] * 2  # alone
    assert env.spec.agents[0].observation.shape == (4,)
    for _ in range(2):
        timestep = acts(env, timestep)
    assert timestep.due[0].observation.tolist() == [[1, 2, 0, 1]] * 2
    assert timestep.ended[0].observation.tolist() == [[0, 2, 1, 0]] * 2


def test_a_joint_state_is_what_all_agents_saw_last() -> None:
    env = w.joint_state(teams(2))
    assert env.spec.state.shape == (6,)
    timestep = env.reset(SEEDS)
    assert timestep.state.tolist() == [[0, 0, 1, 0, 2, 0]] * 2
    timestep = acts(env, timestep)
    assert timestep.state.tolist() == [[0, 1, 1, 1, 2, 1]] * 2
    timestep = acts(env, timestep)  # agent 0 leaves; what it saw last stays in the state, up to the end of the episode
    assert timestep.due[0].observation.tolist() == [[1, 2]] * 2
    assert timestep.state.tolist() == [[0, 2, 1, 2, 2, 2]] * 2
    while not len(over := timestep.finished.environment):
        timestep = acts(env, timestep)
    assert over.tolist() == [0]
    assert timestep.final_state[:, 4:].tolist() == timestep.ended[1].observation.tolist()
    assert timestep.state[0].tolist() == [0, 0, 1, 0, 2, 0]
    assert timestep.state[1, 5] > 2  # the other environment plays on
    assert w.joint_state(teams(1), players=[1]).reset(SEEDS[:1]).state.tolist() == [[2, 0]]


# ------------------------------------------------------------------------------------------ rewards


def test_scaled_rewards_scale_returns_and_their_range() -> None:
    env = w.scale_reward(screens(1), -0.5)
    assert env.spec.utility_range == ((-3, 0),)
    timestep = env.reset(SEEDS[:1])
    for _ in range(3):
        timestep = acts(env, timestep, 1)
    assert timestep.ended[0].reward.tolist() == [-1]
    assert timestep.finished.returns.tolist() == [[-3]]


def test_clipped_rewards_are_of_decisions_and_returns_their_sum() -> None:
    limits = replace(screens(1).spec, max_decisions=3)
    env = w.clip_reward(PythonVectorEnv(Screen, 1, spec=limits, masked=(False,)), -1, 1.5)
    assert env.spec.utility_range == ((-3, 4.5),)
    timestep = env.reset(SEEDS[:1])
    paid = []
    for action in (1, 0, 1):
        timestep = acts(env, timestep, action)
        paid.append(timestep.due[0].reward.tolist())
    assert paid == [[1.5], [0], [0]]  # the last one is a first decision
    assert timestep.ended[0].reward.tolist() == [1.5]
    assert timestep.finished.returns.tolist() == [[3]]
    # The largest team decides 6 times in 3 steps, its agents together.
    assert w.sign_reward(w.time_limit(teams(1), 3)).spec.utility_range == ((-6, 6), (-6, 6))


# ------------------------------------------------------------------------------------------ steps, actions, players


def test_a_time_limit_truncates_with_the_true_final_observation() -> None:
    env = w.time_limit(turns(2), 3)
    timestep = env.reset(SEEDS)
    for _ in range(3):
        timestep = acts(env, timestep)
    assert timestep.finished.length.tolist() == [3, 3]
    assert not timestep.finished.terminated.any()
    assert timestep.finished.returns.tolist() == [[1, -1]] * 2  # +1 -1 +1 and the opposite
    # Player 1 would be due in step 3, with a mask; player 0's open decision was made on step 2.
    assert timestep.ended[1].observation.tolist() == [[3, 0]] * 2
    assert timestep.ended[1].mask is not None
    assert timestep.ended[1].mask.tolist() == [[True, True, False]] * 2
    assert timestep.ended[0].observation.tolist() == [[2, 0]] * 2
    assert timestep.due[0].first.all()
    assert timestep.due[0].observation.tolist() == [[0, 0]] * 2
    assert env.spec.max_decisions == 3
    assert w.time_limit(turns(1), 9).reset(SEEDS[:1]).due[0].first.all()


class Counted(Turns):
    """The state is the number of the step."""

    def reset(self, seed: int) -> EnvStepResult:
        return self.with_state(super().reset(seed))

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        return self.with_state(super().step(actions))

    def with_state(self, happened: EnvStepResult) -> EnvStepResult:
        happened.state = np.full(1, self.t, np.float32)
        return happened


def test_a_time_limit_keeps_the_state_at_the_end() -> None:
    watched = replace(spec([0, 1]), state=Box(0, 5, (1,), np.float32))
    env = w.time_limit(PythonVectorEnv(Counted, 2, spec=watched, masked=(True, True)), 3)
    timestep = env.reset(SEEDS)
    for _ in range(3):
        timestep = acts(env, timestep)
    assert timestep.state is not None
    assert timestep.final_state is not None
    assert timestep.final_state.tolist() == [[3], [3]]
    assert timestep.state.tolist() == [[0], [0]]


def test_returns_that_sum_to_one_may_not_when_they_are_cut_off() -> None:
    """Of two who share 1 in the end, both have 0 before it; no solver may take what one lacks for the other's."""
    for least, known in ((0.0, False), (-1.0, True)):
        game = replace(spec([0, 1]), utility_range=((least, 1.0),) * 2, zero_sum=True)
        assert w.time_limit(PythonVectorEnv(Turns, 1, spec=game, masked=(True, True)), 3).spec.zero_sum == known


def test_an_episode_that_ends_at_its_limit_is_terminated() -> None:
    env = w.time_limit(screens(1), 3)
    timestep = env.reset(SEEDS[:1])
    for _ in range(3):
        timestep = acts(env, timestep)
    assert timestep.finished.terminated.tolist() == [True]
    assert timestep.finished.length.tolist() == [3]


def even(observation: Any) -> Any:
    """Action 2 only where the step is 0."""
    return np.stack([observation[:, 0] > 0, observation[:, 0] > 0, observation[:, 0] == 0], axis=1)


def test_masks_by_a_function_join_those_of_the_game() -> None:
    env = w.wrap(turns(2), [{"kind": "mask_actions", "allowed": "test_wrappers:even"}])
    timestep = env.reset(SEEDS)
    assert timestep.due[0].mask is not None
    assert timestep.due[0].mask.tolist() == [[False, False, True]] * 2
    with pytest.raises(EnvError, match=r"chose the illegal action 0 in row 0; legal: \[2\]"):
        acts(env, timestep, 0)
    timestep = acts(env, timestep, 2)
    assert timestep.due[1].mask is not None
    assert timestep.due[1].mask.tolist() == [[True, True, False]] * 2


def test_who_alone_is_changed_is_not_interchangeable() -> None:
    """Players of one group share policies, and a tournament plays one order of theirs."""
    alike = replace(spec([0, 1, 2, 3]), symmetry=((0, 2), (1, 3)))
    for wrap in (w.frame_stack, w.mask_actions):
        given: Any = 2 if wrap is w.frame_stack else [0, 1]
        for players, known in (([2], ((0,), (2,), (1, 3))), ([0, 2], ((0, 2), (1, 3))), (None, ((0, 2), (1, 3)))):
            env = PythonVectorEnv(Turns, 1, spec=alike, masked=(True,) * 4)
            assert wrap(env, given, players=players).spec.symmetry == known


def test_masks_that_leave_nothing_or_are_none_are_errors() -> None:
    env = w.mask_actions(turns(2), [2])
    timestep = env.reset(SEEDS)
    with pytest.raises(EnvError, match=r"leaves agent 'agent_1' .* without a legal action in environment 0"):
        acts(env, timestep, 2)
    with pytest.raises(EnvError, match=r"gave float64\[1, 1\] for player 0 .*; bool\[1, 3\] is needed"):
        w.mask_actions(turns(1), lambda observation: np.ones((1, 1))).reset(SEEDS[:1])
    with pytest.raises(EnvError, match="<lambda> raised ZeroDivisionError"):
        w.mask_actions(turns(1), lambda observation: 1 // 0).reset(SEEDS[:1])


def test_merged_players_rows_slots_and_returns() -> None:
    env = w.group_players(three(2), {"*_0": 1, "*_1": 0, "*_2": 1})
    assert [(a.name[-1], a.player) for a in env.spec.agents] == [("1", 0), ("0", 1), ("2", 1)]
    assert env.spec.utility_range == ((-2, 4), (-4, 8))
    assert env.spec.symmetry == ((0,), (1,))
    timestep = env.reset(SEEDS)
    assert timestep.due[1].slot.tolist() == [0, 2]  # old player 0 begins: slots e × 2 + 0
    timestep = acts(env, timestep)
    assert timestep.due[0].slot.tolist() == [0, 1]
    timestep = acts(env, timestep)
    assert timestep.due[1].slot.tolist() == [1, 3]
    timestep = acts(env, timestep)  # all passed: the best card wins the pot
    assert timestep.ended[1].slot.tolist() == [0, 1, 2, 3]
    assert timestep.ended[0].slot.tolist() == [0, 1]
    paid = timestep.ended[1].reward.reshape(2, 2).sum(axis=1)
    assert paid.tolist() == timestep.finished.returns[:, 1].tolist() == (-timestep.finished.returns[:, 0]).tolist()


def test_equal_teams_are_interchangeable() -> None:
    four = PythonVectorEnv(Turns, 1, spec=replace(spec([0, 1, 2, 3]), symmetry=((0, 1, 2, 3),)), masked=(False,) * 4)
    assert w.group_players(four, {"agent_[02]": 0, "*": 1}).spec.symmetry == ((0, 1),)
    assert w.group_players(four, {"agent_0": 0, "*": 1}).spec.symmetry == ((0,), (1,))


def test_scaled_observations_lie_between_0_and_1() -> None:
    env = w.scale_observation(screens(2))
    (agent,) = env.spec.agents
    assert agent.observation == Box(0.0, 1.0, (4, 6, 3), np.float32)
    first = env.reset(SEEDS)
    np.testing.assert_allclose(first.due[0].observation[1, 0, 0], [10 / 255, 20 / 255, 40 / 255], rtol=1e-6)
    second = acts(env, first)
    np.testing.assert_allclose(second.due[0].observation[0, 3, 3], [80 / 255, 0, 0], rtol=1e-6)


def still(low: Any, high: Any, seen: Sequence[float]) -> VectorEnv:
    """One player who sees the same in every step."""

    class Still(Screen):
        def seen(self) -> Any:
            return np.array(seen, np.float32)

    agent = AgentSpec("eye", 0, Box(low, high, (3,), np.float32), Discrete(2))
    return PythonVectorEnv(Still, 1, spec=EnvSpec("tests/seen", (agent,), ((0, 6),), ((0,),)), masked=(False,))


def test_bounds_of_each_entry_count() -> None:
    low, high = np.array([-2, 0, 5], np.float32), np.array([2, 10, 5], np.float32)
    scaled = w.scale_observation(still(low, high, [1.0, 2.5, 5.0]))
    assert scaled.reset(SEEDS[:1]).due[0].observation.tolist() == [[0.75, 0.25, 0.0]]
    with pytest.raises(
        ConfigError, match="needs finite bounds, far below the largest number; player 0 of tests/seen sees Box"
    ):
        w.scale_observation(still(low, np.full(3, np.inf, np.float32), [0.0, 0.0, 0.0]))
    for most in (
        np.finfo(np.float32).max,
        np.finfo(np.float32).max / 2,
    ):  # how older environments say that there are none
        with pytest.raises(ConfigError, match="far below the largest number"):
            w.scale_observation(still(low, np.full(3, most, np.float32), [0.0, 0.0, 0.0]))


def test_ids_are_not_put_beside_bytes() -> None:
    """Networks would scale them, too."""
    flat = w.flatten_observation(screens(2))
    with pytest.raises(ConfigError, match=r"sees bytes up to 255, .* Put scale_observation before it"):
        w.agent_ids(flat, players=[0])
    (agent,) = w.agent_ids(w.scale_observation(flat), players=[0]).spec.agents
    assert (agent.observation.shape, agent.observation.dtype) == ((4 * 6 * 3 + 1,), np.float32)


@pytest.mark.parametrize(
    ("ranges", "said"),
    [(((0, 1), (0, 1)), 1.0), (((-1, 5), (-20, 2)), 0.0), (((-1, np.inf), (-np.inf, 1)), 0.0)],
)
def test_constant_sum_from_utility_ranges(ranges: tuple[tuple[float, float], ...], said: float) -> None:
    """What both ends of the ranges say; loose ranges say nothing."""
    spec = EnvSpec(id="made up", agents=(), utility_range=ranges, symmetry=((0,), (1,)), zero_sum=True)
    assert spec.constant_sum == said
    assert replace(spec, zero_sum=False).constant_sum is None


def test_a_refused_action_is_no_step_of_a_time_limit() -> None:
    env = w.time_limit(turns(1), 2)
    timestep = env.reset(SEEDS[:1])
    wrong = tuple(np.full(len(due.slot), 99) for due in timestep.due)
    legal = tuple(np.zeros_like(actions) for actions in wrong)
    for _ in range(3):
        with pytest.raises(EnvError):
            env.step(wrong)
    assert not len(env.step(legal).finished.environment)


@pytest.mark.parametrize("factor", [1e39, 1e-46])
def test_a_factor_that_float32_lacks_is_refused(factor: float) -> None:
    with pytest.raises(ConfigError, match="a number other than 0 is needed, which float32 has"):
        w.scale_reward(screens(1), factor)
