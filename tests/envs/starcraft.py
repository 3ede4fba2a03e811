"""A battle that speaks SMAC's interface, without StarCraft II; and modules that are found where the packages would be."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
import pytest

NO_OP, STOP, MOVES, ATTACK = 0, 1, 4, 6


class FakeBattle:
    """Units of two hit points each. Attacks hit for 1. In step t the enemies, while one is alive, hit unit t mod n, for 1. Pays 1 for each
    hit, and 10 for a victory. What is shown: step, own hit points, the enemies'."""

    def __init__(
        self,
        map_name: str = "3m",
        *,
        continuing_episode: bool = False,
        seed: int | None = None,
        units: int = 3,
        enemies: int = 2,
        limit: int = 6,
        lost_at: int | None = None,
        **options: Any,
    ) -> None:
        self.map_name, self.seed, self.options = map_name, seed, options
        self.continuing, self.limit, self.lost_at = continuing_episode, limit, lost_at
        self.n_agents, self.n_enemies = units, enemies
        self.started = 0

    def get_env_info(self) -> dict[str, Any]:
        return {
            "state_shape": 1 + self.n_agents + self.n_enemies,
            "obs_shape": 2 + self.n_enemies,
            "n_actions": ATTACK + self.n_enemies,
            "n_agents": self.n_agents,
            "episode_limit": self.limit,
        }

    def reset(self) -> None:  # as SMACv2's, which may return nothing
        self.started += 1
        self.t = 0
        self.own, self.others = [2] * self.n_agents, [2] * self.n_enemies

    def get_obs(self) -> list[Any]:
        return [np.array([self.t, own, *self.others], np.float32) * (own > 0) for own in self.own]

    def get_state(self) -> Any:
        return np.array([self.t, *self.own, *self.others], np.float32)

    def get_avail_actions(self) -> list[list[int]]:
        return [
            [0, *[1] * (1 + MOVES), *(int(other > 0) for other in self.others)] if own > 0 else [1] + [0] * (ATTACK + 1)
            for own in self.own
        ]

    def step(self, actions: list[int]) -> tuple[float, bool, dict[str, Any]]:
        for action, legal in zip(actions, self.get_avail_actions(), strict=True):
            assert type(action) is int
            assert legal[action]
        reward = 0.0
        for action in actions:
            if action >= ATTACK and self.others[action - ATTACK] > 0:
                self.others[action - ATTACK] -= 1
                reward += 1
        if any(self.others):
            self.own[self.t % self.n_agents] = max(0, self.own[self.t % self.n_agents] - 1)
        self.t += 1
        if self.t == self.lost_at:
            return 0, True, {}
        info: dict[str, Any] = {
            "battle_won": False,
            "dead_allies": self.own.count(0),
            "dead_enemies": self.others.count(0),
        }
        if not any(self.others):
            info["battle_won"] = True
            return reward + 10, True, info
        if not any(self.own):
            return reward, True, info
        if self.t == self.limit:
            if self.continuing:
                info["episode_limit"] = True
            return reward, True, info
        return reward, False, info

    def render(self, mode: str = "human") -> Any:
        return np.full((2, 2, 3), self.t, np.uint8)

    def close(self) -> None:
        self.closed = True


class FakeCapabilities(FakeBattle):
    """As SMACv2's: it writes into its configuration."""

    def __init__(self, *, capability_config: dict[str, Any], **options: Any) -> None:
        for name in ("team_gen", "start_positions"):
            assert "env_key" not in capability_config[name]
            capability_config[name]["env_key"] = name
        self.drawn = capability_config
        super().__init__(units=capability_config["n_units"], enemies=capability_config["n_enemies"], **options)


def install(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """A module of this name, and packages around it."""
    parts = name.split(".")
    for k in range(1, len(parts) + 1):
        path = ".".join(parts[:k])
        if path not in sys.modules or sys.modules[path] is None:
            module = ModuleType(path)
            module.__spec__ = ModuleSpec(path, None, is_package=True)
            module.__path__ = []
            monkeypatch.setitem(sys.modules, path, module)
    for key, member in members.items():
        monkeypatch.setattr(sys.modules[name], key, member, raising=False)


def install_smac(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "smac.env", StarCraft2Env=FakeBattle)
    install(
        monkeypatch,
        "smac.env.starcraft2.maps.smac_maps",
        get_smac_map_registry=lambda: {"8m": {}, "3m": {}, "2s3z": {}},
    )


def install_smacv2(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "smacv2.env", StarCraftCapabilityEnvWrapper=FakeCapabilities)
