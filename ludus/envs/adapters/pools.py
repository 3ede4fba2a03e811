"""Options that EnvPool and ALE's vector have in common."""

from __future__ import annotations

import os

from ludus.errors import ConfigError


def batch_and_threads(id: str, num_envs: int, *, batch_size: int | None, threads: int | None) -> tuple[int, int]:
    """How many environments a timestep waits for, and how many threads step them.

    batch_size: fewer than `num_envs` make the vector asynchronous; None: all. threads: None: as many as there are cores for this
    process; never more than environments. Raises ConfigError for numbers that make no sense.
    """
    for option, given in (("batch_size", batch_size), ("threads", threads)):
        if given is not None and (isinstance(given, bool) or not isinstance(given, int)):
            raise ConfigError(f"{option}={given!r} was given for {id}; expected a whole number.")
    batch = num_envs if batch_size is None else batch_size
    if not 1 <= batch <= num_envs:
        raise ConfigError(f"batch_size={batch_size} was given for {id}; expected 1 to num_envs={num_envs}.")
    if threads is not None and threads < 1:
        raise ConfigError(f"threads={threads} was given for {id}; at least 1 is needed.")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return batch, min(threads or cores, num_envs)
