"""Small environments with one fault each, for the detectors of `ludus check-env`, and some that are right."""

from __future__ import annotations

import mmap
from itertools import count
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

# --------------------------------------------------------------------------------------------------------------------
# One player: a walk on a line, which is right, and its faults.


class Walk(gymnasium.Env[Any, Any]):
    """Steps left and right with some wind; ends at the borders, is truncated after 60 steps."""

    border, most = 4.0, 60
    observation_space = Box(-10, 10, (2,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.t = float(self.np_random.uniform(-1, 1)), 0
        return self.view(), self.info()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.t += 1
        self.x += self.move(action)
        return self.view(), self.reward(), self.over(), self.t >= self.most, self.info()

    def move(self, action: Any) -> float:
        return (1.0 if action == 1 else -1.0) + float(self.np_random.normal(0, 0.3))

    def view(self) -> Any:
        return np.array([np.clip(self.x, -10, 10), abs(np.clip(self.x, -10, 10))], np.float32)

    def reward(self) -> Any:
        return 1.0 if self.x >= self.border else 0.0

    def over(self) -> bool:
        return abs(self.x) >= self.border

    def info(self) -> dict[str, Any]:
        return {}


class Diary(Walk):
    """Always 24 steps; three of 4,800 numbers show the step, the others show where it is, and noise."""

    observation_space = Box(-10, 10, (4800,), np.float32)

    def view(self) -> Any:
        numbers = np.clip(self.x + self.np_random.normal(0, 1, 4800), -10, 10).astype(np.float32)
        numbers[3001:3004] = self.t / 3
        return numbers

    def over(self) -> bool:
        return bool(self.t >= 24)


class SeedIgnored(Walk):
    """Its generator begins again with 0, whatever the seed."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.generator = np.random.default_rng(0)
        self.x, self.t = float(self.generator.uniform(-1, 1)), 0
        return self.view(), {}

    def move(self, action: Any) -> float:
        return (1.0 if action == 1 else -1.0) + float(self.generator.normal(0, 0.3))


class StartsByCount(Walk):
    """Its start is drawn from a generator of each object, which follows no seed; all objects begin alike."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.number = getattr(self, "number", -1) + 1
        self.x = 0.1 * (self.number % 7)
        return self.view(), {}


class GlobalRandomness(Walk):
    """Draws its wind from the process' generator."""

    def move(self, action: Any) -> float:
        return (1.0 if action == 1 else -1.0) + float(np.random.normal(0, 0.3))  # noqa: NPY002  the fault


class LeakedScore(Walk):
    """A streak of earlier episodes' moves is not reset, and pays."""

    streak = 0

    def move(self, action: Any) -> float:
        self.streak += int(action)
        return super().move(action)

    def reward(self) -> Any:
        return float(self.streak % 5)


class SharedCounter(Walk):
    """A counter of the class moves all of its objects."""

    moves = count()

    def move(self, action: Any) -> float:
        return super().move(action) + 0.1 * (next(self.moves) % 3)


class LimitAsEnd(Walk):
    """Calls the limit of steps an end."""

    border, most = 1e9, 30

    def over(self) -> bool:
        return self.t >= 30


class LimitSometimes(Walk):
    """Ends at borders, which are far, and calls its limit an end, too."""

    border, horizon = 7.0, 25

    def over(self) -> bool:
        return abs(self.x) >= self.border or self.t >= self.horizon


class ActionsIgnored(Walk):
    """Reads no action."""

    def move(self, action: Any) -> float:
        return float(self.np_random.normal(0, 1))


class OneBuffer(Walk):
    """Answers the same array in every step."""

    def view(self) -> Any:
        if not hasattr(self, "buffer"):
            self.buffer = np.zeros(2, np.float32)
        self.buffer[:] = self.x, abs(self.x)
        return self.buffer


class OutOfSpace(Walk):
    """Observations leave their space near the border."""

    observation_space = Box(-2, 2, (2,), np.float32)


class NotANumber(Walk):
    """Divides by nothing after seven steps."""

    def view(self) -> Any:
        return super().view() * (np.nan if self.t >= 7 else 1)


class EndsAtOnce(Walk):
    """Most first moves end it."""

    action_space = Discrete(5)

    def over(self) -> bool:
        return super().over() or (self.t == 1 and self.fatal)

    def move(self, action: Any) -> float:
        self.fatal = action >= 1
        return float(self.np_random.normal(0, 0.5))


class Endless(Walk):
    """Has neither borders nor a limit."""

    border, most = 1e9, 10**9


class VectorReward(Walk):
    """Pays two numbers."""

    def reward(self) -> Any:
        return np.array([1.0, -self.x])


class GrowingMemory(Walk):
    """Holds a record of each episode, in pages of its own: what the heap has freed before does not hide it."""

    history: ClassVar[list[mmap.mmap]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        record = mmap.mmap(-1, 100_000)
        record.write(b"\1" * len(record))
        self.history.append(record)
        return super().reset(seed=seed)


class GoesOnAfterTheEnd(Walk):
    """Is over once only."""

    def over(self) -> bool:
        crossed = abs(self.x) >= self.border and not getattr(self, "crossed", False)
        self.crossed = crossed or getattr(self, "crossed", False)
        return crossed

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.crossed = False
        return super().reset(seed=seed)


class Unpicklable(Walk):
    """Has a function in its metadata."""

    def __init__(self) -> None:
        self.metadata = {"render_modes": [], "scale": lambda x: x}


class MaskTooNarrow(Walk):
    """Rules out a jump that works."""

    action_space = Discrete(3)

    def info(self) -> dict[str, Any]:
        return {"action_mask": np.array([1, 1, 0], np.int8)}

    def move(self, action: Any) -> float:
        return (-1.0, 1.0, 0.5)[int(action)]


class MaskOfNumbers(Walk):
    """Its action is two numbers; the mask of the second one rules out what works."""

    action_space = MultiDiscrete([2, 3])

    def info(self) -> dict[str, Any]:
        return {"action_mask": np.array([1, 1, 1, 1, 0], np.int8)}

    def move(self, action: Any) -> float:
        return (-1.0, 1.0)[int(action[0])] + (0.0, 0.1, 0.25)[int(action[1])]


class MaskTooWide(Walk):
    """Permits an action that raises."""

    action_space = Discrete(3)

    def info(self) -> dict[str, Any]:
        return {"action_mask": np.array([1, 1, 1], np.int8)}

    def move(self, action: Any) -> float:
        if action == 2 and self.x > 0:
            raise ValueError("a wall")
        return super().move(action)


class Grid(gymnasium.Env[Any, Any]):
    """A walk through rooms without chance, with masks, paid at its end: it is right."""

    observation_space = Box(0, 1, (5,), np.float32)
    action_space = Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.t = 1, 0
        return self.view(), self.info()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if not self.info()["action_mask"][int(action)]:
            raise ValueError("no way")
        self.t += 1
        self.place += (-1, 1, 2)[int(action)]
        return self.view(), float(self.place == 4), self.place == 4, self.t >= 40, self.info()

    def view(self) -> Any:
        return np.eye(5, dtype=np.float32)[self.place]

    def info(self) -> dict[str, Any]:
        return {"action_mask": np.array([self.place > 0, self.place < 4, self.place < 3], np.int8)}


# --------------------------------------------------------------------------------------------------------------------
# Several players at a time: guesses of a number, PettingZoo's parallel interface.


class Guesses:
    """Each of the agents guesses a number of three; rounds are paid, the game ends after a random number of them. It is right."""

    metadata: ClassVar[dict[str, Any]] = {"name": "guesses"}
    render_mode = None
    names: tuple[str, ...] = ("a_0", "b_0")

    def __init__(self) -> None:
        self.possible_agents = list(self.names)

    def observation_space(self, agent: str) -> Any:
        return Box(0, 3, (4,), np.float32)

    def action_space(self, agent: str) -> Any:
        return Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.generator = np.random.default_rng(seed)
        self.agents, self.t = list(self.names), 0
        self.guesses = dict.fromkeys(self.names, 0)
        self.target = int(self.generator.integers(3))
        return self.views(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.t += 1
        self.guesses.update({agent: int(action) for agent, action in actions.items()})
        rewards = self.rewards()
        self.target = int(self.generator.integers(3))
        ends = bool(self.generator.random() < 0.25)
        acting, views = self.agents, self.views()
        flags = (dict.fromkeys(acting, ends), dict.fromkeys(acting, False))
        self.agents = [] if ends else self.agents
        return views, rewards, *flags, {agent: {} for agent in acting}

    def views(self) -> dict[str, Any]:
        return {
            agent: np.array([self.target, k, *list(self.guesses.values())[:2]], np.float32)
            for k, agent in enumerate(self.agents)
        }

    def hits(self) -> dict[str, int]:
        return {agent: int(self.guesses[agent] == self.target) for agent in self.agents}

    def rewards(self) -> dict[str, float]:
        hits = self.hits()
        mean = sum(hits.values()) / len(hits)
        return {agent: 2.0 * (hit - mean) for agent, hit in hits.items()}

    def close(self) -> None:
        return None


class TeamGuesses(Guesses):
    """Two teams of two, each agent paid half of its team's difference. It is right."""

    names = ("a_0", "a_1", "b_0", "b_1")

    def rewards(self) -> dict[str, float]:
        hits = self.hits()
        lead = sum(hit if agent[0] == "a" else -hit for agent, hit in hits.items())
        return {agent: 0.5 * (lead if agent[0] == "a" else -lead) for agent in hits}


class TeamsPaidUnequally(TeamGuesses):
    """One team shares its reward, of the other one agent gets nearly all."""

    def rewards(self) -> dict[str, float]:
        shares = super().rewards()
        return {**shares, "b_0": 1.9 * shares["b_0"], "b_1": 0.1 * shares["b_1"]}


class NotZeroSum(Guesses):
    """Pays hits, and not their difference."""

    def rewards(self) -> dict[str, float]:
        return {agent: float(hit) for agent, hit in self.hits().items()}


class NotSymmetric(Guesses):
    """The second agent's hits count less."""

    def rewards(self) -> dict[str, float]:
        hits = self.hits()
        lead = hits["a_0"] - 0.5 * hits["b_0"]
        return {"a_0": lead, "b_0": -lead}


class CannotWin(Guesses):
    """The second agent can be as good as the first one at most."""

    def rewards(self) -> dict[str, float]:
        hits = self.hits()
        lead = float(hits["a_0"] > hits["b_0"])
        return {"a_0": lead, "b_0": -lead}


class SecondIgnored(Guesses):
    """Never reads the second agent's action."""

    def step(self, actions: dict[str, Any]) -> Any:
        return super().step({**actions, "b_0": self.t % 3})


class PaidWhenGone(Guesses):
    """The second agent leaves after two rounds, and is paid on."""

    def step(self, actions: dict[str, Any]) -> Any:
        views, rewards, terminated, truncated, infos = super().step(actions)
        if self.t == 2 and "b_0" in self.agents:
            terminated["b_0"] = True
            self.agents = ["a_0"]
        if self.t > 2:
            rewards["b_0"] = 1.0
        return views, rewards, terminated, truncated, infos


class OutOfRange(Guesses):
    """What its options call its range does not hold."""


# --------------------------------------------------------------------------------------------------------------------
# Turns: PettingZoo's AEC interface.


class Race:
    """Two agents take turns and go one or two steps; who comes to ten first wins. It is right, and without chance."""

    metadata: ClassVar[dict[str, Any]] = {"name": "race", "is_parallelizable": False}
    render_mode = None

    def __init__(self) -> None:
        self.possible_agents = ["first", "second"]

    def observation_space(self, agent: str) -> Any:
        return Box(0, 12, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = list(self.possible_agents)
        self.place = dict.fromkeys(self.agents, 0)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.agent_selection = "first"

    def observe(self, agent: str) -> Any:
        other = "second" if agent == "first" else "first"
        return np.array([self.place[agent], self.place[other]], np.float32)

    def last(self, observe: bool = True) -> Any:
        agent = self.agent_selection
        view = self.observe(agent) if observe else None
        return (
            view,
            self._cumulative_rewards[agent],
            self.terminations[agent],
            self.truncations[agent],
            self.infos[agent],
        )

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        other = "second" if agent == "first" else "first"
        if self.terminations[agent]:
            self.agents.remove(agent)
            self.agent_selection = other
            return
        self.place[agent] += 1 + int(action)
        self.rewards = dict.fromkeys(self.possible_agents, 0.0)
        if self.place[agent] >= 10:
            self.rewards = {agent: 1.0, other: -1.0}
            self.terminations = dict.fromkeys(self.possible_agents, True)
        for one, reward in self.rewards.items():
            self._cumulative_rewards[one] += reward
        self.agent_selection = other

    def close(self) -> None:
        return None


class AnothersTurn(Race):
    """`last` shows what the other agent sees."""

    def last(self, observe: bool = True) -> Any:
        _, *rest = super().last(observe)
        return (self.observe("second" if self.agent_selection == "first" else "first"), *rest)


FAULTS: dict[str, tuple[type, dict[str, Any], set[str]]] = {
    "a seed that does nothing": (SeedIgnored, {}, {"chance"}),
    "starts that follow a count": (StartsByCount, {}, {"starts", "determinism"}),
    "no determinism": (GlobalRandomness, {}, {"determinism"}),
    "a state that leaks into the next episode": (LeakedScore, {}, {"determinism", "episode leaks"}),
    "a state that objects share": (SharedCounter, {}, {"determinism", "neighbours"}),
    "a limit as an end": (LimitAsEnd, {}, {"limits"}),
    "a limit as an end, beside ends": (LimitSometimes, {}, {"limits"}),
    "a mask that is too narrow": (MaskTooNarrow, {}, {"masked actions"}),
    "a mask of numbers that is too narrow": (MaskOfNumbers, {}, {"masked actions"}),
    "a mask that is too wide": (MaskTooWide, {}, {"steps", "legal actions", "random play"}),
    "actions without effect": (ActionsIgnored, {}, {"effects of actions"}),
    "an agent without effect": (SecondIgnored, {}, {"effects of actions"}),
    "rewards of agents that are gone": (PaidWhenGone, {}, {"agents that are gone"}),
    "a repeated buffer": (OneBuffer, {}, {"own buffers"}),
    "observations outside of the space": (OutOfSpace, {}, {"observations"}),
    "observations that are no numbers": (NotANumber, {}, {"steps", "random play"}),
    "another's observation": (AnothersTurn, {}, {"views"}),
    "random play that ends at once": (EndsAtOnce, {}, {"ends at once"}),
    "a zero sum that is none": (NotZeroSum, {"zero_sum": True}, {"zero sum"}),
    "a symmetry that is none": (NotSymmetric, {"zero_sum": True, "symmetry": [[0, 1]]}, {"symmetry"}),
    "a player who cannot win": (CannotWin, {"zero_sum": True}, {"winners"}),
    "teams that are paid unequally": (TeamsPaidUnequally, {"teams": "prefix"}, {"teams"}),
    "returns outside of the range": (OutOfRange, {"utility_range": [-2, 2]}, {"utility range", "episodes"}),
    "memory that grows": (GrowingMemory, {}, {"memory"}),
    "vector rewards": (VectorReward, {}, {"vector rewards"}),
    "episodes that do not end": (Endless, {}, {"endless episodes"}),
    "steps after the end": (GoesOnAfterTheEnd, {}, {"steps after the end"}),
    "descriptions that cannot be sent": (Unpicklable, {}, {"descriptions"}),
}
"""What is wrong -> (class, options, checks of which one must say so)."""
RIGHT = SimpleNamespace(
    own={
        "a walk with wind": (Walk, {}),
        "a diary of few numbers that count": (Diary, {}),
        "a grid without chance": (Grid, {}),
        "guesses": (Guesses, {"zero_sum": True, "symmetry": [[0, 1]]}),
        "guesses of teams": (TeamGuesses, {"teams": "prefix", "zero_sum": True, "symmetry": [[0, 1]]}),
        "a race by turns": (Race, {"zero_sum": True}),
    },
    ids=(
        "gymnasium/CartPole-v1",
        "gymnasium/FrozenLake-v1",
        "openspiel/kuhn_poker",
        "openspiel/tic_tac_toe",
        "openspiel/leduc_poker",
        "pettingzoo/connect_four_v3",
        "pettingzoo/rps_v2",
        "mpe2/simple_spread_v3",
    ),
)
