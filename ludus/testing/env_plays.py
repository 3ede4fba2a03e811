"""The plays that `check_env` compares: what each checks is one method."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.envs.base import VectorEnv
from ludus.envs.choices import Choices
from ludus.errors import EnvError
from ludus.testing.actor import Actor, legal_actions
from ludus.testing.traces import Trace, play, record, same
from ludus.types import Array, EnvSpec, Timestep

Make: TypeAlias = Callable[[int], VectorEnv]


class LeftOut(Exception):
    """A check does not apply; the message says why."""


class Plan:
    """What the checks share: how to make vectors, and the first play's trace. Each check answers with a note, and raises AssertionError,
    `LeftOut`, or whatever the environment raises."""

    def __init__(self, make: Make, seeds: NDArray[np.uint64], steps: int) -> None:
        self.seeds, self.steps = seeds, steps
        self.spec: EnvSpec | None = None
        self.masked = False
        self.stopped: Exception | None = None  # by this, before the first play came to its end
        self._make = make
        self._trace: Trace | None = None
        self.others: dict[str, Callable[[], str]] = {
            "determinism": self._determinism,
            "neighbours": self._neighbours,
            "buffers": self._buffers,
            "quotas": self._quotas,
            "snapshots": self._snapshots,
            "illegal actions": self._illegal,
        }

    def _vector(self, num_envs: int | None = None) -> closing[VectorEnv]:
        return closing(self._make(len(self.seeds) if num_envs is None else num_envs))

    def description(self) -> str:
        with self._vector() as env:
            n = len(self.seeds)
            assert env.num_envs == n, f"an environment made for {n} says num_envs={env.num_envs}."
            check_spec(env.spec)
            self.spec = env.spec
        agents, players = len(env.spec.agents), env.spec.num_players
        return f"{agents} agent{'s' * (agents > 1)} of {players} player{'s' * (players > 1)}"

    def watched(self, watch: Callable[[Timestep], None]) -> str:
        def see(timestep: Timestep) -> None:
            watch(timestep)
            self.masked |= env.spec.enumeration is not None or any(due.mask is not None for due in timestep.due)

        with self._vector() as env:
            try:
                self._trace = play(env, self.seeds, self.steps, watch=see)
            except Exception as error:
                self.stopped = error
                raise
            restarts = getattr(env, "restarts", 0)
        return f"{restarts} times an environment was restarted after a fault" if restarts else ""

    def _first(self) -> Trace:
        if self._trace is None:
            raise LeftOut("not checked: the first play did not come to its end")
        return self._trace

    def _determinism(self) -> str:
        assert self.spec is not None
        if self.spec.determinism == "none":
            raise LeftOut("not promised (determinism='none')")
        trace = self._first()
        with self._vector() as env:
            play(env, self.seeds, min(self.steps, 10))
            same(trace, play(env, self.seeds, self.steps), "a second reset with the same seeds and actions")
        with self._vector() as env:
            same(trace, play(env, self.seeds, self.steps), "another vector with the same seeds and actions")
        return ""

    def _neighbours(self) -> str:
        assert self.spec is not None
        if self.spec.determinism != "environment":
            raise LeftOut(f"not promised (determinism={self.spec.determinism!r})")
        e = len(self.seeds) - 1
        among = self._first()[e]
        with self._vector(1) as env:
            alone = play(env, self.seeds[e:], self.steps)
        what = f"environment {e} alone, with its seed and actions,"
        same([among], alone, what, whole=False)  # one that restarts a step later does so only beside others
        return ""

    def _buffers(self) -> str:
        with self._vector() as env:
            actor = Actor(env.spec, self.seeds)
            timestep = env.reset(self.seeds)
            for _ in range(min(self.steps, 20)):
                kept, copies = _arrays(timestep), [column.copy() for column in _arrays(timestep)]
                timestep = env.step(actor.actions(timestep))
                unchanged = all(
                    np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(kept, copies, strict=True)
                )
                assert unchanged, (
                    "a step overwrote the timestep before it; buffers must stay valid until the second-next step."
                )
        return ""

    def _quotas(self) -> str:
        most, note = 20 * self.steps, ""
        with self._vector() as env:
            for quota in (1, np.arange(len(self.seeds), dtype=np.int64) % 3):
                if not _play_quota(env, self.seeds, quota, most=most):
                    note = note or f"episodes are longer than {most} steps, so no quota was played to its end"
                    most = self.steps  # the next would not end either
        return note

    def _snapshots(self) -> str:
        with self._vector() as env, self._vector() as other:
            actor = Actor(env.spec, self.seeds)
            timestep = env.reset(self.seeds)
            for _ in range(self.steps // 2):
                timestep = env.step(actor.actions(timestep))
            snapshot = env.snapshot()
            if snapshot is None:
                raise LeftOut("none: it cannot be resumed inside an episode")
            restored = other.restore(snapshot)
            for _ in range(self.steps // 2):
                traces: list[Trace] = []
                for moment in (timestep, restored):
                    traces.append([[] for _ in self.seeds])
                    record(env.spec, moment, traces[-1])
                same(traces[0], traces[1], "a restored snapshot")
                actions = actor.actions(timestep)
                timestep, restored = env.step(actions), other.step(actions)
        return ""

    def _illegal(self) -> str:
        with self._vector() as env:
            actor = Actor(env.spec, self.seeds)
            timestep = env.reset(self.seeds)
            for _ in range(self.steps):
                actions = list(actor.actions(timestep))
                for p, due in enumerate(timestep.due):
                    choices = Choices.of(env.spec.agents_of(p)[0].action)
                    if choices is not None and len(due.slot):
                        legal = legal_actions(env.spec, due, choices)[0][0]
                        illegal = int(np.setdiff1d(np.arange(int(choices.counts[0]) + 1), legal)[0])
                        actions[p] = actions[p].copy()
                        actions[p].reshape(len(due.slot), -1)[0, 0] = illegal
                        _refuses(env, tuple(actions), illegal, p)
                        return ""
                timestep = env.step(tuple(actions))
        raise LeftOut("none: actions are no whole numbers")


def check_spec(spec: EnvSpec) -> None:
    """Raises AssertionError if an environment's description contradicts itself."""
    players = [agent.player for agent in spec.agents]
    assert players == sorted(players), f"agents must be ordered by player, they are {players}."
    assert set(players) == set(range(spec.num_players)), (
        f"each of {spec.num_players} players needs an agent; agents have {players}."
    )
    seats = sorted(p for group in spec.symmetry for p in group)
    assert seats == list(range(spec.num_players)), (
        f"symmetry must part the players 0 … {spec.num_players - 1}: {spec.symmetry}."
    )
    assert all(low <= high for low, high in spec.utility_range), (
        f"a utility range is upside down: {spec.utility_range}."
    )
    enumeration = spec.enumeration
    if enumeration is not None:
        count = enumeration.offset[-1]
        lengths = {len(enumeration.observation), len(enumeration.mask), len(enumeration.key)}
        assert lengths == {count}, f"an enumeration of {count} states has columns of lengths {sorted(lengths)}."
        assert enumeration.mask.any(axis=1).all(), "an enumerated information state has no legal action."


