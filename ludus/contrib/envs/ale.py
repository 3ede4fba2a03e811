"""`ale/<game>`: Atari through the Arcade Learning Environment's own vector, stepped by threads of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np
from ale_py import roms
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from ludus.contrib.envs.pool_options import OPTIONS, batch_and_threads, check_options
from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.core.types import Array
from ludus.envs.adapters.native import (
    AsyncNativeVectorEnv,
    Native,
    NativeVectorEnv,
    Seeds,
)
from ludus.envs.base import VectorEnv
from ludus.envs.spaces import one_agent

_OURS = ("self", "game", "num_envs", "batch_size", "num_threads", "autoreset_mode")


def make(
    name: str, *, num_envs: int, threads: int | None = None, batch_size: int | None = None, **options: Any
) -> VectorEnv:
    """Make the vector of a game of Atari. Observations are uint8[stack, height, width], with a last axis of 3 if in colour.

    Args:
        name: A game's ROM, such as `ms_pacman`.
        num_envs: Number of environments.
        threads: As in `ludus.contrib.envs.pool_options.batch_and_threads`; batch_size likewise.
        batch_size: Environments of a timestep.
        options: Of `ale_py.vector_env.AtariVectorEnv`, with its defaults.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such game.
        ConfigError: An option is not taken.
        EnvError: The vector cannot be made.
    """
    id = f"ale/{name}"
    if name not in names():
        raise UnknownName("Atari game", name, names())
    parameters = inspect.signature(AtariVectorEnv.__init__).parameters
    usual = {
        option: None if p.default is p.empty else p.default for option, p in parameters.items() if option not in _OURS
    }
    check_options(id, usual, options, adapter_options=OPTIONS)
    batch, workers = batch_and_threads(id, num_envs, batch_size=batch_size, threads=threads)
    whole = batch == num_envs
    if not whole and options.get("life_loss_info"):
        raise ConfigError(
            f"life_loss_info=true was given for {id} with batch_size={batch} of {num_envs}; a lost life then takes no step to restart, as "
            "the end of a game does, and cannot be told from it. Give episodic_life=true, or leave out batch_size."
        )
    mode = AutoresetMode.SAME_STEP if whole else AutoresetMode.NEXT_STEP
    build = partial(
        AtariVectorEnv, name, num_envs, batch_size=0 if whole else batch, num_threads=workers, autoreset_mode=mode, **options
    )  # fmt: skip
    try:
        vector = build()
    except Exception as error:
        raise EnvError(f"{id} cannot be made with the options {options}: {type(error).__name__}: {error}.") from error
    observation, action = vector.single_observation_space, vector.single_action_space
    native = Native(
        spec=one_agent(id, observation, action, determinism="environment" if whole else "none"),
        num_envs=num_envs,
        observation=observation,
        action=action,
        mode=mode,
        start=partial(_start, vector) if whole else partial(_start_anew, build),
        fresh=True,
        show=_show,
    )
    return NativeVectorEnv(native) if whole else AsyncNativeVectorEnv(native, send=_send)


@lru_cache(maxsize=1)
def names() -> list[str]:
    """Return the games whose ROMs ale-py brings, sorted."""
    return sorted(roms.get_all_rom_ids())


def _start(vector: Any, seeds: Seeds) -> tuple[Any, Any, Mapping[str, Any]]:
    return (vector, *vector.reset(seed=(seeds & np.uint64(0x7FFFFFFF)).astype(np.int64)))


def _start_anew(build: Callable[[], Any], seeds: Seeds) -> tuple[Any, Any, Mapping[str, Any]]:
    """Start a new vector: a reset of one that answers later would leave steps of the former episodes under way, whose results come
    first."""
    return _start(build(), seeds)


def _send(vector: Any, actions: Array, _: Array) -> None:
    vector.send(actions)  # it knows the environments: those of the batch that it gave last


def _show(_: Any, environment: int, observation: Array) -> Array:
    """Return the newest frame that policies see; ALE's vector shows nothing else."""
    frame = observation[environment][-1]
    return frame.copy() if frame.ndim == 3 else np.repeat(frame[:, :, None], 3, axis=2)
