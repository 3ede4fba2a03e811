"""`mpe2/…`: the contract, agreement with PettingZoo's parallel loop, teams, continuous actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from mpe2 import simple_spread_v3, simple_tag_v3
from zoo_replay import all_at_once, one_by_one, play, returns_of

from ludus.core.errors import ConfigError, UnknownName
from ludus.core.seeding import keys
from ludus.envs.registry import list_envs, make_env
from ludus.testing.env import check_env

FAST: dict[str, dict[str, Any]] = {
    "simple_spread_v3": {"teams": "one", "state": True},
    "simple_tag_v3": {"teams": "prefix", "continuous_actions": True},
    "simple_speaker_listener_v4": {},
    "simple_adversary_v3": {"teams": "prefix"},
    "simple_push_v3": {"api": "aec"},
}


@pytest.mark.parametrize("name", FAST)
def test_mpe2_satisfies_vector_env_contract(name: str) -> None:
    check_env(
        lambda n: make_env(f"mpe2/{name}", num_envs=n, max_cycles=8, **FAST[name]),
        num_envs=2,
        steps=30,
        team="split",
        early_rewards=True,
    )


def test_simultaneous_moves_agree_with_a_plain_loop() -> None:
    env = make_env("mpe2/simple_spread_v3", num_envs=1, max_cycles=10, teams="one")
    reference = simple_spread_v3.parallel_env(max_cycles=10)
    for seed, played in play(env, episodes=4):
        totals = all_at_once(reference, seed, played)
        assert returns_of(env, totals) == pytest.approx(played.returns)
        assert len(played.steps) == 10


def test_turns_agree_with_a_plain_loop() -> None:
    env = make_env("mpe2/simple_tag_v3", num_envs=1, max_cycles=12, api="aec", teams="prefix")
    reference = simple_tag_v3.env(max_cycles=12)
    for seed, played in play(env, episodes=4):
        totals = one_by_one(reference, seed, played)
        assert returns_of(env, totals) == pytest.approx(played.returns)
        assert len(played.steps) == 12 * 4


def test_both_interfaces_play_the_same_episode() -> None:
    turns, together = (make_env("mpe2/simple_v3", num_envs=1, max_cycles=9, api=api) for api in ("aec", "parallel"))
    for (_, one), (_, other) in zip(play(turns, episodes=3), play(together, episodes=3), strict=True):
        assert one.returns == other.returns


def test_actions_are_clipped_into_their_space_as_mpe2_does() -> None:
    """MPE2's wrapper clips; beyond [0, 1] nothing changes."""

    def end(push: float) -> Any:
        env = make_env("mpe2/simple_v3", num_envs=1, continuous_actions=True)
        assert isinstance(env.spec.agents[0].action, Box)
        timestep = env.reset(keys(1, "clip", count=1))
        for _ in range(3):
            timestep = env.step((np.full((1, 5), [0, push, 0, 0, -push]),))
        return timestep.due[0].observation.copy()

    assert np.array_equal(end(1.0), end(50.0))
    assert not np.array_equal(end(0.5), end(1.0))


def test_episodes_are_truncated_and_the_state_is_everybodys_observation() -> None:
    env = make_env("mpe2/simple_spread_v3", num_envs=2, max_cycles=3, teams="one", state=True, N=2)
    timestep = env.reset(keys(1, "state", count=2))
    size = env.spec.agents[0].observation.shape[0]
    for _ in range(3):
        assert timestep.state is not None
        assert np.array_equal(timestep.state, timestep.due[0].observation.reshape(2, 2 * size))
        timestep = env.step((np.zeros(4, np.int64),))
    assert not timestep.finished.terminated.any()
    assert not timestep.ended[0].terminated.any()
    assert timestep.final_state is not None
    assert np.array_equal(timestep.final_state, timestep.ended[0].observation.reshape(2, 2 * size))


def test_render() -> None:
    env = make_env("mpe2/simple_v3", num_envs=1, render=True)
    env.reset(keys(1, "render", count=1))
    assert env.render(0).shape == (700, 700, 3)  # type: ignore[attr-defined]


def test_mpe2_rejects_invalid_ids_and_options() -> None:
    with pytest.raises(UnknownName, match="did you mean 'simple_spread_v3'"):
        make_env("mpe2/simple_spraed_v3", num_envs=1)
    with pytest.raises(ConfigError, match="no option 'max_cycle'; did you mean 'max_cycles'"):
        make_env("mpe2/simple_spread_v3", num_envs=1, max_cycle=3)


def test_mpe2_lists_its_environments() -> None:
    names = (
        "collect_treasure_v1 simple_adversary_v3 simple_crypto_v3 simple_formation_v1 simple_line_v1 simple_push_v3 "
        "simple_reference_v3 simple_speaker_listener_v4 simple_spread_v3 simple_tag_v3 simple_v3 simple_world_comm_v3"
    )
    assert list_envs("mpe2") == [f"mpe2/{name}" for name in names.split()]


@pytest.mark.long
@pytest.mark.parametrize("id", list_envs("mpe2"))
@pytest.mark.parametrize("continuous", [False, True])
def test_every_mpe2_environment_satisfies_vector_env_contract(id: str, continuous: bool) -> None:
    check_env(
        lambda n: make_env(id, num_envs=n, max_cycles=8, continuous_actions=continuous),
        num_envs=2,
        steps=20,
        team="split",
        early_rewards=True,
    )
