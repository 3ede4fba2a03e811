"""`highway/<id>`: highway-env's tasks of several vehicles (Leurent 2018)."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from gymnasium import spaces

from ludus.core.errors import ConfigError, EnvError, UnknownName, nearest, one_line
from ludus.envs.adapters.agent_seats import split_options
from ludus.envs.adapters.tuple_env import tuple_vector
from ludus.envs.base import VectorEnv

__all__ = ["make", "names"]

NAMES: Final = ("intersection-multi-agent-v0", "intersection-multi-agent-v1", "intersection-multi-agent-v2")
_SHARED = "-v0"  # whose reward is one number, the mean of the vehicles'


def make(
    name: str, *, num_envs: int, restarts: int = 0, flatten: bool = True, render: bool = False, **options: Any
) -> VectorEnv:
    """Make the vector of a task of several vehicles.

    Args:
        name: `intersection-multi-agent-v1` or such.
        num_envs: Number of environments.
        restarts: As in `PythonVectorEnv`.
        flatten: Whether observations, tables of vehicles and features, are vectors.
        render: Whether it is made able to render.
        options: Those of `Sides` say who plays whom; the others go to the environment's configuration (controlled_vehicles, duration,
            initial_vehicle_count, collision_reward …).

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such task; with the nearest names.
        ConfigError: An option is not taken.
        EnvError: The environment cannot be made.
    """
    if name not in NAMES:
        raise UnknownName("task of several vehicles of highway-env", name, NAMES)
    id = f"highway/{name}"
    sides, configuration = split_options(options)
    one = partial(_make_one, id, name, configuration, flatten, render)
    return tuple_vector(one, num_envs, id=id, sides=sides, restarts=restarts)


def names() -> list[str]:
    """Return the tasks of several vehicles, sorted."""
    return list(NAMES)


def _make_one(id: str, name: str, configuration: dict[str, Any], flatten: bool, render: bool) -> Any:
    import gymnasium
    import highway_env

    highway_env._register_highway_envs()
    spec = gymnasium.spec(name)
    kind: Any = gymnasium.envs.registration.load_env_creator(spec.entry_point)  # type: ignore[arg-type]
    known = kind.default_config()
    for key in configuration:
        if key not in known:
            raise ConfigError(f"unknown option {key!r} for {id}{nearest(key, [*known, 'flatten'])}")
    try:
        env = kind(config=configuration, render_mode="rgb_array" if render else None)
    except Exception as error:
        raise EnvError(f"{id} cannot be made: {type(error).__name__}: {one_line(error)}.") from error
    return Vehicles(env, shared=name.endswith(_SHARED), flatten=flatten)


class Vehicles:
    """One environment with rewards for each vehicle, and one end for all.

    Args:
        env: The package's, without wrappers.
        shared: Whether each vehicle gets its share of the mean of all, or what it earned itself.
        flatten: Whether observations are vectors.
    """

    def __init__(self, env: Any, *, shared: bool, flatten: bool) -> None:
        self.unwrapped = env
        self._shared, self._flatten = shared, flatten
        self.action_space = env.action_space
        self.observation_space = spaces.Tuple(
            [spaces.flatten_space(space) if flatten else space for space in env.observation_space]
        )

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]:
        """Reset as Gymnasium's environments do; the action space, from which the package draws, is seeded too."""
        self.unwrapped.action_space.seed(seed & 0x7FFFFFFF)
        observations, info = self.unwrapped.reset(seed=seed)
        return self._flat(observations), info

    def step(self, actions: Any) -> tuple[Any, list[float], bool, bool, dict[str, Any]]:
        """Step as Gymnasium's environments do, with a list of rewards. The end is the scene's: a collision of one, or all have arrived."""
        observations, reward, terminated, truncated, info = self.unwrapped.step(tuple(int(a) for a in actions))
        count = len(self.action_space)
        rewards = [float(reward) / count] * count if self._shared else [float(r) for r in info["agents_rewards"]]
        return self._flat(observations), rewards, bool(terminated), bool(truncated) and not terminated, info

    def render(self, mode: str = "rgb_array") -> Any:
        """Return an image."""
        return self.unwrapped.render()

    def close(self) -> None:
        """Close the environment."""
        self.unwrapped.close()

    def _flat(self, observations: Any) -> Any:
        return tuple(o.reshape(-1) for o in observations) if self._flatten else observations
