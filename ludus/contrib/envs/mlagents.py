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
from ludus.envs.python_vector import ContractViolation, EnvStepResult, PythonEnv, PythonVectorEnv

__all__ = ["make", "names"]

_OPTIONS = ("additional_args", "no_graphics", "parameters", "time_scale", "timeout_wait")
_PATIENCE = 10_000  # steps of Unity without a request for an action, before it counts as stuck


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
    """Make the vector of a game built with Unity's ML-Agents.

    Args:
        name: The path of a build, relative to the working directory; an absolute one follows a second slash.
        num_envs: Number of environments.
        restarts: As in `PythonVectorEnv`.
        render: Whether Unity opens its window.
        time_scale: Game seconds per second, at most.
        parameters: Of the build (its environment parameters).
        timeout_wait: Seconds that Unity may take to answer.
        additional_args: Of its command line.
        options: Those of `Sides` say who plays whom; by default agents of one team id are one player.

    Returns:
        The vector.

    Raises:
        ConfigError: An option is not taken, or a package is missing.
        EnvError: The build cannot be started or played.
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
        _start_unity, id, unity, name,
        render=render, time_scale=time_scale, parameters=parameters or {}, wait=timeout_wait, arguments=additional_args,
    )  # fmt: skip
    first = build(0)
    with closing(first):  # its seed is none of an episode's, and a build takes one as it starts
        behaviors = _behaviors(id, first)
        agents = [name for behavior in behaviors for name in behavior.agents]
        if "teams" not in options:
            sides = _by_team(sides, behaviors)
        spec, seats, masked = seat_agents(
            id,
            agents,
            {
                name: (behavior_spec.observation, behavior_spec.action)
                for behavior_spec in behaviors
                for name in behavior_spec.agents
            },
            sides=sides,
            masked=any(behavior_spec.branches for behavior_spec in behaviors),
            clip=True,
            state=None,
        )

    def new_env() -> PythonEnv:
        return Build(build, unity.ActionTuple, behaviors, seats)

    return PythonVectorEnv(new_env, num_envs, spec=spec, masked=masked, restarts_allowed=restarts)


def names() -> list[str]:
    """Return an empty list: builds are files of the user."""
    return []


@dataclass(frozen=True, slots=True)
class Behavior:
    """What agents of one behavior see and do.

    Attributes:
        name: As Unity calls it, such as "Striker?team=0".
        team: Unity's team id.
        agents: Ludus's names of the agents after a reset, in the order of Unity's ids.
        observation: Their space.
        action: Their space.
        branches: Number of choices of each discrete number; (): actions are continuous.
    """

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
        behaviors: Sequence[Behavior],
        seats: Mapping[AgentName, AgentSeat],
    ) -> None:
        self._build = build
        self._tuple = action_tuple
        self._behaviors = behaviors
        self._seats = seats
        self._env: Any = None
        self._alive: dict[tuple[int, int], AgentSeat] = {}  # (behaviour, Unity's id) -> seat
        self._waiting_ids: list[
            NDArray[np.int64]
        ] = []  # Unity's ids of those that wait for an action, for each behaviour

    def reset(self, seed: int) -> EnvStepResult:
        """Reset as `PythonEnv.reset` describes. Unity takes a seed when it is started, and none after that."""
        if self._env is None:
            self._env = self._build(seed & 0x7FFFFFFF)
        self._env.reset()
        self._alive.clear()
        for b, behavior in enumerate(self._behaviors):
            agent_ids = sorted(int(i) for i in self._env.get_steps(behavior.name)[0].agent_id)
            if len(agent_ids) > len(behavior.agents):
                raise ContractViolation(
                    f"has {len(agent_ids)} agents of {behavior.name} after a reset; there were {len(behavior.agents)} after its first"
                )
            self._alive |= {(b, i): self._seats[name] for i, name in zip(agent_ids, behavior.agents, strict=False)}
        result = self._until_due(EnvStepResult())
        result.reward.clear()  # earned before the first decision
        return result

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        """Step as `PythonEnv.step` describes."""
        self._send(actions)
        self._env.step()
        return self._until_due(EnvStepResult())

    @property
    def game(self) -> object:
        """Return the environment's object as `PythonEnv.game` describes."""
        return self._env

    def render(self) -> NDArray[np.uint8] | str:
        """Raise EnvError: Unity shows itself in a window of its own."""
        raise EnvError("Unity gives no images; with render=true it opens a window of its own.")

    def close(self) -> None:
        """End the process."""
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def _until_due(self, result: EnvStepResult) -> EnvStepResult:
        """Step Unity until an agent has to act or the episode is over."""
        for _ in range(_PATIENCE):
            self._hear(result)
            if not self._alive:
                how = TRUNCATED if any(how == TRUNCATED for _, _, how in result.gone) else TERMINATED
                result.over = how
                return result
            if result.due:
                return result
            self._send(())
            self._env.step()
        raise ContractViolation(f"asked for no action in {_PATIENCE} steps")

    def _hear(self, result: EnvStepResult) -> None:
        """Note which agents have to act, the rewards, and which agents have ended."""
        self._waiting_ids = []
        for b, behavior in enumerate(self._behaviors):
            asking, ended = self._env.get_steps(behavior.name)
            self._waiting_ids.append(np.asarray(asking.agent_id, np.int64))
            for k, i in enumerate(ended.agent_id.tolist()):
                seat = self._alive.pop((b, i), None)
                if seat is not None:
                    self._earn(result, seat, ended, k)
                    how = TRUNCATED if ended.interrupted[k] else TERMINATED
                    observation, legal = self._observe(seat, behavior, ended, k, None)
                    result.gone.append((seat.index, observation, how))
                    if legal is not None:
                        result.final_mask.append((seat.index, legal))
            for k, i in enumerate(asking.agent_id.tolist()):
                seat = self._alive.get((b, i))
                if seat is not None:
                    self._earn(result, seat, asking, k)
                    observation, mask = self._observe(seat, behavior, asking, k, asking.action_mask)
                    result.due.append((seat.index, observation, mask))

    def _earn(self, result: EnvStepResult, seat: AgentSeat, steps: Any, k: int) -> None:
        result.reward.append((seat.index, float(steps.reward[k]) + float(steps.group_reward[k])))

    def _observe(self, seat: AgentSeat, behavior: Behavior, steps: Any, k: int, forbidden: Any) -> tuple[Any, Any]:
        """Return (observation, mask). forbidden: for each number of an action, bool[n, choices], True where it may not be chosen."""
        parts = tuple(part[k] for part in steps.obs)
        info = None
        if behavior.branches and forbidden is not None:
            info = {"action_mask": np.concatenate([~np.asarray(branch[k], np.bool_) for branch in forbidden])}
        return seat.see(parts[0] if len(parts) == 1 else parts, info)

    def _send(self, actions: Sequence[Any]) -> None:
        """Give Unity an action for each agent that asked for one; zeros for those that Ludus does not play any more."""
        for b, (behavior, waiting) in enumerate(zip(self._behaviors, self._waiting_ids, strict=True)):
            if not len(waiting):
                continue
            width = len(behavior.branches) or behavior.action.shape[0]  # type: ignore[index]
            rows = np.zeros((len(waiting), width), np.int32 if behavior.branches else np.float32)
            for k, i in enumerate(waiting.tolist()):
                seat = self._alive.get((b, i))
                if seat is not None and len(actions):
                    rows[k] = seat.act(actions[seat.index])
            kind = "discrete" if behavior.branches else "continuous"
            self._env.set_actions(behavior.name, self._tuple(**{kind: rows}))


