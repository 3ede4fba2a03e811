"""Where the peers that JAX compiles compute."""

from __future__ import annotations

import jax


def use_device(name: str) -> None:
    """Compute on a device, as torch names it: cpu, cuda, cuda:1. Raises RuntimeError where JAX sees
    none of the kind, and IndexError where it sees fewer."""
    kind, _, index = name.partition(":")
    jax.config.update("jax_default_device", jax.devices(kind)[int(index or 0)])
