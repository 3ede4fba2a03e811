"""`lbf/<id>`: level-based foraging; agents of different levels collect food, alone or together."""

from __future__ import annotations

from typing import Any

from ludus.core.errors import UnknownName
from ludus.envs.adapters.agent_seats import split_options
from ludus.envs.adapters.pettingzoo_vector import env_creator
from ludus.envs.adapters.tuple_env import tuple_vector
from ludus.envs.base import VectorEnv

__all__ = ["make", "names"]


def make(name: str, *, num_envs: int, restarts: int = 0, **options: Any) -> VectorEnv:
    """Make the vector of an environment of level-based foraging. Episodes that end with food left are truncated.

    Args:
        name: `Foraging-8x8-2p-3f-v3` or such.
        num_envs: Number of environments.
        restarts: As in `PythonVectorEnv`.
        options: Those of `Sides` say who plays whom; the others (sight, max_episode_steps, penalty, …) go to the environment.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such environment; with the nearest names.
        ConfigError: An option is not taken.
        EnvError: The environment cannot be made.
    """
    spec = _registered(name)
    sides, rest = split_options(options)
    id = f"lbf/{name}"
    make_one = env_creator(id, spec.entry_point, {**spec.kwargs, **rest})
    return tuple_vector(
        make_one, num_envs, id=id, sides=sides, restarts=restarts, out_of_time=_food_is_left, forget=_forget_positions
    )


def names() -> list[str]:
    """Return the ids that the package registers, sorted."""
    import gymnasium
    import lbforaging  # noqa: F401  registers them

    return sorted(id for id in gymnasium.registry if id.startswith("Foraging-") and "grid" not in id)


def _registered(name: str) -> Any:
    import gymnasium

    if name not in names():
        raise UnknownName("environment of level-based foraging", name, names())
    return gymnasium.registry[name]


def _food_is_left(env: Any) -> bool:
    return bool(env.field.any())


def _forget_positions(env: Any) -> None:
    """Clear the players' positions: a reset places each player where no other is, and counts the former places of those that it has not
    placed yet."""
    for player in env.players:
        player.position = None
