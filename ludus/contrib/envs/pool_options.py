"""Options that EnvPool and ALE's vector have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.core.errors import ConfigError, nearest
from ludus.core.machine import available_cpus

OPTIONS = ("threads", "batch_size")  # of Ludus, besides those of the environment
_COUNTS = (
    "agent_view_size", "board_size", "frame_skip", "frame_stack", "frameskip", "height", "history_len", "history_length", "img_height",
    "img_width", "max_episode_steps", "max_num_frames_per_episode", "size", "stack_num", "width",
)  # fmt: skip


def check_options(
    id: str,
    usual: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    adapter_options: tuple[str, ...],
    counts: tuple[str, ...] = (),
) -> None:
    """Raise ConfigError for options of an environment that it does not have, or of the wrong type: the pools' own messages about types
    are long, and some numbers end the process.

    usual: what can be given -> its default, or None. ours: what else the adapter takes, for suggestions. counts: options that start at
    1, besides those that do so everywhere; others start at 0, unless their default is below.
    """
    for option, value in options.items():
        if option not in usual:
            raise ConfigError(f"unknown option {option!r} for {id}{nearest(option, {*usual, *adapter_options})}")
        default = usual[option]
        allowed: Any = (int, float) if type(default) is float else type(default)
        if isinstance(default, bool | int | float | str) and (
            not isinstance(value, allowed) or isinstance(value, bool) != isinstance(default, bool)
        ):
            raise ConfigError(
                f"{option}={value!r} was given for {id}; expected {type(default).__name__}, such as {default!r}."
            )
        least = 1 if option in (*_COUNTS, *counts) else 0
        if type(default) is int and default >= 0 and value < least:
            raise ConfigError(f"{option}={value} was given for {id}; at least {least} is needed.")
        if option.endswith("_probability") and isinstance(default, float) and not 0 <= value <= 1:
            raise ConfigError(f"{option}={value} was given for {id}; expected 0 to 1.")


def batch_and_threads(id: str, num_envs: int, *, batch_size: int | None, threads: int | None) -> tuple[int, int]:
    """Return how many environments a timestep waits for, and how many threads step them.

    batch_size: fewer than `num_envs` make the vector asynchronous; None: all. threads: None: as many as there are cores for this
    process; never more than environments. Raises ConfigError for numbers that make no sense.
    """
    for option, value in (("batch_size", batch_size), ("threads", threads)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise ConfigError(f"{option}={value!r} was given for {id}; expected a whole number.")
    batch = num_envs if batch_size is None else batch_size
    if not 1 <= batch <= num_envs:
        raise ConfigError(f"batch_size={batch_size} was given for {id}; expected 1 to num_envs={num_envs}.")
    if threads is not None and threads < 1:
        raise ConfigError(f"threads={threads} was given for {id}; at least 1 is needed.")
    return batch, min(threads or available_cpus(), num_envs)
