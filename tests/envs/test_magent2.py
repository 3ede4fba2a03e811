"""MAgent2: the same as its PettingZoo interface, the contract, teams, options."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from installed import require

from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.core.seeding import keys
from ludus.envs.base import VectorEnv
from ludus.envs.publisher_kernels import episode_seed
from ludus.envs.registry import list_envs, make_env
from ludus.testing.env import check_env

require("magent2")

SEEDS = keys(3, "magent2", count=2)
SMALL = {
    "adversarial_pursuit_v4": {"map_size": 12},
    "battle_v4": {"map_size": 16, "max_cycles": 60},
    "battlefield_v5": {"map_size": 46, "max_cycles": 20},
    "combined_arms_v6": {"map_size": 16, "max_cycles": 60},
    "gather_v5": {"max_cycles": 15},
    "tiger_deer_v4": {"map_size": 12},
}


class Mirror:
    """One environment through PettingZoo's interface, beside environment `e` of a vector."""

    def __init__(self, name: str, options: dict[str, Any], spec: Any, e: int) -> None:
        self.env = importlib.import_module(f"magent2.environments.{name}").parallel_env(**options)
        self.spec = spec
        self.e = e
        self.episode = 0
        self.begin()

    def begin(self) -> None:
        seed = int(episode_seed(SEEDS[self.e], np.uint64(self.episode)) & np.uint64(0x7FFFFFFF))
        self.observations, _ = self.env.reset(seed=seed)
        # Its reset counts the agents before they are there, so that in the first step all groups would play the first group's actions.
        self.env.team_sizes = [self.env.env.get_num(handle) for handle in self.env.handles]
        self.returns = np.zeros(self.spec.num_players)
        self.rewards = dict.fromkeys(self.env.agents, 0.0)

    def agent(self, player: int, slot: int) -> str:
        return str(self.spec.agents_of(player)[slot % len(self.spec.agents_of(player))].name)

    def mine(self, player: int, slots: Any) -> Iterator[tuple[int, str]]:
        for i, slot in enumerate(slots.tolist()):
            if slot // len(self.spec.agents_of(player)) == self.e:
                yield i, self.agent(player, slot)

    def compare_due(self, timestep: Any) -> dict[str, tuple[int, int]]:
        """Where each living agent's row is."""
        where = {}
        for p, due in enumerate(timestep.due):
            for i, agent in self.mine(p, due.slot):
                np.testing.assert_array_equal(due.observation[i], self.observations[agent])
                assert due.reward[i] == np.float32(self.rewards[agent])
                where[agent] = (p, i)
        assert sorted(where) == sorted(self.env.agents)
        return where

    def step(self, actions: dict[str, int]) -> None:
        agents = set(self.env.agents)
        self.observations, self.rewards, self.terminated, self.truncated, _ = self.env.step(actions)
        for agent in agents:
            player = next(a.player for a in self.spec.agents if a.name == agent)
            self.returns[player] += np.float32(self.rewards[agent])
        self.left = agents - set(self.env.agents)

    def compare_ended(self, timestep: Any) -> None:
        closed = set()
        for p, ended in enumerate(timestep.ended):
            for i, agent in self.mine(p, ended.slot):
                np.testing.assert_array_equal(ended.observation[i], self.observations[agent])
                assert ended.reward[i] == np.float32(self.rewards[agent])
                assert ended.terminated[i] == self.terminated[agent]
                closed.add(agent)
        assert closed == self.left
        over = self.e in timestep.finished.environment
        assert over == (not self.env.agents)
        if over:
            at = timestep.finished.environment.tolist().index(self.e)
            np.testing.assert_allclose(timestep.finished.returns[at], self.returns, atol=1e-9)
            assert timestep.finished.terminated[at] == all(self.terminated[agent] for agent in self.left)
            self.episode += 1
            self.begin()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "extra"),
    [
        *((name, {}) for name in SMALL if name != "gather_v5"),
        ("battle_v4", {"minimap_mode": True}),
        ("tiger_deer_v4", {"extra_features": True, "minimap_mode": True}),
        pytest.param("gather_v5", {}, marks=pytest.mark.long),
    ],
)
def test_equals_the_pettingzoo_interface_step_by_step(name: str, extra: dict[str, Any]) -> None:
    options = {**SMALL[name], **extra}
    vector = make_env(f"magent2/{name}", num_envs=2, **options)
    timestep = vector.reset(SEEDS)
    mirrors = [Mirror(name, options, vector.spec, e) for e in range(2)]
    rng = np.random.default_rng(0)
    deaths = episodes = 0
    for _ in range(45 if name == "gather_v5" else 110):  # three of its episodes, of many agents
        actions = []
        for p, due in enumerate(timestep.due):
            legal = [int(mirrors[0].env.action_space(mirrors[0].agent(p, slot)).n) for slot in due.slot.tolist()]
            # Mostly attacks, which come last, so that somebody dies.
            actions.append(np.maximum(rng.integers(legal), rng.integers(legal)))
        for mirror in mirrors:
            where = mirror.compare_due(timestep)
            mirror.step({agent: int(actions[p][i]) for agent, (p, i) in where.items()})
        timestep = vector.step(tuple(actions))
        for mirror in mirrors:
            mirror.compare_ended(timestep)
        deaths += sum(len(ended.slot) for ended in timestep.ended)
        episodes += len(timestep.finished.environment)
    assert deaths or name == "adversarial_pursuit_v4"
    assert episodes or name not in ("battle_v4", "combined_arms_v6", "gather_v5")


