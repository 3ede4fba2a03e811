"""`check_env`: does a vector environment keep the contract of `ludus.envs.base`? For ours and for users' own.

play once, with a ledger -> rows, observations, masks, decisions, episodes, rewards
play again, in other ways -> determinism, neighbours, buffers, quotas, snapshots, illegal actions
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.errors import EnvError
from ludus.core.types import Array, EnvSpec, Timestep
from ludus.envs.base import VectorEnv
from ludus.envs.spaces import Choices
from ludus.testing.ledger import Actor, Ledger, TeamRewards, Trace, legal_actions, play, record, same

__all__ = ["Check", "check_env", "checks", "run_checks"]

# --------------------------------------------------------------------------------------------------------------------
# The plays that `check_env` compares: what each checks is one method.

Make: TypeAlias = Callable[[int], VectorEnv]


class CheckSkipped(Exception):
    """A check does not apply; the message says why."""


class PlayPlan:
    """State that the checks share: how to make vectors, and the first play's trace. Each check returns a note, and raises AssertionError,
    `CheckSkipped`, or whatever the environment raises."""

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
            raise CheckSkipped("not checked: the first play did not come to its end")
        return self._trace

    def _determinism(self) -> str:
        assert self.spec is not None
        if self.spec.determinism == "none":
            raise CheckSkipped("not promised (determinism='none')")
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
            raise CheckSkipped(f"not promised (determinism={self.spec.determinism!r})")
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
                arrays, copies = _arrays(timestep), [column.copy() for column in _arrays(timestep)]
                timestep = env.step(actor.actions(timestep))
                unchanged = all(
                    np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(arrays, copies, strict=True)
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
                raise CheckSkipped("none: it cannot be resumed inside an episode")
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
        raise CheckSkipped("none: actions are no whole numbers")


def check_spec(spec: EnvSpec) -> None:
    """Raise AssertionError if an environment's description contradicts itself."""
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
    names = spec.statistics
    assert len({name for name in names if name}) == len(names), f"statistics need different names: {names}."
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
    columns += [finished.environment, finished.returns, finished.terminated, finished.length, finished.statistics]
    return [column for column in columns if column is not None]


def _play_quota(env: VectorEnv, seeds: NDArray[np.uint64], quota: int | NDArray[np.int64], *, most: int) -> bool:
    """Return whether all came to their end."""
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


