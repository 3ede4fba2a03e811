"""`smac/<map>`: the StarCraft Multi-Agent Challenge (Samvelyan et al. 2019): small battles against the game's built-in side. What speaks
its interface, `get_env_info`, `get_obs`, `get_state`, `get_avail_actions`, `step`, uses `battles`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, EnvError, UnknownName, one_line
from ludus.envs.adapters.agent_seats import Sides, seat_agents, split_options
from ludus.envs.adapters.step_checks import call_renderer
from ludus.envs.base import VectorEnv
from ludus.envs.publisher import TERMINATED, TRUNCATED
from ludus.envs.python_vector import ContractViolation, EnvStepResult, PythonEnv, PythonVectorEnv

__all__ = ["make", "names"]

DEFAULTS: Mapping[str, Any] = {"teams": "one", "state": True, "determinism": "none"}
"""Of `Sides`: one player for the whole side, whose learners may use the state. The game's own randomness is not promised."""
COUNTED = ("battle_won", "dead_allies", "dead_enemies")
"""Statistics of a battle, the same for each player."""
_OURS = ("continuing_episode", "map_name", "seed")  # options that are Ludus's to give


def make(name: str, *, num_envs: int, restarts: int = 0, **options: Any) -> VectorEnv:
    """Make the vector of a map of the StarCraft Multi-Agent Challenge.

    Args:
        name: A map, such as `3m` or `2s3z`.
        num_envs: Number of environments.
        restarts: As in `PythonVectorEnv`.
        options: Those of `Sides` say who plays whom; by default all units are one player, and there is a state. The others (difficulty,
            step_mul, obs_last_action, reward_sparse, …) go to `StarCraft2Env`.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such map; with the nearest names.
        ConfigError: An option is not taken.
        EnvError: The environment cannot be made.
    """
    from smac.env import StarCraft2Env

    if name not in names():
        raise UnknownName("map of SMAC", name, names())
    id = f"smac/{name}"
    sides, rest = split_options(options, defaults=DEFAULTS)
    check_ours(id, rest)
    build = partial(build_env, id, StarCraft2Env, {"map_name": name, "continuing_episode": True, **rest})
    return battles(build, num_envs, id=id, sides=sides, restarts=restarts)


def names() -> list[str]:
    """Return the maps, sorted."""
    from smac.env.starcraft2.maps.smac_maps import get_smac_map_registry

    return sorted(get_smac_map_registry())


