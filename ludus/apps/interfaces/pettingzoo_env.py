"""PettingZoo's two interfaces to any environment: all agents are the caller's."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete
from numpy.typing import NDArray
from pettingzoo import AECEnv, ParallelEnv

from ludus.apps.interfaces.gymnasium_env import (
    MASK,
    RENDER_FPS,
    check_render_mode,
    picture_in_mode,
    render_modes,
    seed_key,
)
from ludus.apps.interfaces.partial_vectors import env_with_states
from ludus.apps.interfaces.player_games import ILLEGAL_ACTIONS, environment_of
from ludus.core import seeding
from ludus.core.errors import ConfigError, EnvError, RunWarning
from ludus.core.types import Array, Timestep
from ludus.envs.base import SupportsRender
from ludus.envs.publisher import GOES_ON, TERMINATED, TRUNCATED
from ludus.envs.spaces import Choices

MaskPlace: TypeAlias = Literal["observation", "info"]
"""Where legal actions are: in observations {"observation", "action_mask"}, as PettingZoo's classic games have them, or in `info`."""
_SEED_BITS = 63


class AgentGame:
    """One game, all agents of which are the caller's, by their names.

    Args:
        arguments: Those of `ludus.pettingzoo_env`.

    Attributes:
        names: Of all agents, in the order of players.
        due: Of the agents that must act now, in that order.
        reward: Of each agent, in the last step.
        ended: How each agent ended, or GOES_ON.
        over: Whether the episode is over.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        options = dict(arguments)
        env, seed, masks = options.pop("env"), options.pop("seed"), options.pop("masks")
        illegal, mode = options.pop("illegal_actions"), options.pop("render_mode")
        if masks not in ("observation", "info"):
            raise ConfigError(f"masks={masks!r} was given; allowed: observation, info.")
        if illegal not in ILLEGAL_ACTIONS:
            raise ConfigError(f"illegal_actions={illegal!r} was given; allowed: {', '.join(ILLEGAL_ACTIONS)}.")
        settings = environment_of(env, "random", options)
        check_render_mode(mode, settings)
        self.render_mode, self.modes = mode, render_modes(settings)
        self.vector = settings.make(num_envs=1) if mode is None else env_with_states(settings, rendering=True)
        self.spec = self.vector.spec
        self.names = [agent.name for agent in self.spec.agents]
        self._slots = {agent.name: slot for agent, slot in zip(self.spec.agents, self._places(), strict=True)}
        self._by_slot = {place: name for name, place in self._slots.items()}
        self._choices = {agent.name: Choices.of(agent.action) for agent in self.spec.agents}
        self._illegal, self._masks, self._warned = illegal, masks, False
        self._first_seed, self._key, self._episode, self._replaced = seed, np.uint64(0), 0, 0
        self._timestep: Timestep | None = None
        self._rng = np.random.default_rng()
        self.masked = self._is_masked()
        self.observation_spaces = {name: self._observation_space(name) for name in self.names}
        # Environments share a game's spaces, which are seeded apart.
        self.action_spaces: dict[str, Space[Any]] = {agent.name: deepcopy(agent.action) for agent in self.spec.agents}

    def _places(self) -> list[tuple[int, int]]:
        return [(agent.player, int(k)) for agent, k in zip(self.spec.agents, self.spec.agent_index, strict=True)]

    def _is_masked(self) -> bool:
        """Return whether the environment says which actions are legal."""
        if self.spec.enumeration is not None:
            return True
        first = self.vector.reset(np.array([0], np.uint64), episodes=1)
        return any(due.mask is not None for due in first.due)

    def _observation_space(self, name: str) -> Space[Any]:
        agent = self.spec.agents[self.names.index(name)]
        box = deepcopy(agent.observation)
        assert isinstance(box, Box)
        if self.spec.enumeration is not None:  # the end of a game is shown as zeros
            box = Box(np.minimum(box.low, 0), np.maximum(box.high, 0), dtype=np.float32)
        if not self._in_observation(name):
            return box
        choices = self._choices[name]
        assert choices is not None
        return Dict({"observation": box, MASK: Box(0, 1, (choices.width,), np.int8)})

    def _in_observation(self, name: str) -> bool:
        agent = self.spec.agents[self.names.index(name)]
        return self.masked and self._masks == "observation" and isinstance(agent.action, Discrete)

    # ------------------------------------------------------------------------------------------ an episode

    def reset(self, seed: int | None) -> None:
        """Begin an episode. seed: None: continue with the last one."""
        if seed is None and self._timestep is None:
            seed = self._first_seed
        if seed is not None:
            self._key, self._episode = np.uint64(seed_key(seed)), 0
        elif self._timestep is None:
            self._key = np.uint64(self._rng.integers(2**_SEED_BITS))
        self._luck = seeding.key(int(self._key), self._episode)
        self._episode += 1
        self._replaced = 0
        zeros = {agent.name: np.zeros(self._shape(agent.name), self._dtype(agent.name)) for agent in self.spec.agents}
        self._observation: dict[str, Array] = zeros
        self._legal: dict[str, NDArray[np.bool_] | None] = dict.fromkeys(self.names)
        self.ended = dict.fromkeys(self.names, GOES_ON)
        self._paid = dict.fromkeys(self.names, 0.0)
        self.over = False
        self.returns = np.zeros(self.spec.num_players)
        self._see(self.vector.reset(np.array([self._luck], np.uint64), episodes=1))

    def step(self, actions: Mapping[str, Any]) -> None:
        """Make the moves of all agents that are due. Raises EnvError for a missing one, and for what is no action."""
        assert self._timestep is not None
        if missing := [name for name in self.due if name not in actions]:
            raise EnvError(f"no action of agent {missing[0]!r} of {self.spec.id} was given, which has to act now.")
        checked = {name: self._checked(name, actions[name]) for name in self.due}
        if self._illegal == "lose" and (losers := [name for name, (_, legal) in checked.items() if not legal]):
            self._lose(losers)
            return
        rows = []
        for p, due in enumerate(self._timestep.due):
            agents = [self._by_slot[p, k] for k in due.slot.tolist()]
            space = self.spec.agents_of(p)[0].action
            dtype = np.float32 if isinstance(space, Box) and space.dtype.kind == "f" else np.int32
            moves = np.array([checked[name][0] for name in agents], dtype)
            rows.append(moves.reshape(len(agents), *(space.shape or ())))
        self._see(self.vector.step(tuple(rows)))

    def observe(self, name: str) -> Any:
        """Return what an agent saw last, zeros before its first decision; with its legal actions, if they are in observations."""
        observation = self._observation[name].copy()
        if not self._in_observation(name):
            return observation
        return {"observation": observation, MASK: self.mask(name)}

    def mask(self, name: str) -> Any:
        """Return the legal actions of an agent: int8[A], zeros if it is not due; of several numbers a tuple of such."""
        choices, legal = self._choices[name], self._legal[name]
        assert choices is not None
        row = np.zeros(choices.width, np.int8) if legal is None else legal.astype(np.int8)
        if isinstance(self.action_spaces[name], Discrete):
            return row
        return tuple(np.split(row, choices.starts[1:]))

    def info(self, name: str) -> dict[str, Any]:
        """Return the legal actions, where observations do not have them."""
        if not self.masked or self._choices[name] is None or self._in_observation(name):
            return {}
        return {MASK: self.mask(name)}

    def render(self) -> Any:
        """Return an image or text; None without a render mode. Raises EnvError if the environment cannot be rendered so."""
        if self.render_mode is None:
            return None
        if not isinstance(self.vector, SupportsRender):
            raise EnvError(f"{self.spec.id} cannot be rendered; its vector has no `render`.")
        return picture_in_mode(self.vector.render(0), self.render_mode, self.spec.id)

    @property
    def state(self) -> Array | None:
        """The global state; None where there is none."""
        state = None if self._timestep is None else self._timestep.state
        return None if state is None else np.array(state[0])

    # ------------------------------------------------------------------------------------------ inside

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.spec.agents[self.names.index(name)].observation.shape or ()

    def _dtype(self, name: str) -> Any:
        return self.spec.agents[self.names.index(name)].observation.dtype

    def _see(self, timestep: Timestep) -> None:
        self._timestep = timestep
        self.reward = dict.fromkeys(self.names, 0.0)
        self._legal = dict.fromkeys(self.names)
        self.due = []
        enumeration = self.spec.enumeration
        for p, (due, closed) in enumerate(zip(timestep.due, timestep.ended, strict=True)):
            observation, mask = due.observation, due.mask
            if enumeration is not None:
                observation, mask = enumeration.observation[due.observation], enumeration.mask[due.observation]
            for i, k in enumerate(due.slot.tolist()):
                name = self._by_slot[p, k]
                if self.ended[name] != GOES_ON:
                    raise EnvError(f"agent {name!r} of {self.spec.id} came back, which PettingZoo does not allow.")
                self.due.append(name)
                self._observation[name] = np.array(observation[i])
                self._legal[name] = self._all_legal(name) if mask is None else np.array(mask[i])
                self.reward[name] += float(due.reward[i])
            for i, k in enumerate(closed.slot.tolist()):
                name = self._by_slot[p, k]
                final = np.zeros_like(self._observation[name]) if enumeration is not None else closed.observation[i]
                self._observation[name] = np.array(final)
                self.ended[name] = TERMINATED if closed.terminated[i] else TRUNCATED
                self.reward[name] += float(closed.reward[i])
        if len(timestep.finished.environment):
            self._finish(timestep.finished.returns[0], bool(timestep.finished.terminated[0]))
        for name, earned in self.reward.items():
            self._paid[name] += earned

    def _all_legal(self, name: str) -> NDArray[np.bool_] | None:
        choices = self._choices[name]
        return None if choices is None else np.ones(choices.width, np.bool_)

    def _finish(self, returns: Array, terminated: bool) -> None:
        self.over, self.returns = True, np.array(returns)
        for name, how in self.ended.items():
            if how == GOES_ON:
                self.ended[name] = TERMINATED if terminated else TRUNCATED
        for player, earned in enumerate(self.returns.tolist()):
            agents = self.spec.agents_of(player)
            if len(agents) == 1:  # what a player without an open decision earns, too
                self.reward[agents[0].name] = earned - self._paid[agents[0].name]

    def _lose(self, losers: list[str]) -> None:
        """End the episode: who made an illegal move gets its player's least return, or 1 less; the others nothing more."""
        self.reward = dict.fromkeys(self.names, 0.0)
        for name in losers:
            low = self.spec.utility_range[self._slots[name][0]][0]
            self.reward[name] = low - self._paid[name] if np.isfinite(low) else -1.0
        self.ended = {name: how or TERMINATED for name, how in self.ended.items()}
        self.over, self.due = True, []
        self._legal = dict.fromkeys(self.names)

    def _checked(self, name: str, action: Any) -> tuple[Array, bool]:
        """Return an action, and whether it was legal; a legal one is drawn in place of an illegal one, unless that is an error."""
        space, choices = self.action_spaces[name], self._choices[name]
        value = np.asarray(action)
        if value.shape != (space.shape or ()) or value.dtype.kind not in "biuf":
            raise EnvError(f"agent {name!r} of {self.spec.id} was given {action!r}; expected one of {space}.")
        if choices is None:
            if not np.isfinite(value).all():
                raise EnvError(f"agent {name!r} of {self.spec.id} was given {action!r}; expected finite numbers.")
            return value, True
        legal = self._legal[name]
        allowed = choices.values(np.ones(choices.width, np.bool_) if legal is None else legal)
        numbers = value.reshape(-1).tolist()
        if value.dtype.kind != "f" and all(n in legal for n, legal in zip(numbers, allowed, strict=True)):
            return value, True
        if self._illegal == "raise" or value.dtype.kind == "f":
            raise EnvError(
                f"agent {name!r} of {self.spec.id} was given the illegal action {action!r}; legal are {allowed}. Choose by its action_mask."
            )
        self._warn(name, numbers)
        replacement = [
            n if n in legal else legal[self._draw(len(legal))] for n, legal in zip(numbers, allowed, strict=True)
        ]
        return np.array(replacement).reshape(value.shape), False

    def _draw(self, count: int) -> int:
        self._replaced += 1
        return int(seeding.uniform(np.uint64(self._luck), np.uint64(2**32 + self._replaced)) * count)

    def _warn(self, name: str, numbers: list[int]) -> None:
        if not self._warned:
            self._warned = True
            what = "a legal one is drawn in its place" if self._illegal == "random" else "the episode is lost"
            warnings.warn(
                f"the illegal action {numbers} of agent {name!r} was given to {self.spec.id}: {what}, here and from now on. Choose by its "
                "action_mask, or give illegal_actions='random', 'lose' or 'raise'.",
                RunWarning,
                stacklevel=5,
            )


