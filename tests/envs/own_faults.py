"""Users' own environments whose second step, or reset, is wrong in the way that `fault` says."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from pettingzoo import AECEnv
from zoo_games import Relay, Shift

BOX = Box(-9, 9, (2,), np.float32)
SEEN = np.zeros(2, np.float32)


class Alone(gymnasium.Env[Any, Any]):
    """With Gymnasium's interface."""

    action_space: Any = Discrete(2)

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.observation_space: Any = Box(0, 255, (2,), np.uint8) if "byte" in fault else BOX
        if fault == "space":
            self.observation_space = (2,)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return SEEN if self.fault == "old reset" else (SEEN, None if self.fault == "no info" else {})

    def step(self, action: Any) -> Any:
        self.t += 1
        wrong: dict[str, Any] = {
            "old step": (SEEN, 1.0, False, {}),
            "no reward": (SEEN, None, False, False, {}),
            "rewards": (SEEN, np.ones(2), False, False, {}),
            "text": (SEEN, "1", False, False, {}),
            "nan": (SEEN, float("nan"), False, False, {}),
            "blind": (SEEN + np.nan, 1.0, False, False, {}),
            "blind end": (SEEN + np.nan, 1.0, True, False, {}),
            "text end": (SEEN, 1.0, "no", False, {}),
            "no end": (SEEN, 1.0, False, None, {}),
            "listed end": (SEEN, 1.0, [False], False, {}),
            "late mask": (SEEN, 1.0, False, False, {"action_mask": np.array([1, 0], np.int8)}),
            "info": (SEEN, 1.0, False, False, None),
            "large byte": (np.array([300, 0]), 1.0, False, False, {}),
            "broken byte": (np.array([0.5, 0]), 1.0, False, False, {}),
        }
        if self.t == 2:
            return wrong[self.fault]
        return SEEN, 1.0, False, False, {}


class Acting(Alone):
    """Takes the actions that it is told to."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.action_space = {
            "several": MultiDiscrete([3, 4]),
            "bits": MultiBinary(2),
            "box": Box(-1, 1, (2,), np.float32),
            "one": Discrete(2),
            "tuple": Tuple((Discrete(2), Discrete(2))),
        }[kind]

    def step(self, action: Any) -> Any:
        return SEEN, float(np.sum(action)), False, False, {}


class Pair(gymnasium.Env[Any, Any]):
    """Gymnasium's interface, for two agents; four steps."""

    observation_space = Tuple((BOX, BOX))
    action_space = Tuple((Discrete(2), Discrete(2)))

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return (SEEN, SEEN) if self.fault == "old reset" else ((SEEN, SEEN), {})

    def step(self, action: Any) -> Any:
        if not isinstance(action, tuple):
            raise TypeError(f"{action!r} is no tuple, and the samples of a Tuple are")
        self.t += 1
        rewards: Any = [1.0, 2.0]
        end: Any = self.t == 4
        if self.fault == "agents' ends":  # no fault: they agree
            end = [end, end]
        if self.t == 2:
            match self.fault:
                case "one reward":
                    rewards = 1.0
                case "named rewards":
                    rewards = {0: 1.0, 1: 2.0}
                case "no rewards":
                    rewards = [None, None]
                case "vectors":
                    rewards = np.zeros((2, 2))
                case "one ends":
                    end = [True, False]
                case "three":
                    return (SEEN, SEEN), rewards, end
        return (SEEN, SEEN), rewards, end, False, {}


class Swap(Shift):
    """worker_2 comes when worker_1 goes, which is told of (`honest`) or not."""

    def __init__(self, honest: bool = True) -> None:
        super().__init__()
        self.honest = honest

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        self.agents = ["worker_0", "worker_1"]
        return {a: self.seen(a) for a in self.agents}, {}

    def step(self, actions: Any) -> Any:
        self.t += 1
        before, ends = self.agents, dict.fromkeys(self.agents, self.t == 4)
        if self.t == 2:
            self.agents = ["worker_0", "worker_2"]
            ends["worker_1"] = self.honest
        if self.t == 4:
            self.agents = []
        return {a: self.seen(a) for a in {*before, *self.agents}}, dict.fromkeys(before, 1.0), ends, {}, {}


