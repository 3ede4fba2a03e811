"""Small scripted parts to try the seams with: environments that follow a script, and policies whose answers are known beforehand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from ludus.core.errors import EnvError
from ludus.core.types import (
    ActionRequests,
    AgentSpec,
    Array,
    ClosedDecisions,
    Enumeration,
    EnvSpec,
    FinishedEpisodes,
    PolicyOutput,
    PolicySpec,
    Timestep,
    Weights,
)
from ludus.envs.publisher import TERMINATED
from ludus.envs.python_vector import EnvStepResult, PythonVectorEnv

__all__ = [
    "COINS",
    "ENDS_OFF_TURN",
    "TEAM",
    "TRUNCATED_OFF_TURN",
    "CoinGame",
    "CountingPolicy",
    "FixedPolicy",
    "Frame",
    "Script",
    "ScriptedEnv",
    "StackedFixed",
    "coins",
]

_ACTIONS = 2


@dataclass(frozen=True, slots=True)
class Frame:
    """One timestep. due: (agent, observation, reward since its last decision). ended: (agent, reward, final observation).
    Agents are numbered through all players."""

    due: tuple[tuple[int, float, float], ...] = ()
    ended: tuple[tuple[int, float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Script:
    """One episode: frames at times 0 … T; the last one has nothing due, and its `ended` closes everything that is open.
    player: of each agent."""

    player: tuple[int, ...]
    frames: tuple[Frame, ...]
    returns: tuple[float, ...]
    terminated: bool = True


ENDS_OFF_TURN = Script(
    player=(0, 1),
    frames=(
        Frame(due=((0, 1, 0),)),
        Frame(due=((1, 2, 0),)),
        Frame(due=((0, 3, 0.5),)),
        Frame(due=((1, 4, -0.5),)),
        Frame(ended=((0, 1.0, 5), (1, -1.0, 6))),
    ),
    returns=(1.5, -1.5),
)
"""Two players in turns; player 1's second move ends the game, while player 0's last decision is still open."""

TRUNCATED_OFF_TURN = Script(
    player=(0, 1),
    frames=(
        Frame(due=((0, 1, 0),)),
        Frame(due=((1, 2, 0),)),
        Frame(ended=((0, 0.25, 7), (1, -0.25, 8))),
    ),
    returns=(0.25, -0.25),
    terminated=False,
)
"""The episode is cut off by its time limit after player 1's move."""

TEAM = Script(
    player=(0, 0, 1),
    frames=(
        Frame(due=((0, 10, 0), (1, 11, 0), (2, 12, 0))),
        Frame(due=((0, 20, 0),)),  # agent 1 has died; its decision stays open until its team has its reward
        Frame(due=((0, 30, 1.0), (2, 32, -1.0))),
        Frame(ended=((0, 2.0, 40), (1, 3.0, 41), (2, -2.0, 42))),
    ),
    returns=(3.0, -3.0),
)
"""Player 0 is a team of agents 0 and 1, which share its reward; agent 1 dies before the team scores."""


