"""`check_env`: does a vector environment keep the contract of `ludus.envs.base`? For ours and for users' own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from ludus import seeding
from ludus.envs.base import VectorEnv
from ludus.errors import EnvError
from ludus.testing.ledger import Actor, Ledger, Team, legal_actions
from ludus.types import Array, EnvSpec, Timestep

__all__ = ["check_env"]


def check_env(
    make: Callable[[int], VectorEnv],
    *,
    num_envs: int = 4,
    steps: int = 100,
    seed: int = 0,
    team: Team = "shared",
    early_rewards: bool = False,
) -> None:
    """Play random legal actions for `steps` steps in several ways and compare. Raises AssertionError with one sentence that says
    what is wrong.

    make: makes a vector of so many environments. team: whether each agent of a player is paid the player's whole reward, or they split
    it. early_rewards: a player may be paid before its first decision in an episode; such rewards belong to no decision.
    """
    seeds = seeding.keys(seed, "check_env", count=num_envs)
    env = make(num_envs)
    assert env.num_envs == num_envs, f"an environment made for {num_envs} says num_envs={env.num_envs}."
    check_spec(env.spec)
    ledger = Ledger(env.spec, num_envs, team=team, early_rewards=early_rewards)
    trace = _play(env, seeds, steps, ledger=ledger)
    if env.spec.determinism != "none":
        _same(trace, _play(env, seeds, steps), "a second reset with the same seeds and actions")
        _same(trace, _play(make(num_envs), seeds, steps), "another vector with the same seeds and actions")
    if env.spec.determinism == "environment":
        _check_neighbours(make, trace, seeds, steps)
    _check_buffers(make(num_envs), seeds, min(steps, 20))
    _check_quota(make, seeds, steps)
    _check_snapshot(make, seeds, steps)
    _check_illegal(make(num_envs), seeds, steps)
    env.close()


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


Row = tuple[object, ...]


def _play(env: VectorEnv, seeds: NDArray[np.uint64], steps: int, *, ledger: Ledger | None = None) -> list[list[Row]]:
    """What happens in each environment, as comparable rows."""
    actor = Actor(env.spec, seeds)
    timestep = env.reset(seeds)
    trace: list[list[Row]] = [[] for _ in seeds]
    for _ in range(steps):
        if ledger is not None:
            ledger.see(timestep)
        _record(env.spec, timestep, trace)
        timestep = env.step(actor.actions(timestep))
    return trace


def _record(spec: EnvSpec, timestep: Timestep, trace: Sequence[list[Row]]) -> None:
    for p, ended in enumerate(timestep.ended):
        agents = len(spec.agents_of(p))
        for i, slot in enumerate(ended.slot.tolist()):
            row = (
                "ended",
                p,
                slot % agents,
                float(ended.reward[i]),
                bool(ended.terminated[i]),
                _bytes(ended.observation[i]),
            )
            trace[slot // agents].append(row)
    finished = timestep.finished
    for i, e in enumerate(finished.environment.tolist()):
        returns = tuple(finished.returns[i].tolist())
        trace[e].append(("finished", returns, bool(finished.terminated[i]), int(finished.length[i])))
    for p, due in enumerate(timestep.due):
        agents = len(spec.agents_of(p))
        for i, slot in enumerate(due.slot.tolist()):
            shown = _bytes(due.observation[i]), b"" if due.mask is None else _bytes(due.mask[i])
            trace[slot // agents].append(("due", p, slot % agents, *shown, float(due.reward[i]), bool(due.first[i])))


def _bytes(values: Array) -> bytes:
    return np.ascontiguousarray(values).tobytes()


def _same(one: list[list[Row]], other: list[list[Row]], what: str) -> None:
    for e, (a, b) in enumerate(zip(one, other, strict=True)):
        for i, (x, y) in enumerate(zip(a, b, strict=False)):
            assert x == y, f"{what} went another way in environment {e}, event {i}: {x} and {y}."
        assert len(a) == len(b), f"{what} went another way in environment {e}: {len(a)} and {len(b)} events."


def _check_neighbours(
    make: Callable[[int], VectorEnv], trace: list[list[Row]], seeds: NDArray[np.uint64], steps: int
) -> None:
    e = len(seeds) - 1
    alone = _play(make(1), seeds[e:], steps)
    _same([trace[e]], alone, f"environment {e} alone, with its seed and actions,")


def _arrays(timestep: Timestep) -> list[Array]:
    columns: list[Array | None] = [timestep.state, timestep.final_state]
    for due in timestep.due:
        columns += [due.slot, due.observation, due.mask, due.reward, due.first]
    for ended in timestep.ended:
        columns += [ended.slot, ended.reward, ended.terminated, ended.observation, ended.mask]
    finished = timestep.finished
    columns += [finished.environment, finished.returns, finished.terminated, finished.length]
    return [column for column in columns if column is not None]


def _check_buffers(env: VectorEnv, seeds: NDArray[np.uint64], steps: int) -> None:
    actor = Actor(env.spec, seeds)
    timestep = env.reset(seeds)
    for _ in range(steps):
        kept, copies = _arrays(timestep), [column.copy() for column in _arrays(timestep)]
        timestep = env.step(actor.actions(timestep))
        unchanged = all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(kept, copies, strict=True))
        assert unchanged, "a step overwrote the timestep before it; buffers must stay valid until the second-next step."


def _check_quota(make: Callable[[int], VectorEnv], seeds: NDArray[np.uint64], steps: int) -> None:
    env = make(len(seeds))
    for quota in (1, np.arange(len(seeds), dtype=np.int64) % 3):
        actor = Actor(env.spec, seeds)
        timestep = env.reset(seeds, episodes=quota)
        played = np.zeros(len(seeds), np.int64)
        for _ in range(20 * steps):
            np.add.at(played, timestep.finished.environment, 1)
            if not any(len(due.slot) for due in timestep.due):
                break
            timestep = env.step(actor.actions(timestep))
        else:
            assert (played <= quota).all(), f"environments played {played} episodes of a quota of {quota}."
            continue  # episodes are too long to see the end of the quota
        assert (played == quota).all(), f"environments fell idle after {played} episodes; their quota was {quota}."


def _check_snapshot(make: Callable[[int], VectorEnv], seeds: NDArray[np.uint64], steps: int) -> None:
    env, actor = make(len(seeds)), Actor(make(1).spec, seeds)
    timestep = env.reset(seeds)
    for _ in range(steps // 2):
        timestep = env.step(actor.actions(timestep))
    snapshot = env.snapshot()
    if snapshot is None:
        return
    other = make(len(seeds))
    restored = other.restore(snapshot)
    for _ in range(steps // 2):
        traces: list[list[list[Row]]] = []
        for moment in (timestep, restored):
            traces.append([[] for _ in seeds])
            _record(env.spec, moment, traces[-1])
        _same(traces[0], traces[1], "a restored snapshot")
        actions = actor.actions(timestep)
        timestep, restored = env.step(actions), other.step(actions)


def _check_illegal(env: VectorEnv, seeds: NDArray[np.uint64], steps: int) -> None:
    """An illegal action, where the game has any, raises EnvError."""
    actor = Actor(env.spec, seeds)
    timestep = env.reset(seeds)
    for _ in range(steps):
        actions = list(actor.actions(timestep))
        for p, due in enumerate(timestep.due):
            space = env.spec.agents_of(p)[0].action
            if not isinstance(space, Discrete):
                return
            for i, legal in enumerate(legal_actions(env.spec, due, int(space.n))):
                illegal = np.setdiff1d(np.arange(int(space.n) + 1), legal)
                actions[p] = actions[p].copy()
                actions[p][i] = illegal[0]
                _refuses(env, tuple(actions), int(illegal[0]), p)
                return
        timestep = env.step(tuple(actions))


def _refuses(env: VectorEnv, actions: tuple[Array, ...], illegal: int, player: int) -> None:
    try:
        env.step(actions)
    except EnvError:
        return
    raise AssertionError(f"player {player}'s illegal action {illegal} was accepted; it must raise EnvError.")