def check_ours(id: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigError for options that the id or Ludus itself gives."""
    for name in _OURS:
        if name in options:
            raise ConfigError(f"{id} was given the option {name}, which Ludus gives itself. Leave it out.")


def build_env(id: str, creator: Callable[..., Any], options: Mapping[str, Any], seed: int) -> Any:
    """Return one environment; StarCraft II itself is started by its first reset. seed: of the game, 31 bits. Raises ConfigError for
    options that it does not take, EnvError if it cannot be made."""
    try:
        return creator(**options, seed=seed)
    except TypeError as error:
        raise ConfigError(f"{id} cannot be made with the options {dict(options)}: {one_line(error)}.") from error
    except Exception as error:
        raise EnvError(f"{id} cannot be made: {type(error).__name__}: {one_line(error)}.") from error


def battles(build: Callable[[int], Any], num_envs: int, *, id: str, sides: Sides, restarts: int = 0) -> PythonVectorEnv:
    """Return a vector of `num_envs` environments that `build(seed)` makes, all of whose units act in every step. id: what to call it in
    messages.

    The reward is the side's; a player's units get equal shares of it, so that each player's return is the side's. A dead unit stays: it may
    do nothing but "no-op", and is still rewarded for the battle that it died in. What ends by `info["episode_limit"]` is truncated.
    Statistics are `COUNTED`.
    Raises ConfigError for teams that do not fit.
    """
    first = build(0)
    info = first.get_env_info()
    agents = [f"unit_{i}" for i in range(int(info["n_agents"]))]
    observation = Box(-np.inf, np.inf, (int(np.prod(info["obs_shape"])),), np.float32)
    action = Discrete(int(info["n_actions"]))
    state = Box(-np.inf, np.inf, (int(np.prod(info["state_shape"])),), np.float32) if sides.state else None
    spec, seats, masked = seat_agents(
        id, agents, dict.fromkeys(agents, (observation, action)), sides=sides, masked=True, clip=False, state=state
    )
    spec = replace(spec, statistics=COUNTED)
    first.close()
    index = [seats[agent].index for agent in agents]
    sizes = [len(spec.agents_of(p)) for p in range(spec.num_players)]
    shares = [1 / sizes[spec.agents[i].player] for i in index]

    def new_env() -> PythonEnv:
        return Battle(build, id, index, shares, players=spec.num_players, with_state=sides.state)

    return PythonVectorEnv(new_env, num_envs, spec=spec, masked=masked, restarts_allowed=restarts)


class Battle:
    """One battle; its engine is started with the seed of its first episode. index[i]: of unit i among the spec's agents. shares[i]:
    of the reward that it gets."""

    def __init__(
        self,
        build: Callable[[int], Any],
        id: str,
        index: Sequence[int],
        shares: Sequence[float],
        *,
        players: int,
        with_state: bool,
    ) -> None:
        self._players = players
        self._build = build
        self._id = id
        self._index = index
        self._shares = shares
        self._with_state = with_state
        self._env: Any = None

    def reset(self, seed: int) -> EnvStepResult:
        """Reset as `PythonEnv.reset` describes. The engine takes a seed when it is started, and none after that."""
        if self._env is None:
            self._env = self._build(seed & 0x7FFFFFFF)
        self._env.reset()
        return EnvStepResult(due=self._rows(), state=self._state())

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        """Step as `PythonEnv.step` describes."""
        answer = self._env.step([int(actions[i]) for i in self._index])
        if not isinstance(answer, tuple) or len(answer) != 3:
            raise ContractViolation(
                f"returned {type(answer).__name__} from step; expected the tuple (reward, terminated, info)"
            )
        reward, terminated, info = answer
        if terminated and "battle_won" not in info:
            raise ContractViolation("lost its connection to StarCraft II")
        rewards = [(i, reward * share) for i, share in zip(self._index, self._shares, strict=True)] if reward else []
        rows = self._rows()
        if not terminated:
            return EnvStepResult(due=rows, reward=rewards, state=self._state())
        how = TRUNCATED if info.get("episode_limit") else TERMINATED
        gone = [(i, observation, how) for i, observation, _ in rows]
        masks = [(i, mask) for i, _, mask in rows if np.any(mask)]
        statistics = np.tile([float(info.get(name, np.nan)) for name in COUNTED], (self._players, 1))
        return EnvStepResult(
            reward=rewards, gone=gone, final_mask=masks, over=how, state=self._state(), statistics=statistics
        )

    @property
    def game(self) -> object:
        """Return the environment's object as `PythonEnv.game` describes."""
        return self._env

    def render(self) -> NDArray[np.uint8]:
        """Return an image. Raises EnvError if there is no screen, ConfigError if there is no package to draw with."""
        return np.asarray(call_renderer(self._id, partial(self._env.render, mode="rgb_array")), np.uint8)

    def close(self) -> None:
        """End the engine."""
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def _rows(self) -> list[tuple[int, Any, Any]]:
        env = self._env
        observations, legal = env.get_obs(), np.asarray(env.get_avail_actions(), np.bool_)
        if len(observations) != len(self._index) or len(legal) != len(self._index):
            raise ContractViolation(
                f"gave {len(observations)} observations and {len(legal)} masks to {len(self._index)} units"
            )
        return [
            (i, np.asarray(observation, np.float32), mask)
            for i, observation, mask in zip(self._index, observations, legal, strict=True)
        ]

    def _state(self) -> Any:
        return self._env.get_state() if self._with_state else None