def _unity(id: str) -> Any:
    """Import what is used of the package. Raises ConfigError where it was made for another protobuf."""
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


def _start_unity(
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
    """Start a process of Unity and connect to it. Raises EnvError."""
    engine, parameter_channel = unity.Engine(), unity.Parameters()
    try:
        engine.set_configuration_parameters(time_scale=time_scale)
        for name, value in parameters.items():
            parameter_channel.set_float_parameter(name, float(value))
        return unity.UnityEnvironment(
            file_name=path,
            base_port=_free_port(),
            seed=seed,
            no_graphics=not render,
            side_channels=[engine, parameter_channel],
            timeout_wait=wait,
            additional_args=list(arguments),
        )
    except Exception as error:
        raise EnvError(f"{id} cannot be started: {type(error).__name__}: {one_line(error)}.") from error


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def _behaviors(id: str, env: Any) -> list[Behavior]:
    """Return the behaviors after the first reset, by rising names. Raises EnvError for what Ludus cannot play."""
    env.reset()
    out = []
    for name in sorted(env.behavior_specs):
        spec = env.behavior_specs[name]
        count = len(env.get_steps(name)[0].agent_id)
        if not count:
            continue
        match = re.search(r"[?&]team=(\d+)", name)
        team = int(match[1]) if match else 0
        agents = tuple(f"{name.partition('?')[0]}_{team}_{k}" for k in range(count))
        boxes = [spaces.Box(-np.inf, np.inf, tuple(part.shape), np.float32) for part in spec.observation_specs]
        if not boxes:
            raise EnvError(f"{id}: agents of {name} observe nothing; Ludus plays those that do.")
        observation = boxes[0] if len(boxes) == 1 else spaces.Tuple(boxes)
        branches = tuple(int(n) for n in spec.action_spec.discrete_branches)
        out.append(Behavior(name, team, agents, observation, _action(id, name, spec.action_spec, branches), branches))
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


def _by_team(sides: Sides, behaviors: Sequence[Behavior]) -> Sides:
    """Return the sides with one player for each of Unity's team ids."""
    teams: dict[int, list[str]] = {}
    for behavior in behaviors:
        teams.setdefault(behavior.team, []).extend(behavior.agents)
    return replace(sides, teams=dict(sorted(teams.items())))
