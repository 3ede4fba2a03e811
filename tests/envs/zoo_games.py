"""Small environments with PettingZoo's interfaces, whose every number can be worked out by hand."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from pettingzoo import AECEnv, ParallelEnv

SCOUT, GUARD = Box(-9, 9, (2,), np.float32), Box(-9, 9, (3,), np.float32)


class Relay(AECEnv):
    """scout_0 and scout_1 take turns; guard_0 joins after the second move, and moves last in the round.

    Whoever moves is paid its action, and everybody else who is there -1. scout_0 is truncated by its second move, the game ends
    for all with the seventh. Observations: (own number, moves so far[, 5]).
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "relay_v0", "is_parallelizable": False, "render_modes": ["ansi"]}
    possible_agents: ClassVar[list[str]] = ["scout_0", "scout_1", "guard_0"]

    def __init__(self, masks: str = "", render_mode: str | None = None) -> None:
        self.masks = masks
        self.render_mode = render_mode

    def observation_space(self, agent: str) -> Any:
        space = GUARD if agent == "guard_0" else SCOUT
        if self.masks != "observation":
            return space
        return Dict({"observation": space, "action_mask": Box(0, 1, (self.action_space(agent).n,), np.int8)})

    def action_space(self, agent: str) -> Any:
        return Discrete(4, start=1) if agent == "guard_0" else Discrete(2)

    def mask(self, agent: str) -> Any:
        """The last action is legal on even moves only."""
        mask = np.ones(self.action_space(agent).n, np.int8)
        mask[-1] = self.moves % 2 == 0
        return mask

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = ["scout_0", "scout_1"]
        self.moves = 0
        self.turns = {agent: 0 for agent in self.possible_agents}
        self.agent_selection = "scout_0"
        self._skip_agent_selection = None
        self._fill()

    def _fill(self) -> None:
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self._tell()

    def _tell(self) -> None:
        self.infos = {a: {"action_mask": self.mask(a)} if self.masks == "info" else {} for a in self.agents}

    def observe(self, agent: str) -> Any:
        seen = [self.possible_agents.index(agent), self.moves] + ([5] if agent == "guard_0" else [])
        row = np.array(seen, np.float32)
        return {"observation": row, "action_mask": self.mask(agent)} if self.masks == "observation" else row

    def step(self, action: Any) -> None:
        mover = self.agent_selection
        if self.terminations[mover] or self.truncations[mover]:
            self._was_dead_step(action)
            return
        assert self.action_space(mover).contains(action)
        self.moves += 1
        self.turns[mover] += 1
        self._cumulative_rewards[mover] = 0
        self.rewards = {a: float(action) if a == mover else -1.0 for a in self.agents}
        self._accumulate_rewards()
        if self.moves == 2:
            self.agents.append("guard_0")
            for column, value in ((self.rewards, 0.0), (self._cumulative_rewards, 0.0)):
                column["guard_0"] = value
            self.terminations["guard_0"] = self.truncations["guard_0"] = False
        living = [a for a in self.agents if not (self.terminations[a] or self.truncations[a])]
        self.agent_selection = living[(living.index(mover) + 1) % len(living)]
        if mover == "scout_0" and self.turns[mover] == 2:
            self.truncations[mover] = True
        if self.moves == 7:
            self.terminations = dict.fromkeys(self.agents, True)
        self._tell()
        self._deads_step_first()

    def render(self) -> str:
        return f"move {self.moves}"


class Shift(ParallelEnv):
    """Three workers act at once; everybody is paid the sum of all actions. worker_0 is terminated by the second step, the others are
    truncated by the fourth. `silent`: nobody is shown anything at its own end."""

    metadata: ClassVar[dict[str, Any]] = {"name": "shift_v0"}
    possible_agents: ClassVar[list[str]] = ["worker_0", "worker_1", "worker_2"]
    render_mode = None

    def __init__(self, silent: bool = False) -> None:
        self.silent = silent

    def observation_space(self, agent: str) -> Any:
        return SCOUT

    def action_space(self, agent: str) -> Any:
        return Discrete(3)

    def seen(self, agent: str) -> Any:
        return np.array([self.possible_agents.index(agent), self.t], np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        self.agents = list(self.possible_agents)
        return {a: self.seen(a) for a in self.agents}, {a: {} for a in self.agents}

    def step(self, actions: Any) -> Any:
        assert list(actions) == self.agents
        self.t += 1
        before = self.agents
        terminated = {a: a == "worker_0" and self.t == 2 for a in before}
        truncated = {a: self.t == 4 for a in before}
        self.agents = [a for a in before if not (terminated[a] or truncated[a])]
        shown = {a: self.seen(a) for a in (self.agents if self.silent else before)}
        reward = float(sum(actions.values()))
        return shown, dict.fromkeys(before, reward), terminated, truncated, {a: {} for a in before}

    def state(self) -> Any:
        return np.array([self.t, len(self.agents)], np.float32)

    def close(self) -> None:
        return None