class Crowd(Shift):
    """With PettingZoo's parallel interface."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        if fault == "twins":
            self.possible_agents = ["worker_0", "worker_0"]  # type: ignore[misc]

    def observation_space(self, agent: str) -> Any:
        if self.fault == "no space":
            return {"worker_0": BOX}[agent]
        if self.fault == "no mask":
            return Dict({"observation": BOX, "action_mask": Box(0, 1, (3,), np.int8)})
        return BOX

    def seen(self, agent: str) -> Any:
        row = super().seen(agent)
        if self.fault != "no mask":
            return row
        return {"observation": row, **({} if self.t == 2 else {"action_mask": np.ones(3, np.int8)})}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        answer = super().reset(seed, options)
        return answer[0] if self.fault == "old reset" else answer

    def step(self, actions: Any) -> Any:
        shown, rewards, terminated, truncated, infos = super().step(actions)
        if self.t != 2:
            return shown, rewards, terminated, truncated, infos
        match self.fault:
            case "old step":
                return shown, rewards, terminated, infos
            case "no infos":
                infos = None
            case "one end":
                terminated = False
            case "no reward":
                rewards = dict.fromkeys(rewards, None)
            case "vectors":
                rewards = dict.fromkeys(rewards, np.array([0.0, 1.0]))
            case "unpaid":
                rewards = {}
            case "text end":
                terminated = dict.fromkeys(terminated, "no")
            case "listed end":
                truncated = {agent: [True] for agent in terminated}
        return shown, rewards, terminated, truncated, infos

    def state(self) -> Any:
        return np.full(2, np.nan if self.t == 2 else 1.0, np.float32)


class Line(Relay):
    """With PettingZoo's AEC interface."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault

    def step(self, action: Any) -> None:
        super().step(action)
        if self.moves == 2:
            match self.fault:
                case "no reward":
                    self.rewards = dict.fromkeys(self.rewards, None)  # type: ignore[arg-type]
                case "vectors":
                    self.rewards = dict.fromkeys(self.rewards, np.zeros(2))  # type: ignore[arg-type]
                case "unpaid":
                    self.rewards = {}
                case "text end":
                    self.terminations = dict.fromkeys(self.terminations, "no")  # type: ignore[arg-type]
                case "swap":  # the guard has come; a scout goes with it unnoticed
                    self.agents.remove("scout_1")
                case "stranger":
                    self.agent_selection = "scout_7"


class Large(gymnasium.Env[Any, Any]):
    """Needs to be told its size."""

    observation_space = BOX
    action_space = Discrete(2)
    sizes: ClassVar[list[int]] = [1, 2]

    def __init__(self, size: int) -> None:
        self.size = size


def nothing() -> None:
    """Forgets to return what it has made."""


def a_class() -> type:
    """Returns the class, not one of it."""
    return Alone


class Rounds(AECEnv):
    """Three in turns; after each of two rounds all are paid 5, by `rewards` (`honest`) or by what `last` tells alone."""

    metadata: ClassVar[dict[str, Any]] = {"name": "rounds"}
    possible_agents: ClassVar[list[str]] = ["a", "b", "c"]

    def __init__(self, honest: bool = False, pays: int = 5) -> None:
        self.honest, self.pays = honest, pays

    def observation_space(self, agent: str) -> Any:
        return BOX

    def action_space(self, agent: str) -> Any:
        return Discrete(2)

    def observe(self, agent: str) -> Any:
        return SEEN

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.t = list(self.possible_agents), 0
        self.rewards = dict.fromkeys(self.agents, 0)
        self._cumulative_rewards = dict(self.rewards)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict(self.terminations)
        self.infos: Any = {a: {} for a in self.agents}
        self.agent_selection = "a"

    def step(self, action: Any) -> None:
        if self.terminations[self.agent_selection]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[self.agent_selection] = 0
        self.t += 1
        paid = self.pays if self.t % 3 == 0 else 0
        if self.honest:
            self.rewards = dict.fromkeys(self.agents, paid)
            self._accumulate_rewards()
        else:
            self._cumulative_rewards = {a: total + paid for a, total in self._cumulative_rewards.items()}
        self.terminations = dict.fromkeys(self.agents, self.t == 6)
        self.agent_selection = self.possible_agents[self.t % 3]
