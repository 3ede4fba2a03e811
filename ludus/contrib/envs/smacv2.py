"""`smacv2/<race>_<n>_vs_<m>`: SMACv2 (Ellis et al. 2023): units and where they start are drawn for each battle."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from ludus.contrib.envs.smac import DEFAULTS, battles, build_env, check_ours
from ludus.core.errors import UnknownName
from ludus.envs.adapters.agent_seats import split_options
from ludus.envs.base import VectorEnv

__all__ = ["make", "names"]

_SIZES = ((5, 5), (10, 10), (10, 11), (20, 20), (20, 23))  # of the published scenarios
_UNITS: Mapping[str, Mapping[str, Any]] = {  # of the published scenarios: who is drawn, how often, and not alone
    "protoss": {"unit_types": ["stalker", "zealot", "colossus"], "weights": [0.45, 0.45, 0.1]},
    "terran": {
        "unit_types": ["marine", "marauder", "medivac"],
        "weights": [0.45, 0.45, 0.1],
        "exception_unit_types": ["medivac"],
    },
    "zerg": {
        "unit_types": ["zergling", "baneling", "hydralisk"],
        "weights": [0.45, 0.1, 0.45],
        "exception_unit_types": ["baneling"],
    },
}
_PUBLISHED: Mapping[str, Any] = {  # where the published scenarios differ from the defaults
    "conic_fov": False,
    "obs_own_pos": True,
    "use_unit_ranges": True,
    "min_attack_range": 2,
    "num_fov_actions": 12,
}


def make(name: str, *, num_envs: int, restarts: int = 0, **options: Any) -> VectorEnv:
    """Make the vector of a scenario of SMACv2.

    Args:
        name: `terran_5_vs_5` or such: the race, and the numbers of units of both sides, which may be any.
        num_envs: Number of environments.
        restarts: As in `PythonVectorEnv`.
        options: As of `ludus.contrib.envs.smac.make`; those of the environment (capability_config, conic_fov, prob_obs_enemy, …) go to
            `StarCraftCapabilityEnvWrapper`.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such race, or the name has another form.
        ConfigError: An option is not taken.
        EnvError: The environment cannot be made.
    """
    from smacv2.env import StarCraftCapabilityEnvWrapper

    match = re.fullmatch(r"(protoss|terran|zerg)_([1-9]\d?)_vs_([1-9]\d?)", name)
    if match is None:
        raise UnknownName("scenario of SMACv2", name, names(), hint="other numbers of units may be given")
    id = f"smacv2/{name}"
    sides, rest = split_options(options, defaults=DEFAULTS)
    check_ours(id, rest)
    whole = {
        **_PUBLISHED,
        "capability_config": _capability_config(match[1], int(match[2]), int(match[3])),
        **rest,
        "map_name": f"10gen_{match[1]}",
        "continuing_episode": True,
    }

    def build(seed: int) -> Any:
        return build_env(
            id, StarCraftCapabilityEnvWrapper, copy.deepcopy(whole), seed
        )  # it writes into its configuration

    return battles(build, num_envs, id=id, sides=sides, restarts=restarts)


def names() -> list[str]:
    """Return the published scenarios, sorted."""
    return sorted(f"{race}_{own}_vs_{enemies}" for race in _UNITS for own, enemies in _SIZES)


def _capability_config(race: str, own: int, enemies: int) -> dict[str, Any]:
    """Return what is drawn for each battle, as published."""
    return {
        "n_units": own,
        "n_enemies": enemies,
        "team_gen": {"dist_type": "weighted_teams", **_UNITS[race], "observe": True},
        "start_positions": {"dist_type": "surrounded_and_reflect", "p": 0.5, "map_x": 32, "map_y": 32},
    }
