"""PettingZoo's AEC environments, one decision at a time, or one of each agent where the environment moves once in a cycle.

step: the mover's action -> rewards of all -> final observations of the dead -> dead agents step with None -> whoever is selected is due
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.envs.adapters.answers import check_ends, check_rewards
from ludus.envs.adapters.seats import Seat, Seats
from ludus.envs.publisher import TERMINATED, TRUNCATED
from ludus.envs.python_loop import Flaw, Happened
from ludus.errors import EnvError


class AecEnv:
    """One AEC environment; whoever is `agent_selection` is due.

    with_state: whether to read `env.state()`. prepare: called with the environment before each reset and step, forget:
    before each reset, where it keeps something that it should not.
    """

    def __init__(
        self,
        env: Any,
        seats: Seats,
        *,
        with_state: bool = False,
        prepare: Callable[[Any], None] | None = None,
        forget: Callable[[Any], None] | None = None,
    ) -> None:
        self._env = env
        self._seats = seats
        self._with_state = with_state
        self._prepare = prepare
        self._forget = forget
        self._there: list[Any] = []  # the agents after the last step
        self._left: set[Any] = set()  # of these, the dead whose end has been told

    def reset(self, seed: int) -> Happened:
        """See `PythonEnv.reset`."""
        env = self._env
        if self._prepare is not None:
            self._prepare(env)
        if self._forget is not None:
            self._forget(env)
        env.reset(seed=seed)
        self._there = list(env.agents)
        self._left.clear()
        happened = Happened()
        self._list_due(happened)
        if self._with_state:
            happened.state = env.state()
        return happened

    def step(self, actions: Sequence[Any]) -> Happened:
        """See `PythonEnv.step`."""
        if self._prepare is not None:
            self._prepare(self._env)
        happened = Happened()
        self._act(actions, happened)
        env = self._env
        check_ends(env.terminations, env.truncations)
        if True in env.terminations.values() or True in env.truncations.values():
            self._bury(happened)
        if env.agents != self._there:
            self._note_who_is_there()
        if not env.agents:
            happened.over = TRUNCATED if any(how == TRUNCATED for _, _, how in happened.gone) else TERMINATED
        else:
            self._list_due(happened)
        if self._with_state and happened.state is None:
            happened.state = env.state()
        return happened

    def render(self) -> NDArray[np.uint8] | str:
        """See `PythonEnv.render`. Raises EnvError if the environment was made without a render_mode."""
        return rendered(self._env)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    # ------------------------------------------------------------------------------------------ the two ways to take turns

    def _act(self, actions: Sequence[Any], happened: Happened) -> None:
        """Let those who were due act, and note what everybody earned."""
        env, seats = self._env, self._seats
        actor = env.agent_selection
        seat = seats[actor]
        env.step(seat.act(actions[seat.index]))
        check_rewards(env.rewards, (actor,))
        for agent, reward in env.rewards.items():
            if reward != 0:
                happened.reward.append((seats[agent].index, reward))

    def _list_due(self, happened: Happened) -> None:
        """List those who act next."""
        self._list(self._env.agent_selection, happened)

    # ------------------------------------------------------------------------------------------ the rest

    def _list(self, agent: Any, happened: Happened) -> None:
        env, seat = self._env, self._seats[agent]
        seen, mask = seat.see(env.observe(agent), env.infos.get(agent))
        happened.due.append((seat.index, seen, mask))

    def _bury(self, happened: Happened) -> None:
        """Tell the end of those who died in this step, and let the dead step with None until a living agent is selected."""
        env = self._env
        terminations, truncations = env.terminations, env.truncations
        for agent in list(env.agents):
            if agent not in self._left and (terminations[agent] or truncations[agent]):
                close(
                    happened,
                    self._seats[agent],
                    env.observe(agent),
                    env.infos.get(agent),
                    TERMINATED if terminations[agent] else TRUNCATED,
                )
                self._left.add(agent)
        if self._with_state:
            happened.state = env.state()  # before the dead are removed
        while env.agents:
            agent = env.agent_selection
            if not (env.terminations[agent] or env.truncations[agent]):
                return
            env.step(None)
            if agent in env.agents:
                raise Flaw(f"did not remove the dead agent {agent!r} when it stepped with None")

    def _note_who_is_there(self) -> None:
        now = set(self._env.agents)
        for agent in self._there:
            if agent not in now and agent not in self._left:
                raise Flaw(f"removed the agent {agent!r}, which was neither terminated nor truncated")
        self._there = list(self._env.agents)
        self._left &= now  # an agent that was removed may come back


class CycleEnv(AecEnv):
    """One AEC environment that says it is parallelizable: it moves when the last agent of a cycle has acted, so all of them are due
    at once, as in PettingZoo's own conversion, but each is observed once only."""

    def _act(self, actions: Sequence[Any], happened: Happened) -> None:
        env, seats, earned = self._env, self._seats, happened.reward
        for agent in list(env.agents):
            if agent != env.agent_selection:
                raise Flaw(
                    f"selected {env.agent_selection!r} when it was the turn of {agent!r} in a cycle; it is not parallelizable, so give "
                    "the option api='aec'"
                )
            seat = seats[agent]
            env.step(seat.act(actions[seat.index]))
            check_rewards(env.rewards, (agent,))
            for other, reward in env.rewards.items():
                if reward != 0:
                    earned.append((seats[other].index, reward))

    def _list_due(self, happened: Happened) -> None:
        for agent in self._env.agents:
            self._list(agent, happened)


def close(happened: Happened, seat: Seat, shown: Any, info: Any, how: int) -> None:
    """Tell the end of one agent. Masks of those whose turn it was not are empty, and say nothing."""
    seen, mask = seat.see(shown, info)
    happened.gone.append((seat.index, seen, how))
    if mask is None or seat.says_nothing(mask):
        mask = seat.legal
    if mask is not None:
        happened.final_mask.append((seat.index, mask))


def rendered(env: Any) -> NDArray[np.uint8] | str:
    """What a PettingZoo or Gymnasium environment shows. Raises EnvError if it was made without a render_mode, or shows nothing."""
    if getattr(env, "render_mode", None) is None:
        raise EnvError(
            'the environment was made without a render_mode; give the option render=true, or render_mode="ansi" for text where it has any.'
        )
    shown = env.render()
    if shown is None:
        raise EnvError(
            f'render_mode={env.render_mode!r} draws on the screen and returns nothing; give render_mode="rgb_array".'
        )
    return shown if isinstance(shown, str) else np.asarray(shown)
