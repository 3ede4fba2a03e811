"""`mamujoco/…`: the contract, agreement with a plain loop, shares of the reward, all partitions, and what is refused."""

from __future__ import annotations

import fcntl
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import require
from refusals import Refusal, check_refusals
from zoo_replay import play

from ludus.contrib.envs.mamujoco import SharedBodyEnv
from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.core.seeding import keys
from ludus.envs.registry import list_envs, make_env
from ludus.testing.env import check_env
from ludus.testing.ledger import Actor

require("gymnasium_robotics")


ID = "mamujoco/Swimmer-2x1"
SHORT = {"max_episode_steps": 5}
SEEDS = keys(1, "mamujoco", count=1)


@pytest.mark.parametrize(
    "options", [{"state": True}, {"teams": {"b": ["agent_1"], "a": ["agent_0"]}}, {"restarts": 1, "state": True}]
)
def test_mamujoco_satisfies_vector_env_contract(options: dict[str, Any]) -> None:
    check_env(lambda n: make_env(ID, num_envs=n, **SHORT, **options), num_envs=2, steps=12, team="split")


def test_a_plain_loop_gives_the_same() -> None:
    """What each agent sees, and the body's reward, which is what the team returns."""
    from gymnasium_robotics import mamujoco_v1

    env = make_env(ID, num_envs=1, **SHORT)
    assert [agent.name for agent in env.spec.agents] == ["agent_0", "agent_1"]
    assert env.spec.num_players == 1
    assert make_env(ID, num_envs=1, teams=None).spec.num_players == 2
    bare = mamujoco_v1.parallel_env("Swimmer", "2x1", **SHORT)
    for seed, played in play(env, episodes=2):
        shown, total = bare.reset(seed=seed)[0], 0.0
        for moves in played.steps:
            for agent, seen, _ in moves:
                np.testing.assert_array_equal(seen, shown[agent].astype(np.float32))
            shown, rewards, _, truncations, _ = bare.step({agent: action for agent, _, action in moves})
            total += rewards["agent_0"]
        assert truncations == {"agent_0": True, "agent_1": True}
        np.testing.assert_allclose(played.returns, [total], rtol=1e-5)


class Paid:
    """A body that pays 6."""

    possible_agents = agents = ("a_0", "a_1", "b_0")
    observation_space = state = render = close = None

    def action_space(self, agent: str) -> Any:
        return np.zeros(2)

    def step(self, actions: Any) -> Any:
        return {}, dict.fromkeys(self.agents, 6.0), {}, {}, {}


def test_each_player_is_paid_what_the_body_is() -> None:
    shares = [
        SharedBodyEnv(Paid(), players, None).step({})[1]
        for players in ([["a_0", "a_1", "b_0"]], [["a_0", "a_1"], ["b_0"]], [["a_0"], ["a_1"], ["b_0"]])
    ]
    assert [list(share.values()) for share in shares] == [[2, 2, 2], [3, 3, 6], [6, 6, 6]]


def test_restarts_change_no_reward() -> None:
    """The vector that may be repaired is another one."""
    found: list[list[float]] = []
    for restarts in (0, 1):
        env = make_env("mamujoco/Hopper-3x1", num_envs=1, restarts=restarts, **SHORT)
        env.reset(SEEDS)
        rewards = list[float]()
        for k in range(60):
            moves = np.linspace(-1, 1, 3, dtype=np.float32) * np.float32(np.sin(k))
            timestep = env.step((moves[:, None],))
            rewards += timestep.due[0].reward.tolist() + timestep.finished.returns.tolist()
        found.append(rewards)
        env.close()
    assert found[0] == found[1]


def test_agents_with_fewer_joints() -> None:
    """A pusher's shoulder and elbow have three joints each, its wrist has one: it leaves two numbers of three."""
    from gymnasium_robotics import mamujoco_v1

    env = make_env("mamujoco/Pusher-3p", num_envs=1, max_episode_steps=2)
    assert {agent.action.shape for agent in env.spec.agents} == {(3,)}
    bare = mamujoco_v1.parallel_env("Pusher", "3p")
    lengths = [bare.action_space(agent).shape[0] for agent in bare.possible_agents]
    assert sorted(lengths) == [1, 3, 3]
    ((seed, played),) = play(env, episodes=1)
    bare.reset(seed=seed)
    total = 0.0
    for moves in played.steps:
        actions = {agent: action[:n] for (agent, _, action), n in zip(moves, lengths, strict=True)}
        total += bare.step(actions)[1]["agent_0"]
    np.testing.assert_allclose(played.returns, [total], rtol=1e-5)


def test_errors_of_a_body_name_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env(ID, num_envs=2)
    env.reset(np.array([1, 2], np.uint64))

    def step(actions: Any) -> Any:
        raise FloatingPointError("it fell apart")

    monkeypatch.setattr(env.game(1), "step", step)  # type: ignore[attr-defined]
    with pytest.raises(EnvError, match=r"Swimmer-2x1 raised FloatingPointError: it fell apart.* environment 1"):
        env.step((np.zeros((4, 1), np.float32),))


def test_bodies_of_many_segments_are_made_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package writes a file of the same name for each of them: another process must wait, until this one is made."""
    from gymnasium_robotics import mamujoco_v1

    made, free = mamujoco_v1.parallel_env, list[bool]()

    def is_free() -> bool:
        folder = os.open(Path(mamujoco_v1.__file__).parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(folder)
        return True

    def parallel_env(**options: Any) -> Any:
        free.append(is_free())
        return made(**options)

    monkeypatch.setattr(mamujoco_v1, "parallel_env", parallel_env)
    make_env("mamujoco/ManySegmentSwimmer-2x1", num_envs=1)
    assert free == [False]
    assert is_free()


REFUSED: list[Refusal] = [
    ("mamujoco/HalfCheetah-2x4", {}, UnknownName, "did you mean 'HalfCheetah-2x3'"),
    ("mamujoco/ManySegmentSwimmer-0x4", {}, UnknownName, "ManySegmentAnt-NxM takes any N and M"),
    (ID, {"agent_obskk": 3}, ConfigError, "no option 'agent_obskk'; did you mean 'agent_obsk'"),
    (ID, {"statistics": ["falls"]}, ConfigError, "counts nothing by name"),
    (ID, {"scenario": "Ant"}, ConfigError, "the option scenario, which its id says already"),
    ("mamujoco/CoupledHalfCheetah-1p1", {}, EnvError, "CoupledHalfCheetah-1p1 "),
]


def test_mamujoco_rejects_invalid_ids_and_options() -> None:
    check_refusals(partial(make_env, num_envs=1), REFUSED)


def test_mamujoco_lists_its_environments() -> None:
    assert {"mamujoco/HalfCheetah-2x3", "mamujoco/Ant-2x4", "mamujoco/Humanoid-9|8"} <= set(list_envs("mamujoco"))


@pytest.mark.long
def test_every_partition_plays() -> None:
    for id in [*list_envs("mamujoco"), "mamujoco/ManySegmentAnt-2x1"]:
        env = make_env(id, num_envs=1, state=True)
        seeds = keys(1, "mamujoco", count=1)
        actor, timestep = Actor(env.spec, seeds), env.reset(seeds)
        for _ in range(3):
            timestep = env.step(actor.actions(timestep))
        assert timestep.state is not None, id
        assert env.spec.num_players == 1
        env.close()