# --------------------------------------------------------------------------------------------------------------------
# How fast an environment steps by itself.


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed of a vector.

    Attributes:
        steps: Steps of single environments per second of `step` calls.
        decisions: Decisions of all agents per second of `step` calls.
    """

    steps: float
    decisions: float


def measure_speed(env: VectorEnv, seeds: NDArray[np.uint64], *, seconds: float = 1.0) -> Speed:
    """Return the speed over random legal actions, whose choice is not counted.

    Args:
        env: The vector.
        seeds: uint64[E].
        seconds: Of stepping, about (at most three times that on the clock).
    """
    spec = env.spec
    actor = Actor(spec, seeds)
    timestep = env.reset(seeds)
    for _ in range(3):  # compilers and caches
        timestep = env.step(actor.actions(timestep))
    steps = decisions = 0
    spent, began = 0.0, time.perf_counter()
    while spent < seconds and time.perf_counter() - began < 3 * seconds:
        busy = [due.slot // len(spec.agents_of(p)) for p, due in enumerate(timestep.due)]
        steps += len(np.unique(np.concatenate(busy)))
        decisions += sum(map(len, busy))
        actions = actor.actions(timestep)
        start = time.perf_counter()
        timestep = env.step(actions)
        spent += time.perf_counter() - start
    return Speed(steps / spent, decisions / spent)


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """Result of one check.

    Attributes:
        name: Of the check.
        failure: Sentence that says what is wrong; None: it passed.
        note: What to know about a check that passed, or why it was skipped.
        skipped: Whether it does not apply.
        advice: What to do about the failure.
        error: What was raised.
    """

    name: str
    failure: str | None = None
    note: str = ""
    skipped: bool = False
    advice: str = ""
    error: Exception | None = None


ADVICE = {
    "description": "Correct `spec`: players, agents in the order of their players, symmetry, ranges.",
    "steps": "Play the environment by itself, with that seed and some actions, and see what it does there.",
    "rows": "List slots as int32 in rising order, environment × agents of the player + agent, and one entry per row in every column.",
    "observations": "Give observations of the announced shape and dtype within the space's bounds, or announce a wider space.",
    "masks": "Give bool[n, actions] with at least one legal action in each row; end the episode of an agent that has none.",
    "first decisions": "Set `first` where an agent decides for the first time in an episode or after it came back, with reward 0.",
    "closed decisions": "When an agent leaves, or its episode ends, put its open decision into `ended` once, whoever moved last.",
    "episodes": "Count a step for each step in which somebody was due, and give `utility_range` bounds that hold, or infinities; "
    "statistics are finite numbers.",
    "rewards": "Pay everything between two decisions into the first of them; returns are the sum of all that was paid.",
    "determinism": "Take all randomness from the seed that `reset` is given, and keep nothing from earlier episodes; a vector may say "
    "determinism='none' in its spec.",
    "neighbours": "Give each environment a random stream of its own; a vector may say determinism='vector' in its spec.",
    "buffers": "Keep two sets of arrays and fill them in turn, or make new ones in each step.",
    "quotas": "Let an environment fall idle, with nothing due, after `episodes` episodes.",
    "snapshots": "Save everything that the next steps depend on, random streams included, or answer None.",
    "illegal actions": "Check actions before anything changes, and raise EnvError.",
}


def check_env(
    make: Make,
    *,
    num_envs: int = 4,
    steps: int = 100,
    seed: int = 0,
    team: TeamRewards = "either",
    early_rewards: bool = False,
) -> None:
    """Check that an environment keeps the `VectorEnv` contract: random legal actions are played in several ways and compared.

    Args:
        make: Makes a vector of the given number of environments.
        num_envs: Number of environments.
        steps: Steps of each play.
        seed: Of all random streams.
        team: Whether each agent of a player gets the player's whole return, or they split it; either: one of them.
        early_rewards: Whether a player may get rewards before its first decision in an episode; they belong to no decision.

    Raises:
        AssertionError: With a sentence that says what is wrong.
    """
    results = checks(make, num_envs=num_envs, steps=steps, seed=seed, team=team, early_rewards=early_rewards)
    for check in results:
        if check.failure is not None:
            raise AssertionError(check.failure) from check.error


def run_checks(
    make: Make,
    *,
    num_envs: int = 4,
    steps: int = 100,
    seed: int = 0,
    team: TeamRewards = "either",
    early_rewards: bool | None = None,
) -> list[Check]:
    """Return the results of all checks of `check_env`; a failure of one does not hide the others. early_rewards=None: allowed, and noted
    where they occur."""
    return list(checks(make, num_envs=num_envs, steps=steps, seed=seed, team=team, early_rewards=early_rewards))


def checks(
    make: Make, *, num_envs: int, steps: int, seed: int, team: TeamRewards, early_rewards: bool | None
) -> Iterator[Check]:
    """Yield the results of all checks, each as soon as it is known."""
    seeds = seeding.keys(seed, "check_env", count=num_envs)
    plan = PlayPlan(make, seeds, steps)
    described = _run("description", plan.description)
    yield described
    if plan.spec is None:
        return
    yield from _watched(plan, team, early_rewards)
    for name, check in plan.others.items():
        yield _other(plan, name, check)


# ---------------------------------------------------------------------------------------------- one check at a time


def _run(name: str, check: Callable[[], str]) -> Check:
    """`check` answers with a note and raises AssertionError, or whatever the environment raises."""
    raised = "description" if name == "description" else "steps"  # the advice for what the environment itself raises
    try:
        return Check(name, note=check())
    except CheckSkipped as reason:
        return Check(name, note=str(reason), skipped=True)
    except AssertionError as error:
        return Check(name, str(error), advice=ADVICE[name], error=error)
    except EnvError as error:  # says itself which environment, and when
        return Check(name, str(error), advice=ADVICE[raised], error=error)
    except Exception as error:  # noqa: BLE001  whatever an environment raises is a failure of this check
        return Check(name, f"raised {type(error).__name__}: {error}", advice=ADVICE[raised], error=error)


def _other(plan: PlayPlan, name: str, check: Callable[[], str]) -> Check:
    """Return one of the later plays. What stopped the first one stops most of them; it is told once."""
    result = _run(name, check)
    if plan.stopped is None or result.error is None or isinstance(result.error, AssertionError):
        return result
    return Check(name, note="not checked: it was stopped as the first play was", skipped=True)


def _watched(plan: PlayPlan, team: TeamRewards, early: bool | None) -> Iterator[Check]:
    """Yield the checks of a ledger over one play."""
    assert plan.spec is not None
    n = len(plan.seeds)
    ledger = Ledger(plan.spec, n, team=team, early_rewards=bool(early), collect=True)
    lenient = Ledger(plan.spec, n, team=team, early_rewards=True, collect=True)

    def watch(timestep: Timestep) -> None:
        ledger.see(timestep)
        if early is None:
            lenient.see(timestep)

    played = _run("steps", lambda: plan.watched(watch))
    failures = dict(ledger.failures)
    rewards_note = ""
    if early is None and "rewards" in failures and "rewards" not in lenient.failures:
        del failures["rewards"]
        rewards_note = "a player is also paid before its first decision; is that so?"
    if played.failure is None or not failures:  # an exception may be what a breach led to
        yield played
    for topic in ledger.TOPICS:
        if topic in failures:
            yield Check(topic, failures[topic], advice=ADVICE[topic])
        elif "rows" in failures or played.failure is not None:
            yield Check(topic, note="not checked to the end", skipped=True)
        elif topic == "masks" and not plan.masked:
            yield Check(topic, note="none: every action is always legal", skipped=True)
        else:
            notes = {"rewards": rewards_note, "episodes": _seen(ledger, plan.steps)}
            yield Check(topic, note=notes.get(topic, ""))


def _seen(ledger: Ledger, steps: int) -> str:
    episodes = int(ledger.finished.sum())
    left = f", {ledger.left} times an agent left before the end" if ledger.left else ""
    return f"{episodes} ended{left}" if episodes else f"none ended within {steps} steps, so ends were not checked"
