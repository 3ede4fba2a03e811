"""What probes share: one vector of equal size for all plays, its time, and copies of one environment in one state.

seed, path of actions -> every copy is reset with that seed and plays that path -> each copy goes another way
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.errors import EnvError
from ludus.core.types import Array, EnvSpec, Timestep
from ludus.envs import publisher_kernels
from ludus.envs.base import ExposesGameState, VectorEnv
from ludus.envs.python_vector import PythonVectorEnv
from ludus.envs.spaces import Choices
from ludus.testing.detector.recording import Recording
from ludus.testing.ledger import Actor, Row, legal_actions, record

Make: TypeAlias = Callable[[int], VectorEnv]
Path: TypeAlias = list[tuple[Array, ...]]
"""Actions of one environment, step by step: [steps][player] one row for each due agent."""
_MOST = 64  # actions of one agent that are tried in one state


@dataclass(frozen=True, slots=True)
class Budget:
    """How much is played.

    Attributes:
        seconds: Of all detectors, about.
        episodes: That are recorded, at most.
        longest: Steps after which an episode counts as one that does not end.
        clock: That seconds are of; on a machine with other work `time.process_time` gives every environment as much.
    """

    seconds: float = 10.0
    episodes: int = 1000
    longest: int = 10_000
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class State:
    """A state of one environment, by what led to it.

    Attributes:
        seed: Of the environment.
        path: All actions since the reset.
        due: [P] indices of each player's agents that are due in it.
    """

    seed: int
    path: Path
    due: tuple[tuple[int, ...], ...]


class Session:
    """One vector that is reset again and again, and replaced after it raised.

    Args:
        make: Makes a vector of the given number of environments.
        num_envs: Number of copies.
        seed: Of all random streams.
        budget: Of time.
    """

    def __init__(self, make: Make, num_envs: int, seed: int, budget: Budget) -> None:
        self.budget, self.seed = budget, seed
        self.num_envs = max(2, num_envs)
        self.recording: Recording | None = None
        self._make = make
        self._env: VectorEnv | None = None
        self.until = budget.clock()

    @property
    def env(self) -> VectorEnv:
        """The vector."""
        if self._env is None:
            self._env = self._make(self.num_envs)
        return self._env

    @property
    def spec(self) -> EnvSpec:
        """Of the vector."""
        return self.env.spec

    @property
    def ends(self) -> bool:
        """Whether random episodes end, as far as is known."""
        return self.recording is None or bool(self.recording.episodes)

    def one(self) -> VectorEnv:
        """Make a vector of one environment; who calls closes it."""
        return self._make(1)

    def renew(self) -> None:
        """Forget a vector that raised."""
        env, self._env = self._env, None
        if env is not None:
            try:
                env.close()
            except EnvError:  # it raised before, and nothing of it is used again
                return

    def allot(self, share: float) -> None:
        """Begin a part that may take a share of the budget."""
        self.until = self.budget.clock() + share * self.budget.seconds

    def left(self) -> bool:
        """Return whether there is time left for the present part."""
        return self.budget.clock() < self.until

    def seeds(self, *label: int | str) -> NDArray[np.uint64]:
        """Return uint64[E] seeds of a label."""
        return seeding.keys(self.seed, "detect", *label, count=self.num_envs)

    @property
    def python(self) -> PythonVectorEnv | None:
        """The vector of Python objects, without wrappers; None of others."""
        env: Any = self.env
        while not isinstance(env, PythonVectorEnv) and hasattr(env, "env"):
            env = env.env
        return env if isinstance(env, PythonVectorEnv) else None

    def reset_seed(self, seed: int, episode: int = 0) -> int:
        """Return the seed that `reset` of a Python object is called with; of other environments the vector's."""
        return seed if self.python is None else episode_seed(seed, episode)

    def game(self) -> object | None:
        """Return the environment's own object of the first environment, after a reset; None where it has none."""
        env: Any = self.python or self.env
        try:
            return env.game(0) if isinstance(env, ExposesGameState) else None
        except EnvError:
            return None

    # ------------------------------------------------------------------------------------------ copies

    def states(self, *, episodes: int, depths: Sequence[int]) -> Iterator[State]:
        """Yield states of random play, while there is time.

        Args:
            episodes: Number of random episodes.
            depths: Steps after which a state is taken.
        """
        for k in range(episodes):
            seed = int(self.seeds("states", k)[0])
            seeds = np.full(self.num_envs, seed, np.uint64)
            path: Path = []
            actor = Actor(self.spec, seeds)
            timestep = self.env.reset(seeds)
            walk: list[State] = []
            for depth in range(max(depths) + 1):
                due = tuple(
                    tuple(slot for slot in one.slot.tolist() if slot < len(self.spec.agents_of(p)))
                    for p, one in enumerate(timestep.due)
                )
                if not any(due) or len(timestep.finished.environment) or not self.left():
                    break
                if depth in depths:
                    walk.append(State(seed, list(path), due))
                actions = actor.actions(timestep)
                path.append(tuple(rows[: len(one)].copy() for rows, one in zip(actions, due, strict=True)))
                timestep = self.env.step(actions)
            for state in walk:
                if self.left():
                    yield state

    def enter(self, state: State) -> Timestep | None:
        """Bring every copy into a state. Returns its timestep; None where copies differ in it, so that nothing can be compared."""
        seeds = np.full(self.num_envs, state.seed, np.uint64)
        timestep = self.env.reset(seeds)
        for step in state.path:
            if any(len(due.slot) != len(rows) * self.num_envs for due, rows in zip(timestep.due, step, strict=True)):
                return None
            timestep = self.env.step(tuple(np.concatenate([rows] * self.num_envs) for rows in step))
        rows = self.rows(timestep)
        return timestep if all(row == rows[0] for row in rows) and rows[0] else None

    def rows(self, timestep: Timestep) -> list[list[Row]]:
        """Return what a timestep says about each copy."""
        trace: list[list[Row]] = [[] for _ in range(self.num_envs)]
        record(self.spec, timestep, trace)
        return trace

    def alternatives(self, timestep: Timestep, player: int, row: int) -> list[Any]:
        """Return legal actions of one due agent of a state: all of a Discrete space (64 at most), some of others.

        Args:
            timestep: Of copies in one state.
            player: Of the agent.
            row: Of the agent among the due rows of its player in one copy.
        """
        due = timestep.due[player]
        space = self.spec.agents_of(player)[0].action
        choices = Choices.of(space)
        if choices is None:
            return _corners(space)
        legal = legal_actions(self.spec, due, choices)[row]
        if len(legal) == 1:
            return list(legal[0][:_MOST])
        shape, base = space.shape or (), [values[0] for values in legal]
        several = [
            np.array([*base[:k], value, *base[k + 1 :]]).reshape(shape)
            for k, values in enumerate(legal)
            for value in values[1:]
        ]
        return [np.array(base).reshape(shape), *several][:_MOST]

    def actions_with(
        self, timestep: Timestep, player: int, row: int, values: Sequence[Any], actor: Actor
    ) -> tuple[Array, ...]:
        """Return random actions that are the same in all copies, except one agent's.

        Args:
            timestep: Of copies in one state.
            player: Of that agent.
            row: Of that agent among the due rows of its player in one copy.
            values: Its action in each copy.
            actor: Of equal seeds in all copies.
        """
        actions = [rows.copy() for rows in actor.actions(timestep)]
        stride = len(timestep.due[player].slot) // self.num_envs
        for copy, value in enumerate(values):
            actions[player][copy * stride + row] = value
        return tuple(actions)

    def actor(self, state: State) -> Actor:
        """Return random play that is the same in all copies."""
        return Actor(self.spec, np.full(self.num_envs, seeding.key(state.seed & 0xFFFFFFFF, "after"), np.uint64))


def episode_seed(seed: int, episode: int) -> int:
    """Return the seed that a `PythonVectorEnv` gives to an environment's episode."""
    return int(publisher_kernels.episode_seed(np.uint64(seed), np.uint64(episode)) & np.uint64(0x7FFFFFFF))


def _corners(space: Space[Any]) -> list[Any]:
    """Return some actions of a Box: its least, its largest, its middle."""
    assert isinstance(space, Box), (
        f"actions in {space} are not played here; expected Discrete, Box, MultiDiscrete or MultiBinary."
    )
    low, high = np.maximum(space.low, -1.0), np.minimum(space.high, 1.0)
    low, high = np.where(low > high, space.low, low), np.where(low > high, space.high, high)
    return [value.astype(space.dtype) for value in (low, high, (low + high) / 2)]
