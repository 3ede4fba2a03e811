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
from ludus.envs.adapters.step_checks import RESET, STEP, check_answer, check_mapping, drawn, one_flag
from ludus.envs.publisher import TERMINATED, TRUNCATED
from ludus.envs.python_vector import Flaw, Happened, PythonEnv, PythonVectorEnv


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
    """A vector of `num_envs` environments that `make` makes; their agents are agent_0, agent_1, ….

    out_of_time: whether an episode that its environment calls terminated has run into the limit of steps, and is truncated.
    forget: called before each reset, where an environment's own leaves something of the last episode behind.
    Raises EnvError for spaces that are no tuples, ConfigError for teams that do not fit.
    """
    first = make()
    seen, acts = first.observation_space, first.action_space
    if not isinstance(seen, spaces.Tuple) or not isinstance(acts, spaces.Tuple) or len(seen) != len(acts):
        raise EnvError(
            f"{id} has the observation space {seen} and the action space {acts}; a Tuple of actions is taken for one of each agent, so "
            "observations must be a Tuple as long. If it is one agent that acts, give it a MultiDiscrete or a Box."
        )
    try:
        answer = first.reset(seed=0)
    except Exception as error:
        raise EnvError(f"{id} raised {type(error).__name__} in its first reset: {error}.") from error
    try:
        _observations(answer)
    except Flaw as flaw:
        raise EnvError(f"{id} {flaw}.") from None
    if sides.state:
        raise ConfigError(f"{id} has no state; leave out state=true.")
    agents = [f"agent_{i}" for i in range(len(acts))]
    spec, seats, masked = seat_agents(
        id,
        agents,
        dict(zip(agents, zip(seen, acts, strict=True), strict=True)),
        sides=sides,
        masked=False,
        clip=False,
        state=None,
    )
    team = [seats[agent] for agent in agents]
    kept = [first]  # made already: the vector's first

    def made() -> PythonEnv:
        return TupleEnv(kept.pop() if kept else make(), id, team, out_of_time=out_of_time, forget=forget)

    return PythonVectorEnv(made, num_envs, spec=spec, masked=masked, restarts_allowed=restarts, kept=kept)


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

    def reset(self, seed: int) -> Happened:
        """See `PythonEnv.reset`."""
        if self._forget is not None:
            self._forget(self._env)
        return Happened(due=self._rows(_observations(self._env.reset(seed=seed))))

    def step(self, actions: Sequence[Any]) -> Happened:
        """See `PythonEnv.step`."""
        team = self._team
        answer = self._env.step([seat.act(actions[seat.index]) for seat in team])
        try:
            shown, rewards, terminated, truncated, _ = answer
            given = -1 if isinstance(rewards, dict) else len(rewards)
        except (TypeError, ValueError):
            check_answer("step", answer, STEP)
            given = -1
        if given != len(team):
            raise Flaw(f"gave the rewards {rewards!r} to {len(team)} agents; expected a list with one for each")
        paid = [(seat.index, reward) for seat, reward in zip(team, rewards, strict=True) if reward != 0]
        if terminated.__class__ is not bool or truncated.__class__ is not bool:
            terminated, truncated = one_flag(terminated, "terminated"), one_flag(truncated, "truncated")
        if not (terminated or truncated):
            return Happened(due=self._rows(shown), reward=paid)
        out_of_time = not truncated and self._out_of_time is not None and self._out_of_time(self._env)
        how = TRUNCATED if truncated or out_of_time else TERMINATED
        happened = Happened(reward=paid, over=how)
        for seat, one in self._pairs(shown):
            close(happened, seat, one, None, how)
        return happened

    @property
    def game(self) -> object:
        """See `PythonEnv.game`."""
        return self._env

    def render(self) -> NDArray[np.uint8] | str:
        """See `PythonEnv.render`. Raises EnvError if there is no screen, ConfigError if there is no package to draw with."""
        return np.asarray(drawn(self._id, partial(self._env.render, mode="rgb_array")))

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _rows(self, shown: Sequence[Any]) -> list[tuple[int, Any, Any]]:
        return [(seat.index, *seat.see(one, None)) for seat, one in self._pairs(shown)]

    def _pairs(self, shown: Sequence[Any]) -> Iterator[tuple[AgentSeat, Any]]:
        if len(shown) != len(self._team):
            raise Flaw(f"gave {len(shown)} observations to {len(self._team)} agents")
        return zip(self._team, shown, strict=True)


def _observations(answer: Any) -> Any:
    """Of a reset's answer. Raises Flaw if it is none."""
    check_answer("reset", answer, RESET)
    check_mapping("reset", answer[1], "info", names=RESET)
    return answer[0]
