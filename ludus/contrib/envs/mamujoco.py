"""`mamujoco/<body>-<partition>`: Multi-agent MuJoCo (gymnasium-robotics): one body, whose joints are shared out to several agents."""

from __future__ import annotations

import fcntl
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ludus.core.errors import ConfigError, EnvError, UnknownName, nearest, one_line
from ludus.core.packages import missing_package
from ludus.core.types import Array, Timestep
from ludus.envs.adapters.agent_seats import AgentName, Teams, group_agents, split_options
from ludus.envs.adapters.gymnasium import quiet
from ludus.envs.adapters.pettingzoo_vector import render_options, zoo_vector
from ludus.envs.base import VectorEnv
from ludus.envs.publisher import GOES_ON, TERMINATED, TRUNCATED
from ludus.envs.python_vector import PythonVectorEnv

__all__ = ["make", "names"]

_PARTITIONS: Mapping[str, tuple[str, ...]] = {  # as in the package's `get_parts_and_edges`, which lists them nowhere
    "Ant": ("2x4", "2x4d", "4x2"),
    "CoupledHalfCheetah": ("1p1",),
    "HalfCheetah": ("2x3", "6x1"),
    "Hopper": ("3x1",),
    "Humanoid": ("9|8",),
    "HumanoidStandup": ("9|8",),
    "ManySegmentAnt": ("2x3", "3x1"),
    "ManySegmentSwimmer": ("2x3", "6x1", "10x2"),
    "Pusher": ("3p",),
    "Reacher": ("2x1",),
    "Swimmer": ("2x1",),
    "Walker2d": ("2x3",),
}
_SEGMENTS = ("ManySegmentAnt", "ManySegmentSwimmer")  # as many agents and segments as one likes
_OURS = ("agent_conf", "scenario")  # which the id says
_BROKEN = (
    "CoupledHalfCheetah",
)  # with MuJoCo 4, whose tendon Jacobians are no matrices as gymnasium-robotics 1.4.2 reads them


def make(name: str, *, num_envs: int, restarts: int = 0, render: bool = False, **options: Any) -> VectorEnv:
    """Make the vector of a body whose joints several agents share.

    The reward is that of the whole body; a player's agents get equal shares of it, so that each player's return is the body's.

    Args:
        name: `HalfCheetah-2x3` or such: the body, and how its joints are distributed (agents × joints each, usually).
        num_envs: Number of environments.
        restarts: As in `PythonVectorEnv`.
        render: Whether it is made able to render.
        options: Those of `Sides` say who plays whom; by default all agents are one player. The others (agent_obsk, local_categories, …) go
            to `MultiAgentMujocoEnv`, and from there to Gymnasium's environment.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such partition; with the nearest names.
        ConfigError: An option is not taken.
        EnvError: The environment cannot be made.
    """
    id = f"mamujoco/{name}"
    body, partition = _split_name(name)
    sides, rest = split_options(options, defaults={"teams": "one"})
    if wrong := sorted({*rest} & {*_OURS}):
        raise ConfigError(f"{id} was given the option {wrong[0]}, which its id says already. Leave it out.")
    if sides.statistics:
        raise ConfigError(f"{id} counts nothing by name; leave out statistics.")
    build = partial(_build, id, body, partition, {**render_options(render), **rest}, sides.teams)
    vector = PythonVectorEnv if restarts else SharedBodyVectorEnv
    return zoo_vector(build, num_envs, id=id, sides=sides, restarts=restarts, vector=vector)


def names() -> list[str]:
    """Return what may follow `mamujoco/`, sorted; of ManySegmentAnt-NxM and ManySegmentSwimmer-NxM, of which there is no end, a few.
    Without what does not run with MuJoCo 4."""
    return sorted(f"{b}-{partition}" for b, known in _PARTITIONS.items() if b not in _BROKEN for partition in known)


def _split_name(name: str) -> tuple[str, str]:
    """Return (body, partition)."""
    body, _, partition = name.partition("-")
    if not (body in _SEGMENTS and re.fullmatch(r"[1-9]\d*x[1-9]\d*", partition)) and partition not in _PARTITIONS.get(
        body, ()
    ):
        raise UnknownName("partition of Multi-agent MuJoCo", name, names(), hint="ManySegmentAnt-NxM takes any N and M")
    return body, partition


