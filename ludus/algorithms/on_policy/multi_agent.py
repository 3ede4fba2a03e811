"""What a player of several agents asks of on-policy algorithms: states for central critics, shared rewards, a network for each agent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ludus.algorithms.common.team_specs import seen
from ludus.core.arrays import kernel
from ludus.core.errors import PolicyError, ScenarioError
from ludus.core.types import ActionRequests, EnvSpec
from ludus.envs.base import VectorEnv
from ludus.replay.trajectories import Trajectories

# ------------------------------------------------------------------------------------------------ states


def critic_states(rows: Trajectories, seats: tuple[int, ...]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(of all rows float32[N, width], of all bootstrap observations [S, width]), as `seen` shows them. Raises PolicyError for
    trajectories without states."""
    if rows.state is None or rows.bootstrap_state is None:
        raise PolicyError(
            "a central critic learns from trajectories without states; they must be collected with Collect(state=True)."
        )
    length = np.diff(rows.start)
    return seen(rows.state, np.repeat(rows.seat, length), seats), seen(rows.bootstrap_state, rows.seat, seats)


# ------------------------------------------------------------------------------------------------ rewards


def team_rewards(rows: Trajectories, gamma: float = 1.0) -> NDArray[np.float64]:
    """float64[N]: what the whole team received, for each of its agents' decisions. gamma: of each step from a decision to that of the
    teammate who is rewarded.

    A reward counts for its own decision, and for each teammate's newest one before the next of who receives it (`rows.dt`; without, at
    the same step or before), if the rollout has one. So agents that decide together all receive the sum; where they act in turn, nothing
    that a decision brings a teammate counts for an earlier one; and an agent that has left still earns, undiscounted, what its team does
    later in the same rollout.
    """
    length = np.diff(rows.start)
    group = np.repeat(rows.episode * 128 + rows.seat, length)
    _, agent = np.unique(np.repeat(rows.agent, length), return_inverse=True)
    until = rows.t + (1 if rows.dt is None else rows.dt)
    decided, received = np.lexsort((agent, rows.t, group)), np.lexsort((agent, until, group))
    reward, out = rows.reward.astype(np.float64), np.zeros(len(group))
    _share(decided, received, group, rows.t, until, agent, int(agent.max(initial=-1)) + 1, reward, gamma, out)
    return out


@kernel
def _share(decided, received, group, t, until, agent, agents, reward, gamma, out):  # type: ignore[no-untyped-def]
    """decided, received: rows by group and `t`, and by group and `until`."""
    newest = np.full(agents, -1, np.int64)
    now = 0
    for k in range(len(received)):
        row = received[k]
        if k == 0 or group[received[k - 1]] != group[row]:
            newest[:] = -1
        while now < len(decided) and group[decided[now]] == group[row] and t[decided[now]] < until[row]:
            newest[agent[decided[now]]] = decided[now]
            now += 1
        for who in range(agents):
            other = row if who == agent[row] else newest[who]
            if other >= 0:
                out[other] += reward[row] * gamma ** max(t[row] - t[other], 0)


# ------------------------------------------------------------------------------------------------ networks


def separate_networks(
    env: EnvSpec, seats: tuple[int, ...], *, algorithm: str, option: str = "share_weights=false"
) -> int:
    """How many networks a player wants whose agents share no weights, or not all (option): 1 where it has one agent. Raises ScenarioError
    where its observations do not end in an agent's id, or the seats have different numbers of agents."""
    counts = {len(env.agents_of(seat)) for seat in seats}
    if len(counts) > 1:
        raise ScenarioError(
            f"{algorithm} with {option} has a network for each agent, and the seats {seats} of {env.id} have "
            f"{sorted(counts)} agents. Do without, or use a population for each seat."
        )
    agents = counts.pop()
    if agents == 1:
        return 1
    space = env.agents_of(seats[0])[0].observation
    ids = None
    if isinstance(space, Box) and env.enumeration is None and len(space.shape) == 1 and space.shape[0] >= agents:
        ids = space.low[-agents:], space.high[-agents:]
    if ids is None or ids[0].any() or (ids[1] != 1).any():
        raise ScenarioError(
            f"{algorithm} with {option} has a network for each of the {agents} agents of a player, and the observations of "
            f"{env.id} ({space}) do not end in an agent's id. Put the wrapper agent_ids around it, as the last that changes observations."
        )
    return agents


def check_ids(
    env: EnvSpec, due: Sequence[ActionRequests], *, algorithm: str, option: str = "share_weights=false"
) -> None:
    """Raises ScenarioError where first observations, of players of several agents, do not end in ids: one-hot, and another for each agent
    of an environment. Bounds of 0 and 1, which `separate_networks` looks at, are no proof."""
    for player, first in enumerate(due):
        team = env.agents_of(player)
        if len(team) == 1 or not len(first.slot):
            continue
        ids, environment = first.observation[:, -len(team) :], first.slot // len(team)
        index = ids.argmax(axis=1)
        wrong = (ids != (np.arange(len(team)) == index[:, None])).any(axis=1)
        again = np.ones(len(ids), np.bool_)
        again[np.unique(environment * len(team) + index, return_index=True)[1]] = False
        if (wrong | again).any():
            row = int((wrong if wrong.any() else again).argmax())
            agent, as_another = (
                team[first.slot[row] % len(team)].name,
                "" if wrong[row] else ", as another agent's does",
            )
            raise ScenarioError(
                f"{algorithm} with {option} has a network for each of the {len(team)} agents of a player, and in the first "
                f"observations of {env.id} what agent {agent} sees ends in {ids[row].tolist()}{as_another}: this is no agent's id. "
                "Put the wrapper agent_ids around it, as the last that changes observations."
            )


def check_first_ids(env: VectorEnv, *, algorithm: str, option: str = "share_weights=false") -> None:
    """`check_ids` of its first observations; resets it."""
    first = env.reset(np.arange(env.num_envs, dtype=np.uint64))
    check_ids(env.spec, first.due, algorithm=algorithm, option=option)
