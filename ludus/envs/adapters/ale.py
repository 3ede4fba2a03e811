"""`ale/<game>`: Atari through the Arcade Learning Environment's own vector, stepped by threads of its own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np
from ale_py import roms
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from ludus.core.errors import EnvError, UnknownName
from ludus.core.types import Array
from ludus.envs.adapters.native import (
    OPTIONS,
    AsyncNativeVectorEnv,
    Native,
    NativeVectorEnv,
    Seeds,
    batch_and_threads,
    check_options,
)
from ludus.envs.adapters.single import one_agent
from ludus.envs.base import VectorEnv

_OURS = ("self", "game", "num_envs", "batch_size", "num_threads", "autoreset_mode")


def make(
    name: str, *, num_envs: int, threads: int | None = None, batch_size: int | None = None, **options: Any
) -> VectorEnv:
    """`name` is a game's ROM, such as `ms_pacman`. Observations are uint8[stack, height, width], with a last axis of 3 if in colour.

    threads, batch_size: see `ludus.envs.adapters.native`. options: of `ale_py.vector_env.AtariVectorEnv`, with its defaults.
    Raises UnknownName, ConfigError for options that it does not have, EnvError if it cannot be made.
    """
    id = f"ale/{name}"
    if name not in names():
        raise UnknownName("Atari game", name, names())
    given = inspect.signature(AtariVectorEnv.__init__).parameters
    usual = {option: None if p.default is p.empty else p.default for option, p in given.items() if option not in _OURS}
    check_options(id, usual, options, ours=OPTIONS)
    batch, workers = batch_and_threads(id, num_envs, batch_size=batch_size, threads=threads)
    whole = batch == num_envs
    mode = AutoresetMode.SAME_STEP if whole else AutoresetMode.NEXT_STEP
    try:
        vector = AtariVectorEnv(
            name, num_envs, batch_size=0 if whole else batch, num_threads=workers, autoreset_mode=mode, **options
        )
    except Exception as error:
        raise EnvError(f"{id} cannot be made with the options {options}: {type(error).__name__}: {error}.") from error
    seen, action = vector.single_observation_space, vector.single_action_space
    native = Native(
        spec=one_agent(id, seen, action, determinism="environment" if whole else "none"),
        num_envs=num_envs,
        observation=seen,
        action=action,
        mode=mode,
        start=partial(_start, vector),
        fresh=True,
        show=_show,
    )
    return NativeVectorEnv(native) if whole else AsyncNativeVectorEnv(native, send=_send)


@lru_cache(maxsize=1)
def names() -> list[str]:
    """The games whose ROMs ale-py brings, sorted."""
    return sorted(roms.get_all_rom_ids())


def _start(vector: Any, seeds: Seeds) -> tuple[Any, Any, Mapping[str, Any]]:
    return (vector, *vector.reset(seed=(seeds & np.uint64(0x7FFFFFFF)).astype(np.int64)))


def _send(vector: Any, actions: Array, _: Array) -> None:
    vector.send(actions)  # it knows the environments: those of the batch that it gave last


def _show(_: Any, environment: int, seen: Array) -> Array:
    """The newest frame that policies see; ALE's vector shows nothing else."""
    frame = seen[environment][-1]
    return frame.copy() if frame.ndim == 3 else np.repeat(frame[:, :, None], 3, axis=2)