def _build(id: str, body: str, partition: str, options: Mapping[str, Any], teams: Teams) -> SharedBodyEnv:
    try:
        with warnings.catch_warnings(), quiet():
            warnings.simplefilter("ignore")
            from gymnasium_robotics import mamujoco_v1

            with _exclusive(Path(mamujoco_v1.__file__).parent) if body in _SEGMENTS else nullcontext():
                env = mamujoco_v1.parallel_env(scenario=body, agent_conf=partition, **options)
    except ImportError as error:
        raise missing_package(id, error) from error
    except TypeError as error:
        wrong = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if wrong is None:
            raise EnvError(f"{id} cannot be made with the options {dict(options)}: {one_line(error)}.") from error
        known = ("agent_obsk", "local_categories", "global_categories", "render", "teams", "state")
        raise ConfigError(f"{id} has no option {wrong[1]!r}{nearest(wrong[1], known)}") from error
    except Exception as error:
        raise EnvError(f"{id} cannot be made: {type(error).__name__}: {one_line(error)}.") from error
    return SharedBodyEnv(env, group_agents(env.possible_agents, teams), options.get("render_mode"))


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Hold a lock across processes: for a body of many segments the package writes a file of the same name into its own folder, reads it
    and removes it. Where the file system has no locks, it does not wait."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class SharedBodyEnv:
    """A parallel environment of agents that move one body and are rewarded together: each gets an equal share of its player's
    reward. players: the agents of each."""

    def __init__(self, env: Any, players: Sequence[Sequence[AgentName]], render_mode: str | None) -> None:
        self.unwrapped = env
        self.render_mode = render_mode
        self.possible_agents: list[str] = list(env.possible_agents)
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.state, self.render, self.close = env.state, env.render, env.close
        self.joints = {agent: self.action_space(agent).shape[0] for agent in self.possible_agents}
        self._among = {agent: len(members) for members in players for agent in members}
        self._shared = any(count > 1 for count in self._among.values())

    @property
    def agents(self) -> list[str]:
        """Return the agents that still act: all or none."""
        agents: list[str] = self.unwrapped.agents
        return agents

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Reset as PettingZoo's `ParallelEnv.reset`."""
        return self.unwrapped.reset(seed=seed, options=options)

    def step(self, actions: Mapping[str, Any]) -> Any:
        """Step as PettingZoo's `ParallelEnv.step`."""
        observations, rewards, terminations, truncations, infos = self.unwrapped.step(actions)
        if self._shared:
            rewards = {agent: reward / self._among[agent] for agent, reward in rewards.items()}
        return observations, rewards, terminations, truncations, infos


class SharedBodyVectorEnv(PythonVectorEnv):
    """A `PythonVectorEnv` of `SharedBodyEnv`s, whose first fault raises EnvError. All agents act in every step and end together, so that
    what
    they see goes straight into its rows. Non-finite numbers are detected after all steps."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._places: list[tuple[int, int, str]] = []  # (player, index in its team, agent)
        counts = [0] * self.spec.num_players
        for agent in self.spec.agents:
            self._places.append((agent.player, counts[agent.player], agent.name))
            counts[agent.player] += 1

    def _play(self, actions: tuple[Array, ...], last: Timestep) -> None:
        pub, agents = self._pub, self._pub.agents
        shapes = [(self.num_envs, count) for count in agents]
        observations = [rows.reshape(*shape, -1) for rows, shape in zip(pub.observation, shapes, strict=True)]
        finals = [rows.reshape(*shape, -1) for rows, shape in zip(pub.final, shapes, strict=True)]
        acting = last.due[0].slot[:: agents[0]] // agents[0]
        moves = [
            self._env_actions(p, body_actions, due).reshape(len(acting), agents[p], -1)
            for p, (body_actions, due) in enumerate(zip(actions, last.due, strict=True))
        ]
        first = self._places[0][2]
        rewards_of_bodies = np.zeros(len(acting))  # each body, for what all of its agents did
        for k, e in enumerate(acting.tolist()):
            try:
                body: Any = self._envs[e].game
                joints = body.joints
                body_actions = {name: moves[p][k, i, : joints[name]] for p, i, name in self._places}
                body_observations, rewards, terminations, truncations, _ = body.unwrapped.step(body_actions)
                rewards_of_bodies[k] = rewards[first]
                how = TERMINATED if terminations[first] else TRUNCATED if truncations[first] else GOES_ON
                if how:
                    pub.over[e] = how
                rows = finals if how else observations
                for p, i, name in self._places:
                    own = body_observations[name]
                    rows[p][e, i, : len(own)] = own
                state = pub.final_state if how else pub.state
                if state is not None:
                    state[e] = body.state()
            except Exception as error:  # noqa: BLE001  whatever an environment raises becomes one clear error
                self._fault(e, f"raised {type(error).__name__}: {error}", cause=error)
        for reward, shape in zip(pub.reward, shapes, strict=True):
            reward.reshape(shape)[acting] += (rewards_of_bodies / shape[1])[:, None]
        goes_on = pub.over[acting] == GOES_ON
        for due, shape in zip(pub.due, shapes, strict=True):
            due.fill(False)
            due.reshape(shape)[acting[goes_on]] = True
