"""Environments of several agents with Gymnasium's interface: tuples of spaces, actions and observations, lists of rewards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, EnvError
from ludus.envs.adapters.agent_seats import AgentSeat, Sides, seat_agents
from ludus.envs.adapters.pettingzoo_vector import close
from ludus.envs.adapters.step_checks import (
    RESET,
    STEP,
    call_renderer,
    check_answer,
    check_mapping,
    one_flag,
    read_rewards,
)
from ludus.envs.publisher import TERMINATED, TRUNCATED
from ludus.envs.python_vector import ContractViolation, EnvStepResult, PythonEnv, PythonVectorEnv


def tuple_vector(
    make: Callable[[], Any],
    num_envs: int,
    *,
    id: str,
    sides: Sides,
    restarts: int = 0,
    out_of_time: Callable[[Any], bool] | None = None,
    forget: Callable[[Any], None] | None = None,
) -> PythonVectorEnv:
    """Return a vector of `num_envs` environments that `make` makes; their agents are agent_0, agent_1, ….

    out_of_time: whether an episode that its environment calls terminated has run into the limit of steps, and is truncated.
    forget: called before each reset, where an environment's own leaves something of the last episode behind.
    Raises EnvError for spaces that are no tuples, ConfigError for teams that do not fit.
    """
    first = make()
    observations, actions = first.observation_space, first.action_space
    if (
        not isinstance(observations, spaces.Tuple)
        or not isinstance(actions, spaces.Tuple)
        or len(observations) != len(actions)
    ):
        raise EnvError(
            f"{id} has the observation space {observations} and the action space {actions}; a Tuple of actions is taken for one "
            f"of each agent, so "
            "observations must be a Tuple as long. If it is one agent that acts, give it a MultiDiscrete or a Box."
        )
    try:
        answer = first.reset(seed=0)
    except Exception as error:
        raise EnvError(f"{id} raised {type(error).__name__} in its first reset: {error}.") from error
    try:
        _observations(answer)
    except ContractViolation as flaw:
        raise EnvError(f"{id} {flaw}.") from None
    if sides.state:
        raise ConfigError(f"{id} has no state; leave out state=true.")
    agents = [f"agent_{i}" for i in range(len(actions))]
    spec, seats, masked = seat_agents(
        id,
        agents,
        dict(zip(agents, zip(observations, actions, strict=True), strict=True)),
        sides=sides,
        masked=False,
        clip=False,
        state=None,
    )
    team = [seats[agent] for agent in agents]
    probes = [first]  # made already: the vector's first

    def new_env() -> PythonEnv:
        return TupleEnv(probes.pop() if probes else make(), id, team, out_of_time=out_of_time, forget=forget)

    return PythonVectorEnv(new_env, num_envs, spec=spec, masked=masked, restarts_allowed=restarts, probes=probes)


class TupleEnv:
    """One such environment; all of its agents act in every step, to the end."""

    def __init__(
        self,
        env: Any,
        id: str,
        team: Sequence[AgentSeat],
        *,
        out_of_time: Callable[[Any], bool] | None = None,
        forget: Callable[[Any], None] | None = None,
    ) -> None:
        self._env = self.single = env
        self._id = id
        self._team = team
        self._out_of_time = out_of_time
        self._forget = forget

    def reset(self, seed: int) -> EnvStepResult:
        """Reset as `PythonEnv.reset` describes."""
        if self._forget is not None:
            self._forget(self._env)
        return EnvStepResult(due=self._rows(_observations(self._env.reset(seed=seed))))

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        """Step as `PythonEnv.step` describes."""
        team = self._team
        answer = self._env.step(tuple([seat.act(actions[seat.index]) for seat in team]))
        try:
            observations, rewards, terminated, truncated, _ = answer
            count = -1 if isinstance(rewards, dict) else len(rewards)
        except (TypeError, ValueError):
            check_answer("step", answer, STEP)
            count = -1
        if count != len(team):
            raise ContractViolation(
                f"gave the rewards {rewards!r} to {len(team)} agents; expected a list with one for each"
            )
        paid = read_rewards(dict(enumerate(rewards)), team)
        if terminated.__class__ is not bool or truncated.__class__ is not bool:
            terminated, truncated = one_flag(terminated, "terminated"), one_flag(truncated, "truncated")
        if not (terminated or truncated):
            return EnvStepResult(due=self._rows(observations), reward=paid)
        out_of_time = not truncated and self._out_of_time is not None and self._out_of_time(self._env)
        how = TRUNCATED if truncated or out_of_time else TERMINATED
        result = EnvStepResult(reward=paid, over=how)
        for seat, observation in self._pairs(observations):
            close(result, seat, observation, None, how)
        return result

    @property
    def game(self) -> object:
        """Return the environment's object as `PythonEnv.game` describes."""
        return self._env

    def render(self) -> NDArray[np.uint8] | str:
        """Render as `PythonEnv.render` describes. Raises EnvError if there is no screen, ConfigError if there is no package to draw
        with."""
        return np.asarray(call_renderer(self._id, partial(self._env.render, mode="rgb_array")))

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _rows(self, observations: Sequence[Any]) -> list[tuple[int, Any, Any]]:
        return [(seat.index, *seat.see(observation, None)) for seat, observation in self._pairs(observations)]

    def _pairs(self, observations: Sequence[Any]) -> Iterator[tuple[AgentSeat, Any]]:
        if len(observations) != len(self._team):
            raise ContractViolation(f"gave {len(observations)} observations to {len(self._team)} agents")
        return zip(self._team, observations, strict=True)


def _observations(answer: Any) -> Any:
    """Return the observations of a reset's answer. Raises ContractViolation if it is not a valid answer."""
    check_answer("reset", answer, RESET)
    check_mapping("reset", answer[1], "info", names=RESET)
    return answer[0]
