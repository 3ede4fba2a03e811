"""Seeds: whether starts and chance follow them, and whether an episode follows from them alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np

from ludus.core import seeding
from ludus.core.types import Timestep
from ludus.envs.base import VectorEnv
from ludus.testing.detector.finding import Finding
from ludus.testing.detector.recording import Episode, Recording
from ludus.testing.detector.session import Session
from ludus.testing.ledger import Actor, Row, Trace, record

STARTS, CHANCE, LEAKS = "starts", "chance", "episode leaks"
_RESETS = 8  # of the vector: of four environments, 32 starts
_STEPS = 40
_REPEATS = 3


def _other_start(recording: Recording) -> Episode | None:
    """Return a later episode that begins otherwise than the first ones, which begin alike, if half of all later ones do."""
    first = next((one for one in [*recording.episodes, *recording.open] if one.number == 0), None)
    later = [one for one in recording.episodes if one.number > 0]
    different = [one for one in later if first is not None and one.start() != first.start()]
    return different[0] if len(different) > len(later) / 2 else None


def chance(session: Session) -> Iterator[Finding]:
    """Yield a finding where nothing depends on the seed: starts are alike, and equal actions lead to equal episodes; or starts do not.

    Of a game in which more than half of all starts differ from any given one, 32 first starts are alike with a probability below 2^-31.
    """
    codes, states = set(), []
    for k in range(_RESETS):
        timestep = session.env.reset(session.seeds("starts", k))
        states.append(_generators(session.game()))
        codes |= {tuple(row) for row in session.rows(timestep)}
        if len(codes) > 1 or not session.left():
            return
    other = None if session.recording is None else _other_start(session.recording)
    if other is not None:
        yield Finding(
            STARTS,
            "warning",
            f"{_RESETS * session.num_envs} first episodes with different seeds begin alike, most later ones do not: starts do not follow "
            "the seed.",
            "Take the start of every episode from the seed that `reset` has been called with.",
            {**other.place(), "starts": _RESETS * session.num_envs},
        )
    steps = 0
    for k in range(_REPEATS):
        differ, played = _differ(session, k)
        if differ:
            return
        steps += played
    if steps < _STEPS:
        return
    unseeded = sorted(name for name, state in states[0].items() if all(one.get(name) == state for one in states))
    evidence = {"starts": _RESETS * session.num_envs, "steps": steps}
    if unseeded:
        yield Finding(
            CHANCE,
            "warning",
            f"its random generator {unseeded[0]!r} is in one and the same state after resets with {_RESETS} seeds, and neither starts nor "
            "steps depend on the seed.",
            "Make a new generator from the seed in each reset (`super().reset(seed=seed)` and `self.np_random`).",
            {**evidence, "generators": unseeded},
        )
        return
    yield Finding(
        CHANCE,
        "note",
        "nothing depends on the seed: every episode begins alike, and equal actions lead to equal episodes.",
        "If there should be chance in it, take it from the seed. If not, two deterministic policies play one and the same episode.",
        evidence,
    )


def _differ(session: Session, k: int) -> tuple[bool, int]:
    """Return (whether environments with different seeds part under the actions of the first one, steps that were compared)."""
    seeds = session.seeds("chance", k)
    actor = Actor(session.spec, np.full(session.num_envs, seeds[0], np.uint64))
    timestep = session.env.reset(seeds)
    for step in range(_STEPS):
        rows = session.rows(timestep)
        if any(row != rows[0] for row in rows):
            return True, step
        if not session.left():
            return False, step
        timestep = session.env.step(actor.actions(timestep))
    return False, _STEPS


def _generators(game: object | None) -> dict[str, str]:
    """Return the states of random generators among an object's attributes."""
    states = {}
    for name, value in (getattr(game, "__dict__", None) or {}).items():
        if isinstance(value, np.random.Generator):
            states[name] = str(value.bit_generator.state)
        elif isinstance(value, np.random.RandomState):
            states[name] = str(value.get_state(legacy=False))
        elif isinstance(value, random.Random):
            states[name] = str(hash(value.getstate()))
    return states


def leaks(session: Session) -> Iterator[Finding]:
    """Yield a finding where an episode depends on the episode before it, though both have their own seeds."""
    if session.spec.determinism == "none" or session.python is None or not session.ends:
        return  # a native vector's next episode continues its stream
    seed = int(session.seeds("leaks")[0])
    with closing(session.one()) as env:
        traces = []
        for k in range(_REPEATS):
            trace = _second_episode(session, env, seed, k)
            if trace is None:
                return
            traces.append(trace)
            part = _parting(traces[0], trace)
            if part is not None:
                yield Finding(
                    LEAKS,
                    "error",
                    "the second episode depends on what was played in the first one: with equal seeds and actions it goes another way.",
                    "Set everything that an episode changes in `reset`, and take randomness from its seed alone.",
                    {"seed": session.reset_seed(seed, 1), "episode": 1, "step": part, "first episodes": [0, k]},
                )
                return


def _second_episode(session: Session, env: VectorEnv, seed: int, k: int) -> list[Row] | None:
    """Return the rows of the second episode, after a first one of other actions; None: the first one does not end in time."""
    spec, seeds = env.spec, np.array([seed], np.uint64)
    actor = Actor(spec, np.array([seeding.key(k, "first")], np.uint64))
    timestep = env.reset(seeds)
    while not len(timestep.finished.environment):
        if not session.left():
            return None
        timestep = env.step(actor.actions(timestep))
    actor, rows = Actor(spec, np.array([seeding.key(0, "second")], np.uint64)), []
    for step in range(_STEPS):
        rows += [("step", step), *_without_ends(spec, timestep, first=step == 0)]
        if step and len(timestep.finished.environment):
            break
        timestep = env.step(actor.actions(timestep))
    return rows


def _without_ends(spec: Any, timestep: Timestep, *, first: bool) -> list[Row]:
    """Return the rows of a timestep; of the one in which the episode begins, only those of the new one."""
    trace: Trace = [[]]
    record(spec, timestep, trace)
    return [row for row in trace[0] if not first or row[0] == "due"]


def _parting(one: list[Row], other: list[Row]) -> int | None:
    """Return the step in which two episodes part; None: they do not."""
    step = 0
    for a, b in zip(one, other, strict=False):
        step = int(str(a[1])) if a[0] == "step" else step
        if a != b:
            return step
    return None if len(one) == len(other) else step
