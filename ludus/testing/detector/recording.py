"""Random episodes, recorded once: who decided what on which observation, what was paid, how episodes ended, how long steps took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.core.types import Array, EnvSpec, Timestep
from ludus.envs.base import VectorEnv
from ludus.testing.ledger import Actor

_WARM_UP = 3  # steps in which compilers and caches take their time
_ROOM = 64 << 20  # bytes of observations that are held; after that only their hashes


@dataclass(slots=True, eq=False)
class Decision:
    """One decision of one agent.

    Attributes:
        player, agent: Of the spec; the agent is an index among its player's.
        step: Steps of the episode before it.
        code: Hash of observation and mask.
        observation: A copy; None where there was no room.
        mask: A copy, likewise; None without.
        action: What was played.
        reward: Until its next decision or its end.
    """

    player: int
    agent: int
    step: int
    code: int
    observation: Array | None
    mask: Array | None = None
    action: Any = None
    reward: float = 0.0


@dataclass(slots=True, eq=False)
class Episode:
    """One episode of one environment.

    Attributes:
        environment: Number in the vector.
        seed: With which `reset` of the environment was called; where there is no such seed, that of the vector.
        number: How many episodes this environment had played before.
        decisions: In the order of their steps.
        returns: [P]; None: it was still going on when the recording stopped.
        terminated: Whether it ended by its rules.
        length: Steps.
        gone: (player, agent) -> the step after which it left before the episode's end.
    """

    environment: int
    seed: int
    number: int
    decisions: list[Decision] = field(default_factory=list)
    returns: tuple[float, ...] | None = None
    terminated: bool = False
    length: int = 0
    gone: dict[tuple[int, int], int] = field(default_factory=dict)

    def paid(self) -> dict[tuple[int, int], float]:
        """Return (player, agent) -> sum of its rewards."""
        sums: dict[tuple[int, int], float] = {}
        for one in self.decisions:
            sums[one.player, one.agent] = sums.get((one.player, one.agent), 0.0) + one.reward
        return sums

    def start(self) -> tuple[tuple[int, int, int], ...]:
        """Return what all agents saw first: (player, agent, code)."""
        return tuple((one.player, one.agent, one.code) for one in self.decisions if one.step == 0)

    def place(self) -> dict[str, Any]:
        """Return where it is, as evidence."""
        return {"seed": self.seed, "environment": self.environment, "episode": self.number}


@dataclass(slots=True, eq=False)
class Recording:
    """All that detectors read.

    Attributes:
        spec: Of the vector.
        episodes: Those that ended, by the order of their ends.
        open: Those that were going on at the end.
        seconds: Of each call of `step`.
        steps: Steps of single environments.
        fault: What stopped the play; None: it was stopped by its bounds.
        attributes: Whole numbers among the attributes of the environment's object, which may be limits.
    """

    spec: EnvSpec
    episodes: list[Episode] = field(default_factory=list)
    open: list[Episode] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    steps: int = 0
    fault: Exception | None = None
    attributes: dict[str, int] = field(default_factory=dict)

    @property
    def terminated(self) -> list[Episode]:
        """Episodes that ended by their rules."""
        return [one for one in self.episodes if one.terminated]

    def returns(self) -> NDArray[np.float64]:
        """Return float64[n, P] of the episodes that ended by their rules."""
        rows = [one.returns for one in self.terminated]
        return np.array(rows, np.float64).reshape(len(rows), self.spec.num_players)

    def name(self, player: int, agent: int) -> str:
        """Return an agent's name."""
        return self.spec.agents_of(player)[agent].name


SeedOf: TypeAlias = Callable[[int, int], int]
"""(seed of the environment, number of an episode) -> the seed that is reported."""


