"""`rware/<id>`: the multi-robot warehouse; robots carry requested shelves to the goals."""

from __future__ import annotations

from enum import Enum
from typing import Any

from ludus.core.errors import ConfigError, UnknownName, nearest
from ludus.envs.adapters.agent_seats import split_options
from ludus.envs.adapters.pettingzoo_vector import env_creator
from ludus.envs.adapters.tuple_env import tuple_vector
from ludus.envs.base import VectorEnv

__all__ = ["make", "names"]


def make(name: str, *, num_envs: int, restarts: int = 0, **options: Any) -> VectorEnv:
    """Make the vector of a multi-robot warehouse. It has no natural end: episodes are truncated.

    Args:
        name: `rware-tiny-2ag-v2` or such; observations of `rware-img-…` are images.
        num_envs: Number of environments.
        restarts: As in `PythonVectorEnv`.
        options: Those of `Sides` say who plays whom; the others (reward_type="global", max_steps, msg_bits, …) go to the environment.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such environment; with the nearest names.
        ConfigError: An option is not taken.
        EnvError: The environment cannot be made.
    """
    spec = _registered(name)
    sides, rest = split_options(options)
    id = f"rware/{name}"
    make_one = env_creator(id, spec.entry_point, {**spec.kwargs, **_with_enums(id, rest)})
    return tuple_vector(make_one, num_envs, id=id, sides=sides, restarts=restarts, out_of_time=lambda _: True)


def names() -> list[str]:
    """Return the ids that the package registers, sorted; those of images are registered when one is made."""
    import gymnasium
    import rware  # noqa: F401  registers them

    return sorted(id for id in gymnasium.registry if id.startswith("rware-") and id.split("-")[1] in _SIZES)


_SIZES = ("tiny", "small", "medium", "large")


def _registered(name: str) -> Any:
    import gymnasium
    import rware

    if name.startswith("rware-img") and "rware-img-tiny-1ag-v2" not in gymnasium.registry:
        rware.image_registration()
    if name not in gymnasium.registry or not name.startswith("rware-"):
        hint = "Other warehouses are options: column_height, sensor_range, …"
        raise UnknownName("environment of the warehouse", name, names(), hint=hint)
    return gymnasium.registry[name]


def _with_enums(id: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with the names of reward and observation types as what the package calls them."""
    from rware.warehouse import ObservationType, RewardType

    out = dict(options)
    kinds: dict[str, type[Enum]] = {"reward_type": RewardType, "observation_type": ObservationType}
    for key, kind in kinds.items():
        if isinstance(value := out.get(key), str):
            known = {member.name.lower(): member for member in kind}
            if value not in known:
                raise ConfigError(f"{id}: {key}={value!r} was given{nearest(value, known)}")
            out[key] = known[value]
    return out