class _OfGame:
    """What both forms take from their game as it is."""

    game: AgentGame

    def render(self) -> Any:
        """Return an image or text; None without a render mode."""
        return self.game.render()

    def state(self) -> Array:
        """Return the global state. Raises NotImplementedError where there is none."""
        if (state := self.game.state) is None:
            raise NotImplementedError(f"{self.game.spec.id} has no global state.")
        return state

    def close(self) -> None:
        """Release the environment."""
        self.game.vector.close()


class PettingZooAEC(_OfGame, AECEnv[str, Any, Any]):  # type: ignore[misc]  # PettingZoo has no types
    """Any environment with PettingZoo's AEC interface. `ludus.pettingzoo_env` makes it. Agents that act simultaneously are asked one after
    the other, and the environment moves after the last of them. An agent earns what `last` says by its next turn."""

    agent_selection: str

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self._arguments = arguments
        self.game = game = AgentGame(arguments)
        self.metadata = _metadata(game, parallelizable=False)
        self.render_mode = game.render_mode
        self.possible_agents = list(game.names)
        self.agents: list[str] = []
        self.observation_spaces, self.action_spaces = game.observation_spaces, game.action_spaces
        self._chosen: dict[str, Any] = {}

    def observation_space(self, agent: str) -> Space[Any]:
        """Return the space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space[Any]:
        """Return the space of an agent's actions."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Begin an episode.

        Args:
            seed: Of this and the following episodes; None: continue with the last one.
            options: Ignored.
        """
        self.game.reset(seed)
        self.agents = list(self.possible_agents)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self._skip_agent_selection = None
        self._chosen = {}
        self._show()

    def step(self, action: Any) -> None:
        """Act for the selected agent; None for one that has ended.

        Raises:
            EnvError: What was given is no action.
        """
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._chosen[agent] = action
        waiting = [name for name in self.game.due if name not in self._chosen]
        if waiting:
            self._clear_rewards()
            self.agent_selection = waiting[0]
            return
        self.game.step(self._chosen)
        self._chosen = {}
        self._show()
        self._accumulate_rewards()
        self._deads_step_first()

    def observe(self, agent: str) -> Any:
        """Return what an agent saw when it was last to act, or at its end."""
        return self.game.observe(agent)

    def _show(self) -> None:
        game = self.game
        self.rewards = {name: game.reward[name] for name in self.agents}
        self.terminations = {name: game.ended[name] == TERMINATED for name in self.agents}
        self.truncations = {name: game.ended[name] == TRUNCATED for name in self.agents}
        self.infos = {name: game.info(name) for name in self.agents}
        self.agent_selection = game.due[0] if game.due else self.agents[0]

    def __str__(self) -> str:
        return self.game.spec.id

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (type(self), self._arguments)


class PettingZooParallel(_OfGame, ParallelEnv[str, Any, Any]):  # type: ignore[misc]
    """Any environment with PettingZoo's parallel interface. `ludus.pettingzoo_env` makes it. An agent that has nothing to decide in a step
    keeps its last observation, has only action 0 legal, and its action is not looked at."""

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments
        self.game = game = AgentGame(arguments)
        self.metadata = _metadata(game, parallelizable=True)
        self.render_mode = game.render_mode
        self.possible_agents = list(game.names)
        self.agents: list[str] = []
        self.observation_spaces, self.action_spaces = game.observation_spaces, game.action_spaces

    def observation_space(self, agent: str) -> Space[Any]:
        """Return the space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space[Any]:
        """Return the space of an agent's actions."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Of this and the following episodes; None: continue with the last one.
            options: Ignored.

        Returns:
            (observations, infos) of all agents.
        """
        self.game.reset(seed)
        self.agents = list(self.possible_agents)
        return self._observations(self.agents), self._infos(self.agents)

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """Act for all agents.

        Args:
            actions: Of each agent that is to act.

        Returns:
            (observations, rewards, terminations, truncations, infos) of the agents that were there.

        Raises:
            EnvError: An action is missing, or none.
        """
        game, agents = self.game, self.agents
        if not agents:
            raise EnvError(f"the episode of {game.spec.id} is over; reset it first.")
        game.step(actions)
        self.agents = [name for name in agents if game.ended[name] == GOES_ON]
        return (
            self._observations(agents),
            {name: game.reward[name] for name in agents},
            {name: game.ended[name] == TERMINATED for name in agents},
            {name: game.ended[name] == TRUNCATED for name in agents},
            self._infos(agents),
        )

    def _observations(self, agents: list[str]) -> dict[str, Any]:
        return {name: _idle(self.game.observe(name), name in self.game.due) for name in agents}

    def _infos(self, agents: list[str]) -> dict[str, Any]:
        return {name: _idle(self.game.info(name), name in self.game.due) for name in agents}

    def __str__(self) -> str:
        return self.game.spec.id

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (type(self), self._arguments)


def _idle(value: Any, is_due: bool) -> Any:
    """Return what an agent is shown; of one that is not due with action 0 as the legal one."""
    if not is_due and isinstance(value, dict) and MASK in value:
        masks = value[MASK]
        for row in masks if isinstance(masks, tuple) else (masks,):
            row[0] = 1
    return value


def _metadata(game: AgentGame, *, parallelizable: bool) -> dict[str, Any]:
    return {
        "name": game.spec.id,
        "render_modes": game.modes,
        "render_fps": RENDER_FPS,
        "is_parallelizable": parallelizable,
    }


def _made_again(kind: type[PettingZooAEC] | type[PettingZooParallel], arguments: dict[str, Any]) -> Any:
    return kind(**arguments)