class Recorder:
    """Writes timesteps into a recording."""

    def __init__(self, spec: EnvSpec, seeds: NDArray[np.uint64], seed_of: SeedOf) -> None:
        self.recording = Recording(spec)
        self._seeds, self._seed_of = seeds, seed_of
        self._agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        self._now = [Episode(e, seed_of(int(seed), 0), 0) for e, seed in enumerate(seeds)]
        self._last: dict[tuple[int, int], Decision] = {}
        self._room = _ROOM
        self._due: list[list[tuple[int, Decision]]] = []  # (environment, decision)

    def see(self, timestep: Timestep) -> None:
        """Write one timestep down."""
        over = set(timestep.finished.environment.tolist())
        for p, ended in enumerate(timestep.ended):
            for slot, reward in zip(ended.slot.tolist(), ended.reward.tolist(), strict=True):
                if (decision := self._last.pop((p, slot), None)) is not None:
                    decision.reward = reward
                e, agent = divmod(slot, self._agents[p])
                if e not in over:
                    self._now[e].gone[p, agent] = self._now[e].length
        for i, e in enumerate(timestep.finished.environment.tolist()):
            self._finish(e, timestep, i)
        self._due = [list(self._see_due(p, timestep)) for p in range(len(self._agents))]

    def act(self, actions: tuple[Array, ...]) -> None:
        """Write down what is played now."""
        acting: set[int] = set()
        for decisions, rows in zip(self._due, actions, strict=True):
            for (e, decision), action in zip(decisions, rows, strict=True):
                decision.action = action.tolist()
                acting.add(e)
        for e in acting:
            self._now[e].length += 1
        self.recording.steps += len(acting)

    def close(self) -> Recording:
        """Return what was recorded."""
        self.recording.open = [one for one in self._now if one.decisions]
        return self.recording

    def _see_due(self, p: int, timestep: Timestep) -> Iterator[tuple[int, Decision]]:
        due = timestep.due[p]
        for i, slot in enumerate(due.slot.tolist()):
            e, agent = divmod(slot, self._agents[p])
            episode = self._now[e]
            if (before := self._last.get((p, slot))) is not None:
                before.reward = float(due.reward[i])
            row = due.observation[i]
            code = hash((row.tobytes(), b"" if due.mask is None else due.mask[i].tobytes()))
            legal = None if due.mask is None else due.mask[i]
            copies = self._copy(row), None if legal is None else self._copy(legal)
            decision = self._last[p, slot] = Decision(p, agent, episode.length, code, *copies)
            episode.decisions.append(decision)
            yield e, decision

    def _copy(self, row: Array) -> Array | None:
        """Return a copy; None where there is no room for it."""
        if self._room < row.nbytes:
            return None
        self._room -= row.nbytes
        return np.array(row)

    def _finish(self, e: int, timestep: Timestep, row: int) -> None:
        finished, episode = timestep.finished, self._now[e]
        episode.returns = tuple(finished.returns[row].tolist())
        episode.terminated, episode.length = bool(finished.terminated[row]), int(finished.length[row])
        self.recording.episodes.append(episode)
        number = episode.number + 1
        self._now[e] = Episode(e, self._seed_of(int(self._seeds[e]), number), number)


def record_episodes(
    env: VectorEnv,
    seeds: NDArray[np.uint64],
    *,
    episodes: int,
    seconds: float,
    longest: int,
    seed_of: SeedOf,
    clock: Callable[[], float] = time.monotonic,
    progress: Callable[[Recording], None] | None = None,
) -> Recording:
    """Record random legal play.

    Args:
        env: The vector.
        seeds: uint64[E].
        episodes: Number of episodes after which it stops.
        seconds: Time after which it stops.
        longest: Steps of one episode after which it stops where no episode has ended.
        seed_of: Seeds that episodes report.
        clock: That seconds are of.
        progress: Called after each step.

    Returns:
        The recording; also where a step raised.
    """
    recorder = Recorder(env.spec, seeds, seed_of)
    recording = recorder.recording
    actor = Actor(env.spec, seeds)
    try:
        timestep = env.reset(seeds)
        recorder.see(timestep)
        begin = clock()
        while len(recording.episodes) < episodes and clock() - begin < seconds:
            actions = actor.actions(timestep)
            recorder.act(actions)
            start = time.perf_counter()
            timestep = env.step(actions)
            recording.seconds.append(time.perf_counter() - start)
            recorder.see(timestep)
            if len(recording.seconds) <= _WARM_UP:
                begin = clock()
            if progress is not None:
                progress(recording)
            if not recording.episodes and len(recording.seconds) >= longest:
                break
    except Exception as error:  # noqa: BLE001  whatever an environment raises is part of what was recorded
        recording.fault = error
    return recorder.close()
