"""Support of on-policy algorithms for players with several agents: states for central critics, shared rewards, a
network for each agent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ludus.algorithms.common.space_checks import state_features
from ludus.core.arrays import kernel
from ludus.core.errors import PolicyError, ScenarioError
from ludus.core.types import ActionRequests, EnvSpec
from ludus.envs.base import VectorEnv
from ludus.replay.trajectories import Trajectories

# ------------------------------------------------------------------------------------------------ states


def critic_states(rows: Trajectories, seats: tuple[int, ...]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return a central critic's inputs (of all rows float32[N, width], of all bootstrap observations [S, width]); see
    `state_features`. Raise PolicyError for trajectories without states."""
    if rows.state is None or rows.bootstrap_state is None:
        raise PolicyError(
            "a central critic learns from trajectories without states; they must be collected with CollectConfig(state=True)."
        )
    length = np.diff(rows.start)
    return state_features(rows.state, np.repeat(rows.seat, length), seats), state_features(
        rows.bootstrap_state, rows.seat, seats
    )


# ------------------------------------------------------------------------------------------------ rewards


def team_rewards(rows: Trajectories, gamma: float = 1.0) -> NDArray[np.float64]:
    """Return what the whole team received for each decision of its agents, float64[N].

    A reward counts for its own decision, and for each teammate's newest decision before the receiver's next one
    (`rows.dt`; without, at the same step or before), if the rollout has one. So agents that decide together all receive
    the sum; where they act in turn, a teammate's reward never counts for an earlier decision; and an agent that has
    left still receives, undiscounted, what its team receives later in the same rollout.

    Args:
        rows: The trajectories.
        gamma: Discount per step from a decision to that of the rewarded teammate.
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
    """Add rewards to the newest decisions of teammates. decided, received: rows by group and `t`, and by group and
    `until`."""
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
    """Return the number of networks of a player whose agents do not share weights, or not all (option): 1 for a single
    agent. Raise ScenarioError if its observations do not end in an agent's id, or the seats have different numbers of
    agents."""
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
    """Raise ScenarioError if first observations of players with several agents do not end in one-hot ids, a different
    one for each agent of an environment. Bounds of 0 and 1, which `separate_networks` checks, are no proof."""
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
    """Check the first observations of an environment with `check_ids`; resets it."""
    first = env.reset(np.arange(env.num_envs, dtype=np.uint64))
    check_ids(env.spec, first.due, algorithm=algorithm, option=option)