def _arrays(timestep: Timestep) -> list[Array]:
    columns: list[Array | None] = [timestep.state, timestep.final_state]
    for due in timestep.due:
        columns += [due.slot, due.observation, due.mask, due.reward, due.first]
    for ended in timestep.ended:
        columns += [ended.slot, ended.reward, ended.terminated, ended.observation, ended.mask]
    finished = timestep.finished
    columns += [finished.environment, finished.returns, finished.terminated, finished.length]
    return [column for column in columns if column is not None]


def _play_quota(env: VectorEnv, seeds: NDArray[np.uint64], quota: int | NDArray[np.int64], *, most: int) -> bool:
    """Whether all came to their end."""
    actor = Actor(env.spec, seeds)
    timestep = env.reset(seeds, episodes=quota)
    played = np.zeros(len(seeds), np.int64)
    for _ in range(most):
        np.add.at(played, timestep.finished.environment, 1)
        if not any(len(due.slot) for due in timestep.due):
            assert (played == quota).all(), f"environments fell idle after {played} episodes; their quota was {quota}."
            return True
        timestep = env.step(actor.actions(timestep))
    assert (played <= quota).all(), f"environments played {played} episodes of a quota of {quota}."
    return False  # episodes are too long to see the end of the quota


def _refuses(env: VectorEnv, actions: tuple[Array, ...], illegal: int, player: int) -> None:
    try:
        env.step(actions)
    except EnvError:
        return
    raise AssertionError(f"player {player}'s illegal action {illegal} was accepted; it must raise EnvError.")
