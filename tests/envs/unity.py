"""A game that speaks the low-level interface of Unity's ML-Agents, without Unity.

Each agent counts down from its own number; its action is added to what it is paid. An agent asks for an action in every `each` steps.
When it has counted to 0 it ends, and Unity puts another with a new id in its place at once.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
from starcraft import install


class Observed(NamedTuple):
    shape: tuple[int, ...]


class Acts(NamedTuple):
    continuous_size: int
    discrete_branches: tuple[int, ...]


class Spec(NamedTuple):
    observation_specs: list[Observed]
    action_spec: Acts


class ActionTuple:
    def __init__(self, continuous: Any = None, discrete: Any = None) -> None:
        self.continuous, self.discrete = continuous, discrete


@dataclasses.dataclass
class Steps:
    """DecisionSteps or TerminalSteps."""

    obs: list[Any]
    reward: Any
    agent_id: Any
    group_id: Any
    group_reward: Any
    action_mask: Any = None
    interrupted: Any = None


@dataclasses.dataclass
class Counting:
    """One agent. lives: what it counts down from, in its first life and the others. interrupted: how it ends."""

    lives: int
    each: int = 1
    interrupted: bool = False
    left: int = 0
    id: int = -1
    earned: float = 0.0


Cast = dict[str, tuple[Spec, list[Counting]]]
ONE = Spec([Observed((2,))], Acts(1, ()))
CHOOSING = Spec([Observed((2,)), Observed((1,))], Acts(0, (2, 3)))
PICKING = Spec([Observed((2,))], Acts(0, (3,)))


class FakeUnity:
    """cast: behaviour -> (what it sees and does, its agents). Each agent of a behaviour has forbidden the last choice of each number in
    odd counts."""

    cast: Cast = {}  # noqa: RUF012  set by tests

    def __init__(self, file_name: str, **options: Any) -> None:
        if file_name == "nowhere":
            raise FileNotFoundError("Couldn't launch the nowhere environment")
        self.file_name, self.options = file_name, options
        self.closed = False
        self.next_id = 0
        self.sent: list[tuple[str, Any]] = []
        self.mine = {
            name: (spec, [dataclasses.replace(agent) for agent in agents]) for name, (spec, agents) in self.cast.items()
        }
        self.behavior_specs: dict[str, Spec] = {}
        self.resets = 0

    def _born(self, agent: Counting) -> None:
        agent.left, agent.id, agent.earned = agent.lives, self.next_id, 0.0
        self.next_id += 1

    def reset(self) -> None:
        self.resets += 1
        self.behavior_specs = {name: spec for name, (spec, _) in self.mine.items()}
        self.ended: dict[str, list[tuple[int, int, float, bool]]] = {name: [] for name in self.mine}
        for _, agents in self.mine.values():
            for agent in agents:
                self._born(agent)
        self.asking = {name: list(agents) for name, (_, agents) in self.mine.items()}

    def set_actions(self, name: str, action: ActionTuple) -> None:
        spec = self.mine[name][0].action_spec
        rows = action.continuous if spec.continuous_size else action.discrete
        assert rows.shape == (len(self.asking[name]), spec.continuous_size or len(spec.discrete_branches))
        assert rows.dtype == (np.float32 if spec.continuous_size else np.int32)
        self.sent.append((name, rows.tolist()))
        for agent, row in zip(self.asking[name], rows, strict=True):
            agent.earned += float(row.sum())

    def step(self) -> None:
        for name, (_, agents) in self.mine.items():
            self.ended[name], self.asking[name] = [], []
            for agent in agents:
                agent.left -= 1
                if agent.left == 0:
                    self.ended[name].append((agent.id, agent.left, agent.earned, agent.interrupted))
                    self._born(agent)
                    self.asking[name].append(agent)
                elif (agent.lives - agent.left) % agent.each == 0:
                    self.asking[name].append(agent)

    def get_steps(self, name: str) -> tuple[Steps, Steps]:
        spec = self.mine[name][0]
        asking, ended = self.asking[name], self.ended[name]
        decisions = self._steps(spec, [(a.id, a.left, a.earned) for a in asking])
        for agent in asking:
            agent.earned = 0.0
        if spec.action_spec.discrete_branches:
            decisions.action_mask = [
                np.array([[c == n - 1 and a.left % 2 == 1 for c in range(n)] for a in asking], bool).reshape(-1, n)
                for n in spec.action_spec.discrete_branches
            ]
        terminal = self._steps(spec, [(i, left, earned) for i, left, earned, _ in ended])
        terminal.interrupted = np.array([how for *_, how in ended], bool)
        return decisions, terminal

    def _steps(self, spec: Spec, rows: list[tuple[int, int, float]]) -> Steps:
        n = len(rows)
        obs = [np.zeros((n, *seen.shape), np.float32) for seen in spec.observation_specs]
        for k, (_, left, _) in enumerate(rows):
            for part in obs:
                part[k] = left
        return Steps(
            obs=obs,
            reward=np.array([earned for *_, earned in rows], np.float32),
            agent_id=np.array([i for i, *_ in rows], np.int32),
            group_id=np.zeros(n, np.int32),
            group_reward=np.full(n, 0.5, np.float32),
        )

    def close(self) -> None:
        self.closed = True


class FakeChannel:
    """Of either kind."""

    def __init__(self) -> None:
        self.said: dict[str, float] = {}

    def set_configuration_parameters(self, *, time_scale: float) -> None:
        self.said["time_scale"] = time_scale

    def set_float_parameter(self, name: str, value: float) -> None:
        self.said[name] = value


def install_unity(monkeypatch: pytest.MonkeyPatch, cast: Cast) -> None:
    monkeypatch.setattr(FakeUnity, "cast", cast)
    install(monkeypatch, "mlagents_envs.base_env", ActionTuple=ActionTuple)
    install(monkeypatch, "mlagents_envs.environment", UnityEnvironment=FakeUnity)
    channels = "mlagents_envs.side_channel"
    install(monkeypatch, f"{channels}.engine_configuration_channel", EngineConfigurationChannel=FakeChannel)
    install(monkeypatch, f"{channels}.environment_parameters_channel", EnvironmentParametersChannel=FakeChannel)
