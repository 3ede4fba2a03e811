"""`mlagents/<path>`: games built with Unity's ML-Agents, by the low-level Python interface of `mlagents_envs` (`UnityEnvironment`). One
process of Unity is one environment."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, EnvError, nearest, one_line
from ludus.envs.adapters.agent_seats import AgentName, AgentSeat, Sides, seat_agents, split_options
from ludus.envs.base import VectorEnv
from ludus.envs.publisher import TERMINATED, TRUNCATED
from ludus.envs.python_vector import Flaw, Happened, PythonEnv, PythonVectorEnv

__all__ = ["make", "names"]

_OPTIONS = ("additional_args", "no_graphics", "parameters", "time_scale", "timeout_wait")
_PATIENCE = 10_000  # steps of Unity in which nobody asks for an action, before it is taken for stuck


def make(
    name: str,
    *,
    num_envs: int,
    restarts: int = 0,
    render: bool = False,
    time_scale: float = 20.0,
    parameters: Mapping[str, float] | None = None,
    timeout_wait: int = 60,
    additional_args: Sequence[str] = (),
    **options: Any,
) -> VectorEnv:
    """`name` is the path of a build, relative to the working directory; an absolute one follows a second slash.

    restarts: see `PythonVectorEnv`. render: let Unity open its window. time_scale: game seconds a second, at most. parameters: of the build
    (its environment parameters). timeout_wait: seconds that Unity may take to answer. additional_args: of its command line. Options of
    `Sides` say who plays whom; by default agents of one team id are one player.
    Raises ConfigError for options and what is not installed, EnvError for a build that cannot be started or played.
    """
    id = f"mlagents/{name}"
    sides, rest = split_options(options, defaults={"determinism": "none"})
    if rest:
        wrong = sorted(rest)[0]
        raise ConfigError(f"{id} has no option {wrong!r}{nearest(wrong, {*_OPTIONS, 'render', 'teams'})}")
    if sides.state:
        raise ConfigError(f"{id} has no state; leave out state=true.")
    unity = _unity(id)
    build = partial(
        _started, id, unity, name,
        render=render, time_scale=time_scale, parameters=parameters or {}, wait=timeout_wait, arguments=additional_args,
    )  # fmt: skip
    first = build(0)
    with closing(first):  # its seed is none of an episode's, and a build takes one as it starts
        behaviours = _behaviours(id, first)
        agents = [name for behaviour in behaviours for name in behaviour.agents]
        if "teams" not in options:
            sides = _by_team(sides, behaviours)
        spec, seats, masked = seat_agents(
            id,
            agents,
            {name: (each.observation, each.action) for each in behaviours for name in each.agents},
            sides=sides,
            masked=any(each.branches for each in behaviours),
            clip=True,
            state=None,
        )

    def made() -> PythonEnv:
        return Build(build, unity.ActionTuple, behaviours, seats)

    return PythonVectorEnv(made, num_envs, spec=spec, masked=masked, restarts_allowed=restarts)


def names() -> list[str]:
    """None: builds are files of the user's."""
    return []


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What agents of one behaviour see and do. name: as Unity calls it, such as "Striker?team=0". team: Unity's team id. agents: Ludus's
    names of those that there are after a reset, in the order of Unity's ids. branches: how many choices each discrete number has; ():
    actions are continuous."""

    name: str
    team: int
    agents: tuple[str, ...]
    observation: Space[Any]
    action: Space[Any]
    branches: tuple[int, ...]


class Build:
    """One process of Unity as a `PythonEnv`. An episode begins with a reset and is over when each of its agents has ended; what Unity puts
    in the place of one that has ended waits for that, and does nothing. Decisions are due when agents ask for them."""

    def __init__(
        self,
        build: Callable[[int], Any],
        action_tuple: Callable[..., Any],
        behaviours: Sequence[Behaviour],
        seats: Mapping[AgentName, AgentSeat],
    ) -> None:
        self._build = build
        self._tuple = action_tuple
        self._behaviours = behaviours
        self._seats = seats
        self._env: Any = None
        self._alive: dict[tuple[int, int], AgentSeat] = {}  # (behaviour, Unity's id) -> seat
        self._asked: list[NDArray[np.int64]] = []  # Unity's ids of those that wait for an action, for each behaviour

    def reset(self, seed: int) -> Happened:
        """See `PythonEnv.reset`. Unity takes a seed when it is started, and none after that."""
        if self._env is None:
            self._env = self._build(seed & 0x7FFFFFFF)
        self._env.reset()
        self._alive.clear()
        for b, behaviour in enumerate(self._behaviours):
            there = sorted(int(i) for i in self._env.get_steps(behaviour.name)[0].agent_id)
            if len(there) > len(behaviour.agents):
                raise Flaw(
                    f"has {len(there)} agents of {behaviour.name} after a reset; there were {len(behaviour.agents)} after its first"
                )
            self._alive |= {(b, i): self._seats[name] for i, name in zip(there, behaviour.agents, strict=False)}
        happened = self._until_due(Happened())
        happened.reward.clear()  # earned before anybody decided anything
        return happened

    def step(self, actions: Sequence[Any]) -> Happened:
        """See `PythonEnv.step`."""
        self._send(actions)
        self._env.step()
        return self._until_due(Happened())

    @property
    def game(self) -> object:
        """See `PythonEnv.game`."""
        return self._env

    def render(self) -> NDArray[np.uint8] | str:
        """Raises EnvError: Unity shows itself in a window of its own."""
        raise EnvError("Unity gives no images; with render=true it opens a window of its own.")

    def close(self) -> None:
        """End the process."""
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def _until_due(self, happened: Happened) -> Happened:
        """What Unity tells now, after further steps until somebody has to act or the episode is over."""
        for _ in range(_PATIENCE):
            self._hear(happened)
            if not self._alive:
                how = TRUNCATED if any(how == TRUNCATED for _, _, how in happened.gone) else TERMINATED
                happened.over = how
                return happened
            if happened.due:
                return happened
            self._send(())
            self._env.step()
        raise Flaw(f"asked for no action in {_PATIENCE} steps")

    def _hear(self, happened: Happened) -> None:
        """Note who has to act, what was earned, and who has ended."""
        self._asked = []
        for b, behaviour in enumerate(self._behaviours):
            asking, ended = self._env.get_steps(behaviour.name)
            self._asked.append(np.asarray(asking.agent_id, np.int64))
            for k, i in enumerate(ended.agent_id.tolist()):
                seat = self._alive.pop((b, i), None)
                if seat is not None:
                    self._earn(happened, seat, ended, k)
                    how = TRUNCATED if ended.interrupted[k] else TERMINATED
                    seen, legal = self._seen(seat, behaviour, ended, k, None)
                    happened.gone.append((seat.index, seen, how))
                    if legal is not None:
                        happened.final_mask.append((seat.index, legal))
            for k, i in enumerate(asking.agent_id.tolist()):
                seat = self._alive.get((b, i))
                if seat is not None:
                    self._earn(happened, seat, asking, k)
                    seen, mask = self._seen(seat, behaviour, asking, k, asking.action_mask)
                    happened.due.append((seat.index, seen, mask))

    def _earn(self, happened: Happened, seat: AgentSeat, steps: Any, k: int) -> None:
        happened.reward.append((seat.index, float(steps.reward[k]) + float(steps.group_reward[k])))

    def _seen(self, seat: AgentSeat, behaviour: Behaviour, steps: Any, k: int, forbidden: Any) -> tuple[Any, Any]:
        """(observation, mask). forbidden: for each number of an action, bool[n, choices], True where it may not be chosen."""
        parts = tuple(part[k] for part in steps.obs)
        info = None
        if behaviour.branches and forbidden is not None:
            info = {"action_mask": np.concatenate([~np.asarray(branch[k], np.bool_) for branch in forbidden])}
        return seat.see(parts[0] if len(parts) == 1 else parts, info)

    def _send(self, actions: Sequence[Any]) -> None:
        """Give Unity an action for each agent that asked for one; zeros for those that Ludus does not play any more."""
        for b, (behaviour, asked) in enumerate(zip(self._behaviours, self._asked, strict=True)):
            if not len(asked):
                continue
            width = len(behaviour.branches) or behaviour.action.shape[0]  # type: ignore[index]
            rows = np.zeros((len(asked), width), np.int32 if behaviour.branches else np.float32)
            for k, i in enumerate(asked.tolist()):
                seat = self._alive.get((b, i))
                if seat is not None and len(actions):
                    rows[k] = seat.act(actions[seat.index])
            kind = "discrete" if behaviour.branches else "continuous"
            self._env.set_actions(behaviour.name, self._tuple(**{kind: rows}))


def _unity(id: str) -> Any:
    """What is used of the package. Raises ConfigError where it was made for another protobuf."""
    try:
        from mlagents_envs.base_env import ActionTuple
        from mlagents_envs.environment import UnityEnvironment
        from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel
        from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel
    except (AttributeError, TypeError) as error:
        raise ConfigError(
            f"{id} needs mlagents_envs, which cannot be imported with this protobuf: {one_line(error)}. `pip install 'protobuf<6'`, and "
            "give PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python in the environment of the command."
        ) from error
    return SimpleNamespace(
        ActionTuple=ActionTuple,
        UnityEnvironment=UnityEnvironment,
        Engine=EngineConfigurationChannel,
        Parameters=EnvironmentParametersChannel,
    )


def _started(
    id: str,
    unity: Any,
    path: str,
    seed: int,
    *,
    render: bool,
    time_scale: float,
    parameters: Mapping[str, float],
    wait: int,
    arguments: Sequence[str],
) -> Any:
    """A process of Unity, connected. Raises EnvError."""
    engine, given = unity.Engine(), unity.Parameters()
    try:
        engine.set_configuration_parameters(time_scale=time_scale)
        for name, value in parameters.items():
            given.set_float_parameter(name, float(value))
        return unity.UnityEnvironment(
            file_name=path,
            base_port=_free_port(),
            seed=seed,
            no_graphics=not render,
            side_channels=[engine, given],
            timeout_wait=wait,
            additional_args=list(arguments),
        )
    except Exception as error:
        raise EnvError(f"{id} cannot be started: {type(error).__name__}: {one_line(error)}.") from error


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


def _behaviours(id: str, env: Any) -> list[Behaviour]:
    """What there is after the first reset, by rising names. Raises EnvError for what Ludus cannot play."""
    env.reset()
    out = []
    for name in sorted(env.behavior_specs):
        spec = env.behavior_specs[name]
        count = len(env.get_steps(name)[0].agent_id)
        if not count:
            continue
        found = re.search(r"[?&]team=(\d+)", name)
        team = int(found[1]) if found else 0
        agents = tuple(f"{name.partition('?')[0]}_{team}_{k}" for k in range(count))
        boxes = [spaces.Box(-np.inf, np.inf, tuple(part.shape), np.float32) for part in spec.observation_specs]
        if not boxes:
            raise EnvError(f"{id}: agents of {name} observe nothing; Ludus plays those that do.")
        observation = boxes[0] if len(boxes) == 1 else spaces.Tuple(boxes)
        branches = tuple(int(n) for n in spec.action_spec.discrete_branches)
        out.append(Behaviour(name, team, agents, observation, _action(id, name, spec.action_spec, branches), branches))
    if not out:
        raise EnvError(f"{id} has no agent that asks for an action after a reset.")
    return out


def _action(id: str, name: str, spec: Any, branches: tuple[int, ...]) -> Space[Any]:
    if bool(branches) == bool(spec.continuous_size):
        kinds = "both continuous and discrete actions" if branches else "no actions"
        raise EnvError(f"{id}: agents of {name} have {kinds}; Ludus plays those with one kind.")
    if not branches:
        return spaces.Box(-1, 1, (int(spec.continuous_size),), np.float32)
    return spaces.Discrete(branches[0]) if len(branches) == 1 else spaces.MultiDiscrete(list(branches))


def _by_team(sides: Sides, behaviours: Sequence[Behaviour]) -> Sides:
    """With one player for each of Unity's team ids."""
    teams: dict[int, list[str]] = {}
    for behaviour in behaviours:
        teams.setdefault(behaviour.team, []).extend(behaviour.agents)
    return replace(sides, teams=dict(sorted(teams.items())))