def small(name: str) -> Any:
    def make(num_envs: int) -> VectorEnv:
        return make_env(f"magent2/{name}", num_envs=num_envs, **SMALL[name])

    return make


@pytest.mark.parametrize("name", ["battle_v4", "combined_arms_v6"])
def test_magent2_satisfies_vector_env_contract(name: str) -> None:
    check_env(small(name), num_envs=2, steps=70, team="split")


@pytest.mark.long
@pytest.mark.parametrize("name", ["adversarial_pursuit_v4", "battlefield_v5", "tiger_deer_v4"])
def test_other_magent2_environments_satisfy_vector_env_contract(name: str) -> None:
    check_env(small(name), num_envs=2, steps=30, team="split")


def test_armies_are_players() -> None:
    spec = make_env("magent2/battle_v4", num_envs=1).spec
    assert [len(spec.agents_of(p)) for p in range(spec.num_players)] == [81, 81]
    assert spec.agents_of(1)[0].name == "blue_0"
    assert spec.agents[0].observation.shape == (13, 13, 5)
    arms = small("combined_arms_v6")(1)
    assert arms.spec.num_players == 2
    assert {agent.role for agent in arms.spec.agents_of(0)} == {"redmelee", "redranged"}
    timestep = arms.reset(SEEDS[:1])
    assert timestep.due[0].mask is not None
    counts = timestep.due[0].mask.sum(axis=1)
    assert set(counts.tolist()) == {
        9,
        25,
    }  # melee agents move to 5 squares and attack 4, ranged ones move to 13 and attack 12
    action = np.full(len(counts), 9)
    with pytest.raises(EnvError, match="illegal action 9 in row 0, for agent 'redmelee_0'; legal: 0 to 8"):
        arms.step((action, np.zeros(len(timestep.due[1].slot), np.int32)))


def test_teams_may_be_given() -> None:
    options = SMALL["combined_arms_v6"]
    four = make_env("magent2/combined_arms_v6", num_envs=1, teams="prefix", **options).spec
    assert four.num_players == 4
    one = make_env("magent2/battle_v4", num_envs=1, teams="one", symmetry=[[0]], map_size=16)
    assert one.spec.num_players == 1
    agents = [agent.name for agent in one.spec.agents]
    red, blue = agents[: len(agents) // 2], agents[len(agents) // 2 :]
    swapped = make_env("magent2/battle_v4", num_envs=2, teams={"b": blue, "r": red}, map_size=16)
    assert swapped.spec.agents_of(0)[0].name == "blue_0"
    plain = make_env("magent2/battle_v4", num_envs=2, map_size=16)
    ours, theirs = swapped.reset(SEEDS), plain.reset(SEEDS)
    np.testing.assert_array_equal(ours.due[0].observation, theirs.due[1].observation)
    with pytest.raises(ConfigError, match="agents of one kind are stepped together"):
        make_env("magent2/battle_v4", num_envs=1, teams={"a": red[:1], "b": red[1:] + blue}, map_size=16)


def test_options_and_names_are_checked() -> None:
    assert list_envs("magent2") == [f"magent2/{name}" for name in sorted(SMALL)]
    with pytest.raises(UnknownName, match="did you mean 'battle_v4'"):
        make_env("magent2/batle_v4", num_envs=1)
    with pytest.raises(ConfigError, match=r"unknown option 'mapsize'.*did you mean 'map_size'"):
        make_env("magent2/battle_v4", num_envs=1, mapsize=20)
    with pytest.raises(ConfigError, match="size of map must be at least 12"):
        make_env("magent2/battle_v4", num_envs=1, map_size=5)
    with pytest.raises(ConfigError, match="max_cycles=0 was given"):
        make_env("magent2/battle_v4", num_envs=1, max_cycles=0)
    with pytest.raises(ConfigError, match="states of MAgent2"):
        make_env("magent2/battle_v4", num_envs=1, state=True)
    rewards = make_env("magent2/battle_v4", num_envs=1, map_size=16, step_reward=-1.0)
    timestep = rewards.reset(SEEDS[:1])
    timestep = rewards.step(tuple(np.zeros(len(due.slot), np.int32) for due in timestep.due))
    assert timestep.due[0].reward.tolist() == [-1] * len(timestep.due[0].slot)


def test_wrong_actions_are_refused() -> None:
    env = make_env("magent2/battle_v4", num_envs=1, map_size=16)
    with pytest.raises(EnvError, match="before reset"):
        env.step((np.zeros(1), np.zeros(1)))
    timestep = env.reset(SEEDS[:1])
    n = len(timestep.due[0].slot)
    right = np.zeros(n, np.int64)
    for wrong in (np.zeros(n), right[1:], np.zeros((n, 1), np.int64)):
        with pytest.raises(EnvError, match="expected one whole number each"):
            env.step((wrong, right))
    with pytest.raises(EnvError, match="illegal action -1 in row 1, for agent 'red_1'; legal: 0 to 20"):
        env.step((right - np.eye(n, dtype=np.int64)[1], right))
    with pytest.raises(EnvError, match="no snapshot"):
        env.restore(b"")
    assert env.snapshot() is None
    env.close()
