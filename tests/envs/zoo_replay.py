"""What a plain loop over a PettingZoo environment gives for the seeds and actions of a vector of Ludus's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from ludus.core.seeding import keys
from ludus.envs.base import VectorEnv
from ludus.envs.publisher_kernels import episode_seed
from ludus.testing.ledger import Actor


@dataclass
class Played:
    """One finished episode: (agent, observation, action) of each decision in the order that they were made, by step; returns of the
    players; final observations by agent."""

    steps: list[list[tuple[str, Any, Any]]] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    final: dict[str, Any] = field(default_factory=dict)


def play(env: VectorEnv, *, episodes: int, seed: int = 3) -> list[tuple[int, Played]]:
    """(its seed, what happened) in each of so many episodes of a vector of one environment."""
    seeds = keys(seed, "replay", count=1)
    actor = Actor(env.spec, seeds)
    timestep = env.reset(seeds, episodes=episodes)
    out, now = [], Played()
    while any(len(due.slot) for due in timestep.due):
        actions = actor.actions(timestep)
        now.steps.append(
            [
                (env.spec.agents_of(p)[slot].name, due.observation[i].copy(), actions[p][i])
                for p, due in enumerate(timestep.due)
                for i, slot in enumerate(due.slot.tolist())
            ]
        )
        timestep = env.step(actions)
        for p, ended in enumerate(timestep.ended):
            for i, slot in enumerate(ended.slot.tolist()):
                now.final[env.spec.agents_of(p)[slot].name] = ended.observation[i].copy()
        if len(timestep.finished.environment):
            now.returns = timestep.finished.returns[0].tolist()
            episode = episode_seed(seeds[0], np.uint64(len(out))) & np.uint64(0x7FFFFFFF)
            out.append((int(episode), now))
            now = Played()
    return out


def one_by_one(env: Any, seed: int, played: Played) -> dict[str, float]:
    """Each agent's sum of the rewards that `last()` gives, for the same moves; observations must agree."""
    moves = [move for step in played.steps for move in step]
    totals: dict[str, float] = {}
    env.reset(seed=seed)
    for agent in env.agent_iter():
        shown, reward, terminated, truncated, _ = env.last()
        totals[agent] = totals.get(agent, 0.0) + float(reward)
        if terminated or truncated:
            env.step(None)
            continue
        name, seen, action = moves.pop(0)
        assert name == str(agent)
        _agree(shown, seen)
        env.step(action)
    assert not moves
    return totals


def all_at_once(env: Any, seed: int, played: Played) -> dict[str, float]:
    """Each agent's sum of the rewards of PettingZoo's parallel loop, for the same moves; observations must agree."""
    totals: dict[str, float] = {}
    shown, _ = env.reset(seed=seed)
    for step in played.steps:
        assert {str(agent) for agent in env.agents} == {name for name, _, _ in step}
        moves = {name: action for name, _, action in step}
        for name, seen, _ in step:
            _agree(shown[name], seen)
        shown, rewards, _, _, _ = env.step(moves)
        for agent, reward in rewards.items():
            totals[str(agent)] = totals.get(str(agent), 0.0) + float(reward)
    assert not env.agents
    for name, seen in played.final.items():
        if name in shown:
            _agree(shown[name], seen)
    return totals


def returns_of(env: VectorEnv, totals: dict[str, float]) -> Sequence[float]:
    """The players' returns that the agents' totals make."""
    return [sum(totals[agent.name] for agent in env.spec.agents_of(p)) for p in range(env.spec.num_players)]


def _agree(shown: Any, seen: Any) -> None:
    own = shown["observation"] if isinstance(shown, dict) else shown
    if np.ndim(own) == 0:  # Discrete: one-hot here
        own = np.eye(len(seen))[int(own)]
    assert np.array_equal(np.asarray(own).astype(seen.dtype), seen)


def paid_as_in_a_plain_loop(env: VectorEnv, make: Callable[[], Any], *, episodes: int) -> list[Played]:
    """For environments of Gymnasium's with several agents: what was played, after the same was seen and paid in a loop over one."""
    found = play(env, episodes=episodes)
    for seed, played in found:
        plain = make()
        shown, _ = plain.reset(seed=seed)
        totals = {agent.name: 0.0 for agent in env.spec.agents}
        for step in played.steps:
            assert all(np.array_equal(seen, own) for (_, seen, _), own in zip(step, shown, strict=True))
            shown, rewards, _, _, _ = plain.step([int(action) for _, _, action in step])
            for name, reward in zip(totals, rewards, strict=True):
                totals[name] += reward
        assert returns_of(env, totals) == pytest.approx(played.returns)
    return [played for _, played in found]