class ScriptedEnv:
    """`VectorEnv` in which environment e plays scripts[e mod len], episode after episode, whatever the actions (0 and 1) are.
    state: whether it has one, (environment, time)."""

    def __init__(self, scripts: Sequence[Script], num_envs: int, *, state: bool = False) -> None:
        self.num_envs = num_envs
        self._scripts = [scripts[e % len(scripts)] for e in range(num_envs)]
        player = scripts[0].player
        space = Box(-np.inf, np.inf, (1,), np.float32)
        self.spec = EnvSpec(
            id="scripted",
            agents=tuple(AgentSpec(f"agent_{a}", p, space, Discrete(_ACTIONS)) for a, p in enumerate(player)),
            utility_range=((-np.inf, np.inf),) * (max(player) + 1),
            symmetry=tuple((p,) for p in range(max(player) + 1)),
            state=Box(0, np.inf, (2,), np.float32) if state else None,
        )
        self._local = [sum(q == p for q in player[:a]) for a, p in enumerate(player)]
        self._time = [0] * num_envs
        self._left = [-1] * num_envs

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`; the seeds change nothing."""
        quota = np.asarray(-1 if episodes is None else episodes, np.int64)
        self._left = np.broadcast_to(quota, self.num_envs).tolist()
        self._time = [0] * self.num_envs
        return self._timestep([])

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """See `VectorEnv.step`."""
        if any(((a < 0) | (a >= _ACTIONS)).any() for a in actions):
            raise EnvError("an action other than 0 and 1 was given.")
        finished = []
        for e, script in enumerate(self._scripts):
            if not self._left[e]:
                continue
            self._time[e] += 1
            if self._time[e] == len(script.frames) - 1:
                finished.append(e)
                self._left[e] -= 1
                self._time[e] = 0
        return self._timestep(finished)

    def snapshot(self) -> bytes | None:
        """Return times and quotas as JSON."""
        return json.dumps([self._time, self._left, self._last]).encode()

    def restore(self, snapshot: bytes) -> Timestep:
        """See `VectorEnv.restore`."""
        self._time, self._left, finished = json.loads(snapshot)
        return self._timestep(finished)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _timestep(self, finished: list[int]) -> Timestep:
        self._last = finished
        due: list[list[tuple[int, float, float, bool]]] = [[] for _ in self.spec.utility_range]
        ended: list[list[tuple[int, float, bool, float]]] = [[] for _ in self.spec.utility_range]
        for e, script in enumerate(self._scripts):
            frames, now = script.frames, self._time[e]
            for agent, reward, final in self._closing(e, finished):
                ended[script.player[agent]].append((self._slot(e, agent), reward, script.terminated, final))
            if self._left[e]:
                for agent, observation, reward in frames[now].due:
                    acted_before = any(agent == a for frame in frames[:now] for a, _, _ in frame.due)
                    due[script.player[agent]].append((self._slot(e, agent), observation, reward, not acted_before))
        return Timestep(
            tuple(_due(rows) for rows in due),
            tuple(_ended(rows) for rows in ended),
            FinishedEpisodes(
                np.array(finished, np.int32),
                np.array([self._scripts[e].returns for e in finished], np.float64).reshape(-1, len(due)),
                np.array([self._scripts[e].terminated for e in finished], np.bool_),
                np.array([len(self._scripts[e].frames) - 1 for e in finished], np.int32),
            ),
            *self._states(finished),
        )

    def _states(self, finished: list[int]) -> tuple[Array | None, Array | None]:
        if self.spec.state is None:
            return None, None
        over = [(e, len(self._scripts[e].frames) - 1) for e in finished]
        return np.array([*enumerate(self._time)], np.float32), np.array(over, np.float32).reshape(-1, 2)

    def _closing(self, environment: int, finished: list[int]) -> tuple[tuple[int, float, float], ...]:
        frames = self._scripts[environment].frames
        return frames[-1].ended if environment in finished else frames[self._time[environment]].ended

    def _slot(self, environment: int, agent: int) -> int:
        team = len(self.spec.agents_of(self.spec.agents[agent].player))
        return environment * team + self._local[agent]


def _due(rows: list[tuple[int, float, float, bool]]) -> ActionRequests:
    return ActionRequests(
        np.array([row[0] for row in rows], np.int32),
        np.array([[row[1]] for row in rows], np.float32).reshape(-1, 1),
        np.ones((len(rows), _ACTIONS), np.bool_),
        np.array([row[2] for row in rows], np.float32),
        np.array([row[3] for row in rows], np.bool_),
    )


def _ended(rows: list[tuple[int, float, bool, float]]) -> ClosedDecisions:
    return ClosedDecisions(
        np.array([row[0] for row in rows], np.int32),
        np.array([row[1] for row in rows], np.float32),
        np.array([row[2] for row in rows], np.bool_),
        np.array([[row[3]] for row in rows], np.float32).reshape(-1, 1),
        np.ones((len(rows), _ACTIONS), np.bool_),
    )


class FixedPolicy:
    """Always plays config["action"], with logp config.get("logp", 0). Counts nothing, remembers nothing, and can be stacked."""

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")
    noise_width = 1
    memory_shape: tuple[int, ...] | None = None
    takes_ids = False

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        self.action = int(weights["action"])
        self.logp = float(spec.config.get("logp", 0.0))

    @classmethod
    def of(cls, action: int, *, logp: float = 0.0) -> FixedPolicy:
        """Return a policy that plays `action`."""
        return cls(PolicySpec("ludus.testing.fakes:FixedPolicy", {"logp": logp}), {"action": np.array(action)})

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> PolicyOutput:
        """Return the same action for every row; the extra "seen" repeats the first number of each observation."""
        n = len(observation)
        first_number = np.asarray(observation, np.float32).reshape(n, -1)[:, 0].copy()
        return PolicyOutput(
            np.full(n, self.action, np.int32), np.full(n, self.logp, np.float32), None, {"seen": first_number}
        )

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Return None: the action may be illegal."""
        return None

    def weights(self) -> Weights:
        return {"action": np.array(self.action)}

    @classmethod
    def stack(cls, policies: Sequence[FixedPolicy]) -> StackedFixed:
        """Return several as one."""
        return StackedFixed([policy.action for policy in policies], policies[0].logp)


class StackedFixed:
    """Row i plays actions[index[i]]; `calls` says how often it was asked."""

    calls: ClassVar[int] = 0

    def __init__(self, actions: Sequence[int], logp: float) -> None:
        self.actions = np.array(actions, np.int32)
        self.logp = logp

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        index: NDArray[np.int32],
        mode: str = "explore",
    ) -> PolicyOutput:
        StackedFixed.calls += 1
        return PolicyOutput(self.actions[index], np.full(len(index), self.logp, np.float32))


class CountingPolicy:
    """Recurrent: its memory counts its own decisions in the episode, and its action is that count modulo 2."""

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")
    noise_width = 1
    memory_shape: tuple[int, ...] | None = (1,)
    takes_ids = False

    def __init__(self, spec: PolicySpec | None = None, weights: Mapping[str, Array] | None = None) -> None:
        self.spec = spec or PolicySpec("ludus.testing.fakes:CountingPolicy")

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> PolicyOutput:
        assert memory is not None
        count = memory[:, 0].astype(np.int32)
        return PolicyOutput(count % _ACTIONS, np.zeros(len(count), np.float32), memory + 1)

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Return None: it has memory."""
        return None

    def weights(self) -> Weights:
        return {}


# --------------------------------------------------------------------------------------------------------------------
# A task that cannot be solved without memory: a cue is seen, and asked for many steps later.


class Cue(gymnasium.Env[NDArray[np.float32], np.int64]):
    """The first observation shows which of two choices is right; `delay` steps later a bell rings, and the choice made then counts: 1 if it
    is right, 0 if not. In between nothing is seen and no action matters.

    Observations are float32[2]: the cue (-1 or 1 at first, then 0) and the bell (1 when it rings). An episode has `delay` + 1 decisions.
    Whoever sees only the present is right half of the time. Raises ValueError for a `delay` below 1.
    """

    def __init__(self, delay: int = 20) -> None:
        if delay < 1:
            raise ValueError(f"delay is {delay}; the cue must be gone when the bell rings, so give at least 1")
        self.observation_space = Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = Discrete(2)
        self._delay = delay
        self._right = 0
        self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._right, self._step = int(self.np_random.integers(2)), 0
        return np.array([2 * self._right - 1, 0], np.float32), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        over = self._step == self._delay
        self._step += 1
        reward = float(over and int(action) == self._right)
        return np.array([0, self._step == self._delay], np.float32), reward, over, False, {}


# --------------------------------------------------------------------------------------------------------------------
# A task whose rewards say nothing until it is solved.


class KeyAndDoor(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Two rooms of `size` × `size` cells beside each other, and a door between them, in the corner below. Who has been where the key lies,
    in the corner above, can pass the door. The goal, in the far corner above of the second room, pays 1; nothing else pays.

    Observations are float32[2 × size × (2 × size + 1)]: one-hot, the cell that it is in, without the key or with it. Actions: right, down,
    left, up. After `steps` decisions an episode is truncated. Raises ValueError for fewer steps than the way is long, or a `size` below 2.
    """

    def __init__(self, size: int = 6, steps: int = 80) -> None:
        if size < 2 or steps < 5 * size - 3:
            raise ValueError(
                f"size is {size} and steps {steps}; expected rooms of 2 × 2 cells at least, and the {5 * size - 3} steps of the way"
            )
        self.observation_space = Box(0.0, 1.0, (2 * size * (2 * size + 1),), np.float32)
        self.action_space = Discrete(4)
        self._size, self._steps = size, steps
        self._row = self._column = self._step = 0
        self._key = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._row = self._column = self._step = 0
        self._key = False
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        size, a = self._size, int(action)
        row, column = self._row + (0, 1, 0, -1)[a], self._column + (1, 0, -1, 0)[a]
        wall = column == size and not (row == size - 1 and self._key)
        if 0 <= row < size and 0 <= column <= 2 * size and not wall:
            self._row, self._column = row, column
        self._key |= (self._row, self._column) == (0, size - 1)
        self._step += 1
        over = (self._row, self._column) == (0, 2 * size)
        return self._seen(), float(over), over, not over and self._step == self._steps, {}

    def _seen(self) -> NDArray[np.float32]:
        planes = np.zeros((2, self._size, 2 * self._size + 1), np.float32)
        planes[int(self._key), self._row, self._column] = 1.0
        return planes.ravel()


# --------------------------------------------------------------------------------------------------------------------
# A game that counts what its players do, beside what they are paid.

COINS = ("taken", "left", "alone")


class CoinGame:
    """A `PythonEnv`. Two players choose at the same time, in two to four rounds (by the seed), to take a coin (1) or to leave it (0). Who
    takes alone is paid 1 by the other. Statistics, so far in each step: coins taken, coins left, and coins taken alone."""

    game = "coins"

    def reset(self, seed: int) -> EnvStepResult:
        self.round, self.rounds = 0, 2 + seed % 3
        self.counted = np.zeros((2, len(COINS)))
        return EnvStepResult(due=self._seen())

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        self.round += 1
        took = np.array(actions, np.int64)
        alone = took > took[::-1]
        self.counted += np.stack([took, 1 - took, alone], axis=1)
        reward = [(p, float(paid)) for p, paid in enumerate(took - took[::-1])]
        counted = self.counted.copy()
        if self.round < self.rounds:
            return EnvStepResult(due=self._seen(), reward=reward, statistics=counted)
        gone = [(p, np.array([self.round], np.float32), TERMINATED) for p in range(2)]
        return EnvStepResult(reward=reward, gone=gone, over=TERMINATED, statistics=counted)

    def _seen(self) -> list[tuple[int, Any, Any]]:
        return [(p, np.array([self.round], np.float32), None) for p in range(2)]

    def render(self) -> str:
        return f"round {self.round} of {self.rounds}"

    def close(self) -> None:
        """Do nothing: nothing is open."""


def coins(num_envs: int) -> PythonVectorEnv:
    """Return a vector of `CoinGame`s, by name: `ludus.testing.fakes:coins`."""
    space = Box(0, 4, (1,), np.float32)
    spec = EnvSpec(
        id="coins",
        agents=tuple(AgentSpec(f"player_{p}", p, space, Discrete(2)) for p in range(2)),
        utility_range=((-4.0, 4.0),) * 2,
        symmetry=((0,), (1,)),
        zero_sum=True,
        max_decisions=4,
        statistics=COINS,
    )
    return PythonVectorEnv(CoinGame, num_envs, spec=spec, masked=(False, False))
