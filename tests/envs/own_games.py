"""Users' own environments, one for each interface, some of which misbehave."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Tuple
from zoo_games import Relay, Shift

from ludus.testing.fakes import ENDS_OFF_TURN, ScriptedEnv

BOX = Box(-9, 9, (2,), np.float32)


class Mine(ScriptedEnv):
    """With Ludus's own interface."""

    def __init__(self, num_envs: int, speed: int = 1) -> None:
        super().__init__([ENDS_OFF_TURN], num_envs)
        self.speed = speed


class Corridor(gymnasium.Env[Any, Any]):
    """With Gymnasium's: walk `length` steps to the right, for 1 at the end."""

    observation_space = BOX
    action_space = Discrete(2)

    def __init__(self, length: int = 3) -> None:
        self.length = length
        self.at = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at = 0
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.at += int(action)
        there = self.at == self.length
        return self.seen(), float(there), there, False, {}

    def seen(self) -> Any:
        return np.array([self.at, 0], np.float32)


def corridor(length: int = 2) -> Corridor:
    """A function that makes one."""
    return Corridor(length)


class Plain:
    """With Gymnasium's interface, and none of its classes."""

    observation_space = BOX
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.full(2, self.t, np.float32), float(action), self.t == 3, False, {}

    def close(self) -> None:
        return None


class Specified(Plain, gymnasium.Env[Any, Any]):
    """Calls a thing of its own `spec`."""

    def __init__(self) -> None:
        self.spec: Any = {"max_episode_steps": 3}


ONE_CORRIDOR = Corridor()


def one_corridor() -> Corridor:
    """The same one each time."""
    return ONE_CORRIDOR


def wrapped_corridor() -> Any:
    """The same one, in a new wrapper each time."""
    return gymnasium.wrappers.TimeLimit(ONE_CORRIDOR, 5)


def one_duck() -> Any:
    """The same one each time, of several agents."""
    return ONE_DUCK


class Shared(gymnasium.vector.SyncVectorEnv):
    """One object in all places."""

    def __init__(self, num_envs: int) -> None:
        super().__init__([one_corridor] * num_envs)


class Restless:
    """With gymnasium.vector's interface, and none of its classes; what it says of restarts is no mode."""

    single_observation_space = BOX
    single_action_space = Discrete(2)

    def __init__(self, num_envs: int, says: str = "") -> None:
        self.num_envs = num_envs
        if says:
            self.metadata = {"autoreset_mode": says}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return None

    step = close = reset


class Corridors4(Plain):
    """With the interface of Stable-Baselines3's VecEnv."""

    num_envs = 4

    def step_async(self, actions: Any) -> None:
        return None

    def step_wait(self) -> Any:
        return None


class OneSpace(Plain):
    """Several agents, and one space for all of them."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return dict.fromkeys("ab", np.zeros(2, np.float32)), {}


def rllib() -> Any:
    """With RLlib's class, as far as that can be seen without RLlib."""
    base = type("MultiAgentEnv", (Plain,), {"__module__": "ray.rllib.env.multi_agent_env"})
    return type("Mine", (base,), {})()


class OldSpaces(Plain):
    """Some of its spaces are of the package that Gymnasium has replaced, or of none."""

    def __init__(self, which: str) -> None:
        old = type("Discrete", (), {"__module__": "gym.spaces.discrete"})()
        if which == "observation":
            self.observation_space = old
        else:
            self.action_space = 3 if which == "neither" else old


class Corridors(gymnasium.vector.SyncVectorEnv):
    """With gymnasium.vector's."""

    def __init__(self, num_envs: int) -> None:
        super().__init__([Corridor] * num_envs)


class Couple(gymnasium.Env[Any, Any]):
    """Gymnasium's, for two agents: tuples of spaces. Each is paid what the other chose; three steps."""

    observation_space = Tuple((BOX, BOX))
    action_space = Tuple((Discrete(2), Discrete(2)))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return (np.zeros(2, np.float32),) * 2, {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return (np.full(2, self.t, np.float32),) * 2, [float(action[1]), float(action[0])], self.t == 3, False, {}


class Turns(Relay):
    """With PettingZoo's AEC interface."""


class Together(Shift):
    """With PettingZoo's parallel interface."""


class Duck:
    """With PettingZoo's parallel interface, and none of its classes."""

    possible_agents: ClassVar[list[str]] = ["left", "right"]

    def observation_space(self, agent: str) -> Any:
        return BOX

    def action_space(self, agent: str) -> Any:
        return Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        return {a: np.zeros(2, np.float32) for a in self.agents}, {a: {} for a in self.agents}

    def step(self, actions: Any) -> Any:
        agents, self.agents = self.agents, []
        paid = {a: float(actions[a]) for a in agents}
        shown = {a: np.ones(2, np.float32) for a in agents}
        return shown, paid, dict.fromkeys(agents, True), dict.fromkeys(agents, False), {a: {} for a in agents}

    def close(self) -> None:
        return None


ONE_DUCK = Duck()


class NoEnv:
    """With none."""

    def __init__(self, num_envs: int) -> None:
        self.spec = None


def make_no_env(num_envs: int) -> NoEnv:
    return NoEnv(num_envs)


class Nameless(Shift):
    """PettingZoo's, but nobody knows who may appear."""

    possible_agents: ClassVar[list[str]] = []


class Unsized(Corridor):
    def __init__(self, num_envs: int) -> None:
        super().__init__()


class Broken(Shift):
    def __init__(self) -> None:
        raise RuntimeError("no fuel")


class Forgetful(Shift):
    """Its third step is wrong, in the way that `fault` says."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault

    def step(self, actions: Any) -> Any:
        shown, rewards, terminated, truncated, infos = super().step(actions)
        if self.t == 3:
            match self.fault:
                case "vanished":
                    self.agents.remove("worker_1")
                case "unseen":
                    del shown["worker_1"]
                case "stranger":
                    rewards["worker_9"] = 1.0
                case "mask":
                    infos["worker_1"] = {"action_mask": np.ones(3, np.int8)}
                case "nan":
                    rewards["worker_2"] = float("nan")
                case "hidden":
                    shown["worker_2"] = np.full(2, np.nan, np.float32)
                case "shape":
                    shown["worker_2"] = np.zeros(5, np.float32)
        return shown, rewards, terminated, truncated, infos


class Undead(Relay):
    """Its dead do not leave."""

    def _was_dead_step(self, action: Any) -> None:
        return None
