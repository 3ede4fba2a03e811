"""PettingZoo's parallel environments: every living agent is due in every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.envs.adapters.aec import close, rendered
from ludus.envs.adapters.answers import RESET_ALL, STEP_ALL, check_ends, check_mappings, check_rewards
from ludus.envs.adapters.seats import Seats
from ludus.envs.publisher import TERMINATED, TRUNCATED
from ludus.envs.python_loop import Flaw, Happened


class ParallelEnv:
    """One parallel environment. An agent that dies without a final observation is closed with the last one it was shown.

    with_state: whether to read `env.state()`.
    """

    def __init__(self, env: Any, seats: Seats, *, with_state: bool = False) -> None:
        self._env = env
        self._seats = seats
        self._with_state = with_state
        self._there: list[Any] = []  # whoever is due
        self._shown: Mapping[Any, Any] = {}

    def reset(self, seed: int) -> Happened:
        """See `PythonEnv.reset`."""
        answer = self._env.reset(seed=seed)
        check_mappings("reset", answer, RESET_ALL)
        shown, infos = answer
        happened = Happened()
        self._list_due(happened, list(self._env.agents), shown, infos)
        return happened

    def step(self, actions: Sequence[Any]) -> Happened:
        """See `PythonEnv.step`."""
        seats = self._seats
        taken = {agent: (seat := seats[agent]).act(actions[seat.index]) for agent in self._there}
        answer = self._env.step(taken)
        try:
            return self._told(answer)
        except (AttributeError, TypeError, ValueError):
            check_mappings("step", answer, STEP_ALL)
            raise

    def render(self) -> NDArray[np.uint8] | str:
        """See `PythonEnv.render`. Raises EnvError if the environment was made without a render_mode."""
        return rendered(self._env)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _told(self, answer: Any) -> Happened:
        """What a step's answer says."""
        shown, rewards, terminations, truncations, infos = answer
        seats, happened = self._seats, Happened()
        check_rewards(rewards, self._there)
        check_ends(terminations, truncations)
        for agent, reward in rewards.items():
            if reward != 0:  # None, say, is no reward and becomes a flaw
                happened.reward.append((seats[agent].index, reward))
        alive = list(self._env.agents)
        if True in terminations.values() or True in truncations.values() or alive != self._there:
            alive = self._bury(happened, alive, shown, terminations, truncations, infos)
        if not alive:
            happened.over = TRUNCATED if any(how == TRUNCATED for _, _, how in happened.gone) else TERMINATED
            if self._with_state:
                happened.state = self._env.state()
        else:
            self._list_due(happened, alive, shown, infos)
        return happened

    def _bury(
        self,
        happened: Happened,
        alive: list[Any],
        shown: Mapping[Any, Any],
        terminations: Mapping[Any, Any],
        truncations: Mapping[Any, Any],
        infos: Mapping[Any, Any],
    ) -> list[Any]:
        """Tell the end of those who died or left in this step; the others."""
        for agent in self._there:
            terminated = terminations.get(agent, False)
            if terminated or truncations.get(agent, False):
                last = shown[agent] if agent in shown else self._shown[agent]
                close(happened, self._seats[agent], last, infos.get(agent), TERMINATED if terminated else TRUNCATED)
            elif agent not in alive:
                raise Flaw(f"removed the agent {agent!r}, which was neither terminated nor truncated")
        return [a for a in alive if not (terminations.get(a, False) or truncations.get(a, False))]

    def _list_due(
        self, happened: Happened, alive: list[Any], shown: Mapping[Any, Any], infos: Mapping[Any, Any]
    ) -> None:
        seats, due = self._seats, happened.due
        for agent in alive:
            if agent not in shown:
                raise Flaw(f"gave no observation for the agent {agent!r}, which is among its agents")
            seat = seats[agent]
            due.append((seat.index, *seat.see(shown[agent], infos.get(agent))))
        self._there, self._shown = alive, shown
        if self._with_state:
            happened.state = self._env.state()
